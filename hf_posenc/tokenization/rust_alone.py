"""A fast tokenizer without transformers: its Rust part, and the few attributes that `Encoder` reads.

Only for tokenizers that do nothing but ask their Rust part; which ones those are is for `encoding` to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class RustAlone:
    r"""Plain values: picklable, and the same in every process.

    Args:
        json (`str`): the Rust part, as `tokenizer.json` holds it, without padding and truncation.
        model_input_names (`tuple` of `str`), truncation_side (`str`), split_special_tokens (`bool`): as transformers
            spells them.
        special (`tuple` of two `int`): how many special tokens a text gets, and a pair.
    """

    json: str
    model_input_names: tuple[str, ...]
    truncation_side: str
    split_special_tokens: bool
    special: tuple[int, int]

    is_fast = True

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> RustAlone:
        """What there is of a private copy of a fast tokenizer, see `loading.private_copy`."""
        return cls(
            json=tokenizer.backend_tokenizer.to_str(),
            model_input_names=tuple(tokenizer.model_input_names),
            truncation_side=str(tokenizer.truncation_side),
            split_special_tokens=bool(getattr(tokenizer, "split_special_tokens", False)),
            special=(
                int(tokenizer.num_special_tokens_to_add(pair=False)),
                int(tokenizer.num_special_tokens_to_add(pair=True)),
            ),
        )

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """As of the tokenizer itself."""
        return self.special[pair]

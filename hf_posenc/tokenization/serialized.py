"""`SerializedTokenizer`: a tokenizer in a form that can be pickled to another process and loaded there.

Most tokenizers are loaded without importing transformers, so that the other process starts three times as fast. The
rest are pickled as files that transformers loads.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._common.compat import has_own_call
from .loading import from_files, to_files
from .rust import to_json
from .template import has_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def calls_only_rust(tokenizer: PreTrainedTokenizerBase | RustOnlyTokenizer) -> bool:
    """Return True if calling `tokenizer` only runs its Rust tokenizer; a few model families add steps in Python."""
    if isinstance(tokenizer, RustOnlyTokenizer):
        return True
    return bool(tokenizer.is_fast) and not has_own_call(tokenizer) and has_template(tokenizer.backend_tokenizer)


@dataclass(frozen=True)
class RustOnlyTokenizer:
    r"""A fast tokenizer that needs no transformers: a `tokenizer.json`, and the attributes that `Encoder` reads.

    Args:
        json (`str`): the content of a `tokenizer.json`, without padding and truncation.
        model_input_names (`tuple` of `str`), truncation_side (`str`), split_special_tokens (`bool`): as in
            transformers.
    """

    json: str
    model_input_names: tuple[str, ...]
    truncation_side: str
    split_special_tokens: bool

    is_fast = True


@dataclass(frozen=True)
class SerializedTokenizer:
    r"""A tokenizer in a form that can be pickled to any process; `of` makes it, and `load` loads the tokenizer.

    Args:
        content (`RustOnlyTokenizer`, or pair of a class and its files): the data that `load` needs. The files are a
            dict from name to content.
        digest (`str`): hash of the class name and the files. It is the same for equal tokenizers, and different for
            different ones.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> from hf_posenc.tokenization import Encoder
        >>> from hf_posenc.tokenization.loading import private_copy
        >>> mine = private_copy(Tokenizer(models.WordLevel({"<unk>": 0, "hi": 1}, unk_token="<unk>")))
        >>> Encoder(SerializedTokenizer.of(mine).load()).tokenize(["hi hi", "hi"]).ids.lengths
        array([1, 1])
    """

    content: RustOnlyTokenizer | tuple[type[PreTrainedTokenizerBase], dict[str, bytes]]
    digest: str

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> SerializedTokenizer:
        """Return the serialized form of `tokenizer`, which must be a result of `private_copy`."""
        files = to_files(tokenizer)
        digest = hashlib.sha256()
        for name, content in (("class", type(tokenizer).__name__.encode()), *sorted(files.items())):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        if not calls_only_rust(tokenizer):
            return cls((type(tokenizer), files), digest.hexdigest())
        rust_only = RustOnlyTokenizer(
            json=to_json(tokenizer.backend_tokenizer),
            model_input_names=tuple(tokenizer.model_input_names),
            truncation_side=str(tokenizer.truncation_side),
            split_special_tokens=bool(getattr(tokenizer, "split_special_tokens", False)),
        )
        return cls(rust_only, digest.hexdigest())

    def load(self) -> PreTrainedTokenizerBase | RustOnlyTokenizer:
        """Load the tokenizer: a `RustOnlyTokenizer` or a transformers tokenizer; `Encoder` accepts both."""
        return self.content if isinstance(self.content, RustOnlyTokenizer) else from_files(*self.content)

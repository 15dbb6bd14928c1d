"""A tokenizer as values that travel to another process, and back to what `Encoder` reads there.

Most need no transformers on the other side, which starts three times as fast; the rest travel as their files.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .encoding import is_plain_fast
from .loading import from_files, to_files
from .rust_alone import RustAlone

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Travelling:
    r"""A tokenizer that can be sent anywhere.

    Args:
        sent (`RustAlone`, or a class and its files): what `Encoder` needs, or what it is built from there.
        digest (`str`): equal for tokenizers that are equal, and for no others.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> from hf_posenc.tokenization.encoding import Encoder
        >>> from hf_posenc.tokenization.loading import private_copy
        >>> sent = Travelling.of(private_copy(Tokenizer(models.WordLevel({"<unk>": 0, "hi": 1}, unk_token="<unk>"))))
        >>> Encoder(sent.arrived()).encode(["hi hi", "hi"]).input_ids.lengths
        array([1, 1])
    """

    sent: RustAlone | tuple[type[PreTrainedTokenizerBase], dict[str, bytes]]
    digest: str

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Travelling:
        """What to send of a private copy, see `loading.private_copy`."""
        files = to_files(tokenizer)
        digest = hashlib.sha256()
        for name, content in (("class", type(tokenizer).__name__.encode()), *sorted(files.items())):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        sent = RustAlone.of(tokenizer) if is_plain_fast(tokenizer) else (type(tokenizer), files)
        return cls(sent, digest.hexdigest())

    def arrived(self) -> PreTrainedTokenizerBase | RustAlone:
        """What `Encoder` takes."""
        return self.sent if isinstance(self.sent, RustAlone) else from_files(*self.sent)

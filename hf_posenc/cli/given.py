"""What the commands share: options for a tokenizer, and what stands in where none is named.

Nothing is downloaded, unless a name on the Hub is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..batch import Batch

LIMIT = 512  # tokens a row, where the tokenizer itself has no smaller limit

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="A tokenizer on the Hub, or a folder with one."),
]
PadToken = Annotated[
    str | None, typer.Option(help="A token to pad with, for a tokenizer without one; 'eos' takes its own.")
]


def default_texts() -> list[str]:
    """The docstrings of Python's own standard library."""
    from ..corpus import standard_library_docstrings

    return standard_library_docstrings()


def real(batch: Batch) -> list[list[bool]]:
    """Where a token stands, and no padding."""
    return [[bool(keep) for keep in row] for row in batch["attention_mask"].tolist()]


def trained(texts: Sequence[str], vocab_size: int = 8_000) -> tuple[Any, str]:
    """The BPE for these texts, and a few words on where it comes from."""
    from ..tokenization import cached_bpe

    kept = cached_bpe(texts, vocab_size, model_max_length=LIMIT)
    about = f"byte-level BPE of {len(kept.tokenizer):,} tokens, "
    about += "trained by an earlier call" if kept.seconds is None else f"trained in {kept.seconds:.1f} s"
    where = "not kept: the cache cannot be written to" if kept.folder is None else f"kept in {kept.folder}"
    return kept.tokenizer, f"{about}, {where}"

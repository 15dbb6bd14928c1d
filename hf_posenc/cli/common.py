"""Options and defaults that several commands share.

The commands download nothing unless `--tokenizer` names a tokenizer on the Hub.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

MAX_LENGTH = 512  # tokens in a row, unless the tokenizer has a smaller limit

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="A tokenizer on the Hub, or a folder with one."),
]
PadToken = Annotated[
    str | None, typer.Option(help="Padding token for a tokenizer without one; 'eos' means its end-of-text token.")
]


def default_texts() -> list[str]:
    """Return the default corpus: the docstrings of Python's standard library."""
    from .._common.sample_texts import standard_library_docstrings

    return standard_library_docstrings()


def default_tokenizer(texts: Sequence[str], vocab_size: int = 8_000) -> tuple[Any, str]:
    """Return a BPE tokenizer of up to `vocab_size` tokens trained on `texts`, and a line of text that describes it."""
    from ..tokenization import train_bpe

    begin = time.perf_counter()
    bpe = train_bpe(texts, vocab_size, model_max_length=MAX_LENGTH)
    return bpe, f"byte-level BPE of {len(bpe):,} tokens, trained in {time.perf_counter() - begin:.1f} s; Ġ is a space"

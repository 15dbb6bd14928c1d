"""Options and defaults that several commands share.

The commands download nothing unless `--tokenizer` names a tokenizer on the Hub.
"""

from __future__ import annotations

import platform
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

MAX_LENGTH = 512  # tokens in a row, unless the tokenizer has a smaller limit

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="A tokenizer on the Hub, or a folder with one."),
]
INSTALL_BERT = r'pip install "hf-posenc\[bert]"'  # of a help text: without the backslash, rich reads a style
DefaultTokenizer = Annotated[
    str | None,
    typer.Option(
        *("--tokenizer", "-t"),
        metavar="NAME_OR_FOLDER",
        help="A tokenizer on the Hub, or a folder with one. "
        f"By default BERT's, after {INSTALL_BERT}; else a small BPE.",
    ),
]
PadToken = Annotated[
    str | None, typer.Option(help="Padding token for a tokenizer without one; 'eos' means its end-of-text token.")
]


def trained_bpe(texts: Sequence[str], vocab_size: int) -> tuple[Any, str]:
    """Return a BPE tokenizer of up to `vocab_size` tokens trained on `texts`, and a line of text that describes it."""
    from ..tokenization import train_bpe

    begin = time.perf_counter()
    bpe = train_bpe(texts, vocab_size, model_max_length=MAX_LENGTH)
    return bpe, f"byte-level BPE of {len(bpe):,} tokens, trained in {time.perf_counter() - begin:.1f} s; Ġ is a space"


_PACKAGES = ("asyncio", "email", "unittest")  # of the standard library: 830 texts in a third of a second


def sample_corpus() -> tuple[list[str], str]:
    """Return the docstrings of three packages of Python, and a line that describes them."""
    from .._common.sample_texts import standard_library_docstrings

    folders = [Path(sysconfig.get_path("stdlib"), name) for name in _PACKAGES]
    texts = sorted({text for folder in folders for text in standard_library_docstrings(folder)})
    return texts, f"docstrings of {', '.join(_PACKAGES)} in Python {platform.python_version()}"


def default_bpe() -> tuple[Any, str]:
    """Return a BPE tokenizer trained on the sample corpus, and a line that describes it."""
    return trained_bpe(sample_corpus()[0], 4_000)


def default_tokenizer() -> tuple[Any, str]:
    """Return the folder of the small BERT if it is installed, otherwise `default_bpe()`; and a line about it."""
    from .._common.sample_texts import BERT, bert_folder

    folder = bert_folder()
    return default_bpe() if folder is None else (folder, f"WordPiece of {BERT}")

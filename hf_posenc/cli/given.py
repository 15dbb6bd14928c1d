"""What the commands share: options for a tokenizer, a model read from a folder, and what stands in where none is named.

Nothing is downloaded, unless a name on the Hub is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._explain import explain

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
    from ..tokenization.kept import kept_bpe

    kept = kept_bpe(texts, vocab_size, model_max_length=LIMIT)
    about = f"byte-level BPE of {len(kept.tokenizer):,} tokens, "
    about += "trained by an earlier call" if kept.seconds is None else f"trained in {kept.seconds:.1f} s"
    where = "not kept: the cache cannot be written to" if kept.folder is None else f"kept in {kept.folder}"
    return kept.tokenizer, f"{about}, {where}"


def loaded_model(name: str, *, instead: str = "", **settings: Any) -> tuple[Any, set[str]]:
    """The model of that name or folder, without a word from transformers, and what its checkpoint lacks."""
    import transformers

    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        model, info = transformers.AutoModel.from_pretrained(
            name, output_loading_info=True, trust_remote_code=False, **settings
        )
    except Exception as error:  # whatever a file that is no model makes its reader raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "nothing said")
        here = "a folder written by model.save_pretrained(folder)"
        hub = "a folder with a model; one on the Hub must be in the cache, or the Hub in reach and HF_HUB_OFFLINE unset"
        raise ValueError(
            explain(
                f"{name} cannot be loaded as a model",
                got=f"{type(error).__name__}: {first}",
                fix=f"{here if Path(name).exists() else hub}{instead}",
            )
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return model, set(info["missing_keys"])

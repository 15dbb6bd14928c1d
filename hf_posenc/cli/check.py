"""`hf-posenc check`: which positions a model has.

The audit finds out; this loads the model, quietly, and prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._explain import explain
from .terminal import Screen


def check_model(
    model: Annotated[str, typer.Argument(metavar="MODEL_OR_FOLDER", help="A folder with a model, or one on the Hub.")],
) -> None:
    """Report which positions a model has: formula of each table, how exact it is, what left padding does."""
    from ..audit import check

    screen = Screen()
    loaded, missing = _loaded(model)
    found = check(loaded)
    screen.say(str(found))
    fresh = [table.name for table in found.tables if table.name in missing]
    if fresh:
        screen.say(f"  not in the checkpoint, and new random numbers: {', '.join(fresh)}")


def _loaded(name: str) -> tuple[Any, set[str]]:
    """The model of that name or folder, without a word from transformers, and what its checkpoint lacks."""
    import transformers

    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        model, info = transformers.AutoModel.from_pretrained(name, output_loading_info=True, trust_remote_code=False)
    except Exception as error:  # whatever a file that is no model makes its reader raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "nothing said")
        here = "a folder written by model.save_pretrained(folder)"
        hub = "a folder with a model; one on the Hub must be in the cache, or the Hub in reach and HF_HUB_OFFLINE unset"
        raise ValueError(
            explain(
                f"{name} cannot be loaded as a model",
                got=f"{type(error).__name__}: {first}",
                fix=f"{here if Path(name).exists() else hub}; in Python hf_posenc.audit.check(model) takes any model",
            )
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return model, set(info["missing_keys"])

"""`hf-posenc check`: which positions a model has.

The audit finds out; this loads the model, quietly, and prints.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .._huggingface import loaded_model
from .terminal import Screen


def check_model(
    model: Annotated[str, typer.Argument(metavar="MODEL_OR_FOLDER", help="A folder with a model, or one on the Hub.")],
) -> None:
    """Report which positions a model has: formula of each table, how exact it is, what left padding does."""
    from ..audit import check

    screen = Screen()
    loaded, missing = loaded_model(model, instead="; in Python hf_posenc.audit.check(model) takes any model")
    found = check(loaded)
    screen.say(str(found))
    fresh = [table.name for table in found.tables if table.name in missing]
    if fresh:
        screen.say(f"  not in the checkpoint, and new random numbers: {', '.join(fresh)}")

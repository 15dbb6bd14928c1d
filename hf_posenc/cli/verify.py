"""`hf-posenc verify`: compare the shards of a folder with its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .progress import ProgressLine
from .terminal import Screen


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `hf-posenc encode` wrote.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--inputs", metavar="INPUT", help="Read this input of the job again as well; repeatable."),
    ] = None,
) -> None:
    """Read every shard again and name those that are not as they were written.

    The exit status is 0 if all is well, 1 if a shard is bad or the run never finished, 2 if there is no manifest.
    """
    from ..jobs import verify as verify_folder

    screen = Screen()
    with ProgressLine(screen) as line:
        found = verify_folder(folder, line.checked, inputs=inputs or None)
    screen.say(str(found))
    if found.bad or not found.finished:
        raise typer.Exit(1)

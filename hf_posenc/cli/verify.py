"""`hf-posenc verify`: whether the shards of a corpus are those that were written.

It prints what `jobs.verify` finds, and says with its exit status whether the folder can be used.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from .._explain import in_bytes
from .figures import clock
from .moving import Moving
from .terminal import Screen


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `hf-posenc encode` wrote.")],
) -> None:
    """Read every shard again and name those that are not as they were written.

    Ends with 0 if all is well, 1 if a shard is bad or the run never finished, 2 if that is no folder of shards.
    """
    from ..jobs import verify as verified

    screen = Screen()
    read, begun = 0, time.monotonic()

    def on_checked(more: int) -> None:
        nonlocal read
        read += more

    with Moving(screen, lambda width: f"checked {in_bytes(read)}  {clock(time.monotonic() - begun)}"[:width]):
        found = verified(folder, on_checked)
    screen.say(str(found))
    if found.bad or not found.finished:
        raise typer.Exit(1)

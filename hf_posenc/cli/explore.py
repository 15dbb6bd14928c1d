"""`hf-posenc explore`: the page with the sliders, on this machine.

It reads two options; the page is made and served by `explorer`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .terminal import Screen


def explore(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="By default the first free one from 7860 on.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Open a page where texts, masks and positions follow the sliders; nothing leaves this machine."""
    from ..explorer import serve

    serve(port, browser=browser, say=Screen().say)

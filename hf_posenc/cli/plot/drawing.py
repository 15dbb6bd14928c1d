"""What every `hf-posenc plot` command does: draw, write the file, say where it is.

The pictures are of `hf_posenc.plots`, and so is what they refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..._explain import explain
from ..terminal import Screen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _drawable(output: Path | None) -> Path | None:
    """Refuses a file of another kind before a model is read for it."""
    from ...plots.saving import kind_of

    if output is not None:
        kind_of(output)
    return output


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        callback=_drawable,
        help="Ends in .png or .svg. By default named like the picture.",
    ),
]
ConventionName = Annotated[str, typer.Option(help="vaswani, tensor2tensor, fairseq, marian and so on.")]
Base = Annotated[float | None, typer.Option(help="Of the frequencies; 10000 by default.")]


def draw(name: str, output: Path | None, make: Callable[[], Axes | Figure], **about: str) -> None:
    """Draws, writes the file whole or not at all, and says where it is."""
    from ...plots.canvas import need_matplotlib, save

    need_matplotlib()
    target = Path(f"{name}.png") if output is None else output
    written = save(make(), target)
    Screen().facts({**about, "picture": str(written.resolve())})


def several(text: str | None, name: str, kind: Callable[[str], Any] = int, *, example: str = "0,2,8") -> Any:
    r"""Numbers separated by commas; `None` where nothing is given.

    Example:
        >>> several("0,2, 8", "--columns")
        [0, 2, 8]
    """
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            explain(f"{name} takes numbers separated by commas", got=repr(text), fix=f"{name} {example}")
        ) from None

"""A picture into a file, whole or not at all, and the same bytes for the same picture.

PNG and SVG only: the two that pages and notebooks show.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._explain import explain
from .._files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMATS = ("png", "svg")


def save(picture: Figure | Axes, path: str | os.PathLike[str], *, about: str | None = None) -> Path:
    r"""Writes a picture as PNG or SVG, by the ending of the file's name.

    Drawn into a file beside it, which is then renamed: whoever reads `path` sees the old picture or the new one. An SVG
    holds no date and no random names, so that it changes when the picture does.

    Args:
        picture (`matplotlib.figure.Figure` or `Axes`): axes are written with the whole figure around them.
        path (`str` or path): ends in .png or .svg. What is there is replaced.
        about (`str`, *optional*): kept in the file as its description, which no viewer shows unasked.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: if the ending is another one, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from hf_posenc import plots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(plots.frequencies(64), Path(folder) / "decay.svg").name
        'decay.svg'
    """
    from matplotlib import rc_context

    target, kind = Path(path), kind_of(path)
    figure = figure_of(picture)
    metadata: dict[str, str | None] = {"Date": None} if kind == "svg" else {}
    if about is not None:
        metadata["Description"] = about
    try:
        # Ids inside an SVG are hashes of this and of what they name, not random.
        with atomic_write(target) as temporary, rc_context({"svg.hashsalt": "hf_posenc"}):
            figure.savefig(temporary, format=kind, metadata=metadata, facecolor=figure.get_facecolor())
    except OSError as error:
        raise ValueError(
            explain(
                "the picture cannot be written",
                got=f"{target}: {error.strerror or error}",
                fix="a folder that is there and can be written to",
            )
        ) from None
    return target


def figure_of(picture: Figure | Axes) -> Figure:
    """The whole figure that axes belong to, also where they sit in a part of one."""
    figure: Any = picture.figure
    while figure.figure is not figure:
        figure = figure.figure
    found: Figure = figure
    return found


def kind_of(path: str | os.PathLike[str]) -> str:
    r"""What a file is by its ending, "png" or "svg"; to be asked before a picture takes time to draw.

    Raises:
        ValueError: if it is neither.

    Example:
        >>> kind_of("decay.SVG")
        'svg'
    """
    target = Path(path)
    kind = target.suffix.lower().lstrip(".")
    if kind not in _FORMATS:
        raise ValueError(
            explain(
                "a picture's file must end in .png or .svg",
                got=repr(target.name),
                fix=repr(str(target.with_suffix(".png") if target.name else "picture.png")),
            )
        )
    return kind

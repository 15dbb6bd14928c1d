"""The colours of page, frame and words, whatever style the user has given matplotlib: those of a white page.

Colours alone: fonts and sizes are the user's, and so is everything in axes that the user gives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .saving import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Given = ParamSpec("_Given")
_Picture = TypeVar("_Picture", bound="Axes | Figure")

_NAMES = (
    *("figure.facecolor", "figure.edgecolor", "text.color", "grid.color", "patch.edgecolor"),
    *("axes.facecolor", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "axes.grid"),
    *("xtick.color", "xtick.labelcolor", "ytick.color", "ytick.labelcolor"),
    *("legend.facecolor", "legend.edgecolor", "legend.labelcolor"),
)


def on_white(picture: Callable[_Given, _Picture]) -> Callable[_Given, _Picture]:
    r"""Draws a picture's own figure in matplotlib's default colours, under "dark_background" for one too.

    The words of a picture are dark, and would not be seen on a black page. Where nothing is to be changed, nothing is:
    matplotlib's settings belong to the process, threads included.

    Example:
        >>> on_white(lambda: None).__name__
        '<lambda>'
    """

    @functools.wraps(picture)
    def drawn(*args: _Given.args, **settings: _Given.kwargs) -> _Picture:
        others = {} if settings.get("ax") is not None else _others()
        if not others:
            return picture(*args, **settings)
        from matplotlib import rc_context

        with rc_context(others):
            made = picture(*args, **settings)
            figure_of(made).draw_without_rendering()  # ticks take their colours when they are first needed
        return made

    return drawn


def _others() -> dict[str, Any]:
    """The default colours that the user has replaced."""
    try:
        from matplotlib import rcParams, rcParamsDefault
    except ImportError:  # the picture says what to install
        return {}
    return {name: rcParamsDefault[name] for name in _NAMES if rcParams[name] != rcParamsDefault[name]}

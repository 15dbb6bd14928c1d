"""What a picture shows as one short code: the same on every machine, another one when numbers, words or colours change.

Fonts, sizes in pixels and ticks that matplotlib chose are not in it, nor is the frame.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .saving import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DIGITS = 6  # after the point: far below a pixel, far above what machines differ by


def digest(picture: Figure | Axes) -> str:
    r"""The code of what a picture shows: its numbers, words and colours.

    Args:
        picture (`matplotlib.figure.Figure` or `Axes`): axes stand for the whole figure around them.

    Returns:
        `str` of 16 hexadecimal digits.

    Example:
        >>> from hf_posenc import plots
        >>> digest(plots.frequencies(64)) == digest(plots.frequencies(64))
        True
        >>> digest(plots.frequencies(64)) == digest(plots.frequencies(66))
        False
    """
    figure = figure_of(picture)
    shown = hashlib.sha256()
    _add(shown, figure.get_suptitle(), figure.get_size_inches())
    for ax in figure.axes:
        _add(shown, *(ax.get_title(loc=side) for side in ("left", "center", "right")))
        _add(shown, ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale())
        if ax.get_label() == "<colorbar>":
            continue
        for image in ax.images:
            _add(shown, image.get_array(), image.get_cmap().name, image.get_clim(), image.get_extent())
        for line in ax.lines:
            _add(shown, line.get_xydata(), _colours(line.get_color()), line.get_label())
        for collection in ax.collections:
            _add(shown, collection.get_offsets(), *(path.vertices for path in collection.get_paths()))
            _add(shown, _colours(collection.get_edgecolor()), _colours(collection.get_facecolor()))
        for text in ax.texts:
            _add(shown, text.get_text(), text.get_position(), _colours(text.get_color()))
    return shown.hexdigest()[:16]


def _add(shown: Any, *parts: Any) -> None:
    for part in parts:
        if isinstance(part, str):
            shown.update(f"{' '.join(part.split())!r};".encode())  # lines are broken where the axes end
        else:
            array = np.ma.filled(np.ma.asarray(part).astype("<f8"), np.nan)
            # Gaps, which are NaN, and zeros of either sign have many patterns of bits.
            whole = np.nan_to_num(np.round(array, _DIGITS), nan=1e300) + 0.0
            shown.update(f"{whole.shape};".encode() + whole.tobytes())


def _colours(colour: Any) -> Any:
    from matplotlib.colors import to_rgba_array

    return to_rgba_array(colour)

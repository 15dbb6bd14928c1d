"""What every picture needs: a figure that no window or notebook owns, and text that any font can show.

Nothing here touches `pyplot`, whose state belongs to the user.
"""

from __future__ import annotations

import functools
import unicodedata
from typing import TYPE_CHECKING

from .._explain import explain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The blue is from Okabe and Ito 2008, "Color Universal Design": with any kind of colour vision, and in print without
# colour, it stands apart from the grey.
BLUE, PADDING = "#0072B2", "#DCDCDC"
INK, FADED = "#202020", "#6A6A6A"  # to write with: on white, and on PADDING

# Fonts with other scripts, as the usual systems bring them. None with colour bitmaps: matplotlib cannot draw those.
_OTHER_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Sans Arabic",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Nirmala UI",
    "Leelawadee UI",
    "Noto Emoji",
    "Segoe UI Emoji",
    "Segoe UI Symbol",
)


def new_figure(width: float, height: float) -> Figure:
    r"""An empty figure with a canvas of its own, drawn without a display.

    Args:
        width, height (`float`): in inches.

    Returns:
        `matplotlib.figure.Figure`

    Raises:
        ImportError: if matplotlib is not installed, with the line that installs it.

    Example:
        >>> new_figure(4, 3).get_size_inches()
        array([4., 3.])
    """
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def need_matplotlib() -> None:
    """Raises, with the line that installs it, where matplotlib is missing: the first thing that a picture asks."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            explain("pictures need matplotlib, which is not installed", fix='pip install "hf-posenc[plots]"')
        ) from error


def readable(text: str, longest: int = 12) -> str:
    r"""The text as a picture can show it: what has no glyph becomes its code point, what is too long is cut.

    Example:
        >>> readable("ride\n"), readable("internationalisation")
        ('ride\\n', 'internation…')
    """
    shown = "".join(_shown(character) for character in text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def fonts() -> list[str]:
    r"""The font families to write with, first choice first.

    Example:
        >>> fonts()[0]
        'DejaVu Sans'
    """
    return list(_glyphs())


def _shown(character: str) -> str:
    if unicodedata.category(character)[0] in "CZ" and character != " ":  # control, format and separator characters
        return character.encode("unicode_escape").decode()
    if any(ord(character) in glyphs for glyphs in _glyphs().values()):
        return character
    return f"U+{ord(character):04X}"


@functools.cache
def _glyphs() -> dict[str, frozenset[int]]:
    """The characters that each usable font has; DejaVu Sans comes with matplotlib."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in _OTHER_FONTS if name in installed)]
    return {name: frozenset(font_manager.get_font(font_manager.findfont(name)).get_charmap()) for name in families}

"""Text that a picture can show, whatever the script: which font families there are, and what none of them has.

Asked of matplotlib's list of fonts, once a process.
"""

from __future__ import annotations

import functools
import unicodedata

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

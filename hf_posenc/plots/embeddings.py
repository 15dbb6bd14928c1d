"""A sentence's token embeddings in the plane, before and after positions, and how much of them positions are.

Two dimensions are drawn of many; each picture says how much of the spread they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from . import numbers
from .canvas import (
    BLUE,
    GRID,
    INK,
    LABEL,
    ORANGE,
    SMALL,
    TITLE,
    axes,
    check_count,
    figure_of,
    need_matplotlib,
    new_figure,
)
from .colours import on_white
from .glyphs import fonts, readable
from .labelling import write_beside
from .tokens import MOST_TOKENS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import nn

    from ..embedding import PositionalEmbedding
    from ..sinusoid import Convention
    from ..tokenization.loading import AnyTokenizer

_SHORTER = "a shorter text; plots.numbers has the numbers of any length"


@on_white
def embeddings(
    tokenizer: AnyTokenizer,
    embedding: nn.Embedding | PositionalEmbedding,
    text: str,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    scale: Literal["sqrt_d"] | float | None = None,
    add_special_tokens: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes | Figure:
    r"""Draws a text's token embeddings in the plane of their largest spread (PCA), before and after positions.

    Before, a word that comes twice is one point, and the order of words is nowhere; after, a thin line leads from token
    to token, and words that come twice stand apart.

    Args:
        tokenizer (name, folder, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): splits the text.
        embedding (`nn.Embedding` or `PositionalEmbedding`): holds the vectors, `model.get_input_embeddings()` for one.
            A `PositionalEmbedding` brings positions of its own, and the settings below are not asked.
        text (`str`): a sentence of at most 64 tokens.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`), base (number, *optional*), scale
            (`None`, `"sqrt_d"` or `float`, *optional*): as in `PositionalEmbedding`.
        add_special_tokens (`bool`, *optional*, defaults to `False`): `[CLS]` and the like as well.
        title (`str`, *optional*): stands above the figure. Words are placed for the size that axes have, so give
            it here and not afterwards.
        ax (`matplotlib.axes.Axes`, *optional*): draw what is after positions, alone, into these axes of yours.

    Returns:
        `matplotlib.figure.Figure`; `ax` where it is given.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the text has no tokens or too many, the table has no row for one, or a number is not finite.
        TypeError: if the kind of an argument is wrong.

    Example:
        >>> import torch
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"a": 0, "king": 1, "queen": 2}, unk_token="a"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> figure = embeddings(raw, torch.nn.Embedding(3, 8), "a king a queen")
        >>> [len(axes.collections[0].get_offsets()) for axes in figure.axes]
        [3, 4]
    """
    need_matplotlib()
    found = numbers.embeddings(
        tokenizer,
        embedding,
        text,
        convention=convention,
        base=base,
        scale=scale,
        add_special_tokens=add_special_tokens,
    )
    check_count("tokens", len(found.tokens), MOST_TOKENS, fix=_SHORTER)
    words = [readable(token) for token in found.tokens]
    after = "after positions" + _scaled(embedding, scale)
    if ax is not None:
        _frame(axes(ax), found.after, found.spread_after, after)
        figure_of(ax).draw_without_rendering()
        _points(ax, found.after, words, line=True)
        return ax
    side = 4.6 if len(words) <= 16 else 6.0
    figure = new_figure(2 * side, side)
    if title is not None:
        figure.suptitle(title, fontsize=TITLE)
    left, right = figure.subplots(1, 2)
    spread = [(left, found.before, found.spread_before), (right, found.after, found.spread_after)]
    for number, (cell, points, held) in enumerate(spread):
        _frame(cell, points, held, ("before positions", after)[number])
    figure.draw_without_rendering()
    for number, (cell, points, _) in enumerate(spread):
        _points(cell, points, words, line=number == 1)
    return figure


@on_white
def crowding(
    tokenizer: AnyTokenizer,
    embedding: nn.Embedding | PositionalEmbedding,
    text: str,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    add_special_tokens: bool = False,
    ax: Axes | None = None,
) -> Axes:
    r"""Draws the share of the norm that positions take in every token's vector, with and without √d.

    The share is |p| / (|p| + |e|) of a position's vector p and a token's vector e; with √d, |√d · e| stands for |e|.
    At one half both are equally long.

    Args:
        tokenizer, embedding, text, convention, base, add_special_tokens: as in `embeddings`.
        ax (`matplotlib.axes.Axes`, *optional*): draw into these axes of yours.

    Returns:
        `matplotlib.axes.Axes`

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the text has no tokens or too many, the table has no row for one, or a number is not finite.
        TypeError: if the kind of an argument is wrong.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.4 (√d). arXiv:1706.03762.

    Example:
        >>> import torch
        >>> from tokenizers import Tokenizer, models
        >>> raw = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        >>> axes = crowding(raw, torch.nn.Embedding.from_pretrained(torch.full((1, 4), 0.5)), "a")
        >>> [round(float(bar.get_height()), 3) for bar in axes.patches]
        [0.586, 0.414]
    """
    need_matplotlib()
    found = numbers.crowding(
        tokenizer, embedding, text, convention=convention, base=base, add_special_tokens=add_special_tokens
    )
    count = len(found.tokens)
    check_count("tokens", count, MOST_TOKENS, fix=_SHORTER)
    ax = axes(ax, width=min(max(0.3 * count + 1.5, 6.5), 10.0), height=3.6)
    places = np.arange(count)
    ax.bar(places - 0.2, found.share, 0.4, color=ORANGE, label="token embedding as it is")
    ax.bar(places + 0.2, found.share_sqrt_d, 0.4, color=BLUE, label="token embedding × √d")
    ax.axhline(0.5, color=INK, linewidth=0.8, linestyle="--")
    ax.set_ylim(0, 1.16)  # the legend stands above the bars
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.set_xlim(-0.6, count - 0.4)
    upright = count > 12 or max(len(token) for token in found.tokens) * count > 60
    ax.set_xticks(
        places,
        labels=[readable(token) for token in found.tokens],
        rotation=90 if upright else 0,
        fontsize=SMALL,
        family=fonts(),
    )
    for text_label in ax.get_xticklabels():
        text_label.set_parse_math(False)
    ax.set_ylabel("|p| / (|p| + |e|)", fontsize=LABEL)
    ax.tick_params(labelsize=SMALL, length=2)
    ax.set_title("share of the norm that positions take", fontsize=TITLE, loc="left")
    ax.legend(loc="upper left", fontsize=SMALL, ncols=2, frameon=False)
    return ax


def _scaled(embedding: nn.Embedding | PositionalEmbedding, scale: Literal["sqrt_d"] | float | None) -> str:
    """What a title says of the factor before tokens; a `PositionalEmbedding` has one of its own."""
    from ..embedding import PositionalEmbedding

    if isinstance(embedding, PositionalEmbedding) or scale is None:
        return ""
    return ", tokens × √d" if scale == "sqrt_d" else f", tokens × {scale:.3g}"


def _frame(ax: Axes, points: NDArray[np.float64], held: NDArray[np.float64], title: str) -> None:
    """Everything that decides how large the axes are, before words are placed in them."""
    ax.set_title(title, fontsize=TITLE, loc="left")
    ax.set_xlabel(f"component 1: {held[0]:.0%} of the variance", fontsize=LABEL)
    ax.set_ylabel(f"component 2: {held[1]:.0%}", fontsize=LABEL)
    ax.tick_params(labelsize=SMALL)
    ax.grid(color=GRID, linewidth=0.5)
    ax.set_axisbelow(True)
    for low, high, limits in ((*_range(points[:, 0]), ax.set_xlim), (*_range(points[:, 1]), ax.set_ylim)):
        limits(low, high)


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """The numbers with room for words around them."""
    low, high = float(values.min()), float(values.max())
    margin = 0.16 * (high - low) or 1.0
    return low - margin, high + margin


def _points(ax: Axes, points: NDArray[np.float64], words: Sequence[str], *, line: bool) -> None:
    groups = _together(points)
    middles = np.array([points[group].mean(axis=0) for group in groups])
    if line:
        ax.plot(
            points[:, 0], points[:, 1], color=ORANGE, linewidth=0.8, alpha=0.8 if len(words) <= 16 else 0.3, zorder=1
        )
    ax.scatter(middles[:, 0], middles[:, 1], s=16, color=BLUE, zorder=2)
    often = {word for number, word in enumerate(words) if word in words[:number]}
    write_beside(ax, middles, [_label(group, words, often) for group in groups])


def _together(points: NDArray[np.float64]) -> list[list[int]]:
    """The numbers of the points, those that lie on one another in one list."""
    near = 1e-6 * max(float(np.ptp(points, axis=0).max()), 1e-300)
    groups: list[list[int]] = []
    for number, point in enumerate(points):
        for group in groups:
            if float(np.abs(points[group[0]] - point).max()) <= near:
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _label(group: Sequence[int], words: Sequence[str], often: set[str]) -> str:
    """The word, with its places in the sentence where it has several."""
    names = dict.fromkeys(words[number] for number in group)
    if len(names) > 1:
        some = ", ".join(list(names)[:3])
        return f"{some}, …" if len(names) > 3 else some
    word = next(iter(names))
    if word not in often:
        return word
    places = ", ".join(str(number) for number in group[:4])
    return f"{word} ({places}{', …' if len(group) > 4 else ''})"

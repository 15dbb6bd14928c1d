"""Attention weights as pictures: who looks at whom, in which layer and head, with tokens on both axes.

The weights are the model's own; one panel is one layer and one head, or the mean of its heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from ..batch import real_tokens
from . import numbers
from .canvas import LABEL, SEQUENTIAL, SMALL, TITLE, axes, check_count, figure_of, need_matplotlib, new_figure
from .colours import on_white
from .numbers.arrays import as_numpy
from .numbers.attention import Kind, chosen, of_kind
from .numbers.masks import part_of
from .tokens import on_axes, room, row_of, stretch, words_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import nn

_WIDEST = 10.0  # inches
_MOST_PANELS = 144  # twelve layers of twelve heads
_LABELLED = 12  # panels; with more, no tokens fit beside each
_NAMES = {"self": "", "encoder": "encoder, ", "decoder": "decoder, ", "cross": "cross, "}


class _Side(NamedTuple):
    """The tokens along one axis of a panel."""

    words: list[str]
    real: list[bool]


class _Panel(NamedTuple):
    """One matrix of weights, with its title and its tokens."""

    title: str
    weights: NDArray[np.float64]
    queries: _Side
    keys: _Side


@on_white
def attention(
    model: nn.Module,
    batch: Any,
    *,
    layer: int | Sequence[int] | Literal["all"] = -1,
    head: int | Sequence[int] | Literal["all", "mean"] = "mean",
    kind: Kind | None = None,
    row: int = 0,
    tokens: Sequence[Sequence[str]] | None = None,
    decoder_tokens: Sequence[Sequence[str]] | None = None,
    span: tuple[int, int] | None = None,
    ax: Axes | None = None,
) -> Axes | Figure:
    r"""Draws the weights by which each token looks at the others: a line for each token that looks; lines sum to 1.

    Args:
        model (`nn.Module`): a Hugging Face model with `attn_implementation="eager"`, or anything with
            `nn.MultiheadAttention` in it, such as torch's layers; see `plots.numbers.attention`.
        batch: what the model reads, such as `collate(texts)`; a tensor `(B, T, D)` or arguments for torch's layers.
        layer (`int`, several, or `"all"`, *optional*, defaults to the last): which layers.
        head (`int`, several, `"all"` or `"mean"`, *optional*, defaults to `"mean"`): which heads, or their mean.
        kind (`"self"`, `"encoder"`, `"decoder"` or `"cross"`, *optional*): of an encoder-decoder, one of the three.
            By default all that there are.
        row (`int`, *optional*, defaults to 0): which row of the batch.
        tokens, decoder_tokens (`B` lists of `T` `str`, *optional*): what to write on the axes, of what the encoder, or
            the whole of another model, reads, and of what the decoder reads. By default what the batch itself knows,
            else its ids, else column numbers.
        span (two `int`, *optional*): draw the tokens from the first number up to the second, at most 64.
        ax (`matplotlib.axes.Axes`, *optional*): draw into these axes of yours, where it is one panel.

    Returns:
        `matplotlib.axes.Axes` of one panel, or `matplotlib.figure.Figure` of several.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the model gives no weights (the message says how to get them), there is no such layer, head, kind
            or row, a weight is not finite, or there are more tokens or panels than can be told apart.
        TypeError: if the batch is nothing that the model can be given.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", figures 3 to 5. arXiv:1706.03762.

    Example:
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> attention(layer, torch.ones(1, 3, 8), head=1).get_title(loc="left")
        'encoder, layer 0, head 1'
    """
    need_matplotlib()
    found = numbers.attention(model, batch)
    if kind is not None:
        found = {kind: of_kind(found, kind)}
    panels = _panels(found, batch, layer, head, row, (tokens, decoder_tokens), span)
    if len(panels) == 1:
        only = panels[0]
        keys, queries = only.keys.words, only.queries.words
        across, down = (min(max(len(words) * 0.3, 2.6), 7.8) for words in (keys, queries))
        ax = axes(ax, across + room(queries) + 1.4, down + room(keys) + 0.8)
        bar = figure_of(ax).colorbar(_draw(ax, only, labelled=True), ax=ax, shrink=0.8)
        bar.ax.tick_params(labelsize=SMALL)
        return ax
    if ax is not None:
        raise ValueError(
            explain(
                "ax holds one panel",
                got=f"{len(panels)} panels: {panels[0].title}, {panels[1].title}, ...",
                fix='kind="encoder", layer=0, head="mean" or another choice of one; or leave ax out',
            )
        )
    check_count("panels", len(panels), _MOST_PANELS, fix='layer=0, or head="mean"')
    heads = sum(panel.title.startswith(panels[0].title.rpartition(", ")[0]) for panel in panels)
    return _grid(panels, heads)


def _panels(
    found: dict[str, NDArray[np.float64]],
    batch: Any,
    layer: Any,
    head: Any,
    row: int,
    tokens: tuple[Sequence[Sequence[str]] | None, Sequence[Sequence[str]] | None],
    span: tuple[int, int] | None,
) -> list[_Panel]:
    panels = []
    for kind, weights in found.items():
        layers, rows, heads, queries, keys = weights.shape
        mine, theirs = chosen(layer, layers, "layer") or [], chosen(head, heads, "head", mean=True)
        number = row_of(row, np.ones((rows, 1), dtype=bool))
        looking = _side(batch, tokens, (rows, queries), number, decoder=kind in ("decoder", "cross"))
        looked_at = _side(batch, tokens, (rows, keys), number, decoder=kind == "decoder")
        down, across = stretch(span, queries), stretch(span, keys)
        for one, other in product(mine, [None] if theirs is None else theirs):
            values = weights[one, number].mean(axis=0) if other is None else weights[one, number, other]
            which = f"mean of {heads} heads" if other is None and heads > 1 else f"head {other or 0}"
            sides = [_Side(side.words[part], side.real[part]) for side, part in ((looking, down), (looked_at, across))]
            panels.append(_Panel(f"{_NAMES[kind]}layer {one}, {which}", values[down, across], *sides))
    return panels


def _side(
    batch: Any,
    tokens: tuple[Sequence[Sequence[str]] | None, Sequence[Sequence[str]] | None],
    shape: tuple[int, int],
    row: int,
    *,
    decoder: bool,
) -> _Side:
    """The tokens of one side, and where they are no padding."""
    name = "decoder_input_ids" if decoder else "input_ids"
    (words,) = words_of(batch, tokens[decoder], shape, rows=slice(row, row + 1), name=name)
    return _Side(words, _real(batch, shape, decoder=decoder)[row].tolist())


def _real(batch: Any, shape: tuple[int, int], *, decoder: bool) -> NDArray[np.bool_]:
    """Where no padding stands, as far as the batch says."""
    if isinstance(batch, Mapping) and (not decoder or "decoder_input_ids" in batch):
        known = real_tokens(part_of(batch, decoder=decoder))
        if known is not None and tuple(known.shape) == shape:
            return as_numpy(known).astype(bool)
    return np.ones(shape, dtype=bool)


def _draw(ax: Axes, panel: _Panel, *, labelled: bool, highest: float | None = None) -> Any:
    image = ax.imshow(
        panel.weights,
        cmap=SEQUENTIAL,
        vmin=0,
        vmax=highest or float(panel.weights.max()),
        aspect="auto" if min(panel.weights.shape) * 4 < max(panel.weights.shape) else "equal",
        interpolation="nearest",
    )
    ax.set_title(panel.title, fontsize=LABEL if labelled else SMALL, loc="left")
    keys, queries = panel.keys, panel.queries
    if labelled:
        on_axes(ax, keys.words, queries.words, real_across=keys.real, real_down=queries.real)
        ax.set_xlabel("key: the token looked at", fontsize=SMALL)
        ax.set_ylabel("query: the token that looks", fontsize=SMALL)
    else:
        on_axes(ax, None, None)
    return image


def _grid(panels: list[_Panel], heads: int) -> Figure:
    """All panels, lines of layers and columns of heads where both are many; a colour means the same in all of them."""
    labelled = len(panels) <= _LABELLED
    most = max(max(panel.weights.shape) for panel in panels)
    words = [word for panel in panels for word in (*panel.keys.words, *panel.queries.words)]
    side = max(0.17 * most, 1.8) + room(words) + 0.5 if labelled else 1.25
    abreast = heads if not labelled and 1 < heads <= _LABELLED else int(_WIDEST // side)
    abreast = max(min(len(panels), abreast), 1)
    lines = -(-len(panels) // abreast)
    figure = new_figure(max(abreast * side + 1.0, 5.0), lines * side + 0.4)
    highest = max(float(panel.weights.max()) for panel in panels)
    cells = figure.subplots(lines, abreast, squeeze=False).flatten()
    for cell, panel in zip(cells, panels, strict=False):
        image = _draw(cell, panel, labelled=labelled, highest=highest)
    for cell in cells[len(panels) :]:
        cell.set_axis_off()
    bar = figure.colorbar(image, ax=cells.tolist(), shrink=min(4 / (lines * side), 0.8), aspect=25)
    bar.ax.tick_params(labelsize=SMALL)
    if not labelled:
        figure.suptitle(
            f"lines are queries, columns keys; tokens are written for up to {_LABELLED} panels", fontsize=TITLE
        )
    return figure

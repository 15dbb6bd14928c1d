"""Who may attend to whom, as pictures: padding mask, look-ahead mask, both together, position ids, documents.

The matrices are of one row of the batch, with its tokens on both axes; what there is for every row stands below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .canvas import BLUE, FADED, LABEL, LINES, ORANGE, PADDING, SMALL, TITLE, axes, need_matplotlib, new_figure
from .colours import on_white
from .numbers.masks import Reading, combine, read
from .tokens import on_axes, room, row_of, stretch, words_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a cell of a matrix is: the value drawn is the number of its colour.
HIDDEN, AT_PADDING, IDLE, SEEN = range(4)
_COLOURS = ("#FFFFFF", PADDING, "#A6CBE3", BLUE)
_MEANINGS = ("hidden", "padding", "seen from padding: nobody reads it", "may be attended to")

_WIDEST = 10.0  # inches; what a notebook shrinks little
_MOST_ROWS = 16
_NUMBERED = 24  # columns; with more, position ids are colours only


@on_white
def masks(
    batch: Mapping[str, Any],
    tokens: Sequence[Sequence[str]] | None = None,
    *,
    row: int | None = None,
    span: tuple[int, int] | None = None,
    look_ahead: bool | None = None,
    decoder: bool = False,
    ax: Axes | None = None,
) -> Axes | Figure:
    r"""Draws the masks of a batch: what one of its rows may attend to, token by token, and the padding of all rows.

    Blue: the token of this line may attend to the token of this column. A query at padding has its cells in pale blue,
    keys at padding are grey. Position ids, and documents that share a row, stand below for every row.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): as `collate(texts)` gives it, padded or packed, or
            fitted to a model; see `plots.numbers.masks`.
        tokens (`B` lists of `T` `str`, *optional*): what to write on the axes, as `collate.tokens(batch)` gives it. By
            default what the batch itself knows, else the ids.
        row (`int`, *optional*): whose matrices are drawn. By default those of the row with the most
                documents, among equals the one with the most padding.
        span (two `int`, *optional*): draw the tokens from the first number up to the second, at most 64.
        look_ahead (`bool`, *optional*): `True` for a model that brings its own look-ahead mask. By default, what the
            batch says.
        decoder (`bool`, *optional*, defaults to `False`): the decoder's masks, in a batch for an encoder-decoder.
        ax (`matplotlib.axes.Axes`, *optional*): draw everything together, one matrix, into these axes of yours.

    Returns:
        `matplotlib.figure.Figure`; `ax` where it is given.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the batch has no tokens, more than can be labelled, or none at `row` or `span`; if `tokens` does
            not fit it.

    Example:
        >>> ids = np.array([[5, 6, 7], [8, 0, 0]])
        >>> figure = masks({"input_ids": ids, "attention_mask": ids != 0}, look_ahead=True)
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['padding mask', 'look-ahead mask', 'padding and look-ahead', 'padding mask of every row']
    """
    need_matplotlib()
    found = read(batch, look_ahead=look_ahead, decoder=decoder)
    shape = found.padding.shape
    drawn = row_of(row, found.padding, found.document_ids)
    part = stretch(span, shape[1])
    one = slice(drawn, drawn + 1)
    name = "decoder_input_ids" if decoder else "input_ids"
    (labels,) = words_of(batch, tokens, (shape[0], shape[1]), rows=one, part=part, name=name)
    real = found.padding[drawn, part]
    matrices = _matrices(found, drawn, part)
    if ax is not None:
        name, matrix = matrices.popitem()
        return _matrix(axes(ax), name, matrix, labels, real)
    figure, below = _layout(len(matrices), labels, _strips(found), min(shape[0], _MOST_ROWS))
    figure.suptitle(_title(shape, drawn, part, decoder=decoder), fontsize=TITLE)
    for cell, (name, matrix) in zip(figure.axes, matrices.items(), strict=False):
        _matrix(cell, name, matrix, labels, real)
    for cell, name in zip(below, _strips(found), strict=True):
        _strip(cell, name, found, part)
    _legend(figure)
    return figure


def _matrices(found: Reading, row: int, part: slice) -> dict[str, NDArray[np.bool_]]:
    """What is drawn as a matrix, by title; the last one is everything together."""
    later, (combined,) = combine(found, slice(row, row + 1), part)
    matrices = {"padding mask": np.broadcast_to(found.padding[row, part], combined.shape)}
    together = ["padding"]
    if later is not None:
        matrices["look-ahead mask"] = later
        together.append("look-ahead")
    if found.document_ids is not None:
        ids = found.document_ids[row, part]
        matrices["same document"] = (ids[:, None] == ids[None, :]) & (ids[:, None] >= 0)
        together.append("documents")
    if len(together) == 2:
        matrices[" and ".join(together)] = combined
    elif len(together) > 2:
        matrices["all together"] = combined
    elif not np.array_equal(matrices["padding mask"], combined):
        matrices["attention_mask, as added to scores"] = combined
    return matrices


def _strips(found: Reading) -> list[str]:
    there = {"position_ids": found.position_ids, "document_ids": found.document_ids}
    return ["padding mask of every row", *(name for name, value in there.items() if value is not None)]


def _layout(count: int, labels: Sequence[str], strips: Sequence[str], rows: int) -> tuple[Figure, list[Axes]]:
    """A figure with room for the matrices, which come first among its axes, and for what is below them."""
    side = max(len(labels) * min(0.3, max(0.12, 2.2 / len(labels))), 1.7)
    panel = side + room(labels) + 0.45
    abreast = max(min(count, int(_WIDEST // panel)), 1)
    abreast = 2 if (count, abreast) == (4, 3) else abreast  # no line with one alone
    lines = -(-count // abreast)
    heights = [panel + 0.1] * lines + [0.2 * rows + 0.75] * len(strips)
    figure = new_figure(max(abreast * panel + 0.3, 6.5), sum(heights) + 0.7)
    grid = figure.add_gridspec(len(heights), abreast, height_ratios=heights)
    for number in range(count):
        figure.add_subplot(grid[number // abreast, number % abreast])
    return figure, [figure.add_subplot(grid[lines + number, :]) for number in range(len(strips))]


def _title(shape: tuple[int, ...], row: int, part: slice, *, decoder: bool) -> str:
    whose = "decoder of row" if decoder else "row"
    some = f", tokens {part.start} to {part.stop - 1}" if part.stop - part.start < shape[1] else ""
    return f"{whose} {row} of a batch of {shape[0]} × {shape[1]} tokens{some}"


def _matrix(ax: Axes, title: str, seen: NDArray[np.bool_], labels: Sequence[str], real: NDArray[np.bool_]) -> Axes:
    from matplotlib.colors import ListedColormap

    cells = np.where(seen, np.where(real[:, None], SEEN, IDLE), np.where(real[None, :], HIDDEN, AT_PADDING))
    ax.imshow(cells, cmap=ListedColormap(list(_COLOURS)), vmin=0, vmax=3, interpolation="nearest")
    _between(ax, *cells.shape)
    on_axes(ax, labels, labels, real_across=real.tolist(), real_down=real.tolist())
    ax.set_title(title, fontsize=LABEL, loc="left")
    ax.set_xlabel("key: the token looked at", fontsize=SMALL)
    ax.set_ylabel("query: the token that looks", fontsize=SMALL)
    return ax


def _strip(ax: Axes, name: str, found: Reading, part: slice) -> None:
    """One line for each row of the batch."""
    from matplotlib.colors import ListedColormap

    real = found.padding[:_MOST_ROWS, part]
    rows, columns = real.shape
    ax.set_facecolor(PADDING)  # shows where an array is masked
    values = {"position_ids": found.position_ids, "document_ids": found.document_ids}.get(name)
    if values is None:
        ax.imshow(real, cmap=ListedColormap([PADDING, BLUE]), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        title = name
    else:
        shown = np.ma.masked_array(values[:_MOST_ROWS, part], mask=~real)
        title = _numbers(ax, name, shown)
    _between(ax, rows, columns)
    more = f", the first {rows} of {len(found.padding)} rows" if rows < len(found.padding) else ""
    ax.set_title(title + more, fontsize=LABEL, loc="left")
    ax.set_ylabel("row", fontsize=SMALL)
    ax.set_xlabel("column", fontsize=SMALL)
    ticks = range(0, columns, -(-columns // 16))
    ax.set_xticks(ticks, labels=[str(part.start + tick) for tick in ticks])
    ax.set_yticks(range(rows))
    ax.tick_params(labelsize=SMALL, length=0)


def _numbers(ax: Axes, name: str, shown: Any) -> str:
    """Colours a strip by its numbers, and writes them where there is room; returns its title."""
    from matplotlib.colors import ListedColormap

    low, high = (int(shown.min()), int(shown.max())) if shown.count() else (0, 0)
    if name == "document_ids":  # neighbours stand apart; the numbers say which is which
        kinds, dark = [LINES[2], ORANGE], False
        ax.imshow(shown % 2, cmap=ListedColormap(kinds), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        title = f"{name}: {low} to {high}"
    else:
        dark = True
        ax.imshow(shown, cmap="cividis", aspect="auto", interpolation="nearest")
        title = f"{name}: {low} (dark) to {high} (bright)"
    if shown.shape[1] <= _NUMBERED:
        for (i, j), value in np.ndenumerate(shown.data):
            on = "white" if dark and value <= (low + high) / 2 else "black"
            colour = FADED if shown.mask[i, j] else on
            ax.text(j, i, str(value), ha="center", va="center", fontsize=SMALL, color=colour)
    return title


def _between(ax: Axes, rows: int, columns: int) -> None:
    """Thin lines between cells."""
    ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#C8C8C8", linewidth=0.5)
    ax.tick_params(which="minor", length=0)


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=colour, edgecolor="#909090", label=meaning)
        for colour, meaning in list(zip(_COLOURS, _MEANINGS, strict=True))[::-1]
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False)

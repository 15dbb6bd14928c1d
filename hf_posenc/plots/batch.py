"""One batch as a picture: its tokens, who may be attended to, where each token stands, what the model is given.

It draws what is in the batch and computes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..batch import real_tokens
from .canvas import BLUE, FADED, INK, PADDING, check_finite, fonts, need_matplotlib, new_figure
from .colours import on_white
from .numbers.arrays import as_numpy
from .numbers.masks import check_fit, positions_of, shape_of
from .tokens import words_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROWS, _MOST_COLUMNS, _MOST_WIDTH = 16, 64, 512
_TEXT, _SMALL = 8, 7  # points
_UPRIGHT, _NUMBERED = 14, 20  # columns; with more, tokens are written upwards, and positions are colours only


@on_white
def batch(batch: Mapping[str, Any], tokens: Sequence[Sequence[str]] | None = None, *, ax: Axes | None = None) -> Figure:
    r"""Draws a batch: tokens with padding greyed, both masks, position ids, and the embeddings of the first row.

    A panel is there for what the batch holds. At most 16 rows and 64 columns are drawn, and the title says so.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): with `input_ids` `(B, T)`, or `inputs_embeds`
            `(B, T, D)`; and any of `attention_mask` `(B, T)`, `position_ids` `(B, T)`, `look_ahead_mask`
            `(B, 1, T, T)`.
        tokens (`B` lists of `T` `str`, *optional*): what to write in the cells, as `collate.tokens(batch)` gives it. By
            default what the batch itself knows, else the ids.
        ax (`matplotlib.axes.Axes`, *optional*): draw the tokens alone, into these axes of yours.

    Returns:
        `matplotlib.figure.Figure`, to show or to `savefig`; that of `ax` where it is given.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the batch has neither `input_ids` nor `inputs_embeds`, `tokens` does not fit it, or an embedding
            is not finite.

    Example:
        >>> import numpy as np
        >>> ids = np.array([[5, 6, 7], [8, 0, 0]])
        >>> figure = batch({"input_ids": ids, "attention_mask": ids != 0}, [["I", "ride", "bike"], ["no", "-", "-"]])
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['tokens, padding in grey', 'attention_mask, padding in grey']
    """
    need_matplotlib()
    seen = _Seen(batch, tokens)
    if "inputs_embeds" in batch and ax is None:
        check_finite("inputs_embeds", seen.embeddings())
    if ax is not None:
        _draw_tokens(ax, seen)
        return ax.get_figure(root=True)  # type: ignore[return-value]  # axes that one can draw into have a figure
    panels = [draw for name, draw in _PANELS.items() if name == "tokens" or name in batch]
    below = panels[1:]
    cell = seen.cell()
    width = min(max(cell[0] * seen.columns + 1.2, 8.0), 22.0)
    tall = {_draw_look_ahead: 4.2, _draw_embeddings: 4.2}
    pairs = [below[i : i + 2] for i in range(0, len(below), 2)]
    heights = [max(cell[1] * seen.rows + 0.5, 1.4)]
    heights += [max(tall.get(draw, 0.22 * seen.rows + 1.0) for draw in pair) for pair in pairs]
    figure = new_figure(width, sum(heights) + 0.4)
    figure.suptitle(seen.title, fontsize=10)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    _draw_tokens(figure.add_subplot(grid[0, :]), seen)
    for line, pair in enumerate(pairs, 1):
        for column, draw in enumerate(pair):
            draw(figure.add_subplot(grid[line, column] if len(pair) == 2 else grid[line, :]), seen)
    return figure


class _Seen:
    """The part of a batch that is drawn, as NumPy arrays on the CPU."""

    def __init__(self, batch: Mapping[str, Any], tokens: Sequence[Sequence[str]] | None) -> None:
        shape = shape_of(batch)
        self.rows, self.columns = min(shape[0], _MOST_ROWS), min(shape[1], _MOST_COLUMNS)
        self.batch = batch
        self.shape = shape
        self.real = self._real()
        self.words = self._words(tokens, shape)
        cut = [
            f"{have} of {whole} {name}"
            for have, whole, name in [(self.rows, shape[0], "rows"), (self.columns, shape[1], "columns")]
            if have < whole
        ]
        self.title = f"batch of {shape[0]} rows × {shape[1]} tokens" + (f", the first {', '.join(cut)}" if cut else "")

    def array(self, name: str) -> NDArray[Any]:
        """Rows and columns drawn, of a `(B, T)` or `(B, T, D)` entry."""
        return as_numpy(self.batch[name][: self.rows, : self.columns])

    def embeddings(self) -> NDArray[Any]:
        """Those of the first row, `(T, D)`."""
        return as_numpy(self.batch["inputs_embeds"][0, : self.columns, :_MOST_WIDTH])

    def _real(self) -> NDArray[np.bool_]:
        known = real_tokens(self.batch)
        if known is None:
            return np.ones((self.rows, self.columns), dtype=bool)
        check_fit("attention_mask", tuple(known.shape), self.shape)
        return as_numpy(known[: self.rows, : self.columns])

    def positions(self) -> NDArray[Any]:
        """`(rows, columns)`, also where all rows share one."""
        return positions_of(self.batch, self.shape)[: self.rows, : self.columns]

    def _words(self, tokens: Sequence[Sequence[str]] | None, shape: tuple[int, int]) -> list[list[str]]:
        if tokens is None and "input_ids" not in self.batch:
            return [[""] * self.columns for _ in range(self.rows)]
        return words_of(self.batch, tokens, shape, rows=slice(self.rows), part=slice(self.columns))

    def cell(self) -> tuple[float, float]:
        """Width and height in inches of a token's cell, by the longest token."""
        longest = 0.085 * max((len(word) for row in self.words for word in row), default=1) + 0.12
        return (max(longest, 0.4), 0.32) if self.columns <= _UPRIGHT else (0.24, max(longest, 0.3))


def _draw_tokens(ax: Axes, seen: _Seen) -> None:
    _two_colours(ax, seen.real, "#FFFFFF")
    upwards = seen.columns > _UPRIGHT
    for i, row in enumerate(seen.words):
        for j, word in enumerate(row):
            colour = INK if seen.real[i, j] else FADED
            _write(ax, i, j, word, size=_TEXT, color=colour, rotation=90 if upwards else 0, family=fonts())
    _label(ax, "tokens, padding in grey", "column", "row", seen.columns, seen.rows)
    _lines(ax, seen, "#B0B0B0")


def _draw_padding(ax: Axes, seen: _Seen) -> None:
    _two_colours(ax, seen.real, BLUE)
    _label(ax, "attention_mask, padding in grey", "column", "row", seen.columns, seen.rows)
    _lines(ax, seen, "white")


def _draw_positions(ax: Axes, seen: _Seen) -> None:
    positions = seen.positions()
    real = np.ma.masked_array(positions, mask=~seen.real)
    low, high = (int(real.min()), int(real.max())) if seen.real.any() else (0, 0)
    ax.set_facecolor(PADDING)  # shows where the array is masked
    ax.imshow(real, cmap="cividis", aspect="auto", interpolation="nearest")
    for (i, j), position in np.ndenumerate(positions):
        if seen.columns <= _NUMBERED:
            dark = "white" if position <= (low + high) / 2 else "black"
            _write(ax, i, j, str(position), size=_SMALL, color=dark if seen.real[i, j] else FADED)
    _label(ax, f"position_ids: {low} (dark) to {high} (bright)", "column", "row", seen.columns, seen.rows)
    _lines(ax, seen, "white")


def _draw_look_ahead(ax: Axes, seen: _Seen) -> None:
    mask = seen.batch["look_ahead_mask"]
    while mask.ndim > 2:
        mask = mask[0]
    shown = as_numpy(mask[:_MOST_COLUMNS, :_MOST_COLUMNS]).astype(bool)  # a decoder's is not as wide as the tokens
    _two_colours(ax, shown, BLUE)
    ax.set_aspect("equal")
    title, key, query = "look_ahead_mask: blue = may look at", "key: the token looked at", "query: the token that looks"
    _label(ax, title, key, query, len(shown), len(shown))


def _draw_embeddings(ax: Axes, seen: _Seen) -> None:
    width = int(seen.batch["inputs_embeds"].shape[-1])
    values = seen.embeddings()
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    # Orange to purple, white at 0, so that the sign shows whatever one's colour vision.
    image = ax.imshow(values, cmap="PuOr", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
    some = f", the first {_MOST_WIDTH} of {width} columns" if width > _MOST_WIDTH else ""
    _label(ax, f"inputs_embeds of row 0{some}", "embedding column", "token", values.shape[1], seen.columns)
    ax.figure.colorbar(image, ax=ax).ax.tick_params(labelsize=_SMALL)


def _two_colours(ax: Axes, mask: NDArray[np.bool_], true: str) -> None:
    from matplotlib.colors import ListedColormap

    ax.imshow(mask, cmap=ListedColormap([PADDING, true]), vmin=0, vmax=1, aspect="auto", interpolation="nearest")


def _write(ax: Axes, row: int, column: int, text: str, *, size: int, **style: Any) -> None:
    # A token may well be "$x$", which is no formula here.
    ax.text(column, row, text, ha="center", va="center", fontsize=size, parse_math=False, clip_on=True, **style)


def _label(ax: Axes, title: str, across: str, down: str, columns: int, rows: int) -> None:
    ax.set_title(title, fontsize=9, loc="left")
    ax.set_xlabel(across, fontsize=_TEXT)
    ax.set_ylabel(down, fontsize=_TEXT)
    ax.set_xticks(range(0, columns, -(-columns // 16)))
    ax.set_yticks(range(0, rows, -(-rows // 16)))
    ax.tick_params(labelsize=_SMALL, length=2)


def _lines(ax: Axes, seen: _Seen, colour: str) -> None:
    """Borders around the cells."""
    ax.set_xticks(np.arange(seen.columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(seen.rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color=colour, linewidth=0.6)
    ax.tick_params(which="both", length=0)


_PANELS = {
    "tokens": _draw_tokens,
    "attention_mask": _draw_padding,
    "position_ids": _draw_positions,
    "look_ahead_mask": _draw_look_ahead,
    "inputs_embeds": _draw_embeddings,
}

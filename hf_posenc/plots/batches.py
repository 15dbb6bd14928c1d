"""Plots of one batch: `batch` draws tokens, masks, positions and embeddings; `masks` draws masks token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain, shorten
from ..batch import real_tokens
from ..masks import AttentionMask
from .arguments import as_finite, as_indices, as_numpy
from .canvas import (
    BLUE,
    FADED,
    GREEN,
    INK,
    MEDIUM,
    ORANGE,
    PADDING,
    SEQUENTIAL,
    SMALL,
    grid_shape,
    heat_map,
    integer_ticks,
    label,
    new_axes,
    new_figure,
    picture,
)
from .token_labels import inches_of, label_matrix, span_of, token_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ENTRIES = ("input_ids", "attention_mask", "position_ids", "document_ids", "look_ahead_mask", "inputs_embeds")
_PANELS = {"attention_mask", "position_ids", "look_ahead_mask", "inputs_embeds"}  # of `batch`, below the tokens
_MOST_ROWS, _MOST_COLUMNS, _MOST_WIDTH = 16, 64, 512
_ROTATED, _NUMBERED = 14, 24  # columns; beyond these, tokens are rotated, and positions are shown by color alone
_WIDEST = 10.0  # inches of the masks

# Values of the cells of a mask, in the order of `_COLORS` and `_MEANINGS`.
_HIDDEN, _PADDING, _FROM_PADDING, _ALLOWED = range(4)
_COLORS = ("#FFFFFF", PADDING, "#A6CBE3", BLUE)
_MEANINGS = ("masked", "padding", "allowed, but the query is padding", "allowed")
_TWO_COLORS = (PADDING, BLUE)


@picture
def batch(batch: Mapping[str, Any], tokens: Sequence[Sequence[str]] | None = None, *, ax: Axes | None = None) -> Figure:
    r"""Draw a batch: tokens, padding mask, look-ahead mask, position ids, and the embeddings of the first row.

    There is one panel for each of these entries in the batch, with padding in gray. At most 16 rows and 64 columns are
    drawn; if some are left out, the title states how many are drawn.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): with `input_ids` `(B, T)` or `inputs_embeds`
            `(B, T, D)`, and any of `attention_mask` `(B, T)`, `position_ids` `(B, T)`, `look_ahead_mask`
            `(B, 1, T, T)`.
        tokens (`B` lists of `T` `str`, *optional*): tokens to show, the result of `collate.tokens(batch)`. By default
            the tokens of the batch, else the ids.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw only the tokens into.

    Returns:
        `matplotlib.figure.Figure`; with `ax`, the figure that contains it. The image of each panel holds its entry of
        the batch.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the batch has neither `input_ids` nor `inputs_embeds`, `tokens` does not fit it, or an embedding
            is not finite.

    Example:
        >>> import numpy as np
        >>> ids = np.array([[5, 6, 7], [8, 0, 0]])
        >>> figure = batch({"input_ids": ids, "attention_mask": ids != 0}, [["I", "ride", "bike"], ["no", "-", "-"]])
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['tokens (gray: padding)', 'attention_mask (gray: padding)']
    """
    contents = _Contents(batch)
    rows, columns = min(contents.shape[0], _MOST_ROWS), min(contents.shape[1], _MOST_COLUMNS)
    real = contents.real[:rows, :columns]
    if tokens is None and batch.get("input_ids") is None:
        words = [[""] * columns] * rows
    else:
        words = token_labels(batch, tokens, contents.shape, rows=slice(rows), span=slice(columns))
    names = [name for name in _ENTRIES if name in _PANELS and batch.get(name) is not None]
    if "inputs_embeds" in names:
        values = as_finite(batch["inputs_embeds"][0, :columns, :_MOST_WIDTH], "inputs_embeds")
    if ax is not None:
        _draw_tokens(new_axes(ax), words, real)
        return ax.get_figure(root=True)  # type: ignore[return-value]  # axes in use have a figure

    longest = 0.085 * max(len(word) for row in words for word in row) + 0.12  # inches
    width, height = (max(longest, 0.4), 0.32) if columns <= _ROTATED else (0.24, max(longest, 0.3))
    pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
    heights = [max(height * rows + 0.5, 1.4)]
    heights += [4.2 if {"look_ahead_mask", "inputs_embeds"} & {*pair} else 0.22 * rows + 1.0 for pair in pairs]
    figure = new_figure(min(max(width * columns + 1.2, 8.0), 22.0), sum(heights) + 0.4)
    whole = zip((rows, columns), contents.shape, ("rows", "columns"), strict=True)
    drawn = ", ".join(f"{few} of {all_} {name}" for few, all_, name in whole if few < all_)
    title = f"Batch of {contents.shape[0]} rows × {contents.shape[1]} tokens"
    figure.suptitle(title + (f", the first {drawn}" if drawn else ""))
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    _draw_tokens(figure.add_subplot(grid[0, :]), words, real)
    for number, name in enumerate(names):
        line, column = divmod(number, 2)
        panel = figure.add_subplot(grid[line + 1, column if len(pairs[line]) == 2 else slice(None)])
        if name == "attention_mask":
            _draw_cells(panel, real, _TWO_COLORS, "attention_mask (gray: padding)")
        elif name == "position_ids":
            _draw_numbers(panel, name, contents.positions[:rows, :columns], real)  # type: ignore[index]
        elif name == "look_ahead_mask":
            mask = contents.look_ahead_mask()[:_MOST_COLUMNS, :_MOST_COLUMNS]  # a decoder's has another length
            _draw_cells(panel, as_numpy(mask).astype(bool), _TWO_COLORS, "look_ahead_mask (blue: allowed)", lines=None)
            panel.set(aspect="equal", xlabel="key", ylabel="query")
        else:
            full = int(batch[name].shape[-1])
            more = f", the first {_MOST_WIDTH} of {full} dimensions" if full > _MOST_WIDTH else ""
            largest = float(np.abs(values).max()) or 1.0
            heat_map(panel, values, limits=(-largest, largest), name="value")
            label(panel, f"inputs_embeds of row 0{more}", "dimension", "column", size=MEDIUM)
    return figure


@picture
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
    r"""Draw the attention masks of one row of a batch, and the padding of every row.

    A blue cell means that the query token of its line may attend to the key token of its column. Keys at padding are
    gray; allowed cells of a query at padding are pale blue, because their result is not used. Position ids, and the
    documents of packed rows, are drawn below for every row.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): the result of `collate(texts)`, padded or packed.
            It has `input_ids` `(B, T)` or `inputs_embeds` `(B, T, D)`, and any of `attention_mask`, `(B, T)` or
            `(B, 1, T, T)`, `look_ahead_mask` `(B, 1, T, T)`, `position_ids` and `document_ids` `(B, T)`. Without
            `document_ids`, a document begins where the position ids restart.
        tokens (`B` lists of `T` `str`, *optional*): tokens to show, the result of `collate.tokens(batch)`. By default
            the tokens of the batch, else the ids.
        row (`int`, *optional*): row to draw. By default the row with the most documents; in a tie, the most padding.
        span (two `int`, *optional*): first token to draw, and the token to stop before; at most 64.
        look_ahead (`bool`, *optional*): True for a model that adds its own look-ahead mask. By default the mask of the
            batch is used.
        decoder (`bool`): draw the masks of the decoder of an encoder-decoder.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw only the combined matrix into.

    Returns:
        `matplotlib.figure.Figure`; `ax` if it is given. The image of a matrix holds 3 for an allowed cell, 2 for an
        allowed cell whose query is padding, 1 for a masked key at padding, and 0 for any other masked key.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the batch has no tokens, more than 64 would be drawn, there is no such `row` or `span`, or
            `tokens` does not fit the batch.

    Example:
        >>> ids = np.array([[5, 6, 7], [8, 0, 0]])
        >>> figure = masks({"input_ids": ids, "attention_mask": ids != 0}, look_ahead=True)
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['padding mask', 'look-ahead mask', 'padding and look-ahead', 'padding mask of every row']
    """
    from matplotlib.patches import Patch

    contents = _Contents(_part_of(batch, decoder=decoder))
    count, length = contents.shape
    index = contents.most_masked_row() if row is None else as_indices(row, count, "row")[0]
    part = span_of(span, length)
    name = "decoder_input_ids" if decoder else "input_ids"
    (words,) = token_labels(batch, tokens, contents.shape, rows=slice(index, index + 1), span=part, name=name)
    real = contents.real[index, part]
    matrices = contents.matrices(index, part, look_ahead)
    if ax is not None:
        title, allowed = matrices.popitem()
        return _draw_matrix(new_axes(ax), title, allowed, words, real)

    below = {"position_ids": contents.positions, "document_ids": contents.documents}
    strips = {title: values for title, values in below.items() if values is not None}
    rows = min(count, _MOST_ROWS)
    side = max(len(words) * min(0.3, max(0.12, 2.2 / len(words))), 1.7) + inches_of(words) + 0.45  # inches
    lines, abreast = grid_shape(len(matrices), int(_WIDEST // side))
    heights = [side + 0.1] * lines + [0.2 * rows + 0.75] * (1 + len(strips))
    figure = new_figure(max(abreast * side + 0.3, 6.5), sum(heights) + 0.7)
    grid = figure.add_gridspec(len(heights), abreast, height_ratios=heights)
    whose = "decoder row" if decoder else "row"
    tokens_drawn = f", tokens {part.start} to {part.stop - 1}" if part.stop - part.start < length else ""
    figure.suptitle(f"Masks of {whose} {index} in a batch of {count} × {length} tokens{tokens_drawn}")
    for number, (title, allowed) in enumerate(matrices.items()):
        _draw_matrix(figure.add_subplot(grid[divmod(number, abreast)]), title, allowed, words, real)
    more, there = f", the first {rows} of {count} rows" if rows < count else "", contents.real[:rows, part]
    all_rows = figure.add_subplot(grid[lines, :])
    _draw_cells(all_rows, there, _TWO_COLORS, f"padding mask of every row{more}", first=part.start)
    for number, (title, values) in enumerate(strips.items(), lines + 1):
        _draw_numbers(figure.add_subplot(grid[number, :]), title, values[:rows, part], there, part.start, more)
    patches = [
        Patch(facecolor=color, edgecolor="#909090", label=meaning)
        for color, meaning in zip(_COLORS, _MEANINGS, strict=True)
    ]
    figure.legend(handles=patches[::-1], loc="outside lower center", ncols=4)
    return figure


class _Contents:
    """Mask, positions and documents of a batch as arrays, each checked to have the shape `(B, T)` of the tokens."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        self.batch = batch
        self.shape = _shape_of(batch)  # (B, T)
        mask = batch.get("attention_mask")
        if isinstance(mask, dict):  # one mask for each kind of layer
            mask = next(iter(mask.values()))
        self.four_dimensional = mask[:, 0] if mask is not None and mask.ndim == 4 else None  # (B, 1 or T, T)
        # In a 4D mask, a token is real if at least one query may attend to it.
        known = real_tokens(batch) if self.four_dimensional is None else _allowed(self.four_dimensional).any(axis=1)
        self.real = np.ones(self.shape, dtype=bool) if known is None else as_numpy(known).astype(bool)
        _check_shape("attention_mask", self.real.shape, self.shape)
        ids, positions = batch.get("document_ids"), batch.get("position_ids")
        self.positions: NDArray[Any] | None = None
        if positions is not None:
            positions = np.atleast_2d(as_numpy(positions))
            rows = self.shape[0] if len(positions) == 1 else len(positions)  # one row may serve for all
            _check_shape("position_ids", (rows, *positions.shape[1:]), self.shape)
            self.positions = np.broadcast_to(positions, self.shape)
        # The document of each token, -1 at padding; None if no row has several.
        self.documents: NDArray[np.int64] | None = None
        if ids is not None:
            documents = as_numpy(ids).astype(np.int64)
            _check_shape("document_ids", documents.shape, self.shape)
            self.documents = np.where(self.real, documents, -1)
        elif self.positions is not None:
            packed = {"attention_mask": self.real, "position_ids": self.positions.astype(np.int64)}
            tensors = {name: torch.from_numpy(values.copy()) for name, values in packed.items()}
            found = AttentionMask.from_batch(tensors).documents.numpy()
            self.documents = found if (found > 0).any() else None

    def look_ahead_mask(self) -> Any:
        """Return the look-ahead mask of the first row, `(T, T)`; all rows have the same mask."""
        mask = self.batch["look_ahead_mask"]
        while mask.ndim > 2:
            mask = mask[0]
        return mask

    def most_masked_row(self) -> int:
        """Return the index of the row with the most documents; in a tie, of the row with the most padding."""
        last = np.zeros(len(self.real)) if self.documents is None else self.documents.max(axis=1)
        return int(np.lexsort((self.real.sum(axis=1), -last))[0])

    def matrices(self, row: int, part: slice, look_ahead: bool | None) -> dict[str, NDArray[np.bool_]]:
        """Return a dict from title to bool mask `(N, N)` for N tokens of a row, True where attention is allowed.

        The slice `part` selects the tokens. If there are several masks, the last one combines them.
        `look_ahead` is the argument of `masks`.
        """
        real = self.real[row, part]
        padding = np.broadcast_to(real, (len(real), len(real)))
        combined = padding.copy()
        if self.four_dimensional is not None:
            queries = part if self.four_dimensional.shape[1] > 1 else slice(None)
            combined &= _allowed(self.four_dimensional[row, queries, part])
        found = {"padding mask": padding}
        together = ["padding"]
        if look_ahead or (look_ahead is None and self.batch.get("look_ahead_mask") is not None):
            found["look-ahead mask"] = np.tri(len(real), dtype=bool)
            together.append("look-ahead")
            if self.batch.get("look_ahead_mask") is not None:
                mask = self.look_ahead_mask()
                _check_shape("look_ahead_mask", tuple(mask.shape), (self.shape[1], self.shape[1]))
                found["look-ahead mask"] = _allowed(mask[part, part])
            combined &= found["look-ahead mask"]
        if self.documents is not None:
            ids = self.documents[row, part]
            combined &= ids[:, None] == ids
            found["same document"] = (ids[:, None] == ids) & (ids >= 0)
            together.append("document")
        if len(together) > 1:
            found[" and ".join(together) if len(together) == 2 else "all combined"] = combined
        elif not np.array_equal(padding, combined):
            found["attention_mask of 4 dimensions"] = combined
        return found


def _shape_of(batch: Any) -> tuple[int, int]:
    """Return the shape `(B, T)` of the tokens in a batch; raise if the batch cannot be drawn."""
    fix = 'plots.batch(collate(texts)), or tokenizer(texts, padding=True, return_tensors="pt")'
    if not isinstance(batch, Mapping):
        rule = "a batch is a mapping from names to tensors or arrays"
        raise TypeError(explain(rule, got=shorten(type(batch).__name__), fix=fix))
    for name in _ENTRIES:
        if isinstance(batch.get(name), list | tuple):  # as a tokenizer returns without return_tensors
            rule = f"'{name}' must be a tensor or an array"
            raise TypeError(explain(rule, got=f"a {type(batch[name]).__name__}", fix=fix))
    for name, rank in (("input_ids", 2), ("inputs_embeds", 3)):
        if batch.get(name) is not None:
            shape = tuple(batch[name].shape)
            if len(shape) == rank and 0 not in shape:
                return int(shape[0]), int(shape[1])
            rule = f"'{name}' must have {rank} dimensions, none of them 0"
            raise ValueError(explain(rule, got=f"shape {shape}", fix="plots.batch(collate(texts))"))
    rule = "a batch to draw needs 'input_ids' or 'inputs_embeds'"
    raise ValueError(explain(rule, got=f"{list(batch)}", fix="plots.batch(collate(texts))"))


def _part_of(batch: Any, *, decoder: bool) -> Any:
    """Return the entries of the encoder, or with `decoder` those of the decoder, without the prefix `decoder_`."""
    if not isinstance(batch, Mapping):
        return batch
    if not decoder:  # in an encoder-decoder, the look-ahead mask belongs to the decoder
        both = "decoder_input_ids" in batch
        return {name: batch[name] for name in batch if name != "look_ahead_mask"} if both else batch
    if "decoder_input_ids" not in batch:
        alone = ", without model=, which leaves them to the model" if "labels" in batch else ""
        raise ValueError(
            explain(
                "this batch has no decoder inputs",
                got=f"{list(batch)}, without 'decoder_input_ids'",
                fix=f'DataCollatorWithPositionalEncoding(tokenizer, text_target_column="..."){alone}',
            )
        )
    inputs = {name.removeprefix("decoder_"): value for name, value in batch.items() if name.startswith("decoder_")}
    return inputs | {name: batch[name] for name in ("look_ahead_mask",) if name in batch}


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        rule = f"'{name}' does not fit the tokens of the batch"
        raise ValueError(explain(rule, got=f"shape {shape}, expected {expected}", fix="plots.masks(collate(texts))"))


def _allowed(mask: Any) -> NDArray[np.bool_]:
    """Convert a mask to bools, True where attention is allowed: True in a bool mask, 0 in an additive float mask."""
    values = as_numpy(mask)
    return values == 0 if values.dtype.kind == "f" else values.astype(bool)


def _draw_tokens(ax: Axes, words: Sequence[Sequence[str]], real: NDArray[np.bool_]) -> None:
    style: dict[str, Any] = {"inks": np.where(real, INK, FADED), "lines": "#B0B0B0"}
    style["rotation"] = 90 if real.shape[1] > _ROTATED else 0
    _draw_cells(ax, real, (PADDING, "#FFFFFF"), "tokens (gray: padding)", words=words, **style)


def _draw_numbers(
    ax: Axes, name: str, numbers: NDArray[Any], real: NDArray[np.bool_], first: int = 0, more: str = ""
) -> None:
    """Draw position ids or document ids as colored cells, with numbers if there is room; padding is gray.

    The first column has the number `first`, and `more` is added to the title.
    """
    shown: Any = np.ma.masked_array(numbers, mask=~real)
    low, high = (int(shown.min()), int(shown.max())) if real.any() else (0, 0)
    title, bright = f"{name}: {low} to {high}", np.ones_like(real)
    if name == "position_ids":
        title, bright = f"{name}: {low} (dark) to {high} (bright)", numbers > (low + high) / 2
    ax.set_facecolor(PADDING)  # visible where the array is masked
    values, colors = (shown, SEQUENTIAL) if name == "position_ids" else (shown % 2, (GREEN, ORANGE))
    words = numbers.tolist() if real.shape[1] <= _NUMBERED else None
    inks = np.where(real, np.where(bright, "black", "white"), FADED)
    _draw_cells(ax, values, colors, title + more, words=words, inks=inks, first=first)


def _draw_matrix(ax: Axes, title: str, allowed: NDArray[np.bool_], words: list[str], real: NDArray[np.bool_]) -> Axes:
    queries, keys = real[:, None], real[None, :]
    cells = np.where(allowed, np.where(queries, _ALLOWED, _FROM_PADDING), np.where(keys, _HIDDEN, _PADDING))
    _draw_cells(ax, cells, _COLORS, title)
    ax.set(aspect="equal", xlabel="key", ylabel="query")
    label_matrix(ax, words, words, real_across=real.tolist(), real_down=real.tolist())
    return ax


def _draw_cells(
    ax: Axes,
    values: NDArray[Any],
    colors: str | Sequence[str],
    title: str,
    *,
    words: Sequence[Sequence[object]] | None = None,
    inks: NDArray[Any] | None = None,
    rotation: int = 0,
    first: int = 0,
    lines: str | None = "#C8C8C8",
) -> None:
    r"""Draw a matrix as cells, with lines between them.

    Args:
        ax (`Axes`): the axes to draw into.
        values (`np.ndarray` `(R, C)`): values of the cells, drawn as colors.
        colors (`str` or several): name of a color map, or a list with the colors of the values 0, 1, 2, ...
        title (`str`): title of the axes.
        words, inks (`R` rows of `C` each, *optional*): text in every cell, and its color.
        rotation (`int`): rotation of the texts in degrees.
        first (`int`): number of the first column.
        lines (`str`, *optional*): color of the lines between cells; `None` draws none.
    """
    from matplotlib.colors import ListedColormap

    rows, columns = values.shape
    style: dict[str, Any] = {"cmap": colors}
    if not isinstance(colors, str):
        style = {"cmap": ListedColormap(list(colors)), "vmin": 0, "vmax": len(colors) - 1}
    edges = (first - 0.5, first + columns - 0.5, rows - 0.5, -0.5)
    ax.imshow(values, aspect="auto", interpolation="nearest", extent=edges, **style)
    place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL, "clip_on": True, "rotation": rotation}
    for row, line in enumerate(words or ()):
        for column, word in enumerate(line):
            ax.text(first + column, row, str(word), color=INK if inks is None else inks[row, column], **place)
    label(ax, title, "column", "row", size=MEDIUM)
    integer_ticks(ax.xaxis, ax.yaxis, most=16)
    if lines is not None:
        ax.set_xticks(np.arange(first, first + columns + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        ax.grid(which="minor", color=lines, linewidth=0.5)
    ax.tick_params(which="both", length=0)

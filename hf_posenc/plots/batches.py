"""Plots of one batch: `batch` draws tokens, labels, masks, positions and embeddings; `masks` draws masks by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import counted, shorten, type_error, value_error
from ..collator import real_tokens, written_tokens
from ..masks import AttentionMask
from ..masks.reasons import ALLOWED, OTHER_DOCUMENT, PADDING, PADDING_QUERY, reasons
from .canvas import (
    BLUE,
    FADED,
    GREEN,
    INK,
    MEDIUM,
    ORANGE,
    PALE,
    PURPLE,
    SEQUENTIAL,
    SMALL,
    figure_of,
    grid_shape,
    headline,
    heat_map,
    integer_ticks,
    label,
    new_axes,
    new_figure,
    picture,
    width_of,
)
from .checks import as_finite, as_indices, as_numpy
from .token_labels import Side, inches_of, label_matrix, span_of, token_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NUMBERS, _SQUARES = ("position_ids", "document_ids"), ("look_ahead_mask", "inputs_embeds")
_ENTRIES = ("input_ids", "attention_mask", *_NUMBERS, *_SQUARES)
_MOST_ROWS, _MOST_TOKENS = 16, 64
_WIDEST, _BESIDE, _WIDEST_TOKEN = 8.0, 0.9, 0.48  # inches; beside the tokens are labels
# Width of a cell relative to the estimate of `inches_of`. The widest of 400 tokens of BERT is 1.08 times its estimate.
_CELL = 1.15
_KEYS = ("key", "query")  # across and down
_TITLE = "Which token may attend to which"

# Colors and meanings of the cells of a mask, in the order of the numbers of `masks.reasons`; view/lab.css has the same
# colors. In pictures PADDING_QUERY also marks a key to which a query that is padding may attend.
_COLORS = (BLUE, PALE, ORANGE, PURPLE, "#3C4248", "#8FBCDD")
_MEANINGS = (
    *("may attend", "padding", "later token (look-ahead)", "other document", "hidden by the mask"),
    "query is padding",
)
_HATCH = "////"  # of OTHER_DOCUMENT


@picture
def batch(batch: Mapping[str, Any], tokens: Sequence[Sequence[str]] | None = None, *, ax: Axes | None = None) -> Figure:
    r"""Draw a batch: tokens with their ids, labels, padding mask, look-ahead mask, position ids, and embeddings.

    There is one panel for each of these that the batch has, and one for the documents of its rows. All panels show the
    same tokens: as many as there is room for, the last ones if the padding is on the left. The label -100 is gray. The
    look-ahead mask has the tokens of the first row on its axes, and the colors of `masks`; it also hides other
    documents. Embeddings are those of the first row. At most 16 rows are drawn. The picture states if some are left
    out.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): with `input_ids` `(B, T)` or `inputs_embeds`
            `(B, T, D)`, and any of `labels` `(B, T)` or `(B,)`, `attention_mask` `(B, T)`, `position_ids` `(B, T)`,
            `look_ahead_mask` `(B, 1, T, T)`.
        tokens (`B` lists of `T` `str`, *optional*): tokens to show, the result of `collate.tokens(batch)`. By default
            the tokens of the batch, else the ids.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. They show the tokens only. By default a new figure
            shows all panels.

    Returns:
        `matplotlib.figure.Figure`. The image of a panel holds the numbers that it shows as colors; the image of the
        tokens holds the padding mask, that of the look-ahead mask the numbers of `masks`. The colors of embeddings end
        at the 99th percentile of their absolute values, so that outliers do not make all others pale.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the batch has neither `input_ids` nor `inputs_embeds`, the shape of `tokens` or of an entry does
            not fit these, or an embedding is not finite.
        TypeError: if `batch` is not a mapping, or an entry is a list instead of a tensor.

    Example:
        >>> import numpy as np
        >>> ids = np.array([[5, 6, 7], [8, 0, 0]])
        >>> figure = batch({"input_ids": ids, "attention_mask": ids != 0}, [["I", "ride", "bike"], ["no", "-", "-"]])
        >>> [axes.get_title() for axes in figure.axes]
        ['tokens', 'attention_mask']
    """
    contents = _Contents(batch, tokens)
    entries, (count, length) = contents.entries, contents.shape
    rows = min(count, _MOST_ROWS)
    labels = as_numpy(entries["labels"][:rows]).reshape(rows, -1) if "labels" in entries else np.empty((rows, 0))
    words, part, width = _fitting_words(contents, labels, ax)
    is_real = contents.real[:rows, part]
    title, drawn = "tokens", f"; the first {rows} rows are drawn" if rows < count else ""
    if part.stop - part.start < length:
        title = f"tokens {part.start} to {part.stop - 1} of {length}"
        drawn += f"; tokens {part.start} to {part.stop - 1} are drawn"
    if ax is not None:
        figure, ax = new_axes(ax)
        _draw_words(ax, title, words, is_real, part.start)
        return figure

    strips = [*(["attention_mask"] if "attention_mask" in entries else []), *contents.numbers]
    squares = [name for name in _SQUARES if name in entries]
    top = {"tokens": 0.4 * rows + 0.75} | ({"labels": 0.28 * rows + 0.8} if labels.size else {})
    heights, places = _places(top, strips, squares, 0.22 * rows + 0.95, min(0.25 * is_real.shape[1] + 1.45, 4.2))
    figure = new_figure(width, sum(heights) + 0.9)
    grid = figure.add_gridspec(len(heights), 6, height_ratios=heights)
    codes = {code for code, used in ((ALLOWED, "attention_mask" in strips), (PADDING, not is_real.all())) if used}
    for name, place in places.items():
        panel = figure.add_subplot(grid[place].subgridspec(1, 1)[0])  # wide labels of a panel move no other panel
        if name == "tokens":
            _draw_words(panel, title, words, is_real, part.start)
        elif name == "labels":
            # Labels of a row or of a decoder have columns of their own.
            each, across = (part, "token") if labels.shape[1] == length else (slice(0, is_real.shape[1]), "label")
            shown = labels[:, each]
            _draw_words(panel, name, shown.astype(str).tolist(), shown != IGNORED, each.start, across)
        elif name == "attention_mask":
            _draw_cells(panel, is_real, (PALE, BLUE), name, first=part.start)
        elif name in contents.numbers:
            _draw_numbers(panel, name, contents.numbers[name][:rows, part], is_real, part.start)
        elif name == "look_ahead_mask":
            codes |= _draw_look_ahead(panel, contents, part)
        else:
            values = as_finite(entries[name][0][part], "inputs_embeds")
            end = float(np.percentile(np.abs(values), 99)) or 1.0
            extent = (-0.5, values.shape[1] - 0.5, part.start + len(values) - 0.5, part.start - 0.5)
            heat_map(panel, values, limits=(-end, end), extent=extent, name="value")
            beyond = f"\ncolors end at ±{end:.2g}, the 99th percentile" if np.abs(values).max() > end else ""
            label(panel, f"inputs_embeds of row 0{beyond}", "dimension", "token", size=MEDIUM)
    note = f"{counted(count, 'row')} × {counted(length, 'token')}{drawn}"
    headline(figure, "All rows of a batch have one length", note, _legend(codes))
    return figure


@picture
def masks(
    batch: Mapping[str, Any],
    tokens: Sequence[Sequence[str]] | None = None,
    *,
    row: int | None = None,
    span: tuple[int, int] | None = None,
    look_ahead: bool | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the attention masks of one row of a batch as matrices of query and key tokens.

    A blue cell means that its query (down) may attend to its key (across). Pale blue means that the query is padding,
    so that its output is not used. In all other cells the key is hidden: gray for padding, orange for a later token,
    hatched purple for another document, dark for another reason. Below the matrices, the padding, the position ids and
    the documents of the batch are drawn, for its first 16 rows. Of an encoder-decoder, the encoder's masks are drawn.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): the result of `collate(texts)`, padded or packed.
            It has `input_ids` `(B, T)` or `inputs_embeds` `(B, T, D)`, and any of `look_ahead_mask` `(B, 1, T, T)`,
            `position_ids`, `document_ids` `(B, T)` and `attention_mask`. An `attention_mask` is `(B, T)`,
            `(B, 1, T, T)`, or a mapping from a kind of layer, such as `"sliding_attention"`, to its mask. Without
            `document_ids`, a document begins where the position ids restart.
        tokens (`B` lists of `T` `str`, *optional*): tokens to show, the result of `collate.tokens(batch)`. By default
            the tokens of the batch, else the ids.
        row (`int`, *optional*): row to draw. By default the row with the most documents; in a tie, the one with the
            most padding.
        span (two `int`, *optional*): (start, stop), to draw the tokens from index start to stop - 1, at most 64. By
            default all tokens are drawn.
        look_ahead (`bool`, *optional*): True draws a look-ahead mask even if the batch has none, for a model that adds
            its own; False leaves it out. By default it is drawn if the batch has one.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. They show only the matrix that combines all masks;
            with masks for several kinds of layer, that of the last kind. By default a new figure shows everything.

    Returns:
        `matplotlib.figure.Figure`. The image of a matrix holds a number for each cell. It is 0 if the query may
        attend to the key, and 5 if the query is padding. In hidden cells it is 1 for padding, 2 for a later key, 3 for
        a key in another document, and 4 for another reason.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the batch has no tokens; if more than 64 tokens would be drawn; if there is no such `row` or
            `span`; if the shape of `tokens` or of an entry does not fit.
        TypeError: if `batch` is not a mapping, or an entry is a list instead of a tensor.

    Example:
        >>> ids = np.array([[5, 6, 7], [8, 0, 0]])
        >>> figure = masks({"input_ids": ids, "attention_mask": ids != 0}, look_ahead=True)
        >>> [axes.get_title() for axes in figure.axes]
        ['padding mask', 'look-ahead mask', 'padding and look-ahead', 'padding mask of every row']
    """
    contents = _Contents(batch, tokens)
    count, length = contents.shape
    if row is None:
        last = contents.numbers.get("document_ids", np.zeros(contents.shape)).max(axis=1)
        row = int(np.lexsort((contents.real.sum(axis=1), -last))[0])
    (index,) = as_indices(row, count, "row")
    part = span_of(span, length)
    (words,) = contents.words(slice(index, index + 1), part)
    is_real = contents.real[index, part]
    matrices = contents.matrices(index, part, look_ahead)
    if ax is not None:
        name, cells = matrices.popitem()
        figure, ax = new_axes(ax)
        _draw_matrix(ax, "", cells, words, is_real, width_of(ax) / len(words))
        label(ax, _TITLE, *_KEYS, note=name)
        ax.set_aspect("equal")
        return figure

    rows = min(count, _MOST_ROWS)
    cell = min(0.3, max(0.12, 1.8 / len(words)))  # inches
    side = max(len(words) * cell, 1.5) + inches_of(words) + 0.35
    lines, abreast = grid_shape(len(matrices), int(_WIDEST // side))
    heights = [side + 0.5] * lines + [0.2 * rows + 0.85] * (1 + len(contents.numbers))
    figure = new_figure(max(abreast * side + 0.3, 6.5), sum(heights) + 1.0)
    grid = figure.add_gridspec(len(heights), abreast, height_ratios=heights)
    tokens_drawn = f", tokens {part.start} to {part.stop - 1}" if part.stop - part.start < length else ""
    for number, (name, cells) in enumerate(matrices.items()):
        _draw_matrix(figure.add_subplot(grid[divmod(number, abreast)]), name, cells, words, is_real, cell)
    rows_drawn, there = f", the first {rows} of {count} rows" if rows < count else "", contents.real[:rows, part]
    all_rows = figure.add_subplot(grid[lines, :])
    _draw_cells(all_rows, there, (PALE, BLUE), f"padding mask of every row{rows_drawn}", first=part.start)
    for number, (name, values) in enumerate(contents.numbers.items(), lines + 1):
        _draw_numbers(figure.add_subplot(grid[number, :]), name, values[:rows, part], there, part.start, rows_drawn)
    codes = {int(value) for cells in matrices.values() for value in np.unique(cells)}
    note = f"row {index} of {counted(count, 'row')} × {counted(length, 'token')}{tokens_drawn}"
    headline(figure, _TITLE, note, _legend(codes | ({PADDING} if not there.all() else set())))
    return figure


class _Contents:
    """Checked entries of a batch as arrays `(B, T)`: `real` is True at tokens; `numbers` has, if the batch has them,
    `position_ids` and `document_ids`, also counted from position ids that restart.
    """

    def __init__(self, batch: Mapping[str, Any], tokens: Sequence[Sequence[str]] | None) -> None:
        self.batch, self.tokens = batch, tokens
        self.shape = _shape_of(batch)  # (B, T)
        self.entries = {name: entry for name, entry in batch.items() if entry is not None}
        masks = self.entries.get("attention_mask")
        masks = masks if isinstance(masks, Mapping) else {"": masks}  # one mask for each kind of layer, or for all
        # The 4D masks by kind of layer, each (B, 1 or T, T). A token is real if at least one query may attend to it.
        self.full = {name: mask[:, 0] for name, mask in masks.items() if mask is not None and mask.ndim == 4}
        is_real = _allowed(next(iter(self.full.values()))).any(axis=1) if self.full else real_tokens(batch)
        self.real = np.ones(self.shape, dtype=bool) if is_real is None else as_numpy(is_real).astype(bool)
        _check_shape("attention_mask", self.real.shape, self.shape)
        self.numbers: dict[str, NDArray[Any]] = {}
        for name in _NUMBERS:
            if name in self.entries:
                numbers = np.atleast_2d(as_numpy(self.entries[name]))
                rows = self.shape[0] if len(numbers) == 1 else len(numbers)  # one row may serve for all
                _check_shape(name, (rows, *numbers.shape[1:]), self.shape)
                self.numbers[name] = np.where(self.real | (name == "position_ids"), numbers, -1)
        if "position_ids" in self.numbers and "document_ids" not in self.numbers:
            packed = {name: numbers.astype(np.int64) for name, numbers in self.numbers.items()}
            documents = AttentionMask.from_batch({"attention_mask": self.real, **packed}).documents.numpy()
            if (documents > 0).any():
                self.numbers["document_ids"] = documents

    def words(self, rows: slice, part: slice = slice(None)) -> list[list[str]]:
        """Return the labels of the tokens `part` in each of `rows`."""
        return token_labels(self.batch, self.tokens, self.shape, rows=rows, span=part)

    def matrices(self, row: int, part: slice, look_ahead: bool | None) -> dict[str, NDArray[np.int8]]:
        """Return the cells `(N, N)` of each mask of a row by its name, for the N tokens of `part`.

        The last matrix combines all masks; for several kinds of layer, there is one combined matrix for each kind.
        """
        is_real = self.real[row, part]
        is_padded_query = ~is_real[:, None]
        is_later = ~np.tri(len(is_real), dtype=bool)
        documents = self.numbers["document_ids"][row, part] if "document_ids" in self.numbers else None

        def cells(
            allowed: NDArray[np.bool_] | None, documents: NDArray[Any] | None = None, later: bool = False
        ) -> NDArray[np.int8]:
            """Return the numbers of the cells of a mask, from 0 to 5, as the docstring of `masks` explains them."""
            codes = reasons(allowed, is_real, documents, later=later)
            if allowed is not None:
                codes[allowed & is_padded_query] = PADDING_QUERY
            return codes

        combined = np.broadcast_to(is_real, is_later.shape)
        matrices, names = {"padding mask": cells(None)}, ["padding"]
        if is_real.all() and documents is not None:  # the panel would be blue
            matrices, names = {}, []
        # In an encoder-decoder, the look-ahead mask belongs to the decoder.
        has_own = "look_ahead_mask" in self.entries and "decoder_input_ids" not in self.entries
        if look_ahead or (look_ahead is None and has_own):
            allowed = ~is_later
            if has_own:
                mask = self.entries["look_ahead_mask"]
                mask = mask[(0,) * (mask.ndim - 2)]  # all rows have the same mask
                _check_shape("look_ahead_mask", tuple(mask.shape), (self.shape[1], self.shape[1]))
                allowed = _allowed(mask[part, part])
            codes = reasons(allowed, np.ones_like(is_real), later=True)  # alone, it hides nothing else
            codes[allowed & is_padded_query] = PADDING_QUERY
            matrices["look-ahead mask"] = codes
            names.append("look-ahead")
            combined = combined & allowed
        if documents is not None:
            matrices["same document"] = cells(None, documents)
            names.append("document")
        combined = combined & (cells(None, documents) != OTHER_DOCUMENT)
        for kind, mask in (self.full or {"": None}).items():
            allowed = combined
            if mask is not None:
                allowed = combined & _allowed(mask[row, part if mask.shape[1] > 1 else slice(None), part])
            hidden_cells = cells(allowed, documents, later=not (allowed & is_later).any())
            if len(self.full) > 1:
                matrices[f"mask of {kind}"] = hidden_cells
            elif len(names) > 1:
                matrices[" and ".join(names) if len(names) == 2 else "all combined"] = hidden_cells
            elif not np.array_equal(allowed, combined):
                matrices["attention_mask of 4 dimensions"] = hidden_cells
        return matrices


def _shape_of(batch: Any) -> tuple[int, int]:
    """Return the shape `(B, T)` of the tokens in a batch."""
    fix = 'collate(texts), or tokenizer(texts, padding=True, return_tensors="pt")'
    # A tokenizer returns lists without return_tensors.
    if not isinstance(batch, Mapping) or any(isinstance(batch.get(name), list | tuple) for name in _ENTRIES):
        raise type_error("a batch is a mapping from names to tensors or arrays", got=shorten(batch), fix=fix)
    for name, rank in (("input_ids", 2), ("inputs_embeds", 3)):
        if batch.get(name) is not None:
            shape = tuple(batch[name].shape)
            if len(shape) == rank and 0 not in shape:
                return int(shape[0]), int(shape[1])
            rule = f"'{name}' must have {rank} dimensions, none of them 0"
            raise value_error(rule, got=f"shape {shape}", fix="collate(texts)")
    rule = "a batch to draw needs 'input_ids' or 'inputs_embeds'"
    raise value_error(rule, got=f"{list(batch)}", fix="collate(texts)")


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        rule = f"'{name}' does not fit the tokens of the batch"
        raise value_error(rule, got=f"shape {shape}, expected {expected}", fix="batch = collate(texts)")


def _allowed(mask: Any) -> NDArray[np.bool_]:
    """Convert a mask to bools, True where attention is allowed: True in a bool mask, 0 in an additive float mask."""
    values = as_numpy(mask)
    return values == 0 if values.dtype.kind == "f" else values.astype(bool)


def _fitting_words(contents: _Contents, labels: NDArray[Any], ax: Axes | None) -> tuple[list[list[str]], slice, float]:
    """Return the words in the cells of the tokens that have room, the slice of these, and the figure's width."""
    entries, length, rows = contents.entries, contents.shape[1], len(labels)
    words = contents.words(slice(rows))
    ids = as_numpy(entries["input_ids"][:rows]).astype(str).tolist() if "input_ids" in entries else words
    widest = _CELL * inches_of([word for row in (*words, *ids, *labels.astype(str).tolist()) for word in row])
    width = _WIDEST if ax is None else width_of(ax)
    room = width if ax is not None else width - _BESIDE
    columns = min(max(int(room / min(widest, _WIDEST_TOKEN)), 1), length, _MOST_TOKENS)
    is_left = contents.real[:, -1].all() and not contents.real[:, 0].all()
    part = slice(length - columns, length) if is_left else slice(0, columns)
    longest = max((word for row in words for word in row), key=len)
    letters = max(int(len(longest) * room / columns / (_CELL * inches_of([longest]))), 2)
    words = [[word if len(word) <= letters else word[: letters - 1] + "…" for word in row[part]] for row in words]
    words = [
        [word if word == number else f"{word}\n{number}" for word, number in zip(row, numbers[part], strict=True)]
        for row, numbers in zip(words, ids, strict=True)
    ]
    return words, part, width


def _draw_words(
    ax: Axes, title: str, words: list[list[str]], is_real: NDArray[np.bool_], first: int, across: str = "token"
) -> None:
    """Draw a word in each cell, gray where `is_real` is False."""
    inks = np.where(is_real, INK, FADED)
    _draw_cells(ax, is_real, (PALE, "#FFFFFF"), title, (across, "row"), words=words, inks=inks, first=first)


def _places(
    top: dict[str, float], strips: list[str], squares: list[str], strip: float, square: float
) -> tuple[list[float], dict[str, tuple[slice, slice]]]:
    """Return the heights of the lines of a picture, and the place of each panel in a grid of 6 columns."""
    # The panels `top` have a line each. A look-ahead mask alone stands beside the strips if these are low.
    lines, beside = [([name], height, 6) for name, height in top.items()], {}
    if squares == ["look_ahead_mask"] and strips and strip * len(strips) <= 4.2:
        beside = {squares[0]: (slice(len(lines), None), slice(3, 6))}
        lines += [([name], max(strip, square / len(strips)), 3) for name in strips]
    else:
        both = ((strips, strip), (squares, square))
        lines += [(names, height, 6 // len(names)) for names, height in both if names]
    places = {
        name: (slice(line, line + 1), slice(column * share, (column + 1) * share))
        for line, (names, _, share) in enumerate(lines)
        for column, name in enumerate(names)
    }
    return [height for _, height, _ in lines], places | beside


def _draw_look_ahead(ax: Axes, contents: _Contents, part: slice) -> set[int]:
    """Draw the look-ahead mask of the first row, or of its documents, and return the numbers of its cells."""
    whose = ""
    if "decoder_input_ids" in contents.batch:  # the mask is the decoder's, of another length
        names = [name for name in contents.batch if name.startswith("decoder_")]
        entries = {name.removeprefix("decoder_"): contents.batch[name] for name in names}
        entries["look_ahead_mask"] = contents.entries["look_ahead_mask"]
        whose, contents = "decoder ", _Contents(entries, written_tokens(contents.batch, "decoder_input_ids"))
        part = slice(min(part.stop, contents.shape[1]))
    (words,) = contents.words(slice(1), part)
    matrices = contents.matrices(0, part, look_ahead=True)
    is_packed = "document_ids" in contents.numbers  # the mask alone would let the documents attend to each other
    cells = list(matrices.values())[-1] if is_packed else matrices["look-ahead mask"]
    height = float(ax.get_window_extent().height / figure_of(ax).dpi)
    cell = min(width_of(ax) - inches_of(words), height) / len(words)
    title = f"look_ahead_mask{' and documents' if is_packed else ''} of {whose}row 0"
    _draw_matrix(ax, fill(title, int(13 * width_of(ax))), cells, words, contents.real[0, part], cell)
    ax.set_aspect("equal", anchor="N")
    return set(cells.flatten().tolist())


def _draw_numbers(
    ax: Axes, name: str, numbers: NDArray[Any], is_real: NDArray[np.bool_], first: int = 0, note: str = ""
) -> None:
    """Draw ids of positions or documents as colored cells, with numbers if there is room; padding is gray."""
    cells: Any = np.ma.masked_array(numbers, mask=~is_real)
    low, high = (int(cells.min()), int(cells.max())) if is_real.any() else (0, 0)
    has_room = width_of(ax) / is_real.shape[1] > 0.07 * len(str(high)) + 0.02
    title = f"{name}: {low} to {high}"
    colors: Any = ("#8FD3BC", GREEN)
    bright = np.ones_like(is_real)
    if name == "position_ids":
        colors, bright = SEQUENTIAL, numbers > (low + high) / 2
        title = title if has_room else f"{name}: {low} (dark) to {high} (bright)"
    else:
        cells = cells % 2
    ax.set_facecolor(PALE)  # visible where the array is masked
    inks = np.where(is_real, np.where(bright, "black", "white"), FADED)
    _draw_cells(ax, cells, colors, title + note, words=numbers.tolist() if has_room else (), inks=inks, first=first)


def _draw_matrix(
    ax: Axes, title: str, cells: NDArray[np.int8], words: list[str], is_real: NDArray[np.bool_], width: float
) -> None:
    from matplotlib.patches import Rectangle

    style: dict[str, Any] = {"fill": False, "edgecolor": "#FFFFFF", "linewidth": 0, "alpha": 0.6, "hatch": _HATCH}
    _draw_cells(ax, cells, _COLORS, title, _KEYS)
    for query, line in enumerate(cells == OTHER_DOCUMENT):
        ends = np.flatnonzero(np.diff(line.astype(np.int8), prepend=0, append=0))
        for begin, end in ends.reshape(-1, 2).tolist():
            ax.add_patch(Rectangle((begin - 0.5, query - 0.5), end - begin, 1, **style))
    side = Side(words, is_real.tolist())
    label_matrix(ax, side, side, width)


def _legend(codes: set[int]) -> list[Any]:
    """Return legend handles for the colors of mask cells: one for each number in `codes`, 0 to 5 as in `masks`."""
    from matplotlib.patches import Patch

    hatches = {OTHER_DOCUMENT: _HATCH}
    return [
        Patch(facecolor=_COLORS[code], edgecolor="#909090", label=_MEANINGS[code], hatch=hatches.get(code))
        for code in sorted(codes)
    ]


def _draw_cells(
    ax: Axes,
    values: NDArray[Any],
    colors: str | Sequence[str],
    title: str,
    axes: tuple[str, str] = ("token", "row"),
    *,
    words: Sequence[Sequence[object]] = (),
    inks: Any = None,
    first: int = 0,
) -> None:
    """Draw a matrix as colored cells, with lines between them, and `words` with a color each in `inks`."""
    from matplotlib.colors import ListedColormap

    rows, columns = values.shape
    style: dict[str, Any] = {"cmap": colors}
    if not isinstance(colors, str):
        style = {"cmap": ListedColormap(list(colors)), "vmin": 0, "vmax": len(colors) - 1}
    edges = (first - 0.5, first + columns - 0.5, rows - 0.5, -0.5)
    ax.imshow(values, aspect="auto", interpolation="nearest", extent=edges, **style)
    place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL, "clip_on": True}
    for row, line in enumerate(words):
        for column, word in enumerate(line):
            ax.text(first + column, row, str(word), color=inks[row, column], **place)
    label(ax, title, *axes, size=MEDIUM)
    integer_ticks(ax.xaxis, ax.yaxis, most=16)
    ax.set_xticks(np.arange(first, first + columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#C8C8C8", linewidth=0.5)
    ax.tick_params(which="both", length=0)

"""Plot of the embeddings of sentences, without and with positions, in the plane of their largest variance (PCA)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .._common.errors import shorten, type_error, value_error
from ..collator import DataCollatorWithPositionalEncoding
from ..models import unchanged
from ..positions import Convention, PositionalEmbedding, Scale
from ..tokenization.loading import private_copy
from .canvas import FADED, LINES, ORANGE, headline, label, legend_below, new_axes, new_figure, picture
from .checks import as_finite, check_count
from .token_labels import MOST_TOKENS, label_points, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..tokenization.loading import AnyTokenizer

_Sentences = list[tuple[list[str], torch.Tensor]]  # the tokens of each, and their vectors (1, T, D)


@picture
def embeddings(
    tokenizer: AnyTokenizer | DataCollatorWithPositionalEncoding | None = None,
    embedding: nn.Embedding | PositionalEmbedding | str | Sequence[str] | None = None,
    text: str | Sequence[str] | None = None,
    *,
    vectors: torch.Tensor | NDArray[np.floating] | Sequence[Sequence[float]] | None = None,
    tokens: Sequence[str] | None = None,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    scale: Scale | Sequence[Scale] = None,
    words: Sequence[str] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw a sentence's token embeddings before and after adding positions, in one plane of largest variance (PCA).

    In the first panel, without positions, a repeated word is one point, and word order is invisible. In the second, a
    thin line joins the tokens in order, and repeated words are separate points. The plane is the one in which the
    points of both panels differ most, each point from the center of its panel. The ranges of the axes differ. Several
    sentences, such as two with the same words in another order, have a color each; a point of several is gray.

    Several factors, as in `scale=[1, "sqrt_d"]`, draw another comparison: one panel with positions for each factor, all
    in one plane and with the same ranges of the axes.

    Args:
        tokenizer (name, folder, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): splits the text into tokens. A
            collator with `embedding=` takes the place of tokenizer and table: `embeddings(collate, text)`.
        embedding (`nn.Embedding` or `PositionalEmbedding`): the embedding table, such as
            `model.get_input_embeddings()`. A `PositionalEmbedding` has its own convention, base and scale, so that
            these arguments are not used.
        text (`str` or list of `str`): a sentence of at most 64 tokens, or several, which all begin at position 0.
            Special tokens are drawn if the text has them.
        vectors (tensor, array or nested list `(T, D)`, *optional*): vectors of the sentence's words in order, such as
            rows of a GloVe file. With `tokens=`, they replace `tokenizer`, `embedding` and `text`.
        tokens (list of T `str`, *optional*): the words that belong to `vectors`, for example `sentence.split()`.
        convention, base: as in `encoding`.
        scale (`"sqrt_d"` or `float`, or several, *optional*): factor of the token embeddings before positions are
            added. `"sqrt_d"` is the square root of their width. By default 1. With one factor, both panels show the
            scaled embeddings.
        words (list of `str`, *optional*): tokens to draw. The others only take up positions. By default all tokens.
        title (`str`, *optional*): title of a new figure, by default none. Set it here: a title added later moves the
            words.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw into. They show only the last panel. By default a new
            figure shows all.

    Returns:
        `matplotlib.figure.Figure` with the axes of all panels. In axes with positions,
        `lines[0].get_xydata()` is the point of every drawn token, `(T, 2)`; each sentence has a line. In all,
        `collections[0].get_offsets()` is each distinct point once.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the text has no tokens or more than 64, a token id is not in the table, there is not one vector
            for each token, a number is not finite, or the text does not contain one of `words`.
        TypeError: if an argument has a wrong type or is missing.

    Example:
        >>> import torch
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"a": 0, "king": 1, "queen": 2}, unk_token="a"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> figure = embeddings(raw, torch.nn.Embedding(3, 8), "a king a queen")
        >>> [len(axes.collections[0].get_offsets()) for axes in figure.axes]
        [3, 4]
        >>> figure = embeddings(raw, torch.nn.Embedding(3, 8), ["a king queen", "queen king a"])  # king is in place 1
        >>> [len(axes.collections[0].get_offsets()) for axes in figure.axes]
        [3, 5]
        >>> figure = embeddings(vectors=torch.rand(3, 50), tokens=["king", "and", "queen"])
    """
    sentences: _Sentences = []
    texts: list[Any] = [text]
    table: Any = embedding
    if vectors is None and tokens is None:
        tokenizer, table, text = _checked(tokenizer, embedding, text)
        texts = list(text) if isinstance(text, list | tuple) and text else [text]
    elif (tokenizer, embedding, text) == (None, None, None):
        sentences = [_words(vectors, tokens)]
        table = nn.Embedding.from_pretrained(sentences[0][1][0])  # type: ignore[no-untyped-call]
    else:
        rule = "vectors= and tokens= take the place of a tokenizer, its table and a text"
        raise type_error(rule, got="both", fix="plots.embeddings(vectors=vectors, tokens=words)")
    scales: list[Any] = list(scale) if isinstance(scale, list | tuple) else [scale]
    if isinstance(table, PositionalEmbedding):
        scales, modules = [None], [table]
    else:
        modules = [PositionalEmbedding(table, convention=convention, base=base, scale=factor) for factor in scales]
    if not sentences:
        sentences = [_vectors(tokenizer, modules[0], one) for one in texts]
    drawn = _in_one_plane(sentences, modules, words)
    return _draw(drawn, scales, texts, title, ax)


class _Drawn(NamedTuple):
    """The drawn tokens of all sentences, N together, and their points in the plane, `(N, 2)` for each panel."""

    words: list[str]
    rows: list[int]  # sentence of each token
    positions: list[int]  # in its sentence
    panels: list[NDArray[np.float64]]
    share: NDArray[np.float64]  # of the variance, for each direction of the plane


def _in_one_plane(sentences: _Sentences, modules: list[PositionalEmbedding], words: Sequence[str] | None) -> _Drawn:
    """Return the points of the tokens without and with positions, or with those of each of several modules."""
    every = [(name, row, place) for row, (names, _) in enumerate(sentences) for place, name in enumerate(names)]
    check_count("tokens", len(every), MOST_TOKENS, fix="shorter texts")
    known = list(dict.fromkeys(name for name, *_ in every))
    missing = [word for word in words or () if word not in known]
    if missing:
        fix = f"words={known[:1]}, of {shorten(known)}"
        raise value_error("words must be tokens of the text", got=shorten(missing), fix=fix)
    places = [number for number, (name, *_) in enumerate(every) if not words or name in words]
    sums = []
    for module in modules:
        with unchanged(module.encoding), torch.no_grad():
            added = [module.encoding(values.double())[0] for _, values in sentences]
        sums.append(as_finite(torch.cat(added), "embeddings"))
    if len(sums) == 1:  # the first panel has the same scaled embeddings without positions
        factor = modules[0].encoding.factor
        sums.insert(0, np.concatenate([factor * as_finite(values[0], "embeddings") for _, values in sentences]))
    # Centered, because the step from one panel to the other would be the first component.
    centered = [points[places] - points[places].mean(axis=0) for points in sums]
    plane, share = principal_components(np.concatenate(centered))
    names, rows, positions = (list(each) for each in zip(*(every[place] for place in places), strict=True))
    return _Drawn(names, rows, positions, np.split(plane, len(sums)), share)


def _draw(drawn: _Drawn, scales: list[Scale], texts: Sequence[Any], title: str | None, ax: Axes | None) -> Figure:
    """Draw all panels into a new figure, or the last one into `ax`, and return the figure."""
    panels, beside = drawn.panels, len(drawn.words) <= 16
    titles = ["Without positions, order is invisible", "With positions, a line joins the tokens in order"]
    if len(scales) > 1:
        titles = [f"With positions, {_factor(factor) or 'tokens × 1'}" for factor in scales]
    ranges = panels if len(scales) == 1 else [np.concatenate(panels)] * len(panels)
    if ax is not None:
        figure, ax = new_axes(ax)
        panels, titles, ranges, cells = panels[-1:], titles[-1:], ranges[-1:], [ax]
    else:
        count = len(panels)
        figure = new_figure(4.0 * count if beside else 8.0, 4.4 if beside else 6.0 * count)
        if title is not None:
            headline(figure, title)
        cells = figure.subplots(*((1, count) if beside else (count, 1))).tolist()
    parts = [f"component {i + 1}: {drawn.share[i]:.0%} of the variance" for i in range(2)]
    for cell, name, points, panel in zip(cells, titles, ranges, panels, strict=True):
        if len(scales) > 1 or cell is cells[-1]:
            for row in dict.fromkeys(drawn.rows):
                color = LINES[row % len(LINES)] if len(texts) > 1 else ORANGE
                style: dict[str, Any] = {"color": color, "linewidth": 0.8, "alpha": 0.8 if beside else 0.3}
                mine = panel[np.array(drawn.rows) == row]
                cell.plot(mine[:, 0], mine[:, 1], zorder=1, label=readable(str(texts[row]), 40), **style)
            if len(texts) > 1:
                legend_below(cell, 4.0)
        label(cell, name, *parts, note=_factor(scales[0]) if len(scales) == 1 else "", grid=True)
        margin = 0.16 * np.ptp(points, axis=0)  # for the words beside the points
        margin[margin == 0] = 1.0
        limits = np.stack([points.min(axis=0) - margin, points.max(axis=0) + margin])
        cell.set(xlim=limits[:, 0], ylim=limits[:, 1])
    figure.draw_without_rendering()  # words are placed for the final size of the axes
    for cell, panel in zip(cells, panels, strict=True):
        _draw_points(cell, panel, drawn)
    return figure


def _checked(tokenizer: Any, embedding: Any, text: Any) -> tuple[Any, Any, Any]:
    """Return a tokenizer, its table and a text; a collator, followed by the text, has the first two."""
    whole = (tokenizer, embedding, text)
    if isinstance(tokenizer, DataCollatorWithPositionalEncoding):
        whole = (tokenizer.tokenizer, tokenizer._config.embedder.ready(), embedding if text is None else text)
    wrong = isinstance(embedding, int | DataCollatorWithPositionalEncoding)
    if wrong or isinstance(tokenizer, list | torch.Tensor | np.ndarray) or any(each is None for each in whole):
        raise type_error(
            "a picture of embeddings needs a tokenizer, its table and a text",
            got=f"tokenizer={shorten(tokenizer, 30)}, embedding={shorten(embedding, 30)}, text={shorten(text, 30)}",
            fix="plots.embeddings(tokenizer, table, text), or plots.embeddings(collate, text), "
            "or plots.embeddings(vectors=vectors, tokens=words)",
        )
    return whole


def principal_components(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return the coordinates of points in the plane of their largest variance (PCA).

    Source:
        Pearson 1901, "On lines and planes of closest fit to systems of points in space".

    Example:
        >>> principal_components(np.outer([0.5, 1.0, 3.6], [0.3, 0.4]))  # on a line: no rounding errors beside it
        (array([[-0.6 ,  0.  ],
               [-0.35,  0.  ],
               [ 0.95,  0.  ]]), array([1., 0.]))
    """
    centered = np.pad(points - points.mean(axis=0), ((0, 2), (0, 2)))  # at least two directions, if of no variance
    _, lengths, right = np.linalg.svd(centered, full_matrices=False)
    rounding = len(points) * np.finfo(np.float64).eps * np.abs(points).max(initial=0.0)
    lengths = np.where(lengths > rounding, lengths, 0.0)
    largest = right[np.arange(len(right)), np.abs(right).argmax(axis=1)]
    signed = right * np.where(largest < 0, -1.0, 1.0)[:, None]
    plane = centered[: len(points)] @ signed[:2].T * (lengths[:2] > 0)
    return plane + 0.0, lengths[:2] ** 2 / (float((lengths**2).sum()) or 1.0)  # no negative zeros


def _factor(scale: Scale) -> str:
    """Return the factor of the tokens as a label, "" without one."""
    return "" if scale is None else "tokens × √d" if scale == "sqrt_d" else f"tokens × {scale:.3g}"


def _words(vectors: Any, tokens: Sequence[str] | None) -> tuple[list[str], torch.Tensor]:
    """Return the words of a sentence and their vectors, `(1, T, D)` float64, after a check of both."""
    rows = as_finite([] if vectors is None else vectors, "vectors")
    words = [] if tokens is None or isinstance(tokens, str) else [str(token) for token in tokens]
    if rows.ndim != 2 or not words or len(rows) != len(words):
        rule = "vectors must have one row (T, D) for each of the words in tokens"
        got = f"vectors of shape {rows.shape}, and {shorten(tokens)}"
        raise value_error(rule, got=got, fix="plots.embeddings(vectors=vectors, tokens=words)")
    return words, torch.from_numpy(rows)[None]


def _vectors(
    tokenizer: AnyTokenizer | None, module: PositionalEmbedding, text: str | None
) -> tuple[list[str], torch.Tensor]:
    """Return the tokens of a text and their rows of the table, (1, T, D): unscaled, without positions."""
    if not isinstance(text, str):
        raise type_error("text must be one sentence, a str", got=shorten(text), fix='"a king is a man"')
    mine = private_copy(tokenizer)
    mine.model_max_length = int(1e30)  # no warning about long texts, because no model is run
    ids = list(mine(text, add_special_tokens=False)["input_ids"])
    if not ids:
        raise value_error("the text has no tokens", got=shorten(text), fix='"a king is a man"')
    tokens = mine.convert_ids_to_tokens(ids)
    too_large = [number for number, token in enumerate(ids) if token >= module.num_embeddings]
    if too_large:
        first = too_large[0]
        raise value_error(
            f"token {tokens[first]!r} has id {ids[first]}, but the embedding has {module.num_embeddings} rows",
            got=f"the embedding of another tokenizer, in {shorten(text)}",
            fix="model.get_input_embeddings() of the tokenizer's model",
        )
    with unchanged(module), torch.no_grad():
        return tokens, module.embedding(torch.tensor([ids], device=module.embedding.weight.device))


def _draw_points(ax: Axes, points: NDArray[np.float64], drawn: _Drawn) -> None:
    """Draw a dot for each point `(N, 2)`, with its word beside it; points at the same place share a dot and a label."""
    near = 1e-6 * max(float(np.ptp(points, axis=0).max()), 1e-300)
    groups: dict[tuple[float, ...], list[int]] = {}
    for number, place in enumerate((points / near).round().tolist()):
        groups.setdefault(tuple(place), []).append(number)
    words = [readable(word) for word in drawn.words]
    middles = np.array([points[group].mean(axis=0) for group in groups.values()])
    of_rows = [{drawn.rows[number] for number in group} for group in groups.values()]
    colors = [LINES[min(each) % len(LINES)] if len(each) == 1 else FADED for each in of_rows]
    ax.scatter(middles[:, 0], middles[:, 1], s=16, c=colors, zorder=2)
    label_points(ax, middles, [_label(group, words, drawn.positions) for group in groups.values()])


def _label(group: Sequence[int], words: Sequence[str], positions: Sequence[int]) -> str:
    """Return the label of a dot that stands for one token or several."""
    names = list(dict.fromkeys(words[number] for number in group))
    if len(names) > 1:
        return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    if words.count(names[0]) == 1:
        return names[0]
    places = list(dict.fromkeys(str(positions[number]) for number in group))
    return f"{names[0]} ({', '.join(places[:4])}{', …' if len(places) > 4 else ''})"

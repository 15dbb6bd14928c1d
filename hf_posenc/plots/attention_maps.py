"""Attention weights of a model on a batch: one panel per layer and head, with tokens on both axes.

The model computes the weights; this module only collects and draws them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import product
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .._common.compat import attention_implementation
from .._common.errors import require_one_of, shorten, type_error, value_error
from ..collator import real_tokens
from ..models import forward_names, is_hugging_face, opened, unchanged
from .canvas import MEDIUM, color_bar, grid_shape, headline, heat_map, label, new_axes, new_figure, picture, width_of
from .checks import as_finite, as_indices, as_numpy
from .token_labels import Side, inches_of, label_matrix, span_of, token_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["self", "encoder", "decoder", "cross"]
_Weights = list[tuple[str, NDArray[Any]]]  # kind, and weights (B, H, Q, K) of a layer

_WIDEST, _HIGHEST = 8.0, 12.0  # inches of several panels; more would be too small to read, or too high for a screen
_ROUNDING = 0.02  # sums of bfloat16 weights may exceed 1 by this much
_OUTPUTS = {
    "attentions": "self",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)


class _Panel(NamedTuple):
    """Data of one heat map: the weights of one head, or of a mean of heads, and the tokens on its axes."""

    title: str
    weights: NDArray[np.float64]  # (Q, K)
    queries: Side
    keys: Side


@picture
def attention(
    model: nn.Module | None = None,
    batch: Any = None,
    *,
    weights: Any = None,
    layer: int | Sequence[int] | Literal["all"] = -1,
    head: int | Sequence[int] | Literal["all", "mean"] = "mean",
    kind: Kind | None = None,
    row: int = 0,
    tokens: Sequence[Sequence[str]] | None = None,
    decoder_tokens: Sequence[Sequence[str]] | None = None,
    span: tuple[int, int] | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Draw the attention weights of a model as heat maps, with query tokens down and key tokens across.

    There is one panel for each chosen kind of attention, layer and head. The weights of a query sum to 1, or to less in
    models with attention sinks. The model runs once, without dropout and gradients, and is left unchanged. Weights of
    your own attention are drawn as they are: `attention(weights=weights, tokens=tokens)`.

    Args:
        model (`nn.Module`, *optional*): a Hugging Face model with `attn_implementation="eager"`, or any module that
            contains `nn.MultiheadAttention`, such as torch's layers.
        batch (mapping, `torch.Tensor` or tuple): inputs of the model. Entries of a mapping, such as
            `collate(texts)`, that are not arguments of `forward` are ignored. So an encoder of torch takes
            `{"src": x, **mask.for_transformer_encoder(num_heads), **batch}`, with the `AttentionMask` of the batch. A
            tensor `(B, T, D)` or a tuple of arguments is for torch modules only. With `weights`, it is needed for token
            labels and padding only.
        weights (tensor or array `(heads, queries, keys)` or `(B, heads, queries, keys)`, *optional*): weights to draw,
            in place of a model. The row and the list of tokens of three dimensions need no B.
        layer (`int`, several, or `"all"`): layers to draw. By default the last.
        head (`int`, several, `"all"` or `"mean"`): heads to draw, or their mean, which is the default.
        kind (`"self"`, `"encoder"`, `"decoder"` or `"cross"`, *optional*): kind of attention to draw; see
            `attention_weights`. By default all kinds in the model.
        row (`int`): row of the batch to draw. By default the first.
        tokens (`B` lists of `T` `str`, *optional*): token labels; in an encoder-decoder those of the encoder. By
            default the tokens of the batch, else the ids, else column numbers.
        decoder_tokens (`B` lists of `T` `str`, *optional*): token labels of the decoder, with the same default.
        span (two `int`, *optional*): (start, stop), to draw the tokens from index start to stop - 1, at most 64. By
            default all tokens are drawn.
        ax (`matplotlib.axes.Axes`, *optional*): axes to draw a single panel into. By default those of a new figure.

    Returns:
        `matplotlib.figure.Figure` with axes for each panel. Panels that do not fit at a readable size are left out; a
        note gives their number. `images[0].get_array()` of each axes holds the drawn weights, `(queries, keys)`
        float64.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the model returns no weights, or a weight is not finite; if there is no such layer, head, kind or
            row; if more than 64 tokens would be drawn; if `ax` is given for several panels.
        TypeError: if `model` is not a module, or the batch is of a type that the model cannot read.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2 and figures 3 to 5. arXiv:1706.03762.

    Example:
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> attention(layer, torch.ones(1, 3, 8), head=1).axes[0].images[0].get_array().shape
        (3, 3)
    """
    if (model is None) == (weights is None):
        got = "neither of them" if model is None else "a model and weights"
        fix = "plots.attention(model, batch), or plots.attention(weights=weights, tokens=tokens)"
        raise value_error("a picture of attention needs a model, or weights=", got=got, fix=fix)
    weights_by_kind = _as_they_are(weights, decoder_tokens) if model is None else attention_weights(model, batch)
    both: Sequence[Any] = (tokens, decoder_tokens)
    if model is None:  # the tokens of a single row need no B
        both = [[words] if words and isinstance(words[0], str) else words for words in both]
    if kind is not None:
        require_one_of("kind", kind, weights_by_kind)
        weights_by_kind = {kind: weights_by_kind[kind]}
    panels = []
    for name, values in weights_by_kind.items():
        layers, rows, heads, *lengths = values.shape
        (index,) = as_indices(row, rows, "row")
        (down, queries), (across, keys) = (
            _side(batch, both[decoder], (rows, length), index, span, decoder=decoder)
            for decoder, length in zip((name in ("decoder", "cross"), name == "decoder"), lengths, strict=True)
        )
        cells = values[:, index, :, down, across]  # (layers, heads, Q, K)
        if head == "mean":
            chosen = [(f"mean of {heads} heads" if heads > 1 else "head 0", cells.mean(axis=1))]
        else:
            numbers = as_indices(head, heads, "head", ', several, or "all" or "mean"')
            chosen = [(f"head {number}", cells[:, number]) for number in numbers]
        for number, (which, matrices) in product(as_indices(layer, layers, "layer", ', several, or "all"'), chosen):
            where = "" if model is None else f"layer {number}, "
            title = f"{'' if name == 'self' else f'{name}, '}{where}{which}"
            panels.append(_Panel(title, matrices[number], queries, keys))
    if ax is not None and len(panels) > 1:
        got = f"{len(panels)} panels: {panels[0].title}, {panels[1].title}, ..."
        fix = 'kind="encoder", layer=0, head="mean" or another choice of one; or leave ax out'
        raise value_error("ax has room for one panel", got=got, fix=fix)
    return _grid(panels) if len(panels) > 1 else _single(panels[0], ax)


def _side(
    batch: Any, tokens: Any, shape: tuple[int, int], row: int, span: tuple[int, int] | None, *, decoder: bool
) -> tuple[slice, Side]:
    """Return the slice of a row's tokens to draw, and these tokens; `shape` `(B, T)` is that of all tokens."""
    part, name = span_of(span, shape[1]), "decoder_input_ids" if decoder else "input_ids"
    (labels,) = token_labels(batch, tokens, shape, rows=slice(row, row + 1), span=part, name=name)
    mask = None
    if isinstance(batch, Mapping):
        prefix = "decoder_" if decoder and "decoder_input_ids" in batch else ""
        mask = real_tokens({name.removeprefix(prefix): batch[name] for name in batch if name.startswith(prefix)})
    if mask is None or tuple(mask.shape) != shape:
        mask = np.ones(shape)
    return part, Side(labels, as_numpy(mask)[row, part].astype(bool).tolist())


def _draw(ax: Axes, panel: _Panel, highest: float, cell: float) -> Any:
    """Draw a panel as a heat map with tokens on both axes, and return the matplotlib image."""
    image = heat_map(ax, panel.weights, limits=(0, highest or 1))
    label_matrix(ax, panel.keys, panel.queries, cell)
    return image


def _single(panel: _Panel, ax: Axes | None) -> Figure:
    """Draw a panel into `ax` or a new figure, with a color bar, and return the figure."""
    # Inches of a token: 0.36 if there are few, and never less than 0.122, because a rotated label is 0.104 inches wide.
    width, height = (min(max(count * 0.36, 2.6), max(count * 0.122, 6.0)) for count in panel.weights.shape[::-1])
    figure, cells = new_axes(ax, width + inches_of(panel.queries.labels) + 1.2, height + 1.4)
    cell = (width if ax is None else width_of(cells)) / len(panel.keys.labels)
    image = _draw(cells, panel, float(panel.weights.max()), cell)
    label(cells, "Which key each query attends to", "key", "query", note=panel.title)
    color_bar(cells, image, "weight", shrink=0.8)
    return figure


def _grid(panels: Sequence[_Panel]) -> Figure:
    """Draw panels in one figure with a shared color scale, and return the figure."""
    most = max(max(panel.weights.shape) for panel in panels)
    words = [word for panel in panels for word in (*panel.keys.labels, *panel.queries.labels)]
    cell = max(0.14, 1.4 / most)  # inches
    side = cell * most + inches_of(words) + 0.25
    panels = [panel._replace(title=fill(panel.title, max(int(13 * cell * most), 12))) for panel in panels]
    abreast = max(int((_WIDEST - 0.7) // side), 1)
    height = cell * most + 1.1 + 0.15 * (1 + max(panel.title.count("\n") for panel in panels))
    shown = panels[: abreast * max(int(_HIGHEST // height), 1)]
    lines, abreast = grid_shape(len(shown), abreast)
    figure = new_figure(max(abreast * side + 0.7, 5.0), lines * height + 0.6)
    highest = max(float(panel.weights.max()) for panel in shown)
    cells = figure.subplots(lines, abreast, squeeze=False).flatten().tolist()
    for place, panel in zip(cells, shown, strict=False):
        label(place, panel.title, "key", "query", size=MEDIUM)
        image = _draw(place, panel, highest, cell)
    for place in cells[len(shown) :]:
        place.set_axis_off()
    color_bar(cells, image, "weight", shrink=min(4 / (lines * height), 0.8), aspect=25)
    left_out = len(panels) - len(shown)
    note = f"; {left_out} are left out: choose them with layer=, head= and kind=" if left_out else ""
    headline(figure, "Which key each query attends to", f"{len(shown)} of {len(panels)} panels{note}")
    return figure


def attention_weights(model: nn.Module, batch: Any) -> dict[str, NDArray[np.float64]]:
    r"""Return the attention weights of a model on a batch, for all layers and heads; this needs no matplotlib.

    Args:
        model (`nn.Module`), batch: as in `attention`.

    Returns:
        `dict` from each kind of attention in the model to an `np.ndarray` `(layers, B, heads, queries, keys)` float64.
        The kinds of an encoder-decoder and of torch's layers are `"encoder"`, `"decoder"` and `"cross"`. Those of other
        models are `"self"`, and `"cross"` for attention to another sequence. The weights of a query sum to 1, or to
        less in models with attention sinks.

    Raises:
        ValueError: if the model returns no weights, layers differ in shape, or weights are not between all pairs of
            tokens, negative, not finite, or sum to more than 1.
        TypeError: if `model` is not a module, or the batch is of a type that the model cannot read.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> {kind: weights.shape for kind, weights in attention_weights(layer, torch.ones(1, 3, 8)).items()}
        {'encoder': (1, 1, 2, 3, 3)}
    """
    model = opened(model)
    if not isinstance(model, nn.Module):
        raise type_error("model must be a module", got=shorten(model), fix="plots.attention(model, batch)")
    with unchanged(model), torch.no_grad():
        weights = _of_hugging_face(model, batch) if is_hugging_face(model) else _of_torch(model, batch)
    whose = f"this {type(model).__name__}"
    if not weights:
        implementation = attention_implementation(getattr(model, "config", None))
        raise value_error(
            f"{whose} returns no attention weights",
            got=f"attn_implementation={implementation!r}, and no nn.MultiheadAttention that its forward calls",
            fix='model.set_attn_implementation("eager"), or a module with nn.MultiheadAttention',
        )
    weights_by_kind = {}
    for kind in dict.fromkeys(kind for kind, _ in weights):
        layers = [values for layer_kind, values in weights if layer_kind == kind]
        shapes = list(dict.fromkeys(values.shape for values in layers))
        if len(shapes) > 1 or len(shapes[0]) != 4 or (kind != "cross" and shapes[0][2] != shapes[0][3]):
            raise value_error(
                f"the {kind} attention of {whose} is not between all pairs of tokens in every layer",
                got=f"weights {', '.join(map(str, shapes))}",
                fix="plots.attention(model.part, batch), for a part with weights (batch, heads, tokens, tokens)",
            )
        weights_by_kind[kind] = as_finite(np.stack(layers), f"{kind} attention")
    _check_weights(weights_by_kind, whose)
    return weights_by_kind


def _check_weights(weights_by_kind: Mapping[str, NDArray[np.float64]], whose: str) -> None:
    """Raise `ValueError` if a number is negative, or a query's weights sum to more than 1."""
    for kind, weights in weights_by_kind.items():
        least, most = float(weights.min()), float(weights.sum(axis=-1).max())
        if least < 0 or most > 1 + _ROUNDING:  # models with attention sinks have smaller sums
            raise value_error(
                f"attention weights must be at least 0 and sum to at most 1, unlike those of {whose}",
                got=f"a lowest number of {least:.3g}, and a row that sums to {most:.3g}, as {kind} attention",
                fix="torch.softmax(scores, dim=-1), if these are scores; keys are the last dimension",
            )


def _as_they_are(weights: Any, decoder_tokens: Any) -> dict[str, NDArray[np.float64]]:
    """Return the argument `weights` of `attention` in the form of `attention_weights`."""
    array = as_finite(weights, "weights", "torch.softmax(scores, dim=-1)")
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or 0 in array.shape:
        rule = "weights must be (heads, queries, keys) or (batch, heads, queries, keys)"
        fix = "weights[None] for a single head (queries, keys)"
        raise value_error(rule, got=f"shape {tuple(np.shape(weights))}", fix=fix)
    is_self = array.shape[2] == array.shape[3] and decoder_tokens is None
    weights_by_kind = {"self" if is_self else "cross": array[None]}
    _check_weights(weights_by_kind, "weights=")
    return weights_by_kind


def _of_hugging_face(model: Any, batch: Any) -> _Weights:
    if not isinstance(batch, Mapping):
        rule = "a Hugging Face model needs a batch, a mapping from names to tensors"
        raise type_error(rule, got=shorten(type(batch).__name__), fix="plots.attention(model, collate(texts))")
    names = set(forward_names(model))
    inputs = {**_moved(batch, model), "use_cache": False, "return_dict": True}
    output = model(**{name: inputs[name] for name in inputs if name in names}, output_attentions=True)
    entries: _Weights = []
    for name, kind in _OUTPUTS.items():
        layers = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        entries += [(kind, as_numpy(weights)) for weights in layers or () if weights is not None]
    return entries


def _of_torch(model: nn.Module, batch: Any) -> _Weights:
    args, kwargs = _arguments(model, batch)
    kinds: dict[nn.Module, str] = {}
    for part in model.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            kinds[part.self_attn] = "encoder"
        elif isinstance(part, nn.TransformerDecoderLayer):
            kinds |= {part.self_attn: "decoder", part.multihead_attn: "cross"}
    modules = [part for part in model.modules() if isinstance(part, nn.MultiheadAttention)]
    results: dict[nn.Module, tuple[str, NDArray[Any]]] = {}

    def after(attention: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        # A second call, because the model's own may have asked for no weights, or for their mean.
        bound = _SIGNATURE.bind(attention, *args, **kwargs)
        bound.arguments |= {"need_weights": True, "average_attn_weights": False}
        values = as_numpy(attention.forward(*bound.args[1:], **bound.kwargs)[1])
        inferred = "self" if torch.equal(bound.arguments["query"], bound.arguments["key"]) else "cross"
        values = values.reshape(-1, *values.shape[-3:])  # an unbatched input has no B
        results[attention] = kinds.get(attention, inferred), values

    for module in modules:
        module.register_forward_hook(after, with_kwargs=True)  # `unchanged` removes it
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the fused layer computes no weights
    try:
        model(*args, **kwargs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return [results[module] for module in modules if module in results]


def _arguments(model: nn.Module, batch: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return `(args, kwargs)` to call `model(*args, **kwargs)` on a batch."""
    if isinstance(batch, torch.Tensor):
        return ((batch,) * 3 if isinstance(model, nn.MultiheadAttention) else (batch,)), {}
    if isinstance(batch, tuple | list):
        return batch, {}
    if not isinstance(batch, Mapping):
        rule = "batch must be a mapping of the model's inputs, a tensor, or a tuple of arguments"
        raise type_error(rule, got=shorten(batch), fix="plots.attention(model, x)")
    names, batch = forward_names(model), _moved(batch, model)
    inputs = {name: value for name, value in batch.items() if name in names}
    if not inputs:
        raise value_error(
            f"no key of the batch is an argument of this {type(model).__name__}'s forward",
            got=f"{list(batch)}, and forward has {', '.join(names)}",
            fix="the model's own inputs; for an encoder of torch "
            "{'src': x, **AttentionMask.from_batch(batch).for_transformer_encoder(num_heads)}",
        )
    return (), inputs


def _moved(value: Any, model: nn.Module) -> Any:
    """Return an array or tensor as a tensor on the model's device, and any other value unchanged."""
    if isinstance(value, Mapping):
        return {name: _moved(inner, model) for name, inner in value.items()}
    value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    device = next((weights.device for weights in model.parameters()), torch.device("cpu"))
    return value.to(device) if isinstance(value, torch.Tensor) else value

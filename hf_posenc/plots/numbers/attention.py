"""The attention weights of a model on a batch: of a Hugging Face model, or of torch's own layers.

The model computes them, and says so where it cannot; nothing is worked out from queries and keys here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..._explain import explain, one_of, shorten
from ..._huggingface import forward_names, is_hugging_face, opened
from ...masks import AttentionMask
from ..limits import check_finite
from .arrays import as_numpy
from .captured import Caught, captured, evaluated, stacked

Kind = Literal["self", "encoder", "decoder", "cross"]

_ROUNDED = 0.02  # how far above 1 the sums of weights in bfloat16 may be
_OUTPUTS = {"attentions": "self", "encoder_attentions": "encoder", "decoder_attentions": "decoder"}
_OUTPUTS["cross_attentions"] = "cross"


def attention(model: nn.Module, batch: Any) -> dict[str, NDArray[np.float64]]:
    r"""The weights by which tokens look at tokens, of every layer and head.

    The model is run once, without dropout and without gradient, and left in the mode in which it was.

    Args:
        model (`nn.Module`): a Hugging Face model that gives its weights (`attn_implementation="eager"`); or anything
            with `nn.MultiheadAttention` in it, torch's layers for encoders and decoders and models made of them too.
        batch: what it reads. A mapping, such as `collate(texts)`, gives the entries that the model's forward names; for
            torch's attention and encoders, `inputs_embeds` and the masks are rendered as these want them. A tensor
            `(B, T, D)` is given as it is, a tuple as positional arguments.

    Returns:
        `dict` of NumPy arrays `(layers, B, heads, Q, K)` float64, rows sum to 1; by kind: `"self"`, or `"encoder"`,
        `"decoder"` and `"cross"`, as far as the model has them.

    Raises:
        ValueError: if the model gives no weights, or a weight is not finite.
        TypeError: if the batch is nothing that it can be given.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2. arXiv:1706.03762.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> {kind: weights.shape for kind, weights in attention(layer, torch.ones(1, 3, 8)).items()}
        {'encoder': (1, 1, 2, 3, 3)}
    """
    model = opened(model)
    if not isinstance(model, nn.Module):
        raise TypeError(explain("model must be a module", got=shorten(model), fix="plots.attention(model, batch)"))
    with evaluated(model):
        found = stacked(_of_hugging_face(model, batch) if is_hugging_face(model) else _of_torch(model, batch))
    for kind, weights in found.items():
        check_finite(f"{kind} attention", weights)
        _check_weights(model, kind, weights)
    return found


def _check_weights(model: nn.Module, kind: str, weights: NDArray[np.float64]) -> None:
    """Some models hand out scores under the name of weights. Where a part is lost in a sink, weights sum to less."""
    least, most = float(weights.min()), float(weights.sum(axis=-1).max())
    if least < 0 or most > 1 + _ROUNDED:
        raise ValueError(
            explain(
                f"weights are from 0 to 1 and sum to 1; the {kind} attention of this {type(model).__name__} is none",
                got=f"a lowest number of {least:.3g}, and a row that sums to {most:.3g}",
                fix="another model: this one gives scores before their softmax",
            )
        )


def _of_hugging_face(model: Any, batch: Any) -> Caught:
    if not isinstance(batch, Mapping):
        raise TypeError(
            explain(
                "a Hugging Face model is given a batch, a mapping from names to tensors",
                got=shorten(type(batch).__name__),
                fix="plots.attention(model, collate(texts))",
            )
        )
    names = set(forward_names(model))
    inputs = {name: value for name, value in _moved(batch, model).items() if name in names}
    settings = {name: value for name, value in (("use_cache", False), ("return_dict", True)) if name in names}
    output = model(**inputs, **settings, output_attentions=True)
    caught: Caught = []
    for name, kind in _OUTPUTS.items():
        layers = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        for number, weights in enumerate(layers or ()):
            if weights is not None:
                caught.append((kind, f"layer {number}", as_numpy(weights)))
    if not caught:
        used = getattr(model.config, "_attn_implementation", None)
        ways = 'model.set_attn_implementation("eager"), or from_pretrained(..., attn_implementation="eager")'
        raise ValueError(
            explain(
                f"this {type(model).__name__} returns no attention weights",
                got=f"attn_implementation={used!r}" if used else "no attention in its output",
                fix="another model: this one has none to give" if used == "eager" else ways,
            )
        )
    for kind, _, weights in caught:
        if weights.ndim != 4 or (kind != "cross" and weights.shape[2] != weights.shape[3]):
            raise ValueError(
                explain(
                    f"the attention of this {type(model).__name__} is not one of all tokens to all tokens",
                    got=f"weights {weights.shape}",
                    fix="a model whose weights are (batch, heads, tokens, tokens)",
                )
            )
    return caught


def _of_torch(model: nn.Module, batch: Any) -> Caught:
    args, kwargs = _arguments(model, batch)
    caught = captured(model, lambda: model(*args, **kwargs))
    if not caught:
        inside = any(isinstance(part, nn.MultiheadAttention) for part in model.modules())
        raise ValueError(
            explain(
                f"this {type(model).__name__} returns no attention weights",
                got="it ran without calling its nn.MultiheadAttention" if inside else "no nn.MultiheadAttention in it",
                fix="attention by nn.MultiheadAttention, or torch's layers, which have it inside",
            )
        )
    return caught


def _arguments(model: nn.Module, batch: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """What to call a model with that is not Hugging Face's."""
    if isinstance(batch, torch.Tensor):
        return ((batch,) * 3 if isinstance(model, nn.MultiheadAttention) else (batch,)), {}
    if isinstance(batch, tuple | list):
        return batch, {}
    if not isinstance(batch, Mapping):
        raise TypeError(
            explain(
                "batch must be a mapping of what the model reads, a tensor, or a tuple of arguments",
                got=shorten(batch),
                fix="plots.attention(model, {'inputs_embeds': x})",
            )
        )
    names = forward_names(model)
    batch = _moved(batch, model)
    mine = {name: value for name, value in batch.items() if name in names}
    encoder = isinstance(model, nn.MultiheadAttention | nn.TransformerEncoderLayer | nn.TransformerEncoder)
    if encoder and "inputs_embeds" in batch:
        return _for_encoder(model, batch)
    if not mine:
        raise ValueError(
            explain(
                f"nothing in the batch is named by the forward of this {type(model).__name__}",
                got=f"{list(batch)}, where forward names {', '.join(names)}",
                fix="collate with embedding=, for inputs_embeds"
                if encoder
                else f"plots.attention(model, {{{names[0] if names else 'x'!r}: ...}})",
            )
        )
    return (), mine


def _for_encoder(model: nn.Module, batch: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The embeddings of a batch, with its masks in the words of torch's module."""
    attend = next(part for part in model.modules() if isinstance(part, nn.MultiheadAttention))
    x = batch["inputs_embeds"]
    x = x if attend.batch_first else x.transpose(0, 1)
    known = any(name in batch for name in ("attention_mask", "document_ids"))
    described = {"attention_mask": torch.ones(batch["inputs_embeds"].shape[:2])} if not known else batch
    mask = AttentionMask.from_batch(described, look_ahead="look_ahead_mask" in batch)
    heads = attend.num_heads
    if isinstance(model, nn.MultiheadAttention):
        return (x, x, x), mask.for_multihead_attention(heads)
    if isinstance(model, nn.TransformerEncoderLayer):
        return (x,), mask.for_transformer_encoder_layer(heads)
    return (x,), mask.for_transformer_encoder(heads)


def _moved(batch: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """The batch as tensors where the model's weights are."""
    device = next((weights.device for weights in model.parameters()), torch.device("cpu"))
    return {name: _on(value, device) for name, value in batch.items()}


def _on(value: Any, device: torch.device) -> Any:
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, dict):
        return {name: _on(inner, device) for name, inner in value.items()}
    return value.to(device) if isinstance(value, torch.Tensor) else value


def of_kind(found: Mapping[str, NDArray[np.float64]], kind: str) -> NDArray[np.float64]:
    """The weights of one kind, or the message that names those that there are."""
    if kind not in found:
        raise ValueError(one_of("kind", kind, list(found)))
    return found[kind]


def chosen(wanted: Any, count: int, name: str, *, mean: bool = False) -> list[int] | None:
    r"""Which layers, or heads, are meant; `None` for their mean.

    Args:
        wanted (`int`, `"all"`, sequence of `int`, or `"mean"`): negative numbers count from the end.
        count (`int`): how many there are.
        name (`str`): what they are, for the message.
        mean (`bool`, *optional*, defaults to `False`): whether their mean may be asked for.

    Returns:
        `list` of numbers from 0 to `count - 1`, or `None`.

    Raises:
        ValueError: if there is none of that number; the message says which there are.

    Example:
        >>> chosen(-1, 12, "layer"), chosen("all", 2, "head"), chosen("mean", 2, "head", mean=True)
        ([11], [0, 1], None)
    """
    if mean and wanted == "mean":
        return None
    if wanted == "all":
        return list(range(count))
    numbers: list[int] = list(wanted) if isinstance(wanted, list | tuple | range) else [wanted]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not -count <= number < count:
            words = f'a number from 0 to {count - 1}, several, or "all"' + (', or "mean"' if mean else "")
            raise ValueError(
                explain(
                    f"{name} must be {words}: there are {count}", got=shorten(number), fix=f"{name}={max(count - 1, 0)}"
                )
            )
    if not numbers:
        raise ValueError(explain(f"{name} names none", got=shorten(wanted), fix=f"{name}=0"))
    return [number % count for number in numbers]

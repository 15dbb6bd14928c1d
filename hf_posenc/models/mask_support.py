"""Tests of how a model can isolate packed documents: by a 4D mask, by `position_ids`, or by flat keys.

Flat keys are arguments such as `cu_seq_lens_q` for a batch in one flat row. Each test runs the model of a `probe` a few
times on a few tokens; its `positions` are the result of `find_positions`. `hf_posenc.masks` makes the masks of
real batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast

import torch

from .._common.compat import attention_implementation
from .position_tables import ModelPositions
from .probe import Probe, relative_difference, unchanged
from .properties import configurations, configured_length, declared_names, forward_names, takes_use_cache

_SLIDING = "sliding_attention"

# Keys of a flat row besides ids and labels, in the names of transformers' DataCollatorWithFlattening.
FLAT_KEYS = ("position_ids", "seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


class LayerMasks(dict[str, torch.Tensor]):
    r"""Dict from a kind of layer, such as `"sliding_attention"`, to the attention mask for layers of this kind.

    It is the `attention_mask` for models in which some layers have a window and others do not.

    Example:
        >>> list(LayerMasks({"full_attention": torch.zeros(1), "sliding_attention": torch.ones(1)}).to("cpu"))
        ['full_attention', 'sliding_attention']
    """

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return a new `LayerMasks` with every mask on `device`."""
        return type(self)({name: mask.to(device, non_blocking=non_blocking) for name, mask in self.items()})

    def pin_memory(self) -> Self:
        """Return a new `LayerMasks` with every mask in page-locked memory."""
        return type(self)({name: mask.pin_memory() for name, mask in self.items()})


class Windows(NamedTuple):
    """Attention window of a model's layers, which a 4D mask for the model must include; made by `find_windows`.

    Args:
        window (`int`, *optional*): the width, as in `AttentionMask`; `None` for no window.
        layers (`tuple` of `str`): the kinds of layers, such as `"sliding_attention"`, if each kind needs its own mask;
            empty if all layers share one mask.
    """

    window: int | None = None
    layers: tuple[str, ...] = ()


def takes_4d_mask(probe: Probe, positions: ModelPositions) -> bool:
    """Return True if a model applies an additive `attention_mask` `(B, 1, T, T)`: masked tokens do not change outputs.

    The result is `False` for models that raise for a 4D mask or ignore it, for encoder-decoders and models of fixed
    length, and for flex attention on the CPU.
    """
    implementations = {attention_implementation(config) for config in configurations(probe.model.config)}
    if probe.device.type == "cpu" and "flex_attention" in implementations:
        return False  # not tried: a float mask aborts the process
    if "attention_mask" not in probe.names:
        return False
    document = torch.arange(2, device="cpu").repeat_interleave(_document_length(probe))
    may_attend = document[:, None] == document[None, :]
    if positions.is_causal:
        may_attend = may_attend.tril()
    inputs = {"attention_mask": _additive(may_attend, probe.dtype).repeat(3, 1, 1, 1)}
    if positions.takes_position_ids:
        inputs["position_ids"] = (torch.arange(len(document), device="cpu") + positions.first_position).repeat(3, 1)
    return _keeps_apart(probe, lambda ids: probe.run({"input_ids": ids, **inputs})[1])


def isolates_by_positions(probe: Probe, positions: ModelPositions) -> bool:
    """Return True if a model isolates packed documents by `position_ids` that restart, such as 0 1 2 0 1 2.

    The model is run without a mask and without a cache. `probe` runs it on sample tokens, and `positions` is the result
    of `find_positions` for it.
    """
    if not positions.takes_position_ids:
        return False
    # No mask: one of ones turns the isolation off. GPT-2, Llama, Mistral and Qwen isolate so, BERT, OPT and Falcon
    # never.
    restarting = {"position_ids": _restarting(probe, positions).repeat(3, 1)}
    return _keeps_apart(probe, lambda ids: probe.run({"input_ids": ids, **restarting})[1])


def find_flat_keys(probe: Probe, positions: ModelPositions, isolates: bool) -> tuple[tuple[str, ...], str | None]:
    """Return the names of the arguments by which a model isolates documents in a flat row (a whole batch in one row).

    They are those names in `FLAT_KEYS` that the model's forward has, or declares for its `**kwargs`. The model is run
    to test that these arguments together isolate the documents. "use_cache" is one of them if the forward takes it in
    its `**kwargs` only: with a cache, documents see each other.
    """
    # Since transformers 5.20, models with state spaces raise for a flat row if the kernels that reset states are
    # missing; `flat_error` is their message.
    names = {*probe.names, *declared_names(probe.model)}
    names -= set() if positions.takes_position_ids else {"position_ids"}
    keys = tuple(name for name in FLAT_KEYS if name in names)
    length = _document_length(probe)
    offsets = torch.tensor([0, length, 2 * length], dtype=torch.int32, device="cpu")
    values: dict[str, Any] = dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), offsets)
    values |= dict.fromkeys(("max_length_q", "max_length_k"), length)
    values["seq_idx"] = (torch.arange(2 * length, device="cpu") // length)[None].int()
    values["position_ids"] = _restarting(probe, positions)[None]
    arguments = {name: values[name] for name in keys}
    error: str | None = None

    def run_rows(ids: torch.Tensor) -> torch.Tensor:  # kernels that read these keys take one row
        nonlocal error
        try:
            return torch.cat([probe.run({"input_ids": row[None]}, more=arguments)[1] for row in ids])
        except ValueError as failed:
            error = f"{type(failed.__cause__).__name__}: {failed.__cause__}"  # as transformers raised it
            raise

    if not isolates and not (keys and _keeps_apart(probe, run_rows)):
        return (), error
    model = probe.model
    by_kwargs = "use_cache" not in forward_names(model) and takes_use_cache(model, model.config)
    return (*keys, "use_cache") if by_kwargs and positions.is_causal else keys, None


def _document_length(probe: Probe) -> int:
    """Return the number of tokens in each of the two documents of a row."""
    # Some models pool blocks of tokens, DeepSeek-V4 for one blocks of four: shorter documents would seem isolated.
    room = configured_length(probe.model.config)
    return 8 if room is None or room >= 20 else 3


def _restarting(probe: Probe, positions: ModelPositions) -> torch.Tensor:
    """Return the `position_ids` `(T,)` of a row of two documents: 0 1 2 ... 0 1 2 ..., plus the first position."""
    return torch.arange(_document_length(probe), device="cpu").repeat(2) + positions.first_position


def _keeps_apart(probe: Probe, run: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Return True if, in a row of two documents, the model isolates the second document from the first."""
    # Three rows: two documents, the same with other tokens in the first document, and with other tokens in the second.
    # The outputs of the second document must stay the same in the second row, and change in the third.
    # Several tokens are exchanged at once, because in half precision the effect of a single one may be rounded away.
    if probe.has_decoder or probe.has_fixed_length:
        return False

    def exchanged(tokens: torch.Tensor) -> torch.Tensor:
        first, *others = (int(plain) for plain in probe.plain_ids[:2])
        return torch.where(tokens == first, others[0] if others else first, first)

    length = _document_length(probe)
    ids = probe.ids(1, 2 * length, seed=2).repeat(3, 1)  # (3, T)
    ids[1, :length] = exchanged(ids[0, :length])
    ids[2, length:-1] = exchanged(ids[0, length:-1])
    try:
        out = run(ids)
    except ValueError:
        return False
    if not out.numel():
        return False
    original, other_first, other_second = out[:, length:]
    return probe.is_same(original, other_first) and not probe.is_same(original[-1], other_second[-1])


def find_windows(probe: Probe, positions: ModelPositions) -> Windows | None:
    """Return the attention window of a model's layers; `None` if no 4D mask can replace the model's own mask.

    A 4D mask replaces the model's own mask, so it must include the model's window. To find the window, the model is run
    on seven tokens with a window of two: first with its own mask, then with each 4D mask that may have the same effect.
    The result is `None` if none has, as for attention in chunks, or if the model takes no 4D mask.
    """
    if not takes_4d_mask(probe, positions):
        return None
    try:
        configs = [config for config in configurations(probe.model.config) if _configured_window(config) is not None]
    except Exception:  # transformers raises if each layer has a window of its own, as in NeoMME
        return None
    kinds = {
        kind for config in configurations(probe.model.config) for kind in getattr(config, "layer_types", None) or ()
    }
    if any("chunk" in kind for kind in kinds):
        return None
    if not configs or (kinds and _SLIDING not in kinds):
        return Windows()
    width, tried, length = cast(int, _configured_window(configs[0])), 2, 7
    inputs: dict[str, Any] = {"input_ids": probe.ids(1, length, seed=3)}
    if positions.takes_position_ids:
        inputs["position_ids"] = torch.arange(length, device="cpu")[None] + positions.first_position
    # A window of 3 if a token exactly 2 tokens away is visible; none if only flash attention applies it, as in Moshi.
    kinds_of_masks = (tuple(sorted(kinds)), ()) if kinds else ((),)
    candidates = [(tried + extra, Windows(width + extra, layers)) for extra in (0, 1) for layers in kinds_of_masks]
    candidates.append((length, Windows()))
    equal: list[tuple[float, Windows]] = []
    with unchanged(probe.model):
        for part in (*configs, *probe.model.modules()):
            if _configured_window(part) is not None:
                part.sliding_window = tried
        try:
            _, model_out = probe.run(
                {**inputs, "attention_mask": torch.ones(1, length, dtype=torch.int64, device="cpu")}
            )
        except ValueError:
            return None
        for window, answer in candidates:
            mask = _window_masks(probe.dtype, positions.is_causal, answer.layers, window, length)
            try:
                _, out = probe.run({**inputs, "attention_mask": mask})
            except ValueError:
                continue
            if probe.is_close(model_out, out):
                equal.append((relative_difference(model_out, out), answer))
    return min(equal, key=lambda each: each[0])[1] if equal else None


def _configured_window(config_or_module: Any) -> int | None:
    window = getattr(config_or_module, "sliding_window", None)
    return window if type(window) is int and window > 0 else None


def _additive(may_attend: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a bool mask `(T, T)` to an additive one `(1, 1, T, T)`: 0 for True, the lowest number for False."""
    zeros = torch.zeros(1, 1, *may_attend.shape, dtype=dtype, device="cpu")
    return zeros.masked_fill_(~may_attend, torch.finfo(dtype).min)


def _window_masks(dtype: torch.dtype, is_causal: bool, layers: tuple[str, ...], window: int, length: int) -> Any:
    """Return an additive mask (1, 1, length, length) that hides keys `window` or more positions away."""
    columns = torch.arange(length, device="cpu")
    distance = columns[:, None] - columns[None, :]
    everything = distance >= 0 if is_causal else torch.ones_like(distance, dtype=torch.bool)
    near, whole = _additive(everything & (distance.abs() < window), dtype), _additive(everything, dtype)
    return LayerMasks({name: near if name == _SLIDING else whole for name in layers}) if layers else near

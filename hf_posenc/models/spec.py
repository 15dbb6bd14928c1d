"""`ModelSpec`: a description of the inputs of a Hugging Face model, as plain values without the model.

`ModelSpec.of` combines the results of `position_tables` and `mask_support`.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from .._common.compat import CACHES, is_recurrent
from .._common.constants import IGNORED
from .mask_support import (
    FLAT_KEYS,
    Windows,
    find_flat_keys,
    find_windows,
    isolates_by_positions,
)
from .position_tables import ModelPositions, find_positions
from .probe import Probe, unchanged
from .properties import configured_length, forward_names, is_hugging_face, not_a_model, opened, virtual_tokens


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    r"""Description of a model's inputs: argument names, numbering of positions, maximum lengths, and masks.

    `ModelSpec.of(model)` makes one. Pass it instead of the model, for example to a collator: it contains no weights,
    and can be pickled, compared and written to JSON.

    Args:
        name (`str`): name of the model's class.
        accepts (`tuple` of `str`): names of the arguments of its forward, without `**kwargs` and a key-value cache.
        positions (`tuple` of `str`): the kinds of positions that the model uses: "learned", "sinusoidal", "rotary",
            "relative", "alibi", or "unknown" for an unrecognized kind; empty for none.
        first_position (`int`): the value of `position_ids` at a row's first token: 0 in BERT, 2 in RoBERTa.
        padding_position (`int`, *optional*): the value of `position_ids` at padding, if the model has one: 1 in
            RoBERTa.
        max_length, max_target_length (`int`, *optional*): largest number of tokens in a row of the input, and in a row
            of the decoder's input; `None` for no limit.
        num_embeddings (`int`, *optional*): number of token ids; `None` if unknown.
        is_causal (`bool`): True if later tokens do not change a token's output, without a mask.
        is_encoder_decoder (`bool`): True if it has an encoder and a decoder, with an input sequence each.
        shifts_labels (`bool`, `"start"` or `"last"`): if and how the model itself shifts `labels` by one:

            - `False`: it does not.
            - `True`: it does, as causal language models do, or in another way than the two below.
            - `"start"`: the decoder's input is `decoder_start_token_id`, followed by `labels` without the last one.
            - `"last"`: the same, but the input begins with the last token of the row.
        decoder_start_token_id, decoder_padding_token_id (`int`, *optional*): the first token of the decoder's input,
            and its token where the label is -100.
        left_padding_shifts (`bool`): True if left padding changes the outputs of real tokens when `attention_mask`
            comes without `position_ids`.
        classifies_first_token (`bool`): True if the model has logits for a row as a whole, computed from its first
            column: left padding changes them, even with `position_ids`, and right padding does not.
        one_output_per_row (`bool`): True if the model returns nothing with a value for each token, as a classifier of
            rows, which returns logits `(B, C)`, or an encoder of rows.
        takes_4d_mask (`bool`): True if the model applies an additive `attention_mask` `(B, 1, T, T)`.
        window (`int`, *optional*): the attention window of the layers that have one, as in `AttentionMask`; a 4D mask
            must include it.
        layer_kinds (`tuple` of `str`): kinds of its layers, such as "sliding_attention", if the model takes one mask
            for each kind; empty if it takes one mask for all layers.
        isolates_by_position_ids (`bool`): True if `position_ids` that restart isolate packed documents, without
            `attention_mask` and cache.
        flat_keys (`tuple` of `str`): arguments by which the model isolates the documents of a flat row (a whole batch
            in one row), such as "position_ids" and "cu_seq_lens_q"; empty if it does not isolate them.
        is_recurrent (`bool`): True if it has layers with a recurrent state, such as linear attention and state spaces.
            Their kernels may refuse documents without tokens.
        flat_error (`str`, *optional*): the error that the model raised for a flat row, such as a missing package;
            `None` if it raised none.
        labels_per (`"row"` or `"token"`, *optional*): the part of the input that the model's head has logits for, and
            so the labels; `None` if unknown.
        num_labels (`int`, *optional*): number of classes, if the model's loss compares its outputs with the numbers of
            classes (or of tokens); `None` for other losses, such as those of regression, and if unknown.
        dtype (`str`): dtype of its weights, and of additive masks.

    Example:
        >>> spec = ModelSpec(name="Reader", accepts=("input_ids", "attention_mask"))
        >>> ModelSpec(**dataclasses.asdict(spec)) == spec
        True
    """

    name: str = "model"
    accepts: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    first_position: int = 0
    padding_position: int | None = None
    max_length: int | None = None
    max_target_length: int | None = None
    num_embeddings: int | None = None
    is_causal: bool = False
    is_encoder_decoder: bool = False
    shifts_labels: bool | Literal["start", "last"] = False
    decoder_start_token_id: int | None = None
    decoder_padding_token_id: int | None = None
    left_padding_shifts: bool = False
    classifies_first_token: bool = False
    one_output_per_row: bool = False
    takes_4d_mask: bool = False
    window: int | None = None
    layer_kinds: tuple[str, ...] = ()
    isolates_by_position_ids: bool = False
    flat_keys: tuple[str, ...] = ()
    flat_error: str | None = None
    is_recurrent: bool = False
    labels_per: Literal["row", "token"] | None = None
    num_labels: int | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("accepts", "positions", "layer_kinds", "flat_keys"):  # lists in JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def of(cls, model: Any) -> ModelSpec:
        r"""Make the spec of a model from the arguments of its forward and from runs on a few tokens.

        Args:
            model (`nn.Module` or `ModelSpec`): the model, with or without wrappers (DDP, FSDP, PEFT, `torch.compile`).
                Virtual tokens of PEFT reduce the maximum lengths. A Hugging Face model is run on a few tokens on its
                device, and left unchanged; for any other module only the arguments of its forward are read.

        Returns:
            `ModelSpec`; a given `ModelSpec` is returned unchanged.

        Raises:
            TypeError: if `model` is neither a module nor a `ModelSpec`.
            ValueError: if a Hugging Face model does not run on token ids, or its weights are not available (on the meta
                device, or sharded).

        Example:
            >>> from transformers import RobertaConfig, RobertaModel
            >>> config = RobertaConfig(vocab_size=90, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
            >>> spec = ModelSpec.of(RobertaModel(config))
            >>> spec.first_position, spec.padding_position, spec.max_length
            (2, 1, 510)
        """
        if isinstance(model, ModelSpec):
            return model
        if not isinstance(model, nn.Module):
            raise not_a_model("model= takes the model itself, or a ModelSpec: it is run on a few tokens", model)
        virtual = virtual_tokens(model)
        model = opened(model)
        if not is_hugging_face(model):
            names = forward_names(model)
            flat = tuple(name for name in FLAT_KEYS if name in names)
            flat = flat if {"seq_idx", "cu_seq_lens_q"} & set(flat) else ()  # position_ids have other uses
            return cls(name=type(model).__name__, accepts=names, flat_keys=flat, dtype=_dtype(model))
        probe = Probe(model)
        positions = find_positions(probe)
        windows = find_windows(probe, positions)
        width, layers = windows or Windows()
        isolates = isolates_by_positions(probe, positions)
        takes_labels = "labels" in forward_names(model)
        compares_with_next, num_labels = _loss_of(probe) if takes_labels else (None, None)
        labels_per, one_output_per_row = _output_of(probe)
        flat_keys, flat_error = find_flat_keys(probe, positions, isolates)
        unused = CACHES if positions.takes_position_ids else (*CACHES, "position_ids")
        spec = cls(
            name=type(model).__name__,
            accepts=tuple(name for name in forward_names(model) if name not in unused),
            positions=positions.kinds,
            max_length=_max_length(model, positions, "input_ids"),
            max_target_length=_max_length(model, positions, "decoder_input_ids"),
            num_embeddings=None if probe.input_table is None else len(probe.input_table),
            is_causal=positions.is_causal,
            is_encoder_decoder=bool(model.config.is_encoder_decoder),
            shifts_labels=_shifts_labels(probe, positions, compares_with_next),
            labels_per=labels_per if takes_labels else None,
            num_labels=num_labels,
            decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
            decoder_padding_token_id=getattr(model.config, "pad_token_id", None),
            left_padding_shifts=positions.left_padding_shifts,
            classifies_first_token=one_output_per_row and _classifies_first_token(probe, positions),
            one_output_per_row=one_output_per_row,
            takes_4d_mask=windows is not None,
            window=width,
            layer_kinds=layers,
            isolates_by_position_ids=isolates,
            flat_keys=flat_keys,
            flat_error=flat_error,
            is_recurrent=is_recurrent(model),
            dtype=_dtype(model),
            first_position=positions.first_position,
            padding_position=positions.padding_position,
        )
        spec = _with_label_shift(probe, spec) if spec.is_encoder_decoder and spec.shifts_labels else spec
        return spec._with_virtual_tokens(*virtual) if any(virtual) else spec

    def decoder_input_ids(self, labels: torch.Tensor) -> torch.Tensor | None:
        r"""Return the decoder's input that the model makes from `labels`, by shifting them to the right by one.

        Args:
            labels (`torch.Tensor` `(B, T)` int64): -100 where no token is to be predicted.

        Returns:
            `torch.Tensor` `(B, T)` int64 on the device of `labels`. -100 becomes `decoder_padding_token_id`. Rows begin
            with `decoder_start_token_id` for `shifts_labels="start"`, with the last token of the labels for `"last"`.
            `None` if `shifts_labels` is a bool, or an id that is needed is `None`.

        Example:
            >>> spec = ModelSpec(shifts_labels="start", decoder_start_token_id=2, decoder_padding_token_id=1)
            >>> spec.decoder_input_ids(torch.tensor([[5, 6, 7], [8, -100, -100]]))
            tensor([[2, 5, 6],
                    [2, 8, 1]])
        """
        start, padding = self.decoder_start_token_id, self.decoder_padding_token_id
        if padding is None or (start is None and self.shifts_labels != "last") or isinstance(self.shifts_labels, bool):
            return None
        ids = labels.masked_fill(labels == IGNORED, padding)
        if self.shifts_labels == "last":
            first = ids.gather(1, ((ids != padding).sum(dim=1, keepdim=True) - 1).clamp(min=0))
        else:
            first = torch.full_like(ids[:, :1], int(start or 0))
        return torch.cat([first, ids[:, :-1]], dim=1)

    def _with_virtual_tokens(self, rows: int, targets: int) -> ModelSpec:
        """Return the spec inside PEFT's prompt learning, whose virtual tokens use up positions."""
        # PEFT also ignores `position_ids` and takes no 4D mask, so the fields about them are reset.
        return dataclasses.replace(
            self,
            accepts=tuple(name for name in self.accepts if name != "position_ids"),
            max_length=None if self.max_length is None else self.max_length - rows,
            max_target_length=None if self.max_target_length is None else self.max_target_length - targets,
            left_padding_shifts=self.left_padding_shifts or self.counts_tokens,
            takes_4d_mask=False,
            window=None,
            layer_kinds=(),
            isolates_by_position_ids=False,
            flat_keys=(),
            flat_error=None,
        )

    @property
    def is_examined(self) -> bool:
        """True if the spec describes positions or attention, and not only the arguments of a forward.

        From these alone, as of a module that is not of Hugging Face, it is unknown whether the model is causal.
        """
        return bool(self.positions) or self.is_causal or self.is_encoder_decoder

    @property
    def counts_tokens(self) -> bool:
        """True if outputs depend on absolute (or unknown) positions of tokens, not only on distances between them."""
        return bool({"learned", "sinusoidal", "unknown"} & set(self.positions))

    @property
    def max_position(self) -> int | None:
        """Largest value of `position_ids` at a token; `None` without a limit, as for rotary positions."""
        return self.first_position + self.max_length - 1 if self.max_length is not None and self.counts_tokens else None


def _max_length(model: Any, positions: ModelPositions, counts: str) -> int | None:
    """Return the maximum number of tokens in the input named `counts`; `None` if there is none."""
    rows = [table.max_length for table in positions.tables if table.counts == counts]
    if rows:
        return min(rows)
    return configured_length(model.config) if counts == "input_ids" and not positions.tables else None


def _shifts_labels(probe: Probe, positions: ModelPositions, compares_with_next: bool | None) -> bool:
    """Return True if the model itself shifts `labels` by one, so that users pass labels that are not shifted."""
    model = probe.model
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return True
    if "labels" not in forward_names(model):
        return False
    # Encoder-decoders and causal models that predict tokens shift labels in their forward.
    predicts = getattr(model, "get_output_embeddings", lambda: None)() is not None
    in_order = bool(model.config.is_encoder_decoder) or positions.is_causal
    shifts = None if model.config.is_encoder_decoder else compares_with_next
    return in_order and predicts if shifts is None else shifts


def _run(probe: Probe, **inputs: torch.Tensor) -> Any:
    """Run a model with its head on those of `inputs` that its forward takes, and return its output."""
    names = forward_names(probe.model)
    with unchanged(probe.model), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of losses for other labels, such as that of regression
        return probe.model(**{name: value.to(probe.device) for name, value in inputs.items() if name in names})


def _loss_of(probe: Probe) -> tuple[bool | None, int | None]:
    """Return two facts about a model's loss, found by running it on a row with one label."""
    ids = probe.ids(1, 4, seed=3)
    per_token = torch.full_like(ids, IGNORED)
    per_token[0, 2] = 0  # an id that every head has
    for labels in (per_token, per_token[:, 2]):
        try:
            out = _run(probe, input_ids=ids, labels=labels)
            # Of each output and label 0: `(T,)`, or `(1,)` for one label per row.
            losses = -out.logits.float().log_softmax(dim=-1)[..., 0].flatten()
            distances = (out.loss.float() - losses).abs().tolist()
        except Exception:  # a head may require other labels, or more inputs
            continue
        if out.logits.shape[:-1] != labels.shape:
            continue
        same, shifted = (distances[2], distances[1]) if labels is per_token else (distances[0], math.inf)
        count = out.logits.shape[-1]
        classes = count if count > 1 and min(same, shifted) < (3e-2 if probe.is_half else 1e-3) else None
        return (shifted < same if labels is per_token and same != shifted else None), classes
    return None, None


def _classifies_first_token(probe: Probe, positions: ModelPositions) -> bool:
    """Return True if left padding changes the logits `(B, C)` of a classifier, and right padding does not."""
    # The model gets `position_ids` if it takes them, so that padding moves no positions.
    ids, first = probe.ids(1, 4, seed=3), positions.first_position
    inputs = {"input_ids": (ids, probe.padding_id), "attention_mask": (torch.ones_like(ids), 0)}
    if positions.takes_position_ids:
        padding = first if positions.padding_position is None else positions.padding_position
        inputs["position_ids"] = (torch.arange(first, first + 4, device="cpu")[None], padding)
    alone, left, right = (
        {name: torch.nn.functional.pad(row, sides, value=value) for name, (row, value) in inputs.items()}
        for sides in ((0, 0), (1, 0), (0, 1))
    )
    try:
        logits = [_run(probe, **each).logits.float() for each in (alone, left, right)]
    except Exception:  # a model without a head, or one that requires more inputs
        return False
    return probe.is_close(logits[0], logits[2]) and not probe.is_close(logits[0], logits[1])


def _output_of(probe: Probe) -> tuple[Literal["row", "token"] | None, bool]:
    """Return the part of the input that a model's head has logits for, and True if no output has a value per token.

    They are `None` and False for a head that requires more inputs.
    """
    end = getattr(probe.model.config, "eos_token_id", None)

    def shapes(*rows: int) -> dict[Any, torch.Size]:
        ids = probe.ids(1, rows[-1], seed=3)
        if isinstance(end, int) and end < len(probe.input_table if probe.input_table is not None else ()):
            ids[0, -1] = end  # where the classifiers of BART and T5 have their output
        out = _run(probe, input_ids=ids.view(rows), attention_mask=torch.ones(rows, dtype=torch.int64, device="cpu"))
        values = out if isinstance(out, Mapping) else dict(enumerate(out if isinstance(out, tuple) else (out,)))
        return {name: value.shape for name, value in values.items() if isinstance(value, torch.Tensor)}

    for choices in ((), (1,)):  # rows `(B, T)`, and for multiple choice `(B, choices, T)`
        try:
            short, long = shapes(1, *choices, 3), shapes(1, *choices, 4)
        except Exception:  # a head may require more inputs
            continue
        dimensions = None if choices else len(long.get("logits", ()))
        return "row" if dimensions == 2 else "token" if dimensions == 3 else None, bool(long) and short == long
    return None, False


def _with_label_shift(probe: Probe, spec: ModelSpec) -> ModelSpec:
    """Return the spec of an encoder-decoder with `shifts_labels` as the model shifts labels."""
    model = probe.model
    ids = probe.ids(2, 4, seed=3)
    labels = ids.clone()
    labels[0, 2:] = labels[1, 3:] = IGNORED

    def is_shifted_to(shifted: torch.Tensor) -> bool:
        if hasattr(model, "prepare_decoder_input_ids_from_labels"):
            return torch.equal(model.prepare_decoder_input_ids_from_labels(labels=labels.clone()), shifted)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}  # shifted in its forward
        alone = _run(probe, **inputs, labels=labels.clone()).loss
        return torch.equal(alone, _run(probe, **inputs, labels=labels.clone(), decoder_input_ids=shifted).loss)

    for shift in ("start", "last"):
        candidate = dataclasses.replace(spec, shifts_labels=shift)
        shifted = candidate.decoder_input_ids(labels)
        try:
            if shifted is not None and is_shifted_to(shifted):
                return candidate
        except Exception:  # a head may require more than ids and labels
            return spec
    return spec


def _dtype(model: nn.Module) -> str:
    floats = [parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()]
    return str(floats[0] if floats else torch.float32).removeprefix("torch.")

"""What a Hugging Face model wants to be fed, as plain values that outlive the model.

It says what there is to know for filling a batch; the model itself is looked at in `finding`, `square` and `kinds`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from .._explain import one_of
from .._huggingface import forward_names, is_hugging_face, no_model, opened, says_positions, virtual_tokens
from .finding import find_positions
from .probing import Probe, token_embeddings
from .square import isolates_by_positions, takes_square_masks
from .tables import Findings
from .untouched import untouched
from .windows import Windows, own_windows


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    r"""What a model wants to be fed: which keys, positions counted from where, how many tokens, which masks.

    `ModelSpec.of(model)` makes one. It is a value: it pickles, compares and goes to JSON, and holds nothing of the
    model's numbers, so a collator that keeps it is as light as without.

    Args:
        name (`str`): the model's class.
        accepts (`tuple` of `str`): the names that its forward has; `**kwargs` does not count.
        positions (`tuple` of `str`): which kinds of positions it adds itself: "learned", "sinusoidal", "rotary",
            "relative", "alibi", or "unknown" where there are some and their kind cannot be told; empty for none.
        first_position (`int`): what `position_ids` says of a row's first token: 0 in BERT, 2 in RoBERTa.
        padding_position (`int`, *optional*): what it says of padding, where the model has a number for that: 1 in
            RoBERTa.
        max_length, max_target_length (`int`, *optional*): how many tokens a row may have, and a row of the decoder.
        num_embeddings (`int`, *optional*): how many token ids it knows.
        is_causal (`bool`): whether a token's output depends on no later one, without a mask that says so.
        is_encoder_decoder (`bool`): whether it reads two sequences.
        shifts_labels (`bool`, `"start"` or `"last"`): True if it moves `labels` by one itself: an encoder-decoder to
            make the decoder's input, a causal language model to predict each token from those before it. A decoder's
            input begins with `decoder_start_token_id` if this is `"start"`, with the row's last token if `"last"`.
        decoder_start_token_id, decoder_padding_token_id (`int`, *optional*): what the decoder's input begins with, and
            what stands there for the label -100.
        left_padding_shifts (`bool`): whether padding on the left changes what real tokens get, where `attention_mask`
            comes without `position_ids`.
        takes_4d_mask (`bool`): whether an additive `attention_mask` `(B, 1, T, T)` does what it says.
        window (`int`, *optional*): how far those of its layers look that do not see everything, as in `AttentionMask`;
            such a mask takes the place of the model's own.
        layer_kinds (`tuple` of `str`): of its layers, where it takes one mask for each kind.
        isolates_by_position_ids (`bool`): whether `position_ids` that restart keep packed documents apart, where there
            is no `attention_mask` and no cache.
        dtype (`str`): of its numbers, which such a mask must have.

    Example:
        >>> spec = ModelSpec(name="Reader", accepts=("input_ids", "attention_mask"))
        >>> ModelSpec.from_dict(spec.to_dict()) == spec
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
    takes_4d_mask: bool = False
    window: int | None = None
    layer_kinds: tuple[str, ...] = ()
    isolates_by_position_ids: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("accepts", "positions", "layer_kinds"):  # lists, from JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def of(cls, model: Any) -> ModelSpec:
        r"""Looks at a model: at its forward's names, and at what it does with a few tokens.

        Args:
            model (`nn.Module` or `ModelSpec`): DDP, FSDP, PEFT and `torch.compile` are opened; virtual tokens of PEFT
                count. A Hugging Face model is run on up to seven tokens, on its device, and left as it was; of any
                other module only the names count.

        Returns:
            `ModelSpec`; one that is given, as it is.

        Raises:
            TypeError: if it is no module.
            ValueError: if a Hugging Face model does not run on token ids, or its numbers are not at hand (on the meta
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
            raise TypeError(no_model("model= takes the model itself, or a ModelSpec: it is run on a few tokens", model))
        virtual = virtual_tokens(model)
        model = opened(model)
        if not is_hugging_face(model):
            return cls(name=type(model).__name__, accepts=forward_names(model), dtype=_dtype(model))
        found = find_positions(model)
        embeddings = token_embeddings(model)
        windows = own_windows(model, found) if takes_square_masks(model, found) else None
        spec = cls(
            name=type(model).__name__,
            accepts=tuple(name for name in forward_names(model) if name != "position_ids" or found.takes_position_ids),
            positions=found.kinds,
            max_length=_length(model, found, "input_ids"),
            max_target_length=_length(model, found, "decoder_input_ids"),
            num_embeddings=None if embeddings is None else len(embeddings),
            is_causal=found.is_causal,
            is_encoder_decoder=bool(model.config.is_encoder_decoder),
            shifts_labels=_shifts_labels(model, found),
            decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
            decoder_padding_token_id=getattr(model.config, "pad_token_id", None),
            left_padding_shifts=found.left_padding_shifts,
            takes_4d_mask=windows is not None,
            window=(windows or Windows()).window,
            layer_kinds=(windows or Windows()).layers,
            isolates_by_position_ids=isolates_by_positions(model, found),
            dtype=_dtype(model),
            first_position=found.first_position,
            padding_position=found.padding_position,
        )
        spec = _with_label_shift(model, spec) if spec.is_encoder_decoder and spec.shifts_labels else spec
        return spec._behind(*virtual) if any(virtual) else spec

    def decoder_input_ids(self, labels: torch.Tensor) -> torch.Tensor | None:
        r"""Return what the model makes of `labels` for its decoder: one to the right, after the first token.

        Args:
            labels (`torch.Tensor` `(B, T)` int64): -100 where no token is to be predicted.

        Returns:
            `torch.Tensor` `(B, T)` int64 on the device of `labels`; `None` if it is not known how the model does it.

        Example:
            >>> spec = ModelSpec(shifts_labels="start", decoder_start_token_id=2, decoder_padding_token_id=1)
            >>> spec.decoder_input_ids(torch.tensor([[5, 6, 7], [8, -100, -100]]))
            tensor([[2, 5, 6],
                    [2, 8, 1]])
        """
        start, padding = self.decoder_start_token_id, self.decoder_padding_token_id
        if padding is None or (start is None and self.shifts_labels != "last") or isinstance(self.shifts_labels, bool):
            return None
        ids = labels.masked_fill(labels == -100, padding)
        if self.shifts_labels == "last":
            first = ids.gather(1, ((ids != padding).sum(dim=1, keepdim=True) - 1).clamp(min=0))
        else:
            first = torch.full_like(ids[:, :1], int(start or 0))
        return torch.cat([first, ids[:, :-1]], dim=1)

    def _behind(self, rows: int, targets: int) -> ModelSpec:
        """The spec of a model whose rows begin with virtual tokens, as PEFT's prompt learning makes them.

        They take positions, and PEFT ignores `position_ids` and takes no mask of four dimensions.
        """
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
        )

    @property
    def counts_tokens(self) -> bool:
        """True if the number of tokens before a token matters, and not only the distances between tokens."""
        return bool({"learned", "sinusoidal", "unknown"} & set(self.positions))

    def to_dict(self) -> dict[str, Any]:
        r"""Every field as JSON holds it; `from_dict` is the way back."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelSpec:
        r"""The spec that `to_dict` wrote.

        Raises:
            ValueError: if a key is unknown.

        Example:
            >>> ModelSpec.from_dict({"name": "Reader", "max_length": 512}).max_length
            512
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(one_of("a field of a ModelSpec", name, known))
        return cls(**values)


def _length(model: Any, found: Findings, counts: str) -> int | None:
    """How many tokens a model takes: as many as its tables have rows for, else as many as its configuration says."""
    rows = [table.max_length for table in found.tables if table.counts == counts]
    if rows:
        return min(rows)
    return says_positions(model.config) if counts == "input_ids" and not found.tables else None


def _shifts_labels(model: Any, found: Findings) -> bool:
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return True
    # Others do it in their forward: encoder-decoders and causal models that predict tokens.
    predicts = getattr(model, "get_output_embeddings", lambda: None)() is not None
    in_order = bool(model.config.is_encoder_decoder) or found.is_causal
    return in_order and predicts and "labels" in forward_names(model)


def _with_label_shift(model: Any, spec: ModelSpec) -> ModelSpec:
    """Return the spec with the way in which an encoder-decoder shifts labels, if it is one of the two known ones."""
    probe = Probe(model)
    ids = probe.ids(2, 4, seed=3).to(probe.device)
    labels = ids.clone()
    labels[0, 2:] = labels[1, 3:] = -100

    def shifts_as(made: torch.Tensor) -> bool:
        if hasattr(model, "prepare_decoder_input_ids_from_labels"):
            return torch.equal(model.prepare_decoder_input_ids_from_labels(labels=labels.clone()), made)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}  # it does so in its forward
        alone = model(**inputs, labels=labels.clone()).loss
        return torch.equal(alone, model(**inputs, labels=labels.clone(), decoder_input_ids=made).loss)

    with untouched(model), torch.no_grad():
        for shift in ("start", "last"):
            known = dataclasses.replace(spec, shifts_labels=shift)
            made = known.decoder_input_ids(labels)
            try:
                if made is not None and shifts_as(made):
                    return known
            except Exception:  # a head may ask for more than ids and labels
                return spec
    return spec


def _dtype(model: nn.Module) -> str:
    floats = [parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()]
    return str(floats[0] if floats else torch.float32).removeprefix("torch.")

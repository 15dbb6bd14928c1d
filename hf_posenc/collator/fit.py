"""Checks that a model can use the settings of a collator, and removal of batch keys that the model does not accept.

The functions read the `ModelSpec`, never the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import explain, shorten, value_error
from ..masks import AttentionMask
from ..models import ModelSpec
from ..ragged import Ragged
from ..tokenization.loading import number_of_ids
from .batch import Batch
from .embed import too_few_rows
from .labels import LABEL_KINDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .settings import LabelName, Settings


def decoder_start(spec: ModelSpec | None, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the id of the first token of `decoder_input_ids`; `None` if the collator does not make them.

    It is the start token of the model, or else the first that the tokenizer has of bos, cls, eos and pad, or else 0.
    The collator does not make them if the model makes them from the labels or does not accept them.
    """
    if spec is not None:
        shifts = spec.shifts_labels and "labels" in spec.accepts
        if shifts or "decoder_input_ids" not in spec.accepts:
            return None
        if spec.decoder_start_token_id is not None:
            return spec.decoder_start_token_id
    tokens = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return next((int(token) for token in tokens if token is not None), 0)


def left_padding_warning(spec: ModelSpec, has_targets: bool) -> str | None:
    """Return the warning that left padding changes the outputs of the model; `None` if it does not.

    `has_targets` is True if the inputs of its decoder are made from targets.
    """
    # With relative positions only, shifting all tokens does not change outputs. With absolute ones, those of BERT and
    # GPT-2 move by up to 2.3 (transformers #3021).
    by_distance = bool(spec.positions) and not spec.counts_tokens
    if spec.left_padding_shifts and "position_ids" not in spec.accepts and not by_distance:
        rule = f"left padding changes the outputs of {spec.name} for real tokens, because it takes no position_ids"
    elif spec.classifies_first_token:
        rule = f"left padding changes the logits of {spec.name}, because it classifies a row by its first column"
    elif spec.is_encoder_decoder and "decoder_input_ids" in spec.accepts and not has_targets:
        rule = f"left padding changes the outputs of {spec.name}, because its decoder reads the padding of the input"
    else:
        return None
    return explain(rule, got='padding_side="left"', fix='padding_side="right", or rows of one length')


def check_fit(settings: Settings, spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Raise for the first setting that the model cannot use or would silently ignore.

    Return a warning if the tokenizer has less than half of the model's ids, otherwise `None`.
    """
    warning = None
    if not {"input_ids", "inputs_embeds"} & set(spec.accepts):
        raise value_error(
            f"the forward of {spec.name} has no argument input_ids or inputs_embeds, so it cannot read text",
            got=_forward(spec),
            fix="def forward(self, input_ids, attention_mask=None, ...): *args and **kwargs do not count",
        )
    if settings.embedding is not None:
        _check_embedding(spec)
    else:
        count = number_of_ids(tokenizer)
        if "input_ids" in spec.accepts and spec.num_embeddings is not None and spec.num_embeddings < count:
            raise ValueError(too_few_rows(count, spec.num_embeddings, of=spec.name))
        if "input_ids" in spec.accepts and 2 * count < (spec.num_embeddings or 0):  # padded vocabularies are normal
            warning = explain(
                f"the tokenizer has {count:,} ids, and {spec.name} has {spec.num_embeddings:,}: it may be that "
                "of another model",
                got="less than half of the model's ids",
                fix=f"the model's own tokenizer; for a new model, vocab_size={count} in its configuration",
            )
    if settings.look_ahead and "look_ahead_mask" not in spec.accepts:
        raise value_error(
            f"{spec.name} ignores look_ahead_mask: its forward() has no such argument",
            got=_forward(spec),
            fix="look_ahead=None, if the model masks later tokens itself (config.is_decoder=True), or takes "
            'batch["attention_mask"] = AttentionMask.from_batch(batch, look_ahead=True).for_hf(model); or a forward '
            "that names look_ahead_mask",
        )
    if settings.packing:
        _check_packing(settings.packing, spec)
    if settings.label_name is not None:
        _check_label_kind(settings.label_name, spec)
    alone = spec.is_examined and not spec.is_encoder_decoder
    reads_one = decoder_start(spec, tokenizer) is None and (alone or "labels" not in spec.accepts)
    if settings.text_target_column is not None and reads_one:
        raise value_error(
            f"text_target_column makes a second sequence, and {spec.name} reads one",
            got=_forward(spec),
            fix="an encoder-decoder such as BART or T5; for a decoder alone, join text and target into one text",
        )
    return warning


def check_label_values(labels: NDArray[Any] | Ragged, spec: ModelSpec, sample: NDArray[np.int64], name: str) -> None:
    """Raise a `ValueError` for the first label of column `name` that the model's loss cannot take.

    A loss over classes takes -100 and the integers from 0. `sample` `(B,)` are the numbers of the rows.
    """
    count = spec.num_labels
    values = labels.values if isinstance(labels, Ragged) else labels
    # A row of one float for each class are several labels, for BERT and its kind.
    if count is None or (values.dtype.kind == "f" and values.shape[1:] == (count,)):
        return
    if values.dtype.kind == "f":
        raise value_error(
            f"row {sample[0]} of column '{name}' holds floats, and {spec.name} takes the numbers of {count} classes",
            got=shorten(values[0].tolist()),
            fix=f"integers from 0 to {count - 1}; to predict a number, a model with num_labels=1; for several labels "
            f"per text, {count} floats in every row",
        )
    wrong = (values != IGNORED) & ((values < 0) | (values >= count))
    if wrong.any():
        place, largest = int(wrong.argmax()), int(values.max())
        row = int(np.searchsorted(labels.offsets, place, "right")) - 1 if isinstance(labels, Ragged) else place
        fix = f"integers from 0 to {count - 1}, or -100 for no label"
        if largest >= count and count != spec.num_embeddings:  # not the tokens of a language model
            fix += f"; or a model with num_labels={largest + 1}"
        raise value_error(
            f"row {sample[row]} of column '{name}' holds {values[place]}, and {spec.name} has {count} classes",
            got=f"{np.count_nonzero(wrong)} such labels in this batch",
            fix=fix,
        )


def _forward(spec: ModelSpec) -> str:
    return f"forward({', '.join(spec.accepts)})"


def _check_embedding(spec: ModelSpec) -> None:
    if spec.positions:
        none = "; or, if it has none, model=dataclasses.replace(ModelSpec.of(model), positions=())"
        raise value_error(
            f"{spec.name} adds its own positions: with embedding= it would have them twice",
            got=f"positions: {', '.join(spec.positions)}",
            fix="leave embedding= out and call use_sinusoidal_positions(model) for sinusoids inside the model; or "
            "leave model= out, if another module reads the embeddings" + (none if "unknown" in spec.positions else ""),
        )
    if "inputs_embeds" not in spec.accepts:
        raise value_error(
            f"embedding= makes inputs_embeds, and the forward of {spec.name} has no such argument",
            got=_forward(spec),
            fix="a forward that names inputs_embeds, or embedding=None and PositionalEmbedding in the model",
        )


def _why_not_isolated(spec: ModelSpec) -> str | None:
    """Return the reason, for a message, why the model cannot isolate packed documents by a mask; `None` if it can."""
    if spec.is_encoder_decoder:
        return "it reads two sequences"
    if "attention_mask" not in spec.accepts or not spec.takes_4d_mask:
        return "neither attention_mask (B, 1, T, T) nor document_ids isolates them"
    if spec.counts_tokens and "position_ids" not in spec.accepts:
        return "it takes no position_ids, so positions would not restart with each document"
    return None


def _check_packing(packing: bool | str, spec: ModelSpec) -> None:
    reads_documents = {"seq_idx", "cu_seq_lens_q"} if packing == "flat" else {"document_ids"}
    if spec.one_output_per_row and not reads_documents & set(spec.accepts):
        raise value_error(
            f"packing={packing!r} puts several documents in a row, and {spec.name} has one output for each row",
            got="outputs without a value for each token",
            fix="packing=False, or a model with an output for each token",
        )
    if packing == "flat":
        if not spec.flat_keys:
            seen = "its documents see each other in spite of position_ids that restart"
            raise value_error(
                f'packing="flat" puts all documents in one row, and {spec.name} cannot isolate them',
                got=spec.flat_error or (seen if spec.is_examined else _forward(spec)),
                fix=("packing=False" if _why_not_isolated(spec) else "packing=True, whose mask isolates them")
                + ', or attn_implementation="flash_attention_2", if the model has it, or a forward that names seq_idx '
                "or cu_seq_lens_q",
            )
        return
    why = None if "document_ids" in spec.accepts else _why_not_isolated(spec)
    if why is not None:
        raise value_error(
            f"packing=True puts several documents in a row, and {spec.name} cannot isolate them",
            got=why,
            fix=("packing='flat', whose rows it isolates" if spec.flat_keys else "packing=False")
            + ", or a model of your own whose forward names document_ids",
        )


def _check_label_kind(labels: LabelName, spec: ModelSpec) -> None:
    predicts_next = LABEL_KINDS[labels].predicts_next
    if "labels" not in spec.accepts:
        shifts = ", shifts_labels=True" if predicts_next else ""
        raise value_error(
            f"labels={labels!r} makes labels, and the forward of {spec.name} has no such argument",
            got=_forward(spec),
            fix="a model with a language modeling head; if the loss is computed outside of the model, "
            f'model=dataclasses.replace(spec := ModelSpec.of(model), accepts=(*spec.accepts, "labels"){shifts})',
        )
    if predicts_next and spec.is_encoder_decoder:
        raise value_error(
            f"labels={labels!r} are the tokens themselves, which the encoder of {spec.name} reads: it would learn to "
            "copy its input",
            got="an encoder-decoder",
            fix='text_target_column="...", the column with the texts that the decoder should generate',
        )
    if predicts_next and spec.is_examined and not spec.is_causal:
        raise value_error(
            f"labels={labels!r} predicts the next token, which {spec.name} has seen: it is not causal",
            got="outputs that depend on later tokens",
            fix=("" if spec.shifts_labels else 'labels="masked_lm", or ')
            + "a causal model (for BERT and its kind config.is_decoder=True)",
        )
    if predicts_next and spec.is_examined and not spec.shifts_labels:
        raise value_error(
            f"labels={labels!r} are the tokens themselves, and {spec.name} does not shift labels: it would learn "
            "to copy its input",
            got="a loss that compares each output with the label of the same token",
            fix="a causal language model, AutoModelForCausalLM; if the loss shifts labels outside of the model, "
            "model=dataclasses.replace(ModelSpec.of(model), shifts_labels=True)",
        )
    if not predicts_next and spec.shifts_labels:
        fix = "a masked language model, AutoModelForMaskedLM"
        if spec.is_encoder_decoder or spec.is_causal or not spec.is_examined:
            fix = ("text_target_column=..." if spec.is_encoder_decoder else 'labels="causal_lm"') + f", or {fix}"
        raise value_error(
            f"labels={labels!r} are the masked tokens themselves, and {spec.name} shifts labels: it would predict "
            "each of them from another token",
            got="a loss that compares each output with the label of the next token"
            if not spec.is_encoder_decoder
            else "a decoder that reads the labels shifted by one",
            fix=fix,
        )


def fit_batch(batch: Batch, spec: ModelSpec) -> Batch:
    r"""Adapt a batch, in place, to the arguments of a model's forward, and return it.

    - Keys that the model's forward does not accept are removed, and `input_ids` if there are `inputs_embeds`.
    - Packed rows get an `attention_mask` that isolates documents, unless the model accepts `document_ids`.
    - A batch of `packing="flat"` gets `use_cache=False`, because a model with a cache does not isolate documents by
      positions.
    - `decoder_input_ids` are added, as the model would make them from `labels`.

    Raise a `ValueError` if no input for the model is left, or if the model would add positions to `inputs_embeds`.

    Example:
        >>> spec = ModelSpec(accepts=("input_ids", "attention_mask"))
        >>> list(fit_batch(Batch({"input_ids": 1, "attention_mask": 2, "position_ids": 3}), spec))
        ['input_ids', 'attention_mask']
    """
    if "document_ids" in batch and "attention_mask" not in batch and "document_ids" not in spec.accepts:
        batch["attention_mask"] = _isolating(batch, spec)
    labels = batch.get("labels")
    if labels is not None and labels.ndim == 2 and "decoder_input_ids" not in batch:
        # As in DataCollatorForSeq2Seq: label smoothing computes the loss outside of the model, and needs them.
        decoder_ids = spec.decoder_input_ids(torch.from_numpy(labels) if isinstance(labels, np.ndarray) else labels)
        if decoder_ids is not None:
            batch["decoder_input_ids"] = decoder_ids.numpy() if isinstance(labels, np.ndarray) else decoder_ids
    if "cu_seq_lens_q" in batch:
        batch["use_cache"] = False
    for name in [name for name in batch if name not in spec.accepts and name not in spec.flat_keys]:
        del batch[name]
    if "inputs_embeds" in batch:
        if spec.positions:
            raise value_error(
                f"{spec.name} adds its own positions ({', '.join(spec.positions)}), and the rows have "
                "inputs_embeds, which hold positions where store_embeddings made them",
                fix='dataset.remove_columns("inputs_embeds"), or, for vectors without positions, '
                "collate.replace(model=dataclasses.replace(collate.model, positions=()))",
            )
        rest = {name: value for name, value in batch.items() if name != "input_ids"}
        batch.clear()
        batch.update({"inputs_embeds": rest.pop("inputs_embeds"), **rest})
    elif "input_ids" not in batch:
        raise value_error(
            f"{spec.name} reads inputs_embeds, and this collator makes none",
            got="no table, and rows without a column 'inputs_embeds'",
            fix="embedding=table; in a worker collate without model=, and collate.embed(batch) in the loop",
        )
    return batch


def _isolating(batch: Batch, spec: ModelSpec) -> Any:
    """Return an additive attention mask (B, 1, T, T) that isolates the documents of packed rows."""
    documents = batch["document_ids"]
    rows = batch._near.get("document_ids", documents).tolist() if spec.one_output_per_row else []
    several = [row for row, numbers in enumerate(rows) if len({*numbers} - {-1}) > 1]
    if several:
        raise value_error(
            f"row {several[0]} holds several documents, and {spec.name} has one output for each row",
            got="document_ids, or position_ids that restart",
            fix="one document in each row, or dataset.remove_columns(...) for these columns, if a row is one document",
        )
    if (reason := _why_not_isolated(spec)) is not None:
        raise value_error(
            f"a row holds several documents, and {spec.name} cannot isolate them",
            got=reason,
            fix="one document in each row, or dataset.remove_columns(...) for the columns that divide them",
        )
    # Nothing else of a batch has T×T values for each row: through the pipe of a worker, such a mask of 32 rows of 2,048
    # tokens takes 1.2 s, ids and lengths 4 ms.
    mask = AttentionMask.from_batch({"document_ids": documents}).for_hf(spec, dims=4)
    if not isinstance(documents, np.ndarray):
        return mask
    if isinstance(mask, dict):
        return {kind: _array(kind_mask) for kind, kind_mask in mask.items()}
    return _array(mask)


def _array(mask: torch.Tensor) -> Any:
    return (mask.float() if mask.dtype == torch.bfloat16 else mask).numpy()  # NumPy has no bf16

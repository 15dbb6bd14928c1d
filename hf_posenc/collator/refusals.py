"""What cannot be fed to a model, told when the collator is made and not in the middle of a run.

Checks only, one settings group each; what a model settles where nothing is wrong is in `fitting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._explain import explain
from ..model_spec import ModelSpec
from ..sinusoid import CONVENTIONS, USUAL_BASE
from ..tokenization.loading import number_of_ids
from .fitting import decoder_start, takes_documents, was_looked_at
from .settings import Settings
from .table import too_few_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_fit(settings: Settings, spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    r"""Raises for the first thing asked for that the model could not read, or would pass over in silence.

    Args:
        settings (`Settings`): checked ones.
        spec (`ModelSpec`): the model.
        tokenizer (`PreTrainedTokenizerBase`): whose ids it will get.

    Raises:
        ValueError: with what the model's forward names, or what it has, and the way out.
    """
    _check_reads_text(spec)
    if settings.embedding is not None:
        _check_embedding(spec)
    else:
        _check_no_embedding(settings, spec)
    if settings.embedding is None and "input_ids" in spec.accepts and spec.num_embeddings is not None:
        needed = number_of_ids(tokenizer)
        if spec.num_embeddings < needed:
            raise ValueError(too_few_rows(needed, spec.num_embeddings, of=spec.name))
    if settings.look_ahead and "look_ahead_mask" not in spec.accepts:
        raise ValueError(_look_ahead(spec))
    if settings.packing and not takes_documents(spec):
        _check_packing(spec)
    if settings.labels is not None:
        _check_labels(settings, spec)
    if settings.text_target_column is not None:
        _check_targets(settings, spec, tokenizer)


def _forward(spec: ModelSpec) -> str:
    return f"forward({', '.join(spec.accepts)})"


def _check_reads_text(spec: ModelSpec) -> None:
    if not {"input_ids", "inputs_embeds"} & set(spec.accepts):
        raise ValueError(
            explain(
                f"the forward of {spec.name} names neither input_ids nor inputs_embeds, so no text can reach it",
                got=_forward(spec),
                fix="def forward(self, input_ids, attention_mask=None, ...): *args and **kwargs name nothing",
            )
        )


def _check_embedding(spec: ModelSpec) -> None:
    if spec.positions:
        inside = (
            "leave embedding= out and call use_sinusoidal_positions(model) for sinusoids inside the model"
            if "learned" in spec.positions
            else "leave embedding= out, since the model knows positions already"
        )
        if "unknown" in spec.positions:
            inside += ", or, if it has none, model=dataclasses.replace(ModelSpec.of(model), positions=())"
        raise ValueError(
            explain(
                f"{spec.name} adds its own positions: with those of embedding= on top it would have them twice",
                got=f"positions: {', '.join(spec.positions)}",
                fix=f"{inside}; or leave model= out, for vectors that something else reads",
            )
        )
    if "inputs_embeds" not in spec.accepts:
        raise ValueError(
            explain(
                f"embedding= makes inputs_embeds, which the forward of {spec.name} does not name",
                got=_forward(spec),
                fix="a forward that names inputs_embeds, or embedding=None and PositionalEmbedding in the model",
            )
        )


def _check_no_embedding(settings: Settings, spec: ModelSpec) -> None:
    """Refuse settings of the vectors that `embedding=` makes; without positions, a model counts by the convention."""
    usual: dict[str, Any] = {"base": (None, USUAL_BASE), "scale": (None,), "dropout": (0,), "zero_padding": (True,)}
    if spec.positions:
        usual["convention"] = ("vaswani", CONVENTIONS["vaswani"])
    for name, values in usual.items():
        value = getattr(settings, name)
        if value in values:
            continue
        if "learned" in spec.positions:
            asked = f"{name}={value!r}" if name in ("base", "convention") else "base=..."
            fix = f"leave {name}= out; for sinusoids inside the model use_sinusoidal_positions(model, {asked})"
        else:
            fix = f"leave {name}= out" + ("" if spec.positions else ", or embedding=model.get_input_embeddings()")
        raise ValueError(
            explain(
                f"{name}= belongs to the vectors that embedding= makes, and {spec.name} gets none",
                got=f"{name}={value!r}, embedding=None",
                fix=fix,
            )
        )


def _look_ahead(spec: ModelSpec) -> str:
    if spec.is_causal:
        fix = f"leave look_ahead out: {spec.name} hides what comes later by itself"
    elif spec.takes_4d_mask:
        fix = "look_ahead=None, and as attention_mask AttentionMask.from_batch(batch, look_ahead=True).for_hf(model)"
    else:
        fix = "a forward that names look_ahead_mask, or a model that is causal (config.is_decoder=True)"
    return explain(
        f"{spec.name} would pass over look_ahead_mask in silence: its forward does not name it",
        got=_forward(spec),
        fix=fix,
    )


def _check_packing(spec: ModelSpec) -> None:
    why = None
    if spec.is_encoder_decoder:
        why = "it reads two sequences"
    elif "attention_mask" not in spec.accepts or not spec.takes_4d_mask:
        why = "it takes no attention_mask (B, 1, T, T), and no document_ids either"
    elif spec.counts_tokens and "position_ids" not in spec.accepts:
        why = "it takes no position_ids, so positions would not begin again with each document"
    if why is not None:
        raise ValueError(
            explain(
                f"packing=True lets documents share a row, and {spec.name} cannot keep them apart",
                got=why,
                fix="packing=False, or a model of your own whose forward names document_ids",
            )
        )


def _check_labels(settings: Settings, spec: ModelSpec) -> None:
    if "labels" not in spec.accepts:
        raise ValueError(
            explain(
                f"labels={settings.labels!r} makes labels, which the forward of {spec.name} does not name",
                got=_forward(spec),
                fix="a model with a language modelling head; where the loss is made outside the model, "
                'model=dataclasses.replace(ModelSpec.of(model), accepts=(*names, "labels"))',
            )
        )
    sees_all = was_looked_at(spec) and not spec.is_causal and not spec.is_encoder_decoder
    if settings.labels == "causal_lm" and sees_all:
        raise ValueError(
            explain(
                f'labels="causal_lm" asks for the next token, which {spec.name} has seen: it is not causal',
                got="outputs that depend on later tokens",
                fix='labels="masked_lm", or a causal model (for BERT and its kind config.is_decoder=True)',
            )
        )


def _check_targets(settings: Settings, spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    reads = decoder_start(spec, tokenizer) is not None
    alone = was_looked_at(spec) and not spec.is_encoder_decoder
    if not reads and (alone or "labels" not in spec.accepts):
        raise ValueError(
            explain(
                f"text_target_column makes a second sequence, and {spec.name} reads one",
                got=_forward(spec),
                fix="an encoder-decoder such as BART or T5; for a decoder alone, join text and target into one text",
            )
        )

"""Properties of the collator with `model=` on random tokenizers, options and texts.

What the models take is written down here, so that it is compared with what the package finds by running them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from hypothesis import strategies as st

from hf_posenc import ModelSpec

from .collating import Refused, check_batch, check_ids, copied, documented, made, same
from .inputs import CONTAINERS, options, texts, words
from .kinds import kinds
from .reference import Reference, smallest

_NARROW = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
_SHORT = _NARROW | {"max_position_embeddings": 24, "type_vocab_size": 4}  # one template has four types
_GPT2 = {"n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 24}
_T5 = {"d_model": 8, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1, "decoder_start_token_id": 0}
_BART = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "encoder_ffn_dim": 8}
_BART |= {"decoder_attention_heads": 1, "decoder_ffn_dim": 8, "max_position_embeddings": 24}
_OPT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "ffn_dim": 8, "word_embed_proj_dim": 8}
_KEYS = ("input_ids", "attention_mask")
_BERT = (*_KEYS, "token_type_ids", "position_ids")
_TARGETS = (*_KEYS, "labels", "decoder_input_ids", "decoder_attention_mask")
_FLAT = ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


class Own(torch.nn.Module):
    """Module that takes everything that a collator makes."""

    def forward(
        self, input_ids: Any, attention_mask: Any, token_type_ids: Any, position_ids: Any, document_ids: Any,
        look_ahead_mask: Any, labels: Any, decoder_input_ids: Any, decoder_attention_mask: Any, seq_idx: Any,
        cu_seq_lens_q: Any, cu_seq_lens_k: Any, max_length_q: Any, max_length_k: Any, use_cache: Any,
        overflow_to_sample_mapping: Any, inputs_embeds: Any,
    ) -> None:  # fmt: skip
        """Do nothing."""


@dataclass(frozen=True)
class Family:
    """Model: its class, settings of its configuration, its keys of a batch, first and padding position, and limit.

    `shifts` is True if it predicts each label from the token before it, `None` if nobody knows; `packs` if a mask of
    four dimensions isolates the documents of a row, and `is_flat` if positions do. `suits` are settings for it.
    `classes` is the number of its classes, if it is a classifier.
    """

    name: str
    settings: dict[str, Any]
    keys: tuple[str, ...]
    first: int = 0
    pad: int = 0
    limit: int | None = 24
    target_limit: int | None = None
    shifts: bool | None = False
    is_causal: bool = False
    packs: bool = False
    is_flat: bool = False
    reads_two: bool = False
    suits: tuple[dict[str, Any], ...] = ({},)
    classes: int | None = None

    @property
    def has_logits_of_tokens(self) -> bool:
        """True if labels belong to tokens, because the model has logits for each of them."""
        return "labels" in self.keys and self.classes is None and not self.reads_two

    @property
    def shift_targets(self) -> Any:
        """Function that makes the decoder's input from labels, as the model does; `None` if it makes none."""
        if not (self.reads_two and self.shifts):
            return None
        return lambda labels: _model(self).prepare_decoder_input_ids_from_labels(torch.tensor(labels)).numpy()

    def refusals(self, o: dict[str, Any]) -> list[str]:
        """Return which of the settings the model cannot use."""
        found = []
        if o["look_ahead"] and "look_ahead_mask" not in self.keys:
            found.append("look_ahead")
        if (o["packing"] == "flat" and not self.is_flat) or (o["packing"] is True and not self.packs):
            found.append("packing")
        causal = o["labels"] == "causal_lm"
        fits = self.shifts is None or (causal == self.shifts and not self.reads_two)
        if o["labels"] and ("labels" not in self.keys or not fits):
            found.append("labels")
        if o["on_no_labels"] is not None and "labels" not in self.keys:
            found.append("on_no_labels")
        if o["embedding"] is not None and "inputs_embeds" not in self.keys:
            found.append("embedding")
        if o["text_target_column"] is not None and not self.reads_two:
            found.append("text_target_column")
        return found

    @torch.no_grad()
    def run(self, batch: Any) -> None:
        """Run the model on a batch; without targets, each document gets the outputs that it gets alone."""
        if self.shifts is None or not len(batch["input_ids"]):  # packing leaves no row of texts without tokens
            return
        model = _model(self)
        batch = {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in batch.items()}
        batch.pop("labels", None)
        if self.reads_two:
            if "decoder_input_ids" in batch:
                assert model(**batch).logits.isfinite().all()
            return
        out, ids, rows = model(**batch)[0], batch["input_ids"], batch.get("attention_mask")
        if rows is None or rows.ndim == 4 or out.ndim == 2:  # the documents of packed rows are not known here
            assert out.shape[:1] == ids.shape[:1]
            return
        for row, kept in enumerate(rows.bool()):
            if kept.any():
                names = {"input_ids", "token_type_ids", "position_ids"} & {*batch}
                alone = model(**{name: batch[name][row : row + 1, kept] for name in names})[0][0]
                torch.testing.assert_close(out[row, kept], alone, rtol=1e-4, atol=1e-4)


_CAUSAL: dict[str, Any] = {"shifts": True, "is_causal": True, "suits": ({"labels": "causal_lm"},)}
_MASKED: dict[str, Any] = {"suits": ({"labels": "masked_lm"},), "packs": True}
_READS_TWO: dict[str, Any] = {"shifts": True, "reads_two": True, "suits": ({"text_target_column": "target"},)}
_PACKED = ({"packing": True}, {"packing": "flat"})
FAMILIES = {
    "bert": Family("BertModel", _SHORT, _BERT, packs=True),
    "masked bert": Family("BertForMaskedLM", _SHORT, (*_BERT, "labels"), **_MASKED),
    "classifier": Family("BertForSequenceClassification", _SHORT, (*_BERT, "labels"), classes=2),
    "roberta": Family(
        "RobertaForMaskedLM",
        _SHORT | {"max_position_embeddings": 26, "pad_token_id": 1},
        (*_BERT, "labels"),
        first=2,
        pad=1,
        **_MASKED,
    ),
    "gpt2": Family("GPT2LMHeadModel", _GPT2, (*_BERT, "labels", "use_cache"), packs=True, is_flat=True, **_CAUSAL),
    "llama": Family(
        "LlamaForCausalLM",
        _SHORT,
        (*_KEYS, "position_ids", "labels", "use_cache", *_FLAT),
        packs=True,
        is_flat=True,
        **_CAUSAL,
    ),
    "opt": Family(
        "OPTForCausalLM",
        _OPT | {"max_position_embeddings": 24},
        (*_KEYS, "position_ids", "labels", "use_cache"),
        packs=True,
        **_CAUSAL,
    ),
    "bloom": Family(
        "BloomForCausalLM",
        {"hidden_size": 8, "n_layer": 1, "n_head": 1},
        (*_KEYS, "labels", "use_cache"),
        limit=None,
        **_CAUSAL,
    ),
    "t5 encoder": Family("T5EncoderModel", _T5, _KEYS, limit=None, packs=True),
    "t5": Family("T5ForConditionalGeneration", _T5, (*_TARGETS, "use_cache"), limit=None, **_READS_TWO),
    "bart": Family("BartForConditionalGeneration", _BART, (*_TARGETS, "use_cache"), target_limit=24, **_READS_TWO),
    "own": Family(
        "Own",
        {},
        tuple(inspect.signature(Own.forward).parameters)[1:],
        limit=None,
        shifts=None,
        packs=True,
        is_flat=True,
        reads_two=True,
        suits=({"text_target_column": "target"}, {"labels": "causal_lm"}, {"labels": "masked_lm"}),
    ),
}
_PADDED = (
    *("padding", "padding_side", "pad_to_multiple_of", "truncation", "max_length", "return_overflowing_tokens"),
    *("stride", "add_special_tokens", "on_empty", "return_tensors", "text_column", "is_split_into_words", "backend"),
)
_TEXTS = ("text_column", "text_pair_column", "text_target_column")
_LEARNING = (
    "labels",
    "packing",
    "on_no_labels",
    "max_target_length",
    "look_ahead",
    "seed",
    "mlm_probability",
    "embedding",
)


@functools.cache
def _made(name: str) -> Any:
    family = next(family for family in FAMILIES.values() if family.name == name)
    if name == "Own":
        return Own()
    made = getattr(transformers, name)
    return made(made.config_class(vocab_size=1000, **family.settings)).eval()


def _model(family: Family) -> Any:
    return _made(family.name)


@functools.cache
def _spec(name: str) -> ModelSpec:
    return ModelSpec.of(_made(name))


def collate_for_models(data: st.DataObject) -> int:
    """Batches for a model have its keys, numbering, limits, masks and labels, and equal the reference otherwise.

    Settings that it cannot use are refused, and no others.
    """
    kind = data.draw(kinds().filter(lambda kind: kind.model != "canine"), "tokenizer")  # canine has a million ids
    are_ids = data.draw(st.booleans(), "ids")
    only_texts = [] if are_ids else ["text_pair_column", "whole_word_mask"]
    given = data.draw(options(only=(*_PADDED, *_LEARNING, *only_texts)), "options")
    family = FAMILIES[data.draw(st.sampled_from(list(FAMILIES)), "model")]
    given |= data.draw(st.sampled_from([{}, *family.suits, *family.suits, *_PACKED]), "more options")
    if are_ids:
        given = {name: value for name, value in given.items() if "target_column" not in name and "words" not in name}
    model = _spec(family.name) if data.draw(st.integers(0, 19), "spec or model") > 0 else _model(family)
    reference = Reference(kind, {"look_ahead": None if family.shifts is None else False} | given)
    unusable = family.refusals(reference.o)
    try:
        tokenizer, collate = made(kind, given | {"model": model})
    except Refused as refusal:
        message = str(refusal)
        with contextlib.suppress(Refused):  # of tokenizer and settings
            made(kind, given)
            assert unusable, f"not to be refused: {message}"
        return 1
    assert not unusable, f"must be refused: {unusable}"
    if data.draw(st.integers(0, 7), "copy") == 0 and given.get("embedding") is None:
        way = data.draw(st.sampled_from(["pickle", "replace", "saved"]), "way")
        with documented():
            other = copied(collate, way).replace(backend=collate.backend)
        assert (other, hash(other), repr(other)) == (collate, hash(collate), repr(collate))
        collate = other
    reference.limit = smallest(reference.limit, family.limit)
    reference.target_limit = smallest(reference.o["max_target_length"], family.target_limit or reference.own_limit)
    reference.first, reference.pad_position, reference.family = family.first, family.pad, family
    return (check_ids if are_ids else _check_texts)(data, tokenizer, collate, reference)


def _check_texts(data: st.DataObject, tokenizer: Any, collate: Any, reference: Reference) -> int:
    o = reference.o
    names = dict.fromkeys(o[name] for name in _TEXTS if o[name] is not None)
    calls = data.draw(st.integers(1, 8), "calls")
    for _ in range(calls):
        count = data.draw(st.integers(1, 3))
        some = words if o["is_split_into_words"] else texts
        columns = {name: data.draw(st.lists(some, min_size=count, max_size=count), name) for name in names}
        more = {} if data.draw(st.integers(0, 3)) else {"label": [index % 2 for index in range(count)]}
        x, twin = (CONTAINERS["rows"](columns | more) for _ in range(2))
        wanted = reference.texts(*(columns.get(o[name]) for name in _TEXTS), more)
        check_batch(data, tokenizer, collate, x, wanted, reference)
        assert same(x, twin), "the input changed"
    return calls

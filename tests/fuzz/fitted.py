"""Properties of the collator with `model=`, and of `collate.batches`, on random tokenizers, options and texts.

What the models take is written down here, so that it is compared with what the package finds by running them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import transformers
from hypothesis import strategies as st

from hf_posenc import ModelSpec

from .collating import Refused, check, documented, made, matches, same, unchanged
from .inputs import CONTAINERS, options, texts, words
from .kinds import kinds
from .reference import Reference, Row, smallest

_NARROW = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
_KEYS = ("input_ids", "attention_mask")


@dataclass(frozen=True)
class Family:
    """A model: class and settings of its configuration, and its keys of a batch, first and padding position, limit."""

    name: str
    settings: dict[str, Any]
    keys: tuple[str, ...]
    first: int = 0
    pad: int = 0
    limit: int | None = 24


FAMILIES = {
    "bert": Family("Bert", _NARROW | {"max_position_embeddings": 24}, (*_KEYS, "token_type_ids", "position_ids")),
    "roberta": Family(
        "Roberta",
        _NARROW | {"max_position_embeddings": 26, "pad_token_id": 1},
        (*_KEYS, "token_type_ids", "position_ids"),
        first=2,
        pad=1,
    ),
    "gpt2": Family(
        "GPT2",
        {"n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 24},
        (*_KEYS, "token_type_ids", "position_ids"),
    ),
    "llama": Family("Llama", _NARROW | {"max_position_embeddings": 24}, (*_KEYS, "position_ids")),
    "t5": Family("T5", {"d_model": 8, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1}, _KEYS, limit=None),
    "bloom": Family("Bloom", {"hidden_size": 8, "n_layer": 1, "n_head": 1}, _KEYS, limit=None),
}
_PADDED = (
    *("padding", "padding_side", "pad_to_multiple_of", "truncation", "max_length", "return_overflowing_tokens"),
    *("stride", "add_special_tokens", "empty", "return_tensors", "text_column", "is_split_into_words", "backend"),
)


@functools.cache
def _model(family: str) -> Any:
    name, settings = FAMILIES[family].name, FAMILIES[family].settings
    config = getattr(transformers, f"{name}Config")(vocab_size=1000, **settings)
    return getattr(transformers, f"{name}{'Encoder' if name == 'T5' else ''}Model")(config)


@functools.cache
def _spec(family: str) -> ModelSpec:
    return ModelSpec.of(_model(family))


def collate_for_models(data: st.DataObject) -> int:
    """Batches of texts for a model have its keys, its numbering and its limit, and equal the reference otherwise."""
    kind = data.draw(kinds().filter(lambda kind: kind.model != "canine"), "tokenizer")  # canine has a million ids
    given = data.draw(options(only=(*_PADDED, "text_pair_column")), "options")
    name = data.draw(st.sampled_from(list(FAMILIES)), "model")
    family, is_spec = FAMILIES[name], data.draw(st.integers(0, 19), "spec or model") > 0
    try:
        tokenizer, collate = made(kind, given | {"model": _spec(name) if is_spec else _model(name)})
    except Refused:
        return 1
    reference = Reference(kind, given | {"look_ahead": False})
    reference.limit = smallest(reference.limit, family.limit)
    reference.first, reference.pad_position = family.first, family.pad
    o = reference.o
    names = dict.fromkeys([o["text_column"], *([o["text_pair_column"]] if o["text_pair_column"] else [])])
    calls = data.draw(st.integers(1, 8), "calls")
    for _ in range(calls):
        count = data.draw(st.integers(1, 3))
        some = words if o["is_split_into_words"] else texts
        columns = {column: data.draw(st.lists(some, min_size=count, max_size=count), column) for column in names}
        x, twin = (CONTAINERS["rows"](columns) for _ in range(2))
        wanted = reference.texts(columns[o["text_column"]], columns.get(o["text_pair_column"]), None, {})
        if wanted.batch is not None:
            wanted.batch = {key: value for key, value in wanted.batch.items() if key in family.keys}
        with unchanged(tokenizer, draws=False):
            check(lambda: collate.batch(x), wanted, reference)  # noqa: B023
        assert same(x, twin), "the input changed"
    return calls


def inference_batches(data: st.DataObject) -> int:
    """The batches of many texts keep to the token budget, and their results come back in the order of the texts."""
    kind, given = data.draw(kinds(), "tokenizer"), data.draw(options(only=_PADDED), "options")
    try:
        tokenizer, collate = made(kind, given)
    except Refused:
        return 1
    reference = Reference(kind, given)
    if reference.padding == "do_not_pad":  # would refuse by batch
        return 1
    some = words if reference.o["is_split_into_words"] else texts
    rows = data.draw(st.lists(some, min_size=1, max_size=12), "texts")
    budget, window = data.draw(st.sampled_from([1, 16, 64, 10_000])), data.draw(st.sampled_from([1, 2, 5, 100]))
    wanted = reference.texts(rows, None, None, {})
    x = iter(rows) if data.draw(st.booleans(), "iterator") else [*rows]
    found: list[list[list[int]]] = []
    try:
        with unchanged(tokenizer, draws=False), documented():
            batches = collate.batches(x, budget, window=window)
            for batch in batches:
                ids, mask = (np.asarray(batch[name]) for name in ("input_ids", "attention_mask"))
                assert ids.size <= budget
                found.append([row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)])
    except Refused as refusal:
        # Each window is tokenized alone: a text without tokens may come before one that the tokenizer refuses.
        if not matches(
            refusal, [*wanted.refusals, "beyond the budget", *(["has no tokens"] if wanted.refusals else [])]
        ):
            raise AssertionError(f"not to be refused: {refusal}") from None
        return 1
    assert not wanted.refusals, f"must be refused: {wanted.refusals}"
    right: list[Row] = wanted.rows
    assert batches.in_order(found) == [row.ids for row in right]
    assert batches.overflow_to_sample_mapping.tolist() == [row.sample for row in right]
    return len(found)

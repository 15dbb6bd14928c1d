"""Properties of the collator on random tokenizers, options and rows.

A call returns what the reference expects, or raises a documented error. Neither its arguments nor the process change.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from hypothesis import strategies as st
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, MaskedLM, PositionalEmbedding

from .inputs import (
    CONTAINERS,
    ID_ROWS,
    MASKING,
    POSITIONAL,
    SEQUENCES,
    hostile,
    options,
    other_columns,
    packed_columns,
    texts,
    words,
    wrong_options,
)
from .kinds import Kind, kinds
from .reference import IGNORED, Reference, Row, Wanted, documents_by

CALLS = 8  # most calls of one collator in an example
REFUSALS: Counter[str] = Counter()  # number of documented errors by their rule


class Refused(Exception):
    """A documented error, with its message."""


# ---------------------------------------------------------------------------------------------- errors and side effects


def rule_of(message: str) -> str:
    """Return the first line of a message without the values in it."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\[.*\]|-?\d[\d.]*", "…", message.partition("\n")[0])[:90]


def is_documented(error: BaseException) -> bool:
    """Return True for an error of a documented kind whose message has the lines `got:` or `fix:`."""
    text = str(error)
    return isinstance(error, ValueError | TypeError | ImportError) and ("\n  got: " in text or "\n  fix: " in text)


@contextmanager
def documented() -> Iterator[None]:
    """Turn a documented error into `Refused` and count it; other errors, and warnings of others, are failures."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except (ValueError, TypeError, ImportError) as error:
            is_of_numpy = str(error) == "Maximum allowed dimension exceeded"  # embedding=10**30
            if not is_documented(error) and not is_of_numpy:
                raise
            REFUSALS[rule_of(str(error))] += 1
            raise Refused(str(error)) from None
    for warning in caught:
        # ByT5 warns of texts that end with its special token.
        known = "\n  fix: " in str(warning.message) or "This sequence already has" in str(warning.message)
        assert known, f"warning: {warning.message} ({warning.filename})"


def _process() -> list[Any]:
    """Return the state of the process that a call must not change."""
    generator = np.random.get_state()  # noqa: NPY002
    return [
        dict(os.environ),
        Path.cwd(),
        random.getstate(),
        (generator[1].tobytes(), generator[2:]),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        len(warnings.filters),
    ]


def _facts(tokenizer: Any) -> list[Any]:
    """Return everything that a call may change in a tokenizer."""
    rust = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(rust, "to_str"):
        return [repr(sorted(vars(tokenizer).items(), key=lambda item: item[0]))]
    facts = [rust.to_str(), rust.padding, rust.truncation, rust.encode_special_tokens]
    if rust is not tokenizer:
        names = ("padding_side", "truncation_side", "model_max_length", "model_input_names", "special_tokens_map")
        facts += [repr(getattr(tokenizer, name)) for name in names] + [repr(tokenizer.init_kwargs)]
    return facts


@contextmanager
def unchanged(tokenizer: Any, *, draws: bool) -> Iterator[None]:
    """Assert that neither the process nor the tokenizer changes; torch's random state only if `draws`."""
    before, facts, generator = _process(), _facts(tokenizer), torch.get_rng_state()
    try:
        yield
    finally:
        after = _process()
        assert before == after, f"the process changed: {[a for a, b in zip(after, before, strict=True) if a != b]}"
        assert facts == _facts(tokenizer), "the tokenizer changed"
        assert draws or torch.equal(generator, torch.get_rng_state()), "torch's random state changed"


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal in type, shape, dtype and content."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and same(_array(one), _array(other))
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return (
            same(one.tolist(), other.tolist())
            if one.dtype == object
            else bool(
                np.array_equal(one, other) or (one.dtype.kind in "fc" and np.array_equal(one, other, equal_nan=True))
            )
        )
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, pd.Series | pd.DataFrame | pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch):
        return bool(one.equals(other))
    return one is other or one == other or (isinstance(one, float) and math.isnan(one))


def _array(value: Any) -> Any:
    return (
        value.detach().to(torch.float64 if value.is_floating_point() else value.dtype).numpy()
        if isinstance(value, torch.Tensor)
        else value
    )


# -------------------------------------------------------------------------------------------------------- expectations


def check(
    call: Callable[[], Any], wanted: Wanted, reference: Reference, numbered: Callable[[], Any] | None = None
) -> Any:
    """Call the collator and compare the result with the expected one; return the batch, or `None` if it is refused.

    `numbered` makes the same batch for a model that takes `document_ids`, and so no mask for packed rows.
    """
    try:
        with documented():
            batch = call()
    except Refused as refusal:
        if not matches(refusal, [*wanted.refusals, *wanted.may_refuse]):
            raise AssertionError(f"not to be refused: {refusal}") from None
        return None
    assert not wanted.refusals, f"must be refused: {wanted.refusals}"
    found, is_masked = dict(batch), reference.o["labels"] == "masked_lm"
    if is_masked and "input_ids" not in found:  # embedded for a model
        return batch
    if is_masked:
        found["input_ids"] = _unmasked(found, reference)
        (wanted.batch or {}).pop("inputs_embeds", None)
    if is_masked and reference.o["on_no_labels"] == "skip":
        pass  # which rows are left is random
    elif wanted.batch is not None:
        compare(found, wanted.batch)
    else:
        if "document_ids" not in found:
            assert numbered is not None
            found["document_ids"] = numbered()["document_ids"]
            compare_values("attention_mask", found.pop("attention_mask"), reference.isolating(found["document_ids"]))
        _check_packed(found, wanted.rows, reference)
    kind = np.ndarray if reference.o["return_tensors"] == "np" else torch.Tensor
    numbers = ("max_length_q", "max_length_k", "use_cache")
    assert all(isinstance(value, int if name in numbers else kind) for name, value in batch.items()), batch
    return batch


def matches(refusal: Refused, rules: list[str]) -> bool:
    """Return True if the first line of a refusal matches one of some regular expressions."""
    return any(re.search(rule, str(refusal).partition("\n")[0]) for rule in rules)


def check_batch(
    data: st.DataObject, tokenizer: Any, collate: Any, x: Any, wanted: Wanted, reference: Reference
) -> None:
    """Compare the batch of `x` with the expected one, and run the model on some batches."""

    def numbered() -> Any:
        spec = dataclasses.replace(collate.model, accepts=(*collate.model.accepts, "document_ids"))
        with documented():
            return collate.replace(model=spec).batch(x)

    runs = reference.family is not None and data.draw(st.integers(0, 7), "run") == 0  # masks may be random: draw before
    with unchanged(tokenizer, draws=reference.o["labels"] == "masked_lm"):
        batch = check(lambda: collate.batch(x), wanted, reference, numbered)
    if runs and batch is not None:
        reference.family.run(batch)


def compare(batch: Any, wanted: dict[str, Any]) -> None:
    """Assert that a batch has the expected keys and values."""
    assert set(batch) == set(wanted), f"keys {sorted(batch)}, expected {sorted(wanted)}"
    assert next(iter(batch)) == ("input_ids" if "input_ids" in wanted else "inputs_embeds")
    for name, right in wanted.items():
        if isinstance(right, int):
            assert batch[name] == right, name
        else:
            compare_values(name, batch[name], right)


def compare_values(name: str, found: Any, right: Any) -> None:
    """Assert that the values of a key are the expected ones; any value is right where NaN is expected in a mask."""
    assert tuple(found.shape) == right.shape, f"{name}: shape {found.shape}, expected {right.shape}"
    if name in ("inputs_embeds", "attention_mask"):
        found, known = _array(found), ~np.isnan(right)
        assert np.allclose(found[known], right[known], rtol=1e-5, atol=1e-5), name
    else:
        found = np.asarray(found)
        assert found.dtype == right.dtype, f"{name}: {found.dtype}, expected {right.dtype}"
        assert np.array_equal(found, right, equal_nan=found.dtype.kind == "f"), f"{name}: {found}\nnot {right}"


def _unmasked(batch: dict[str, Any], reference: Reference) -> Any:
    """Take the labels out of a batch, and return the ids before they were masked."""
    labels, ids = _array(batch.pop("labels")), _array(batch["input_ids"])
    batch.pop("inputs_embeds", None)
    special = {reference.id_of(role) for role in ("cls_token", "sep_token", "mask_token")} - {None}
    assert not np.isin(labels, list(special)).any(), "a special token is to be predicted"
    return np.where(labels == IGNORED, ids, labels)


def _check_packed(batch: Any, rows: list[Row], reference: Reference) -> None:
    """Assert that the documents of a packed batch are the expected ones, whole and in any order."""
    found, limit = [], reference.limit
    numbers, ids = _array(batch["document_ids"]), _array(batch["input_ids"])
    assert limit is not None
    assert "attention_mask" not in batch
    for row in range(len(ids)):
        inside = numbers[row] >= 0
        count = int(numbers[row].max(initial=-1)) + 1
        assert inside.sum() <= limit
        assert (ids[row][~inside] == reference.pad_id).all()
        runs = numbers[row][inside]
        assert (np.diff(runs) >= 0).all()
        assert sorted(set(runs.tolist())) == list(range(count))
        tokens = np.flatnonzero(inside)
        edge = tokens[0] if reference.side == "right" else len(inside) - 1 - tokens[-1]
        assert edge == 0, "padding on the wrong side"
        for number in range(count):
            here = numbers[row] == number
            names = [name for name in ("input_ids", "token_type_ids", "labels", "position_ids") if name in batch]
            found.append(tuple((name, tuple(_array(batch[name])[row][here].tolist())) for name in names))
    wanted = []
    for row in rows:
        one = [("input_ids", tuple(row.ids))]
        if "token_type_ids" in batch:
            one.append(("token_type_ids", tuple(row.types)))
        if "labels" in batch:
            assert row.labels is not None
            one.append(("labels", tuple(row.labels)))
        if "position_ids" in batch:
            one.append(("position_ids", tuple(reference.positions(row))))
        wanted.append(tuple(one))
    assert sorted(found) == sorted(wanted)


# --------------------------------------------------------------------------------------------------------------- parts


def made(kind: Kind, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return a tokenizer and its collator; raise `Refused` for settings that are refused."""
    tokenizer = kind.make()
    settings = {name: value for name, value in given.items() if name not in {*POSITIONAL, *MASKING}}
    positional = {name: value for name, value in given.items() if name in POSITIONAL}
    masking = {name: value for name, value in given.items() if name in MASKING}
    with unchanged(tokenizer, draws=False), documented():
        if masking and given.get("labels") == "masked_lm":
            if "mlm_probability" in settings:
                masking["mlm_probability"] = settings.pop("mlm_probability")
            settings["labels"] = MaskedLM(**masking)
        if positional and given.get("embedding") is not None:
            table = nn.Embedding.from_pretrained(torch.from_numpy(Reference(kind, given).table()))
            settings["embedding"] = PositionalEmbedding(table, **positional)
        return tokenizer, DataCollatorWithPositionalEncoding(tokenizer, **settings)


def _built(container: Callable[[Any], Any], values: Any, fallback: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return the values twice in a container; Arrow refuses some values, which then stay in lists."""
    try:
        return container(values), container(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError):
        return fallback(values), fallback(values)


def collate_texts(data: st.DataObject) -> int:
    """Texts, pairs and columns of texts, with any tokenizer and options, equal the reference."""
    kind, given = data.draw(kinds(), "tokenizer"), data.draw(options(), "options")
    try:
        tokenizer, collate = made(kind, given)
    except Refused:
        return 1
    reference = Reference(kind, given)
    o = reference.o
    calls = data.draw(st.integers(1, CALLS), "calls")
    for _ in range(calls):
        some = words if o["is_split_into_words"] else data.draw(st.sampled_from([texts, texts, texts, hostile]))
        count = data.draw(st.integers(1, 4))
        columns = {o["text_column"]: data.draw(st.lists(some, min_size=count, max_size=count), "texts")}
        shape = data.draw(st.sampled_from([*CONTAINERS, *SEQUENCES, "pairs", "one"]), "container")
        pairs = targets = None
        more: dict[str, list[Any]] = {}
        if shape in CONTAINERS:
            for column in ("text_pair_column", "text_target_column"):
                if o[column] is not None and o[column] not in columns:
                    columns[o[column]] = data.draw(st.lists(some, min_size=count, max_size=count), column)
            more = {name: values for name, values in data.draw(other_columns(count)).items() if name not in columns}
            x, twin = _built(CONTAINERS[shape], columns | more, CONTAINERS["rows"])
            if shape == "arrays":  # NumPy drops NULs at the end of texts
                columns = {name: x[name].tolist() if isinstance(x[name], np.ndarray) else x[name] for name in columns}
            pairs, targets = columns.get(o["text_pair_column"]), columns.get(o["text_target_column"])
        elif shape == "pairs":
            pairs = data.draw(st.lists(some, min_size=count, max_size=count), "second")
            x, twin = (list(zip(columns[o["text_column"]], pairs, strict=True)) for _ in range(2))
        elif shape == "one" and not o["is_split_into_words"]:
            columns = {o["text_column"]: columns[o["text_column"]][:1]}
            x = twin = columns[o["text_column"]][0]
        else:
            x, twin = _built(SEQUENCES.get(shape, list), columns[o["text_column"]], list)
            if isinstance(x, np.ndarray) and x.dtype.kind == "U":
                columns = {o["text_column"]: x.tolist()}
        wanted = reference.texts(columns[o["text_column"]], pairs, targets, more)
        embeds = o["embedding"] is not None and o["return_tensors"] == "pt" and data.draw(st.booleans(), "embed")
        with unchanged(tokenizer, draws=o["labels"] == "masked_lm"):
            check(lambda: (collate.embed if embeds else collate.batch)(x), wanted, reference)  # noqa: B023
        assert same(x, twin), "the input changed"
    return calls


def round_trips(data: st.DataObject) -> int:
    """A pickled, saved or replaced collator equals the first one, and columns make the same batch as rows."""
    kind, given = data.draw(kinds(), "tokenizer"), data.draw(options(without=POSITIONAL), "options")
    try:
        tokenizer, collate = made(kind, given)
    except Refused:
        return 1
    o = Reference(kind, given).o
    ways = ["pickle", "replace", "saved", *["columns", "table"] * 6, "map", "with_transform"]  # the last two are slow
    way = data.draw(st.sampled_from(ways), "way")
    other = collate
    if way in ("pickle", "replace", "saved"):
        with unchanged(tokenizer, draws=False), documented():
            other = copied(collate, way)
            if way == "saved":  # the backend is not, because it changes no output
                other = other.replace(backend=collate.backend)
        assert (other, hash(other), repr(other)) == (collate, hash(collate), repr(collate))
    one = words if o["is_split_into_words"] else texts
    names = [o[name] for name in ("text_column", "text_pair_column", "text_target_column") if o[name] is not None]
    repeats = o["labels"] != "masked_lm" or o["seed"] is not None
    calls = data.draw(st.integers(1, CALLS), "calls")
    for _ in range(calls):
        count = data.draw(st.integers(1, 3))
        columns = {name: data.draw(st.lists(one, min_size=count, max_size=count)) for name in names}
        with unchanged(tokenizer, draws=not repeats):
            batch = _refused_or(lambda: collate.batch(columns))  # noqa: B023
            if other is collate:
                again = _refused_or(lambda: collate.batch(_tokenized(collate, columns, way)))  # noqa: B023
            else:
                again = _refused_or(lambda: other.batch(columns))  # noqa: B023
        if isinstance(batch, str) or isinstance(again, str):
            # whether a row has a random label may differ
            assert type(batch) is type(again) or not repeats, f"{batch}\nbut after {way}\n{again}"
        elif repeats:
            compare(again, {name: _array(value) for name, value in batch.items()})
        else:
            assert set(batch) == set(again)
    return calls


def _refused_or(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the message of a documented error."""
    try:
        with documented():
            return call()
    except Refused as refusal:
        return str(refusal)


def _tokenized(collate: Any, columns: dict[str, Any], way: str) -> Any:
    """Return the columns tokenized, in one of several ways."""
    if way == "map":
        return datasets.Dataset.from_dict(columns).map(collate, batched=True).with_format("numpy")[:]
    if way == "with_transform":
        return datasets.Dataset.from_dict(columns).with_transform(collate)[:]
    return collate.columns(pa.table(columns) if way == "table" else columns)


def copied(collate: Any, way: str) -> Any:
    """Return a copy of the collator, made in one of several ways."""
    if way == "pickle":
        return pickle.loads(pickle.dumps(collate))
    if way == "replace":
        return collate.replace(seed=collate.seed)
    with tempfile.TemporaryDirectory() as folder:
        collate.save_pretrained(folder)
        return type(collate).from_pretrained(folder)


def wrong_settings(data: st.DataObject) -> int:
    """Settings of any kind make a collator that works, or raise a documented error."""
    kind, given = data.draw(kinds(), "tokenizer"), data.draw(wrong_options(), "options")
    try:
        tokenizer, collate = made(kind, given)
        with unchanged(tokenizer, draws=True), documented():
            collate([["I", "ride"], ["bike"]] if collate.is_split_into_words else ["I ride", "bike"])
            repr(collate)
            pickle.loads(pickle.dumps(collate))
    except Refused:
        pass
    return 1


_BAD_ROWS = st.sampled_from(
    [
        None,
        1,
        True,
        b"a",
        [],
        ["a"],
        ["a", 1],
        [1, 2],
        ("a", "b"),
        ("a", "b", "c"),
        {},
        {"text": 1},
        {"input_ids": 1},
        {"input_ids": [1]},
        {"input_ids": "a"},
        np.array("a"),
        np.nan,
        pd.NA,
        object(),
        torch.tensor([1]),
        {"text": "a", 1: 2},
        [[1]],
        "a",
        {"text": "a"},
        set(),
        2**70,
        np.array([["a"]]),
        np.str_("a"),
        [None],
        [1.5],
        [2**64],
        [-1],
    ]
)


def wrong_rows(data: st.DataObject) -> int:
    """Rows and columns of any kind make a batch, or raise a documented error, and are not changed."""
    kind, given = data.draw(kinds(), "tokenizer"), data.draw(options(most=2), "options")
    try:
        tokenizer, collate = made(kind, given)
    except Refused:
        return 1
    calls = data.draw(st.integers(1, CALLS), "calls")
    for _ in range(calls):
        count = data.draw(st.integers(0, 3))
        form = data.draw(st.sampled_from(["rows", "columns", "value", "odd columns", "ids"]), "form")
        x: Any
        if form == "rows":
            x = data.draw(st.lists(_BAD_ROWS, min_size=count, max_size=count), "rows")
        elif form == "value":
            x = data.draw(_BAD_ROWS, "value")
        elif form == "columns":
            names = st.sampled_from(["text", "input_ids", "attention_mask", "labels", "position_ids", "x", 1, None])
            x = {name: data.draw(st.lists(_BAD_ROWS, max_size=3)) for name in data.draw(st.lists(names, unique=True))}
        else:
            first = {"text": [["a"]] * count if collate.is_split_into_words else ["a"] * count}
            more = data.draw(other_columns(count, odd=True))
            columns = ({"input_ids": [[1, 2]] * count} if form == "ids" else first) | more
            container = data.draw(st.sampled_from(list(CONTAINERS)), "container")
            x, _ = _built(CONTAINERS[container], columns, CONTAINERS["columns"])
        before = repr(x)
        try:
            with unchanged(tokenizer, draws=True), documented():
                call = data.draw(st.sampled_from([collate, collate.batch, collate.columns]), "call")
                call(x)
        except Refused:
            pass
        assert repr(x) == before
    return calls


_PER_ROW_LABELS = st.sampled_from([0, 1, 2])


def collate_ids(data: st.DataObject) -> int:
    """Tokenized rows in any container, with documents, token types and labels, equal the reference."""
    kind = data.draw(kinds(), "tokenizer")
    given = data.draw(options(without=("text_target_column", "text_pair_column", "is_split_into_words")), "options")
    given.pop("whole_word_mask", None)
    try:
        tokenizer, collate = made(kind, given)
    except Refused:
        return 1
    return check_ids(data, tokenizer, collate, Reference(kind, given))


def check_ids(data: st.DataObject, tokenizer: Any, collate: Any, reference: Reference) -> int:
    """Compare batches of tokenized rows with the reference, and return their number."""
    calls = data.draw(st.integers(1, CALLS), "calls")
    for _ in range(calls):
        count = data.draw(st.integers(1, 4))
        lengths = data.draw(st.lists(st.integers(0, 12), min_size=count, max_size=count), "lengths")
        step = data.draw(st.integers(1, 9), "step")
        ids = [[(row + step * index) % 10 for index in range(length)] for row, length in enumerate(lengths)]
        columns: dict[str, list[Any]] = {"input_ids": ids}
        if data.draw(st.booleans(), "types"):
            columns["token_type_ids"] = [[index % 2 for index in range(length)] for length in lengths]
        start = data.draw(st.sampled_from([0, reference.first])) if reference.family is not None else 0
        columns |= data.draw(packed_columns(lengths, start), "documents")
        labels = data.draw(st.sampled_from(["none", "none", "row", "token", "copies"]), "labels")
        if labels == "row":
            columns["labels"] = data.draw(st.lists(_PER_ROW_LABELS, min_size=count, max_size=count))
        elif labels == "token":
            drawn = st.sampled_from([IGNORED, 1, 2])
            columns["labels"] = [data.draw(st.lists(drawn, min_size=length, max_size=length)) for length in lengths]
        elif labels == "copies":
            columns["labels"] = [list(row) for row in ids]
        shape = data.draw(
            st.sampled_from([*ID_ROWS, "frame", "table", "large table", "columns of arrays"]), "container"
        )
        x, twin = ids_in(columns, shape), ids_in(columns, shape)
        wanted = _wanted_ids(reference, columns)
        check_batch(data, tokenizer, collate, x, wanted, reference)
        assert same(x, twin), "the input changed"
        if data.draw(st.integers(0, 3), "padded rows") == 0:
            _check_padded_rows(data, collate, columns, reference)
    return calls


def _check_padded_rows(data: st.DataObject, collate: Any, columns: dict[str, list[Any]], reference: Reference) -> None:
    """Padding in the given rows, 0 in their `attention_mask`, changes nothing at their tokens, and no refusal."""
    o = reference.o
    if reference.padding == "do_not_pad" or (o["labels"] == "masked_lm" and o["seed"] is None):
        return
    sizes = [data.draw(st.sampled_from([(0, 0), (0, 3), (2, 0), (1, 2)]), "padding") for _ in columns["input_ids"]]
    fills = {"input_ids": reference.pad_id, "labels": IGNORED, "document_ids": -1}

    def padded(values: list[Any], fill: int) -> list[Any]:
        if not isinstance(values[0], list):
            return values
        return [[fill] * left + row + [fill] * right for row, (left, right) in zip(values, sizes, strict=True)]

    form = data.draw(st.sampled_from([int, bool, float]), "form of the mask")
    mask = padded([[form(1)] * len(row) for row in columns["input_ids"]], form(0))
    given = {name: padded(values, fills.get(name, 0)) for name, values in columns.items()} | {"attention_mask": mask}
    plain, other = _refused_or(lambda: collate.batch(columns)), _refused_or(lambda: collate.batch(given))
    if isinstance(plain, str) or isinstance(other, str):
        assert isinstance(plain, str), f"only padded rows are refused: {other}"
        assert isinstance(other, str), f"only rows without padding are refused: {plain}"
        assert rule_of(plain) == rule_of(other)
        return
    assert set(plain) == set(other)
    for name, right, found in _at_tokens(plain, other):
        assert np.array_equal(right, found, equal_nan=right.dtype.kind == "f"), f"{name}: {found}\nnot {right}"


def _at_tokens(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and the values at tokens, of each key of one value per token in two batches."""
    if not {"document_ids", "attention_mask"} & {*one}:  # a flat row has no padding
        yield from ((name, np.asarray(one[name]), np.asarray(other[name])) for name in one)
        return
    numbers = "document_ids" if "document_ids" in one else "attention_mask"
    tokens, others = (_array(batch[numbers]) >= (numbers == "attention_mask") for batch in (one, other))
    if tokens.ndim == 4 or "decoder_input_ids" in one:  # a mask of additive numbers, or targets
        return
    for name in {*one} - {"attention_mask", "look_ahead_mask"}:
        values = _array(one[name])
        if values.shape[:2] == tokens.shape:
            yield name, values[tokens], _array(other[name])[others]


def ids_in(columns: dict[str, list[Any]], shape: str) -> Any:
    """Return rows or columns of ids in a container."""
    if shape == "frame":
        return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    if shape in ("table", "large table"):

        def kind(values: list[Any]) -> Any:
            inner = pa.int64() if shape == "table" else pa.int32()
            return (pa.list_ if shape == "table" else pa.large_list)(inner) if isinstance(values[0], list) else None

        return pa.table({name: pa.array(values, kind(values)) for name, values in columns.items()})
    if shape == "columns of arrays":
        return {
            n: [np.array(v, dtype=np.int64) if isinstance(v, list) else v for v in values]
            for n, values in columns.items()
        }
    form = ID_ROWS[shape]
    signed = ID_ROWS["int64" if shape in ("uint16",) else shape]
    return [
        {
            n: (signed if n == "labels" else form)(v) if isinstance(v, list) else v
            for n, v in zip(columns, row, strict=True)
        }
        for row in zip(*columns.values(), strict=True)
    ]


def _wanted_ids(reference: Reference, columns: dict[str, list[Any]]) -> Wanted:
    """Return the expected result for tokenized rows."""
    wanted, limit, o = Wanted(), reference.limit, reference.o
    per_token = isinstance(columns.get("labels", [0])[0], list)
    none = [None] * len(columns["input_ids"])
    positions, documents = columns.get("position_ids", none), columns.get("document_ids")
    if positions is not none:
        documents = documents or documents_by(positions)
        if reference.family is not None and reference.first:
            positions = [
                _moved(row, numbers or [0] * len(row), reference.first, wanted)
                for row, numbers in zip(positions, documents, strict=True)
            ]
    documents = documents or none
    types, labels = columns.get("token_type_ids", none), columns.get("labels", none) if per_token else none
    truncates = limit is not None and reference.strategy != "do_not_truncate"
    is_numbered = "document_ids" in columns or any(numbers is not None for numbers in documents)
    for index, ids in enumerate(columns["input_ids"]):
        row = Row(ids, types[index], index, labels[index], positions[index], documents[index], is_numbered)
        row = row.closed()
        whole = row.split() if o["packing"] else [row]  # packed documents are truncated, not their rows
        wanted.rows += [piece for each in whole for piece in _cut(each, reference)] if truncates else [row]
    if per_token and "labels" in columns:
        if o["labels"] is None and reference.family is not None and reference.family.shift_targets:
            return _wanted_targets(reference, wanted, columns["labels"])
        pairs = [pair for row in wanted.rows for pair in zip(row.labels or (), row.ids, strict=True)]
        is_own = all(label in (token, IGNORED) for label, token in pairs)  # as `map` stores them
        if o["labels"] and not (o["labels"] == "causal_lm" and is_own):
            wanted.refusals.append("makes labels from the ids|masked already|no tokens|tokens, limit")
            return wanted
        return reference.batch(wanted, {}, None)
    if "labels" in columns and reference.family is not None and reference.family.has_logits_of_tokens:
        wanted.may_refuse.append("an output for each token")  # before the tokens are counted
    return reference.batch(wanted, {} if "labels" not in columns else {"labels": columns["labels"]}, None)


def _moved(positions: list[int], documents: list[int], first: int, wanted: Wanted) -> list[int]:
    """Return the positions of a row in the numbering of a model; those of a document may count from 0 or `first`."""
    moved = list(positions)
    for number in set(documents):
        places = [place for place, other in enumerate(documents) if other == number]
        if [positions[place] for place in places] == list(range(len(places))):
            for place in places:
                moved[place] += first
        elif any(positions[place] < first for place in places):
            wanted.refusals.append("those of a document must be")
    return moved


def _wanted_targets(reference: Reference, wanted: Wanted, labels: list[Any]) -> Wanted:
    """Return the expected result for tokenized rows whose labels are the targets of an encoder-decoder."""
    limit, targets = reference.target_limit, []
    if any(reference.pad_id in target[:1] + target[-1:] for target in labels):  # unless it is another token, too
        wanted.may_refuse.append("begins or ends with the padding id")
    for row in wanted.rows:
        row.labels = None
    for target in labels:
        real = [index for index, label in enumerate(target) if label != IGNORED]
        row = target[real[0] : real[-1] + 1] if real else []
        if limit is not None and len(row) > limit and reference.strategy == "do_not_truncate":
            wanted.refusals.append("the target of row")
        left = limit is not None and (not reference.kind.raw) and reference.kind.truncation_side == "left"
        targets.append(row[max(len(row) - limit, 0) :] if left else row[:limit])
    return reference.batch(wanted, {}, targets)


def _cut(row: Row, reference: Reference) -> list[Row]:
    """Truncate a row, or split it into windows."""
    limit, overflow = reference.limit, reference.overflow
    assert limit is not None
    stride = reference.o["stride"] if overflow else 0
    indices = list(range(len(row.ids)))
    left = (not reference.kind.raw) and reference.kind.truncation_side == "left"
    windows, start = [], 0
    ordered = indices[::-1] if left else indices
    while True:
        windows.append(sorted(ordered[start : start + limit]))
        if start + limit >= len(indices) or not overflow:
            break
        start += limit - stride

    def pick(values: list[int] | None, window: list[int]) -> Any:
        return None if values is None else [values[index] for index in window]

    per_token = ("ids", "types", "labels", "positions", "documents")
    return [
        dataclasses.replace(row, **{name: pick(getattr(row, name), w) for name in per_token}).closed() for w in windows
    ]

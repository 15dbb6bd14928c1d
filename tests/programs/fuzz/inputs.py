"""Hypothesis strategies for texts, rows, columns, containers and options of the collator.

Rows are drawn as plain lists; `contained` puts them into a container, so that an unchanged twin can be made.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from hypothesis import strategies as st

from .kinds import ROLES, WORDS

PIECES = [
    *WORDS,
    *WORDS,
    *(" ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u2028"),
    *(
        "bike ride",
        "I ride bike",
        "bike,she",
        "RIDE",
        "unsurprisingly",
        "12.5e9",
        "ing",
        "##ing",
        "▁",
        "Ġ",
        "<x>",
        "<X>",
        "[NEW]",
        "æ",
        " the",
    ),
    *ROLES.values(),
    *(
        "👨‍👩‍👧‍👦",
        "👍🏽",
        "🇨🇭",
        "❤️",
        "e\u0301",
        "a\u0300\u0301\u0345",
        "ﬁ",
        "½",
        "ẞ",
        "İ",
        "각",
        "\u1100\u1161",
        "हिन्दी",
    ),
    *(
        "אני",
        "\u202eab\u202c",
        "\x00",
        "\x01\x1b[31m",
        "\x7f\x85",
        "\ufffd",
        "\ue000",
        "\U0010ffff",
        "𝕳",
        "<0x41>",
        "x" * 30,
    ),
]
_LONG = ["ab" * 400, "bike " * 300, "é" * 700, "a\n" * 200, "👍" * 300, "[SEP]" * 100, "▁" * 500, "\u0301" * 300]


def _joined(pieces: list[str]) -> str:
    return "".join(pieces)


_short = st.lists(st.sampled_from(PIECES), max_size=6).map(_joined)
_any = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_long = st.lists(st.sampled_from([*_LONG, *PIECES]), min_size=1, max_size=3).map(_joined)
_spaced = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
# Texts, mostly short; one in many is long.
texts = st.one_of(_spaced, _spaced, _short, _short, _short, _any, st.one_of(_spaced, _short, _long))
hostile = st.one_of(texts, st.sampled_from(["", " ", "\ud800", "a\udfffb"]))
words = st.lists(st.sampled_from(list(PIECES)), max_size=5)


# ------------------------------------------------------------------------------------------------------------- options

_VALUES: dict[str, Any] = {
    "padding": st.sampled_from([True, False, "longest", "max_length", "max_length", "do_not_pad"]),
    "padding_side": st.sampled_from(["left", "right", "left"]),
    "pad_to_multiple_of": st.sampled_from([1, 2, 3, 4, 8, np.int64(2)]),
    "truncation": st.sampled_from([True, False, "longest_first", "only_first", "only_second", "do_not_truncate", None]),
    "max_length": st.integers(1, 14),
    "return_overflowing_tokens": st.sampled_from([True, True, False]),
    "stride": st.integers(0, 4),
    "add_special_tokens": st.booleans(),
    "on_empty": st.sampled_from(["keep", "keep", "error"]),
    "look_ahead": st.sampled_from([True, False, None]),
    "packing": st.sampled_from([True, "flat", False]),
    "labels": st.sampled_from(["causal_lm", "masked_lm", None]),
    "on_no_labels": st.sampled_from(["error", "skip", "keep", None]),
    "mlm_probability": st.sampled_from([0.0, 0.15, 0.5, 1.0]),
    "seed": st.sampled_from([None, 0, 7, 2**40]),
    "pad_token": st.sampled_from(["eos", "[PAD]", "[UNK]", "bike"]),
    "embedding": st.integers(1, 6),
    "store_embeddings": st.booleans(),
    "backend": st.sampled_from(["auto", "fast", "tokenizers", "tokenizers"]),
    "return_tensors": st.sampled_from(["np", "np", "pt"]),
    "text_column": st.sampled_from(["text", "body", ""]),
    "text_pair_column": st.sampled_from(["second", "text"]),
    "text_target_column": st.sampled_from(["target", "text"]),
    "is_split_into_words": st.booleans(),
    "max_target_length": st.integers(1, 6),
}
# Settings of the arguments `embedding` and `labels`.
POSITIONAL: dict[str, Any] = {
    "convention": st.sampled_from(["vaswani", "fairseq", "marian", "m2m100", "whisper", "musicgen", "tensor2tensor"]),
    "base": st.sampled_from([None, 2.0, 10000]),
    "scale": st.sampled_from([None, "sqrt_d", 2.0, 0.0]),
    "zero_padding": st.booleans(),
}
MASKING: dict[str, Any] = {
    "mask_replace_prob": st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    "random_replace_prob": st.sampled_from([0.0, 0.1, 0.2, 1.0]),
    "whole_word_mask": st.booleans(),
}
_ALL = _VALUES | POSITIONAL | MASKING
_WRONG = st.one_of(
    st.sampled_from([None, True, False, -1, 0, 1, 2, 3.5, -0.1, 1e308, float("nan"), float("inf"), 10**30, -(2**63)]),
    st.sampled_from(["", "x", "left", "max_length", "é\ud800", b"left", (), [], [1], {}, {"a": 1}, set(), object, ...]),
    st.sampled_from([np.int64(3), np.float32(0.5), np.bool_(True), np.array([1, 2]), np.array(3), torch.tensor(2)]),
    st.sampled_from([decimal.Decimal(1), datetime.date(2024, 1, 1), range(3), torch.nn.Linear(1, 1), "error" * 50]),
)


@st.composite
def options(
    draw: st.DrawFn, *, most: int = 6, without: Iterable[str] = (), only: Iterable[str] = tuple(_ALL)
) -> dict[str, Any]:
    """Draw some arguments of the collator, and settings of its embedding and labels, in any combination."""
    names = st.sampled_from([name for name in only if name not in without])
    return {name: draw(_ALL[name]) for name in draw(st.lists(names, max_size=most, unique=True))}


@st.composite
def wrong_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of the collator of which at least one has a value of any kind."""
    given = draw(options(most=4, only=_VALUES))
    names = st.lists(st.sampled_from([*_VALUES, "model", "embedding", "max_lenght"]), min_size=1, max_size=2)
    return given | {name: draw(_WRONG) for name in draw(names)}


# ---------------------------------------------------------------------------------------------------------- containers


def _frame(columns: dict[str, list[Any]]) -> Any:
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def _arrays(columns: dict[str, list[Any]]) -> Any:
    return {name: np.array(values) if _are(values, str, int, float) else values for name, values in columns.items()}


def _are(values: list[Any], *kinds: type) -> bool:
    return len(set(map(type, values))) == 1 and type(values[0]) in kinds


# Containers of rows by name: functions from columns to a sequence of rows, or to columns.
CONTAINERS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "columns": lambda columns: columns,
    "arrays": _arrays,
    "rows": lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
    "tuple of rows": lambda columns: tuple(CONTAINERS["rows"](columns)),
    "frame": _frame,
    "table": pa.table,
    "chunked table": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1)]),
    "record batch": pa.RecordBatch.from_pydict,
    "arrow columns": lambda columns: {name: pa.array(values) for name, values in columns.items()},
}
# Containers of texts alone.
SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "numpy": lambda values: np.array(values, dtype=object),
    "numpy str": lambda values: np.array(values) if _are(values, str) else list(values),
    "series": lambda values: pd.Series(values, dtype=object),
    "arrow": pa.array,
    "iterator": lambda values: dict.fromkeys(range(len(values))) and list(values),
}
# Forms of a row of ids.
ID_ROWS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "int64": lambda row: np.array(row, dtype=np.int64),
    "int32": lambda row: np.array(row, dtype=np.int32),
    "uint16": lambda row: np.array(row, dtype=np.uint16),
    "big endian": lambda row: np.array(row, dtype=">i4"),
    "strided": lambda row: np.repeat(np.array(row, dtype=np.int64), 2)[::2],
    "read-only": lambda row: _read_only(np.array(row, dtype=np.int64)),
    "torch": lambda row: torch.tensor(row, dtype=torch.int64),
    "torch int32": lambda row: torch.tensor(row, dtype=torch.int32),
}


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


# ------------------------------------------------------------------------------------------------------- other columns

_NAMES = st.sampled_from(["idx", "score", "label", "labels", "label_ids", "tags", "length", "name", "lang", "x"])
_NUMBERS = (
    lambda n: st.lists(st.integers(-3, 3), min_size=n, max_size=n),
    lambda n: st.lists(st.floats(-2, 2, width=32), min_size=n, max_size=n),
    lambda n: st.lists(st.booleans(), min_size=n, max_size=n),
    lambda n: st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=n, max_size=n),
    lambda n: st.lists(st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3), min_size=n, max_size=n),
    lambda n: st.lists(st.sampled_from(["a", "b", ""]), min_size=n, max_size=n),
    lambda n: st.just([None] * n),
)
_ODD = st.sampled_from(
    [
        None,
        0,
        1.5,
        True,
        "a",
        b"a",
        [],
        [1],
        [1, 2],
        [[1], [2, 3]],
        ["a"],
        {"a": 1},
        2**63,
        -(2**63),
        2**53 + 1,
        10**40,
        float("nan"),
        float("inf"),
        np.float16(1),
        datetime.datetime(2024, 1, 1),  # not np.datetime64: pyarrow 26 crashes at a NumPy number after it
        decimal.Decimal("1.5"),
        (1, 2),
        {1},
        1 + 2j,
        np.array([1, 2]),
        np.array(["a"]),
        torch.tensor([1.0]),
        torch.tensor([1.0], requires_grad=True),
        pd.NA,
        ...,
    ]
)


@st.composite
def other_columns(draw: st.DrawFn, count: int, *, odd: bool = False) -> dict[str, list[Any]]:
    """Draw columns with one value per row: numbers, lists of one length, texts; with `odd`, values of any kind."""
    names = draw(st.lists(_NAMES, max_size=2, unique=True))
    if not odd:
        return {name: draw(draw(st.sampled_from(_NUMBERS))(count)) for name in names}
    return {name: draw(st.lists(_ODD, min_size=count, max_size=count)) for name in names}


@st.composite
def packed_columns(draw: st.DrawFn, lengths: list[int], first: int = 0) -> dict[str, list[Any]]:
    """Draw `position_ids` that restart at `first`, or `document_ids`, or both or none, for rows of documents.

    Without `position_ids` the documents of a row may be interleaved.
    """
    names = draw(st.sampled_from([(), (), ("position_ids",), ("document_ids",), ("position_ids", "document_ids")]))
    columns: dict[str, list[Any]] = {name: [] for name in names}
    step = draw(st.sampled_from([1, 1, 4]))
    for length in lengths if names else []:
        starts = [0, *sorted(draw(st.sets(st.integers(1, max(length - 1, 1)), max_size=3 if length > 1 else 0)))]
        stops = [*starts[1:], length]
        tokens = [range(first, first + stop - start) for start, stop in zip(starts, stops, strict=True)]
        numbers = [step * number for number, run in enumerate(tokens) for _ in run]
        if names == ("document_ids",) and draw(st.integers(0, 3)) == 0:
            numbers = draw(st.permutations(numbers))  # documents need not be contiguous
        made = list(zip(numbers, [token for run in tokens for token in run], strict=True))
        for name in names:
            columns[name].append([pair[name == "position_ids"] for pair in made])
    return columns

"""Rows of a part, held against Python's own reading of the same bytes: splitting, decoding, `json.loads`."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_posenc.jobs.reading.json_rows import JsonLines
from hf_posenc.jobs.reading.rows import CHOSEN, Reading, Rows, rows_of
from hf_posenc.jobs.task import Part

ID = pa.schema([("id", pa.int64())])


def lines(payload: bytes, first: int = 1) -> Rows:
    return rows_of(Part("a.txt", "lines", first, payload), Reading())


def json_lines(*documents: object, schema: pa.Schema = ID, raw: bytes = b"") -> Rows:
    payload = b"".join(json.dumps(document).encode() + b"\n" for document in documents) + raw
    return rows_of(Part("a.jsonl", "jsonl", 1, payload), Reading(schema=schema))


def texts(rows: Rows) -> list[str | None]:
    return rows.table["text"].to_pylist()


# --------------------------------------------------------------------------------------------------------------- lines


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r")), min_size=1), st.booleans())
def test_lines_are_what_splitting_at_line_feeds_gives(documents: list[str], ends: bool) -> None:
    payload = "\n".join(documents) + ("\n" if ends or not documents[-1] else "")
    rows = lines(payload.encode(), first=7)
    assert texts(rows) == documents
    assert rows.numbers.tolist() == list(range(7, 7 + len(documents)))
    assert rows.bad == {}
    assert rows.table.schema == pa.schema([("text", pa.string())])


def test_only_a_line_feed_ends_a_line_and_a_carriage_return_before_it_goes() -> None:
    assert texts(lines(b"a\r\nb\x0bc\x0c\xc2\x85\xe2\x80\xa8\rd\n\r\n")) == ["a", "b\x0bc\x0c\x85\u2028\rd", ""]


def test_nul_characters_and_empty_lines_are_text() -> None:
    rows = lines(b"a\0b\n\n \n")
    assert texts(rows) == ["a\0b", "", " "]
    assert rows.bad == {}


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=5).map(str.encode), st.binary(max_size=5)), min_size=1))
def test_bytes_that_are_not_utf8_make_their_own_line_bad_and_no_other(documents: list[bytes]) -> None:
    documents = [document.replace(b"\n", b"").replace(b"\r", b"") for document in documents]
    rows = lines(b"".join(document + b"\n" for document in documents))
    for row, (document, text) in enumerate(zip(documents, texts(rows), strict=True)):
        good = document.decode(errors="ignore").encode() == document
        assert text == (document.decode() if good else None)
        assert good or rows.bad[row].startswith("is not UTF-8: byte 0x")
    assert len(rows.bad) == texts(rows).count(None)


def test_a_line_of_20_megabytes_is_a_row() -> None:
    rows = lines(b"a\n" + b"x" * 20_000_000 + b"\nb")
    assert [len(text or "") for text in texts(rows)] == [1, 20_000_000, 1]


# ---------------------------------------------------------------------------------------------------------- JSON lines

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**62), 2**62), st.text(st.characters(codec="utf-8"))),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["text", "id", "else"]), VALUES, max_size=3)


@settings(deadline=None)
@given(st.lists(st.one_of(OBJECTS, VALUES)), st.booleans())
def test_json_lines_with_chosen_columns_are_what_json_loads_gives(documents: list[Any], ascii_only: bool) -> None:
    payload = "".join(json.dumps(document, ensure_ascii=ascii_only) + "\n" for document in documents).encode()
    rows = rows_of(Part("a.jsonl", "jsonl", 1, payload), Reading(schema=ID.with_metadata(CHOSEN)))
    assert rows.table.num_rows == len(documents)
    for row, document in enumerate(documents):
        good = isinstance(document, dict) and isinstance(document.get("text"), str)
        good = good and type(document.get("id")) in (int, type(None))
        assert (row not in rows.bad) == good
        if good:
            assert texts(rows)[row] == document["text"]
            assert rows.table["id"][row].as_py() == document.get("id")


@settings(deadline=None)
@given(st.lists(st.sampled_from([{"text": "a", "id": 1}, {"text": 2}, "b", {"text": "c", "x": 1}, {}]), max_size=9))
def test_a_json_line_is_read_the_same_whatever_its_neighbours_are(documents: list[object]) -> None:
    together = json_lines(*documents)
    alone = [json_lines(document) for document in documents]
    assert together.table.to_pylist() == [one.table.to_pylist()[0] for one in alone]
    assert together.bad == {row: one.bad[0] for row, one in enumerate(alone) if one.bad}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": 7}', "column 'text' is int, expected text"),
        (b'{"text": null}', "column 'text' is null"),
        (b'{"text": ["a"]}', "column 'text' is a list, expected text"),
        (b'{"texte": "a"}', "has no column 'text'; its columns are 'texte'"),
        (b'{"text": "a', "is not JSON: Unterminated string"),
        (b'{"text": "a"} {"text": "b"}', "is not JSON: Extra data"),
        (b'["a"]', "is a list, expected an object with a column 'text'"),
        (b"plain words", "is not JSON: Expecting value"),
        (b'{"text": "a\xff"}', "is not UTF-8: byte 0xff at position 11"),
        (b'{"text": "\\ud800"}', "column 'text' is not Unicode: it holds half a surrogate pair"),
        (b'{"text": "a", "id": "x"}', "column 'id' is text, expected int64 as in the first rows"),
        (
            b'{"text": "a", "new": 1}',
            "has a column 'new', which the first rows did not have; name the columns to carry",
        ),
        (b'{"text": "a", "text": "b"}', "is not JSON as Arrow reads it: Column(/text) was specified twice"),
        (b'{"text": "a", "id": NaN}', "column 'id' is float, expected int64"),
    ],
)
def test_a_bad_json_line_says_why_and_leaves_the_others_alone(line: bytes, reason: str) -> None:
    rows = rows_of(
        Part("a.jsonl", "jsonl", 5, b'{"text": "a"}\n\n' + line + b'\n{"text": "b", "id": 3}'),
        Reading("text", None, ID),
    )
    assert list(rows.bad) == [1]
    assert reason in rows.bad[1]
    assert texts(rows)[::2] == ["a", "b"]
    assert rows.table["id"].to_pylist()[2] == 3
    assert rows.numbers.tolist() == [5, 7, 8]


def test_objects_that_share_a_line_or_spread_over_two_are_not_taken_for_lines() -> None:
    rows = json_lines(raw=b'{"text": "a"} {"text": "b"}\n{"text":\n"c"}\n{"text": "d"}\n')
    assert texts(rows) == [None, None, None, "d"]
    assert list(rows.bad) == [0, 1, 2]


def test_json_lines_may_end_in_carriage_returns_and_have_blanks_around_them() -> None:
    rows = json_lines(raw=b'{"text": "a"}\r\n  {"text": "b"}  \r\n \t\r\n\r\n{"text": "c"}')
    assert texts(rows) == ["a", "b", "c"]
    assert rows.numbers.tolist() == [1, 2, 5]


def test_a_pair_of_texts_is_read_and_both_must_be_there() -> None:
    reading = Reading("question", "answer", pa.schema([]))
    part = Part("qa.jsonl", "jsonl", 1, b'{"question": "a", "answer": "b"}\n{"question": "c"}\n')
    rows = rows_of(part, reading)
    assert rows.table.to_pylist() == [{"question": "a", "answer": "b"}, {"question": "c", "answer": None}]
    assert rows.bad == {1: "has no column 'answer'; its columns are 'question'"}


# ---------------------------------------------------------------------------------------------------------- paragraphs


@settings(deadline=None)
@given(st.text(st.sampled_from("ab \t\n\r"), max_size=40).filter(lambda text: text.strip(" \t\r\n")))
def test_paragraphs_are_what_lies_between_blank_lines(text: str) -> None:
    rows = rows_of(Part("a.txt", "paragraphs", 1, text.encode()), Reading())
    expected: list[list[str]] = [[]]
    first = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line.strip(" \t\r"):
            if not expected[-1]:
                first.append(number)
            expected[-1].append(line)
        elif expected[-1]:
            expected.append([])
    assert texts(rows) == ["\n".join(document) for document in expected if document]
    assert rows.numbers.tolist() == first


def test_what_a_worker_is_told_is_small() -> None:
    reading = Reading("text", None, ID)
    assert pickle.loads(pickle.dumps(reading)) == reading
    assert len(pickle.dumps(reading)) < 2000
    assert np.issubdtype(lines(b"a").numbers.dtype, np.int64)


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "I ride a bike", "id": 1, "new": 2}',
        b'{"text": "I ride a bike", "id": 1.5}',
        b'{"text": "I ride a bike", "id": "one"}',
        b'{"text": 7, "id": 1}',
        b'{"body": "I ride a bike", "id": 1}',
        b"plain words",
        b'{"text": "I r\xffde"}',
    ],
)
def test_bad_json_lines_are_no_slower_to_find_than_python_reads_them(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    parse = JsonLines._parse
    monkeypatch.setattr(JsonLines, "_parse", lambda self, *given: parsed.append(given) or parse(self, *given))
    payload = b'{"text": "a", "id": 1}\n' + (line + b"\n") * 500 + b'{"text": "b", "id": 2}\n'
    rows = rows_of(Part("a.jsonl", "jsonl", 1, payload), Reading(schema=ID))
    assert list(rows.bad) == list(range(1, 501))
    assert texts(rows)[0::501] == ["a", "b"]
    assert rows.table["id"].to_pylist() == [1, *[None] * 500, 2] or line.startswith(b'{"body"')
    assert len(parsed) <= 2  # of Arrow's parser, each of which costs more than a hundred lines do Python


# --------------------------------------------------------------------------------------------------- how bad rows begin


def test_bad_rows_are_shown_as_their_file_has_them() -> None:
    late = json_lines({"text": "a", "id": 1}, {"text": "b", "late": 2}, raw=b'\n{"text": \xff}\n')
    assert late.excerpts == {1: '{"text": "b", "late": 2}', 2: '{"text": \\xff}'}
    assert lines(b"a\nb\xff\n").excerpts == {1: "b\\xff"}
    paragraphs = rows_of(Part("a.txt", "paragraphs", 1, b"a\n\nb\n\xff\n"), Reading())
    assert paragraphs.excerpts == {1: "b\n\\xff"}
    table = pa.table({"text": pa.array([b"a", b"\xff"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    assert rows_of(Part("a", "arrow", 0, sink.getvalue().to_pybytes()), Reading()).excerpts == {1: "\\xff"}


def test_what_is_shown_of_a_row_is_short() -> None:
    assert [len(text) for text in lines(b"\xff" * 9999 + b"\n" + "é".encode() * 9999 + b"\xff").excerpts.values()] == [
        200,
        200,
    ]

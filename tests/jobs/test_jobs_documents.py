"""Documents of a file, held against Python's own reading of the same bytes: splitting, decoding, `json`, `csv`."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_posenc import jobs
from hf_posenc.jobs import read_documents

DOCUMENTS = {"lines": "line", "paragraphs": "paragraph", "file": "file"}


def batches(payload: bytes, kind: str = "lines", *, text_pair_column: str | None = None, **carried: str) -> list[Any]:
    """The documents of a file with this content and the named types of its further columns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt" if kind in DOCUMENTS else f"a.{kind}")
        path.write_bytes(payload)
        columns = [f"{name}:{type_}" if type_ else name for name, type_ in carried.items()]
        document = DOCUMENTS.get(kind, "line")
        options = jobs.Options(document=document, columns=columns, text_pair_column=text_pair_column)
        sources = jobs.open_sources([path], options)
        return list(read_documents(next(sources.tasks(1 << 30)), sources.columns))


def read(payload: bytes, kind: str = "lines", **options: Any) -> Any:
    """The documents of a file that is small enough to be one batch."""
    (rows,) = batches(payload, kind, **options)
    return rows


def texts(rows: Any) -> list[str | None]:
    """The texts, `None` for bad ones."""
    return [None if row in rows.bad else text for row, text in enumerate(rows.texts[0])]


# --------------------------------------------------------------------------------------------------------------- lines


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\ufeff")), min_size=1), st.booleans())
def test_lines_are_what_splitting_at_line_feeds_gives_and_blank_ones_are_counted(lines: list[str], ends: bool) -> None:
    payload = "\n".join(lines) + ("\n" if ends or not lines[-1] else "")
    rows = read(payload.encode())
    assert list(zip(rows.numbers, texts(rows), strict=True)) == [
        (number, line) for number, line in enumerate(lines, 1) if line.strip()
    ]
    assert rows.blank == sum(not line.strip() for line in lines)
    assert rows.bad == {}


def test_only_a_line_feed_ends_a_line_and_a_carriage_return_before_it_goes() -> None:
    rows = read(b"a\r\nb\x0bc\x0c\xc2\x85\xe2\x80\xa8\rd\n\r\nn\0l")
    assert texts(rows) == ["a", "b\x0bc\x0c\x85\u2028\rd", "n\0l"]
    assert rows.numbers == [1, 2, 4]


@given(st.lists(st.one_of(st.text(max_size=5).map(str.encode), st.binary(max_size=5)), min_size=1))
def test_bytes_that_are_not_utf8_make_their_own_line_bad_and_no_other(lines: list[bytes]) -> None:
    lines = [b"x" + line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    rows = read(b"".join(line + b"\n" for line in lines))
    for row, (line, text) in enumerate(zip(lines, texts(rows), strict=True)):
        good = line.decode(errors="ignore").encode() == line
        assert text == (line.decode() if good else None)
        assert good or rows.bad[row].startswith("is not UTF-8: byte 0x")


def test_a_file_is_read_in_batches_of_a_megabyte() -> None:
    found = batches((b"x" * 999 + b"\n") * 3000)
    assert [len(rows.numbers) for rows in found] == [1049, 1049, 902]
    assert [number for rows in found for number in rows.numbers] == list(range(1, 3001))


def test_short_lines_are_read_a_few_at_a_time_and_keep_their_numbers() -> None:
    found = batches(b"a\n\n" * 400_000)
    assert [number for rows in found for number in rows.numbers] == list(range(1, 800_000, 2))
    assert max(len(rows.numbers) + rows.blank for rows in found) == 1 << 15
    assert sum(rows.blank for rows in found) == 400_000


# ---------------------------------------------------------------------------------------------------------- JSON lines

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(codec="utf-8"))),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["text", "meta", "else"]), VALUES, max_size=3)


@given(st.lists(st.one_of(OBJECTS, VALUES), min_size=1), st.booleans())
def test_json_lines_are_what_json_gives_and_nothing_carried_as_text_is_lost(values: list[Any], escaped: bool) -> None:
    values = [{"text": "the first line names the columns"}, *values]
    lines = [json.dumps(value, ensure_ascii=escaped) for value in values]
    rows = read("".join(f"{line}\n" for line in lines).encode(), "jsonl", meta="string")
    assert rows.numbers == list(range(1, len(values) + 1))
    for row, value in enumerate(values):
        good = isinstance(value, dict) and isinstance(value.get("text"), str)
        assert (row not in rows.bad) == good
        if good:
            assert texts(rows)[row] == value["text"]
            carried, meta = rows.carried["meta"][row].as_py(), value.get("meta")
            assert carried == meta if isinstance(meta, str | None) else json.loads(carried) == meta


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
        (b'{"text": "a", "id": "x"}', "column 'id' is 'x', expected int64"),
        (b'{"text": "a", "id": 1.5}', "column 'id' is 1.5, expected int64"),
        (b'{"text": "a", "id": NaN}', "is not JSON: NaN is not a JSON value"),
        (b"[" * 100_000, "is not JSON: "),
    ],
)
def test_a_bad_json_line_has_a_reason_and_leaves_the_others_alone(line: bytes, reason: str) -> None:
    payload = b'{"text": "a"}\n\n' + line + b'\r\n{"text": "b", "id": 3, "new": [{}]}'
    rows = read(payload, "jsonl", id="int64")
    assert list(rows.bad) == [1]
    assert rows.bad[1].startswith(reason)
    assert texts(rows) == ["a", None, "b"]
    assert rows.carried["id"].to_pylist() == [None, None, 3]
    assert (rows.numbers, rows.blank) == ([1, 3, 4], 1)


def test_a_text_is_good_whatever_its_other_columns_hold_unless_a_type_is_named() -> None:
    values = [1, "00123", 2.5, True, None, {"a": [1]}, 2**70]
    payload = "".join(json.dumps({"text": "a", "n": value}) + "\n" for value in values).encode()
    rows = read(payload, "jsonl", n="string")
    assert rows.bad == {}
    assert rows.carried["n"].to_pylist() == ["1", "00123", "2.5", "true", None, '{"a": [1]}', str(2**70)]
    rows = read(payload, "jsonl", n="int64")
    assert rows.carried["n"].to_pylist() == [1, 123, None, None, None, None, None]
    assert list(rows.bad) == [2, 3, 5, 6]


def test_deeply_nested_values_are_carried() -> None:
    nested = "[" * 500 + "]" * 500
    rows = read(f'{{"text": "a", "n": {nested}}}\n'.encode(), "jsonl", n="string")
    assert rows.carried["n"].to_pylist() == [nested]


def test_both_texts_of_a_pair_must_be_there() -> None:
    payload = b'{"text": "a", "answer": "b"}\n{"text": "c"}\n'
    rows = read(payload, "jsonl", text_pair_column="answer")
    assert rows.texts == [["a", ""], ["b", ""]]
    assert rows.bad == {1: "has no column 'answer'; its columns are 'text'"}


# ----------------------------------------------------------------------------------------------------------------- CSV


@given(st.lists(st.tuples(st.text(st.sampled_from('aé," \n')), st.text(st.sampled_from('b,"\t\n'))), min_size=1))
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_csv_records_are_those_that_were_written_with_the_numbers_of_their_lines(
    kind: str, records: list[tuple[str, str]]
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
    writer.writerow(["text", "note"])
    begins = []
    for record in records:
        begins.append(1 + file.getvalue().count("\n"))
        writer.writerow(record)
    rows = read(file.getvalue().encode(), kind, note="string")
    assert rows.texts[0] == [text for text, _ in records]
    assert rows.carried["note"].to_pylist() == [note for _, note in records]
    assert rows.numbers == begins


def test_csv_keeps_words_and_digits_as_they_are_written_unless_a_type_is_named() -> None:
    payload = b'n,text\n00123,"a, ""b""\nc"\r\n\r\nNA,null\r\n,d\r\nx,e\r\n1,2,3\r\n1,\xff\r\n\xff,f\r\n7,'
    rows = read(payload, "csv", n="string")
    assert texts(rows) == ['a, "b"\nc', "null", "d", "e", None, None, None, ""]
    assert rows.carried["n"].to_pylist() == ["00123", "NA", "", "x", None, None, None, "7"]
    assert (rows.numbers, rows.blank) == ([2, 5, 6, 7, 8, 9, 10, 11], 1)
    assert rows.bad == {
        4: "has 3 fields, but the header has 2",
        5: "column 'text' is not UTF-8: byte 0xff at position 0 (invalid start byte)",
        6: "column 'n' is not UTF-8: byte 0xff at position 0 (invalid start byte)",
    }
    assert rows.excerpts == {4: "1,2,3", 5: "1,\\xff", 6: "\\xff,f"}
    rows = read(payload, "csv", n="int64")
    assert rows.carried["n"].to_pylist() == [123, None, None, None, None, None, None, 7]
    assert rows.bad[1] == "column 'n' is 'NA', expected int64"
    assert 2 not in rows.bad  # an empty field


def test_a_csv_field_of_megabytes_is_a_text() -> None:
    assert len(read(b'text\n"' + b"x" * 5_000_000 + b'"\n', "csv").texts[0][0]) == 5_000_000


# ---------------------------------------------------------------------------------------------------------- paragraphs


@given(st.text(st.sampled_from("ab \t\n\r\f\x85\xa0à\u2028\u3000"), max_size=40).filter(lambda text: text.strip()))
def test_paragraphs_are_what_lies_between_blank_lines(text: str) -> None:
    rows = read(text.encode(), "paragraphs")
    expected: list[list[str]] = [[]]
    first = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line.strip():
            if not expected[-1]:
                first.append(number)
            expected[-1].append(line)
        elif expected[-1]:
            expected.append([])
    assert texts(rows) == ["\n".join(document) for document in expected if document]
    assert rows.numbers == first


# --------------------------------------------------------------------------------------------------------- whole files


def test_a_whole_file_is_one_document_with_its_last_line_end() -> None:
    rows = read(b"\xef\xbb\xbfI ride\r\n\r\n bike\r \n\n", "file")
    assert (texts(rows), rows.numbers, rows.blank) == (["I ride\n\n bike\r \n\n"], [1], 0)


def test_a_blank_file_is_counted_and_one_that_is_not_utf8_is_bad_from_its_first_line() -> None:
    rows = read(b"I\nride \xff\n", "file")
    assert (texts(rows), rows.numbers, rows.excerpts) == ([None], [1], {0: "I\nride \\xff"})
    assert rows.bad == {0: "is not UTF-8: byte 0xff at position 7 (invalid start byte)"}
    with tempfile.TemporaryDirectory() as folder:
        for name, payload in {"a": b"I\n", "b": " \n\u3000\n".encode(), "c": b"", "d": b"ride"}.items():
            Path(folder, f"{name}.txt").write_bytes(payload)
        sources = jobs.open_sources(folder, jobs.Options(document="file"))
        found = [rows for task in sources.tasks(3) for rows in read_documents(task, sources.columns)]
    assert [text for rows in found for text in texts(rows)] == ["I\n", "ride"]
    assert sum(rows.blank for rows in found) == 1


# -------------------------------------------------------------------------------------------------------------- tables


def stream(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def test_strings_of_a_table_that_are_null_or_not_utf8_are_bad_rows() -> None:
    spoilt = pa.array([b"a", b"b\xff", b"c", None]).view(pa.string())
    plain = pa.array(["x", "y", None, "z"])
    rows = read(stream(pa.table({"text": spoilt, "note": plain})), "arrow", note="string")
    reason = "is not UTF-8: byte 0xff at position 1 (invalid start byte)"
    assert rows.bad == {1: f"column 'text' {reason}", 3: "column 'text' is null"}
    assert texts(rows) == ["a", None, "c", None]
    assert (rows.numbers, rows.excerpts) == ([0, 1, 2, 3], {1: "b\\xff", 3: ""})
    rows = read(stream(pa.table({"text": plain, "note": spoilt})), "arrow", note="string")
    assert rows.bad == {1: f"column 'note' {reason}", 2: "column 'text' is null"}
    assert rows.carried["note"].to_pylist() == ["a", None, "c", None]


def test_a_table_is_read_in_batches_of_a_megabyte() -> None:
    table = pa.table({"text": [f"{number} " + "x" * 1000 for number in range(3000)], "id": range(3000)})
    found = batches(stream(table), "arrow", id="")
    assert len(found) > 2
    assert [text for rows in found for text in rows.texts[0]] == table["text"].to_pylist()
    assert pa.concat_tables([rows.carried for rows in found])["id"].to_pylist() == list(range(3000))


def test_many_empty_texts_are_read_a_few_at_a_time() -> None:
    found = batches(stream(pa.table({"text": [""] * 70_000})), "arrow")
    assert [len(rows.numbers) for rows in found] == [1 << 15, 1 << 15, 70_000 - (2 << 15)]


def test_bad_documents_are_shown_as_their_file_has_them_and_short() -> None:
    assert read(b"a\nb\xff\n").excerpts == {1: "b\\xff"}
    assert read(b"a\n\nb\n\xff\n", "paragraphs").excerpts == {1: "b\n\\xff"}
    assert read(b'{"text": ""}\n{"text": \xff}\n', "jsonl").excerpts == {1: '{"text": \\xff}'}
    assert len(read(b"\xff" * 9999 + b"\n").excerpts[0]) == 200

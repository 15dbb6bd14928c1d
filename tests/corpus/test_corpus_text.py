"""Documents of a file, compared with Python's own reading of the same bytes: splitting, decoding, `json`, `csv`."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import math
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Read, content, read

SOME = settings(max_examples=40, deadline=None)
ONE_BYTE = {"max_length": 1, "too_long": "error"}  # options that reject all longer documents
SHARD_BYTES = st.one_of(st.integers(1, 40), st.just(1 << 20))


def texts(found: Read) -> list[str | None]:
    """The texts, `None` for bad ones."""
    return [None if row in found.bad else text for row, text in enumerate(found.texts)]


# --------------------------------------------------------------------------------------------------------------- lines


@SOME
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\ufeff"), max_size=9), min_size=1),
    st.booleans(),
    SHARD_BYTES,
)
@pytest.mark.parametrize("kind", ["txt", "txt.gz"])
def test_lines_are_what_splitting_at_line_feeds_gives_however_they_are_divided(
    kind: str, lines: list[str], ends: bool, shard_bytes: int
) -> None:
    lines = [*lines, "last"]
    payload = ("\n".join(lines) + "\n" * ends).encode()
    stored = gzip.compress(payload) if kind == "txt.gz" else payload
    found = content(stored, kind, shard_bytes=shard_bytes)
    begins = [len("".join(f"{line}\n" for line in lines[:number]).encode()) for number in range(len(lines))]
    assert list(zip(found.begins, texts(found), strict=True)) == [
        (begin, line) for begin, line in zip(begins, lines, strict=True) if line.strip()
    ]
    long = [number for number, line in enumerate(lines, 1) if line.strip() and len(line.encode()) > 1]
    assert content(stored, kind, shard_bytes=shard_bytes, **ONE_BYTE).lines == long
    assert found.manifest.totals["blank"] == sum(not line.strip() for line in lines)
    assert sum(record["lines"] for record in found.manifest.shards) == len(lines)


def test_only_a_line_feed_ends_a_line_and_a_carriage_return_before_it_goes() -> None:
    found = content(b"a\r\nb\x0bc\x0c\xc2\x85\xe2\x80\xa8\rd\n\r\nn\0l")
    assert found.texts == ["a", "b\x0bc\x0c\x85\u2028\rd", "n\0l"]
    assert found.begins == [0, 3, 17]


@SOME
@given(st.lists(st.one_of(st.text(max_size=5).map(str.encode), st.binary(max_size=5)), min_size=1))
def test_bytes_that_are_not_utf8_make_their_own_line_bad_and_no_other(lines: list[bytes]) -> None:
    lines = [b"x" + line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    found = content(b"".join(line + b"\n" for line in lines), shard_bytes=20)
    for row, (line, text) in enumerate(zip(lines, texts(found), strict=True)):
        good = line.decode(errors="ignore").encode() == line
        assert text == (line.decode() if good else None)
        assert good or found.bad[row].startswith("is not UTF-8: byte 0x")


def test_a_part_may_lie_inside_one_line_and_hold_no_document() -> None:
    found = content(b"I ride\n" + b"x" * 100 + b"\nbike\n", shard_bytes=10)
    assert found.texts == ["I ride", "x" * 100, "bike"]
    assert [record["documents"] for record in found.manifest.shards] == [2, *[0] * 9, 1, 0]


# ---------------------------------------------------------------------------------------------------------- JSON lines

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(codec="utf-8"))),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.sampled_from(["text", "meta", "else"]), VALUES, max_size=3)


@SOME
@given(st.lists(st.one_of(OBJECTS, VALUES), min_size=1), st.booleans())
def test_json_lines_are_what_json_gives_and_nothing_carried_as_text_is_lost(values: list[Any], escaped: bool) -> None:
    values = [{"text": "the first line names the columns"}, *values]
    lines = [json.dumps(value, ensure_ascii=escaped) for value in values]
    payload = "".join(f"{line}\n" for line in lines).encode()
    found = content(payload, "jsonl", columns=["meta:string"])
    assert [payload[begin:].decode().partition("\n")[0] for begin in found.begins] == lines
    for row, value in enumerate(values):
        good = isinstance(value, dict) and isinstance(value.get("text"), str)
        assert (row not in found.bad) == good
        if good:
            assert texts(found)[row] == value["text"]
            carried, meta = found.carried["meta"][row].as_py(), value.get("meta")
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
        (b'{"text": NaN}', "column 'text' is NaN, expected text"),
        (b'{"text": -Infinity}', "column 'text' is -Infinity, expected text"),
        (b"NaN", "is NaN, expected an object with a column 'text'"),
        (b'{"text": "a", "id": NaN}', "column 'id' is nan, expected int64"),
        (b'{"text": "a", "id": Infinity}', "column 'id' is inf, expected int64"),
        (b'{"text": "a", "id": nan}', "is not JSON: Expecting value"),
        (b"[" * 100_000, "is not JSON: "),
    ],
)
def test_a_bad_json_line_has_a_reason_and_leaves_the_others_alone(line: bytes, reason: str) -> None:
    payload = b'{"text": "a"}\n\n' + line + b'\r\n{"text": "b", "id": 3, "new": [{}]}'
    found = content(payload, "jsonl", columns=["id:int64"])
    assert list(found.bad) == [1]
    assert found.bad[1].startswith(reason)
    assert texts(found) == ["a", None, "b"]
    assert found.carried["id"].to_pylist() == [None, None, 3]
    assert (found.begins, found.lines, found.blank) == ([0, 15, 17 + len(line)], [3], 1)


def test_a_text_is_good_whatever_its_other_columns_hold_unless_a_type_is_named() -> None:
    values = [1, "00123", 2.5, True, None, {"a": [1]}, 2**70]
    payload = "".join(json.dumps({"text": "a", "n": value}) + "\n" for value in values).encode()
    found = content(payload, "jsonl", columns=["n:string"])
    assert found.bad == {}
    assert found.carried["n"].to_pylist() == ["1", "00123", "2.5", "true", None, '{"a": [1]}', str(2**70)]
    found = content(payload, "jsonl", columns=["n:int64"])
    assert found.carried["n"].to_pylist() == [1, 123, None, None, None, None, None]
    assert list(found.bad) == [2, 3, 5, 6]


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_numbers_that_are_not_finite_are_read_as_json_pyarrow_datasets_and_pandas_read_them(
    kind: str, tmp_path: Path
) -> None:
    values = [math.nan, 1.5, math.inf, None, -math.inf, 2]
    lines = [json.dumps({"text": f"t{n}", "score": value, "meta": {"s": [value]}}) for n, value in enumerate(values)]
    payload = ("\n".join(lines) + '\n{"text": "a", "score": "NaN"}\n').encode()
    assert texts(content(payload, "jsonl")) == [*(f"t{n}" for n in range(6)), "a"]
    found = content(payload, "jsonl", columns=[f"score:{kind}"])
    assert found.bad == {}
    assert repr(found.carried["score"].to_pylist()) == "[nan, 1.5, inf, None, -inf, 2.0, nan]"
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(payload.splitlines()[:6]))
    theirs: list[Any] = [
        pyarrow.json.read_json(tmp_path / "a.jsonl")["score"].to_pylist(),
        datasets.load_dataset("json", data_files=str(tmp_path / "a.jsonl"), split="train", cache_dir=str(tmp_path))[
            "score"
        ][:],
    ]
    assert all(repr(one) == repr(found.carried["score"].to_pylist()[:6]) for one in theirs), theirs
    pandas = pd.read_json(tmp_path / "a.jsonl", lines=True)["score"]
    np.testing.assert_array_equal(pandas, found.carried["score"].to_pandas()[:6])


NUMBERS = ["1.10", "1e400", "-0", "-0.0", "1E5", "12345678901234567890.00", "0", "1e-7", "NaN", "-Infinity", "7"]
OBJECTS_AS_WRITTEN = ['{"price":1.10,  "unit": "\\u20ac }, \\"n\\": 2"}', "[1.0,[ 2e3 ]]", "[]", "{}", "true"]


@pytest.mark.parametrize("kind", ["", ":string", ":large_string"])
def test_numbers_that_are_carried_as_text_keep_the_letters_of_the_file(kind: str) -> None:
    for values in (NUMBERS, OBJECTS_AS_WRITTEN):
        lines = [
            *(f'{{"text": "a", "n": {value}, "also": [{{"n": 2.50}}]}}' for value in values),
            *(f' {{\t"n"  :{value} ,"text":"a"\t}}  ' for value in values),
        ]
        assert content("\n".join(lines).encode(), "jsonl", columns=[f"n{kind}"]).carried["n"].to_pylist() == values * 2
    twice = content(b'{"n": 1.0, "text": "a", "\\u006e": 2.50}\n', "jsonl", columns=[f"n{kind}"])
    assert twice.carried["n"].to_pylist() == ["2.50"]
    table = "".join(f"a,{value}\n" for value in NUMBERS).encode()
    assert content(b"text,n\n" + table, "csv", columns=[f"n{kind}"]).carried["n"].to_pylist() == NUMBERS


@SOME
@given(st.lists(OBJECTS, min_size=1), st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\t: ")]), st.booleans())
def test_what_is_carried_as_text_stands_in_the_line_and_has_its_value(
    values: list[dict[str, Any]], separators: tuple[str, str], escaped: bool
) -> None:
    lines = [
        json.dumps({"text": "a", **value, "n": 0.5}, separators=separators, ensure_ascii=escaped) for value in values
    ]
    found = content("\n".join(lines).encode(), "jsonl", columns=["meta:string", "n:string"])
    for row, value in enumerate(values):
        meta, carried = value.get("meta"), found.carried["meta"][row].as_py()
        if row not in found.bad and not isinstance(meta, str | None):
            assert carried in lines[row]
            assert json.loads(carried) == meta


def test_deeply_nested_values_are_carried() -> None:
    nested = "[" * 500 + "]" * 500
    found = content(f'{{"text": "a", "n": {nested}}}\n'.encode(), "jsonl", columns=["n:string"])
    assert found.carried["n"].to_pylist() == [nested]


def test_both_texts_of_a_pair_must_be_there() -> None:
    payload = b'{"text": "a", "answer": "b"}\n{"text": "c"}\n'
    found = content(payload, "jsonl", text_pair_column="answer")
    assert texts(found) == ["ab", None]
    assert found.bad == {1: "has no column 'answer'; its columns are 'text'"}


# ----------------------------------------------------------------------------------------------------------------- CSV


@SOME
@given(st.lists(st.tuples(st.text(st.sampled_from('aé," \n')), st.text(st.sampled_from('b,"\t\n')))), SHARD_BYTES)
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_csv_records_are_those_that_were_written_with_the_bytes_and_lines_where_they_begin(
    kind: str, records: list[tuple[str, str]], shard_bytes: int
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
    writer.writerow(["text", "note"])
    begins, long = [], []
    for record in (records := [*records, ("last", "")]):
        begins.append(len(file.getvalue().encode()))
        if len(record[0].encode()) != 1:
            long.append(1 + file.getvalue().count("\n"))
        writer.writerow(record)
    found = content(file.getvalue().encode(), kind, columns=["note"], shard_bytes=shard_bytes)
    assert found.texts == [text for text, _ in records]
    assert found.carried["note"].to_pylist() == [note for _, note in records]
    assert found.begins == begins
    assert content(file.getvalue().encode(), kind, shard_bytes=shard_bytes, **ONE_BYTE).lines == long


def test_csv_keeps_words_and_digits_as_they_are_written_unless_a_type_is_named() -> None:
    payload = b'n,text\n00123,"a, ""b""\nc"\r\n\r\nNA,null\r\n,d\r\nx,e\r\n1,2,3\r\n1,\xff\r\n\xff,f\r\n7,'
    found = content(payload, "csv", columns=["n:string"])
    assert texts(found) == ['a, "b"\nc', "null", "d", "e", None, None, None, ""]
    assert found.carried["n"].to_pylist() == ["00123", "NA", "", "x", None, None, None, "7"]
    records = [b"00123,", b"NA,", b",d", b"x,", b"1,2,3", b"1,\xff", b"\xff,f", b"7,"]
    assert (found.begins, found.blank) == ([payload.index(record) for record in records], 1)
    assert found.lines == [8, 9, 10, 11]
    assert found.bad == {
        4: "has 3 fields, but the header has 2",
        5: "column 'text' is not UTF-8: byte 0xff at position 0 (invalid start byte)",
        6: "column 'n' is not UTF-8: byte 0xff at position 0 (invalid start byte)",
    }
    assert found.excerpts == {4: "1,2,3", 5: "1,\\xff", 6: "\\xff,f"}
    found = content(payload, "csv", columns=["n:int64"])
    assert found.carried["n"].to_pylist() == [123, None, None, None, None, None, None, 7]
    assert found.bad[1] == "column 'n' is 'NA', expected int64"
    assert 2 not in found.bad  # an empty field


def test_a_csv_field_of_megabytes_is_a_text() -> None:
    assert len(content(b'text\n"' + b"x" * 5_000_000 + b'"\n', "csv").texts[0]) == 5_000_000


def test_a_quotation_mark_inside_a_csv_field_is_an_ordinary_character() -> None:
    assert content(b'text,n\n5" pipe,3\n"a\nb",4\n7" pipe,"x""\ny"\n', "csv").texts == ['5" pipe', "a\nb", '7" pipe']


# ---------------------------------------------------------------------------------------------------------- paragraphs


@SOME
@given(st.text(st.sampled_from("ab \t\n\r\f\x85\xa0à\u2028\u3000"), max_size=40), SHARD_BYTES)
@pytest.mark.parametrize("kind", ["txt", "txt.gz"])
def test_paragraphs_are_what_lies_between_blank_lines_however_they_are_divided(
    kind: str, text: str, shard_bytes: int
) -> None:
    text += "\n\nlast"
    payload = gzip.compress(text.encode()) if kind == "txt.gz" else text.encode()
    found = content(payload, kind, document="paragraph", shard_bytes=shard_bytes)
    expected: list[list[str]] = [[]]
    first: list[int] = []
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            if not expected[-1]:
                first.append(number)
            expected[-1].append(line)
        elif expected[-1]:
            expected.append([])
    assert texts(found) == ["\n".join(document) for document in expected if document]
    ends = [at for at, byte in enumerate(text.encode()) if byte == 10]
    assert found.begins == [0 if line == 1 else ends[line - 2] + 1 for line in first]
    long = [line for line, words in zip(first, texts(found), strict=True) if words and len(words.encode()) > 1]
    assert content(payload, kind, document="paragraph", shard_bytes=shard_bytes, **ONE_BYTE).lines == long
    assert sum(record["lines"] for record in found.manifest.shards) == len(lines)


# --------------------------------------------------------------------------------------------------------- whole files


def test_a_whole_file_is_one_document_with_its_last_line_end(tmp_path: Path) -> None:
    found = content(b"\xef\xbb\xbfI ride\r\n\r\n bike\r \n\n", document="file")
    assert (found.texts, found.begins, found.blank) == (["I ride\n\n bike\r \n\n"], [3], 0)
    found = content(b"I\nride \xff\n", document="file")
    assert (texts(found), found.begins, found.lines, found.excerpts) == ([None], [0], [1], {0: "I\nride \\xff"})
    assert found.bad == {0: "is not UTF-8: byte 0xff at position 7 (invalid start byte)"}
    for name, payload in {"a": b"I\n", "b": " \n\u3000\n".encode(), "c": b"", "d": b"ride"}.items():
        Path(tmp_path, f"{name}.txt").write_bytes(payload)
    found = read(tmp_path, document="file", shard_bytes=3)
    assert (found.texts, found.blank) == (["I\n", "ride"], 1)


# ------------------------------------------------------------------------------------------ compressed, marked, damaged


@pytest.mark.parametrize("kind", ["gz", "bz2", "zst", "lz4", "xz"])
def test_a_compressed_file_may_have_several_members_and_is_read_up_to_the_damage(tmp_path: Path, kind: str) -> None:
    lines = [f"{number * 7919:09}" for number in range(20_000)]
    path = tmp_path / f"a.jsonl.{kind}"
    names = {"gz": "gzip", "zst": "zstd"}
    with path.open("wb") as file:
        for first in (0, 10_000):
            raw = "".join(json.dumps({"text": line}) + "\n" for line in lines[first : first + 10_000]).encode()
            sink = pa.BufferOutputStream()
            if kind == "xz":
                sink.write(lzma.compress(raw, preset=0))
            else:
                with pa.CompressedOutputStream(sink, names.get(kind, kind)) as stream:
                    stream.write(raw)
            file.write(sink.getvalue())
    whole = read(path, shard_bytes=100_000)
    assert whole.texts == lines
    assert whole.shards == 5
    path.write_bytes(path.read_bytes()[:-9])
    *rest, damaged = texts(found := read(path, shard_bytes=100_000))
    assert rest == lines[: len(rest)]
    assert damaged is None
    assert "it is cut off or damaged" in found.bad[len(rest)]
    assert (found.begins[-1], found.lines) == (22 * len(rest), [len(rest) + 1])
    with pytest.raises(ValueError, match=rf"(?s)a\.jsonl\.{kind}, line \d+: cannot be read further.*download.*skip"):
        read(path, on_bad_row="error")


def test_only_a_damaged_file_is_to_be_downloaded_again() -> None:
    with pytest.raises(ValueError, match="is 'cannot be read further', expected int64") as refused:
        content(b"text,n\na,cannot be read further\n", "csv", columns=["n:int64"], on_bad_row="error")
    assert "download" not in str(refused.value)


def test_zeros_behind_a_gzip_file_are_padding() -> None:
    assert content(gzip.compress(b"a\n") + bytes(3000), "txt.gz").texts == ["a"]


def test_one_compressed_file_that_is_most_of_the_input_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"".join(b"I ride %d\n" % (number * 7919) for number in range(5000))))
    found = read(path, workers=1, shard_bytes=10_000)
    assert any("is most of the input, and is read by one worker, because it is gzip" in one for one in found.messages)
    assert found.shards > 5


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("txt", b"I ride\r\nbike"),
        ("jsonl", b'{"text": "I ride"}\r\n{"text": "bike"}'),
        ("csv", b"text,n\r\nI ride,1\r\nbike,2"),
    ],
)
def test_byte_order_marks_carriage_returns_and_a_missing_last_line_end_are_no_part_of_a_document(
    kind: str, payload: bytes
) -> None:
    for shard_bytes in (1, 4, 7, 1 << 20):
        assert content(b"\xef\xbb\xbf" + payload, kind, shard_bytes=shard_bytes).texts == ["I ride", "bike"]


@pytest.mark.parametrize(
    ("kind", "document"), [("txt", "line"), ("txt", "paragraph"), ("txt", "file"), ("jsonl", "line")]
)
def test_a_document_longer_than_the_limit_is_refused(kind: str, document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_posenc.corpus.text.LONGEST", 1 << 20)
    payload = b"\n\n" + (b"ab \n" if document == "paragraph" else b"abcd") * (1 << 20) + b"\n"
    with pytest.raises(
        ValueError, match=r"a\.\w+: one \w+ is longer than 1 MiB\n  got: no end of it in 1,048,576 bytes"
    ):
        content(payload, kind, document=document)


@pytest.mark.parametrize("document", ["line", "paragraph", "file"])
@pytest.mark.parametrize("kind", ["txt", "txt.gz"])
def test_a_document_of_nine_megabytes_is_one_text(kind: str, document: str) -> None:
    long = "bike ☂ ride " * 600_000
    payload = f"a\n\n{long}\n\nb\n".encode()
    found = content(
        gzip.compress(payload, 1) if kind == "txt.gz" else payload, kind, document=document, shard_bytes=1 << 20
    )
    if document == "file":
        assert found.texts == [f"a\n\n{long}\n\nb\n"]
    else:
        assert [len(text) for text in found.texts] == [1, len(long), 1]
        assert found.texts[1] == long
        assert found.begins == [0, 3, len(payload) - 2]


def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"I ride\n" * 20)

    def meddle(self: Read, **_: Any) -> None:
        path.write_bytes(b"I rode\n" * 21)

    monkeypatch.setattr(Read, "start", meddle)
    with pytest.raises(ValueError, match=r"a\.txt changed while it was read\n  got: 140 bytes became 147"):
        read(path, shard_bytes=70)


# --------------------------------------------------------------------------------------------- files of another format


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ("bike".encode("utf-16"), "txt", r"a\.txt must be UTF-8.*UTF-16.*save it as UTF-8"),
        (b"id;text\n1;a\n", "csv", r'a\.csv has no commas.*semicolons.*sep=";"'),
        (b"id\ttext\n1\ta\n", "csv", r"a\.csv has no commas.*tabs.*\.tsv"),
        *(
            (payload, "json", rf'a\.json must be JSON lines, [^\n]*\n  got: [^\n]*{words}.*load_dataset\("json"')
            for payload, words in (
                (b' [{"text": "a"},\n{"text": "b"}]', "a list"),
                (b'{\n  "text": "a",\n  "b": {\n    "c": 1\n  }\n}', "an object on several lines"),
                (b'{"text": "a",\n "b": 1}\n{"text": "b",\n "b": 1}', "an object on several lines"),
                (b'{"version": 1, "data": [{"text": "a"}]}', "in its list 'data'"),
            )
        ),
    ],
)
def test_files_of_another_format_are_refused_with_the_way_to_read_them(payload: bytes, kind: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){words}"):
        content(payload, kind)


@pytest.mark.parametrize("payload", ['{"text": "a", "data": [{"text": "b"}]}', '{"text": 1\n{"text": "a"}', "{\n[1]\n"])
def test_json_lines_that_only_look_alike_are_read(payload: str) -> None:
    assert len(content(payload.encode(), "json").texts) == len(payload.splitlines())


def test_commas_in_a_table_with_tabs_are_text() -> None:
    assert content(b"id\ttext\n1\ta, b\n", "tsv").texts == ["a, b"]


def test_bad_documents_are_shown_as_their_file_has_them_and_short() -> None:
    assert content(b"a\nb\xff\n").excerpts == {1: "b\\xff"}
    assert content(b"a\n\nb\n\xff\n", document="paragraph").excerpts == {1: "b\n\\xff"}
    assert content(b'{"text": ""}\n{"text": \xff}\n', "jsonl").excerpts == {1: '{"text": \\xff}'}
    assert len(content(b"\xff" * 9999 + b"\n").excerpts[0]) == 200

"""Documents that are read block by block in the workers, against the same documents handed over as bytes."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from hf_posenc import jobs

PARTS = [b"a", b"ride ", "é".encode(), "☂".encode(), "👍🏽".encode(), b" ", b"\t", "\u3000".encode()]
PARTS += [b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n", b"\xff", b"\xc3", b"\xe2\x98"]
PARTS += ["\n\u2028\xa0\r\n".encode(), "à\n\x85\u3000\f\n".encode(), b"\n\xe3\x80\n"]
PAYLOADS = st.lists(st.sampled_from(PARTS), max_size=40).map(b"".join)


@contextmanager
def long_documents(kept: int = 0, block: int = 1 << 20, piece: int = 1 << 16) -> Iterator[None]:
    """Read all documents of more than `kept` bytes in blocks of `block` bytes, and tokenize pieces of `piece`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_posenc.jobs.text_files._KEPT", kept)
        patch.setattr("hf_posenc.jobs.files._BLOCK", block)
        for module in ("encoder", "pieces"):
            patch.setattr(f"hf_posenc.tokenization.{module}.LONG_TEXT", piece)
        patch.setattr("hf_posenc.tokenization.pieces._AT_ONCE", 2 * piece)
        patch.setattr("hf_posenc.tokenization.pieces.SEARCHED", 4 * piece)
        yield


def documents(path: Path, shard_bytes: int, **options: Any) -> tuple[list[Any], int]:
    """The documents of each task with its size, digest and place, and the number of documents read by the worker."""
    sources = jobs.open_sources([path], jobs.Options(**options))
    found: list[Any] = []
    long = 0
    for task in sources.tasks(shard_bytes):
        long += sum(part.range is not None for part in task.parts)
        inside: list[Any] = []
        for some in jobs.read_documents(task, sources.columns):
            if hasattr(some, "blocks"):
                text = "".join(some.blocks)
                some.finish()
                if not some.is_blank or some.bad is not None:
                    inside.append((some.part.first, None if some.bad else text, some.bad))
                elif some.part.kind != "paragraphs":  # blank lines between paragraphs are not counted
                    inside.append("blank")
            else:
                inside += ["blank"] * some.blank
                texts = [None if row in some.bad else text for row, text in enumerate(some.texts[0])]
                inside += [(n, texts[row], some.bad.get(row)) for row, n in enumerate(some.numbers)]
        found.append((inside, task.begins, task.ends, task.size, task.digest()))
    return found, long


@settings(max_examples=150, deadline=None)
@given(
    payload=PAYLOADS,
    block=st.integers(1, 9),
    shard_bytes=st.integers(1, 30),
    form=st.sampled_from(["stored", "compressed", "damaged"]),
)
@pytest.mark.parametrize("document", ["line", "paragraph", "file"])
def test_texts_reasons_and_digests_do_not_depend_on_the_way_of_reading(
    document: str, payload: bytes, block: int, shard_bytes: int, form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    payload = b"\xef\xbb\xbfI ride my bike to the sea. " + payload
    if form != "stored":
        payload = gzip.compress(payload)[: None if form == "compressed" else -9]
    path = tmp_path_factory.mktemp("corpus") / ("a.txt" if form == "stored" else "a.txt.gz")
    path.write_bytes(payload)
    expected, long = documents(path, shard_bytes, document=document)
    assert long == 0
    with long_documents(block=block):
        assert documents(path, shard_bytes, document=document)[0] == expected


def test_a_document_of_nine_megabytes_is_read_in_the_worker(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"I ride\n" + b"bike " * 1_800_000 + b"\nshe said\n")
    found, long = documents(path, 100)
    assert long == 1
    assert [text for inside, *_ in found for _, text, _ in inside] == ["I ride", "bike " * 1_800_000, "she said"]


def test_a_worker_does_not_decompress_a_long_file_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_posenc.jobs.text_files._LARGEST", 1000)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d " % number * 150 + b"\n" for number in range(8))))
    with long_documents(kept=100, block=50):
        found, long = documents(path, 150)
    assert long == 4  # those that begin within the first 1,000 bytes
    assert [text for inside, *_ in found for _, text, _ in inside] == [f"{number} " * 150 for number in range(8)]


def prose(number: int) -> str:
    return " ".join(f"I ride my bike to the sea, she said: {number + at}!" for at in range(8 + number))


def corpus(folder: Path, kind: str) -> Path:
    """A corpus of long and short documents, some of them bad or blank."""
    texts = [prose(0), "short", prose(5) + " naïve ☂ 👍🏽 " + prose(2), "\u3000" * 300, "bad \udcff" + prose(9)]
    texts += [prose(3) + " bad at its end \udce2\udc98", prose(40), "\u200b" * 400, "she said"]
    if kind == "jsonl":
        lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
        (folder / "a.jsonl").write_bytes("\n".join(lines).encode(errors="surrogateescape"))
        return folder / "a.jsonl"
    if kind == "file":
        (folder / "files").mkdir()
        for number, text in enumerate(texts):
            (folder / "files" / f"{number}.txt").write_bytes(text.replace(",", "\r\n").encode(errors="surrogateescape"))
        return folder / "files"
    end = {"line": "\r\n", "paragraph": "\r\n \t\n"}[kind]
    text = end.join(texts) if kind == "line" else end.join(texts).replace(",", "\r\n")
    (folder / "a.txt").write_bytes(text.encode(errors="surrogateescape"))
    return folder / "a.txt"


def read(task: Any, columns: Any) -> list[Any]:
    """All documents of a task, read to their end."""
    found = list(jobs.read_documents(task, columns))
    for one in found:
        if hasattr(one, "finish"):
            one.finish()
    return found


class Quiet(jobs.Progress):
    """Shows no messages."""

    def message(self, text: str) -> None:
        pass


def files(folder: Path) -> dict[str, bytes]:
    """The content of each file of an output folder."""
    hidden = {".lock", ".state.json"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in hidden
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "one row": {"on_bad_row": "skip", "source_columns": True},
    "truncated": {"on_bad_row": "keep-empty", "max_length": 12},
    "split": {"on_bad_row": "skip", "max_length": 20, "too_long": "split", "stride": 3},
    "refused": {"on_bad_row": "keep-empty", "max_length": 60, "too_long": "error"},
    "packed": {"on_bad_row": "skip", "pack": 40, "too_long": "split", "labels": "causal_lm", "source_columns": True},
}


@pytest.mark.parametrize("kind", ["line", "paragraph", "file", "jsonl"])
@pytest.mark.parametrize(
    ("name", "setting"),
    [(name, setting) for name in ("wordpiece", "byte_bpe") for setting in OPTIONS]
    + [("unigram", "split"), ("sentencepiece_bpe", "truncated"), ("slow", "split"), ("word_level", "packed")],
)
def test_the_output_is_byte_identical(
    name: str, setting: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    tokenizer.model_max_length = 10**30
    options = {"document": "line" if kind == "jsonl" else kind, "shard_bytes": 150, "workers": 0, **OPTIONS[setting]}
    path = corpus(tmp_path, kind)
    with long_documents(kept=1 << 30, block=37):  # as the size of blocks is that of the digests of files
        manifest = jobs.encode(path, tokenizer, tmp_path / "whole", progress=Quiet(), **options)
    assert manifest.totals["rejected"] >= 2
    with long_documents(kept=100, block=37, piece=60):
        assert documents(path, 150, document=options["document"])[1] == 7
        jobs.encode(path, tokenizer, tmp_path / "blocks", progress=Quiet(), **options)
    assert files(tmp_path / "blocks") == files(tmp_path / "whole")


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow])])
def test_workers_read_the_documents_of_a_compressed_file(engine: Any, wordpiece: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\n".join(prose(number) for number in range(6)).encode()))
    options = {"shard_bytes": 150, "max_length": 20, "too_long": "split"}
    jobs.encode(path, wordpiece, tmp_path / "whole", progress=Quiet(), workers=0, **options)
    with long_documents(kept=100, block=50):
        jobs.encode(path, wordpiece, tmp_path / "blocks", progress=Quiet(), workers=1, engine=engine, **options)
    found = files(tmp_path / "blocks")
    assert {name: found[name] for name in found if name.startswith("data/")} == {
        name: content for name, content in files(tmp_path / "whole").items() if name.startswith("data/")
    }


@pytest.mark.parametrize("kind", ["line", "paragraph", "file", "jsonl"])
@pytest.mark.parametrize("after", [b"x" * 80, b"", b"\xff" * 80], ids=["text", "empty", "not UTF-8"])
def test_a_file_that_changes_between_the_reader_and_the_worker_is_named(
    kind: str, after: bytes, wordpiece: Any, tmp_path: Path
) -> None:
    path = corpus(tmp_path, kind)
    path = path / "0.txt" if kind == "file" else path
    with long_documents(kept=100, block=50):
        sources = jobs.open_sources([path], jobs.Options(document="line" if kind == "jsonl" else kind))
        task = next(sources.tasks(150))
        before = path.stat()
        content = path.read_bytes()
        path.write_bytes(content[:50] + after + content[50 + len(after) :] if after else b"")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(ValueError, match=rf"{path.name} changed while it was read(.|\n)*content from byte 0"):
            read(task, sources.columns)
        with pytest.raises(ValueError, match="changed while it was read"):
            task.digest()


def test_a_file_that_changes_is_no_bad_document(
    wordpiece: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("I ride\n" + prose(20) + "\n")

    def changed(task: Any, columns: Any) -> Iterator[Any]:
        if task.shard == 1:
            path.write_bytes(path.read_bytes()[:-99] + b"\xff" * 99)
        yield from jobs.read_documents(task, columns)

    monkeypatch.setattr("hf_posenc.jobs.tokenizing.read_documents", changed)
    options = {"shard_bytes": 20, "workers": 0, "on_bad_row": "skip"}
    with long_documents(kept=100, block=50), pytest.raises(ValueError, match=r"a\.txt changed while(.|\n)*from byte 7"):
        jobs.encode(path, wordpiece, tmp_path / "out", progress=Quiet(), **options)
    assert [path.name for path in (tmp_path / "out/data").iterdir()] == ["shard-000000.parquet"]


def test_a_document_that_the_tokenizer_refuses_far_inside_is_rejected(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"I": 0, "ride": 1}))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "a.txt"
    path.write_text("I ride " * 200 + "bike\nI ride\n")
    with long_documents(kept=100, block=50, piece=30):
        options = {"shard_bytes": 100, "workers": 0, "on_bad_row": "skip", "backend": "tokenizers"}
        manifest = jobs.encode(path, words, tmp_path / "out", progress=Quiet(), **options)
    assert (manifest.totals["documents"], manifest.totals["tokens"]) == (2, 2)
    (entry,) = (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    assert json.loads(entry)["reason"].startswith("is refused by the tokenizer: ")
    assert json.loads(entry)["text"] == ("I ride " * 200)[:200]


def test_a_long_document_must_not_be_longer_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("I ride\n" + "bike " * 100)
    with long_documents(kept=10, block=20):
        tasks = jobs.open_sources([tmp_path / "a.txt"], jobs.Options()).tasks(30, longest=400)
        assert next(tasks).parts[0].payload == b"I ride\n"
        with pytest.raises(ValueError, match=r"a\.txt, line 2: one line is longer than 0 MiB"):
            next(tasks)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.text(st.sampled_from('a"\\né☂,:{}[]'), max_size=30), min_size=1, max_size=5),
    block=st.integers(1, 20),
)
def test_the_columns_of_a_long_json_line_are_found_without_its_strings(
    values: list[str], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("corpus") / "a.jsonl"
    row = {"text": "I ride", **{f"n{number}": [value, {"in": value}, 7] for number, value in enumerate(values)}}
    path.write_text(json.dumps(row, ensure_ascii=block % 2 == 0), encoding="utf-8")
    with long_documents(block=block), pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_posenc.jobs.text_files._STEP", 6)
        patch.setattr("hf_posenc.jobs.text_files._HEAD", 1)
        (note,) = jobs.open_sources([path], jobs.Options()).notes
        assert f"not carried: {', '.join(list(row)[1:])};" in note
        with pytest.raises(ValueError, match=r"no column 'body'(.|\n)*'text', 'n0'"):
            jobs.open_sources([path], jobs.Options(text_column="body"))

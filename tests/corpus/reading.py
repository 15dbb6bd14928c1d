"""Documents as `encode` reads them: with a tokenizer whose ids are the bytes of a text, the shards show the texts."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from hf_posenc.corpus import Manifest, Progress, encode

_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = Tokenizer(models.BPE({letter: number for number, letter in enumerate(_ALPHABET)}, []))
BYTES.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BYTES.decoder = decoders.ByteLevel()


@dataclass
class Read(Progress):
    """The documents of a corpus in order; a bad one has an empty text, and its reason and first characters.

    `begins` are the bytes or rows at which the documents begin, `lines` the lines of those that are in `rejected/`.
    """

    texts: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    excerpts: dict[int, str] = field(default_factory=dict)
    carried: pa.Table = None
    messages: list[str] = field(default_factory=list)
    manifest: Manifest = None  # type: ignore[assignment]
    shards: int = 0

    @property
    def blank(self) -> int:
        """Number of blank lines or files."""
        return self.manifest.totals["blank"]

    def message(self, text: str) -> None:
        self.messages.append(text)


def read(*inputs: Any, output: Path | None = None, **options: Any) -> Read:
    """Encode inputs in this process, and return their documents."""
    found = Read()
    given = {"workers": 0, "on_bad_row": "keep-empty", "source_columns": True, **options}
    with tempfile.TemporaryDirectory() as folder:
        out = output or Path(folder, "out")
        found.manifest = encode(list(inputs), BYTES, out, progress=found, **given)
        found.shards = len(found.manifest.shards)
        files = [out / record["file"] for record in found.manifest.shards]
        rows = pa.concat_tables([pq.read_table(file) for file in files])
        entries = [
            json.loads(line) for file in sorted(out.glob("rejected/*")) for line in file.read_bytes().splitlines()
        ]
    found.texts = [BYTES.decode(ids) for ids in rows["input_ids"].to_pylist()]
    found.carried = rows.select(rows.column_names[rows.column_names.index("length") + 1 :])
    found.lines = [entry["line"] for entry in entries if "line" in entry]
    if given["source_columns"]:
        found.sources, found.begins = rows["source"].to_pylist(), rows["row"].to_pylist()
        empty = (row for row, text in enumerate(found.texts) if not text)  # those in `rejected/`
        for row, entry in zip(empty, entries, strict=True):
            assert entry["file"] == found.sources[row]
            if entry["reason"] != "has no tokens":
                found.bad[row] = entry["reason"]
                found.excerpts[row] = entry.get("text", "")
    return found


def content(payload: bytes, kind: str = "txt", **options: Any) -> Read:
    """Return the documents of a file with this content; `kind` is the extension of its name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{kind}")
        path.write_bytes(payload)
        return read(path, **options)

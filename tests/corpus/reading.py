"""Documents as `encode` reads them: with a tokenizer whose ids are the bytes of a text, the shards show the texts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from hf_posenc.corpus import Report, encode

_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = Tokenizer(models.BPE({letter: number for number, letter in enumerate(_ALPHABET)}, []))
BYTES.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BYTES.decoder = decoders.ByteLevel()


def table(output: Any) -> pa.Table:
    """Return the rows of the shards."""
    return pa.concat_tables([pq.read_table(file) for file in sorted(Path(output, "data").glob("*.parquet"))])


def texts(rows: pa.Table) -> list[str]:
    """Return the texts of rows that were encoded with `BYTES`."""
    return [BYTES.decode(ids) for ids in rows["input_ids"].to_pylist()]


def read(inputs: Any, **settings: Any) -> tuple[list[str], pa.Table, Report]:
    """Encode inputs in this process; return the texts, the rows and the report."""
    with tempfile.TemporaryDirectory() as folder:
        report = encode(inputs, BYTES, folder, **{"workers": 0, "progress": False, **settings})
        rows = table(folder)
    return texts(rows), rows, report


def content(payload: bytes | str, kind: str = "txt", **settings: Any) -> tuple[list[str], pa.Table, Report]:
    """Encode a file with this content; `kind` is the suffix of its name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{kind}")
        path.write_bytes(payload.encode() if isinstance(payload, str) else payload)
        return read(path, **settings)

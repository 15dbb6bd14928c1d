"""The output of a job: files that appear whole or not at all, the job that wrote them, and the report.

`data/` has only the shards, so that other libraries read it as one table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .._common.errors import explain, value_error
from .._common.files import atomic_write
from .reading import file_system

JOB, MANIFEST, CARD, TOKENIZER = "job.json", "manifest.json", "README.md", "tokenizer"
SHARD = "data/shard-{:06d}.parquet"  # names sort in the order of the rows
RECORD = b"hf_posenc"  # key in the footer of a shard
_SUMS = ("rows", "documents", "tokens", "cut", "blank", "bad", "padded")
_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/shard-*.parquet
# license: that of the texts; fill it in
---

# Token ids

{tokens:,} token ids of {documents:,} documents, in {rows:,} rows of at most {longest:,}. {cut:,} documents were
truncated, and {bad:,} were left out. Batches of 32 neighboring rows are {padding:.1%} padding. `manifest.json` has
settings, versions, and a checksum of each shard, which `hf-posenc verify` compares. `load_dataset` reads this
folder, and `DataCollatorWithPositionalEncoding("tokenizer")` makes batches of its rows.
"""


@dataclass(frozen=True)
class Output:
    """A folder, as an absolute path, or an address of `fsspec`. Names of files are relative to it."""

    address: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, output: str | Path, options: Mapping[str, Any]) -> Output:
        """Return the output for a folder or an address, as the user gave it."""
        where = os.fspath(output).removeprefix("file://")
        if "://" in where:
            return cls(where.rstrip("/"), options)
        return cls(str(Path(where).expanduser().absolute()))  # workers may have another working directory

    def __str__(self) -> str:
        return re.sub(r"//[^/@]*@", "//", self.address)  # without a password

    @property
    def folder(self) -> Path | None:
        """The local folder; `None` for an address."""
        return None if "://" in self.address else Path(self.address)

    def _system(self) -> tuple[Any, str]:
        return file_system(self.address, self.options)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Yield a local path to write to; the file appears in the output when the block ends without an error."""
        if self.folder is not None:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.folder / name) as temporary:
                yield temporary
            return
        with tempfile.TemporaryDirectory(prefix="hf-posenc-") as folder:
            yield Path(folder, "file")
            system, root = self._system()
            system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            system.put_file(str(Path(folder, "file")), f"{root}/{name}")

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Open a file for reading bytes."""
        system, root = self._system()
        with system.open(f"{root}/{name}", "rb") as file:
            yield file

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file; `None` if there is none. Raise `ValueError` if it is damaged."""
        try:
            with self.open(name) as file:
                content = file.read()
        except FileNotFoundError:
            return None
        try:
            return dict(json.loads(content))
        except (ValueError, TypeError) as error:
            fix = f"delete {name}, and run the same encode again"
            raise value_error(f"{self}/{name} is damaged", got=error, fix=fix) from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with self.new_file(name) as temporary:
            temporary.write_bytes(content)

    def exists(self, name: str) -> bool:
        """Return True if there is a file with this name."""
        system, root = self._system()
        return bool(system.exists(f"{root}/{name}"))

    def sha256(self, name: str) -> str:
        """Return the SHA-256 of a file."""
        with self.open(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def shards(self) -> list[str]:
        """Return the names of the shards."""
        system, root = self._system()
        system.invalidate_cache()
        return sorted(f"data/{name.rsplit('/', 1)[-1]}" for name in system.glob(f"{root}/data/*.parquet"))

    def records(self, job: str) -> dict[int, dict[str, Any]]:
        """Return the records in the footers of the finished shards of a job, by number."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = {}
        for name in self.shards():
            try:
                with self.open(name) as file:
                    record = json.loads(pq.read_metadata(file).metadata[RECORD])
            except (pa.ArrowException, KeyError, TypeError, ValueError):
                continue  # damaged: it is written again
            if record["job"] == job and record["file"] == name:
                found[record["shard"]] = record
        return found

    @contextmanager
    def locked(self, part: str) -> Iterator[None]:
        """Lock a local folder, so that no second run writes the same part. An address has no lock."""
        if self.exists("tokenizer_config.json") or self.exists("tokenizer.json"):
            raise value_error(f"the output {self} holds a tokenizer", fix="another output: a new folder")
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / f".lock{part.replace('/', '-of-')}", blocking=False):
                yield
        except Timeout:
            fix = "wait for it or stop it, or use another output"
            raise OSError(explain(f"the output {self.folder} is in use by another run", fix=fix)) from None

    def remove_unfinished(self) -> None:
        """Remove the temporary files of killed runs from a local folder."""
        for file in [] if self.folder is None else self.folder.glob("data/.shard-*.tmp"):
            file.unlink(missing_ok=True)

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of each shard by name, from the manifest of this job if there is one."""
        manifest = self.read_json(MANIFEST)
        if manifest is None or manifest["job"] != self.read_json(JOB):
            return {}
        return {record["file"]: record["sha256"] for record in manifest["shards"]}

    def begin(self, job: dict[str, Any]) -> str:
        """Write `job.json`, or compare it with that of an earlier run; return the digest of the job.

        Raise `ValueError` for another job, with what differs. A run that wrote no shard decides nothing. A finished job
        stays finished with other versions of the libraries: those that wrote it replace the ones in `job`.
        """
        manifest = self.read_json(MANIFEST)
        if manifest is not None and {record["file"] for record in manifest["shards"]} <= {*self.shards()}:
            job |= {name: value for name, value in manifest["job"].items() if name.startswith("version of ")}
        digest = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:16]
        if not self.shards() or (not self.exists(JOB) and self.records(digest)):  # a damaged one was deleted
            self.write(JOB, json.dumps(job, indent=1).encode())
        before = self.read_json(JOB) or {}
        if differing := [name for name in {**before, **job} if before.get(name) != job.get(name)]:
            got = "; ".join(f"{name}: {before.get(name)!r} before, {job.get(name)!r} now" for name in differing[:5])
            fix = "the earlier settings, inputs and versions, or another output"
            raise value_error(f"{self} holds another job", got=got, fix=fix)
        return digest


@dataclass(frozen=True)
class Report:
    r"""Result of `encode`: the job, and a record for each finished shard, with counts and checksum.

    Args:
        output (`str`): folder or address.
        job (`dict`): settings that differ from their defaults, tokenizer, input and versions.
        shards (`list` of `dict`): the records.
        finished (`bool`): False if `part` was given, and shards of other parts are missing.
    """

    output: str
    job: dict[str, Any]
    shards: list[dict[str, Any]]
    finished: bool = True

    @property
    def totals(self) -> dict[str, Any]:
        """Numbers of shards, rows, documents, tokens; of documents cut, blank and left out; longest row, padding."""
        sums = {name: sum(record[name] for record in self.shards) for name in _SUMS}
        padded = sums.pop("padded")
        longest = max((record["longest"] for record in self.shards), default=0)
        padding = 1 - sums["tokens"] / padded if padded else 0.0
        return {"shards": len(self.shards), **sums, "longest": longest, "padding": padding}

    @property
    def bad_rows(self) -> list[dict[str, Any]]:
        """Number, reason and text of the rows that were left out; at most 1,000 for each shard."""
        return [row for record in self.shards for row in record["bad_rows"]]

    def save(self, output: Output) -> None:
        """Write `manifest.json` and, once, the data card."""
        manifest = {"job": self.job, "totals": self.totals, "shards": self.shards}
        output.write(MANIFEST, json.dumps(manifest, indent=1).encode())
        if not output.exists(CARD):
            output.write(CARD, _CARD.format(**self.totals).encode())

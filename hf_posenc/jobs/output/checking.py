"""Whether an output folder holds what its manifest says: every shard, every rejected row, and nothing besides.

It only reads, and asks for no lock. To repair is to run the job again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .checksums import OnChecked, fault
from .folder import MANIFEST, REJECTED, shard_name, shards_in
from .manifest import Manifest
from .rejects import look

# What the totals say of the whole, and each record of its shard.
_SUMS = ("rows", "documents", "tokens", "bytes", "rejected", "cut")
_SURPLUS = "; move it away"


@dataclass(frozen=True)
class BadShard:
    r"""A file that is not as it was written.

    Args:
        file (`str`): its name; mostly a shard's, `rejected.jsonl` or `manifest.json` otherwise.
        reason (`str`): what is wrong with it.
    """

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True)
class Verification:
    r"""What `verify` found.

    Args:
        folder (`Path`): the output folder.
        shards (`int`): how many shards were checked.
        bad (`tuple` of `BadShard`): what is not as it was written; empty when all is well.
        finished (`bool`): whether the job had come to its end.
        rows (`int`), tokens (`int`): what the manifest says the shards hold.

    Example:
        >>> print(Verification(Path("out"), 12, (BadShard("shard-000003.parquet", "is missing"),), True))
        out: 1 file is not as it was written
          shard-000003.parquet: is missing
        The same hf-posenc encode again makes only what is bad anew.
    """

    folder: Path
    shards: int
    bad: tuple[BadShard, ...]
    finished: bool
    rows: int = 0
    tokens: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing is bad. An unfinished job may be sound as far as it went."""
        return not self.bad

    def __str__(self) -> str:
        so_far = "" if self.finished else " so far"
        if self.bad:
            bad = "1 file is not as it was" if len(self.bad) == 1 else f"{len(self.bad):,} files are not as they were"
            first, last = f"{bad} written", self._way_out()
        else:
            shards = f"{self.shards:,} shard{'' if self.shards == 1 else 's'}{so_far}"
            first, last = f"{shards}, {self.rows:,} rows, {self.tokens:,} tokens, all as they were written", ""
        if not self.finished:
            last = "The job is not finished: the same hf-posenc encode again goes on where it was."
        return "\n".join([f"{self.folder}: {first}", *(f"  {one}" for one in self.bad), *filter(None, [last])])

    def _way_out(self) -> str:
        if any(one.file == MANIFEST for one in self.bad):
            return f"{MANIFEST} is not to be trusted: delete the folder, and encode again."
        surplus = all(one.reason.endswith(_SURPLUS) for one in self.bad)
        return "" if surplus else "The same hf-posenc encode again makes only what is bad anew."


def verify(folder: str | Path, on_checked: OnChecked | None = None) -> Verification:
    r"""Reads every file of an output folder again and holds it against the manifest.

    Args:
        folder (`str` or `Path`): what was given as `--output`.
        on_checked (callable, *optional*): is told the number of bytes of each block that was read.

    Returns:
        `Verification`; `.bad` names each file that is not as it was written, with the reason.

    Raises:
        ValueError: if there is no manifest in the folder, or it cannot be used.
        OSError: if a file is there and may not be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = Manifest.open(Path(folder), config={}, tokenizer={}, inputs=[], same_inputs=lambda _: [])
        ...     Path(folder, "shard-000000.parquet").touch()
        ...     manifest.finish({})
        ...     verify(folder).bad
        (BadShard(file='shard-000000.parquet', reason='is not in the manifest; move it away'),)
    """
    folder = Path(folder).expanduser()
    manifest = Manifest.read(folder)
    bad = [*_bad_shards(manifest, on_checked), *_bad_rejected(manifest), *_bad_totals(manifest)]
    records = manifest.shards.values()
    return Verification(
        folder,
        shards=len(records),
        bad=tuple(bad),
        finished=manifest.finished,
        rows=sum(record["rows"] for record in records),
        tokens=sum(record["tokens"] for record in records),
    )


def _bad_shards(manifest: Manifest, on_checked: OnChecked | None) -> Iterator[BadShard]:
    schema: pa.Schema | None = None
    for shard in range(max(manifest.shards, default=-1) + 1):
        name = shard_name(shard)
        record = manifest.shards.get(shard)
        if record is None:
            if manifest.finished:
                yield BadShard(MANIFEST, f"says nothing of {name}, and of later shards")
            continue
        path = manifest.folder / name
        reason = fault(path, record["bytes"], record["sha256"], on_checked)
        if reason is None:
            # The checksum is right: what differs here was written into the manifest, or made by another job.
            try:
                with pq.ParquetFile(path) as file:
                    rows, found = file.metadata.num_rows, file.schema_arrow
            except (OSError, pa.ArrowException) as error:
                reason = f"is no Parquet file ({error})"
            else:
                schema = found if schema is None else schema
                if rows != record["rows"]:
                    yield BadShard(MANIFEST, f"says that {name} holds {record['rows']:,} rows, and it holds {rows:,}")
                if not found.equals(schema):
                    reason = f"has other columns than the shards before: {_unlike(schema, found)}"
        if reason is not None:
            yield BadShard(name, reason)
    if manifest.finished:  # before, it may be one that was made and not yet noted
        for shard, path in shards_in(manifest.folder).items():
            if shard > max(manifest.shards, default=-1):
                yield BadShard(path.name, f"is not in the manifest{_SURPLUS}")


def _unlike(first: pa.Schema, second: pa.Schema) -> str:
    columns = [{field.name: field.type for field in schema} for schema in (first, second)]
    names = [name for name in {**columns[0], **columns[1]} if columns[0].get(name) != columns[1].get(name)]
    shown = (f"{name} is {columns[1].get(name, 'missing')}, not {columns[0].get(name, 'missing')}" for name in names)
    return "; ".join(shown) or "their order, or what is said of them"


def _bad_rejected(manifest: Manifest) -> Iterator[BadShard]:
    path = manifest.folder / REJECTED
    if not any(record["rejected"] for record in manifest.shards.values()):
        if manifest.finished and path.exists():
            yield BadShard(REJECTED, f"is there, and no row was rejected{_SURPLUS}")
        return
    if manifest.finished and not path.exists():
        yield BadShard(REJECTED, "is missing")
        return
    found = look(manifest.folder, manifest.shards)
    for reason in found.bad.values():
        yield BadShard(REJECTED, reason)
    complete = manifest.finished and sorted(manifest.shards) == list(range(len(manifest.shards)))
    if complete and not found.bad and not found.joined:
        yield BadShard(REJECTED, "holds other lines besides, or not in the order of the shards")


def _bad_totals(manifest: Manifest) -> Iterator[BadShard]:
    records = manifest.shards.values()
    for name in _SUMS if manifest.finished else ():
        if name in manifest.totals:
            found = sum(record[name] for record in records)
            if found != manifest.totals[name]:
                yield BadShard(MANIFEST, f"its shards hold {found:,} {name}, its totals {manifest.totals[name]:,}")

"""`verify`: read an output folder again and compare every file with the manifest.

It only reads files, and needs no lock. Running the same `encode` again repairs the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._explain import counted, explain
from .folder import MANIFEST, REJECTED, other_files, shard_name, shard_number
from .manifest import Manifest
from .rejected import find_rejected
from .schema import columns_with_types
from .shard_file import OnRead, damage, read_footer, read_record
from .sources import open_sources

_MOVE_AWAY = "; move it away"
_OTHER_INPUT = "; encode it to another folder"


@dataclass(frozen=True)
class BadFile:
    r"""A file that differs from the manifest.

    Args:
        file (`str`): its name in the output folder.
        reason (`str`): the difference.
    """

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True)
class Verification:
    r"""The result of `verify`.

    Args:
        folder (`Path`): the output folder.
        shards (`int`): number of shards that were checked.
        bad (`tuple` of `BadFile`): the files that differ from the manifest.
        finished (`bool`): True if the job was finished.
        rows (`int`), tokens (`int`): rows and tokens of the shards in the manifest.

    Example:
        >>> print(Verification(Path("out"), 12, (BadFile("data/shard-000003.parquet", "is missing"),), True))
        out: 1 file is not as it was written
          data/shard-000003.parquet: is missing
        The same hf-posenc encode again repairs the folder, and makes only the bad shards again.
    """

    folder: Path
    shards: int
    bad: tuple[BadFile, ...]
    finished: bool
    rows: int = 0
    tokens: int = 0

    @property
    def sound(self) -> bool:
        """True if no file is bad; the job need not be finished."""
        return not self.bad

    def __str__(self) -> str:
        if self.bad:
            first = f"{counted(len(self.bad), 'file')} {'is' if len(self.bad) == 1 else 'are'} not as "
            first += "it was written" if len(self.bad) == 1 else "they were written"
        else:
            shards = counted(self.shards, "shard") + ("" if self.finished else " so far")
            first = f"{shards}, {self.rows:,} rows, {self.tokens:,} tokens, all as they were written"
        lines = [f"{self.folder}: {first}", *(f"  {one}" for one in self.bad)]
        if any(not one.reason.endswith((_MOVE_AWAY, _OTHER_INPUT)) for one in self.bad):
            lines.append("The same hf-posenc encode again repairs the folder, and makes only the bad shards again.")
        elif not self.finished:
            lines.append("The job is not finished: the same hf-posenc encode again continues it.")
        return "\n".join(lines)


def verify(
    folder: str | Path,
    on_read: OnRead | None = None,
    *,
    inputs: Any = None,
    format: Literal["text", "json", "csv", "parquet", "arrow"] | None = None,
    dataset_config: str | None = None,
    dataset_split: str | None = None,
) -> Verification:
    r"""Read every file of an output folder again and compare it with the manifest.

    Args:
        folder (`str` or `Path`): the folder given to `encode` as `output`.
        on_read (callable, *optional*): called with the number of bytes of each block.
        inputs (*optional*): the inputs given to `encode`: they are read again as well, and compared with the digest of
            the text that each shard was made from.
        format, dataset_config, dataset_split (`str`, *optional*): as given to `encode` with these inputs.

    Returns:
        `Verification`; `.bad` lists each file that differs from the manifest, with the reason.

    Raises:
        ValueError: if the folder holds no output, or its manifest is of another format.
        OSError: if a file exists and may not be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Manifest.open(Path(folder), config={}, tokenizer={}, inputs=[]).finish()
        ...     Path(folder, "data").mkdir()
        ...     Path(folder, "data", "shard-7.parquet").touch()
        ...     verify(folder).bad
        (BadFile(file='data/shard-7.parquet', reason='is not in the manifest; move it away'),)
    """
    folder = Path(folder).expanduser()
    manifest = Manifest.find(folder)
    if manifest is None:
        raise ValueError(
            explain(f"{folder} holds no {MANIFEST}", fix="a folder that hf-posenc encode wrote with --output")
        )
    other_inputs = []
    if inputs is not None:
        config = manifest.config
        columns = columns_with_types(config["columns"])  # the further columns follow the length
        sources = open_sources(
            inputs if isinstance(inputs, list | tuple) else [inputs],
            format=format,
            text_column=config["text_column"],
            text_pair_column=config["text_pair_column"],
            columns=columns[list(config["columns"]).index("length") + 1 :],
            split=config["split"],
            dataset_config=dataset_config,
            dataset_split=dataset_split,
        )
        before = sources.fingerprint() if manifest.problem is not None else manifest.inputs
        differences = sources.differences(before, None, manifest.shards, config["shard_bytes"])
        other_inputs = [BadFile("inputs", f"{difference}{_OTHER_INPUT}") for difference in differences]
    records = manifest.shards.values()
    return Verification(
        folder,
        shards=len(records),
        bad=(*_bad_manifest(manifest), *_bad_shards(manifest, on_read), *_bad_rejected(manifest), *other_inputs),
        finished=manifest.finished,
        rows=sum(record["rows"] for record in records),
        tokens=sum(record["tokens"] for record in records),
    )


def _bad_manifest(manifest: Manifest) -> Iterator[BadFile]:
    if manifest.problem is not None:
        yield BadFile(MANIFEST, manifest.problem.removeprefix(f"{MANIFEST} "))


def _bad_shards(manifest: Manifest, on_read: OnRead | None) -> Iterator[BadFile]:
    for shard, record in sorted(manifest.shards.items()):
        reason = damage(manifest.folder / shard_name(shard), record, on_read)
        if reason is not None and (
            manifest.finished or not _is_replacement(manifest.folder / shard_name(shard), shard)
        ):
            yield BadFile(shard_name(shard), reason)
    for name in other_files(manifest.folder, set(manifest.shards)):
        if manifest.problem is not None and shard_number(name) is not None:
            yield BadFile(name, "is damaged, or of another job")
        elif manifest.finished or not _is_unlisted(manifest.folder / name, name):
            yield BadFile(name, f"is not in the manifest{_MOVE_AWAY}")


def _is_replacement(path: Path, shard: int) -> bool:
    """Return True for a shard that an interrupted run made again before it could update the manifest."""
    try:
        record, _ = read_record(path)
    except (ValueError, IsADirectoryError):
        return False
    return bool(record["file"] == shard_name(shard))


def _is_unlisted(path: Path, name: str) -> bool:
    """Return True for a shard of an unfinished job that is not in the manifest yet; False for a copy."""
    try:
        content, _ = read_footer(path)
    except (ValueError, IsADirectoryError):
        return False
    return bool(content["record"]["file"] == name)


def _bad_rejected(manifest: Manifest) -> Iterator[BadFile]:
    path = manifest.folder / REJECTED
    if not any(record["rejected"] for record in manifest.shards.values()):
        if manifest.finished and path.exists():
            yield BadFile(REJECTED, f"exists, although no document was rejected{_MOVE_AWAY}")
        return
    if manifest.finished and not path.exists():
        yield BadFile(REJECTED, "is missing")
        return
    found = find_rejected(manifest.folder, manifest.shards)
    for reason in found.bad.values():
        yield BadFile(REJECTED, reason)
    if manifest.finished and not found.bad and not found.joined:
        yield BadFile(REJECTED, "holds other lines as well, or its lines are in another order")

"""`verify`: read an output folder again and compare every file with the manifest.

`verify` only reads files, and needs no lock. Running the same `encode` again repairs the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._common.errors import counted, value_error
from .files import Format
from .folder import MANIFEST, REJECTED, shard_name
from .manifest import MOVE_AWAY, Manifest, OnRead
from .options import Options
from .rejected import find_rejected
from .schema import named_columns
from .sources import open_sources

_OTHER_INPUT = "; encode it to another folder"


@dataclass(frozen=True)
class BadFile:
    r"""A file that differs from the manifest (`manifest.json`), as `verify` reports it.

    Args:
        file (`str`): its name in the output folder; `"inputs"` if the inputs differ.
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
        """True if no file differs from the manifest, even if the job is not finished."""
        return not self.bad

    def __str__(self) -> str:
        if self.bad:
            first = f"{counted(len(self.bad), 'file')} {'is' if len(self.bad) == 1 else 'are'} not as "
            first += "it was written" if len(self.bad) == 1 else "they were written"
        else:
            shards = counted(self.shards, "shard") + ("" if self.finished else " so far")
            first = f"{shards}, {self.rows:,} rows, {self.tokens:,} tokens, all as they were written"
        lines = [f"{self.folder}: {first}", *(f"  {one}" for one in self.bad)]
        if any(not one.reason.endswith((MOVE_AWAY, _OTHER_INPUT)) for one in self.bad):
            lines.append("The same hf-posenc encode again repairs the folder, and makes only the bad shards again.")
        elif not self.finished:
            lines.append("The job is not finished: the same hf-posenc encode again continues it.")
        return "\n".join(lines)


def verify(
    folder: str | Path,
    on_read: OnRead | None = None,
    *,
    inputs: Any = None,
    format: Format | None = None,
    dataset_config: str | None = None,
    split: str | None = None,
) -> Verification:
    r"""Read every file of an output folder again and compare it with `manifest.json`, to find lost and damaged files.

    If the job is not finished, each shard is compared with the checksum in its own footer instead.

    Args:
        folder (`str` or `Path`): the folder given to `encode` as `output`.
        on_read (callable, *optional*): called after each shard, with its size in bytes.
        inputs (*optional*): the inputs given to `encode`. If given, they are read again too, and compared with the
            digest in the record of each shard.
        format, dataset_config, split (`str`, *optional*): as given to `encode` with these inputs.

    Returns:
        `Verification`; `.bad` lists each file that differs from the manifest, with the reason.

    Raises:
        ValueError: if the folder holds no output, or its manifest is of another format; if an option of the inputs is
            given without `inputs`.
        OSError: if a file exists and cannot be read.

    Example:
        >>> verify("no such folder")
        Traceback (most recent call last):
        ValueError: no such folder holds no manifest.json
          fix: a folder that hf-posenc encode wrote with --output
    """
    options = {"format": format, "dataset_config": dataset_config, "split": split}
    if inputs is None and any(options.values()):
        got = ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None)
        raise value_error("these options describe inputs", got=got, fix="inputs=... (--inputs), as for encode")
    folder = Path(folder).expanduser()
    manifest = Manifest.read(folder)
    if manifest is None:
        fix = "a folder that hf-posenc encode wrote with --output"
        raise value_error(f"{folder} holds no {MANIFEST}", fix=fix)
    bad = [BadFile(file, reason) for file, reason in _bad_files(manifest, on_read)]
    if inputs is not None:
        found = _other_inputs(manifest, inputs, **options)
        bad += [BadFile("inputs", f"{difference}{_OTHER_INPUT}") for difference in found]
    return Verification(
        folder,
        shards=len(manifest.shards),
        bad=tuple(bad),
        finished=manifest.finished,
        rows=manifest.totals["rows"],
        tokens=manifest.totals["tokens"],
    )


def _bad_files(manifest: Manifest, on_read: OnRead | None) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that differs from the manifest, with the reason."""
    if manifest.problem is not None:
        yield MANIFEST, manifest.problem.removeprefix(f"{MANIFEST} ")
    bad = {shard_name(shard): reason for shard, reason in manifest.check(on_read).items()}
    yield from sorted({**manifest.others, **bad}.items())
    found, exists = find_rejected(manifest.folder, manifest.shards), (manifest.folder / REJECTED).exists()
    some = bool(found.good or found.bad)
    if manifest.finished and some != exists:
        yield REJECTED, "is missing" if some else f"exists, although no document was rejected{MOVE_AWAY}"
    elif found.bad:
        yield from ((REJECTED, reason) for reason in found.bad.values())
    elif manifest.finished and not found.joined:
        yield REJECTED, "holds other lines as well, or its lines are in another order"


def _other_inputs(manifest: Manifest, inputs: Any, **options: Any) -> list[str]:
    """Return a message for each difference between `inputs` and the inputs that the shards were made from."""
    config = manifest.config
    types = config["columns"]
    copied = list(types)[list(types).index("length") + 1 :]
    typed = {name: f"{name}:{types[name]}" for name in copied}
    # A nested type cannot be named; it comes from the source.
    columns = [both if name in named_columns([both]) else name for name, both in typed.items()]
    names = ("text_column", "text_pair_column", "document")
    sources = open_sources(inputs, Options(**{name: config[name] for name in names}, columns=columns, **options))
    before = None if manifest.problem is not None else manifest.inputs
    return sources.differences(before, None, manifest.shards, config["shard_bytes"])

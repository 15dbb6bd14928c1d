"""The manifest of an output folder: settings, inputs and library versions of a job, and the record of each shard.

A record is a `dict` with the name, counts and checksums of a shard. The footer of each shard holds its record and the
settings, so that an interrupted job can continue; at the end of the job, `manifest.json` lists all records. The
manifest has no timestamps, so equal corpora give equal manifests, even after interruptions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .._common.errors import explain, shorten, value_error
from .._common.files import read_whole
from ..tokenization.serialized import RustOnlyTokenizer
from .folder import MANIFEST, STATE, data_files, shard_name, shard_number, write_file
from .shard_file import FORMAT_VERSION, damage, read_footer

if TYPE_CHECKING:
    from .options import Job

MOVE_AWAY = "; move it away"
_WRITER = "hf-posenc"
_OTHER = "another --output folder, or delete this one"
# The only setting that may change before a job is finished: users often set it after a bad row stopped a run.
_BAD_ROWS = "on_bad_row"
_SUMS = ("rows", "documents", "tokens", "rejected", "cut", "blank", "padded", "bytes")
# Types of the values of shard footers, of `manifest.json`, and of the record of a shard.
_SETTINGS_TYPES = {"config": dict, "tokenizer": dict, "libraries": dict}
_TYPES = {**_SETTINGS_TYPES, "finished": bool, "inputs": list, "shards": list}
_RECORD_TYPES = dict.fromkeys((*_SUMS, "longest", "read"), int) | {
    "file": str,
    "begins": list,
    "ends": list,
    "digest": str,
    "rejected_sha256": str | None,
    "on_bad_row": str | None,
}
_LIBRARIES = ("hf-posenc", "tokenizers", "numpy", "pyarrow")

OnRead = Callable[[int], None]


@dataclass
class Manifest:
    r"""Manifest of an output folder: settings, inputs and library versions of its job, and a record of each shard.

    `encode` returns it, and `Manifest.read` reads it from a folder.

    Args:
        folder (`Path`): the output folder.
        config (`dict`): every setting that affects the bytes of the shards.
        tokenizer (`dict`): class and name of the tokenizer, and a digest of its files.
        inputs (`list` of `dict`): for each input, JSON values that identify it, such as name, size and digest.
        libraries (`dict`): versions of the libraries that affect the bytes of the shards.
        shards (`dict` from `int` to `dict`): the record (name, counts, checksums) of each shard, by its number.
        finished (`bool`): True if the job is finished.
        problem (`str`, *optional*): the reason why `manifest.json` cannot be used; the shard footers are read instead.
        others (`dict` from `str` to `str`): name of each file in `data/` that is not a valid shard of this job, and
            the reason.

    Example:
        >>> manifest = Manifest(Path("out"), config={"max_length": 8}, tokenizer={}, inputs=[], libraries={})
        >>> manifest.totals["tokens"]
        0
    """

    folder: Path
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    inputs: list[dict[str, Any]]
    libraries: dict[str, str]
    shards: dict[int, dict[str, Any]] = field(default_factory=dict)
    finished: bool = False
    problem: str | None = None
    others: dict[str, str] = field(default_factory=dict)
    _on_disk: bytes | None = field(default=None, repr=False, compare=False)  # the file that was read or saved last

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all shards (rows, tokens, bytes, ...), number of shards, and length of the longest row."""
        records = self.shards.values()
        sums = {name: sum(record[name] for record in records) for name in _SUMS}
        return {**sums, "shards": len(records), "longest": max((record["longest"] for record in records), default=0)}

    @property
    def started(self) -> bool:
        """True if the job is finished or has a shard; if False, another job may use the folder."""
        return self.finished or bool(self.shards) or any(shard_number(name) is not None for name in self.others)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the job that the footer of each shard stores: config, tokenizer and library versions.

        `on_bad_row` and the name of the tokenizer are left out, because they may change between runs.
        """
        return {
            "config": {name: value for name, value in self.config.items() if name != _BAD_ROWS},
            "tokenizer": {name: value for name, value in self.tokenizer.items() if name != "name"},
            "libraries": self.libraries,
        }

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        r"""Read the manifest of a folder, and the footers of its shards if the job is not finished.

        Args:
            folder (`Path`): the output folder.

        Returns:
            `Manifest`, with `.problem` set if `manifest.json` is lost or was changed; `None` if the folder holds no
            output. If the job is not finished, the records have no `sha256`; `check` adds it.

        Raises:
            ValueError: if the manifest was written by another program or in another format, or if it is damaged and
                there is no shard to rebuild it from.
        """
        text, content, problem = _read(folder / MANIFEST)
        finished = content is not None and content["finished"]
        footers, others = ({}, {}) if finished else _footers(folder)
        if content is None:
            if not footers:
                if text is not None:
                    raise value_error(f"{folder / MANIFEST} is damaged", got=problem, fix=_OTHER)
                return None
            content = {**footers[min(footers)][1], "inputs": []}
        values = {name: content[name] for name in ("config", "tokenizer", "inputs", "libraries")}
        found = cls(folder, **values, finished=finished, problem=problem, others=others)
        if finished:
            found.shards = dict(enumerate(content["shards"]))
            strange = data_files(folder).difference(map(shard_name, found.shards))
            found.others = dict.fromkeys(strange, f"is not in the manifest{MOVE_AWAY}")
        for shard, (record, settings) in footers.items():
            if settings == found.settings:
                found.shards[shard] = record
            else:
                found.others[shard_name(shard)] = f"is a shard of another job{MOVE_AWAY}"
        found._on_disk = text
        return found

    def add(self, record: dict[str, Any]) -> None:
        """Add the record of a finished shard; replace an earlier record of the same shard."""
        self.shards[cast(int, shard_number(record["file"]))] = record

    def check(self, on_read: OnRead | None = None) -> dict[int, str]:
        r"""Read every shard, and compare its size and SHA-256 with its record.

        If the record has no `sha256`, because the job is not finished, the shard is compared with the checksum in its
        own footer, and `sha256` is added to the record.

        Args:
            on_read (callable, *optional*): called after each shard, with its size in bytes.

        Returns:
            `dict` from the number of each missing or damaged shard to the reason; empty if all are intact.
        """
        bad: dict[int, str] = {}
        for shard, record in sorted(self.shards.items()):
            if (reason := damage(self.folder / shard_name(shard), record)) is not None:
                bad[shard] = reason
            if on_read is not None:
                on_read(record["bytes"])
        return bad

    def check_same_job(self, now: Manifest, other_inputs: Callable[[], list[str]]) -> None:
        r"""Compare this manifest with the manifest `now` of the present run; raise if they belong to different jobs.

        If this manifest is of an unfinished job, the option `on_bad_row` may differ. Its settings, inputs and tokenizer
        are then replaced by those of `now`, with the new `on_bad_row` and the names and added inputs of this run.

        Args:
            now (`Manifest`): a new manifest, with the options, the tokenizer and the inputs of this run.
            other_inputs (callable): returns a line for each change of the inputs; called only if settings and tokenizer
                are equal.

        Raises:
            ValueError: if the jobs differ; the message lists the differences.
        """
        before = self.config if self.finished else {**self.config, _BAD_ROWS: now.config[_BAD_ROWS]}
        wrong = _differences("", before, now.config)
        old, new = self.tokenizer["digest"], now.tokenizer["digest"]
        if old != new:
            wrong.append(f"tokenizer: other files (digest {old} before, {new} now)")
            wrong += _differences("tokenizer.class", self.tokenizer["class"], now.tokenizer["class"])
        if wrong := wrong or other_inputs():
            raise value_error(f"{self.folder} holds the output of another job", got="; ".join(wrong), fix=_OTHER)
        if not self.finished:
            self.config, self.inputs, self.tokenizer = now.config, now.inputs, now.tokenizer

    def check_same_libraries(self, now: Mapping[str, str]) -> None:
        """Raise `ValueError` if the installed library versions `now` differ from those that wrote the finished shards.

        Other versions might write other bytes.
        """
        if wrong := _differences("", self.libraries, now):
            raise value_error(
                f"the shards that are missing in {self.folder} must be made by the versions that made the others",
                got="; ".join(wrong),
                fix=f"install those, or {_OTHER}",
            )

    def stamps(self) -> Sequence[Any] | None:
        """Return sizes and timestamps of the inputs, as `save_stamps` saved them in the last run.

        Return `None` if they are lost, or if their number is not the number of inputs.
        """
        try:
            stamps = json.loads(read_whole(self.folder / STATE))["stamps"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return stamps if isinstance(stamps, list) and len(stamps) == len(self.inputs) else None

    def save_stamps(self, stamps: Sequence[Any]) -> None:
        """Save the sizes and timestamps of the inputs to `.state.json`, so that a later run can detect changes."""
        write_file(self.folder / STATE, json.dumps({"stamps": stamps}).encode())

    def save(self) -> None:
        r"""Write `manifest.json`, unless the file has the same content already.

        Raises:
            OSError: if another run changed the file after this manifest was read or saved, or if it cannot be written.
        """
        path, text = self.folder / MANIFEST, self.text().encode("utf-8", "surrogatepass")  # file names may be any bytes
        on_disk = path.read_bytes() if path.exists() else None
        if self._on_disk is not None and on_disk != self._on_disk and self.folder.is_dir():
            raise OSError(
                explain(
                    f"{path} was changed by something else while this run used it",
                    got="no such file" if on_disk is None else "another content",
                    fix="let no other run use the folder, and run the same command again",
                )
            )
        write_file(path, text)
        self._on_disk = text

    def finish(self) -> None:
        """Mark the job as finished, and save the manifest.

        `manifest.json` lists the records of the shards only if the job is finished.
        """
        self.finished = True
        self.save()

    def text(self) -> str:
        """Return the manifest as JSON; for a finished job, with one line per shard. Equal manifests give equal text."""
        content: dict[str, Any] = {
            "written_by": _WRITER,
            "format_version": FORMAT_VERSION,
            "finished": self.finished,
            "config": self.config,
            "tokenizer": self.tokenizer,
            "inputs": self.inputs,
            "libraries": self.libraries,
            "totals": self.totals if self.finished else {},
        }
        # Sorted shards with sorted keys after "file", so that the text does not depend on the order of the records.
        shards = [
            {"file": record["file"], **dict(sorted(record.items()))}
            for _, record in sorted(self.shards.items() if self.finished else ())
        ]
        content["checksum"] = _checksum({**content, "shards": shards})
        lines = [f"  {_json(key)}: {_json(value, indent=2)}," for key, value in content.items()]
        listed = "[\n" + ",\n".join(f"    {_json(record)}" for record in shards) + "\n  ]" if shards else "[]"
        return "\n".join(["{", *lines, f'  "shards": {listed}', "}", ""])


def _read(path: Path) -> tuple[bytes | None, dict[str, Any] | None, str | None]:
    """Read `manifest.json`, and check its content."""
    try:
        text = read_whole(path)
    except (FileNotFoundError, NotADirectoryError):
        return None, None, f"{MANIFEST} is missing"
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        return text, None, f"{MANIFEST} is not JSON ({error})"
    if not isinstance(content, dict) or content.get("written_by") != _WRITER:
        raise value_error(f"{path} was not written by {_WRITER}", got=shorten(content), fix="another --output folder")
    if (version := content.get("format_version")) != FORMAT_VERSION:
        raise value_error(
            f"{path} must have format version {FORMAT_VERSION}",
            got=shorten(version),
            fix=f"the version of {_WRITER} that wrote it, or {_OTHER}",
        )
    if content.get("checksum") != _checksum(content):
        return text, None, f"{MANIFEST} was changed after it was written"
    if not _has_types(content, _TYPES) or not all(_is_record(record, sha256=str) for record in content["shards"]):
        return text, None, f"{MANIFEST} lacks a value, or holds one of the wrong type"
    return text, content, None


def _has_types(values: object, types: Mapping[str, Any]) -> bool:
    """Return True if `values` is a dictionary that has all names in `types`, with values of these types."""
    return isinstance(values, dict) and all(
        name in values and isinstance(values[name], kind) for name, kind in types.items()
    )


def _is_record(record: object, **more: type) -> bool:
    """Return True if `record` is a valid record of a shard: a `dict` with all required values, of the right types."""
    return isinstance(record, dict) and _has_types(record, {**_RECORD_TYPES, **more})


def _footers(folder: Path) -> tuple[dict[int, tuple[dict[str, Any], dict[str, Any]]], dict[str, str]]:
    """Read the footer of each file in `data/`."""
    footers, others = {}, {}
    for name in sorted(data_files(folder)):
        shard = shard_number(name)
        try:
            record, settings = read_footer(folder / name)
        except ValueError:
            others[name] = f"is not a shard{MOVE_AWAY}" if shard is None else "is damaged"
            continue
        if not _is_record(record) or not _has_types(settings, _SETTINGS_TYPES):
            others[name] = "is damaged"
        elif shard is None or record["file"] != name:
            others[name] = f"is a copy of {record['file']}{MOVE_AWAY}"
        else:
            footers[shard] = record, settings
    return footers, others


def library_versions(names: Iterable[str]) -> dict[str, str]:
    r"""Return a `dict` from each name to the installed version of that library, or `"unknown"` if it is not installed.

    Example:
        >>> library_versions(["no-such-distribution"])
        {'no-such-distribution': 'unknown'}
    """
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions


def job_libraries(job: Job) -> dict[str, str]:
    """Return the versions of the libraries that affect the bytes of the shards of a job."""
    only_rust = isinstance(job.tokenizer.content, RustOnlyTokenizer)
    return library_versions(_LIBRARIES if only_rust else (*_LIBRARIES, "transformers"))


def _differences(prefix: str, before: Any, now: Any) -> list[str]:
    r"""Compare two JSON values; return a line for each difference, with its dotted name and both values.

    Example:
        >>> _differences("", {"pack": None, "stride": 0}, {"pack": 64, "stride": 0})
        ['pack: None before, 64 now']
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [f"{prefix}: {shorten(before)} before, {shorten(now)} now"]
    wrong = []
    for key in sorted({*before, *now}):
        name = f"{prefix}.{key}" if prefix else key
        if key not in now:
            wrong.append(f"{name}: {shorten(before[key])} before, missing now")
        elif key not in before:
            wrong.append(f"{name}: missing before, {shorten(now[key])} now")
        else:
            wrong += _differences(name, before[key], now[key])
    if prefix and not wrong and list(before) != list(now):  # for example the order of columns
        wrong.append(f"{prefix}: in the order {', '.join(before)} before, {', '.join(now)} now")
    return wrong


def _checksum(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text.replace("\n", "\n  ")  # inside strings, line breaks are written as \\n

"""`job.json` and `manifest.json`: settings, inputs and versions of a job, and the record of each finished shard.

The footers of the shards say what is finished. The manifest repeats their records and adds the SHA-256 of each file.
Neither has timestamps of a run, so equal corpora give equal manifests, even after interruptions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import xxhash

from .._common.errors import shorten, value_error
from .options import implied_options
from .output import DATA, JOB, MANIFEST, Output
from .shards import FORMAT_VERSION, check_shard, is_record, read_record, rejected_name, shard_name

OTHER_OUTPUT = "another --output, or delete this one"
_WRITER = "hf-posenc"
_SHARD = re.compile(rf"{DATA}/shard-(\d{{6,}})-(\d{{3,}})\.parquet")
_OTHERS = ("first_position", "columns")  # in `config`, and no options
_SUMS = ("rows", "documents", "tokens", "rejected", "cut", "blank", "padded", "bytes")

OnRead = Callable[[int], None]
Records = dict[tuple[int, int], dict[str, Any]]


def shard_numbers(name: str) -> tuple[int, int] | None:
    r"""Return the numbers of task and shard from the path of a shard; `None` for any other path.

    Example:
        >>> shard_numbers("data/shard-000003-001.parquet"), shard_numbers("data/shard-3.parquet")
        ((3, 1), None)
    """
    match = _SHARD.fullmatch(name)
    numbers = (int(match[1]), int(match[2])) if match else None
    return numbers if numbers and name == shard_name(*numbers) else None


class Remedy(Enum):
    """Way out for the user when a file differs from the manifest; the values are the ends of messages."""

    ENCODE_AGAIN = ""
    MOVE_AWAY = "; move it away"


@dataclass(frozen=True)
class BadFile:
    r"""A file that differs from the manifest (`manifest.json`), as `verify` reports it.

    Args:
        file (`str`): its name in the output.
        difference (`str`): the difference.
        remedy (`Remedy`): the way out; by default, the same `encode` again repairs it.
    """

    file: str
    difference: str
    remedy: Remedy = Remedy.ENCODE_AGAIN

    @property
    def reason(self) -> str:
        """The difference, and the remedy unless it is to encode again."""
        return self.difference + self.remedy.value

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass
class Manifest:
    r"""Manifest of the output of a job; `encode` returns it.

    Args:
        output (`Output`): the folder or address.
        config (`dict`): the settings that affect the bytes of the shards, as they are recorded: options with their
            defaults are left out.
        tokenizer (`dict`): class and name of the tokenizer, and a digest of its files.
        inputs (`list` of `dict`): name, kind, size and digest of each input.
        libraries (`dict`): versions of the libraries that affect the bytes of the shards.
        digest (`str`): digest of the job, which the footer of each shard repeats.
        records (`dict`): the record (name, counts, checksums) of each shard, by the numbers of task and shard.
        finished (`bool`): True if the job is finished.

    Example:
        >>> manifest = Manifest(Output("/out"), config={"max_length": 8}, tokenizer={}, inputs=[], libraries={})
        >>> manifest.totals["tokens"]
        0
    """

    output: Output
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    inputs: list[dict[str, Any]]
    libraries: dict[str, str]
    digest: str = ""
    records: Records = field(default_factory=dict)
    finished: bool = False

    @property
    def folder(self) -> Path | None:
        """Local folder of the output; `None` for an address."""
        return self.output.folder

    @property
    def shards(self) -> list[dict[str, Any]]:
        """Records of the shards, in the order of the documents."""
        return [self.records[key] for key in sorted(self.records)]

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all shards (rows, documents, tokens, bytes, ...), their number, and length of the longest row."""
        sums = {name: sum(record[name] for record in self.records.values()) for name in _SUMS}
        longest = max((record["longest"] for record in self.records.values()), default=0)
        return {**sums, "shards": len(self.records), "longest": longest}

    @classmethod
    def read(cls, output: Output | str | os.PathLike[str]) -> Manifest | None:
        """Read `job.json`, and the records in `manifest.json` if there is one; return `None` if there is neither.

        Raises:
            ValueError: if a file was written by another program or in another format.
        """
        output = output if isinstance(output, Output) else Output.of(output, {})
        manifest = _json_of(output, MANIFEST) or {}
        described = _json_of(output, JOB) or manifest
        if not described:
            return None
        result = cls(output, *(described[key] for key in ("config", "tokenizer", "inputs", "libraries", "digest")))
        records = manifest.get("shards")
        if isinstance(records, list) and all(
            is_record(record) and isinstance(record.get("bytes"), int) and shard_numbers(record["file"])
            for record in records
        ):
            for record in records:
                result.add(record)
            if manifest.get("finished") is True:
                result.finished = True
                result.set_on_bad_row(manifest["config"])
        return result

    @property
    def options(self) -> dict[str, Any]:
        """The settings in `config`, and those that it leaves out; raises `ValueError` for one of a later version."""
        implied = implied_options()
        if unknown := {name: self.config[name] for name in self.config if name not in {*implied, *_OTHERS}}:
            raise value_error(
                f"{self.output} was made with options that this version of {_WRITER} does not have",
                got=", ".join(f"{name}={shorten(value)}" for name, value in unknown.items()),
                fix=f"pip install '{_WRITER}=={self.libraries.get(_WRITER)}', which made it; or {OTHER_OUTPUT}",
            )
        return {**implied, **self.config}

    def set_on_bad_row(self, config: Mapping[str, Any]) -> None:
        """Take the option `on_bad_row` from another `config`; it may change until the job is finished."""
        settings = {name: value for name, value in self.config.items() if name != "on_bad_row"}
        self.config = settings | {name: value for name, value in config.items() if name == "on_bad_row"}

    def add(self, record: dict[str, Any]) -> None:
        """Add the record of a shard; replace an earlier record of the same shard."""
        self.records[shard_numbers(record["file"]) or (0, 0)] = record

    def save_job(self) -> Manifest:
        """Write `job.json` unless there is one; return the manifest that the file describes."""
        described = self._described()
        config = {name: value for name, value in self.config.items() if name != "on_bad_row"}
        self.output.create(JOB, self._text({**described, "config": config}))
        return Manifest.read(self.output) or self

    def save(self) -> None:
        """Write `manifest.json`, with one line for each shard. Equal manifests give equal files."""
        listed = self.shards
        first = 1
        for record in listed:  # the number of the first line, for ranges of text files
            first = first if record["from"][1] else 1
            record["first_line"] = first
            first += record["lines"]
        inputs = [{key: value for key, value in source.items() if key != "mtime"} for source in self.inputs]
        content = {**self._described(), "inputs": inputs, "finished": self.finished}
        self.output.write(MANIFEST, self._text({**content, "totals": self.totals}, listed))

    def _described(self) -> dict[str, Any]:
        described = {name: getattr(self, name) for name in ("digest", "config", "tokenizer", "inputs", "libraries")}
        return {"written_by": _WRITER, "format_version": FORMAT_VERSION, **described}

    @staticmethod
    def _text(content: Mapping[str, Any], records: list[dict[str, Any]] | None = None) -> bytes:
        def dump(value: Any, indent: int | None = None) -> str:
            return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", "\n  ")

        lines = [f"  {dump(key)}: {dump(value, 2)}" for key, value in content.items()]
        if records is not None:
            shards = ",\n".join(
                f"    {dump({'file': record['file'], **dict(sorted(record.items()))})}" for record in records
            )
            lines.append(f'  "shards": [\n{shards}\n  ]' if records else '  "shards": []')
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        return text.encode("utf-8", "surrogatepass")  # file names may hold any bytes

    # ------------------------------------------------------------------------------------------------ finished shards

    def find_shards(self, on_read: OnRead | None = None, *, check_all: bool) -> list[BadFile]:
        r"""Compare the records with the files in `data/`, and add the records of sound shards that are not known yet.

        Args:
            on_read (callable, *optional*): called after each shard that is read, with its size in bytes.
            check_all (`bool`): True to read also the shards that the manifest lists; they are removed from the records
                if they are missing or damaged.

        Returns:
            `list` with a `BadFile` for each missing, damaged or unknown file, sorted by name.
        """
        bad: dict[str, BadFile] = {}
        there = self.output.files(DATA)
        for numbers, record in list(self.records.items()):
            reason = None
            if record["file"] not in there:
                reason = "is missing"
            elif there[record["file"]] != record["bytes"]:
                reason = f"has {there[record['file']]:,} bytes, expected {record['bytes']:,}"
            elif check_all and (reason := check_shard(self.output, record)) is None:
                footer = read_record(self.output, record["file"], record["bytes"])
                if any(record.get(name) != value for name, value in footer.items()):
                    reason = f"has another record than in {MANIFEST}"
            if reason is not None:
                bad[record["file"]] = BadFile(record["file"], reason)
                del self.records[numbers]
            if on_read is not None and check_all:
                on_read(record["bytes"])
        for name, size in there.items():
            numbers_or_none = shard_numbers(name)
            if numbers_or_none is None:
                bad[name] = BadFile(name, "is not a shard of this job", Remedy.MOVE_AWAY)
            elif numbers_or_none not in self.records and name not in bad:
                if self.finished:
                    bad[name] = BadFile(name, "is not in the manifest", Remedy.MOVE_AWAY)
                elif (unusable := self._add(name, size, on_read)) is not None:
                    bad[name] = unusable
        rejected = self.output.files("rejected")
        for numbers, record in list(self.records.items()):
            name = rejected_name(record["file"])
            lines = (self.output.read(name) or b"").count(b"\n") if name in rejected and record["rejected"] else 0
            if lines != record["rejected"]:
                expected = f"the {record['rejected']:,} rejected documents of {record['file']}"
                bad[name] = BadFile(name, f"holds {lines:,} of {expected}")
                del self.records[numbers]
        return [bad[name] for name in sorted(bad)]

    def _add(self, name: str, size: int, on_read: OnRead | None) -> BadFile | None:
        """Add the record of a shard from its footer; return the difference if the shard cannot be used."""
        try:
            record = read_record(self.output, name, size)
        except ValueError:
            return BadFile(name, "is damaged")
        if record["job"] != self.digest:
            return BadFile(name, "is a shard of another job", Remedy.MOVE_AWAY)
        if (reason := check_shard(self.output, record)) is None:
            self.add(record)
        if on_read is not None:
            on_read(size)
        return None if reason is None else BadFile(name, reason)

    def finished_shards(self) -> dict[int, frozenset[int]]:
        """Return the numbers of the finished shards of each task."""
        numbers: dict[int, list[int]] = {}
        for task, shard in self.records:
            numbers.setdefault(task, []).append(shard)
        return {task: frozenset(shards) for task, shards in numbers.items()}

    def is_complete(self, task: int, shards: frozenset[int]) -> bool:
        """Return True if `shards` are all shards of a task."""
        return bool(shards) and len(shards) == max(shards) + 1 and self.records[task, max(shards)]["last"]

    # ------------------------------------------------------------------------------------------------------ comparison

    def differences(self, now: Manifest) -> list[str]:
        """Return a line for each setting of this manifest that differs in the manifest `now` of another run."""
        wrong = differences("", self.options, now.options)
        old, new = self.tokenizer["digest"], now.tokenizer["digest"]
        if old != new:
            wrong.append(f"tokenizer: other files (digest {old} before, {new} now)")
            wrong += differences("tokenizer.class", self.tokenizer["class"], now.tokenizer["class"])
        return wrong

    def input_differences(self, now: Manifest, *, names: bool) -> tuple[list[str], dict[int, str]]:
        """Compare the inputs; return a line for each that is refused, and the doubtful ones with their differences.

        `names` is True if the shards hold the names of the inputs.
        """
        if len(self.inputs) != len(now.inputs):
            return [f"inputs: {len(self.inputs)} before, {len(now.inputs)} now"], {}
        wrong, doubtful = [], {}
        for number, (old, new) in enumerate(zip(self.inputs, now.inputs, strict=True)):
            if names and old["name"] != new["name"]:
                wrong.append(f"input {number}: {old['name']} before, {new['name']} now")
            elif old["kind"] != new["kind"]:
                wrong.append(f"input {new['name']}: read as {old['kind']} before, as {new['kind']} now")
            elif {**old, "name": ""} != {**new, "name": ""}:
                sizes = f"{old.get('size')} bytes became {new.get('size')}, "
                doubtful[number] = sizes if old.get("size") != new.get("size") else ""
        return wrong, doubtful


def job_digest(manifest: Manifest) -> str:
    """Return the digest of a job: its settings, inputs and library versions.

    Names and times of its files are left out, and so is `on_bad_row`, which may change before the job is finished.
    """
    unused = {"mtime"} if "source" in manifest.config["columns"] else {"mtime", "name"}
    inputs = [{key: value for key, value in source.items() if key not in unused} for source in manifest.inputs]
    config = {name: value for name, value in manifest.config.items() if name != "on_bad_row"}
    described = [config, manifest.tokenizer["class"], manifest.tokenizer["digest"], inputs, manifest.libraries]
    return xxhash.xxh3_128_hexdigest(json.dumps(described, sort_keys=True).encode())


def differences(prefix: str, before: Any, now: Any) -> list[str]:
    r"""Compare two JSON values; return a line for each difference, with its dotted name and both values.

    Example:
        >>> differences("", {"pack": None, "stride": 0}, {"pack": 64, "stride": 0})
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
            wrong += differences(name, before[key], now[key])
    if prefix and not wrong and list(before) != list(now):  # for example the order of columns
        wrong.append(f"{prefix}: in the order {', '.join(before)} before, {', '.join(now)} now")
    return wrong


_TYPES = {"config": dict, "tokenizer": dict, "inputs": list, "libraries": dict, "digest": str}


def _json_of(output: Output, name: str) -> dict[str, Any] | None:
    """Return the content of `job.json` or `manifest.json`; `None` if it is missing or damaged."""
    text = output.read(name)
    if text is None:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("written_by") != _WRITER:
        raise value_error(f"{output}/{name} was not written by {_WRITER}", got=shorten(content), fix=OTHER_OUTPUT)
    if (version := content.get("format_version")) != FORMAT_VERSION:
        fix = f"the version of {_WRITER} that wrote it, or {OTHER_OUTPUT}"
        raise value_error(f"{output}/{name} must have format version {FORMAT_VERSION}", got=shorten(version), fix=fix)
    sound = all(isinstance(content.get(key), kind) for key, kind in _TYPES.items())
    return content if sound else None

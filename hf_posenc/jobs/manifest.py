"""The manifest of an output folder: settings, inputs and library versions, and the record of each shard.

The footer of each shard holds the same record, so a lost or changed manifest can be rebuilt from the shards. The
manifest has no timestamps and no number of processes, so equal corpora give equal manifests, even after interruptions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._explain import explain, shorten
from ..tokenization.serialized import RustOnlyTokenizer
from .folder import MANIFEST, STATE, output_file, shard_name, shard_number, shards_in
from .rejected import find_rejected
from .shard_file import FORMAT_VERSION, OnRead, damage, read_record
from .task import Cursor

if TYPE_CHECKING:
    from .options import Job

_WRITER = "hf-posenc"
_OTHER = "another --output folder, or delete this one"
_SECONDS = 1.0  # minimum time between two saves
# The only setting that may change before a job is finished: users often set it after a bad row stopped a run.
_BAD_ROWS = "on_bad_row"
_SUMS = ("rows", "documents", "tokens", "rejected", "cut", "blank", "padded", "bytes")
_LIBRARIES = ("hf-posenc", "tokenizers", "numpy", "pyarrow")

Inputs = list[dict[str, Any]]
SameInputs = Callable[[Inputs, Sequence[Any] | None, Mapping[int, Mapping[str, Any]]], list[str]]


class Manifest:
    r"""`manifest.json` of an output folder, in memory and on disk.

    Attributes: `folder`, `config`, `tokenizer`, `inputs`, `libraries` (JSON values that describe the job), `finished`,
    `totals` (sums over the shards) and `shards` (a record for each, by number).

    Args:
        folder (`Path`): the output folder.
        content (mapping): its JSON.
        problem (`str`, *optional*): the reason why the manifest on disk was unusable and this one was rebuilt.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = Manifest.open(Path(folder), config={"max_length": 8}, tokenizer={"digest": "1f"}, inputs=[])
        ...     manifest.finish()
        ...     print(Manifest.read(Path(folder)).totals["tokens"])
        0
    """

    def __init__(self, folder: Path, content: Mapping[str, Any], problem: str | None = None) -> None:
        self.folder = folder
        self.config: dict[str, Any] = content["config"]
        self.tokenizer: dict[str, Any] = content["tokenizer"]
        self.inputs: Inputs = content["inputs"]
        self.libraries: dict[str, str] = content["libraries"]
        self.finished: bool = content["finished"]
        self.totals: dict[str, Any] = content["totals"]
        self.shards: dict[int, dict[str, Any]] = {_number(record): record for record in content["shards"]}
        self.problem = problem
        self._other_libraries: list[str] = []
        self._save_at = 0.0
        self._on_disk: bytes | None = None  # the digest of the file that was read or saved last

    @classmethod
    def find(cls, folder: Path) -> Manifest | None:
        r"""Read the manifest of a folder; rebuild it in memory from the shards if it is lost or was changed.

        Args:
            folder (`Path`): the output folder.

        Returns:
            `Manifest`, with `.problem` set if it was rebuilt; `None` if the folder holds no output.

        Raises:
            ValueError: if the manifest was written by something else or in another format, or if it is damaged and
                there is no shard to rebuild it from.
        """
        problem, text = f"{MANIFEST} is missing", b""
        try:
            text = (folder / MANIFEST).read_bytes()
            content = json.loads(text)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (ValueError, RecursionError) as error:
            problem = f"{MANIFEST} is not JSON ({error})"
        else:
            _refuse_other_writer(folder / MANIFEST, content)
            if content.get("checksum") == _checksum(content):
                found = cls(folder, content)
                found._on_disk = _digest(text)
                return found
            problem = f"{MANIFEST} was changed after it was written"
        rebuilt = _rebuilt(folder, problem)
        if text:
            if rebuilt is None:
                raise ValueError(explain(f"{folder / MANIFEST} is damaged", got=problem, fix=_OTHER))
            rebuilt._on_disk = _digest(text)
        return rebuilt

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        r"""Read the manifest of a folder.

        Raises:
            ValueError: if there is none, or if it cannot be used.
        """
        found = cls.find(folder)
        if found is None:
            raise ValueError(
                explain(f"{folder} holds no {MANIFEST}", fix="a folder that hf-posenc encode wrote with --output")
            )
        if found.problem is not None:
            raise ValueError(
                explain(f"{folder / MANIFEST} is damaged", got=found.problem, fix="the same hf-posenc encode again")
            )
        return found

    @classmethod
    def open(
        cls,
        folder: Path,
        earlier: Manifest | None = None,
        *,
        config: Mapping[str, Any],
        tokenizer: Mapping[str, Any],
        inputs: Inputs,
        stamps: Sequence[Any] = (),
        same_inputs: SameInputs | None = None,
        libraries: Mapping[str, str] | None = None,
    ) -> Manifest:
        r"""Return the manifest of this job: the earlier one of the same job, otherwise a new one, saved at once.

        Args:
            folder (`Path`): the output folder.
            earlier (`Manifest`, *optional*): the result of `find`.
            config (mapping of JSON values): every setting that decides the bytes of the shards.
            tokenizer (mapping of JSON values): `digest` identifies it; the rest describes it.
            inputs (`list` of `dict`): the fingerprint of each input.
            stamps (sequence of JSON values): the timestamps of each input, saved in a file beside the manifest.
            same_inputs (callable, *optional*): takes the earlier fingerprints, the earlier stamps (`None` if lost) and
                the records of the finished shards; returns the differences in words.
            libraries (mapping, *optional*): versions of the libraries that decide the bytes of the shards; by default
                those of every job.

        Raises:
            ValueError: if the earlier manifest is of another job, naming each difference with both values.
        """
        now = _plain(
            {
                "config": config,
                "tokenizer": tokenizer,
                "inputs": inputs,
                "libraries": libraries or library_versions(),
                "finished": False,
                "totals": {},
                "shards": [],
            }
        )
        new = cls(folder, now)
        if earlier is None or not earlier.started:
            new._on_disk = None if earlier is None else earlier._on_disk
            new._save_stamps(stamps)
            new.save()
            return new
        earlier._check_same_job(new, same_inputs)
        earlier._save_stamps(stamps)
        return earlier

    @property
    def started(self) -> bool:
        """True if there is a shard, or the job is finished; before that, another job may use the folder."""
        return bool(self.finished or self.shards or shards_in(self.folder))

    def _check_same_job(self, now: Manifest, same_inputs: SameInputs | None) -> None:
        """Raise if this manifest is of another job than `now`; otherwise copy the values that may differ."""
        rebuilt = self.problem is not None
        before = self.config
        if not self.finished:
            before = {**before, _BAD_ROWS: now.config.get(_BAD_ROWS)}
        if rebuilt:  # the footers of shards have no names of inputs and tokenizer
            self.inputs, self.tokenizer = now.inputs, {**now.tokenizer, **self.tokenizer}
        wrong = differences("", before, now.config)
        wrong += _other_tokenizer(self.tokenizer, now.tokenizer)
        if same_inputs is not None:
            stamps = None if rebuilt else self._stamps(len(now.inputs))
            wrong += same_inputs(self.inputs, stamps, self.shards)
        if wrong:
            raise ValueError(
                explain(f"{self.folder} holds the output of another job", got="; ".join(wrong), fix=_OTHER)
            )
        self._other_libraries = differences("", self.libraries, now.libraries)
        if self.finished:
            return
        self._refuse_other_libraries()
        self.config = now.config
        earlier = [*self.inputs, *[{}] * len(now.inputs)]
        pairs = zip(earlier, now.inputs, strict=False)  # inputs after the last finished shard may have changed
        self.inputs = [old if _unnamed(old) == _unnamed(new) else new for old, new in pairs]

    def finished_shards(self, on_read: OnRead | None = None) -> dict[int, Cursor]:
        r"""Read every shard again, and return the intact ones.

        The records of the others are kept until their replacements are added.

        Args:
            on_read (callable, *optional*): called with the number of bytes of each block.

        Returns:
            `dict` from the number of each finished shard to the offset of its end in the input.

        Raises:
            ValueError: if shards have to be made again and the installed libraries have other versions.
        """
        rejected = find_rejected(self.folder, self.shards)
        finished = {
            shard: Cursor(*record["ends"])
            for shard, record in sorted(self.shards.items())
            if record[_BAD_ROWS] in (None, self.config.get(_BAD_ROWS))
            and shard not in rejected.bad
            and damage(self.folder / shard_name(shard), record, on_read) is None
        }
        complete = self.finished and list(finished) == list(range(len(self.shards)))
        if not complete:
            self._refuse_other_libraries()
        self.finished = complete and rejected.joined  # joining them again depends on no library
        return finished

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the record of a finished shard, and save unless the last save was recent. Unsaved shards are remade."""
        self.shards[_number(record)] = _plain(record)
        if time.monotonic() >= self._save_at:
            self.save()

    def save(self) -> None:
        r"""Save the manifest.

        Raises:
            OSError: if the file on disk is not the one that was read or saved last, because another run uses the
                folder; if it cannot be written.
        """
        began = time.monotonic()
        self._check_on_disk()
        text = self.text().encode("utf-8", "surrogatepass")  # file names may hold any bytes
        self._on_disk = None  # the old or the new file, if the next step is interrupted
        with output_file(self.folder / MANIFEST) as temporary:
            temporary.write_bytes(text)
        self._on_disk = _digest(text)
        # The manifest of 100,000 shards is large: space out the saves so that they take at most 1/20 of the run time.
        now = time.monotonic()
        self._save_at = now + max(_SECONDS, 20 * (now - began))

    def finish(self) -> None:
        """Compute the totals over all shards, mark the job as finished, and save the manifest."""
        records = self.shards.values()
        sums = {name: sum(record[name] for record in records) for name in _SUMS}
        longest = max((record["longest"] for record in records), default=0)
        self.totals = {**sums, "shards": len(records), "longest": longest}
        self.finished = True
        self.save()

    def text(self) -> str:
        """Return the JSON, with one line per shard. Equal content gives equal text."""
        content: dict[str, Any] = {
            "written_by": _WRITER,
            "format_version": FORMAT_VERSION,
            "finished": self.finished,
            "config": self.config,
            "tokenizer": self.tokenizer,
            "inputs": self.inputs,
            "libraries": self.libraries,
            "totals": self.totals,
        }
        # Sorted shards with sorted keys after "file", so that the text does not depend on the order of `add` calls.
        shards = [
            {"file": shard_name(shard), **dict(sorted(self.shards[shard].items()))} for shard in sorted(self.shards)
        ]
        content["checksum"] = _checksum({**content, "shards": shards})
        lines = [f"  {_json(key)}: {_json(value, indent=2)}," for key, value in content.items()]
        listed = "[\n" + ",\n".join(f"    {_json(record)}" for record in shards) + "\n  ]" if shards else "[]"
        return "\n".join(["{", *lines, f'  "shards": {listed}', "}", ""])

    def _check_on_disk(self) -> None:
        path = self.folder / MANIFEST
        if self._on_disk is None or not self.folder.is_dir():
            return
        try:
            got = None if _digest(path.read_bytes()) == self._on_disk else "another content"
        except FileNotFoundError:
            got = "no such file"
        if got is not None:
            raise OSError(
                explain(
                    f"{path} was changed by something else while this run used it",
                    got=got,
                    fix="let no other run use the folder, and run the same command again",
                )
            )

    def _stamps(self, number: int) -> list[Any] | None:
        """Return the timestamps saved by the last run; `None` if they are lost or for another number of inputs."""
        try:
            stamps = json.loads((self.folder / STATE).read_bytes())["stamps"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return stamps if isinstance(stamps, list) and len(stamps) == number else None

    def _save_stamps(self, stamps: Sequence[Any]) -> None:
        text = json.dumps({"stamps": stamps})
        path = self.folder / STATE
        if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
            with output_file(path) as temporary:
                temporary.write_text(text, encoding="utf-8")

    def _refuse_other_libraries(self) -> None:
        if self._other_libraries:
            raise ValueError(
                explain(
                    f"the shards that are missing in {self.folder} must be made by the versions that made the others",
                    got="; ".join(self._other_libraries),
                    fix=f"install those, or {_OTHER}",
                )
            )


def _rebuilt(folder: Path, problem: str) -> Manifest | None:
    """Rebuild a manifest from the footers of the shards; return `None` if no shard is intact."""
    records: list[dict[str, Any]] = []
    settings: dict[str, Any] | None = None
    for shard, path in shards_in(folder).items():
        try:
            record, its_settings = read_record(path)
        except ValueError:
            continue  # it is made again
        settings = settings or its_settings
        if record["file"] == shard_name(shard) and its_settings == settings:
            records.append(record)
    if settings is None:
        return None
    content = {**settings, "inputs": [], "finished": False, "totals": {}, "shards": records}
    return Manifest(folder, content, problem)


def job_settings(
    config: Mapping[str, Any], tokenizer: Mapping[str, Any], libraries: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings for the footers, without the tokenizer's name, so that equal jobs give equal shards."""
    return {
        "config": {name: value for name, value in config.items() if name != _BAD_ROWS},
        "tokenizer": {name: value for name, value in tokenizer.items() if name != "name"},
        "libraries": dict(libraries),
    }


def job_libraries(job: Job) -> tuple[str, ...]:
    """Return the names of the libraries whose version may change the bytes of the shards."""
    needs_transformers = job.tokenizer is not None and not isinstance(job.tokenizer.content, RustOnlyTokenizer)
    return (*_LIBRARIES, "transformers") if needs_transformers else _LIBRARIES


def library_versions(names: Iterable[str] = _LIBRARIES) -> dict[str, str]:
    r"""Return the installed version of each library, `"unknown"` for a checkout and for one that is not installed.

    Example:
        >>> list(library_versions()), library_versions(["no-such-distribution"])
        (['hf-posenc', 'tokenizers', 'numpy', 'pyarrow'], {'no-such-distribution': 'unknown'})
    """
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions


def differences(prefix: str, before: Any, now: Any) -> list[str]:
    r"""List the values that differ, each with its dotted name and both values.

    Args:
        prefix (`str`): the name of the compared value; empty for all settings, whose order is irrelevant.
        before, now (JSON values): dictionaries are compared key by key.

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


def _other_tokenizer(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the differences of two tokenizers; the digest decides, because a folder may have been moved."""
    old, new = before.get("digest"), now.get("digest")
    if old is not None and old == new:
        return []
    files = [] if old is None and new is None else [f"tokenizer: other files (digest {old} before, {new} now)"]
    rest = [{key: value for key, value in one.items() if key != "digest"} for one in (before, now)]
    return files + differences("tokenizer", *rest)


def _refuse_other_writer(path: Path, content: Any) -> None:
    if not isinstance(content, dict) or content.get("written_by") != _WRITER:
        raise ValueError(
            explain(f"{path} was not written by {_WRITER}", got=shorten(content), fix="another --output folder")
        )
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(
            explain(
                f"{path} must have format version {FORMAT_VERSION}",
                got=shorten(version),
                fix=f"the version of {_WRITER} that wrote it, or {_OTHER}",
            )
        )


def _number(record: Mapping[str, Any]) -> int:
    number = shard_number(record["file"])
    if number is None:
        raise ValueError(explain("a record must name its shard", got=shorten(record["file"]), fix=shard_name(0)))
    return number


def _unnamed(fingerprint: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fingerprint.items() if key != "name"}


def _checksum(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text.replace("\n", "\n  ")  # inside strings, line breaks are written as \\n


def _plain(value: Any) -> Any:
    """Return a copy of a value as JSON would give it back, with lists for tuples."""
    return json.loads(json.dumps(value))

"""The manifest of a job's output: what it was made from and how, and for each shard what it holds and its checksum.

It says nothing of when or by how many processes: a run that was interrupted ends with the same text as any other.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..._explain import explain, shorten
from ..task import Cursor
from .checksums import OnChecked, fault
from .content import damage
from .differences import differences, other_tokenizer
from .folder import MANIFEST, shard_name, shard_number, shards_in, written_whole
from .json_text import laid_out
from .libraries import installed
from .rejects import look

FORMAT_VERSION = 1
_WRITER = "hf-posenc"
_OTHER = "another --output folder, or delete this one"
_SECONDS = 1.0
# The one setting that may be another: it says what bad rows get, and is often asked for when the first one is met.
_BAD_ROWS = "on_bad_row"

SameInputs = Callable[[list[dict[str, Any]]], list[str]]


class Manifest:
    r"""`manifest.json` of an output folder, in memory and on disk.

    `open` makes or reads one; a folder that is only read needs no more than `read`.

    Args:
        folder (`Path`): where it lies.
        content (`dict`): its JSON.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = Manifest.open(Path(folder), config={"max_length": 8}, tokenizer={"digest": "1f"}, inputs=[],
        ...                              same_inputs=lambda before: [])
        ...     manifest.finish({"rows": 0, "tokens": 0})
        ...     print(Manifest.read(Path(folder)).totals)
        {'rows': 0, 'tokens': 0}
    """

    def __init__(self, folder: Path, content: Mapping[str, Any]) -> None:
        self.folder = folder
        self.config: dict[str, Any] = content["config"]
        self.tokenizer: dict[str, Any] = content["tokenizer"]
        self.inputs: list[dict[str, Any]] = content["inputs"]
        self.libraries: dict[str, str] = content["libraries"]
        self.finished: bool = content["finished"]
        self.totals: dict[str, Any] = content["totals"]
        self.shards: dict[int, dict[str, Any]] = {shard_number(record["file"]): record for record in content["shards"]}
        self._other_libraries: list[str] = []
        self._save_at = 0.0
        self._on_disk: bytes | None = None  # the digest of what was read or saved last

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        config: Mapping[str, Any],
        tokenizer: Mapping[str, Any],
        inputs: list[dict[str, Any]] | Callable[[], list[dict[str, Any]]],
        same_inputs: SameInputs,
        libraries: Mapping[str, str] | None = None,
    ) -> Manifest:
        r"""A new manifest, saved at once; or the one that is there, if this job is the one it was written for.

        Args:
            folder (`Path`): the output folder.
            config (mapping of JSON values): every setting that decides the bytes of the shards. With another
                `on_bad_row` the shards that had bad rows are forgotten; the others are the same under any.
            tokenizer (mapping of JSON values): `digest` tells it from others where there is one; the rest describes it.
            inputs (`list` of `dict`, or callable): the fingerprint of the input, or what takes it: it may be long, and
                is called for a new manifest only. With it, a manifest of a job that made nothing is written anew.
            same_inputs (callable): takes the fingerprint that is in the manifest, returns in words what differs.
            libraries (mapping, *optional*): versions, as `libraries.installed` tells them; by default those that every
                job depends on. They count while shards are to be made.

        Returns:
            `Manifest`. What one that is there says of inputs and tokenizer stays, as long as it means the same.

        Raises:
            ValueError: if the one that is there is of another job, naming each difference with both values; if it is
                not ours, or damaged, or of a later format.
        """
        now = _plain({"config": config, "tokenizer": tokenizer})
        now["libraries"] = dict(libraries if libraries is not None else installed())
        found = cls.read(folder) if (folder / MANIFEST).exists() else None
        # Where a run was stopped before it made anything, as by a bad first row, nothing holds the settings fast.
        made = found is not None and (found.finished or found.shards or shards_in(folder) or not callable(inputs))
        if found is None or not made:
            now["inputs"] = _plain(inputs() if callable(inputs) else inputs)
            new = cls(folder, {**now, "finished": False, "totals": {}, "shards": []})
            new.save()
            return new
        before = found.config
        found.config = {**before, _BAD_ROWS: now["config"][_BAD_ROWS]} if _BAD_ROWS in now["config"] else before
        wrong = differences("", found.config, now["config"])
        wrong += other_tokenizer(found.tokenizer, now["tokenizer"])
        wrong += same_inputs(found.inputs)
        found._other_libraries = differences("", found.libraries, now["libraries"])
        if not found.finished and not wrong:
            found._refuse_other_libraries()
        if wrong:
            raise ValueError(explain(f"{folder} holds the output of another job", got="; ".join(wrong), fix=_OTHER))
        if found.config != before:
            found._forget_rejected()
        return found

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        r"""The manifest of a folder, as it is there.

        Args:
            folder (`Path`): the output folder.

        Returns:
            `Manifest`.

        Raises:
            ValueError: if there is none, if it is not ours, damaged, or of a later format.
        """
        path = folder / MANIFEST
        try:
            text = path.read_bytes()
            content = json.loads(text)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                explain(
                    f"{folder} holds no {MANIFEST}", fix="the folder that was given as --output of hf-posenc encode"
                )
            ) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(explain(f"{path} is damaged: it is no JSON", got=str(error), fix=_OTHER)) from error
        if not isinstance(content, dict) or content.get("written_by") != _WRITER:
            raise ValueError(
                explain(f"{path} was not written by {_WRITER}", got=shorten(content), fix="another --output folder")
            )
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise ValueError(
                explain(
                    f"{path} must have format version {FORMAT_VERSION}", got=shorten(version),
                    fix=f"the {_WRITER} that wrote it, or {_OTHER}",
                )
            )  # fmt: skip
        if (wrong := damage(content)) is not None:
            raise ValueError(explain(f"{path} is damaged", got=wrong, fix=_OTHER))
        manifest = cls(folder, content)
        manifest._on_disk = _digest(text)
        return manifest

    def sound(self, on_checked: OnChecked | None = None) -> dict[int, Cursor]:
        r"""Reads every shard again and keeps those that are as they were written; the others are forgotten.

        Args:
            on_checked (callable, *optional*): is told the number of bytes that were read since it was last told.

        Returns:
            `dict` from the number of each shard that is sound to where it ends in the input.

        Raises:
            ValueError: if shards have to be made again, and by other versions of the libraries.
        """
        rejected = look(self.folder, self.shards)
        for shard in sorted(self.shards):
            record = self.shards[shard]
            path = self.folder / shard_name(shard)
            if shard in rejected.bad or fault(path, record["bytes"], record["sha256"], on_checked) is not None:
                del self.shards[shard]
                self.finished = False  # the last one leaves no gap
        complete = self.finished and sorted(self.shards) == list(range(len(self.shards)))
        if not complete:
            self._refuse_other_libraries()
        self.finished = complete and rejected.joined  # to join them once more takes no library
        if not self.finished:
            self.save()
        return {shard: Cursor(*self.shards[shard]["ends"]) for shard in sorted(self.shards)}

    def add(self, record: Mapping[str, Any]) -> None:
        r"""Notes a finished shard, and saves now or with one of the next: a shard that is not noted is only made again.

        Args:
            record (mapping): what `ShardWriter.write` says of it, `file`, `bytes`, `sha256`, `ends` and more.
        """
        self.shards[shard_number(record["file"])] = _plain(record)
        if time.monotonic() >= self._save_at:
            self.save()

    def save(self) -> None:
        r"""Saves what is noted, as when a run is about to stop.

        Raises:
            OSError: if the manifest on disk is no longer the one that was read or saved last: where the folder was
                deleted and made anew, and on file systems without locks, another run may be in it.
        """
        begun = time.monotonic()
        self._check_on_disk()
        text = self.text().encode("utf-8", "surrogatepass")  # names of files may be any bytes
        self._on_disk = None  # either, if what follows is interrupted
        with written_whole(self.folder / MANIFEST) as aside:
            aside.write_bytes(text)
        self._on_disk = _digest(text)
        # Of a hundred thousand shards the text is long: never more than a twentieth of the time goes into saving it.
        now = time.monotonic()
        self._save_at = now + max(_SECONDS, 20 * (now - begun))

    def finish(self, totals: Mapping[str, Any]) -> None:
        r"""Saves that the job is done.

        Args:
            totals (mapping of JSON values): sums over the shards.
        """
        self.totals = _plain(totals)
        self.finished = True
        self.save()

    def text(self) -> str:
        """The JSON that is saved: the same content gives the same text, a shard a line."""
        top = {
            "written_by": _WRITER,
            "format_version": FORMAT_VERSION,
            "finished": self.finished,
            "config": self.config,
            "tokenizer": self.tokenizer,
            "inputs": self.inputs,
            "libraries": self.libraries,
            "totals": self.totals,
        }
        return laid_out(top, [self.shards[shard] for shard in sorted(self.shards)])

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
                    fix="let no other run use the folder, and run the same again",
                )
            )

    def _forget_rejected(self) -> None:
        """The shards that had bad rows are to be made again; the others are the same whatever those get."""
        self.shards = {shard: record for shard, record in self.shards.items() if not record.get("rejected")}
        self.finished = False
        self.save()

    def _refuse_other_libraries(self) -> None:
        if self._other_libraries:
            raise ValueError(
                explain(
                    f"the shards that are missing in {self.folder} must be made by the versions that made the others",
                    got="; ".join(self._other_libraries),
                    fix=f"install those, or {_OTHER}",
                )
            )


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _plain(value: Any) -> Any:
    """As it comes back from disk: tuples are lists, and the values are the caller's no more."""
    return json.loads(json.dumps(value))

"""Damaged and hostile files: every file of a saved collator is mutated, byte by byte and value by value.

A read ends with a result or a documented error, runs no code and leaves other folders alone. The command runs this
part under a limit on memory.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hf_posenc import DataCollatorWithPositionalEncoding

from .collating import Refused, documented
from .kinds import MODELS, ROLES, Kind

SPARE_MEMORY = 2 << 30  # that a read may take
_SECRET = "the content of a file in another folder"
_HOSTILE: list[Any] = [
    *(None, True, False, -1, 0, 1, 10**6, 2**31, 2**63, 10**30, -(10**9), 0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "../../outside/secret.txt", "/etc/passwd", "\x00", "data/../../outside/secret.txt", "é" * 300, "1e999"),
    *([], [[]], [1, "a", None], {}, {"a": {}}, [[[[[[[[1]]]]]]]], {"type": "Sequence"}, {"__class__": "os.system"}),
    *("eval", "AutoTokenizer", "PreTrainedTokenizerFast", "BertTokenizer", "os.system", "torch.nn.Linear", "float33"),
]


def limit_memory() -> None:
    """Limit the address space of this process to its present size and `SPARE_MEMORY`."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


# -------------------------------------------------------------------------------------------------- events of a process


class _Watch:
    """Audit hook that notes what a read does outside of the allowed folders."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.allowed is None:
            return
        if event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"):
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event in (
            "open",
            "os.remove",
            "os.rename",
            "os.mkdir",
            "os.rmdir",
            "os.symlink",
            "os.link",
            "os.truncate",
        ):
            path = arguments[0]
            if isinstance(path, str | bytes | os.PathLike):
                full = os.path.realpath(os.fsdecode(path))
                writes = event != "open" or bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
                if not full.startswith(self.allowed if not writes else self.allowed[:2]):
                    self.seen.append(f"{event} {full} {arguments[1:]!r:.60}")


@functools.cache
def _watch() -> _Watch:
    return _Watch()


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Assert that only files below a folder, temporary files and installed packages are opened, and no code is run."""
    paths = sysconfig.get_paths()
    libraries = [paths["stdlib"], paths["purelib"], paths["platlib"], sys.base_prefix, str(Path(__file__).parents[3])]
    watch = _watch()
    watch.seen.clear()
    watch.allowed = (
        str(folder.resolve()),
        f"{os.path.realpath(tempfile.gettempdir())}/hf_posenc-",
        f"{os.path.realpath(tempfile.gettempdir())}/tmp",
        *map(os.path.realpath, [*libraries, *filter(None, [sys.pycache_prefix])]),
        *("/dev/null", "/proc/self", "/sys", "/usr", "/lib", str(Path.home() / ".cache")),
    )
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # of modules that are imported now
    try:
        yield
    finally:
        watch.allowed, sys.dont_write_bytecode = None, writes_bytecode
    assert not watch.seen, f"outside of the folder: {watch.seen}"


# ------------------------------------------------------------------------------------------------------------ mutations


def mutate(draw: st.DrawFn, content: bytes) -> bytes:
    """Return content with some damage: bytes changed, removed, inserted or repeated, JSON values replaced."""
    how = draw(st.sampled_from(["json", "json", "json", "bytes", "bytes", "whole"]))
    if how == "json":
        with contextlib.suppress(ValueError):
            return _other_values(draw, json.loads(content))
    if how == "whole":
        return draw(
            st.sampled_from(
                [
                    b"",
                    b"{}",
                    b"[]",
                    b"null",
                    b"\xff\xfe",
                    b"[" * 100_000,
                    b'{"a":' * 50_000,
                    b"NaN",
                    b"1" * 10_000,
                    b"\x00" * 99,
                ]
            )
        )
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(len(changed) - 1, 0)))
        stop = min(start + draw(st.sampled_from([1, 1, 2, 8, 64])), len(changed))
        action = draw(st.sampled_from(["flip", "delete", "insert", "truncate", "repeat", "number"]))
        if action == "flip" and changed:
            changed[start] ^= 1 << draw(st.integers(0, 7))
        elif action == "delete":
            del changed[start:stop]
        elif action == "insert":
            changed[start:start] = draw(st.binary(min_size=1, max_size=8))
        elif action == "truncate":
            del changed[start:]
        elif action == "repeat":
            changed[start:start] = changed[start:stop] * draw(st.sampled_from([1, 2, 1000]))
        else:
            digits = [i for i in range(start, min(start + 200, len(changed))) if changed[i : i + 1].isdigit()][:1]
            for digit in digits:
                changed[digit : digit + 1] = draw(st.sampled_from([b"9" * 400, b"-1", b"1e999", b"NaN"]))
    return bytes(changed)


def _other_values(draw: st.DrawFn, value: Any) -> bytes:
    """Return JSON with one to three of its values replaced, removed or added."""
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if not places:
            break
        parent, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "swap"]))
        if action == "remove":
            with contextlib.suppress(KeyError, IndexError):
                del parent[key]
        elif action == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["trust_remote_code", "x", "__class__", "auto_map", "", "embedding"]))] = 1
        elif action == "swap":
            other, name = draw(st.sampled_from(places))
            with contextlib.suppress(KeyError, IndexError):
                parent[key] = json.loads(json.dumps(other[name]))
        else:
            parent[key] = copy.deepcopy(draw(st.sampled_from(_HOSTILE)))
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON value with a key in it; of a long list only the first entries."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, inner in items[:40]:
        yield value, key
        yield from _places(inner)


# ---------------------------------------------------------------------------------------------------------------- parts


@functools.cache
def _originals() -> dict[str, dict[str, bytes]]:
    """Return the files of saved collators, with tokenizers of each kind."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            collate = DataCollatorWithPositionalEncoding(Kind(model, tuple(ROLES), "single").make(), max_length=8)
            collate.save_pretrained(f"{name}/{model}")
            found[model] = {path.name: path.read_bytes() for path in sorted(Path(name, model).iterdir())}
    return found


@contextlib.contextmanager
def _damaged(data: st.DataObject, files: dict[str, bytes]) -> Iterator[Path]:
    """Write the files with damage in one of them, or a link in its place, and a file outside that stays as it is."""
    top = Path(tempfile.mkdtemp(prefix="hf_posenc-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        folder, outside = top / "folder", top / "outside"
        folder.mkdir()
        outside.mkdir()
        (outside / "secret.txt").write_text(_SECRET)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        name = data.draw(st.sampled_from(sorted(files)), "file")
        how = data.draw(st.sampled_from([*["content"] * 12, "link", "link to folder", "folder", "missing"]), "damage")
        path = folder / name
        if how == "content":
            path.write_bytes(mutate(data.draw, files[name]))
        else:
            path.unlink()
            if how == "link":
                path.symlink_to(outside / "secret.txt")
            elif how == "link to folder":
                path.symlink_to(outside)
            elif how == "folder":
                path.mkdir()
        yield folder
        # A link is followed, as transformers does in its cache; what it points to is not changed.
        assert (outside / "secret.txt").read_text() == _SECRET
        assert [path.name for path in outside.iterdir()] == ["secret.txt"]
    finally:
        shutil.rmtree(top, ignore_errors=True)


def damaged_collators(data: st.DataObject) -> int:
    """A damaged folder of a collator, or of a tokenizer alone, loads or is refused."""
    files = dict(_originals()[data.draw(st.sampled_from(MODELS), "tokenizer")])
    if data.draw(st.booleans(), "without digests"):
        saved = json.loads(files["hf_posenc.json"])
        del saved["tokenizer"]
        files["hf_posenc.json"] = json.dumps(saved).encode()
    with _damaged(data, files) as folder, watched(folder.parent), contextlib.suppress(Refused), documented():
        if data.draw(st.booleans(), "collator"):
            collate = DataCollatorWithPositionalEncoding.from_pretrained(folder)
        else:
            collate = DataCollatorWithPositionalEncoding(folder, max_length=8)
        collate(["I ride bike", "she said"])
    return 1

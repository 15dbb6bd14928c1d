"""What the inputs of a job name: files, folders, patterns, data sets; each turned to sources in a fixed order.

Nothing is read but what tells one kind from another.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._explain import explain
from ..reading.rows import Reading
from .columnar import ArrowFile, ParquetFile
from .data_sets import DataSet, StreamedSet
from .delimited import CsvFile
from .json_array import JsonArrayFile, is_array
from .kinds import COMPRESSIONS, Format, compression_of, format_of, is_known
from .lines import TextFile
from .sets import by_name, described, of_object, saved
from .splits import SPLITS, chosen, split_of

Source = TextFile | JsonArrayFile | CsvFile | ParquetFile | ArrowFile | DataSet | StreamedSet

# Files that describe a data set and are none of it.
_ABOUT = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "readme.md", "readme.txt"}
# How a manifest of ours begins.
_WRITTEN_BY_US = re.compile(rb'\s*\{\s*"written_by":\s*"hf-posenc"')
_BEGINNING = 200  # bytes


@dataclass(frozen=True)
class Finder:
    r"""How inputs are to be understood.

    Args:
        reading (`Reading`): the columns of text.
        format (`str`, *optional*): what files hold, whatever their names say.
        paragraphs (`bool`): whether a document of a file of text is a paragraph.
        config (`str`, *optional*), split (`str`, *optional*): which part of a data set or folder.
    """

    reading: Reading
    format: Format | None
    paragraphs: bool
    config: str | None
    split: str | None

    def sources(self, given: Any) -> list[Source]:
        r"""The sources that one input stands for.

        Args:
            given (`str`, `Path`, `Dataset` or `IterableDataset`): a file, a folder, a pattern, a name, an object.

        Returns:
            list of sources, at least one.
        """
        if not isinstance(given, str | os.PathLike):
            return [of_object(given, self.reading)]
        name = os.fspath(given)
        path = Path(name).expanduser()
        if path.is_dir():
            return self._folder(name, path)
        if path.exists():
            return [self.file(name, path)]
        if glob.has_magic(name):
            matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
            matches = [one for one in matches if Path(one).is_file()]
            if not (found := _without_output(_once([Path(one) for one in matches]), _fixed(path))):
                got = "nothing but the output of earlier runs" if matches else None
                raise FileNotFoundError(
                    explain(f"no file matches {name!r}", got=got, fix="check the folder and the pattern")
                )
            return [self.file(str(one), one) for one in found]
        if isinstance(given, os.PathLike) or _looks_like_path(name):
            raise FileNotFoundError(_missing(name, path))
        return list(by_name(name, self.config, self.split, self.reading))

    def file(self, name: str, path: Path) -> Source:
        """The source that one file is."""
        if not path.exists():
            raise FileNotFoundError(_missing(name, path))
        if not path.is_file():
            raise ValueError(
                explain(
                    f"{name} is no file that can be read twice",
                    got="a pipe or a device",
                    fix="write it to a file first: a job that is interrupted reads its input again",
                )
            )
        holds = self.format or format_of(path.name)
        compression = compression_of(path.name)
        if holds in ("parquet", "arrow") and compression is not None:
            raise ValueError(
                explain(
                    f"{name}: {holds} files are compressed inside, and cannot be read in one that is compressed again",
                    fix="unpack it first: gunzip, zstd -d, bunzip2, unxz",
                )
            )
        if holds == "parquet":
            return ParquetFile(name, path, "parquet", None, self.reading)
        if holds == "arrow":
            return ArrowFile(name, path, "arrow", None, self.reading)
        if holds == "csv":
            return CsvFile(name, path, "csv", compression, self.reading)
        if holds == "json":
            by_line = path.suffix.lower() in (".jsonl", ".ndjson") or path.suffixes[-2:-1] in ([".jsonl"], [".ndjson"])
            if not by_line and is_array(str(path), compression, name):
                return JsonArrayFile(name, path, "json array", compression, self.reading)
            return TextFile(name, path, "jsonl", compression, self.reading)
        return TextFile(name, path, "paragraphs" if self.paragraphs else "lines", compression, self.reading)

    def _folder(self, name: str, path: Path) -> list[Source]:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            return [saved(name, path, self.split, self.reading)]
        if (found := described(name, path, self.config, self.split, self.reading)) is not None:
            ours = _without_output([one for one in found if isinstance(one, Path)], path)
            return [self.file(str(one), one) for one in ours] + [one for one in found if not isinstance(one, Path)]
        files = list(_data_files(path, everything=self.format is not None))
        if not files:
            raise ValueError(
                explain(
                    f"{name} has no data files",
                    got="nothing below it whose name says text, JSON, CSV, Parquet or Arrow",
                    fix="format='text' (--format text) takes all files below it",
                )
            )
        split_for = {one: split_of(one.relative_to(path)) for one in files}
        there = [split for split in SPLITS if split in split_for.values()]
        unnamed = None
        if there and "train" not in there and None in split_for.values():
            unnamed = f"train ({next(one.name for one, split in split_for.items() if split is None)}, ...)"
            split_for = {one: split or "train" for one, split in split_for.items()}
            there = ["train", *there]
        if self.split is not None or len(there) > 1:
            wanted = chosen(name, there, self.split, unnamed)
            files = files if self.split == "all" else [one for one in files if split_for[one] in wanted]
        return [self.file(os.path.join(name, one.relative_to(path)), one) for one in files]  # noqa: PTH118


def _data_files(folder: Path, *, everything: bool, seen: set[Path] | None = None) -> Iterator[Path]:
    """The files below a folder that hold data, those of each folder in order before those below.

    None that is hidden, and none that a job wrote: its output may lie beside its input. A folder that links lead to
    again is read once.
    """
    seen = set() if seen is None else seen
    if (real := folder.resolve()) in seen:
        return
    seen.add(real)
    inside = sorted(folder.iterdir(), key=lambda one: (one.is_dir(), one.name))
    for one in inside:
        if one.name.startswith((".", "_")) or one.name.lower() in _ABOUT:
            continue
        if one.is_dir():
            if is_output(one):
                continue
            yield from _data_files(one, everything=everything, seen=seen)
        elif everything or is_known(one.name):
            yield one


def _once(files: list[Path]) -> list[Path]:
    """Those files without the ones in folders that are there already, and that a link leads to again."""
    shortest: dict[Path, Path] = {}
    for folder in sorted({file.parent for file in files}, key=lambda one: (len(one.parts), one)):
        shortest.setdefault(folder.resolve(), folder)
    kept = set(shortest.values())
    return [file for file in files if file.parent in kept]


def is_output(folder: Path) -> bool:
    """Whether a job of ours writes, or wrote, to a folder: its manifest says so at the very beginning."""
    try:
        with (folder / "manifest.json").open("rb") as file:
            return _WRITTEN_BY_US.match(file.read(_BEGINNING)) is not None
    except OSError:
        return False


def _without_output(files: list[Path], top: Path) -> list[Path]:
    """Those files that lie in no output of ours below `top`, which was named and is read whatever it is."""
    known = {top: False}

    def below_output(folder: Path) -> bool:
        if folder not in known:
            known[folder] = folder != folder.parent and (is_output(folder) or below_output(folder.parent))
        return known[folder]

    return [file for file in files if not below_output(file.parent)]


def _fixed(pattern: Path) -> Path:
    """The folder that a pattern names before its first wildcard."""
    return next(folder for folder in pattern.parents if not glob.has_magic(str(folder)))


def _looks_like_path(name: str) -> bool:
    """Whether a name is one of a file rather than of a data set: those are `name` or `owner/name`."""
    ending = name.rsplit(".", 1)[-1].lower() if "." in name else ""
    return (
        is_known(name)
        or ending in COMPRESSIONS
        or name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or "\\" in name
        or not name.strip()
    )


def _missing(name: str, path: Path) -> str:
    """What to say about a file that is not there; the nearest name that is, where there is one."""
    if path.is_symlink():
        leads = os.readlink(path)  # noqa: PTH115 (as it is written, which a Path would tidy up)
        return explain(f"{name} is a link to a file that is not there", got=leads, fix="mend the link, or leave it out")
    there = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, there, n=1)
    beside = f"; {path.parent} is there" if path.parent.is_dir() else f", and no folder {path.parent}"
    return explain(
        f"there is no file {name}",
        got=f"no such file{beside}",
        fix=str(path.parent / near[0]) if near else "check the path",
    )

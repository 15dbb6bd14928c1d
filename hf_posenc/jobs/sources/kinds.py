"""What a file holds and how it is compressed, told by its name.

Names only: no file is opened here, and a file of an unknown name is taken for text.
"""

from __future__ import annotations

from typing import Literal

from ..._explain import one_of

Format = Literal["text", "json", "csv", "parquet", "arrow"]

FORMATS: tuple[Format, ...] = ("text", "json", "csv", "parquet", "arrow")
_BY_ENDING: dict[str, Format] = {
    "txt": "text",
    "text": "text",
    "jsonl": "json",
    "ndjson": "json",
    "json": "json",
    "csv": "csv",
    "tsv": "csv",
    "parquet": "parquet",
    "pq": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
}
# Where Arrow or the standard library knows the compression; the names are Arrow's.
COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zst": "zstd", "lz4": "lz4"}


def compression_of(name: str) -> str | None:
    r"""How a file is compressed, as its last ending says.

    Example:
        >>> compression_of("pile/00.jsonl.zst"), compression_of("notes.txt")
        ('zstd', None)
    """
    return COMPRESSIONS.get(_endings(name)[-1])


def format_of(name: str) -> Format:
    r"""What a file holds, as the ending before that of its compression says; text where it says nothing known.

    Example:
        >>> [format_of(name) for name in ("a.txt", "b.jsonl.gz", "c.parquet", "README")]
        ['text', 'json', 'parquet', 'text']
    """
    return _BY_ENDING.get(_kind_ending(name), "text")


def is_known(name: str) -> bool:
    """Whether a file's name says what it holds, so that it counts as data when a folder is read."""
    return _kind_ending(name) in _BY_ENDING


def checked_format(format: str | None) -> None:
    """Refuse a format that is none of `FORMATS`."""
    if format is not None and format not in FORMATS:
        raise ValueError(one_of("format", format, FORMATS))


def _kind_ending(name: str) -> str:
    endings = _endings(name)
    if endings[-1] in COMPRESSIONS:
        endings = endings[:-1] or [""]
    return endings[-1]


def _endings(name: str) -> list[str]:
    """The parts of a file's name after its first dot, in lower case; one empty part where there is none."""
    return name.replace("\\", "/").rsplit("/", 1)[-1].lower().split(".")[1:] or [""]

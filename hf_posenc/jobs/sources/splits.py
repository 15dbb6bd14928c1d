"""Which split of a data set, or of a folder of files, is read: the one asked for, or the only one there is.

Where there are several, one has to be chosen: to read a test set along with the rest is never meant in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from ..._explain import explain

SPLITS = ("train", "validation", "test")
# As `load_dataset` tells splits by words in names of files and folders.
_WORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}


def split_of(path: PurePath) -> str | None:
    r"""The split that a file belongs to, as a word in its name, or in that of a folder, says.

    Example:
        >>> split_of(PurePath("train-00001.jsonl")), split_of(PurePath("dev/a.txt")), split_of(PurePath("notes.txt"))
        ('train', 'validation', None)
    """
    for part in reversed(path.parts):
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in _WORDS:
                return _WORDS[word]
    return None


def chosen(name: str, there: Sequence[str], asked: str | None, unnamed: str | None = None) -> list[str]:
    r"""The splits to read.

    Args:
        name (`str`): of the data set or folder.
        there (sequence of `str`): its splits.
        asked (`str`, *optional*): one of them, several joined by `+`, or `"all"`.
        unnamed (`str`, *optional*): what the first one is, where its name is not to be seen.

    Returns:
        `list[str]`.

    Raises:
        ValueError: if there are several and none is asked for, or if one that is asked for is not there.

    Example:
        >>> chosen("pile", ["train", "test"], "test"), chosen("pile", ["train", "test"], "all")
        (['test'], ['train', 'test'])
    """
    if asked is None:
        if len(there) > 1:
            raise ValueError(
                explain(
                    f"{name} has several splits, and one has to be chosen",
                    got=", ".join([unnamed or there[0], *there[1:]]),
                    fix=f'dataset_split="{there[0]}" (--dataset-split {there[0]}), "{there[0]}+{there[1]}", or "all"',
                )
            )
        return list(there)
    if asked == "all":
        return list(there)
    wanted = [word.strip() for word in asked.split("+")]
    for split in wanted:
        if split not in there:
            raise ValueError(
                explain(
                    f"{name} has no split {split!r}",
                    got=f"its splits are {', '.join(there) or 'not told apart by names'}",
                    fix=f'dataset_split="{there[0] if there else "all"}"',
                )
            )
    return wanted

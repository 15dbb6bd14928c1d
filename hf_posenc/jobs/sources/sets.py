"""Data sets opened by `datasets`: from an object, a folder that it saved or that describes itself, a name on the Hub.

`datasets` is loaded here and only when one of these is among the inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..._explain import explain
from ..reading.rows import Reading
from .data_sets import DataSet, StreamedSet
from .files import InputFile
from .splits import chosen

# Readers of `datasets` whose files we read ourselves, so that lines can be named and jumped to.
_OURS = {"text", "json", "csv", "parquet", "arrow"}
# Settings of a reader of `datasets` that do not change what a file says.
_PLAIN = {"name", "version", "data_dir", "data_files", "description"}


def of_object(given: Any, reading: Reading) -> DataSet | StreamedSet:
    r"""The source that a data set object is.

    Args:
        given (`datasets.Dataset` or `datasets.IterableDataset`): the set.
        reading (`Reading`): the columns of text.

    Returns:
        `DataSet` or `StreamedSet`.

    Raises:
        TypeError: for any other object, with what would be right.
        ValueError: for a dictionary of splits, or a set with a transform.
    """
    import datasets

    if isinstance(given, datasets.Dataset):
        if given.format["type"] == "custom":
            raise ValueError(
                explain(
                    "a transform is applied when rows are taken one by one, and its columns are not known",
                    got="a Dataset with with_transform or set_transform",
                    fix="data.with_format(None).map(transform, batched=True), which stores what the transform makes",
                )
            )
        return DataSet("Dataset", given, {"fingerprint": given._fingerprint}, reading)
    if isinstance(given, datasets.IterableDataset):
        return StreamedSet("IterableDataset", given, {"fingerprint": _digest_of(given)}, reading)
    if isinstance(given, dict) and given:
        splits = ", ".join(map(str, given))
        first = next(iter(given))
        raise ValueError(explain("a dictionary of splits is several data sets", got=splits, fix=f"data[{first!r}]"))
    raise TypeError(
        explain(
            "an input is a path, a pattern, a name, a Dataset or an IterableDataset",
            got=type(given).__name__,
            fix="Dataset.from_dict({'text': texts}) for texts in memory",
        )
    )


def _digest_of(stream: Any) -> str | None:
    """What tells a stream from others: its steps, their functions and seeds, however far it was read before."""
    from datasets.fingerprint import Hasher

    try:
        steps = copy.deepcopy(stream._ex_iterable)
        steps._init_state_dict()  # the one that was read keeps the place it was at
        return str(Hasher.hash(steps))
    except Exception:  # what cannot be pickled cannot be known again: a connection, a lock
        return None


def saved(name: str, path: Path, split: str | None, reading: Reading) -> DataSet:
    """A folder that `save_to_disk` wrote: one set, or one for each split."""
    import datasets

    data = _worded(name, datasets.load_from_disk, str(path))
    if isinstance(data, datasets.DatasetDict):
        wanted = chosen(name, list(data), split)
        data = data[wanted[0]] if len(wanted) == 1 else datasets.concatenate_datasets([data[one] for one in wanted])
    elif split not in (None, "all", str(data.split)):
        raise ValueError(
            explain(
                f"{name} was saved as one data set, without splits", got=f"dataset_split={split!r}", fix="leave it out"
            )
        )
    files = [Path(one["filename"]) for one in data.cache_files]
    held = tuple(InputFile(str(one), one, "arrow", None) for one in files)
    return DataSet(name, data, {}, reading, files=held)


def described(
    name: str, path: Path, config: str | None, split: str | None, reading: Reading
) -> list[Path | StreamedSet] | None:
    """What a folder holds whose README says so, as sets on the Hub do; `None` for a folder that does not say."""
    readme = path / "README.md"
    if not readme.is_file() or not readme.read_text("utf-8", errors="replace").startswith("---"):
        return None
    if "\nconfigs:" not in readme.read_text("utf-8", errors="replace").partition("\n---")[0]:
        return None
    import datasets

    builder = _worded(name, datasets.load_dataset_builder, str(path), config)
    there: dict[str, list[str]] = {str(one): list(files) for one, files in (builder.config.data_files or {}).items()}
    wanted = chosen(name, list(there), split)
    files = [Path(file) for one in wanted for file in there[one]]
    default = type(builder.config)()
    plain = all(value == getattr(default, key) for key, value in vars(builder.config).items() if key not in _PLAIN)
    if plain and "packaged_modules" in type(builder).__module__ and builder.__module__.rsplit(".", 1)[-1] in _OURS:
        return list(files)
    held = tuple(InputFile(str(file), file, "file", None) for file in files if file.is_file())
    settings = {"config": builder.config.name}
    return [
        StreamedSet(
            f"{name} ({one})", builder.as_streaming_dataset(one), {**settings, "split": one}, reading, files=held
        )
        for one in wanted
    ]


def by_name(name: str, config: str | None, split: str | None, reading: Reading) -> list[DataSet | StreamedSet]:
    r"""A data set that `datasets` knows by name: streamed, or as it lies in the cache where the Hub is not to be asked.

    Args:
        name (`str`), config (`str`, *optional*): as `load_dataset` takes them.
        split (`str`, *optional*): as `chosen` takes it.
        reading (`Reading`): the columns of text.

    Returns:
        A source for each split.
    """
    import datasets

    builder = _worded(name, datasets.load_dataset_builder, name, config)
    there = [str(one) for one in (builder.info.splits or builder.config.data_files or ())]
    settings = {"config": builder.config.name, "commit": builder.hash}
    found: list[DataSet | StreamedSet] = []
    for one in chosen(name, there, split) or ["train"]:
        called = f"{name} ({one})" if builder.config.name == "default" else f"{name} ({builder.config.name}, {one})"
        identity = {**settings, "split": one}
        if datasets.config.HF_HUB_OFFLINE:
            found.append(DataSet(called, _worded(name, builder.as_dataset, one), identity, reading))
        else:
            found.append(StreamedSet(called, _worded(name, builder.as_streaming_dataset, one), identity, reading))
    return found


def _worded(name: str, load: Callable[..., Any], *given: object) -> Any:
    """What `datasets` loads, its errors in our words."""
    try:
        return load(*given)
    except Exception as wrong:
        said = str(wrong).strip().splitlines() or [type(wrong).__name__]
        here = Path(name).expanduser().exists()
        rule = (
            f"{name} cannot be loaded by datasets" if here else f"{name!r} is no file here, and no data set to be had"
        )
        fix = "dataset_config=... (--dataset-config) names a configuration"
        fix = fix if here else f"check the name; unset HF_HUB_OFFLINE to let it be fetched; {fix}"
        raise ValueError(explain(rule, got=said[0], fix=fix)) from wrong

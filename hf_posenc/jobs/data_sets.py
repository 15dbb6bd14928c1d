"""Inputs from the `datasets` library: data set objects, folders that `save_to_disk` wrote, and names on the Hub.

No other module of `jobs` imports `datasets`. This one imports it for objects and names, and reads folders without it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from .._common.arrow import row_sizes
from .._common.errors import type_error, value_error
from .._common.files import path_inside, read_whole
from .schema import Columns, SourceColumns
from .tables import BATCH_BYTES, BATCH_ROWS, ArrowFile, refuse_damage

_FIRST_ROWS = 64
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class DataSet:
    r"""Data set of the `datasets` library as input of a job: each row is a document.

    `from_object` and `from_hub` return it.

    Args:
        name (`str`): name of the data set in messages.
        data (`datasets.Dataset` or `datasets.IterableDataset`): the data set; an `IterableDataset` is streamed.
        identity (`dict`): JSON values to include in `fingerprint`, such as split and commit of a data set on the Hub.
    """

    name: str
    data: Any
    identity: dict[str, Any]

    @property
    def can_seek(self) -> bool:
        """True if rows can be read by index; False for a streamed data set."""
        return hasattr(self.data, "__len__")

    @property
    def kind(self) -> str:
        """Value of `"kind"` in the fingerprint: `"data set"` or `"streamed data set"`."""
        return "data set" if self.can_seek else "streamed data set"

    def size(self, columns: Columns) -> int | None:
        """Return the estimated size of all values in `columns`, in bytes; `None` if the data set is streamed or empty.

        The estimate is the mean size of the first rows times the number of rows.
        """
        if not self.can_seek:
            return None
        first = next(self.batches(0, columns.schema.names), None)
        return None if first is None else int(row_sizes(first).mean() * len(self.data))

    def fingerprint(self) -> dict[str, Any]:
        """Return JSON values that identify the data set in a later run: kind, number of rows, and `self.identity`.

        The number of rows is missing if the data set is streamed.
        """
        rows = {"rows": len(self.data)} if self.can_seek else {}
        return {"kind": self.kind, **rows, **self.identity}

    def stamp(self) -> list[Any]:
        """Return an empty list, because a data set has no timestamps; see `InputFile.stamp`."""
        return []

    def read_columns(self, texts: object) -> SourceColumns | None:
        """Return the names and types of the columns.

        A stream without features has the keys of its first row as columns, without known types; if it has no rows,
        return `None`. `texts`, the text columns, is not used; only text files need it.
        """
        if self.data.features is not None:
            return SourceColumns(self.name, self.data.features.arrow_schema)
        first = next(iter(self.data.with_format(None)), None)
        schema = pa.schema([(name, pa.string()) for name in first or ()])
        return None if first is None else SourceColumns(self.name, schema, typed=False)

    def batches(self, row: int, names: list[str]) -> Generator[pa.RecordBatch]:
        """Yield batches of the columns `names`, starting at the row with index `row`.

        For a streamed data set, `row` is ignored, and all rows are yielded.
        """
        with refuse_damage(self.name, "a data set"):
            yield from self._by_index(row, names) if self.can_seek else self._streamed(names)

    def _by_index(self, row: int, names: list[str]) -> Generator[pa.RecordBatch]:
        rows, step, size = self.data.select_columns(names).with_format("arrow"), _FIRST_ROWS, 1
        while row < len(rows):
            for batch in rows[row : row + step].combine_chunks().to_batches():
                yield batch
                size = int(row_sizes(batch).sum())
            row += step
            step = max(1, min(BATCH_ROWS, 2 * step, step * BATCH_BYTES // max(1, size)))

    def _streamed(self, names: list[str]) -> Generator[pa.RecordBatch]:
        if self.data.features is None:
            first = 0
            for rows in self.data.with_format(None).iter(batch_size=_FIRST_ROWS):
                yield pa.record_batch({name: self._texts(name, rows, first) for name in names})
                first += len(next(iter(rows.values())))
            return
        data = self.data.with_format("arrow")
        if data._ex_iterable.iter_arrow is not None:
            tables = data.iter(batch_size=_FIRST_ROWS)
        else:  # datasets would concatenate the rows of a batch before it casts them
            alone = data.iter(batch_size=1)
            tables = (pa.concat_tables(some) for some in iter(lambda: list(islice(alone, _FIRST_ROWS)), []))
        for table in tables:
            yield from table.select(names).combine_chunks().to_batches()

    def _texts(self, name: str, rows: dict[str, list[Any]], first: int) -> pa.Array:
        values = rows.get(name) or [None] * len(next(iter(rows.values())))
        for row, value in enumerate(values, first):
            if not isinstance(value, str | None):
                got = f"row {row} is {type(value).__name__}"
                fix = f"data.map(lambda row: {{{name!r}: str(row[{name!r}])}})"
                raise type_error(f"column {name!r} of {self.name} must be text", got=got, fix=fix)
        return pa.array(values, pa.string())


def from_object(given: Any, split: str | None, name: str | None = None) -> list[DataSet]:
    r"""Return a list of `DataSet`: one for a data set object, or one for each chosen split of a dictionary."""
    import datasets

    name = name or type(given).__name__
    if isinstance(given, dict) and given:
        by_split = {str(key): data for key, data in given.items()}
        chosen = _chosen(name, list(by_split), split)
        return [one for key in chosen for one in from_object(by_split[key], None, f"{name} ({key})")]
    if isinstance(given, datasets.Dataset):
        if given.format["type"] == "custom":
            raise value_error(
                "a data set with a transform cannot be encoded: its columns are not known",
                got="a Dataset with with_transform or set_transform",
                fix="data.with_format(None).map(transform, batched=True), which stores what the transform returns",
            )
        return [DataSet(name, given, {"fingerprint": given._fingerprint})]
    if isinstance(given, datasets.IterableDataset):
        return [DataSet(name, given, {"fingerprint": _hash_of(given)})]
    raise type_error(
        "an input must be a path, a pattern, a name, a Dataset, an IterableDataset or a dictionary of splits",
        got=type(given).__name__,
        fix="Dataset.from_dict({'text': texts}) for texts in memory",
    )


def from_saved_folder(name: str, split: str | None) -> list[ArrowFile]:
    r"""Return the Arrow files of a folder that `save_to_disk` wrote; an empty list for any other name."""
    folder = Path(name).expanduser()
    folders = [folder]
    if (folder / "dataset_dict.json").is_file():
        splits = _from_json(folder / "dataset_dict.json", lambda content: [str(one) for one in content["splits"]])
        folders = [path_inside(folder, one) for one in _chosen(name, splits, split)]
    elif not (folder / "state.json").is_file():
        return []
    found = []
    for one in folders:
        own, files = _from_json(
            one / "state.json", lambda state: (state.get("_split"), [file["filename"] for file in state["_data_files"]])
        )
        if folders == [folder] and split not in (None, "all", own):
            rule = f"{name} was saved without splits"
            raise value_error(rule, got=f"split={split!r}", fix="leave split out")
        found += [ArrowFile(str(path_inside(one, file)), "arrow") for file in files]
    return found


def _from_json(path: Path, read: Callable[[Any], _Read]) -> _Read:
    """Parse a JSON file that `save_to_disk` wrote, and return `read(content)`, where `content` is the parsed JSON."""
    try:
        return read(json.loads(read_whole(path)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise value_error(
            f"{path} is not what save_to_disk wrote", got=f"{type(error).__name__}: {error}", fix="save it again"
        ) from error


def from_hub(name: str, config: str | None, split: str | None) -> list[DataSet]:
    r"""Open a data set by its name on the Hub: streamed, or from the cache if `HF_HUB_OFFLINE` is set."""
    import datasets

    builder = _load(name, datasets.load_dataset_builder, name, config)
    splits = [str(one) for one in (builder.info.splits or builder.config.data_files or ())]
    found = []
    for one in _chosen(name, splits, split) or ["train"]:
        shown = f"{name} ({one})" if builder.config.name == "default" else f"{name} ({builder.config.name}, {one})"
        open_split = builder.as_dataset if datasets.config.HF_HUB_OFFLINE else builder.as_streaming_dataset
        identity = {"config": builder.config.name, "commit": builder.hash, "split": one}
        found.append(DataSet(shown, _load(name, open_split, one), identity))
    return found


def _chosen(name: str, splits: Sequence[str], chosen: str | None) -> list[str]:
    """Return the names of the chosen splits of the data set `name`, which has the splits `splits`."""
    if chosen is None and len(splits) > 1:
        raise value_error(
            f"{name} has several splits, and one must be chosen",
            got=", ".join(splits),
            fix=f'split="{splits[0]}" (--split {splits[0]}), "{splits[0]}+{splits[1]}", or "all"',
        )
    if chosen in (None, "all"):
        return list(splits)
    wanted = [word.strip() for word in str(chosen).split("+")]
    for split in wanted:
        if split not in splits:
            got = f"its splits are {', '.join(splits) or 'not named'}"
            fix = f'split="{splits[0] if splits else "all"}"'
            raise value_error(f"{name} has no split {split!r}", got=got, fix=fix)
    return wanted


def _hash_of(stream: Any) -> str | None:
    """Return a hash of the processing steps of an `IterableDataset`, to identify it in a later run."""
    from datasets.fingerprint import Hasher

    try:
        steps = copy.deepcopy(stream._ex_iterable)
        steps._init_state_dict()  # resets the position: the hash is the same after the stream was read
        return str(Hasher.hash(steps))
    except Exception:  # such as a connection or a lock
        return None


def _load(name: str, load: Callable[..., Any], *given: object) -> Any:
    """Return `load(*given)`, where `load` is a function that loads the data set `name` with the `datasets` library."""
    try:
        return load(*given)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        rule, fix = (
            f"{name} cannot be loaded by datasets",
            "dataset_config=... (--dataset-config) names a configuration",
        )
        if not Path(name).expanduser().exists():
            rule = f"{name!r} is not a local file, and was not found on the Hub"
            fix = f"check the name; unset HF_HUB_OFFLINE to download it; {fix}"
        raise value_error(rule, got=lines[0], fix=fix) from error

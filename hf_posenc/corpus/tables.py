"""Tables: Parquet and Arrow files, and data sets of the `datasets` library."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .._common.compat import bytes_of_table
from .._common.errors import option, type_error, value_error
from .._common.files import nearest_folder, path_inside, read_whole
from .columns import Columns, SourceColumns
from .documents import Documents, Part, table_documents
from .files import InputFile

_BATCH_BYTES = 4 << 20  # bytes of a table that are read at once
_BATCH_ROWS = 8192
_PICKLED = 1 << 20  # bytes up to which workers get a data set itself: one in files holds only their names


class ParquetFile(InputFile):
    """Parquet file: its parts are row groups."""

    def read_columns(self, texts: object) -> SourceColumns:
        """Return the names and types of the columns of the file. `texts` is ignored; only `TextFile` uses it."""
        with self._open() as file:
            return SourceColumns(self.shown, file.schema_arrow)

    def text_bytes(self, columns: Columns) -> int:
        """Return the decompressed size of `columns` in bytes."""
        with self._open() as file:
            return sum(_stored_bytes(group, columns.schema.names) for group in _groups(file))

    def parts(self, shard_bytes: int, columns: Columns) -> Iterator[Part]:
        """Yield runs of row groups of at most `shard_bytes` bytes, and larger row groups alone."""
        with self._open() as file:
            sizes = [_stored_bytes(group, columns.schema.names) for group in _groups(file)]
        begin = size = 0
        for number, group_size in enumerate([*sizes, shard_bytes]):
            if number > begin and (size + group_size > shard_bytes or number == len(sizes)):
                yield Part(self, begin, number, size, several=size > shard_bytes)
                begin, size = number, 0
            size += group_size

    def documents(self, part: Part, columns: Columns, shard_bytes: int) -> Iterator[Documents]:
        """Yield the rows of the row groups; a row group for several shards is divided into equal numbers of rows."""
        names = columns.schema.names
        with self._open() as file:
            # The same long text in every row is small in a file and gigabytes once decoded: such columns stay encoded.
            encoded = _dictionary_columns(file, names)
        with self._open(encoded) as file:
            groups = _groups(file)
            first = sum(group.num_rows for group in groups[: part.begin])
            for number in range(part.begin, part.end or 0):
                group = groups[number]
                size = max(1, _stored_bytes(group, names))
                step = max(1, group.num_rows * shard_bytes // size) if part.several else group.num_rows
                rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * group.num_rows // size, step))
                shard = left = 0
                for rest in file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False):
                    while rest.num_rows:
                        left = left or step
                        piece, rest = rest.slice(0, left), rest.slice(left)  # noqa: PLW2901
                        yield from table_documents(self, iter([piece]), columns, first, shard)
                        first, left = first + piece.num_rows, left - piece.num_rows
                        shard += not left

    @contextmanager
    def _open(self, encoded: list[str] | None = None) -> Iterator[pq.ParquetFile]:
        # Buffered and not read ahead: a column of a row group may be larger than memory.
        options = {"pre_buffer": False, "buffer_size": 1 << 20, "read_dictionary": encoded}
        with (
            self.open() as raw,
            refuse_damage(self.shown, "Parquet"),
            pq.ParquetFile(self.path or raw, **options) as file,
        ):
            yield file


class ArrowFile(InputFile):
    """Arrow IPC file or stream: its parts are ranges of rows. A local file is memory-mapped."""

    def read_columns(self, texts: object) -> SourceColumns:
        """Return the names and types of the columns of the file. `texts` is ignored; only `TextFile` uses it."""
        with self._open() as table:
            return SourceColumns(self.shown, table.schema)

    def text_bytes(self, columns: Columns) -> int:
        """Return the size of `columns` in bytes."""
        with self._open() as table:
            return bytes_of_table(table.select(columns.schema.names))

    def parts(self, shard_bytes: int, columns: Columns) -> Iterator[Part]:
        """Yield ranges of rows."""
        with self._open() as table:
            yield from _ranges(self, len(table), bytes_of_table(table.select(columns.schema.names)), shard_bytes)

    def documents(self, part: Part, columns: Columns, shard_bytes: int) -> Iterator[Documents]:
        """Yield the rows from `part.begin` to `part.end`."""
        with self._open() as table:
            rows = table.select(columns.schema.names).slice(part.begin, (part.end or 0) - part.begin)
            yield from table_documents(self, iter(rows.to_batches(max_chunksize=_BATCH_ROWS)), columns, part.begin)

    @contextmanager
    def _open(self) -> Iterator[pa.Table]:
        with self.open() as raw, refuse_damage(self.shown, "Arrow"):
            source = pa.PythonFile(raw, "r") if self.path is None else pa.memory_map(str(self.path))
            has_footer = bytes(source.read(6)) == b"ARROW1"
            source.seek(0)
            yield (pa.ipc.open_file if has_footer else pa.ipc.open_stream)(source).read_all()


@dataclass(frozen=True)
class DataSet:
    r"""Data set of the `datasets` library: each row is a document.

    Workers read a data set that lies in files. One in memory, or with indices in memory, is read by the command, and so
    is a stream.

    Args:
        name (`str`): name of the data set in messages and in the output.
        data (`datasets.Dataset` or `datasets.IterableDataset`): the data set.
        origin (`dict`): JSON values that identify it, such as split and commit of a data set on the Hub.
    """

    name: str
    data: Any = field(repr=False)
    origin: dict[str, Any]

    @property
    def recorded(self) -> str:
        """Name in the output."""
        return self.name

    @property
    def shown(self) -> str:
        """Name in messages."""
        return self.name

    @property
    def kind(self) -> str:
        """`"data set"`, or `"stream"`."""
        return "data set" if hasattr(self.data, "__len__") else "stream"

    @property
    def is_in_files(self) -> bool:
        """True if workers can open the data set themselves."""
        return self.kind == "data set" and len(pickle.dumps(self.data)) <= _PICKLED

    def identity(self) -> dict[str, Any]:
        """Return the number of rows, unless it is a stream, and `origin`."""
        return {**({"rows": len(self.data)} if self.kind == "data set" else {}), **self.origin}

    def read_columns(self, texts: object) -> SourceColumns | None:
        """Return the names and types of the columns.

        A stream without features has the keys of its first row as columns, without known types; if it has no rows,
        return `None`. `texts` is ignored; only `TextFile` uses it.
        """
        if self.data.features is not None:
            return SourceColumns(self.name, self.data.features.arrow_schema)
        first = next(iter(self.data.with_format(None)), None)
        if first is None:
            return None
        values = {name: [value] for name, value in first.items() if isinstance(value, str)}
        schema = pa.schema([(name, pa.string()) for name in first])
        return SourceColumns(self.name, schema, typed=False, first_values=lambda names: values)

    def text_bytes(self, columns: Columns) -> int | None:
        """Return the size of `columns` in bytes, from a sample of rows; `None` for a stream."""
        if self.kind == "stream":
            return None
        rows = len(self.data)
        sample = self._rows(columns.schema.names, range(0, rows, max(1, rows // 1000)))
        return int(sample.nbytes * rows / max(1, len(sample)))

    def parts(self, shard_bytes: int, columns: Columns) -> Iterator[Part]:
        """Yield ranges of rows; with the rows themselves if the workers cannot open the data set."""
        if self.is_in_files:
            yield from _ranges(self, len(self.data), self.text_bytes(columns) or 0, shard_bytes)
            return
        names = columns.schema.names
        bare = DataSet(self.name, None if self.kind == "stream" else range(len(self.data)), self.origin)
        begin, waiting, size = 0, list[pa.Table](), 0
        with refuse_damage(self.name, "a data set"):
            for table in self._streamed(names) if self.kind == "stream" else self._by_index(names):
                waiting.append(table)
                size += table.nbytes
                if size >= shard_bytes:
                    yield _part(bare, begin, waiting, size)
                    begin, waiting, size = begin + sum(map(len, waiting)), [], 0
            if waiting:
                yield _part(bare, begin, waiting, size)

    def documents(self, part: Part, columns: Columns, shard_bytes: int) -> Iterator[Documents]:
        """Yield the rows from `part.begin` to `part.end`."""
        with refuse_damage(self.name, "a data set"):
            if part.payload is not None:
                batches: Iterator[pa.RecordBatch] = iter(pa.ipc.open_stream(part.payload))
                yield from table_documents(self, batches, columns, part.begin)
                return
            for begin in range(part.begin, part.end or 0, 1000):
                rows = self._rows(columns.schema.names, range(begin, min(begin + 1000, part.end or 0)))
                yield from table_documents(self, iter(rows.combine_chunks().to_batches()), columns, begin)

    def _rows(self, names: list[str], rows: range) -> pa.Table:
        table: pa.Table = self.data.select_columns(names).with_format("arrow")[rows]
        return table

    def _by_index(self, names: list[str]) -> Iterator[pa.Table]:
        for begin in range(0, len(self.data), 1000):
            yield self._rows(names, range(begin, min(begin + 1000, len(self.data))))

    def _streamed(self, names: list[str]) -> Iterator[pa.Table]:
        if self.data.features is None:
            first = 0
            for rows in self.data.with_format(None).iter(batch_size=64):
                yield pa.table({name: self._texts(name, rows, first) for name in names})
                first += len(next(iter(rows.values())))
            return
        data = self.data.with_format("arrow")
        if data._ex_iterable.iter_arrow is not None:
            tables = data.iter(batch_size=64)
        else:  # datasets would concatenate the rows of a batch before it casts them
            alone = data.iter(batch_size=1)
            tables = (pa.concat_tables(batch) for batch in iter(lambda: list(islice(alone, 64)), []))
        for table in tables:
            yield table.select(names)

    def _texts(self, name: str, rows: dict[str, list[Any]], first: int) -> pa.Array:
        values = rows.get(name) or [None] * len(next(iter(rows.values())))
        for row, value in enumerate(values, first):
            if not isinstance(value, str | None):
                got = f"row {row} is {type(value).__name__}"
                fix = f"data.map(lambda row: {{{name!r}: str(row[{name!r}])}})"
                raise type_error(f"column {name!r} of {self.name} must be text", got=got, fix=fix)
        return pa.array(values, pa.string())


def _ranges(source: Any, rows: int, size: int, shard_bytes: int) -> Iterator[Part]:
    """Yield parts of equal numbers of rows, of about `shard_bytes` bytes each."""
    step = max(1, rows * shard_bytes // max(1, size))
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        yield Part(source, begin, end, size * (end - begin) // rows)


def _part(source: DataSet, begin: int, tables: list[pa.Table], size: int) -> Part:
    """Return a part that holds its rows."""
    table, sink = pa.concat_tables(tables), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return Part(source, begin, begin + len(table), size, payload=sink.getvalue().to_pybytes())


@contextmanager
def refuse_damage(name: str, kind: str) -> Iterator[None]:
    """Replace an Arrow error, `OSError` or `EOFError` in the `with` block by a `ValueError`: `name` cannot be read.

    `kind` is the format that the message names, such as `"Parquet"`.
    """
    try:
        yield
    except (pa.ArrowException, OSError, EOFError) as error:
        raise value_error(
            f"{name} cannot be read as {kind}: it is cut off, damaged, or something else",
            got=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            fix='write or fetch the file again, or name its format: format="text" (--format)',
        ) from error


def _groups(file: pq.ParquetFile) -> list[Any]:
    return [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]


def _stored_bytes(group: Any, names: Sequence[str]) -> int:
    """Return the decompressed size in bytes of the columns `names` in one Parquet row group."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)


def _dictionary_columns(file: pq.ParquetFile, names: list[str]) -> list[str]:
    """Return the columns among `names` that hold strings or bytes, and are dictionary-encoded in the Parquet file."""
    strings = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    chunks = [group.column(number) for group in _groups(file)[:8] for number in range(group.num_columns)]
    encoded = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    return [name for name in names if file.schema_arrow.field(name).type in strings and name in encoded]


# -------------------------------------------------------------------------------------------- data sets of `datasets`


def from_object(given: Any, split: str | None, name: str | None = None) -> list[DataSet]:
    """Return a list of `DataSet`: one for a data set object, or one for each chosen split of a dictionary."""
    import datasets

    name = name or type(given).__name__
    if isinstance(given, dict) and given:
        by_split = {str(key): data for key, data in given.items()}
        chosen = _chosen(name, list(by_split), split)
        return [dataset for key in chosen for dataset in from_object(by_split[key], None, f"{name} ({key})")]
    if isinstance(given, datasets.Dataset):
        if given.format["type"] == "custom":
            raise value_error(
                "a data set with a transform cannot be encoded: its columns are not known",
                got="a Dataset with with_transform or set_transform",
                fix="data.with_format(None).map(transform, batched=True), which stores what the transform returns",
            )
        return [DataSet(name, given.with_format(None), {"fingerprint": given._fingerprint})]
    if isinstance(given, datasets.IterableDataset):
        return [DataSet(name, given, {"fingerprint": _hash_of(given)})]
    raise type_error(
        "an input must be a path, a pattern, a name, a Dataset, an IterableDataset or a dictionary of splits",
        got=type(given).__name__,
        fix="Dataset.from_dict({'text': texts}) for texts in memory",
    )


def from_saved_folder(name: str, split: str | None) -> list[DataSet]:
    """Return the data sets of a folder that `save_to_disk` wrote; an empty list for any other name."""
    folder = Path(name).expanduser()
    folders = [folder]
    if (folder / "dataset_dict.json").is_file():
        splits = _from_json(folder / "dataset_dict.json", lambda content: [str(key) for key in content["splits"]])
        folders = [path_inside(folder, key) for key in splits]
    elif not (folder / "state.json").is_file():
        return []
    for split_folder in folders:  # anyone may have written these files, and datasets opens what they name
        for file in _from_json(
            split_folder / "state.json", lambda state: [entry["filename"] for entry in state["_data_files"]]
        ):
            path_inside(split_folder, file)
    import datasets

    with refuse_damage(name, "a saved data set"):
        data = datasets.load_from_disk(str(folder))
    own_split = None if isinstance(data, dict) else data.split
    if not isinstance(data, dict) and split not in (None, "all", own_split and str(own_split)):
        raise value_error(f"{name} was saved without splits", got=f"split={split!r}", fix="leave split out")
    sources = from_object(data, split, folder.name)
    return [DataSet(source.name, source.data, {"fingerprint": source.data._fingerprint}) for source in sources]


def _from_json(path: Path, parse: Callable[[Any], list[str]]) -> list[str]:
    """Parse a JSON file that `save_to_disk` wrote, and return `parse(content)`, where `content` is the parsed JSON."""
    try:
        return parse(json.loads(read_whole(path)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise value_error(
            f"{path} is not what save_to_disk wrote", got=f"{type(error).__name__}: {error}", fix="save it again"
        ) from error


def from_hub(name: str, config: str | None, split: str | None) -> list[DataSet]:
    """Open a data set by its name on the Hub: streamed, or from the cache if `HF_HUB_OFFLINE` is set."""
    import datasets

    builder = load_data(name, datasets.load_dataset_builder, name, config)
    splits = [str(key) for key in (builder.info.splits or builder.config.data_files or ())]
    sources = []
    for key in _chosen(name, splits, split) or ["train"]:
        title = f"{name} ({key})" if builder.config.name == "default" else f"{name} ({builder.config.name}, {key})"
        open_split = builder.as_dataset if datasets.config.HF_HUB_OFFLINE else builder.as_streaming_dataset
        identity = {"config": builder.config.name, "commit": builder.hash, "split": key}
        sources.append(DataSet(title, load_data(name, open_split, key), identity))
    return sources


def _chosen(name: str, splits: Sequence[str], chosen: str | None) -> list[str]:
    """Return the names of the chosen splits of the data set `name`, which has the splits `splits`."""
    if chosen is None and len(splits) > 1:
        raise value_error(
            f"{name} has several splits, and one must be chosen",
            got=", ".join(splits),
            fix=f'{option("split", splits[0])}, {option("split", "+".join(splits[:2]))}, or split="all" (--split all)',
        )
    if chosen in (None, "all"):
        return list(splits)
    names = [word.strip() for word in str(chosen).split("+")]
    for split in names:
        if split not in splits:
            got = f"its splits are {', '.join(splits) or 'not named'}"
            fix = option("split", splits[0] if splits else "all")
            raise value_error(f"{name} has no split {split!r}", got=got, fix=fix)
    return names


def _hash_of(stream: Any) -> str | None:
    """Return a hash of the processing steps of an `IterableDataset`, to identify it in a later run."""
    from datasets.fingerprint import Hasher

    try:
        steps = copy.deepcopy(stream._ex_iterable)
        steps._init_state_dict()  # resets the position: the hash is the same after the stream was read
        return str(Hasher.hash(steps))
    except Exception:  # such as a connection or a lock
        return None


def load_data(
    name: str,
    load: Callable[..., Any],
    *given: object,
    fix: str = "dataset_config=... (--dataset-config) names a configuration",
) -> Any:
    """Return `load(*given)`, where `load` is a function that loads the data set `name` with the `datasets` library."""
    try:
        return load(*given)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        rule = f"{name} cannot be loaded by datasets"
        if not Path(name).expanduser().exists():
            rule = f"{name!r} is not a local file, and was not found on the Hub"
            similar = nearest_folder(Path(name).expanduser())[1]
            local = "" if similar is None or not similar.exists() else f"{similar}, or "
            hint = f"; {fix}" if "config" in str(error).lower() else ""
            fix = f"{local}check the name; unset HF_HUB_OFFLINE to download it{hint}"
        raise value_error(rule, got=lines[0], fix=fix) from error

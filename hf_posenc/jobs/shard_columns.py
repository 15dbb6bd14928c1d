"""The columns of a shard as Arrow tables: token ids, columns computed from them, and columns copied from the input.

`hf_posenc.rows` packs rows; `shard_file` writes the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._arrow import runs
from ..ragged import Ragged
from ..rows import ignore_document_starts, pack_rows
from .options import Job
from .schema import HUGGING_FACE

# int32 takes half the size of int64; collators convert it.
_TOKEN = pa.int32()
_TOKENS = pa.list_(_TOKEN)

_GROUP_BYTES = 16 << 20  # approximate size of a row group; readers load a row group as a whole


@dataclass(frozen=True, eq=False)
class Block:
    r"""A batch of tokenized documents.

    Args:
        columns (`dict` from `str` to `Ragged` of int32): `"input_ids"`, with one row for each document, or several rows
            for a split document; for text pairs also `"token_type_ids"`.
        carried (`pyarrow.Table`): the columns copied from the input, one row for each document; with the option
            `source_columns` also `source` and `row`.
        sample (`np.ndarray` `(rows,)` int64): the index of the document that each row comes from.
    """

    columns: dict[str, Ragged]
    carried: pa.Table
    sample: NDArray[np.int64]

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Concatenate one or more blocks into one."""
        if len(blocks) == 1:
            return blocks[0]
        counts = np.array([len(block.carried) for block in blocks])
        before = np.cumsum(counts) - counts
        return cls(
            {name: Ragged.joined([block.columns[name] for block in blocks]) for name in blocks[0].columns},
            pa.concat_tables([block.carried for block in blocks]),
            np.concatenate([block.sample + count for block, count in zip(blocks, before, strict=True)]),
        )


def schema_of(job: Job) -> pa.Schema:
    r"""Return the schema of the shards of a job: token columns, names of sources, `length`, and copied columns.

    Args:
        job (`Job`): the settings.

    Returns:
        `pyarrow.Schema`. Its metadata holds the features that `datasets` stored for the copied columns.
    """
    fields = [pa.field("input_ids", _TOKENS)]
    if job.text_pair_column is not None:
        fields.append(pa.field("token_type_ids", _TOKENS))
    if job.pack is not None:
        fields.append(pa.field("position_ids", _TOKENS))
    if job.labels is not None:
        fields.append(pa.field("labels", _TOKENS))
    if job.source_columns:  # before `length`, so that they differ from copied columns of these names
        for name, kind in (("source", pa.string()), ("row", pa.int64())):
            fields.append(pa.field(name, kind if job.pack is None else pa.list_(kind)))
    fields.append(pa.field("length", _TOKEN))
    known = {name: value for name, value in (job.carried.metadata or {}).items() if name == HUGGING_FACE}
    return pa.schema([*fields, *job.carried], metadata=known or None)


def tables(job: Job, block: Block, schema: pa.Schema, *, seed: int) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    r"""Convert a block of documents to the rows of a shard, and yield one table for each Parquet row group.

    Args:
        job (`Job`): the settings.
        block (`Block`): the documents; packed rows omit documents without tokens.
        schema (`pyarrow.Schema`): the result of `schema_of`.
        seed (`int`): random seed for the order of packed rows.

    Returns:
        Iterator over pairs: a `pyarrow.Table` with the given schema and at least one row, and the lengths of its rows.
    """
    columns = dict(block.columns)
    ids = columns["input_ids"]
    documents = Ragged(block.sample, np.ones_like(block.sample))  # the index of the document, or documents, of each row
    if job.labels is not None:
        columns["labels"] = ids if job.pack is None else ignore_document_starts(ids)
    if job.pack is not None:
        if job.source_columns:
            columns["document"] = Ragged(np.repeat(block.sample, ids.lengths), ids.lengths)
        columns = pack_rows(columns, job.pack, seed=seed, first_position=job.first_position)
        if job.source_columns:
            starts = np.flatnonzero(columns["position_ids"].values == job.first_position)
            counts = np.diff(np.searchsorted(starts, columns["input_ids"].offsets))
            documents = Ragged(columns.pop("document").values[starts], counts)
    lengths = columns["input_ids"].lengths
    sizes = lengths * 4
    if job.pack is None:
        sizes = sizes + block.carried.nbytes // max(len(block.carried), 1)
    for start, stop in runs(sizes, _GROUP_BYTES):
        made = {name: _lists(column.between(start, stop)) for name, column in columns.items()}
        made["length"] = _integers(lengths[start:stop])
        some = documents.between(start, stop)
        carried = block.carried.take(_integers(some.values, pa.int64()))
        for name, column in zip(carried.column_names, carried.columns, strict=True):
            kind = schema.field(name).type
            if job.pack is None:
                made[name] = column.cast(kind)
            else:
                values = column.cast(kind.value_type).combine_chunks()
                made[name] = pa.ListArray.from_arrays(_integers(some.offsets), values)
        yield pa.table([made[name] for name in schema.names], schema=schema), lengths[start:stop]


def _lists(rows: Ragged) -> pa.ListArray:
    return pa.ListArray.from_arrays(_integers(rows.offsets), _integers(rows.values))


def _integers(values: NDArray[Any], kind: pa.DataType = _TOKEN) -> pa.Array:
    """Convert integers to an Arrow array of the type `kind`.

    `pa.array` would import pandas, which takes 0.3 s in each worker.
    """
    values = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

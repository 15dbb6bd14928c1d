"""The columns of a shard as Arrow tables: token ids, columns computed from them, and columns copied from the input.

`hf_posenc.packing` plans the rows; `shard_file` writes the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._common.arrow import runs
from ..packing import pack
from ..ragged import Ragged
from ..tokenization import ignore_document_starts
from .options import Job
from .schema import HUGGING_FACE

# int32 takes half the size of int64; collators convert it.
_TOKEN = pa.int32()
_TOKENS = pa.list_(_TOKEN)

_GROUP_BYTES = 16 << 20  # approximate size of a row group; readers load a row group as a whole


@dataclass(frozen=True, eq=False)
class Block:
    r"""A batch of tokenized documents, as `TaskEncoder` yields it, to be written to a shard.

    Args:
        columns (`dict` from `str` to `Ragged` of int32): `"input_ids"`, with one row of token ids for each document, or
            several rows for a document that was split; for text pairs also `"token_type_ids"`.
        carried (`pyarrow.Table`): the columns copied from the input, one row for each document; with the option
            `source_columns` also `source` and `row`.
        sample (`np.ndarray` `(rows,)` int64): for each row of `columns`, the index of its document in `carried`.
    """

    columns: dict[str, Ragged]
    carried: pa.Table
    sample: NDArray[np.int64]

    @classmethod
    def joined(cls, blocks: Sequence[Block]) -> Block:
        """Concatenate one or more blocks into one, and renumber `sample` to match the concatenated table `carried`."""
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
    r"""Return the Arrow schema of the shards of a job.

    The columns are, in this order:

    - `input_ids`;
    - `token_type_ids` for text pairs, `position_ids` for packed rows, and `labels` with the option `labels`;
    - `source` and `row`, the origin of each document, with the option `source_columns`; lists for packed rows;
    - `length`, the number of tokens of the row;
    - the columns copied from the input.
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
    r"""Convert documents to the rows of a shard; yield a table for each Parquet row group."""
    columns, plan = dict(block.columns), None
    ids = columns["input_ids"]
    if job.labels is not None:
        columns["labels"] = ids
    if job.pack is None:
        lengths = ids.lengths
        sizes = lengths * 4 + block.carried.nbytes // max(len(block.carried), 1)
    else:
        filled = np.flatnonzero(ids.lengths)
        plan = pack(ids.lengths[filled], job.pack, seed=seed)
        lengths = plan.row_lengths
        sizes = lengths * 4
    for start, stop in runs(sizes, _GROUP_BYTES):
        if plan is None:
            some = {name: column.between(start, stop) for name, column in columns.items()}
            documents = Ragged(block.sample[start:stop], np.ones(stop - start, np.int64))  # of each row
        else:
            offsets = plan.row_offsets[start : stop + 1]
            order = filled[plan.order[offsets[0] : offsets[-1]]]
            some = _packed(columns, order, lengths[start:stop], job.first_position)
            documents = Ragged(block.sample[order], np.diff(offsets))
        made = {name: _lists(column) for name, column in some.items()}
        made["length"] = _integers(lengths[start:stop])
        carried = block.carried.take(_integers(documents.values, pa.int64()))
        for name, column in zip(carried.column_names, carried.columns, strict=True):
            kind = schema.field(name).type
            if job.pack is None:
                made[name] = column.cast(kind)
            else:
                values = column.cast(kind.value_type).combine_chunks()
                made[name] = pa.ListArray.from_arrays(_integers(documents.offsets), values)
        yield pa.table([made[name] for name in schema.names], schema=schema), lengths[start:stop]


def _packed(
    columns: Mapping[str, Ragged], order: NDArray[np.int64], lengths: NDArray[np.int64], first_position: int
) -> dict[str, Ragged]:
    """Concatenate documents in the given order, and divide the tokens into packed rows of the given lengths."""
    some = {name: column.take(order) for name, column in columns.items()}
    some["position_ids"] = some["input_ids"].counters(first_position)
    if "labels" in some:
        some["labels"] = ignore_document_starts(some["labels"])
    return {name: Ragged(column.values, lengths) for name, column in some.items()}


def _lists(rows: Ragged) -> pa.ListArray:
    return pa.ListArray.from_arrays(_integers(rows.offsets), _integers(rows.values))


def _integers(values: NDArray[Any], kind: pa.DataType = _TOKEN) -> pa.Array:
    """Convert integers to an Arrow array of the type `kind`, without `pa.array`."""
    # `pa.array` would import pandas, which takes 0.3 s in each worker.
    values = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])

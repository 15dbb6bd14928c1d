"""What the rows of a shard look like: their columns, and how several documents share a packed row.

Arrow tables only; where they are written to is for `shard`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...packing import pack
from ...ragged import Ragged
from ..job import Job
from .documents import Block, runs

IGNORED = -100  # the label of what is not to be learnt, as everywhere in transformers

# Half the size of int64; collators make int64 of it.
_TOKEN = pa.int32()
_TOKENS = pa.list_(_TOKEN)
# Where `datasets` keeps what it knows of columns beyond their Arrow types: the names of classes, what is an image.
_FEATURES = b"huggingface"

# The most that a row group holds, because readers take it whole.
_GROUP_BYTES = 16 << 20


def schema_of(job: Job) -> pa.Schema:
    r"""The columns of every shard of a job: those that it makes, `length`, and those carried.

    Args:
        job (`Job`): what is asked for.

    Returns:
        `pyarrow.Schema`; what `datasets` knows of carried columns goes along.
    """
    fields = [pa.field("input_ids", _TOKENS)]
    if job.text_pair_column is not None:
        fields.append(pa.field("token_type_ids", _TOKENS))
    if job.pack is not None:
        fields.append(pa.field("position_ids", _TOKENS))
    if job.labels is not None:
        fields.append(pa.field("labels", _TOKENS))
    fields.append(pa.field("length", _TOKEN))
    if job.pack is None:  # a packed row is of several documents
        fields += list(job.carried)
    metadata = job.carried.metadata or {}
    known = {name: value for name, value in metadata.items() if name == _FEATURES and job.pack is None}
    return pa.schema(fields, metadata=known or None)


def tables(job: Job, block: Block, schema: pa.Schema, *, seed: int) -> Iterator[pa.Table]:
    r"""The rows of some documents, in tables that make a row group each.

    Args:
        job (`Job`): what is asked for.
        block (`Block`): the documents; those without tokens are left out where rows are packed.
        schema (`pyarrow.Schema`): what `schema_of` gave.
        seed (`int`): of the order of packed rows.

    Returns:
        Tables of that schema, none without rows.
    """
    rows = _plain(job, block) if job.pack is None else _packed(job, block, job.pack, seed)
    sizes = rows.ids.lengths * 4
    if rows.carried is not None:
        sizes = sizes + rows.carried.nbytes // max(len(rows.carried), 1)
    for start, stop in runs(sizes, _GROUP_BYTES):
        yield _table(job, rows, start, stop, schema)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows as they will stand, all of one shape."""

    ids: Ragged
    types: Ragged | None
    positions: Ragged
    begins: NDArray[np.bool_] | None = None  # tokens that begin a document, where rows hold several
    carried: pa.Table | None = None
    sample: NDArray[np.int64] | None = None  # the row of `carried` for each


def _plain(job: Job, block: Block) -> _Rows:
    positions = block.ids.counters(job.first_position)
    return _Rows(block.ids, block.types, positions, carried=block.carried, sample=block.sample)


def _packed(job: Job, block: Block, capacity: int, seed: int) -> _Rows:
    ids, types = block.ids, block.types
    kept = np.flatnonzero(ids.lengths)  # a document without tokens takes no room
    plan = pack(ids.lengths[kept], capacity, seed=seed)
    at, within = plan.places(ids.offsets[kept])
    lengths = plan.row_lengths
    return _Rows(
        ids=Ragged(ids.values[at], lengths),
        types=None if types is None else Ragged(types.values[at], lengths),
        positions=Ragged(within + job.first_position, lengths),
        begins=within == 0,
    )


def _table(job: Job, rows: _Rows, start: int, stop: int, schema: pa.Schema) -> pa.Table:
    ids, positions = rows.ids.between(start, stop), rows.positions.between(start, stop)
    made: dict[str, Any] = {"input_ids": _lists(ids), "length": pa.array(ids.lengths, _TOKEN)}
    if rows.types is not None:
        made["token_type_ids"] = _lists(rows.types.between(start, stop))
    if job.pack is not None:
        made["position_ids"] = _lists(positions)
    if job.labels is not None:
        made["labels"] = _lists(_labels(rows, start, stop))
    if rows.carried is not None and rows.sample is not None:
        carried = rows.carried.take(pa.array(rows.sample[start:stop]))
        made.update({name: carried.column(name) for name in carried.column_names})
    return pa.table([made[name] for name in schema.names], schema=schema)


def _labels(rows: _Rows, start: int, stop: int) -> Ragged:
    """The tokens themselves, without the first of each packed document: models shift labels by one, and it would be
    learnt from another document's end."""
    if rows.begins is None:
        return rows.ids.between(start, stop)
    return Ragged(np.where(rows.begins, IGNORED, rows.ids.values), rows.ids.lengths).between(start, stop)


def _lists(rows: Ragged) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), pa.array(rows.values.astype(np.int32)))

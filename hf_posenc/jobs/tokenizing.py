"""Tokenize the documents of a task in a worker, and list the rejected ones.

The module `documents` parses the documents; `shard_columns` makes the columns of the shard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import parent_process

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._common.errors import explain, shorten
from ..ragged import Ragged
from ..tokenization import Encoder, Limits, TokenRows
from .documents import Documents, finished, read_documents
from .long_document import LongDocument
from .options import Job
from .schema import Columns
from .shard_columns import Block
from .task import Part, Rejected, Task


@dataclass
class Counted:
    r"""Counts of the documents of a task, and its bad documents, updated while the documents are read.

    Args:
        documents (`int`): all documents, including rejected ones.
        blank (`int`): blank lines and files, which are not documents.
        cut (`int`): documents that were truncated.
        rejected (`list` of `Rejected`): the bad documents.
    """

    documents: int = 0
    blank: int = 0
    cut: int = 0
    rejected: list[Rejected] = field(default_factory=list)


class TaskEncoder:
    r"""Encoder that parses and tokenizes the documents of a task, with the settings of a job.

    Args:
        job (`Job`): the columns, the tokenizer, its limits, and the handling of bad rows.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._limits = Limits(
            job.max_length,
            "do_not_truncate" if job.too_long == "error" else "longest_first",
            overflow=job.too_long == "split",
            stride=job.stride,
        )
        if parent_process() is not None:
            with contextlib.suppress(ImportError):
                import nanotoken

                nanotoken.set_cache_entries(65_536)  # 22 MB in each worker; the default of 160 MB is slower
        self._encoder = Encoder(
            job.tokenizer.load(),
            self._limits,
            add_special_tokens=job.add_special_tokens,
            backend=job.backend,
            dtype=np.int32,  # as in the shards
        )
        pair = job.text_pair_column
        self._columns = Columns((job.text_column,) if pair is None else (job.text_column, pair), job.carried)
        self._empty = self._encoder.tokenize([""], None if pair is None else [""]).ids.values

    def tokenize(self, task: Task, counted: Counted) -> Iterator[Block]:
        r"""Parse and tokenize the documents of a task, and yield them in batches."""
        for found in read_documents(task, self._columns):
            if isinstance(found, LongDocument):
                rows, refused = self._tokenize_long(found)
                documents = finished(found, self._columns)
            else:
                documents = found
                rows, refused = self._tokenize(*documents.texts)
            counted.blank += documents.blank
            if documents.numbers:
                yield self._block(documents, rows, {**refused, **documents.bad}, counted)

    def _block(self, documents: Documents, rows: TokenRows, bad: Mapping[int, str], counted: Counted) -> Block:
        columns, sample = {"input_ids": rows.ids}, rows.sample
        if self._job.text_pair_column is not None and rows.token_type_ids is not None:
            columns["token_type_ids"] = rows.token_type_ids
        counted.documents += len(documents.numbers)
        counted.cut += rows.truncated
        if bad:
            counted.rejected += (rejected := documents.rejected(bad))
            if self._job.on_bad_row == "error":
                raise ValueError(self._bad_row(documents.part, rejected[0]))
            if self._job.on_bad_row == "skip":
                keep = ~np.isin(sample, np.fromiter(bad, np.int64, len(bad)))
                columns, sample = {name: column.filter(keep) for name, column in columns.items()}, sample[keep]
        # A slow tokenizer returns int64; the shards hold int32.
        columns = {
            name: Ragged(each.values.astype(np.int32, copy=False), each.lengths) for name, each in columns.items()
        }
        carried = documents.carried
        if self._job.source_columns:
            # File names may hold any bytes; those that are not UTF-8 are escaped, as in `rejected.jsonl`.
            name = documents.part.recorded.encode("utf-8", "backslashreplace").decode()
            names = pa.DictionaryArray.from_arrays(pa.array([0] * len(carried), pa.int32()), [name])
            carried = carried.append_column("source", names)
            carried = carried.append_column("row", pa.array(documents.numbers, pa.int64()))
        return Block(columns, carried, sample)

    def _tokenize(self, *texts: Sequence[str]) -> tuple[TokenRows, dict[int, str]]:
        """Tokenize a batch of documents, given as a list of texts, or for text pairs as two lists."""
        bad: dict[int, str] = {}
        try:
            rows = self._encoder.tokenize(*texts)
        except ValueError:  # the tokenizer's error names no row: encode each document alone
            for index, document in enumerate(zip(*texts, strict=True)):
                try:
                    self._encoder.tokenize(*([text] for text in document))
                except ValueError as error:
                    bad[index] = f"is refused by the tokenizer: {_reason(error)}"
            if not bad:
                raise
            rows = self._encoder.tokenize(*_emptied(texts, bad))
        return self._checked(rows, bad, texts)

    def _tokenize_long(self, document: LongDocument) -> tuple[TokenRows, dict[int, str]]:
        """Tokenize a long document while it is read; see `_tokenize` for the result."""
        bad: dict[int, str] = {}
        try:
            rows = self._encoder.tokenize_blocks(document.blocks)
        except ValueError as error:
            bad[0] = f"is refused by the tokenizer: {_reason(error)}"
        document.finish()
        if bad or document.bad is not None:
            rows = self._encoder.tokenize([""])
        return self._checked(rows, bad, [[""]])

    def _checked(
        self, rows: TokenRows, bad: dict[int, str], texts: Sequence[Sequence[str]]
    ) -> tuple[TokenRows, dict[int, str]]:
        """Add the documents that have no tokens, or too many, to `bad`, with the reason; return `rows` and `bad`."""
        for row in np.flatnonzero(self._is_empty(rows.ids)).tolist():
            bad.setdefault(int(rows.sample[row]), "has no tokens")
        limit = self._limits.max_length
        if limit is not None and rows.ids.longest > limit:  # only with too_long="error"; one row per document
            for row in np.flatnonzero(rows.ids.lengths > limit).tolist():
                bad.setdefault(row, f"has {rows.ids.lengths[row]} tokens, limit {limit}")
            if self._job.on_bad_row == "keep-empty":
                rows = self._encoder.tokenize(*_emptied(texts, bad))
        return rows, bad

    def _is_empty(self, ids: Ragged) -> NDArray[np.bool_]:
        """Return a bool array: True for each row with the same token ids as an empty text."""
        same: NDArray[np.bool_] = ids.lengths == len(self._empty)
        rows = np.flatnonzero(same)
        tokens = ids.values[ids.offsets[rows][:, None] + np.arange(len(self._empty))]  # (rows, tokens of an empty text)
        same[rows] = (tokens == self._empty).all(axis=1)
        return same

    def _bad_row(self, part: Part, bad: Rejected) -> str:
        fixes = ["download or write the file again"] if part.kind == "unreadable" else []
        fixes.append('on_bad_row="skip" leaves such rows out and lists them in rejected.jsonl')
        if self._job.pack is None:
            fixes.append('on_bad_row="keep-empty" keeps them as empty texts')
        return explain(
            f"{part.source}, {bad.unit} {bad.number}: {bad.reason}",
            got=shorten(bad.text) if bad.text else "no text",
            fix="; ".join(fixes),
        )


def _emptied(texts: Sequence[Sequence[str]], bad: Mapping[int, str]) -> list[list[str]]:
    """Return a copy of `texts`, one list for each text column, with `""` for each document whose index is in `bad`."""
    return [["" if row in bad else text for row, text in enumerate(column)] for column in texts]


def _reason(error: ValueError) -> str:
    lines = str(error).splitlines()
    return next((line.split("got: ", 1)[1] for line in lines if "got: " in line), lines[0])

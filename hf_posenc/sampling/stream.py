"""`stream_batches`: batches with a token budget from rows whose lengths are not known in advance.

One process reads the rows and plans a window of them at a time; `DataLoader` workers only collate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from .._common.compat import node_of, processes_of_accelerate
from .._common.errors import runtime_error, shorten, value_error, warn
from .._common.integers import as_integer
from ..collator import DataCollatorWithPositionalEncoding
from ..packing import Cost, plan_batches
from .lengths import length_of, require_rows, truncated_lengths
from .sampler import ReadByAccelerate, digest_of, require_same_epoch

Numbered = tuple[int, Any]  # a row and its number in the stream


def stream_batches(
    rows: Iterable[Any],
    token_budget: int,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    *,
    column: str = "input_ids",
    length: Callable[[Any], int] | None = None,
    window: int = 20_000,
    seed: int = 0,
    cost: Cost | None = None,
    multiple_of: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    **loader: Any,
) -> DataLoader[Any]:
    r"""Return a `DataLoader` that batches a stream of rows by a token budget.

    The loader reads `window` rows, divides them into batches with `plan_batches`, and yields these batches; then it
    reads the next `window` rows. So every row of the stream is in exactly one batch, fewer than `window + world_size`
    rows from its original place.

    The process that iterates reads the stream, and the workers of the loader only collate. So the batches are the same
    with any number of workers, and no row is lost or repeated. In a run with several training processes, each of them
    reads the whole stream and uses only its own batches. All of them get the same number of batches.

    The length of a row is the first of these that is available:

    - the result of `length`;
    - the number of tokens in the column `column`, or the value of this column, if it is an integer;
    - the number of tokens after `collate_fn`, a `DataCollatorWithPositionalEncoding`, has tokenized the row.

    Args:
        rows (iterable): a `datasets.IterableDataset`, a torch `IterableDataset`, a generator, or any other iterable.
        token_budget (`int`): maximum cost of a batch, see `plan_batches`.
        collate_fn (callable, *optional*): makes a batch from a list of rows. By default, a batch is the list of rows.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens, or of the number of tokens.
        length (callable, *optional*): returns the number of tokens of a row.
        window (`int`, *optional*, defaults to 20,000): number of rows that are read before they are divided into
            batches; they are kept in memory. It is rounded up to a multiple of `world_size`.
        seed, cost, multiple_of, rank (*optional*): as in `plan_batches`.
        world_size (`int`, *optional*): as in `plan_batches`; by default accelerate's number of processes, or 1 without
            accelerate. Under accelerate leave out `world_size` and `rank`.
        **loader: further arguments of `DataLoader`, such as `num_workers`.

    Returns:
        `DataLoader` without a length. Each iteration reads the stream once. Before each epoch, call its
        `batch_sampler.set_epoch(epoch)`: another epoch changes the order of the batches, and `rows.set_epoch(epoch)` is
        called if there is such a method.

    Raises:
        ValueError: if a setting is out of range, or `rows` is the part of one process, from `split_dataset_by_node`.
            While reading: if the stream has no rows, or fewer than `world_size`; if a row has no tokens or costs more
            than the budget; or if `rows` is an iterator and is read a second time.
        TypeError: if `rows` is a table, a mapping such as a `datasets.DatasetDict`, or not iterable; if the length of a
            row cannot be found.
        RuntimeError: if reading a row raises an error.

    Example:
        >>> rows = ({"input_ids": [1] * length} for length in (5, 3, 8, 2, 4, 4))
        >>> for batch in stream_batches(rows, 12, seed=1):
        ...     print([len(row["input_ids"]) for row in batch])
        [8]
        [4, 5]
        [4, 2, 3]
    """
    sampler = StreamBatchSampler(
        rows,
        collate_fn,
        token_budget=token_budget,
        column=column,
        length=length,
        window=window,
        seed=seed,
        cost=cost,
        multiple_of=multiple_of,
        world_size=world_size,
        rank=rank,
    )
    return stream_loader(sampler, collate_fn, **loader)


def is_stream(rows: Any) -> bool:
    """Return True if `rows` is an `IterableDataset` or has no length, such as a generator; False for a list of rows."""
    return isinstance(rows, IterableDataset) or not hasattr(rows, "__len__")


def stream_loader(
    sampler: StreamBatchSampler, collate_fn: Callable[[list[Any]], Any] | None, **loader: Any
) -> DataLoader[Any]:
    """Return a `DataLoader` that yields `collate_fn(rows)` for each batch of rows that `sampler` reads."""
    return DataLoader(_AsRead(), batch_sampler=sampler, collate_fn=_Collate(collate_fn), **loader)


class StreamBatchSampler(ReadByAccelerate, Sampler[list[Numbered]]):
    r"""Batch sampler for a stream, made by `stream_batches` and `TokenBudgetMixin`.

    A stream has no indices. So each batch is a list of pairs: the number of a row in the stream, and the row itself.

    The attribute `plan` is a `BatchPlan` without batches, which only contains the checked settings.

    Args:
        rows, collate_fn, column, length, window, world_size, rank: as in `stream_batches`.
        repeats (`bool`, *optional*, defaults to `False`): read the stream again and again, until a pass has no rows.
            `rows.set_epoch` is called with 0 before the first pass, with 1 before the second, and so on. If the rows of
            a pass do not divide evenly among the processes, the remaining ones, fewer than `world_size`, are put into
            batches with the first rows of the next pass.
        **settings: further arguments of `plan_batches`: `token_budget`, `seed`, `cost`, `multiple_of`.
    """

    def __init__(
        self,
        rows: Iterable[Any],
        collate_fn: Callable[[list[Any]], Any] | None,
        *,
        column: str = "input_ids",
        length: Callable[[Any], int] | None = None,
        window: int = 20_000,
        world_size: int | None = None,
        rank: int | None = None,
        repeats: bool = False,
        **settings: Any,
    ) -> None:
        require_rows(rows)
        node = node_of(rows)
        if node is not None and node.world_size > 1:
            raise value_error(
                "every process reads the whole stream, and keeps its own batches",
                got=f"the rows of rank {node.rank} of {node.world_size} alone, by split_dataset_by_node",
                fix="the stream before split_dataset_by_node",
            )
        self.epoch, self.rank = 0, rank
        self._rows, self._column, self._length = rows, column, length
        self._collate = collate_fn
        self._tokenize = collate_fn.columns if isinstance(collate_fn, DataCollatorWithPositionalEncoding) else None
        self._world_size, self._repeats = world_size, repeats
        self._window = as_integer(window, "window", minimum=1, example=20_000)
        self.plan = plan_batches([], world_size=world_size or 1, rank=rank, **settings)  # raises before any row is read
        self._settings = {**settings, "rank": rank}
        self._was_read = False
        self._plans: list[tuple[int, dict[str, Any]]] = []  # first step of each window, and result of `progress`
        # The number of windows and the digest, from `progress` in the run that saved the checkpoint. An iteration
        # raises `ValueError` if these windows have another digest here, or if the stream has fewer.
        self.expected: tuple[int, str] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Dict of the settings that determine the batches of a given stream, as JSON values, to compare checkpoints."""
        plan, library = self.plan, sys.modules.get("datasets")
        is_theirs = library is not None and isinstance(self._rows, library.IterableDataset)  # shuffles by its version
        return {
            "token_budget": plan.token_budget,
            "seed": int(self._settings.get("seed", 0)),
            "multiple_of": plan.multiple_of,
            "window": self._window,
            "batches_per_step": self._world_size or processes_of_accelerate(),
            "datasets": str(library.__version__) if library is not None and is_theirs else None,
        }

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; it has no effect with `repeats=True`."""
        self.epoch = as_integer(epoch, "epoch", minimum=0, example=0)

    def __iter__(self) -> Iterator[list[Numbered]]:
        """Read the stream, and yield each batch as a list of pairs: the number of a row in the stream, and the row."""
        if self._was_read and isinstance(self._rows, Iterator):
            raise value_error(
                "the rows of an iterator can be read only once",
                got=shorten(self._rows),
                fix="rows that can be read again: a list, or datasets.IterableDataset.from_generator(function)",
            )
        self._was_read = True
        ranks = self._world_size or processes_of_accelerate()
        steps, digest, epoch = 0, "", 0 if self._repeats else self.epoch
        self._plans.clear()
        for number, window in enumerate(self._windows(ranks)):
            try:
                lengths = truncated_lengths(self._lengths(window), self._collate)
            except (TypeError, ValueError) as problem:
                problem.add_note(f"  row 0 of this message is row {window[0][0]} of the stream")
                raise
            try:
                plan = plan_batches(lengths, epoch=(epoch << 32) + number, world_size=ranks, **self._settings)
            except (TypeError, ValueError) as problem:
                shortest, longest = (window[int(row)][0] for row in (lengths.argmin(), lengths.argmax()))
                problem.add_note(f"  the longest of these rows is row {longest} of the stream, the shortest {shortest}")
                raise
            if self._repeats:
                digest = digest_of(np.frombuffer(digest.encode(), np.uint8), plan.order, plan.batch_offsets, lengths)
                self._plans.append((steps, {"windows": number + 1, "digest": digest}))
                self._compare(number + 1, digest)
                steps += plan.steps
            for batch in plan:
                if not self._repeats:
                    require_same_epoch(epoch, self.epoch)
                yield [window[index] for index in batch]
        if self.expected is not None:
            self._compare(self.expected[0], "none, because the stream ends before")

    def progress(self, steps: int) -> dict[str, Any]:
        """Return the number of windows of the stream up to a step, and a hash of their batches, for a checkpoint."""
        while len(self._plans) > 1 and self._plans[1][0] <= steps:
            del self._plans[0]
        return self._plans[0][1] if self._plans else {"windows": 0, "digest": ""}

    def _compare(self, windows: int, digest: str) -> None:
        if self.expected is None or self.expected[0] != windows:
            return
        if self.expected[1] != digest:
            raise value_error(
                "the stream has other rows, or another order, than in the run that saved the checkpoint",
                got=f"hash of the first {windows} windows: saved {self.expected[1]}, here {digest}",
                fix="the same stream, shuffled only with a seed; or TrainingArguments(ignore_data_skip=True), "
                "which begins with its first row",
            )
        self.expected = None

    def _windows(self, ranks: int) -> Iterator[list[Numbered]]:
        """Read the stream in windows: lists of rows that are then divided into batches together."""
        size = -(-self._window // ranks) * ranks
        waiting: list[Numbered] = []
        rows_of_first = 0
        for epoch in count() if self._repeats else (self.epoch,):
            number = -1
            for number, row in enumerate(self._pass(epoch)):
                waiting.append((number, row))
                # A row for each rank stays behind, so that the last window can be divided among all of them.
                if len(waiting) == size + ranks:
                    yield waiting[:size]
                    del waiting[:size]
            if number < 0 and not rows_of_first:
                raise value_error(
                    "the stream has no rows",
                    got=shorten(self._rows),
                    fix="a stream with rows; note that an iterator can be read only once",
                )
            if number + 1 < rows_of_first:
                unused = len(waiting) % ranks if number < 0 else 0
                warn(
                    f"the stream has fewer rows in pass {epoch} than in the first one; a pass without rows ends it",
                    got=f"{number + 1} rows, {rows_of_first} before; {unused} rows were left over, as a step needs "
                    f"{ranks} batches",
                    fix="a data set that can be read again, such as datasets.IterableDataset.from_generator(function); "
                    "an iterator can be read only once",
                )
            if number < 0:
                return
            rows_of_first = rows_of_first or number + 1
            last = len(waiting) - (len(waiting) % ranks if self._repeats else 0)
            if last:
                yield waiting[:last]
                del waiting[:last]

    def _pass(self, epoch: int) -> Iterator[Any]:
        """Call `set_epoch(epoch)` of the stream, if it has this method, and yield its rows once."""
        if hasattr(self._rows, "set_epoch"):
            self._rows.set_epoch(epoch)
        number = 0
        try:
            for number, row in enumerate(self._rows, start=1):  # noqa: B007
                yield row
        except Exception as problem:
            raise runtime_error(
                f"row {number} of the stream could not be read",
                got=f"{type(problem).__name__}: {problem}",
                fix="repair the stream, and resume from the last checkpoint",
            ) from problem

    def _lengths(self, window: list[Numbered]) -> NDArray[np.int64]:
        """Return the number of tokens of each row in `window`, `(N,)` int64; see `stream_batches`."""
        if self._length is not None:
            counts = [as_integer(self._length(row), "length(row)", example=5) for _, row in window]
            return np.array(counts, dtype=np.int64)
        rows = [row for _, row in window]
        if self._tokenize is None or (isinstance(rows[0], Mapping) and self._column in rows[0]):
            return np.array([length_of(row, self._column, number) for number, row in enumerate(rows)], dtype=np.int64)
        lengths = np.asarray(self._tokenize(rows)["length"], dtype=np.int64)
        if len(lengths) != len(window):
            raise value_error(
                "a row that becomes several has no single length",
                got=f"{len(window)} rows that became {len(lengths)}: return_overflowing_tokens=True",
                fix="tokenize first: stream.map(collate, batched=True, remove_columns=...)",
            )
        return lengths


class _AsRead(Dataset[Any]):
    """Data set of a stream's `DataLoader`. The sampler yields rows instead of indices; they are returned unchanged."""

    # A loader runs its sampler in one process, and its data set in each worker, where a stream would be read again.

    def __getitems__(self, batch: list[Numbered]) -> list[Numbered]:
        """Return `batch`, a list of numbered rows, unchanged."""
        return batch


class _Collate:
    """Collator of a stream's `DataLoader`: calls `collate_fn` without the row numbers, and notes them in an error."""

    def __init__(self, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        self.collate_fn = collate_fn

    def __call__(self, batch: list[Numbered]) -> Any:
        rows = [row for _, row in batch]
        if self.collate_fn is None:
            return rows
        try:
            return self.collate_fn(rows)
        except Exception as problem:
            problem.add_note(f"  the rows of this batch in the stream: {shorten([number for number, _ in batch])}")
            raise

"""Batches with a token budget from streams, compared with the rows of the stream and with plans of known lengths."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import datasets
import datasets.distributed
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding, plan_batches, stream_batches

C = DataCollatorWithPositionalEncoding
LENGTHS = np.clip(np.random.default_rng(0).lognormal(2.0, 0.8, 200).astype(int), 1, 64)
BUDGET, WINDOW = 128, 50
ROWS = [{"input_ids": [number] * int(length)} for number, length in enumerate(LENGTHS)]


class Torch(torch.utils.data.IterableDataset[Any]):
    """A stream as torch users write it, which would share its rows among the workers that read it."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        return iter(ROWS if info is None else ROWS[info.id :: info.num_workers])


STREAMS: dict[str, Any] = {
    "generator": lambda: (row for row in ROWS),
    "list": lambda: ROWS,
    "torch": Torch,
    "datasets": lambda: datasets.Dataset.from_list(ROWS).to_iterable_dataset(num_shards=4),
    "a reader of its own": lambda: DataLoader(
        ROWS,  # type: ignore[arg-type]
        batch_size=None,
    ),
}


def numbers(batches: Any) -> list[list[int]]:
    """The numbers of the rows of each batch."""
    return [[row["input_ids"][0] for row in batch] for batch in batches]


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


@pytest.mark.parametrize("kind", STREAMS)
def test_every_row_is_in_one_batch_within_the_budget_and_near_its_place(kind: str) -> None:
    batches = numbers(stream_batches(STREAMS[kind](), BUDGET, window=WINDOW))
    assert sorted(flat(batches)) == list(range(len(ROWS)))
    assert all(len(batch) * LENGTHS[batch].max() <= BUDGET for batch in batches)
    assert max(abs(place - number) for place, number in enumerate(flat(batches))) < WINDOW + 1
    assert batches == numbers(stream_batches(ROWS, BUDGET, window=WINDOW))


@pytest.mark.workers
@pytest.mark.parametrize(
    ("kind", "context"),
    [("torch", None), ("datasets", None), pytest.param("torch", "spawn", marks=pytest.mark.slow)],
)
def test_workers_collate_the_same_batches(kind: str, context: str | None) -> None:
    loader = stream_batches(
        STREAMS[kind](), BUDGET, numbers_of, window=WINDOW, num_workers=2, multiprocessing_context=context
    )
    expected = numbers(stream_batches(ROWS, BUDGET, window=WINDOW))
    assert list(loader) == expected
    assert list(loader) == expected


def numbers_of(batch: list[Any]) -> list[int]:
    return [row["input_ids"][0] for row in batch]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=60),
    window=st.integers(1, 70),
    ranks=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_every_process_gets_as_many_batches_and_together_they_have_every_row(
    lengths: list[int], window: int, ranks: int, seed: int
) -> None:
    rows = [{"input_ids": [number] * length} for number, length in enumerate(lengths)]
    shares = []
    try:
        for rank in range(ranks):
            batches = stream_batches(rows, 40, window=window, seed=seed, world_size=ranks, rank=rank)
            shares.append(numbers(batches))
    except ValueError:  # the last window has no row for every rank
        assert len(rows) % ranks
        return
    assert len({len(share) for share in shares}) == 1
    assert sorted(flat([batch for share in shares for batch in share])) == list(range(len(rows)))
    together = numbers(stream_batches(rows, 40, window=window, seed=seed, world_size=ranks))
    assert together == [batch for step in zip(*shares, strict=True) for batch in step]


@pytest.mark.parametrize("number", [2, 3])
def test_accelerate_deals_every_batch_of_a_stream_out_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    state = pytest.importorskip("accelerate.state", reason="needs accelerate: pip install '.[test]'")
    from accelerate.data_loader import BatchSamplerShard

    monkeypatch.setattr(state.PartialState, "_shared_state", {"num_processes": number})
    loader = stream_batches(STREAMS["datasets"](), BUDGET, window=WINDOW)
    dealt = [
        [[row["input_ids"][0] for _, row in batch] for batch in BatchSamplerShard(loader.batch_sampler, number, index)]
        for index in range(number)
    ]
    assert len({len(share) for share in dealt}) == 1
    assert sorted(flat([batch for share in dealt for batch in share])) == list(range(len(ROWS)))
    with pytest.raises(ValueError, match="needs those of all ranks"):
        BatchSamplerShard(stream_batches(ROWS, BUDGET, world_size=number, rank=0).batch_sampler, number, 0)


def test_another_epoch_has_another_order_and_is_set_on_the_stream() -> None:
    stream = STREAMS["datasets"]().shuffle(seed=1, buffer_size=20)
    loader = stream_batches(stream, BUDGET, window=WINDOW)
    first = numbers(loader)
    assert numbers(loader) == first
    loader.batch_sampler.set_epoch(1)  # type: ignore[union-attr]
    second = numbers(loader)
    assert stream.epoch == 1
    assert second != first
    assert sorted(flat(second)) == list(range(len(ROWS)))


def clustered(lengths: np.ndarray) -> np.ndarray:
    """Blocks of rows of similar length in random order, as of one source after the other."""
    blocks = np.sort(lengths).reshape(50, -1)
    return np.random.default_rng(1).permutation(blocks).ravel()


@pytest.mark.parametrize("order", [np.asarray, np.sort, clustered])
def test_a_window_of_20_000_rows_pads_as_the_plan_of_all_lengths_does(order: Any) -> None:
    lengths = order(np.clip(np.random.default_rng(0).lognormal(4.7, 1.0, 100_000).astype(int), 1, 2_048))
    places = 0
    for batch in stream_batches(lengths.tolist(), 8_192, length=int):
        places += len(batch) * max(batch)
    padding = 1 - lengths.sum() / places
    assert padding < 1 - plan_batches(lengths, 8_192).utilisation + 0.002


def test_lengths_come_from_tokens_numbers_a_function_or_the_collator(wordpiece: Any) -> None:
    texts = ["I ride bike", "she said", "the dog reads a book of maps and never asks why", "a", "of"] * 4
    tokens = [len(ids) for ids in wordpiece(texts)["input_ids"]]

    def widths(rows: Any, *given: Any, **more: Any) -> list[int]:
        return [len(batch) for batch in stream_batches(rows, 40, *given, seed=1, **more)]

    expected = [len(batch) for batch in plan_batches(tokens, 40, seed=1)]
    assert widths([{"input_ids": [1] * length} for length in tokens]) == expected
    assert widths([{"input_ids": torch.ones(length)} for length in tokens]) == expected
    assert widths([{"size": length} for length in tokens], column="size") == expected
    assert widths([{"size": [1] * length} for length in tokens], column="size") == expected
    assert widths(texts, length=lambda text: len(wordpiece(text)["input_ids"])) == expected
    for rows in (texts, [{"text": text} for text in texts]):
        batches = list(stream_batches(rows, 40, C(wordpiece), seed=1))
        assert [len(batch["input_ids"]) for batch in batches] == expected
        assert all(batch["input_ids"].numel() <= 40 for batch in batches)
        assert sum(int(batch["attention_mask"].sum()) for batch in batches) == sum(tokens)


def test_multiples_count_in_the_budget() -> None:
    for batch in stream_batches(ROWS, BUDGET, window=WINDOW, multiple_of=8):
        assert len(batch) * -(-max(len(row["input_ids"]) for row in batch) // 8) * 8 <= BUDGET


def breaking(after: int) -> Iterator[Any]:
    yield from ROWS[:after]
    raise ConnectionError("the server is gone")


def refusing(batch: list[Any]) -> Any:
    if any(row["input_ids"][0] == 120 for row in batch):
        raise ValueError("a row that cannot be collated")
    return batch


def long_row(place: int) -> list[Any]:
    return [*ROWS[:place], {"input_ids": [1] * 900}, *ROWS[place:]]


REFUSED: dict[str, tuple[Any, type[Exception], list[str]]] = {
    "raises": (
        lambda: stream_batches(breaking(70), BUDGET, window=WINDOW),
        RuntimeError,
        ["row 70 of the stream could not be read", "ConnectionError: the server is gone", "last checkpoint"],
    ),
    "empty": (lambda: stream_batches([], BUDGET), ValueError, ["the stream has no rows", "only once"]),
    "too long": (
        lambda: stream_batches(long_row(90), BUDGET, window=WINDOW),
        ValueError,
        [
            "document 40 has 900 tokens, a batch may cost 128",
            "token_budget=900",
            "the longest of these rows is row 90 of",
        ],
    ),
    "too dear": (
        lambda: stream_batches(long_row(90), 1000, window=WINDOW, cost=lambda width: width + width**2 / 4096),
        ValueError,
        ["document 40 has 900 tokens and costs 1097.7", "token_budget=1098"],
    ),
    "no tokens": (
        lambda: stream_batches([*ROWS[:60], {"input_ids": []}, *ROWS], BUDGET, window=WINDOW),
        ValueError,
        ["lengths must be at least 1", "0 at index 10", "the shortest 60"],
    ),
    "texts": (
        lambda: stream_batches(["a text"], BUDGET),
        TypeError,
        ["row 0 has no tokens in column 'input_ids'", "'a text'"],
    ),
    "strange lengths": (
        lambda: stream_batches(ROWS, BUDGET, length=str),
        TypeError,
        ["length(row) must be an integer"],
    ),
    "too few for the processes": (
        lambda: stream_batches(ROWS[:1], BUDGET, world_size=2, rank=0),
        ValueError,
        ["cannot be split", "1 documents", "world_size=1"],
    ),
    "rows of one process": (
        lambda: stream_batches(
            datasets.distributed.split_dataset_by_node(STREAMS["datasets"](), rank=1, world_size=2), BUDGET
        ),
        ValueError,
        ["every process reads the whole stream", "rank 1 of 2", "before split_dataset_by_node"],
    ),
}


@for_each("name", REFUSED)
def test_streams_that_cannot_be_batched_are_refused_with_a_fix(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind) as caught:
        list(call())
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    for word in words:
        assert word in message


@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_that_the_collator_refuses_is_named_by_its_number_in_the_stream(workers: int) -> None:
    seen = []
    with pytest.raises(ValueError, match="a row that cannot be collated") as caught:
        seen.extend(stream_batches(ROWS, BUDGET, refusing, window=WINDOW, num_workers=workers))
    traceback.clear_frames(caught.tb)  # else the worker ends five seconds late
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    batch = next(batch for batch in numbers(stream_batches(ROWS, BUDGET, window=WINDOW)) if 120 in batch)
    assert f"the rows of this batch in the stream: {batch}"[:60] in message
    assert len(seen) == numbers(stream_batches(ROWS, BUDGET, window=WINDOW)).index(batch)


def test_a_text_that_the_tokenizer_refuses_is_found_in_the_stream(wordpiece: Any) -> None:
    texts: list[Any] = ["I ride bike"] * 120
    texts[115] = None
    with pytest.raises(TypeError, match="row 15 of") as caught:
        list(stream_batches(texts, BUDGET, C(wordpiece), window=WINDOW))
    assert "row 0 of this message is row 100 of the stream" in caught.value.__notes__[0]
    split = C(wordpiece, max_length=8, return_overflowing_tokens=True)
    with pytest.raises(ValueError, match="a row that becomes several has no single length"):
        list(stream_batches(["I ride bike " * 20], BUDGET, split))


def test_an_iterator_is_read_once() -> None:
    loader = stream_batches(iter(ROWS), BUDGET, window=WINDOW)
    next(iter(loader))
    with pytest.raises(ValueError, match="the rows of an iterator can be read only once") as caught:
        next(iter(loader))
    assert "from_generator" in str(caught.value)


def test_rows_are_read_a_window_at_a_time() -> None:
    read = []

    def rows() -> Iterator[Any]:
        for number, row in enumerate(ROWS):
            read.append(number)
            yield row

    batches = iter(stream_batches(rows(), BUDGET, window=WINDOW))
    next(batches)
    assert len(read) == WINDOW + 1

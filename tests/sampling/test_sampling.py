"""Lengths, the sampler and packed data sets, compared with reading row by row and packing by hand.

What Trainer makes of them, alone and in two processes, is in test_sampling_trainer.
"""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each

from hf_posenc import (
    AttentionMask,
    DataCollatorWithPositionalEncoding,
    TokenBudgetBatchSampler,
    TokenBudgetMixin,
    pack,
    pack_dataset,
    padding_mask,
    plan_batches,
    stream_batches,
)
from hf_posenc.positions import position_ids_from_lengths
from hf_posenc.sampling import lengths_of

LENGTHS = np.clip(np.random.default_rng(0).lognormal(2.0, 0.8, 400).astype(int), 1, 64)
BUDGET = 128
stored = datasets.Dataset.from_dict


def documents(lengths: Any = LENGTHS, **more: Any) -> datasets.Dataset:
    """Documents whose tokens are all different, so that each can be recognized anywhere."""
    ends = np.cumsum(lengths)
    ids = [list(range(int(end - length) + 1, int(end) + 1)) for length, end in zip(lengths, ends, strict=True)]
    return stored({"input_ids": ids, **more})


def arrow(kind: pa.DataType) -> datasets.Dataset:
    rows = [[1, 2], [3, 4], [5, 6]] if pa.types.is_fixed_size_list(kind) else [[1, 2, 3], [], [4]]
    return datasets.Dataset(pa.table({"input_ids": pa.array(rows, type=kind)}))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.int64(), 2)])
def test_lengths_of_every_kind_of_list_column_are_those_of_its_rows(kind: pa.DataType) -> None:
    dataset = arrow(kind)
    counts = [len(row) for row in dataset["input_ids"]]
    assert lengths_of(dataset).tolist() == lengths_of(stored({"n": counts}), "n").tolist() == counts
    assert lengths_of(dataset).dtype == np.int64


@for_each(
    "change",
    [
        lambda rows: rows.select([5, 1, 1, 7]),
        lambda rows: datasets.concatenate_datasets([rows, rows.shuffle(seed=2).select(range(9))]),
        lambda rows: rows.filter(lambda row: row["label"] % 2, load_from_cache_file=False),
        lambda rows: rows.with_format("torch"),
        lambda rows: rows.select([]),
    ],
)
def test_lengths_follow_whatever_was_done_to_the_rows(change: Any) -> None:
    rows = change(documents(label=[(7 * i) % 11 for i in range(len(LENGTHS))]))
    assert lengths_of(rows).tolist() == [len(row["input_ids"]) for row in rows]


def test_no_row_is_read_for_the_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = documents().shuffle(seed=0)
    expected = [len(row["input_ids"]) for row in rows]

    def read(*_: Any) -> None:
        raise AssertionError("a row was read")

    monkeypatch.setattr(datasets.Dataset, "__getitem__", read)
    monkeypatch.setattr(datasets.Dataset, "__iter__", read)
    assert lengths_of(rows).tolist() == expected
    assert len(TokenBudgetBatchSampler(rows, BUDGET)) > 0


def test_any_other_data_set_is_read_row_by_row() -> None:
    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"tokens": torch.arange(index + 1)}

    assert lengths_of(Rows(), "tokens").tolist() == [1, 2, 3]
    assert lengths_of([]).tolist() == []


NOT_ROWS: dict[str, tuple[Any, list[str]]] = {
    "splits": (
        lambda: datasets.DatasetDict(test=documents()),
        ["one split at a time", "DatasetDict of ['test']", "dataset['test']"],
    ),
    "dict of splits": (lambda: {"train": documents()}, ["one split at a time", "dataset['train']"]),
    "columns": (lambda: {"input_ids": [[5, 6], [7]]}, ["got: dict", "datasets.Dataset.from_", ".from_dict(columns)"]),
    "table": (lambda: pa.table({"input_ids": [[5, 6], [7]]}), ["got: Table", "datasets.Dataset.from_"]),
    "frame": (lambda: pd.DataFrame({"input_ids": [[5, 6], [7]]}), ["got: DataFrame", ".from_pandas(frame)"]),
    "function": (lambda: lambda: iter(()), ["got: function", "IterableDataset.from_generator(function)"]),
    "path": (lambda: "corpus.txt", ["got: str", "datasets.Dataset.from_"]),
}


@pytest.mark.parametrize("name", NOT_ROWS)
def test_what_has_no_rows_is_refused_where_a_data_set_is_expected(name: str, tmp_path: Path) -> None:
    make, words = NOT_ROWS[name]

    class Budgeted(TokenBudgetMixin, transformers.Trainer, token_budget=BUDGET): ...

    def train(data: Any) -> None:
        arguments = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], max_steps=1)
        Budgeted(torch.nn.Linear(1, 1), arguments, train_dataset=data).get_train_dataloader()

    calls: list[Any] = [lambda data: pack_dataset(data, 64), lambda data: stream_batches(data, BUDGET)]
    if importlib.util.find_spec("accelerate"):  # TrainingArguments of transformers 5.0 need it
        calls.append(train)
    calls += [lengths_of, lambda data: TokenBudgetBatchSampler(data, BUDGET)]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call(make())
        for word in words:
            assert word in str(caught.value)


def _sampler(lengths: Any = LENGTHS, budget: int = BUDGET, **more: Any) -> TokenBudgetBatchSampler:
    return TokenBudgetBatchSampler(lengths, budget, **more)


def test_a_sampler_of_lengths_follows_the_plan_of_its_epoch() -> None:
    sampler = _sampler(window=50, seed=5, multiple_of=8)
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        plan = plan_batches(LENGTHS, BUDGET, window=50, seed=5, epoch=epoch, multiple_of=8)
        assert list(sampler) == [batch.tolist() for batch in plan]
        assert list(sampler) == [batch.tolist() for batch in plan]  # and again


BACKWARDS = range(len(LENGTHS), 0, -1)  # an index that names other rows than it numbers


@for_each(
    "kind",
    [
        list,
        tuple,
        np.array,
        np.uint8,
        np.int32,
        torch.tensor,
        pa.array,
        lambda lengths: pa.chunked_array([lengths[:7], lengths[7:]]),
        lambda lengths: stored({"length": lengths})["length"],
        pd.Series,
        pd.Index,
        lambda lengths: pd.Series(lengths, index=[f"row {number}" for number in BACKWARDS]),
        *(
            lambda lengths, dtype=dtype: pd.Series(lengths, index=BACKWARDS, dtype=dtype)
            for dtype in ("int64", "uint8", "Int64", "int64[pyarrow]")
        ),
    ],
)
def test_lengths_may_be_any_sequence_of_whole_numbers_whatever_its_index(kind: Any) -> None:
    given_as = kind(LENGTHS.tolist())
    expected = [batch.tolist() for batch in plan_batches(LENGTHS, BUDGET)]
    assert list(TokenBudgetBatchSampler(given_as, BUDGET)) == expected
    assert [batch.tolist() for batch in plan_batches(given_as, BUDGET)] == expected
    assert pack(given_as, np.int64(BUDGET)).order.tolist() == pack(LENGTHS, BUDGET).order.tolist()
    assert padding_mask(given_as).equal(padding_mask(LENGTHS))
    assert np.array_equal(position_ids_from_lengths(given_as), position_ids_from_lengths(LENGTHS))
    mask = AttentionMask.from_lengths(given_as, prefix=given_as, look_ahead=True)
    assert mask.dense().equal(AttentionMask.from_lengths(LENGTHS, prefix=LENGTHS, look_ahead=True).dense())


def test_a_sampler_keeps_its_plan_when_the_lengths_change() -> None:
    lengths = LENGTHS.copy()
    sampler = TokenBudgetBatchSampler(lengths, BUDGET)
    lengths[:] = 1
    assert list(sampler) == list(_sampler())


@settings(max_examples=25)
@given(st.integers(0, 5), st.data())
def test_a_sampler_resumes_wherever_it_was_saved(epoch: int, data: st.DataObject) -> None:
    world = data.draw(st.sampled_from([1, 4]))
    sampler = _sampler(seed=1, world_size=world)
    sampler.set_epoch(epoch)
    step = data.draw(st.integers(0, sampler.plan.steps))
    whole = list(sampler)
    batches = iter(sampler)
    assert [next(batches) for _ in range(step * world)] == whole[: step * world]
    state = json.loads(json.dumps(sampler.state_dict() if step else sampler.state_dict(0)))
    assert state == sampler.state_dict(step)
    fresh = pickle.loads(pickle.dumps(_sampler(seed=1, world_size=world)))
    fresh.load_state_dict(state)
    fresh.set_epoch(epoch)  # as a loop does before each epoch
    assert len(fresh) == len(whole)
    assert list(fresh) == whole[step * world :]
    assert list(fresh) == whole  # the next time from the start
    fresh.load_state_dict(state)
    fresh.set_epoch(epoch + 1)
    assert len(list(fresh)) == len(whole)


def _follower(lengths: Any = LENGTHS, budget: int = BUDGET, **more: Any) -> TokenBudgetBatchSampler:
    return TokenBudgetBatchSampler(plan_batches(lengths, budget, **more))


@for_each(
    ("saved", "here", "named"),
    [
        (_sampler(), _sampler(seed=1), "seed"),
        (_sampler(), _sampler(LENGTHS[::-1]), "lengths"),
        (_sampler(), _sampler(np.roll(LENGTHS, 1)), "lengths"),
        (_sampler(), _sampler(LENGTHS[:-1]), "lengths"),
        (_sampler(), _sampler(window=300), "window"),
        (_sampler(), _sampler(budget=BUDGET + 1), "token_budget"),
        (_sampler(), _sampler(world_size=2), "batches_per_step"),
        (_sampler(), _sampler(multiple_of=2), "multiple_of"),
        (_sampler(), _sampler(cost=lambda width: width * 1.001), "cost"),
        (_sampler(cost=lambda width: width * 1.001), _sampler(cost=lambda width: width * 1.002), "cost"),
        (_sampler(), _follower(), "window"),
        (_follower(), _sampler(), "batches"),
        (_follower(), _follower(seed=1), "batches"),
        (_follower(world_size=2, rank=0), _follower(world_size=2, rank=1), "rank"),
    ],
)
def test_a_state_of_other_lengths_or_settings_is_refused_by_name(saved: Any, here: Any, named: str) -> None:
    state = saved.state_dict(1)
    expected = list(here)
    with pytest.raises(ValueError, match=r"the state belongs to another plan") as caught:
        here.load_state_dict(state)
    assert f" {named}" in str(caught.value).splitlines()[1]
    assert list(here) == expected  # and nothing of it was taken


def test_a_sampler_of_a_plan_resumes() -> None:
    follower = _follower(seed=3)
    whole = list(follower)
    follower.load_state_dict(json.loads(json.dumps(_follower(seed=3).state_dict(2))))
    assert list(follower) == whole[2:]


STATE = _sampler().state_dict(1)


@for_each(
    ("state", "kind", "words"),
    [
        ({}, ValueError, ["another plan", "epoch: saved nothing", "seed: saved nothing, here 0"]),
        ({**STATE, "sede": 1}, ValueError, ["another plan", "sede: saved 1, here nothing"]),
        (None, TypeError, ["a state is a dict", "None"]),
        ({**STATE, "epoch": "0"}, TypeError, ["epoch must be an integer", "'0'"]),
        ({**STATE, "step": 10_000}, ValueError, ["the plan has", "10000"]),
    ],
)
def test_values_that_are_not_states_are_refused(state: Any, kind: type[Exception], words: list[str]) -> None:
    sampler = _sampler()
    with pytest.raises(kind) as caught:
        sampler.load_state_dict(state)
    for word in words:
        assert word in str(caught.value)
    assert sampler.epoch == 0


@pytest.mark.parametrize("streams", [False, True])
def test_an_epoch_that_changes_after_batches_were_read_raises_with_the_fix(streams: bool) -> None:
    """As under accelerate with a `StatefulDataLoader` and workers, which reads batches before `set_epoch` is called."""
    data = documents()
    sampler: Any = stream_batches(data, BUDGET).batch_sampler if streams else TokenBudgetBatchSampler(data, BUDGET)
    batches = iter(sampler)
    next(batches)
    sampler.set_epoch(0)
    next(batches)
    sampler.set_epoch(1)
    with pytest.raises(ValueError, match=r"epoch changed from 0 to 1[\s\S]*before accelerator.prepare"):
        next(batches)
    assert len(list(sampler)) > 3  # the next iteration has the epoch that was set
    same = TokenBudgetBatchSampler(plan_batches(LENGTHS, BUDGET))  # in every epoch
    batches = iter(same)
    next(batches)
    same.set_epoch(1)
    next(batches)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let accelerate believe that it has so many processes."""
    state = pytest.importorskip("accelerate.state", reason="needs accelerate: pip install '.[test]'")

    def set_number(number: int) -> None:
        monkeypatch.setattr(state.PartialState, "_shared_state", {"num_processes": number})

    return set_number


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("number", [2, 3, 8])
def test_accelerate_deals_every_batch_of_the_global_plan_out_once(processes: Any, number: int, even: bool) -> None:
    from accelerate.data_loader import BatchSamplerShard

    processes(number)
    sampler = _sampler()
    assert sampler.plan.world_size == number
    assert sampler.plan.rank is None
    shards = [BatchSamplerShard(sampler, number, index, even_batches=even) for index in range(number)]
    dealt = [list(shard) for shard in shards]
    assert {len(batches) for batches in dealt} == {len(sampler) // number} == {len(shards[0])}
    assert sorted(row for batches in dealt for batch in batches for row in batch) == list(range(len(LENGTHS)))
    steps = zip(*dealt, strict=True)
    costs = [[len(batch) * LENGTHS[batch].max() for batch in step] for step in steps]
    assert sum(map(max, costs)) * number <= 1.1 * sum(map(sum, costs))  # neighbors by length share a step


def test_a_sampler_made_before_accelerate_plans_for_its_processes(processes: Any) -> None:
    from accelerate.data_loader import BatchSamplerShard

    sampler = _sampler()
    assert sampler.plan.world_size == 1
    processes(8)
    assert len(BatchSamplerShard(sampler, 8, 0)) * 8 == len(sampler)
    assert sampler.plan.world_size == 8


@pytest.mark.parametrize("from_plan", [True, False])
def test_the_plan_of_one_rank_is_refused_under_accelerate_which_would_lose_most_documents(
    processes: Any, from_plan: bool
) -> None:
    from accelerate.data_loader import BatchSamplerShard

    plan = plan_batches(LENGTHS, BUDGET, world_size=2, rank=1)
    sampler = TokenBudgetBatchSampler(plan) if from_plan else _sampler(world_size=2, rank=1)
    lost = BatchSamplerShard(list(sampler), 2, 0)  # what would come of it: rank 0 of 2 has a quarter of the documents
    assert sum(map(len, lost)) < 0.3 * len(LENGTHS)
    assert BatchSamplerShard(sampler, 2, 0).batch_size is None  # nothing to refuse while there is one process
    processes(2)
    with pytest.raises(ValueError, match="needs those of all ranks") as caught:
        BatchSamplerShard(sampler, 2, 0)
    for words in ("the batches of rank 1 alone, on 2 processes", "rank=None", "world_size=2"):
        assert words in str(caught.value)


def test_a_plan_whose_batches_do_not_divide_is_refused_under_accelerate_which_would_repeat_some(processes: Any) -> None:
    from accelerate.data_loader import BatchSamplerShard

    plan = plan_batches(LENGTHS, BUDGET)
    number = next(number for number in range(2, 9) if len(plan) % number)
    processes(number)
    with pytest.raises(
        ValueError, match=f"{len(plan)} batches do not divide evenly among the {number} processes"
    ) as caught:
        BatchSamplerShard(TokenBudgetBatchSampler(plan), number, 0)
    assert f"world_size={number}" in str(caught.value)


def by_hand(rows: Any, capacity: int) -> list[list[int]]:
    """The documents of packed rows, separated where positions restart; and everything else that a row must keep."""
    found = []
    for row in rows:
        ids, positions, labels = row["input_ids"], row["position_ids"], row["labels"]
        assert len(ids) == len(positions) == len(labels) == capacity
        count = sum(token != 0 for token in ids)
        assert ids[count:] == [0] * (capacity - count)  # padding comes last
        assert labels[count:] == [-100] * (capacity - count)
        starts = [place for place in range(count) if positions[place] == 0]
        assert starts[:1] == [0]
        for start, stop in zip(starts, [*starts[1:], count], strict=True):
            assert positions[start:stop] == list(range(stop - start))
            assert labels[start:stop] == [-100, *ids[start + 1 : stop]]
            found.append(ids[start:stop])
    return found


@settings(max_examples=40)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(12, 20), st.integers(0, 3))
def test_a_packed_window_holds_every_document_once_with_its_own_positions_and_labels(
    lengths: list[int], capacity: int, seed: int
) -> None:
    made = pack_dataset(documents(lengths).to_iterable_dataset(), capacity, seed=seed)
    kept = [row for row in documents(lengths)["input_ids"] if row]
    assert sorted(by_hand(list(made), capacity)) == sorted(kept)


@pytest.mark.parametrize("window", [7, 1000])
@pytest.mark.parametrize("streams", [False, True])
def test_a_data_set_and_a_stream_are_packed_window_by_window(streams: bool, window: int) -> None:
    rows = documents(text=[str(i) for i in range(len(LENGTHS))], label=[0] * len(LENGTHS))
    rows = rows.shuffle(seed=0).select(range(1, len(LENGTHS)))
    packed = pack_dataset(rows.to_iterable_dataset(num_shards=2) if streams else rows, 64, window=window)
    assert isinstance(packed, datasets.IterableDataset if streams else datasets.Dataset)
    assert packed.column_names == ["input_ids", "position_ids", "labels", "attention_mask"]
    found = list(packed)
    assert sorted(found[0]) == ["attention_mask", "input_ids", "labels", "position_ids"]
    assert found[0]["attention_mask"].startswith("none: with a mask, packed documents would attend to each other")
    assert sorted(by_hand(found, 64)) == sorted(rows["input_ids"])
    if window == 1000 and not streams:
        assert len(found) == -(-sum(map(len, rows["input_ids"])) // 64)  # as few as there can be


def test_the_rows_of_a_window_come_in_the_order_of_the_seed_and_are_cached() -> None:
    first, again, other = (pack_dataset(documents(), 64, seed=seed)["input_ids"][:] for seed in (1, 1, 2))
    assert first == again != other

    rows = documents()
    one, two = pack_dataset(rows, 64), pack_dataset(rows, 64)
    assert one._fingerprint == two._fingerprint
    assert pack_dataset(rows, 64, first_position=2)._fingerprint != one._fingerprint


def test_packed_rows_have_the_requested_columns_only() -> None:
    rows = documents([3, 2], token_type_ids=[[0, 0, 1], [1, 1]], attention_mask=[[1, 1, 1], [1, 1]], label=[0, 1])
    packed = pack_dataset(rows, 6, document_ids=True, first_position=2, pad_token_id=9)
    numbers = ["input_ids", "token_type_ids", "position_ids", "document_ids", "labels"]
    assert packed.column_names == [*numbers, "attention_mask"]
    assert packed.select_columns(numbers)[0] == {
        "input_ids": [1, 2, 3, 4, 5, 9],
        "token_type_ids": [0, 0, 1, 1, 1, 0],
        "position_ids": [2, 3, 4, 2, 3, 2],
        "document_ids": [0, 0, 0, 1, 1, -1],
        "labels": [-100, 2, 3, -100, 5, -100],
    }
    unlabeled = pack_dataset(rows, 6, labels=None).column_names
    assert unlabeled == ["input_ids", "token_type_ids", "position_ids", "attention_mask"]


def test_given_labels_stay_except_those_of_first_tokens_that_are_their_own_ids() -> None:
    rows = documents([3, 2], labels=[[-100, 7, 8], [4, 5]])  # of the ids 1, 2, 3 and 4, 5
    assert pack_dataset(rows, 5)[0]["labels"] == [-100, 7, 8, -100, 5]
    assert pack_dataset(rows, 5, labels=None)[0]["labels"] == [-100, 7, 8, 4, 5]
    shifted = documents([3, 2], labels=[[2, 3, -100], [5, -100]])
    assert pack_dataset(shifted, 5)[0]["labels"] == [2, 3, -100, 5, -100]


def test_all_columns_with_a_value_per_token_that_models_take_are_packed() -> None:
    further = {"token_type_ids": 0, "global_attention_mask": 0, "task_type_ids": 0, "mm_token_type_ids": 0, "langs": 0}
    further |= {"p_mask": 1}
    columns = {name: [[1, 0, 1], [0, 1]] for name in further}
    words = {"weights": [[1, 2, 3], [4, 5]], "response_mask": [[1], [1]], "words": [["a"], ["b"]], "id": [0, 1]}
    with pytest.warns(UserWarning, match=r"columns \['weights', 'response_mask'\] are not in the packed rows"):
        packed = pack_dataset(documents([3, 2], **columns, **words), 6)[0]
    assert {name: packed[name] for name in further} == {name: [1, 0, 1, 0, 1, fill] for name, fill in further.items()}
    assert "weights" not in packed


def test_padding_of_documents_and_documents_without_tokens_take_no_room() -> None:
    rows = stored({"input_ids": [[0, 5, 6], [], [7, 0, 0, 0]], "attention_mask": [[0, 1, 1], [], [1, 0, 0, 0]]})
    packed = pack_dataset(rows, 3)
    assert packed["input_ids"][:] == [[5, 6, 7]]
    assert packed["position_ids"][:] == [[0, 1, 0]]


@pytest.mark.parametrize("column", ["document_ids", "seq_idx"])
def test_padding_with_the_number_0_is_named_as_the_collator_names_it(column: str, word_level: Any) -> None:
    rows = stored({"input_ids": [[5, 6, 7, 8, 9, 0, 0]], column: [[1, 1, 2, 2, 3, 0, 0]]})
    named = pytest.warns(UserWarning, match=rf"(?s)row 0 begins or ends with the padding id 0.*-1 in {column}")
    with named, pytest.warns(UserWarning, match="packed documents attend to each other"):
        DataCollatorWithPositionalEncoding(word_level)(list(rows))
    with named:
        pack_dataset(rows, 8)
    marked = stored({"input_ids": [[5, 6, 7, 8, 9, 0, 0]], column: [[1, 1, 2, 2, 3, -1, -1]]})
    (labels,) = pack_dataset(marked, 8)["labels"]
    assert [label for label in labels if label != -100] == [6, 8]


def test_padding_is_numbered_as_one_more_document_and_read_as_padding(word_level: Any) -> None:
    """Kernels that take each 0 of the positions for a document see one more, and not one for each token."""
    rows = stored({"input_ids": [[5, 6, 7], [8, 9], [4]]})
    for first in (0, 2):
        packed = pack_dataset(rows, 12, first_position=first)
        (positions,) = packed["position_ids"]
        assert [position - first for position in positions] == [0, 1, 2, 0, 1, 0, *range(6)]
    collate = DataCollatorWithPositionalEncoding(word_level, labels="causal_lm", return_tensors="np")
    for labels in ("causal_lm", None):
        packed = pack_dataset(rows, 12, labels=labels)
        for layout in ({}, {"packing": True, "max_length": 12}, {"packing": "flat"}):
            batch = collate.replace(**layout)(list(packed))
            ids = batch["input_ids"].ravel()
            assert sorted(ids[ids > 0].tolist()) == [4, 5, 6, 7, 8, 9]
            assert sorted(batch["labels"][batch["labels"] != -100].tolist()) == [6, 7, 9]
        again = pack_dataset(packed, 12)
        assert again["position_ids"][:] == packed["position_ids"][:]
        assert AttentionMask.from_batch({**packed.with_format("torch")[:]}).documents[0].tolist()[-6:] == [-1] * 6


def test_documents_that_are_too_long_are_refused_by_their_number_cut_or_split() -> None:
    rows = documents([3, 9, 4])
    with pytest.raises(ValueError, match="document 1 has 9 tokens, a row holds 4") as caught:
        pack_dataset(rows, 4)
    assert "1 of 3 documents" in str(caught.value)
    assert 'too_long="split"' in str(caught.value)
    with pytest.warns(UserWarning, match="1 of 3 documents were truncated to 4 tokens"):
        cut = pack_dataset(rows, 4, too_long="truncate")
    assert sorted(by_hand(cut, 4)) == [[1, 2, 3], [4, 5, 6, 7], [13, 14, 15, 16]]
    split = by_hand(pack_dataset(rows, 4, too_long="split"), 4)
    assert sorted(split) == [[1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12], [13, 14, 15, 16]]

    packed = pack_dataset(documents([3, 5, 2]), 8)
    with pytest.raises(ValueError, match=r"(?s)document \d has 5 tokens, a row holds 4"):
        pack_dataset(packed, 4)
    stream = documents([3, 2, 1, 9, 4]).to_iterable_dataset()
    with pytest.raises(ValueError, match="document 3 has 9 tokens, a row holds 4"):
        list(pack_dataset(stream, 4, window=2))
    with pytest.warns(UserWarning, match="documents of the stream are truncated to 4 tokens"):
        cut = list(pack_dataset(stream, 4, window=2, too_long="truncate"))
    assert sum(token != 0 for row in cut for token in row["input_ids"]) == 3 + 2 + 1 + 4 + 4
    split = list(pack_dataset(stream, 4, window=2, too_long="split"))
    assert sum(token != 0 for row in split for token in row["input_ids"]) == 19


REFUSED: list[tuple[Any, type[Exception], list[str]]] = [
    # lengths
    (lambda: lengths_of(stored({"input_ids": ["a"]})), ValueError, ["must hold lists", "string"]),
    (
        lambda: lengths_of([{"input_ids": [1]}, {"ids": [1]}]),
        TypeError,
        ["row 1 has no tokens in column 'input_ids'", "{'ids': [1]}"],
    ),
    (lambda: lengths_of([{"input_ids": "abc"}]), TypeError, ["row 0 has no tokens in column 'input_ids'", "'abc'"]),
    # samplers
    (
        lambda: TokenBudgetBatchSampler(plan_batches(LENGTHS, BUDGET), 99),
        ValueError,
        ["settings cannot be combined with a BatchPlan", "token_budget=99"],
    ),
    (lambda: _sampler(rank=1), ValueError, ["a rank needs a world_size", "world_size"]),
    (lambda: _sampler().set_epoch(-1), ValueError, ["epoch must not be negative", "-1"]),
    # packing
    (
        lambda: pack_dataset([{"input_ids": [1]}], 8),
        TypeError,
        ["packs a data set of datasets", "list", ".from_list(rows)"],
    ),
    (
        lambda: pack_dataset(iter([{"input_ids": [1]}]), 8),
        TypeError,
        ["packs a data set of datasets", "list_iterator", "IterableDataset.from_generator(function)"],
    ),
    (lambda: pack_dataset(documents(), 0), ValueError, ["max_length must be positive", "got: 0"]),
    (lambda: pack_dataset(documents(), 64, window=0), ValueError, ["window must be positive", "got: 0"]),
    (lambda: pack_dataset(documents(), 64, seed=-1), ValueError, ["seed must not be negative", "got: -1"]),
    (lambda: pack_dataset(documents(), 64, too_long="drop"), ValueError, ["too_long must be one of", "'drop'"]),
    (lambda: pack_dataset(documents(), 64, labels="mlm"), ValueError, ["labels must be one of", "'mlm'"]),
    (
        lambda: pack_dataset(documents([3, 2], labels=[0, 1]), 8),
        TypeError,
        ["row 0 of column 'labels' must be a flat list of integers"],
    ),
    (
        lambda: pack_dataset(documents([3, 2], labels=[[1, 2], [1, 2, 3]]), 8),  # as many in all
        ValueError,
        ["row 0: 2 values in 'labels' for 3 tokens", "2 such rows of 2"],
    ),
    (
        lambda: pack_dataset(documents([3, 2], attention_mask=[[1, 1, 1], [1]]), 2),
        ValueError,
        ["row 1: 1 values in 'attention_mask' for 2 tokens"],
    ),
    (
        lambda: pack_dataset(stored({"input_ids": [[1.5, 2.0]]}), 8),
        TypeError,
        ["row 0 of column 'input_ids' must be a flat list of integers", "values of float64"],
    ),
    (lambda: pack_dataset(documents([3, 2]), 2**31), ValueError, ["2147483648 not in range"]),
    (lambda: pack_dataset(stored({"input_ids": [[1], None]}), 8), ValueError, ["row 1 of column 'input_ids' is None"]),
    (
        lambda: list(pack_dataset(stored({"input_ids": [[1], [2], None]}).to_iterable_dataset(), 8, window=2)),
        TypeError,
        ["row 2 of column 'input_ids' must be a flat list of integers", "0-dimensional"],
    ),
]


@for_each(("call", "kind", "words"), REFUSED)
def test_wrong_data_and_settings_are_refused_with_a_fix(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)

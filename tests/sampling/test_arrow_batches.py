"""Batches that a `DataLoader` reads from Arrow, compared with those of transformers and of the same rows as dicts."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from looping import for_each
from torch.utils.data import DataLoader, Subset
from transformers import DataCollatorWithPadding, default_data_collator

from hf_posenc import DataCollatorWithPositionalEncoding, pack_dataset, with_arrow_batches

C = DataCollatorWithPositionalEncoding
COUNT = 23
DRAW = np.random.default_rng(0)
LENGTHS = DRAW.integers(1, 12, COUNT)
IDS = [DRAW.integers(5, 1000, length).tolist() for length in LENGTHS]
ROWS = {
    "input_ids": IDS,
    "token_type_ids": [[0] * (len(ids) // 2) + [1] * (len(ids) - len(ids) // 2) for ids in IDS],
    "attention_mask": [[1] * len(ids) for ids in IDS],
    "label": DRAW.integers(0, 3, COUNT).tolist(),
}


def rows(**more: Any) -> datasets.Dataset:
    """Tokenized rows in several chunks of different types."""
    dataset = datasets.Dataset.from_dict(ROWS | more)
    whole = dataset.with_format("arrow")[:]
    table = pa.concat_tables([whole.slice(start, 5) for start in range(0, COUNT, 5)])
    return datasets.Dataset(table, info=dataset.info)


def batches(dataset: Any, collate: Any, **settings: Any) -> list[dict[str, Any]]:
    """All batches of four shuffled rows, the same rows for every data set of this length."""
    shuffled = torch.Generator().manual_seed(0)
    return list(DataLoader(dataset, batch_size=4, shuffle=True, generator=shuffled, collate_fn=collate, **settings))


def assert_same(ours: list[Any], theirs: list[Any], names: Any = None) -> None:
    """Every tensor is equal, and of the same dtype."""
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert names is not None or list(one) == list(other)
        for name in names or other:
            assert one[name].dtype == other[name].dtype, name
            assert torch.equal(one[name], other[name]), name


@pytest.fixture
def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to decode rows, so that a test sees that batches are read from Arrow."""

    def refuse(self: Any, keys: Any) -> Any:
        raise AssertionError("rows were decoded")

    monkeypatch.setattr(datasets.Dataset, "__getitems__", refuse)


CHANGES: dict[str, Any] = {
    "as it is": lambda data: data,
    "select": lambda data: data.select([20, 3, 3, 7, 0, 11, 22, 9]),
    "a contiguous selection": lambda data: data.select(range(6, 17)),
    "shuffle": lambda data: data.shuffle(seed=1),
    "shuffle and select": lambda data: data.shuffle(seed=1).select(range(3, 20)),
    "train_test_split": lambda data: data.train_test_split(test_size=0.4, seed=0)["test"],
    "shard": lambda data: data.shard(3, 1, contiguous=False),
    "several data sets": lambda data: datasets.concatenate_datasets([data.shuffle(seed=2), data.select([5, 1])]),
    "flatten_indices": lambda data: data.shuffle(seed=1).flatten_indices(),
    "filter": lambda data: data.filter(lambda row: row["label"] != 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_batches_are_those_of_transformers_whatever_was_done_to_the_rows(wordpiece, change: Any) -> None:
    data, collate = change(rows()), C(wordpiece)
    ours = batches(with_arrow_batches(data), collate)
    assert_same(ours, batches(data, DataCollatorWithPadding(wordpiece)), ["input_ids", "token_type_ids", "labels"])
    assert_same(ours, batches(data, collate))


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.list_(pa.uint16()), pa.large_list(pa.int32())], ids=str)
def test_ids_of_every_type_become_int64(wordpiece, kind: pa.DataType, no_rows: None) -> None:
    table = pa.table({"input_ids": pa.array([[5, 6, 7], [8]], kind), "label": pa.array([1, 2], pa.uint64())})
    batch = C(wordpiece)(with_arrow_batches(datasets.Dataset(table)).__getitems__([1, 0]))
    assert batch["input_ids"].tolist() == [[8, 0, 0], [5, 6, 7]]
    assert batch["labels"].tolist() == [2, 1]
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64


def test_rows_of_a_file_are_read_from_the_file(wordpiece, tmp_path: Path, no_rows: None) -> None:
    rows().save_to_disk(str(tmp_path), num_shards=2)
    data = datasets.load_from_disk(str(tmp_path))
    assert data.cache_files
    assert_same(batches(with_arrow_batches(data), C(wordpiece)), batches(with_arrow_batches(rows()), C(wordpiece)))


FURTHER: dict[str, tuple[Any, list[Any]]] = {
    "a float32": (datasets.Value("float32"), [0.1 * number for number in range(COUNT)]),
    "a float64": (datasets.Value("float64"), [0.1 * number for number in range(COUNT)]),
    "a bool": (datasets.Value("bool"), [number % 2 == 0 for number in range(COUNT)]),
    "a class": (datasets.ClassLabel(names=["no", "yes"]), [number % 2 for number in range(COUNT)]),
    "a large number": (datasets.Value("uint64"), [2**62 + number for number in range(COUNT)]),
    "a box": (datasets.List(datasets.Value("int32")), [[number, 2, 3, 4] for number in range(COUNT)]),
    "a box of fixed size": (datasets.List(datasets.Value("int32"), length=2), [[n, 2] for n in range(COUNT)]),
    "floats": (datasets.List(datasets.Value("float32")), [[number / 3, 0.5] for number in range(COUNT)]),
    "a matrix": (datasets.Array2D((2, 2), "float32"), [np.full((2, 2), number) for number in range(COUNT)]),
    "a text": (datasets.Value("string"), [f"text {number}" for number in range(COUNT)]),
    "nothing": (datasets.Value("int64"), [None] * COUNT),
    "empty lists": (datasets.List(datasets.Value("int64")), [[]] * COUNT),
    "words": (datasets.List(datasets.Value("string")), [["a", "b"]] * COUNT),
    "a record": ({"id": datasets.Value("int64")}, [{"id": number} for number in range(COUNT)]),
}


@pytest.mark.parametrize(("feature", "values"), FURTHER.values(), ids=FURTHER)
@pytest.mark.filterwarnings("ignore:columns .* are not in the batch")
def test_further_columns_are_those_of_the_rows(wordpiece, feature: Any, values: list[Any]) -> None:
    more = datasets.Dataset.from_dict({"more": values}, features=datasets.Features({"more": feature}))
    data, collate = datasets.concatenate_datasets([rows(), more], axis=1), C(wordpiece)
    assert_same(batches(with_arrow_batches(data), collate), batches(data, collate))


LABELS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "of each token": ([[-100] * len(ids) for ids in IDS], {"on_no_labels": "keep"}),
    "floats": ([number / 2 for number in range(COUNT)], {}),
    "sequences": ([[7] * (1 + number % 5) for number in range(COUNT)], {"text_target_column": "target"}),
    "in several rows": (
        [[-100] * len(ids) for ids in IDS],
        {"max_length": 6, "return_overflowing_tokens": True, "on_no_labels": "keep"},
    ),
    "packed": (IDS, {"max_length": 16, "packing": True}),
}


@for_each(("labels", "settings"), LABELS.values())
@for_each("side", ["left", "right"])
def test_labels_of_every_kind_are_those_of_the_rows(
    wordpiece, labels: list[Any], settings: dict[str, Any], side: Any
) -> None:
    data = rows().remove_columns("label").add_column("labels", labels)
    collate = C(wordpiece, padding_side=side, **settings)
    assert_same(batches(with_arrow_batches(data), collate), batches(data, collate))


def test_padding_documents_and_positions_in_rows_are_those_of_the_rows(byte_bpe) -> None:
    collate = C(byte_bpe, pad_token="eos")
    documents = rows().select_columns(["input_ids"])
    packed = pack_dataset(documents, 16, document_ids=True)
    assert_same(batches(with_arrow_batches(packed), collate), batches(packed, collate))
    padded = documents.map(lambda row: {"input_ids": row["input_ids"] + [0], "attention_mask": [1] * len(row) + [0]})
    mask = [[1] * (len(ids) - 1) + [0] for ids in padded["input_ids"]]
    padded = padded.remove_columns("attention_mask").add_column("attention_mask", mask)
    assert_same(batches(with_arrow_batches(padded), collate), batches(padded, collate))


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=30), chunk=st.integers(1, 7), data=st.data())
def test_any_rows_in_any_order_are_read(lengths: list[int], chunk: int, data: st.DataObject) -> None:
    ids = [list(range(number, number + length)) for number, length in enumerate(lengths)]
    whole = pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32())), "n": list(range(len(ids)))})
    table = pa.concat_tables([whole.slice(start, chunk) for start in range(0, len(ids), chunk)])
    dataset = datasets.Dataset(table)
    keys = st.lists(st.integers(-len(ids), len(ids) - 1), min_size=1, max_size=8)
    if data.draw(st.booleans()):
        dataset = dataset.select([key % len(ids) for key in data.draw(keys)])
    some = data.draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=1, max_size=8))
    read = with_arrow_batches(dataset).__getitems__(some)
    assert len(read) == len(some)
    columns = {name: [np.asarray(value).tolist() for value in values] for name, values in read.columns.items()}
    assert columns == dict(dataset[[key % len(dataset) for key in some]])


def test_texts_are_tokenized_as_from_the_rows(wordpiece) -> None:
    data = datasets.Dataset.from_dict({"text": ["I ride bike", "she said", "a"] * 3, "label": [0, 1, 0] * 3})
    assert_same(batches(with_arrow_batches(data), C(wordpiece)), batches(data, C(wordpiece)))


def test_missing_values_raise_as_from_the_rows(wordpiece) -> None:
    data = datasets.Dataset.from_dict({"input_ids": [[5], [6]], "n": [1, None]})
    messages = []
    for each in (data, with_arrow_batches(data)):
        with pytest.raises(ValueError, match="row 1 of column 'n' is None") as caught:
            C(wordpiece)(each.__getitems__([0, 1]))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_row_that_does_not_exist_raises(wordpiece) -> None:
    for data in (rows(), rows().shuffle(seed=0)):
        for key in (COUNT, -COUNT - 1):
            with pytest.raises(IndexError):
                with_arrow_batches(data).__getitems__([0, key])


def test_writing_to_a_batch_does_not_change_the_data(wordpiece) -> None:
    data = with_arrow_batches(rows(n=list(range(COUNT))))
    before = data[:]
    for tensor in C(wordpiece, look_ahead=False)(data.__getitems__([3, 0])).values():
        tensor.zero_()
    assert data[:] == before


def test_the_data_set_is_the_given_one_apart_from_its_batches() -> None:
    given_one = rows().shuffle(seed=0)
    state = dict(vars(given_one))
    data = with_arrow_batches(given_one)
    assert isinstance(data, datasets.Dataset)
    assert len(data) == COUNT
    assert data[:] == given_one[:]
    assert data[2] == given_one[2]
    assert list(data) == list(given_one)
    for name in ("column_names", "features", "info", "split", "format", "_fingerprint"):
        assert getattr(data, name) == getattr(given_one, name), name
    assert data.data is given_one.data
    assert vars(given_one) == state


COPIES: dict[str, Any] = {
    "pickle": lambda data: pickle.loads(pickle.dumps(data)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "twice": with_arrow_batches,
    "remove_columns": lambda data: data.remove_columns("token_type_ids"),
    "select_columns": lambda data: data.select_columns(["label", "input_ids"]),
    "formatted columns": lambda data: data.with_format(None, columns=["input_ids", "label"]),
    "all columns": lambda data: data.with_format(None, columns=["input_ids"], output_all_columns=True),
    "format and back": lambda data: data.with_format("numpy").with_format(None),
}


@for_each("change", COPIES.values())
@for_each("used", [False, True])
def test_copies_keep_the_faster_batches(wordpiece, change: Any, used: bool, no_rows: None) -> None:
    data = with_arrow_batches(rows())
    if used:
        data.__getitems__([0])
    changed = change(data)
    batch = C(wordpiece)(changed.__getitems__([4, 1]))
    assert batch["input_ids"].tolist() == C(wordpiece)([IDS[4], IDS[1]])["input_ids"].tolist()
    assert batch["labels"].tolist() == [ROWS["label"][4], ROWS["label"][1]]
    assert set(changed.__getitems__([0]).columns) >= {"input_ids", "label"}
    if "columns" in changed.format and set(changed.format["columns"]) < set(ROWS):
        everything = changed.format["output_all_columns"]
        assert set(changed.__getitems__([0]).columns) == set(ROWS if everything else changed.format["columns"])


def test_a_pickle_of_a_data_set_in_use_contains_the_data_once() -> None:
    data = with_arrow_batches(rows())
    size = len(pickle.dumps(data))
    data.__getitems__([0])
    assert len(pickle.dumps(data)) < 1.1 * size


@pytest.mark.parametrize("change", [lambda data: data.shuffle(seed=3), lambda data: data.select([2, 1, 5, 4])])
def test_rows_that_are_selected_afterwards_are_the_right_ones(wordpiece, change: Any) -> None:
    collate = C(wordpiece)
    assert_same(batches(change(with_arrow_batches(rows())), collate), batches(change(rows()), collate))


def test_a_format_or_transform_that_is_set_afterwards_is_applied(wordpiece) -> None:
    data = with_arrow_batches(rows()).with_transform(lambda some: {"input_ids": [[7]] * len(some["input_ids"])})
    assert C(wordpiece)(data.__getitems__([0, 1]))["input_ids"].tolist() == [[7], [7]]
    assert isinstance(with_arrow_batches(rows()).with_format("torch").__getitems__([0])[0]["input_ids"], torch.Tensor)


@pytest.mark.workers
def test_workers_give_the_batches_of_the_main_process(wordpiece) -> None:
    data, collate = with_arrow_batches(rows().shuffle(seed=0)), C(wordpiece)
    assert_same(batches(data, collate, num_workers=2), batches(rows().shuffle(seed=0), collate))


def test_a_subset_reads_batches_from_arrow(wordpiece, no_rows: None) -> None:
    batch = next(iter(DataLoader(Subset(with_arrow_batches(rows()), [7, 3]), batch_size=2, collate_fn=C(wordpiece))))
    assert batch["input_ids"].tolist() == C(wordpiece)([IDS[7], IDS[3]])["input_ids"].tolist()


def test_other_collators_get_row_dicts(wordpiece) -> None:
    padded = rows().map(lambda row: {name: (row[name] * 12)[:12] for name in ("input_ids", "attention_mask")})
    padded = padded.remove_columns("token_type_ids")
    assert_same(batches(with_arrow_batches(padded), default_data_collator), batches(padded, default_data_collator))


def test_a_collator_that_needs_a_list_is_refused_by_name(wordpiece) -> None:
    with pytest.raises(AttributeError, match="DataCollatorWithPositionalEncoding") as caught:
        batches(with_arrow_batches(rows()), DataCollatorWithPadding(wordpiece))
    assert "without with_arrow_batches" in str(caught.value)


REFUSED: list[tuple[Any, type[Exception], list[str]]] = [
    (lambda: [{"input_ids": [5]}], TypeError, ["takes a datasets.Dataset", "got: list"]),
    (lambda: pd.DataFrame({"input_ids": [[5]]}), TypeError, ["got: DataFrame", "datasets.Dataset.from_pandas(frame)"]),
    (lambda: datasets.DatasetDict({"train": rows()}), TypeError, ["one split at a time", "dataset['train']"]),
    (lambda: rows().to_iterable_dataset(), TypeError, ["got: IterableDataset", "streamed data set without it"]),
    (lambda: rows().with_format("torch"), ValueError, ["format 'torch'", "with_format(None)"]),
    (lambda: rows().with_transform(lambda some: some), ValueError, ["format 'custom'", "the data set itself"]),
]


@pytest.mark.parametrize(("make", "kind", "words"), REFUSED)
def test_data_without_faster_batches_is_refused_with_a_fix(make: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        with_arrow_batches(make())
    for word in words:
        assert word in str(caught.value)

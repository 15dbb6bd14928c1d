"""Mixed data sets compared with the rows of their sources, and with `datasets.interleave_datasets`.

Runs that are killed and resumed on such a data set are in test_sampling_resume and test_sampling_elastic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from looping import for_each
from torch.utils.data import DataLoader

from hf_posenc import mix_datasets, pack_dataset, stream_batches
from hf_posenc.corpus import encode
from hf_posenc.packing import mixture
from hf_posenc.sampling import lengths_of

SHARES = [0.5, 0.3, 0.2]
DRAW = np.random.default_rng(0)


def source(number: int, lengths: Any) -> datasets.Dataset:
    """Rows of one token each, repeated: 1,000 times the number of the source, plus that of the row."""
    ids = [[1000 * number + row] * int(length) for row, length in enumerate(lengths)]
    return datasets.Dataset.from_dict({"input_ids": ids, "source": [number] * len(ids)})


SOURCES = [
    source(k, DRAW.integers(1, longest, count)) for k, (longest, count) in enumerate([(9, 700), (40, 60), (90, 9)])
]


def shares_of(rows: Any) -> Any:
    """The share of each source in the tokens of some rows."""
    tokens = np.bincount([row["source"] for row in rows], [len(row["input_ids"]) for row in rows], len(SHARES))
    return tokens / tokens.sum()


def test_a_mixture_has_shares_of_tokens_where_interleaved_data_sets_have_shares_of_rows() -> None:
    mixed = mix_datasets(SOURCES, SHARES, 5000)
    all_rows = [row for each in SOURCES for row in each]
    expected = mixture([lengths_of(each) for each in SOURCES], SHARES, 5000)
    assert list(mixed) == [all_rows[row] for row in expected.order]
    np.testing.assert_allclose(shares_of(mixed), SHARES, atol=0.01)
    settings: dict[str, Any] = {"probabilities": SHARES, "seed": 0, "stopping_strategy": "all_exhausted"}
    assert shares_of(datasets.interleave_datasets(SOURCES, **settings))[0] < 0.2
    level = [source(k, [8] * count) for k, count in enumerate([400, 300, 200])]
    theirs = datasets.interleave_datasets(level, **settings)
    np.testing.assert_allclose(shares_of(mix_datasets(level, SHARES, 8 * len(theirs))), shares_of(theirs), atol=0.05)


def test_sources_may_be_named_selected_and_shuffled() -> None:
    chosen = {"one": SOURCES[0].shuffle(seed=1), "other": SOURCES[1].select([5, 3, 1])}
    flat = [each.flatten_indices() for each in chosen.values()]
    mixed = mix_datasets(chosen, [1, 1], 300, seed=4)
    assert list(mixed) == list(mix_datasets(flat, [1, 1], 300, seed=4))
    assert {row["input_ids"][0] for row in mixed if row["source"] == 1} == {1005, 1003, 1001}


def test_every_window_of_a_stream_of_batches_has_the_shares() -> None:
    stream = mix_datasets(SOURCES, SHARES, 20_000).to_iterable_dataset()
    rows = [row for batch in stream_batches(stream, 256, window=400) for row in batch]
    for begin in range(0, len(rows) - 400, 400):
        np.testing.assert_allclose(shares_of(rows[begin : begin + 400]), SHARES, atol=0.06)


@pytest.mark.workers
def test_a_mixture_is_packed_loaded_and_encoded_as_any_data_set(tmp_path: Path, word_level: Any) -> None:
    mixed = mix_datasets(SOURCES, SHARES, 2000)
    tokens = [token for row in mixed for token in row["input_ids"]]
    packed = pack_dataset(mixed, 96, labels=None, pad_token_id=9999)
    assert sorted(token for row in packed for token in row["input_ids"] if token != 9999) == sorted(tokens)
    loaded = DataLoader(mixed, batch_size=16, collate_fn=list, num_workers=2)
    assert [row for batch in loaded for row in batch] == list(mixed)
    texts = [each.map(lambda row: {"text": "the " * len(row["input_ids"])}) for each in SOURCES]
    encode(mix_datasets(texts, SHARES, 2000), word_level, tmp_path, workers=2, shards=3, progress=False)
    encoded = datasets.load_dataset("parquet", data_files=str(tmp_path / "data" / "*.parquet"), split="train")
    assert lengths_of(encoded).tolist() == lengths_of(mixed).tolist()


FIX = "Dataset.from_list(list(rows))"
REFUSED: list[Any] = [
    ([SOURCES[0], SOURCES[1].to_iterable_dataset()], TypeError, ["got: IterableDataset", FIX]),
    ([SOURCES[0], [{"input_ids": [1]}]], TypeError, ["got: list", FIX]),
    ([SOURCES[0], datasets.DatasetDict(train=SOURCES[1])], TypeError, ["dataset['train']"]),
    ([SOURCES[0], SOURCES[1].rename_column("input_ids", "ids")], ValueError, ["must hold lists", "'ids': List"]),
    (SOURCES, ValueError, ["one for each of the 3 sources"]),
]


@for_each(("sources", "kind", "words"), REFUSED)
def test_other_sources_are_refused(sources: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        mix_datasets(sources, [1, 1], 100)
    for word in words:
        assert word in str(caught.value)

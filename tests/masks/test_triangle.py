"""Look-ahead matrices of all sizes compared with `np.tri`: as copies and as maps, alone and beside others.

A length that is frequent is mapped. A test makes it frequent by many calls, and reads in /proc that it is mapped.
"""

from __future__ import annotations

import copy
import io
import itertools
import os
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.collator import Batch
from hf_posenc.masks import look_ahead_mask, look_ahead_of_batch

MAPPED = 2900  # tokens: the matrix has 8.4 MB
NAME = "memfd:look_ahead_mask"
needs_maps = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system maps no files in memory")


def _frequent(length: int) -> torch.Tensor:
    """Make enough masks to map the length, whatever was mapped before, and return another one."""
    for _ in range(15):
        look_ahead_mask(length)
    return look_ahead_mask(length)


def _is_right(mask: Any) -> bool:
    return bool((np.asarray(mask) == np.tri(mask.shape[-1], dtype=bool)).all())


def _maps() -> int:
    return Path("/proc/self/maps").read_text().count(NAME)


def _files() -> list[int]:
    """Return the numbers of the open files that hold a matrix."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [int(link.name) for link in links if NAME in str(link.readlink())]


@pytest.mark.parametrize("length", [0, 1, 2, 127, 128, 2896, 2897, MAPPED, 4096])
def test_a_matrix_is_lower_triangular_on_each_call(length: int) -> None:
    for _ in range(12):
        assert _is_right(look_ahead_mask(length))
    batch = look_ahead_of_batch(3, length)
    assert batch.shape == (3, 1, length, length)
    assert batch.strides == (0, length * length, length, 1)
    assert _is_right(batch[:1])


@needs_maps
def test_a_length_is_mapped_once_it_is_frequent_and_other_lengths_end_that() -> None:
    _frequent(MAPPED + 1)
    first = [look_ahead_mask(MAPPED) for _ in range(3)]
    assert _maps() == 0
    mask, file = _frequent(MAPPED), _files()
    assert (_maps(), len(file)) == (1, 1)
    for length in range(MAPPED + 1, MAPPED + 21):
        assert _is_right(look_ahead_mask(length))
    assert (_maps(), _files()) == (1, [])  # the map remains, its file is closed
    assert all(map(_is_right, [mask, *first]))


@needs_maps
def test_maps_hold_no_open_files_and_lengths_in_turn_make_none() -> None:
    _frequent(MAPPED)
    masks = [look_ahead_mask(MAPPED) for _ in range(20)]
    assert (_maps(), len(_files())) == (20, 1)
    del masks
    assert _maps() == 0
    for length in itertools.islice(itertools.cycle(range(MAPPED + 1, MAPPED + 5)), 60):
        look_ahead_mask(length)
    assert _files() == []


@pytest.mark.parametrize("length", [64, MAPPED])
@pytest.mark.parametrize(
    "write",
    [
        lambda mask: mask.fill_(False),
        lambda mask: mask[-1].zero_(),
        lambda mask: mask.data.logical_not_(),
        lambda mask: mask.numpy().fill(True),
        lambda mask: mask.view(-1)[::7].logical_not_(),
        lambda mask: mask.untyped_storage().fill_(0),
    ],
)
def test_a_write_reaches_no_other_mask(length: int, write: Any) -> None:
    before, written = _frequent(length), look_ahead_mask(length)
    write(written)
    assert not _is_right(written)
    assert _is_right(before)
    assert _is_right(look_ahead_mask(length))
    assert _is_right(look_ahead_of_batch(2, length))


def _saved(value: Any) -> int:
    torch.save(value, file := io.BytesIO())
    return len(file.getvalue())


@pytest.mark.parametrize("length", [64, MAPPED])
def test_saved_and_copied_masks_hold_one_matrix(length: int) -> None:
    _frequent(length)
    mask = torch.from_numpy(look_ahead_of_batch(4, length))
    batch = Batch({"look_ahead_mask": mask})
    for value in (mask, batch, mask[:1]):
        assert len(pickle.dumps(value)) < length**2 + 2000
    assert _saved(mask) < length**2 + 2000
    for back in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask)), batch.to("cpu")["look_ahead_mask"]):
        assert back.untyped_storage().nbytes() == length**2
        assert _is_right(back)
    assert not mask.is_shared()  # a private map cannot be shared: torch must copy it for another process


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_forked_workers_send_right_masks_and_change_none_of_their_parent(unigram: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(unigram, max_length=30_000)
    mask, rows = _frequent(MAPPED), [{"input_ids": [5] * MAPPED}] * 12

    def written(rows: list[Any]) -> Batch:
        collate(rows)["look_ahead_mask"][0].fill_(False)
        return collate(rows)

    batches = list(DataLoader(rows, 1, num_workers=2, collate_fn=written, multiprocessing_context="fork"))  # type: ignore[arg-type]
    assert len(batches) == 12
    assert all(_is_right(batch["look_ahead_mask"]) for batch in batches)
    assert _is_right(mask)


def test_threads_get_right_masks_of_several_lengths() -> None:
    with ThreadPoolExecutor(8) as pool:
        masks = pool.map(look_ahead_mask, [*[MAPPED] * 30, *[MAPPED + 1] * 30, *[MAPPED, MAPPED + 1] * 10])
        assert all(map(_is_right, masks))


@needs_maps
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(1, "not permitted")])
def test_masks_are_copies_where_no_file_can_be_made(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def refuse(name: str) -> int:
        raise error

    _frequent(MAPPED + 1)
    monkeypatch.setattr(os, "memfd_create", refuse)
    assert _is_right(_frequent(MAPPED))
    monkeypatch.delattr(os, "memfd_create")
    assert _is_right(_frequent(MAPPED))
    assert (_maps(), _files()) == (0, [])


@needs_maps
def test_another_file_under_the_number_of_a_closed_one_is_neither_mapped_nor_closed() -> None:
    _frequent(MAPPED)
    (number,) = _files()
    with tempfile.TemporaryFile() as other:  # as a daemon does: it closes all files, and opens others
        other.write(bytes(MAPPED**2))
        other.flush()
        os.dup2(other.fileno(), number)
    assert _is_right(look_ahead_mask(MAPPED))
    _frequent(MAPPED + 1)
    assert os.fstat(number).st_size == MAPPED**2
    os.close(number)


def test_a_mask_of_half_a_gigabyte_is_named_once(unigram: Any, recwarn: pytest.WarningsRecorder) -> None:
    collate = DataCollatorWithPositionalEncoding(unigram, max_length=30_000)
    collate([{"input_ids": [5] * 23_170}])
    assert not recwarn.list
    for _ in range(2):
        collate([{"input_ids": [5] * 23_171}])
    (warning,) = recwarn.list
    for part in ("look_ahead_mask takes 536.9 MB", "rows of 23,171 tokens", "look_ahead=False", "max_length="):
        assert part in str(warning.message)

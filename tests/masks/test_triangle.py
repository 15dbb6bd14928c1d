"""Look-ahead matrices of all sizes compared with `np.tri`: as copies and as maps, alone and beside others.

The third mask of a size is mapped, which tests read in /proc.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.collator import Batch
from hf_posenc.masks import look_ahead_of_batch, triangle

MAPPED = 2900  # tokens: the matrix has 8.4 MB
NAME = "memfd:look_ahead_mask"
needs_maps = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system maps no files in memory")


def mask_of(length: int) -> torch.Tensor:
    """Return the matrix of a batch."""
    return torch.from_numpy(look_ahead_of_batch(1, length))[0, 0]


def _mapped(length: int) -> torch.Tensor:
    """Make enough masks for a file of this size, and return another one."""
    for _ in range(3):
        mask_of(length)
    return mask_of(length)


def _is_right(mask: Any) -> bool:
    return bool((np.asarray(mask) == np.tri(mask.shape[-1], dtype=bool)).all())


def _maps() -> int:
    return Path("/proc/self/maps").read_text().count(NAME)


def _files() -> list[int]:
    """Return the numbers of the open files that hold a matrix."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [int(link.name) for link in links if NAME in str(link.readlink())]


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without files, as a new process does."""
    monkeypatch.setattr(triangle, "_kept", type(triangle._kept)())


@pytest.mark.parametrize("length", [0, 1, 2, 127, 128, 2047, 2048, 2049, MAPPED, 4096])
def test_a_matrix_is_lower_triangular_on_each_call(length: int) -> None:
    for _ in range(5):
        batch = look_ahead_of_batch(3, length)
        assert batch.shape == (3, 1, length, length)
        assert batch.strides[:2] == (0, 0)
        assert batch.strides[2] < 2 * max(length, 1)
        assert _is_right(batch[0, 0])


@needs_maps
def test_a_longer_matrix_takes_the_place_of_the_file_after_two_copies() -> None:
    masks = [mask_of(length) for length in (MAPPED, 3000)]
    assert _maps() == 0
    masks += [mask_of(length) for length in (3000, MAPPED, 2048)]
    assert (_maps(), len(_files())) == (3, 1)
    masks += [mask_of(length) for length in (4000, 5000)]  # copies
    assert (_maps(), len(_files())) == (3, 1)
    masks += [mask_of(length) for length in (5000, MAPPED, 2048)]  # the last one is a copy, as of a small part
    assert (_maps(), len(_files())) == (5, 1)
    assert all(map(_is_right, masks))


@needs_maps
@pytest.mark.parametrize("length", [2048, 2049, MAPPED, 4095, 4096, 4097, 6145])
def test_the_file_has_at_most_1_3_times_the_bytes_of_the_longest_matrix(length: int) -> None:
    _mapped(length)
    (number,) = _files()
    assert length**2 <= os.fstat(number).st_size <= 1.3 * length**2


@pytest.mark.parametrize("length", [64, MAPPED])
@pytest.mark.parametrize(
    "write",
    [
        lambda mask: mask.fill_(False),
        lambda mask: mask[-1].zero_(),
        lambda mask: mask.data.logical_not_(),
        lambda mask: mask.numpy().fill(True),
        lambda mask: mask[::7].logical_not_(),
        lambda mask: mask.untyped_storage().fill_(0),
    ],
)
def test_a_write_reaches_no_other_mask(length: int, write: Any) -> None:
    before, written = _mapped(length), mask_of(length)
    write(written)
    assert not _is_right(written)
    assert _is_right(before)
    assert _is_right(mask_of(length))
    assert _is_right(look_ahead_of_batch(2, length)[1, 0])


def _saved(value: Any) -> int:
    torch.save(value, file := io.BytesIO())
    return len(file.getvalue())


@pytest.mark.parametrize("length", [64, MAPPED])
def test_saved_copied_and_moved_batches_hold_one_matrix(length: int) -> None:
    _mapped(length)
    batch = Batch({"look_ahead_mask": torch.from_numpy(look_ahead_of_batch(4, length))})
    assert len(pickle.dumps(batch)) < length**2 + 2000
    assert _saved(batch) < length**2 + 2000
    for copied in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        back = copied["look_ahead_mask"]
        assert back.untyped_storage().nbytes() == length**2
        assert (back.shape, back.stride(0)) == ((4, 1, length, length), 0)
        assert _is_right(back[0, 0])
    mask = batch["look_ahead_mask"]
    assert not mask.is_shared()  # a private map cannot be shared: torch must copy it for another process
    for bare in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert bare.untyped_storage().nbytes() < 2 * length**2
        assert _is_right(bare[0, 0])


@pytest.mark.workers
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_workers_send_right_masks_and_change_none_of_their_parent(unigram: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(unigram, max_length=30_000)
    mask, rows = _mapped(MAPPED), [{"input_ids": [5] * MAPPED}] * 12
    batches = list(DataLoader(rows, 1, num_workers=2, collate_fn=partial(_overwritten, collate)))  # type: ignore[arg-type]
    assert len(batches) == 12
    assert all(_is_right(batch["look_ahead_mask"][0, 0]) for batch in batches)
    assert _is_right(mask)


def _overwritten(collate: DataCollatorWithPositionalEncoding, rows: list[Any]) -> Batch:
    collate(rows)["look_ahead_mask"][0].fill_(False)
    return collate(rows)


def test_threads_get_right_masks_of_several_lengths() -> None:
    with ThreadPoolExecutor(8) as pool:
        masks = pool.map(mask_of, [*[MAPPED] * 30, *[MAPPED + 1] * 30, *[MAPPED, MAPPED + 1] * 10])
        assert all(map(_is_right, masks))


@needs_maps
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(1, "not permitted")])
def test_masks_are_copies_where_no_file_can_be_made(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    attempts = []

    def refuse(name: str) -> int:
        attempts.append(name)
        raise error

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert all(_is_right(_mapped(length)) for length in (MAPPED, 5000))
    assert (len(attempts), _maps(), _files()) == (1, 0, [])


@needs_maps
def test_another_file_under_the_number_of_a_closed_one_is_not_mapped() -> None:
    _mapped(MAPPED)
    (number,) = _files()
    with tempfile.TemporaryFile() as other:  # as a daemon does: it closes all files, and opens others
        other.write(bytes(4096**2))
        other.flush()
        os.dup2(other.fileno(), number)
    assert _is_right(mask_of(MAPPED))
    os.close(number)

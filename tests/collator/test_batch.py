"""`Batch` compared with what a plain dict does, and its pictures with the tokens that they show."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
import torch

from hf_posenc import Batch, DataCollatorWithPositionalEncoding, look_ahead_mask


def small() -> Batch:
    return Batch(
        {
            "input_ids": torch.tensor([[5, 6], [7, 0]]),
            "attention_mask": torch.tensor([[1, 1], [1, 0]]),
            "look_ahead_mask": look_ahead_mask(2).expand(2, 1, 2, 2),
        }
    )


def test_it_travels_through_pickle_without_the_tokenizer(wordpiece) -> None:
    batch = DataCollatorWithPositionalEncoding(wordpiece)(["I ride bike", "a"])
    dumped = pickle.dumps(batch)
    assert b"okenizer" not in dumped
    again = pickle.loads(dumped)
    assert isinstance(again, Batch)
    assert all(torch.equal(again[name], batch[name]) for name in batch)
    assert "<td" in again._repr_html_()  # ids stand where tokens stood


def test_it_is_shown_whatever_its_keys_are() -> None:
    batch = Batch({"input_ids": torch.tensor([[5, 6]]), 3: torch.tensor([1.5]), None: "text"})
    assert [line.split()[0] for line in repr(batch).splitlines()] == ["Batch(", "input_ids", "3", "None", ")"]
    assert "<code>3</code>" in batch._repr_html_()


def test_keys_are_attributes_as_in_batch_encoding() -> None:
    from transformers import BatchEncoding

    batch = small()
    for name in batch:
        assert getattr(batch, name) is getattr(BatchEncoding(dict(batch)), name) is batch[name]


def test_the_error_for_a_missing_attribute_names_the_keys() -> None:
    with pytest.raises(AttributeError, match=r"(?s)no 'labels'.*input_ids, attention_mask, look_ahead_mask"):
        _ = small().labels
    with pytest.raises(AttributeError, match="no keys"):
        _ = Batch().input_ids
    assert not hasattr(small(), "labels")
    assert getattr(small(), "labels", None) is None


def test_a_key_with_the_name_of_a_method_does_not_hide_the_method() -> None:
    batch = Batch({"items": torch.ones(2), "to": torch.zeros(2)})
    assert dict(batch.items())["items"] is batch["items"]
    assert batch.to("cpu")["to"].tolist() == [0, 0]


def test_attributes_are_read_only_and_the_error_names_the_key() -> None:
    batch = small()
    with pytest.raises(AttributeError, match=r'batch\["labels"\] = '):
        batch.labels = batch.input_ids
    batch["labels"] = batch.input_ids
    assert batch.labels is batch.input_ids


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_and_moved_batches_have_attributes(duplicate) -> None:
    again = duplicate(small()).to("cpu")
    assert torch.equal(again.input_ids, small().input_ids)


def test_moving_gives_a_new_batch_and_leaves_this_one(device: torch.device) -> None:
    batch = small()
    moved = batch.to(device)
    assert moved is not batch
    assert {tensor.device.type for tensor in moved.values()} == {device.type}
    assert {tensor.device.type for tensor in batch.values()} == {"cpu"}
    assert moved.keys() == batch.keys()


def test_a_repeated_matrix_is_moved_once_and_repeated_there(device: torch.device) -> None:
    mask = small().to(device)["look_ahead_mask"]
    assert mask.shape == (2, 1, 2, 2)
    assert mask.stride()[0] == 0
    assert mask.untyped_storage().nbytes() == 4


@pytest.fixture
def pinned_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the tensors that are pinned. Without an accelerator nothing can be pinned, so a copy stands in."""
    seen: list[tuple[int, ...]] = []

    def pin(self: torch.Tensor) -> torch.Tensor:
        assert 0 not in [step for size, step in zip(self.shape, self.stride(), strict=True) if size > 1]
        seen.append(tuple(self.shape))
        return self.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    return seen


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_pinning_never_sees_overlapping_memory(rows: int, pinned_shapes: list[tuple[int, ...]]) -> None:
    mask = look_ahead_mask(3).expand(rows, 1, 3, 3)
    batch = Batch({"input_ids": torch.ones(rows, 3).long(), "look_ahead_mask": mask})
    pinned = batch.pin_memory()
    assert isinstance(pinned, Batch)
    assert pinned_shapes == [(rows, 3), (1, 1, 3, 3)]
    assert torch.equal(pinned["look_ahead_mask"], mask)


def test_masks_for_each_kind_of_layer_are_pinned_and_moved_too(pinned_shapes: list[tuple[int, ...]]) -> None:
    masks = {"full_attention": torch.ones(2, 1, 3, 3), "sliding_attention": torch.ones(1, 1, 3, 3).expand(2, 1, 3, 3)}
    batch = Batch({"input_ids": torch.ones(2, 3).long(), "attention_mask": masks, "max_length_q": 3})
    for changed in (batch.pin_memory(), batch.to("cpu")):
        assert changed["max_length_q"] == 3
        assert list(changed["attention_mask"]) == list(masks)
        assert all(torch.equal(changed["attention_mask"][kind], mask) for kind, mask in masks.items())
    assert pinned_shapes == [(2, 3), (2, 1, 3, 3), (1, 1, 3, 3)]


def test_the_error_for_pinning_an_accelerators_tensor_names_the_setting() -> None:
    """A table on an accelerator gives batches that lie there; `meta` stands in for one."""
    batch = Batch({"input_ids": torch.ones(1, 2, device="meta").long()})
    with pytest.raises(RuntimeError, match=r"dataloader_pin_memory=False"):
        batch.pin_memory()
    batch = Batch({"attention_mask": {"full_attention": torch.ones(1, 1, 2, 2, device="meta")}})
    with pytest.raises(RuntimeError, match=r"'attention_mask\['full_attention'\]' on meta"):
        batch.pin_memory()


def test_the_error_for_moving_arrays_names_return_tensors() -> None:
    batch = Batch({"input_ids": np.ones((1, 2), dtype=np.int64)})
    with pytest.raises(TypeError, match=r"(?s)'input_ids' is not a tensor.*return_tensors=\"pt\""):
        batch.to("cpu")


def test_the_notebook_picture_shows_tokens_with_padding_grayed(word_level) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level)
    page = collate(["I ride bike", "a"])._repr_html_()
    cells = re.findall(r'<td style="([^"]*)">([^<]*)</td>', page)
    assert [token for _, token in cells] == ["I", "ride", "bike", "a", "[PAD]", "[PAD]"]
    assert [bool(style) for style, _ in cells] == [False] * 4 + [True] * 2
    for fact in ("input_ids", "(2, 3)", "int64", "cpu"):
        assert fact in page


def test_a_token_that_looks_like_html_is_shown_not_run(wordpiece) -> None:
    wordpiece.add_tokens(["<script>alert(1)</script>"])
    page = DataCollatorWithPositionalEncoding(wordpiece)(["<script>alert(1)</script>"])._repr_html_()
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_padding_with_the_end_token_is_distinguished_from_the_real_one(byte_bpe) -> None:
    collate = DataCollatorWithPositionalEncoding(byte_bpe, pad_token="eos")
    page = collate(["a<|endoftext|>", "a b c d e"])._repr_html_()
    first_row = re.findall(r'<td style="([^"]*)">&lt;\|endoftext\|&gt;</td>', page)
    assert first_row[0] == ""
    assert all(first_row[1:])
    assert len(first_row) > 1


def test_a_large_batch_stays_a_small_picture(word_level) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, look_ahead=False)
    page = collate(["a " * 300] * 64)._repr_html_()
    assert "Rows 0 to 7 of 64, tokens 0 to 31 of 300" in page
    assert len(page) < 80_000


def test_padding_of_a_packed_batch_is_gray(word_level) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, packing=True, max_length=4)
    page = collate(["I ride bike"])._repr_html_()
    styles = [style for style, _ in re.findall(r'<td style="([^"]*)">([^<]*)</td>', page)]
    assert [bool(style) for style in styles] == [False, False, False] + [True] * (len(styles) - 3)

"""Masks of lengths, ids, batches and positions, and refusals.

`test_masks_described.py` compares every form with loops over pairs, and through torch's attention.
"""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from looping import for_each
from mask_reference import check_message

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec, pack_dataset
from hf_posenc.masks import AttentionMask, additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids

Rows = list[list[int]]  # per row the lengths of its documents


@pytest.fixture(params=["right", "left"])
def side(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[False, True], ids=["both ways", "look-ahead"])
def look_ahead(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_look_ahead_is_j_at_most_i_diagonal_included() -> None:
    for length in range(6):
        expected = [[j <= i for j in range(length)] for i in range(length)]
        assert look_ahead_mask(length).tolist() == expected


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 4), st.sampled_from(["left", "right"]))
def test_padding_mask_is_true_at_the_tokens_of_each_row(lengths: list[int], spare: int, side: Any) -> None:
    width = max(lengths, default=0) + spare
    found = padding_mask(lengths, width, padding_side=side)
    assert found.dtype == torch.bool
    assert found.shape == (len(lengths), width)
    for row, length in zip(found.tolist(), lengths, strict=True):
        tokens, padding = [True] * length, [False] * (width - length)
        assert row == (padding + tokens if side == "left" else tokens + padding)


@pytest.mark.parametrize("kind", [list, np.array, np.int32, torch.tensor])
def test_padding_is_where_the_padding_id_is(kind: Any) -> None:
    ids = kind([[7, 0, 5], [0, 0, 9]])
    assert padding_mask_from_ids(ids, 0).tolist() == [[True, False, True], [False, False, True]]
    assert padding_mask_from_ids(ids, np.int64(9)).tolist() == [[True, True, True], [True, True, False]]


@st.composite
def packed_rows(draw: st.DrawFn) -> Rows:
    return draw(st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=5))


@given(packed_rows(), st.integers(0, 2), st.sampled_from(["left", "right"]))
def test_documents_are_numbered_in_the_columns_of_their_tokens(rows: Rows, spare: int, side: Any) -> None:
    width = max(map(sum, rows)) + spare
    mask = AttentionMask.from_documents(rows, width, padding_side=side)
    for found, row in zip(mask.documents.tolist(), rows, strict=True):
        tokens = [number for number, length in enumerate(row) for _ in range(length)]
        padding = [-1] * (width - len(tokens))
        assert found == (padding + tokens if side == "left" else tokens + padding)


def test_minus_a_billion_gives_exactly_zero_at_the_padding_after_softmax() -> None:
    ids = torch.tensor([[5, 7, 9, 0, 0], [3, 2, 4, 1, 0], [6, 1, 8, 4, 2]])
    keep = padding_mask_from_ids(ids, 0)
    weights = (ids + additive_mask(keep, value=-1e9)).softmax(-1)
    assert (weights[~keep] == 0).all()
    assert weights[~keep].numel() == 3
    torch.testing.assert_close(weights[0, :3], torch.tensor([5.0, 7.0, 9.0]).softmax(0), rtol=1e-6, atol=0)
    scores = torch.randn(3, 2, 5, 5) * 10
    weights = (scores + AttentionMask.from_batch({"attention_mask": keep}).additive(value=-1e9)).softmax(-1)
    assert (weights.masked_select(~keep[:, None, None, :]) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_additive_masks_are_finite_in_every_dtype(dtype: torch.dtype) -> None:
    mask = AttentionMask.from_lengths([2, 0, 3], look_ahead=True, padding_side="left")
    added = mask.additive(dtype)
    assert added.dtype == dtype
    assert set(added.unique().tolist()) == {0.0, torch.finfo(dtype).min}
    assert (added.softmax(-1)[~mask.dense()] == 0).all()
    assert set(mask.additive(dtype, -1e4).unique().tolist()) == {0.0, float(torch.tensor(-1e4, dtype=dtype))}


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
@pytest.mark.parametrize("values", [[[1, 1, 0], [0, 1, 1]], [[True, True, False], [False, True, True]]])
def test_a_batch_may_contain_lists_arrays_or_tensors(kind: Any, values: Any) -> None:
    mask = AttentionMask.from_batch({"attention_mask": kind(values)})
    assert torch.equal(mask.dense()[:, 0, 0], torch.tensor(values).bool())


def test_documents_come_from_their_numbers_or_from_positions_that_restart(look_ahead: bool) -> None:
    # Row 0 is padded left, row 1 right, and has neighboring documents of one token.
    keep = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    numbers = torch.tensor([[9, 4, 4, 7, 7, 7], [0, 0, 1, 2, 2, 2]])
    positions = torch.tensor([[0, 0, 1, 0, 1, 2], [0, 1, 0, 0, 0, 0]])
    left = AttentionMask.from_documents([[2, 3]], 6, padding_side="left", look_ahead=look_ahead).dense()
    right = AttentionMask.from_documents([[2, 1, 1]], 6, look_ahead=look_ahead).dense()
    expected = torch.cat([left, right])
    for extra in ({"document_ids": numbers}, {"position_ids": positions}, {"position_ids": positions + 2}):
        batch = {"input_ids": keep, "attention_mask": keep, **extra}
        assert torch.equal(AttentionMask.from_batch(batch, look_ahead=look_ahead).dense(), expected)
    alone = {"document_ids": numbers.masked_fill(keep == 0, -100)}
    assert torch.equal(AttentionMask.from_batch(alone, look_ahead=look_ahead).dense(), expected)


@pytest.mark.parametrize(
    ("positions", "documents"),
    [
        ([0, 1, 2, 0, 1], [0, 0, 0, 1, 1]),
        ([2, 3, 2, 3, 4], [0, 0, 1, 1, 1]),
        ([0, 1, 0, 0, 1], [0, 0, 1, 2, 2]),  # a document of one token
        ([5, 6, 0, 1, 2], [0, 0, 1, 1, 1]),  # the end of a document that another row began
        ([0, 4, 9, 0, 3], [0, 0, 0, 1, 1]),
        ([0, 1, 1, 0, 1], [0, 0, 0, 1, 1]),  # words
        *(
            (positions, [0] * 5)
            for positions in (
                [0, 1, 1, 2, 3],  # the number of each token's word
                [0, 0, 1, 2, 3],
                [7, 7, 7, 7, 7],
                [3, 3, 5, 9, 9],  # times, of which some are equal
                [4, 3, 2, 1, 0],
                [0, 2, 1, 3, 4],
            )
        ),
    ],
)
def test_a_document_begins_where_positions_fall_back_to_the_first_one_for_every_reader(
    positions: list[int], documents: list[int], unigram: Any
) -> None:
    for extra in ({}, {"attention_mask": [[1] * 5]}):
        mask = AttentionMask.from_batch({"position_ids": [positions], **extra})
        assert mask.documents.tolist() == [documents]
        assert mask.is_packed == any(documents)
    padded = {"attention_mask": [[0, 1, 1, 1, 1, 1, 0]], "position_ids": [[0, *positions, 0]]}
    assert AttentionMask.from_batch(padded).documents.tolist() == [[-1, *documents, -1]]
    if not any(documents):
        gpt2 = ModelSpec(accepts=("input_ids", "attention_mask", "position_ids"), is_causal=True)
        whole = AttentionMask.from_lengths([5])
        assert whole.for_hf(gpt2, position_ids=torch.tensor([positions])).tolist() == [[1, 1, 1, 1, 1]]
    row = {"input_ids": [5, 6, 7, 8, 9], "position_ids": positions}
    collate = DataCollatorWithPositionalEncoding(unigram, packing=True, max_length=5)
    packed = pack_dataset(datasets.Dataset.from_list([row]), 5, document_ids=True, labels=None).with_format("torch")[:]
    expected = [{n + 5 for n, each in enumerate(documents) if each == number} for number in sorted({*documents})]
    for batch in (collate([row]), packed):
        groups: dict[tuple[int, int], set[int]] = {}
        for index, document in enumerate(batch["document_ids"].flatten().tolist()):
            if document >= 0:
                groups.setdefault((index // 5, document), set()).add(int(batch["input_ids"].flatten()[index]))
        assert sorted(groups.values(), key=min) == expected


def test_documents_of_transformers_flattening_collator_equal_its_own_sequence_numbers() -> None:
    lengths = [3, 1, 1, 4, 2]
    rows = [{"input_ids": list(range(5, 5 + length))} for length in lengths]
    for start in (0, 2):
        batch = transformers.DataCollatorWithFlattening(return_seq_idx=True)(rows)
        batch["position_ids"] += start  # where RoBERTa begins
        mask = AttentionMask.from_batch({"position_ids": batch["position_ids"]}, look_ahead=True)
        assert torch.equal(mask.documents, batch["seq_idx"].long())
        assert torch.equal(mask.dense(), AttentionMask.from_documents([lengths], look_ahead=True).dense())


def test_document_numbers_may_be_any_64_bit_integers() -> None:
    hashes = [[2**53, 2**53 + 1, 2**63 - 1]]  # float64 would not tell the first two apart
    assert torch.equal(AttentionMask.from_batch({"document_ids": hashes}).dense()[0, 0], torch.eye(3).bool())


@given(packed_rows(), st.integers(0, 2), st.sampled_from(["left", "right"]), st.booleans())
def test_sdpa_gets_a_mask_or_is_causal_never_both(rows: Rows, spare: int, side: Any, look_ahead: bool) -> None:
    width = max(map(sum, rows)) + spare
    kwargs = AttentionMask.from_documents(rows, width, look_ahead=look_ahead, padding_side=side).for_sdpa()
    packed = any(len(row) > 1 for row in rows)
    padded = any(0 < sum(row) < width for row in rows)
    if look_ahead and not packed and (not padded or side == "right"):
        assert kwargs == {"is_causal": True}
    elif not look_ahead and not packed and not padded:
        assert kwargs == {}
    else:
        assert set(kwargs) == {"attn_mask"}
        assert kwargs["attn_mask"].dtype == torch.bool
        assert kwargs["attn_mask"].shape == (len(rows), 1, width if packed or look_ahead else 1, width)


def test_a_mask_does_not_change_with_the_batch_it_was_made_from() -> None:
    keep, numbers = torch.tensor([[1, 1, 0]]), torch.tensor([[0, 1, -1]])
    for batch in (
        {"attention_mask": keep},
        {"document_ids": numbers},
        {"attention_mask": keep, "position_ids": numbers},
    ):
        mask = AttentionMask.from_batch(batch)
        before = mask.dense()
        for tensor in batch.values():
            tensor.copy_(tensor.flip(-1))
        assert torch.equal(mask.dense(), before)


def test_masks_are_made_on_the_given_device() -> None:
    assert look_ahead_mask(2, device="meta").device.type == "meta"
    assert AttentionMask.from_lengths([2], device="meta").documents.device.type == "meta"
    assert AttentionMask.from_documents([[2]], device="meta").documents.device.type == "meta"


def test_the_repr_of_a_mask_has_its_sizes_and_settings() -> None:
    packed = AttentionMask.from_documents([[1, 2], [1]], look_ahead=True, window=2, prefix=1)
    assert repr(packed) == (
        "AttentionMask(rows=2, length=3, tokens=4, look_ahead=True, window=2, prefix=3, packed=True, device=cpu)"
    )
    across = AttentionMask.cross(AttentionMask.from_lengths([2]), AttentionMask.from_lengths([1], 3))
    assert repr(across) == "AttentionMask(rows=1, length=3, tokens=1, queries=2, packed=False, device=cpu)"


_LONG = AttentionMask.from_lengths([1_000_000], look_ahead=True)
_LONG_PACKED = AttentionMask.from_documents([[600_000, 400_000]])


@for_each(
    ("form", "size"),
    [
        (_LONG.dense, "1.0 TB"),
        (_LONG.additive, "4.0 TB"),
        (_LONG.for_multihead_attention, "1.0 TB"),
        (_LONG_PACKED.for_sdpa, "1.0 TB"),
        (lambda: _LONG.for_hf(ModelSpec(name="m", accepts=("attention_mask",), takes_4d_mask=True), dims=4), "4.0 TB"),
        (lambda: AttentionMask.from_lengths([1_000_000] * 2, window=3).for_sdpa(), "1.0 TB"),
    ],
)
def test_a_matrix_that_no_memory_holds_is_refused(form: Any, size: str) -> None:
    rule = "this form of the mask has T×T values, so it is made for rows of at most 65,536 tokens"
    with pytest.raises(
        ValueError, match=rf"(?s){rule}\n  got: rows of 1,000,000 tokens, a mask of {size}\n.*block_mask"
    ):
        form()


def test_long_rows_have_masks_without_a_matrix() -> None:
    assert _LONG.for_sdpa() == {"is_causal": True}
    assert _LONG_PACKED.varlen().max_seqlen == 600_000
    one = AttentionMask.from_lengths([1])
    assert AttentionMask.cross(one, _LONG).dense().shape == (1, 1, 1, 1_000_000)
    assert AttentionMask.cross(_LONG, one).dense().shape == (1, 1, 1_000_000, 1)
    assert look_ahead_mask(65_536, device="meta").shape == (65_536, 65_536)


def test_long_packed_rows_with_prefixes_have_block_masks(side: Any) -> None:
    mask = AttentionMask.from_documents([[65_530, 7], [3]], look_ahead=True, prefix=[2, 1], padding_side=side)
    assert mask.block_mask(2048).shape == (2, 1, 65_537, 65_537)


REFUSED: list[tuple[Any, type[Exception], list[str]]] = [
    (lambda: padding_mask([3, 5, 1], 4), ValueError, ["row 1 has 5 tokens, max_length is 4", "1 of 3", "max_length=5"]),
    (lambda: padding_mask([3, -2]), ValueError, ["lengths must not be negative", "-2 at index 1"]),
    (lambda: padding_mask([1.5]), TypeError, ["lengths must be a flat list of integers", "[1.5]"]),
    (lambda: padding_mask([1], padding_side="lft"), ValueError, ["'left', 'right'", "'lft'"]),
    (lambda: padding_mask_from_ids([[1, 2], [1]], 0), ValueError, ["ids must have rows of the same length"]),
    (lambda: padding_mask_from_ids([[1, 2]], None), TypeError, ["pad_token_id", "None", "padding_mask(lengths)"]),
    (lambda: look_ahead_mask(65_537), ValueError, ["look_ahead_mask", "rows of 65,537", "4.3 GB", "is_causal"]),
    (
        lambda: additive_mask(look_ahead_mask(2), torch.float16, value=-1e9),
        ValueError,
        ["float16", "-65504", "-1000000000"],
    ),
    (lambda: additive_mask(look_ahead_mask(2), value=torch.nan), ValueError, ["must be negative", "nan"]),
    (lambda: additive_mask(look_ahead_mask(2), value=0.5), ValueError, ["must be negative", "0.5"]),
    (lambda: additive_mask(look_ahead_mask(2), torch.int64), TypeError, ["floating-point", "torch.int64"]),
    (lambda: additive_mask(torch.ones(2, 2)), TypeError, ["mask must be a bool tensor", "torch.float32"]),
    (lambda: AttentionMask.from_documents([[5, 9], [11]], 12), ValueError, ["row 0", "14", "12", "max_length=14"]),
    (lambda: AttentionMask.from_documents([5, 9]), TypeError, ["row 0", "5", "[[5, 9], [11]]"]),
    (lambda: AttentionMask.from_batch([[1, 1]]), TypeError, ["mapping with attention_mask", "list"]),
    (lambda: AttentionMask.from_batch({"input_ids": 0}), ValueError, ["position_ids", "['input_ids']"]),
    (lambda: AttentionMask.from_batch({"attention_mask": [1, 1]}), ValueError, ["2 dimensions", "(2,)"]),
    (
        lambda: AttentionMask.from_batch({"attention_mask": [[1, 1]], "document_ids": [[0, 0, 1]]}),
        ValueError,
        ["document_ids and attention_mask", "(1, 3) and (1, 2)"],
    ),
    (lambda: AttentionMask.from_batch({"position_ids": [0]}), ValueError, ["position_ids must have 2 dimensions"]),
    (lambda: AttentionMask(torch.zeros(3)), TypeError, ["documents must be integers", "float32"]),
    (
        lambda: AttentionMask.from_lengths([3, 1], look_ahead=True, padding_side="left").for_transformer_encoder(),
        ValueError,
        ["num_heads is required", "rows=2", "encoder.layers[0].self_attn.num_heads"],
    ),
]


@for_each(("call", "kind", "words"), REFUSED)
def test_wrong_arguments_are_refused_with_their_values(call: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    check_message(str(caught.value), words)

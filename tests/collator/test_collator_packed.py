"""Packed rows for a model: each document gets the outputs that it gets alone."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
import torch
import transformers
from installed import makes_masks_of_four_dimensions
from small_models import GPT2, SMALL, TEXTS, answers, tiny

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding

C = DataCollatorWithPositionalEncoding


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:packed rows hold several prompts")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *((name, way) for name in ("bert", "roberta", "gpt2", "opt", "llama") for way in ("sdpa", "eager")),
        ("mpnet", "eager"),
    ],
)
def test_a_packed_document_is_answered_as_it_is_alone(unigram, name: str, side: str, attention: str) -> None:
    model = tiny(name, attn_implementation=attention)
    if name == "mpnet" and not makes_masks_of_four_dimensions(type(model)):
        pytest.skip("this version of MPNet takes no mask of four dimensions")
    collate = C(unigram, model=model, packing=True, max_length=48, pad_to_multiple_of=48, padding_side=side)
    batch = collate(TEXTS)
    marked = C(unigram, packing=True, max_length=48, pad_to_multiple_of=48, padding_side=side)(TEXTS)
    rows, length = batch["input_ids"].shape
    assert rows < len(TEXTS)
    assert (marked["document_ids"] < 0).any()
    assert (marked["document_ids"][:, 0 if side == "right" else -1] >= 0).all()
    assert batch["attention_mask"].shape == (rows, 1, length, length)
    assert batch["attention_mask"].dtype == torch.float32
    assert set(batch["attention_mask"].unique().tolist()) == {0.0, torch.finfo(torch.float32).min}
    assert list(batch) == ["input_ids", "position_ids", "attention_mask"]
    out = answers(model, batch)
    checked = 0
    for text in TEXTS:
        ids = unigram(text)["input_ids"]
        alone = answers(model, {"input_ids": torch.tensor([ids])})[0]
        for row in range(rows):
            for document in range(int(marked["document_ids"][row].max()) + 1):
                here = marked["document_ids"][row] == document
                if batch["input_ids"][row][here].tolist() == ids:
                    torch.testing.assert_close(out[row][here], alone, rtol=0, atol=1e-5)
                    checked += 1
    assert checked == len(TEXTS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_mask_of_packed_rows_is_in_the_models_dtype(unigram, dtype: torch.dtype) -> None:
    collate = C(unigram, model=tiny("gpt2").to(dtype), packing=True, max_length=64)
    mask = collate(TEXTS)["attention_mask"]
    assert mask.dtype == dtype
    assert mask.min() == torch.finfo(dtype).min
    array = collate.replace(return_tensors="np")(TEXTS)["attention_mask"]
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array.astype(np.float32), mask.float().numpy())


def test_a_packed_batch_can_still_be_read_and_shown(unigram) -> None:
    collate = C(unigram, model=tiny("gpt2"), packing=True, max_length=24, pad_to_multiple_of=24)
    texts = ["I ride bike", "a"]
    batch, plain = collate(texts), collate.replace(model=None)(texts)
    assert collate.decode(batch) == collate.decode(plain) == ["I ride bike a"]
    padding = '<td style="color'
    assert batch._repr_html_().count(padding) == plain._repr_html_().count(padding) > 0


@torch.no_grad()
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("first", [0, 2])
def test_rows_of_pack_dataset_are_answered_as_their_documents_by_a_model_that_counts_from_2(
    unigram, first: int, packing: bool
) -> None:
    documents = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    stored = datasets.Dataset.from_dict({"input_ids": documents})
    packed = hf_posenc.pack_dataset(stored, 6, first_position=first, document_ids=True)
    model = tiny("roberta")
    collate = C(unigram, model=model, packing=packing, max_length=6)
    batch = collate(list(packed.remove_columns("labels")))
    out, ids = answers(model, batch), batch["input_ids"]
    for document in documents:
        alone = answers(model, {"input_ids": torch.tensor([document])})[0]
        row, column = (int(index) for index in (ids == document[0]).nonzero()[0])
        assert ids[row, column : column + len(document)].tolist() == document
        torch.testing.assert_close(out[row, column : column + len(document)], alone, rtol=0, atol=1e-5)


def test_rows_that_come_packed_are_refused_for_a_model_that_cannot_keep_them_apart(unigram) -> None:
    collate = C(unigram, model=tiny("bart"))
    with pytest.raises(
        ValueError, match=r"(?s)BartForConditionalGeneration cannot isolate them.*it reads two sequences"
    ):
        collate([{"input_ids": [5, 6, 7, 8], "position_ids": [0, 1, 0, 1]}])


def test_packed_documents_longer_than_a_models_window_get_a_mask_for_each_kind_of_layer(unigram) -> None:
    config = transformers.ModernBertConfig(
        vocab_size=1200, **SMALL, local_attention=4, global_attn_every_n_layers=2, pad_token_id=1
    )
    model = transformers.ModernBertModel(config).eval()
    if not makes_masks_of_four_dimensions(type(model)):
        pytest.skip("this version of ModernBERT takes no mask of four dimensions")
    collate = C(unigram, model=model, packing=True, max_length=32, add_special_tokens=False)
    rows = [{"input_ids": list(range(5, 17))}, {"input_ids": list(range(20, 30))}]
    batch = collate(rows)
    assert sorted(batch["attention_mask"]) == ["full_attention", "sliding_attention"]
    assert "attention_mask" in repr(batch.to("cpu"))
    assert "<table>" in batch._repr_html_()
    with torch.no_grad():
        packed = model(**batch.to("cpu"))[0]
        alone = model(input_ids=torch.tensor([rows[0]["input_ids"]]))[0]
    start = batch["input_ids"][0].tolist().index(5)
    torch.testing.assert_close(packed[0, start : start + 12], alone[0], rtol=0, atol=1e-5)
    arrays = collate.replace(return_tensors="np")(rows)["attention_mask"]
    assert {type(each).__name__ for each in arrays.values()} == {"ndarray"}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.filterwarnings("ignore:packed rows hold several prompts")
def test_padding_of_packed_rows_with_a_mask_is_no_token(wordpiece, side: str) -> None:
    collate = C(wordpiece, model=GPT2, packing=True, max_length=16, padding_side=side, pad_token="[SEP]")
    texts = ["I ride bike, she said", "bike", "ride " * 9]
    batch = collate(texts)
    assert batch["attention_mask"].ndim == 4
    decoded = "".join(collate.decode(batch, skip_special_tokens=False))
    alone = [collate.tokenizer.decode(collate.replace(packing=False)([text])["input_ids"][0]) for text in texts]
    assert sorted(decoded) == sorted("".join(alone))

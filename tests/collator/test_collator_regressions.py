"""What went wrong once in the hands of somebody else's tokenizer or rows, one test for each, so that it stays mended.

Held against `tokenizer(...)` itself, or against the same collator on rows that say the same in another way.
"""

from __future__ import annotations

import io
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc import MaskedLM, PositionalEmbedding, positional_encoding


@pytest.fixture
def two_modes(tmp_path: Path, sentences: list[str]) -> Any:
    """A slow tokenizer with a source and a target mode: M2M100 over a small sentencepiece model."""
    spm = pytest.importorskip("sentencepiece", reason="slow tokenizers need sentencepiece")
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in sentences if text.isascii()] * 3),
        model_writer=model,
        vocab_size=200,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (tmp_path / "spm.model").write_bytes(model.getvalue())
    pieces = spm.SentencePieceProcessor(model_proto=model.getvalue())
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    names += [piece for piece in (pieces.id_to_piece(i) for i in range(len(pieces))) if piece not in names]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(names)}))
    return transformers.M2M100Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "spm.model"), src_lang="en", tgt_lang="fr"
    )


@pytest.mark.filterwarnings("ignore:position_ids count from 0")
def test_targets_are_tokenized_in_the_target_mode_of_a_slow_tokenizer(two_modes) -> None:
    batch = C(two_modes, text_target_column="target")([{"text": "one house", "target": "two houses"}])
    assert batch["labels"][0].tolist() == two_modes(text_target="two houses")["input_ids"]
    assert batch["input_ids"][0].tolist() == two_modes("one house")["input_ids"]


@pytest.mark.filterwarnings("ignore:position_ids count from 0")
def test_a_slow_tokenizer_that_reads_files_survives_pickling_and_replacing(two_modes) -> None:
    collate = C(two_modes)
    again = pickle.loads(pickle.dumps(collate))
    assert again == collate
    assert (
        again.replace(max_length=32)(["one house"])["input_ids"].tolist()
        == collate(["one house"])["input_ids"].tolist()
    )


@pytest.mark.parametrize("model_type", ["qwen2", "phi3", "mistral"])
def test_a_models_config_beside_the_collator_does_not_change_its_tokenizer(
    bert, byte_bpe, tmp_path, model_type
) -> None:
    """`AutoTokenizer` would take the class of the model for some families, and that class splits texts otherwise."""
    transformers.AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    for number, (tokenizer, pad) in enumerate([(bert, None), (byte_bpe, "eos")]):
        collate = C(tokenizer, pad_token=pad)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text((tmp_path / "config.json").read_text())
        collate.save_pretrained(folder)
        again = C.from_pretrained(folder)
        assert again == collate
        text = ["It's 2024, DON'T café", "x = 12345;\n\n\n  y"]
        assert torch.equal(again(text)["input_ids"], collate(text)["input_ids"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("truncation_side", "left"), ("padding_side", "left"), ("split_special_tokens", True)],
)
def test_attributes_set_on_a_tokenizer_are_part_of_the_value(bert, name: str, value: Any) -> None:
    before = C(bert, max_length=4)
    setattr(bert, name, value)
    after = C(bert, max_length=4)
    assert after != before
    again = pickle.loads(pickle.dumps(after))
    assert again == after
    assert getattr(again.tokenizer, name) == value


def test_named_chat_templates_are_saved_and_read_back(byte_bpe, tmp_path: Path) -> None:
    byte_bpe.chat_template = {"default": "A", "tool": "B"}
    collate = C(byte_bpe, pad_token="eos")
    collate.save_pretrained(tmp_path)
    assert C.from_pretrained(tmp_path) == collate


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("whole_words", [False, True])
def test_a_text_without_tokens_can_be_masked(bert, seed: int | None, whole_words: bool) -> None:
    collate = C(bert, labels=MaskedLM(whole_word_mask=whole_words), seed=seed, empty="keep", add_special_tokens=False)
    batch = collate(["unsurprisingly so", ""])
    assert batch["attention_mask"][1].sum() == 0
    assert (batch["labels"][1] == -100).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_given_rows_changes_no_mask(bert, side: str) -> None:
    collate = C(bert, labels="masked_lm", seed=1, mlm_probability=0.5, padding_side=side)
    text = "a b c d e f g h i j k l m"
    bare = collate([text])
    came = bert([text], padding="max_length", max_length=24, padding_side=side)
    padded = collate([{name: came[name][0] for name in ("input_ids", "attention_mask")}])
    real = padded["attention_mask"][0].bool()
    assert padded["labels"].shape == (1, 24)
    assert padded["labels"][0][real].tolist() == bare["labels"][0].tolist()
    assert padded["input_ids"][0][real].tolist() == bare["input_ids"][0].tolist()


def test_padding_of_given_rows_is_not_counted_as_tokens(bert) -> None:
    row = {"input_ids": [0, 0, 0, 0, 101, 5, 6, 102], "attention_mask": [0, 0, 0, 0, 1, 1, 1, 1], "labels": [7] * 8}
    batch = C(bert, max_length=6)([row])
    assert batch["input_ids"].tolist() == [[101, 5, 6, 102]]
    assert batch["labels"].tolist() == [[7] * 4]
    pieces = C(bert, max_length=6, return_overflowing_tokens=True)([row])
    assert pieces["input_ids"].tolist() == [[101, 5, 6, 102]]
    assert C(bert, max_length=4, truncation=False)([row])["input_ids"].shape == (1, 4)


def test_a_mask_of_true_and_false_will_do(bert) -> None:
    row = {"input_ids": [101, 5, 102, 0], "attention_mask": np.array([True, True, True, False])}
    assert C(bert)([row])["attention_mask"].tolist() == [[1, 1, 1, 0]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_stored_embeddings_are_padded_with_their_ids(bert, side: str) -> None:
    store = C(bert, embedding=4, store_embeddings=True, padding_side=side)
    with pytest.warns(UserWarning, match="store_embeddings writes 16 bytes per token"):
        columns = store({"text": ["a b", "c d e f"]})
    rows = [{name: column[i] for name, column in columns.items()} for i in range(2)]
    read = C(bert, pad_to_multiple_of=8, padding_side=side)(rows)
    live = store.replace(pad_to_multiple_of=8)(["a b", "c d e f"])
    assert read["inputs_embeds"].shape == (2, 8, 4)
    assert torch.equal(read["inputs_embeds"], live["inputs_embeds"])
    assert torch.equal(store.replace(pad_to_multiple_of=8)(rows)["inputs_embeds"], live["inputs_embeds"])
    rows[1]["inputs_embeds"] = rows[1]["inputs_embeds"][:2]
    with pytest.raises(ValueError, match=r"row 1: 'inputs_embeds' of shape \(2, 4\) for 6 tokens"):
        C(bert)(rows)


def test_a_table_that_does_more_than_look_up_does_not_travel(bert) -> None:
    table = torch.nn.Embedding(30522, 4, max_norm=1.0).requires_grad_(False)
    with pytest.raises(ValueError, match="does more than look up rows"):
        pickle.dumps(C(bert, embedding=table, store_embeddings=True))
    plain = torch.nn.Embedding(30522, 4, _weight=table.weight, _freeze=True)
    other_norm = torch.nn.Embedding(30522, 4, max_norm=1.0, norm_type=1.0, _weight=table.weight, _freeze=True)
    assert C(bert, embedding=table) not in (C(bert, embedding=plain), C(bert, embedding=other_norm))
    one, other = (
        C(bert, embedding=PositionalEmbedding(plain, encoding=positional_encoding("exponential", 4, base=base)))
        for base in (100, 1000)
    )
    assert one != other


def test_a_column_that_a_batch_makes_itself_is_refused_beside_texts(bert) -> None:
    with pytest.raises(ValueError, match="column 'position_ids' came with the texts"):
        C(bert)([{"text": "a", "position_ids": 3}])


def test_rows_without_tokens_need_no_padding(word_level) -> None:
    batch = C(word_level, padding=False, empty="keep")(["", ""])
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        "input_ids": (2, 0),
        "attention_mask": (2, 0),
        "position_ids": (2, 0),
        "look_ahead_mask": (2, 1, 0, 0),
    }
    flat = C(word_level, packing="flat", look_ahead=True, empty="keep")([""])
    assert tuple(flat["look_ahead_mask"].shape) == (1, 1, 0, 0)


def test_a_text_without_words_has_the_special_tokens_of_a_slow_tokenizer(slow) -> None:
    batch = C(slow, is_split_into_words=True)([[], ["ab"]])
    assert batch["input_ids"].tolist() == [[1, 0, 0], slow("ab")["input_ids"]]


@pytest.mark.parametrize("value", [np.array("a"), np.array(3), torch.tensor(1.5)])
def test_an_array_without_dimensions_is_no_batch(word_level, value: Any) -> None:
    with pytest.raises(TypeError, match="is not a batch: expected texts, rows or columns\n  got: "):
        C(word_level)(value)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"mlm_probability": Decimal(1)}, TypeError, "mlm_probability must be a number"),
        ({"mlm_probability": True}, TypeError, "mlm_probability must be a number"),
        ({"mlm_probability": np.array([0.1, 0.2])}, TypeError, "mlm_probability must be a number"),
        ({"look_ahead": Decimal(1)}, ValueError, "look_ahead must be one of None, True, False"),
        ({"packing": np.array([1, 2])}, ValueError, "packing must be one of False, True, 'flat'"),
        ({"padding": np.array([1, 2])}, ValueError, "padding must be one of True, False"),
    ],
)
def test_a_setting_that_could_not_be_saved_is_refused(word_level, settings: Any, kind: type, words: str) -> None:
    with pytest.raises(kind, match=f"{words}.*\n  got: .*\n  fix: "):
        C(word_level, **settings)


def test_a_numpy_bool_is_a_bool(word_level) -> None:
    collate = C(word_level, look_ahead=np.bool_(False))
    assert pickle.loads(pickle.dumps(collate)) == collate
    assert "look_ahead_mask" not in collate(["I ride"])


def test_rows_without_tokens_are_padded_to_a_multiple_too(word_level) -> None:
    batch = C(word_level, pad_to_multiple_of=8, empty="keep")(["", ""])
    assert batch["input_ids"].shape == (2, 8)


@pytest.mark.parametrize("number", [np.array(3), torch.tensor(3), np.int8(3)])
def test_an_integer_of_any_kind_is_stored_as_an_int(word_level, number: Any) -> None:
    collate = C(word_level, pad_to_multiple_of=number)
    assert type(collate.pad_to_multiple_of) is int
    assert pickle.loads(pickle.dumps(collate)) == collate


@pytest.mark.parametrize("saved", [True, "no such device", [], 0.5])
def test_a_saved_device_that_is_none_is_refused(word_level, tmp_path: Path, saved: Any) -> None:
    C(word_level).save_pretrained(tmp_path)
    path = tmp_path / "hf_posenc.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "device": saved}))
    with pytest.raises(ValueError, match=r"'device' in .* is not what save_pretrained wrote\n  got: .*(\n.*)*  fix: "):
        C.from_pretrained(tmp_path)


def test_rows_of_true_and_false_are_no_ids_and_negative_numbers_are_values(bert) -> None:
    with pytest.raises(TypeError, match="row 0 of column 'text' is list, expected str"):
        C(bert)([[True, False]])
    rows = [{"input_ids": [101], "x": -1000}, {"input_ids": [101], "x": 0.5}]
    assert C(bert)(rows)["x"].tolist() == [-1000, 0.5]

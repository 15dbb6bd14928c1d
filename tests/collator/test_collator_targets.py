"""Targets of encoder-decoders: labels, decoder inputs and masks, against transformers' own collator and models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from small_models import MADE, NARROW, PAIRS, tiny
from torch import nn
from transformers import Trainer, TrainingArguments

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec

C = DataCollatorWithPositionalEncoding


SEQ2SEQ = {
    "bart": ("BartForConditionalGeneration", "BartConfig", NARROW | {"decoder_start_token_id": 2}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", NARROW),  # begins with the last token, its language
    "plbart": ("PLBartForConditionalGeneration", "PLBartConfig", NARROW),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", NARROW | {"decoder_start_token_id": 1}),
    "marian": ("MarianMTModel", "MarianConfig", NARROW | {"decoder_start_token_id": 3}),
    "led": ("LEDForConditionalGeneration", "LEDConfig", NARROW | {"attention_window": 8, "decoder_start_token_id": 2}),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", NARROW | {"decoder_start_token_id": 2}),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", NARROW | {"decoder_start_token_id": 0}),
    "t5": MADE["t5"],
    "prophetnet": (
        "ProphetNetForConditionalGeneration",
        "ProphetNetConfig",
        {"hidden_size": 32, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 2}
        | {"num_decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
        | {"decoder_start_token_id": 0, "max_position_embeddings": 64},
    ),
}


def _seq2seq(name: str) -> Any:
    cls, config, facts = SEQ2SEQ[name]
    known = {"vocab_size": 1200, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return getattr(transformers, cls)(getattr(transformers, config)(**(known | facts)))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_tokenized_rows_go_to_an_encoder_decoder_as_transformers_seq2seq_collator_gives_them(
    unigram, name: str, side: str
) -> None:
    """Theirs pads labels on the side of the inputs; ours always on the right, because decoders get no mask for them."""
    model = _seq2seq(name)
    rows = [unigram(pair["text"], text_target=pair["target"], return_token_type_ids=False) for pair in PAIRS]
    theirs = transformers.DataCollatorForSeq2Seq(unigram, model=model)([dict(row) for row in rows])
    unigram.padding_side = side
    theirs.update(unigram.pad([{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt"))
    collate = C(unigram, model=dataclasses.replace(ModelSpec.of(model), left_padding_shifts=False))
    for column in ("labels", "label"):
        given = [{**{key: row[key] for key in ("input_ids", "attention_mask")}, column: row["labels"]} for row in rows]
        batch = collate(given)
        assert "decoder_input_ids" in batch
        for key, want in theirs.items():
            assert torch.equal(batch[key], want), key
        columns = collate(datasets.Dataset.from_list(given)[:])
        stored = collate([{key: values[row] for key, values in columns.items()} for row in range(2)])
        arrays = collate.replace(return_tensors="np")(given)
        for key, want in batch.items():
            assert torch.equal(stored[key], want), key
            np.testing.assert_array_equal(arrays[key], want.numpy())
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        assert "decoder_input_ids" in theirs


@pytest.mark.parametrize("name", ["bart", "mbart", "t5", "m2m_100"])
def test_smoothed_labels_of_an_encoder_decoder_are_those_of_transformers(unigram, tmp_path: Path, name: str) -> None:
    model = _seq2seq(name).eval()
    rows = [unigram(pair["text"], text_target=pair["target"], return_token_type_ids=False) for pair in PAIRS]
    args = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, report_to=[], use_cpu=True, disable_tqdm=True)

    def loss(collate: Any) -> float:
        trainer = Trainer(model=model, args=args, eval_dataset=[dict(row) for row in rows], data_collator=collate)
        return trainer.evaluate()["eval_loss"]

    theirs = transformers.DataCollatorForSeq2Seq(unigram, model=model)
    if name == "m2m_100":  # transformers' collator makes no decoder_input_ids for it

        def shifted(features: list[Any]) -> Any:
            from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

            batch = plain(features)
            return {**batch, "decoder_input_ids": shift_tokens_right(batch["labels"], 1, 2)}

        plain, theirs = theirs, shifted
    assert loss(C(unigram, model=model)) == pytest.approx(loss(theirs), abs=1e-6)


class Translator(nn.Module):
    """An encoder-decoder of torch's own parts, which reads all that the collator makes for a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1200, 16)
        self.inner = nn.Transformer(16, 2, 1, 1, 24, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 1200)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        decoder_attention_mask: torch.Tensor,
        look_ahead_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Logits, and the loss where labels are given."""
        hidden = self.inner(
            self.table(input_ids),
            self.table(decoder_input_ids),
            tgt_mask=~look_ahead_mask[0, 0],
            src_key_padding_mask=attention_mask == 0,
            memory_key_padding_mask=attention_mask == 0,
            tgt_key_padding_mask=decoder_attention_mask == 0,
        )
        logits = self.head(hidden)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def _bert_to_bert() -> Any:
    """Two models in one; the encoder has rotary positions, so that left padding does not change it."""
    ids = {"vocab_size": 1200, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    ids |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    encoder = transformers.ModernBertConfig(**ids, cls_token_id=0, sep_token_id=2, local_attention=8)
    decoder = transformers.BertConfig(**ids, is_decoder=True, add_cross_attention=True)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 0, 1
    return transformers.EncoderDecoderModel(config).eval()


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces")
@pytest.mark.parametrize("make", [lambda: tiny("t5"), _bert_to_bert, Translator])
def test_a_row_padded_left_has_the_loss_and_logits_of_the_row_alone(unigram, make: Any) -> None:
    torch.manual_seed(0)
    model = make()
    for weight in model.parameters():  # far from zero, so that a wrong token changes the logits
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.1)
    collate = C(unigram, model=model, text_target_column="target", padding_side="left")
    rows = [{"text": "I ride bike", "target": "bike ride I, she said"}, {"text": "a", "target": "a"}]
    batch = collate(rows)
    logits = model(**batch)["logits"]
    for index, row in enumerate(rows):
        alone = collate([row])
        want = model(**alone)
        torch.testing.assert_close(logits[index, : alone["labels"].shape[1]], want["logits"][0], rtol=0, atol=1e-5)
        loss = nn.functional.cross_entropy(logits[index], batch["labels"][index])
        torch.testing.assert_close(loss, want["loss"], rtol=0, atol=1e-5)


def test_left_padding_that_a_decoder_reads_is_named(unigram) -> None:
    facts = MADE["t5"][2] | {"vocab_size": 1200, "eos_token_id": 2, "pad_token_id": 1, "num_labels": 2}
    model = transformers.T5ForSequenceClassification(transformers.T5Config(**facts))
    rows = [{"text": "I ride bike", "label": 1}, {"text": "a", "label": 0}]
    with pytest.warns(UserWarning, match="T5ForSequenceClassification, because its decoder reads the padding"):
        C(unigram, model=model, padding_side="left")(rows)
    C(unigram, model=model)(rows)  # padded right, no warning
    C(unigram, model=tiny("t5"), text_target_column="target", padding_side="left")(PAIRS)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_target_without_tokens_has_only_its_start_token(word_level, side: Any) -> None:
    settings = {"text_target_column": "target", "add_special_tokens": False, "on_no_labels": "keep"}
    rows = [{"text": "a", "target": ""}, {"text": "a", "target": "a b"}]
    batch = C(word_level, padding_side=side, **settings)(rows)
    assert batch["decoder_attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert batch["decoder_input_ids"][0, 0] == batch["decoder_input_ids"][1, 0]


@pytest.mark.filterwarnings("ignore:position_ids count from 0")
def test_targets_are_tokenized_in_the_target_mode_of_a_slow_tokenizer(two_modes) -> None:
    batch = C(two_modes, text_target_column="target")([{"text": "one house", "target": "two houses"}])
    assert batch["labels"][0].tolist() == two_modes(text_target="two houses")["input_ids"]
    assert batch["input_ids"][0].tolist() == two_modes("one house")["input_ids"]


@pytest.mark.parametrize("further", [{}, {"decoder_input_ids": [1, 8, 9, 2, 1]}], ids=["labels", "decoder_input_ids"])
@pytest.mark.parametrize("labels", [[8, 9, 2, 1, 1], [1, 1, 8, 9, 2]], ids=["right", "left"])
def test_padding_is_no_target_of_an_encoder_decoder(
    unigram: Any, labels: list[int], further: dict[str, list[int]]
) -> None:
    """The loss after the fix is that of the labels without padding."""
    model = tiny("t5")
    collate = DataCollatorWithPositionalEncoding(unigram, model=model)
    dataset = datasets.Dataset.from_list([{"input_ids": [5, 6, 2], "labels": labels, **further}])
    with pytest.raises(ValueError, match=r"row 0 of column 'labels' begins or ends with the padding id 1") as refused:
        collate(list(dataset))
    mended = eval(str(refused.value).partition("fix: ")[2].partition("; or")[0])
    with torch.no_grad():
        if not further:
            alone = model(**collate([{"input_ids": [5, 6, 2], "labels": [8, 9, 2]}])).loss
            assert torch.isclose(model(**collate(list(mended))).loss, alone)
    (kept,) = collate(list(mended))["labels"].tolist()
    assert [label for label in kept if label != -100] == [8, 9, 2]

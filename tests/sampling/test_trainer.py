"""The collator under `transformers.Trainer`: frozen tables, workers, dropped columns, and what a checkpoint leaves."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from installed import GROUPED, before
from small_models import of_class
from torch import nn
from trainer_runs import QUIET, arguments
from transformers import Trainer

from hf_posenc import DataCollatorWithPositionalEncoding

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a dog", "unsurprisingly, so"] * 4
LABELS = [0, 1] * 8


class Reader(nn.Module):
    """Takes vectors that have their positions already, and adds none."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(width, width)
        self.head = nn.Linear(width, 2)
        self.seen: list[torch.Tensor] = []

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor | None = None, **_: Any
    ) -> dict[str, torch.Tensor]:
        self.seen.append(inputs_embeds)
        hidden = torch.tanh(self.inner(inputs_embeds)) * attention_mask[..., None]
        logits = self.head(hidden.sum(1) / attention_mask.sum(1, keepdim=True))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Looking(nn.Module):
    """Looks ids up itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(1200, 8)
        self.head = nn.Linear(8, 2)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor | None = None, **_: Any
    ) -> dict[str, torch.Tensor]:
        keep = attention_mask[..., None]
        logits = self.head((self.table(input_ids) * keep).sum(1) / keep.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


_arguments = functools.partial(arguments, max_steps=3)


def _texts() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})


def test_a_frozen_table_in_the_collator_equals_the_live_path(wordpiece, tmp_path: Path) -> None:
    """Batch by batch the vectors that the model sees, and at last its weights."""
    torch.manual_seed(1)
    table = nn.Embedding(1200, 16).requires_grad_(False)
    collate = C(wordpiece, embedding=table, look_ahead=False)

    class Live(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            return super().compute_loss(model, dict(collate.embed(inputs)), *args, **kwargs)

    models = []
    for kind, with_table in ((Trainer, collate), (Live, collate.replace(embedding=None))):
        model = Reader()
        given = _arguments(tmp_path, remove_unused_columns=False, dataloader_num_workers=0)
        kind(model=model, args=given, train_dataset=_texts(), data_collator=with_table).train()
        models.append(model)
    one, other = models
    assert len(one.seen) == len(other.seen) == 3
    for seen, live in zip(one.seen, other.seen, strict=True):
        assert torch.equal(seen, live)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


def _long(**columns: Any) -> datasets.Dataset:
    """Six rows; nearly all texts are longer than 8 tokens."""
    texts = [" ".join(["bike"] * count) for count in (3, 18, 18, 18, 18, 18)]
    return datasets.Dataset.from_dict({"text": texts, "label": [0, 1] * 3, **columns})


def _predict(collate: Any, rows: Any, folder: Path, **settings: Any) -> Any:
    settings = {"remove_unused_columns": False, "per_device_eval_batch_size": 4, **settings}
    return Trainer(model=_bert(), args=_arguments(folder, **settings), data_collator=collate).predict(rows)


def _bert() -> Any:
    return of_class("BertForSequenceClassification")


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("kind", ["texts", "pairs", "stream", "ids"])
def test_predictions_of_pieces_are_named_with_a_line_that_gives_all_of_them(
    wordpiece, tmp_path: Path, kind: str, fitted: bool
) -> None:
    """accelerate cuts the predictions of the last batch to the number of rows that are left of the data set."""
    pairs = {"text_pair_column": "other", "truncation": "only_first"} if kind == "pairs" else {}
    settings = {"max_length": 8, "return_overflowing_tokens": True, "look_ahead": False, **pairs}
    collate = C(wordpiece, model=_bert() if fitted else None, **settings)
    dataset = _long(id=[*range(6)], **({"other": ["a"] * 6} if pairs else {}))
    if kind == "ids":
        whole = C(wordpiece, max_length=64)
        dataset = dataset.map(whole, batched=True, remove_columns=["text", "id"]).select_columns(["input_ids", "label"])
    if kind == "stream":
        dataset = dataset.to_iterable_dataset()
    else:
        with pytest.warns(UserWarning, match="a batch has more rows than it was given"):
            count = len(collate.replace()(list(dataset))["input_ids"])
    with pytest.warns(UserWarning, match="a batch has more rows than it was given") as warned:
        found = _predict(collate, dataset, tmp_path).predictions
    _, fix = str(warned[0].message).split("dataset = ")
    names: dict[str, Any] = {"dataset": dataset, "collate": collate}
    exec(f"dataset = {fix}", names)
    pieces = names["dataset"]
    mapped = list(pieces)
    result = _predict(collate, pieces, tmp_path)
    assert len(result.predictions) == len(mapped)
    assert result.label_ids.tolist() == [row["label"] for row in mapped]
    if kind == "stream":
        return  # has no length, so accelerate cuts nothing
    assert len(found) < len(mapped) == count
    if kind != "ids":
        assert sorted({row["id"] for row in mapped}) == [*range(6)]


def test_a_collator_names_pieces_but_not_those_of_plain_texts_that_the_batch_numbers(wordpiece) -> None:
    settings = {"max_length": 8, "return_overflowing_tokens": True}
    texts, rows = _long()["text"][:], _long().select_columns("text").to_list()
    collate = C(wordpiece, **settings)
    assert collate(texts)["overflow_to_sample_mapping"][-1] == 5
    with pytest.warns(UserWarning, match="a batch has more rows than it was given"):
        assert collate(rows)["overflow_to_sample_mapping"][-1] == 5
    fitted = C(wordpiece, model=_bert(), **settings)
    _long().map(fitted, batched=True)
    assert len(list(fitted.batches(texts, 64))) > 1
    with pytest.warns(UserWarning, match="a batch has more rows than it was given") as warned:
        fitted(texts)
    assert "dataset.map(collate, batched=True, remove_columns=['text'])" in str(warned[0].message)


def _gpt2() -> Any:
    """A GPT-2 whose configuration names no padding token, and other bos and eos tokens than the tokenizer."""
    ids = {"pad_token_id": None, "bos_token_id": 7, "eos_token_id": 7}
    return of_class("GPT2ForSequenceClassification", max_position_embeddings=64, **ids)


@pytest.mark.parametrize("pad_token", ["eos", None])
def test_a_gpt2_without_padding_token_trains_as_with_the_stock_line(byte_bpe, tmp_path: Path, pad_token) -> None:
    """Trainer copies the special tokens of the collator's tokenizer to the model, which needs a padding token."""
    models, trainers = [_gpt2() for _ in range(2)], []
    if pad_token is None:
        byte_bpe.pad_token = byte_bpe.eos_token
    collate = C(byte_bpe, pad_token=pad_token, model=models[0])
    byte_bpe.pad_token = byte_bpe.eos_token
    given = _arguments(tmp_path, save_strategy="steps", save_steps=2, logging_strategy="steps", logging_steps=1)
    for model, processing, collator in (
        (models[0], collate.tokenizer, collate),
        (models[1], byte_bpe, transformers.DataCollatorWithPadding(byte_bpe)),
    ):
        trainer = Trainer(
            model=model,
            args=given,
            train_dataset=_texts().map(collate, batched=True, remove_columns="text"),
            eval_dataset=_texts().map(collate, batched=True, remove_columns="text"),
            processing_class=processing,
            data_collator=collator,
        )
        trainer.train()
        trainers.append((trainer, [entry["loss"] for entry in trainer.state.log_history[:3]]))
    (ours, losses), (stock, expected) = trainers
    assert losses == expected
    for ids in ("pad_token_id", "bos_token_id", "eos_token_id"):
        assert getattr(models[0].config, ids) == getattr(models[1].config, ids) == byte_bpe.eos_token_id
        if hasattr(models[0], "generation_config"):
            assert getattr(models[0].generation_config, ids) == getattr(models[1].generation_config, ids)
    assert ours.evaluate()["eval_loss"] == stock.evaluate()["eval_loss"]
    assert ours.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2")).global_step == 3


@pytest.mark.parametrize("pad_token_id", [None, 3])
def test_a_collator_as_processing_class_is_saved_and_aligns_no_ids(wordpiece, tmp_path: Path, pad_token_id) -> None:
    """The checkpoint has an equal collator, and the configuration of the model the ids that it had before."""
    model = _gpt2()
    model.config.pad_token_id = pad_token_id
    collate = C(wordpiece, model=model)
    given = _arguments(tmp_path, save_strategy="steps", save_steps=1, max_steps=1)
    rows = _texts().map(collate, batched=True, remove_columns="text")
    trainer = Trainer(model, given, train_dataset=rows, data_collator=collate, processing_class=collate)
    if pad_token_id is None:
        with pytest.raises(ValueError, match="no padding token is defined"):
            trainer.train()
        return
    trainer.train()
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (pad_token_id, 7, 7)
    assert C.from_pretrained(tmp_path / "checkpoint-1") == collate


def test_generated_rows_and_labels_are_padded_with_the_tokenizers_token(wordpiece, tmp_path: Path) -> None:
    """Without training the ids of the model's configuration are not aligned, so another padding token would show."""
    torch.manual_seed(0)
    ids = {"pad_token_id": 9, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    sizes = {"vocab_size": 1200, "d_model": 16, "max_position_embeddings": 64, **ids}
    halves = {f"{half}_{name}": 1 for half in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    widths = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes, **halves, **widths))
    collate = C(wordpiece, model=model, text_target_column="target")
    rows = _texts().map(lambda row: {"target": row["text"]}, remove_columns="label")
    generates = {"predict_with_generate": True, "generation_max_length": 40, "remove_unused_columns": False}
    settings = transformers.Seq2SeqTrainingArguments(str(tmp_path), **generates, **QUIET)
    trainer = transformers.Seq2SeqTrainer(model=model, args=settings, data_collator=collate, processing_class=wordpiece)
    labels = trainer.predict(rows).label_ids
    assert set(labels[:, -1].tolist()) == {wordpiece.pad_token_id}


def test_rows_grouped_by_length_train(wordpiece, tmp_path: Path) -> None:
    collate = C(wordpiece, look_ahead=False)
    given = _arguments(tmp_path, **GROUPED, remove_unused_columns=False)
    rows = _texts().map(collate, batched=True)
    trainer = Trainer(model=Looking(), args=given, train_dataset=rows, data_collator=collate)
    assert trainer.train().global_step == 3


def test_without_processing_class_the_tokenizers_files_are_left_all_the_same(wordpiece, tmp_path: Path) -> None:
    trainer = Trainer(model=Looking(), args=_arguments(tmp_path), train_dataset=_texts(), data_collator=C(wordpiece))
    trainer.save_model(str(tmp_path / "saved"))
    assert "tokenizer.json" in {path.name for path in (tmp_path / "saved").iterdir()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinning needs an accelerator")
def test_a_table_on_an_accelerator_is_refused_with_the_setting_for_pinning(wordpiece, tmp_path: Path) -> None:
    table = nn.Embedding(1200, 16).requires_grad_(False).cuda()
    trainer = Trainer(
        model=Reader(),
        args=_arguments(tmp_path, remove_unused_columns=False, dataloader_pin_memory=True, use_cpu=False),
        train_dataset=_texts(),
        data_collator=C(wordpiece, embedding=table, look_ahead=False),
    )
    with pytest.raises(RuntimeError, match="dataloader_pin_memory=False"):
        trainer.train()


SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "13_train_and_generate.py"


@pytest.mark.parametrize(
    "settings",
    [{}, {"packing": True}, {"packing": "flat"}, {"packing": "flat", "padding": False}, {"padding": "max_length"}],
    ids=str,
)
def test_the_line_of_the_example_makes_prompts_of_every_saved_collator(
    settings: dict[str, Any], byte_bpe, tmp_path: Path
) -> None:
    (line,) = re.findall(r"prompts = (collate\.replace\(.*\))", SCRIPT.read_text(encoding="utf-8"))
    config = transformers.GPT2Config(vocab_size=len(byte_bpe), n_embd=16, n_layer=1, n_head=2, n_positions=32)
    model = transformers.GPT2LMHeadModel(config).eval()
    made = C(byte_bpe, model=model, labels="causal_lm", pad_token="eos", **{"max_length": 16, **settings})
    made.save_pretrained(tmp_path)
    prompts = eval(line, {"collate": C.from_pretrained(tmp_path, model=model)})
    batch, options = prompts(["I ride bike", "a"]), {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    if before("transformers", "5.2"):  # it gives every new token the last position, as the guide says
        batch.pop("position_ids")
    generated = model.generate(**batch, **options)[:, -4:]
    for row, text in enumerate(("I ride bike", "a")):
        ids = torch.tensor([byte_bpe(text, add_special_tokens=False)["input_ids"]])
        assert torch.equal(model.generate(ids, **options)[0, -4:], generated[row])

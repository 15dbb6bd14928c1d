"""Runs of trainers with `compute_once` compared with the same runs of the stock model: all numbers of their logs."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset
from test_compute_once import IDS, make
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import Trainer, TrainingArguments

from hf_posenc import compute_once

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of trainers about their own settings
]
rng = np.random.default_rng(0)
TEXTS = [" ".join(f"w{number}" for number in rng.integers(5, IDS, length)) for length in rng.integers(4, 20, 18)]


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}: pip install {library}")


def tokenizer(side: str = "right", pairs: bool = False) -> Any:
    """A tokenizer whose words are w5 to w89."""
    ids = {"[PAD]": 0, "[BOS]": 1, "[EOS]": 2, "[UNK]": 3, "[MASK]": 4} | {
        f"w{number}": number for number in range(5, IDS)
    }
    rust = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = ["input_ids", "attention_mask"]
    if pairs:
        rust.post_processor = processors.TemplateProcessing(
            single="[BOS] $A [EOS]", pair="[BOS] $A [EOS] $B:1 [EOS]:1", special_tokens=[("[BOS]", 1), ("[EOS]", 2)]
        )
        names = ["input_ids", "token_type_ids", "attention_mask"]
    special = {"pad": "[PAD]", "bos": "[BOS]", "eos": "[EOS]", "unk": "[UNK]", "mask": "[MASK]", "cls": "[BOS]"}
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=rust,
        padding_side=side,
        model_input_names=names,
        sep_token="[EOS]",
        **{f"{name}_token": token for name, token in special.items()},
    )
    made.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    return made


def built(cls: str = "LlamaForCausalLM", **more: Any) -> Any:
    return make(cls, max_position_embeddings=128, **more)


def arguments(folder: Path, kind: Any = TrainingArguments, **more: Any) -> Any:
    settings = {"max_steps": 3, "per_device_train_batch_size": 6, "logging_steps": 1, "learning_rate": 1e-2}
    settings |= {"use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "seed": 1}
    return kind(output_dir=str(folder), **settings | more)


def compare(build: Callable[[], Any], ties: tuple[str, ...] = ()) -> Any:
    """Train twice, the second time with `compute_once`, and compare all numbers of the logs but those in `ties`."""
    logs = []
    for replaced in (False, True):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        trainer = build()
        once = compute_once(trainer.model) if replaced else None
        trainer.train()
        logs.append([entry for entry in trainer.state.log_history if {"loss", "eval_loss"} & entry.keys()])
    assert len(logs[0]) == len(logs[1]) >= 3
    changing = ("runtime", "per_second", "flos", "time", "epoch")
    for stock, ours in zip(*logs, strict=True):
        assert stock.keys() == ours.keys()
        for name, value in stock.items():
            if not any(part in name for part in changing) and not (name in ties and stock["step"] == 1):
                assert ours[name] == pytest.approx(value, rel=1e-3, abs=1e-4), (name, stock, ours)
    assert once is not None
    assert once.calls >= 3
    assert once.tokens.computed <= once.tokens.given
    return once


def preferences() -> Dataset:
    """Eighteen prompts with two answers each."""
    answers = {"chosen": TEXTS, "rejected": TEXTS[5:] + TEXTS[:5]}
    return Dataset.from_dict(
        {"prompt": TEXTS[::-1]} | {name: [f" {x}" for x in each] for name, each in answers.items()}
    )


@pytest.mark.parametrize("side", ["right", "left"])
def test_trainer(side: str, tmp_path: Path) -> None:
    tokens = tokenizer(side)
    rows = Dataset.from_dict(dict(tokens(TEXTS)))
    collate = transformers.DataCollatorForLanguageModeling(tokens, mlm=False)
    settings = {"eval_strategy": "steps", "eval_steps": 1}
    compare(
        lambda: Trainer(
            built(),
            arguments(tmp_path, **settings),
            train_dataset=rows,
            eval_dataset=rows.select(range(6)),
            data_collator=collate,
            processing_class=tokens,
        )
    )


def test_trainer_with_a_classifier_of_pairs(tmp_path: Path) -> None:
    tokens = tokenizer(pairs=True)
    rows = Dataset.from_dict({**tokens(TEXTS, TEXTS[::-1]), "label": [number % 2 for number in range(18)]})
    compare(
        lambda: Trainer(
            built("BertForSequenceClassification", num_labels=2),
            arguments(tmp_path),
            train_dataset=rows,
            processing_class=tokens,
        )
    )


@pytest.mark.parametrize(
    "settings",
    [{}, {"packing": True}, {"padding_free": True, "max_length": None}, {"gradient_checkpointing": True}],
)
def test_sft(settings: dict[str, Any], tmp_path: Path) -> None:
    needs("trl")
    import trl

    rows = Dataset.from_dict({"text": TEXTS})
    config = {"max_length": 64, "bf16": False} | settings
    compare(
        lambda: trl.SFTTrainer(
            built(), arguments(tmp_path, trl.SFTConfig, **config), train_dataset=rows, processing_class=tokenizer()
        )
    )


def test_dpo_and_a_reference_model_that_is_a_copy(tmp_path: Path) -> None:
    needs("trl")
    import trl

    def build() -> Any:
        model = built()
        settings = arguments(tmp_path, trl.DPOConfig, bf16=False)
        return trl.DPOTrainer(
            model,
            ref_model=copy.deepcopy(model),
            args=settings,
            train_dataset=preferences(),
            processing_class=tokenizer(),
        )

    # Before the first step, chosen and rejected rewards are equal apart from rounding, which breaks the tie.
    ties = tuple(f"rewards/{name}" for name in ("accuracies", "chosen", "rejected", "margins"))
    compare(build, ties)


def test_rewards(tmp_path: Path) -> None:
    needs("trl")
    import trl

    settings = arguments(tmp_path, trl.RewardConfig, bf16=False)
    compare(
        lambda: trl.RewardTrainer(
            built("LlamaForSequenceClassification", num_labels=1),
            args=settings,
            train_dataset=preferences(),
            processing_class=tokenizer(),
        )
    )


def test_grpo_with_its_generation(tmp_path: Path) -> None:
    needs("trl")
    import trl

    built().save_pretrained(tmp_path / "model")
    tokenizer("left").save_pretrained(tmp_path / "model")
    settings = {"num_generations": 3, "max_completion_length": 6, "bf16": False, "beta": 0.1}

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(len({*text.split()})) for text in completions]

    compare(
        lambda: trl.GRPOTrainer(
            transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model"),
            reward_funcs=[reward],
            args=arguments(tmp_path, trl.GRPOConfig, **settings),
            train_dataset=preferences().select_columns("prompt"),
            processing_class=tokenizer("left"),
        )
    )


def test_sentence_transformers_training_and_encoding(tmp_path: Path) -> None:
    needs("sentence_transformers")
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
    )
    from sentence_transformers.models import Pooling, Transformer

    built("BertModel").save_pretrained(tmp_path / "bert")
    tokenizer(pairs=True).save_pretrained(tmp_path / "bert")
    rows = Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS[::-1]})

    def build() -> Any:
        model = SentenceTransformer(modules=[Transformer(str(tmp_path / "bert")), Pooling(32)], device="cpu")
        settings = arguments(tmp_path, SentenceTransformerTrainingArguments)
        loss = losses.MultipleNegativesRankingLoss(model)
        return SentenceTransformerTrainer(model, settings, train_dataset=rows, loss=loss)

    compare(build)
    model = build().model
    stock = model.encode(TEXTS + TEXTS[:4])
    once = compute_once(model)
    assert np.allclose(stock, model.encode(TEXTS + TEXTS[:4]), atol=1e-5)
    assert once.tokens.computed < once.tokens.real < once.tokens.given


def test_cross_encoder_and_pipeline(tmp_path: Path) -> None:
    needs("sentence_transformers")
    from sentence_transformers import CrossEncoder

    built("BertForSequenceClassification", num_labels=1).save_pretrained(tmp_path)
    tokenizer(pairs=True).save_pretrained(tmp_path)
    model = CrossEncoder(str(tmp_path), device="cpu")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True)) * 2
    stock = model.predict(pairs)
    once = compute_once(model)
    assert np.allclose(stock, model.predict(pairs), atol=1e-5)
    assert once.tokens.computed <= once.tokens.real / 2

    classifier = built("BertForSequenceClassification", num_labels=3)
    classify = transformers.pipeline(
        "text-classification", model=classifier, tokenizer=tokenizer(pairs=True), device="cpu"
    )
    scores = [entry["score"] for entry in classify(TEXTS, batch_size=6)]
    once = compute_once(classifier)
    assert [entry["score"] for entry in classify(TEXTS, batch_size=6)] == pytest.approx(scores, abs=1e-5)
    assert once.calls == 3


@pytest.mark.parametrize("order", ["before", "after"])
def test_peft(order: str) -> None:
    needs("peft")
    import peft

    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 11, 0]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}
    model = built()
    if order == "before":
        compute_once(model)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.3)).eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    once = compute_once(model)
    loss = float(model(**batch).loss.detach())
    assert once.tokens.computed == 7
    model.train()(**batch)
    assert once.tokens.computed == 7 + 11  # the adapter has dropout
    once.remove()
    assert loss == pytest.approx(float(model.eval()(**batch).loss.detach()), rel=1e-5)


def test_prompt_tuning_is_refused() -> None:
    needs("peft")
    import peft

    model = peft.get_peft_model(built(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(ValueError, match=r"must come to the backbone\n  got: LlamaModel got none"):
        compute_once(model)

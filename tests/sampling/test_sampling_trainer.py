"""`transformers.Trainer` and accelerate with batches by tokens and packed rows, alone and in two processes.

Weights are compared with one step of plain gradient descent on the mean over all labels, worked out by hand.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import tokenizers
import torch
import trainer_runs
import transformers
from installed import ARGUMENTS, GROUPED
from small_models import of_class
from trainer_runs import QUIET, TEXTS
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)
from two_processes import skip_without_gloo, two_processes

from hf_posenc import (
    DataCollatorWithPositionalEncoding,
    TokenBudgetMixin,
    pack_dataset,
    plan_batches,
    train_bpe,
    with_arrow_batches,
)

COUNT, FIRST, ROOM = 60, 10, 128  # documents; the token that names the first of them; tokens there are
RATE = 0.5  # of the learning, large enough that weights move visibly
DRAW = np.random.default_rng(0)
LENGTHS = DRAW.integers(2, 13, COUNT)
DOCUMENTS = [
    [FIRST + number, *DRAW.integers(FIRST + COUNT, ROOM, length - 1).tolist()] for number, length in enumerate(LENGTHS)
]


def rows(labeled: bool = True) -> datasets.Dataset:
    """Documents whose first token is their number; of every third one only the end is to be learned."""
    labels = [
        [-100] * (len(ids) - 1) + ids[-1:] if number % 3 == 0 else list(ids) for number, ids in enumerate(DOCUMENTS)
    ]
    return datasets.Dataset.from_dict({"input_ids": DOCUMENTS} | ({"labels": labels} if labeled else {}))


class Padded:
    """Rows filled up with zeros; as a collator of one's own would do it."""

    def __call__(self, features: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        width = max(len(row["input_ids"]) for row in features)

        def fill(name: str, value: int) -> torch.Tensor:
            return torch.tensor([row[name] + [value] * (width - len(row[name])) for row in features])

        batch = {"input_ids": fill("input_ids", 0), "labels": fill("labels", -100)}
        return batch | {"attention_mask": (batch["input_ids"] != 0).long()}


MODELS: dict[str, tuple[str, dict[str, float]]] = {
    "gpt2": ("GPT2LMHeadModel", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "llama": ("LlamaForCausalLM", {}),
    "bert": ("BertForMaskedLM", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
}


def build(family: str) -> Any:
    """A tiny model, the same numbers every time, without dropout."""
    name, still = MODELS[family]
    sizes = {"vocab_size": ROOM, "num_hidden_layers": 2, "max_position_embeddings": 64}
    return of_class(name, bos_token_id=1, eos_token_id=1, **sizes, **still)


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    """Plain gradient descent, quietly, on the CPU."""
    return TrainingArguments(
        output_dir=str(folder),
        **{
            "num_train_epochs": 1,
            "learning_rate": RATE,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
            "max_grad_norm": 0.0,
            **QUIET,
            **more,
        },
    )


class Watched(trainer_runs.Watched):
    """Trainer that keeps the batch of each step."""

    def documents(self) -> list[list[int]]:
        """The numbers of the documents of each batch."""
        return [(fed["input_ids"][:, 0] - FIRST).tolist() for fed in self.fed]


class Budgeted(TokenBudgetMixin, Watched, token_budget=64): ...


class Roomy(TokenBudgetMixin, Watched, token_budget=12 * COUNT): ...


def made(
    kind: type[Any], folder: Path, model: Any = "gpt2", data: Any = None, collate: Any = None, **settings: Any
) -> Any:
    """A trainer on some data, which also evaluates on it; all documents are one step if `whole` is given."""
    data = rows() if data is None else data
    if settings.pop("whole", False):
        settings["gradient_accumulation_steps"] = len(plan_batches(LENGTHS, 64))
    return kind(
        model=build(model) if isinstance(model, str) else model,
        args=arguments(folder, **settings),
        train_dataset=data,
        eval_dataset=data,
        data_collator=collate or Padded(),
    )


def run(*given: Any, resume: Path | None = None, **settings: Any) -> Any:
    trainer = made(*given, **settings)
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return trainer


def loss_by_hand(model: Any, family: str, **smoothing: float) -> torch.Tensor:
    """The mean loss over the labels of all documents, each looked at alone."""
    losses, count = [], 0
    for row in rows():
        labels = torch.tensor(row["labels"])
        cache = {} if family == "bert" else {"use_cache": False}
        logits = model(input_ids=torch.tensor([row["input_ids"]]), **cache).logits[0]
        if family != "bert":
            logits, labels = logits[:-1], labels[1:]
        losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="sum", **smoothing))
        count += int((labels != -100).sum())
    return sum(losses) / count


@functools.cache
def one_step_by_hand(family: str, **smoothing: float) -> tuple[Any, float]:
    """The model after one step on all documents, each looked at alone; and the mean loss over all their labels."""
    model = build(family).train()
    loss = loss_by_hand(model, family, **smoothing)
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight.sub_(RATE * weight.grad)
    return model, float(loss.detach())


def flat(batches: list[list[int]]) -> list[int]:
    """The documents of all batches, sorted."""
    return sorted(document for batch in batches for document in batch)


def assert_same_weights(model: Any, expected: Any) -> None:
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-4, atol=2e-6, msg=name)


def test_two_lines_make_a_trainer_see_every_document_once_an_epoch_within_the_budget(tmp_path: Path) -> None:
    trainer = run(Budgeted, tmp_path, num_train_epochs=3)
    steps = len(plan_batches(LENGTHS, 64))
    assert trainer.state.global_step == 3 * steps == len(trainer.fed)
    batches = trainer.documents()
    for epoch in range(3):
        seen = batches[epoch * steps : (epoch + 1) * steps]
        assert flat(seen) == list(range(COUNT))
    assert batches[:steps] != batches[steps : 2 * steps]
    assert all(fed["input_ids"].numel() <= 64 for fed in trainer.fed)
    assert batches == [batch.tolist() for epoch in range(3) for batch in plan_batches(LENGTHS, 64, epoch=epoch)]


def test_the_last_step_of_an_epoch_may_have_fewer_batches(tmp_path: Path) -> None:
    steps = len(plan_batches(LENGTHS, 64))
    trainer = run(Budgeted, tmp_path, gradient_accumulation_steps=steps - 1, num_train_epochs=2)
    assert trainer.state.global_step == 4
    assert flat(trainer.documents()) == sorted([*range(COUNT)] * 2)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_custom_loss_function_gets_the_number_of_labels_and_is_not_weighted(tmp_path: Path, family: str) -> None:
    """Trainer itself counts the first label of each row for GPT-2, and version 5.0 for every model."""
    trainer = made(Budgeted, tmp_path, family, whole=True)

    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        flat = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(*flat, ignore_index=-100, reduction="sum") / num_items_in_batch

    trainer.compute_loss_func = loss
    expected, mean = one_step_by_hand(family)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(mean, rel=1e-5)
    trainer.train()
    assert_same_weights(trainer.model, expected)


def test_a_trainer_that_calls_its_loss_scaled_takes_the_same_step(tmp_path: Path) -> None:
    """With `loss_is_scaled_for_ga`, new in transformers 5.19, Trainer does not divide by the accumulated batches."""

    class Scaled(Budgeted):
        loss_is_scaled_for_ga = True

    trainer = run(Scaled, tmp_path, "llama", whole=True)
    assert_same_weights(trainer.model, one_step_by_hand("llama")[0])
    assert trainer.loss_is_scaled_for_ga is True


def test_labels_that_trainer_takes_out_of_a_batch_to_smooth_them_count(tmp_path: Path) -> None:
    trainer = run(Budgeted, tmp_path, whole=True, label_smoothing_factor=0.1)
    assert_same_weights(trainer.model, one_step_by_hand("gpt2", label_smoothing=0.1)[0])


def test_a_loss_that_a_subclass_has_scaled_itself_is_not_weighted(tmp_path: Path) -> None:
    class Own(Watched):
        loss_is_scaled_for_ga = True

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **settings: Any) -> Any:
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
            flat = logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten()
            return torch.nn.functional.cross_entropy(*flat, reduction="sum") / settings["num_items_in_batch"]

    class BudgetedOwn(TokenBudgetMixin, Own, token_budget=64): ...

    trainer = run(BudgetedOwn, tmp_path, "llama", whole=True)
    assert_same_weights(trainer.model, one_step_by_hand("llama")[0])


@pytest.mark.parametrize("stream", [False, True])
def test_rows_that_the_collator_truncates_count_as_truncated(tmp_path: Path, stream: bool) -> None:
    """GPT-2 has fewer positions than the rows have tokens, and no row alone is beyond the budget then."""
    tokenizer = train_bpe(TEXTS, vocab_size=300, progress=False)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_positions=32, n_embd=8, n_layer=1, n_head=1))
    data = datasets.Dataset.from_list([{"input_ids": [5] * length} for length in (200, 40, 33, 32, 32, 9, 100, 77)])

    class Short(TokenBudgetMixin, Watched, token_budget=96): ...

    collate = DataCollatorWithPositionalEncoding(tokenizer, model=model, labels="causal_lm")
    with pytest.warns(UserWarning, match="truncated to 32 tokens, the limit of GPT2LMHeadModel"):
        trainer = run(Short, tmp_path, model, data.to_iterable_dataset() if stream else data, collate, max_steps=3)
    assert sorted(tuple(fed["input_ids"].shape) for fed in trainer.fed) == [(2, 32), (3, 32), (3, 32)]


def test_a_data_set_of_other_makings_and_workers_do_as_well(tmp_path: Path) -> None:
    class Listed(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> dict[str, Any]:
            return rows()[index] | {"unused": 1}

    trainer = run(Budgeted, tmp_path, data=Listed(), dataloader_num_workers=2, dataloader_prefetch_factor=2)
    assert trainer.documents() == [batch.tolist() for batch in plan_batches(LENGTHS, 64)]


def test_the_seed_of_the_arguments_shuffles_and_settings_of_the_class_are_inherited(tmp_path: Path) -> None:
    class Small(Budgeted, window=20): ...

    assert Small.batch_settings == {"token_budget": 64, "window": 20}
    assert Budgeted.batch_settings == {"token_budget": 64}
    for settings, seed in (({"seed": 7}, 7), ({"seed": 7, "data_seed": 3}, 3)):
        trainer = run(Small, tmp_path, max_steps=2, **settings)
        plan = plan_batches(LENGTHS, 64, window=20, seed=seed)
        assert trainer.documents() == [plan[0].tolist(), plan[1].tolist()]


def test_batches_are_padded_to_a_multiple(tmp_path: Path, word_level: Any) -> None:
    class Eights(Budgeted, multiple_of=8): ...

    data = datasets.Dataset.from_dict({"input_ids": DOCUMENTS, "labels": DOCUMENTS})
    for kind in (transformers.DataCollatorForSeq2Seq, DataCollatorWithPositionalEncoding):
        trainer = run(Eights, tmp_path, data=data, collate=kind(word_level))
        assert {fed["input_ids"].shape[1] for fed in trainer.fed} == {8, 16}
        assert all(fed["input_ids"].numel() <= 64 for fed in trainer.fed)
        assert flat(trainer.documents()) == list(range(COUNT))
    with pytest.raises(TypeError, match="a plan with multiple_of needs a collator that can pad"):
        run(Eights, tmp_path)


STREAMED = 20  # rows of a window


class Streamed(TokenBudgetMixin, Watched, token_budget=64, window=STREAMED): ...


def test_a_stream_is_planned_a_window_at_a_time_and_read_until_max_steps(tmp_path: Path) -> None:
    stream = rows().to_iterable_dataset(num_shards=3)
    alone = run(Streamed, tmp_path, data=stream, max_steps=25)
    steps = next(end for end in range(1, 25) if sum(map(len, alone.documents()[:end])) == COUNT)
    assert flat(alone.documents()[:steps]) == flat(alone.documents()[steps : 2 * steps]) == [*range(COUNT)]
    assert alone.documents()[:steps] != alone.documents()[steps : 2 * steps]
    assert all(fed["input_ids"].numel() <= 64 for fed in alone.fed)
    for seen in alone.documents()[:steps]:
        assert len({number // STREAMED for number in seen}) == 1
    helped = run(Streamed, tmp_path, data=stream, max_steps=25, dataloader_num_workers=2)
    assert helped.documents() == alone.documents()


def test_a_generator_ends_a_run_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match="fewer rows in pass 1 than in the first one; a pass without rows ends"
    ) as warned:
        trainer = run(Budgeted, tmp_path, data=iter(list(rows())), max_steps=99)
    assert flat(trainer.documents()) == [*range(COUNT)]
    assert trainer.state.global_step == len(trainer.fed) < 99
    assert "0 rows, 60 before" in str(warned[0].message)


def test_a_stream_with_fewer_rows_in_its_second_pass_is_reported_and_goes_on(tmp_path: Path) -> None:
    class Shrinking(torch.utils.data.IterableDataset):
        passes = 0

        def __iter__(self) -> Any:
            self.passes += 1
            return iter(list(rows())[: 60 // min(self.passes, 2)])

    with pytest.warns(UserWarning, match="fewer rows in pass [12] than in the first one") as warned:
        trainer = run(Budgeted, tmp_path, data=Shrinking(), max_steps=16)
    assert "got: 30 rows, 60 before" in str(warned[0].message)
    assert trainer.state.global_step == 16


def test_a_function_gives_the_lengths_of_a_data_set(tmp_path: Path) -> None:
    class Counted(TokenBudgetMixin, Watched, token_budget=64, length=lambda row: len(row["input_ids"])): ...

    trainer = run(Counted, tmp_path)
    assert trainer.documents() == [batch.tolist() for batch in plan_batches(LENGTHS, 64)]


@pytest.mark.parametrize(("kind", "workers"), [(Watched, 2), (Budgeted, 0)])
def test_a_data_set_with_arrow_batches_trains_on_the_same_batches(
    tmp_path: Path, word_level: Any, kind: type[Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = rows().add_column("text", ["unused"] * COUNT).shuffle(seed=0)
    collate = DataCollatorWithPositionalEncoding(word_level, look_ahead=False)

    def fed(data: Any) -> list[dict[str, Any]]:
        settings = {"max_steps": 4, "dataloader_num_workers": workers, "per_device_train_batch_size": 8}
        trainer = run(kind, tmp_path, data=data, collate=collate, **settings)
        assert trainer.evaluate()["eval_loss"] > 0
        return [{name: tensor.tolist() for name, tensor in batch.items()} for batch in trainer.fed]

    expected = fed(data)
    monkeypatch.delattr(datasets.Dataset, "__getitems__")  # so that no batch is decoded row by row
    assert fed(with_arrow_batches(data)) == expected


def collator(model: Any, **settings: Any) -> Any:
    """Our collator, for a tokenizer in which every id is a word."""
    words = tokenizers.models.WordLevel({str(number): number for number in range(ROOM)}, unk_token="0")
    settings = {"pad_token": "0"} | settings
    return DataCollatorWithPositionalEncoding(tokenizers.Tokenizer(words), model=model, **settings)


LAYOUTS: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed": {"packing": True, "max_length": 32},
    "flat": {"packing": "flat"},
}


@pytest.mark.parametrize(
    ("family", "layout"),
    [*((family, layout) for family in ("gpt2", "llama") for layout in (None, *LAYOUTS)), ("bert", None)],
)
def test_the_loss_of_an_evaluation_is_that_of_the_documents_alone(
    tmp_path: Path, family: str, layout: str | None
) -> None:
    """Trainer's own is a mean over batches, and for GPT-2 also divided by the first label of each row."""

    class Plain(TokenBudgetMixin, Trainer, token_budget=64): ...

    model = build(family)
    if family == "llama":  # a causal model, whatever its name
        model.__class__ = type("Mine", (type(model),), {})
    settings = {"per_device_eval_batch_size": 7, "logging_strategy": "steps", "logging_steps": 1}
    collate = None if layout is None else collator(model, **LAYOUTS[layout])
    trainer = made(Plain, tmp_path, model, collate=collate, whole=True, **settings)
    assert trainer.args.gradient_accumulation_steps > 3
    expected, before = one_step_by_hand(family)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(before, rel=1e-5)
    trainer.train()
    assert trainer.state.global_step == 1
    if layout is None:
        [logged] = [log["loss"] for log in trainer.state.log_history if "loss" in log]
        assert logged == pytest.approx(before, rel=1e-4)
    assert_same_weights(model, expected)
    after = float(loss_by_hand(model.eval(), family).detach())
    assert trainer.predict(rows()).metrics["test_loss"] == pytest.approx(after, rel=1e-5)


def test_a_model_that_does_not_shift_labels_counts_the_first_one_too(tmp_path: Path) -> None:
    """XLNet is among the causal models of transformers; here all batches have one row, each of another length."""
    sizes = {"vocab_size": ROOM, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24, "dropout": 0.0}
    model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**sizes)).eval()
    data = datasets.Dataset.from_dict({"input_ids": DOCUMENTS, "labels": DOCUMENTS})
    trainer = made(Budgeted, tmp_path, model, data, per_device_eval_batch_size=1)
    with torch.no_grad():
        losses = [model(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss for ids in DOCUMENTS]
    expected = sum(loss * len(ids) for loss, ids in zip(losses, DOCUMENTS, strict=True)) / sum(map(len, DOCUMENTS))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_batches_without_a_label_change_neither_the_logged_loss_nor_that_of_an_evaluation(tmp_path: Path) -> None:
    """The mean loss of such a batch is NaN; masked texts may have no masked token."""
    labels = [ids if number < 2 else [-100] * len(ids) for number, ids in enumerate(DOCUMENTS)]
    data = datasets.Dataset.from_dict({"input_ids": DOCUMENTS, "labels": labels})
    trainer = made(Budgeted, tmp_path, "bert", data, whole=True, logging_strategy="steps", logging_steps=1)
    model, losses = trainer.model.eval(), []
    for ids in DOCUMENTS[:2]:
        logits = model(input_ids=torch.tensor([ids])).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(ids), reduction="sum").item())
    expected = sum(losses) / sum(map(len, DOCUMENTS[:2]))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_each_row_counts_once_in_the_loss_of_a_classifier(tmp_path: Path, kind: str) -> None:
    """-100 is no class, but may be a number to predict."""
    given = DRAW.integers(0, 2, COUNT).tolist() if kind == "classes" else [-100.0, 1.0, 2.0] * (COUNT // 3)
    config = build("bert").config
    config.num_labels = 2 if kind == "classes" else 1
    model = transformers.BertForSequenceClassification(config).eval()
    data = datasets.Dataset.from_dict({"input_ids": DOCUMENTS, "label": given})
    settings = {"per_device_eval_batch_size": 7, "learning_rate": 0.0, "logging_strategy": "steps", "logging_steps": 1}
    trainer = made(Budgeted, tmp_path, model, data, collator(model), whole=True, **settings)
    with torch.no_grad():
        losses = [
            model(input_ids=torch.tensor([ids]), labels=torch.tensor([label])).loss.item()
            for ids, label in zip(DOCUMENTS, given, strict=True)
        ]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_model_of_images_is_evaluated_as_before(tmp_path: Path) -> None:
    """It cannot be run on tokens, to see if it shifts labels; those here have a place in the image each."""
    sizes = {"num_encoder_blocks": 1, "depths": [1], "hidden_sizes": [8], "num_attention_heads": [1], "sr_ratios": [1]}
    config = transformers.SegformerConfig(**sizes, patch_sizes=[3], strides=[2], mlp_ratios=[1], decoder_hidden_size=8)
    data = [{"pixel_values": torch.rand(3, 8, 8), "labels": torch.randint(0, 2, (8, 8))} for _ in range(6)]
    model = transformers.SegformerForSemanticSegmentation(config)
    theirs, ours = (
        kind(model=model, args=arguments(tmp_path, per_device_eval_batch_size=3), eval_dataset=data)
        for kind in (Watched, Budgeted)
    )
    assert ours.evaluate()["eval_loss"] == pytest.approx(theirs.evaluate()["eval_loss"], rel=1e-5)


REFUSED: list[tuple[Any, dict[str, Any], type[Exception], list[str]]] = [
    (
        lambda: rows().to_iterable_dataset(),
        {"max_steps": 2, "save_strategy": "epoch"},
        ValueError,
        ["a stream has no epochs", "save_strategy='epoch'", "save_steps=500"],
    ),
    (rows, GROUPED, ValueError, ["group_by_length", "excludes another argument"]),
    (rows, {"accelerator_config": {"split_batches": True}}, ValueError, ["cannot be split", "split_batches"]),
    (rows, {"auto_find_batch_size": True}, ValueError, ["auto_find_batch_size=True", "a smaller token_budget="]),
    *(
        (rows, {"collate": collate}, ValueError, ["does not pad, and rows differ in length\n  got: data_collator="])
        for collate in (transformers.default_data_collator, transformers.DefaultDataCollator())
    ),
]


@pytest.mark.parametrize(("data", "settings", "kind", "words"), REFUSED)
def test_trainers_that_cannot_use_a_budget_are_refused_with_a_fix(
    tmp_path: Path, data: Any, settings: dict[str, Any], kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        run(Budgeted, tmp_path, data=data(), **settings)
    for word in words:
        assert word in str(caught.value)


def test_training_arguments_without_effect_are_named(tmp_path: Path) -> None:
    given = {"per_device_train_batch_size": 4, "dataloader_drop_last": True, "average_tokens_across_devices": False}
    given |= {"dataloader_in_order": False} if "dataloader_in_order" in ARGUMENTS else {}
    with pytest.warns(UserWarning, match="a token budget sets the size and order of batches") as warned:
        trainer = run(Budgeted, tmp_path, max_steps=1, **given)
    [message] = {str(each.message) for each in warned}
    for name, value in given.items():
        assert f"{name}={value}" in message
    assert trainer.documents() == [plan_batches(LENGTHS, 64)[0].tolist()]


def test_context_parallelism_is_refused_because_it_ignores_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate import Accelerator, ParallelismConfig

    # It needs several GPUs to be set up.
    trainer = made(Budgeted, tmp_path)
    monkeypatch.setattr(Accelerator, "parallelism_config", ParallelismConfig(cp_size=2))
    with pytest.raises(ValueError, match=r"ignores masks[\s\S]*cp_size=2"):
        trainer.get_train_dataloader()


def test_a_class_without_a_budget_or_with_settings_that_do_not_exist_is_refused(tmp_path: Path) -> None:
    class Nameless(TokenBudgetMixin, Watched): ...

    with pytest.raises(ValueError, match="the class has no token_budget") as caught:
        run(Nameless, tmp_path)
    assert "class Nameless(TokenBudgetMixin, Trainer, token_budget=8192)" in str(caught.value)
    with pytest.raises(TypeError, match="there is no argument 'max_tokens'"):

        class Wrong(TokenBudgetMixin, Watched, max_tokens=3): ...

    with pytest.raises(TypeError, match=r"setting of the class.*\n.*\n.*class Nameless"):
        Nameless(token_budget=64)


def test_a_class_that_names_trainer_before_the_mixin_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError) as caught:

        class Late(Watched, TokenBudgetMixin, token_budget=64): ...

    assert "TokenBudgetMixin must come before Watched" in str(caught.value)
    assert "class Late(TokenBudgetMixin, Watched, token_budget=64): ..." in str(caught.value)

    class Base(TokenBudgetMixin, token_budget=64): ...

    with pytest.raises(TypeError, match="Base must come before Watched"):

        class Inherited(Watched, Base): ...

    with pytest.raises(TypeError, match=r"class Between\(TokenBudgetMixin, Watched, Trainer, token_budget=64\)"):

        class Between(Watched, TokenBudgetMixin, Trainer, token_budget=64): ...  # Trainer.log would come first

    class Right(Base, Watched): ...

    class Further(Right): ...

    for kind in (Right, Further):
        assert kind.batch_settings == {"token_budget": 64}


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_packed_rows_give_the_gradients_of_the_single_documents(tmp_path: Path, family: str) -> None:
    """With the default collator and Trainer's removal of columns; rows that lost their restarts teach other things."""
    packed = pack_dataset(rows(), 32)
    settings = {"collate": transformers.default_data_collator, "per_device_train_batch_size": len(packed)}
    trainer = run(Watched, tmp_path, family, packed, **settings)
    assert sorted(trainer.fed[0]) == ["input_ids", "labels", "position_ids"]
    expected, _ = one_step_by_hand(family)
    assert_same_weights(trainer.model, expected)
    mixed = run(Watched, tmp_path, family, packed.remove_columns("position_ids"), **settings)
    with pytest.raises(AssertionError):
        assert_same_weights(mixed.model, expected)


PADS_WITH_A_TOKENIZER = {
    "padding": transformers.DataCollatorWithPadding,
    "causal": lambda tokenizer: transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False),
    "seq2seq": transformers.DataCollatorForSeq2Seq,
    "tokens": transformers.DataCollatorForTokenClassification,
}


@pytest.mark.parametrize("width", [None, 64])
@pytest.mark.parametrize("kind", PADS_WITH_A_TOKENIZER)
def test_collators_that_would_add_a_mask_of_ones_to_packed_rows_raise(
    word_level: Any, kind: str, width: int | None
) -> None:
    collate = PADS_WITH_A_TOKENIZER[kind](word_level)
    collate.pad_to_multiple_of = width
    for packed in (pack_dataset(rows(), 32), pack_dataset(rows().to_iterable_dataset(), 32).shuffle(seed=1)):
        with pytest.raises((ValueError, TypeError)) as refused:
            collate(list(packed.take(3)))
        assert width or "`attention_mask`" in str(refused.value)


def work(folder: Path) -> None:
    """What each of two processes does; it leaves what it saw."""
    found: dict[str, Any] = {}
    for family in ("gpt2", "bert"):
        settings = {"logging_strategy": "steps", "logging_steps": 1, "ddp_backend": "gloo"}
        settings["per_device_eval_batch_size"] = 6  # so that accelerate repeats no rows
        trainer = run(Roomy, folder / family, family, **settings)
        seen = trainer.documents(), trainer.model.state_dict(), trainer.state.log_history[0]["loss"]
        found[family] = *seen, trainer.evaluate(rows())["eval_loss"]
    rank = trainer.args.process_index
    stream = rows().to_iterable_dataset().shuffle(seed=rank, buffer_size=16)
    try:  # the last run, because it ends in the middle
        run(Streamed, folder / "other", data=stream, max_steps=14, ddp_backend="gloo", dataloader_num_workers=2)
    except ValueError as problem:
        found["other rows"] = str(problem)
    torch.save(found, folder / f"rank {rank}.pt")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes saw, started by torchrun."""
    skip_without_gloo()
    folder = tmp_path_factory.mktemp("ranks")
    with two_processes(folder, "test_sampling_trainer", "work", folder):
        pass
    return [torch.load(folder / f"rank {rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_two_processes_of_trainer_learn_the_mean_over_all_labels(ranks: Any, family: str) -> None:
    expected, loss = one_step_by_hand(family)
    documents = [rank[family][0] for rank in ranks]
    assert [len(batches) for batches in documents] == [1, 1]
    assert flat(documents[0] + documents[1]) == list(range(COUNT))
    for _, weights, logged, evaluated in (rank[family] for rank in ranks):
        model = copy.deepcopy(expected)
        model.load_state_dict(weights)
        assert_same_weights(model, expected)
        assert logged == pytest.approx(loss, rel=1e-4)
        assert evaluated == pytest.approx(float(loss_by_hand(model.eval(), family).detach()), rel=1e-4)


@pytest.mark.slow
def test_processes_that_read_different_rows_are_refused(ranks: Any) -> None:
    for rank in ranks:
        assert "every process must read the same rows in the same order" in rank["other rows"]
        assert "other rows in process 1 than in process 0" in rank["other rows"]


class _Shifting(torch.nn.Module):
    """A module of a user's own, whose loss shifts labels as that of a causal model does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(64, 64)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor, attention_mask: Any = None) -> dict[str, Any]:
        logits = self.table(input_ids)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_loss_of_a_module_of_ones_own_is_that_of_the_documents_alone(
    tmp_path: Path, word_level: Any, side: str
) -> None:
    torch.manual_seed(0)
    model = _Shifting().eval()
    documents = [[10 + i, 20 + i] for i in range(16)] + [[9] * 40] * 2
    collate = DataCollatorWithPositionalEncoding(
        word_level, model=model, labels="causal_lm", padding_side=side, look_ahead=False
    )
    data = datasets.Dataset.from_dict({"input_ids": documents})
    settings = {"max_steps": 1, "learning_rate": 0.0, "gradient_accumulation_steps": 8}
    trainer = made(Budgeted, tmp_path, model, data, collate, **settings)
    trained = trainer.train().training_loss
    with torch.no_grad():
        losses = [model(torch.tensor([row]), torch.tensor([row]))["loss"].item() * (len(row) - 1) for row in documents]
    alone = sum(losses) / sum(len(row) - 1 for row in documents)
    assert trained == pytest.approx(alone, abs=1e-4)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(alone, abs=1e-4)

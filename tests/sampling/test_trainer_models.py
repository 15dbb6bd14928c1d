"""`use_sinusoidal_positions` and the collator's `model=` under `transformers.Trainer`, in one process.

The positions of every step are compared with the formula, the tokens with the current weights, and whole runs with the
same model with an ordinary frozen `nn.Embedding`.
"""

from __future__ import annotations

import json
import math
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from families import WIDTH
from installed import ARGUMENTS, before
from test_readme import REPO, blocks
from test_trainer import Reader
from torch import nn
from torch.nn import functional as F
from trainer_runs import (
    QUIET,
    STEPS,
    TEXTS,
    AfterEachStep,
    Watched,
    arguments,
    build,
    position_modules,
    rows,
    sinusoids,
    table_of,
    token_modules,
)
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from hf_posenc import DataCollatorWithPositionalEncoding, audit, use_sinusoidal_positions

pytestmark = pytest.mark.filterwarnings("ignore:the positions written into")  # the paper's are easiest to compare

C = DataCollatorWithPositionalEncoding
TOKENIZERS = {"bert": "wordpiece", "roberta": "unigram", "gpt2": "byte_bpe", "bart": "wordpiece"}
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "gpt2": {"pad_token": "eos", "labels": "causal_lm"},
    "bart": {"text_target_column": "target"},
}
# The others are slow tests.
TWO_FAMILIES = pytest.mark.parametrize(
    "family", ["bert", "bart", *(pytest.param(name, marks=pytest.mark.slow) for name in ("roberta", "gpt2"))]
)
BOTH_SIDES = [("bert", "right"), ("bert", "left"), ("roberta", "right"), ("roberta", "left")]
BOTH_SIDES += [("gpt2", "right"), ("gpt2", "left"), ("bart", "right")]


@pytest.fixture
def family() -> str:
    """Tests of several families parametrize this."""
    return "bert"


@pytest.fixture
def tokenizer(request: pytest.FixtureRequest, family: str) -> Any:
    return request.getfixturevalue(TOKENIZERS[family])


@pytest.fixture
def model(tokenizer: Any, family: str) -> Any:
    """With sinusoids."""
    model = build(family, tokenizer)
    use_sinusoidal_positions(model, recipe="paper")
    return model


def fitted(family: str, tokenizer: Any, model: Any, **settings: Any) -> Any:
    return C(tokenizer, model=model, **(SETTINGS[family] | settings))


def documents(family: str) -> datasets.Dataset:
    return rows({"bart": "target", "gpt2": "text"}.get(family, "label"))


def run(folder: Path, family: str, model: Any, collate: Any, callback: Any = None, **settings: Any) -> Watched:
    """Train for a few steps on raw text."""
    trainer = Watched(
        model=model,
        args=arguments(folder, remove_unused_columns=False, **settings),
        train_dataset=documents(family),
        data_collator=collate,
        callbacks=[callback] if callback else [],
    )
    assert trainer.train().global_step == settings.get("max_steps", STEPS)
    return trainer


def assert_still_exact(model: Any, family: str) -> None:
    """Assert that every position table equals the formula, is frozen, and has no gradient."""
    found = list(position_modules(model, family))
    assert found
    for _, name, table, first_row in found:
        assert torch.equal(table.weight.detach().cpu(), table_of(first_row).to(table.weight.dtype)), name
        assert not table.weight.requires_grad
        assert table.weight.grad is None


@pytest.mark.filterwarnings("ignore:left padding changes the logits")  # of classifiers: nothing of the positions
@pytest.mark.parametrize(("family", "side"), BOTH_SIDES)
def test_every_step_uses_exact_positions_and_the_token_table_of_that_moment(
    tmp_path: Path, family: str, side: str, tokenizer: Any, model: Any
) -> None:
    """The token table is copied right after each optimizer step."""
    collate = fitted(family, tokenizer, model, padding_side=side)
    steps = AfterEachStep()
    positions_seen: dict[str, list[torch.Tensor]] = {}
    tokens_seen: list[bool] = []

    def look_at_tokens(module: nn.Embedding, given: tuple[torch.Tensor, ...], returned: torch.Tensor) -> None:
        scale = getattr(module, "embed_scale", 1.0)
        assert returned.requires_grad
        tokens_seen.append(torch.equal(returned.detach(), F.embedding(given[0], steps.tables[-1]) * scale))

    for table in token_modules(model):
        table.register_forward_hook(look_at_tokens)
    for holder, _name, table, _ in position_modules(model, family):
        path = next(path for path, module in model.named_modules() if module is holder)
        values = positions_seen.setdefault(path, [])
        table.register_forward_hook(lambda _, __, returned, values=values: values.append(returned.detach().clone()))

    trainer = run(tmp_path, family, model, collate, steps)

    each_forward = 2 if family == "bart" else 1
    assert tokens_seen == [True] * (STEPS * each_forward)
    for earlier, later in zip(steps.tables[:-1], steps.tables[1:], strict=True):
        assert not torch.equal(earlier, later)  # so that a table one step old would have been seen
    assert len(steps.gradients) == STEPS
    assert min(steps.gradients) > 0
    assert steps.frozen_with_gradient == []

    assert positions_seen
    shifted = False
    for path, seen in positions_seen.items():
        assert len(seen) == STEPS
        for used, fed in zip(seen, trainer.fed, strict=True):
            real = torch.ones_like(fed["labels"]) if "decoder" in path else fed["attention_mask"]
            shifted |= bool((real[:, 0] == 0).any())
            nth = (real.cumsum(1) - 1).clamp_min(0)
            exact = sinusoids(nth)
            assert torch.equal(used.expand_as(exact)[real.bool()], exact[real.bool()])
    assert shifted == (side == "left")
    assert_still_exact(model, family)


class FromTheStart(nn.Embedding):
    """An ordinary table with the arguments of BART's: one row after the other."""

    def forward(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return super().forward(torch.arange(input_ids.shape[1]).expand(len(input_ids), -1))


@TWO_FAMILIES
def test_losses_equal_those_of_an_ordinary_frozen_embedding_step_by_step(
    tmp_path: Path, family: str, tokenizer: Any, model: Any
) -> None:
    ordinary, untouched = build(family, tokenizer), build(family, tokenizer)
    for holder, name, _, first_row in list(position_modules(ordinary, family)):
        rows_from_zero = family == "bart"
        kind = FromTheStart if rows_from_zero else nn.Embedding
        setattr(holder, name, kind.from_pretrained(table_of(0 if rows_from_zero else first_row), freeze=True))
    collate = fitted(family, tokenizer, model)
    ours, theirs, learned = (run(tmp_path, family, each, collate) for each in (model, ordinary, untouched))
    assert len(ours.losses) == STEPS
    assert ours.losses == theirs.losses
    assert ours.losses != learned.losses
    others = dict(ordinary.named_parameters())
    positions = {id(table.weight) for _, _, table, _ in position_modules(model, family)}
    for name, weight in model.named_parameters():
        if id(weight) not in positions:
            assert torch.equal(weight, others[name]), name


def test_raw_text_trains_on_the_same_batches_as_mapped_columns_with_the_default(
    tmp_path: Path, tokenizer: Any, model: Any
) -> None:
    collate = fitted("bert", tokenizer, model)
    raw = run(tmp_path, "bert", model, collate)
    again = build("bert", tokenizer)
    use_sinusoidal_positions(again, recipe="paper")
    settings = arguments(tmp_path)
    assert settings.remove_unused_columns
    mapped = Watched(model=again, args=settings, train_dataset=rows().map(collate, batched=True), data_collator=collate)
    mapped.train()
    assert raw.losses == mapped.losses
    for one, other in zip(raw.fed, mapped.fed, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert mapped.evaluate(mapped.train_dataset)["eval_loss"] > 0


def test_checkpoints_are_complete_and_the_best_model_is_frozen(tmp_path: Path, tokenizer: Any, model: Any) -> None:
    collate = fitted("bert", tokenizer, model, max_length=32)
    trainer = Trainer(
        model=model,
        args=arguments(
            tmp_path / "run",
            save_strategy="steps",
            eval_strategy="steps",
            save_steps=1,
            eval_steps=1,
            load_best_model_at_end=True,
            greater_is_better=True,  # of the loss, so that the best model is not the last one
            metric_for_best_model="eval_loss",
            learning_rate=0.1,
        ),
        train_dataset=rows().map(collate, batched=True),
        eval_dataset=rows().map(collate, batched=True),
        data_collator=collate,
        processing_class=collate,
    )
    trainer.train()
    best = Path(trainer.state.best_model_checkpoint)
    losses = {entry["step"]: entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    assert best.name == f"checkpoint-{max(losses, key=losses.__getitem__)}"
    assert_still_exact(model, "bert")
    for step in range(1, STEPS + 1):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        assert {"hf_posenc.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} <= {
            path.name for path in folder.iterdir()
        }
        assert json.loads((folder / "hf_posenc.json").read_text())["max_length"] == 32

    stock = transformers.BertForSequenceClassification.from_pretrained(best).eval()
    model.eval()
    again = C.from_pretrained(best)
    batch = collate(TEXTS)
    assert again.model == collate.model
    assert again(TEXTS).keys() == batch.keys()
    assert all(torch.equal(value, batch[name]) for name, value in again(TEXTS).items())
    with torch.no_grad():
        assert torch.equal(stock(**batch).logits, model(**batch).logits)
    assert_tables_exact_and_trainable_again(stock)
    use_sinusoidal_positions(stock, recipe="paper")
    assert_still_exact(stock, "bert")
    evaluated = Trainer(model=stock, args=arguments(tmp_path), data_collator=collate)
    result = evaluated.predict(trainer.eval_dataset)
    assert result.metrics["test_loss"] == pytest.approx(losses[int(best.name.split("-")[1])], rel=1e-6)
    assert result.predictions.shape == (len(TEXTS), 2)


def assert_tables_exact_and_trainable_again(stock: Any) -> None:
    for _, _, table, first_row in position_modules(stock, "bert"):
        assert torch.equal(table.weight, table_of(first_row))
        assert table.weight.requires_grad


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, tokenizer: Any, model: Any, reloaded: bool
) -> None:
    collate = fitted("bert", tokenizer, model)
    whole = run(tmp_path, "bert", model, collate, save_strategy="steps", save_steps=2)
    checkpoint = tmp_path / "checkpoint-2"
    if reloaded:
        resumed = transformers.BertForSequenceClassification.from_pretrained(checkpoint)
        resumed.accepts_loss_kwargs = False
    else:
        resumed = build("bert", tokenizer)
    use_sinusoidal_positions(resumed, recipe="paper")
    trainer = Watched(
        model=resumed,
        args=arguments(tmp_path, remove_unused_columns=False),
        train_dataset=rows(),
        data_collator=collate,
    )
    assert trainer.train(resume_from_checkpoint=str(checkpoint)).global_step == STEPS
    assert trainer.losses == whole.losses[2:]
    assert_still_exact(resumed, "bert")
    for name, weight in resumed.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_generating_from_a_padded_batch_equals_one_by_one(tmp_path: Path, family: str, tokenizer: Any) -> None:
    torch.manual_seed(0)
    # Large weights: a fresh model repeats one token whatever it is fed, and would prove nothing.
    model = build(family, tokenizer, **{"init_std" if family == "bart" else "initializer_range": 0.7})
    use_sinusoidal_positions(model, recipe="paper")
    run(tmp_path, family, model, fitted(family, tokenizer, model), learning_rate=1e-3)
    model.eval()
    side = "left" if family == "gpt2" else "right"
    prompts = TEXTS[:8]
    collate = fitted(family, tokenizer, model, padding_side=side, labels=None)
    batch = collate(prompts)
    assert bool((batch["attention_mask"][:, 0] == 0).any()) == (side == "left")
    settings = {
        "max_new_tokens": 8,
        "do_sample": False,
        "pad_token_id": int(model.config.pad_token_id),
        "min_new_tokens": 8,
    }
    singles = [collate([prompt]) for prompt in prompts]
    if before("transformers", "5.2"):  # it would repeat the last position for every token that it generates
        for each in (batch, *singles):
            each.pop("position_ids", None)
    together = model.generate(**batch, **settings)[:, -8:]
    alone = torch.cat([model.generate(**each, **settings)[:, -8:] for each in singles])
    assert torch.equal(together, alone)
    assert torch.equal(model.generate(**batch, **settings, use_cache=False)[:, -8:], alone)
    assert len({tuple(row) for row in together.tolist()}) >= 3  # they depend on the prompt
    unmasked = dict(batch) | {"attention_mask": torch.ones_like(batch["attention_mask"])}
    assert not torch.equal(model.generate(**unmasked, **settings)[:, -8:], alone)  # and padding would show


def test_seq2seq_trainer_predicts_with_generate(tmp_path: Path, wordpiece: Any) -> None:
    model = build("bart", wordpiece)
    use_sinusoidal_positions(model, recipe="paper")
    collate = fitted("bart", wordpiece, model)
    settings = Seq2SeqTrainingArguments(
        str(tmp_path),
        max_steps=STEPS,
        remove_unused_columns=False,
        predict_with_generate=True,
        generation_max_length=9,
        **QUIET,
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=settings,
        train_dataset=rows("target"),
        eval_dataset=rows("target").select(range(8)),
        data_collator=collate,
        processing_class=collate.tokenizer,
    )
    trainer.train()
    result = trainer.predict(trainer.eval_dataset)
    model.eval()
    for text, row in zip(TEXTS[:8], result.predictions.tolist(), strict=True):
        alone = model.generate(**collate([{"text": text}]), max_length=9)[0].tolist()
        assert row[: len(alone)] == alone
        assert set(row[len(alone) :]) <= {wordpiece.pad_token_id, -100}


@TWO_FAMILIES
def test_bf16_autocast_still_reads_exact_float32_positions(
    tmp_path: Path, family: str, tokenizer: Any, model: Any
) -> None:
    collate = fitted(family, tokenizer, model)  # first: it runs the model, and outside of autocast
    returned: list[torch.Tensor] = []
    computed: list[torch.dtype] = []
    _, _, table, first_row = next(position_modules(model, family))
    table.register_forward_hook(lambda _, __, value: returned.append(value.detach().clone()))
    linear = next(module for module in model.modules() if type(module).__name__ in {"Linear", "Conv1D"})
    linear.register_forward_hook(lambda _, __, value: computed.append(value.dtype))
    trainer = run(tmp_path, family, model, collate, bf16=True)
    assert set(computed) == {torch.bfloat16}  # autocast was on
    exact = table_of(first_row)
    for value in returned:
        assert value.dtype == torch.float32
        assert all(bool((row == exact).all(1).any()) for row in value.view(-1, WIDTH))
    assert len(returned) == STEPS
    assert all(math.isfinite(loss) for loss in trainer.losses)
    assert_still_exact(model, family)


def test_a_model_in_bf16_trains_on_positions_rounded_once(tmp_path: Path, tokenizer: Any) -> None:
    for cast_first in (True, False):
        model = build("bert", tokenizer)
        model = model.bfloat16() if cast_first else model
        use_sinusoidal_positions(model, recipe="paper")
        model = model.bfloat16()
        trainer = run(tmp_path, "bert", model, fitted("bert", tokenizer, model))
        assert all(math.isfinite(loss) for loss in trainer.losses)
        assert next(position_modules(model, "bert"))[2].weight.dtype == torch.bfloat16
        assert_still_exact(model, "bert")


@pytest.fixture
def compiling() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "bart"])
@pytest.mark.usefixtures("compiling")
@pytest.mark.skipif(before("torch", "2.7"), reason="Dynamo of torch 2.6 cannot trace the models of transformers")
def test_a_compiled_model_is_one_graph_and_is_not_compiled_again_for_longer_rows(
    family: str, tokenizer: Any, model: Any
) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model.eval(), fullgraph=True, dynamic=True, backend=counter)
    collate = fitted(family, tokenizer, compiled)
    texts = sorted(documents(family).to_list(), key=lambda row: len(row["text"]))
    lengths = set()
    with torch.no_grad():
        for start in (4, 12, 28):
            batch = collate(texts[start : start + 4])
            lengths.add(batch["input_ids"].shape[1])
            torch.testing.assert_close(
                compiled(**batch).logits, model(**batch).logits, rtol=1e-5, atol=1e-5, msg=f"{start}"
            )
    assert len(lengths) == 3
    assert counter.frame_count == 1


def test_the_readmes_trainer_diff_runs_as_it_stands(tmp_path: Path, tokenizer: Any) -> None:
    page = (REPO / "README.md").read_text(encoding="utf-8")
    diffs = [each.body for each in blocks(page) if each.kind == "diff" and "use_sinusoidal_positions" in each.body]
    assert len(diffs) == 1, "README.md must hold one ```diff block with use_sinusoidal_positions"
    lines = diffs[0].splitlines()
    assert any(line.startswith("-") for line in lines)
    after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    model = transformers.BertForMaskedLM(build("bert", tokenizer).config)
    # What the reader has before: the stock tokenizer's columns.
    tokenized = rows("text").map(lambda row: dict(tokenizer(row["text"])), batched=True)
    script: dict[str, Any] = {
        "model": model,
        "tokenizer": tokenizer,
        "dataset": rows(),
        "tokenized": tokenized,
        "args": arguments(tmp_path, save_strategy="steps", save_steps=STEPS),
        "Trainer": Trainer,
    }
    compile(before, "README.md before", "exec")
    exec(compile(after, "README.md after", "exec", dont_inherit=True), script)
    assert script["trainer"].train().global_step == STEPS
    assert script["trainer"].model is model
    (table,) = audit.check(model).tables
    assert table.identified is not None
    assert (table.identified.is_exact, table.is_trainable) == (True, False)
    script["collate"].save_pretrained(script["trainer"].args.output_dir)
    assert C.from_pretrained(script["trainer"].args.output_dir) == script["collate"]


@contextmanager
def within_seconds(seconds: int) -> Iterator[None]:
    """Raise after some seconds, so that a hang is a failure."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.workers
@pytest.mark.parametrize("context", [None, pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_trainable_table_in_a_worker_raises_and_does_not_hang(
    tmp_path: Path, wordpiece: Any, context: str | None
) -> None:
    name, reader = "dataloader_multiprocessing_context", Reader(WIDTH)
    if name not in ARGUMENTS and context is not None:
        pytest.skip(f"this version of transformers has no {name}")
    trainer = Trainer(
        model=reader,
        args=arguments(
            tmp_path,
            remove_unused_columns=False,
            dataloader_num_workers=1,
            **({name: context} if name in ARGUMENTS else {}),
        ),
        train_dataset=rows(),
        data_collator=C(wordpiece, embedding=nn.Embedding(len(wordpiece), WIDTH), model=reader),
    )
    with within_seconds(30), pytest.raises(RuntimeError) as refused:
        trainer.train()
    traceback.clear_frames(refused.tb)  # else the worker ends five seconds late
    assert "use_sinusoidal_positions" in str(refused.value)
    assert ".embed" in str(refused.value)


def test_a_trainable_table_in_the_collator_warns_once_and_never_trains(tmp_path: Path, wordpiece: Any) -> None:
    reader = Reader(WIDTH)
    reader.table = nn.Embedding(len(wordpiece), WIDTH)
    before = reader.table.weight.detach().clone()
    collate = C(wordpiece, embedding=reader.table, model=reader)
    trainer = Trainer(
        model=reader,
        args=arguments(tmp_path, remove_unused_columns=False, weight_decay=0.0),
        train_dataset=rows(),
        data_collator=collate,
    )
    with pytest.warns(UserWarning, match="embeds with the present weights and without gradient") as warned:
        trainer.train()
    ours = [str(warning.message) for warning in warned]
    assert len(ours) == 1, ours
    assert "collate.embed(batch)" in ours[0]
    assert "under Trainer let the model embed" in ours[0]
    assert torch.equal(reader.table.weight, before)  # what the warning is about
    assert trainer.state.global_step == STEPS


def test_training_and_collating_on_the_cpu_do_not_initialize_cuda(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a GPU: torch's initialization of CUDA is blocked, here and in forked workers."""

    def refuse() -> None:
        raise AssertionError("CUDA was asked for")

    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    model = build("bert", tokenizer)
    use_sinusoidal_positions(model, recipe="paper")
    collate = fitted("bert", tokenizer, model)
    assert {tensor.device.type for tensor in collate(TEXTS).values()} == {"cpu"}
    for workers in (0, 2):
        run(tmp_path, "bert", model, collate, dataloader_num_workers=workers)
    assert not torch.cuda.is_initialized()

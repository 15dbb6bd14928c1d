"""`use_sinusoidal_positions` and the collator's `model=` under `transformers.Trainer`, in one process.

The positions of every step are compared with the formula, the tokens with the current weights.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from families import WIDTH
from installed import before
from test_readme import REPO, blocks
from torch import nn
from torch.nn import functional as F
from trainer_runs import (
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
from transformers import Trainer

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


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path: Path, tokenizer: Any, model: Any) -> None:
    collate = fitted("bert", tokenizer, model)
    whole = run(tmp_path, "bert", model, collate, save_strategy="steps", save_steps=2)
    checkpoint = tmp_path / "checkpoint-2"
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


@pytest.mark.parametrize(
    "family", ["bert", "bart", *(pytest.param(name, marks=pytest.mark.slow) for name in ("roberta", "gpt2"))]
)
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

"""The trainers of other libraries in docs/trainer.md: a step with the collator is compared with one without it.

tests/test_clients.py runs the trainer of sentence-transformers.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset
from installed import before
from torch.utils.data import DataLoader

from hf_posenc import Batch, train_bpe
from hf_posenc import DataCollatorWithPositionalEncoding as C

# Both libraries and their dependencies warn about themselves.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEXTS = ["I ride bike", "bike ride I, she said"] * 4
PROMPTS = {"prompt": ["I ", "she"], "completion": ["ride bike", " said"]}
ANSWERS = {"chosen": ["ride bike", " said"], "rejected": ["said", "I"]}
DATA: dict[str, Any] = {
    "SFT": PROMPTS,
    "KTO": PROMPTS | {"label": [True, False]},
    "DPO": ANSWERS | {"prompt": ["I ", "she"]},
    "Reward": ANSWERS,
    "GRPO": {"prompt": ["I", "she"]},
}
SETTINGS: dict[str, dict[str, Any]] = {"GRPO": {"num_generations": 2, "max_completion_length": 4}}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_bpe(TEXTS, 300, progress=False)


def _model(tokenizer: Any, kind: str = "SFT") -> Any:
    transformers.set_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "num_labels": 1}
    config = transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, **sizes)
    return (transformers.GPT2ForSequenceClassification if kind == "Reward" else transformers.GPT2LMHeadModel)(config)


def _trained(kind: str, model: Any, folder: Path, **given: Any) -> Any:
    """Return TRL's trainer after one step."""
    trl = pytest.importorskip("trl", reason="needs TRL: pip install trl")
    if before("trl", "1.0"):
        pytest.skip("TRL 0.29 takes every processor for one of images")
    args = getattr(trl, f"{kind}Config")(
        str(folder),
        max_steps=1,
        per_device_train_batch_size=2,
        save_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        dataloader_pin_memory=False,
        **SETTINGS.get(kind, {}),
    )
    if kind in ("DPO", "KTO"):
        given["ref_model"] = copy.deepcopy(model)  # by default, TRL loads it from the Hub
    if kind == "GRPO":
        given["reward_funcs"] = lambda completions, **_: [float(len(text)) for text in completions]
    given = {"train_dataset": Dataset.from_dict(DATA[kind]), **given}
    trainer = getattr(trl, f"{kind}Trainer")(model, args=args, **given)
    trainer.train()
    return trainer


def _weights(trainer: Any) -> list[torch.Tensor]:
    return list(trainer.model.parameters())


def test_a_step_with_the_collator_is_that_without_it(tokenizer: Any, tmp_path: Path) -> None:
    stock = _trained("SFT", _model(tokenizer), tmp_path / "stock", processing_class=tokenizer)
    model = _model(tokenizer)
    collate = C(tokenizer, model=model)
    ours = _trained("SFT", model, tmp_path / "ours", data_collator=collate, processing_class=tokenizer)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(_weights(ours), _weights(stock), strict=True))
    collate.save_pretrained(ours.args.output_dir)
    assert C.from_pretrained(ours.args.output_dir) == collate


@pytest.mark.parametrize("kind", ["SFT", "DPO", "KTO", "Reward", "GRPO"])
def test_a_step_with_the_tokenizer_of_the_collator_runs(tokenizer: Any, kind: str, tmp_path: Path) -> None:
    stock = _trained(kind, _model(tokenizer, kind), tmp_path / "stock", processing_class=tokenizer)
    ours = _trained(kind, _model(tokenizer, kind), tmp_path / "ours", processing_class=C(tokenizer).tokenizer)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(_weights(ours), _weights(stock), strict=True))


REFUSALS = [
    ("Reward", "processing_class", AttributeError, r"a trainer processing_class=collate\.tokenizer$"),
    ("Reward", "data_collator", ValueError, "leave out data_collator="),
    ("DPO", "data_collator", ValueError, "leave out data_collator="),
    ("KTO", "data_collator", ValueError, "leave out data_collator="),
]


@pytest.mark.parametrize(("kind", "argument", "error", "words"), REFUSALS)
def test_a_trainer_that_cannot_take_the_collator_names_what_to_pass(
    tokenizer: Any, kind: str, argument: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    given = {"processing_class": tokenizer, argument: C(tokenizer)}
    with pytest.raises(error, match=words):
        _trained(kind, _model(tokenizer, kind), tmp_path, **given)


def test_lightning_trains_on_batches_of_a_loader_with_the_collator(tokenizer: Any) -> None:
    lightning = pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")
    model = _model(tokenizer)
    kinds = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, number: int) -> Any:
            kinds.append(type(batch))
            return self.model(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    before_ = model.lm_head.weight.clone()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_steps=1, accelerator="cpu", **quiet)
    trainer.fit(Module(), DataLoader(TEXTS, batch_size=4, collate_fn=C(tokenizer, model=model, labels="causal_lm")))
    assert kinds == [Batch]
    assert not torch.equal(model.lm_head.weight, before_)

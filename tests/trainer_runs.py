"""What the Trainer tests share: documents of different lengths, short runs on the CPU, and what a model saw in them.

The sinusoids here come from the paper's formula, one scalar at a time, so that no code under test can move them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
from families import NAMED, ROOM, WIDTH
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

STEPS = 4
BATCH = 4

_WORDS = ["I", "ride", "bike", "she", "said", "that", "the", "dog", "reads", "a", "book", "of", "maps", "and", "never"]
_WORDS += ["asks", "why"]
# 32 documents, each another one, of 1 to 11 words.
TEXTS = [" ".join(_WORDS[(5 * i + k * (1 + i // 16)) % len(_WORDS)] for k in range(1 + i * 7 % 11)) for i in range(32)]
LABELS = [i % 2 for i in range(32)]
TARGETS = [" ".join(reversed(text.split())) for text in TEXTS]

# No dropout, because two runs must not differ by the number of random numbers that were drawn. And weights so large
# that every token and position shows in the loss: from transformers' own, any loss is 0.69 for any input.
_BERT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.4}
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "initializer_range": 0.4},
    "bart": {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "init_std": 0.4},
}
HEAD = {
    "bert": "ForSequenceClassification",
    "roberta": "ForSequenceClassification",
    "gpt2": "LMHeadModel",
    "bart": "ForConditionalGeneration",
}


def build(family: str, tokenizer: Any, **more: Any) -> Any:
    """A tiny model for a tokenizer, the same numbers every time; its learned positions are as they were drawn."""
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    special: dict[str, Any] = {"pad_token_id": eos if pad is None else pad}
    if HEAD[family] == "ForSequenceClassification":
        special["problem_type"] = "single_label_classification"  # else set by the first forward, and a second graph
    if family == "gpt2":
        special |= {"bos_token_id": eos, "eos_token_id": eos}
    if family == "bart":
        has_bos = tokenizer.bos_token_id is not None
        first, last = (tokenizer.bos_token_id, eos) if has_bos else (tokenizer.cls_token_id, tokenizer.sep_token_id)
        special |= {"bos_token_id": first, "eos_token_id": last, "decoder_start_token_id": last}
        special["forced_eos_token_id"] = None
    model = NAMED[family].build(HEAD[family], vocab_size=len(tokenizer), **(SETTINGS[family] | special | more))
    if family == "gpt2":
        model.loss_type = "ForCausalLM"  # transformers does not find it by the class's name, and warns inside the graph
    model.accepts_loss_kwargs = False  # else the loss grows with the number of processes: upstream's own quirk
    return model


def rows(kind: str = "label") -> datasets.Dataset:
    """The documents, with a class each, or with a text to make of them."""
    more = {"label": LABELS} if kind == "label" else {"target": TARGETS}
    return datasets.Dataset.from_dict({"text": TEXTS} | (more if kind != "text" else {}))


# On the CPU, and nothing written or shown.
QUIET: dict[str, Any] = {
    "report_to": [],
    "disable_tqdm": True,
    "save_strategy": "no",
    "logging_strategy": "no",
    "dataloader_pin_memory": False,
    "use_cpu": True,
    "seed": 0,
}


def arguments(folder: Path, **settings: Any) -> TrainingArguments:
    """A few quiet steps on the CPU, large enough ones that every weight moves visibly."""
    return TrainingArguments(
        output_dir=str(folder),
        **{
            "max_steps": STEPS,
            "per_device_train_batch_size": BATCH,
            "per_device_eval_batch_size": BATCH,
            "learning_rate": 1e-2,
            **QUIET,
            **settings,
        },
    )


class Watched(Trainer):
    """Keeps what the model was fed and the loss, step by step."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.fed: list[dict[str, torch.Tensor]] = []
        self.losses: list[float] = []

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **settings: Any) -> Any:
        fed = copy.deepcopy(dict(inputs))
        result = super().compute_loss(model, inputs, *args, **settings)
        if model.training:
            self.fed.append(fed)
            self.losses.append(float((result[0] if isinstance(result, tuple) else result).detach()))
        return result


class AfterEachStep(TrainerCallback):
    """Keeps the token table as it is before the first step and after each, and looks at gradients before they go."""

    def __init__(self) -> None:
        self.tables: list[torch.Tensor] = []
        self.gradients: list[float] = []
        self.frozen_with_gradient: list[str] = []

    def on_train_begin(self, *_: Any, model: Any, **__: Any) -> None:
        self.tables.append(model.get_input_embeddings().weight.detach().clone())

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        gradient = model.get_input_embeddings().weight.grad
        self.gradients.append(0.0 if gradient is None else float(gradient.abs().max()))
        self.frozen_with_gradient += [
            name for name, weight in model.named_parameters() if not weight.requires_grad and weight.grad is not None
        ]

    def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
        self.tables.append(model.get_input_embeddings().weight.detach().clone())


def sinusoid(position: int, d_model: int = WIDTH) -> list[float]:
    """Vaswani et al. 2017, section 3.5: sines at even places, cosines at odd ones."""
    angles = [position / 10000 ** (2 * (i // 2) / d_model) for i in range(d_model)]
    return [math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)]


def sinusoids(positions: torch.Tensor) -> torch.Tensor:
    """(...,) positions → (..., WIDTH) float32, each number rounded once."""
    flat = torch.tensor([sinusoid(int(position)) for position in positions.flatten()], dtype=torch.float64)
    return flat.view(*positions.shape, WIDTH).float()


def table_of(first_row: int) -> torch.Tensor:
    """A whole position table: zeros, then one position after the other."""
    return torch.cat([torch.zeros(first_row, WIDTH), sinusoids(torch.arange(ROOM))])


def position_modules(model: Any, family: str) -> Iterator[tuple[nn.Module, str, nn.Embedding, int]]:
    """Each position table of a model: who holds it, under which name, the table, the row that a first token reads."""
    base = getattr(model, model.base_model_prefix)
    for name, first_row in NAMED[family].tables.items():
        path, _, last = name.removesuffix(".weight").rpartition(".")
        holder = base.get_submodule(path)
        yield holder, last, getattr(holder, last), first_row


def token_modules(model: Any) -> list[nn.Embedding]:
    """Every module that looks tokens up in the model's table."""
    weight = model.get_input_embeddings().weight
    return [each for each in model.modules() if isinstance(each, nn.Embedding) and each.weight is weight]

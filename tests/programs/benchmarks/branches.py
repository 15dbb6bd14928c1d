"""Forward and backward of rows with branches beside one padded row for each answer, in small causal models.

Two prompts of 256 tokens have two or eight answers of 50 tokens each. Loss and gradients are compared first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hf_posenc import DataCollatorWithPositionalEncoding as Collator
from hf_posenc import train_bpe

from .measuring import Case, must_equal, take_turns

ROWS, PROMPT, ANSWER, IDS = 2, 256, 50, 300
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4},
    "gpt2": {"n_embd": 128, "n_layer": 4, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}
SIZES["qwen3"] = SIZES["llama"] | {"num_key_value_heads": 2, "head_dim": 32}


def batches(model: Any, answers: int) -> dict[str, Any]:
    """Return the same prompts and answers as padded rows, and as rows with branches."""
    ids = torch.randint(3, IDS, (ROWS, PROMPT + answers * ANSWER))
    rows = [(row[:PROMPT].tolist(), row[PROMPT:].view(answers, ANSWER).tolist()) for row in ids]
    collate = Collator(train_bpe(["a"], IDS, progress=False), model=model)
    padded = [
        {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}
        for prompt, several in rows
        for answer in several
    ]
    branched = [{"prompt_ids": prompt, "answers": several} for prompt, several in rows]
    return {
        "padded rows": collate(padded),
        "rows with branches": collate.replace(branches="answers", labels="causal_lm")(branched),
    }


def step(model: Any, batch: Any) -> torch.Tensor:
    """Return the loss and the gradients `(1 + P,)` of a model of P weights."""
    loss = model(**batch, use_cache=False).loss
    made = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([loss.detach()[None], *(gradient.flatten() for gradient in made)])


def run(rounds: int) -> Iterator[Case]:
    """Compare pairs and groups of eight in three models."""
    for name, sizes in SIZES.items():
        torch.manual_seed(0)
        special = {"bos_token_id": 1, "eos_token_id": 2}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, vocab_size=IDS, **sizes, **special))
        for answers in (2, 8):
            made = batches(model, answers)
            theirs, ours = (step(model, batch) for batch in made.values())
            largest = float(theirs[1:].abs().max())
            case = f"{type(model).__name__}, {answers} answers"
            print(
                f"{case}: loss {theirs[0]:.6f} and {ours[0]:.6f}, gradients differ by at most "
                f"{(ours - theirs)[1:].abs().max():.1e} of {largest:.2f}"
            )
            must_equal(case, (ours - theirs).abs().max() < 1e-5, torch.tensor(True))
            runs: dict[str, Callable[[], object]] = {
                f"{kind}, {batch['input_ids'].numel():,} tokens": lambda model=model, batch=batch: step(model, batch)
                for kind, batch in made.items()
            }
            yield Case(case, take_turns(runs, rounds))

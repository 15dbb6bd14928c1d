"""Compute a shared prompt once: preference pairs with TRL's DPOTrainer, and groups of eight answers with Trainer.

A preference pair computes its prompt twice, and a group of eight answers eight times. After `compute_once(model)` each
token is computed once, and nothing else changes: the same trainers, data and losses. Both programs run with the stock
model and with `compute_once`, print the time of training, and compare the losses of all steps. The Llama is small and
begins with random weights. Without TRL, only the second program runs.

Run it with `python examples/15_compute_once.py`: half a minute on two CPU cores. It downloads nothing.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from datasets import Dataset
from tokenizers import processors
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from hf_posenc import compute_once, train_bpe
from hf_posenc.testing import standard_library_docstrings

OPTIONS = {"max_steps": 3, "logging_steps": 1, "save_strategy": "no", "report_to": [], "disable_tqdm": True}
OPTIONS |= {"use_cpu": True, "bf16": False, "dataloader_pin_memory": False, "learning_rate": 1e-3}


def preferences(tokenizer: Any, texts: list[list[str]], model: Any, folder: str) -> Trainer:
    """Return TRL's DPOTrainer: the chosen answer goes on with a text, the rejected one has its words in reverse."""
    from trl import DPOConfig, DPOTrainer

    rows = [(words[:120], words[120:140], words[139:119:-1]) for words in texts[:12]]
    prompts, chosen, rejected = ([" ".join(words) for words in column] for column in zip(*rows, strict=True))
    pairs = {"chosen": [f" {text}" for text in chosen], "rejected": [f" {text}" for text in rejected]}
    return DPOTrainer(
        model,
        ref_model=copy.deepcopy(model),  # a copy computes each token once, too
        args=DPOConfig(folder, per_device_train_batch_size=4, **OPTIONS),
        train_dataset=Dataset.from_dict({"prompt": prompts, **pairs}),
        processing_class=tokenizer,
    )


def groups(tokenizer: Any, texts: list[list[str]], model: Any, folder: str) -> Trainer:
    """Return a Trainer of two groups in each batch: a prompt, and eight answers of 10 to 24 words to it."""
    rows = []
    for words, number in itertools.product(texts[:2], range(8)):
        prompt = tokenizer(" ".join(words[:120]))["input_ids"]
        answer = " ".join(words[120 + 5 * number : 130 + 7 * number])
        ids = tokenizer(f" {answer}")["input_ids"]
        rows.append({"input_ids": prompt + ids, "labels": [-100] * len(prompt) + ids})
    return Trainer(
        model,
        TrainingArguments(folder, per_device_train_batch_size=16, **OPTIONS),
        train_dataset=Dataset.from_list(rows),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )


def compare(name: str, program: Callable[..., Trainer], tokenizer: Any, texts: list[list[str]], model: Any) -> None:
    """Train copies of a model, stock and with `compute_once`, and print their times and the difference of losses."""
    losses, seconds = [], []
    for is_once in (False, True):
        trained = copy.deepcopy(model)
        once = compute_once(trained) if is_once else None
        with tempfile.TemporaryDirectory() as folder:
            trainer = program(tokenizer, texts, trained, folder)
            trainer.remove_callback(PrinterCallback)
            began = time.perf_counter()
            trainer.train()
            seconds.append(time.perf_counter() - began)
        losses.append(torch.tensor([line["loss"] for line in trainer.state.log_history if "loss" in line]))
        if once is not None:
            print(once)
            once.remove()  # the model is the stock model again
    print(f"{name}: {seconds[0]:.1f} s stock, {seconds[1]:.1f} s with compute_once")
    print(f"losses {[round(loss, 4) for loss in losses[0].tolist()]}, equal: {torch.allclose(*losses, atol=1e-4)}")


def main() -> None:
    """Run both programs, stock and with `compute_once`."""
    texts = [text.split() for text in standard_library_docstrings() if len(text.split()) >= 180]
    tokenizer = train_bpe([" ".join(words) for words in texts], vocab_size=2_000, progress=False)
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel()  # without <s> and </s>, as GPT-2's
    set_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4}
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **special))
    if importlib.util.find_spec("trl"):
        compare("preference pairs, DPOTrainer", preferences, tokenizer, texts, model)
    else:
        print("preference pairs need TRL: pip install trl")
    compare("groups of eight answers, Trainer", groups, tokenizer, texts, model)


if __name__ == "__main__":
    main()

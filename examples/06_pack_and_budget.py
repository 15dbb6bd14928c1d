"""Train on the same tokens in three kinds of batches: random rows, a budget of tokens, packed rows.

A small GPT-2 is trained three times on the same documents, with about the same number of tokens per step. Random rows
are padded to the longest of the batch. `TokenBudgetMixin` groups rows of similar length, as many as the budget allows.
`pack_dataset` puts several documents into a row, without attention between them. All three read the same tokens and
reach about the same loss on held-out documents. They differ in the share of padding, and so in tokens per second.

Run it with `python examples/06_pack_and_budget.py`: some minutes on two CPU cores; `--short` uses few documents. It
downloads nothing: the documents are the docstrings of the standard library.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from hf_posenc import DataCollatorWithPositionalEncoding, TokenBudgetMixin, pack_dataset, train_bpe
from hf_posenc.testing import standard_library_docstrings

SEED = 0
MAX_LENGTH, BUDGET = 256, 4096  # tokens of a document, and of a batch
HELD_OUT = 400  # documents


class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=BUDGET):
    """`Trainer` on batches of 4,096 tokens."""


class Counting:
    """A collator that counts the batches it returns, their entries, and the real tokens among them."""

    def __init__(self, collate: Any, pad_token_id: int) -> None:
        self.collate, self.pad_token_id = collate, pad_token_id
        self.entries = self.tokens = self.batches = 0

    def __call__(self, rows: Sequence[Any]) -> Any:
        batch = self.collate(rows)
        self.batches += 1
        self.entries += batch["input_ids"].numel()
        self.tokens += int((batch["input_ids"] != self.pad_token_id).sum())
        return batch


def new_model(tokenizer: PreTrainedTokenizerFast) -> GPT2LMHeadModel:
    """Return a GPT-2 with the same weights every time; packed rows need `use_cache=False`."""
    set_seed(SEED)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=MAX_LENGTH,
        n_embd=128,
        n_layer=2,
        n_head=4,
        use_cache=False,
        loss_type="ForCausalLM",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return GPT2LMHeadModel(config)


def trained(kind: str, tokenizer: PreTrainedTokenizerFast, documents: Dataset, held_out: Dataset) -> dict[str, float]:
    """Train on the documents once; return padding, tokens per second and held-out loss."""
    model = new_model(tokenizer)
    collate: Any = DataCollatorWithPositionalEncoding(tokenizer, model=model, labels="causal_lm", max_length=MAX_LENGTH)
    rows, cls, batch_size = documents, Trainer, 8  # rows; the budget of tokens is used instead
    counting = Counting(collate, tokenizer.pad_token_id)
    if kind == "random":
        batch_size = round(BUDGET * len(documents) / sum(documents["length"]))  # as many tokens per step as the others
    elif kind == "budget":
        cls = BudgetTrainer
    else:
        rows = pack_dataset(documents, MAX_LENGTH, pad_token_id=tokenizer.pad_token_id)
        batch_size = BUDGET // MAX_LENGTH
        counting = Counting(default_data_collator, tokenizer.pad_token_id)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=batch_size,
            learning_rate=2e-3,
            warmup_steps=20,
            lr_scheduler_type="constant_with_warmup",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=10_000,
            dataloader_pin_memory=False,
            seed=SEED,
        )
        trainer = cls(model=model, args=arguments, train_dataset=rows, data_collator=counting)
        trainer.remove_callback(PrinterCallback)
        seconds = trainer.train().metrics["train_runtime"]
        evaluator = Trainer(model=model, args=arguments, eval_dataset=held_out, data_collator=collate)
        evaluator.remove_callback(PrinterCallback)
        loss = evaluator.evaluate()["eval_loss"]
    return {
        "steps": counting.batches,
        "tokens": counting.tokens,
        "padding": 100 * (1 - counting.tokens / counting.entries),
        "tokens a second": counting.tokens / seconds,
        "held-out loss": loss,
    }


def main() -> None:
    """Train three times and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="use 300 documents")
    count = 300 if parser.parse_args().short else None
    texts = standard_library_docstrings()[:count]
    tokenizer = train_bpe(texts, vocab_size=2000)
    collate = DataCollatorWithPositionalEncoding(tokenizer, max_length=MAX_LENGTH, return_overflowing_tokens=True)
    tokenized = Dataset.from_dict({"text": texts}).shuffle(seed=SEED).map(collate, batched=True)
    held_out = tokenized.select(range(min(HELD_OUT, len(texts) // 5)))
    documents = tokenized.select(range(len(held_out), len(tokenized)))
    print(f"{len(documents):,} documents of {sum(documents['length']):,} tokens; {len(held_out)} held out")
    print(f"{'':10}{'steps':>6}{'tokens':>10}{'padding':>10}{'tokens a second':>17}{'held-out loss':>15}")
    for kind in ("random", "budget", "packed"):
        result = trained(kind, tokenizer, documents, held_out)
        print(
            f"{kind:10}{result['steps']:6}{result['tokens']:10,}{result['padding']:9.1f}%"
            f"{result['tokens a second']:17,.0f}{result['held-out loss']:15.3f}"
        )


if __name__ == "__main__":
    main()

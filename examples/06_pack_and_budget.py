"""The same tokens in three kinds of batches: rows drawn by chance, a budget of tokens, packed rows.

A small GPT-2 with sinusoidal positions is trained three times on the same documents, each of them once, with about as
many tokens a step. Rows drawn by chance are padded to the longest of them; `TokenBudgetMixin` puts neighbours by length
together, as many as the budget holds; `pack_dataset` lets documents share rows, and they do not see each other. All
three see the same tokens and reach about the same loss on held-out documents; what differs is how many places of the
batches are padding, and so how many tokens are read in a second.

Run it with `python examples/06_pack_and_budget.py`: some minutes on two CPU cores; `--short` takes a few documents. It
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

from hf_posenc import (
    DataCollatorWithPositionalEncoding,
    TokenBudgetMixin,
    pack_dataset,
    train_bpe,
    use_sinusoidal_positions,
)
from hf_posenc.corpus import standard_library_docstrings

SEED = 0
MAX_LENGTH, BUDGET = 256, 4096  # tokens of a document, and of a batch
HELD_OUT = 400  # documents


class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=BUDGET):
    """`Trainer` on batches of 4,096 tokens."""


class Counting:
    """A collator that counts, on the way through, the places of its batches and the tokens among them."""

    def __init__(self, collate: Any, pad_token_id: int) -> None:
        self.collate, self.pad_token_id = collate, pad_token_id
        self.places = self.tokens = self.batches = 0

    def __call__(self, rows: Sequence[Any]) -> Any:
        batch = self.collate(rows)
        self.batches += 1
        self.places += batch["input_ids"].numel()
        self.tokens += int((batch["input_ids"] != self.pad_token_id).sum())
        return batch


def new_model(tokenizer: PreTrainedTokenizerFast) -> GPT2LMHeadModel:
    """The same weights every time, with sinusoids for positions; without a cache, which packed rows do not survive."""
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
    model = GPT2LMHeadModel(config)
    use_sinusoidal_positions(model)
    return model


def trained(kind: str, tokenizer: PreTrainedTokenizerFast, documents: Dataset, held_out: Dataset) -> dict[str, float]:
    """One pass over the documents in one kind of batches: padding, tokens a second, held-out loss."""
    model = new_model(tokenizer)
    collate: Any = DataCollatorWithPositionalEncoding(tokenizer, model=model, labels="causal_lm", max_length=MAX_LENGTH)
    rows, cls, batch_size = documents, Trainer, 1
    counting = Counting(collate, tokenizer.pad_token_id)
    if kind == "random":
        batch_size = round(BUDGET * len(documents) / sum(documents["length"]))  # as many tokens a step as the others
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
        judge = Trainer(model=model, args=arguments, eval_dataset=held_out, data_collator=collate)
        judge.remove_callback(PrinterCallback)
        loss = judge.evaluate()["eval_loss"]
    return {
        "steps": counting.batches,
        "tokens": counting.tokens,
        "padding": 100 * (1 - counting.tokens / counting.places),
        "tokens a second": counting.tokens / seconds,
        "held-out loss": loss,
    }


def main() -> None:
    """Trains three times and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a few documents, to see how it goes")
    count = 300 if parser.parse_args().short else None
    texts = standard_library_docstrings()[:count]
    tokenizer = train_bpe(texts, vocab_size=2000)
    collate = DataCollatorWithPositionalEncoding(tokenizer, max_length=MAX_LENGTH, return_overflowing_tokens=True)
    tokenised = Dataset.from_dict({"text": texts}).shuffle(seed=SEED).map(collate, batched=True)
    held_out = tokenised.select(range(min(HELD_OUT, len(texts) // 5)))
    documents = tokenised.select(range(len(held_out), len(tokenised)))
    print(f"{len(documents):,} documents of {sum(documents['length']):,} tokens; {len(held_out)} held out")
    print(f"{'':10}{'steps':>6}{'tokens':>10}{'padding':>10}{'tokens a second':>17}{'held-out loss':>15}")
    for kind in ("random", "budget", "packed"):
        found = trained(kind, tokenizer, documents, held_out)
        print(
            f"{kind:10}{found['steps']:6}{found['tokens']:10,}{found['padding']:9.1f}%"
            f"{found['tokens a second']:17,.0f}{found['held-out loss']:15.3f}"
        )


if __name__ == "__main__":
    main()

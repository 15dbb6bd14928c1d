"""Put all documents of a batch into one flat row, without padding or mask, and train on a budget of tokens.

`packing="flat"` makes the row and the keys that mark its documents: `position_ids` that restart, and the cumulative
lengths that flash attention reads. On a CPU, Llama isolates the documents by the restarts. The script compares each
document in the row with the document alone, and then trains for an epoch on batches of at most 2,048 tokens.

Run it with `python examples/11_flat_packing.py`: half a minute on two CPU cores. It downloads nothing: the documents
are the docstrings of the standard library.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments, set_seed

from hf_posenc import (
    DataCollatorWithPositionalEncoding,
    TokenBudgetBatchSampler,
    TokenBudgetMixin,
    pack,
    train_bpe,
)
from hf_posenc.testing import standard_library_docstrings

MAX_LENGTH, BUDGET = 256, 2048  # tokens of a document, and of a batch


class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=BUDGET):
    """`Trainer` on batches of at most 2,048 tokens."""


def main() -> None:
    """Show a flat batch, compare its documents with the documents alone, fill batches to a budget, and train."""
    set_seed(0)
    texts = standard_library_docstrings()[:400]
    tokenizer = train_bpe(texts, vocab_size=1000)
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        **special,
    )
    model = LlamaForCausalLM(config).eval()
    collate = DataCollatorWithPositionalEncoding(
        tokenizer, model=model, packing="flat", labels="causal_lm", max_length=MAX_LENGTH
    )

    batch = collate(texts[:4])
    print(batch)
    print("documents begin and end at", batch["cu_seq_lens_q"].tolist())

    with torch.no_grad():
        flat = model(**batch).logits[0]
        alone = torch.cat([model(**collate([text])).logits[0] for text in texts[:4]])
        others = [*texts[:3], texts[3][::-1]]
        changed = model(**collate(others)).logits[0]
    last = int(batch["cu_seq_lens_q"][3])  # where the last document begins
    print(f"largest difference between a document in the row and alone: {(flat - alone).abs().max():.0e}")
    print(f"another last document moves the others' logits by at most {(flat[:last] - changed[:last]).abs().max():.0e}")

    documents = Dataset.from_dict({"text": texts}).map(collate, batched=True, remove_columns="text")
    lengths = np.array(documents["length"])
    for name, batches in (
        ("TokenBudgetBatchSampler", TokenBudgetBatchSampler(lengths, BUDGET)),
        ("pack", pack(lengths, BUDGET)),
    ):
        print(f"{name}: {len(batches)} batches, {lengths.sum() / (BUDGET * len(batches)):.1%} of the budget filled")

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1,
            learning_rate=3e-3,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=1,
            dataloader_pin_memory=False,
        )
        trainer = BudgetTrainer(model=model, args=arguments, train_dataset=documents, data_collator=collate)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss of the first step {losses[0]:.2f}, of the last {losses[-1]:.2f}")


if __name__ == "__main__":
    main()

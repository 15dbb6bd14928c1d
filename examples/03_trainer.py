"""Train a small transformer on word order with `transformers.Trainer`, with positions and without.

The task needs word order. The data contain each sentence twice, as written and with its words reversed ("I ride bike",
"bike ride I"), and the model classifies which of the two it reads. Both have the same tokens, so a model without
positions can only guess. A model with positions has an easy task: it learns how sentences begin and end.

Run it with `python examples/03_trainer.py`. It downloads nothing: the sentences are from the docstrings of the standard
library, and the tokenizer is trained on them.
"""

from __future__ import annotations

import math
import random
import re
import tempfile

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed

from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, PositionalEmbedding, train_bpe
from hf_posenc.testing import standard_library_docstrings

SEED = 0
TRAINING, HELD_OUT = 2000, 500  # sentences, each in both orders


class OrderModel(nn.Module):
    """A classifier: embedding, `nn.TransformerEncoder`, mean over the real tokens, two classes."""

    def __init__(self, vocab_size: int, *, positions: bool, d_model: int = 64) -> None:
        super().__init__()
        table = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(table.weight, std=d_model**-0.5)  # times √d, as large as the positions
        self.scale = math.sqrt(d_model)
        self.embedding = PositionalEmbedding(table, scale="sqrt_d") if positions else table
        layer = nn.TransformerEncoderLayer(
            d_model, nhead=4, dim_feedforward=2 * d_model, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.classify = nn.Linear(d_model, 2)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        if isinstance(self.embedding, PositionalEmbedding):
            x = self.embedding(input_ids, attention_mask=attention_mask, position_ids=position_ids)  # (B, T, D)
        else:
            x = self.embedding(input_ids) * self.scale
        mask = AttentionMask.from_batch({"attention_mask": attention_mask})
        x = self.encoder(x, **mask.for_transformer_encoder())  # (B, T, D)
        real = attention_mask.unsqueeze(-1)  # (B, T, 1)
        logits = self.classify((x * real).sum(dim=1) / real.sum(dim=1))  # (B, 2)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def sentences() -> list[list[str]]:
    """Return sentences of 5 to 20 plain words, commas and full stops, each once, in random order."""
    found: dict[str, list[str]] = {}
    for text in standard_library_docstrings():
        for paragraph in re.split(r"\n\s*\n", text):
            for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(paragraph.split())):
                words = re.findall(r"[A-Za-z'-]+|[.,]", sentence)
                if 5 <= len(words) <= 20 and re.fullmatch(r"[A-Z][A-Za-z ,'-]*[.]", sentence):
                    found[" ".join(words)] = words
    chosen = list(found.values())
    random.Random(SEED).shuffle(chosen)
    return chosen


def both_orders(chosen: list[list[str]]) -> Dataset:
    """Return two rows for each sentence: as written (label 1) and reversed (label 0)."""
    rows = [(words[::step], label) for words in chosen for step, label in ((1, 1), (-1, 0))]
    return Dataset.from_dict({"text": [" ".join(words) for words, _ in rows], "label": [label for _, label in rows]})


def accuracy_of(
    model: OrderModel, collate: DataCollatorWithPositionalEncoding, train: Dataset, held_out: Dataset
) -> float:
    """Train for one epoch and return the accuracy on the held-out rows."""
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=128,
            learning_rate=2e-3,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            seed=SEED,
            remove_unused_columns=False,  # keeps the column 'text', which the collator reads
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model, args, train_dataset=train, data_collator=collate, processing_class=collate.tokenizer)
        trainer.train()
        output = trainer.predict(held_out)
    return float(np.mean(output.predictions.argmax(axis=-1) == output.label_ids))


def main() -> None:
    torch.set_num_threads(1)  # more threads do not make a model this small faster
    chosen = sentences()[: TRAINING + HELD_OUT]
    held_out, train = both_orders(chosen[:HELD_OUT]), both_orders(chosen[HELD_OUT:])
    # byte_level=False: every word includes the space before it, the first one too, so that order changes no token.
    tokenizer: PreTrainedTokenizerFast = train_bpe(train["text"], vocab_size=2000, byte_level=False, progress=False)
    collate = DataCollatorWithPositionalEncoding(tokenizer, look_ahead=False)  # attend to the whole sentence

    bags = [sorted(ids) for ids in tokenizer(list(held_out["text"]))["input_ids"]]
    print("as written: ", held_out["text"][0])
    print("reversed:   ", held_out["text"][1])
    print(f"both orders have the same tokens: {bags[0::2] == bags[1::2]} (in all {HELD_OUT} held-out sentences)")

    for positions in (True, False):
        set_seed(SEED)
        model = OrderModel(len(tokenizer), positions=positions)
        accuracy = accuracy_of(model, collate, train, held_out)
        print(f"held-out accuracy {'with' if positions else 'without'} positions: {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()

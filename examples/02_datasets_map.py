"""Use one collator twice: `datasets.map` tokenizes with it once, and a `DataLoader` pads with it at every step.

Run it with `python examples/02_datasets_map.py`. It downloads nothing: the texts are the docstrings of the standard
library, and the tokenizer is a BPE trained on them.
"""

from __future__ import annotations

import time

import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe
from hf_posenc.testing import standard_library_docstrings


def main() -> None:
    texts = standard_library_docstrings()[:4000]
    tokenizer = train_bpe(texts, vocab_size=4000, model_max_length=64, progress=False)
    dataset = Dataset.from_dict({"text": texts, "label": [len(text) > 80 for text in texts]})
    collate = DataCollatorWithPositionalEncoding(tokenizer, pad_to_multiple_of=8, return_overflowing_tokens=True)

    # Columns in, columns out: no padding is stored. A text of more than 64 tokens continues in further rows, and its
    # label is repeated in them.
    began = time.perf_counter()
    rows = dataset.map(collate, batched=True, num_proc=2, remove_columns="text")
    print(f"{len(dataset)} texts became {len(rows)} rows in {time.perf_counter() - began:.1f} s")
    print("columns:", ", ".join(rows.column_names))

    # The same object is the collate_fn: rows in, one padded batch out. with_format("numpy") avoids a detour over lists.
    loader = DataLoader(rows.with_format("numpy"), batch_size=32, shuffle=True, collate_fn=collate, num_workers=2)
    real = total = 0
    for batch in loader:
        real += int(batch["attention_mask"].sum())
        total += batch["attention_mask"].numel()
    print("the last batch:", batch, sep="\n")
    print(f"{len(loader)} batches, {real:,} tokens, {1 - real / total:.0%} padding")
    print(f"none lost: the length column says {sum(rows['length']):,}")

    # Embeddings are made last, on the model's device and from the current weights, so that workers send only ids.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    embedding = torch.nn.Embedding(len(tokenizer), 128, device=device)
    vectors = collate.replace(embedding=embedding).embed(batch)["inputs_embeds"]
    print("embedded:", tuple(vectors.shape), vectors.dtype, vectors.device.type)


if __name__ == "__main__":
    main()

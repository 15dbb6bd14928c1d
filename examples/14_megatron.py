"""Write a corpus as Megatron-LM and nanoGPT read it: `megatron.bin`, `megatron.idx` and `train.bin`.

These trainers separate documents by an end token. So the corpus is encoded without special tokens and with a whole
document in each row, and an end token is added to each document. `megatron.idx` has the lengths and offsets of the
documents in `megatron.bin`; the data path of Megatron-LM is then `FOLDER/megatron`. `train.bin` has the ids alone.
nanoGPT expects uint16: with ids of 65,500 or more, change the dtype of its `np.memmap` to int32.

Run it with `python examples/14_megatron.py [CORPUS FOLDER]`: seconds on a CPU. By default the corpus is the docstrings
of the standard library, and the folder a temporary one. It downloads nothing: the tokenizer is trained on the corpus;
for another one change `load_tokenizer`.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.dataset
from transformers import PreTrainedTokenizerBase

from hf_posenc import corpus, train_bpe
from hf_posenc.testing import standard_library_docstrings

MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
CODES = {np.dtype(np.uint16): 8, np.dtype(np.int32): 4}  # Megatron-LM's numbers for dtypes


def load_tokenizer(source: Path) -> PreTrainedTokenizerBase:
    """Return a tokenizer with an end token; `AutoTokenizer.from_pretrained(...)` is another way."""
    return train_bpe(source.read_text(encoding="utf-8").splitlines()[:200], vocab_size=1000)


def documents(encoded: Path, end: int, dtype: np.dtype) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ids of documents, each with the end token `end`, and their lengths, from shards of `corpus.encode`."""
    data = pyarrow.dataset.dataset(encoded / "data")
    for batch in data.to_batches(columns=["input_ids"]):
        rows = batch["input_ids"]
        lengths = np.diff(rows.offsets)
        ids = np.insert(rows.flatten().to_numpy(), np.cumsum(lengths), end)
        yield ids.astype(dtype), lengths + 1


def write(source: Path, tokenizer: PreTrainedTokenizerBase, folder: Path) -> tuple[np.dtype, int]:
    """Encode a text file, a document a line, and write the three files; return the dtype of ids and the token count."""
    if tokenizer.eos_token_id is None:
        raise SystemExit("the tokenizer has no end token: set tokenizer.eos_token")
    tokenizer.model_max_length = 10**30  # no truncation, even beyond the limit of a model
    corpus.encode(str(source), tokenizer, folder / "documents", add_special_tokens=False, workers=0)
    largest = max(tokenizer.get_vocab().values())  # not len(tokenizer): some ids may be left out
    dtype = np.dtype(np.uint16 if largest < 65_500 else np.int32)

    counts = [np.zeros(0, np.int64)]
    with (folder / "megatron.bin").open("wb") as file:
        for ids, lengths in documents(folder / "documents", tokenizer.eos_token_id, dtype):
            file.write(ids)
            counts.append(lengths)
    lengths = np.concatenate(counts)
    starts = np.cumsum(lengths) - lengths
    with (folder / "megatron.idx").open("wb") as file:
        file.write(MAGIC)
        file.write(struct.pack("<QBQQ", VERSION, CODES[dtype], len(lengths), len(lengths) + 1))
        file.write(lengths.astype(np.int32))
        file.write(starts.astype(np.int64) * dtype.itemsize)  # in bytes
        file.write(np.arange(len(lengths) + 1, dtype=np.int64))  # each document is one sequence

    with (folder / "train.bin").open("wb") as file:
        for ids, _ in documents(folder / "documents", tokenizer.eos_token_id, dtype):
            file.write(ids)
    return dtype, int(lengths.sum())


def main() -> None:
    """Write the files of the given corpus, or of a small one, and read the first document back."""
    with tempfile.TemporaryDirectory() as temporary:
        if len(sys.argv) > 2:
            source, folder = Path(sys.argv[1]), Path(sys.argv[2])
            folder.mkdir(parents=True, exist_ok=True)
        else:
            source, folder = Path(temporary, "corpus.txt"), Path(temporary)
            lines = (" ".join(text.split()) for text in standard_library_docstrings()[:400])
            source.write_text("\n".join(lines), encoding="utf-8")
        tokenizer = load_tokenizer(source)
        dtype, tokens = write(source, tokenizer, folder)
        print(f"{tokens} tokens of {dtype}")
        first = next(line for line in source.read_text(encoding="utf-8").splitlines() if line.strip())
        ids = [*tokenizer(first, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        read = np.memmap(folder / "train.bin", dtype, mode="r")
        print("the first document is read back:", read[: len(ids)].tolist() == ids)
        print("the files hold the same ids:", (folder / "megatron.bin").read_bytes() == read.tobytes())


if __name__ == "__main__":
    main()

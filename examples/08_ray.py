"""Tokenize a corpus on Ray in two ways: the collator in a Ray Data pipeline, and `encode` with the Ray engine.

The first is for pipelines in which tokenizing is one step of several. The second is for a corpus on disk: it writes
shards and a manifest with their checksums, and continues after an interruption. Its shards are byte-identical to those
of processes of one machine.

Run it with `python examples/08_ray.py`. It needs `pip install "ray[data]"`, downloads nothing, and starts Ray on
this machine. With an address (`python examples/08_ray.py auto`, or `host:6379`) it uses a cluster, and must be run in a
folder that all of its machines share: each of them writes shards. The texts are the docstrings of the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import tempfile
import time
from pathlib import Path

import ray
from datasets import load_dataset
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe
from hf_posenc.corpus import encode, verify
from hf_posenc.testing import standard_library_docstrings

WORKERS = 2


def in_a_pipeline(texts: list[str], collate: DataCollatorWithPositionalEncoding) -> None:
    """Pass the collator to `map_batches`, which calls it with a table and expects a table."""
    rows = ray.data.from_items([{"text": text, "long": len(text) > 80} for text in texts], override_num_blocks=4)
    # With batch_format "numpy" or "pandas", Ray turns lists into tensors of a type that `datasets` does not read.
    rows = rows.map_batches(collate, batch_format="pyarrow", batch_size=500).drop_columns(["text"])
    rows = rows.materialize()
    print("columns:", ", ".join(f"{name} {kind}" for name, kind in zip(*describe(rows), strict=True)))
    print(f"map_batches: {rows.count()} rows, {rows.sum('length'):,} tokens, in {rows.num_blocks()} blocks")


def describe(rows: ray.data.Dataset) -> tuple[list[str], list[str]]:
    """Return the names and types of the columns."""
    schema = rows.schema()
    return schema.names, [str(kind) for kind in schema.types]


def as_a_job(texts: list[str], collate: DataCollatorWithPositionalEncoding, folder: Path) -> None:
    """Encode a file to a folder of shards, on Ray and on this machine alone."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text, "number": i}) + "\n" for i, text in enumerate(texts)))
    sums = {}
    for engine in ("ray", "processes"):
        began = time.perf_counter()
        settings = {"columns": ["number"], "workers": WORKERS, "shards": 6, "progress": False}
        done = encode(corpus, collate, folder / engine, engine=engine, **settings)
        print(
            f"encode, {engine}: {done.totals['documents']} documents, {done.totals['tokens']:,} tokens, "
            f"{len(done.shards)} shards in {time.perf_counter() - began:.0f} s"
        )
        shards = sorted((folder / engine / "data").glob("*.parquet"))
        sums[engine] = [hashlib.sha256(shard.read_bytes()).hexdigest() for shard in shards]
    print("the same bytes from both:", sums["ray"] == sums["processes"])
    print("sound:", verify(folder / "ray") == [])

    rows = load_dataset(str(folder / "ray"), split="train", cache_dir=str(folder / "cache"))
    loader = DataLoader(rows.with_format("numpy"), batch_size=32, shuffle=True, collate_fn=collate)
    print(f"read back: {len(rows)} rows, {', '.join(rows.column_names)}; one of {len(loader)} batches:")
    print(next(iter(loader)))


def main(address: str) -> None:
    texts = standard_library_docstrings()[:4000]
    tokenizer = train_bpe(texts, vocab_size=4000, model_max_length=64, progress=False)
    collate = DataCollatorWithPositionalEncoding(tokenizer)
    where = {"num_cpus": WORKERS, "include_dashboard": False} if address == "local" else {}
    # The engine uses a Ray that is already initialized, and does not shut it down. Otherwise it starts its own.
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **where)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    in_a_pipeline(texts, collate)
    with tempfile.TemporaryDirectory(dir=None if address == "local" else Path.cwd()) as folder:
        as_a_job(texts, collate, Path(folder))
    ray.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?", default="local", help="of a Ray cluster; by default Ray starts here")
    main(parser.parse_args().address)

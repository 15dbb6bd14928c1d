"""Compare the package with its peers: `python -m tests.programs.benchmarks [STAGE ...]`, fifteen minutes on two cores.

Each stage compares the outputs first, and ends the run if they differ. Then the contenders take turns. A table shows
the median CPU time on one core, and the speed beside the first contender: median over the rounds, least and largest.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import torch
import transformers

from . import corpora, encoder, encoding, masks, once, plans, rows, text
from .measuring import Case, draw, markdown, recorded, replace_tables

STAGES: dict[str, Callable[[int], Iterator[Case]]] = {
    "Text": text.run,  # first, because it forks
    "Rows": rows.from_rows,
    "Data sets": rows.from_data_set,
    "Corpora": corpora.run,
    "Embeddings": rows.embeddings,
    "Tables": encoding.tables,
    "Sums": encoding.sums,
    "Masks": masks.run,
    "Once": once.run,
    "Plans": plans.run,
    "Encoder": encoder.run,
}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"
# Comparisons that are printed, and not written into the page's tables.
LEFT_OUT = re.compile("first pass|^`out=`|^compiled")
# The bars of the picture: label, peer, comparison, contender.
BARS = (
    ("BERT: texts to a batch", "tokenizer(...)", "BERT, later passes", "hf_posenc"),
    ("byte-level BPE: texts to a batch", "tokenizer(...)", "byte-level BPE, later passes", "hf_posenc"),
    ("SentencePiece-BPE: texts to a batch", "tokenizer(...)", "SentencePiece-BPE, later passes", "hf_posenc"),
    ("rows of ids to a batch", "DataCollatorWithPadding", "NumPy rows of ids", "hf_posenc"),
    ("data set to batches", "DataCollatorWithPadding", "data set with input_ids", "hf_posenc, `with_arrow_batches`"),
    ("texts to embeddings", "tokenizer(...), table, sum", "texts to embeddings", "`collate.embed(...)`"),
    ("groups of eight answers", "stock model", "LlamaForCausalLM, groups of 8", "`compute_once`"),
)


def for_page(found: Mapping[str, Sequence[Case]]) -> dict[str, list[Case]]:
    """Return the comparisons that the page shows."""
    return {name: [case for case in cases if not LEFT_OUT.search(case.name)] for name, cases in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = {name.lower().replace(" ", "-"): name for name in STAGES}
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(names)}; by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, without spread")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the tables into docs/benchmarks.md")
    parser.add_argument("--picture", type=Path, help="only draw speeds of docs/benchmarks.md into this file")
    given = parser.parse_args()
    chosen = given.stages or list(names)
    if unknown := set(chosen) - set(names):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    if given.picture:
        page = PAGE.read_text(encoding="utf-8")
        draw([(label, peer, recorded(page, case, ours)) for label, peer, case, ours in BARS], given.picture)
        return
    warnings.simplefilter("ignore")  # texts that are truncated, and the slow pad of a fast tokenizer
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, transformers {transformers.__version__}")
    found: dict[str, list[Case]] = {}
    for name in (name for key, name in names.items() if key in chosen):
        found[name] = list(STAGES[name](1 if given.quick else given.rounds))
        print(f"\n## {name}\n\n{markdown(found[name])}", flush=True)
    print("On a GPU: not measured.")
    if given.markdown:
        page = given.markdown.read_text(encoding="utf-8")
        given.markdown.write_text(replace_tables(page, for_page(found)), encoding="utf-8")


if __name__ == "__main__":
    main()

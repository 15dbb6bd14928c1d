"""Train small models on batches that were planned in different ways: `python -m tests.programs.benchmarks.learning`.

A plan says which documents share an optimizer step, and in which order. Every plan has each document once in an epoch
and nearly the same number of tokens in a step; learning rate, first weights and the masked tokens of a document are
the same. The gradient of a step is that of the mean over all its labels, whatever its rows would be: each document is
computed alone, without padding or neighbors. So models differ only by the plan.

Two corpora: docstrings of the standard library, and sentences from twelve templates, each of another length, so that
the length of a sentence tells its content. The score is the mean loss over all labels of 500 documents that were not
trained on, with one standard deviation over the seeds. All runs take two to three hours of CPU time. `--corpus`,
`--labels`, `--plans` and `--seeds` select some, and `--results FILE` keeps finished runs.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch.utils.data import BatchSampler
from transformers import trainer_pt_utils

from hf_posenc import DataCollatorWithPositionalEncoding as Collator
from hf_posenc import pack, plan_batches, train_bpe
from hf_posenc.packing import PackingPlan

from .measuring import docstrings

HELD_OUT, LONGEST, WIDTH, RATE = 500, 256, 64, 2e-3
BUDGETS = {"docstrings": 2_048, "templates": 256}  # tokens in a step
EPOCHS = {"docstrings": 2, "templates": 1}
AT_ONCE = 4_096  # tokens computed at once, with padding
Lengths = NDArray[np.int64]
Plan = list[list[int]]  # the documents of each step


def templates() -> list[str]:
    """Return 3,000 sentences of 4, 6, ... 26 words; a template fixes all words but a quarter."""
    chance, letters, sentences = np.random.default_rng(0), string.ascii_lowercase, []
    for kind in chance.integers(12, size=3_000):
        words = [letters[kind] + letter for letter in letters[: 4 + 2 * kind]]
        for place in chance.choice(len(words), len(words) // 4, replace=False):
            words[place] = "z" + letters[chance.integers(26)]
        sentences.append(" ".join(words))
    return sentences


@functools.cache
def read(corpus: str) -> tuple[Any, list[list[int]]]:
    """Return a tokenizer, and the ids of the documents of a corpus in random order."""
    texts = templates() if corpus == "templates" else docstrings()
    texts = [texts[index] for index in np.random.default_rng(0).permutation(len(texts))]
    tokenizer = train_bpe(texts[HELD_OUT:], 2_000, model_max_length=LONGEST, progress=False)
    return tokenizer, tokenizer(texts, truncation=True)["input_ids"]


# --------------------------------------------------------------------------------------------------------------- plans


def of_tokens(lengths: Lengths, budget: int, seed: int) -> Plan:
    """Fill each step with random documents, up to the budget."""
    steps: Plan = [[]]
    for document in np.random.default_rng(seed).permutation(len(lengths)).tolist():
        if lengths[steps[-1]].sum() + lengths[document] > budget:
            steps.append([])
        steps[-1].append(document)
    return steps


def rows_a_step(lengths: Lengths, budget: int) -> int:
    return len(lengths) // -(-int(lengths.sum()) // budget)


def of_rows(lengths: Lengths, budget: int, seed: int) -> Plan:
    """Put the same number of random documents into each step."""
    order, rows = np.random.default_rng(seed).permutation(len(lengths)).tolist(), rows_a_step(lengths, budget)
    return [order[begin : begin + rows] for begin in range(0, len(order), rows)]


def grouped(lengths: Lengths, budget: int, seed: int) -> Plan:
    """Return the steps of `group_by_length=True` of Trainer."""
    torch.manual_seed(seed)
    rows = rows_a_step(lengths, budget)
    return list(BatchSampler(trainer_pt_utils.LengthGroupedSampler(rows, lengths=lengths.tolist()), rows, False))


def planned(lengths: Lengths, budget: int, seed: int, **settings: Any) -> Plan:
    return [batch.tolist() for batch in plan_batches(lengths, budget, seed=seed, **settings)]


def by_four(batches: Plan) -> Plan:
    return [list(itertools.chain(*batches[begin : begin + 4])) for begin in range(0, len(batches), 4)]


def packed(lengths: Lengths, budget: int, seed: int | None) -> Plan:
    plan: PackingPlan = pack(lengths, budget, seed=seed)
    return [row.tolist() for row in plan]


PLANS: dict[str, Callable[[Lengths, int, int], Plan]] = {
    "random documents, up to the budget": of_tokens,
    "`plan_batches`": planned,
    "`plan_batches`, four batches a step": lambda lengths, budget, seed: by_four(
        planned(lengths, budget // 4, seed, world_size=4)
    ),
    "`pack(seed=None)`": lambda lengths, budget, seed: packed(lengths, budget, None),
    "`pack`, four rows a step": lambda lengths, budget, seed: by_four(packed(lengths, budget // 4, seed)),
    "random documents, as many in each step": of_rows,
    "`group_by_length` of Trainer": grouped,
}

# ------------------------------------------------------------------------------------------------------------- training


def made(labels: str, ids: int) -> Any:
    """Return a GPT-2 or BERT of two layers, without dropout."""
    if labels == "causal_lm":
        sizes = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": LONGEST}
        off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=ids, **sizes, **off))
    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": LONGEST}
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=ids, **sizes, **off))


def loss_of(model: Any, collate: Collator, rows: Sequence[list[int]], is_causal: bool) -> torch.Tensor:
    """Return the sum of the loss over the labels of some documents, and the number of labels: `(2,)`."""
    batch = collate([{"input_ids": row} for row in rows])
    labels = batch.pop("labels")
    logits = model(**batch).logits
    if is_causal:
        logits, labels = logits[:, :-1], labels[:, 1:]
    total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return torch.stack([total, (labels != -100).sum()])


def score(
    corpus: str, labels: str, plan: str, seed: int, *, change: Callable[[Any], Any] | None = None, rate: float = RATE
) -> float:
    """Train one model, first passed to `change`; return its mean loss over the labels of documents held out."""
    tokenizer, documents = read(corpus)
    held_out, documents = documents[:HELD_OUT], documents[HELD_OUT:]
    lengths = np.array([len(row) for row in documents])
    torch.manual_seed(seed)
    model, is_causal = made(labels, len(tokenizer)), labels == "causal_lm"
    if change is not None:
        change(model)
    collate = Collator(tokenizer, model=model, labels=labels, seed=0, on_no_labels="keep")
    steps = [
        step for epoch in range(EPOCHS[corpus]) for step in PLANS[plan](lengths, BUDGETS[corpus], 100 * epoch + seed)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    warm = len(steps) // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (len(steps) - step) / (len(steps) - warm))
    )
    for step in steps:
        count = torch.zeros(())
        # The gradient of a sum over all parts; divided by the number of labels of the step afterwards.
        for part in planned(lengths[step], AT_ONCE, 0):
            total, number = loss_of(model, collate, [documents[step[index]] for index in part], is_causal)
            total.backward()
            count += number.detach()
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad /= count.clamp(min=1)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        parts = planned(np.array([len(row) for row in held_out]), AT_ONCE, 0)
        total, number = sum(loss_of(model, collate, [held_out[index] for index in part], is_causal) for part in parts)
    return round(float(total / number), 4)


def figures(corpus: str, plan: str) -> tuple[float, float]:
    """Return the tokens of a step, and the share of padding if it is one padded batch, four, or one packed row."""
    lengths = np.array([len(row) for row in read(corpus)[1][HELD_OUT:]])
    steps = PLANS[plan](lengths, BUDGETS[corpus], 0)
    places = sum(int(lengths[step].max()) * len(step) for step in steps)
    if "pack" in plan:
        return lengths.sum() / len(steps), 0.0
    if "four" in plan:
        return lengths.sum() / len(steps), 1 - plan_batches(lengths, BUDGETS[corpus] // 4, world_size=4).utilisation
    return lengths.sum() / len(steps), 1 - lengths.sum() / places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="*", default=list(BUDGETS), choices=BUDGETS)
    parser.add_argument("--labels", nargs="*", default=["causal_lm", "masked_lm"])
    parser.add_argument("--plans", nargs="*", type=int, default=list(range(len(PLANS))), help="numbers of plans")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, help="JSON lines of finished runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    names = [list(PLANS)[number] for number in given.plans]
    lines = given.results.read_text().splitlines() if given.results and given.results.exists() else []
    found = {tuple(run): loss for *run, loss in map(json.loads, lines)}
    for seed, corpus, labels, plan in itertools.product(given.seeds, given.corpus, given.labels, names):
        run = (corpus, labels, plan, seed)
        if run not in found:
            found[run] = score(*run)
            print(*run, found[run], flush=True)
            if given.results:
                with given.results.open("a") as file:
                    file.write(json.dumps([*run, found[run]]) + "\n")
    for corpus in given.corpus:
        print(f"\n| {corpus}: documents of a step | tokens | padding |", " | ".join(given.labels), "|")
        print("|---|---:|---:|" + "---|" * len(given.labels))
        for plan in names:
            tokens, padding = figures(corpus, plan)
            cells = [plan, f"{tokens:,.0f}", f"{100 * padding:.1f} %"]
            for labels in given.labels:
                losses = [found[corpus, labels, plan, seed] for seed in given.seeds]
                cells.append(f"{np.mean(losses):.2f} ± {np.std(losses, ddof=1):.2f}")
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

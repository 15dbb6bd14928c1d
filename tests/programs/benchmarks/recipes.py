"""Train and compare models with learned, sinusoidal and no positions: `python -m tests.programs.benchmarks.recipes`.

Five families, each with two layers and the initialization of its Hugging Face class: BERT, RoBERTa, GPT-2, OPT and
BART. A task gives a source of letters and marks, and an answer. Encoders read the source and answer at `[MASK]` tokens
behind it, causal models continue the source, and BART reads it with its encoder.

From the same weights and on the same batches, a model is trained with its learned positions (stock), without positions
(none), and with `use_sinusoidal_positions(model)` (default) or `recipe="paper"`. The score is the share of tokens of
the answers that it gets right in held-out rows at the end of training.

The protocol, written before the first comparison:

- The recipe was chosen on the tasks `CHOOSE`, at width 64, among at most three candidates for a family, with two seeds
  and the best of them with three. The tasks `TEST` are run once, with the chosen recipe: at width 64 with five seeds,
  and at width 128 with two seeds for GPT-2, OPT and BART. The paper's recipe is run with BERT only.
- The learning rate of each family and arm is the better of `RATES` on "copy" and "every second" at width 64, one seed.
  Width 128 uses half of it. A candidate uses the rate of the default.
- A task counts for a family and a width if stock beats none by 0.10. The margin is the standard deviation of stock over
  the seeds, at least 0.02. A recipe is as good as stock if its mean is at least the mean of stock less the margin.

Finished runs are kept as JSON lines in tests/data/recipes.jsonl, or `--results FILE`: a call trains what is missing.
Two calls with `--part 0/2` and `--part 1/2` share the work. All runs take about an hour of CPU time. `--write` replaces
the table of docs/models.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from hf_posenc import use_sinusoidal_positions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"
RESULTS = Path(__file__).resolve().parents[2] / "data" / "recipes.jsonl"
Rows = dict[str, torch.Tensor]
Letters = NDArray[np.int64]

PAD, BEGIN, END, GAP, MASK, FIRST = range(6)  # ids; the letters begin at FIRST
LETTERS, MARKS, VOCABULARY = 6, (17, 18), 20
POSITIONS = 64
TRAIN, HELD_OUT, STEPS, BATCH = 4000, 300, 600, 32
# The rates to choose from, and the chosen ones at width 64 for none, stock and the recipes.
RATES = (1e-3, 3e-3)
CHOSEN_RATES = {
    "bert": (1e-3, 1e-3, 1e-3),
    "roberta": (1e-3, 1e-3, 3e-3),
    "gpt2": (1e-3, 3e-3, 3e-3),
    "opt": (1e-3, 1e-3, 3e-3),
    "bart": (1e-3, 1e-3, 1e-3),
}
CHOOSE = ("copy", "backwards", "every second", "first mark")
TEST = ("halves", "between marks", "neighbors", "depth")

# ---------------------------------------------------------------------------------------------------------------- tasks


def letters(chance: np.random.Generator, count: int) -> Letters:
    return FIRST + chance.integers(LETTERS, size=count)


def first_mark(chance: np.random.Generator) -> tuple[Letters, Letters]:
    """Name the first of two different marks in a row of ten tokens."""
    source = letters(chance, 10)
    source[chance.choice(10, 2, replace=False)] = MARKS
    return source, source[source >= MARKS[0]][:1]


def halves(chance: np.random.Generator) -> tuple[Letters, Letters]:
    """Write the second half of a row, then the first."""
    half = int(chance.integers(3, 6))
    source = letters(chance, 2 * half)
    return source, np.roll(source, half)


def between_marks(chance: np.random.Generator) -> tuple[Letters, Letters]:
    """Write the two to four letters that stand between two marks."""
    before, inside, after = chance.integers(0, 5), chance.integers(2, 5), chance.integers(0, 5)
    answer = letters(chance, inside)
    parts = [letters(chance, before), MARKS[:1], answer, MARKS[1:], letters(chance, after)]
    return np.concatenate(parts), answer


def neighbors(chance: np.random.Generator) -> tuple[Letters, Letters]:
    """Write a row in which each two letters change places."""
    source = letters(chance, 2 * int(chance.integers(3, 6)))
    return source, source.reshape(-1, 2)[:, ::-1].reshape(-1)


def depth(chance: np.random.Generator) -> tuple[Letters, Letters]:
    """Count the open brackets at each of eight brackets; a bracket may close one that was not opened."""
    steps = chance.choice([1, -1], 8)
    return np.where(steps > 0, *MARKS), FIRST + np.abs(np.cumsum(steps))


def of_letters(change: Callable[[Letters], Letters]) -> Callable[[np.random.Generator], tuple[Letters, Letters]]:
    """Return a task with five to ten letters, and `change` of them as the answer."""

    def task(chance: np.random.Generator) -> tuple[Letters, Letters]:
        source = letters(chance, int(chance.integers(5, 11)))
        return source, change(source)

    return task


TASKS = {
    "copy": of_letters(lambda source: source),
    "backwards": of_letters(lambda source: source[::-1]),
    "every second": of_letters(lambda source: source[::2]),
    "first mark": first_mark,
    "halves": halves,
    "between marks": between_marks,
    "neighbors": neighbors,
    "depth": depth,
}


def rows(task: str, family: str, count: int, seed: int) -> Rows:
    """Return `count` rows of a task in the form of a family, padded right."""
    chance, ids, labels = np.random.default_rng(seed), [], []
    for _ in range(count):
        source, answer = (each.tolist() for each in TASKS[task](chance))
        if family == "bart":
            ids.append([*source, END])
            labels.append([*answer, END])
        else:
            shown = [MASK] * len(answer) if family in ("bert", "roberta") else answer
            ids.append([BEGIN, *source, GAP, *shown])
            labels.append([-100] * (len(source) + 2) + answer)

    def padded(rows: list[list[int]], value: int) -> torch.Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [value] * (width - len(row)) for row in rows])

    mask = padded([[1] * len(row) for row in ids], 0)
    return {"input_ids": padded(ids, PAD), "attention_mask": mask, "labels": padded(labels, -100)}


# --------------------------------------------------------------------------------------------------------------- models


def made(family: str, width: int) -> Any:
    """Return a model of two layers (BART: on either side), without dropout."""
    heads, inner = width // 16, 2 * width
    ids = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
    if family in ("bert", "roberta"):
        classes = {
            "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
            "roberta": (transformers.RobertaConfig, transformers.RobertaForMaskedLM),
        }
        sizes = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": heads, "intermediate_size": inner}
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config, model = classes[family]
        return model(config(max_position_embeddings=POSITIONS, **sizes, **off, **ids))
    if family == "gpt2":
        sizes = {"n_embd": width, "n_layer": 2, "n_head": heads, "n_inner": inner, "n_positions": POSITIONS}
        off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **off, **ids))
    off = {"dropout": 0.0, "attention_dropout": 0.0, "max_position_embeddings": POSITIONS}
    if family == "opt":
        sizes = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": heads, "ffn_dim": inner}
        return transformers.OPTForCausalLM(transformers.OPTConfig(word_embed_proj_dim=width, **sizes, **off, **ids))
    sizes = {"d_model": width, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": inner}
    sizes |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "decoder_ffn_dim": inner}
    off |= {"decoder_start_token_id": END, "forced_eos_token_id": None}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes, **off, **ids))


def position_tables(model: Any) -> list[torch.nn.Parameter]:
    names = ("position_embeddings.weight", "wpe.weight", "embed_positions.weight")
    return [parameter for name, parameter in model.named_parameters() if name.endswith(names)]


def without_positions(model: Any) -> None:
    for table in position_tables(model):
        torch.nn.init.zeros_(table).requires_grad_(False)


ARMS: dict[str, Callable[[Any], Any]] = {
    "none": without_positions,
    "stock": lambda model: None,
    "default": use_sinusoidal_positions,
    "paper": lambda model: use_sinusoidal_positions(model, recipe="paper"),
}

# ------------------------------------------------------------------------------------------------------------- training


def score(family: str, task: str, width: int, arm: str, seed: int, rate: float) -> float:
    """Train one model and return the share of right tokens in the answers to held-out rows."""
    train, test = rows(task, family, TRAIN, 1), rows(task, family, HELD_OUT, 2)
    torch.manual_seed(seed)
    model = made(family, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of families and recipes that learn late
        ARMS[arm](model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    warm = STEPS // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (STEPS - step) / (STEPS - warm))
    )
    chance, order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
    for _ in range(STEPS):
        if len(order) < BATCH:
            order = torch.randperm(TRAIN, generator=chance)
        model(**{name: each[order[:BATCH]] for name, each in train.items()}).loss.backward()
        order = order[BATCH:]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    with torch.no_grad():
        best, labels = model(**test).logits.argmax(-1), test["labels"]
    if family in ("gpt2", "opt"):
        best, labels = best[:, :-1], labels[:, 1:]
    return round(float((best == labels)[labels != -100].float().mean()), 4)


# ------------------------------------------------------------------------------------------------------- runs and table

Run = tuple[str, str, int, str, int]  # family, task, width, arm, seed


def runs() -> list[Run]:
    """Return all runs of the test, the smaller models and the first seeds first."""
    small = [
        (*each, seed) for seed in range(5) for each in itertools.product(CHOSEN_RATES, TEST, (64,), list(ARMS)[:3])
    ]
    paper = [("bert", task, 64, "paper", seed) for task in TEST for seed in range(2)]
    wide = itertools.product(("gpt2", "opt", "bart"), TEST, (128,), list(ARMS)[:3], range(2))
    return [*small, *paper, *wide]


def table(found: dict[Run, float]) -> str:
    """Return the Markdown table of docs/models.md: means and standard deviations over the seeds, and the verdict."""
    lines = ["| family, task, width | none | learned | default | paper | default is |", "|---|---|---|---|---|---|"]
    for family, width, task in itertools.product(CHOSEN_RATES, (64, 128), TEST):
        values = {arm: [found[run] for run in found if run[:4] == (family, task, width, arm)] for arm in ARMS}
        if not (values["none"] and values["stock"] and values["default"]):
            continue
        means = {arm: float(np.mean(each)) for arm, each in values.items() if each}
        margin = max(0.02, float(np.std(values["stock"], ddof=1)))
        verdict = "better" if means["default"] > means["stock"] + margin else "as good"
        if means["default"] < means["stock"] - margin:
            verdict = "worse" if means["default"] >= means["none"] - margin else "worse than none"
        if means["stock"] < means["none"] + 0.1:
            verdict = f"({verdict})"
        cells = [f"{means[arm]:.2f} ± {np.std(values[arm], ddof=1):.2f}" if arm in means else "" for arm in ARMS]
        lines.append(f"| {family}, {task}, {width} | {' | '.join(cells)} | {verdict} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines of finished runs")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth run, from the Kth")
    parser.add_argument("--write", action="store_true", help="replace the table of docs/models.md")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    found: dict[Run, float] = {tuple(run): value for *run, value in map(json.loads, lines)}  # type: ignore[misc]
    part, parts = map(int, given.part.split("/"))
    for run in runs()[part::parts]:
        if run not in found:
            family, _, width, arm, _ = run
            rate = CHOSEN_RATES[family][min(list(ARMS).index(arm), 2)] / (width // 64)
            found[run] = score(*run, rate)
            with given.results.open("a") as file:
                file.write(json.dumps([*run, found[run]]) + "\n")
    print(table(found), end="")
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        start = text.index("| family, task, width |")
        PAGE.write_text(text[:start] + table(found) + text[text.index("\n\n", start) + 1 :], encoding="utf-8")


if __name__ == "__main__":
    main()

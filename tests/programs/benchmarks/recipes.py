"""Train and compare models with learned, sinusoidal and no positions: `python -m tests.programs.benchmarks.recipes`.

Five families, each with two layers and the initialization of its Hugging Face class: BERT, RoBERTa, GPT-2, OPT and
BART. A task gives a source of letters and marks, and an answer. Encoders read the source and answer at `[MASK]` tokens
behind it, causal models continue the source, and BART reads it with its encoder.

From the same weights and on the same batches, a model is trained with its learned positions (stock), without positions
(none), and with `use_sinusoidal_positions(model)` (default) or `recipe="paper"`. The score is the share of tokens of
the answers that it gets right in held-out rows, after each tenth of the training.

The protocol, written before the first run:

- The recipe was chosen on four other tasks: all letters, backwards, every second one, and the first of two marks. The
  tasks `TEST` are run with the chosen recipe: at width 64, and at width 128 for GPT-2 and OPT.
- Each arm has the better rate of `RATES` in each cell (family, task and width), by one run with a seed that is not
  reported: the rate with the higher score at the end, then with the higher mean of the ten scores. The row of "none"
  is the better one of these two runs. The paper's recipe is run with BERT, one seed and the rate of the default.
- A cell is reported as the difference default less stock, paired by seed, with its 95 % interval over five seeds.
  "Better" is an interval above 0, "worse" one below 0, "as good" one above -0.05, anything else "not decided". A cell
  counts if stock beats none by 0.10.
- With `--text`, a GPT-2 without, with learned and with default positions models docstrings as in `benchmarks.learning`,
  each with the better rate of `RATES` and three seeds: 15 runs of two to three minutes.

452 runs, about two hours of CPU time. Finished ones are kept as JSON lines in tests/data/recipes.jsonl, or
`--results FILE`: a call trains what is missing. `--write`
replaces the table of docs/models.md, its picture of the scores during training, and the sentence of README.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hf_posenc import use_sinusoidal_positions

from . import learning

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tests" / "data" / "recipes.jsonl"
Rows = dict[str, torch.Tensor]
Letters = NDArray[np.int64]

PAD, BEGIN, END, GAP, MASK, FIRST = range(6)  # ids; the letters begin at FIRST
LETTERS, MARKS, VOCABULARY = 6, (17, 18), 20
POSITIONS = 64
TRAIN, HELD_OUT, STEPS, BATCH = 4000, 300, 600, 32
RATES = (1e-3, 3e-3)
SEEDS, CHOOSING_SEED = range(5), 100
T95 = 2.776  # the 97.5 % quantile of Student's t with four degrees of freedom: five differences
FAMILIES = ("bert", "roberta", "gpt2", "opt", "bart")
TEST = ("halves", "between marks", "neighbors", "depth")

# ---------------------------------------------------------------------------------------------------------------- tasks


def letters(chance: np.random.Generator, count: int) -> Letters:
    return FIRST + chance.integers(LETTERS, size=count)


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


def every_second(chance: np.random.Generator) -> tuple[Letters, Letters]:
    """Write every second one of five to ten letters."""
    source = letters(chance, int(chance.integers(5, 11)))
    return source, source[::2]


TASKS = {
    "every second": every_second,
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


def scores(family: str, task: str, width: int, arm: str, rate: float, steps: int, seed: int) -> list[float]:
    """Train one model; return the share of right tokens in answers to held-out rows, after each tenth of the steps."""
    train, test = rows(task, family, TRAIN, 1), rows(task, family, HELD_OUT, 2 + seed)
    torch.manual_seed(seed)
    model = made(family, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of families and recipes that learn late
        ARMS[arm](model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0, fused=True)
    warm = steps // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / (steps - warm))
    )
    chance, order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
    shares = []
    for step in range(1, steps + 1):
        if len(order) < BATCH:
            order = torch.randperm(TRAIN, generator=chance)
        model(**{name: tensor[order[:BATCH]] for name, tensor in train.items()}).loss.backward()
        order = order[BATCH:]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step * 10 % steps == 0:
            with torch.no_grad():
                best, labels = model(**test).logits.argmax(-1), test["labels"]
            if family in ("gpt2", "opt"):
                best, labels = best[:, :-1], labels[:, 1:]
            shares.append(round(float((best == labels)[labels != -100].float().mean()), 4))
    return shares


# ------------------------------------------------------------------------------------------------------- runs and table

Cell = tuple[str, str, int]  # family, task, width
Run = tuple[str, str, int, str, float, int, int]  # a cell, then arm, learning rate, steps and seed
Results = dict[Run, list[float]]
CELLS: list[Cell] = [
    *((family, task, 64) for family in FAMILIES for task in TEST),
    *((family, task, 128) for family in ("gpt2", "opt") for task in TEST),
]


# A GPT-2 on docstrings of the standard library; the score is minus the mean loss of a held-out token.
TEXT: Cell = ("gpt2", "docstrings", 64)


def train_on_text(arm: str, rate: float, seed: int) -> list[float]:
    """Train a GPT-2 on docstrings for two epochs, and return minus its loss."""
    plan = "random documents, up to the budget"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [-learning.score("docstrings", "causal_lm", plan, seed, change=ARMS[arm], rate=rate)]


def read(path: Path) -> Results:
    """Return the scores of the finished runs of a file of JSON lines."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {tuple(run): values for *run, values in map(json.loads, lines)}  # type: ignore[misc]


def chosen_rate(results: Results, cell: Cell, arm: str) -> float:
    """Return the learning rate with the higher score at the end, then the higher mean of the scores."""

    def quality(rate: float) -> tuple[float, float]:
        shares = results[(*cell, arm, rate, STEPS, CHOOSING_SEED)]
        return shares[-1], sum(shares)

    return max(RATES, key=quality)


def verdict(stock: NDArray[np.float64], default: NDArray[np.float64]) -> tuple[float, float, str]:
    """Return the mean of the paired differences, half the width of its 95 % interval, and the verdict."""
    differences = default - stock
    mean = float(differences.mean())
    half = T95 * float(differences.std(ddof=1)) / len(differences) ** 0.5
    if mean - half > 0:
        return mean, half, "better"
    if mean + half < 0:
        return mean, half, "worse"
    return mean, half, "as good" if mean - half > -0.05 else "not decided"


def at_the_end(results: Results, cell: Cell, arm: str) -> NDArray[np.float64]:
    """Return the last scores of an arm, one a seed, at its rate."""
    rate = chosen_rate(results, cell, arm)
    runs = ((*cell, arm, rate, STEPS, seed) for seed in SEEDS)
    return np.array([results[run][-1] for run in runs if run in results])


def learned_gain(results: Results, cell: Cell) -> tuple[float, bool]:
    """Return the score without positions, and if learned positions beat it by 0.10."""
    none = results[(*cell, "none", chosen_rate(results, cell, "none"), STEPS, CHOOSING_SEED)][-1]
    return none, at_the_end(results, cell, "stock").mean() >= none + 0.1


def table(results: Results) -> str:
    """Return the Markdown table of the comparison, a row for each family and width: scores of both, and verdicts."""
    lines = [f"| family, width | {' | '.join(TEST)} |", "|---" * (len(TEST) + 1) + "|"]
    for family, width in dict.fromkeys((family, width) for family, _, width in CELLS):
        cells = []
        for cell in ((family, task, width) for task in TEST):
            stock, default = at_the_end(results, cell, "stock"), at_the_end(results, cell, "default")
            word = verdict(stock, default)[2]
            shown = word if learned_gain(results, cell)[1] else f"({word})"
            cells.append(f"{stock.mean():.2f}, {default.mean():.2f}: {shown}")
        lines.append(f"| {family}, {width} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def curves(results: Results) -> Figure:
    """Draw the scores at width 64 during training, a panel for each family and task: thin seeds, thick means."""
    figure = Figure(figsize=(9, 8), dpi=110, layout="constrained")
    panels = figure.subplots(len(FAMILIES), len(TEST), sharex=True, sharey=True)
    steps = np.arange(1, 11) * STEPS // 10
    for (line, family), (column, task) in itertools.product(enumerate(FAMILIES), enumerate(TEST)):
        ax = panels[line, column]
        for arm, color, name in (("stock", "#e69f00", "learned positions"), ("default", "#0072b2", "default recipe")):
            rate = chosen_rate(results, (family, task, 64), arm)
            seeds = np.array([results[(family, task, 64, arm, rate, STEPS, seed)] for seed in SEEDS])
            ax.plot(steps, seeds.T, color=color, linewidth=0.6, alpha=0.5)
            ax.plot(steps, seeds.mean(axis=0), color=color, linewidth=2, label=name)
        ax.set_ylim(0, 1.03)
        ax.set_title(f"{family}, {task}", fontsize=9, loc="left")
    figure.supxlabel("training step", fontsize=9)
    figure.supylabel("share of right letters, held-out rows", fontsize=9)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=2, fontsize=9, frameon=False)
    return figure


def text_table(results: Results) -> str:
    """Return the Markdown table of the GPT-2 that was trained on docstrings."""
    lines = ["| GPT-2 on docstrings | learning rate | held-out loss |", "|---|---|---|"]
    for arm, name in (("none", "none"), ("stock", "learned"), ("default", "default")):
        losses = -at_the_end(results, TEXT, arm)
        rate = f"{chosen_rate(results, TEXT, arm):.0e}".replace("e-0", "e-")
        lines.append(f"| {name} | {rate} | {losses.mean():.2f} ± {losses.std(ddof=1):.2f} |")
    return "\n".join(lines) + "\n"


def summary(results: Results) -> str:
    """Return the sentence of README.md on the cells that count."""
    words = [
        verdict(at_the_end(results, cell, "stock"), at_the_end(results, cell, "default"))[2]
        for cell in CELLS
        if learned_gain(results, cell)[1]
    ]
    return (
        f"In {len(words)} comparisons with learned positions (small models of five families, held-out tasks), these "
        f"sinusoids were better in {words.count('better')},\nas good in {words.count('as good')} and worse in "
        f"{words.count('worse')}; {words.count('not decided')} are not decided\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines of finished runs")
    parser.add_argument("--text", action="store_true", help="train on docstrings instead, and print that table")
    parser.add_argument("--write", action="store_true", help="replace docs/models.md's table and README's sentence")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    results = read(arguments.results)

    def train(run: Run) -> None:
        if run not in results:
            _, _, _, arm, rate, _, seed = run
            results[run] = train_on_text(arm, rate, seed) if run[:3] == TEXT else scores(*run)
            with arguments.results.open("a") as file:
                file.write(json.dumps([*run, results[run]]) + "\n")

    for cell in [TEXT] if arguments.text else CELLS:
        for arm, rate in itertools.product(("none", "stock", "default"), RATES):
            train((*cell, arm, rate, STEPS, CHOOSING_SEED))
        if cell == TEXT:
            arms, seeds = ("none", "stock", "default"), SEEDS[:3]
        else:
            arms, seeds = ("stock", "default"), SEEDS
        for seed, arm in itertools.product(seeds, arms):
            train((*cell, arm, chosen_rate(results, cell, arm), STEPS, seed))
        if cell[0] == "bert":
            train((*cell, "paper", chosen_rate(results, cell, "default"), STEPS, 0))
    if arguments.text:
        print(text_table(results), end="")
        return
    markdown = table(results)
    print(markdown, summary(results), sep="\n")
    if arguments.write:
        text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
        begin = text.index(markdown.splitlines()[0])
        text = text[:begin] + markdown + text[text.index("\n\n", begin) + 1 :]
        (ROOT / "docs" / "models.md").write_text(text, encoding="utf-8")
        curves(results).savefig(ROOT / "docs" / "recipes.png")
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"In \d+ comparisons .*? are not decided\n", summary(results), text, flags=re.DOTALL)
        (ROOT / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

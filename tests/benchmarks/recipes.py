"""Train small models with learned, sinusoidal and no positions, and compare: `python -m tests.benchmarks.recipes`.

Every model is a Hugging Face class with its own initialization. Per task, width and seed it is trained with its learned
positions (stock), with `use_sinusoidal_positions(model)` (matched), with `recipe="paper"`, and with positions of zero
(none): from the same weights, on the same batches, with AdamW. A run's score is its mean over eight evaluations on
held-out rows: accuracy, or minus the loss for language models. The table shows the scores, and the share of the way
from none to stock that the matched recipe goes, with a 90 % interval (bootstrap over seeds): 1.00 is as good as stock.

No share is shown where learned positions gain nothing in the time.

The recipe was chosen on the first six tasks. "mirror" and "quarter" were written afterwards.

All widths with five seeds take about two hours on one core; `--widths 32` takes fifteen minutes. `--results FILE` keeps
finished runs, so that a second call goes on. `--picture FILE` draws the shares.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from hf_posenc import train_bpe, use_sinusoidal_positions
from hf_posenc.corpus import standard_library_docstrings

ARMS = ("none", "stock", "matched", "paper")
EVALUATIONS = 8
Rows = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """Rows to train and to test on, the model, and the number of steps."""

    train: Rows
    test: Rows
    model: Callable[[int], Any]  # width -> a new model
    steps: int
    batch: int = 32
    mask_id: int | None = None  # of masked language modeling
    vocabulary: int = 0
    is_accuracy: bool = True


def split(rows: Rows, held_out: int) -> tuple[Rows, Rows]:
    """Split rows into those to train on and the last ones, which are held out."""
    return {name: each[:-held_out] for name, each in rows.items()}, {
        name: each[-held_out:] for name, each in rows.items()
    }


def bert(head: str, vocabulary: int, positions: int, labels: int = 2) -> Callable[[int], Any]:
    """Return a function that draws a BERT of two layers."""

    def draw(width: int) -> Any:
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=2,
            num_attention_heads=max(2, width // 16),
            intermediate_size=2 * width if width < 64 else 4 * width,
            max_position_embeddings=positions,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=labels,
        )
        return getattr(transformers, f"BertFor{head}")(config)

    return draw


def bart(vocabulary: int) -> Callable[[int], Any]:
    """Return a function that draws a BART of two layers on either side."""

    def draw(width: int) -> Any:
        heads, config = max(2, width // 16), {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
        config |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "max_position_embeddings": 32}
        config |= {"encoder_ffn_dim": 2 * width, "decoder_ffn_dim": 2 * width, "vocab_size": vocabulary}
        config |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
        return transformers.BartForConditionalGeneration(transformers.BartConfig(d_model=width, **config))

    return draw


def first_of_two() -> Task:
    """Name the first of two people in a sentence of seven tokens."""
    chance = np.random.default_rng(0)
    people, others, rows, labels = 5, 20, [], []
    for _ in range(2200):
        one = chance.choice(people, p=[0.4, 0.15, 0.15, 0.15, 0.15])
        two = chance.choice([each for each in range(people) if each != one])
        words = 4 + people + chance.integers(others, size=5)
        words[np.sort(chance.choice(5, 2, replace=False))] = 4 + one, 4 + two
        rows.append([1, *words, 2])
        labels.append(one)
    train, test = split({"input_ids": torch.tensor(rows), "labels": torch.tensor(labels)}, 600)
    return Task(train, test, bert("SequenceClassification", 4 + people + others, 512, people), steps=500)


def larger_animal() -> Task:
    """Decide whether the first of two animals is the larger one, for pairs that were not trained on."""
    pairs = list(itertools.combinations(range(20), 2))
    random.Random(0).shuffle(pairs)
    rows = [
        ([1, 4, 10 + first, 6 + verb, 4, 10 + second, 5, 2], int(first == large))
        for small, large in reversed(pairs)
        for verb in range(4)
        for first, second in ((large, small), (small, large))
    ]
    ids, labels = (torch.tensor(each) for each in zip(*rows, strict=True))
    train, test = split({"input_ids": ids, "labels": labels}, 40 * 8)
    return Task(train, test, bert("SequenceClassification", 30, 32), steps=300)


@functools.cache
def docstrings(length: int) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """Return docstrings in rows of that many tokens, to train on and held out, the id of [MASK] and the vocabulary."""
    texts = standard_library_docstrings()
    random.Random(0).shuffle(texts)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    tokenizer = train_bpe(texts[400:], vocab_size=400, special_tokens=special, progress=False)
    flat = [
        torch.tensor([id_ for row in tokenizer(part)["input_ids"] for id_ in row])
        for part in (texts[400:], texts[:400])
    ]
    train, test = (ids[: len(ids) // length * length].view(-1, length) for ids in flat)
    return train, test[:256], tokenizer.mask_token_id, len(tokenizer)


def masked_words() -> Task:
    """Masked language modeling of docstrings, in rows of 32 tokens."""
    train, test, mask_id, vocabulary = docstrings(32)
    masked = mask({"input_ids": test}, mask_id, vocabulary, torch.Generator().manual_seed(0))
    draw = bert("MaskedLM", vocabulary, 32)
    return Task({"input_ids": train}, masked, draw, 1200, mask_id=mask_id, vocabulary=vocabulary, is_accuracy=False)


def mask(rows: Rows, mask_id: int, vocabulary: int, chance: torch.Generator) -> Rows:
    """Replace 15 % of the tokens: 80 % of them by [MASK], 10 % by any token."""
    ids = rows["input_ids"].clone()
    chosen, which = torch.rand(ids.shape, generator=chance) < 0.15, torch.rand(ids.shape, generator=chance)
    labels = ids.masked_fill(~chosen, -100)
    ids[chosen & (which < 0.8)] = mask_id
    any_token = torch.randint(vocabulary, ids.shape, generator=chance)
    return {"input_ids": torch.where(chosen & (which >= 0.9), any_token, ids), "labels": labels}


def next_words() -> Task:
    """Causal language modeling of docstrings, in rows of 64 tokens."""
    train, test, _, vocabulary = docstrings(64)

    def draw(width: int) -> Any:
        config = transformers.GPT2Config(
            vocab_size=vocabulary,
            n_embd=width,
            n_layer=2,
            n_head=max(2, width // 32),
            n_positions=64,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
        return transformers.GPT2LMHeadModel(config)

    rows = [{"input_ids": ids, "labels": ids} for ids in (train, test[:128])]
    return Task(*rows, draw, steps=1000, batch=16, is_accuracy=False)


def corners() -> Task:
    """Name the third and fourth corner of a walk around a square, given points near the first and second."""
    chance = np.random.default_rng(0)
    square = np.array([[-1, 1], [1, 1], [1, -1], [-1, -1]])
    turn = 2 * chance.integers(2, size=(1600, 1)) - 1
    walk = square[(chance.integers(4, size=(1600, 1)) + turn * np.arange(4)) % 4]  # (B, 4, 2)
    cells = np.clip(((walk + 0.1 * chance.standard_normal(walk.shape) + 1.5) * 4).astype(int), 0, 11)
    points, said = 4 + 12 * cells[..., 0] + cells[..., 1], 4 + (walk[..., 0] > 0) * 2 + (walk[..., 1] > 0)
    ones = np.ones((1600, 1), int)
    ids, labels = np.hstack([ones, points[:, :2], 2 * ones]), np.hstack([said[:, 2:], 2 * ones])
    train, test = split({"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}, 400)

    return Task(train, test, bart(148), steps=400)


def backwards() -> Task:
    """Say a row of eight letters backwards, as an encoder-decoder."""
    letters = torch.from_numpy(4 + np.random.default_rng(0).integers(8, size=(3000, 8)))
    one = torch.ones(3000, 1, dtype=torch.long)
    rows = {"input_ids": torch.cat([one, letters, 2 * one], 1), "labels": torch.cat([letters.flip(1), 2 * one], 1)}
    train, test = split(rows, 300)
    return Task(train, test, bart(12), steps=500)


def mirror() -> Task:
    """Label every token of a row with the token at the mirrored place."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(8, size=(2400, 10)))
    train, test = split({"input_ids": ids, "labels": ids.flip(1)}, 400)
    return Task(train, test, bert("TokenClassification", 8, 64, labels=8), steps=500)


def quarter() -> Task:
    """Tell in which quarter of a row of 64 tokens a marker stands."""
    chance = np.random.default_rng(0)
    ids, places = 5 + chance.integers(20, size=(2400, 64)), chance.integers(64, size=2400)
    ids[np.arange(2400), places] = 4
    train, test = split({"input_ids": torch.tensor(ids), "labels": torch.tensor(places // 16)}, 400)

    def draw(width: int) -> Any:
        config = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 2}
        config |= {"vocab_size": 25, "hidden_size": width, "num_attention_heads": max(2, width // 16), "num_labels": 4}
        config |= {"intermediate_size": 2 * width, "max_position_embeddings": 130, "pad_token_id": 1}
        return transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**config))

    return Task(train, test, draw, steps=600)


TASKS = {
    "first": first_of_two,
    "animals": larger_animal,
    "masked": masked_words,
    "causal": next_words,
    "corners": corners,
    "backwards": backwards,
    "mirror": mirror,
    "quarter": quarter,
}


def position_tables(model: Any) -> list[torch.nn.Parameter]:
    """Return the learned position tables of the model classes above."""
    names = ("position_embeddings.weight", "wpe.weight", "embed_positions.weight")
    return [parameter for name, parameter in model.named_parameters() if name.endswith(names)]


def scores(task: Task, width: int, arm: str, seed: int) -> list[float]:
    """Train one model and return its score at every evaluation."""
    torch.manual_seed(seed)
    model = task.model(width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the paper's recipe: that it may learn nothing
        if arm in ("matched", "paper"):
            use_sinusoidal_positions(model, recipe=arm)
    if arm == "none":
        for table in position_tables(model):
            torch.nn.init.zeros_(table).requires_grad_(False)
    chance = torch.Generator().manual_seed(seed)
    rate, warm = {32: 2e-3, 128: 1e-3}.get(width, 5e-4), task.steps // 20
    if task.mask_id is not None or not task.is_accuracy:
        rate *= 2  # language models learn from many more rows
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (task.steps - step) / (task.steps - warm))
    )
    rows, order, found = len(task.train["input_ids"]), torch.empty(0, dtype=torch.long), []
    for step in range(1, task.steps + 1):
        if len(order) < task.batch:
            order = torch.randperm(rows, generator=chance)
        batch = {name: each[order[: task.batch]] for name, each in task.train.items()}
        order = order[task.batch :]
        if task.mask_id is not None:
            batch = mask(batch, task.mask_id, task.vocabulary, chance)
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % (task.steps // EVALUATIONS) == 0:
            with torch.no_grad():
                out = model(**task.test)
            right = (out.logits.argmax(-1) == task.test["labels"]).float().mean() if task.is_accuracy else -out.loss
            found.append(round(float(right), 4))
    return found


def share_of(runs: dict[str, np.ndarray]) -> tuple[float, float, float]:
    """Return the share of the way from none to stock that matched goes, and the ends of its 90 % interval."""
    chance, shares = np.random.default_rng(0), []
    for draw in range(2001):
        mean = {arm: each.mean() if not draw else chance.choice(each, len(each)).mean() for arm, each in runs.items()}
        shares.append((mean["matched"] - mean["none"]) / (mean["stock"] - mean["none"]))
    return (shares[0], *np.percentile(shares[1:], [5, 95]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--widths", nargs="+", type=int, default=[32, 128, 256])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, help="a file of JSON lines to keep finished runs in")
    parser.add_argument("--finished", action="store_true", help="train nothing: show what is complete in --results")
    parser.add_argument("--picture", type=Path, help="draw the shares into this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    done: dict[tuple[Any, ...], list[float]] = {}
    if given.results and given.results.exists():
        for line in given.results.read_text().splitlines():
            *key, values = json.loads(line)
            done[tuple(key)] = values
    shown = []
    for width, name in itertools.product(given.widths, given.tasks):
        keys = [(name, width, arm, seed) for arm in ARMS for seed in range(given.seeds)]
        if given.finished and not done.keys() >= set(keys):
            continue
        task = TASKS[name]()
        for key in keys:
            if key not in done:
                done[key] = scores(task, *key[1:])
                if given.results:
                    with given.results.open("a") as file:
                        file.write(json.dumps([*key, done[key]]) + "\n")
        runs = {arm: np.array([np.mean(done[key]) for key in keys if key[2] == arm]) for arm in ARMS}
        means = " ".join(f"{arm} {runs[arm].mean():6.3f}" for arm in ARMS)
        if runs["stock"].mean() <= runs["none"].mean():
            gain = runs["matched"].mean() - runs["none"].mean()
            print(f"{name:9} {width:4}  {means}  stock gains nothing, matched {gain:+.3f}", flush=True)
            continue
        share, low, high = share_of(runs)
        print(f"{name:9} {width:4}  {means}  share {share:5.2f} ({low:.2f} to {high:.2f})", flush=True)
        shown.append((f"{name} {width}", share, low, high))
    if given.picture:
        draw(shown, given.picture)


def draw(shown: list[tuple[str, float, float, float]], path: Path) -> None:
    """Draw shares and their intervals."""
    from matplotlib.figure import Figure

    names, shares, low, high = zip(*shown, strict=True)
    figure = Figure(figsize=(7, 0.5 + 0.25 * len(shown)), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    middle = np.clip(shares, -1, 4)
    errors = [np.clip(middle - np.clip(low, -1, 4), 0, None), np.clip(np.clip(high, -1, 4) - middle, 0, None)]
    axes.errorbar(middle, range(len(names)), xerr=errors, fmt="o", color="#0072B2", capsize=3)
    axes.axvline(1.0, color="#D55E00", linewidth=1)
    axes.axvline(0.0, color="#BBBBBB", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("share of the way from no positions (0) to learned positions (1)")
    figure.savefig(path)


if __name__ == "__main__":
    main()

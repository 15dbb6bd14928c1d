"""Compare all kinds of positions on one task by changing one argument: `PositionalEmbedding(table, encoding=kind)`.

A row is a series of events, each a token. For each event the model predicts the token three seconds earlier (the
nearest one in time). First there is one event per second, and positions are 0, 1, 2, ... Then the time between events
varies from half a second to one and a half, and positions are timestamps, real numbers.

This is one layer, one toy task and a few hundred steps. It shows which kinds learn such positions quickly, and that
without positions only the tokens in the row are left. It does not rank the kinds on text: for that, see
04_bert_from_scratch.py.

Run it with `python examples/09_compare_positions.py`: two seeds, under a minute; `--short` runs one, with fewer steps.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from hf_posenc import PositionalEmbedding
from hf_posenc.positions import KINDS, Kind

TOKENS, EVENTS, BEFORE = 8, 16, 3.0  # kinds of event, events a row, seconds to look back
D_MODEL, BATCH, RATE = 32, 64, 5e-3


class Recall(nn.Module):
    """A model of one encoder layer that predicts a token for each event."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.embedding = PositionalEmbedding(nn.Embedding(TOKENS, D_MODEL), encoding=kind)  # the one argument
        self.layer = nn.TransformerEncoderLayer(
            D_MODEL, nhead=4, dim_feedforward=2 * D_MODEL, dropout=0.0, batch_first=True, norm_first=True
        )
        self.predict = nn.Linear(D_MODEL, TOKENS)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None) -> torch.Tensor:
        x = self.embedding(input_ids, position_ids=position_ids)  # (B, T, D)
        return self.predict(self.layer(x))  # (B, T, TOKENS)


def rows(count: int, *, timed: bool, seed: torch.Generator) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return tokens (B, T); times (B, T), or None if positions are counted; labels (B, T), -100 for none."""
    tokens = torch.randint(0, TOKENS, (count, EVENTS), generator=seed)
    times = torch.arange(float(EVENTS)).expand(count, -1)
    if timed:
        times = (0.5 + torch.rand(count, EVENTS, generator=seed)).cumsum(dim=1)
        times = times - times[:, :1]
    apart = (times[:, :, None] - BEFORE - times[:, None, :]).abs()  # (B, T, T)
    labels = tokens.gather(1, apart.argmin(dim=-1)).masked_fill(times < BEFORE, -100)
    return tokens, times if timed else None, labels


def score(kind: Kind, seed: int, steps: int, *, timed: bool) -> float:
    """Train a model and return its accuracy on held-out events."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Recall(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(steps):
        tokens, times, labels = rows(BATCH, timed=timed, seed=generator)
        loss = nn.functional.cross_entropy(model(tokens, times).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    tokens, times, labels = rows(1000, timed=timed, seed=torch.Generator().manual_seed(999))
    with torch.no_grad():
        predicted = model.eval()(tokens, times).argmax(dim=-1)
    return float((predicted == labels)[labels >= 0].float().mean())


def main(seeds: int, steps: int) -> None:
    torch.set_num_threads(1)  # more threads do not make a model this small faster
    print(f"held-out accuracy by seed, of predicting one of {TOKENS} tokens; by chance {1 / TOKENS:.3f}")
    print(f"{'encoding':12} {'weights':>7}   {'one a second':16} timestamps")
    refused = ""
    for kind in KINDS:
        weights = sum(weight.numel() for weight in Recall(kind).embedding.encoding.parameters())
        line = f"{kind:12} {weights:7,}   "
        for timed in (False, True):
            try:
                line += f"{' '.join(f'{score(kind, seed, steps, timed=timed):.3f}' for seed in range(seeds)):17}"
            except TypeError as error:
                refused = f"{kind}: {str(error).splitlines()[0]}"
                line += "refused"
        print(line.rstrip(), flush=True)
    print(refused)


if __name__ == "__main__":
    short = "--short" in sys.argv[1:]
    main(seeds=1 if short else 2, steps=150 if short else 250)

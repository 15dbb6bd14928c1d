"""Predict two corners of a square from the other two: an encoder-decoder on points, with positions and without.

The corners of a square are at (±1, ±1), plus noise. A walk visits them from a random corner in a random direction. The
encoder reads the first two corners; the decoder predicts the third, then the fourth. Only the order of the first two
determines the third: from top left to top right, the walk continues to bottom right; from top right to top left, to
bottom left. Attention without positions reads a set, so that model cannot distinguish the two walks. Its best
prediction is the point half-way, one unit off in one of two coordinates: a mean squared error of 0.5. With positions
only the noise remains.

In training the decoder reads the true corners, shifted by one, with a look-ahead mask; in evaluation it reads its own
predictions. Given the true third corner the fourth is easy, so the model without positions looks better in training
than it is.

This runs one seed. For SEED = 0 to 4, which also chooses the squares, the test error is 0.011 to 0.013 with positions,
of which 0.010 is the noise of the predicted corners, and 0.51 to 0.63 without.

Attention is torch's, in `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`. Run it with `python
examples/07_corners.py`: under a minute on one CPU core. It downloads nothing, and draws into a folder: the losses, the
predictions of both models, and the attention weights of encoder and decoder.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from torch import nn
from transformers import PrinterCallback, Trainer, TrainingArguments, default_data_collator, set_seed

from hf_posenc import AttentionMask, SinusoidalPositionalEncoding, plots

SEED = 0
SQUARES, NOISE = 128, 0.1  # to train on, and as many to test
EPOCHS = 100
# torch's attention splits the width into heads of equal size, so HEADS must divide D_MODEL.
D_MODEL, HEADS = 16, 2
# With the usual base of 10,000, six of the eight pairs of columns hardly change between one corner and the next. Over
# five seeds both bases gave the same errors.
BASE = 10.0


def squares(number: int, seed: int) -> Dataset:
    """Return random walks around a square: the first two corners, and the last two as labels."""
    chance = torch.Generator().manual_seed(seed)
    corners = torch.tensor([[-1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])  # clockwise, from top left
    first = torch.randint(4, (number, 1), generator=chance)
    direction = 2 * torch.randint(2, (number, 1), generator=chance) - 1
    walks = corners[(first + direction * torch.arange(4)) % 4]  # (B, 4, 2)
    walks = walks + NOISE * torch.randn(walks.shape, generator=chance)
    return Dataset.from_dict({"corners": walks[:, :2].numpy(), "labels": walks[:, 2:].numpy()}).with_format("numpy")


class CornerModel(nn.Module):
    """An encoder-decoder of one layer each; linear layers turn points into embeddings and back."""

    def __init__(self, *, positions: bool) -> None:
        super().__init__()
        self.read = nn.Linear(2, D_MODEL)
        self.begin = nn.Parameter(torch.zeros(1, 1, 2))  # the first input of the decoder, a learned point
        self.positions = SinusoidalPositionalEncoding(D_MODEL, base=BASE) if positions else nn.Identity()
        sizes = {"d_model": D_MODEL, "nhead": HEADS, "dim_feedforward": 4 * D_MODEL}
        self.encoder = nn.TransformerEncoderLayer(**sizes, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(**sizes, dropout=0.0, batch_first=True)
        self.write = nn.Linear(D_MODEL, 2)

    def forward(self, corners: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Predict two corners (B, 2, 2); in training, each from the true ones before it."""
        memory = self.encoder(self.positions(self.read(corners)))  # (B, 2, D)
        if self.training and labels is not None:
            path = self.decode(labels[:, :-1], memory)
        else:
            path = corners[:, :0]
            for _ in range(2):
                path = torch.cat([path, self.decode(path, memory)[:, -1:]], dim=1)  # (B, 1, 2), then (B, 2, 2)
        return {"corners": path} if labels is None else {"loss": nn.functional.mse_loss(path, labels), "corners": path}

    def decode(self, path: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Predict the point after the beginning and after each of the points (B, T, 2): (B, T + 1, 2)."""
        points = torch.cat([self.begin.expand(len(path), -1, -1), path], dim=1)
        mask = AttentionMask.from_lengths([points.shape[1]], look_ahead=True, device=points.device)
        decoded = self.decoder(self.positions(self.read(points)), memory, **mask.for_transformer_decoder())
        return self.write(decoded)


def trained(model: CornerModel, train: Dataset, test: Dataset) -> Trainer:
    """Train, recording the losses of every epoch."""
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=SQUARES,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            seed=SEED,
            eval_strategy="epoch",
            logging_strategy="epoch",
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model, args, train_dataset=train, eval_dataset=test, data_collator=default_data_collator)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer


def draw(runs: dict[str, Trainer], test: Dataset, folder: Path) -> None:
    """Draw the losses, each model's predictions, and the attention weights of the model with positions."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.subplots()
    for name, run in runs.items():
        for key, kind in (("loss", "training"), ("eval_loss", "evaluation")):
            points = [(log["step"], log[key]) for log in run.state.log_history if key in log]
            axes.semilogy(*zip(*points, strict=True), label=f"{name}, {kind}")
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    plots.save(figure, folder / "losses.png")
    seen, truth = test["corners"], test["labels"]
    for name, run in runs.items():
        figure = Figure(figsize=(10, 5), layout="constrained")
        figure.suptitle(name)
        grid = figure.subplots(2, 4, sharex=True, sharey=True)
        for axes, *points in zip(grid.flat, seen, truth, run.predict(test).predictions, strict=False):
            for each, style, label in zip(points, ("s", "o", "x"), ("read", "truth", "prediction"), strict=True):
                axes.plot(*each.T, style, fillstyle="none", label=label)
            axes.set_aspect("equal")
        grid[0, 0].legend(fontsize="small")
        plots.save(figure, folder / f"{name.replace(' ', '_')}.png")
    picture = plots.attention(
        runs["with positions"].model,
        {"corners": torch.from_numpy(seen[:1])},
        tokens=[["first", "second"]],
        decoder_tokens=[["begin", "third"]],
    )
    plots.save(picture, folder / "attention.png")
    print("pictures:", *sorted(path.name for path in folder.glob("*.png")))


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # more threads do not make a model this small faster
    train, test = squares(SQUARES, seed=SEED), squares(SQUARES, seed=SEED + 1000)
    print(f"{SQUARES} squares to train on, {SQUARES} to test; corners moved by a standard deviation of {NOISE}")
    runs = {}
    for name in ("with positions", "without positions"):
        set_seed(SEED)
        runs[name] = trained(CornerModel(positions=name == "with positions"), train, test)
        tests = [log["eval_loss"] for log in runs[name].state.log_history if "eval_loss" in log]
        print(f"{name}: test MSE {tests[-1]:.4f}", flush=True)
    if importlib.util.find_spec("matplotlib"):
        folder.mkdir(parents=True, exist_ok=True)
        draw(runs, test, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("corners"), help="folder of the pictures")
    main(parser.parse_args().folder)

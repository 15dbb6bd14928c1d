"""Draw the pictures of README.md and the guides: `python examples/figures.py [FOLDER]`, by default into this folder.

The tests draw them again and compare them with the files, so run this after a change of what a picture shows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure

from hf_posenc import DataCollatorWithPositionalEncoding, plots, train_bpe

TEXTS = ["bike ride I, she said", "I ride bike", "she said: I said, she said"]


def packed():
    """Draw the masks and positions of three texts that are packed into two rows."""
    collate = DataCollatorWithPositionalEncoding(train_bpe(TEXTS, vocab_size=400), packing=True, max_length=16)
    batch = collate(TEXTS)
    return plots.masks(batch, collate.tokens(batch))


def positions():
    """Draw the encoding, some of its dimensions, and the distances and similarities of positions."""
    figure = Figure(figsize=(8.4, 6.8), dpi=120, layout="constrained")
    panels = figure.subplots(2, 2)
    plots.encoding(64, 50, ax=panels[0, 0])
    plots.distances(64, 50, ax=panels[0, 1])
    plots.curves(64, 50, dimensions=[4, 5, 12, 13], ax=panels[1, 0])
    plots.similarity(64, 50, starts=(0, 100), ax=panels[1, 1])
    return figure


def masks():
    """Draw the padding mask and the look-ahead mask of a padded row."""
    collate = DataCollatorWithPositionalEncoding(train_bpe(TEXTS, vocab_size=400))
    batch = collate(TEXTS)
    return plots.masks(batch, collate.tokens(batch))


FIGURES = {"packed.png": packed, "positions.png": positions, "masks.png": masks}


def main(folder: Path) -> None:
    """Draw every picture into `folder`."""
    for name, draw in FIGURES.items():
        print(plots.save(draw(), folder / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

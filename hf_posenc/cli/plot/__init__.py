"""`hf-posenc plot`: a picture into a file, a command for each.

Here they come together.
"""

from __future__ import annotations

import typer

from . import positions, texts

plot = typer.Typer(
    help="Draw a picture into a file: of positions, or of texts, masks and models.", no_args_is_help=True
)
for _command in (
    positions.encoding,
    positions.curves,
    positions.frequencies,
    positions.offsets,
    positions.sine_and_cosine,
    positions.oscillation,
    positions.dials,
    positions.degrees,
    positions.distances,
    positions.similarity,
    texts.batch,
    texts.masks,
    texts.embeddings,
    texts.crowding,
    texts.attention,
):
    plot.command()(_command)

__all__ = ["plot"]

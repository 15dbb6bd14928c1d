"""`hf-posenc plot`, the pictures of positions.

Options are named as the arguments of `hf_posenc.plots`, which also checks them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .drawing import Base, ConventionName, Output, draw, several

Width = Annotated[int, typer.Option("--d-model", "-d", help="Width: number of columns.")]
Length = Annotated[int, typer.Option("--length", "-n", help="Number of positions.")]


def encoding(
    output: Output = None,
    d_model: Width = 128,
    length: Length = 100,
    transpose: Annotated[bool, typer.Option("--transpose", help="Columns down, positions across.")] = False,
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """The encoding as a heat map: positions and columns."""
    from ... import plots

    how: Any = {"convention": convention, "base": base}
    draw("encoding", output, lambda: plots.encoding(d_model, length, transpose=transpose, **how))


def curves(
    output: Output = None,
    d_model: Width = 128,
    length: Length = 100,
    columns: Annotated[str | None, typer.Option(help="Which, as in 4,5,6,7.")] = None,
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """Some columns as waves along the positions."""
    from ... import plots

    which = several(columns, "--columns")
    draw("curves", output, lambda: plots.curves(d_model, length, columns=which, convention=convention, base=base))


def frequencies(
    output: Output = None, d_model: Width = 128, convention: ConventionName = "vaswani", base: Base = None
) -> None:
    """The decay of the frequencies, 1 / 10000^(2i/d)."""
    from ... import plots

    draw("frequencies", output, lambda: plots.frequencies(d_model, convention=convention, base=base))


def offsets(
    output: Output = None,
    d_model: Width = 128,
    position: Annotated[str, typer.Option(help="One or several, as in 1,10,100.")] = "1,10,100",
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """The offset that a position puts on the decay of the frequencies."""
    from ... import plots

    which = several(position, "--position")
    draw("offsets", output, lambda: plots.offsets(d_model, which, convention=convention, base=base))


def sine_and_cosine(
    output: Output = None,
    d_model: Width = 128,
    length: Length = 100,
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """Sine columns and cosine columns apart."""
    from ... import plots

    draw("sine-and-cosine", output, lambda: plots.sine_and_cosine(d_model, length, convention=convention, base=base))


def oscillation(
    output: Output = None,
    d_model: Width = 128,
    positions: Annotated[str, typer.Option(help="One or several, as in 0,1,10.")] = "0,1,10,100",
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """The rows of several positions as waves over the columns."""
    from ... import plots

    which = several(positions, "--positions")
    draw("oscillation", output, lambda: plots.oscillation(d_model, which, convention=convention, base=base))


def dials(
    output: Output = None,
    d_model: Width = 8,
    positions: Annotated[int, typer.Option(help="How many.")] = 10,
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """A clock for each pair of columns at each position."""
    from ... import plots

    draw("dials", output, lambda: plots.dials(d_model, positions, convention=convention, base=base))


def degrees(
    output: Output = None,
    bases: Annotated[str, typer.Option(help="Positions per turn, as in 4,5,7.")] = "4,5,7",
    length: Annotated[int | None, typer.Option("--length", "-n", help="Number of positions.")] = None,
) -> None:
    """The angles of fixed bases by position."""
    from ... import plots

    which = tuple(several(bases, "--bases", float, example="4,5,7"))
    draw("degrees", output, lambda: plots.degrees(which, length))


def distances(
    output: Output = None,
    d_model: Width = 128,
    length: Length = 100,
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """The distances between the rows of every two positions."""
    from ... import plots

    draw("distances", output, lambda: plots.distances(d_model, length, convention=convention, base=base))


def similarity(
    output: Output = None,
    d_model: Width = 128,
    length: Length = 100,
    starts: Annotated[str, typer.Option(help="Positions to measure from, as in 0,10,100.")] = "0,10,100",
    measure: Annotated[str, typer.Option(help="dot or cosine.")] = "dot",
    convention: ConventionName = "vaswani",
    base: Base = None,
) -> None:
    """Dot products of rows against how far apart they are."""
    from ... import plots

    how: Any = {"measure": measure, "convention": convention, "base": base}
    which = several(starts, "--starts")
    draw("similarity", output, lambda: plots.similarity(d_model, length, starts=which, **how))

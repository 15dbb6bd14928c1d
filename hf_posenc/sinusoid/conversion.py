"""From the columns of one convention to those of another, where a change of order is all that lies between them.

Knows nothing of first positions and padding rows: it is about the numbers of one position.
"""

from __future__ import annotations

from collections import defaultdict

import torch

from .._explain import explain
from .checks import check_width
from .conventions import Convention, resolve_convention
from .exact import waves


def convert(a: str | Convention, b: str | Convention, d_model: int) -> torch.Tensor:
    r"""The order of columns that turns rows of convention `a` into rows of convention `b`, bit for bit.

    A checkpoint that was trained on one convention can be read by code that makes the other: put its columns, or the
    columns of the weights that read them, in this order. Conventions whose columns turn at other speeds have none.
    Nor has a base beside the wavelengths that it means: their 2π is a rounded number, and far out one sees it.

    Args:
        a, b (`str` or `Convention`): the convention that rows are in, and the one that they shall be in.
        d_model (`int`): width D >= 1.

    Returns:
        `torch.Tensor` `(D,)` int64 on the CPU, a permutation: `rows_b = rows_a[..., convert(a, b, D)]`.

    Raises:
        ValueError: if no order does it, with the first column of `b` that `a` does not have.
        TypeError: if one is neither a name nor a `Convention`.

    Example:
        >>> convert("vaswani", "marian", 6)
        tensor([0, 2, 4, 1, 3, 5])
        >>> from hf_posenc import sinusoidal_encoding
        >>> rows, wanted = (sinusoidal_encoding([3, 1000], 6, convention=name) for name in ("vaswani", "marian"))
        >>> torch.equal(rows[:, convert("vaswani", "marian", 6)], wanted)
        True
    """
    given, wanted = resolve_convention(a), resolve_convention(b)
    width = check_width(d_model)
    places: defaultdict[_Column, list[int]] = defaultdict(list)
    for place, column in enumerate(_columns(given, width)):
        places[column].append(place)
    order = []
    for place, column in enumerate(_columns(wanted, width)):
        if not places[column]:
            raise ValueError(_message(given, wanted, width, place, column))
        order.append(places[column].pop(0))
    return torch.tensor(order, dtype=torch.int64, device="cpu")


# A sine, a cosine or zeros; and its turns per position, in the three parts that decide its last bit.
_Column = tuple[str, tuple[float, float, float]]


def _columns(convention: Convention, d_model: int) -> list[_Column]:
    """What each column is: sine or cosine with its turns per position, or nothing but zeros."""
    made = waves(convention, d_model, convention.check_fit(d_model))
    turns = list(zip(made.whole.tolist(), made.low.tolist(), made.last.tolist(), strict=True))
    columns: list[_Column] = [("zero", (0.0, 0.0, 0.0))] * d_model
    for kind, place in zip(("sine", "cosine"), convention.columns(d_model), strict=True):
        numbers = range(d_model)[place]
        for number, turn in zip(numbers, turns[: len(numbers)], strict=True):
            columns[number] = (kind, turn)
    return columns


def _message(given: Convention, wanted: Convention, d_model: int, place: int, column: _Column) -> str:
    kind, (turns, *_) = column
    what = "zeros" if kind == "zero" else f"a {kind} of one turn in {1 / turns:.6g} positions"
    return explain(
        f"no order of columns turns {given.name!r} into {wanted.name!r}: its column {place} is {what}",
        got=f"width {d_model}; {given}; {wanted}",
        fix=f"rows made anew: sinusoidal_encoding(positions, {d_model}, convention={wanted.name!r})",
    )

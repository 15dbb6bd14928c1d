"""`mixture`: an order of the rows of several data sets in which each has a given share of the tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._common.errors import shorten, value_error
from .._common.integers import as_integer, as_integers, to_numpy
from ..ragged import offsets_of


class Mixture(NamedTuple):
    """Order of the rows of several sources, and how often each source is read; see `mixture`."""

    order: NDArray[np.int64]
    epochs: NDArray[np.float64]


def mixture(lengths: Iterable[ArrayLike], shares: ArrayLike, tokens: int, *, seed: int = 0) -> Mixture:
    r"""Order the rows of several sources so that each source has its share of the tokens, in every part of the order.

    The rows of a source are read in random order, again and again, each time in another order. A row is due when its
    source has had as many tokens as it should have by then; all rows are sorted by that time. So the tokens of a source
    in any stretch of the order differ from its share by about one row of each source.

    `mix_datasets` applies it to data sets. With the number of labels of each row as `lengths`, the shares are those of
    the tokens that are trained on.

    Args:
        lengths (iterable of array-likes of integers `(N_k,)`): number of tokens of each row, an array for each source.
        shares (array-like of numbers `(K,)`): share of each source. They are divided by their sum.
        tokens (`int`): number of tokens of the whole order. It has at least these, and less than one row of each source
            more.
        seed (`int`, *optional*, defaults to 0): another seed gives another order.

    Returns:
        `Mixture`, a named tuple of two arrays. `order` `(R,)` int64: row numbers in the concatenated sources. `epochs`
        `(K,)` float64: the tokens taken from each source, divided by those that it has; above 1, rows are repeated.

    Raises:
        ValueError: if there is not one positive share for each source, a source has no tokens, a length is negative, or
            `tokens` is not positive.
        TypeError: if the lengths or `tokens` are not integers.

    Example:
        >>> order, epochs = mixture([[10, 10, 10, 10], [30, 30, 30]], [1, 3], 160)
        >>> order
        array([2, 6, 0, 4, 1, 5, 3, 5])
        >>> epochs
        array([1.        , 1.33333333])
    """
    tokens = as_integer(tokens, "tokens", minimum=1, example=1_000_000)
    seed = as_integer(seed, "seed", minimum=0, example=0)
    fix = "lengths=[[len(ids) for ids in rows] for rows in sources], or mix_datasets(sources, shares, tokens)"
    sources = [as_integers(each, f"lengths[{k}]", minimum=0, fix=fix) for k, each in enumerate(lengths)]
    empty = [f"0 in the {len(each)} rows of source {k}" for k, each in enumerate(sources) if not each.any()]
    if empty or not sources:
        got = ", ".join(empty) or "no sources"
        raise value_error(
            "each source must have tokens", got=got, fix="a list of sources with tokens; leave out others"
        )
    given = to_numpy(shares)
    is_valid = given.shape == (len(sources),) and given.dtype.kind in "iuf"
    if not is_valid or not given.min() > 0 or not given.sum() < np.inf:
        raise value_error(
            f"shares must be positive numbers, one for each of the {len(sources)} sources",
            got=shorten(shares),
            fix=f"shares=[1] * {len(sources)}, which are equal; leave out sources that have no share",
        )
    first_rows = offsets_of(np.array([len(each) for each in sources]))
    orders, times, epochs = [], [], []
    for number, (source, share) in enumerate(zip(sources, given / given.sum(), strict=True)):
        wanted, total = share * tokens * (1 - 1e-12), source.sum()  # a rounding error must not add a row
        passes = np.broadcast_to(np.arange(len(source)), (math.ceil(wanted / total), len(source)))
        rows = np.random.default_rng([seed, number]).permuted(passes, axis=1).ravel()
        sizes = source[rows]
        begins = np.cumsum(sizes) - sizes
        count = np.searchsorted(begins, wanted)
        orders.append(first_rows[number] + rows[:count])
        times.append((begins + sizes / 2)[:count] / share)
        epochs.append(sizes[:count].sum() / total)
    return Mixture(np.concatenate(orders)[np.argsort(np.concatenate(times), kind="stable")], np.array(epochs))

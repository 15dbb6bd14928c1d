"""`mix_datasets`: a data set of the rows of several, each of which has a given share of the tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import ArrayLike

from .._common.errors import require_one_split, type_error
from ..packing import mixture
from .lengths import is_dataset, lengths_of


def mix_datasets(
    sources: Iterable[Any], shares: ArrayLike, tokens: int, *, column: str = "input_ids", seed: int = 0
) -> Any:
    r"""Mix tokenized data sets so that each has its share of the tokens, in every part of the result.

    `datasets.interleave_datasets(probabilities=...)` gives shares of rows instead, so a source of long rows has more
    tokens than its share. The rows of each source are in random order, and are repeated if it has too few: see
    `packing.mixture`, which also returns how often. No token is copied: the result refers to the rows of the sources.

    Args:
        sources (list or dict of `datasets.Dataset`): the data sets, with the same columns.
        shares (array-like of numbers `(K,)`): share of each source. They are divided by their sum.
        tokens (`int`): number of tokens of the result. It has at least these, and less than one row of each source
            more.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens.
        seed (`int`, *optional*, defaults to 0): another seed gives another order.

    Returns:
        `datasets.Dataset`, in the order of training. Read it once, without shuffling. `TokenBudgetMixin` and
        `TokenBudgetBatchSampler` sort a data set by length; of `result.to_iterable_dataset()` they sort only `window`
        rows at a time, each of which has the shares.

    Raises:
        ValueError: if the shares or `tokens` are not positive, a data set has no tokens, or lacks the column.
        TypeError: if `sources` is not a list or dict of `datasets.Dataset`.

    Example:
        >>> import datasets
        >>> short = datasets.Dataset.from_dict({"input_ids": [[1] * 10] * 4})
        >>> long = datasets.Dataset.from_dict({"input_ids": [[2] * 30] * 3})
        >>> [len(row["input_ids"]) for row in mix_datasets([short, long], [1, 3], 160)]
        [10, 30, 10, 30, 10, 30, 10, 30]
    """
    sources = list(sources.values()) if isinstance(sources, Mapping) else list(sources)
    for each in sources:
        require_one_split(each)
    if wrong := [type(each).__name__ for each in sources if not is_dataset(each)]:
        raise type_error(
            "a mixture is made of a list of data sets of the library datasets",
            got=", ".join(wrong),
            fix="sources=[datasets.Dataset.from_list(list(rows)) for rows in sources]",
        )
    import datasets

    order = mixture([lengths_of(each, column) for each in sources], shares, tokens, seed=seed).order
    return datasets.concatenate_datasets(sources).select(order)

"""Branches: continuations of the shared tokens of a document, each of which sees the shared tokens and itself.

The shared tokens are a prompt without its last token. Each branch begins with that token, which is repeated so that a
model can predict the first token of each answer from the token before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error
from ..ragged import Ragged, run_indices, runs


# Worth it: one row with a prompt and eight answers had 646 tokens, in place of 2,560 in eight rows, and took about a
# third of their time on a CPU, for the same loss and gradients.
class Branches(NamedTuple):
    r"""Runs of equal branch numbers in each document: its shared tokens, then its branches. `branches_of` makes them.

    Args:
        sizes (`Ragged`): lengths of the runs of each document.
        numbers (`np.ndarray` `(N,)` int64): branch number of each run; 0 at shared tokens.
        shared (`np.ndarray` `(N,)` int64): number of shared tokens before each run of a branch; 0 at shared tokens.
    """

    sizes: Ragged
    numbers: NDArray[np.int64]
    shared: NDArray[np.int64]

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position of each token, from 0 in its document: those of a branch go on from the shared tokens."""
        return run_indices(self.shared, self.sizes.values)

    @property
    def is_start(self) -> NDArray[np.bool_]:
        """Mask `(T,)` of the first tokens of branches, which no token before them predicts."""
        is_first: NDArray[np.bool_] = run_indices(0, self.sizes.values) == 0
        return is_first & (self.numbers > 0).repeat(self.sizes.values)

    @property
    def path_lengths(self) -> NDArray[np.int64]:
        """Tokens of the longest path of each document: its shared tokens and one branch."""
        longest = np.zeros(len(self.sizes), np.int64)
        np.maximum.at(longest, np.arange(len(longest)).repeat(self.sizes.lengths), self.shared + self.sizes.values)
        return longest

    def kept(self, limit: int) -> NDArray[np.bool_]:
        r"""Return a mask `(T,)` of the tokens that are left if no path has more than `limit` tokens.

        Answers lose tokens at their ends. Only a prompt that is too long itself loses tokens, at its beginning; its
        last token is left at the beginning of each branch.
        """
        sizes, place = self.sizes.values, run_indices(0, self.sizes.values)
        has_branches = np.repeat(np.maximum.reduceat(self.numbers, self.sizes.offsets[:-1]) > 0, self.sizes.lengths)
        first = np.where((self.numbers == 0) & has_branches, np.maximum(sizes - (limit - 1), 0), 0)
        stop = np.where(self.numbers == 0, np.where(has_branches, sizes, limit), np.maximum(limit - self.shared, 1))
        return (place >= first.repeat(sizes)) & (place < stop.repeat(sizes))


def branches_of(branch_ids: Ragged) -> Branches:
    r"""Return the branches of documents from the branch numbers of their tokens, one row for each document.

    Example:
        >>> branches = branches_of(Ragged.from_rows([[0, 1, 1, 1, 2, 2, 2]]))
        >>> branches.positions, branches.kept(3)
        (array([0, 1, 2, 3, 1, 2, 3]), array([ True,  True,  True, False,  True,  True, False]))
    """
    sizes = runs(branch_ids.values, branch_ids.lengths)
    starts = np.cumsum(sizes.values) - sizes.values
    numbers = np.append(branch_ids.values, 0)[starts]  # a document without tokens has one run of length 0
    of_document = np.arange(len(sizes)).repeat(sizes.lengths)
    shared = np.bincount(of_document, np.where(numbers == 0, sizes.values, 0), len(sizes)).astype(np.int64)
    return Branches(sizes, numbers, np.where(numbers > 0, shared[of_document], 0))


def check_branches(
    branches: NDArray[np.int64], documents: NDArray[np.int64], lengths: NDArray[np.int64], first_row: int
) -> None:
    """Raise `ValueError` if the branch numbers of a document do not begin with 0 or 1, or fall, or skip.

    `branches` and `documents` `(N,)` are the numbers of the tokens of all rows, which have `lengths` tokens each.
    """
    row = np.arange(len(lengths)).repeat(lengths)
    order = np.lexsort((documents, row))  # the tokens of each document, in their order
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(row[order]) != 0) | (np.diff(documents[order]) != 0)
    steps = np.diff(branches[order], prepend=0)
    steps[begins] = branches[order][begins]
    is_wrong = (steps < 0) | (steps > 1)
    if is_wrong.any():
        at = int(row[order[is_wrong.argmax()]])
        raise value_error(
            "branch_ids must be 0 at the shared tokens of a document, then 1, 2, 3, ... at its branches",
            got=f"row {first_row + at}: {shorten(branches[row == at].tolist())}",
            fix="[0, 0, 1, 1, 2, 2] for two branches; a column document_ids, if the row has several documents",
        )


def check_first_tokens(ids: Ragged, branch_ids: Ragged, rows: NDArray[np.int64]) -> None:
    """Raise `ValueError` if the branches of a document with shared tokens begin with different tokens.

    `ids` and `branch_ids` have a row for each document, and `rows` `(D,)` are the numbers of the rows that they are in.
    """
    branches = branches_of(branch_ids)
    is_branch = branches.numbers > 0
    first = ids.values[branches.is_start]
    document = np.arange(len(branches.sizes)).repeat(branches.sizes.lengths)[is_branch]
    differs = (np.diff(first, prepend=first[:1]) != 0) & (np.diff(document, prepend=-1) == 0)
    differs &= branches.shared[is_branch] > 0
    if differs.any():
        at = int(document[differs.argmax()])
        raise value_error(
            "each branch of a document must begin with the same token, the last one of the prompt, repeated",
            got=f"row {rows[at]}: input_ids {shorten(ids[at].tolist())}, branch_ids {shorten(branch_ids[at].tolist())}",
            fix="the prompt 5 6 with the answers 7 8 and 9 10: input_ids [5, 6, 7, 8, 6, 9, 10], "
            "branch_ids [0, 1, 1, 1, 2, 2, 2]",
        )


def branches_of_positions(ids: Ragged, positions: Ragged) -> tuple[Ragged, Ragged] | None:
    r"""Return the branches of documents that only their position ids show, because Trainer removes `branch_ids`.

    A row has branches if its positions rise by one, but fall back to one position in a document, each time at the token
    that is there already, the last one of the prompt. It may hold several documents, which begin at its smallest
    position. No other row is read so.

    Args:
        ids, positions (`Ragged`): token ids and position ids, with a row for each document, as far as they are known.

    Returns:
        Lengths of the documents in each row, and branch numbers; `None` if no row has such branches.

    Example:
        >>> ids, positions = Ragged.from_rows([[5, 6, 7, 6, 8]]), Ragged.from_rows([[0, 1, 2, 1, 2]])
        >>> sizes, branches = branches_of_positions(ids, positions)
        >>> branches.values
        array([0, 1, 1, 2, 2])
    """
    values, lengths = positions.values, positions.lengths
    row = np.arange(len(lengths)).repeat(lengths)
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = np.diff(row) != 0
    falls = (np.diff(values, prepend=0) != 1) & ~is_first
    if not falls.any():
        return None
    begins = is_first | (falls & (values == values[is_first][(np.cumsum(is_first) - 1)]))
    start = np.flatnonzero(begins)[np.cumsum(begins) - 1]  # of each token's document
    at = np.flatnonzero(falls & ~begins)
    back = np.full(len(values), -1)  # for the first token of each document: the place of its repeated token
    back[start[at[::-1]]] = (start + values - values[start])[at[::-1]]
    repeated = back[start]
    place = np.clip(repeated[at], 0, at)  # the token itself, if it is no fall
    is_branch = (values[at] > values[start[at]]) & (place < at)
    is_branch &= (values[at] == values[place]) & (ids.values[at] == ids.values[place])
    has = np.zeros(len(lengths), np.bool_)
    has[row[at]] = True
    has[row[at[~is_branch]]] = False
    if not has.any():
        return None
    number = np.cumsum(falls) - np.cumsum(falls)[start] + 1
    number = np.where((np.arange(len(values)) >= repeated) & (repeated >= 0) & has[row], number, 0)
    begins &= is_first | has[row]
    sizes = np.diff(np.flatnonzero(begins), append=len(values))
    return Ragged(sizes, np.bincount(row[begins], minlength=len(lengths))), Ragged(number, lengths)

"""Reasons why the cells of an attention mask are hidden, for pictures and the view of a batch. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# hf_posenc/view/attention.js and views.js have the same numbers.
ALLOWED, PADDING, LATER, OTHER_DOCUMENT, HIDDEN, PADDING_QUERY = range(6)


def reasons(
    allowed: NDArray[np.bool_] | None,
    real: NDArray[np.bool_],
    documents: NDArray[np.int64] | None = None,
    *,
    later: bool,
) -> NDArray[np.int8]:
    r"""Return for each query and key the reason why it is hidden, `(..., T, T)`; `ALLOWED` where it is not.

    `allowed` `(..., T, T)` is the mask; `None` hides a key wherever there is a reason. `real` `(..., T)` is False at
    padding, and `documents` `(..., T)` are the numbers of documents. With `later`, keys behind their query are hidden
    by the look-ahead mask. If several reasons hold, the last of these is returned: the key is later, of another
    document; the query is padding; the key is padding.

    Example:
        >>> reasons(np.tri(3, dtype=bool), np.array([True, True, False]), later=True)
        array([[0, 2, 1],
               [0, 0, 1],
               [0, 0, 0]], dtype=int8)
    """
    hidden = np.ones((*real.shape, real.shape[-1]), dtype=bool) if allowed is None else ~allowed
    codes = np.where(hidden, ALLOWED if allowed is None else HIDDEN, ALLOWED).astype(np.int8)
    rules = [(PADDING_QUERY, ~real[..., :, None]), (PADDING, ~real[..., None, :])]
    if documents is not None:
        rules.insert(0, (OTHER_DOCUMENT, documents[..., :, None] != documents[..., None, :]))
    if later:
        rules.insert(0, (LATER, ~np.tri(real.shape[-1], dtype=bool)))
    for code, applies in rules:
        codes[hidden & applies] = code
    return codes

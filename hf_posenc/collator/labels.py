"""Labels: the ones that rows bring, and the ones made from the ids for language modelling.

Which tokens are masked is transformers' own decision; this module chooses the random numbers for it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._explain import explain
from ..ragged import Ragged
from .columns import Values, is_missing, numbers, to_float32
from .inputs import as_list

if TYPE_CHECKING:
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase

# What torch's and transformers' losses leave out.
IGNORED = -100

LABEL_COLUMNS = ("label", "label_ids", "labels")


def label_names(columns: Mapping[str, Values]) -> list[str]:
    r"""Return the names of the label columns, without those that are None in every row.

    Example:
        >>> label_names({"label": [1, 0], "labels": [None, None], "text": ["a", "b"]})
        ['label']
    """
    return [name for name in LABEL_COLUMNS if name in columns and not all(map(is_missing, as_list(columns[name])))]


def given_labels(values: Values, lengths: NDArray[np.int64], *, name: str = "labels") -> NDArray[Any] | Ragged:
    r"""Read the labels of a batch, one value a row.

    Args:
        values (sequence): numbers; or lists of whole numbers, one for each token; or lists of fractions of one length
            (several labels a text).
        lengths (`np.ndarray` `(B,)`): how many tokens each row has.
        name (`str`, *optional*, defaults to `"labels"`): the column, for error messages.

    Returns:
        `np.ndarray` `(B,)` int64 or float32; `Ragged` of int64 for labels per token; `(B, C)` float32 for several.

    Raises:
        ValueError: if a row has not as many labels as tokens, or a number is beyond int64 or float32.
        TypeError: if a label is no number.

    Example:
        >>> given_labels([1, 0], np.array([5, 7]))
        array([1, 0])
        >>> given_labels([[1, 1], [0]], np.array([2, 1])).values
        array([1, 1, 0])
    """
    rows = [_number_or_row(index, value, name) for index, value in enumerate(values)]
    if len({row.ndim for row in rows}) > 1 or rows[0].ndim > 1:
        raise ValueError(
            explain(
                "labels must be one number in every row, or one flat list in every row",
                got=f"{sorted({row.ndim for row in rows})} dimensions",
            )
        )
    whole = all(row.dtype.kind in "iub" or row.size == 0 for row in rows)
    if rows[0].ndim == 0:
        return np.stack(rows).astype(np.int64) if whole else to_float32(name, np.stack(rows))
    if not whole:
        widths = sorted({row.size for row in rows})
        if len(widths) > 1:
            raise ValueError(explain(f"column '{name}' has lengths {widths[0]} and {widths[-1]}, all fractions"))
        return to_float32(name, np.stack(rows))
    for index, (row, length) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        if row.size != length:
            raise ValueError(
                explain(
                    f"row {index}: {row.size} labels for {length} tokens",
                    got="labels per token must be as many as token ids, special tokens counted",
                    fix="tokenise and align the labels first, or give one number a row (fractions for several a text)",
                )
            )
    return Ragged.from_rows([row.astype(np.int64) for row in rows], name="labels")


def copies(labels: Ragged, ids: Ragged, real: NDArray[np.bool_] | None = None) -> bool:
    r"""Return True if most tokens have a label, and each label is the id of its own token; False in `real` is padding.

    Masked labels never are: few tokens have one, and most of those stand at mask tokens.

    Example:
        >>> ids = Ragged.from_rows([[5, 6, 7]])
        >>> copies(Ragged.from_rows([[-100, 6, 7]]), ids), copies(Ragged.from_rows([[-100, 1, 0]]), ids)
        (True, False)
    """
    made = labels.values != IGNORED
    tokens = len(made) if real is None else np.count_nonzero(real)
    return bool(2 * made.sum() > tokens and (labels.values[made] == ids.values[made]).all())


def ragged_labels(values: Values) -> Ragged:
    r"""Labels that are token sequences of their own, as in translation: any length a row.

    Example:
        >>> ragged_labels([[5, 6], [7]]).lengths
        array([2, 1])
    """
    return Ragged.from_rows(list(values), name="labels")


def _number_or_row(index: int, value: Any, name: str) -> NDArray[Any]:
    row = None if is_missing(value) else numbers(value, index, name)
    if row is None:
        raise TypeError(
            explain(
                f"row {index} of column '{name}' is {type(value).__name__}, expected a number or a list of numbers",
                got=repr(value)[:60],
                fix='map names to numbers first, e.g. ds.class_encode_column("label")',
            )
        )
    return row


class Masking:
    r"""Masked language modelling through transformers' own `DataCollatorForLanguageModeling`.

    With a seed the masks of a document depend on the seed and its own ids alone: the same in every evaluation, in every
    process, at every batch size and padding side. Without one they come from torch's generator, which a `DataLoader`
    seeds for each of its workers and `set_seed` for a whole run.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): knows the mask token and the special tokens, which are never masked.
        seed (`int`, *optional*): see above.
        mlm_probability, mask_replace_prob, random_replace_prob, whole_word_mask: as in transformers. Whole words are
            always replaced by mask tokens.

    Raises:
        ValueError: if the tokenizer has no mask token, or a probability is out of range.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int | None,
        mlm_probability: float,
        mask_replace_prob: float,
        random_replace_prob: float,
        whole_word_mask: bool,
    ) -> None:
        if tokenizer.mask_token is None:
            raise ValueError(
                explain(
                    'labels="masked_lm" needs a tokenizer with a mask token',
                    got=f"{type(tokenizer).__name__} without one",
                    fix='labels="causal_lm", or tokenizer.add_special_tokens({"mask_token": "[MASK]"}) before',
                )
            )
        shares = {
            "mlm_probability": mlm_probability,
            "mask_replace_prob": mask_replace_prob,
            "random_replace_prob": random_replace_prob,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(explain(f"{name} must be between 0 and 1", got=share, fix=f"{name}=0.15"))
        if mask_replace_prob + random_replace_prob > 1:
            raise ValueError(
                explain(
                    "mask_replace_prob and random_replace_prob must not add up to more than 1",
                    got=f"{mask_replace_prob} + {random_replace_prob}",
                    fix="mask_replace_prob=0.8, random_replace_prob=0.1",
                )
            )
        self._seed = seed
        self._whole_words = whole_word_mask
        self._special = np.array(sorted(set(tokenizer.all_special_ids)), dtype=np.int64)
        self._theirs = self._make_theirs(tokenizer, shares)

    def _make_theirs(
        self, tokenizer: PreTrainedTokenizerBase, shares: dict[str, float]
    ) -> DataCollatorForLanguageModeling:
        from transformers import DataCollatorForLanguageModeling

        if self._whole_words:  # the one combination that transformers supports; it warns about every other
            shares = {**shares, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
        return DataCollatorForLanguageModeling(
            tokenizer, mlm=True, whole_word_mask=self._whole_words, return_tensors="np", **shares
        )

    def __call__(
        self, ids: Ragged, words: Ragged | None, real: NDArray[np.bool_] | None, special: Ragged | None = None
    ) -> tuple[Ragged, Ragged]:
        r"""Masks the rows of a batch, before padding.

        Args:
            ids (`Ragged` of int64): token ids.
            words (`Ragged` of int64, *optional*): the word of each token, -1 at special tokens; for whole words.
            real (`np.ndarray` `(N,)` bool, *optional*): False at padding, where rows came padded.
            special (`Ragged` of int64, *optional*): 1 at tokens that are never masked, as `special_tokens_mask`; by
                default the special tokens of the tokenizer.

        Returns:
            The ids with masks in them, and the labels: the original id where it is to be predicted, -100 elsewhere.

        Raises:
            ValueError: if whole words are to be masked and nobody knows the words.
        """
        if self._whole_words and words is None:
            raise ValueError(
                explain(
                    "whole_word_mask needs the word of each token, in a column word_ids; offset_mapping is not read",
                    got="rows with input_ids, without word_ids",
                    fix="collate texts, or tokenise with dataset.map(collate, batched=True), which makes word_ids",
                )
            )
        if real is not None:  # padding that came with the rows takes no part in drawing
            words, special = (None if column is None else column.where(real) for column in (words, special))
            masked, labels = self(ids.where(real), words, None, special)
            new, label = ids.values.copy(), np.full(len(ids.values), IGNORED)
            new[real], label[real] = masked.values, labels.values
            return Ragged(new, ids.lengths), Ragged(label, ids.lengths)
        never = np.isin(ids.values, self._special) if special is None else special.values.astype(np.bool_)
        if words is not None:
            never |= words.values < 0
        if self._seed is None and not self._whole_words:
            # All rows as one: which tokens are masked depends on no neighbour.
            new, label = self._draw(ids.values, never, None)
            return Ragged(new, ids.lengths), Ragged(label, ids.lengths)
        new, label = ids.values.copy(), np.full(len(ids.values), IGNORED)
        for start, stop in pairwise(ids.offsets.tolist()):
            if start < stop:
                run = slice(start, stop)
                word_run = None if words is None else words.values[run]
                new[run], label[run] = self._draw(ids.values[run], never[run], word_run)
        return Ragged(new, ids.lengths), Ragged(label, ids.lengths)

    def _draw(
        self, ids: NDArray[np.int64], special: NDArray[np.bool_], words: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One flat run of ids, masked with the next random numbers."""
        offsets = None if words is None else _offsets(words)
        if self._seed is not None:
            theirs = copy.copy(self._theirs)  # the generator is an attribute, and other threads draw as well
            theirs.generator = np.random.default_rng([self._seed, *_digest(ids)])
            new, label = theirs.numpy_mask_tokens(ids[None].copy(), special[None], offsets)
            return new[0], label[0]
        import torch

        tensors = torch.from_numpy(ids[None].copy()), torch.from_numpy(special[None])
        new, label = self._theirs.torch_mask_tokens(*tensors, offsets)
        return new.numpy()[0], label.numpy()[0]


def _digest(row: NDArray[np.int64]) -> tuple[int, int]:
    digest = hashlib.blake2b(np.ascontiguousarray(row, dtype="<i8").tobytes(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _offsets(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Character offsets that say the same as word ids: transformers takes a gap between tokens for a new word."""
    new_word = np.diff(words, prepend=words[:1]) != 0
    ends = np.cumsum(1 + new_word) + 1
    return np.stack([ends - 1, ends], axis=-1)[None]  # (1, N, 2)

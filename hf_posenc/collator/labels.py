"""Labels for language modeling, made from the ids, and targets: labels that are separate token sequences.

transformers masks the tokens, with random numbers from this module if there is a seed, and from torch otherwise.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED, PaddingSide
from .._common.errors import value_error
from ..ragged import Ragged, round_up
from ..tokenization import Limits, TokenRows
from .settings import LabelName, MaskedLM, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .config import Config


Labels = NDArray[Any] | Ragged | None  # one value per row, one per token, or none


class MaskedLabels:
    r"""Callable that makes the labels of `labels="masked_lm"`: it masks tokens for masked language modeling.

    It calls `DataCollatorForLanguageModeling` of transformers. With a seed the masks of a document depend only on the
    seed and the document's ids. They are the same in every evaluation, process, batch size and padding side. Without a
    seed the random numbers come from torch's generator, which a `DataLoader` seeds for each worker and `set_seed` for a
    whole run.
    """

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.mask_token is None:
            raise value_error(
                'labels="masked_lm" needs a tokenizer with a mask token',
                got=f"{type(tokenizer).__name__} without one",
                fix='labels="causal_lm", or tokenizer.add_special_tokens({"mask_token": "[MASK]"}) before',
            )
        given = settings.labels
        masking = given if isinstance(given, MaskedLM) else MaskedLM(settings.mlm_probability)
        self._seed = settings.seed
        self._whole_words = masking.whole_word_mask
        self._special = np.array(sorted(set(tokenizer.all_special_ids)), dtype=np.int64)
        options = asdict(masking)
        if self._whole_words:  # the only combination that transformers supports; it warns about every other
            options |= {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
        from transformers import DataCollatorForLanguageModeling

        self._masking = DataCollatorForLanguageModeling(tokenizer, mlm=True, return_tensors="np", **options)

    def __call__(self, rows: TokenRows) -> tuple[Ragged, Ragged]:
        """Return the ids with some masked, and labels: the original id at tokens to predict, -100 at all others.

        Special tokens are never masked. They are the tokens with 1 in the column `special_tokens_mask`; without this
        column, the tokens with a special id of the tokenizer. If there is a column `word_ids`, tokens of no word (-1)
        are not masked either.
        """
        tokens, is_token = rows.without_padding(), rows.is_token  # random numbers are drawn for tokens only
        ids, words, special = tokens.ids, tokens.columns.get("word_ids"), tokens.columns.get("special_tokens_mask")
        if self._whole_words and words is None:
            raise value_error(
                "whole_word_mask needs the word of each token, in a column word_ids; offset_mapping is not read",
                got="rows with input_ids, without word_ids",
                fix="collate texts, or tokenize with dataset.map(collate, batched=True), which makes word_ids",
            )
        never = np.isin(ids.values, self._special) if special is None else special.values.astype(np.bool_)
        if words is not None:
            never |= words.values < 0
        # Without a seed and words, tokens are independent: all rows are masked at once.
        by_row = self._seed is not None or self._whole_words
        masked, labels = ids.values.copy(), np.full(len(ids.values), IGNORED)
        for start, stop in pairwise(ids.offsets.tolist()) if by_row else [(0, len(masked))]:
            if start < stop:
                run = slice(start, stop)
                word_run = words.values[run] if self._whole_words and words is not None else None
                masked[run], labels[run] = self._draw(ids.values[run], never[run], word_run)
        if is_token is not None:
            of_tokens = masked, labels
            masked, labels = rows.ids.values.copy(), np.full(len(is_token), IGNORED)
            masked[is_token], labels[is_token] = of_tokens
        return Ragged(masked, rows.ids.lengths), Ragged(labels, rows.ids.lengths)

    def _draw(
        self, ids: NDArray[np.int64], special: NDArray[np.bool_], words: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the masked ids and the labels of a flat array `ids` `(N,)`."""
        # The random numbers depend only on the seed and `ids`; without a seed they come from torch's generator.
        offsets = None
        if words is not None:  # artificial character offsets: transformers takes a gap for the start of a word
            ends = np.cumsum(1 + (np.diff(words, prepend=words[:1]) != 0)) + 1
            offsets = np.stack([ends - 1, ends], axis=-1)[None]  # (1, N, 2)
        if self._seed is not None:
            masking = copy.copy(self._masking)  # a copy, because threads would share the attribute `generator`
            masking.generator = np.random.default_rng([self._seed, *_digest(ids)])
            new, label = masking.numpy_mask_tokens(ids[None].copy(), special[None], offsets)
            return new[0], label[0]
        import torch

        tensors = torch.from_numpy(ids[None].copy()), torch.from_numpy(special[None])
        new, label = self._masking.torch_mask_tokens(*tensors, offsets)
        return new.numpy()[0], label.numpy()[0]


def _digest(row: NDArray[np.int64]) -> tuple[int, int]:
    digest = hashlib.blake2b(np.ascontiguousarray(row, dtype="<i8").tobytes(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


# ---------------------------------------------------------------------------------------- labels that are made from ids


def causal_labels(rows: TokenRows) -> tuple[Ragged, Ragged]:
    """Return the ids, and labels for causal language models: the same ids, -100 at padding. Models shift the labels."""
    ids, is_token = rows.ids, rows.is_token
    return ids, ids if is_token is None else Ragged(np.where(is_token, ids.values, IGNORED), ids.lengths)


# Function that takes rows and returns their ids, possibly masked, and one label per token.
LabelMaker = Callable[[TokenRows], tuple[Ragged, Ragged]]


@dataclass(frozen=True)
class LabelKind:
    """Kind of labels that a collator makes from ids: one value of its argument `labels=`, such as `"causal_lm"`.

    `maker(settings, tokenizer)` returns a `LabelMaker`, a function from rows to ids and labels. `predicts_next` is True
    if each label is predicted from the token before it, as in causal models. The label of each packed document's first
    token is then -100, and a model that is not causal raises an error.
    """

    maker: Callable[[Settings, PreTrainedTokenizerBase], LabelMaker]
    predicts_next: bool


# To add a kind of labels, write its maker, and add its name to `LabelName` and an entry here.
LABEL_KINDS: dict[LabelName, LabelKind] = {
    "causal_lm": LabelKind(lambda settings, tokenizer: causal_labels, predicts_next=True),
    "masked_lm": LabelKind(MaskedLabels, predicts_next=False),
}


# -------------------------------------------------------------------- targets: labels that are sequences of their own


def truncate_targets(targets: Ragged, limits: Limits, model: str | None) -> tuple[Ragged, int]:
    r"""Truncate targets, the token sequences to predict, to `limits.max_length`.

    Return them and the number of targets that lost tokens. If a target is too long, labels of -100 at both ends are
    removed before any token is. If it is still too long and truncation is off, raise a `ValueError`. If the limit is a
    model's, `model` is its name, for the message.

    Example:
        >>> targets, lost = truncate_targets(Ragged.from_rows([[5, 6, 7], [8, -100, -100]]), Limits(2), None)
        >>> targets.values, lost
        (array([5, 6, 8]), 1)
    """
    limit = limits.max_length
    if limit is None or targets.longest <= limit:
        return targets, 0
    rows, lost = [], 0
    for index, target in enumerate(targets):
        row = target
        if len(row) > limit:
            real = np.flatnonzero(row != IGNORED)
            row = row[real[0] : real[-1] + 1] if len(real) else row[:0]
        if len(row) > limit and not limits.truncates:
            raise value_error(
                f"the target of row {index} has {len(row)} tokens, limit {limit}",
                got="truncation off" + (f", and {model} takes no more" if model is not None else ""),
                fix="truncation=True, or drop such rows first",
            )
        lost += len(row) > limit
        rows.append(row[:limit])
    return Ragged.from_rows(rows, name="labels"), lost


def decoder_inputs(labels: NDArray[np.int64], start: int, padding: int, side: PaddingSide) -> dict[str, NDArray[Any]]:
    r"""Return the inputs of a decoder for training: for each row a start token, then its labels without the last one.

    So each label is predicted from the ones before it.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1 (outputs shifted right). arXiv:1706.03762.

    Example:
        >>> made = decoder_inputs(np.array([[5, 6, 7], [8, -100, -100]]), 1, 0, "right")
        >>> made["decoder_input_ids"], made["decoder_attention_mask"]
        (array([[1, 5, 6],
               [1, 0, 0]]), array([[1, 1, 1],
               [1, 0, 0]]))
    """
    rows, length = labels.shape
    real = labels != IGNORED  # (B, T)
    first = np.where(real.any(axis=1), real.argmax(axis=1), 0 if side == "right" else length - 1)
    last = length - 1 - real[:, ::-1].argmax(axis=1)
    before = np.full_like(labels, IGNORED)
    before[:, 1:] = labels[:, :-1]
    is_input = (before != IGNORED) & (np.arange(length) <= last[:, None])  # (B, T)
    ids = np.where(is_input, before, padding)
    starts = np.arange(rows), first
    ids[starts], is_input[starts] = start, True
    return {"decoder_input_ids": ids, "decoder_attention_mask": is_input.astype(np.int64)}


def pad_targets(config: Config, targets: Ragged) -> dict[str, NDArray[Any]]:
    """Return targets, the token sequences to predict, as padded `labels` `(B, T)`.

    `decoder_input_ids` and `decoder_attention_mask` are added if the model does not make the inputs of its decoder.
    Raise a `ValueError` if rounding up to `pad_to_multiple_of` exceeds the model's limit.
    """
    limit, multiple = config.target_limits.max_length, config.settings.pad_to_multiple_of
    longest = limit if config.padding == "max_length" else None
    width = round_up(max(longest or targets.longest, 1), multiple)
    model = config.limited_by("max_target_length")
    if model is not None and limit is not None and width > limit:
        raise value_error(
            f"targets of {targets.longest} tokens would be padded to {width}, limit {limit}",
            got=f"pad_to_multiple_of={multiple}, and {model} takes no more",
            fix=f"max_target_length={width - (multiple or 0)}",
        )
    labels = targets.pad(IGNORED, width, side=config.side)
    if config.decoder_start is None:
        return {"labels": labels}
    return {**decoder_inputs(labels, config.decoder_start, config.fills["input_ids"], config.side), "labels": labels}


def supervised_rows(config: Config, labels: Ragged, rows: TokenRows) -> NDArray[np.int64] | None:
    """Return the indices of the rows to keep in a batch; `None` if all are kept.

    The setting `unsupervised` applies to rows whose labels are all -100: `"drop"` leaves them out, `"keep"` keeps them,
    and `"error"` raises a `ValueError`. By default such a row raises too, unless it has masked labels or no tokens, or
    is a packed document of one token. `"drop"` also raises if no row is left.
    """
    settings, kind = config.settings, config.label_kind
    default = "error" if kind is None or kind.predicts_next else "keep"  # a short row may have no masked token
    is_read = config.accepts is None or "labels" in config.accepts
    if not is_read or (settings.unsupervised or default) == "keep":
        return None
    is_label = labels.values != IGNORED
    if is_label.all() and labels.shortest:
        return None
    has_label = labels.where(is_label).lengths > 0
    if settings.unsupervised is None:
        # Kept by default: rows of padding, for empty="keep", and packed documents whose only token is not predicted.
        has_label |= rows.without_padding().ids.lengths <= (1 if settings.packing else 0)
    kept = np.flatnonzero(has_label)
    if len(kept) == len(has_label):
        return None
    if settings.unsupervised == "drop" and len(kept):
        return kept
    row, name = int(has_label.argmin()), "max_target_length" if config.has_targets else "max_length"
    limit = (config.target_limits if config.has_targets else config.limits).max_length
    raise value_error(
        f"row {rows.sample[row]} has nothing to learn: its {labels.lengths[row]} labels are all -100"
        if settings.unsupervised != "drop"
        else "no row of the batch has a label other than -100, so none would be left",
        got=f"{len(has_label) - len(kept)} such rows of {len(has_label)}; {name}={limit}",
        fix=f'a larger {name}, if it truncated the labels; unsupervised="drop" leaves such rows out, "keep" keeps them',
    )

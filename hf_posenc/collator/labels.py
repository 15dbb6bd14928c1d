"""Labels for language modeling, made from the ids.

transformers masks the tokens, with random numbers from this module if there is a seed, and from torch otherwise.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.constants import IGNORED
from .._common.errors import value_error
from ..documents import Documents
from ..ragged import Ragged
from ..tokenization.encoder import calls_only_rust
from ..tokenization.rust import split_words
from .settings import LabelName, MaskedLM, Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class MaskedLabels:
    r"""Callable that makes the labels of `labels="masked_lm"`: it masks tokens for masked language modeling.

    It calls `DataCollatorForLanguageModeling` of transformers. With a seed the masks of a document depend only on the
    seed and the document's ids. They are the same in every evaluation, process, batch size and padding side. Without a
    seed the random numbers come from torch's generator, which a `DataLoader` seeds for each worker and `set_seed` for a
    whole run.

    Exception: if no target is drawn in the whole batch, one token (or word) of the batch is drawn, because the loss
    without labels is NaN. With a seed it depends on the seed and the ids of the batch.
    """

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.mask_token_id is None:
            raise value_error(
                'labels="masked_lm" needs a tokenizer with a mask token',
                got=f"{type(tokenizer).__name__} without one",
                fix='labels="causal_lm", or tokenizer.add_special_tokens({"mask_token": "[MASK]"}) before',
            )
        labels = settings.labels
        masking = labels if isinstance(labels, MaskedLM) else MaskedLM()
        if settings.mlm_probability is not None:
            masking = replace(masking, mlm_probability=settings.mlm_probability)
        self._seed = settings.seed
        self._whole_words = masking.whole_word_mask
        self._special = np.array(sorted({*tokenizer.all_special_ids} - {None}), dtype=np.int64)
        # Ids of the tokens that begin a word, if the tokenizer makes one word of a text.
        self._first: NDArray[np.int64] | None = None
        if self._whole_words and (space := space_inside_words(tokenizer, settings)) is not None:
            first = [number for token, number in tokenizer.get_vocab().items() if space and token.startswith(space)]
            if not first:
                raise value_error(
                    "whole_word_mask needs the words of tokens, and this tokenizer makes one word of a text",
                    got=f"'a{space}b' for 'a b', and no token that begins with the space",
                    fix="labels=MaskedLM(whole_word_mask=False)",
                )
            self._first = np.array(first, dtype=np.int64)
            self._added = np.array([*self._special, *tokenizer.added_tokens_decoder], dtype=np.int64)
        options = asdict(masking)
        if self._whole_words:  # the only combination that transformers supports; it warns about every other
            options |= {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}
        from transformers import DataCollatorForLanguageModeling

        self._masking = DataCollatorForLanguageModeling(tokenizer, mlm=True, return_tensors="np", **options)

    def __call__(self, documents: Documents) -> tuple[Ragged, Ragged]:
        """Return the ids with some masked, and labels: the original id at tokens to predict, -100 at all others.

        Special tokens are never masked. They are the tokens with 1 in the column `special_tokens_mask`; without this
        column, the tokens with a special id of the tokenizer. If there is a column `word_ids`, tokens of no word (-1)
        are not masked either. At least one token of the batch is a target, if one can be.
        """
        ids, words, special = documents.ids, *map(documents.columns.get, ("word_ids", "special_tokens_mask"))
        if self._whole_words and self._first is None and words is None:
            raise value_error(
                "whole_word_mask needs the word of each token, in a column word_ids; offset_mapping is not read",
                got="rows with input_ids, without word_ids",
                fix="collate texts, or tokenize with dataset.map(collate, batched=True), which makes word_ids",
            )
        never = np.isin(ids.values, self._special) if special is None else special.values.astype(np.bool_)
        if words is not None:
            never |= words.values < 0
        if self._first is not None:
            is_added = np.isin(ids.values, self._added)  # a word of its own
            begins = np.isin(ids.values, self._first) | is_added
            begins[1:] |= is_added[:-1]
            if words is not None:
                begins[1:] |= np.diff(words.values) != 0
            words = Ragged(np.cumsum(begins), ids.lengths)
        by_word = words if self._whole_words else None
        # Without a seed and words, tokens are independent: all documents are masked at once.
        by_document = self._seed is not None or self._whole_words
        masked, labels = ids.values.copy(), np.full(len(ids.values), IGNORED)
        for start, stop in pairwise(ids.offsets.tolist()) if by_document else [(0, len(masked))]:
            if start < stop:
                run = slice(start, stop)
                word_run = None if by_word is None else by_word.values[run]
                masked[run], labels[run] = self._draw(self._masking, ids.values[run], never[run], word_run)
        # With masks of supervision, a token that was drawn may be no target.
        if not (labels != IGNORED).any() or (documents.masks and not _are_targets(documents, labels).any()):
            self._draw_one(documents, never, by_word, masked, labels)
        return Ragged(masked, ids.lengths), Ragged(labels, ids.lengths)

    def _draw_one(
        self,
        documents: Documents,
        never: NDArray[np.bool_],
        words: Ragged | None,
        masked: NDArray[np.int64],
        labels: NDArray[np.int64],
    ) -> None:
        """Draw one token, with its word, in a batch where no target was drawn; write into `masked` and `labels`."""
        # Only here a result depends on other rows of the batch: without any label, the loss would be NaN.
        ids = documents.ids
        targets = np.flatnonzero(_are_targets(documents, np.where(never, IGNORED, ids.values)))
        if self._masking.mlm_probability == 0 or not len(targets):
            return
        if self._seed is not None:
            index = int(np.random.default_rng([self._seed, *_digest(ids.values)]).integers(len(targets)))
        else:
            import torch

            index = int(torch.randint(len(targets), (), device="cpu"))
        place = int(targets[index])
        row = ids.row_of(place)
        run = slice(*ids.offsets[row : row + 2].tolist())
        word_run = None if words is None else words.values[run]
        number = np.arange(run.stop - run.start) if word_run is None else _word_numbers(word_run)
        is_other = number != number[place - run.start]
        masking = copy.copy(self._masking)
        masking.mlm_probability = 1.0
        masked[run], labels[run] = self._draw(masking, ids.values[run], never[run] | is_other, word_run)

    def _draw(
        self, masking: Any, ids: NDArray[np.int64], special: NDArray[np.bool_], words: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the masked ids and the labels of a flat array `ids` `(N,)`."""
        # The random numbers depend only on the seed and `ids`; without a seed they come from torch's generator.
        offsets = None
        if words is not None:  # artificial character offsets: transformers takes a gap for the start of a word
            ends = np.arange(len(words)) + _word_numbers(words) + 2
            offsets = np.stack([ends - 1, ends], axis=-1)[None]  # (1, N, 2)
        if self._seed is not None:
            masking = copy.copy(masking)  # a copy, because threads would share the attribute `generator`
            masking.generator = np.random.default_rng([self._seed, *_digest(ids)])
            masked_ids, label = masking.numpy_mask_tokens(ids[None].copy(), special[None], offsets)
            return masked_ids[0], label[0]
        import torch

        tensors = torch.from_numpy(ids[None].copy()), torch.from_numpy(special[None])
        with torch.device("cpu"):  # transformers draws on torch's default device
            masked_ids, label = masking.torch_mask_tokens(*tensors, offsets)
        return masked_ids.numpy()[0], label.numpy()[0]


def space_inside_words(tokenizer: PreTrainedTokenizerBase, settings: Settings) -> str | None:
    """Return a space as the tokens have it, if the tokenizer makes one word of a text; `None` if it separates words."""
    if settings.is_split_into_words or not calls_only_rust(tokenizer):
        return None
    return next((found[1] for word in split_words(tokenizer, "a b") if (found := re.search("a(.*)b", word))), None)


def _are_targets(documents: Documents, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for each token with a label that masks of supervision leave."""
    targets, _ = documents.supervise(Ragged(labels, documents.ids.lengths), predicts_next=False)
    are_targets: NDArray[np.bool_] = targets.values != IGNORED
    return are_targets


def _word_numbers(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the words of tokens numbered 0, 1, 2, ...; a pair has the number of a word twice."""
    return np.cumsum(np.diff(words, prepend=words[:1]) != 0)


def _digest(row: NDArray[np.int64]) -> tuple[int, int]:
    digest = hashlib.blake2b(np.ascontiguousarray(row, dtype="<i8").tobytes(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


# ---------------------------------------------------------------------------------------- labels that are made from ids


def causal_labels(documents: Documents) -> tuple[Ragged, Ragged]:
    """Return the ids, and labels for causal language models: the ids themselves. Models shift the labels."""
    return documents.ids, documents.ids


# Function that takes documents and returns their ids, possibly masked, and one label per token. Each row of the
# argument is one document, without padding; `columns` has one value per token, `token_places` the place of each token
# in its document before truncation, and `per_row` the other given columns. Which labels are targets is decided later.
LabelMaker = Callable[[Documents], tuple[Ragged, Ragged]]


@dataclass(frozen=True)
class LabelKind:
    """Kind of labels that a collator makes from ids: one value of its argument `labels=`, such as `"causal_lm"`.

    `maker(settings, tokenizer)` returns a `LabelMaker`, a function from documents to ids and labels. `predicts_next` is
    True if each label is predicted from the token before it, as in causal models. The first token of a document is then
    no target, and a model that is not causal raises an error.
    """

    maker: Callable[[Settings, PreTrainedTokenizerBase], LabelMaker]
    predicts_next: bool


# To add a kind of labels, write its maker, and add its name to `LabelName` and an entry here.
LABEL_KINDS: dict[LabelName, LabelKind] = {
    "causal_lm": LabelKind(lambda settings, tokenizer: causal_labels, predicts_next=True),
    "masked_lm": LabelKind(MaskedLabels, predicts_next=False),
}

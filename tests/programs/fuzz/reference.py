"""A slow reference of the collator: one row at a time, with the tokenizer itself and plain Python lists.

It shares no code with the package but `sinusoidal_encoding`, which other tests hold against mpmath.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from hf_posenc import sinusoidal_encoding

from .kinds import ROLES, Kind, reference_tokenizer

DEFAULTS: dict[str, Any] = {
    **{"text_column": "text", "text_pair_column": None, "text_target_column": None, "is_split_into_words": False},
    **{"padding": True, "padding_side": None, "pad_token": None, "pad_to_multiple_of": None, "truncation": True},
    **{"max_length": None, "max_target_length": None, "return_overflowing_tokens": False, "stride": 0},
    **{"add_special_tokens": True, "on_empty": "error", "look_ahead": None, "packing": False, "labels": None},
    **{"on_no_labels": None, "seed": None, "convention": "vaswani", "embedding": None, "base": None, "scale": None},
    **{"zero_padding": True, "return_tensors": "pt"},
}
_STRATEGIES = {True: "longest_first", False: "do_not_truncate", None: "do_not_truncate"}
_PADDINGS = {True: "longest", False: "do_not_pad"}
_FIRST = {"fairseq": 2, "m2m100": 2}
_PADDING_POSITION = {"fairseq": 1, "m2m100": 1}
IGNORED = -100


@dataclass
class Row:
    """A row of tokens: ids, token types, the index of its text; one label per token, positions and documents.

    `is_numbered` is True if the documents have numbers even in a row of one document: they were given, or truncated.
    """

    ids: list[int]
    types: list[int]
    sample: int
    labels: list[int] | None = None
    positions: list[int] | None = None
    documents: list[int] | None = None
    is_numbered: bool = False

    def split(self) -> list[Row]:
        """Return one row for each document."""
        per_token = ("ids", "types", "labels", "positions", "documents")
        numbers = self.documents or [0] * len(self.ids)
        return [
            replace(
                self,
                **{
                    name: [value for value, other in zip(getattr(self, name), numbers, strict=True) if other == number]
                    for name in per_token
                    if getattr(self, name) is not None
                },
            )
            for number in dict.fromkeys(numbers)
        ] or [self]

    def closed(self) -> Row:
        """Return the row with the tokens of each document together, in the order in which documents begin."""
        if self.documents is None:
            return self
        numbers = list(dict.fromkeys(self.documents))
        order = sorted(range(len(self.ids)), key=lambda index: numbers.index(self.documents[index]))
        names = [name for name in ("ids", "types", "labels", "positions") if getattr(self, name) is not None]
        moved = {name: [getattr(self, name)[index] for index in order] for name in names}
        return replace(self, **moved, documents=[numbers.index(self.documents[index]) for index in order])


@dataclass
class Wanted:
    """The expected result: `refusals` are regular expressions of which an error must match one, if there are any.

    `batch` is `None` if the values depend on random numbers or on the packing; then `rows` are the documents.
    """

    rows: list[Row] = field(default_factory=list)
    batch: dict[str, Any] | None = None
    refusals: list[str] = field(default_factory=list)
    may_refuse: list[str] = field(default_factory=list)


class Reference:
    """Expected batches of one tokenizer and one set of options."""

    def __init__(self, kind: Kind, options: dict[str, Any]) -> None:
        self.kind, self.tokenizer, self.o = kind, reference_tokenizer(kind), DEFAULTS | options
        if self.o["embedding"] is None:
            self.o["convention"] = "vaswani"
        self.strategy = _STRATEGIES.get(self.o["truncation"], self.o["truncation"])
        self.padding = _PADDINGS.get(self.o["padding"], self.o["padding"])
        own = None if kind.raw else self.tokenizer.model_max_length
        self.own_limit = int(own) if own and own < 10**9 else None
        self.limit = smallest(self.o["max_length"], self.own_limit)
        self.target_limit = smallest(self.o["max_target_length"], self.own_limit)
        self.overflow = self.o["return_overflowing_tokens"]
        self.side = self.o["padding_side"] or ("right" if kind.raw else self.tokenizer.padding_side)
        self.names = PreTrainedTokenizerFast.model_input_names if kind.raw else self.tokenizer.model_input_names
        self.first = _FIRST.get(self.o["convention"], 0)
        self.pad_position = _PADDING_POSITION.get(self.o["convention"], self.first)
        self.family: Any = None  # the model, see `fitted.Family`

    # -- ids of special tokens ----------------------------------------------------------------------------------------

    def id_of(self, role: str) -> int | None:
        """Return the id of a special token, or `None`."""
        if not self.kind.raw:
            found = getattr(self.tokenizer, f"{role}_id")
            return None if found is None else int(found)
        return self.tokenizer.token_to_id(ROLES[role])

    @property
    def pad_id(self) -> int:
        """The id of padding; 0 if there is none."""
        token = self.o["pad_token"]
        eos = self.id_of("eos_token")
        if token == "eos" and eos is not None:
            return eos
        if token is not None:
            rust = self.tokenizer if self.kind.raw else getattr(self.tokenizer, "backend_tokenizer", None)
            return rust.token_to_id(token) if rust is not None else self.tokenizer.convert_tokens_to_ids(token)
        if self.kind.raw and self.kind.baked:
            baked = self.kind.rust().padding["pad_token"]
            if self.tokenizer.token_to_id(baked) is not None:
                return int(self.tokenizer.token_to_id(baked))
        return self.id_of("pad_token") or 0

    # -- tokens of one text -------------------------------------------------------------------------------------------

    def pieces(self, text: Any, pair: Any, limit: int | None, overflow: bool) -> list[tuple[list[int], list[int]]]:
        """Return ids and token types of one text: one row, or several with `overflow`."""
        words, special = self.o["is_split_into_words"], self.o["add_special_tokens"]
        truncates = limit is not None and self.strategy != "do_not_truncate"
        stride = self.o["stride"] if overflow else 0
        if self.kind.raw:
            self.tokenizer.no_truncation()
            if truncates:
                self.tokenizer.enable_truncation(limit, stride=stride, strategy=self.strategy)
            one = self.tokenizer.encode(text, pair, is_pretokenized=words, add_special_tokens=special)
            self.tokenizer.no_truncation()
            found = [one, *(one.overflowing if overflow else [])]
            return [(each.ids, each.type_ids) for each in found]
        if not self.tokenizer.is_fast and words:  # a slow tokenizer refuses an empty list
            text, pair = text or [""], pair if pair is None else pair or [""]
        if not self.tokenizer.is_fast and overflow and truncates and pair is None:
            return self._windows(text, limit)
        settings: dict[str, Any] = {"truncation": "do_not_truncate"}
        if truncates and (self.tokenizer.is_fast or self._is_longer(text, pair, limit)):
            settings = {"truncation": self.strategy, "max_length": limit, "stride": stride}
            settings["return_overflowing_tokens"] = overflow
        # As batches of one, because a call with one empty second text is read as a call without it.
        made = self.tokenizer(
            [text],
            None if pair is None else [pair],
            add_special_tokens=special,
            is_split_into_words=words,
            return_token_type_ids=True,
            verbose=False,
            **settings,
        )
        ids = made["input_ids"]
        types = made.get("token_type_ids") or [[0] * len(row) for row in ids]
        return [(list(a), list(b)) for a, b in zip(ids, types, strict=True)]

    def _is_longer(self, text: Any, pair: Any, limit: int | None) -> bool:
        settings = {"add_special_tokens": self.o["add_special_tokens"], "verbose": False}
        settings["is_split_into_words"] = self.o["is_split_into_words"]
        if self.o["is_split_into_words"]:  # a slow tokenizer refuses an empty list
            text, pair = text or [""], pair if pair is None else pair or [""]
        return limit is not None and len(self.tokenizer(text, pair, **settings)["input_ids"]) > limit

    def _windows(self, text: Any, limit: int | None) -> list[tuple[list[int], list[int]]]:
        """Return the windows of a slow tokenizer, which makes none itself."""
        words = self.o["is_split_into_words"]
        bare = self.tokenizer(text, add_special_tokens=False, is_split_into_words=words, verbose=False)["input_ids"]
        special = self.tokenizer.num_special_tokens_to_add(pair=False) if self.o["add_special_tokens"] else 0
        size, rows = limit - special, []
        tokens = bare if self.kind.truncation_side == "right" else bare[::-1]
        start = 0
        while True:
            window = tokens[start : start + size]
            window = window if self.kind.truncation_side == "right" else window[::-1]
            if self.o["add_special_tokens"]:
                window = self.tokenizer.build_inputs_with_special_tokens(window)
            rows.append((list(window), [0] * len(window)))
            if start + size >= len(bare):
                return rows
            start += size - self.o["stride"]

    # -- batches ------------------------------------------------------------------------------------------------------

    def texts(
        self, texts: Sequence[Any], pairs: Sequence[Any] | None, targets: Sequence[Any] | None, others: dict[str, Any]
    ) -> Wanted:
        """Return the expected result for texts or pairs, with targets and other columns."""
        wanted = Wanted()
        if any(_has_surrogate(text) for text in (*texts, *(pairs or ()), *(targets or ()))):
            wanted.refusals.append("lone surrogate")
            wanted.may_refuse.append("tokens, limit|cannot be truncated|raised an error")  # of a text in another column
            return wanted
        special = self.tokenizer.num_special_tokens_to_add(pairs is not None) if self.o["add_special_tokens"] else 0
        truncates = self.limit is not None and self.strategy != "do_not_truncate"
        if truncates and self.limit < special + 1 + (self.o["stride"] if self.overflow else 0):
            wanted.refusals.append("must leave room for")
            return wanted
        vocabulary = self.tokenizer.get_vocab() if self.o["is_split_into_words"] else {}
        if any(
            word in vocabulary and word[1:] and word.startswith(("Ġ", "▁", "##")) for words in texts for word in words
        ):
            wanted.refusals.append("is_split_into_words=True reads words")
            return wanted
        for index, text in enumerate(texts):
            pair = None if pairs is None else pairs[index]
            try:
                found = self.pieces(text, pair, self.limit, self.overflow)
            except BaseException as error:  # a panic of Rust is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                wanted.refusals += ["raised an error", "cannot be truncated", "needs a fast tokenizer"]
                return wanted
            slow_pair = pair is not None and self.overflow and not self.kind.raw and not self.tokenizer.is_fast
            if slow_pair and truncates and self._is_longer(text, pair, self.limit):
                wanted.refusals.append("needs a fast tokenizer")
                return wanted
            # ByT5 counts an end token of the text twice in its types.
            wanted.rows += [Row(ids, None if types is None else types[: len(ids)], index) for ids, types in found]
        if targets is None:
            return self.batch(wanted, others, None)
        if self.target_limit is not None and self.strategy != "do_not_truncate":
            alone = self.tokenizer.num_special_tokens_to_add(False) if self.o["add_special_tokens"] else 0
            if self.target_limit < alone + 1:
                wanted.refusals.append("must leave room for")
                return wanted
        made = []
        for target in targets:
            try:
                made.append(self.pieces(target, None, self.target_limit, False)[0][0])
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                wanted.refusals += ["raised an error", "cannot be truncated"]
                return wanted
            if self.target_limit is not None and len(made[-1]) > self.target_limit:
                wanted.refusals.append("the target of row|cannot be truncated")
        return self.batch(wanted, others, made)

    def batch(self, wanted: Wanted, others: dict[str, Any], targets: list[list[int]] | None) -> Wanted:
        """Fill in the expected batch of the rows, or the refusals."""
        rows, o = wanted.rows, self.o
        if any(not row.ids for row in rows) and o["on_empty"] == "error":
            wanted.refusals.append("has no tokens")
        if self.limit is not None and max(len(row.ids) for row in rows) > self.limit:
            wanted.refusals.append("tokens, limit|cannot be truncated")
        if wanted.refusals:
            return wanted
        row_labels = self._given_labels(wanted, others, targets is not None)
        has_labels = bool(o["labels"]) or targets is not None or row_labels is not None or rows[0].labels is not None
        if self.family is not None and self.family.classes and any(len({*(row.documents or ())}) > 1 for row in rows):
            wanted.refusals.append("has one output for each row")
        if o["on_no_labels"] is not None and not has_labels:
            wanted.refusals.append("on_no_labels is the treatment of rows without labels|without padding|consecutive")
        if targets is None and not o["labels"]:
            self._check_classes(wanted, [each for row in rows for each in row.labels or ()])
        if wanted.refusals:
            return wanted
        if o["labels"] == "causal_lm":
            for row in rows:
                row.labels = list(row.ids) if row.labels is None else row.labels
        if self.family is not None and self.family.shifts is False and rows[0].labels is not None and _copies(rows):
            wanted.refusals.append("it would learn to copy them")
        if o["labels"] == "masked_lm":
            wanted.may_refuse += ["nothing to learn", "no row of the batch has a label"]
        if o["packing"]:
            if row_labels is not None:
                wanted.refusals.append("one label per row does not fit")
                return wanted
            return self._packed(wanted)
        supervision: Any = [targets[row.sample] for row in rows] if targets is not None else None
        if supervision is None:  # where it is unknown which labels are predicted, a row with labels may have a target
            supervision = [self._targets(row) if self._predicts_next() else row.labels for row in rows]
        kept = self._supervised(wanted, supervision, rows)
        rows = wanted.rows = [row for row, keep in zip(rows, kept, strict=True) if keep]
        if wanted.refusals:
            return wanted
        width = self._width(wanted, [row.ids for row in rows])
        if wanted.refusals:
            return wanted
        samples = [row.sample for row in rows]
        batch: dict[str, Any] = {"input_ids": self._pad([row.ids for row in rows], self.pad_id, width)}
        batch["attention_mask"] = self._pad([[1] * len(row.ids) for row in rows], 0, width)
        if "token_type_ids" in self.names and (rows and rows[0].types is not None):
            types = 0 if self.kind.raw else self.tokenizer.pad_token_type_id
            batch["token_type_ids"] = self._pad([row.types for row in rows], types, width)
        batch["position_ids"] = self._pad([self.positions(row) for row in rows], self.pad_position, width)
        documents = [row.documents or [0] * len(row.ids) for row in rows]
        is_packed = any(len(set(row)) > 1 for row in documents)
        if is_packed:
            del batch["attention_mask"]
        for row, numbers in zip(rows, documents, strict=True):
            if targets is None and (len(set(numbers)) > 1 or self.side == "left"):
                row.labels = self._targets(row)
        if is_packed or any(row.is_numbered for row in rows):
            batch["document_ids"] = self._pad(documents, -1, width)
        if targets is not None:
            self._add_targets(batch, [targets[sample] for sample in samples])
        elif rows and rows[0].labels is not None:
            batch["labels"] = self._pad([row.labels for row in rows], IGNORED, width)
        elif row_labels is not None:
            batch["labels"] = row_labels
        if self.overflow:
            batch["overflow_to_sample_mapping"] = np.array(samples, dtype=np.int64)
        for name, values in others.items():
            if name not in ("length", "label", "labels", "label_ids"):
                column = _column([values[sample] for sample in samples])
                if column is not None:
                    batch[name] = column
        return self._finish(wanted, batch)

    def _predicts_next(self) -> bool | None:
        """Return True if each label is predicted from the token before it; `None` if that is unknown."""
        if self.o["labels"]:
            return bool(self.o["labels"] == "causal_lm")
        return None if self.family is None or self.family.shifts is None else bool(self.family.shifts)

    def _targets(self, row: Row) -> Any:
        """Return the labels of a row with -100 at first tokens of documents whose labels another token predicts."""
        if row.labels is None:
            return None
        before, labels, predicts = None, [], self._predicts_next()
        for label, token, number in zip(row.labels, row.ids, row.documents or [0] * len(row.ids), strict=True):
            is_first = number != before
            labels.append(IGNORED if is_first and (label == token if predicts is None else predicts) else label)
            before = number
        return labels

    def _finish(self, wanted: Wanted, batch: dict[str, Any]) -> Wanted:
        """Add the look-ahead mask and the embeddings, and keep what the model takes."""
        looks = "labels" if self.o["text_target_column"] is not None else "input_ids"
        has_mask = self.o["look_ahead"]
        if has_mask is None:
            has_mask = self.o["packing"] != "flat" and self.o["labels"] != "masked_lm"
            has_mask |= self.family is not None  # filtered below
        if has_mask and looks in batch:
            count, length = batch[looks].shape
            keys = np.arange(length)
            batch["look_ahead_mask"] = np.array([[keys <= keys[:, None]]] * count).reshape(count, 1, length, length)
        if self.o["embedding"] is not None:
            batch["inputs_embeds"] = self._embedded(batch)
        wanted.batch = batch
        if self.family is not None:
            if "document_ids" in batch and "attention_mask" not in batch and "document_ids" not in self.family.keys:
                batch["attention_mask"] = self.isolating(batch["document_ids"])
                if not self.family.packs:
                    wanted.refusals.append("cannot isolate them")
            if self.family.shift_targets is not None and "labels" in batch:
                batch.pop("decoder_attention_mask", None)
                batch["decoder_input_ids"] = self.family.shift_targets(batch["labels"])
            if "cu_seq_lens_q" in batch:
                batch["use_cache"] = False
            wanted.batch = {key: value for key, value in batch.items() if key in self.family.keys}
            if "inputs_embeds" in wanted.batch:
                del wanted.batch["input_ids"]
        return wanted

    def isolating(self, documents: Any) -> Any:
        """Return the mask that is added to attention scores; NaN for padding, whose outputs nobody reads."""
        count, width = documents.shape
        mask = np.full((count, 1, width, width), np.nan, dtype=np.float32)
        for row, query, key in np.ndindex(count, width, width):
            if documents[row, query] >= 0:
                sees = documents[row, query] == documents[row, key] and not (self.family.is_causal and key > query)
                mask[row, 0, query, key] = 0 if sees else np.finfo(np.float32).min
        return mask

    def table(self) -> Any:
        """Return the weights that the collator makes for a width."""
        rust = self.tokenizer
        vocabulary = rust.get_vocab(with_added_tokens=True) if self.kind.raw else rust.get_vocab()
        shape = (max(vocabulary.values()) + 1, self.o["embedding"])
        return np.random.default_rng(self.o["seed"] or 0).standard_normal(shape, dtype=np.float32)

    def _embedded(self, batch: dict[str, Any]) -> Any:
        """Return the embeddings at real tokens; NaN at padding, unless it is zero."""
        table, ids, width = self.table(), batch["input_ids"], self.o["embedding"]
        factor = {None: 1.0, "sqrt_d": width**0.5}.get(self.o["scale"], self.o["scale"])
        positions = torch.from_numpy(batch["position_ids"])
        waves = sinusoidal_encoding(positions, width, convention=self.o["convention"], base=self.o["base"])
        vectors = table[ids] * np.float32(factor) + waves.numpy()
        padding = batch["document_ids"] < 0 if "document_ids" in batch else batch.get("attention_mask", 1) == 0
        vectors[padding] = 0 if self.o["zero_padding"] else np.nan
        return vectors

    def positions(self, row: Row) -> list[int]:
        """Return the position of each token: as given, or counted in each document."""
        if row.positions is not None:
            return row.positions
        if row.documents is not None:
            return [self.first + row.documents[:index].count(number) for index, number in enumerate(row.documents)]
        return [*range(self.first, self.first + len(row.ids))]

    def _check_classes(self, wanted: Wanted, labels: list[int]) -> None:
        """Expect a refusal if one of `labels` is not a class of the model."""
        count = None if self.family is None else self.family.classes
        if count is not None and any(each != IGNORED and not 0 <= each < count for each in labels):
            wanted.refusals.append(f"has {count} classes")

    def _given_labels(self, wanted: Wanted, others: dict[str, Any], has_targets: bool) -> Any:
        """Return one label per row as an array, or set those per token, from a label column."""
        given = {
            name: values
            for name, values in others.items()
            if name in ("label", "labels", "label_ids") and any(value is not None for value in values)
        }
        if len(given) > 1:
            wanted.refusals.append("more than one label column")
        elif given and self.o["labels"]:
            wanted.refusals.append("makes labels from the ids|masked already|for .* tokens|expected a number")
        if given and not has_targets and not self.o["labels"] and self.family and self.family.shift_targets:
            wanted.refusals.append("must be a flat list of integers")
        if has_targets or self.o["text_target_column"] is not None:
            if given:  # labels beside targets, or tokens of targets
                wanted.may_refuse.append("")
            return None
        if not given or wanted.refusals:
            return None
        values = [next(iter(given.values()))[row.sample] for row in wanted.rows]
        first = values[0]
        flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
        if self.family is not None and "labels" in self.family.keys and any(isinstance(each, float) for each in flat):
            wanted.may_refuse.append("holds floats")
        self._check_classes(wanted, [each for each in flat if isinstance(each, int)])
        if any(value is None or isinstance(value, str) for value in values):
            wanted.refusals.append("expected a number")
        elif self.family is not None and self.family.classes is not None and isinstance(first, list):
            wanted.may_refuse.append("holds floats|same number of labels")
            return np.array(values, dtype=np.float32) if len({len(value) for value in values}) == 1 else None
        elif self.family is not None and self.family.has_logits_of_tokens and not isinstance(first, list):
            wanted.refusals.append("an output for each token")
        elif isinstance(first, list) and first and not isinstance(first[0], float):
            for row, value in zip(wanted.rows, values, strict=True):
                if len(value) != len(row.ids):
                    wanted.refusals.append("labels for")
                row.labels = value
        elif isinstance(first, list) and not first:
            wanted.may_refuse.append("")
        else:
            has_floats = isinstance(first, (float, list))
            return np.array(values, dtype=np.float32 if has_floats else np.int64)
        return None

    def _supervised(self, wanted: Wanted, labels: list[Any], rows: list[Row]) -> list[bool]:
        """Return which rows are kept; rows whose labels are all -100 may be refused or left out."""
        everything = [True] * len(labels)
        how = self.o["on_no_labels"]
        is_taken = self.family is None or "labels" in self.family.keys
        if self.o["labels"] == "masked_lm" or labels[0] is None or how == "keep" or not is_taken:
            return everything
        has = [any(label != IGNORED for label in row) for row in labels]
        if how is None:
            shortest = 1 if self.o["packing"] and any(has) else 0
            has = [found or len(row.ids) <= shortest for found, row in zip(has, rows, strict=True)]
        if all(has) or (how == "skip" and any(has)):
            return has
        wanted.refusals.append("nothing to learn" if how != "skip" else "no row of the batch has a label")
        return everything

    def _width(self, wanted: Wanted, rows: list[list[int]]) -> int:
        lengths = [len(row) for row in rows]
        if self.padding == "do_not_pad":
            if len(set(lengths)) > 1:
                wanted.refusals.append("without padding all rows must have one length")
            return lengths[0]
        longest = max(lengths)
        if self.padding == "max_length" and self.limit is not None:
            longest = self.limit
        return _rounded(longest, self.o["pad_to_multiple_of"])

    def _pad(self, rows: list[Any], fill: int, width: int, side: str | None = None) -> Any:
        padded = []
        for row in rows:
            rest = [fill] * (width - len(row))
            padded.append([*row, *rest] if (side or self.side) == "right" else [*rest, *row])
        return np.array(padded, dtype=np.int64).reshape(len(rows), width)

    def _add_targets(self, batch: dict[str, Any], targets: list[list[int]]) -> None:
        longest = max(len(target) for target in targets)
        if self.padding == "max_length" and self.target_limit is not None:
            longest = self.target_limit
        width = _rounded(longest, self.o["pad_to_multiple_of"])
        known = [self.id_of(role) for role in ("bos_token", "cls_token", "eos_token")]
        start = next((token for token in known if token is not None), self.pad_id)
        inputs = [[start, *target[:-1]] for target in targets]
        batch["decoder_input_ids"] = self._pad(inputs, self.pad_id, width, "right")
        batch["decoder_attention_mask"] = self._pad([[1] * len(row) for row in inputs], 0, width, "right")
        batch["labels"] = self._pad(targets, IGNORED, width, "right")

    def _packed(self, wanted: Wanted) -> Wanted:
        """Keep the documents; a flat row is predicted as a whole."""
        rows = [document for row in wanted.rows for document in row.split()]
        has_types, has_labels = wanted.rows[0].types is not None, wanted.rows[0].labels is not None
        known = self._predicts_next() is not None
        labels = [row.labels for row in rows]
        for row in rows:
            row.labels = self._targets(row)
        kept = self._supervised(wanted, [row.labels for row in rows] if known else labels, rows)
        rows = wanted.rows = [row for row, keep in zip(rows, kept, strict=True) if keep and row.ids]
        positions = [self.positions(row) for row in rows]
        if self.o["packing"] == "flat" and any(row != [*range(self.first, self.first + len(row))] for row in positions):
            wanted.refusals.append("in a flat row the positions of each document must be consecutive")
        if self.o["packing"] != "flat" or wanted.refusals:
            return wanted
        total = sum(len(row.ids) for row in rows)
        padding = _rounded(total, self.o["pad_to_multiple_of"]) - total if total else 0
        while padding:
            part = min(padding, self.limit or padding)
            fills = self.pad_id, 0 if self.kind.raw else self.tokenizer.pad_token_type_id, IGNORED
            ids, types, labels = ([fill] * part for fill in fills)
            rows.append(Row(ids, types, -1, labels))
            positions.append([*range(self.first, self.first + part)])
            padding -= part
        lengths = [len(row.ids) for row in rows]
        batch = {"input_ids": _flat([row.ids for row in rows])}
        if has_labels:
            batch["labels"] = _flat([row.labels for row in rows])
        if "token_type_ids" in self.names and has_types:
            batch["token_type_ids"] = _flat([row.types for row in rows])
        batch["position_ids"] = _flat(positions)
        numbers = [[number] * length for number, length in enumerate(lengths)]
        batch["seq_idx"] = _flat(numbers).astype(np.int32)
        offsets, multiple = np.cumsum([0, *lengths]).astype(np.int32), self.o["pad_to_multiple_of"]
        if multiple is not None:
            count = next(2**power for power in range(4, 64) if 2**power >= len(offsets))
            offsets = np.array([*offsets, *[offsets[-1]] * (count - len(offsets))], np.int32)
        longest = _rounded(max(lengths), multiple) if lengths else 0
        batch |= {"cu_seq_lens_q": offsets, "cu_seq_lens_k": offsets, "max_length_q": longest, "max_length_k": longest}
        return self._finish(wanted, batch)


def _copies(rows: list[Row]) -> bool:
    """Return True if all documents with labels have their own tokens as labels, from some token on to the end."""
    found = False
    for document in (document for row in rows for document in row.split()):
        labels = document.labels or []
        first = next((index for index, label in enumerate(labels) if label != IGNORED), None)
        if first is None or len(labels) < 2:
            continue
        found = True
        if labels[first:] != document.ids[first:]:
            return False
    return found


def documents_by(positions: list[list[int]]) -> list[list[int] | None]:
    """Return the documents of rows by positions that restart at their smallest; `None` for rows in which none falls.

    Equal neighbors alone do not begin a document, because they may be parts of one word.
    """
    return [
        None
        if row == sorted(row)
        else [sum(position == min(row) for position in row[: index + 1]) - 1 for index in range(len(row))]
        for row in positions
    ]


def _flat(rows: list[Any]) -> Any:
    return np.array([value for row in rows for value in row], dtype=np.int64)[None]


def smallest(*limits: Any) -> int | None:
    """Return the smallest limit that is not `None`."""
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _rounded(length: int, multiple: Any) -> int:
    length = max(length, 1)
    while multiple is not None and length % multiple:
        length += 1
    return length


def _has_surrogate(text: Any) -> bool:
    if isinstance(text, list):
        return any(map(_has_surrogate, text))
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _column(values: list[Any]) -> Any:
    """Return other values as an array; `None` for texts and missing values."""
    if all(value is None or isinstance(value, str) for value in values):
        return None
    return np.array(values)

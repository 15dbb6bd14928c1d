"""`labels`: check which tokens of a data set are trained on, before a run.

It reads labels as they are. It runs no model, applies no chat template, and makes no labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._common.compat import progress_bar
from .._common.constants import IGNORED
from .._common.errors import counted, require_one_split, shorten, type_error, value_error
from ..documents import (
    BOUNDARIES,
    LENGTHS,
    NUMBERS,
    OFFSETS,
    SUPERVISION,
    columns_of_batch,
    number_tokens,
    read_documents,
    read_mask,
    refuse_foreign_names,
)
from ..ragged import Ragged, offsets_of
from ..tokenization import number_of_ids, private_copy

_ROWS = 4096  # rows that are read at once
_COLUMNS = ("input_ids", "labels", *SUPERVISION, "position_ids", *BOUNDARIES)
_IDS = ("input_ids", "position_ids", *NUMBERS, *LENGTHS, *OFFSETS)  # never bools or floats
_COMPARED = 16  # tokens at the beginning of an answer that are compared with those of the other answers
_CAUSES = ("prompt", "first token", "between answers", "after the answer", "no answer", "padding")

# Problems of rows, with the end of the message "12 rows with ...".
_MESSAGES = {
    "untrained": "a document without a trained token",
    "lengths": "another number of labels than of tokens",
    "unknown ids": "labels that are neither -100 nor ids of the tokenizer",
    "shifted": "labels that are shifted by one token; causal models shift labels themselves, so these shift twice",
    "other ids": "labels that are not the ids of their tokens",
    "padding": "padding that is trained on",
    "doubled start": "two start tokens, as of a chat template and of the tokenizer: add_special_tokens=False",
    "truncated": "an answer that was truncated, or cut, before its end token",
    "masked end": "an answer whose end token is not trained on",
    "no end": "an answer without an end token",
}

_Table = dict[str, NDArray[Any]]  # columns of equal length, with one value for each row or document


@dataclass(frozen=True)
class LabelCheck:
    r"""Result of `labels`: numbers of trained tokens, causes of -100, and problems. `print` shows a report.

    Args:
        rows, tokens, trained (`int`): numbers of rows, of labels, and of trained labels. A label of -100 at padding is
            not counted. If labels are ids of the tokens themselves, that of a document's first token is not trained.
        kind (`"tokens"`, `"targets"` or `"classes"`): meaning of the labels: ids of the tokens themselves; ids of a
            target sequence, as for encoder-decoders; or other numbers, as in masked language modeling.
        ignored (`dict` from `str` to `int`): numbers of labels of -100 by cause. `"prompt"` is all tokens before the
            first trained one of a document, `"first token"` the same if it is a single one. `"no answer"` is documents
            without a trained token. For `"classes"`, `"other tokens"` is all but padding. `"padding"` is not a part of
            `tokens`.
        warnings (`tuple` of `str`): problems of the whole data set, such as an end token that is never trained on.
        problems (`dict` from `str` to `tuple` of `int`): numbers of the rows that have a problem, by its name:
            `"untrained"`, `"lengths"`, `"unknown ids"`, `"shifted"`, `"other ids"`, `"padding"`, `"doubled start"`,
            `"truncated"`, `"masked end"` and `"no end"`. The report says what each means. Problems that no row has are
            left out.
        worst (`tuple` of `int`): numbers of up to ten rows with problems: first those with most problems, and among
            these the ones with the smallest share of trained tokens.
    """

    rows: int
    tokens: int
    trained: int
    kind: Literal["tokens", "targets", "classes"]
    ignored: dict[str, int]
    warnings: tuple[str, ...]
    problems: dict[str, tuple[int, ...]]
    worst: tuple[int, ...]

    def __str__(self) -> str:
        numbers = {"trained on": self.trained, **{f"-100: {cause}": number for cause, number in self.ignored.items()}}
        meaning = {"targets": "ids of targets", "classes": "ids of masked tokens, or classes"}.get(self.kind)
        explanation = f"; most are not the ids of their tokens, and are read as {meaning}" if meaning else ""
        lines = [f"{counted(self.rows, 'row')}, {counted(self.tokens, 'label')}{explanation}"]
        padding = numbers.pop("-100: padding", 0)
        lines += [f"  {name:<23}{number / max(1, self.tokens):7.2%}  {number:,}" for name, number in numbers.items()]
        lines += [f"  padding, not counted {padding:>11,}"] if padding else []
        lines += self.warnings
        for name, rows in self.problems.items():
            examples = ", ".join(map(str, rows[:10])) + ", ..." * (len(rows) > 10)
            which = "row" if len(rows) == 1 else "rows"
            lines.append(f"{counted(len(rows), 'row')} with {_MESSAGES[name]}: {which} {examples}")
        worst = f"worst rows: {', '.join(map(str, self.worst))}" if self.worst else "no row has a problem"
        return "\n".join([*lines, worst])


def labels(dataset: Any, tokenizer: Any = None, *, end_token: str | None = None) -> LabelCheck:
    r"""Check which tokens of a data set are trained on, and find rows whose labels are probably wrong.

    The labels are the column `labels`. If there is none, the trained tokens are those with 1 in all of the columns
    `completion_mask`, `assistant_masks`, `assistant_tokens_mask` and `loss_mask` that the rows have. Packed rows are
    divided into documents as a collator divides them. The label of a document's first
    token is not counted, because models that predict the next token never read it. The answer of a document ends at its
    last trained token. An answer without an end token counts as truncated if its document or row has the largest length
    in the data set. An end token without a label that follows a trained token is reported at every turn of a
    conversation. Tokens that all answers have at the same place after the prompt, such as an empty `<think></think>`,
    are named if they are trained on.

    Args:
        dataset (`datasets.Dataset`, `datasets.IterableDataset`, or iterable of rows or batches): tokenized rows, or a
            `DataLoader` such as `trainer.get_train_dataloader()`, for labels that a collator makes.
        tokenizer (tokenizer or `str`, *optional*): any tokenizer that `DataCollatorWithPositionalEncoding` takes.
            Without it, end tokens and padding ids are not checked.
        end_token (`str`, *optional*): token that ends an answer, such as `"<end_of_turn>"`. By default the tokenizer's
            `eos_token`, or its `sep_token` if it has none, as BERT's. One other token may follow it, such as the line
            break of a chat template.

    Returns:
        `LabelCheck`, which `print` shows as a report. Row numbers count from 0, in the order of reading.

    Raises:
        TypeError: if a row is not a dict, or a column does not have a list of integers in each row, such as one label
            for a whole row.
        ValueError: if there are no rows, no labels, or `end_token` is not one token.

    Example:
        >>> from hf_posenc import train_bpe
        >>> tokenizer = train_bpe(["I ride bike"], vocab_size=300)
        >>> end = tokenizer.eos_token_id
        >>> rows = [
        ...     {"input_ids": [7, 8, 9, 10, end], "labels": [-100, -100, 9, 10, end]},
        ...     {"input_ids": [7, 8, 9, 10, 11], "labels": [-100, -100, 9, 10, 11]},
        ... ]
        >>> print(labels(rows, tokenizer))
        2 rows, 10 labels
          trained on              60.00%  6
          -100: prompt            40.00%  4
        1 row with an answer that was truncated, or cut, before its end token: row 1
        worst rows: 1
    """
    mine, start, end, padding, limit = None, None, None, None, 2**62
    if tokenizer is not None:
        mine = private_copy(tokenizer)
        end = mine.sep_token_id if mine.eos_token_id is None else mine.eos_token_id
        start = mine.cls_token_id if mine.bos_token_id is None else mine.bos_token_id
        padding, limit = mine.pad_token_id, number_of_ids(mine)
    if end_token is not None and (end := mine.get_vocab().get(end_token) if mine else None) is None:
        got = f"{end_token!r}, and {type(mine).__name__ if mine else 'no tokenizer'}"
        fix = "end_token=..., one of tokenizer.get_vocab()"
        raise value_error("end_token must be one token of the tokenizer", got=got, fix=fix)
    first, parts = 0, list[tuple[_Table, _Table, dict[str, int]]]()
    with progress_bar("Checking labels", getattr(dataset, "num_rows", None)) as bar:
        for columns, is_packed in _chunks(dataset, padding):
            ids, given = columns["input_ids"], columns.get("labels", columns["input_ids"])
            numbers, kinds = first + np.arange(len(ids)), _kinds(given, ids, padding)
            if not kinds["of tokens"].all():  # raises with the numbers of the rows in the data set
                number_tokens({**columns, "labels": ids}, first_row=first, is_packed=is_packed)
            for is_own in (True, False):
                which = kinds["of tokens"] == is_own
                if is_own:
                    of_rows = {name: column.filter(which) for name, column in columns.items()}
                else:  # a second pass, without tokens and masks: labels of classes, of masked tokens and of targets
                    alone = given.filter(which)
                    of_rows = {"input_ids": Ragged(np.full_like(alone.values, IGNORED), alone.lengths), "labels": alone}
                if which.any():
                    parts.append(_count(of_rows, numbers[which], is_packed and is_own, start, end, padding, limit))
                    parts[-1][0].update((name, values[which]) for name, values in kinds.items())
            first += len(ids)
            bar.update(len(ids))
    if not parts:
        raise value_error("labels are checked in rows of tokens", got="no rows", fix="check the path, split or filter")
    rows, documents = (
        {name: np.concatenate([part[table][name] for part in parts]) for name in parts[0][table]} for table in (0, 1)
    )
    order = np.argsort(rows["number"])
    rows = {name: values[order] for name, values in rows.items()}
    ignored = {cause: sum(part[2][cause] for part in parts) for cause in _CAUSES}
    return _check(rows, documents, ignored, mine, end)


def _chunks(dataset: Any, padding: int | None) -> Iterator[tuple[dict[str, Ragged], bool]]:
    """Yield the columns of some thousand rows, or of a batch, and True if the rows are known to be packed."""
    require_one_split(dataset)
    first, form = 0, getattr(dataset, "format", None)
    is_arrow = hasattr(dataset, "iter") and not (isinstance(form, Mapping) and form.get("type") == "custom")
    tables: Iterator[Any] = dataset.with_format("arrow").iter(batch_size=_ROWS) if is_arrow else _batches(dataset)
    for table in tables:
        names = table.column_names if is_arrow else [name for name in table if table[name] is not None]
        if "input_ids" not in names:
            fix = "tokenize first: labels(DataLoader(dataset, collate_fn=collate), tokenizer), if collate makes labels"
            raise value_error("rows must have a column input_ids", got=f"columns {shorten(names)}", fix=fix)
        batch, is_packed = read_mask({name: table[name] for name in _COLUMNS if name in names}, padding)
        if getattr(batch.get("position_ids"), "ndim", 2) > 2:  # those of images, (3, B, T)
            del batch["position_ids"]
        batch = batch if is_arrow else columns_of_batch(batch)
        columns = {
            name: Ragged.from_rows(column, name=name, mask=name not in _IDS, first_row=first)
            for name, column in batch.items()
        }
        refuse_foreign_names({name: table[name] for name in names}, columns["input_ids"].lengths, first_row=first)
        if "labels" in columns and len(columns["labels"]) != len(columns["input_ids"]):
            got = f"{len(columns['input_ids'])} and {len(columns['labels'])}"
            raise value_error("columns must have equal numbers of rows", got=got)
        if "labels" not in columns and columns.keys().isdisjoint(SUPERVISION):
            fix = "labels that a collator makes: labels(trainer.get_train_dataloader(), tokenizer)"
            raise value_error("rows must have labels for each token", got=f"columns {', '.join(columns)}", fix=fix)
        yield columns, is_packed
        first += len(columns["input_ids"])


def _batches(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield batches as they are, and single rows as columns of some thousand rows."""
    items = iter([rows] if isinstance(rows, Mapping) or not hasattr(rows, "__iter__") else rows)
    for item in items:
        ids = item.get("input_ids") if isinstance(item, Mapping) else None
        is_batch = getattr(ids, "ndim", 0) == 2 or (isinstance(ids, list) and len(ids) > 0 and np.ndim(ids[0]) > 0)
        several = [item] if is_batch else [item, *islice(items, _ROWS - 1)]
        for entry in several:
            if not isinstance(entry, Mapping):
                fix = "a datasets.Dataset, a DataLoader, or rows such as {'input_ids': [5, 6], 'labels': [-100, 6]}"
                raise type_error("a data set consists of rows or batches, each a dict", got=shorten(entry), fix=fix)
        yield item if is_batch else {name: [row.get(name) for row in several] for name in item}


def _count(
    columns: dict[str, Ragged],
    numbers: NDArray[np.int64],
    is_packed: bool,
    start: int | None,
    end: int | None,
    padding: int | None,
    limit: int,
) -> tuple[_Table, _Table, dict[str, int]]:
    """Return a table of rows, a table of the documents with a trained token, and the number of -100 by cause."""
    # `numbers` `(R,)` are those of the rows in the data set. All columns fit their ids.
    ids, labels = columns["input_ids"], columns.get("labels", columns["input_ids"])
    if columns.keys().isdisjoint(BOUNDARIES) and padding is not None and padding != end:
        given = ids if (ids.values != IGNORED).any() else labels
        columns["attention_mask"] = Ragged((given.values != padding).astype(np.int64), ids.lengths)
    closed, index = read_documents(
        {**columns, "labels": labels},
        first_row=int(numbers[0]),
        is_packed=is_packed,
        padding_id=None if padding == end else padding,
    )
    documents, offsets = closed.split(), closed.ids.offsets
    predicts_next = None if "labels" in columns else True
    supervised, _ = documents.supervise(documents.columns["labels"], predicts_next=predicts_next)
    trained, values, tokens = supervised.values != IGNORED, documents.columns["labels"].values, documents.ids.values
    is_padding = np.zeros(len(labels.values), np.bool_)
    if index is not None:
        is_padding[:] = True
        is_padding[index] = False
    trained_padding = is_padding & (labels.values != IGNORED) & ("labels" in columns)
    rows: _Table = {"number": numbers, "labels": labels.lengths, "length": closed.ids.lengths}
    rows["padding"] = _sums(trained_padding, labels.offsets) > 0
    rows["trained"] = _sums(trained_padding, labels.offsets) + _sums(trained, offsets)
    rows["end"] = _sums(trained & (values == end), offsets) > 0
    rows["unknown ids"] = _sums(trained & ((values < 0) | (values >= limit)), offsets) > 0

    bounds, row_of, lengths = documents.ids.offsets, documents.given_row, documents.ids.lengths
    has = _sums(trained, bounds) > 0
    is_last = np.zeros(len(tokens), np.bool_)  # token of its document
    is_last[bounds[1:][lengths > 0] - 1] = True
    follows = np.append(~trained[1:] & (tokens[1:] == end), False) & ~is_last  # by an end token without label
    rows["masked end"] = _sums(trained & follows & (values != end), offsets) > 0
    is_bare = ~has & (lengths > 1) & (_sums(tokens == padding, bounds) < lengths)
    rows["untrained"] = (rows["trained"] == 0) | (np.bincount(row_of[is_bare], minlength=len(ids)) > 0)
    several = np.flatnonzero(lengths > 1)
    one, two = tokens[bounds[several]], tokens[bounds[several] + 1]
    doubled = several[(one == start) & (two == start) & (start != padding)]
    rows["doubled start"] = np.bincount(row_of[doubled], minlength=len(ids)) > 0

    # From here on, arrays have one value for each document with a trained token.
    starts, ends, before, places = bounds[:-1][has], bounds[1:][has], offsets_of(trained), np.flatnonzero(trained)
    first, last = places[before[starts]], places[before[ends] - 1]
    lead = first - starts
    place = first[:, None] + np.arange(_COMPARED)  # of the tokens of an answer
    table = {
        "answer": np.where(place <= last[:, None], values[np.minimum(place, last[:, None])], IGNORED),
        "row": numbers[row_of[has]],
        "length": ends - starts,
        "has prompt": lead > 1,
        "ends": np.stack([values[last - 1], values[last]], axis=1),
        "has end": (values[last] == end) | ((last > first) & (values[last - 1] == end)),
        "is cut": last == ends - 1,
        "ends row": np.diff(row_of, append=-1)[has] != 0,
    }
    between = (last - first + 1 - before[ends] + before[starts]).sum()
    hidden = np.count_nonzero(is_padding & ~trained_padding)
    bare = lengths[~has].sum()
    causes = (lead[lead > 1].sum(), np.count_nonzero(lead == 1), between, (ends - 1 - last).sum(), bare, hidden)
    return rows, table, dict(zip(_CAUSES, map(int, causes), strict=True))


def _kinds(labels: Ragged, ids: Ragged, padding: int | None) -> _Table:
    """Return a table of rows: are the labels ids of the tokens of their row, or shifted ones, or other ids?"""
    # They belong to the tokens if a third are the ids of these, or of the next or previous tokens.
    fits, tokens = labels.lengths == ids.lengths, np.full(len(labels.values), IGNORED)
    tokens[np.repeat(fits, labels.lengths)] = ids.filter(fits).values
    around = np.concatenate([[IGNORED], tokens, [IGNORED]])
    trained = labels.values != IGNORED
    compared = trained & (labels.values != padding)
    matches = [compared & (labels.values == reference) for reference in (tokens, around[2:], around[:-2])]
    equal, *moved = (_sums(which, labels.offsets) for which in matches)
    number, others = (_sums(which, labels.offsets) for which in (compared, trained & (labels.values != tokens)))
    of_tokens = fits & (3 * np.maximum.reduce([equal, *moved]) >= number) & ((number > 0) | (others == 0))
    return {
        "difference": np.abs(labels.lengths - ids.lengths),
        "of tokens": of_tokens,
        "shifted": of_tokens & (3 * equal < number),
        "other ids": fits & (others > 0),
    }


def _sums(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values in each row."""
    return np.diff(offsets_of(values)[offsets])


def _check(rows: _Table, documents: _Table, ignored: dict[str, int], tokenizer: Any, end: int | None) -> LabelCheck:
    """Return the result of `labels`, from tables of all rows, in their order, and of all documents."""
    warnings, count, row_of = list[str](), len(rows["labels"]), documents["row"]
    kind: Literal["tokens", "targets", "classes"] = "tokens"
    has_labels = rows["trained"] > 0
    rows |= {name: np.zeros(count, np.bool_) for name in ("lengths", "truncated", "no end")}
    if 2 * np.count_nonzero(has_labels & rows["of tokens"]) >= np.count_nonzero(has_labels & (rows["difference"] != 1)):
        rows["lengths"] = rows["difference"] > 0
        rows["other ids"] &= ~rows["shifted"] & ~rows["unknown ids"]
    else:
        is_longer = 2 * np.count_nonzero(rows["difference"] > 1) > count
        kind = "targets" if is_longer or 2 * np.count_nonzero(documents["has end"]) > len(row_of) else "classes"
        for name in ("other ids", "shifted", "masked end", "untrained", "padding")[: 3 if kind == "targets" else 5]:
            rows[name][:] = False
        other_tokens = sum(ignored.values()) - ignored["padding"]
        ignored = {"other tokens": other_tokens, "padding": ignored["padding"]} if kind == "classes" else ignored
    if tokenizer is not None and end is None and kind != "classes":
        warnings.append("end tokens are not checked, because the tokenizer has none; end_token= names one")
    if end is not None and kind != "classes" and len(row_of):
        text, is_never = repr(tokenizer.convert_ids_to_tokens(end)), not rows["end"].any()
        if tokenizer.pad_token_id == end:
            warnings.append(
                f"the padding token is also the end token {text}: collators that find padding by its id, such as "
                "DataCollatorForLanguageModeling, hide the end token too"
            )
        if is_never:
            warnings.append(f"the end token {text} is never trained on, so the model does not learn to stop")
            special = [*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", {})]
            ends = documents["ends"]
            ends = np.where([True, False] & (ends[:, :1] == ends[:, 1:]), -1, ends)  # a token once for each answer
            counts = np.bincount(ends[np.isin(ends, special)], minlength=1)
            if 2 * counts.max() > len(row_of):
                last_token = repr(tokenizer.convert_ids_to_tokens(int(counts.argmax())))
                warnings[-1] += f"; most answers end with {last_token}: end_token={last_token} if that is meant"
        has_prompt = documents["has prompt"]
        without = ~documents["has end"] & ~rows["masked end"][row_of] & ~rows["lengths"][row_of]
        if 2 * np.count_nonzero(documents["has end"] & ~has_prompt) <= np.count_nonzero(~has_prompt):
            without &= has_prompt  # texts without prompts that are cut into rows need no end token
        fills_row = documents["ends row"] & (rows["length"][row_of] == rows["length"].max())
        is_longest = fills_row | (documents["length"] == documents["length"].max())
        is_cut = documents["is cut"] & is_longest & (not is_never)
        rows["truncated"][row_of[without & is_cut]] = True
        rows["no end"][row_of[without & ~is_cut]] = True
    answers = documents["answer"][documents["has prompt"]]
    if kind == "tokens" and len(answers) > 9:
        is_constant = (answers == answers[0]).all(axis=0) & (answers[0] != IGNORED) & (answers[0] != end)
        ids = answers[0, is_constant].tolist()
        text = ids if tokenizer is None else repr(tokenizer.decode(ids))
        if ids:
            warnings.append(f"all {len(answers):,} answers have {text} at the same place, and are trained on it")
    several = np.sum([rows[name] for name in _MESSAGES], axis=0)
    order = np.lexsort((rows["trained"] / np.maximum(rows["labels"], 1), -several))
    problems = {name: tuple(np.flatnonzero(rows[name]).tolist()) for name in _MESSAGES}
    return LabelCheck(
        rows=count,
        tokens=int(rows["labels"].sum()) - ignored["padding"],
        trained=int(rows["trained"].sum()),
        kind=kind,
        ignored={cause: number for cause, number in ignored.items() if number},
        warnings=tuple(warnings),
        problems={name: numbers for name, numbers in problems.items() if numbers},
        worst=tuple(order[: min(10, np.count_nonzero(several))].tolist()),
    )

"""Branches: a prompt and its answers, texts, conversations or token ids, become rows of ids with `branch_ids`.

`token_ids` reads these rows. Calls without the setting `branches` do not load this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.errors import explain, shorten, type_error, value_error
from ..documents import Documents
from .config import Config
from .conversations import Chat, template_settings
from .formats import COLLATED_BY_TRAINERS, is_conversation
from .inputs import Given, Messages, Values, as_list
from .settings import Settings

Ids = NDArray[np.int64]
Pairs = list[tuple[Any, Sequence[Any]]]  # a prompt and its answers


def _read(columns: Mapping[str, Values], settings: Settings) -> tuple[Pairs, dict[str, Values]]:
    """Return the prompt and the answers of each row, and the other columns."""
    names = [settings.branches] if isinstance(settings.branches, str) else list(settings.branches or ())
    # TRL's tokenized rows have `prompt_ids` and `chosen_ids`: tokens in place of texts.
    prompt = next((name for name in (f"{settings.text_column}_ids", "prompt_ids") if name in columns), None)
    if prompt is not None:
        names = [f"{name}_ids" if f"{name}_ids" in columns else name for name in names]
    prompt = prompt or settings.text_column
    for name in (prompt, *names):
        if name not in columns:
            fix = f"{'text_column' if name == prompt else 'branches'}='...', the right name; "
            if any(str(column).endswith("_ids") for column in columns):
                fix = COLLATED_BY_TRAINERS
            elif name == prompt and {"chosen", "rejected"} <= columns.keys():
                fix += "or, if each answer begins with its prompt, dataset = dataset.map(trl.extract_prompt)"
                fix += ", and text_column='prompt'"
            else:
                fix += "under Trainer, TrainingArguments(remove_unused_columns=False)"
            raise value_error(
                f"column '{name}' is missing; the columns that arrived are {sorted(columns, key=str)}",
                got=f"text_column={settings.text_column!r}, branches={settings.branches!r}",
                fix=fix,
            )
    answers: Sequence[Sequence[Any]]
    if isinstance(settings.branches, str):
        answers = [row.tolist() if isinstance(row, np.ndarray) else row for row in as_list(columns[names[0]])]
        for row, several in enumerate(answers):
            if not isinstance(several, (list, tuple)) or is_conversation(several):
                raise type_error(
                    f"row {row} of column '{names[0]}' is {type(several).__name__}, expected a list of answers",
                    got=shorten(several),
                    fix=f'branches=("{names[0]}",), if each row has one answer',
                )
    else:
        answers = list(zip(*(as_list(columns[name]) for name in names), strict=True))
    prompts = list(zip(as_list(columns[prompt]), answers, strict=True))
    kind = _kind(prompts[0][0]) if prompts else ""
    others = {name: values for name, values in columns.items() if name not in (prompt, *names)}
    for row, (start, several) in enumerate(prompts):
        if not len(several):
            raise value_error(
                f"row {row} of column '{names[0]}' has no answer",
                got=shorten(several),
                fix=f"drop such rows first: dataset.filter(lambda row: len(row['{names[0]}']) > 0)",
            )
        for number, answer in enumerate((start, *several)):
            if _kind(answer) != kind or kind == "other":
                column = prompt if number == 0 else names[min(number, len(names)) - 1]
                expected = "a text, a list of messages or token ids" if kind == "other" else f"{kind} like row 0"
                raise type_error(
                    f"row {row} of column '{column}' is {type(answer).__name__}, expected {expected}",
                    got=shorten(answer),
                    fix=f"drop such rows first: dataset.filter(lambda row: row['{column}'] is not None)"
                    if answer is None
                    else f'one type in all rows and columns; branches="{column}" for a column of lists of answers',
                )
    return prompts, others


def _kind(value: Any) -> str:
    """Return the kind of a prompt or answer, for messages."""
    if isinstance(value, str):
        return "a text"
    if is_conversation(value):
        return "a list of messages"
    row = value.tolist() if hasattr(value, "tolist") else value
    is_ids = isinstance(row, (list, tuple)) and all(isinstance(token, (int, np.integer)) for token in row)
    return "token ids" if is_ids else "other"


def tokenize_branches(config: Config, given: Given) -> tuple[Given, Messages]:
    r"""Return rows of ids with `branch_ids`, made from prompts and answers, and warnings by their kind.

    Prompt and answer are tokenized together, as TRL does, and an answer of text ends in the eos token. The prompt of a
    row is what all these have in common with the ids of the prompt alone. Its last token is repeated at the beginning
    of each branch, and the others are shared.

    Source:
        The preprocessing of `DPOTrainer` in TRL 1.16, github.com/huggingface/trl.
    """
    pairs, columns = _read(given.columns, config.settings)
    if not pairs or isinstance(pairs[0][0], str):
        prompts, whole = _tokenized(config, pairs)
    else:
        is_chat = is_conversation(pairs[0][0])
        settings = template_settings(columns, given.count) if is_chat else ()

        def ids(row: int, answer: Any = ()) -> Ids:
            parts = [*pairs[row][0], *answer]
            if is_chat:
                parts = Chat(config, row, parts, {**settings[row], "add_generation_prompt": not len(answer)}).ids()
            return np.array(parts, np.int64)

        prompts = [ids(row) for row in range(given.count)]
        whole = [ids(row, answer) for row, (_, answers) in enumerate(pairs) for answer in answers]
    rows: dict[str, list[Ids]] = {"input_ids": [], "branch_ids": []}
    messages, special = Messages(), {*config.tokenizer.all_special_ids}
    remaining = iter(whole)
    for row, (prompt, (_, answers)) in enumerate(zip(prompts, pairs, strict=True)):
        several = [next(remaining) for _ in answers]
        common = min(_common_length(prompt, ids) for ids in several)
        if not messages and not special.issuperset(prompt[common:].tolist()):  # such as an eos token after each text
            end = config.tokenizer.decode(prompt[common:].tolist())
            messages["diverging prompt"] = explain(
                f"the tokens of the prompt of row {row} are not those with its answers: the answers begin where they "
                "diverge",
                got=f"{end!r} at the end of the prompt alone; this warning is given once",
                fix='a prompt that ends at the end of a word, with the space in the answer: "I ride", " a bike"',
            )
        shared = several[0][: max(common - 1, 0)]
        parts = [shared, *(ids[max(common - 1, 0) :] for ids in several)]
        rows["input_ids"].append(np.concatenate(parts))
        rows["branch_ids"].append(np.arange(len(parts)).repeat([len(part) for part in parts]))
    return replace(given, columns={**columns, **rows}), messages


def _tokenized(config: Config, pairs: Pairs) -> tuple[list[Ids], list[Ids]]:
    """Return the ids of texts: of the prompts, and of each prompt with each of its answers."""
    eos, eos_id = config.tokenizer.eos_token or "", config.tokenizer.eos_token_id
    prompts = [prompt for prompt, _ in pairs]
    # Together: tokenized apart, tokenizers such as SentencePiece's put a word boundary before each answer.
    texts = [prompt + answer + ("" if answer.endswith(eos) else eos) for prompt, answers in pairs for answer in answers]
    ids = list(config.encoder.tokenize([*prompts, *texts]).ids)
    whole = [  # a tokenizer may add an eos token itself
        row[:-1] if eos and len(row) > 1 and row[-1] == row[-2] == eos_id else row for row in ids[len(prompts) :]
    ]
    return ids[: len(prompts)], whole


def _common_length(one: Ids, other: Ids) -> int:
    """Return the number of first tokens that two rows have in common."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def warning_of_empty_answers(rows: Documents) -> Messages:
    """Return the warning of answers that have no tokens, given so or after truncation, by its kind; or nothing."""
    branches = rows.branches
    assert branches is not None
    is_empty = (branches.shared > 0) & (branches.sizes.values == 1)
    if not is_empty.any():
        return {}
    first = int(is_empty.argmax())
    row = rows.sample[rows.row_of_document[branches.sizes.row_of(first)]]
    message = explain(
        f"answers without tokens: {int(is_empty.sum())} of {int((branches.numbers > 0).sum())}",
        got=f"row {row}, answer {branches.numbers[first]}; this warning is given once",
        fix="a larger max_length, if they were truncated; or drop such rows first",
    )
    return {"empty answers": message}

"""Formats of rows of texts: the columns to read, found by their names. Rows of other formats are refused.

The names are those of TRL: `text`; `messages`; `prompt` with `completion`; `prompt` alone. Values never decide.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.errors import value_error
from ..documents import is_foreign_ids

if TYPE_CHECKING:
    from .settings import Settings

COLLATED_BY_TRAINERS = "DPOTrainer, RewardTrainer and KTOTrainer have collators of their own: leave out data_collator="
PROMPT, COMPLETION = "prompt", "completion"

# Columns of a task and of its answer, under the names of other libraries and data sets.
_ANSWERS = {
    "instruction": ("output", "response", "completion", "answer", "target"),
    "question": ("answer", "response", "output"),
    "query": ("response", "answer", "output"),
    "problem": ("solution", "answer"),
    PROMPT: ("response", "output", "answer", "target", "solution", COMPLETION),  # the last one as Completion
    "input": ("output", "response", "completion", "answer", "target"),
    "source": ("target",),
    "document": ("summary",),
    "article": ("highlights", "summary"),
    "dialogue": ("summary",),
    "user": ("assistant",),
    "human": ("assistant", "bot", "gpt"),
    "src": ("tgt",),
}
# Names that mean something else beside a column `text`, such as where it is from and its class.
_OTHER_BESIDE_TEXT = ("source", "src", "input", "document", "article", "user", "human")
# Columns of two texts that a model reads as a pair.
_PAIRS = (
    *(("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("question1", "question2")),
    *(("text1", "text2"), ("text_a", "text_b"), ("sentence_A", "sentence_B"), ("question", "sentence")),
    *(("sentence_a", "sentence_b"), ("anchor", "positive"), ("query", "document"), ("query", "passage")),
)
# Columns of lists of words.
_WORDS = ("tokens", "words")


def text_columns(names: Collection[str], settings: Settings) -> tuple[str, ...]:
    r"""Return the names of the columns with the texts of a row, by the settings, or else by the format of the rows.

    `names` are those of all columns. Raise a `ValueError` for rows of another format, and for rows of two formats.

    Example:
        >>> from hf_posenc.collator.settings import Settings
        >>> text_columns(["prompt", "completion"], Settings(tokenizer=None))
        ('prompt', 'completion')
    """
    named = settings._text_columns
    return format_columns(names, named) if settings._reads_formats else named


def format_columns(names: Collection[str], named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns with the texts of a row, by its format; `named` are `text` and targets."""
    pair, columns = _foreign_pair(names), f"columns {sorted(names, key=str)}"
    has_prompts = PROMPT in names and COMPLETION in names
    if "text" in names:
        pair = None if pair is not None and pair[0].lower() in _OTHER_BESIDE_TEXT else pair
        if beside := pair or ((PROMPT, COMPLETION) if has_prompts else None):
            raise value_error(
                f"rows have a 'text', and {beside[0]!r} with {beside[1]!r} beside it: either may be what to read",
                got=columns,
                fix=f"dataset.remove_columns({[*beside]}) to read 'text'; or dataset.remove_columns('text')",
            )
        return named
    if len(named) > 1 and named[1] != COMPLETION:
        return named
    if pair == ("chosen", "rejected"):
        alone = "text_column='chosen'"
        if PROMPT in names:
            alone = "dataset.rename_column('chosen', 'completion').remove_columns('rejected')"
        raise value_error(
            "rows of 'chosen' and 'rejected' answers are for a trainer that compares them",
            got=columns,
            fix=f"{COLLATED_BY_TRAINERS}; one of them alone, {alone}",
        )
    if has_prompts and "label" in names:
        raise value_error(
            "rows of 'prompt', 'completion' and 'label' are for a trainer that learns from good and bad answers",
            got=columns,
            fix=f"{COLLATED_BY_TRAINERS}; good ones alone, dataset.filter(lambda row: row['label'])"
            ".remove_columns('label')",
        )
    if "messages" in names:
        if COMPLETION in names:
            raise value_error(
                "rows have 'messages' and 'completion', and either may be what to train on",
                got=columns,
                fix="dataset.remove_columns('messages'), or dataset.remove_columns('completion')",
            )
        return ("messages",)
    if has_prompts:
        return PROMPT, COMPLETION
    if pair is not None:
        raise value_error(
            f"columns {pair[0]!r} and {pair[1]!r} are none of the formats that are read by name: 'text', 'messages', "
            "'prompt' with 'completion'",
            got=columns,
            fix=f"text_column={pair[0]!r}, text_pair_column={pair[1]!r}"
            if pair in _PAIRS
            else _as_prompts(names, pair),
        )
    return (PROMPT,) if PROMPT in names else named


def _foreign_pair(names: Collection[str]) -> tuple[str, str] | None:
    """Return the names of two columns that belong together, in a format that is not read; `None` without them."""
    given = {str(name).lower(): str(name) for name in names}  # also Instruction and Response
    if "chosen" in names and "rejected" in names:
        return "chosen", "rejected"
    has_prompts = PROMPT in names and COMPLETION in names
    for task, answers in _ANSWERS.items():
        for answer in answers:
            if task in given and answer in given and not (task == PROMPT and has_prompts):
                return given[task], given[answer]
    return next((pair for pair in _PAIRS if pair[0] in names and pair[1] in names), None)


def _as_prompts(names: Collection[str], pair: tuple[str, str]) -> str:
    """Return the line that makes prompts with completions of a task and its answer."""
    task, answer = pair
    prompt, removed = f'row["{task}"]', [task, answer]
    for context in ("input", "context"):
        if context in names and context not in pair:
            prompt = f'"\\n".join(filter(None, [row["{task}"], row["{context}"]]))'
            removed.insert(1, context)
            break
    removed = [name for name in removed if name not in (PROMPT, COMPLETION)]
    return (
        f'dataset.map(lambda row: {{"prompt": {prompt}, "completion": "\\n" + row["{answer}"]}}, '
        f"remove_columns={removed})"
    )


def is_conversation(value: object) -> bool:
    """Return True for a list of messages, such as `[{"role": "user", "content": "..."}]`, or pandas' array of them."""
    if not isinstance(value, list) and not (isinstance(value, np.ndarray) and value.ndim):
        return False
    return len(value) > 0 and isinstance(value[0], Mapping)


def missing(name: str, argument: str, first: Mapping[str, Any], settings: Settings) -> ValueError:
    """Return the error for a column of texts that is not there, with the setting or column that may be meant.

    `first` are the first values of the columns that are there.
    """
    # The most frequent reason is Trainer, which removes columns that the model does not name (transformers #7823).
    texts = [key for key, value in first.items() if isinstance(key, str) and isinstance(value, str)]
    texts = [key for key in texts if key not in settings._text_columns]
    chats = [key for key, value in first.items() if argument == "text_column" and is_conversation(value)]
    words = [key for key in _WORDS if isinstance(next(iter(_items(first.get(key))), None), str)]
    if {"role", "content"} <= first.keys():
        fix = "collate([conversation]), a list of conversations"
    elif words and argument == "text_column":
        fix = f'text_column="{words[0]}", is_split_into_words=True; docs/datasets-map.md has labels per word'
    elif names := [*chats, *difflib.get_close_matches(name, texts, n=1), *texts]:
        fix = f"{argument}={names[0]!r}"
    elif ids := [key for key, value in first.items() if is_foreign_ids(key, value)]:
        rename = f"dataset.rename_column('{ids[0]}', 'input_ids')"
        return value_error(
            f"column '{ids[0]}' has token ids, which are read from 'input_ids'",
            got=f"columns {sorted(first, key=str)}",
            fix=rename if len(ids) == 1 else f"{COLLATED_BY_TRAINERS}; for one of the columns {rename}",
        )
    else:
        fix = (
            "Trainer drops text columns: TrainingArguments(remove_unused_columns=False), or tokenize "
            f"first, dataset.map(collate, batched=True); another column: {argument}='...'"
        )
    return value_error(f"column '{name}' is missing; the columns that arrived are {sorted(first, key=str)}", fix=fix)


def _items(value: Any) -> Any:
    return value if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) == 1 else ()

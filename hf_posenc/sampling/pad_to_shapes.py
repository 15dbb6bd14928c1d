"""`PadToShapes`: a collator that pads each batch to one of a few lengths, those of a plan.

It changes a copy of another collator, which must be a dataclass that can pad.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from .._common.errors import shorten, type_error, value_error
from ..packing import BatchPlan

Collator = Callable[[Any], Any]


class PadToShapes:
    r"""A collator that pads every batch to one of a few lengths, so that `torch.compile` compiles few shapes.

    The length n is the smallest of `shapes` that is enough for the longest row. A copy of `collator` makes the batch,
    with the fields `padding="max_length"` and `max_length=n`. If `collator` lacks one of these two fields, the copy has
    `pad_to_multiple_of=n` instead.

    Args:
        collator (callable): a dataclass with the field `pad_to_multiple_of`, such as the collators of this package and
            of transformers.
        shapes (sequence of `int`): row lengths in ascending order, such as `BatchPlan.shapes`.
        column (`str`, *optional*, defaults to `"input_ids"`): the column of tokens.

    Raises:
        TypeError: if the collator is not a dataclass with the field `pad_to_multiple_of`.
        ValueError: when called with rows that are not tokenized, or longer than every shape.

    Example:
        >>> @dataclasses.dataclass
        ... class Collate:
        ...     pad_to_multiple_of: int = 1
        ...     def __call__(self, rows):
        ...         longest = max(len(row["input_ids"]) for row in rows)
        ...         return -(-longest // self.pad_to_multiple_of) * self.pad_to_multiple_of
        >>> collate = PadToShapes(Collate(), (37, 61))
        >>> collate([{"input_ids": [1] * 40}]), collate([{"input_ids": [1] * 7}])
        (61, 37)
    """

    def __init__(self, collator: Collator, shapes: Sequence[int], column: str = "input_ids") -> None:
        _check_padding(collator, "shapes")
        self.collator: Any = collator
        self.shapes, self.column = tuple(shapes), column
        self._of: dict[int, Collator] = {}

    def __call__(self, rows: Sequence[Any]) -> Any:
        number = next((index for index, row in enumerate(rows) if self.column not in row), None)
        if number is not None:
            raise value_error(
                f"row {number} has no '{self.column}', whose length selects the shape",
                got=f"keys {shorten(list(rows[number]))}",
                fix="tokenize first: dataset.map(collate, batched=True)",
            )
        longest = max((len(row[self.column]) for row in rows), default=0)
        shape = next((shape for shape in self.shapes if shape >= longest), None)
        if shape is None:
            raise value_error(
                f"a row has {longest} tokens, and the largest shape is {self.shapes[-1]}",
                got=f"{len(self.shapes)} shapes",
                fix="a plan made from the lengths of this data set",
            )
        if shape not in self._of:
            names = {field.name for field in dataclasses.fields(self.collator)}
            by_length = {"padding": "max_length", "max_length": shape, "pad_to_multiple_of": None}
            settings = by_length if by_length.keys() <= names else {"pad_to_multiple_of": shape}
            self._of[shape] = _changed(self.collator, settings)
        return self._of[shape](rows)


def padding_as_planned(collator: Any, plan: BatchPlan, column: str) -> Any:
    """Return a collator that pads as `plan` counts: to its shapes, or to a multiple; else `collator` itself."""
    if plan.shapes is not None:
        return PadToShapes(collator, plan.shapes, column)
    if plan.multiple_of is None:
        return collator
    _check_padding(collator, "multiple_of")
    return _changed(collator, {"pad_to_multiple_of": plan.multiple_of})


def _check_padding(collator: Collator, setting: str) -> None:
    if not hasattr(collator, "pad_to_multiple_of") or not dataclasses.is_dataclass(collator):
        raise type_error(
            f"a plan with {setting} needs a collator that can pad to it",
            got=f"{getattr(collator, '__name__', type(collator).__name__)} without pad_to_multiple_of",
            fix=f"DataCollatorWithPositionalEncoding(tokenizer), or {setting}=None",
        )


def _changed(collator: Any, settings: dict[str, Any]) -> Collator:
    """Return a copy of `collator` in which the fields in `settings` are changed; `collator` itself is unchanged."""
    # `dataclasses.replace` of this package's collator parses the tokenizer again: 67 ms, not 8, with 30,000 tokens.
    change = getattr(collator, "replace", None)
    changed: Collator = change(**settings) if callable(change) else dataclasses.replace(collator, **settings)
    return changed

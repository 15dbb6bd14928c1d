"""Batches padded to the lengths that a plan counts on, by whatever collator pads them.

The collator does the padding; this tells it to which multiple.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from .._explain import explain, shorten

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Collator = Callable[[Any], Any]


class PadToShapes:
    r"""A collator that pads every batch to the next of a few lengths, so that `torch.compile` meets few shapes.

    Works with every collator that knows `pad_to_multiple_of`, those of this package and of transformers: one that has
    `max_length` as well pads to that, and any other to a multiple of n, which for a row of at most n tokens is n.

    Args:
        collator (callable): a dataclass with the field `pad_to_multiple_of`.
        shapes (sequence of `int`): rising; `BatchPlan.shapes`.
        column (`str`, *optional*, defaults to `"input_ids"`): which column holds the tokens.

    Raises:
        TypeError: if the collator has no such setting.
        ValueError: when called with rows that are not tokenised, or longer than every shape.

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
        self.collator, self.shapes, self.column = collator, tuple(shapes), column
        self._of: dict[int, Collator] = {}

    def __call__(self, rows: Sequence[Any]) -> Any:
        missing = next((index for index, row in enumerate(rows) if self.column not in row), None)
        if missing is not None:
            raise ValueError(
                explain(
                    f"row {missing} has no '{self.column}', and its length decides the shape",
                    got=f"keys {shorten(list(rows[missing]))}",
                    fix="tokenise first: dataset.map(collate, batched=True)",
                )
            )
        longest = max((len(row[self.column]) for row in rows), default=0)
        shape = next((shape for shape in self.shapes if shape >= longest), None)
        if shape is None:
            raise ValueError(
                explain(
                    f"a row has {longest} tokens, and the largest shape is {self.shapes[-1]}",
                    got=f"{len(self.shapes)} shapes",
                    fix="plan with the lengths of this data set",
                )
            )
        if shape not in self._of:
            names = {field.name for field in dataclasses.fields(cast("DataclassInstance", self.collator))}
            by_length = {"padding": "max_length", "max_length": shape, "pad_to_multiple_of": None}
            self._of[shape] = _changed(
                self.collator, by_length if by_length.keys() <= names else {"pad_to_multiple_of": shape}
            )
        return self._of[shape](rows)


def padding_to(collator: Collator, multiple: int) -> Collator:
    r"""The same collator with another `pad_to_multiple_of`.

    Args:
        collator (callable): a dataclass with that field.
        multiple (`int`): to a multiple of what its batches are to be padded.

    Raises:
        TypeError: if the collator has no such setting.
    """
    _check_padding(collator, "multiple_of")
    return _changed(collator, {"pad_to_multiple_of": multiple})


def _check_padding(collator: Collator, setting: str) -> None:
    if not hasattr(collator, "pad_to_multiple_of") or not dataclasses.is_dataclass(collator):
        raise TypeError(
            explain(
                f"a plan with {setting} needs a collator that can pad to them",
                got=f"{getattr(collator, '__name__', type(collator).__name__)} without pad_to_multiple_of",
                fix=f"DataCollatorWithPositionalEncoding(tokenizer), or {setting}=None",
            )
        )


def _changed(collator: Any, settings: dict[str, Any]) -> Collator:
    """A copy with other settings; a frozen collator makes it itself."""
    change = getattr(collator, "replace", None)
    if callable(change):
        changed: Collator = change(**settings)
        return changed
    copied: Collator = dataclasses.replace(collator, **settings)
    return copied

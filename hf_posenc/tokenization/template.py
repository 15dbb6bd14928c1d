"""`Template`: the order of texts and special tokens in a row, read from the post-processor of a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.errors import shorten, value_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Template:
    r"""Order of texts and special tokens in a row, such as [CLS] text [SEP], from the post-processor of a tokenizer.

    Args:
        pieces (`tuple` of pairs of `int`): (id, token type) of each part of the row, in order. The id is that of
            a special token, or `FIRST` for the text, or `SECOND` for the second text of a pair.
        types_windows (`bool`, *optional*, defaults to `False`): if a text is split into several rows, use the token
            types in `pieces` for all its parts. If False, as usual in `tokenizers`, they are used for its first part
            only; the later parts of a first text have type 0, and those of a second text have type 1.

    Example:
        >>> bert = {"type": "BertProcessing", "cls": ["[CLS]", 101], "sep": ["[SEP]", 102]}
        >>> Template.of(bert, pair=True).pieces
        ((101, 0), (-1, 0), (102, 0), (-2, 1), (102, 1))
    """

    pieces: tuple[tuple[int, int], ...]
    types_windows: bool = False
    # Number of special tokens in a row; ids and token types of the P pieces, (P,) int64; index of each text in them.
    special: int = field(init=False, compare=False)
    ids: NDArray[np.int64] = field(init=False, compare=False, repr=False)
    types: NDArray[np.int64] = field(init=False, compare=False, repr=False)
    texts: tuple[int, ...] = field(init=False, compare=False, repr=False)

    FIRST: ClassVar = -1
    SECOND: ClassVar = -2

    @classmethod
    def of(cls, processor: Mapping[str, Any] | None, *, pair: bool, add_special_tokens: bool = True) -> Template:
        """Return the template of rows with a single text, or with a pair of texts if `pair` is True.

        `processor` is the post-processor of a tokenizer as a dict, as in `tokenizer.json`; `None` adds no special
        tokens.
        """
        pieces: list[tuple[int, int]] = [(cls.FIRST, 0), (cls.SECOND, 1)] if pair else [(cls.FIRST, 0)]
        for step in _steps(processor):
            if step["type"] == "TemplateProcessing":
                pieces = []
                for ((kind, entry),) in map(dict.items, step["pair" if pair else "single"]):
                    text = [cls.FIRST if entry["id"] == "A" else cls.SECOND]
                    if kind == "SpecialToken" and entry["id"] not in step["special_tokens"]:
                        raise value_error(
                            f"the post-processor uses the special token {entry['id']!r} without giving its id",
                            got=shorten(list(step["special_tokens"])),
                            fix="list it in special_tokens of the post-processor in tokenizer.json",
                        )
                    tokens = step["special_tokens"][entry["id"]]["ids"] if kind == "SpecialToken" else text
                    pieces += [(token, entry["type_id"]) for token in tokens]
                continue
            start, end = step["cls"][1], step["sep"][1]
            pieces = [(start, 0), (cls.FIRST, 0), (end, 0)]
            if pair and step["type"] == "BertProcessing":
                pieces += [(cls.SECOND, 1), (end, 1)]
            elif pair:
                pieces += [(end, 0), (cls.SECOND, 0), (end, 0)]
        roberta = any(step["type"] == "RobertaProcessing" for step in _steps(processor))
        added = tuple(piece for piece in pieces if piece[0] < 0 or add_special_tokens)
        return cls(added, types_windows=roberta and add_special_tokens)

    def __post_init__(self) -> None:
        ids, types = np.array(self.pieces, dtype=np.int64).reshape(-1, 2).T.copy()
        order = ids.tolist()
        texts = tuple(order.index(text) for text in (self.FIRST, self.SECOND) if text in order)
        for name, value in {"special": len(ids) - len(texts), "ids": ids, "types": types, "texts": texts}.items():
            object.__setattr__(self, name, value)


def has_template(rust: Tokenizer) -> bool:
    """Return True if `Template` can describe the tokenizer's post-processor.

    This needs at most one step that adds special tokens, and rows that contain each text once and in order.
    """
    processor = post_processor(rust)
    kinds = [step["type"] for step in _steps(processor)]
    if len(kinds) > 1 or not {"TemplateProcessing", "BertProcessing", "RobertaProcessing"}.issuperset(kinds):
        return False
    templates = [Template.of(processor, pair=pair, add_special_tokens=False) for pair in (False, True)]
    return [[text for text, _ in template.pieces] for template in templates] == [
        [Template.FIRST],
        [Template.FIRST, Template.SECOND],
    ]


def post_processor(rust: Tokenizer) -> dict[str, Any] | None:
    """Return the post-processor of a tokenizer as a dict, as in `tokenizer.json`; `None` if it has none."""
    if rust.post_processor is None:
        return None
    content: dict[str, Any] = json.loads(rust.post_processor.__getstate__())
    return content


def _steps(processor: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the steps of a post-processor that add special tokens or set token types."""
    if processor is None or processor["type"] == "ByteLevel":
        return []
    if processor["type"] == "Sequence":
        return [step for part in processor["processors"] for step in _steps(part)]
    return [processor]

"""`Template`: the order of texts and special tokens in a row, read from the post-processor of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.compat import has_own_call
from .._common.errors import shorten, value_error
from .rust import steps

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_POST_PROCESSORS = {"TemplateProcessing", "BertProcessing", "RobertaProcessing"}


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
    def of(cls, step: Mapping[str, Any] | None, *, pair: bool, add_special_tokens: bool = True) -> Template:
        """Return the template of rows with a single text, or with a pair of texts if `pair` is True.

        `step` is the only one of a tokenizer's post-processor, as in `tokenizer.json`; `None` adds no special tokens.
        """
        kind = None if step is None else step["type"]
        pieces: list[tuple[int, int]] = []
        if step is None:
            pieces = [(cls.FIRST, 0), (cls.SECOND, 1)] if pair else [(cls.FIRST, 0)]
        elif kind == "TemplateProcessing":
            for ((of, entry),) in map(dict.items, step["pair" if pair else "single"]):
                tokens = [cls.FIRST if entry["id"] == "A" else cls.SECOND]
                if of == "SpecialToken":
                    if entry["id"] not in step["special_tokens"]:
                        raise value_error(
                            f"the post-processor uses the special token {entry['id']!r} without giving its id",
                            got=shorten(list(step["special_tokens"])),
                            fix="list it in special_tokens of the post-processor in tokenizer.json",
                        )
                    tokens = step["special_tokens"][entry["id"]]["ids"]
                pieces += [(token, entry["type_id"]) for token in tokens]
        else:
            start, end = step["cls"][1], step["sep"][1]
            pieces = [(start, 0), (cls.FIRST, 0), (end, 0)]
            if pair and kind == "BertProcessing":
                pieces += [(cls.SECOND, 1), (end, 1)]
            elif pair:
                pieces += [(end, 0), (cls.SECOND, 0), (end, 0)]
        added = tuple(piece for piece in pieces if piece[0] < 0 or add_special_tokens)
        return cls(added, types_windows=kind == "RobertaProcessing" and add_special_tokens)

    def __post_init__(self) -> None:
        ids, types = np.array(self.pieces, dtype=np.int64).reshape(-1, 2).T.copy()
        order = ids.tolist()
        texts = tuple(order.index(text) for text in (self.FIRST, self.SECOND) if text in order)
        for name, value in {"special": len(ids) - len(texts), "ids": ids, "types": types, "texts": texts}.items():
            object.__setattr__(self, name, value)


def templates(tokenizer: PreTrainedTokenizerBase, *, add_special_tokens: bool = True) -> list[Template]:
    """Return the templates of rows with one text and with two; an empty list if a call takes steps of its own.

    That is so for slow tokenizers, for families that add steps in Python, and for post-processors with several steps
    that add special tokens, or without each text once and in order.
    """
    if not tokenizer.is_fast or has_own_call(tokenizer):
        return []
    found = [step for step in steps(tokenizer, "post_processor") if step["type"] != "ByteLevel"]
    if len(found) > 1 or any(step["type"] not in _POST_PROCESSORS for step in found):
        return []
    step = found[0] if found else None
    both = [Template.of(step, pair=pair, add_special_tokens=add_special_tokens) for pair in (False, True)]
    texts = [[token for token, _ in template.pieces if token < 0] for template in both]
    return both if texts == [[Template.FIRST], [Template.FIRST, Template.SECOND]] else []

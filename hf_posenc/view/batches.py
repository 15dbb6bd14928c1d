"""A batch as interactive HTML: its tokens, its masks with their reasons, and the angles of its positions.

At most 16 rows and 32 tokens of a batch are shown, 8 rows at a time, and the page states which.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import value_error
from .._common.integers import as_integer
from ..masks import AttentionMask, reasons
from ..positions import SinusoidalPositionalEncoding, frequencies
from .lab import with_script

TokensOf = Callable[[Sequence[int]], list[str]]  # from a row of ids to its tokens

_ROWS, _TOKENS = 16, 32  # of the window; the script shows 8 rows at a time
_PLAIN_ROWS = 8  # of the table that is shown without scripts
_SOURCES = ("lab.css", "positions.js", "attention.js", "views.js", "batch.js")
_WIDTH = 64  # of the encoding shown for a batch without embeddings


def batch_html(
    batch: Mapping[str, Any],
    *,
    tokens_of: TokensOf | None = None,
    special_ids: Collection[int] = (),
    labels_are_ids: bool | None = False,
    encoding: SinusoidalPositionalEncoding | None = None,
    encoding_note: str | None = None,
    first_row: int = 0,
    first_token: int = 0,
) -> str:
    r"""Return a batch as HTML: a chosen token shows its position, and each key that it may or may not attend to.

    The result is a fragment, for a notebook or to be placed in a page. Where scripts do not run, as on GitHub, plain
    tables are shown. At most 16 rows and 32 tokens of each are shown, 8 rows at a time. With an encoding, the page
    also shows the weights of an attention head that reads positions only.

    Args:
        batch (mapping): a batch with `input_ids` or `inputs_embeds`. All its keys are listed with shape, dtype and
            device; masks, position ids, labels and token types are also drawn. If it has neither `input_ids` nor
            `inputs_embeds`, the result is only that list, a table.
        tokens_of (callable, *optional*): function from a list of ids to the list of their tokens. By default ids are
            shown.
        special_ids (collection of `int`, *optional*): ids of special tokens, which are marked. By default none.
        labels_are_ids (`bool`, *optional*): True if labels are shown as tokens. By default only those that repeat the
            ids are, and others, such as classes, are shown as numbers. With `None` the labels are those of a decoder,
            which do not belong to the tokens, and are not shown.
        encoding (`SinusoidalPositionalEncoding`, *optional*): the encoding of the positions; its formula and width are
            used. By default sinusoids of width 64, labeled as an example; none if there is an `encoding_note`.
        encoding_note (`str`, *optional*): line that states what the encoding is, if it is not part of the batch, or
            why none is shown.
        first_row, first_token (`int`, *optional*, default to 0): index of the first row and of the first token to show.

    Returns:
        `str`, a fragment of HTML.

    Raises:
        ValueError: if `first_row` or `first_token` is not an index of the batch.
        TypeError: if one of these is not an integer.

    Example:
        >>> page = batch_html({"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.tensor([[1, 1]])})
        >>> page.startswith("<div"), "<script" in page
        (True, True)
    """
    if "input_ids" not in batch and "inputs_embeds" not in batch:
        return _table_of_facts([[str(name), *facts(value)] for name, value in batch.items()])
    window = _Window(batch, first_row, first_token)
    if encoding is None and encoding_note is None:
        encoding = SinusoidalPositionalEncoding(_WIDTH)
        encoding_note = f"The encoding is an example, not part of the batch: sinusoids of width {_WIDTH}."
    data = window.data(tokens_of, frozenset(special_ids), labels_are_ids)
    data |= {"note": encoding_note, "encoding": None}
    if encoding is not None:  # in the form of `paperEncoding` in tokens.js
        width, convention = encoding.d_model, encoding.convention
        rates = frequencies(width, convention=convention, base=encoding.base).tolist()
        sines, cosines = ([columns.start, columns.step] for columns in convention.columns(width))
        data["encoding"] = {"width": width, "frequencies": rates, "sines": sines, "cosines": cosines}
    return with_script("showBatch", data, _SOURCES, _plain_tables(data))


class _Window:
    """Part of a batch that `batch_html` shows: at most 16 rows and 32 tokens, from `first_row` and `first_token` on.

    `rows` and `tokens` are the slices of the batch, and `shape` is the shape `(B, T)` of the whole batch.
    """

    def __init__(self, batch: Mapping[str, Any], first_row: int, first_token: int) -> None:
        self.batch = batch
        main: Any = batch.get("input_ids", batch.get("inputs_embeds"))
        self.shape = tuple(main.shape[:2])  # (B, T)
        for name, first, size in zip(("first_row", "first_token"), (first_row, first_token), self.shape, strict=True):
            as_integer(first, name, minimum=0, example="0")
            if first >= max(size, 1):
                raise value_error(f"{name} must be one of the batch", got=f"{first}, and the batch has {size}")
        self.rows = slice(first_row, min(first_row + _ROWS, self.shape[0]))
        self.tokens = slice(first_token, min(first_token + _TOKENS, self.shape[1]))

    def numbers(self, name: str, tokens: slice | None = None) -> torch.Tensor | None:
        """Return the shown part of the batch's entry `name`, on the CPU; `None` if it is missing or not `(B, T)`.

        By default the part has the shown tokens. The slice `tokens` selects others, such as all with `slice(None)`.
        """
        value: Any = self.batch.get(name)
        if not hasattr(value, "shape") or tuple(value.shape) != self.shape:
            return None
        return torch.as_tensor(value[self.rows, tokens or self.tokens], device="cpu")

    def data(
        self, tokens_of: TokensOf | None, special_ids: frozenset[int], labels_are_ids: bool | None
    ) -> dict[str, Any]:
        """Return the rows that the HTML shows, as a dict of JSON values; the arguments are those of `batch_html`."""
        ids, positions = self.numbers("input_ids"), self.numbers("position_ids")
        documents, reasons = self._documents_and_reasons()  # reasons by kind of layer
        is_real = documents >= 0
        positions = (is_real.cumsum(1) - 1 if positions is None else positions).long()
        types, labels = self.numbers("token_type_ids"), self.numbers("labels") if labels_are_ids is not None else None
        classes: Any = self.batch.get("labels")
        entries = {"ids": ids, "positions": positions, "documents": documents}
        entries |= {"real": is_real.long(), "types": types}
        words, rows = tokens_of or (lambda row: list(map(str, row))), []
        for index in range(len(documents)):
            row: dict[str, Any] = {
                name: None if value is None else value[index].tolist() for name, value in entries.items()
            }
            row["special"] = None if ids is None else [int(number in special_ids) for number in row["ids"]]
            places = range(self.tokens.start, self.tokens.stop)
            row["tokens"] = [f"[{place}]" for place in places] if ids is None else words(row["ids"])
            is_class = getattr(classes, "shape", ()) == self.shape[:1]  # one label for each row
            row["label"] = round(classes[self.rows.start + index].tolist(), 4) if is_class else None
            given = (ids, index, words, bool(labels_are_ids))
            row |= {"labels": None, "isShifted": False} if labels is None else _labels(labels[index], *given)
            row["reasons"] = ["".join(map(str, matrix[index].ravel().tolist())) for matrix in reasons.values()]
            rows.append(row)
        return {
            "facts": [[str(name), *facts(value)] for name, value in self.batch.items()],
            "window": [
                *(self.rows.start, self.rows.stop, self.shape[0]),
                *(self.tokens.start, self.tokens.stop, self.shape[1]),
            ],
            "rows": rows,
            "masks": list(reasons),
        }

    def _documents_and_reasons(self) -> tuple[torch.Tensor, dict[str, NDArray[np.int8]]]:
        """Return the document of each shown token, -1 at padding, and the codes of each mask's cells."""
        names = ("attention_mask", "document_ids", "position_ids")
        rows = {name: value for name in names if (value := self.numbers(name, slice(None))) is not None}
        if not rows:
            rows = {"attention_mask": torch.ones(self.rows.stop - self.rows.start, self.shape[1], device="cpu")}
        masks = self._full_masks()
        first = next(iter(masks.values()))
        mask = AttentionMask.from_batch(rows, look_ahead="look_ahead_mask" in self.batch)
        documents = mask.documents[:, self.tokens]
        if first is not None and "attention_mask" not in rows and "document_ids" not in rows:
            attended = first.any(1) & first.diagonal(dim1=1, dim2=2)  # no query attends to padding
            documents = torch.where(attended, documents, -1)
        is_real, codes = (documents >= 0).numpy(), {}
        for name, full in masks.items():
            allowed = None if full is None else full.numpy()
            later = mask.look_ahead or (allowed is not None and not np.triu(allowed, 1).any())
            codes[name] = reasons(allowed, is_real, documents.numpy(), later=later)
        return documents, codes

    def _full_masks(self) -> dict[str, torch.Tensor | None]:
        """Return the shown part of each 4D `attention_mask` as bool `(B, T, T)`, True where attention is allowed."""
        value = self.batch.get("attention_mask")
        masks: dict[str, torch.Tensor | None] = {}
        for name, mask in (value if isinstance(value, Mapping) else {"": value}).items():  # one for each kind of layer
            masks[str(name)] = None
            if mask is not None and mask.ndim == 4:
                queries = self.tokens if mask.shape[2] > 1 else slice(None)  # or one row for all queries
                part = torch.as_tensor(mask[self.rows, 0, queries, self.tokens], device="cpu")
                part = part.expand(-1, self.tokens.stop - self.tokens.start, -1)
                masks[str(name)] = part if part.dtype == torch.bool else part == 0
        return masks or {"": None}


def _labels(
    labels: torch.Tensor, ids: torch.Tensor | None, index: int, words: TokensOf, labels_are_ids: bool
) -> dict[str, Any]:
    """Return the labels of a row as tokens or numbers, `None` for -100, and if the model shifts them.

    Labels that repeat the ids are those of a causal model: each token is to predict the label after it.
    """
    counts = labels >= 0
    is_shifted = ids is not None and bool(counts.any()) and torch.equal(labels[counts], ids[index][counts].to(labels))
    numbers = labels.clamp(min=0).tolist()
    tokens = words(numbers) if labels_are_ids or is_shifted else map(str, numbers)
    shown = [token if count else None for token, count in zip(tokens, counts.tolist(), strict=True)]
    return {"labels": shown, "isShifted": is_shifted}


def facts(value: Any) -> tuple[str, str, str]:
    """Return shape, dtype and device of a tensor or array as text; for another value `("", name of its type, "")`."""
    if not hasattr(value, "shape"):
        return "", type(value).__name__, ""
    return str(tuple(value.shape)), str(value.dtype).removeprefix("torch."), str(getattr(value, "device", "cpu"))


def _table_of_facts(rows: list[list[str]]) -> str:
    lines = "".join(
        f"<tr><td><code>{html.escape(name)}</code></td>{''.join(f'<td>{html.escape(fact)}</td>' for fact in rest)}</tr>"
        for name, *rest in rows
    )
    return f"<table><tr><th>name</th><th>shape</th><th>dtype</th><th>device</th></tr>{lines}</table>"


def _plain_tables(data: dict[str, Any]) -> str:
    """Return HTML tables of shapes and tokens, which are shown where scripts do not run."""
    gray = "color:#999;background:rgba(128,128,128,.15)"
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td style="{"" if is_real else gray}">{html.escape(token)}</td>'
            for token, is_real in zip(row["tokens"], row["real"], strict=True)
        )
        + "</tr>"
        for row in data["rows"][:_PLAIN_ROWS]
    )
    first_row, end_row, count, first_token, end_token, length = data["window"]
    end_row = min(end_row, first_row + _PLAIN_ROWS)
    hidden = end_row - first_row < count or end_token - first_token < length
    note = f"Rows {first_row} to {end_row - 1} of {count}, tokens {first_token} to {end_token - 1} of {length}"
    return (
        f'{_table_of_facts(data["facts"])}<div style="overflow-x:auto"><table>{rows}</table></div>'
        f"{f'<p>{note}</p>' if hidden else ''}"
    )

"""A batch as interactive HTML: pointing at a token highlights its mask cells, its position and its vectors.

The page shows at most 8 rows and 32 tokens of a batch, and states which. It needs no network and no server.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import value_error
from .._common.integers import as_integer
from ..masks import AttentionMask, reasons
from ..positions import sinusoidal_encoding

# Functions from a row of ids to its tokens, and from position ids (N,) to the rows (N, D) of an encoding.
TokensOf = Callable[[Sequence[int]], list[str]]
EncodingOf = Callable[[torch.Tensor], torch.Tensor]

_ROWS, _TOKENS, _COLUMNS = 8, 32, 64  # of the window
_WIDTH = 64  # of the encoding shown for a batch without embeddings


def batch_html(
    batch: Mapping[str, Any],
    *,
    tokens_of: TokensOf | None = None,
    special_ids: Collection[int] = (),
    encoding_of: EncodingOf | None = None,
    encoding_note: str | None = None,
    first_row: int = 0,
    first_token: int = 0,
) -> str:
    r"""Return a batch as HTML: pointing at a token highlights its mask cells, its position and its vectors.

    The result is a fragment, for a notebook or to be placed in a page. Where scripts do not run, as on GitHub, plain
    tables are shown. At most 8 rows and 32 tokens of each are shown.

    Args:
        batch (mapping): a batch with `input_ids` or `inputs_embeds`. All its keys are listed with shape, dtype and
            device; masks, position ids, labels and token types are also drawn. If it has neither `input_ids` nor
            `inputs_embeds`, the result is only that list, a table.
        tokens_of (callable, *optional*): function from a list of ids to the list of their tokens. By default ids are
            shown.
        special_ids (collection of `int`, *optional*): ids of special tokens, which are marked. By default none.
        encoding_of (callable, *optional*): function from position ids `(N,)` to their encodings `(N, D)`. By default
            sinusoids of width 64, labeled as an example; none if there is an `encoding_note`.
        encoding_note (`str`, *optional*): line that states what the encodings are, if they are not part of the batch,
            or why none are shown.
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
    if encoding_of is None and encoding_note is None:
        encoding_of = _example_encoding
        encoding_note = f"An example, not part of the batch: sinusoids of width {_WIDTH} for these positions."
    data = window.data(tokens_of, frozenset(special_ids), encoding_of) | {"note": encoding_note}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    name = "hf-posenc-" + hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    script, style = _source("view.js"), json.dumps(_source("view.css"))
    return (
        f'<div id="{name}" class="hf-posenc-batch">{_plain_tables(data)}</div>'
        f"<script>(() => {{{script}\nfor (const host of document.querySelectorAll('[id=\"{name}\"]')) "
        f"if (!host.shadowRoot) showBatch(host, {text}, {style});}})()</script>"
    )


def _example_encoding(positions: torch.Tensor) -> torch.Tensor:
    return sinusoidal_encoding(positions, _WIDTH)


def page_of(fragment: str, title: str) -> str:
    """Return a complete HTML document: `title` as its heading, and below it `fragment`, the HTML to show.

    Its colors are light or dark, as the browser prefers.
    """
    style = (
        "body{margin:0 auto;max-width:1200px;padding:12px;background:Canvas;color:CanvasText}"
        "h1{font:600 1.3rem system-ui,sans-serif;overflow-wrap:anywhere}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{html.escape(title)}</title><style>{style}</style>'
        f"</head><body><h1>{html.escape(title)}</h1>{fragment}</body></html>\n"
    )


@lru_cache(maxsize=2)
def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Window:
    """Part of a batch that `batch_html` shows: at most 8 rows and 32 tokens, from `first_row` and `first_token` on.

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
        return torch.as_tensor(value[self.rows, tokens or self.tokens]).cpu()

    def data(
        self, tokens_of: TokensOf | None, special_ids: frozenset[int], encoding_of: EncodingOf | None
    ) -> dict[str, Any]:
        """Return all data that the HTML shows, as a dict of JSON values; the arguments are those of `batch_html`."""
        ids, positions = self.numbers("input_ids"), self.numbers("position_ids")
        documents, reasons = self._documents_and_reasons()  # reasons by kind of layer
        real = documents >= 0
        positions = (real.cumsum(1) - 1 if positions is None else positions).long()
        entries = {"ids": ids, "positions": positions, "documents": documents, "real": real.long()}
        entries |= {"labels": self.numbers("labels"), "types": self.numbers("token_type_ids")}
        rows = []
        for index in range(len(documents)):
            row: dict[str, Any] = {
                name: None if value is None else value[index].tolist() for name, value in entries.items()
            }
            row["special"] = None if ids is None else [int(number in special_ids) for number in row["ids"]]
            if ids is None:
                row["tokens"] = [f"[{number}]" for number in range(self.tokens.start, self.tokens.stop)]
            else:
                row["tokens"] = list(map(str, row["ids"])) if tokens_of is None else tokens_of(row["ids"])
            row["reasons"] = ["".join(map(str, each[index].ravel().tolist())) for each in reasons.values()]
            rows.append(row)
        return {
            "facts": [[str(name), *facts(value)] for name, value in self.batch.items()],
            "window": [
                *(self.rows.start, self.rows.stop, self.shape[0]),
                *(self.tokens.start, self.tokens.stop, self.shape[1]),
            ],
            "rows": rows,
            "masks": list(reasons),
            "encoding": self._encoding(positions[real], encoding_of),
            "embedding": self._embedding(),
        }

    def _documents_and_reasons(self) -> tuple[torch.Tensor, dict[str, NDArray[np.int8]]]:
        """Return the document number of each shown token, -1 at padding, and the codes of the cells of each mask."""
        names = ("attention_mask", "document_ids", "position_ids")
        rows = {name: value for name in names if (value := self.numbers(name, slice(None))) is not None}
        if not rows:
            rows = {"attention_mask": torch.ones(self.rows.stop - self.rows.start, self.shape[1])}
        masks = self._full_masks()
        first = next(iter(masks.values()))
        mask = AttentionMask.from_batch(rows, look_ahead="look_ahead_mask" in self.batch)
        documents = mask.documents[:, self.tokens]
        if first is not None and "attention_mask" not in rows and "document_ids" not in rows:
            real = first.any(1) & first.diagonal(dim1=1, dim2=2)  # no query attends to padding
            documents = torch.where(real, documents, -1)
        return documents, {name: _reasons(documents, full, look_ahead=mask.look_ahead) for name, full in masks.items()}

    def _full_masks(self) -> dict[str, torch.Tensor | None]:
        """Return the shown part of each 4D `attention_mask` as bool `(B, T, T)`, True where attention is allowed."""
        given = self.batch.get("attention_mask")
        masks: dict[str, torch.Tensor | None] = {}
        for name, mask in (given if isinstance(given, Mapping) else {"": given}).items():  # one for each kind of layer
            masks[str(name)] = None
            if mask is not None and mask.ndim == 4:
                queries = self.tokens if mask.shape[2] > 1 else slice(None)  # or one row for all queries
                shown = torch.as_tensor(mask[self.rows, 0, queries, self.tokens]).cpu()
                shown = shown.expand(-1, self.tokens.stop - self.tokens.start, -1)
                masks[str(name)] = shown if shown.dtype == torch.bool else shown == 0
        return masks or {"": None}

    def _encoding(self, positions: torch.Tensor, encoding_of: EncodingOf | None) -> dict[str, Any] | None:
        if encoding_of is None:
            return None
        unique = torch.unique(positions)
        return {"positions": unique.tolist(), **_vectors(encoding_of(unique))}

    def _embedding(self) -> dict[str, Any] | None:
        value = self.batch.get("inputs_embeds")
        if value is None:
            return None
        return _vectors(torch.as_tensor(value[self.rows, self.tokens, :_COLUMNS]).detach(), value.shape[-1])


def _reasons(documents: torch.Tensor, full: torch.Tensor | None, *, look_ahead: bool) -> NDArray[np.int8]:
    """Return the reason why each query may not attend to each key, `(B, T, T)`; 0 if it may."""
    numbers = documents.numpy()
    later = ~np.tri(numbers.shape[1], dtype=bool)
    if full is None:
        allowed = (numbers[:, None, :] == numbers[:, :, None]) & (numbers >= 0)[:, None, :] & ~(later & look_ahead)
    else:
        allowed = full.numpy()
        look_ahead = look_ahead or not (allowed & later).any()
    return reasons(allowed, numbers >= 0, numbers, later=look_ahead)


def _vectors(rows: torch.Tensor, width: int | None = None) -> dict[str, Any]:
    """Return the first 64 columns of vectors `(..., D)` for the script of the page, as a dict."""
    shown = rows[..., :_COLUMNS].detach().to("cpu", torch.float32).contiguous().numpy()
    values = base64.b64encode(shown.astype("<f4").tobytes()).decode()
    return {"columns": shown.shape[-1], "width": width or rows.shape[-1], "values": values}


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
            f'<td style="{"" if real else gray}">{html.escape(token)}</td>'
            for token, real in zip(row["tokens"], row["real"], strict=True)
        )
        + "</tr>"
        for row in data["rows"]
    )
    first_row, end_row, count, first_token, end_token, length = data["window"]
    hidden = end_row - first_row < count or end_token - first_token < length
    note = f"Rows {first_row} to {end_row - 1} of {count}, tokens {first_token} to {end_token - 1} of {length}"
    return (
        f'{_table_of_facts(data["facts"])}<div style="overflow-x:auto"><table>{rows}</table></div>'
        f"{f'<p>{note}</p>' if hidden else ''}"
    )

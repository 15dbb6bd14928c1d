"""HTML tables of the page. All text from visitors and tokenizers is escaped.

Colors and spacing are in `look.css`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ..batch import real_tokens
from .shown import Shown

_LINES = ("input_ids", "attention_mask", "position_ids", "document_ids")
_ROWS, _COLUMNS = 6, 8  # maximum in a table of numbers


def batch_table(shown: Shown) -> str:
    r"""Return a table of the rows of a batch: token, id, mask and position in each column, with padding in gray.

    Args:
        shown (`Shown`): its `batch` and `tokens` are read.

    Returns:
        `str` of HTML; empty without a batch.
    """
    if not shown.batch:
        return ""
    keep = real_tokens(shown.batch)
    names = [name for name in _LINES if name in shown.batch]
    columns = len(shown.tokens[0])
    head = "".join(f'<th scope="col">{column}</th>' for column in range(columns))
    parts = [f'<thead><tr><th scope="row">column</th>{head}</tr></thead>']
    for row, tokens in enumerate(shown.tokens):
        real = [True] * columns if keep is None else [bool(one) for one in keep[row]]
        documents = shown.batch["document_ids"][row].tolist() if "document_ids" in shown.batch else [0] * columns
        kinds = [_kind(one, document) for one, document in zip(real, documents, strict=True)]
        lines = [_line(f"row {row}: tokens", [f"<bdi>{_visible(token)}</bdi>" for token in tokens], kinds, "token")]
        lines += [_line(name, [str(value) for value in shown.batch[name][row].tolist()], kinds) for name in names]
        parts.append(f"<tbody>{''.join(lines)}</tbody>")
    return f'<div class="wide" tabindex="0"><table class="batch">{"".join(parts)}</table></div>'


def facts_table(batch: Mapping[str, Any]) -> str:
    r"""Return a table of the name, shape and dtype of each tensor of a batch.

    Args:
        batch (mapping from `str` to `torch.Tensor`): may be empty.

    Returns:
        `str` of HTML; empty for an empty batch.
    """
    if not batch:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{tuple(value.shape)}</td>'
        f"<td>{html.escape(str(value.dtype).removeprefix('torch.'))}</td></tr>"
        for name, value in batch.items()
    )
    return f'<div class="wide"><table class="facts">{rows}</table></div>'


def numbers_table(values: NDArray[Any] | None, down: str, names: Sequence[str] | None = None, across: str = "") -> str:
    r"""Return a table of the upper left corner of a matrix, with four decimals.

    Args:
        values (`np.ndarray` `(rows, columns)`, *optional*): the matrix.
        down (`str`): header of the rows, such as `"position"`.
        names (sequence of `str`, *optional*): names of the rows; by default their numbers.
        across (`str`): header of the columns.

    Returns:
        `str` of HTML; empty without a matrix.
    """
    if values is None:
        return ""
    corner = values[:_ROWS, :_COLUMNS]
    head = "".join(f'<th scope="col">{column}</th>' for column in range(corner.shape[1]))
    lines = []
    for row, line in enumerate(corner):
        name = str(row) if names is None else f"<bdi>{_visible(names[row])}</bdi>"
        cells = "".join(f"<td>{value:.4f}</td>" for value in line)
        lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    whole = f"{values.shape[0]} × {values.shape[1]} numbers"
    return (
        f'<div class="wide" tabindex="0"><table class="numbers"><caption>the first of {whole}</caption>'
        f'<thead><tr><th scope="col">{html.escape(down)} \\ {html.escape(across)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def messages(shown: Shown) -> str:
    """Return the error messages and the notes of the page as HTML."""
    problems = "".join(map(refusal, shown.problems))
    return problems + notes(shown.notes)


def notes(said: Iterable[str]) -> str:
    """Return notes as HTML, one paragraph each."""
    return "".join(f'<p class="note">{html.escape(note)}</p>' for note in said)


def refusal(problem: str) -> str:
    """Return an error message as HTML."""
    return f'<pre class="problem" role="alert">{html.escape(problem)}</pre>'


def _line(name: str, cells: Sequence[str], kinds: Sequence[str], kind: str = "") -> str:
    inner = "".join(f'<td class="{one}">{cell}</td>' for cell, one in zip(cells, kinds, strict=True))
    return f'<tr class="{kind}"><th scope="row">{name}</th>{inner}</tr>'


def _kind(real: bool, document: int) -> str:
    if not real:
        return "padding"
    return "odd" if document % 2 else "real"


def _visible(token: str) -> str:
    """Return the token as HTML, with unprintable characters as escape sequences."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in token
    )
    return html.escape(shown)

"""The content of the page, computed from its settings: a batch, its tokens, the encoding, and error messages.

Plain values and arrays; `tables` and `pictures` turn them into HTML.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import real_tokens
from ..collator import DataCollatorWithPositionalEncoding
from ..embedding import PositionalEmbedding
from ..sinusoid import sinusoidal_encoding
from ..tokenization.loading import number_of_ids
from .settings import Settings
from .sources import last_change, table_of, tokenizer_of, why_random
from .turns import one_at_a_time

if TYPE_CHECKING:
    from torch import nn

_TOKENS_IN_THE_PLANE, _TOKENS_OF_A_MASK = 24, 24  # more are illegible and take seconds to draw
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Shown:
    r"""The content of the page for given settings. Parts that could not be computed are empty.

    Args:
        settings (`Settings`): the settings.
        batch (mapping): the collator's batch of the texts: `input_ids` (B, T), masks, `position_ids`, `inputs_embeds`
            (B, T, D). Empty without a text.
        tokens (B lists of T `str`): the tokens of the batch.
        encoding (`np.ndarray` `(positions, D)`, *optional*): row p is the encoding of position p.
        distances (`np.ndarray` `(positions, positions)`, *optional*): distance between every two rows of `encoding`.
        sentence (`str`): the beginning of the first text, short enough for the picture of embeddings.
        table (`nn.Embedding`, *optional*): the embedding table.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): the tokenizer.
        pad_token (`str`, *optional*): the collator's `pad_token`, if the tokenizer has none.
        notes, said_of_embeddings (`tuple` of `str`): warnings for the page, and those for the section on embeddings.
        problems (`tuple` of `str`): error messages, three lines each.
    """

    settings: Settings
    batch: Mapping[str, Any] = field(default_factory=dict)
    tokens: list[list[str]] = field(default_factory=list)
    encoding: NDArray[np.float64] | None = None
    distances: NDArray[np.float64] | None = None
    sentence: str = ""
    table: nn.Embedding | None = None
    tokenizer: Any = None
    pad_token: str | None = None
    notes: tuple[str, ...] = ()
    said_of_embeddings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def show(settings: Settings) -> Shown:
    r"""Compute the content of the page except the pictures. Errors caused by the settings are returned in `problems`.

    Args:
        settings (`Settings`): the settings of the page.

    Returns:
        `Shown`.

    Example:
        >>> shown = show(Settings(d_model=4, positions=3))
        >>> shown.encoding.shape, shown.batch, shown.problems
        ((3, 4), {}, ())
    """
    with one_at_a_time():
        return _shown(settings, last_change(settings))


@functools.lru_cache(maxsize=8)
def _shown(settings: Settings, _: int) -> Shown:
    """Compute the content, cached for the tables and the pictures; the second argument changes with the folder."""
    problems: list[str] = []
    notes = list(settings.left_out)
    parts: dict[str, Any] = {}
    encoding = tried(lambda: _encoding(settings), problems)
    if encoding is not None:
        parts |= {"encoding": encoding.numpy(), "distances": torch.cdist(encoding, encoding).numpy()}
    if settings.texts:
        parts |= tried(lambda: _collated(settings, notes), problems) or {}
    else:
        notes.append("no text yet: type one, or several, one a line")
    if "batch" in parts:
        parts |= tried(lambda: _embedded(settings, parts), problems) or {}
    return Shown(settings, notes=tuple(notes), problems=tuple(dict.fromkeys(problems)), **parts)


def _encoding(settings: Settings) -> torch.Tensor:
    """Return the encoding of all positions, `(positions, D)` float64."""
    positions = torch.arange(settings.positions)
    return sinusoidal_encoding(positions, settings.d_model, dtype=torch.float64, **settings.formula)


def masks_span(shown: Shown) -> tuple[int, int] | None:
    """Return the range of tokens in the picture of the masks, the last ones if padding is left; `None` for all."""
    length = len(shown.tokens[0])
    if length <= _TOKENS_OF_A_MASK:
        return None
    start = length - _TOKENS_OF_A_MASK if shown.settings.padding_side == "left" else 0
    return start, start + _TOKENS_OF_A_MASK


def tried(make: Callable[[], _Value], problems: list[str]) -> _Value | None:
    """Return `make()`; if it raises an error of this package, append the message to `problems` and return `None`."""
    try:
        return make()
    except (ValueError, TypeError, ImportError) as error:
        if "\n  fix: " not in str(error) and "\n  got: " not in str(error):
            raise  # a bug
        problems.append(str(error))
        return None


def _collated(settings: Settings, notes: list[str]) -> dict[str, Any]:
    """Return the batch without embeddings, its tokens, the tokenizer and the pad token."""
    tokenizer = tokenizer_of(settings)
    pad_token = "eos" if tokenizer.pad_token is None and tokenizer.eos_token is not None else None
    collate = DataCollatorWithPositionalEncoding(
        tokenizer,
        pad_token=pad_token,
        convention=settings.convention,
        max_length=settings.max_length,
        padding_side=settings.padding_side,
        look_ahead=settings.look_ahead,
        packing=settings.packing,
    )
    with _noted(notes):
        batch = collate(list(settings.texts))
        whole = collate.replace(max_length=None, packing=False).columns({collate.text_column: list(settings.texts)})
    if cut := sum(len(ids) > settings.max_length for ids in whole["input_ids"]):
        notes.append(f"{cut} of {len(settings.texts)} texts were truncated to {settings.max_length} tokens")
    return {"batch": batch, "tokens": collate.tokens(batch), "tokenizer": tokenizer, "pad_token": pad_token}


def _embedded(settings: Settings, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the batch with `inputs_embeds`, computed as in the collator, and the values for its section."""
    table = table_of(settings, number_of_ids(parts["tokenizer"]))
    embed = PositionalEmbedding(table, convention=settings.convention, base=settings.base, scale=settings.factor)
    batch, notes = parts["batch"], [*why_random(settings)]
    with _noted(notes):
        vectors = embed(batch["input_ids"], real_tokens(batch), batch["position_ids"])
    sentence = _beginning(parts["tokenizer"], settings.texts[0])
    return {
        "table": table,
        "batch": {**batch, "inputs_embeds": vectors},
        "sentence": sentence,
        "said_of_embeddings": tuple(notes),
    }


def _beginning(tokenizer: Any, text: str) -> str:
    """Return the beginning of a text, with a limited number of tokens; empty if the text has no tokens."""
    while True:
        count = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if count <= _TOKENS_IN_THE_PLANE:
            return text if count else ""
        text = text[: min(len(text) - 1, len(text) * _TOKENS_IN_THE_PLANE // count + 1)]


@contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """Append the first line of every warning to `notes`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield
    notes += [str(warning.message).splitlines()[0] for warning in caught]

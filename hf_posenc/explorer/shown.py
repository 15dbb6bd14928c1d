"""What the page shows, worked out from its settings: a batch, its tokens, the encoding, what went wrong.

Plain values and arrays; how they look is a matter of `tables` and `pictures`.
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

_TOKENS_IN_THE_PLANE, _TOKENS_OF_A_MASK = 24, 24  # more could hardly be told apart, and take seconds
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Shown:
    r"""What is to be seen for some settings; parts that could not be worked out are empty.

    Args:
        settings (`Settings`): what was asked.
        batch (mapping): what the collator gives for the texts: `input_ids` (B, T), masks, `position_ids`,
            `inputs_embeds` (B, T, D). Empty without a text.
        tokens (B lists of T `str`): what stands in it.
        encoding (`np.ndarray` `(positions, D)`, *optional*): row p is the encoding of position p.
        distances (`np.ndarray` `(positions, positions)`, *optional*): between every two of its rows.
        sentence (`str`): as much of the first text as can be told apart in the plane.
        table (`nn.Embedding`, *optional*): where the rows of the tokens come from.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): the one that was used.
        pad_token (`str`, *optional*): what stands in for a padding token where the tokenizer has none.
        notes, said_of_embeddings (`str`s): what the reader should know.
        problems (`str`s): what was refused, in three lines each.
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
    r"""Works out everything but the pictures. Never raises for what a visitor can choose: that is in `problems`.

    Args:
        settings (`Settings`): what the controls say.

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
    """Numbers and pictures ask for the same; a folder that has changed makes it something else."""
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
    """Which tokens the picture of the masks has room for, the last ones after padding; `None` for all of them."""
    length = len(shown.tokens[0])
    if length <= _TOKENS_OF_A_MASK:
        return None
    start = length - _TOKENS_OF_A_MASK if shown.settings.padding_side == "left" else 0
    return start, start + _TOKENS_OF_A_MASK


def tried(make: Callable[[], _Value], problems: list[str]) -> _Value | None:
    """What `make` gives; `None`, and one problem more, where it refuses in the words of this package."""
    try:
        return make()
    except (ValueError, TypeError, ImportError) as error:
        if "\n  fix: " not in str(error) and "\n  got: " not in str(error):
            raise  # a fault of ours
        problems.append(str(error))
        return None


def _collated(settings: Settings, notes: list[str]) -> dict[str, Any]:
    """The batch without embeddings, and what it was made with."""
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
    """The same batch with `inputs_embeds`, made as the collator makes them."""
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
    """As much of a text as has a few tokens; nothing where it has none."""
    while True:
        count = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if count <= _TOKENS_IN_THE_PLANE:
            return text if count else ""
        text = text[: min(len(text) - 1, len(text) * _TOKENS_IN_THE_PLANE // count + 1)]


@contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """Keeps the first line of what the package warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield
    notes += [str(warning.message).splitlines()[0] for warning in caught]

"""The settings of the page, read from its controls: a frozen dataclass whose values are checked and limited.

Each value is checked alone. Values that exclude each other raise in the functions that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from .._explain import explain, one_of, shorten

# Limits on the work for one visitor, so that any input is processed within a second or two.
MOST_TEXTS, MOST_CHARACTERS = 8, 4_000
_LARGEST = 1e300  # below the largest float, 1.8e308
RANGES = {"d_model": (2, 512), "positions": (2, 500), "max_length": (4, 64)}

TOKENIZERS = ("bert", "bpe", "folder")
EMBEDDINGS = ("random", "trained")
SIDES = ("right", "left")
SCALES = ("none", "sqrt_d")


class Formula(TypedDict):
    """Arguments of the encoding, as keywords of the functions of this package."""

    convention: str
    base: float


@dataclass(frozen=True)
class Settings:
    r"""Settings of the page. All of its content depends on them only.

    Args:
        text (`str`): the typed texts, one per line.
        tokenizer (`"bert"`, `"bpe"` or `"folder"`): BERT's, a trained BPE, or the tokenizer in `folder`.
        folder (`str`): path of a local folder with a tokenizer.
        embedding (`"random"` or `"trained"`): a table of seeded random numbers of any width, or BERT's trained table.
        d_model (`int`), convention (`str`), base (`float`): arguments of the encoding.
        positions (`int`): number of positions to draw.
        scale (`"none"` or `"sqrt_d"`): factor of the token embeddings: 1, or the square root of `d_model`.
        max_length (`int`): maximal number of tokens in a row.
        padding_side (`"right"` or `"left"`), look_ahead (`bool`), packing (`bool`): settings of the collator.

    Raises:
        ValueError: if a value is out of its range.

    Example:
        >>> Settings(text="I ride bike\n\n  \nbike ride I").texts
        ('I ride bike', 'bike ride I')
    """

    text: str = ""
    tokenizer: str = "bert"
    folder: str = ""
    embedding: str = "random"
    d_model: int = 128
    convention: str = "vaswani"
    base: float = 10_000
    positions: int = 64
    scale: str = "none"
    max_length: int = 32
    padding_side: Literal["right", "left"] = "right"
    look_ahead: bool = True
    packing: bool = False

    def __post_init__(self) -> None:
        choices = {"tokenizer": TOKENIZERS, "embedding": EMBEDDINGS, "padding_side": SIDES, "scale": SCALES}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(one_of(name, getattr(self, name), allowed))
        for name, (least, most) in RANGES.items():
            object.__setattr__(self, name, _whole(name, getattr(self, name), least, most))
        # Requests that bypass the page may send other types, and settings must be hashable as keys of a cache.
        for name, kind in (("convention", str), ("look_ahead", bool), ("packing", bool)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if isinstance(self.base, bool) or not isinstance(self.base, int | float) or not abs(self.base) <= _LARGEST:
            raise ValueError(explain("base must be a number", got=shorten(self.base), fix="base=10000"))
        # An integer, so that the Python script contains 10000 and not 10000.0.
        if self.base == int(self.base) and abs(self.base) < 1e15:
            object.__setattr__(self, "base", int(self.base))
        # A browser can send half a surrogate pair, which cannot be tokenized or encoded as UTF-8.
        object.__setattr__(self, "text", str(self.text or "").encode("utf-8", "replace").decode())
        object.__setattr__(self, "folder", str(self.folder or "").strip())

    @classmethod
    def read(cls, controls: Mapping[str, Any]) -> Settings:
        r"""Return the settings from the values of the controls, by name; other names are ignored.

        Example:
            >>> Settings.read({"text": "a", "d_model": 8.0, "positions": 4}).d_model
            8
        """
        return cls(**{field.name: controls[field.name] for field in fields(cls) if field.name in controls})

    @property
    def texts(self) -> tuple[str, ...]:
        """The first lines that are not blank, each truncated to `MOST_CHARACTERS`."""
        return tuple(line[:MOST_CHARACTERS] for line in self._lines()[:MOST_TEXTS])

    @property
    def formula(self) -> Formula:
        """Keyword arguments of the encoding."""
        return {"convention": self.convention, "base": self.base}

    @property
    def factor(self) -> Literal["sqrt_d"] | None:
        """The `scale` argument of `PositionalEmbedding`."""
        return "sqrt_d" if self.scale == "sqrt_d" else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Messages about lines and characters that exceed the limits and are not read."""
        lines = self._lines()
        said = []
        if len(lines) > MOST_TEXTS:
            said.append(f"the first {MOST_TEXTS} of {len(lines):,} texts are read")
        longest = max(map(len, lines[:MOST_TEXTS]), default=0)
        if longest > MOST_CHARACTERS:
            said.append(f"the first {MOST_CHARACTERS:,} of {longest:,} characters of a text are read")
        return tuple(said)

    def _lines(self) -> list[str]:
        # splitlines() would also split at form feeds and at separators that belong to a text.
        return [line.rstrip("\r") for line in self.text.split("\n") if line.strip()]


def _whole(name: str, value: object, least: int, most: int) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value <= most
        or value != int(value)
    ):
        raise ValueError(
            explain(
                f"{name} must be a whole number from {least} to {most} on this page",
                got=shorten(value),
                fix=f"{name}={max(least, min(most, 64))}; in Python there is no such bound",
            )
        )
    return int(value)

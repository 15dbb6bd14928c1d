"""The settings of the page: a frozen dataclass whose values are checked and limited.

Each value is checked alone. Values that exclude each other raise in the functions that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from .._common.errors import one_of, shorten, type_error, value_error
from .._common.integers import as_integer

# Limits on the work for one request, so that any input is answered within a second.
MOST_TEXTS, MOST_CHARACTERS = 8, 4_000
_LARGEST = 1e300  # below the largest float, 1.8e308
RANGES = {"d_model": (2, 512), "max_length": (4, 32)}
CHOICES = {"tokenizer": ("bert", "bpe", "folder"), "padding_side": ("right", "left"), "scale": ("sqrt_d", "none")}


@dataclass(frozen=True)
class Settings:
    r"""Settings that the user chooses on the page of `hf-posenc explore`.

    Args:
        text (`str`): the texts, one per line. Blank lines are ignored, and so are texts after the first eight.
        tokenizer (`"bert"`, `"bpe"` or `"folder"`): BERT's tokenizer, a BPE trained on Python docstrings, or the
            tokenizer in `folder`.
        folder (`str`): path of a local folder with a tokenizer; used with `tokenizer="folder"` only.
        d_model (`int`), convention (`str`), base (`float`): arguments of `sinusoidal_encoding`. `d_model` is 2 to 512.
        scale (`"sqrt_d"` or `"none"`): factor of the token embeddings: the square root of `d_model`, or 1.
        max_length (`int`): maximum number of tokens in a row of the batch, 4 to 32.
        padding_side (`"right"` or `"left"`), look_ahead (`bool`), packing (`bool`): arguments of
            `DataCollatorWithPositionalEncoding`.

    Raises:
        ValueError: if a number is out of its range, `base` is not a number, or `tokenizer`, `scale` or `padding_side`
            is not one of the values above.
        TypeError: if `d_model` or `max_length` is not an integer.

    Example:
        >>> Settings(text="I ride bike\n\n  \nbike ride I").texts
        ('I ride bike', 'bike ride I')
    """

    text: str = ""
    tokenizer: str = "bpe"
    folder: str = ""
    d_model: int = 64
    convention: str = "vaswani"
    base: float = 10_000
    scale: str = "sqrt_d"
    max_length: int = 24
    padding_side: Literal["right", "left"] = "right"
    look_ahead: bool = True
    packing: bool = False

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(one_of(name, getattr(self, name), allowed))
        for name, (least, most) in RANGES.items():
            example = max(least, min(most, 64))
            number = as_integer(getattr(self, name), name, example=example)
            if not least <= number <= most:
                raise value_error(
                    f"{name} must be an integer from {least} to {most} on this page",
                    got=number,
                    fix=f"{name}={example}; in Python there is no such limit",
                )
        # Requests that bypass the page may send other types.
        for name, kind in (("convention", str), ("look_ahead", bool), ("packing", bool)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if isinstance(self.base, bool) or not isinstance(self.base, int | float) or not abs(self.base) <= _LARGEST:
            raise value_error("base must be a number", got=shorten(self.base), fix="base=10000")
        if self.base == int(self.base) and abs(self.base) < 1e15:  # the script contains 10000 and not 10000.0
            object.__setattr__(self, "base", int(self.base))
        # A browser can send half a surrogate pair, which cannot be tokenized or encoded as UTF-8.
        object.__setattr__(self, "text", str(self.text or "").encode("utf-8", "replace").decode())
        object.__setattr__(self, "folder", str(self.folder or "").strip())

    @classmethod
    def read(cls, values: object) -> Settings:
        r"""Return the settings for the JSON object that the page sends, a mapping from names to values.

        Names that are missing in the mapping get their defaults.

        Raises:
            TypeError: if `values` is not a mapping, or a name in it is not a setting; also as in `Settings`.
            ValueError: as in `Settings`.

        Example:
            >>> Settings.read({"text": "a", "d_model": 8}).d_model
            8
        """
        if not isinstance(values, Mapping):
            raise type_error("settings must be a JSON object", got=shorten(values), fix='{"text": "I ride bike"}')
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                raise TypeError(one_of("setting", name, names))
        known: Mapping[str, Any] = values
        return cls(**known)

    @property
    def texts(self) -> tuple[str, ...]:
        """The first 8 lines of `text` that are not blank, each truncated to 4,000 characters."""
        return tuple(line[:MOST_CHARACTERS] for line in self._lines()[:MOST_TEXTS])

    @property
    def left_out(self) -> tuple[str, ...]:
        """Messages for the user about the part of `text` that is not in `texts`; empty if `texts` has all of it.

        There is one message if `text` has too many lines, and one if a line is too long.
        """
        lines = self._lines()
        found = []
        if len(lines) > MOST_TEXTS:
            found.append(f"the first {MOST_TEXTS} of {len(lines):,} texts are read")
        longest = max(map(len, lines[:MOST_TEXTS]), default=0)
        if longest > MOST_CHARACTERS:
            found.append(f"the first {MOST_CHARACTERS:,} of {longest:,} characters of a text are read")
        return tuple(found)

    def _lines(self) -> list[str]:
        # splitlines() would also split at form feeds and at separators that belong to a text.
        return [line.rstrip("\r") for line in self.text.split("\n") if line.strip()]

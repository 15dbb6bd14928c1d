"""What the controls of the page say, as one frozen value: read once, bounded, checked.

Nothing is computed here; what does not fit together is refused where it is used, in the words of the room that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from .._explain import explain, one_of, shorten

# Bounds of the work that one visitor can ask for: an answer takes a second or two, whatever is typed.
MOST_TEXTS, MOST_CHARACTERS = 8, 4_000
_LARGEST = 1e300  # that a float holds
RANGES = {"d_model": (2, 512), "positions": (2, 500), "max_length": (4, 64)}

TOKENIZERS = ("bert", "bpe", "folder")
EMBEDDINGS = ("random", "trained")
SIDES = ("right", "left")
SCALES = ("none", "sqrt_d")


class Formula(TypedDict):
    """Which encoding it is, as every function of the package asks for it."""

    convention: str
    base: float


@dataclass(frozen=True)
class Settings:
    r"""Everything that the page shows is a function of this.

    Args:
        text (`str`): what was typed, a text a line.
        tokenizer (`"bert"`, `"bpe"` or `"folder"`): which one; `folder` says where it lies.
        folder (`str`): a folder with a tokenizer on this machine.
        embedding (`"random"` or `"trained"`): the table: seeded numbers of any width, or BERT's own.
        d_model (`int`), convention (`str`), base (`float`): the encoding.
        positions (`int`): how many positions of it are drawn.
        scale (`"none"` or `"sqrt_d"`): what looked-up rows are multiplied by.
        max_length (`int`): tokens a row at most.
        padding_side (`"right"` or `"left"`), look_ahead (`bool`), packing (`bool`): the batch.

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
        # Of any other kind only when somebody asks past the page; what is kept by its settings must have a hash.
        for name, kind in (("convention", str), ("look_ahead", bool), ("packing", bool)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        if isinstance(self.base, bool) or not isinstance(self.base, int | float) or not abs(self.base) <= _LARGEST:
            raise ValueError(explain("base must be a number", got=shorten(self.base), fix="base=10000"))
        # Typed as 10000, not 10000.0: so it stands in the Python that is handed out.
        if self.base == int(self.base) and abs(self.base) < 1e15:
            object.__setattr__(self, "base", int(self.base))
        # A browser can send half a surrogate pair, which no tokenizer takes and no answer can carry.
        object.__setattr__(self, "text", str(self.text or "").encode("utf-8", "replace").decode())
        object.__setattr__(self, "folder", str(self.folder or "").strip())

    @classmethod
    def read(cls, controls: Mapping[str, Any]) -> Settings:
        r"""The settings that a page's controls hold, by name.

        Example:
            >>> Settings.read({"text": "a", "d_model": 8.0, "positions": 4}).d_model
            8
        """
        return cls(**{field.name: controls[field.name] for field in fields(cls) if field.name in controls})

    @property
    def texts(self) -> tuple[str, ...]:
        """The first lines with something on them, each as far as it is read."""
        return tuple(line[:MOST_CHARACTERS] for line in self._lines()[:MOST_TEXTS])

    @property
    def formula(self) -> Formula:
        """The arguments that say which encoding it is."""
        return {"convention": self.convention, "base": self.base}

    @property
    def factor(self) -> Literal["sqrt_d"] | None:
        """`scale` as `PositionalEmbedding` spells it."""
        return "sqrt_d" if self.scale == "sqrt_d" else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """What of the typed text is not read, in words."""
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

"""The report of `use_sinusoidal_positions`: the changes to a model in words, and the way back.

It holds the rows that were there before, and nothing of the model's other numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .._explain import explain
from ..sinusoid import Convention
from .formula import Formula
from .kept import Kept


@dataclass(frozen=True)
class Written:
    r"""One position table that sinusoids were written into.

    Args:
        name (`str`): as in `model.named_parameters()`.
        counts (`str`): whose positions it holds, `"input_ids"` or `"decoder_input_ids"`.
        first_row (`int`): the row that a first token reads.
        rows (`int`), d_model (`int`): its shape.
        max_positions (`int`): how many tokens a row may have.
        was (`str`): what it held before: "random", "trained", or sinusoids.
        left_padding_shifts (`bool`): whether, with an attention mask alone, padding on the left moves real tokens on to
            later rows.
    """

    name: str
    counts: str
    first_row: int
    rows: int
    d_model: int
    max_positions: int
    was: str
    left_padding_shifts: bool


@dataclass(frozen=True, eq=False, repr=False)
class SinusoidalPositions:
    r"""The report of `use_sinusoidal_positions`: prints well, and puts the model back.

    Args:
        model (`str`): the model's class.
        recipe (`str`): "matched" or "paper".
        convention (`Convention`), base (`float`, *optional*), scale (`float`): formula of the rows; a base of `None` is
            the convention's own.
        frozen (`tuple` of `str`): the parameters that are not trained from now on; empty for `freeze=False`.
        token_factor (`float`): factor of the token embeddings, 1 if they were left alone.
        tables (`tuple` of `Written`): the tables that were written.
        kept_positions (`tuple` of `str`): other kinds of positions that the model has and keeps, such as "relative".
        not_reached (`tuple` of `str`): tables that are called positions, and that a plain sequence of tokens does not
            read; they are left as they were.
        largest_difference (`float`, *optional*): between what the tables return and `sinusoidal_encoding`; `None` where
            nothing was verified.
        takes_position_ids (`bool`): whether the model lets the caller say positions.
        still_trained (`tuple` of `str`): adapters of the tables, such as LoRA's, which stay trainable.
        spread (`float`, *optional*): standard deviation of the encoding, in parts of that of the token embeddings.
    """

    model: str
    recipe: str
    convention: Convention
    base: float | None
    scale: float
    frozen: tuple[str, ...]
    token_factor: float
    tables: tuple[Written, ...]
    kept_positions: tuple[str, ...]
    not_reached: tuple[str, ...]
    largest_difference: float | None
    takes_position_ids: bool
    still_trained: tuple[str, ...]
    spread: float | None
    _kept: Kept | None = field(default=None)

    @property
    def left_padding_shifts(self) -> bool:
        """True if padding on the left moves real tokens to later positions, unless `position_ids` say otherwise."""
        return any(table.left_padding_shifts for table in self.tables)

    def remove(self) -> None:
        r"""Put the model back: rows, gradients, lengths, buffers and configuration as they were, bit for bit.

        Token embeddings are divided by their factor, so that what they have learned since stays.

        Raises:
            RuntimeError: if the learned rows are gone, because the model was saved and reloaded with sinusoids in it,
                or an earlier report holds them; or if it was put back already.
        """
        if self._kept is None:
            raise RuntimeError(
                explain(
                    "the learned rows are gone: the tables held sinusoids already when this was called",
                    got="a model that was reloaded, or a second call",
                    fix="the report of the first call can put them back, as long as the model has not been reloaded",
                )
            )
        if not self._kept.put_back():
            raise RuntimeError(explain("the model was put back already", fix="use_sinusoidal_positions(model) again"))

    def __repr__(self) -> str:
        lines = [f"{self.model}: sinusoidal positions ({Formula(self.convention, self.base, self.scale)})"]
        for table in self.tables:
            whose = "" if table.counts == "input_ids" else ", of the decoder"
            lines.append(
                f"{table.name}: {table.max_positions} positions of width {table.d_model} from row "
                f"{table.first_row}{whose}, were {table.was}"
            )
        if self.token_factor != 1:
            lines.append(f"token embeddings multiplied by {self.token_factor:g}")
        checked = "not verified"
        if self.largest_difference is not None:
            checked = f"verified, largest difference {self.largest_difference}"
        lines.append(f"{'frozen' if self.frozen else 'trainable'}; {checked}")
        if self.still_trained:
            lines.append(
                f"adapters of the tables are trained, and change the positions: {', '.join(self.still_trained)}"
            )
        if self.left_padding_shifts:
            unless = " unless position_ids are given" if self.takes_position_ids else ": pad on the right"
            lines.append(f"left padding shifts positions{unless}")
        for kind in self.kept_positions:
            lines.append(f"{kind} positions stay beside them")
        for name in self.not_reached:
            lines.append(f"not reached by a plain sequence of tokens, and left as it was: {name}")
        if self.spread is not None and self.spread > DROWNED:
            lines.append(f"positions are {self.spread:.0f} times as large as token embeddings")
        return "\n  ".join(lines)


# At this ratio one part in 26 of a vector's variance is the token's; see `PositionalEmbedding`.
DROWNED = 5.0

"""The report of `use_sinusoidal_positions`: a description of the changes to a model, and a method to undo them.

It keeps a copy of the overwritten rows, and no other weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .._common.errors import runtime_error
from ..positions import MAX_SPREAD, Convention
from .changes import Changes
from .position_tables import PositionTable


@dataclass(frozen=True)
class WrittenTable:
    r"""Description of a position table into which `use_sinusoidal_positions` wrote sinusoids, for its report.

    Args:
        name (`str`): as in `model.named_parameters()`.
        counts (`str`): the model input whose positions the table encodes, `"input_ids"` or `"decoder_input_ids"`.
        first_row (`int`): index of the table row that the first token reads.
        rows (`int`), d_model (`int`): shape of the table.
        max_positions (`int`): largest number of tokens in a sequence.
        was (`str`): content of the table before the change: "random", "trained", or a text that ends in "sinusoids".
        left_padding_shifts (`bool`): True if left padding moves real tokens to later rows when only an attention mask
            is passed.
    """

    name: str
    counts: str
    first_row: int
    rows: int
    d_model: int
    max_positions: int
    was: str
    left_padding_shifts: bool

    @classmethod
    def of(cls, table: PositionTable, rows: int, was: str) -> WrittenTable:
        """Make the description of a table that has `rows` rows now, and whose content `was` another."""
        limit = rows - table.first_row - table.ahead
        width, shifts = table.tensor.shape[1], table.left_padding_shifts
        return cls(table.name, table.counts, table.first_row, rows, width, limit, was, shifts)


@dataclass(frozen=True, eq=False, repr=False)
class SinusoidalPositions:
    r"""Report of `use_sinusoidal_positions`: `print` shows the changes, and `remove()` restores the model.

    Args:
        model (`str`): the model's class.
        recipe (`str`): "matched" or "paper".
        convention (`Convention`), base (`float`, *optional*), scale (`float`): formula of the sinusoids, as in
            `sinusoidal_encoding`, multiplied by `scale`. If `base` is `None`, the convention sets it.
        frozen (`tuple` of `str`): names of the tables that are no longer trained; empty for `freeze=False`.
        token_factor (`float`): factor of the token embeddings, 1 if they were not changed.
        tables (`tuple` of `WrittenTable`): the tables that were written.
        kept_positions (`tuple` of `str`): kinds of positions that the model uses beside the tables, such as "relative".
        not_reached (`tuple` of `str`): names of position tables that the model does not read for a plain sequence of
            tokens; no sinusoids were written into them.
        largest_difference (`float`, *optional*): 0.0 if the model was run and its tables returned exactly the sinusoids
            (any difference raises); `None` for `verify=False`.
        takes_position_ids (`bool`): True if `position_ids` have an effect.
        still_trained (`tuple` of `str`): names of adapter weights of the tables, such as LoRA's, which stay trainable.
        spread (`float`, *optional*): standard deviation of the sinusoids divided by that of the token embeddings;
            `None` if there are no token embeddings.
    """

    model: str
    recipe: str
    convention: Convention
    base: float | None
    scale: float
    frozen: tuple[str, ...]
    token_factor: float
    tables: tuple[WrittenTable, ...]
    kept_positions: tuple[str, ...]
    not_reached: tuple[str, ...]
    largest_difference: float | None
    takes_position_ids: bool
    still_trained: tuple[str, ...]
    spread: float | None
    _changes: Changes | None = field(default=None)

    @property
    def left_padding_shifts(self) -> bool:
        """True if left padding moves real tokens to later positions when no `position_ids` are passed."""
        return any(table.left_padding_shifts for table in self.tables)

    def remove(self) -> None:
        r"""Restore the model bit for bit: table rows, `requires_grad`, lengths, buffers and configuration.

        Token embeddings are divided by the factor that `use_sinusoidal_positions` multiplied them with. So changes by
        training since then are kept.

        Raises:
            RuntimeError: in these cases:

                - The tables contained the sinusoids of an earlier call, so this report has no learned rows to restore.
                  The report of that call has them, if the model was not reloaded since.
                - The model is already restored.
                - A table is no longer in the model, for example because it was lengthened since.
        """
        if self._changes is None:
            raise runtime_error(
                "the learned rows are gone: the tables contained sinusoids before this call",
                got="a model that was reloaded, or a second call",
                fix="the report of the first call restores them, as long as the model has not been reloaded",
            )
        if not self._changes.undo():
            raise runtime_error("the model was restored already", fix="use_sinusoidal_positions(model) again")

    def __repr__(self) -> str:
        convention = self.convention if self.base is None else replace(self.convention.formula, base=self.base)
        factor = "" if self.scale == 1 else f", multiplied by {self.scale:g}"
        lines = [f"{self.model}: sinusoidal positions ({self.convention.name})"]
        lines.append(f"rows: {convention}{factor}")
        for table in self.tables:
            owner = "" if table.counts == "input_ids" else ", of the decoder"
            lines.append(
                f"{table.name}: {table.max_positions} positions of width {table.d_model} from row "
                f"{table.first_row}{owner}, were {table.was}"
            )
        if self.token_factor != 1:
            lines.append(f"token embeddings multiplied by {self.token_factor:g}")
        verified = "not verified"
        if self.largest_difference is not None:
            verified = f"verified, largest difference {self.largest_difference}"
        lines.append(f"{'frozen' if self.frozen else 'trainable'}; {verified}")
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
        if self.spread is not None and self.spread > MAX_SPREAD:
            lines.append(f"positions are {self.spread:.0f} times as large as token embeddings")
        return "\n  ".join(lines)

"""The report of `use_sinusoidal_positions`: a description of the changes to a model, and a method to undo them.

It keeps a copy of the overwritten rows, and no other weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._common.errors import runtime_error
from ..positions import Convention
from .changes import Changes
from .position_tables import ModelPositions


@dataclass(frozen=True, eq=False, repr=False)
class SinusoidalPositions:
    r"""Report of `use_sinusoidal_positions`: `print` shows the changes, and `remove()` restores the model.

    Args:
        model (`str`): the model's class.
        convention (`Convention`), base (`float`, *optional*), scale (`float`): formula of the sinusoids, as in
            `sinusoidal_encoding`, multiplied by `scale`. If `base` is `None`, the convention sets it.
        token_factor (`float`): factor of the token embeddings, 1 if they were not changed.
        positions (`ModelPositions`): positions of the model; its `tables` are those that were written.
        contents (`tuple` of `str`): content of each of these tables before the change: "random", "trained", or a text
            that ends in "sinusoids".
        frozen (`tuple` of `str`): names of the tables that are no longer trained; empty for `freeze=False`.
        still_trained (`tuple` of `str`): names of adapter weights of the tables, such as LoRA's, which stay trainable.
    """

    model: str
    convention: Convention
    base: float | None
    scale: float
    token_factor: float
    positions: ModelPositions
    contents: tuple[str, ...]
    frozen: tuple[str, ...]
    still_trained: tuple[str, ...]
    _changes: Changes

    def remove(self) -> None:
        r"""Restore the model bit for bit: table rows, `requires_grad`, lengths, buffers and configuration.

        Token embeddings are divided by the factor that `use_sinusoidal_positions` multiplied them with. So changes by
        training since then are kept.

        Raises:
            RuntimeError: if there is nothing to restore, because the model is already restored, or the tables contained
                the sinusoids of an earlier call; the report of that call restores the model, if it was not reloaded
                since. Also if a table is no longer in the model, for example because it was lengthened since.
        """
        if not self._changes.undo():
            raise runtime_error(
                "there is nothing to restore: the tables had sinusoids before this call, or are restored already",
                got=f"tables that were {', '.join(self.contents)}",
                fix="nothing, if it is restored; otherwise the report of the first call, if the model was not reloaded",
            )

    def __repr__(self) -> str:
        convention = self.convention if self.base is None else replace(self.convention.formula, base=self.base)
        factor = "" if self.scale == 1 else f", multiplied by {self.scale:g}"
        lines = [f"{self.model}: sinusoidal positions ({self.convention.name})"]
        lines.append(f"rows: {convention}{factor}")
        for table, content in zip(self.positions.tables, self.contents, strict=True):
            owner = "" if table.counts == "input_ids" else ", of the decoder"
            lines.append(
                f"{table.name}: {table.max_length} positions of width {table.tensor.shape[1]} from row "
                f"{table.first_row}{owner}, were {content}"
            )
        if self.token_factor != 1:
            lines.append(f"token embeddings multiplied by {self.token_factor:g}")
        lines.append(f"{'frozen' if self.frozen else 'trainable'}; verified, largest difference 0.0")
        if self.still_trained:
            lines.append(
                f"adapters of the tables are trained, and change the positions: {', '.join(self.still_trained)}"
            )
        if any(table.left_padding_shifts for table in self.positions.tables):
            unless = " unless position_ids are given" if self.positions.takes_position_ids else ": pad on the right"
            lines.append(f"left padding shifts positions{unless}")
        for kind in self.positions.kinds[1:]:  # "learned" is the first
            lines.append(f"{kind} positions stay beside them")
        for name in self.positions.not_reached:
            lines.append(f"not reached by a plain sequence of tokens, and left as it was: {name}")
        return "\n  ".join(lines)

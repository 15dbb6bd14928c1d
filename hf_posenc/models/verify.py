"""Whether a model's position tables return the encoding, seen from what the model itself looks up.

The model is run on random ids, unpadded and padded on either side; positions are those that it chose.
"""

from __future__ import annotations

from typing import Any

from .._explain import explain
from ..model_spec import PositionTable, position_lookups
from .formula import Formula


def largest_difference(model: Any, tables: tuple[PositionTable, ...], formula: Formula) -> float:
    r"""Compares what the tables return with `sinusoidal_encoding` at the positions that the model used.

    Args:
        model (`PreTrainedModel`): with sinusoids written.
        tables (`tuple` of `PositionTable`): what was found before.
        formula (`Formula`): what was written.

    Returns:
        The largest difference, 0.0.

    Raises:
        ValueError: if a table was not looked into, or returned anything else.
    """
    first_rows = {table.name: table.first_row for table in tables}
    seen: dict[str, float] = {}
    for name, rows, values in position_lookups(model, first_rows):
        before = rows < first_rows[name]
        exact = formula.rows(rows - first_rows[name], values.shape[-1], values.dtype)
        exact[before] = 0
        apart = float((values.cpu() - exact).abs().max())
        seen[name] = max(seen.get(name, 0.0), apart)
    for name in first_rows:
        if seen.get(name) != 0.0:
            raise ValueError(
                explain(
                    f"{name} of {type(model).__name__} does not return what was written into it",
                    got=f"a difference of {seen[name]:.3g}" if name in seen else "it was not looked into again",
                    fix="report it with the model's class; the model is as it was before the call",
                )
            )
    return max(seen.values())

"""Which formula a table of positions holds, if it is one of sinusoids: read from its numbers alone.

A table that was trained, or trained further, is never taken for one; what is nearest to it is said all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._explain import explain, shorten
from .arguments import DTYPES
from .conventions import Convention
from .fitting import Fit, Precision, Sample, fit, sampled_rows
from .formulas import SHAPES, presets_of, shapes_of
from .guessing import unusual
from .identified import Identified, is_near
from .measuring import Measured, measure

_KEPT_AS = ("weight", "weights", "positional_embedding")  # where modules keep their table


def identify(table: torch.Tensor | NDArray[Any] | torch.nn.Module) -> Identified:
    r"""Names the formula of a table of positions: layout, spacing, base, first position, amplitude and largest error.

    Args:
        table (`torch.Tensor` or array `(N, D)`, or a module with such a `weight` or `weights`): any floating dtype and
            device; it is only read. D is at least 2.

    Returns:
        `Identified`. A table that no formula explains has `is_sinusoidal=False` and the nearest formula.

    Raises:
        ValueError: if it has not two dimensions, no rows, fewer than two columns, or a number that is not finite.
        TypeError: if it is no table of floating numbers.

    Example:
        >>> from hf_posenc import sinusoidal_encoding
        >>> print(identify(sinusoidal_encoding(torch.arange(2, 130), 64, dtype=torch.bfloat16)))
        sinusoids: 128 rows of width 64, bfloat16
          formula        sines and cosines side by side, of p / 10000^(2i/D)
          rows           row 0 holds position 2
          largest error  0.00195 (row 97, column 12): exact, rounded once to bfloat16
          used by        vaswani, DistilBERT, XLM, FlauBERT, VideoMAE
    """
    given = _read(table)
    present = (given != 0).any(1)
    if not bool(present.any()):
        return _made(given, present, Fit(SHAPES[0], 0, 0.0, 0.0, 0.0), Measured(0.0, 0, 0, False, None))
    rows = sampled_rows(present)
    precisions = _precisions(given, rows)
    sample = Sample(rows, given[rows].double(), precisions[-1])
    tried: list[Fit] = []
    for formulas in _formulas(given, present, precisions[-1]):
        for is_thorough in (False, True):
            fits = [fit(sample, formula, is_thorough=is_thorough) for formula in formulas]
            good = [each for each in fits if each.ratio <= 1 and _is_enough(each, sample)]
            if good:
                return _best(given, present, good, precisions)
            tried += fits
    nearest = _nearest(tried)
    return _made(given, present, nearest, measure(given, present, nearest, precisions)._replace(is_within=False))


def _formulas(given: torch.Tensor, present: torch.Tensor, precision: Precision) -> Iterator[list[Convention]]:
    """What to try: the formulas of the field, then other bases."""
    yield shapes_of(given.shape[1])
    yield from unusual(given, present, precision)


def _is_enough(found: Fit, sample: Sample) -> bool:
    """Whether a table has more numbers than a formula has freedom: a few fit by chance."""
    pairs = sample.values.shape[1] // 2
    if found.formula.bases is not None:
        return len(sample.rows) > 2 or (len(sample.rows) == 2 and found.amplitude == 1 and pairs > 1)
    return len(sample.rows) > 1 or pairs >= 8


def _nearest(tried: list[Fit]) -> Fit:
    """Of formulas of which none fits, the nearest; the first, where another base hardly helps."""
    # One base a pair is near anything that turns a little: it counts only where it is near indeed.
    close = [each for each in tried if each.formula.bases is None or is_near(each.error, each.amplitude)]
    least = min(each.error for each in close)
    return next(each for each in close if each.error <= 1.05 * least)


def _best(given: torch.Tensor, present: torch.Tensor, good: list[Fit], precisions: list[Precision]) -> Identified:
    """Of several that fit, the exact one, else the first; those that fit no worse are named beside it."""
    least = min(each.error for each in good)
    equal = [each for each in good if each.error <= 1.01 * least + 1e-12]
    best, found = equal[0], measure(given, present, equal[0], precisions)
    for each in equal[1:] if found.exact_in is None else ():
        other = measure(given, present, each, precisions)
        if other.exact_in is not None or (other.is_within and not found.is_within):
            best, found = each, other
    others = [each.formula for each in equal if each is not best]
    return _made(given, present, best, found, tuple(others) if found.is_within else ())


def _made(
    given: torch.Tensor, present: torch.Tensor, best: Fit, found: Measured, others: tuple[Convention, ...] = ()
) -> Identified:
    formula, zero_rows = best.formula, tuple((~present).nonzero().squeeze(1).tolist())
    presets = presets_of((formula, *others), bool(zero_rows)) if found.is_within else ()
    return Identified(
        rows=given.shape[0],
        d_model=given.shape[1],
        dtype=given.dtype,
        is_sinusoidal=found.is_within,
        is_exact=found.exact_in is not None and found.is_within,
        exact_in=found.exact_in if found.is_within else None,
        layout=formula.layout,
        cosine_first=formula.cosine_first,
        spacing=formula.spacing,
        base=None if formula.bases or formula.wavelengths else formula.base,
        bases=formula.bases,
        wavelengths=formula.wavelengths,
        first_position=best.first_position,
        zero_rows=zero_rows,
        amplitude=best.amplitude,
        largest_error=found.error,
        at=(found.row, found.column),
        typical_error=best.error,
        presets=tuple(preset.name for preset in presets),
        # In words: several may differ by less than is shown, from each other and from the one that was found.
        others=tuple(word for word in dict.fromkeys(map(str, others)) if word != str(formula)),
    )


def _read(table: Any) -> torch.Tensor:
    """The numbers, on the CPU, as they are."""
    if isinstance(table, torch.nn.Module):
        found = [kept for name in _KEPT_AS if isinstance(kept := getattr(table, name, None), torch.Tensor)]
        if not found:
            raise TypeError(
                explain(
                    "a module must keep its table as weight or weights",
                    got=f"{type(table).__name__}, which has neither",
                    fix="the table itself, e.g. module.embeddings.position_embeddings",
                )
            )
        table = found[0]
    if not isinstance(table, torch.Tensor):
        try:
            array = np.asarray(table)
        except ValueError:  # lists of several lengths
            array = np.empty(0, dtype=object)
        if array.dtype.kind != "f":
            raise TypeError(explain("a table is made of floating numbers", got=shorten(table), fix="an array (N, D)"))
        kept = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
        table = torch.from_numpy(np.array(array, dtype=kept))
    if table.is_meta:
        raise ValueError(
            explain(
                "the table has no numbers yet", got="a tensor on the meta device", fix="load the model's weights first"
            )
        )
    if table.dtype not in DTYPES:
        raise TypeError(
            explain("a table is made of floating numbers", got=f"a tensor of {table.dtype}", fix=".float()")
        )
    if table.dim() != 2 or len(table) < 1 or table.shape[1] < 2:
        inner = table.dim() > 2 and table.numel() == table.shape[-1] * max(table.shape[:-1])
        raise ValueError(
            explain(
                "a table has rows, one a position, of at least two columns",
                got=f"shape {tuple(table.shape)}",
                fix=f"table.reshape(-1, {table.shape[-1]})" if inner else "a table of shape (N, D)",
            )
        )
    given: torch.Tensor = table.detach().to("cpu")
    if not bool(given.isfinite().all()):
        row, column = (~given.isfinite()).nonzero()[0].tolist()
        raise ValueError(
            explain(
                "every number of a table must be finite",
                got=f"{float(given[row, column])} in row {row}, column {column}",
                fix="load the weights again: a buffer outside the checkpoint may be left unset",
            )
        )
    return given


def _precisions(given: torch.Tensor, rows: torch.Tensor) -> list[Precision]:
    """The dtypes in which all numbers can be written: the table's own first, the coarsest last."""
    found = [given.dtype]
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        if torch.finfo(dtype).eps > torch.finfo(given.dtype).eps and all(
            torch.equal(some.to(dtype).to(given.dtype), some) for some in (given[rows], given)
        ):
            found.append(dtype)
    return [Precision.of(dtype) for dtype in found]

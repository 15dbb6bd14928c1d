"""Recognition of sinusoids in a position table: find its convention, first position, amplitude and error.

Only the known conventions and those that a caller names are tried; arbitrary bases are not searched. A trained or
fine-tuned table is never identified as sinusoidal.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import shorten, type_error, value_error
from .arguments import DTYPES, USUAL_BASE
from .conventions import CONVENTIONS, Convention, Layout, Spacing, resolve_convention
from .exact import encode, round_once, waves

# Model families of transformers by the convention whose formula they use.
_FAMILIES = {
    "vaswani": "DistilBERT, XLM, FlauBERT, VideoMAE",
    "marian": "Marian, Pegasus, RoFormer, CTRL, Informer, Autoformer",
    "whisper": "Whisper, Qwen2.5-Omni",
    "m2m100": "M2M100, NLLB, NLLB-MoE, XGLM, Speech2Text, SpeechT5, FSMT, TrOCR, Kosmos-2, SeamlessM4T",
    "musicgen": "MusicGen, MusicGen Melody",
}
_TABLE_NAMES = ("weight", "weights", "positional_embedding")  # attributes of modules that hold a table
_FIRST_ROWS, _OTHER_ROWS = 48, 16  # size of the sample: the first rows, and rows spread over the others
_PAIRS = 16  # pairs of columns that determine the offset
_FAR_POSITIONS, _MAX_TURNS = 2**17, 512  # offsets that are tried, and turns of the slowest column to reach them
_ELEMENTS = 2**20  # compared at once
# Difference between float64 encodings and the exact values.
_FLOAT64_ERROR = 2.0**-51


@dataclass(frozen=True)
class Identified:
    r"""Result of `identify`: the convention of a table, its first position and amplitude, and its largest error.

    If no formula explains the table, `is_sinusoidal` is False, and the fields describe the nearest formula.

    Args:
        rows, d_model (`int`): shape of the table.
        dtype (`torch.dtype`): dtype of the table.
        is_sinusoidal (`bool`): True if every number agrees with the formula, up to rounding and the error of
            angles computed in float32.
        is_exact (`bool`): True if every number is the exact value of the formula, rounded once.
        exact_in (`torch.dtype`, *optional*): dtype of that rounding; `None` if `is_exact` is False. It may differ from
            `dtype`, because a float32 table may hold bfloat16 numbers. In float64, an error of 2**-51 is allowed.
        layout (`"interleaved"` or `"halves"`), cosine_first (`bool`): order of the columns, as in `Convention`.
        spacing (`"width"` or `"ends"`): frequency of pair i: base^(-2i/D) for `"width"`, base^(-i/(H-1)) for `"ends"`
            and H pairs of columns.
        base (`float`, *optional*): base of the frequencies; `None` if `bases` or `wavelengths` are given instead.
        bases (`tuple` of `float`, *optional*): positions per turn of each pair, for fixed bases.
        wavelengths (two `float`, *optional*): shortest and longest wavelength, for a convention defined by them.
        first_position (`int`): position of row 0; row r holds position r + `first_position`.
        zero_rows (`tuple` of `int`): indices of the rows that are zero.
        amplitude (`float`): factor of the sines and cosines.
        largest_error (`float`): largest difference between a number of the table and the formula in float64.
        at (`tuple` of `int`): row and column of that number.
        typical_error (`float`): root mean square of the differences in a sample of the rows.
        presets (`tuple` of `str`): names of conventions and model families with this formula, or with one of `others`;
            empty if `is_sinusoidal` is False.
        others (`tuple` of `str`): other formulas that give the same table.

    Example:
        >>> from hf_posenc import audit, sinusoidal_encoding
        >>> found = audit.identify(sinusoidal_encoding(torch.arange(512), 64, convention="marian"))
        >>> found.layout, found.spacing, found.base, found.presets[:3]
        ('halves', 'width', 10000.0, ('marian', 'Marian', 'Pegasus'))
    """

    rows: int
    d_model: int
    dtype: torch.dtype
    is_sinusoidal: bool
    is_exact: bool
    exact_in: torch.dtype | None
    layout: Layout
    cosine_first: bool
    spacing: Spacing
    base: float | None
    bases: tuple[float, ...] | None
    wavelengths: tuple[float, float] | None
    first_position: int
    zero_rows: tuple[int, ...]
    amplitude: float
    largest_error: float
    at: tuple[int, int]
    typical_error: float
    presets: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def is_near(self) -> bool:
        """True if `typical_error` is below a quarter of `amplitude`.

        This is still true for sinusoids after some further training.
        """
        return self.typical_error < abs(self.amplitude) / 4

    @property
    def convention(self) -> Convention:
        """The formula as a `Convention`, including its base and first position."""
        return Convention(
            "recognized",
            self.layout,
            self.spacing,
            self.first_position,
            bases=self.bases,
            cosine_first=self.cosine_first,
            base=self.base or USUAL_BASE,
            wavelengths=self.wavelengths,
        )

    def __str__(self) -> str:
        size = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'} of width {self.d_model}, {_short(self.dtype)}"
        if len(self.zero_rows) == self.rows:
            return f"not recognized: {size}\n  every row is zero"
        if not self.is_near:
            return f"not recognized: {size}\n  no known convention, at any offset or scale"
        error = f"{self.largest_error:.3g} (row {self.at[0]}, column {self.at[1]})"
        if self.exact_in is not None:
            error += f": exact, rounded once to {_short(self.exact_in)}"
        elif not self.is_sinusoidal:
            error += f", typical {self.typical_error:.3g}"
        lines = {
            "formula" if self.is_sinusoidal else "nearest": str(self.convention),
            "or": "; ".join(self.others),
            "rows": f"row 0 holds position {self.first_position}",
            "zero rows": _ranges(self.zero_rows),
            "amplitude": "" if self.amplitude == 1 else f"{self.amplitude:.7g}",
            "largest error": error,
            "used by": ", ".join(self.presets),
        }
        shown = [f"{'sinusoids' if self.is_sinusoidal else 'near sinusoids, but changed'}: {size}"]
        for name, value in lines.items():
            shown += textwrap.wrap(value, 118, initial_indent=f"  {name:<13}  ", subsequent_indent=" " * 17)
        return "\n".join(shown)


def identify(
    table: torch.Tensor | NDArray[Any] | torch.nn.Module, *, conventions: Sequence[str | Convention] = ()
) -> Identified:
    r"""Find the convention of a position table, its first position and amplitude, and its largest error.

    Args:
        table (`torch.Tensor` or array `(N, D)`, or a module with a table as its `weight`, `weights` or
            `positional_embedding`): any floating dtype and device; it is not changed. D is at least 2.
        conventions (sequence of `str` or `Convention`, *optional*): conventions to try before those in `CONVENTIONS`,
            for example with a base of your own. No others are tried.

    Returns:
        `Identified`. If no convention explains the table, it has `is_sinusoidal=False` and the nearest formula.

    Raises:
        ValueError: if the table does not have two dimensions, or has no rows, fewer than two columns, or a number that
            is not finite.
        TypeError: if it is not a table of floating-point numbers.

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
    d_model = given.shape[1]
    candidates = [resolve_convention(each).formula for each in (*conventions, *CONVENTIONS)]
    formulas = [each for each in dict.fromkeys(candidates) if each.fits(d_model) and min(each.counts(d_model)) > 0]
    is_zero = (given == 0).all(1)
    dtypes, rows = _precisions(given), _sample((~is_zero).nonzero().squeeze(1))
    if len(rows):
        fits = [_fit(given[rows].double(), rows, formula, dtypes[-1]) for formula in formulas]
    else:
        fits = [_Fit(formulas[0], 0, 0.0, 0.0, math.inf)]
    # A few numbers can fit by chance.
    fitting = [each for each in fits if each.ratio <= 1 and (len(rows) > 1 or d_model >= 16)]
    if not fitting:
        least = min(each.error for each in fits)
        nearest = next(each for each in fits if each.error <= 1.05 * least)
        found = _compare(given, is_zero, nearest, dtypes)
        return replace(found, is_sinusoidal=False, is_exact=False, exact_in=None)
    equal = [each for each in fitting if each.error <= 1.01 * min(each.error for each in fitting) + 1e-12]
    compared = [(_compare(given, is_zero, each, dtypes), each.formula) for each in equal]
    found, formula = min(compared, key=lambda each: (not each[0].is_exact, not each[0].is_sinusoidal))
    if not found.is_sinusoidal:
        return found
    others = [each.formula for each in equal if each.formula != formula]
    presets = _users([formula, *others], bool(found.zero_rows))
    return replace(found, presets=presets, others=tuple(map(str, others)))


# ------------------------------------------------------------------------------------------------- fitting of a sample


class _Fit(NamedTuple):
    """Best fit of a formula to sampled rows of a table; `_fit` makes it.

    `error` is the root mean square of the differences between table and formula. `ratio` is the largest ratio of
    a difference to the error that `_allowed` allows for it. A fit is good if `ratio` is at most 1.
    """

    formula: Convention
    first_position: int
    amplitude: float
    error: float
    ratio: float

    @property
    def is_scaled_exactly(self) -> bool:
        """True if the amplitude is a power of two, so that multiplying by it rounds nothing."""
        return math.frexp(abs(self.amplitude))[0] == 0.5


def _sample(rows: torch.Tensor) -> torch.Tensor:
    """Return a sample of the row indices `rows`: the first ones, and some evenly spread over the rest."""
    if len(rows) <= _FIRST_ROWS + _OTHER_ROWS:
        return rows
    return torch.cat([rows[:_FIRST_ROWS], rows[_spread(_FIRST_ROWS, len(rows) - 1, _OTHER_ROWS)]])


def _spread(first: int, last: int, count: int) -> torch.Tensor:
    """Return `count` integers from `first` to `last`, evenly spread."""
    return torch.linspace(first, last, count, dtype=torch.float64, device="cpu").round().long()


def _fit(values: torch.Tensor, rows: torch.Tensor, formula: Convention, precision: torch.dtype) -> _Fit:
    """Return the first position and amplitude with which `formula` fits best, and the errors that remain.

    `values` `(R, D)` are sampled rows of a table, and `rows` `(R,)` are their indices. `precision` is the coarsest
    dtype that can represent all numbers of the table.
    """
    first = _first_position(values[:_FIRST_ROWS], rows[:_FIRST_ROWS], formula, precision)
    exact = _exact(rows + first, formula, values.shape[1])
    # Errors of float32 angles grow with the position, so only the first rows determine the amplitude. The median over
    # rows is not affected by a few changed ones.
    head, expected = values[:_FIRST_ROWS], exact[:_FIRST_ROWS]
    amplitude = float(((head * expected).sum(1) / expected.square().sum(1)).median())
    power = 2.0 ** round(math.log2(abs(amplitude) or 1.0))
    if abs(amplitude / power - 1) <= max(torch.finfo(precision).eps / 2, 1e-6):
        amplitude = power
    found = _Fit(formula, first, amplitude, 0.0, 0.0)
    error = (values - amplitude * exact).abs()
    ratio = float((error / _allowed(exact, rows + first, found, precision)).max())
    return found._replace(error=float(error.square().mean().sqrt()), ratio=ratio)


def _first_position(values: torch.Tensor, rows: torch.Tensor, formula: Convention, precision: torch.dtype) -> int:
    """Return the position of the table's row 0 with which `formula` fits best; if several fit, the nearest to 0.

    `values` `(R, D)` are sampled rows of the table, and `rows` `(R,)` their indices. `precision` is as in `_fit`.
    """
    d_model = values.shape[1]
    sines, cosines = (values[:, columns] for columns in formula.columns(d_model))
    pairs = min(formula.counts(d_model))
    some = _spread(0, pairs - 1, min(pairs, _PAIRS))
    points = torch.complex(cosines[:, some], sines[:, some])  # (R, P)
    rates = _rates(formula, d_model)[some]
    # Rotate row r back by r positions, so that all rows of a column have the angle of row 0.
    start = (points * torch.exp(-1j * (rows.unsqueeze(1) * rates))).mean(0)
    if float(start.abs().square().mean()) < 0.5 * float(points.abs().square().mean()):
        return 0  # the columns do not turn at these rates
    tried = _by_vernier(start.angle(), rates)
    tried = tried[tried.abs().argsort(stable=True)]
    error = (start * torch.exp(-1j * (tried.unsqueeze(1) * rates))).angle().abs()  # (positions, P)
    fitting = (error <= 2 * torch.finfo(precision).eps + 1e-5).all(1).nonzero().squeeze(1)
    return int(tried[fitting[0] if len(fitting) else error.mean(1).argmin()])


def _by_vernier(angles: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    """Return candidates, an int64 tensor, for the position at which pairs of columns have the given `angles` `(F,)`.

    `rates` `(F,)` are the frequencies of the pairs in radians per position. The first candidates are the positions
    where the slowest pair has its angle, one in each of its turns. Then each faster pair makes them more precise.
    """
    order = rates.argsort()
    slowest = float(rates[order[0]])
    turns = min(_MAX_TURNS, math.ceil(_FAR_POSITIONS * slowest / (2 * math.pi)))
    positions = torch.arange(-turns, turns + 1, dtype=torch.float64, device="cpu") * (2 * math.pi / slowest)
    for rate, angle in zip(rates[order].tolist(), angles[order].tolist(), strict=True):
        turn, missing = 2 * math.pi / rate, angle / rate - positions
        positions = positions + missing - turn * (missing / turn).round()
    return positions.round().long()


def _rates(formula: Convention, d_model: int) -> torch.Tensor:
    """Return the radians per position of each pair of columns, `(F,)` float64."""
    return torch.from_numpy(waves(formula, d_model, formula.check_fit(d_model)).whole * (2 * math.pi))


def _exact(positions: torch.Tensor, formula: Convention, d_model: int) -> torch.Tensor:
    """Return the float64 encodings `(R, D)` of `positions` `(R,)` by `formula`."""
    return encode(positions.double(), waves(formula, d_model, formula.check_fit(d_model)), torch.float64)


def _allowed(exact: torch.Tensor, positions: torch.Tensor, fit: _Fit, precision: torch.dtype) -> torch.Tensor:
    r"""Return the largest allowed error `(R, D)` of each number in a table that was computed by the formula of `fit`.

    `exact` `(R, D)` are the exact numbers for `positions` `(R,)`. The allowed error is the sum of three errors:

    - the error of rounding to `precision`, or three times that error if the amplitude is not a power of two,
    - the error of a sine in float32: two units in the last place,
    - the error of an angle in float32: a few parts in 2**24 of the angle, more for lower frequencies.
    """
    info, d_model = torch.finfo(precision), exact.shape[1]
    rates = torch.zeros(d_model, dtype=torch.float64, device="cpu")
    for columns in fit.formula.columns(d_model):
        rates[columns] = _rates(fit.formula, d_model)[: len(range(d_model)[columns])]
    drift = (rates - torch.xlogy(rates, rates.clamp(max=1))) * 2**-22
    rounding = info.eps / 2 * (1.01 if fit.is_scaled_exactly else 3.0) + 2**-22
    error = exact.abs().mul_(rounding).addcmul_(positions.abs().double().unsqueeze(1), drift)
    return error.mul_(abs(fit.amplitude)).add_(info.smallest_normal * info.eps)


# ---------------------------------------------------------------------------------------- comparison with a whole table


def _compare(given: torch.Tensor, is_zero: torch.Tensor, fit: _Fit, dtypes: list[torch.dtype]) -> Identified:
    """Compare all numbers of the table `given` `(N, D)` with the formula of `fit`, and return an `Identified`.

    The table is sinusoidal if no error is larger than `_allowed` allows. `is_zero` `(N,)` is True at rows of zeros.
    `dtypes` can represent all numbers of the table. `presets` and `others` of the result are empty.
    """
    exact_in = list(dtypes) if fit.is_scaled_exactly else []
    largest, at, is_within = -1.0, (0, 0), True
    step = max(1, _ELEMENTS // given.shape[1])
    for start in range(0, len(given), step):
        block = given[start : start + step].double()
        positions = torch.arange(start, start + len(block), device="cpu") + fit.first_position
        exact = _exact(positions, fit.formula, given.shape[1])
        exact[is_zero[start : start + step]] = 0
        error = (block - fit.amplitude * exact).abs()
        most = float(error.max())
        if most > largest:
            row, column = divmod(int(error.argmax()), given.shape[1])
            largest, at = most, (start + row, column)
        exact_in = [dtype for dtype in exact_in if _is_rounded_once(block / fit.amplitude, exact, dtype)]
        if not exact_in and is_within:
            limits = _allowed(exact, positions, fit, dtypes[-1])
            is_within = bool((error <= limits + _FLOAT64_ERROR * abs(fit.amplitude)).all())
    formula = fit.formula
    return Identified(
        rows=given.shape[0],
        d_model=given.shape[1],
        dtype=given.dtype,
        is_sinusoidal=is_within,
        is_exact=bool(exact_in),
        exact_in=exact_in[0] if exact_in else None,
        layout=formula.layout,
        cosine_first=formula.cosine_first,
        spacing=formula.spacing,
        base=None if formula.bases or formula.wavelengths else formula.base,
        bases=formula.bases,
        wavelengths=formula.wavelengths,
        first_position=fit.first_position,
        zero_rows=tuple(is_zero.nonzero().squeeze(1).tolist()),
        amplitude=fit.amplitude,
        largest_error=largest,
        at=at,
        typical_error=fit.error,
        presets=(),
        others=(),
    )


def _is_rounded_once(values: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return True if `values` equal `exact` rounded once to `dtype`; with float64 they may differ by 2**-51."""
    if dtype == torch.float64:
        return bool(((values - exact).abs() <= _FLOAT64_ERROR).all())
    return torch.equal(round_once(exact, dtype).double(), values)


def _users(formulas: Sequence[Convention], has_zero_rows: bool) -> tuple[str, ...]:
    """Return names of preset conventions whose formula is in `formulas`, then of the model families that use them.

    Both are in the order of `formulas`. If several conventions have the same formula, those with a padding position
    come first if `has_zero_rows` is True, and last if it is False.
    """
    found = []
    for name, convention in CONVENTIONS.items():
        if convention.formula in formulas:
            differs = (convention.padding_position is not None) != has_zero_rows
            rank = (formulas.index(convention.formula), differs)
            found.append((False, *rank, name))
            found += [(True, *rank, family) for family in _FAMILIES.get(name, "").split(", ") if family]
    return tuple(name for *_, name in sorted(found, key=lambda each: each[:3]))


# ------------------------------------------------------------------------------------------------- reading and printing


def _read(table: Any) -> torch.Tensor:
    """Return `table`, a tensor, an array or a module with a table, as a CPU tensor `(N, D)`; raise if it is invalid."""
    if isinstance(table, torch.nn.Module):
        tensors = [getattr(table, name, None) for name in _TABLE_NAMES]
        tensor = next((each for each in tensors if isinstance(each, torch.Tensor)), None)
        if tensor is None:
            raise type_error(
                "a module must have its table as weight(s) or positional_embedding",
                got=f"{type(table).__name__}, which has neither",
                fix="the table itself, e.g. module.embeddings.position_embeddings",
            )
        table = tensor
    if not isinstance(table, torch.Tensor):
        try:
            array = np.asarray(table)
        except ValueError:  # lists of several lengths
            array = np.empty(0, dtype=object)
        if array.dtype.kind != "f":
            got = shorten(table)
            raise type_error("a table must hold floating-point numbers", got=got, fix="an array (N, D)")
        native = array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.dtype(np.float64)
        table = torch.from_numpy(np.array(array, dtype=native))
    if table.is_meta:
        got = "a tensor on the meta device"
        raise value_error("the table has no numbers yet", got=got, fix="load the model's weights first")
    if table.dtype not in DTYPES:
        got = f"a tensor of {table.dtype}"
        raise type_error("a table must hold floating-point numbers", got=got, fix=".float()")
    if table.dim() != 2 or len(table) < 1 or table.shape[1] < 2:
        is_nested = table.dim() > 2 and table.numel() == table.shape[-1] * max(table.shape[:-1])
        raise value_error(
            "a table must have a row for each position and at least two columns",
            got=f"shape {tuple(table.shape)}",
            fix=f"table.reshape(-1, {table.shape[-1]})" if is_nested else "a table of shape (N, D)",
        )
    given: torch.Tensor = table.detach().to("cpu")
    if not bool(given.isfinite().all()):
        row, column = (~given.isfinite()).nonzero()[0].tolist()
        raise value_error(
            "every number of a table must be finite",
            got=f"{float(given[row, column])} in row {row}, column {column}",
            fix="load the weights again: a buffer outside of the checkpoint may be uninitialized",
        )
    return given


def _precisions(given: torch.Tensor) -> list[torch.dtype]:
    """Return the dtypes that can represent all numbers of the table `given`: its own first, the coarsest last."""
    coarser = [
        dtype
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        if torch.finfo(dtype).eps > torch.finfo(given.dtype).eps
        and all(torch.equal(some.to(dtype).to(given.dtype), some) for some in (given[:_FIRST_ROWS], given))
    ]
    return [given.dtype, *coarser]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _ranges(numbers: tuple[int, ...]) -> str:
    """Return ascending integers as text, such as "0, 4 to 9"; after six ranges, only the number of the others."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in runs[:6]]
    return ", ".join(shown) + (f" and {len(runs) - 6} more runs" if len(runs) > 6 else "")

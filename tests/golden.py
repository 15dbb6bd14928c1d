"""The bits of the encoding that a major version promises: `python tests/golden.py` computes tests/data/golden.json.

The values come from the formulas in mpmath, not from the package, and are rounded once. Therefore the file does not
depend on the machine. A change of the file is a change of the encoding, which only a new major version may bring.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from sinusoid_reference import DIGITS, place, radians, unit, value

from hf_posenc import fixed_bases
from hf_posenc.positions import CONVENTIONS, Convention, frequencies, sinusoidal_encoding

FILE = Path(__file__).parent / "data" / "golden.json"
POSITIONS = [0, 1, 2, 3, 8, 100, 511, 512, 131_071, 2**20, 2**24 + 1, 2**31 - 1, -1, -(2**20)]
WIDTHS = [1, 2, 7, 64, 129]
OTHERS = [
    fixed_bases(4, 5, 7),
    Convention("base 500", base=500),
    Convention("seconds", wavelengths=(0.01, 60), cosine_first=True),
]
# Each dtype with the integers of its size. float64 is missing: its last bits depend on the sine of the machine.
DTYPES = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
# The distance from a tie, in units in the last place, at which the package rounds as the exact value does.
_TIE = 2.0**-20


def cases() -> list[tuple[Convention, int]]:
    """Return every convention with each of its widths."""
    conventions = [*CONVENTIONS.values(), *OTHERS]
    return [
        (convention, width)
        for convention in conventions
        for width in (WIDTHS if convention.bases is None else [2 * len(convention.bases)])
    ]


def of_package(convention: Convention, width: int) -> dict[str, str]:
    """Return the SHA-256 of the package's rows of `POSITIONS` in each dtype, and of its frequencies in float64."""
    positions = torch.tensor(POSITIONS)
    rows = {
        dtype: sinusoidal_encoding(positions, width, convention=convention, dtype=dtype).double() for dtype in DTYPES
    }
    return _digests(rows, frequencies(width, convention=convention).numpy())


def of_formula(convention: Convention, width: int) -> dict[str, str]:
    """Return the same digests of the exact values, each rounded once; raise if a value is too close to a tie."""
    rows = {dtype: torch.empty(len(POSITIONS), width, dtype=torch.float64) for dtype in DTYPES}
    with mpmath.workdps(DIGITS):
        for row, position in enumerate(POSITIONS):
            for column in range(width):
                exact = value(convention, width, None, position, column)
                for dtype, table in rows.items():
                    size = unit(exact, dtype)
                    units = exact / size
                    nearest = mpmath.nint(units)
                    if abs(abs(units - nearest) - 0.5) < _TIE:
                        raise ValueError(f"{convention.name}: {position}, {column} is a tie in {dtype}")
                    table[row, column] = float(nearest * size)
        pairs = {found[1] for column in range(width) if (found := place(convention, width, column)) is not None}
        turned = np.array([float(radians(convention, width, None, pair)) for pair in sorted(pairs)])
    return _digests(rows, turned)


def _digests(rows: dict[torch.dtype, torch.Tensor], turned: NDArray[np.float64]) -> dict[str, str]:
    # + 0.0: a zero has no sign.
    bits: dict[str, NDArray[Any]] = {
        str(dtype).removeprefix("torch."): (table + 0.0).to(dtype).view(DTYPES[dtype]).numpy()
        for dtype, table in rows.items()
    }
    bits["frequencies"] = turned.view(np.int64)
    return {
        name: hashlib.sha256(each.astype(each.dtype.newbyteorder("<")).tobytes()).hexdigest()
        for name, each in bits.items()
    }


if __name__ == "__main__":
    made: dict[str, dict[str, dict[str, str]]] = {}
    for convention, width in cases():
        made.setdefault(convention.name, {})[str(width)] = of_formula(convention, width)
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{FILE}: {sum(map(len, made.values()))} tables")

r"""The encoding: conventions, exact values, and the module that adds them.

Positions come in, from wherever they come; `positions` makes them. In order of dependence: `conventions` says what a
column is, `exact` makes its numbers, `cache` keeps them, `lookup` reads them, `values` and `module` hand them out;
`conversion` puts the columns of one convention in the order of another. The way back, from the numbers of a table to
its formula: `formulas` lists those of the field, `guessing` makes up others, `fitting` finds one that suits,
`measuring` holds every row against it, `recognition` says what came out.
"""

from .conventions import CONVENTIONS, Convention, fixed_bases, resolve_convention
from .conversion import convert
from .module import SinusoidalPositionalEncoding
from .values import frequencies, sinusoidal_encoding, sinusoidal_table

__all__ = [
    "CONVENTIONS",
    "Convention",
    "SinusoidalPositionalEncoding",
    "convert",
    "fixed_bases",
    "frequencies",
    "resolve_convention",
    "sinusoidal_encoding",
    "sinusoidal_table",
]

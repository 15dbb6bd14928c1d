"""Tables of positions, and sums of embeddings and positions, beside plain torch."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from hf_posenc import SinusoidalPositionalEncoding, sinusoidal_encoding
from hf_posenc.positions import clear_cache

from .measuring import Case, forget_freed_memory, take_turns
from .theirs import annotated

ROWS, LENGTH, WIDTH = 32, 512, 768
TABLE = (8_192, 512)
# Every turn begins without freed memory: results are written to fresh pages, except with out=.
turns = functools.partial(take_turns, before=forget_freed_memory)


def tables(rounds: int) -> Iterator[Case]:
    """Compare tables with the usual one, whose float32 angles err by 5e-4."""
    positions = torch.arange(TABLE[0])

    def from_nothing() -> torch.Tensor:
        clear_cache()
        return sinusoidal_encoding(positions, TABLE[1])

    torch.testing.assert_close(annotated(*TABLE), from_nothing(), rtol=0, atol=1e-3)
    contenders = {"the usual table": lambda: annotated(*TABLE), "hf_posenc, vaswani": from_nothing}
    yield Case(f"{TABLE[0]:,} × {TABLE[1]}, float32", turns(contenders, rounds))


def sums(rounds: int) -> Iterator[Case]:
    """Compare x + encoding with torch's sum, whose table is at hand; then with out= and compiled."""
    x = torch.randn(ROWS, LENGTH, WIDTH)
    pe, out = sinusoidal_encoding(torch.arange(LENGTH), WIDTH), torch.empty_like(x)
    plain, scaled = SinusoidalPositionalEncoding(WIDTH), SinusoidalPositionalEncoding(WIDTH, scale="sqrt_d")
    # Left-padded rows: each counts from its own first token.
    starts = torch.randint(0, LENGTH // 2, (ROWS, 1), generator=torch.Generator().manual_seed(0))
    ids = (torch.arange(LENGTH) - starts).clamp(min=0)
    compiled = torch.compile(plain, fullgraph=True)
    theirs = torch.compile(lambda x, pe: x + pe, fullgraph=True)
    with torch.no_grad():
        for name, label, one, ours in (
            ("x + encoding", "`x + pe`", lambda: x + pe, lambda: plain(x)),
            ("x times √d", "`x * √d + pe`", lambda: x * WIDTH**0.5 + pe, lambda: scaled(x)),
            ("positions of each row", "`x + pe[ids]`", lambda: x + pe[ids], lambda: plain(x, position_ids=ids)),
            ("`out=`", "`torch.add(x, pe, out=)`", lambda: torch.add(x, pe, out=out), lambda: plain(x, out=out)),
            ("compiled", "`x + pe`", lambda: theirs(x, pe), lambda: compiled(x)),
        ):
            torch.testing.assert_close(ours(), one(), rtol=1e-6 if "√d" in name else 0, atol=0)
            values = turns({label: one, "hf_posenc": ours}, rounds)
            yield Case(name, values)

"""Tables of positions, and sums of embeddings and positions, beside plain torch and the modules of peers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from hf_posenc import SinusoidalPositionalEncoding, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, clear_cache

from .measuring import Case, forget_freed_memory, must_equal, take_turns
from .peers import installed
from .theirs import annotated

ROWS, LENGTH, WIDTH = 32, 512, 768
TABLE = (8_192, 512)
# Float32 angles below 512, and a product that is rounded before the sum.
PEER_TOLERANCE = 1e-4
# Every turn begins without freed memory: results are written to fresh pages, except with out=.
turns = functools.partial(take_turns, before=forget_freed_memory)


def tables(rounds: int) -> Iterator[Case]:
    """Compare tables with the usual one, whose float32 angles err by 5e-4, and with the same rows in reverse order."""
    run, turned = torch.arange(TABLE[0]), torch.arange(TABLE[0]).flip(0)

    def from_nothing(positions: torch.Tensor, convention: str, dtype: torch.dtype) -> torch.Tensor:
        clear_cache()
        return sinusoidal_encoding(positions, TABLE[1], convention=convention, dtype=dtype)

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        contenders: dict[str, Callable[[], object]] = {"the usual table": lambda d=dtype: annotated(*TABLE).to(d)}
        for name in ("vaswani", "marian", "musicgen"):
            ours = functools.partial(from_nothing, convention=name, dtype=dtype)
            must_equal(f"{name}, {dtype}", ours(run).float(), ours(turned).flip(0).float())
            contenders[f"hf_posenc, {name}"] = functools.partial(ours, run)
        contenders["hf_posenc, vaswani, in reverse order"] = lambda d=dtype: from_nothing(turned, "vaswani", d)
        torch.testing.assert_close(annotated(*TABLE), from_nothing(run, "vaswani", torch.float32), rtol=0, atol=1e-3)
        goals = dict.fromkeys(list(contenders)[1:4], 0.8)
        yield Case(f"{TABLE[0]:,} × {TABLE[1]}, {str(dtype)[6:]}", turns(contenders, rounds), goals)


def sums(rounds: int) -> Iterator[Case]:
    """Compare x + encoding with torch's sum, whose table is at hand; then the same compiled, and its memory."""
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
            yield Case(name, values, {} if name == "compiled" else {"hf_posenc": 1 / 1.05})
        small, narrow = x.bfloat16(), pe.bfloat16()
        contenders = {"`x + pe`": lambda: small + narrow, "hf_posenc": lambda: plain(small)}
        if Path("/proc/self/clear_refs").exists():
            yield Case("peak memory, bfloat16", turns(contenders, 1, measure=peak_mebibytes), unit="MiB")
        for scale in (None, "sqrt_d"):
            yield from peers(x, scale, rounds)


def peak_mebibytes(run: Callable[[], object]) -> float:
    """Return the growth of the memory of this process while `run` runs. Linux only."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the highest so far
    before = _kibibytes("VmRSS")
    run()
    return (_kibibytes("VmHWM") - before) / 1024


def _kibibytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def peers(x: torch.Tensor, scale: str | None, rounds: int) -> Iterator[Case]:
    """Compare the modules of other packages, with or without a product with √d, with ours of the same formula."""
    pe = sinusoidal_encoding(torch.arange(LENGTH), WIDTH)
    module = SinusoidalPositionalEncoding(WIDTH, scale=scale)
    label, factor = ("`x * √d + pe`", WIDTH**0.5) if scale else ("`x + pe`", None)
    contenders: dict[str, Callable[[], object]] = {
        label: lambda: x * factor + pe if factor else x + pe,
        "hf_posenc": lambda: module(x),
    }
    for peer in installed()[0]:
        if peer.adds is not None and peer.scale == scale:
            theirs = peer.adds(LENGTH, WIDTH)
            ours = SinusoidalPositionalEncoding(WIDTH, convention=CONVENTIONS[peer.convention], scale=scale)
            torch.testing.assert_close(theirs(x), ours(x), rtol=0, atol=PEER_TOLERANCE)
            contenders[f"{peer.package} {peer.name}".strip()] = functools.partial(theirs, x)
    if len(contenders) > 2:  # a peer is installed
        yield Case(f"modules{' with √d' if scale else ''}", turns(contenders, rounds))

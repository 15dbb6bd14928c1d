"""Time of adding positions, beside plain sums with a table at hand and the modules of peers; and of making tables.

`python -m tests.benchmarks.encoding [--rounds 15] [--one-core]`, or as a part of `tests.benchmarks`. Outputs are
compared first: bit for bit where the same table is added, within the error of float32 angles where a peer adds its own.
`--one-core` measures the work of one core, which depends little on the load of the machine. Every turn begins without
freed memory, so each result is written to fresh pages, which is most of the time; `out=` avoids it.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from rich.console import Console

from hf_posenc import SinusoidalPositionalEncoding, sinusoidal_encoding
from hf_posenc.sinusoid import CONVENTIONS, clear_cache

from .measuring import Measured, Target, forget_freed_memory, must_equal, show, take_turns
from .peers import Peer, installed

Turns = Callable[[dict[str, Callable[[], object]]], list[Measured]]

ROWS, LENGTH, WIDTH = 32, 512, 768
TABLE = (8_192, 512)
# What float32 angles below 512 leave, and a product that is rounded before the sum.
PEER_TOLERANCE = 1e-4


def eager(turns: Turns) -> None:
    """Compare x + encoding with `x + pe`, whose table is at hand."""
    x = torch.randn(ROWS, LENGTH, WIDTH)
    pe, out = sinusoidal_encoding(torch.arange(LENGTH), WIDTH), torch.empty_like(x)
    plain, scaled = SinusoidalPositionalEncoding(WIDTH), SinusoidalPositionalEncoding(WIDTH, scale="sqrt_d")
    # Left-padded rows: each counts from its own first token.
    starts = torch.randint(0, LENGTH // 2, (ROWS, 1), generator=torch.Generator().manual_seed(0))
    ids = (torch.arange(LENGTH) - starts).clamp(min=0)
    must_equal("x + encoding", plain(x), x + pe)
    must_equal("x + encoding, out=", plain(x, out=out), x + pe)
    must_equal("x + encoding, positions of each row", plain(x, ids), x + pe[ids])
    torch.testing.assert_close(scaled(x), x * WIDTH**0.5 + pe)
    contenders: dict[str, Callable[[], object]] = {
        "x + pe": lambda: x + pe,
        "hf_posenc": lambda: plain(x),
        "hf_posenc, √d": lambda: scaled(x),
        "x * √d + pe": lambda: x * WIDTH**0.5 + pe,
        "hf_posenc, positions of each row": lambda: plain(x, ids),
        "hf_posenc, √d, positions of each row": lambda: scaled(x, ids),
        "x + pe[ids]": lambda: x + pe[ids],
        "torch.add(x, pe, out=)": lambda: torch.add(x, pe, out=out),
        "hf_posenc, out=": lambda: plain(x, out=out),
        "hf_posenc, √d, out=": lambda: scaled(x, out=out),
        "hf_posenc, positions of each row, out=": lambda: plain(x, ids, out=out),
    }
    with torch.no_grad():
        show(
            f"x + encoding, x {tuple(x.shape)} float32",
            turns(contenders),
            per_second=(ROWS * LENGTH, "tokens"),
            targets=[
                Target("hf_posenc", "x + pe", "≤", 1.1),
                Target("hf_posenc, √d", "x + pe", "≤", 1.1),
                Target("hf_posenc, positions of each row", "x + pe", "≤", 1.3),
                Target("hf_posenc, √d, positions of each row", "x + pe", "≤", 1.3),
                Target("hf_posenc, out=", "torch.add(x, pe, out=)", "≤", 1.5),
                Target("hf_posenc, √d, out=", "torch.add(x, pe, out=)", "≤", 1.5),
            ],
        )


def compiled(turns: Turns) -> None:
    """Compare the same under `torch.compile`: the compiler makes the sum, an operator the rows."""
    x = torch.randn(ROWS, LENGTH, WIDTH)
    pe = sinusoidal_encoding(torch.arange(LENGTH), WIDTH)
    ids = torch.arange(LENGTH).repeat(ROWS, 1)
    module = SinusoidalPositionalEncoding(WIDTH)
    ours = torch.compile(module, fullgraph=True)
    by_row = torch.compile(SinusoidalPositionalEncoding(WIDTH), fullgraph=True)
    theirs = torch.compile(lambda x, pe: x + pe, fullgraph=True)
    must_equal("compiled x + encoding", ours(x), theirs(x, pe))
    must_equal("compiled x + encoding, positions of each row", by_row(x, ids), theirs(x, pe))
    show(
        f"Compiled (inductor), x {tuple(x.shape)} float32",
        turns(
            {
                "x + pe": lambda: theirs(x, pe),
                "hf_posenc": lambda: ours(x),
                "hf_posenc, positions of each row": lambda: by_row(x, ids),
            }
        ),
        per_second=(ROWS * LENGTH, "tokens"),
        # Rows for each position are a second pass over as much memory: no promise.
        targets=[
            Target("hf_posenc", "x + pe", "≤", 1.15),
            Target("hf_posenc, positions of each row", "x + pe"),
        ],
    )


def peak_mebibytes(run: Callable[[], object]) -> float | None:
    """Return the growth of the memory of this process while `run` runs; `None` if the system is not Linux."""
    try:
        forget_freed_memory()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the highest so far
        before = _kibibytes("VmRSS")
        run()
        return (_kibibytes("VmHWM") - before) / 1024
    except OSError:
        return None


def _kibibytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def memory() -> None:
    """Measure the peak memory of a sum in bfloat16, which should be that of its result, without a float32 copy."""
    x = torch.randn(ROWS, LENGTH, WIDTH).bfloat16()
    ids = torch.arange(LENGTH).repeat(ROWS, 1)
    result = x.numel() * x.element_size() / 2**20
    for scale in (None, "sqrt_d"):
        module = SinusoidalPositionalEncoding(WIDTH, scale=scale)
        for name, run in (("", lambda m=module: m(x)), (", positions of each row", lambda m=module: m(x, ids))):
            run()
            peak = peak_mebibytes(run)
            if peak is None:
                return
            Console().print(
                f"  bfloat16{', √d' if scale else ''}{name}: {peak:.0f} MiB at the peak, of which the result is "
                f"{result:.0f}; a float32 copy is {2 * result:.0f} more (promised none): "
                f"{'met' if peak < 1.5 * result else 'NOT MET'}",
                soft_wrap=True,
            )
    Console().print()


def usual_table(length: int, width: int) -> torch.Tensor:
    """Return the table of PyTorch's tutorial, whose float32 angles err by 5e-4 at position 8,192."""
    table, positions = torch.zeros(length, width), torch.arange(length).unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table[:, 0::2], table[:, 1::2] = torch.sin(positions * rates), torch.cos(positions * rates)
    return table


def tables(turns: Turns) -> None:
    """Compare whole tables, which are runs of positions, with the usual table and with the same rows one by one."""
    run, turned = torch.arange(TABLE[0]), torch.arange(TABLE[0]).flip(0)

    def from_nothing(positions: torch.Tensor, convention: str, dtype: torch.dtype) -> torch.Tensor:
        clear_cache()
        return sinusoidal_encoding(positions, TABLE[1], convention=convention, dtype=dtype)

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        contenders: dict[str, Callable[[], object]] = {"usual": lambda d=dtype: usual_table(*TABLE).to(d)}
        for name in ("vaswani", "marian", "musicgen"):
            ours = functools.partial(from_nothing, convention=name, dtype=dtype)
            must_equal(f"{name}, {dtype}", ours(run).float(), ours(turned).flip(0).float())
            contenders[name] = functools.partial(ours, run)
            contenders[f"{name}, one by one"] = functools.partial(ours, turned)
        torch.testing.assert_close(usual_table(*TABLE), from_nothing(run, "vaswani", torch.float32), rtol=0, atol=1e-3)
        show(
            f"A table {TABLE} from nothing, {dtype}: conventions of hf_posenc, and the usual table with float32 angles",
            turns(contenders),
            per_second=(TABLE[0], "rows"),
            targets=[
                Target(name, "usual", "≤", None if name.endswith("one by one") else 1.25)
                for name in contenders
                if name != "usual"
            ],
        )


def peers(turns: Turns) -> None:
    """Compare each module of a peer on the same x with ours of the same formula."""
    here, missing = installed()
    x = torch.randn(ROWS, LENGTH, WIDTH)
    contenders: dict[str, Callable[[], object]] = {}
    for scale in (None, "sqrt_d"):
        module = SinusoidalPositionalEncoding(WIDTH, scale=scale)
        contenders[f"hf_posenc{', √d' if scale else ''}"] = lambda m=module: m(x)
    targets = []
    for peer in here:
        if peer.adds is None:
            continue
        name = f"{peer.package} {peer.name}".strip() + (", √d" if peer.scale else "")
        theirs = checked(peer, x)
        contenders[name] = lambda theirs=theirs: theirs(x)
        targets.append(Target(f"hf_posenc{', √d' if peer.scale else ''}", name))
    with torch.no_grad():
        show(
            f"Peers' modules, x {tuple(x.shape)} float32",
            turns(contenders),
            per_second=(ROWS * LENGTH, "tokens"),
            targets=targets,
        )
    if missing:
        Console().print(f"  not installed: {', '.join(missing)}\n")


def checked(peer: Peer, x: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function with which a peer adds positions, after comparing its output with ours."""
    if peer.adds is None:
        raise ValueError(peer.name)
    theirs = peer.adds(x.shape[1], x.shape[2])
    ours = SinusoidalPositionalEncoding(x.shape[2], convention=CONVENTIONS[peer.convention], scale=peer.scale)
    torch.testing.assert_close(theirs(x), ours(x), rtol=0, atol=PEER_TOLERANCE, msg=lambda why: f"{peer.name}: {why}")
    return theirs


def run(rounds: int, *, one_core: bool = False) -> None:
    """Run all comparisons of this module."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    if one_core:
        torch.set_num_threads(1)
    clock = time.process_time if one_core else time.perf_counter
    turns = functools.partial(take_turns, rounds=rounds, clock=clock, before=forget_freed_memory)
    try:
        tables(turns)
        eager(turns)
        memory()
        compiled(turns)
        peers(turns)
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.encoding")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one-core", action="store_true")
    given = parser.parse_args()
    run(given.rounds, one_core=given.one_core)

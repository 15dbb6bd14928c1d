"""The accuracy table: the bound of our line, and the copy of the table in docs/conventions.md.

The cost of a table is measured by the calls that it makes, not by the clock.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import accuracy
from benchmarks.peers import PEERS
from benchmarks.theirs import annotated
from looping import for_each
from torch.utils._python_dispatch import TorchDispatchMode

from hf_posenc import sinusoidal_encoding

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conventions.md"
# Half a unit in the last place of float32 below 1, and the error of the reference.
BOUND = 2**-25 + accuracy.REFERENCE_ERROR


@functools.cache
def ours() -> accuracy.Accuracy:
    return accuracy.ours(rounds=1, drawn=600)  # fewer rows than the command looks at


def lines_of_the_page() -> list[list[str]]:
    """Return the cells of the documented table."""
    page = PAGE.read_text(encoding="utf-8")
    [section] = re.findall(r"^## Exactness\n(.*?)\Z", page, re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_reference_agrees_with_mpmath() -> None:
    assert accuracy.check_reference(draws=60) <= accuracy.REFERENCE_ERROR


def test_no_convention_errs_by_more_than_one_rounding_up_to_a_million_positions() -> None:
    assert max(error for error in ours().errors if error is not None) <= BOUND
    assert len(ours().errors) == len(accuracy.LAST_POSITIONS) == 4
    assert ours().distinct == accuracy.DISTINCT


def test_a_table_with_float32_angles_exceeds_the_bound() -> None:
    positions = accuracy.positions_to(8_192, 600)
    rows = annotated(8_193, accuracy.WIDTH)[torch.from_numpy(positions)]
    assert accuracy.largest_error(rows, positions, "vaswani") > 1_000 * BOUND


def test_the_page_shows_the_row_that_the_command_prints() -> None:
    header, _, first, *_ = lines_of_the_page()
    assert header == list(accuracy.HEADER)
    assert first[:-1] == list(ours().cells()[:-1])  # the last cell is a time


@for_each("peer", PEERS)
def test_every_peer_is_in_a_group_of_the_page(peer: accuracy.Peer) -> None:
    package = rf"\b{re.escape(peer.package)} [\w.]*\w: ([^.;]|\.\w|; )*" if peer.package else ""
    rows = [row for row in lines_of_the_page() if re.search(rf"{package}{re.escape(peer.name)}(;|\.|$)", row[0])]
    assert len(rows) == 1
    assert peer.convention in rows[0][1].split(", ")


# torch distributes these over the cores from 2,048 numbers on and waits for all: milliseconds on a busy machine.
SPREAD = ("sin", "cos", "round", "floor", "ceil", "trunc", "sqrt", "exp", "log")


class Calls(TorchDispatchMode):
    """Counter of torch operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__.rstrip("_")] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_waits_for_all_cores_only_a_few_times(dtype: torch.dtype) -> None:
    with Calls() as calls:
        sinusoidal_encoding(torch.arange(8_192), 512, dtype=dtype)
    assert 1 <= sum(calls.names[name] for name in SPREAD) <= 8

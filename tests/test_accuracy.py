"""Our line of the accuracy table held to its bound, and the README's table to the command that prints it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch
from benchmarks import accuracy
from benchmarks.peers import PEERS
from benchmarks.theirs import annotated

README = Path(__file__).resolve().parent.parent / "README.md"
# Half a unit in the last place of float32 below 1, and what the reference errs by.
BOUND = 2**-25 + accuracy.REFERENCE_ERROR


@functools.cache
def ours() -> accuracy.Accuracy:
    return accuracy.ours(rounds=1, drawn=600)  # fewer rows than the command looks at


def lines_of_the_readme() -> list[list[str]]:
    """The cells of the table in the section that the command writes."""
    page = README.read_text(encoding="utf-8")
    [section] = re.findall(r"^## How exact\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_reference_is_what_mpmath_says() -> None:
    assert accuracy.check_reference(draws=60) <= accuracy.REFERENCE_ERROR


def test_no_convention_errs_by_more_than_one_rounding_up_to_a_million_positions() -> None:
    assert max(error for error in ours().errors if error is not None) <= BOUND
    assert len(ours().errors) == len(accuracy.LAST_POSITIONS) == 4
    assert ours().distinct == accuracy.DISTINCT


def test_a_table_of_float32_angles_is_seen() -> None:
    positions = accuracy.positions_to(8_192, 600)
    rows = annotated(8_193, accuracy.WIDTH)[torch.from_numpy(positions)]
    assert accuracy.largest_error(rows, positions, "vaswani") > 1_000 * BOUND


def test_the_readme_says_of_us_what_the_command_prints() -> None:
    header, _, first, *_ = lines_of_the_readme()
    assert header == list(accuracy.HEADER)
    assert first[:-1] == list(ours().cells()[:-1])  # the last cell is a time


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: f"{peer.package} {peer.name}".strip())
def test_every_peer_is_in_the_readme(peer: accuracy.Peer) -> None:
    package = rf"{re.escape(peer.package)} [\w.+]+: " if peer.package else ""
    [row] = [row for row in lines_of_the_readme() if re.fullmatch(package + re.escape(peer.name), row[0])]
    assert row[1] == peer.convention

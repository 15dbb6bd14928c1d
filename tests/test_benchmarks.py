"""The benchmarks: the arithmetic of their ratios, the end at a difference, and the tables of docs/benchmarks.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.__main__ import BARS, STAGES, for_page
from benchmarks.measuring import HEADER, Case, must_equal, recorded, replace_tables, take_turns

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def test_a_ratio_is_taken_within_each_round() -> None:
    case = Case("rows", {"theirs": [10.0, 40.0, 30.0], "ours": [2.0, 4.0, 10.0]})
    assert case.ratio("ours") == (5.0, 3.0, 10.0)
    assert case.rows() == [
        ("rows", "theirs", "30 ms", "1"),
        ("", "ours", "4.0 ms", "5.0 (3.0 to 10.0)"),
    ]


def test_contenders_take_turns_after_one_round_to_warm_up() -> None:
    calls: list[str] = []
    runs = {name: lambda name=name: calls.append(name) for name in "ab"}
    values = take_turns(runs, 2, measure=lambda run: run() or len(calls))
    assert calls == ["a", "b"] * 3
    assert values == {"a": [3, 5], "b": [4, 6]}


def test_a_different_output_ends_the_run() -> None:
    must_equal("ids", [1, 2], [1, 2])
    with pytest.raises(SystemExit, match="ids"):
        must_equal("ids", [1, 2], [1, 3])


def test_the_page_has_a_section_with_a_table_for_every_stage() -> None:
    page = PAGE.read_text(encoding="utf-8")
    case = Case("rows", {"theirs": [10.0], "ours": [2.0]})
    case_too = Case("rows, first pass", {"theirs": [10.0], "ours": [9.0]})
    written = replace_tables(page, for_page({name: [case, case_too] for name in STAGES}))
    assert written.count(" 5.0 (5.0 to 5.0) |") == len(STAGES)
    assert " 1.11 (" not in written.partition("## Learning")[0]
    assert re.findall(r"^## (.*)$", written, re.MULTILINE) == [*STAGES, "Learning", "Load"]
    headers = [re.split(r" *\| *", line)[1:-1] for line in page.splitlines() if line.startswith("| comparison")]
    assert headers == [list(HEADER)] * len(STAGES)
    with pytest.raises(SystemExit, match="Gone"):
        replace_tables(page, {"Gone": [case]})


def test_the_figures_of_the_picture_are_read_from_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert recorded("| case | peer | 5 ms | 1 |\n| | a | 2,000 ms | 1.5 (0.96 to 1,117) |", "case", "a") == (
        1.5,
        0.96,
        1117,
    )
    with pytest.raises(SystemExit, match="no row of gone"):
        recorded(page, BARS[0][2], "gone")

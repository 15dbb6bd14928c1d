"""The pictures of README.md and the guides against those that `python examples/figures.py` draws today.

They are compared at a small size, in color: another font or another build of matplotlib is no difference.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks.__main__ import BARS
from benchmarks.measuring import draw, recorded
from PIL import Image, ImageChops, ImageStat

REPO = Path(__file__).resolve().parent.parent


@cache
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", REPO / "examples" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pictures that the script draws today."""
    folder = tmp_path_factory.mktemp("figures")
    figures().main(folder)
    return folder


def unlike(one: Image.Image, other: Image.Image) -> bool:
    """Return True if two pictures differ in what they show."""
    small = [image.convert("RGB").resize((96, 96), Image.Resampling.BOX) for image in (one, other)]
    return max(ImageStat.Stat(ImageChops.difference(*small)).mean) > 4  # of 255


def outdated(folder: Path, today: Path) -> list[str]:
    """Return the pictures in `folder` that are missing, or that differ from those of `today`."""
    wrong = []
    for name in figures().FIGURES:
        if not (folder / name).exists():
            wrong.append(f"{name} is missing: python examples/figures.py draws it")
        elif unlike(Image.open(folder / name), Image.open(today / name)):
            wrong.append(f"{name} is outdated: python examples/figures.py draws it again")
    return wrong


def test_the_picture_of_the_benchmarks_shows_the_figures_of_their_page(tmp_path: Path) -> None:
    page = REPO / "docs" / "benchmarks.md"
    bars = [(label, peer, recorded(page.read_text("utf-8"), case, ours)) for label, peer, case, ours in BARS]
    draw(bars, tmp_path / "speed.png")
    assert not unlike(Image.open(tmp_path / "speed.png"), Image.open(page.parent / "speed.png"))


@pytest.mark.slow
def test_the_pictures_of_the_docs_are_those_that_the_package_draws(today: Path) -> None:
    assert outdated(REPO / "examples", today) == []


def test_every_picture_in_the_docs_is_one_of_these() -> None:
    pages = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
    shown = [
        name for page in pages for name in re.findall(r"!\[[^\]]*\]\([^)]*?examples/(\w+\.png)\)", page.read_text())
    ]
    assert shown
    assert set(shown) <= {*figures().FIGURES, "bert_from_scratch.png"}  # the last by its example

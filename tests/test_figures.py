"""The pictures of README.md against those that `python examples/figures.py` draws today.

Each file carries the code of what it shows, made of numbers, words and colours alone: no font, and no build of
matplotlib, makes a picture stale.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from hf_posenc import plots
from hf_posenc.plots import canvas
from hf_posenc.plots.digest import digest

REPO = Path(__file__).resolve().parent.parent


@cache
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", REPO / "examples" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def today() -> dict[str, str]:
    """What each picture shows when it is drawn now."""
    return {name: digest(draw()) for name, draw in figures().FIGURES.items()}


def check_pictures(folder: Path) -> list[str]:
    """The pictures in `folder` that are missing, or show something else than the package draws now."""
    wrong = []
    for name, code in today().items():
        path = folder / name
        if not path.exists():
            wrong.append(f"{name} is missing: python examples/figures.py draws it")
            continue
        with Image.open(path) as image:
            said = image.info.get("Description", "says nothing")
        if said != f"shows {code}":
            wrong.append(f"{name} is stale: it {said}, now shows {code}; python examples/figures.py draws it anew")
    return wrong


def test_the_pictures_of_the_readme_are_those_the_package_draws_now() -> None:
    assert check_pictures(REPO / "examples") == []


def test_every_picture_on_the_page_is_one_of_these() -> None:
    page = (REPO / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)
    assert shown
    assert set(shown) <= {f"examples/{name}" for name in figures().FIGURES}


def test_the_code_of_a_picture_changes_with_its_numbers_words_and_colours_and_with_nothing_else() -> None:
    def draw() -> Any:
        return plots.curves(8, 20, columns=[0, 1])

    usual = digest(draw())
    assert digest(draw()) == usual
    changes = {
        "a number": lambda ax: ax.lines[0].set_ydata(ax.lines[0].get_ydata() + 1e-4),
        "a title": lambda ax: ax.set_title("curve", loc="left"),
        "a label": lambda ax: ax.lines[0].set_label("column 5"),
        "a colour": lambda ax: ax.lines[1].set_color(canvas.GREEN),
        "an image": lambda ax: ax.imshow([[0.0]]),
        "a word": lambda ax: ax.text(0, 0, "here"),
        "a scale": lambda ax: ax.set_yscale("symlog"),
    }
    for what, change in changes.items():
        ax = draw()
        change(ax)
        assert digest(ax) != usual, what
    same = draw()
    same.lines[0].set_ydata(same.lines[0].get_ydata() * (1 + 1e-12))
    same.tick_params(labelsize=12)
    same.figure.set_dpi(72)
    assert digest(same) == usual


def test_meta_a_picture_that_is_missing_stale_or_without_its_code_is_seen(tmp_path: Path) -> None:
    for name in figures().FIGURES:
        shutil.copy(REPO / "examples" / name, tmp_path)
    assert check_pictures(tmp_path) == []
    stale, missing, *_ = sorted(figures().FIGURES)
    canvas.save(plots.frequencies(8), tmp_path / stale, about="shows 0123456789abcdef")
    (tmp_path / missing).unlink()
    found = "\n".join(check_pictures(tmp_path))
    assert f"{stale} is stale: it shows 0123456789abcdef" in found
    assert f"{missing} is missing" in found
    canvas.save(plots.frequencies(8), tmp_path / stale)
    assert f"{stale} is stale: it says nothing" in "\n".join(check_pictures(tmp_path))


def test_meta_a_change_in_what_is_drawn_makes_the_picture_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "positions.png"
    before = today()[name]
    encoding = plots.encoding
    monkeypatch.setattr(plots, "encoding", lambda *args, **settings: encoding(*args, base=10001.0, **settings))
    assert digest(figures().FIGURES[name]()) != before

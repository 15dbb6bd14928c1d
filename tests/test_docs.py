"""The documentation: its site builds without a warning, renders without a network, and lists every public name."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hf_posenc

REPO = Path(__file__).resolve().parent.parent
installed = all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings_handlers"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    if not installed:
        pytest.skip("needs mkdocs: pip install -c constraints.txt '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_and_its_start_page_is_the_readme(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    assert "Text in, position-aware model inputs out." in start
    assert (site / "images" / "batch.png").exists()


def test_a_page_loads_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=\"?(https?://[^\" >]+)", page.read_text("utf-8")
        )
        assert loaded == [], page


def test_the_reference_shows_arguments_and_examples_of_docstrings(site: Path) -> None:
    page = (site / "reference" / "positions.html").read_text(encoding="utf-8")
    assert "<strong>d_model</strong> (<code>int</code>)" in page
    assert "&gt;&gt;&gt; </span>" in page
    page = (site / "reference" / "jobs.html").read_text(encoding="utf-8")
    assert "<strong>shard_bytes</strong>" in page  # an option that is in no docstring of the source


def test_every_public_name_has_a_place_in_the_reference() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (REPO / "docs" / "reference").glob("*.md"))
    listed = set(re.findall(r"^::: hf_posenc\.(\w+)", pages, re.MULTILINE))
    assert set(hf_posenc.__all__) - {"__version__"} <= listed

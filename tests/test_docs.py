"""The documentation: its site builds, renders without a network, and lists every public name; its example for other
trainers writes the files of their formats.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
import runpy
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

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


@pytest.mark.slow
def test_the_site_builds_and_its_start_page_is_the_readme(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    assert "Text in, position-aware model inputs out" in start
    assert (site / "images" / "packed.png").exists()


@pytest.mark.slow
def test_a_page_loads_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=\"?(https?://[^\" >]+)", page.read_text("utf-8")
        )
        assert loaded == [], page


@pytest.mark.slow
def test_the_reference_shows_arguments_and_examples_of_docstrings(site: Path) -> None:
    page = (site / "reference" / "positions.html").read_text(encoding="utf-8")
    assert "<strong>d_model</strong> (<code>int</code>)" in page
    assert "&gt;&gt;&gt; </span>" in page


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """Address of the built site, served on a free port."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    """Handler that prints nothing."""

    def log_message(self, *args: Any) -> None:
        """Ignore the message."""


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_shows_a_batch_that_answers_to_touch(served: str, chromium: Any, width: int, scheme: str) -> None:
    wrong: list[str] = []
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(served) else wrong.append(request.url))
    page.goto(f"{served}/lessons.html")
    view = page.locator("[id^=hf-posenc]")
    assert view.get_attribute("data-theme") == scheme
    view.locator("[data-row='1'][data-token='1']").click()
    assert ": column 1, " in view.locator(".sentence").inner_text()
    assert "All queries of row 1" in view.locator(".all-view").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("label[for^=__palette]").locator("visible=true").first.click()  # the colors of the page
    page.locator(f"[id^=hf-posenc]:not([data-theme={scheme}])").wait_for(timeout=60_000)
    page.goto(f"{served}/lab.html#masks")
    page.wait_for_function("scrollY > 1000")  # the link goes to its scene
    assert "Why −∞?" in view.locator("#masks").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert wrong == []


@pytest.mark.browser
def test_code_output_and_the_matrices_of_the_lab_are_whole_in_a_window_of_1280_pixels(
    served: str, chromium: Any
) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    names = ["index", *(path.stem for path in (REPO / "docs").glob("*.md"))]
    cut = []
    for name in names:
        page.goto(f"{served}/{name}.html")
        blocks = page.locator(".md-typeset pre > code")
        cut += blocks.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)")
    assert cut == []
    page.goto(f"{served}/lab.html")
    matrices = page.locator("[id^=hf-posenc] .scroll")
    matrices.last.wait_for()
    assert matrices.count() > 3
    cut = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => [e.className, e.scrollWidth, e.clientWidth])"
    assert matrices.evaluate_all(cut) == []
    page.close()


def test_every_public_name_has_a_place_in_the_reference() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (REPO / "docs" / "reference").glob("*.md"))
    listed = set(re.findall(r"^::: hf_posenc\.(\w+)", pages, re.MULTILINE))
    assert set(hf_posenc.__all__) - {"__version__"} <= listed


def test_messages_name_sections_that_are_there() -> None:
    source = "\n".join(file.read_text(encoding="utf-8") for file in Path(hf_posenc.__file__).parent.rglob("*.py"))
    named = re.findall(r"'([^']+)' in (docs/[a-z-]+\.md)", source)
    assert named
    for section, page in named:
        assert f"## {section}\n" in (REPO / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(("vocabulary", "end"), [(3, 3), (70_000, 70_000), (3, 70_001)])
def test_the_files_for_other_trainers_hold_the_ids_of_the_tokenizer(
    vocabulary: int, end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {f"word{number}": number for number in range(vocabulary)}
    raw = Tokenizer(models.WordLevel({**words, "<end>": end}, unk_token="word0"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", model_max_length=4)
    some = np.random.default_rng(0)
    texts = [" ".join(f"word{word}" for word in some.integers(0, vocabulary, size)) for size in (3, 1, 9, 200)]
    Path("corpus.txt").write_text("\n".join(texts))
    names = runpy.run_path(str(REPO / "examples" / "14_megatron.py"))
    assert names["write"](Path("corpus.txt"), tokenizer, tmp_path)[0] == (np.uint16 if end == 3 else np.int32)
    ids = [[*tokenizer(text)["input_ids"], end] for text in texts]
    # Megatron's format by its description: a header, then lengths and places of the sequences, and first sequences.
    kind, code = (np.dtype(np.uint16), 8) if end == 3 else (np.dtype(np.int32), 4)
    lengths = np.array([*map(len, ids)], np.int32)
    places = (np.cumsum(lengths) - lengths).astype(np.int64) * kind.itemsize
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, len(ids), len(ids) + 1)
    index += lengths.tobytes() + places.tobytes() + np.arange(len(ids) + 1, dtype=np.int64).tobytes()
    assert Path("megatron.idx").read_bytes() == index
    assert Path("megatron.bin").read_bytes() == np.array([*itertools.chain(*ids)], kind).tobytes()
    assert np.memmap("train.bin", np.uint16 if end == 3 else np.int32).tolist() == list(itertools.chain(*ids))

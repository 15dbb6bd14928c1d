"""The page in a real browser: what is typed and switched, held against what is then to be read, copied and downloaded.

The server is the command itself, in a process of its own; the browser is Chromium, without a window.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hf_posenc import DataCollatorWithPositionalEncoding, plots, sinusoidal_encoding
from hf_posenc.explorer import words
from hf_posenc.explorer.code import python_of
from hf_posenc.explorer.pictures import picture
from hf_posenc.explorer.settings import Settings
from hf_posenc.explorer.shown import show

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARTEFACTS = Path(__file__).resolve().parent / "artefacts"
PATIENCE = 60_000  # milliseconds, for a machine that has other things to do

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
]


@dataclass
class Served:
    """The command at work: where it answers, and what it left behind."""

    address: str
    process: subprocess.Popen[str]
    folder: Path


@dataclass
class Visit:
    """A page that is open, and everything about it that should not have happened."""

    page: Any
    bad: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return str(self.page.locator(f"#shown_{name}").inner_text())

    def source(self, name: str) -> str:
        return str(self.page.locator(f"#shown_{name} img").get_attribute("src") or "")

    def tokens(self, row: int = 0) -> list[str]:
        cells = self.page.locator("#shown_batch tbody").nth(row).locator("tr.token td")
        return [str(one) for one in cells.all_inner_texts()]

    def type(self, text: str) -> None:
        self.page.locator("#text textarea").fill(text)

    def pick(self, name: str, value: str) -> None:
        self.page.locator(f"#{name} input[value='{value}']").check()

    def number(self, name: str, value: object) -> None:
        box = self.page.locator(f"#{name} input[type=number]")
        box.fill(str(value))
        box.blur()

    def wait(self, condition: str, *given: object) -> None:
        self.page.wait_for_function(condition, arg=list(given), timeout=PATIENCE)

    def wait_for_text(self, name: str, text: str) -> None:
        where = "#messages" if name == "messages" else f"#shown_{name}"
        self.wait("([where, text]) => document.querySelector(where).innerText.includes(text)", where, text)

    def wait_for_change(self, name: str, before: str) -> None:
        self.wait(
            "([where, before]) => { const found = document.querySelector(where);"
            " return found !== null && found.src !== before; }",
            f"#shown_{name} img",
            before,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`hf-posenc explore`, answering; ended by Ctrl-C, after which it has said nothing and left nothing."""
    folder = tmp_path_factory.mktemp("served")
    for name in ("here", "temporary", "assets"):
        (folder / name).mkdir()
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_ASSETS_CACHE": str(folder / "assets"),
        "TMPDIR": str(folder / "temporary"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(Path(plots.__file__).parents[2]),
    }
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hf_posenc", "explore", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=folder / "here",
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.match(r"(http://127\.0\.0\.1:\d+)  \(Ctrl-C ends it\)", line)
            assert found, line + (folder / "errors").read_text()
            yield Served(found[1], process, folder)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert (folder / "errors").read_text() == ""
    assert [path for name in ("here", "temporary") for path in (folder / name).rglob("*")] == []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def opened(chromium: Any, served: Served, **context: Any) -> Visit:
    """The page in a fresh profile, its first pictures drawn, and a record of what goes wrong with it."""
    options = {"viewport": {"width": 1400, "height": 900}, "permissions": ["clipboard-read", "clipboard-write"]}
    page = chromium.new_context(**(options | context)).new_page()
    page.set_default_timeout(PATIENCE)
    visit = Visit(page)
    asked = lambda url: url.startswith((served.address + "/", "data:", "blob:"))  # noqa: E731
    page.on("console", lambda said: visit.bad.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: visit.bad.append(str(error)))
    page.on("request", lambda request: None if asked(request.url) else visit.bad.append(request.url))
    page.on("response", lambda response: visit.bad.append(response.url) if response.status >= 400 else None)
    page.on("dialog", lambda dialog: (visit.bad.append(dialog.message), dialog.dismiss()))
    page.goto(served.address)
    page.wait_for_selector("#shown_embeddings img")
    return visit


@pytest.fixture
def visit(chromium: Any, served: Served) -> Iterator[Visit]:
    """An open page. Afterwards: no error on its console, nothing asked of anyone but the server, no dialog."""
    made = opened(chromium, served)
    yield made
    made.page.context.close()
    assert made.bad == []


def test_it_opens_with_the_batch_of_its_texts(visit: Visit, bert_folder: Path) -> None:
    collate = DataCollatorWithPositionalEncoding(bert_folder)
    batch = collate(words.TEXT.split("\n"))
    for row, tokens in enumerate(collate.tokens(batch)):
        assert visit.tokens(row) == tokens
        cells = visit.page.locator("#shown_batch tbody").nth(row).locator("tr").nth(1).locator("td").all_inner_texts()
        assert [int(cell) for cell in cells] == batch["input_ids"][row].tolist()
    numbers = visit.page.locator("#shown_encoding_numbers td").all_inner_texts()
    corner = sinusoidal_encoding(range(64), 384)[:6, :8].flatten().tolist()
    assert [float(number) for number in numbers] == pytest.approx(corner, abs=5e-5)


def test_what_is_typed_is_followed_letter_by_letter(visit: Visit) -> None:
    before = {name: visit.source(name) for name in ("masks", "embeddings", "encoding")}
    visit.page.locator("#text textarea").fill("")
    visit.wait_for_text("messages", "no text yet")
    visit.page.locator("#text textarea").press_sequentially("unsurprisingly", delay=20)
    visit.wait_for_text("batch", "##ly")
    assert visit.tokens() == ["[CLS]", "un", "##sur", "##pr", "##ising", "##ly", "[SEP]"]
    for name in ("masks", "embeddings"):
        visit.wait_for_change(name, before[name])
    assert visit.source("encoding") == before["encoding"]
    visit.wait("() => document.querySelector('#messages pre, #messages .note') === null")


def test_every_control_moves_what_it_is_for(visit: Visit, tmp_path: Path, word_level: Any) -> None:
    word_level.save_pretrained(tmp_path / "words")
    page = visit.page
    seen = {name: visit.source(name) for name in ("masks", "encoding", "distances", "embeddings")}

    def moved(*names: str) -> None:
        for name in names:
            visit.wait_for_change(name, seen[name])
            seen[name] = visit.source(name)

    visit.number("d_model", 32)
    visit.wait_for_text("facts", "(3, 13, 32)")
    visit.wait_for_text("embeddings_numbers", "random embeddings: the trained ones are 384 wide")
    moved("encoding", "distances", "embeddings")
    visit.number("positions", 20)
    visit.wait_for_text("encoding_numbers", "the first of 20 × 32 numbers")
    moved("encoding", "distances")
    visit.number("base", 50)
    visit.wait_for_text("encoding_numbers", f"{sinusoidal_encoding(range(20), 32, base=50)[5, 7]:.4f}")
    moved("encoding", "distances", "embeddings")
    page.locator("#convention input").click()
    page.get_by_role("option", name="fairseq").click()
    numbers = sinusoidal_encoding(range(20), 32, base=50, convention="fairseq").numpy()
    visit.wait_for_text("encoding_numbers", f"{numbers[1, 1]:.4f}")
    moved("encoding", "distances", "embeddings")

    visit.pick("padding_side", "left")
    visit.wait("() => document.querySelector('#shown_batch tbody:nth-of-type(2) td').className === 'padding'")
    moved("masks")
    page.locator("#look_ahead input").uncheck()
    visit.wait("() => !document.querySelector('#shown_facts').innerText.includes('look_ahead_mask')")
    moved("masks")
    visit.number("max_length", 24)
    page.locator("#packing input").check()
    visit.wait_for_text("batch", "document_ids")
    moved("masks")
    visit.number("max_length", 4)
    visit.wait_for_text("messages", "texts were truncated to 4 tokens")

    visit.pick("tokenizer", "bpe")
    visit.wait_for_text("batch", "<s>")
    visit.pick("tokenizer", "folder")
    visit.wait_for_text("messages", "there is no such folder on this machine")
    page.locator("#folder textarea, #folder input").fill(str(tmp_path / "words"))
    page.locator("#folder textarea, #folder input").press("Enter")
    visit.wait("() => document.querySelector('#messages').innerText.indexOf('no such folder') < 0")
    assert "[UNK]" in visit.tokens() or "ride" in visit.tokens()

    visit.pick("embedding", "random")
    visit.wait("() => document.querySelector('#shown_embeddings_numbers .note') === null")
    visit.pick("embedding", "trained")  # takes BERT and its width along
    visit.wait_for_text("facts", "384)")
    assert page.locator("#tokenizer input[value='bert']").is_checked()
    visit.wait_for_text("embeddings_numbers", "positions drown the tokens")
    before = visit.text("embeddings_numbers")
    visit.pick("scale", "sqrt_d")
    visit.wait("([before]) => document.querySelector('#shown_embeddings_numbers').innerText !== before", before)


def test_after_many_quick_changes_the_page_shows_the_last_ones(visit: Visit) -> None:
    for turn in range(6):
        visit.type(f"I ride bike number {turn}\nbike")
        visit.pick("padding_side", ("left", "right")[turn % 2])
        visit.number("d_model", 8 + turn)
    last = show(Settings(text="I ride bike number 5\nbike", embedding="trained", d_model=13))
    for name in ("masks", "embeddings"):
        source = re.findall('src="(.*?)"', picture(name, last))[0]
        visit.wait("([where, source]) => document.querySelector(where).src === source", f"#shown_{name} img", source)
    visit.wait_for_text("batch", "5")
    assert visit.tokens() == last.tokens[0]


def test_the_python_that_is_copied_is_that_of_what_is_shown(visit: Visit) -> None:
    visit.type('say "hi"\nשלום 👍🏽')
    visit.wait_for_text("batch", "hi")
    visit.number("d_model", 16)
    visit.wait_for_text("facts", "16)")
    visit.page.locator("#code button[title=Copy]").click()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied + "\n" == python_of(show(Settings(text='say "hi"\nשלום 👍🏽', d_model=16)))
    assert ast.parse(copied)


def test_the_picture_that_is_downloaded_is_the_one_that_plots_draws(visit: Visit, tmp_path: Path) -> None:
    with visit.page.expect_download() as started:
        visit.page.locator("#shown_encoding a[download]").click()
    assert started.value.suggested_filename == "encoding.png"
    plots.save(plots.encoding(384, 64, base=10_000), tmp_path / "ours.png")
    assert Path(started.value.path()).read_bytes() == (tmp_path / "ours.png").read_bytes()


def test_a_script_is_shown_and_not_run(visit: Visit) -> None:
    visit.type("<script>alert(1)</script> <img src=x onerror=alert(2)>\n</td></table><b id=gone>bold</b>")
    visit.wait_for_text("batch", "alert")
    visit.wait_for_text("embeddings_numbers", "script")
    assert [token for token in visit.tokens() if token == "script"] == ["script"] * 2
    assert visit.page.locator("#shown script, #shown #gone, #shown img[src=x]").count() == 0
    assert "<script>alert(1)</script>" in visit.page.locator("#code").inner_text()


def test_other_scripts_long_texts_and_nothing_are_answered(visit: Visit) -> None:
    visit.type("مرحبا بالعالم\nשלום עולם\n👨‍👩‍👧‍👦 👍🏽\n" + "half a pair \ud83d")
    visit.wait_for_text("batch", "half")
    assert "".join(visit.tokens()[1:-1]).replace("##", "")[:4] == "مرحب"
    visit.type("")
    visit.wait_for_text("messages", "no text yet")
    assert visit.page.locator("#shown_batch table").count() == 0
    for text in ("word " * 20_000, "a" * 100_000):
        began = time.monotonic()
        visit.type(text)
        visit.wait_for_text("messages", "the first 4,000 of 100,000 characters of a text are read")
        print(f"100,000 characters: {time.monotonic() - began:.1f} s")
        visit.type("")
        visit.wait_for_text("messages", "no text yet")


def test_what_does_not_go_is_said_in_three_lines(visit: Visit) -> None:
    for value, said in ((1, "base must be finite and larger than 1"), ("", "base must be a number")):
        visit.number("base", value)
        visit.wait_for_text("messages", said)
        assert len(visit.page.locator("#messages pre").inner_text().split("\n")) == 3
    visit.number("base", 10000)
    visit.wait("() => document.querySelector('#messages pre') === null")
    box = visit.page.locator("#d_model input[type=number]")
    box.fill("100000")
    visit.wait_for_text("messages", "d_model must be a whole number from 2 to 512 on this page")
    box.blur()
    visit.wait_for_text("facts", "512)")
    assert visit.page.locator(".toast-body").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 420)])
def test_nothing_is_cut_off_in_any_window(chromium: Any, served: Served, scheme: str, width: int) -> None:
    visit = opened(chromium, served, color_scheme=scheme, viewport={"width": width, "height": 900})
    for name in ("masks", "encoding", "distances", "embeddings"):
        visit.page.wait_for_selector(f"#shown_{name} img")
    sizes = visit.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert sizes[0] <= sizes[1]
    ARTEFACTS.mkdir(exist_ok=True)
    visit.page.screenshot(path=ARTEFACTS / f"explore_{scheme}_{width}.png", full_page=True)
    visit.page.context.close()
    assert visit.bad == []

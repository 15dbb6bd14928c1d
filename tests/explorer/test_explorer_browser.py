"""The page in a real browser: typed texts and changed settings against the collator, lessons, windows and colors."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_posenc import DataCollatorWithPositionalEncoding

PATIENCE = 120_000  # milliseconds

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [sys.executable, "-m", "hf_posenc", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().partition(" ")[0]
        process.send_signal(signal.SIGINT)


class Page:
    """The open page."""

    def __init__(self, chromium: Any, address: str, **options: Any) -> None:
        permissions = ["clipboard-read", "clipboard-write"]
        settings = {"viewport": {"width": 1400, "height": 900}, "permissions": permissions, **options}
        self.page = chromium.new_context(**settings).new_page()
        self.page.set_default_timeout(PATIENCE)
        self.wrong: list[str] = []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._check)
        self.address = address
        self.page.goto(address)
        self.page.wait_for_selector("body[data-sent]")

    def _check(self, request: Any) -> None:
        if not request.url.startswith((self.address + "/", "data:")):
            self.wrong.append(request.url)

    def set(self, name: str, value: Any) -> None:
        """Change a setting, and wait until the page shows the result."""
        before = int(self.page.locator("body").get_attribute("data-sent"))
        field = self.page.locator(f"#settings [name={name}]")
        if not field.is_visible():
            self.page.locator("header summary").click()
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("node => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(str(value))
        if name == "folder":
            field.press("Enter")
        for _ in range(PATIENCE // 20):
            if int(self.page.locator("body").get_attribute("data-sent")) > before:
                return
            self.page.wait_for_timeout(20)
        pytest.fail(f"no answer after {name}={value!r}")

    def tokens(self, row: int) -> list[str]:
        return list(self.page.locator(f"[role=gridcell][data-row='{row}'] span").all_inner_texts())

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())


@pytest.fixture
def visit(chromium: Any, address: str) -> Iterator[Page]:
    """The open page; no error and no request to another host may follow."""
    page = Page(chromium, address)
    yield page
    page.page.context.close()
    assert page.wrong == []


def test_the_batch_follows_texts_and_settings(visit: Page, word_level: Any, tmp_path: Path) -> None:
    word_level.save_pretrained(tmp_path)
    visit.page.locator("[name=tokenizer]").select_option("folder")
    assert "press Enter" in visit.text("#messages")
    visit.set("folder", tmp_path)
    for name, value in {"text": "I ride bike\nride", "padding_side": "left", "max_length": 8, "packing": True}.items():
        visit.set(name, value)
        settings = {"padding_side": "left"} if name != "text" else {}
        collate = DataCollatorWithPositionalEncoding(tmp_path, max_length=8, packing=name == "packing", **settings)
        assert [visit.tokens(0)] == collate.tokens(collate(["I ride bike", "ride"]))[:1]
    visit.set("convention", "marian")
    assert "convention='marian'" in visit.text("#python")


def test_bert_s_tokens_are_shown_at_the_start(visit: Page, bert_folder: Path) -> None:
    collate = DataCollatorWithPositionalEncoding(bert_folder)
    assert visit.tokens(1)[:5] == collate.tokens(collate(["I ride bike"]))[0]
    assert visit.page.locator("[name=d_model]").input_value() == "64"


def test_a_bad_setting_is_named_and_no_python_is_offered(visit: Page) -> None:
    visit.set("d_model", 1)
    assert visit.text("#messages").startswith("d_model must be an integer from 2 to 512")
    assert visit.text("#python") == ""
    visit.set("d_model", 8)
    assert visit.text("#messages") == ""


def test_the_copied_python_is_that_of_the_page(visit: Page) -> None:
    visit.page.locator("#copy").click()
    visit.page.get_by_text("Copied", exact=True).wait_for()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == visit.text("#python").strip()
    assert "batch = " in copied


def test_the_lessons_answer_their_questions(visit: Page) -> None:
    for question in visit.page.locator("section details > summary").all():
        question.press("Enter")
    assert re.search(r"In this batch \d+ of \d+ tokens are text", visit.text("#padding"))
    assert visit.page.locator("#mask-right td").nth(1).inner_text() == "false"
    assert visit.page.locator("#mask-wrong td").nth(1).inner_text() == "true"
    without, positioned = re.findall(r"positions (\d\.?\d*(?:e-\d+)?)", visit.text("#order-now"))
    assert float(without) < 1e-5
    assert float(positioned) > 1e-2
    assert visit.page.locator("#weights-with tr").count() == visit.page.locator("#weights-without tr").count() > 3
    last_key = visit.page.locator("#weights-with tr").nth(1).locator("td").last
    assert last_key.inner_text() == "–"
    visit.set("look_ahead", False)
    assert float(last_key.inner_text()) > 0
    visit.page.locator("#position").fill("5")
    assert "row 5" in visit.text("#dot-curve")
    visit.set("tokenizer", "bpe")
    assert "→" in visit.text("#merges-now")


@pytest.mark.parametrize("width", [360, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_window_in_light_and_dark(width: int, scheme: str, chromium: Any, address: str) -> None:
    visit = Page(chromium, address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for question in visit.page.locator("section details > summary").all():
        question.click()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.locator("#batch [data-theme]").get_attribute("data-theme") == scheme
    assert visit.page.evaluate("document.querySelector('header').offsetHeight") <= 500
    visit.page.context.close()
    assert visit.wrong == []

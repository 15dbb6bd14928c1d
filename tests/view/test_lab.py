"""The Input Lab: its arithmetic against Python's, and the page in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, frequencies
from hf_posenc.testing import standard_library_docstrings
from hf_posenc.view import lab_html, page_of

QUESTIONS = 11


def test_a_tokenizer_of_another_kind_needs_texts(unigram: Any) -> None:
    with pytest.raises(
        ValueError, match="the page runs BERT's WordPiece and GPT-2's byte-level BPE, and this is Unigram"
    ):
        lab_html(unigram)
    page = lab_html(unigram, ["I ride 🚲 bike"])
    assert "The texts were tokenized beforehand and cannot be changed here" in page
    with pytest.raises(ValueError, match="texts must be a list of at least one text"):
        lab_html(unigram, [])


def test_explore_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], unigram: Any) -> None:
    from hf_posenc.cli import main

    unigram.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "texts.txt").write_text("I ride bike\n\nbike ride I\n")
    output = tmp_path / "lab.html"
    command = ["explore", "--no-browser", "-t", str(tmp_path / "tokenizer"), "-o", str(output)]
    with pytest.raises(SystemExit) as end:
        main([*command, "--text", str(tmp_path / "texts.txt")])
    assert end.value.code in (0, None)
    assert str(output) in capsys.readouterr().out
    page = output.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert '["I ride bike","bike ride I"]' in page


# ------------------------------------------------------------------------------------------------- the arithmetic


@pytest.fixture(scope="module")
def functions(chromium: Any) -> Iterator[Any]:
    """A page with the functions of tokens.js and attention.js."""
    import hf_posenc.view

    page = chromium.new_page()
    folder = Path(str(hf_posenc.view.__file__)).parent
    for name in ("tokens.js", "attention.js"):
        page.add_script_tag(path=str(folder / name))
    yield page
    page.close()


def in_page(tokenizer: Any) -> dict[str, Any]:
    """The tokenizer as the page has it."""
    text = lab_html(tokenizer).split("showLab(host, ")[-1]
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    tokenizer_data: dict[str, Any] = found["tokenizer"]
    return tokenizer_data


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["bert", "wordpiece", "byte_bpe"])
def test_tokens_are_those_of_python(
    kind: str, functions: Any, sentences: list[str], request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(kind)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.model_max_length = 10**9
    texts = [*sentences, "", " ", *standard_library_docstrings()[:4000]]
    run = "([data, texts]) => texts.map(tokenizerOf(data)).map(tokens => tokens.map(({id}) => id))"
    found = functions.evaluate(run, [in_page(tokenizer), texts])
    for text, ids in zip(texts, found, strict=True):
        assert ids == tokenizer(text)["input_ids"], text


@pytest.mark.browser
def test_spans_are_the_text_of_each_token(functions: Any, wordpiece: Any) -> None:
    text = "Élodie rides, the cafe\u0301 🚲 [MASK] closed."
    run = "([data, text]) => tokenizerOf(data)(text).map(({begin, end}) => text.slice(begin, end))"
    parts = functions.evaluate(run, [in_page(wordpiece), text])
    assert "".join(parts) == text.replace(" ", "")
    assert {",", "🚲"} <= set(parts)


@pytest.mark.browser
@pytest.mark.parametrize("convention", list(CONVENTIONS))
def test_sinusoids_are_those_of_python(convention: str, functions: Any) -> None:
    for width in (1, 2, 7, 32, 64):
        sines, cosines = CONVENTIONS[convention].columns(width)
        given = {
            "width": width,
            "frequencies": frequencies(width, convention=convention).tolist(),
            "sines": [sines.start, sines.step],
            "cosines": [cosines.start, cosines.step],
        }
        run = "given => Array.from({length: 500}, (_, p) => Array.from(encodingOf(p, given)))"
        found = torch.tensor(np.array(functions.evaluate(run, given)), dtype=torch.float64).float()
        assert torch.equal(found, sinusoidal_encoding(torch.arange(500), width, convention=convention))
    paper = np.array(functions.evaluate("Array.from(encodingOf(9, paperEncoding(32, 100)))"))
    expected = sinusoidal_encoding(torch.tensor(9), 32, base=100, dtype=torch.float64).numpy()
    np.testing.assert_allclose(paper, expected, rtol=0, atol=1e-14)


@pytest.mark.browser
def test_masks_are_those_of_the_package(functions: Any) -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        lengths, look_ahead, side = (
            random.integers(1, 9, 3),
            bool(random.integers(2)),
            ["left", "right"][random.integers(2)],
        )
        run = """([lengths, lookAhead, side]) => {
            const lists = lengths.map(length => Array(length).fill({token: "a", id: 1}));
            const rows = batchOf(lists, {side, positions: "text"}, {token: "p", id: 0});
            return rows.map(row => [row.real, row.positions,
                reasonsOf(row, {lookAhead, paddingMask: true}).map(line => line.map(one => one === ALLOWED))]);
        }"""
        for real, positions, mask in functions.evaluate(run, [lengths.tolist(), look_ahead, side]):
            keep = torch.tensor([real])
            dense = AttentionMask.from_batch({"attention_mask": keep.long()}, look_ahead=look_ahead).dense()[0, 0]
            assert torch.equal(torch.tensor(mask)[keep[0]], dense[keep[0]])
            assert [one for one in positions if one is not None] == list(range(sum(real)))


@pytest.mark.browser
@pytest.mark.parametrize("head", ["positions", "both", "random"])
@pytest.mark.parametrize("settings", [{}, {"divide": False, "side": "left"}, {"addOnes": True}, {"paddingMask": False}])
def test_attention_is_that_of_torch(head: str, settings: dict[str, Any], functions: Any) -> None:
    given = {"side": "right", "positions": "text", "head": head, "back": 2, "gain": 4, "divide": True, "addOnes": False}
    given |= {"paddingMask": True, "lookAhead": True, **settings}
    run = """given => {
        const lists = ["abcde", "xyz"].map(letters => Array.from(letters, token => ({token})));
        const encoding = paperEncoding(16, 10000), rows = batchOf(lists, given, {token: "pad"});
        const matrix = name => matrixOf(name, 16).map(line => Array.from(line));
        return rows.map(row => {
            const found = attend(row, given, encoding);
            const tokens = row.tokens.map(one => Array.from(embeddingOf(one, 16)));
            return {
                real: row.real, positions: row.positions.map(one => one ?? 0), tokens, weights: found.weights,
                outputs: found.outputs.map(one => Array.from(one)), cost: costOf(row, given, encoding).difference,
                query: matrix("query"), key: matrix("key"),
            };
        });
    }"""
    for row in functions.evaluate(run, given):
        positions, real = torch.tensor(row["positions"]), torch.tensor(row["real"])
        sinusoids = sinusoidal_encoding(positions, 16, dtype=torch.float64)
        x = torch.tensor(row["tokens"], dtype=torch.float64) + sinusoids
        if head == "random":
            scaled = x / x.square().mean(-1, keepdim=True).sqrt()
            q, k = (scaled @ torch.tensor(row[name], dtype=torch.float64).T for name in ("query", "key"))
        elif head == "positions":
            q, k = sinusoidal_encoding(positions - 2, 16, dtype=torch.float64), sinusoids
        else:
            angles = 2 * frequencies(16)
            q, k = x.clone(), x
            q[:, 0::2] = x[:, 0::2] * angles.cos() - x[:, 1::2] * angles.sin()
            q[:, 1::2] = x[:, 1::2] * angles.cos() + x[:, 0::2] * angles.sin()
        may = torch.ones(5, 5).tril().bool()
        if given["paddingMask"]:
            may = may & real & real[:, None]
        scores = 4 * q @ k.T / (4 if given["divide"] else 1)
        scores = scores + may if given["addOnes"] else scores.masked_fill(~may, -torch.inf)
        shown = [[np.nan if cell is None else cell for cell in line] for line in row["weights"]]
        torch.testing.assert_close(
            torch.tensor(shown, dtype=torch.float64)[real], scores.softmax(-1)[real], rtol=0, atol=1e-9
        )
        outputs = torch.tensor(row["outputs"], dtype=torch.float64)
        torch.testing.assert_close(outputs[real], (scores.softmax(-1) @ x)[real], rtol=0, atol=1e-9)
        assert (row["cost"] < 1e-12) == (
            set(settings) <= {"side"} or settings == {"paddingMask": False}
        )  # causal, right


# ------------------------------------------------------------------------------------------------------- the page


class Lab:
    """The open page."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def set(self, name: str, value: Any) -> None:
        field = self.page.locator(f"[name={name}]")
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("node => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(str(value))

    def token(self, row: int, token: int) -> Any:
        return self.page.locator(f"[data-row='{row}'][data-token='{token}']")

    def tokens(self, row: int) -> list[str]:
        return list(self.page.locator(f"[data-row='{row}'] span").all_inner_texts())

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())


@pytest.fixture
def visit(chromium: Any, tmp_path: Path, wordpiece: Any) -> Iterator[Callable[..., Lab]]:
    """Function that opens the page; no message on the console and no request beyond the file may follow."""
    file = tmp_path / "lab.html"
    wrong: list[str] = []
    contexts = []

    def note(request: Any) -> None:
        if not request.url.startswith((file.as_uri(), "data:")):
            wrong.append(request.url)

    def open_page(address: str = "", tokenizer: Any = wordpiece, texts: Any = None, **options: Any) -> Lab:
        file.write_text(page_of(lab_html(tokenizer, texts), "The Input Lab"), encoding="utf-8")
        contexts.append(chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", note)
        page.goto(file.as_uri() + address)
        return Lab(page)

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.browser
class TestPage:
    def test_typed_texts_become_the_batch_of_the_collator(self, visit: Callable[..., Lab], wordpiece: Any) -> None:
        lab = visit()
        lab.set("lookAhead", False)
        lab.set("texts", "I ride bike\n\nbike ride I, she said")
        for side in ("right", "left"):
            lab.set("side", side)
            collate = DataCollatorWithPositionalEncoding(wordpiece, padding_side=side)
            expected = collate.tokens(collate(["I ride bike", "bike ride I, she said"]))
            assert [lab.tokens(0), lab.tokens(1)] == expected
        lab.set("texts", "")
        assert lab.text("#cost") == "Type a text."
        lab.set("texts", "a\n" * 9 + "word " * 60)
        assert lab.text("#notes") == "The page shows the first 8 of 10 texts."
        lab.set("texts", "rides " * 200)
        assert lab.text("#notes").startswith("It reads 1000 letters of a text. The page shows the first 32 of up to ")

    def test_mistakes_cost_something_and_the_page_shows_it(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.token(1, 1).click()
        same = "The outputs of row 1 are those of its text alone."
        assert lab.text("#cost") == same
        lab.set("side", "left")
        assert lab.text("#cost") == same
        for name, wrong, right, words in (
            ("divide", False, True, "no ÷ √d"),
            ("addOnes", "1", "", "0 and 1 added in place of −∞ and 0"),
            ("paddingMask", False, True, "no padding mask"),
            ("positions", "padding", "text", "positions that count the padding"),
        ):
            lab.set(name, wrong)
            assert lab.text("#cost").startswith("The outputs of row 1 differ from those of its text alone by up to ")
            assert f": {words}." in lab.text("#cost")
            assert "wrong" in lab.page.locator("#cost").get_attribute("class")
            lab.set(name, right)
            assert lab.text("#cost") == same

    def test_a_click_survives_the_way_of_the_mouse_and_other_settings(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.token(0, 4).click()
        for other in ((1, 2), (2, 1)):
            lab.token(*other).hover()
        lab.page.locator(".all td[data-query='2']").first.hover()
        for name, value in {"look_ahead": None, "base": "10", "d": "8", "side": "left", "lookAhead": False}.items():
            if value is not None:
                lab.set(name, value)
        assert lab.page.locator("td.query").evaluate("cell => [cell.dataset.row, cell.dataset.token]") == ["0", "4"]
        assert lab.page.locator(".all tr.query th").inner_text() == lab.tokens(0)[4]

    def test_the_address_restores_the_state(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        for name, value in {
            "texts": "I ride & bike\nno",
            "side": "left",
            "back": 3,
            "divide": False,
            "d": "16",
        }.items():
            lab.set(name, value)
        lab.token(1, 2).click()
        lab.page.locator("[name=shift]").fill("7")
        address = lab.page.evaluate("location.hash")
        again = visit(address)
        for selector in ("#cost", ".sentence", ".one", ".dials"):
            assert again.text(selector) == lab.text(selector)
        assert again.page.locator("[name=texts]").input_value() == "I ride & bike\nno"
        assert visit("#s=%7B%22d%22").text("#cost").startswith("The outputs of row 0 are")  # cut off
        assert (
            visit('#s={"d":7,"row":-1,"head":9,"constructor":1}').text("#cost").startswith("The outputs of row 0 are")
        )

    def test_long_texts_stay_out_of_the_address(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("texts", "ride " * 400)
        assert "The address of the page leaves out the texts" in lab.text("#notes")
        assert len(lab.page.evaluate("location.hash")) < 200

    def test_each_question_sets_the_page_and_shows_its_answer(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        names = lab.page.locator("details[data-state]").evaluate_all("all => all.map(one => one.id)")
        assert len(names) == QUESTIONS
        assert lab.page.locator(".predict:visible").count() == 1  # the first screen asks a question
        assert lab.page.locator(".answer:visible").count() == 0
        states = set()
        for number, name in enumerate(names):
            if number > 0:  # the first one is open
                lab.page.locator(f"details#{name} summary").click()
            lab.page.locator(f"details#{name} button").click()
            assert lab.page.locator(f"details#{name} .answer").is_visible()
            states.add(lab.text("#views"))
            opened = visit(f"#q={name}")
            assert opened.page.locator(".answer:visible").count() == 1
            assert opened.text("#views") == lab.text("#views")
        assert len(states) >= QUESTIONS - 1

    def test_a_question_keeps_the_texts_and_states_their_numbers(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("texts", "I ride bike\nbike")
        lab.page.locator("details#left-or-right summary").click()
        lab.page.locator("details#left-or-right button").click()
        assert lab.page.locator("[name=texts]").input_value() == "I ride bike\nbike"
        first = lab.page.locator("[data-row='1']:not(.pad)").first.get_attribute("data-token")
        assert f"the first token of row 1 stands at position {first}, not at 0" in lab.text("#left-or-right .answer")
        assert lab.text("#cost").endswith(f"“[CLS]” stands at position {first}, and alone at 0.")
        again = visit(lab.page.evaluate("location.hash"))
        assert again.page.locator("[name=texts]").input_value() == "I ride bike\nbike"

    def test_without_position_ids_nothing_speaks_of_positions(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("positions", "none")
        lab.set("lookAhead", False)
        assert lab.text("#cost").endswith("Any order of the other tokens gives the same.")
        assert "no position" in lab.text(".sentence")
        assert "at position" not in lab.text(".sentence")
        assert lab.text("#dials .note") == "Without position ids there are no hands."

    def test_scores_of_the_random_head_scatter_as_much_at_each_width(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("texts", "The cat sat and the dog ran to the house of the queen")
        for name, value in {"lookAhead": False, "head": "random", "gain": "1"}.items():
            lab.set(name, value)
        run = """cells => cells.map(cell => Number(cell.textContent.replace("−", "-")))"""
        for width in ("8", "64"):
            lab.set("d", width)
            scores = []
            for token in range(len(lab.tokens(0))):
                lab.token(0, token).click()
                scores += lab.page.locator(".one tr:nth-child(3) td").evaluate_all(run)
            assert 0.6 < np.std(scores) < 1.4, width

    def test_all_columns_have_one_width(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        width = "cells => [...new Set(cells.map(cell => Math.round(cell.getBoundingClientRect().width)))]"
        (cells,) = lab.page.locator(".scroll td").evaluate_all(width)
        assert 40 < cells < 150
        edges = "cells => cells.map(cell => Math.round(cell.getBoundingClientRect().left))"
        lines = [
            lab.page.locator(f"{place} td").evaluate_all(edges)
            for place in (".batch tr:nth-child(2)", ".batch tr:nth-child(4)", ".one tr:nth-child(2)")
        ]
        assert lines[0] == lines[1] == lines[2]

    def test_another_tokenizer_is_shown_with_texts_that_cannot_be_changed(
        self, visit: Callable[..., Lab], unigram: Any
    ) -> None:
        texts = ["I ride 🚲 bike", "no"]
        lab = visit(tokenizer=unigram, texts=texts)
        collate = DataCollatorWithPositionalEncoding(unigram)
        assert [lab.tokens(0), lab.tokens(1)] == collate.tokens(collate(texts))
        assert lab.page.locator("[name=texts]").is_disabled()
        assert "tokenized beforehand" in lab.text("#notes")

    def test_the_text_of_the_chosen_token_is_marked(self, visit: Callable[..., Lab]) -> None:
        lab = visit(texts=["I ride bike"])
        lab.token(0, 1).click()
        assert lab.text(".text") == "Text of row 0: I ride bike"
        assert lab.text("mark") == "I"

    @pytest.mark.parametrize("width", [360, 768, 1400])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_fits_every_window_in_light_and_dark(self, width: int, scheme: str, visit: Callable[..., Lab]) -> None:
        lab = visit("#q=relative", viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert lab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert lab.page.locator("[data-theme]").get_attribute("data-theme") == scheme

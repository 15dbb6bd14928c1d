"""The linked view of a batch in a real browser: its numbers against the tensors, mouse and keyboard, light and dark."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.colors import to_hex
from torch import nn
from transformers import BertConfig, BertModel

from hf_posenc import (
    AttentionMask,
    Batch,
    DataCollatorWithPositionalEncoding,
    PositionalEmbedding,
    plots,
    sinusoidal_encoding,
)

TEXTS = ["I ride bike", "bike ride I, she said"]


def collator(tokenizer: Any, **settings: Any) -> DataCollatorWithPositionalEncoding:
    torch.manual_seed(0)
    table = nn.Embedding(len(tokenizer), 16).requires_grad_(False)
    own = {name: settings.pop(name) for name in ("convention", "base") if name in settings}
    return DataCollatorWithPositionalEncoding(tokenizer, embedding=PositionalEmbedding(table, **own), **settings)


# ---------------------------------------------------------------------------------------------------- without a browser


def test_the_html_is_complete_and_asks_nobody_for_anything(word_level: Any) -> None:
    page = collator(word_level)(TEXTS).to_html(title="a < b")
    assert page.startswith("<!doctype html>")
    assert "<title>a &lt; b</title>" in page
    assert not re.findall(r"(?:src|href|url|import|fetch)\s*[=(]", page)
    assert len(DataCollatorWithPositionalEncoding(word_level)(TEXTS).to_html().encode()) < 60_000


def test_the_vectors_are_those_of_the_embeddings_convention_and_base(word_level: Any) -> None:
    choices: list[dict[str, Any]] = [{}, {"base": 9}, {"convention": "marian"}, {}]
    first, base, convention, again = (collator(word_level, **settings)(TEXTS).to_html() for settings in choices)
    assert first == again
    assert len({first, base, convention}) == 3


def small_bert(tokenizer: Any) -> BertModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).eval()


def test_no_encoding_is_shown_for_a_model_that_has_its_own_positions(word_level: Any) -> None:
    page = DataCollatorWithPositionalEncoding(word_level, model=small_bert(word_level))(TEXTS).to_html()
    assert '"encoding":null' in page
    assert '"note":"No encoding is shown: the batch contains none, and BertModel has its own positions."' in page
    assert '"note":null' in collator(word_level)(TEXTS).to_html()


def test_sinusoids_that_are_not_in_the_batch_are_labeled_as_an_example(word_level: Any) -> None:
    batch = DataCollatorWithPositionalEncoding(word_level)(TEXTS)
    label = '"note":"An example, not part of the batch: sinusoids of width 64 for these positions."'
    assert label in batch.to_html()
    assert label in pickle.loads(pickle.dumps(batch)).to_html()


def test_a_batch_of_100_000_tokens_is_a_small_page_that_says_which_part_it_shows() -> None:
    ids = torch.arange(100_000).reshape(10, 10_000)
    batch = Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert len(batch.to_html()) < 100_000
    assert "Rows 0 to 7 of 10, tokens 0 to 31 of 10000" in batch.to_html()
    later = batch.to_html(first_row=8, first_token=9_990)
    assert "Rows 8 to 9 of 10, tokens 9990 to 9999 of 10000" in later
    assert ">99999<" in later


def test_masks_have_the_colors_of_the_pictures() -> None:
    ids, documents = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[0, 0, 1, -1]])
    batch = Batch({"input_ids": ids, "document_ids": documents, "look_ahead_mask": torch.ones(4, 4).tril().bool()})
    patches = plots.masks(batch).figure.legends[0].legend_handles
    meanings = {"yes": "allowed", "padding": "padding", "later": "later token (look-ahead)", "other": "other document"}
    drawn = {patch.get_label(): to_hex(patch.get_facecolor()) for patch in patches}
    for name, meaning in meanings.items():
        assert re.findall(rf"--{name}: (#\w+);", batch.to_html()) == [drawn[meaning]]  # in light and dark


@pytest.mark.parametrize("shape", [(1, 1, 1, 6), (1, 1, 6, 6)])
def test_a_mask_in_four_dimensions_may_be_shown_in_part(shape: tuple[int, ...]) -> None:
    batch = Batch({"input_ids": torch.arange(6)[None], "attention_mask": torch.ones(shape, dtype=torch.bool)})
    assert '"reasons":["0000"]' in batch.to_html(first_token=4)


@pytest.mark.parametrize(("name", "value"), [("first_row", 2), ("first_token", 99), ("first_row", -1)])
def test_a_part_outside_of_the_batch_is_refused(name: str, value: int, word_level: Any) -> None:
    with pytest.raises(ValueError, match=name):
        collator(word_level)(TEXTS).to_html(**{name: value})


def test_any_batch_can_be_shown(word_level: Any) -> None:
    batch = collator(word_level)(TEXTS)
    assert Batch().to_html().startswith("<table>")
    assert "inputs_embeds" in Batch({"inputs_embeds": batch["inputs_embeds"]}).to_html()
    assert "int64" in DataCollatorWithPositionalEncoding(word_level, return_tensors="np")(TEXTS).to_html()
    assert Batch({"input_ids": torch.zeros(0, 4, dtype=torch.long)}).to_html()
    assert Batch({"input_ids": torch.zeros(2, 0, dtype=torch.long)}).to_html()


# --------------------------------------------------------------------------------------------------------- in a browser


class View:
    """An open page with one batch."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def token(self, row: int, token: int) -> Any:
        return self.page.locator(f"[role=gridcell][data-row='{row}'][data-token='{token}']")

    def panel(self) -> dict[str, str]:
        names, values = self.page.locator("dt").all_inner_texts(), self.page.locator("dd").all_inner_texts()
        return dict(zip(names, values, strict=True))

    def first_value(self) -> str:
        return str(self.page.locator("dd").first.inner_text())

    def mask(self) -> list[list[bool]]:
        """The mask of the chosen row, drawn as one cell for each query and key."""
        cells = self.page.eval_on_selector_all(
            ".matrix i", "cells => cells.map(cell => cell.classList.contains('yes'))"
        )
        length = int(len(cells) ** 0.5)
        return [cells[start : start + length] for start in range(0, len(cells), length)]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., View]]:
    """Function that opens a batch in a page; no error and no request beyond the file may follow."""
    wrong: list[str] = []
    contexts = []

    def open_page(batch: Batch, **options: Any) -> View:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(batch.to_html(title="A batch"), encoding="utf-8")
        contexts.append(chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url == file.as_uri() else wrong.append(request.url))
        page.goto(file.as_uri())
        return View(page)

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.browser
class TestInBrowser:
    @pytest.mark.parametrize(
        "settings", [{}, {"padding_side": "left"}, {"look_ahead": False}, {"convention": "marian"}]
    )
    def test_every_number_is_that_of_the_tensors(
        self, settings: dict[str, Any], opened: Callable[..., View], word_level: Any
    ) -> None:
        collate = collator(word_level, labels="causal_lm", **settings)
        batch = collate(TEXTS)
        view = opened(batch)
        allowed = AttentionMask.from_batch(batch, look_ahead="look_ahead_mask" in batch).dense()[:, 0]
        for row, tokens in enumerate(collate.tokens(batch)):
            real = batch["attention_mask"][row].bool()
            for index, token in enumerate(tokens):
                view.token(row, index).hover()
                shown = view.panel()
                assert shown.pop(f"“{token}”").startswith(f"token {index} · id {batch['input_ids'][row, index]} · ")
                embedding = numbers(shown["embedding"])
                torch.testing.assert_close(
                    torch.tensor(embedding), batch["inputs_embeds"][row, index, :6], rtol=0, atol=6e-5
                )
                if not real[index]:
                    assert "encoding" not in shown
                    continue
                may = allowed[row, index] & real
                assert shown["as a query"].startswith(f"may attend to {int(may.sum())} of {len(tokens)} keys")
                seen = int((allowed[row, :, index] & real).sum())
                assert shown["as a key"] == f"{seen} of {len(tokens)} queries may attend to it"
                position = batch["position_ids"][row, index]
                rows = sinusoidal_encoding(position, 16, convention=settings.get("convention", "vaswani"))
                torch.testing.assert_close(torch.tensor(numbers(shown["encoding"])), rows[:6], rtol=0, atol=6e-5)
            drawn = torch.tensor(view.mask())
            assert torch.equal(drawn[real], (allowed[row] & real)[real])
            assert not drawn[~real].any()

    def test_two_tokens_are_compared_and_each_refusal_has_its_reason(
        self, opened: Callable[..., View], word_level: Any
    ) -> None:
        collate = DataCollatorWithPositionalEncoding(word_level, packing=True, look_ahead=True, max_length=12)
        view = opened(collate(["I ride bike", "bike ride"]))
        view.token(0, 1).click()
        for token, sentence in {
            2: "“ride” may not attend to “bike”: the key comes later (look-ahead mask). “bike” may attend to “ride”.",
            3: "“ride” may not attend to “bike”: the key belongs to another document. "
            "“bike” may not attend to “ride”: the key belongs to another document.",
        }.items():
            view.token(0, token).hover()
            assert view.panel()["query and key"] == sentence
        assert "document 1" in view.first_value()
        rows = sinusoidal_encoding(torch.tensor([1, 0]), 64).double()
        dot, distance = numbers(view.panel()["positions 1 and 0"])
        assert dot == pytest.approx(float(rows[0] @ rows[1]), abs=1e-4)
        assert distance == pytest.approx(float((rows[0] - rows[1]).norm()), abs=1e-4)
        assert view.page.locator(".legend").inner_text().split() == ["may", "attend", "look-ahead", "other", "document"]

    def test_the_encoding_is_drawn_as_an_example_or_not_at_all_if_the_batch_has_none(
        self, opened: Callable[..., View], word_level: Any
    ) -> None:
        settings: dict[str, dict[str, Any]] = {"encoding": {"embedding": 8}, "example": {}}
        for name, chosen in (*settings.items(), ("none", {"model": small_bert(word_level)})):
            view = opened(DataCollatorWithPositionalEncoding(word_level, **chosen)(TEXTS))
            view.token(0, 1).click()
            assert {"encoding", "example"} & set(view.panel()) == {name} - {"none"}
            titles = view.page.locator("figcaption").all_inner_texts()
            assert any("encoding" in title.lower() for title in titles) == (name != "none")
            assert (view.page.get_by_text("not part of the batch:").count() > 0) == (name == "example")
            assert (view.page.get_by_text("BertModel has its own positions").count() > 0) == (name == "none")

    def test_a_mask_in_four_dimensions_is_drawn_as_it_is(self, opened: Callable[..., View]) -> None:
        mask = torch.zeros(1, 1, 4, 4)
        mask[0, 0, 0, 1:] = mask[0, 0, 3, 0] = torch.finfo(torch.float32).min
        view = opened(Batch({"input_ids": torch.tensor([[5, 6, 7, 8]]), "attention_mask": mask}))
        assert torch.equal(torch.tensor(view.mask()), mask[0, 0] == 0)

    def test_of_several_masks_one_is_chosen_with_the_keyboard(self, opened: Callable[..., View]) -> None:
        order = torch.ones(5, 5, dtype=torch.bool).tril()
        window = order & ~torch.ones(5, 5, dtype=torch.bool).tril(-2)
        masks = {"full_attention": order[None, None], "sliding_attention": window[None, None]}
        view = opened(Batch({"input_ids": torch.arange(5)[None], "attention_mask": masks}))
        chosen = view.page.get_by_label("Mask of the layers of kind")
        assert chosen.locator("option").all_inner_texts() == list(masks)
        chosen.focus()
        for key, mask in (("ArrowDown", window), ("ArrowUp", order), ("ArrowDown", window)):
            view.page.keyboard.press(key)
            assert torch.equal(torch.tensor(view.mask()), mask)
            for token in range(5):
                view.token(0, token).hover()
                shown = view.panel()
                assert shown["as a query"].startswith(f"may attend to {int(mask[token].sum())} of 5 keys")
                assert shown["as a key"] == f"{int(mask[:, token].sum())} of 5 queries may attend to it"
            chosen.focus()
        assert view.page.locator(".figures b").first.inner_text().startswith("Mask of sliding_attention, row 0")

    def test_a_single_mask_has_no_choice(self, opened: Callable[..., View], word_level: Any) -> None:
        assert opened(collator(word_level)(TEXTS)).page.locator("select").count() == 0

    def test_the_keyboard_reaches_every_token(self, opened: Callable[..., View], word_level: Any) -> None:
        view = opened(collator(word_level)(TEXTS))
        press = view.page.keyboard.press
        for _ in range(4):  # past the two choices
            press("Tab")
            if view.page.evaluate("document.activeElement.shadowRoot.activeElement.role") == "gridcell":
                break
        press("ArrowRight")
        assert view.first_value().startswith("token 1 · ")
        press("End")
        assert view.first_value().startswith("token 5 · ")
        press("ArrowDown")
        press("Enter")
        press("Home")
        assert "dot product" in view.panel()["positions 5 and 0"]
        press("Escape")
        assert "positions 5 and 0" not in view.panel()

    def test_tokens_that_look_like_html_are_text(self, opened: Callable[..., View], wordpiece: Any) -> None:
        wordpiece.add_tokens(["</script><script>alert(1)</script>", "<!--<script>"])
        view = opened(DataCollatorWithPositionalEncoding(wordpiece)(["</script><script>alert(1)</script><!--<script>"]))
        assert view.token(0, 1).locator("span").inner_text() == "</script><script>alert(1)</script>"

    @pytest.mark.parametrize("width", [360, 768])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_fits_a_phone_in_light_and_dark(
        self, width: int, scheme: str, opened: Callable[..., View], word_level: Any
    ) -> None:
        view = opened(collator(word_level)(TEXTS), viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert view.page.evaluate("document.documentElement.scrollWidth") <= width
        assert view.page.locator("[data-theme]").get_attribute("data-theme") == scheme


def test_show_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hf_posenc.cli import main

    with pytest.raises(SystemExit) as end:
        main(["show", "I ride bike", "--html", str(tmp_path / "batch.html")])
    assert end.value.code in (0, None)
    assert "batch.html" in capsys.readouterr().out
    page = (tmp_path / "batch.html").read_text(encoding="utf-8")
    assert "<title>I ride bike</title>" in page
    assert json.dumps("position_ids") in page

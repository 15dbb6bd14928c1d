"""The view of a batch, also in a real browser: masks and weights against the tensors, mouse and keyboard, themes."""

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
    MaskedLM,
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
    assert re.findall(r"(?:src|href|url|import|fetch)\s*[=(].{8}", page) == ['href="data:,"']  # no icon is looked for
    assert len(DataCollatorWithPositionalEncoding(word_level)(TEXTS).to_html().encode()) < 50_000


def test_the_angles_are_those_of_the_embeddings_convention_and_base(word_level: Any) -> None:
    choices: list[dict[str, Any]] = [{}, {"base": 9}, {"convention": "marian"}, {}]
    first, base, convention, again = (collator(word_level, **settings)(TEXTS).to_html() for settings in choices)
    assert first == again
    assert len({first, base, convention}) == 3


def small_bert(tokenizer: Any) -> BertModel:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).eval()


def test_sinusoids_that_are_not_in_the_batch_are_labeled_as_an_example(word_level: Any) -> None:
    batch = DataCollatorWithPositionalEncoding(word_level)(TEXTS)
    label = '"note":"The encoding is an example, not part of the batch: sinusoids of width 64."'
    assert label in batch.to_html()
    assert label in pickle.loads(pickle.dumps(batch)).to_html()


def test_labels_are_shown_as_tokens_only_if_they_are_ids(word_level: Any) -> None:
    row = {"input_ids": word_level("a b c")["input_ids"], "labels": [3, -100, 0]}
    word_level.mask_token = "the"
    assert '"labels":["3",null,"0"]' in DataCollatorWithPositionalEncoding(word_level)([row]).to_html()
    for labels, shifted in (("causal_lm", "true"), (MaskedLM(1.0), "false")):  # a model may shift them
        page = DataCollatorWithPositionalEncoding(word_level, labels=labels)(["a b c"]).to_html()  # type: ignore[arg-type]
        assert f'"labels":["a","b","c"],"isShifted":{shifted}' in page


def test_labels_of_rows_stand_at_their_rows_and_those_of_a_decoder_at_no_token(word_level: Any) -> None:
    for labels in ([2, 0], [0.3, 0.25]):
        rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels, strict=True)]
        page = DataCollatorWithPositionalEncoding(word_level)(rows).to_html()
        assert re.findall(r'"label":([^,}]+)', page) == [str(label) for label in labels]
    collate = DataCollatorWithPositionalEncoding(word_level, text_target_column="target")
    batch = collate([{"text": "a b c", "target": "the a b"}])
    assert batch["labels"].shape == batch["input_ids"].shape
    assert '"labels":null' in batch.to_html()


def test_a_batch_of_100_000_tokens_is_a_small_page_that_names_the_part_it_shows() -> None:
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
    patches = plots.masks(batch).legends[0].legend_handles
    meanings = {
        "yes": "may attend",
        "padding": "padding",
        "later": "later token (look-ahead)",
        "other": "other document",
    }
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
        return self.page.locator(f"[data-row='{row}'][data-token='{token}']")

    def cell(self, query: int, key: int) -> Any:
        return self.page.locator(f".all [data-query='{query}'][data-key='{key}']")

    def sentence(self) -> str:
        return str(self.page.locator(".sentence").inner_text())

    def squares(self, expression: str) -> list[list[Any]]:
        """The result of a JavaScript expression of `cell`, for each query and key of the chosen row."""
        found = self.page.eval_on_selector_all(".all td[data-query]", f"cells => cells.map(cell => {expression})")
        length = int(len(found) ** 0.5)
        return [found[start : start + length] for start in range(0, len(found), length)]

    def mask(self) -> list[list[bool]]:
        return self.squares("cell.classList.contains('yes')")


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
        page.on(
            "request", lambda request: None if request.url in (file.as_uri(), "data:,") else wrong.append(request.url)
        )
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
    def test_masks_and_weights_are_those_of_the_tensors(
        self, settings: dict[str, Any], opened: Callable[..., View], word_level: Any
    ) -> None:
        collate = collator(word_level, labels="causal_lm", **settings)
        batch = collate(TEXTS)
        view = opened(batch)
        allowed = AttentionMask.from_batch(batch, look_ahead="look_ahead_mask" in batch).dense()[:, 0]
        for row, tokens in enumerate(collate.tokens(batch)):
            real, positions = batch["attention_mask"][row].bool(), batch["position_ids"][row]
            view.token(row, 0).click()
            may = allowed[row] & real & real[:, None]
            assert torch.equal(torch.tensor(view.mask()), may)
            rows = sinusoidal_encoding(
                torch.stack([positions - 1, positions]), 16, convention=settings.get("convention", "vaswani")
            )
            scores = (12 * rows[0] @ rows[1].T / 16**0.5).masked_fill(~may, -torch.inf)
            weights = scores.softmax(-1)[real].nan_to_num()
            shown = torch.tensor([[float(cell or 0) for cell in line] for line in view.squares("cell.innerText")])
            torch.testing.assert_close(shown[real], weights, rtol=0, atol=0.0051)
            for index, token in enumerate(tokens):
                view.token(row, index).hover()
                place = f"position {positions[index]}" if real[index] else "padding"
                assert view.sentence().startswith(
                    f"“{token}”: column {index}, id {batch['input_ids'][row, index]}, {place}"
                )
                label = batch["labels"][row, index]
                assert ("label −100: not counted" if label == -100 else f"label “{token}”, ") in view.sentence()

    def test_each_refusal_has_its_reason(self, opened: Callable[..., View], word_level: Any) -> None:
        collate = DataCollatorWithPositionalEncoding(word_level, packing=True, look_ahead=True, max_length=12)
        view = opened(collate(["I ride bike", "bike ride"]))
        for query, key, words in (
            (1, 2, "“ride” at position 1 may not attend to key “bike” at position 2: the key comes later"),
            (2, 1, "“bike” at position 2 may attend to key “ride” at position 1."),
            (4, 1, "“ride” at position 1 may not attend to key “ride” at position 1: the key belongs to another"),
        ):
            view.cell(query, key).hover()
            assert view.sentence().startswith(f"Query {words}")
        view.token(0, 3).hover()
        assert "document 1" in view.sentence()
        assert view.page.locator(".legend").inner_text().split() == ["may", "attend", "later", "other", "document"]

    def test_a_click_stays_through_moves_of_the_mouse(self, opened: Callable[..., View], word_level: Any) -> None:
        view = opened(collator(word_level)(TEXTS))
        view.token(0, 2).click()
        chosen = view.sentence()
        for target in (view.token(1, 4), view.token(1, 0), view.cell(3, 1)):
            target.hover()
            assert view.sentence() != chosen
        view.page.mouse.move(2, 2)
        assert view.sentence() == chosen
        assert view.page.locator("td.query").get_attribute("data-token") == "2"

    def test_the_encoding_is_that_of_the_batch_an_example_or_not_shown(
        self, opened: Callable[..., View], word_level: Any
    ) -> None:
        for settings, dials in (({"embedding": 8}, 4), ({}, 16), ({"model": small_bert(word_level)}, 0)):
            view = opened(DataCollatorWithPositionalEncoding(word_level, **settings)(TEXTS))  # type: ignore[arg-type]
            assert view.page.locator(".dials figure:visible").count() == dials
            assert view.page.locator("h3:visible").count() == (4 if dials else 2)
            assert (view.page.get_by_text("The encoding is an example").count() > 0) == (dials == 16)
            assert (view.page.get_by_text("No encoding is shown").count() > 0) == (dials == 0)

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

    def test_rows_are_shown_eight_at_a_time(self, opened: Callable[..., View]) -> None:
        view = opened(Batch({"input_ids": torch.arange(36).reshape(12, 3)}))
        assert view.page.locator("[role=grid]").first.locator("tr").count() == 1 + 8
        view.page.get_by_label("Rows").select_option(index=1)
        assert view.page.locator("[data-token='0'] span").all_inner_texts() == ["24", "27", "30", "33"]
        assert view.page.get_by_text("All queries of row 8").count() == 1

    def test_the_keyboard_reaches_every_token_and_every_cell(
        self, opened: Callable[..., View], word_level: Any
    ) -> None:
        view = opened(collator(word_level)(TEXTS))
        press = view.page.keyboard.press
        press("Tab")
        for key, place in (
            ("Home", "column 0"),
            ("ArrowRight", "column 1"),
            ("End", "column 5"),
            ("ArrowDown", "column 5"),
        ):
            press(key)
            assert place in view.sentence()
        assert view.page.locator("td.query").get_attribute("data-row") == "1"
        view.cell(0, 0).focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End", "ArrowLeft"):
            press(key)
        assert view.page.locator(".all td.chosen").evaluate("cell => [cell.dataset.query, cell.dataset.key]") == [
            "2",
            "4",
        ]

    def test_two_batches_in_a_page_share_nothing(self, chromium: Any, word_level: Any, tmp_path: Path) -> None:
        file = tmp_path / "two.html"
        first, second = collator(word_level)(TEXTS), collator(word_level, padding_side="left")(TEXTS)
        file.write_text("<!doctype html>" + first.to_html() + second.to_html() + first.to_html(), encoding="utf-8")
        page = chromium.new_page()
        page.goto(file.as_uri())
        before = page.locator(".query[data-token]").evaluate_all("cells => cells.map(cell => cell.dataset.token)")
        assert len(before) == 3
        page.locator("[data-row='1'][data-token='4']").nth(1).click()
        after = page.locator(".query[data-token]").evaluate_all("cells => cells.map(cell => cell.dataset.token)")
        assert after == [before[0], "4", before[2]]
        assert page.evaluate("typeof makeViews") == "undefined"
        page.close()

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

"""The pictures of a batch, compared with the batch itself and with `AttentionMask`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from looping import for_each, slow
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from test_plots_positions import note

from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, ModelSpec, plots

# The numbers of a matrix: the picture's docstring.
ALLOWED, PADDING, LATER, OTHER, HIDDEN, FROM_PADDING = range(6)
GRAY = "#6A6A6A"  # labels of padding
WORDS = [
    "Ġinternationalization",
    "我每天",
    "שלום",
    "أركب",
    "$x$",
    "\n",
    "👍🏽",
    "ride",
    "[PAD]",
    "##ising",
    "",
    "หมา",
    "हिन्दी",
    "a" * 300,
]


def made(lengths: list[int], columns: int, *, side: str = "right", width: int = 0) -> dict[str, torch.Tensor]:
    """Return a batch with rows of these lengths, ids from 100 up, padding 0."""
    rows, column = len(lengths), torch.arange(columns)
    length = torch.tensor(lengths)[:, None]
    keep = column < length if side == "right" else column >= columns - length  # (B, T)
    batch = {
        "input_ids": (torch.arange(rows * columns).view(rows, columns) + 100) * keep,
        "attention_mask": keep.long(),
        "position_ids": (keep.cumsum(1) - 1).clamp(min=0),
        "look_ahead_mask": torch.ones(columns, columns, dtype=torch.bool).tril().expand(rows, 1, columns, columns),
    }
    if width:
        batch["inputs_embeds"] = torch.linspace(-2, 1, rows * columns * width).view(rows, columns, width)
    return batch


def panel(figure: Any, name: str) -> Axes:
    assert isinstance(figure, Figure)
    return next(axes for axes in figure.axes if axes.get_title().replace("\n", " ").startswith(name))


def drawn(axes: Axes) -> Any:
    return axes.images[0].get_array()


def cells(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_each_panel_shows_its_entry_of_the_batch() -> None:
    batch = made([8, 3], 8, width=4)
    figure = plots.batch(batch)
    assert np.array_equal(drawn(panel(figure, "tokens")), batch["attention_mask"])
    assert np.array_equal(drawn(panel(figure, "attention_mask")), batch["attention_mask"])
    assert np.array_equal(drawn(panel(figure, "look_ahead_mask")) == ALLOWED, np.tri(8, dtype=bool))
    assert np.array_equal(drawn(panel(figure, "inputs_embeds")), batch["inputs_embeds"][0])
    positions = drawn(panel(figure, "position_ids"))
    assert np.array_equal(positions.mask, batch["attention_mask"] == 0)  # what is masked shows as padding
    assert positions.compressed().tolist() == [*range(8), *range(3)]
    assert cells(panel(figure, "position_ids")) == [str(p) for p in batch["position_ids"].flatten().tolist()]
    assert cells(panel(figure, "tokens")) == [str(token) for token in batch["input_ids"].flatten().tolist()]
    assert panel(figure, "position_ids").get_title() == "position_ids: 0 to 7"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["may attend", "padding", "later token (look-ahead)"]


@pytest.mark.parametrize("length", [8, 30])
def test_the_picture_of_one_text_is_filled_by_its_panels(length: int) -> None:
    figure = plots.batch(made([length], length))
    figure.draw_without_rendering()
    boxes = {axes.get_title(): axes.get_window_extent().extents for axes in figure.axes}  # left, bottom, right, top
    mask, strip = boxes["look_ahead_mask of row 0"], boxes["attention_mask"]
    assert mask[0] > strip[2]  # beside the strips
    assert mask[3] == pytest.approx(strip[3], rel=0.05)
    area = sum((right - left) * (top - bottom) for left, bottom, right, top in boxes.values())
    assert area > 0.45 * figure.bbox.width * figure.bbox.height


def test_the_colors_of_embeddings_are_symmetric_around_zero() -> None:
    batch = made([8, 3], 8, width=4)
    values = np.abs(batch["inputs_embeds"][0].numpy())
    axes = panel(plots.batch(batch), "inputs_embeds")
    end = float(np.percentile(values, 99))
    assert axes.images[0].get_clim() == pytest.approx((-end, end))
    assert axes.get_title().endswith(f"colors end at ±{end:.2g}, the 99th percentile")


def test_all_panels_show_the_same_tokens_on_the_padded_side() -> None:
    for side in ("right", "left"):
        batch = made([100, 5], 100, side=side, width=4)
        figure = plots.batch(batch)
        count = drawn(panel(figure, "tokens")).shape[1]
        begin = 0 if side == "right" else 100 - count
        shown = slice(begin, begin + count)
        for name, values in (("tokens", batch["attention_mask"]), ("attention_mask", batch["attention_mask"])):
            assert np.array_equal(drawn(panel(figure, name)), values[:, shown])
        assert np.array_equal(drawn(panel(figure, "position_ids"))[0], batch["position_ids"][0, shown])
        assert np.array_equal(drawn(panel(figure, "inputs_embeds")), batch["inputs_embeds"][0, shown])
        assert np.array_equal(drawn(panel(figure, "look_ahead_mask")) != LATER, np.tri(count, dtype=bool))
        first_row = [str(number) for number in batch["input_ids"][0, shown].tolist()]
        assert labels(panel(figure, "look_ahead_mask")) == (first_row, first_row)
        for name in ("tokens", "attention_mask"):
            assert panel(figure, name).images[0].get_extent()[:2] == [begin - 0.5, begin + count - 0.5]


def test_the_look_ahead_mask_has_the_tokens_and_the_padding_of_the_first_row() -> None:
    tokens = [["no", "<pad>", "<pad>"], ["I", "ride", "bike"]]
    axes = panel(plots.batch(made([1, 3], 3), tokens), "look_ahead_mask of row 0")
    assert labels(axes) == (tokens[0], tokens[0])
    assert drawn(axes).tolist() == [
        [ALLOWED, LATER, LATER],
        [FROM_PADDING, FROM_PADDING, LATER],
        [FROM_PADDING, FROM_PADDING, FROM_PADDING],
    ]


def test_the_look_ahead_mask_of_a_decoder_has_the_tokens_of_the_decoder(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, text_column="a", text_target_column="b")
    batch = collate([{"a": "a b c d", "b": "the a"}, {"a": "a", "b": "b"}])
    axes = panel(plots.batch(batch), "look_ahead_mask of decoder row 0")
    expected = word_level.convert_ids_to_tokens(batch["decoder_input_ids"][0].tolist())
    assert labels(axes) == (expected, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"labels": "causal_lm", "padding_side": "left"},
        {"labels": "masked_lm"},
        {"labels": "causal_lm", "packing": True},
    ],
)
def test_labels_are_drawn_below_their_tokens_in_gray_if_they_do_not_count(word_level: Any, settings: Any) -> None:
    word_level.mask_token = "the"
    batch = DataCollatorWithPositionalEncoding(word_level, max_length=8, seed=0, **settings)(["a b c d e", "a b"])
    figure = plots.batch(batch)
    axes = panel(figure, "labels")
    assert cells(axes) == [str(number) for number in batch["labels"].flatten().tolist()]
    assert np.array_equal(drawn(axes), batch["labels"] != -100)
    titles = [axes.get_title() for axes in figure.axes]
    assert any("look_ahead" in title for title in titles) == (settings["labels"] == "causal_lm")


def test_labels_of_rows_and_of_a_decoder_have_columns_of_their_own(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, text_column="a", text_target_column="b")
    decoder = collate([{"a": "a b c d", "b": "the a"}])["labels"]
    for labels, words in ((torch.tensor([2]), ["2"]), (decoder, [str(label) for label in decoder[0].tolist()])):
        assert cells(panel(plots.batch(made([4], 4) | {"labels": labels}), "labels")) == words


def test_in_packed_rows_the_look_ahead_mask_hides_other_documents(word_level: Any) -> None:
    batch = DataCollatorWithPositionalEncoding(word_level, packing=True, max_length=8)(["a b c", "a b"])
    axes = panel(plots.batch(batch), "look_ahead_mask and documents of row 0")
    expected = AttentionMask.from_batch(batch, look_ahead=True).dense()[0, 0]
    assert np.array_equal(drawn(axes) == ALLOWED, expected)
    assert set(drawn(axes)[np.tri(5, dtype=bool)].tolist()) == {ALLOWED, OTHER}


def test_documents_of_packed_rows_are_drawn_and_their_tokens_are_real() -> None:
    ids = torch.tensor([[0, 0, 1, 1], [0, 0, 0, -1]])
    figure = plots.batch({"input_ids": torch.ones(2, 4, dtype=torch.long), "document_ids": ids})
    assert cells(panel(figure, "document_ids")) == [str(number) for number in ids.flatten().tolist()]
    assert np.array_equal(drawn(panel(figure, "tokens")), ids >= 0)


def test_tokens_are_shown_in_their_cells_with_padding_in_gray() -> None:
    tokens = [["I", "ride", "bike"], ["no", "<pad>", "<pad>"]]
    axes = panel(plots.batch(made([3, 1], 3), tokens), "tokens")
    assert cells(axes) == ["I\n100", "ride\n101", "bike\n102", "no\n103", "<pad>\n0", "<pad>\n0"]  # with their ids
    colors = [text.get_color() for text in axes.texts]
    assert len(set(colors[:4])) == len(set(colors[4:])) == 1
    assert colors[0] != colors[4]


def test_other_entries_and_missing_values_are_ignored() -> None:
    batch = {"input_ids": np.ones((2, 3), dtype=int), "text": ["a", "b"], "position_ids": None, "inputs_embeds": None}
    assert [axes.get_title() for axes in plots.batch(batch).axes] == ["tokens"]
    figure = plots.batch({"inputs_embeds": torch.ones(2, 4, 3, dtype=torch.bfloat16, requires_grad=True)})
    assert [axes.get_title()[:6] for axes in figure.axes[:2]] == ["tokens", "inputs"]
    assert [axes.get_title() for axes in plots.masks(batch).figure.axes][-1] == "padding mask of every row"


def test_of_a_large_batch_the_first_rows_and_tokens_are_drawn() -> None:
    figure = plots.batch(made([90] * 40, 100, width=600))
    note = figure.legends[0].get_title().get_text()
    shown = drawn(panel(figure, "tokens")).shape[1]  # as many as can be read
    assert 8 <= shown < 64
    assert note == f"40 rows × 100 tokens; the first 16 rows are drawn; tokens 0 to {shown - 1} are drawn"
    assert panel(figure, "tokens").get_title() == f"tokens 0 to {shown - 1} of 100"
    assert drawn(panel(figure, "attention_mask")).shape == (16, shown)
    assert drawn(panel(figure, "inputs_embeds")).shape == (shown, 600)


@pytest.mark.parametrize(("rows", "columns"), [(2, 20), slow(3, 40), slow(1, 1)])
def test_tokens_fit_their_cells_and_titles_do_not_overlap(rows: int, columns: int) -> None:
    tokens = [[WORDS[(row + column) % len(WORDS)] for column in range(columns)] for row in range(rows)]
    figure = plots.batch(made([columns] * rows, columns, width=16), tokens)
    figure.canvas.draw()
    axes = panel(figure, "tokens")
    box = axes.get_window_extent()
    columns = drawn(axes).shape[1]
    assert len(axes.texts) == rows * columns
    for text in axes.texts:
        extent = text.get_window_extent()
        assert text.get_rotation() == 0
        assert extent.width <= box.width / columns
        assert extent.height <= box.height / rows
    mask = panel(figure, "look_ahead_mask")
    for texts in (mask.get_xticklabels(), mask.get_yticklabels()):
        extents = [text.get_window_extent() for text in texts]
        assert not any(one.overlaps(two) for i, one in enumerate(extents) for two in extents[:i])
    titles = [axes.title.get_window_extent() for axes in figure.axes]
    for i, one in enumerate(titles):
        assert not any(one.overlaps(two) for two in titles[:i] if one.width and two.width)


def test_given_axes_show_the_tokens_alone() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.batch(made([3, 1], 3), ax=right) is figure
    assert not left.images
    assert len(figure.axes) == 2
    assert right.get_title() == "tokens"


@pytest.mark.parametrize("picture", [plots.batch, plots.masks])
def test_lists_instead_of_tensors_are_refused(picture: Any, word_level) -> None:
    for lists in (word_level(["a b", "a"]), ["a b", "a"]):
        with pytest.raises(
            TypeError, match=r"a batch is a mapping.* to tensors or arrays\n.*\n  fix: .*return_tensors"
        ):
            picture(lists)


@pytest.mark.parametrize("picture", [plots.batch, plots.masks])
def test_masks_and_positions_must_fit_the_tokens_or_be_one_row_for_all(picture: Any) -> None:
    ids = np.ones((2, 3), dtype=int)
    with pytest.raises(ValueError, match=r"'attention_mask' does not fit.*\n  got: shape \(2, 4\).*\(2, 3\)"):
        picture({"input_ids": ids, "attention_mask": np.ones((2, 4))})
    with pytest.raises(ValueError, match=r"'position_ids' does not fit.*\n  got: shape \(3, 3\).*\(2, 3\)"):
        picture({"input_ids": ids, "position_ids": np.ones((3, 3), dtype=int)})
    figure = picture({"input_ids": ids, "position_ids": np.arange(3)[None]})
    (ax,) = (axes for axes in figure.axes if axes.get_title().startswith("position_ids"))
    assert np.asarray(ax.images[0].get_array()).tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("style", ["dark_background", slow("ggplot")])
def test_a_picture_has_the_colors_of_the_matplotlib_style(style: str, tmp_path: Path) -> None:
    from matplotlib import image, rcParams
    from matplotlib.style import context

    with context(style):
        chosen = dict(rcParams)
        figure = plots.masks(made([3, 1], 3))
        curves = plots.curves(8, 20)
        for picture in (figure, curves):
            page = image.imread(plots.save(picture, tmp_path / "page.png"))
            assert np.allclose(page[0, :, :3], to_rgba(rcParams["figure.facecolor"])[:3])
        own = Figure(layout="constrained").subplots()
        assert plots.curves(8, 20, ax=own).axes[0].get_facecolor() != (1.0, 1.0, 1.0, 1.0)
        assert dict(rcParams) == chosen
    for axes in (*figure.axes, *curves.axes):
        assert axes.title.get_color() == chosen["text.color"]
        assert {word.get_color() for word in axes.get_yticklabels()} <= {chosen["ytick.color"], GRAY}


def padded(side: str = "right", *, look_ahead: bool = True) -> dict[str, torch.Tensor]:
    """Return three rows as the collator pads them."""
    batch = made([4, 2, 1], 4, side=side)
    return {name: batch[name] for name in batch if look_ahead or name != "look_ahead_mask"}


def labels(axes: Axes) -> tuple[list[str], list[str]]:
    return [text.get_text() for text in axes.get_xticklabels()], [text.get_text() for text in axes.get_yticklabels()]


def allowed(batch: Any, row: int = 0, **settings: Any) -> np.ndarray:
    """Return the matrix `(T, T)` of a row: True where the query, padding or not, may attend to the key."""
    return drawn(plots.masks(batch, row=row, ax=Figure().subplots(), **settings).axes[0]) % FROM_PADDING == 0


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("look_ahead", [True, False])
def test_a_query_may_attend_to_real_tokens_that_are_not_later(side: str, look_ahead: bool) -> None:
    batch = padded(side, look_ahead=look_ahead)
    real = batch["attention_mask"].numpy() == 1
    for row in range(3):
        order = np.tri(4, dtype=bool) if look_ahead else np.ones((4, 4), dtype=bool)
        mask = drawn(plots.masks(batch, row=row, ax=Figure().subplots()).axes[0])
        assert np.array_equal((mask == ALLOWED)[real[row]], (order & real[row])[real[row]])
        assert (mask[~real[row]] == np.where(real[row], FROM_PADDING, PADDING)).all()
    assert np.array_equal(drawn(panel(plots.masks(batch), "padding mask of every row")), real)


@pytest.mark.parametrize("causal", [True, False])
def test_documents_and_the_mask_for_a_model_allow_what_attention_mask_allows(word_level: Any, causal: bool) -> None:
    names = ("input_ids", "attention_mask", "position_ids")
    spec = ModelSpec(accepts=names, positions=("learned",), is_causal=causal, takes_4d_mask=True)
    texts, settings = ["a b c", "a b", "the a"], {"packing": True, "max_length": 8, "padding": "max_length"}
    for_model = DataCollatorWithPositionalEncoding(word_level, model=spec, **settings)(texts)
    plain = DataCollatorWithPositionalEncoding(word_level, look_ahead=causal, **settings)(texts)
    assert for_model["attention_mask"].dtype == torch.float32
    real = plain["document_ids"].numpy() >= 0
    expected = AttentionMask.from_batch(plain, look_ahead=causal).dense()[:, 0].numpy()
    for row in range(len(real)):  # queries at padding do not count
        for batch in (plain, for_model):
            assert np.array_equal(allowed(batch, row)[real[row]], expected[row][real[row]])
    ours, theirs = (drawn(panel(plots.masks(batch), "document_ids")) for batch in (for_model, plain))
    assert np.array_equal(np.ma.filled(ours, -1), np.ma.filled(theirs, -1))


def test_masks_of_four_dimensions_may_be_bool_additive_for_all_queries_or_by_kind_of_layer() -> None:
    keep = torch.tensor([[True, True, False]])
    additive = torch.zeros(1, 1, 1, 3).masked_fill(~keep[:, None, None], torch.finfo(torch.float32).min)
    whole = keep[:, None, None].expand(1, 1, 3, 3)
    for mask in (keep[:, None, None], whole, additive, additive.bfloat16(), {"full_attention": additive}):
        batch = {"input_ids": torch.ones(1, 3, dtype=torch.long), "attention_mask": mask}
        assert allowed(batch).tolist() == [[True, True, False]] * 3
        assert drawn(panel(plots.masks(batch), "padding mask of every row")).tolist() == keep.tolist()


def test_masks_for_several_kinds_of_layers_are_all_drawn() -> None:
    order = torch.ones(5, 5, dtype=torch.bool).tril()
    window = order & ~torch.ones(5, 5, dtype=torch.bool).tril(-2)
    kinds = {"full_attention": order[None, None], "sliding_attention": window[None, None]}
    batch = {"input_ids": torch.arange(5)[None], "attention_mask": kinds}
    figure = plots.masks(batch)
    for kind, mask in (("full_attention", order), ("sliding_attention", window)):
        cells_of_kind = drawn(panel(figure, f"mask of {kind}"))
        assert np.array_equal(cells_of_kind == ALLOWED, mask)
        assert np.array_equal(cells_of_kind == LATER, ~order)
    axes = plots.masks(batch | {"position_ids": torch.tensor([[0, 1, 0, 1, 2]])}, ax=Figure().subplots()).axes[0]
    assert note(axes) == "mask of sliding_attention"
    assert np.array_equal(drawn(axes) == OTHER, np.array([[0, 0, 1, 1, 1]] * 2 + [[1, 1, 0, 0, 0]] * 3))


def test_the_masks_of_an_encoder_decoder_are_those_of_its_encoder(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, text_column="a", text_target_column="b")
    batch = collate([{"a": "a b c", "b": "a b"}, {"a": "a", "b": "the a b d e"}])
    figure = plots.masks(batch)
    assert [axes.get_title() for axes in figure.axes][:2] == ["padding mask", "padding mask of every row"]
    assert np.array_equal(drawn(figure.axes[1]), batch["attention_mask"] == 1)


def test_positions_and_documents_of_every_row_are_drawn_below(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, packing=True, max_length=8, padding="max_length")
    batch = collate(["a b c", "a b", "the a", "b c d e f"])
    figure = plots.masks(batch, row=0)
    real = np.asarray(batch["document_ids"]) >= 0
    assert np.array_equal(drawn(panel(figure, "padding mask of every row")), real)
    positions = panel(figure, "position_ids: 0 to 4").images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(positions), ~real)
    assert np.array_equal(np.ma.compressed(positions), np.asarray(batch["position_ids"])[real])
    documents = panel(figure, "document_ids: 0 to 1")
    assert [text.get_text() for text in documents.texts] == [str(i) for i in batch["document_ids"].flatten().tolist()]
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == ["look-ahead mask", "same document", "look-ahead and document"]  # the row has no padding


def test_colors_of_masks_differ_in_lightness_without_green_receptors() -> None:
    """The cells of a mask are distinguishable with deuteranopia: Machado, Oliveira and Fernandes 2009, table 1."""
    seen = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]])
    axes = plots.masks(padded(), ax=Figure().subplots()).axes[0]
    colors = axes.images[0].get_cmap()(range(6))[:, :3]
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    for image in (np.eye(3), seen):
        luminance = np.clip(linear @ image.T, 0, 1) @ [0.2126, 0.7152, 0.0722]
        lightness = 116 * np.cbrt(luminance) - 16
        order = np.sort(lightness[[PADDING, LATER, ALLOWED]])
        assert (np.diff(order) > 14).all()
        assert lightness[PADDING] - lightness[FROM_PADDING] > 12


def test_each_reason_has_its_color_and_a_name_in_the_legend() -> None:
    ids, mask = np.array([[0, 0, 1, -1]]), np.tri(4, dtype=bool)
    batch = {"input_ids": np.ones((1, 4)), "document_ids": ids, "look_ahead_mask": mask}
    figure = plots.masks(batch)
    assert drawn(panel(figure, "all combined")).tolist() == [
        [ALLOWED, LATER, OTHER, PADDING],
        [ALLOWED, ALLOWED, OTHER, PADDING],
        [OTHER, OTHER, ALLOWED, PADDING],
        [FROM_PADDING, FROM_PADDING, FROM_PADDING, PADDING],  # as in rows that are padded, not packed
    ]
    assert drawn(panel(figure, "look-ahead mask"))[0].tolist() == [ALLOWED, LATER, LATER, LATER]
    assert drawn(panel(figure, "padding mask"))[0].tolist() == [ALLOWED, ALLOWED, ALLOWED, PADDING]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["may attend", "padding", "later token (look-ahead)", "other document", "query is padding"]
    window = {"input_ids": np.ones((1, 3)), "attention_mask": (np.tri(3) - np.tri(3, k=-2) > 0)[None, None]}
    shown = drawn(panel(plots.masks(window), "attention_mask of 4 dimensions")).tolist()
    assert shown == [[ALLOWED, LATER, LATER], [ALLOWED, ALLOWED, LATER], [HIDDEN, ALLOWED, ALLOWED]]
    window["attention_mask"] = ~np.eye(3, k=2, dtype=bool)[None, None]  # one later key is allowed
    assert drawn(panel(plots.masks(window), "attention_mask of 4 dimensions"))[0].tolist() == [ALLOWED, ALLOWED, HIDDEN]


def test_a_legend_of_all_meanings_is_inside_the_figure() -> None:
    ids, window = np.array([[0] * 9 + [1] * 4 + [-1] * 3]), np.tri(16, dtype=bool) & ~np.tri(16, k=-3, dtype=bool)
    real = (ids[0] >= 0)[None, None, None]
    batch = {"input_ids": np.ones((1, 16)), "attention_mask": window & real, "document_ids": ids}
    figure = plots.masks(batch, [["[PAD]"] * 16])  # words for which few matrices fit beside each other
    figure.draw_without_rendering()
    assert len(figure.legends[0].get_texts()) == 6
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_by_default_the_row_with_the_most_documents_and_padding_is_drawn() -> None:
    for row, expected in ((None, 2), (0, 0), (-2, 1)):
        figure = plots.masks(padded(), row=row)
        assert figure.legends[0].get_title().get_text() == f"row {expected} of 3 rows × 4 tokens"
    packed = {"input_ids": np.ones((2, 3)), "document_ids": np.array([[0, 0, -1], [0, 1, 2]])}
    figure = plots.masks(packed)
    assert figure.legends[0].get_title().get_text().startswith("row 1 ")


def test_a_batch_shows_its_tokens_and_another_mapping_its_ids(word_level: Any) -> None:
    batch = DataCollatorWithPositionalEncoding(word_level)(["a b", "a"])
    figure = plots.masks(batch)
    assert labels(figure.axes[0]) == (["a", "[PAD]"], ["a", "[PAD]"])
    assert [to_hex(text.get_color()).upper() == GRAY for text in figure.axes[0].get_yticklabels()] == [False, True]
    plain = plots.masks(dict(batch))
    assert labels(plain.axes[0])[0] == [str(i) for i in batch["input_ids"][1].tolist()]
    embedded = plots.masks({"inputs_embeds": torch.ones(1, 3, 2)})
    assert labels(embedded.axes[0])[1] == ["0", "1", "2"]


def test_a_span_of_a_long_text_is_drawn_and_is_in_the_title() -> None:
    batch = {"input_ids": np.arange(200)[None], "attention_mask": np.ones((1, 200), dtype=int)}
    with pytest.raises(ValueError, match=r"a picture can label at most 64 tokens.*\n  got: 200\n  fix: span=\(0, 64\)"):
        plots.masks(batch)
    figure = plots.masks(batch, span=(190, 300))
    assert labels(figure.axes[0])[0] == [str(token) for token in range(190, 200)]
    assert figure.legends[0].get_title().get_text() == "row 0 of 1 row × 200 tokens, tokens 190 to 199"


def test_a_span_of_a_very_long_text_needs_little_memory() -> None:
    batch = {"input_ids": np.zeros((2, 200_000), dtype=int), "attention_mask": np.ones((2, 200_000), dtype=int)}
    axes = plots.masks(batch, span=(150_000, 150_003), look_ahead=True, ax=Figure().subplots()).axes[0]
    assert (drawn(axes) == ALLOWED).tolist() == np.tri(3, dtype=bool).tolist()


@pytest.mark.parametrize("length", [1, 7, slow(64)])
def test_labels_do_not_overlap_and_are_inside_the_figure(length: int, tmp_path: Path) -> None:
    batch = {"input_ids": np.ones((2, length), dtype=int), "attention_mask": np.ones((2, length), dtype=int)}
    batch["attention_mask"][1, length // 2 + 1 :] = 0
    tokens = [[WORDS[i % len(WORDS)] for i in range(length)]] * 2
    masks = plots.masks(batch, tokens, look_ahead=True)
    weights = plots.attention(None, batch, weights=np.full((2, 1, length, length), 1 / length), tokens=tokens)
    for figure in (masks, weights):
        figure.draw_without_rendering()
        assert figure.get_size_inches()[0] <= 11
    for axes in (*masks.axes, weights.axes[0]):
        for words in (axes.get_xticklabels(), axes.get_yticklabels()):
            # Half a pixel: the extents of matplotlib 3.10 have larger margins.
            extents = [word.get_window_extent().padded(-0.5) for word in words if word.get_text()]
            assert not any(one.overlaps(two) for one, two in pairwise(extents))
        extent = axes.get_tightbbox()
        assert extent is not None
        assert extent.x0 >= 0
        assert extent.x1 <= axes.figure.bbox.x1 + 1
        assert min(word.get_fontsize() for word in axes.get_xticklabels()) >= 7


@for_each(
    ("call", "words"),
    [
        (lambda: plots.masks(padded(), row=3), r"row must be an integer from 0 to 2\n  got: 3\n  fix: row=2"),
        (
            lambda: plots.masks(padded(), span=(4, 9)),
            r"span contains none of the 4 tokens\n  got: \(4, 9\)\n  fix: span=\(0, 4\)",
        ),
        (lambda: plots.masks(padded(), [["a"]]), r"tokens must be 3 lists of 4 tokens.*\n  got: 1 of lengths \[1\]"),
        (
            lambda: plots.masks({"labels": torch.ones(2, 2)}),
            r"needs 'input_ids' or 'inputs_embeds'\n  got: \['labels'\]",
        ),
        (
            lambda: plots.batch({"input_ids": torch.ones(2, 0)}),
            r"'input_ids' must have 2 dimensions, none of them 0\n  got: shape \(2, 0\)",
        ),
        (
            lambda: plots.batch(padded() | {"inputs_embeds": torch.full((3, 4, 2), torch.nan)}),
            r"inputs_embeds must be finite.*\n  got: nan at \[0, 0\]",
        ),
        (
            lambda: plots.masks(padded() | {"look_ahead_mask": torch.ones(3, 3)}),
            r"'look_ahead_mask' does not fit.*\n  got: shape \(3, 3\), expected \(4, 4\)",
        ),
    ],
)
def test_wrong_arguments_of_masks_and_batches_are_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()

"""The picture of a batch, held against the batch: what each panel's axes hold, what is written in its cells."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from hf_posenc import plots
from hf_posenc.plots.canvas import PADDING, readable


def made(lengths: list[int], columns: int, *, side: str = "right", width: int = 0) -> dict[str, torch.Tensor]:
    """A batch with rows of these lengths, ids from 100 up, padding 0."""
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


def panel(figure: Figure, name: str) -> Axes:
    return next(axes for axes in figure.axes if axes.get_title(loc="left").startswith(name))


def drawn(axes: Axes) -> Any:
    return axes.images[0].get_array()


def cells(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_each_panel_holds_what_the_batch_holds() -> None:
    batch = made([8, 3], 8, width=4)
    figure = plots.batch(batch)
    assert np.array_equal(drawn(panel(figure, "tokens")), batch["attention_mask"])
    assert np.array_equal(drawn(panel(figure, "attention_mask")), batch["attention_mask"])
    assert np.array_equal(drawn(panel(figure, "look_ahead_mask")), np.tri(8, dtype=bool))
    assert np.array_equal(drawn(panel(figure, "inputs_embeds")), batch["inputs_embeds"][0])
    positions = drawn(panel(figure, "position_ids"))
    assert np.array_equal(positions.mask, batch["attention_mask"] == 0)  # what is masked shows as padding
    assert positions.compressed().tolist() == [*range(8), *range(3)]
    assert cells(panel(figure, "position_ids")) == [str(p) for p in batch["position_ids"].flatten().tolist()]
    assert cells(panel(figure, "tokens")) == [str(token) for token in batch["input_ids"].flatten().tolist()]
    assert "position_ids: 0 (dark) to 7 (bright)" in panel(figure, "position_ids").get_title(loc="left")


def test_the_largest_number_decides_the_colours_of_the_embeddings_on_both_sides_of_zero() -> None:
    image = panel(plots.batch(made([8, 3], 8, width=4)), "inputs_embeds").images[0]
    assert image.get_clim() == (-2.0, 2.0)


def test_tokens_are_written_and_those_of_the_padding_in_grey() -> None:
    tokens = [["I", "ride", "bike"], ["no", "<pad>", "<pad>"]]
    axes = panel(plots.batch(made([3, 1], 3), tokens), "tokens")
    assert cells(axes) == ["I", "ride", "bike", "no", "<pad>", "<pad>"]
    colours = [text.get_color() for text in axes.texts]
    assert len(set(colours[:4])) == len(set(colours[4:])) == 1
    assert colours[0] != colours[4]


def test_panels_are_there_for_what_the_batch_has() -> None:
    batch = made([4, 4], 4)
    titles = [axes.get_title(loc="left") for axes in plots.batch({"input_ids": batch["input_ids"]}).figure.axes]
    assert titles == ["tokens, padding in grey"]
    figure = plots.batch({"inputs_embeds": torch.ones(2, 4, 3, dtype=torch.bfloat16, requires_grad=True)})
    assert [axes.get_title(loc="left")[:6] for axes in figure.axes[:2]] == ["tokens", "inputs"]


def test_numpy_and_tensors_give_the_same_picture() -> None:
    batch = made([5, 2], 5, width=3)
    ours, theirs = plots.batch(batch), plots.batch({name: value.numpy() for name, value in batch.items()})
    for one, two in zip(ours.axes, theirs.axes, strict=True):
        assert one.get_title(loc="left") == two.get_title(loc="left")
        assert all(np.array_equal(a.get_array(), b.get_array()) for a, b in zip(one.images, two.images, strict=True))


def test_documents_that_share_a_row_are_all_real_tokens() -> None:
    documents = np.array([[0, 0, 1, -1], [0, 1, 1, 1]])
    figure = plots.batch({"input_ids": np.ones((2, 4), dtype=np.int64), "document_ids": documents})
    assert np.array_equal(drawn(panel(figure, "tokens")), documents >= 0)


def test_a_large_batch_is_cut_and_the_title_says_so() -> None:
    figure = plots.batch(made([90] * 40, 100, width=600))
    assert figure.get_suptitle() == "batch of 40 rows × 100 tokens, the first 16 of 40 rows, 64 of 100 columns"
    assert drawn(panel(figure, "tokens")).shape == (16, 64)
    assert drawn(panel(figure, "look_ahead_mask")).shape == (64, 64)
    assert drawn(panel(figure, "inputs_embeds")).shape == (64, 512)
    assert "the first 512 of 600 columns" in panel(figure, "inputs_embeds").get_title(loc="left")


@pytest.mark.parametrize(
    ("lengths", "columns", "side"),
    [([8, 4], 8, "right"), ([60, 44, 31, 12, 5, 3, 58, 20], 60, "left"), ([1], 1, "right"), ([17] * 3, 17, "left")],
)
def test_any_size_and_any_script_can_be_saved_without_a_warning(
    lengths: list[int], columns: int, side: str, tmp_path: Path
) -> None:
    words = [
        "Ġride",
        "我",
        "每天",
        "👍🏽",
        "หมา",
        "हिन्दी",
        "שלום",
        "$x$",
        "\\frac{",
        "\n",
        "\u200d",
        "",
        "a" * 300,
        "_^%#&~",
    ]
    tokens = [[words[(row + column) % len(words)] for column in range(columns)] for row in range(len(lengths))]
    figure = plots.batch(made(lengths, columns, side=side, width=16), tokens)
    figure.savefig(tmp_path / "batch.png")
    assert (tmp_path / "batch.png").stat().st_size > 5_000
    assert max(figure.get_size_inches()) < 40


@pytest.mark.parametrize(("rows", "columns"), [(2, 8), (8, 60)])
def test_no_token_runs_out_of_its_cell_and_no_title_into_the_next(rows: int, columns: int) -> None:
    words = ["ride", "##ising", "Ġinternationalisation", "我每天骑自行车", "[PAD]"]
    tokens = [[words[(row + column) % len(words)] for column in range(columns)] for row in range(rows)]
    figure = plots.batch(made([columns] * rows, columns, width=16), tokens)
    figure.canvas.draw()
    axes = panel(figure, "tokens")
    box = axes.get_window_extent()
    for text in axes.texts:
        extent = text.get_window_extent()
        assert extent.width <= box.width / columns
        assert extent.height <= box.height / rows
    titles = [axes._left_title.get_window_extent() for axes in figure.axes]  # type: ignore[attr-defined]
    for i, one in enumerate(titles):
        assert not any(one.overlaps(two) for two in titles[:i] if one.width and two.width)


def test_what_a_font_cannot_show_is_written_as_its_code_point() -> None:
    assert readable("ride") == "ride"
    assert readable("Ġcafé") == "Ġcafé"
    assert readable("\t\x00\u200d") == "\\t\\x00\\u200d"
    assert readable("\U000e0067") == "\\U000e0067"
    assert readable("\u1201") in ("\u1201", "U+1201")
    assert readable("a" * 20) == "a" * 11 + "…"


def test_given_axes_hold_the_tokens_and_nothing_else_is_drawn() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.batch(made([3, 1], 3), ax=right) is figure
    assert not left.images
    assert len(figure.axes) == 2
    assert right.get_title(loc="left") == "tokens, padding in grey"


def test_pyplot_is_left_alone() -> None:
    script = (
        "import sys, numpy as np; from hf_posenc import plots; assert 'matplotlib' not in sys.modules;"
        "plots.batch({'input_ids': np.ones((2, 3), dtype=int)}).savefig(sys.argv[1], format='png');"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "/dev/null" if sys.platform != "win32" else "NUL"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == "False", run.stderr


def test_without_matplotlib_the_call_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'need matplotlib.*\n  fix: pip install "hf-posenc\[plots\]"'):
        plots.batch(made([2], 2))
    with pytest.raises(ImportError, match=r"need matplotlib"):
        plots.batch(made([2], 2), [["a", "é字"]])  # whether a font has a character is asked of matplotlib too


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs 'input_ids' or 'inputs_embeds'\n  got: \['labels'\]"):
        plots.batch({"labels": np.ones((2, 2))})
    with pytest.raises(ValueError, match=r"'input_ids' must have 2 dimensions.*\n  got: shape \(3,\)"):
        plots.batch({"input_ids": np.ones(3)})
    with pytest.raises(ValueError, match=r"'input_ids' must have 2 dimensions, none of them 0\n  got: shape \(2, 0\)"):
        plots.batch({"input_ids": torch.ones(2, 0)})
    with pytest.raises(ValueError, match=r"tokens must be 2 lists of 3 tokens.*\n  got: 2 of lengths \[3, 1\]"):
        plots.batch(made([3, 1], 3), [["a", "b", "c"], ["a"]])


@pytest.mark.parametrize("picture", [plots.batch, plots.masks])
def test_what_a_tokenizer_gives_without_return_tensors_is_refused(picture: Any, word_level) -> None:
    with pytest.raises(
        TypeError, match=r"'input_ids' must be a tensor or an array\n  got: a list\n  fix: .*return_tensors"
    ):
        picture(word_level(["a b", "a"]))
    with pytest.raises(TypeError, match=r"a batch is a mapping.*\n  got: 'list'\n  fix: plots.batch\(collate"):
        picture(["a b", "a"])


@pytest.mark.parametrize("picture", [plots.batch, plots.masks])
def test_a_mask_or_positions_of_other_tokens_are_refused_and_one_row_of_positions_is_for_all(picture: Any) -> None:
    ids = np.ones((2, 3), dtype=int)
    with pytest.raises(ValueError, match=r"'attention_mask' does not fit.*\n  got: shape \(2, 4\).*\(2, 3\)"):
        picture({"input_ids": ids, "attention_mask": np.ones((2, 4))})
    with pytest.raises(ValueError, match=r"'position_ids' does not fit.*\n  got: shape \(3, 3\).*\(2, 3\)"):
        picture({"input_ids": ids, "position_ids": np.ones((3, 3), dtype=int)})
    figure = picture({"input_ids": ids, "position_ids": np.arange(3)[None]})
    (ax,) = (axes for axes in figure.axes if axes.get_title(loc="left").startswith("position_ids"))
    assert np.asarray(ax.images[0].get_array()).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_embeddings_that_are_not_finite_are_refused() -> None:
    batch = made([3, 1], 3, width=2)
    batch["inputs_embeds"][0, 1, 1] = torch.nan
    with pytest.raises(ValueError, match=r"NaN or infinity in the data: 'inputs_embeds'.*\n  got: nan at .*\[1, 1\]"):
        plots.batch(batch)


def test_a_batch_of_the_collator_shows_its_tokens(word_level) -> None:
    from hf_posenc import DataCollatorWithPositionalEncoding

    batch = DataCollatorWithPositionalEncoding(word_level)(["a b", "a"])
    assert cells(panel(plots.batch(batch), "tokens")) == ["a", "b", "a", "[PAD]"]


def test_a_packed_batch_for_a_model_shows_its_padding(word_level) -> None:
    from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec

    names = ("input_ids", "attention_mask", "position_ids")
    spec = ModelSpec(accepts=names, positions=("rotary",), is_causal=True, takes_4d_mask=True)
    collate = DataCollatorWithPositionalEncoding(
        word_level, model=spec, packing=True, max_length=8, padding="max_length"
    )
    batch = collate(["a b c", "a b"])
    assert batch["attention_mask"].shape == (1, 1, 8, 8)
    plain = collate.replace(model=None, look_ahead=False)(["a b c", "a b"])
    pictures = [panel(plots.batch(one), "tokens").images[0].get_array() for one in (batch, plain)]
    np.testing.assert_array_equal(*pictures)


@pytest.mark.parametrize("style", ["dark_background", "ggplot"])
def test_a_picture_has_a_white_page_and_dark_words_whatever_style_the_user_has_chosen(
    style: str, tmp_path: Path
) -> None:
    from matplotlib import image, rcParams
    from matplotlib.style import context

    with context(style):
        chosen = dict(rcParams)
        figure = plots.masks(made([3, 1], 3))
        assert isinstance(figure, Figure)
        curves = plots.curves(8, 20)
        for picture in (figure, curves):
            page = image.imread(plots.canvas.save(picture, tmp_path / "page.png"))
            assert np.allclose(page[0, :, :3], 1.0)
        own = Figure(layout="constrained").subplots()
        assert plots.curves(8, 20, ax=own).get_facecolor() == own.get_facecolor() != (1.0, 1.0, 1.0, 1.0)
        assert dict(rcParams) == chosen
    for axes in (*figure.axes, curves):
        words = [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label]
        assert axes.get_facecolor() in {(1.0, 1.0, 1.0, 1.0), to_rgba(PADDING)}
        assert all(max(to_rgba(word.get_color())[:3]) < 0.5 for word in words)

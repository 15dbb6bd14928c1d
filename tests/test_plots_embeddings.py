"""Embeddings in the plane and how positions crowd them, held against eigenvectors and the paper's formula by hand."""

from __future__ import annotations

import math
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from hf_posenc import PositionalEmbedding, plots
from hf_posenc.plots import numbers
from hf_posenc.plots.labelling import write_beside
from hf_posenc.plots.numbers.embeddings import principal_components

QUEEN = "a queen is a woman, a king is a man"


def row(position: int, width: int) -> list[float]:
    """Vaswani et al. 2017, section 3.5."""
    angles = [position / 10000 ** (2 * (column // 2) / width) for column in range(width)]
    return [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]


def table(rows: int = 1800, width: int = 8) -> nn.Embedding:
    return nn.Embedding(rows, width, _weight=torch.randn(rows, width, generator=torch.Generator().manual_seed(1)))


def by_eigenvectors(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same components by another way: eigenvectors of the covariance."""
    centred = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    return centred @ vectors[:, ::-1][:, :2], values[::-1][:2] / values.sum()


def bert_table(folder: Path) -> nn.Embedding:
    """The trained token embeddings, without the rest of the model."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    (name,) = [name for name in weights if name.endswith("word_embeddings.weight")]
    return nn.Embedding(*weights[name].shape, _weight=weights[name])


# ------------------------------------------------------------------------------------------------------------ numbers


@given(seed=st.integers(0, 1000), count=st.integers(3, 20), width=st.integers(2, 12))
@settings(max_examples=25, deadline=None)
def test_the_plane_is_that_of_the_two_largest_eigenvectors(seed: int, count: int, width: int) -> None:
    points = np.random.default_rng(seed).normal(size=(count, width))
    plane, held = principal_components(points)
    expected, share = by_eigenvectors(points)
    assert np.allclose(held, share)
    assert np.allclose(np.abs(plane), np.abs(expected), atol=1e-6)
    assert held[0] >= held[1]


def test_a_cloud_with_fewer_dimensions_lies_at_zero_in_those_it_lacks() -> None:
    for points in (np.ones((1, 4)), np.ones((3, 4)), np.array([[1.0]])):
        plane, held = principal_components(points)
        assert not plane.any()
        assert not held.any()
    plane, held = principal_components(np.array([[0.0], [2.0]]))
    assert plane.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert held.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("scale", [None, "sqrt_d", 3.0])
def test_before_are_the_rows_of_the_table_and_after_those_and_positions(word_level: Any, scale: Any) -> None:
    embedding = table()
    found = numbers.embeddings(word_level, embedding, "the a b a", scale=scale)
    ids = word_level("the a b a")["input_ids"]
    rows = embedding.weight[ids].detach().double().numpy()
    factor = {None: 1.0, "sqrt_d": math.sqrt(8)}.get(scale, scale)
    after = factor * rows + np.array([row(position, 8) for position in range(4)])
    assert found.tokens == ["the", "a", "b", "a"]
    for points, held, whole in ((found.before, found.spread_before, rows), (found.after, found.spread_after, after)):
        expected, share = by_eigenvectors(whole)
        assert np.allclose(np.abs(points), np.abs(expected), atol=1e-5)
        assert np.allclose(held, share, atol=1e-6)
    assert np.allclose(found.before[1], found.before[3])
    assert not np.allclose(found.after[1], found.after[3])


def test_a_positional_embedding_brings_its_own_positions_and_stays_as_it_is(word_level: Any) -> None:
    module = PositionalEmbedding(table(), scale=2.0, dropout=0.9).train()
    state = torch.random.get_rng_state()
    found = numbers.embeddings(word_level, module, "the a b a")
    expected = numbers.embeddings(word_level, module.embedding, "the a b a", scale=2.0)
    assert np.allclose(found.after, expected.after)
    assert module.training
    assert module.encoding.training
    assert torch.equal(torch.random.get_rng_state(), state)


def test_crowding_is_the_part_of_both_norms_that_is_the_positions(word_level: Any) -> None:
    embedding = table()
    found = numbers.crowding(word_level, embedding, "the a b")
    for place, number in enumerate(word_level("the a b")["input_ids"]):
        token = math.hypot(*embedding.weight[number].tolist())
        position = math.hypot(*row(place, 8))
        assert found.token_norms[place] == pytest.approx(token)
        assert found.position_norms[place] == pytest.approx(position)
        assert found.share[place] == pytest.approx(position / (position + token))
        assert found.share_sqrt_d[place] == pytest.approx(position / (position + math.sqrt(8) * token))
    nothing = nn.Embedding(1800, 8, _weight=torch.zeros(1800, 8))
    assert numbers.crowding(word_level, nothing, "the a b").share.tolist() == [1.0] * 3


# ------------------------------------------------------------------------------------------------------- what is drawn


def dots(axes: Axes) -> Any:
    return np.asarray(axes.collections[0].get_offsets())


def words(axes: Axes) -> dict[str, Any]:
    return {text.get_text(): text for text in axes.texts if text.get_text()}


def test_queens_and_kings_lie_together_before_positions_and_a_word_that_comes_twice_apart_after(
    bert_folder: Path,
) -> None:
    embedding = bert_table(bert_folder)
    figure = plots.embeddings(bert_folder, embedding, QUEEN, title="trained embeddings")
    assert isinstance(figure, Figure)
    before, after = figure.axes
    found = numbers.embeddings(bert_folder, embedding, QUEEN)
    assert dots(after).tolist() == found.after.tolist()
    assert len(dots(before)) == 7  # a, queen, is, woman, the comma, king, man
    places = {name: text.xy for name, text in words(before).items()}
    assert set(places) == {"a (0, 3, 6, 9)", "queen", "is (2, 8)", "woman", ",", "king", "man"}
    near = np.hypot(*np.subtract(places["queen"], places["king"]))
    assert near < 0.2 * np.hypot(*np.subtract(places["queen"], places["woman"]))
    assert set(words(after)) == {*(f"a ({i})" for i in (0, 3, 6, 9)), "is (2)", "is (8)", *",", *QUEEN.split()[1:2]} | {
        "woman",
        "king",
        "man",
    }
    assert np.array_equal(np.asarray(after.lines[0].get_xydata()), found.after)
    assert figure.get_suptitle() == "trained embeddings"
    assert before.get_xlabel() == f"component 1: {found.spread_before[0]:.0%} of the variance"


@pytest.mark.parametrize(
    "text",
    [
        QUEEN,
        "queen",
        "it was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness",
        "אני רוכב على الدراجة 我每天 internationalisation $x$ the the the",
    ],
)
def test_no_word_lies_on_another_or_outside(bert_folder: Path, text: str) -> None:
    figure = plots.embeddings(bert_folder, bert_table(bert_folder), text, scale="sqrt_d")
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    for axes in figure.axes:
        extents = [word.get_window_extent() for word in words(axes).values()]
        assert not any(one.overlaps(two) for one, two in combinations(extents, 2))
        frame = axes.get_window_extent()
        assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in extents)
        assert all(frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in extents)


def test_a_word_that_had_to_go_far_has_a_line_to_its_point() -> None:
    axes = Figure().subplots()
    points = np.array([[0.0, 0.0], [0.001, 0.0], [0.0, 0.001], [0.001, 0.001], [1.0, 1.0]])
    axes.scatter(*points.T)
    axes.figure.draw_without_rendering()
    write_beside(axes, points, ["a long word"] * 5)
    assert sum(1 for text in axes.texts if not text.get_text()) >= 1  # lines are notes without words
    axes.figure.draw_without_rendering()
    extents = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert not any(one.overlaps(two) for one, two in combinations(extents, 2))


def test_the_title_says_what_tokens_are_multiplied_by(word_level: Any) -> None:
    for scale, expected in (("sqrt_d", "after positions, tokens × √d"), (2.5, "after positions, tokens × 2.5")):
        mine = Figure().subplots()
        assert plots.embeddings(word_level, table(), "the a", scale=scale, ax=mine) is mine  # type: ignore[arg-type]
        assert mine.get_title(loc="left") == expected
    axes = plots.embeddings(word_level, PositionalEmbedding(table(), scale=3.0), "the a", ax=Figure().subplots())
    assert isinstance(axes, Axes)
    assert axes.get_title(loc="left") == "after positions"


def test_bars_are_the_shares(word_level: Any) -> None:
    axes = plots.crowding(word_level, table(), "the a b")
    found = numbers.crowding(word_level, table(), "the a b")
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [*found.share, *found.share_sqrt_d]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["the", "a", "b"]
    mine = Figure().subplots()
    assert plots.crowding(word_level, table(), "the", ax=mine) is mine


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("picture", [plots.embeddings, plots.crowding])
def test_what_cannot_be_drawn_is_refused(picture: Any, word_level: Any) -> None:
    with pytest.raises(ValueError, match=r"the text has no tokens\n  got: ''"):
        picture(word_level, table(), "")
    with pytest.raises(TypeError, match=r"text must be one sentence, a str\n  got: \['a'\]"):
        picture(word_level, table(), ["a"])
    with pytest.raises(ValueError, match=r"token 'the' has id \d+, the embedding has 2 rows"):
        picture(word_level, table(2), "the")
    with pytest.raises(ValueError, match=r"at most 64 tokens can be labelled.*\n  got: 65\n  fix: a shorter text"):
        picture(word_level, table(), "the " * 65)
    broken = nn.Embedding(1800, 8, _weight=torch.full((1800, 8), torch.nan))
    with pytest.raises(ValueError, match=r"NaN or infinity in the data: 'embeddings'"):
        picture(word_level, broken, "the a")
    with pytest.raises(TypeError, match=r"embedding must be an nn\.Embedding"):
        picture(word_level, np.ones((3, 4)), "the")
    with pytest.raises(ValueError, match="convention must be one of"):
        picture(word_level, table(), "the", convention="none")


def test_a_whole_model_is_told_the_way_to_its_embeddings(word_level: Any) -> None:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=1800))
    with pytest.raises(TypeError, match=r"get_input_embeddings\(\)"):
        plots.embeddings(word_level, model, "the")  # type: ignore[arg-type]


def test_numbers_need_no_matplotlib_and_pictures_say_how_to_install_it(
    word_level: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    batch = {"input_ids": torch.ones(1, 3, dtype=torch.long)}
    layer = nn.TransformerEncoderLayer(4, 1, 4, batch_first=True)
    points = np.ones((1, 2, 2))
    calls: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (numbers.embeddings, plots.embeddings, (word_level, table(), "the")),
        (numbers.crowding, plots.crowding, (word_level, table(), "the")),
        (numbers.masks, plots.masks, (batch,)),
        (numbers.attention, plots.attention, (layer, torch.ones(1, 2, 4))),
        (numbers.losses, plots.losses, ({"a": [1.0]},)),
        (numbers.sequences, plots.sequences, (points, points, points)),
    ]
    for number, picture, arguments in calls:
        assert number(*arguments)
        with pytest.raises(ImportError, match=r'need matplotlib.*\n  fix: pip install "hf-posenc\[plots\]"'):
            picture(*arguments)

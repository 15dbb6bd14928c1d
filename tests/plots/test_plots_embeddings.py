"""Token embeddings in the plane, compared with eigenvectors and the formula of the paper."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each, slow
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from test_plots_positions import note
from test_plots_positions import table as encodings
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, plots

QUEEN = "a queen is a woman, a king is a man"


def table(rows: int = 1800, width: int = 8) -> nn.Embedding:
    return nn.Embedding(rows, width, _weight=torch.randn(rows, width, generator=torch.Generator().manual_seed(1)))


def by_eigenvectors(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the components as eigenvectors of the covariance."""
    centered = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    return centered @ vectors[:, ::-1][:, :2], values[::-1][:2] / values.sum()


def bert_table(folder: Path) -> nn.Embedding:
    """Return the trained token embeddings, without the rest of the model."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    (name,) = [name for name in weights if name.endswith("word_embeddings.weight")]
    return nn.Embedding(*weights[name].shape, _weight=weights[name])


def letters(count: int) -> Any:
    """Return a tokenizer of the first letters, id 0 for "a"."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    raw = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate("abcdefghijkl"[:count])}, unk_token="a"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return raw


def dots(axes: Axes) -> Any:
    return np.asarray(axes.collections[0].get_offsets())


def words(axes: Axes) -> dict[str, Any]:
    return {text.get_text(): text for text in axes.texts if text.get_gid() != "note" and text.get_text()}


def in_one_plane(rows: np.ndarray, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the points without positions and with them, each from its center, and the shares of the components."""
    before = factor * rows.astype(np.float64)
    after = before + encodings(*rows.shape)
    points, share = by_eigenvectors(np.concatenate([before - before.mean(axis=0), after - after.mean(axis=0)]))
    return points[: len(rows)], points[len(rows) :], share


@given(seed=st.integers(0, 1000), count=st.integers(3, 12), width=st.integers(2, 8))
@settings(max_examples=5)
def test_the_plane_is_that_of_the_two_largest_eigenvectors(seed: int, count: int, width: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    module = nn.Embedding.from_pretrained(torch.from_numpy(rows))
    before, after = plots.embeddings(letters(count), module, " ".join("abcdefghijkl"[:count])).axes
    *expected, share = in_one_plane(rows)
    for axes, points in zip((before, after), expected, strict=True):
        assert np.allclose(np.abs(dots(axes)), np.abs(points), atol=1e-4)
        assert axes.get_xlabel() == f"component 1: {share[0]:.0%} of the variance"


def test_a_sentence_of_one_token_is_one_point() -> None:
    module = nn.Embedding.from_pretrained(torch.tensor([[1.0, 1.0]]))
    figure = plots.embeddings(letters(1), module, "a")
    assert [dots(axes).tolist() for axes in figure.axes] == [[[0.0, 0.0]]] * 2


@pytest.mark.parametrize("scale", [None, "sqrt_d", 3.0])
def test_the_points_are_those_of_the_table_before_and_of_the_sum_with_positions_after(
    word_level: Any, scale: Any
) -> None:
    embedding = table()
    figure = plots.embeddings(word_level, embedding, "the a b a", scale=scale)
    rows = embedding.weight[word_level("the a b a")["input_ids"]].detach().double().numpy()
    before, after, _ = in_one_plane(rows, {None: 1.0, "sqrt_d": math.sqrt(8)}.get(scale, scale))
    assert np.allclose(np.abs(dots(figure.axes[0])), np.abs(before)[:3], atol=1e-5)  # "a" is one point
    assert set(words(figure.axes[0])) == {"the", "a (1, 3)", "b"}
    moved = np.asarray(figure.axes[1].lines[0].get_xydata())
    assert np.allclose(np.abs(moved), np.abs(after), atol=1e-5)
    assert set(words(figure.axes[1])) == {"the", "a (1)", "a (3)", "b"}


def test_several_factors_are_panels_with_positions_in_one_plane_with_the_same_ranges(word_level: Any) -> None:
    embedding, text, drawn = table(), "the a b a", [0, 2]  # the and b
    figure = plots.embeddings(word_level, embedding, text, scale=[1, "sqrt_d"], words=["the", "b"])
    rows = embedding.weight[word_level(text)["input_ids"]].detach().double().numpy()
    sums = [(factor * rows + encodings(4, 8))[drawn] for factor in (1.0, math.sqrt(8))]
    expected, _ = by_eigenvectors(np.concatenate([points - points.mean(axis=0) for points in sums]))
    for axes, points in zip(figure.axes, (expected[:2], expected[2:]), strict=True):
        assert np.allclose(np.abs(axes.lines[0].get_xydata()), np.abs(points), atol=1e-5)
        assert set(words(axes)) == {"the", "b"}
    before, after = figure.axes
    assert (before.get_xlim(), before.get_ylim()) == (after.get_xlim(), after.get_ylim())
    titles = [axes.get_title() for axes in (before, after)]
    assert titles == ["With positions, tokens × 1", "With positions, tokens × √d"]
    axes = plots.embeddings(word_level, embedding, text, words=["a"], ax=Figure().subplots()).axes[0]
    assert set(words(axes)) == {"a (1)", "a (3)"}  # the positions of the text


def test_without_sqrt_d_a_word_is_nearest_to_its_neighbor_and_with_it_to_the_word_of_similar_meaning(
    bert_folder: Path,
) -> None:
    four = ["queen", "woman", "king", "man"]
    table = bert_table(bert_folder)
    figure = plots.embeddings(bert_folder, table, QUEEN, scale=[1, "sqrt_d"], words=four, title="trained")
    assert figure.get_suptitle() == "trained"
    for axes, nearest in zip(figure.axes, ("woman", "king"), strict=True):
        places = {name: np.asarray(text.xy) for name, text in words(axes).items()}
        distances = {name: np.linalg.norm(places["queen"] - places[name]) for name in four[1:]}
        assert min(distances, key=lambda name: distances[name]) == nearest


@pytest.mark.parametrize("scale", [None, "sqrt_d"])
def test_word_vectors_are_drawn_as_the_rows_of_a_table_are(word_level: Any, scale: Any) -> None:
    embedding, sentence = table(), "the a b a"
    rows = embedding.weight[word_level(sentence)["input_ids"]].detach()
    expected = plots.embeddings(word_level, embedding, sentence, scale=scale).axes
    for vectors in (rows, rows.numpy(), rows.tolist()):
        figure = plots.embeddings(vectors=vectors, tokens=sentence.split(), scale=scale)
        for axes, other in zip(figure.axes, expected, strict=True):
            assert np.allclose(dots(axes), dots(other))
            assert set(words(axes)) == set(words(other))


def test_sentences_of_the_same_words_are_drawn_in_one_plane_each_from_position_0(word_level: Any) -> None:
    embedding, texts = table(), ["the a b", "b a the"]
    before, after = plots.embeddings(word_level, embedding, texts).axes
    rows = [embedding.weight[word_level(text)["input_ids"]].detach().double().numpy() for text in texts]
    sums = [np.concatenate(rows), np.concatenate([each + encodings(3, 8) for each in rows])]
    expected, _ = by_eigenvectors(np.concatenate([points - points.mean(axis=0) for points in sums]))
    drawn = np.concatenate([line.get_xydata() for line in after.lines])
    assert np.allclose(np.abs(drawn), np.abs(expected[6:]), atol=1e-5)
    assert set(words(before)) == {"the (0, 2)", "a (1)", "b (2, 0)"}
    assert set(words(after)) == {"the (0)", "the (2)", "a (1)", "b (0)", "b (2)"}
    colors = [to_hex(color) for color in after.collections[0].get_facecolor()]
    assert [colors.count(line.get_color().lower()) for line in after.lines] == [2, 2]  # "a" belongs to both
    assert [text.get_text() for text in after.get_legend().get_texts()] == texts
    with pytest.raises(ValueError, match=r"at most 64 tokens.*\n  got: 80\n  fix: shorter texts"):
        plots.embeddings(word_level, embedding, ["a " * 40] * 2)


def test_a_positional_embedding_has_its_own_positions_and_stays_unchanged(word_level: Any) -> None:
    module = PositionalEmbedding(table(), scale=2.0, dropout=0.9).train()
    state = torch.random.get_rng_state()
    found = plots.embeddings(word_level, module, "the a b a").axes[1].lines[0].get_xydata()
    expected = plots.embeddings(word_level, module.embedding, "the a b a", scale=2.0).axes[1].lines[0].get_xydata()
    assert np.allclose(found, expected)
    assert module.training
    assert module.encoding.training
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_collator_is_its_tokenizer_and_its_table(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, embedding=PositionalEmbedding(table(), scale=2.0))
    both = [plots.embeddings(collate, "the a b"), plots.embeddings(word_level, collate.embedding, "the a b")]
    assert np.array_equal(*(figure.axes[1].lines[0].get_xydata() for figure in both))
    with pytest.raises(ValueError, match="embeddings need a table"):
        plots.embeddings(collate.replace(embedding=None), "the a")


@pytest.mark.parametrize(
    "text",
    [
        QUEEN,
        "queen",
        slow("it was the best of times, it was the worst of times, it was the age of wisdom, it was the age of folly"),
        "אני רוכב على الدراجة 我每天 internationalization $x$ the the the",
    ],
)
def test_words_do_not_overlap_and_are_inside_the_axes(bert_folder: Path, text: str) -> None:
    figure = plots.embeddings(bert_folder, bert_table(bert_folder), text, scale="sqrt_d")
    figure.draw_without_rendering()
    for axes in figure.axes:
        extents = [word.get_window_extent() for word in words(axes).values()]
        assert not any(one.overlaps(two) for one, two in combinations(extents, 2))
        frame = axes.get_window_extent()
        assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in extents)
        assert all(frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in extents)


def test_the_factor_of_the_tokens_is_in_the_note(word_level: Any) -> None:
    for scale, expected in (("sqrt_d", "tokens × √d"), (2.5, "tokens × 2.5")):
        mine = Figure().subplots()
        plots.embeddings(word_level, table(), "the a", scale=scale, ax=mine)
        assert note(mine) == expected
    figure = plots.embeddings(word_level, PositionalEmbedding(table(), scale=3.0), "the a")
    assert note(figure.axes[-1]) == ""


@for_each(
    ("embedding", "text", "words"),
    [
        (table(), "", r"the text has no tokens\n  got: ''"),
        (table(2), "the", r"token 'the' has id \d+, but the embedding has 2 rows"),
        (table(), "the " * 65, r"a picture can label at most 64 tokens.*\n  got: 65\n  fix: shorter texts"),
        (nn.Embedding.from_pretrained(torch.full((1800, 8), torch.nan)), "the a", r"embeddings must be finite"),
    ],
)
def test_wrong_texts_and_embeddings_are_refused(
    word_level: Any, embedding: nn.Embedding, text: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plots.embeddings(word_level, embedding, text)
    with pytest.raises(TypeError, match=r"text must be one sentence, a str\n  got: \[\]"):
        plots.embeddings(word_level, embedding, [])


WORDS = ["king", "queen"]


@for_each(
    ("arguments", "kind", "words"),
    [
        ({}, TypeError, r"needs a tokenizer, its table and a text\n  got: tokenizer=None, embedding=None, text=None"),
        ({"vectors": torch.ones(2, 4), "tokens": WORDS, "text": "king queen"}, TypeError, r"\n  got: both"),
        ({"vectors": torch.ones(3, 4), "tokens": WORDS}, ValueError, r"shape \(3, 4\), and \['king', 'queen'\]"),
        ({"vectors": torch.ones(2, 4)}, ValueError, r"shape \(2, 4\), and None"),
        ({"vectors": torch.ones(4), "tokens": "king"}, ValueError, r"shape \(4,\), and 'king'"),
        ({"vectors": torch.ones(65, 4), "tokens": ["a"] * 65}, ValueError, r"at most 64 tokens\n  got: 65"),
        ({"vectors": [[torch.nan, 0.0]], "tokens": ["a"]}, ValueError, "vectors must be finite"),
        (
            {"vectors": torch.ones(2, 4), "tokens": WORDS, "words": ["man"]},
            ValueError,
            r"words must be tokens of the text\n  got: \['man'\]\n  fix: words=\['king'\], of \['king', 'queen'\]",
        ),
    ],
)
def test_word_vectors_without_their_words_are_refused(
    arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        plots.embeddings(**arguments)

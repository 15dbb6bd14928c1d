"""The picture of masks, held against loops over rows, queries and keys, and against what the other rooms render."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, ModelSpec, plots
from hf_posenc.batch import written_tokens
from hf_posenc.plots import numbers
from hf_posenc.plots.canvas import FADED, INK
from hf_posenc.plots.masks import AT_PADDING, HIDDEN, IDLE, SEEN
from hf_posenc.plots.tokens import MOST_TOKENS

LENGTHS = [4, 2, 1]


def padded(side: str = "right", *, look_ahead: bool = True) -> dict[str, torch.Tensor]:
    """Rows of these lengths as the collator pads them."""
    keep = torch.zeros(3, 4, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        keep[row, :length] = 1
    keep = keep if side == "right" else keep.flip(1)
    batch = {"input_ids": 10 * keep, "attention_mask": keep, "position_ids": (keep.cumsum(1) - 1).clamp(min=0)}
    if look_ahead:
        batch["look_ahead_mask"] = torch.ones(4, 4, dtype=torch.bool).tril().expand(3, 1, 4, 4)
    return batch


def panel(figure: Figure, title: str) -> Axes:
    return next(axes for axes in figure.axes if axes.get_title(loc="left") == title)


def codes(axes: Axes) -> Any:
    return np.asarray(axes.images[0].get_array())


def labels(axes: Axes) -> tuple[list[str], list[str]]:
    return [text.get_text() for text in axes.get_xticklabels()], [text.get_text() for text in axes.get_yticklabels()]


# ------------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("look_ahead", [True, False])
def test_a_query_may_attend_to_what_is_real_and_not_later(side: str, look_ahead: bool) -> None:
    batch = padded(side, look_ahead=look_ahead)
    found = numbers.masks(batch)
    for row in range(3):
        for query in range(4):
            for key in range(4):
                expected = bool(batch["attention_mask"][row, key]) and (key <= query or not look_ahead)
                assert found.combined[row, query, key] == expected
    assert np.array_equal(found.padding, batch["attention_mask"].numpy() == 1)
    assert (found.look_ahead is None) == (not look_ahead)
    assert found.position_ids is not None
    assert np.array_equal(found.position_ids, batch["position_ids"])
    assert found.document_ids is None


def test_packed_documents_attend_to_themselves_alone_as_the_masks_room_says(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, packing=True, max_length=8, padding="max_length")
    batch = collate(["a b c", "a b", "the a", "b c d e f"])
    found = numbers.masks(batch)
    theirs = AttentionMask.from_batch(batch, look_ahead=True).dense()[:, 0].numpy()
    real = found.padding
    assert np.array_equal(found.combined[real], theirs[real])  # queries at padding are nobody's business
    assert found.document_ids is not None
    assert np.array_equal(found.document_ids, batch["document_ids"])
    assert found.document_ids.max() == 1


@pytest.mark.parametrize("causal", [True, False])
def test_the_mask_that_a_model_is_given_says_the_same_as_the_documents(word_level: Any, causal: bool) -> None:
    names = ("input_ids", "attention_mask", "position_ids")
    spec = ModelSpec(accepts=names, positions=("learned",), is_causal=causal, takes_4d_mask=True)
    texts, settings = ["a b c", "a b", "the a"], {"packing": True, "max_length": 8, "padding": "max_length"}
    for_model = DataCollatorWithPositionalEncoding(word_level, model=spec, **settings)(texts)  # type: ignore[arg-type]
    plain = DataCollatorWithPositionalEncoding(word_level, look_ahead=causal, **settings)(texts)  # type: ignore[arg-type]
    assert for_model["attention_mask"].dtype == torch.float32
    ours, theirs = numbers.masks(for_model), numbers.masks(plain)
    assert np.array_equal(ours.combined[ours.padding], theirs.combined[theirs.padding])
    assert np.array_equal(ours.padding, theirs.padding)
    assert np.array_equal(np.asarray(ours.document_ids), np.asarray(theirs.document_ids))


def test_where_positions_alone_tell_documents_apart_they_do() -> None:
    batch = {"input_ids": np.ones((2, 4), dtype=int), "position_ids": np.array([[0, 1, 0, 1], [0, 1, 2, 3]])}
    found = numbers.masks(batch, look_ahead=True)
    assert np.asarray(found.document_ids).tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert found.combined[0].astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert found.combined[1].astype(int).tolist() == np.tri(4, dtype=int).tolist()


def test_a_bool_mask_of_four_dimensions_one_for_all_queries_and_one_for_each_kind_of_layer_are_read() -> None:
    keep = torch.tensor([[True, True, False]])
    additive = torch.zeros(1, 1, 1, 3).masked_fill(~keep[:, None, None], torch.finfo(torch.float32).min)
    expected = [[True, True, False]] * 3
    whole = keep[:, None, None].expand(1, 1, 3, 3)
    for mask in (keep[:, None, None], whole, additive, additive.bfloat16(), {"full_attention": additive}):
        found = numbers.masks({"input_ids": torch.ones(1, 3, dtype=torch.long), "attention_mask": mask})
        assert found.combined[0].tolist() == expected
        assert found.padding.tolist() == keep.tolist()


def test_an_encoder_decoder_has_two_sets_of_masks(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, text_column="a", text_target_column="b")
    batch = collate([{"a": "a b c", "b": "a b"}, {"a": "a", "b": "the a b d e"}])
    encoder, decoder = numbers.masks(batch), numbers.masks(batch, decoder=True)
    assert encoder.look_ahead is None
    assert np.array_equal(encoder.padding, batch["attention_mask"] == 1)
    assert np.array_equal(decoder.padding, batch["decoder_attention_mask"] == 1)
    assert np.array_equal(np.asarray(decoder.look_ahead), np.tri(decoder.padding.shape[1], dtype=bool))


# ------------------------------------------------------------------------------------------------------- what is drawn


def test_each_matrix_holds_who_may_attend_to_whom_and_tokens_stand_on_both_axes() -> None:
    tokens = [["I", "ride", "my", "bike"], ["a", "b", "<pad>", "<pad>"], ["x", "<pad>", "<pad>", "<pad>"]]
    figure = plots.masks(padded(), tokens, row=1)
    assert isinstance(figure, Figure)
    both = panel(figure, "padding and look-ahead")
    assert codes(both).tolist() == [
        [SEEN, HIDDEN, AT_PADDING, AT_PADDING],
        [SEEN, SEEN, AT_PADDING, AT_PADDING],
        [IDLE, IDLE, AT_PADDING, AT_PADDING],
        [IDLE, IDLE, AT_PADDING, AT_PADDING],
    ]
    assert codes(panel(figure, "padding mask"))[0].tolist() == [SEEN, SEEN, AT_PADDING, AT_PADDING]
    assert codes(panel(figure, "look-ahead mask"))[3].tolist() == [IDLE] * 4
    assert labels(both) == (tokens[1], tokens[1])
    colours = [to_hex(text.get_color()).upper() for text in both.get_yticklabels()]
    assert colours == [INK, INK, FADED, FADED]


def test_what_there_is_for_every_row_stands_below(word_level: Any) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, packing=True, max_length=8, padding="max_length")
    batch = collate(["a b c", "a b", "the a", "b c d e f"])
    figure = plots.masks(batch, row=0)
    assert isinstance(figure, Figure)
    real = np.asarray(batch["document_ids"]) >= 0
    assert np.array_equal(codes(panel(figure, "padding mask of every row")), real)
    positions = panel(figure, "position_ids: 0 (dark) to 4 (bright)").images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(positions), ~real)
    assert np.array_equal(np.ma.compressed(positions), np.asarray(batch["position_ids"])[real])
    documents = panel(figure, "document_ids: 0 to 1")
    assert [text.get_text() for text in documents.texts] == [str(i) for i in batch["document_ids"].flatten().tolist()]
    titles = [axes.get_title(loc="left") for axes in figure.axes[:4]]
    assert titles == ["padding mask", "look-ahead mask", "same document", "all together"]
    inside = batch["document_ids"][0]
    same = (inside[:, None] == inside) & (inside[:, None] >= 0) & torch.ones(8, 8).tril().bool()
    assert np.array_equal((codes(panel(figure, "all together")) == SEEN)[real[0]], same.numpy()[real[0]])


def test_the_row_with_most_to_show_is_drawn_unless_one_is_asked_for() -> None:
    for row, expected in ((None, 2), (0, 0), (-2, 1)):
        figure = plots.masks(padded(), row=row)
        assert isinstance(figure, Figure)
        assert figure.get_suptitle() == f"row {expected} of a batch of 3 × 4 tokens"
    packed = {"input_ids": np.ones((2, 3)), "document_ids": np.array([[0, 0, -1], [0, 1, 2]])}
    figure = plots.masks(packed)
    assert isinstance(figure, Figure)
    assert figure.get_suptitle().startswith("row 1 ")


def test_a_batch_knows_its_own_tokens_and_other_mappings_show_ids(word_level: Any) -> None:
    batch = DataCollatorWithPositionalEncoding(word_level)(["a b", "a"])
    figure = plots.masks(batch)
    assert isinstance(figure, Figure)
    assert labels(figure.axes[0])[0] == ["a", "[PAD]"]
    assert written_tokens(batch) == [["a", "b"], ["a", "[PAD]"]]
    plain = plots.masks(dict(batch))
    assert isinstance(plain, Figure)
    assert labels(plain.axes[0])[0] == [str(i) for i in batch["input_ids"][1].tolist()]
    embedded = plots.masks({"inputs_embeds": torch.ones(1, 3, 2)})
    assert isinstance(embedded, Figure)
    assert labels(embedded.axes[0])[1] == ["0", "1", "2"]


def test_axes_of_ones_own_hold_everything_together() -> None:
    left, right = Figure().subplots(1, 2)
    assert plots.masks(padded(), row=0, ax=right) is right
    assert (codes(right) == SEEN).tolist() == np.tri(4, dtype=bool).tolist()
    assert not left.images


def test_a_stretch_of_a_long_text_is_drawn_and_named() -> None:
    batch = {"input_ids": np.arange(200)[None], "attention_mask": np.ones((1, 200), dtype=int)}
    with pytest.raises(ValueError, match=r"at most 64 tokens can be labelled.*\n  got: 200\n  fix: span=\(0, 64\)"):
        plots.masks(batch)
    figure = plots.masks(batch, span=(190, 300))
    assert isinstance(figure, Figure)
    assert labels(figure.axes[0])[0] == [str(token) for token in range(190, 200)]
    assert figure.get_suptitle().endswith("tokens 190 to 199")


def test_of_a_very_long_text_only_what_is_drawn_is_worked_out() -> None:
    batch = {"input_ids": np.zeros((2, 200_000), dtype=int), "attention_mask": np.ones((2, 200_000), dtype=int)}
    axes = plots.masks(batch, span=(150_000, 150_003), look_ahead=True, ax=Figure().subplots())
    assert isinstance(axes, Axes)
    assert (codes(axes) == SEEN).tolist() == np.tri(3, dtype=bool).tolist()


WORDS = ["Ġinternationalisation", "我每天", "שלום", "أركب", "$x$", "\n", "👍🏽", "ride", "[PAD]", "##ising", "", "หมา"]


@pytest.mark.parametrize("length", [1, 7, MOST_TOKENS])
def test_no_label_runs_into_another_and_nothing_is_cut(length: int, tmp_path: Path) -> None:
    batch = {"input_ids": np.ones((2, length), dtype=int), "attention_mask": np.ones((2, length), dtype=int)}
    batch["attention_mask"][1, length // 2 + 1 :] = 0
    tokens = [[WORDS[i % len(WORDS)] for i in range(length)]] * 2
    figure = plots.masks(batch, tokens, look_ahead=True)
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    whole = figure.bbox
    for axes in figure.axes:
        for words in (axes.get_xticklabels(), axes.get_yticklabels()):
            extents = [word.get_window_extent() for word in words if word.get_text()]
            assert not any(one.overlaps(two) for one, two in pairwise(extents))
        extent = axes.get_tightbbox()
        assert extent is not None
        assert extent.x0 >= 0
        assert extent.x1 <= whole.x1 + 1
    assert figure.get_size_inches()[0] <= 11
    assert min(word.get_fontsize() for axes in figure.axes for word in axes.get_xticklabels()) >= 7


# ----------------------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_drawn_is_refused_with_the_numbers() -> None:
    batch = padded()
    with pytest.raises(ValueError, match=r"row must be a number from 0 to 2\n  got: 3\n  fix: row=2"):
        plots.masks(batch, row=3)
    with pytest.raises(ValueError, match=r"span names no token of 4\n  got: \(4, 9\)\n  fix: span=\(0, 4\)"):
        plots.masks(batch, span=(4, 9))
    with pytest.raises(ValueError, match=r"span must be two whole numbers"):
        plots.masks(batch, span=("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tokens must be 3 lists of 4 tokens.*\n  got: 1 of lengths \[1\]"):
        plots.masks(batch, [["a"]])
    with pytest.raises(
        ValueError, match=r"there is no decoder in this batch.*\n.*\n  fix: .*text_target_column=\"...\"\)$"
    ):
        plots.masks(batch, decoder=True)
    with pytest.raises(
        ValueError, match=r"text_target_column=\"...\"\), without model=, which leaves them to the model"
    ):
        plots.masks(batch | {"labels": torch.ones(3, 4)}, decoder=True)
    with pytest.raises(ValueError, match=r"needs 'input_ids' or 'inputs_embeds'\n  got: \['labels'\]"):
        plots.masks({"labels": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"'input_ids' must have 2 dimensions"):
        plots.masks({"input_ids": torch.ones(3)})
    with pytest.raises(ValueError, match=r"'look_ahead_mask' does not fit.*\n  got: shape \(3, 3\).*\(4, 4\)"):
        plots.masks(batch | {"look_ahead_mask": torch.ones(3, 3)})
    with pytest.raises(ValueError, match=r"'attention_mask' does not fit"):
        plots.masks(batch | {"attention_mask": torch.ones(3, 3)})

"""Attention weights and their pictures, compared with a softmax written out here and with transformers' own weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES
from looping import for_each
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from test_plots_positions import note
from torch import nn

from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, plots


def by_hand(module: nn.MultiheadAttention, query: torch.Tensor, key: torch.Tensor) -> np.ndarray:
    """softmax(q k / √w) for each head, `(B, H, Q, K)`; Vaswani et al. 2017, equation 1."""
    weight, bias = (part.detach().double().numpy() for part in (module.in_proj_weight, module.in_proj_bias))
    width, heads = module.embed_dim, module.num_heads
    q = query.double().numpy() @ weight[:width].T + bias[:width]
    k = key.double().numpy() @ weight[width : 2 * width].T + bias[width : 2 * width]
    q, k = (x.reshape(*x.shape[:2], heads, width // heads).transpose(0, 2, 1, 3) for x in (q, k))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // heads)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def drawn(axes: Axes) -> Any:
    return np.asarray(axes.images[0].get_array())


def title(axes: Axes) -> str:
    return str(axes.get_title())


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if title(axes)]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def test_the_weights_of_torchs_attention_are_softmax_of_queries_and_keys(x: torch.Tensor) -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    for inputs in (x, (x, x, x, None, False)):  # the model itself may ask for no weights
        assert np.allclose(plots.attention_weights(module, inputs)["self"][0], by_hand(module, x, x), atol=1e-6)
    memory = torch.randn(2, 3, 8)
    assert np.allclose(
        plots.attention_weights(module, (x, memory, memory))["cross"][0], by_hand(module, x, memory), atol=1e-6
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_weights_of_an_encoder_layer_are_those_of_its_attention_fast_path_or_not(
    x: torch.Tensor, training: bool
) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).train(training)
    state = torch.random.get_rng_state()
    found = plots.attention_weights(layer, x)
    assert list(found) == ["encoder"]
    assert np.allclose(found["encoder"][0], by_hand(layer.self_attn, x, x), atol=1e-6)  # no dropout
    assert all(part.training == training for part in layer.modules())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())


def test_a_whole_transformer_has_three_kinds_one_entry_a_layer(x: torch.Tensor) -> None:
    model = nn.Transformer(8, 2, 2, 3, 16, batch_first=True).eval()
    target = torch.randn(2, 4, 8)
    mask = AttentionMask.from_lengths([4, 4], look_ahead=True).for_transformer_decoder()
    found = plots.attention_weights(model, {"src": x, "tgt": target, **mask})
    assert {kind: weights.shape for kind, weights in found.items()} == {
        "encoder": (2, 2, 2, 5, 5),
        "decoder": (3, 2, 2, 4, 4),
        "cross": (3, 2, 2, 4, 5),
    }
    assert np.allclose(found["encoder"][0], by_hand(model.encoder.layers[0].self_attn, x, x), atol=1e-6)
    assert not found["decoder"][..., ~np.tri(4, dtype=bool)].any()
    assert all(np.allclose(weights.sum(axis=-1), 1, atol=1e-6) for weights in found.values())


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_torch_encoder_reads_a_collator_batch_with_the_masks_of_its_attention_mask(
    word_level: Any, batch_first: bool
) -> None:
    collate = DataCollatorWithPositionalEncoding(word_level, embedding=8, padding_side="left")
    batch = collate(["a b c", "a"])
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
    x = batch["inputs_embeds"] if batch_first else batch["inputs_embeds"].transpose(0, 1)
    mask = AttentionMask.from_batch(batch, look_ahead=True)
    inputs = {"src": x, **mask.for_transformer_encoder_layer(num_heads=2), **batch}
    weights = plots.attention_weights(layer, inputs)["encoder"][0].mean(axis=1)
    for row, real in enumerate(batch["attention_mask"].numpy() == 1):
        assert not weights[row][real][~(real & np.tri(3, dtype=bool))[real]].any()
    axes = plots.attention(layer, inputs, row=1).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(i) for i in batch["input_ids"][1].tolist()]


def test_a_padded_batch_has_the_weights_of_all_tokens_where_torch_would_leave_padding_out(x: torch.Tensor) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    weights = plots.attention_weights(encoder, {"src": x, "src_key_padding_mask": hidden})["encoder"]
    assert weights.shape == (2, 2, 2, 5, 5)
    assert not weights[:, 1, :, :, 3:].any()


class Speller(nn.Module):
    """A decoder that reads its own predictions: its layer is called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)

    def forward(self, corners: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        assert labels is None
        said = corners[:, :1]
        for _ in range(3):
            said = torch.cat([said, self.layer(said, corners)[:, -1:]], dim=1)
        return said


def test_of_repeated_calls_the_last_and_longest_is_drawn(x: torch.Tensor) -> None:
    model = Speller()
    found = plots.attention_weights(model, {"corners": x, "not for the model": x})
    assert found["decoder"].shape == (1, 2, 2, 3, 3)
    assert found["cross"].shape == (1, 2, 2, 3, 5)
    axes = plots.attention(model, {"corners": x}, kind="cross", tokens=[["1", "2", "3", "4", "5"]] * 2).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "3", "4", "5"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "1", "2"]


@pytest.fixture
def small() -> dict[str, Any]:
    """Settings of a small model."""
    return {"vocab_size": 1800, "attn_implementation": "eager"}


def bert_model(small: dict[str, Any]) -> Any:
    from transformers import BertConfig, BertModel

    shape = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 16}
    return BertModel(BertConfig(**shape, **small))


def test_the_weights_of_a_hugging_face_model_are_what_it_returns(word_level: Any, small: dict[str, Any]) -> None:
    model = bert_model(small).train()
    collate = DataCollatorWithPositionalEncoding(word_level, model=model)
    batch = collate(["a b c", "a"])
    found = plots.attention_weights(model, batch)
    assert model.training
    with torch.no_grad():
        theirs = model.eval()(**batch, output_attentions=True).attentions
    assert np.allclose(found["self"], np.stack([layer.numpy() for layer in theirs]))
    assert not found["self"][:, 1, :, :, 1:].any()  # nobody looks at padding
    with_wrapper = plots.attention_weights(nn.DataParallel(model), batch)
    assert np.array_equal(with_wrapper["self"], found["self"])
    arrays = {name: value.numpy() for name, value in batch.items()}
    assert np.array_equal(plots.attention_weights(model, arrays)["self"], found["self"])


def test_an_encoder_decoder_has_its_tokens_on_the_right_axes(word_level: Any, small: dict[str, Any]) -> None:
    from transformers import BartConfig, BartModel

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    model = BartModel(
        BartConfig(**sizes, encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=20, **small)
    )
    collate = DataCollatorWithPositionalEncoding(word_level, text_column="a", text_target_column="b")
    batch = collate([{"a": "a b c", "b": "the a"}, {"a": "a", "b": "b"}])
    figure = plots.attention(model, batch)
    encoder, decoder, cross = panels(figure)
    assert [title(axes).replace("\n", " ") for axes in (encoder, decoder, cross)] == [
        f"{kind}, layer 0, mean of 2 heads" for kind in ("encoder", "decoder", "cross")
    ]
    source, target = ([text.get_text() for text in axes.get_xticklabels()] for axes in (encoder, decoder))
    assert source == ["a", "b", "c"]
    assert target == collate.tokens(batch["decoder_input_ids"])[0]
    assert [text.get_text() for text in cross.get_xticklabels()] == source
    assert [text.get_text() for text in cross.get_yticklabels()] == target
    found = plots.attention_weights(model, batch)
    assert np.allclose(drawn(cross), found["cross"][0, 0].mean(axis=0))


def test_the_error_for_a_model_without_weights_names_eager_attention(word_level: Any, small: dict[str, Any]) -> None:
    from transformers.utils import logging

    model = bert_model(small | {"attn_implementation": "sdpa"})
    batch = DataCollatorWithPositionalEncoding(word_level, model=model)(["a b"])
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with pytest.raises(ValueError, match="returns no attention weights") as refused:
            plots.attention(model, batch)
    finally:
        logging.set_verbosity(level)
    assert "got: attn_implementation='sdpa'," in str(refused.value)
    assert 'fix: model.set_attn_implementation("eager")' in str(refused.value)
    model.set_attn_implementation("eager")
    assert drawn(plots.attention(model, batch).axes[0]).shape == (2, 2)


def test_models_with_another_kind_of_attention_output_are_refused() -> None:
    ids = {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    wrong = {
        "squeezebert": r"must be at least 0 and sum to at most 1, unlike those of this SqueezeBertModel",
        "fnet": r"this FNetModel returns no attention weights\n  got: attn_imp.*'eager'",
        "longformer": r"the self attention of this LongformerModel is not between all pairs of tokens",
        "canine": r"the self attention of this CanineModel is not between all pairs of tokens in every layer",
    }
    for name, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            plots.attention_weights(FAMILIES[name].build(attn_implementation="eager"), ids)


def test_one_layer_and_head_are_axes_that_hold_their_weights(word_level: Any, small: dict[str, Any]) -> None:
    model = bert_model(small)
    batch = DataCollatorWithPositionalEncoding(word_level, model=model)(["a b c", "the a"])
    found = plots.attention_weights(model, batch)["self"]
    axes = plots.attention(model, batch, layer=1, head=-1, row=1).axes[0]
    assert note(axes) == "layer 1, head 3"
    assert np.allclose(drawn(axes), found[1, 1, 3])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["the", "a", "[PAD]"]
    last = plots.attention(model, batch).axes[0]
    assert note(last) == "layer 2, mean of 4 heads"
    assert np.allclose(drawn(last), found[2, 0].mean(axis=0))
    some = plots.attention(model, batch, span=(1, 3)).axes[0]
    assert np.allclose(drawn(some), found[2, 0].mean(axis=0)[1:, 1:])


def test_layers_and_heads_are_a_grid_in_which_a_color_means_the_same(word_level: Any, small: dict[str, Any]) -> None:
    model = bert_model(small)
    batch = DataCollatorWithPositionalEncoding(word_level, model=model)(["a b c"])
    found = plots.attention_weights(model, batch)["self"]
    for layer, head, count in (("all", "all", 12), ([0, 2], [1], 2), ("all", "mean", 3)):
        figure = plots.attention(model, batch, layer=layer, head=head)
        cells = panels(figure)
        assert figure.get_supxlabel() == f"{count} of {count} panels"
        assert len(cells) == count
        assert len({axes.images[0].get_clim() for axes in cells}) == 1
    assert np.allclose(drawn(cells[1]), found[1, 0].mean(axis=0))
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 8, batch_first=True), 4, enable_nested_tensor=False)
    figure = plots.attention(model, torch.randn(1, 20, 8), layer="all", head="all")
    cells = panels(figure)
    assert len(cells) == 4
    assert figure.get_supxlabel().startswith("4 of 16 panels; 12 are left out")
    assert all(len(axes.get_xticklabels()) == len(axes.get_yticklabels()) == 20 for axes in cells)


def test_weights_of_ones_own_attention_are_drawn_as_they_are() -> None:
    weights = torch.softmax(torch.randn(2, 3, 4, 4), dim=-1)
    words = ["a", "b", "c", "d"]
    axes = plots.attention(weights=weights, tokens=[words, words[::-1]], row=1, head=2).axes[0]
    assert np.allclose(drawn(axes), weights[1, 2])
    assert [text.get_text() for text in axes.get_xticklabels()] == words[::-1]
    one = plots.attention(weights=weights[0].numpy(), tokens=words).axes[0]
    assert np.allclose(drawn(one), weights[0].mean(0))
    assert note(one) == "mean of 3 heads"
    assert len(panels(plots.attention(weights=weights[0], head="all"))) == 3
    cross = torch.softmax(torch.randn(1, 2, 4), dim=-1)
    axes = plots.attention(weights=cross, tokens=words, decoder_tokens=["x", "y"]).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["x", "y"]
    batch = {"input_ids": torch.tensor([[7, 8, 9, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0]])}
    axes = plots.attention(None, batch, weights=weights[:1]).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["7", "8", "9", "0"]


@for_each(
    ("settings", "words"),
    [
        ({"layer": 5}, r"layer must be an integer from 0 to 1, several, or \"all\"\n  got: 5\n  fix: layer=1"),
        ({"layer": "mean"}, r"layer must be.*\n  got: 'mean'"),
        ({"head": [0, 2]}, r"head must be an integer from 0 to 1, several, .*\"mean\"\n  got: 2"),
        ({"head": []}, r"head must not be empty\n  got: \[\]"),
        ({"kind": "self"}, r"kind must be one of 'encoder', 'decoder', 'cross'\n  got: 'self'"),
        ({"row": 2}, r"row must be an integer from 0 to 1\n  got: 2"),
        ({"ax": Figure().subplots()}, r"ax has room for one panel\n  got: 3 panels"),
    ],
)
def test_errors_for_missing_layers_heads_and_rows_name_the_existing_ones(
    x: torch.Tensor, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plots.attention(nn.Transformer(8, 2, 2, 2, 16, batch_first=True), (x, x), **settings)


def test_only_weights_or_a_model_are_drawn(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="needs a model, or weights=\n  got: neither of them"):
        plots.attention()
    with pytest.raises(ValueError, match="got: a model and weights"):
        plots.attention(nn.Linear(2, 2), x, weights=x)
    with pytest.raises(ValueError, match=r"sum to at most 1, unlike those of weights=[\s\S]*torch\.softmax"):
        plots.attention(weights=x)
    with pytest.raises(ValueError, match=r"got: shape \(5, 8\)[\s\S]*\[None\]"):
        plots.attention(weights=x[0].softmax(-1))
    with pytest.raises(TypeError, match="weights must be numbers"):
        plots.attention(weights="a")


def test_models_and_batches_without_weights_are_refused(x: torch.Tensor, small: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"this Linear returns no attention.*\n  got: .*no nn.MultiheadAttention"):
        plots.attention(nn.Linear(8, 8), x)
    with pytest.raises(TypeError, match=r"model must be a module\n  got: 'bert'"):
        plots.attention("bert", x)
    with pytest.raises(TypeError, match=r"needs a batch, a mapping"):
        plots.attention(bert_model(small), x)
    with pytest.raises(TypeError, match=r"batch must be a mapping of the model's inputs"):
        plots.attention(nn.MultiheadAttention(8, 2), "text")
    with pytest.raises(ValueError, match=r"no key of the batch is an argument of this Trans.*\n.*\n  fix: .*'src'"):
        plots.attention(nn.TransformerEncoderLayer(8, 2), {"input_ids": torch.ones(1, 2)})
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    hidden = {"query": x, "key": x, "value": x, "key_padding_mask": torch.ones(2, 5, dtype=torch.bool)}
    with pytest.raises(ValueError, match=r"self attention must be finite"):
        plots.attention(module, hidden)

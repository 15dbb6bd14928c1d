"""PositionalEmbedding compared with `embedding(ids) * scale + encoding`, and padded texts with the same texts alone."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each
from torch import nn

from hf_posenc.positions import (
    KINDS,
    PositionalEmbedding,
    SinusoidalPositionalEncoding,
    positional_encoding,
    sinusoidal_encoding,
)

IDS = torch.tensor([[5, 7, 9, 0], [3, 2, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])


# Random tables of std 1, times √8 or 3, have somewhat more than 5 times the spread of sinusoids.
pytestmark = pytest.mark.filterwarnings("ignore:the embedding's spread is over 5 times")


def table(rows: int = 50, width: int = 8, dtype: torch.dtype = torch.float32) -> nn.Embedding:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Embedding(rows, width, dtype=dtype)


@for_each("track", [True, False])
@for_each("scale", [None, "sqrt_d", 0.3])
@for_each("convention", ["vaswani", "marian", "tensor2tensor", "fairseq"])
def test_embeddings_are_the_row_of_the_id_plus_the_row_of_the_position(
    convention: str, scale: Any, track: bool
) -> None:
    embedding = table()
    module = PositionalEmbedding(embedding, convention=convention, scale=scale)
    factor = {None: 1.0, "sqrt_d": math.sqrt(8)}.get(scale, scale)
    first = module.encoding.convention.first_position
    before = embedding.weight.detach().clone()
    with torch.set_grad_enabled(track):
        ours = module(IDS)
        padded = module(IDS, attention_mask=MASK)
        placed = module(IDS, attention_mask=MASK, position_ids=torch.tensor([9, 8, 7, 6]))
    rows = embedding(IDS) * factor
    expected = rows + sinusoidal_encoding(torch.arange(first, first + 4), 8, convention=convention)
    torch.testing.assert_close(ours, expected)
    real = MASK.bool()
    assert torch.equal(padded[real], ours[real])
    assert torch.equal(padded[~real], torch.zeros(3, 8))
    expected = rows + sinusoidal_encoding(torch.tensor([9, 8, 7, 6]), 8, convention=convention)
    torch.testing.assert_close(placed[real], expected[real])
    assert torch.equal(embedding.weight, before)
    assert ours.requires_grad == track


@for_each("track", [True, False])
@for_each("kind", list(KINDS))
def test_every_kind_is_one_argument_and_adds_its_rows(kind: Any, track: bool) -> None:
    embedding = table()
    module = PositionalEmbedding(embedding, encoding=kind, scale=2.0)
    assert type(module.encoding) is KINDS[kind]
    before = embedding.weight.detach().clone()
    with torch.set_grad_enabled(track):
        whole = module(IDS)
        padded = module(IDS, attention_mask=MASK)
        shifted = module(IDS.roll(1, 1), attention_mask=MASK.roll(1, 1))  # padded on the left by one more
    torch.testing.assert_close(whole, embedding(IDS) * 2 + module.encoding(torch.zeros(2, 4, 8)))
    torch.testing.assert_close(padded, whole * MASK[..., None])
    torch.testing.assert_close(shifted[0, 1:], padded[0, :3])
    assert torch.equal(embedding.weight, before)
    learns = bool(list(module.encoding.parameters()))
    assert {name.split(".")[0] for name, _ in module.named_parameters()} == (
        {"embedding", "encoding"} if learns else {"embedding"}
    )


@pytest.mark.parametrize("kind", ["scaled", "learned"])
def test_a_frozen_table_lets_its_encoding_learn(kind: Any) -> None:
    module = PositionalEmbedding(table().requires_grad_(False), encoding=kind)
    (module(IDS, attention_mask=MASK) * torch.randn(2, 4, 8)).sum().backward()
    for weight in module.encoding.parameters():
        assert weight.grad.abs().sum() > 0
    frozen = module.requires_grad_(False)
    assert not frozen(IDS, attention_mask=MASK).requires_grad


def test_an_encoding_module_is_used_as_it_is() -> None:
    encoding = positional_encoding("learned", 8, max_length=6, std=0.1)
    module = PositionalEmbedding(table(), encoding=encoding)
    assert module.encoding is encoding
    assert PositionalEmbedding(table(), encoding="learned", max_length=6).encoding.weight.shape == (6, 8)
    assert PositionalEmbedding(table(), max_length=6).encoding.max_length == 6
    fairseq = PositionalEmbedding(table(), encoding=SinusoidalPositionalEncoding(8, convention="fairseq"))
    assert torch.equal(
        fairseq(IDS, attention_mask=MASK), PositionalEmbedding(table(), convention="fairseq")(IDS, attention_mask=MASK)
    )
    scaled = PositionalEmbedding(table(), encoding="scaled", convention="fairseq", zero_padding=False)
    assert torch.equal(scaled(IDS, attention_mask=MASK)[MASK == 0], table()(IDS)[MASK == 0])


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_encoding_made_by_name_has_device_and_dtype_of_the_table(
    kind: Any, dtype: torch.dtype, device: torch.device
) -> None:
    module = PositionalEmbedding(table(50, 8, dtype).to(device), encoding=kind)
    assert {(weight.device.type, weight.dtype) for weight in module.parameters()} == {(device.type, dtype)}
    for ids in (IDS, IDS.int(), IDS.to(torch.uint8), IDS.to(device)):
        out = module(ids, attention_mask=MASK)
        assert (out.dtype, out.device.type) == (dtype, device.type)
        assert torch.equal(out, module(IDS, attention_mask=MASK))


def test_padding_may_exceed_max_length() -> None:
    module = PositionalEmbedding(table(), encoding="learned", max_length=3)
    assert module(IDS, attention_mask=MASK).shape == (2, 4, 8)
    with pytest.raises(ValueError, match="4 tokens are more than the declared max_length of 3"):
        module(IDS)
    with pytest.raises(ValueError, match="position 3 is beyond the declared length"):
        module(IDS, attention_mask=torch.ones(2, 4))


@given(data=st.data())
@settings(max_examples=60)
def test_padding_side_does_not_change_the_encoding_of_real_tokens(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([1, 2, 7, 33]))
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    scale = data.draw(st.sampled_from([None, "sqrt_d", 0.3]))
    convention = data.draw(st.sampled_from(["vaswani", "fairseq"]))
    count, left = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 20))
    module = PositionalEmbedding(table(50, width, dtype), scale=scale, convention=convention)
    module._spread_seen = True
    ids = torch.randint(0, 50, (1, count))
    with torch.set_grad_enabled(data.draw(st.booleans())):
        alone = module(ids)[0]
        rows, mask = torch.zeros(3, count + left, dtype=torch.long), torch.zeros(3, count + left, dtype=torch.long)
        for row, start in enumerate((0, left, left // 2)):
            rows[row, start : start + count], mask[row, start : start + count] = ids, 1
        padded = module(rows, attention_mask=mask)
    for row in range(3):
        assert torch.equal(padded[row][mask[row].bool()], alone)
    assert not padded[mask == 0].any()


@pytest.mark.parametrize("padding_idx", [None, 0])
def test_positions_never_come_from_the_ids(padding_idx: int | None) -> None:
    embedding = nn.Embedding(50, 8, padding_idx=padding_idx)
    module = PositionalEmbedding(embedding)
    ids = torch.tensor([[0, 0, 5, 0]])
    torch.testing.assert_close(module(ids), embedding(ids) + sinusoidal_encoding(torch.arange(4), 8))


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_padding_is_exactly_zero_even_for_infinite_rows(bad: float, dropout: float) -> None:
    embedding = table()
    with torch.no_grad():
        embedding.weight[0] = bad
    module = PositionalEmbedding(embedding, dropout=dropout, scale="sqrt_d")
    out = module(IDS, attention_mask=MASK)
    assert torch.equal(out[MASK == 0], torch.zeros(3, 8))
    out.sum().backward()
    assert torch.isfinite(embedding.weight.grad).all()
    assert not embedding.weight.grad[0].any()


class Permuted(nn.Embedding):
    """A table whose forward returns vectors in another order in memory."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids.T).transpose(0, 1)


def test_padding_is_zero_in_any_order_of_memory() -> None:
    embedding = PositionalEmbedding(Permuted(50, 8))
    vectors = embedding(IDS, attention_mask=MASK)
    with torch.no_grad():
        without_gradient = embedding(IDS, attention_mask=MASK)
    assert not without_gradient.is_contiguous()
    assert torch.equal(without_gradient, vectors)
    assert not without_gradient[MASK == 0].any()


def test_padding_may_keep_its_vectors() -> None:
    embedding = table()
    padded = PositionalEmbedding(embedding, zero_padding=False)(IDS, attention_mask=MASK)
    torch.testing.assert_close(padded[0, 3], embedding.weight[0] + sinusoidal_encoding(torch.tensor(0), 8))
    fairseq = PositionalEmbedding(embedding, zero_padding=False, convention="fairseq")(IDS, attention_mask=MASK)
    assert torch.equal(fairseq[MASK == 0], embedding(IDS)[MASK == 0])  # the padding row of its table is zero


class Subclassed(nn.Embedding):
    """An embedding with code of its own, for which nothing is left out."""


@given(data=st.data())
@settings(max_examples=60)
def test_real_tokens_alone_are_computed_with_the_same_bits(data: st.DataObject) -> None:
    rows, length = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 6))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    chosen = {
        "convention": data.draw(st.sampled_from(["vaswani", "fairseq", "tensor2tensor"])),
        "scale": data.draw(st.sampled_from([None, "sqrt_d", 0.3])),
        "zero_padding": data.draw(st.booleans()),
    }
    usual, general = table(dtype=dtype).requires_grad_(False), Subclassed(50, 8, dtype=dtype).requires_grad_(False)
    general.load_state_dict(usual.state_dict())
    modules = [PositionalEmbedding(embedding, **chosen) for embedding in (usual, general)]
    for module in modules:
        module(IDS)  # the first call compares sizes
    first = modules[0].encoding.first_position
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    ids = torch.randint(0, 50, (rows, length), generator=draw)
    counts = torch.randint(0, length + 1, (rows, 1), generator=draw)
    starts = data.draw(st.sampled_from([0, 1])) * (length - counts)  # padding on the right or on the left
    columns = torch.arange(length) - starts
    keep = (columns >= 0) & (columns < counts)
    if data.draw(st.booleans()):
        keep &= torch.rand(rows, length, generator=draw) < 0.7  # padding between tokens
    positions = data.draw(st.sampled_from(["none", "counted", "shifted", "int32", "shared", "float"]))
    given_positions = {
        "none": None,
        "counted": torch.where(keep, columns + first, 0),
        "shifted": torch.where(keep, columns + first + 3, 0),
        "int32": (columns + first).int().clamp(min=0),
        "shared": torch.arange(first, first + length),
        "float": (columns + first).double().clamp(min=0),
    }[positions]
    memory = torch.full((rows, length, 8), math.nan, dtype=dtype)
    expected = modules[1](ids, attention_mask=keep, position_ids=given_positions)
    assert torch.equal(modules[0](ids, attention_mask=keep, position_ids=given_positions), expected)
    for module in modules:
        assert (
            module(ids, attention_mask=keep, position_ids=given_positions, out=memory.fill_(math.nan)).data_ptr()
            == memory.data_ptr()
        )
        assert torch.equal(memory, expected)


def test_hooks_and_dropout_are_not_left_out() -> None:
    module = PositionalEmbedding(table().requires_grad_(False), dropout=0.5)
    module(IDS, attention_mask=MASK)
    torch.manual_seed(0)
    dropped = module(IDS, attention_mask=MASK)
    assert (dropped[MASK.bool()] == 0).any()
    module.eval()
    seen: list[Any] = []
    for part in (module.embedding, module.encoding):
        handle = part.register_forward_hook(lambda *call: seen.append(call[-1].shape))
        module(IDS, attention_mask=MASK)
        handle.remove()
    assert seen == [(2, 4, 8), (2, 4, 8)]


def test_the_gradient_is_that_of_the_embedding() -> None:
    embedding = table()
    PositionalEmbedding(embedding, scale=3.0)(IDS, attention_mask=MASK).sum().backward()
    ours, embedding.weight.grad = embedding.weight.grad, None
    (embedding(IDS) * 3.0 * MASK[..., None]).sum().backward()
    assert torch.equal(ours, embedding.weight.grad)


def test_a_subclass_may_change_its_rows_and_hooks_may_keep_them() -> None:
    class Doubled(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2

    doubled = Doubled(50, 8)
    torch.testing.assert_close(
        PositionalEmbedding(doubled)(IDS), doubled.weight[IDS] * 2 + sinusoidal_encoding(torch.arange(4), 8)
    )
    embedding, seen = table(), []
    embedding.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        PositionalEmbedding(embedding)(IDS)
    assert torch.equal(seen[0], embedding.weight[IDS])


def test_a_bool_mask_a_float_mask_and_an_integer_one_mean_the_same() -> None:
    module = PositionalEmbedding(table())
    expected = module(IDS, attention_mask=MASK)
    for mask in (MASK.bool(), MASK.float(), MASK.int()):
        assert torch.equal(module(IDS, attention_mask=mask), expected)


def test_positions_that_drown_the_tokens_give_one_warning() -> None:
    embedding = table(200, 64)
    with torch.no_grad():
        embedding.weight.mul_(0.02)
    module = PositionalEmbedding(embedding)
    with pytest.warns(UserWarning, match=r"positions drown[\s\S]*against 0\.02[\s\S]*sqrt_d"):
        module(IDS, attention_mask=MASK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(IDS, attention_mask=MASK)
        PositionalEmbedding(embedding, scale="sqrt_d")(IDS, attention_mask=MASK)  # 0.02 · 8 = 0.16
        PositionalEmbedding(table(200, 64))(IDS, attention_mask=MASK)


def test_tokens_that_drown_the_positions_give_one_warning() -> None:
    embedding = table(200, 64)
    module = PositionalEmbedding(embedding, scale="sqrt_d")  # 1 · 8 beside 0.7
    with pytest.warns(UserWarning, match=r"tokens drown[\s\S]*against 0\.6[\s\S]*fix: scale=0\.") as found:
        module(IDS, attention_mask=MASK)
    scale = float(str(found[0].message).split("fix: scale=")[1].split(";")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(IDS, attention_mask=MASK)
        PositionalEmbedding(embedding, scale=scale)(IDS, attention_mask=MASK)
        for encoding in ("none", "learned", "scaled"):  # nothing to drown, or able to grow
            PositionalEmbedding(embedding, encoding=encoding, scale="sqrt_d")(IDS, attention_mask=MASK)


def test_a_whole_model_is_refused_with_two_fixes() -> None:
    from transformers import BertConfig, BertModel

    model = BertModel(
        BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=20)
    )
    with pytest.raises(TypeError, match=r"BertModel adds its own positions") as caught:
        PositionalEmbedding(model)
    assert "model.get_input_embeddings()" in str(caught.value)
    assert "use_sinusoidal_positions" in str(caught.value)
    with pytest.warns(UserWarning, match="drown"):
        assert PositionalEmbedding(model.get_input_embeddings())(IDS).shape == (2, 4, 8)


def test_checking_the_embedding_does_not_import_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "transformers.modeling_utils", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)  # any import of it raises
    assert PositionalEmbedding(nn.Embedding(3, 4)).d_model == 4
    with pytest.raises(TypeError, match=r"nn\.Embedding or a subclass"):
        PositionalEmbedding(nn.Linear(2, 2))


def call(ids: Any, mask: Any = None, positions: Any = None, out: Any = None) -> Callable[[], torch.Tensor]:
    return lambda: PositionalEmbedding(table())(ids, attention_mask=mask, position_ids=positions, out=out)


def test_a_row_of_two_tokens_may_have_padding_on_the_left() -> None:
    embed, ids = PositionalEmbedding(table()), IDS[:, :2]
    expected = embed(ids, position_ids=torch.zeros(2, 1, dtype=torch.long).expand(2, 2))[:, 1]
    assert torch.equal(embed(ids, attention_mask=torch.tensor([[False, True]] * 2))[:, 1], expected)
    mixed = embed(ids, attention_mask=torch.tensor([[0, 1], [1, 1]]))
    assert torch.equal(mixed[0, 1], expected[0])
    assert embed(ids[:0], attention_mask=MASK[:0, :2]).shape == (0, 2, 8)


@for_each(
    ("attempt", "error", "words"),
    [
        (lambda: PositionalEmbedding(nn.Linear(8, 8)), TypeError, r"nn\.Embedding or a subclass[\s\S]*Linear"),
        (lambda: PositionalEmbedding(table(), zero_padding="no"), TypeError, r"True or False[\s\S]*'no'"),
        (lambda: PositionalEmbedding(table(), encoding="lernt"), ValueError, r"encoding='learned'"),
        (lambda: PositionalEmbedding(table(), encoding=nn.Embedding(8, 8)), TypeError, "name of a kind or"),
        (
            lambda: PositionalEmbedding(table(), encoding=positional_encoding("none", 9)),
            ValueError,
            r"width 8, an encoding of width 9\n  fix: positional_encoding\(kind, 8\)",
        ),
        (
            lambda: PositionalEmbedding(table(), encoding=positional_encoding("none", 8), scale=2.0),
            ValueError,
            r"scale= is set by the encoding[\s\S]*scale=2\.0[\s\S]*positional_encoding\(kind, 8, scale=2\.0\)",
        ),
        (
            lambda: PositionalEmbedding(table(), encoding="learned", convention="fairseq"),
            TypeError,
            "there is no argument 'convention'",
        ),
        (call([[1, 2]]), TypeError, r"torch\.tensor\(ids\)"),
        (call(IDS[0]), TypeError, r"input_ids\[None\]"),
        (call(IDS.float()), TypeError, "integers"),
        (
            call(torch.tensor([[1, 2, 3, 4], [1, 2, 3, 50]])),
            ValueError,
            r"row 1, column 3 has id 50, the embedding has 50 rows\n  got: 1 of 8 ids[\s\S]*1 rows",
        ),
        (call(torch.tensor([[1, -100]])), ValueError, r"row 0, column 1 has id -100[\s\S]*labels"),
        (call(IDS, MASK[0]), ValueError, r"attention_mask must be \(batch, length\)"),
        (call(IDS, MASK[:1]), ValueError, r"attention_mask \(1, 4\), input_ids \(2, 4\)"),
        (call(IDS[:, :2], torch.arange(2).expand(2, 2)), ValueError, r"hides the first[\s\S]*position_ids=\.\.\."),
        (call(IDS, out=torch.empty(2, 4, 9)), ValueError, r"like the result[\s\S]*\(2, 4, 9\)"),
        (call(IDS, out=torch.empty(2, 4, 8).half()), ValueError, r"torch\.float16[\s\S]*dtype=torch\.float32"),
        (call(IDS, out=torch.empty(4, 2, 8).transpose(0, 1)), ValueError, "not contiguous"),
        (call(IDS, out=torch.empty(2, 4, 8)), ValueError, r"gradient is recorded[\s\S]*weights that train"),
        (call(IDS, out=torch.empty(2, 4, 8, requires_grad=True)), ValueError, "gradient is recorded"),
    ],
)
def test_wrong_arguments_are_refused_with_their_values(attempt: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        attempt()

"""The alternatives to sinusoids compared with their formulas, with x-transformers, and with the shared interface.

Tests of the interface run for every kind, sinusoids included.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from looping import for_each
from torch import nn

from hf_posenc import SinusoidalPositionalEncoding, positional_encoding, sinusoidal_encoding
from hf_posenc.positions import KINDS, LearnedPositionalEncoding, PositionalEncoding

EVERY = list(KINDS)
TRAINED = ["scaled", "learned"]
OTHERS = EVERY[1:]  # test_compile.py has sinusoids
REAL = ["sinusoidal", "scaled", "exponential", "none"]  # kinds that accept real positions
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def made(kind: Any, d_model: int = 8, **settings: Any) -> PositionalEncoding:
    """Return an encoding with the same weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return positional_encoding(kind, d_model, **settings)


@pytest.mark.parametrize("base", [10000.0, 50.0])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 3e-7), (torch.float64, 2e-15), (torch.bfloat16, 2e-3)])
def test_exponential_columns_decay_each_at_its_rate(dtype: torch.dtype, error: float, base: float) -> None:
    positions = [0.0, 0.25, 1.0, 3.0, 17.5, 500.0, 8191.0, 1.7e9]
    rows = positional_encoding("exponential", 7, base=base)(
        torch.zeros(1, len(positions), 7, dtype=dtype), position_ids=torch.tensor(positions, dtype=torch.float64)
    )
    for row, position in zip(rows[0].tolist(), positions, strict=True):
        for column, ours in enumerate(row):
            assert ours == pytest.approx(math.exp(-position * base ** (-column / 7)), abs=error)
    assert torch.equal(rows[0, 0], torch.ones(7, dtype=dtype))


def test_a_learned_table_adds_the_row_of_the_position() -> None:
    module, x = made("learned", max_length=20), torch.randn(2, 3, 8)
    ids = torch.tensor([[4, 0, 19], [7, 7, 1]])
    for positions in (ids, ids.int(), ids.to(torch.uint8)):
        assert torch.equal(module(x, position_ids=positions), x + module.weight[ids])
    assert torch.equal(module(x), x + module.weight[:3])


def test_initial_rows_have_the_std_of_sinusoids_or_the_given_one() -> None:
    kind, sinusoids = "learned", math.sqrt(0.5)
    rows = made(kind, 256)(torch.zeros(1, 400, 256)).detach()
    assert float(rows.square().mean().sqrt()) == pytest.approx(sinusoids, rel=0.1)
    module = made(kind, 256, std=0.02)
    assert module.spread() == pytest.approx(0.02, rel=0.15)
    rows = module(torch.zeros(1, 128, 256)).detach().double()
    assert module.spread() == pytest.approx(float(rows.std(correction=0)), rel=1e-6)
    scaled = positional_encoding("scaled", 8)
    nn.init.constant_(scaled.alpha, 0.5)
    assert scaled.spread() == pytest.approx(SinusoidalPositionalEncoding(8).spread() / 2, rel=1e-6)
    before = copy.deepcopy(made(kind).state_dict())
    module = made(kind)
    module.reset_parameters()
    assert any(not torch.equal(values, before[name]) for name, values in module.state_dict().items())


@pytest.mark.parametrize("dtype", DTYPES)
def test_scaled_sinusoids_are_alpha_times_sinusoids(dtype: torch.dtype) -> None:
    x, positions = torch.randn(2, 5, 9).to(dtype), torch.tensor([0, 3, 3, 70, 2**30])
    plain = SinusoidalPositionalEncoding(9)
    assert torch.equal(
        positional_encoding("scaled", 9).to(dtype)(x, position_ids=positions), plain(x, position_ids=positions)
    )
    half = positional_encoding("scaled", 9).to(dtype)
    nn.init.constant_(half.alpha, 0.5)
    assert torch.equal(half(x, position_ids=positions), sinusoidal_encoding(positions, 9, dtype=dtype) * 0.5 + x)
    half.reset_parameters()
    assert half.alpha == 1


@pytest.mark.parametrize(("scale", "factor"), [(None, 1.0), ("sqrt_d", math.sqrt(8)), (0.3, 0.3)])
def test_none_returns_x_times_scale_in_new_memory(scale: Any, factor: float) -> None:
    x = torch.randn(2, 3, 8)
    module = positional_encoding("none", 8, scale=scale)
    for ours in (module(x), module(x, position_ids=torch.tensor([5.5, -1.0, 3.0]))):
        assert torch.equal(ours, x * factor)
        assert ours.data_ptr() != x.data_ptr()
    out = torch.empty_like(x)
    assert module(x, out=out) is out
    assert torch.equal(out, x * factor)
    expected = x * factor
    assert torch.equal(module(x, out=x), expected)


@for_each("dtype", DTYPES)
@for_each("scale", [None, "sqrt_d", 0.3])
@for_each("width", [1, 7, 33, 100])
@for_each("kind", EVERY)
def test_every_way_to_compute_a_row_gives_the_same_numbers(
    kind: str, width: int, scale: Any, dtype: torch.dtype
) -> None:
    module = made(kind, width, scale=scale).to(dtype)
    with torch.no_grad():
        for weight in module.parameters():  # so that a missing factor would show
            weight.mul_(1.25)
    x, ids = torch.randn(3, 19, width).to(dtype), torch.arange(19)
    expected = module(x).detach()
    assert expected.dtype == dtype
    for positions in (ids, ids.expand(1, -1), ids.expand(3, -1)):
        assert torch.equal(module(x, position_ids=positions), expected)
        assert torch.equal(module(x, position_ids=positions, bound=19), expected)
    if kind != "learned":
        assert torch.equal(module(x, position_ids=ids.float()), expected)
        assert torch.equal(module(x, position_ids=ids.double().expand(3, -1)), expected)
        far, near = (module(x[:, :3], position_ids=torch.tensor([4, second, 0])) for second in (2**30, 1))
        assert torch.equal(far[:, ::2], near[:, ::2])
    assert torch.equal(module(x.clone().requires_grad_()), expected)
    rows = module.rows(ids, x)
    assert rows.shape == (19, width)
    assert rows.dtype == dtype
    assert torch.equal(module(torch.zeros_like(x)), rows.expand(3, -1, -1) + torch.zeros_like(x))
    with torch.no_grad():
        for positions in (None, ids, ids.expand(3, -1)):
            out = torch.empty_like(x)
            assert module(x, position_ids=positions, out=out) is out
            assert torch.equal(out, expected)
        again = x.clone()
        assert torch.equal(module(again, position_ids=ids.expand(3, -1), out=again), expected)


@pytest.mark.parametrize("kind", EVERY)
def test_results_share_no_memory_with_the_module(kind: str) -> None:
    module, x, ids = made(kind), torch.randn(2, 6, 8), torch.arange(6)
    expected, before = module(x).detach(), x.clone()
    for positions in (None, ids, ids[None], ids.expand(2, -1)):
        with torch.no_grad():
            module(x, position_ids=positions).fill_(float("nan"))
            module(x[:1], position_ids=positions if positions is None or positions.ndim == 1 else positions[:1]).fill_(
                float("nan")
            )
        assert torch.equal(module(x, position_ids=positions), expected)
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", EVERY)
def test_the_gradient_reaches_x_and_every_weight(kind: str) -> None:
    module = made(kind, scale=2.0)
    for positions in (None, torch.arange(5), torch.randint(0, 9, (2, 5)), torch.randint(0, 9, (1, 5))):
        module.zero_grad()
        x = torch.randn(2, 5, 8, requires_grad=True)
        (module(x, position_ids=positions) * torch.randn(2, 5, 8)).sum().backward()
        assert x.grad.abs().min() > 0
        for weight in module.parameters():
            assert weight.grad.abs().sum() > 0
    assert bool(list(module.parameters())) == (kind in TRAINED)


@pytest.mark.parametrize("kind", REAL)
def test_real_positions_are_not_rounded(kind: str) -> None:
    """Timestamps: fractional, distant, unsorted, different in each row of the batch."""
    module, x = made(kind), torch.zeros(2, 4, 8)
    times = torch.tensor([[0.0, 0.5, 0.25, 1.7e9], [12.75, 0.5, 3.0, 1.7e9 + 0.5]], dtype=torch.float64)
    rows = module(x, position_ids=times)
    assert rows.isfinite().all()
    assert torch.equal(rows[0, 1], rows[1, 1])
    if kind != "none":
        assert not torch.equal(rows[0, 1], rows[0, 0])
        assert not torch.equal(rows[0, 1], rows[0, 2])
    if kind in ("sinusoidal", "scaled"):
        assert torch.equal(rows, sinusoidal_encoding(times, 8))
        assert not torch.equal(rows[0, 3], rows[1, 3])
        assert torch.equal(module(x, position_ids=-times), sinusoidal_encoding(-times, 8))
    if kind != "exponential":
        assert module(x, position_ids=-times).isfinite().all()


@pytest.mark.parametrize("kind", EVERY)
def test_max_length_limits_given_positions(kind: str) -> None:
    """A packed row may be longer than any document in it."""
    module, packed = made(kind, max_length=4), torch.arange(4).repeat(3)
    assert module(torch.zeros(1, 12, 8), position_ids=packed).shape == (1, 12, 8)
    assert module(torch.zeros(2, 12, 8), position_ids=packed.expand(2, -1), bound=12).shape == (2, 12, 8)


@pytest.mark.parametrize("kind", EVERY)
def test_dropout_only_while_training(kind: str) -> None:
    x = torch.randn(2, 50, 64)
    module, plain, before = made(kind, 64, dropout=0.75), made(kind, 64)(x), x.clone()
    dropped = module(x)
    assert 0.65 < (dropped == 0).float().mean() < 0.85
    assert torch.equal(dropped[dropped != 0], 4 * plain[dropped != 0])
    assert torch.equal(x, before)
    assert torch.equal(module.eval()(x), plain)


@pytest.mark.parametrize("kind", TRAINED)
def test_learned_weights_are_in_the_state_dict(kind: str) -> None:
    module, x = made(kind), torch.randn(2, 9, 8)
    for weight in module.parameters():
        nn.init.normal_(weight)
    expected = module(x)
    assert {name for name, _ in module.named_parameters()} == set(module.state_dict())
    with torch.device("meta"):
        fresh = made(kind)
    assert fresh(x.to("meta")).is_meta
    fresh = fresh.to_empty(device="cpu")
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(fresh(x), expected)
    assert not torch.equal(made(kind)(x), expected)


@pytest.mark.parametrize("kind", EVERY)
def test_copies_and_pickles_are_equal_and_small_without_weights(kind: str) -> None:
    module, x = made(kind, 64, scale=0.5), torch.randn(1, 50, 64)
    expected = module(x)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    written = pickle.dumps(module)
    assert torch.equal(pickle.loads(written)(x), expected)
    assert len(written) < 2000 or kind in TRAINED
    again = type(module)(64, **module.settings())
    assert again.settings() == module.settings()
    assert repr(again) == repr(module)
    assert "scale=0.5" in repr(module)


@pytest.mark.parametrize("kind", EVERY)
def test_autocast_leaves_the_dtype_of_x(kind: str) -> None:
    module, ids = made(kind), torch.arange(5).expand(2, -1)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(2, 5, 8).to(dtype)
        with torch.autocast("cpu", torch.bfloat16):
            for positions in (None, ids):
                ours = module(x, position_ids=positions)
                assert ours.dtype == dtype
                torch.testing.assert_close(
                    ours, module(x.float(), position_ids=positions).to(dtype), rtol=0.02, atol=0.02
                )


@pytest.mark.parametrize("kind", EVERY)
def test_inference_mode_first_and_training_later(kind: str) -> None:
    module = made(kind)
    with torch.inference_mode():
        module(torch.zeros(1, 5, 8))
    for positions in (None, torch.arange(5), torch.arange(5)[None]):
        x = torch.randn(1, 5, 8, requires_grad=True)
        module(x, position_ids=positions).sum().backward()
        assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("kind", OTHERS)
def test_an_exported_program_holds_for_other_lengths(kind: str) -> None:
    module = made(kind, 16)
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2, max=512)
    shapes = {"x": {0: batch, 1: length}, "position_ids": {0: batch, 1: length}}
    x, ids = torch.randn(3, 7, 16), torch.randint(0, 9, (3, 7))
    program = torch.export.export(module, (x,), {"position_ids": ids}, dynamic_shapes=shapes).module()
    x, ids = torch.randn(5, 33, 16), torch.randint(0, 512, (5, 33))
    torch.testing.assert_close(program(x, position_ids=ids), module(x, position_ids=ids))


@pytest.mark.parametrize("kind", EVERY)
def test_two_dimensions_are_the_tokens_of_one_row(kind: str) -> None:
    encode, x = made(kind, scale=2.0).eval(), torch.randn(5, 8)
    positions = torch.tensor([3, 1, 4, 1, 5])
    with torch.no_grad():
        assert torch.equal(encode(x), encode(x[None])[0])
        for given in (positions, positions[None]):
            assert torch.equal(encode(x, position_ids=given), encode(x[None], position_ids=positions)[0])
        out = torch.empty(5, 8)
        assert encode(x, out=out) is out
        assert torch.equal(out, encode(x))
        expected, transposed = encode(x), torch.empty(8, 5).T.copy_(x)
        assert encode(transposed, out=transposed) is transposed
        assert torch.equal(transposed, expected)
    with pytest.raises(ValueError, match=r"position_ids must be \(batch, length\) or \(length,\)"):
        encode(x, position_ids=positions[:, None])
    with pytest.raises(ValueError, match="out must be contiguous memory"), torch.no_grad():
        encode(x, out=torch.empty(1, 5, 8))


X = torch.zeros(2, 5, 8)


@for_each("kind", EVERY)
@for_each(
    ("call", "error", "words"),
    [
        (lambda k: positional_encoding(k, 0), ValueError, r"d_model must be positive[\s\S]*got: 0"),
        (lambda k: positional_encoding(k, 8, scale="sqrt"), TypeError, "scale='sqrt_d'"),
        (lambda k: positional_encoding(k, 8, dropout=1.5), ValueError, r"between 0 and 1[\s\S]*1\.5"),
        (lambda k: positional_encoding(k, 8, max_length=0), ValueError, "max_length must be positive"),
        (lambda k: positional_encoding(k, 8, max_lenght=9), TypeError, "fix: max_length=9"),
        (
            lambda k: made(k)(X[0, 0]),
            ValueError,
            r"expected \(batch, length, d_model\), or \(length, d_model\) for one row[\s\S]*shape \(8,\)",
        ),
        (lambda k: made(k, 9)(X), ValueError, r"d_model=9[\s\S]*\(2, 5, 8\)[\s\S]*PositionalEncoding\(8\)"),
        (lambda k: made(k)(X.long()), TypeError, r"torch\.int64[\s\S]*PositionalEmbedding"),
        (lambda k: made(k, max_length=4)(X), ValueError, r"5 tokens are more than .* of 4[\s\S]*fix: max_length=5"),
        (
            lambda k: made(k, max_length=5)(X, position_ids=torch.arange(5) + 1),
            ValueError,
            r"position 5 is beyond[\s\S]*1 to 5[\s\S]*allowed is 4[\s\S]*fix: (a larger max_length|max_length=6), ",
        ),
        (lambda k: made(k)(X, position_ids=torch.arange(4)), ValueError, r"\(4,\), x \(2, 5, 8\)"),
        (lambda k: made(k)(X, position_ids=X[..., 0] > 0), TypeError, r"torch\.bool"),
        (
            lambda k: made(k)(X, position_ids=torch.zeros(2, 5, requires_grad=True)),
            ValueError,
            r"position_ids\.detach\(\)",
        ),
        (lambda k: made(k)(X, out=X[:1].clone()), ValueError, "contiguous memory like"),
        (lambda k: made(k)(X.clone().requires_grad_(), out=X.clone()), ValueError, "a call without out"),
    ],
)
def test_wrong_arguments_of_every_kind_raise_the_same_message(
    kind: str, call: Callable[[str], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(kind)


@for_each(
    ("call", "error", "words"),
    [
        (lambda: positional_encoding("lernt", 8), ValueError, r"must be one of 'sinusoidal'[\s\S]*kind='learned'"),
        (lambda: positional_encoding("none", 8, base=100), TypeError, "there is no argument 'base'"),
        *(
            (lambda k=kind, b=base: positional_encoding(k, 8, base=b), ValueError, "larger than 1")
            for kind in ("sinusoidal", "scaled", "exponential")
            for base in (1, math.inf)
        ),
        (
            lambda: positional_encoding("exponential", 8)(X, position_ids=torch.tensor([0.0, 1, -0.5, 2, 3])),
            ValueError,
            r"no row for a negative position\n  got: positions -0\.5 to 3\n  fix: .*'sinusoidal'",
        ),
        (
            lambda: LearnedPositionalEncoding(8)(X, position_ids=torch.arange(5) - 1),
            ValueError,
            r"negative[\s\S]*positions -1 to 3",
        ),
        (
            lambda: LearnedPositionalEncoding(8)(X, position_ids=torch.arange(5) / 2),
            TypeError,
            r"integer positions only\n  got: position_ids of torch\.float32\n  fix: position_ids\.long\(\)",
        ),
        (
            lambda: LearnedPositionalEncoding(8)(torch.zeros(1, 513, 8)),
            ValueError,
            r"513 tokens are more than .* of 512\n  got: .*\n  fix: max_length=513, or a kind .* 'sinusoidal'",
        ),
        (lambda: LearnedPositionalEncoding(8, std=0), ValueError, "std must be positive"),
        (lambda: made("learned")(X, out=X.clone()), ValueError, r"weights that train[\s\S]*a call without out"),
        (lambda: PositionalEncoding(8)(X), NotImplementedError, "PositionalEncoding must implement"),
    ],
)
def test_wrong_arguments_of_one_kind_raise(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()

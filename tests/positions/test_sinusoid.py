"""The encoding compared with tables worked out by hand and its four known properties; equal bits by every call.

Then gradients, dropout, the repr and errors; exactness, state and compilation have files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from looping import for_each

from hf_posenc import PositionalEmbedding, positional_encoding
from hf_posenc.positions import (
    Convention,
    SinusoidalPositionalEncoding,
    cache,
    clear_cache,
    fixed_bases,
    frequencies,
    sinusoidal_encoding,
)

LOW = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    clear_cache()
    yield
    clear_cache()


def test_the_table_of_the_first_four_positions() -> None:
    expected = [
        [0, 1, 0, 1, 0, 1, 0, 1],
        [0.8415, 0.5403, 0.0998, 0.9950, 0.0100, 1, 0.0010, 1],
        [0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 1],
        [0.1411, -0.9900, 0.2955, 0.9553, 0.0300, 0.9996, 0.0030, 1],
    ]
    torch.testing.assert_close(sinusoidal_encoding(torch.arange(4), 8), torch.tensor(expected), rtol=0, atol=5.1e-5)
    assert frequencies(8).tolist() == [1.0, 0.1, 0.01, 0.001]


@pytest.mark.parametrize("dtype", LOW)
def test_positions_may_be_tensors_arrays_or_sequences(dtype: torch.dtype, device: torch.device) -> None:
    expected = sinusoidal_encoding(torch.arange(4), 6, dtype=dtype)
    for positions in (
        torch.arange(4, dtype=torch.int32, device=device),
        torch.arange(4, dtype=torch.float16, device=device),
        torch.arange(4, dtype=torch.uint8, device=device),
    ):
        ours = sinusoidal_encoding(positions, 6, dtype=dtype)
        assert ours.device == positions.device
        assert ours.dtype == dtype
        assert torch.equal(ours.cpu(), expected)
    assert torch.equal(sinusoidal_encoding([0, 1, 2, 3], 6, dtype=dtype, device=device).cpu(), expected)
    assert torch.equal(sinusoidal_encoding(torch.arange(4).numpy(), 6, dtype=dtype), expected)


def test_only_modules_cache_rows() -> None:
    sinusoidal_encoding(torch.arange(10), 8)
    assert not cache._tables[0]


def test_a_cached_table_grows_but_not_for_a_single_distant_position() -> None:
    module = SinusoidalPositionalEncoding(4)

    def cached_rows() -> int:
        return sum(len(rows) for rows in cache._tables[0].values())

    module(torch.zeros(1, 10, 4))
    assert cached_rows() == 256
    module(torch.zeros(1, 300, 4))
    assert cached_rows() == 512
    far = module(torch.zeros(1, 1, 4), position_ids=torch.tensor([[100_000]]))
    assert cached_rows() == 512
    assert torch.equal(far[0, 0], sinusoidal_encoding(torch.tensor(100_000), 4))
    assert module(torch.zeros(0, 5, 4)).shape == (0, 5, 4)
    assert module(torch.zeros(2, 0, 4), position_ids=torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 4)
    grown = module(torch.zeros(1, 2000, 4))
    assert torch.equal(grown[0], sinusoidal_encoding(torch.arange(2000), 4))


def test_each_encoding_has_its_own_cached_table() -> None:
    x = torch.zeros(1, 4, 6)
    seen = [
        SinusoidalPositionalEncoding(6, convention=convention, base=base)(x)
        for convention, base in (("vaswani", None), ("vaswani", 500), ("marian", None), (fixed_bases(4, 5, 7), None))
    ]
    assert len({rows.numpy().tobytes() for rows in seen}) == 4
    assert torch.equal(SinusoidalPositionalEncoding(6, base=10000)(x), seen[0])


def test_the_number_of_cached_tables_is_bounded() -> None:
    for width in range(1, 50):
        SinusoidalPositionalEncoding(width)(torch.zeros(1, 1, width))
    assert len(cache._tables[0]) == 32


def test_settings_are_in_the_repr() -> None:
    module = SinusoidalPositionalEncoding(8, scale="sqrt_d", dropout=0.1)
    words = repr(module)
    assert words.startswith("SinusoidalPositionalEncoding(8, ")
    for part in ("convention='vaswani'", "base=10000.0", "scale='sqrt_d'", "dropout=0.1", "max_length=None"):
        assert part in words
    assert "fixed_bases(4, 5, 7)" in repr(SinusoidalPositionalEncoding(6, convention=fixed_bases(4, 5, 7)))


X = torch.zeros(2, 5, 8)


@for_each(
    ("call", "error", "words"),
    [
        (lambda: sinusoidal_encoding(100, 8), TypeError, r"not how many[\s\S]*got: 100[\s\S]*torch\.arange\(100\)"),
        (lambda: sinusoidal_encoding(torch.tensor([True]), 8), TypeError, r"torch\.bool[\s\S]*from_mask"),
        (lambda: sinusoidal_encoding([0.5, None], 8), TypeError, r"real numbers[\s\S]*None"),
        (lambda: sinusoidal_encoding([[1], [1, 2]], 8), ValueError, r"each row[\s\S]*\[\[1\], \[1, 2\]\][\s\S]*fix"),
        (lambda: frequencies(8, base=10**400), ValueError, r"finite and larger than 1[\s\S]*got: 100"),
        (lambda: sinusoidal_encoding(torch.zeros(2, requires_grad=True), 8), ValueError, r"positions\.detach\(\)"),
        (lambda: sinusoidal_encoding(torch.arange(2), 4.0), TypeError, "an integer"),
        (lambda: sinusoidal_encoding(torch.arange(2), 4, dtype=torch.int64), TypeError, r"torch\.float32"),
        (lambda: SinusoidalPositionalEncoding(8, scale=True), TypeError, "scale must be a number"),
        (lambda: SinusoidalPositionalEncoding(8, dropout="0.1"), TypeError, "a number"),
        (
            lambda: SinusoidalPositionalEncoding(8, max_length=5)(X, position_ids=torch.arange(5) + 1, bound=9),
            ValueError,
            r"position 5 is beyond[\s\S]*1 to 5[\s\S]*allowed is 4",
        ),
        (
            lambda: sinusoidal_encoding([0.5, math.nan, math.inf], 8),
            ValueError,
            r"must be finite[\s\S]*got: 2 of 3 are not: nan at",
        ),
        (
            lambda: SinusoidalPositionalEncoding(8, max_length=9)(X, position_ids=X[..., 0] + math.nan),
            ValueError,
            r"position_ids must be finite[\s\S]*nan_to_num",
        ),
        *(
            (
                lambda out=out: SinusoidalPositionalEncoding(8)(X, out=out),
                ValueError,
                r"out must be contiguous memory[\s\S]*not contiguous",
            )
            for out in (X[:1].expand(2, 5, 8), torch.empty(2, 5, 16)[..., ::2], torch.empty(5, 2, 8).transpose(0, 1))
        ),
    ],
)
def test_wrong_arguments_raise(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


FAR = 2**53  # float64 holds no odd number beyond it
TOO_FAR: list[tuple[Any, str]] = [
    (torch.tensor([0, FAR + 1]), str(FAR + 1)),
    (torch.tensor([0, 2**63 - 1]), str(2**63 - 1)),
    (torch.tensor([0, 2**64 - 1], dtype=torch.uint64), str(2**64 - 1)),
    (torch.tensor([0, -(2.0**54)], dtype=torch.float64), "-1.8014398509481984e+16"),
    (torch.tensor([0, 2.0**60], dtype=torch.bfloat16), "1.15292150460684"),
    ([0, 2**64 - 1], "1.8446744073709552e+19"),  # which NumPy reads as float64
    (np.array([0, FAR + 1], dtype=np.uint64), str(FAR + 1)),
    ([0.5, -math.inf], "-inf"),
    (torch.tensor([0, math.nan], dtype=torch.float16), "nan"),
]


@for_each(("positions", "value"), TOO_FAR)
def test_positions_beyond_float64_raise_and_the_message_has_the_value(positions: Any, value: str) -> None:
    with pytest.raises(ValueError, match=r"positions must be finite, and between") as caught:
        sinusoidal_encoding(positions, 8)
    assert value in str(caught.value)
    assert "at index (1,)" in str(caught.value)
    for kind in ("sinusoidal", "scaled", "exponential", "none"):
        with pytest.raises(ValueError, match=r"position_ids must be finite, and between"):
            positional_encoding(kind, 8)(X[:1, :2], position_ids=positions)
    with pytest.raises(ValueError, match=r"position_ids must be finite, and between"):
        PositionalEmbedding(torch.nn.Embedding(4, 8))(torch.zeros(1, 2, dtype=torch.long), position_ids=positions)


@pytest.mark.parametrize("far", [FAR, -FAR])
def test_the_largest_position_is_accepted_in_every_form(far: int) -> None:
    expected = sinusoidal_encoding(torch.tensor([1, far]), 8)
    for positions in ([1, far], np.array([1, far], dtype=object), torch.tensor([1, far], dtype=torch.float64)):
        assert torch.equal(sinusoidal_encoding(positions, 8), expected)


def test_positions_beyond_float64_raise_in_a_compiled_graph_too() -> None:
    module = SinusoidalPositionalEncoding(8)
    for value in (float("inf"), FAR + 1):
        with pytest.raises(ValueError, match=r"positions must be finite, and between"):
            torch.compile(module, backend="eager")(X[:1, :2], position_ids=torch.tensor([0, value]))


@pytest.mark.parametrize("place", ["first_position", "padding_position"])
def test_a_convention_with_positions_beyond_float64_raises(place: str) -> None:
    for value in (FAR + 1, 2**70):
        with pytest.raises(ValueError, match=rf"{place} must be finite, and between[\s\S]*{value}"):
            Convention("far", **{place: value})
    module = SinusoidalPositionalEncoding(8, convention=Convention("far", first_position=FAR - 1))
    with pytest.raises(ValueError, match=rf"positions must be finite, and between[\s\S]*{FAR + 1}"):
        module(X[:1])


@for_each("length", [3, 5])
def test_max_length_may_end_before_position_0(length: int) -> None:
    module, x = (
        SinusoidalPositionalEncoding(8, convention=Convention("x", first_position=-5), max_length=length),
        X[:, :length],
    )
    assert torch.equal(module(x), module(x, position_ids=torch.arange(-5, length - 5)))
    with pytest.raises(ValueError, match=f"position {length - 5} is beyond"):
        module(x, position_ids=torch.arange(-4, length - 4))

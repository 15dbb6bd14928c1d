"""Conventions compared with their formulas, each other, and JSON; with other packages in `test_peers`."""

from __future__ import annotations

import ast
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from looping import for_each

from hf_posenc import PositionalEmbedding
from hf_posenc.positions import (
    CONVENTIONS,
    Convention,
    SinusoidalPositionalEncoding,
    fixed_bases,
    frequencies,
    reorder_columns,
    resolve_convention,
    sinusoidal_encoding,
)


@for_each(
    "convention",
    [
        *CONVENTIONS.values(),
        fixed_bases(4, 5, 7),
        fixed_bases(2.5),
        Convention("mine", layout="interleaved", spacing="ends", first_position=3),
        Convention("bases in halves", layout="halves", bases=(4, 9)),
        Convention("seconds", wavelengths=(0.01, 60)),
        Convention("slow", cosine_first=True, base=1e6),
    ],
)
def test_a_convention_survives_json_and_pickle(convention: Convention) -> None:
    back = Convention.from_dict(json.loads(json.dumps(convention.to_dict())))
    assert back == convention
    assert hash(back) == hash(convention)
    assert pickle.loads(pickle.dumps(convention)) == convention
    assert Convention(*convention.values()) == convention
    assert resolve_convention(convention) is convention


def test_numpy_numbers_become_python_numbers() -> None:
    """JSON supports no others, and the compiled operator reads a convention back from its text."""
    bases = fixed_bases(*np.array([4.0, 5.0, 7.0]))
    first = Convention("first", first_position=np.int64(2), padding_position=np.int64(0))
    for convention in (bases, first):
        assert Convention.from_dict(json.loads(json.dumps(convention.to_dict()))) == convention
        assert Convention(*ast.literal_eval(convention.key)) == convention
        module, x = SinusoidalPositionalEncoding(6, convention=convention), torch.zeros(1, 3, 6)
        assert torch.equal(torch.compile(module, fullgraph=True, backend="eager")(x), module(x))


@pytest.mark.parametrize(
    ("convention", "text"),
    [
        (CONVENTIONS["vaswani"], "sines and cosines side by side, of p / 10000^(2i/D)"),
        (Convention("x", cosine_first=True, base=50), "cosines and sines side by side, of p / 50^(2i/D)"),
        (fixed_bases(*range(2, 9)), "sines and cosines side by side, one turn in 2, 3, 4, 5, 6, 7, … positions"),
        (
            Convention("x", "halves", "ends", wavelengths=(0.5, 8)),
            "sines, then cosines, one turn in 0.5 to 8 positions, spaced by i/(H-1)",
        ),
    ],
)
def test_a_convention_is_printed_as_its_formula(convention: Convention, text: str) -> None:
    assert str(convention) == text


def test_a_preset_is_saved_by_its_name() -> None:
    for name, convention in CONVENTIONS.items():
        assert convention.to_dict() == {"name": name}
        assert resolve_convention(name) is convention


def test_the_first_position_may_be_negative() -> None:
    early = Convention("early", first_position=-3)
    for module in (SinusoidalPositionalEncoding(8, convention=early), _compiled(early)):
        for length in (1, 2, 3, 5, 300):
            expected = sinusoidal_encoding(torch.arange(-3, length - 3), 8)
            assert torch.equal(module(torch.zeros(1, length, 8))[0], expected)
    embed = PositionalEmbedding(torch.nn.Embedding.from_pretrained(torch.zeros(4, 8)), convention=early)
    mask = torch.tensor([[0, 1, 1, 1, 1]])
    with pytest.warns(UserWarning, match="drown"):
        assert torch.equal(
            embed(torch.ones_like(mask), attention_mask=mask)[0, 1:], sinusoidal_encoding(torch.arange(-3, 1), 8)
        )


def _compiled(convention: Convention) -> Any:
    module = SinusoidalPositionalEncoding(8, convention=convention)
    return torch.compile(module, fullgraph=True, dynamic=True, backend="eager")


def test_m2m100_is_fairseq_and_whisper_is_tensor2tensor_by_other_names() -> None:
    assert CONVENTIONS["m2m100"].values()[1:] == CONVENTIONS["fairseq"].values()[1:]
    assert CONVENTIONS["whisper"].values()[1:] == CONVENTIONS["tensor2tensor"].values()[1:]
    assert CONVENTIONS["fairseq"].formula == CONVENTIONS["tensor2tensor"].formula != CONVENTIONS["musicgen"].formula


ORDERED = [
    ("vaswani", "marian"),
    ("marian", "vaswani"),
    ("fairseq", "musicgen"),
    ("musicgen", "whisper"),
    ("m2m100", "tensor2tensor"),
    ("marian", Convention("turned", cosine_first=True)),  # but for odd widths, whose last column is a cosine there
]


@for_each(
    ("a", "b", "width"),
    [(a, b, width) for a, b in ORDERED for width in (2, 3, 8, 64, 65) if width % 2 == 0 or isinstance(b, str)],
)
def test_the_order_turns_rows_of_one_convention_into_rows_of_the_other(a: Any, b: Any, width: int) -> None:
    order = reorder_columns(a, b, width)
    assert order.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(width))
    rows, wanted = (sinusoidal_encoding(torch.arange(300), width, convention=each) for each in (a, b))
    assert torch.equal(rows[:, order], wanted)
    assert torch.equal(reorder_columns(b, a, width), order.argsort())


def test_fixed_bases_can_be_reordered_even_equal_ones() -> None:
    a, b = fixed_bases(4, 7, 4, 5), Convention("b", layout="halves", bases=(5, 4, 4, 7))
    rows, wanted = (sinusoidal_encoding(torch.arange(30), 8, convention=each) for each in (a, b))
    assert torch.equal(rows[:, reorder_columns(a, b, 8)], wanted)
    assert sorted(reorder_columns(a, b, 8).tolist()) == list(range(8))


def test_frequencies_that_differ_beyond_float64_cannot_be_converted() -> None:
    """2π as a float is not 2π: two columns with one float64 frequency have other bits at some positions."""
    lengths = Convention("lengths", wavelengths=(2 * math.pi, 2 * math.pi * 10000))
    assert frequencies(1).equal(frequencies(1, convention=lengths))
    rows, others = (
        sinusoidal_encoding(torch.arange(300), 1, convention=each, dtype=torch.float64) for each in ("vaswani", lengths)
    )
    assert not torch.equal(rows, others)
    with pytest.raises(ValueError, match="no order of columns turns 'vaswani' into 'lengths'"):
        reorder_columns("vaswani", lengths, 1)


@pytest.mark.parametrize(
    ("a", "b", "width", "words"),
    [
        ("vaswani", "fairseq", 8, r"'vaswani' into 'fairseq': its column 1 is a sine of one turn in 135\.367 pos"),
        ("vaswani", "tensor2tensor", 3, r"column 2 is zeros"),
        ("marian", Convention("turned", cosine_first=True), 3, r"column 2 is a cosine of one turn in"),
        ("vaswani", Convention("slow", base=1e6), 8, r"into 'slow': its column 2[\s\S]*1000000\^\(2i/D\)"),
        ("vaswani", fixed_bases(4, 5), 4, r"column 0 is a sine of one turn in 4 positions[\s\S]*fix: new rows"),
    ],
)
def test_conventions_that_cannot_be_converted_raise_with_the_reason(a: Any, b: Any, width: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reorder_columns(a, b, width)


@for_each(
    ("call", "error", "words"),
    [
        (lambda: resolve_convention("vaswanni"), ValueError, r"'vaswani', 'tensor2t[\s\S]*fix: convention='vaswani'"),
        (lambda: resolve_convention(3), TypeError, "a name or a Convention"),
        (lambda: Convention.from_dict({"name": "vaswani", "lay_out": 1}), TypeError, "keyword argument 'lay_out'"),
        (lambda: Convention.from_dict({"name": "alibi"}), ValueError, "'alibi'"),
        (lambda: Convention("x", base=0), ValueError, r"larger than 1[\s\S]*got: 0\b"),
        (lambda: Convention("x", wavelengths=(60, 0.01)), ValueError, r"shortest and the longest[\s\S]*\(60, 0.01\)"),
        (lambda: Convention("x", wavelengths=(4, 9), bases=(4, 9)), ValueError, "exclude each other"),
        (lambda: Convention("x", wavelengths=(1, 10**400)), ValueError, "positive and finite"),
        (lambda: Convention(3), TypeError, r"must be a str[\s\S]*got: 3"),
        (lambda: Convention("x", cosine_first="no"), TypeError, r"must be a bool[\s\S]*'no'"),
        (lambda: Convention("x", first_position=1.5), TypeError, r"first_position[\s\S]*got: 1\.5"),
        (lambda: Convention("x", padding_position=True), TypeError, "padding_position must be an integer"),
        (
            lambda: Convention("x", layout="rows"),
            ValueError,
            "layout must be one of 'interleaved', 'halves'\n  got: 'rows'",
        ),
        (lambda: Convention("x", spacing="even"), ValueError, "spacing must be one of 'width', 'ends'\n  got: 'even'"),
        (lambda: Convention("x", padding_position=-1), ValueError, r"padding_position[\s\S]*got: -1"),
        (lambda: Convention("x", wavelengths=(4, 9), base=100), ValueError, "exclude each other"),
        (lambda: Convention("x", bases=(4, 9), base=100), ValueError, "exclude each other"),
        (
            lambda: frequencies(8, convention=Convention("x", wavelengths=(4, 9)), base=100),
            ValueError,
            "exclude each other",
        ),
        (fixed_bases, ValueError, "at least one"),
        (lambda: fixed_bases(4, 1), ValueError, r"larger than 1[\s\S]*got: 1\b"),
        (lambda: fixed_bases("4"), TypeError, "'4'"),
        (lambda: sinusoidal_encoding(torch.arange(3), 8, convention=fixed_bases(4, 5, 7)), ValueError, "d_model=6"),
    ],
)
def test_wrong_arguments_raise(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_numpy_numbers_are_accepted_like_python_numbers() -> None:
    theirs = (
        Convention("x", wavelengths=np.array([4, 512])),
        Convention("x", base=np.float32(100)),
        fixed_bases(np.int64(4)),
    )
    ours = Convention("x", wavelengths=(4, 512)), Convention("x", base=100), fixed_bases(4)
    assert theirs == ours
    assert [each.key for each in theirs] == [each.key for each in ours]
    module = SinusoidalPositionalEncoding(8, base=np.int64(100), scale=np.float32(2), dropout=np.float64(0.5))
    assert repr(module) == repr(SinusoidalPositionalEncoding(8, base=100, scale=2.0, dropout=0.5))

"""Conventions held against the tables of transformers and the formula of tensor2tensor, and against JSON."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
import torch

from hf_posenc.sinusoid import (
    CONVENTIONS,
    Convention,
    SinusoidalPositionalEncoding,
    fixed_bases,
    frequencies,
    resolve_convention,
    sinusoidal_encoding,
    sinusoidal_table,
)

# ------------------------------------------------------------------------------------------------------- theirs / ours


@pytest.mark.parametrize("width", [2, 5, 8, 64, 511, 512])
def test_marian_is_the_table_of_transformers(width: int) -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(300, width).create_weight()
    ours = sinusoidal_encoding(torch.arange(300), width, convention="marian")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=6e-8)  # theirs rounds a float64 sine as well


@pytest.mark.parametrize("width", [4, 5, 8, 64, 511, 512])
@pytest.mark.parametrize("padding_idx", [1, None])
def test_fairseq_is_the_table_of_m2m100(width: int, padding_idx: int | None) -> None:
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(300, width, padding_idx)
    if padding_idx is None:
        ours = sinusoidal_encoding(torch.arange(300), width, convention="fairseq")
    else:
        ours = sinusoidal_table(300, width, convention="fairseq")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=3e-5)  # theirs has float32 angles of up to 300
    assert CONVENTIONS["fairseq"].first_position == 2


def test_fairseq_counts_as_m2m100_does() -> None:
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs = M2M100SinusoidalPositionalEmbedding(20, 16, padding_idx=1)
    ids = torch.tensor([[5, 6, 7, 8]])
    ours = SinusoidalPositionalEncoding(16, convention="fairseq")(torch.zeros(1, 4, 16))
    torch.testing.assert_close(ours, theirs(ids), rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 64, 129])
def test_tensor2tensor_is_get_timing_signal_1d(width: int) -> None:
    scales = width // 2
    step = math.log(1.0e4 / 1.0) / max(scales - 1, 1)
    inverse = [math.exp(-i * step) for i in range(scales)]
    theirs = [
        [math.sin(p * f) for f in inverse] + [math.cos(p * f) for f in inverse] + [0.0] * (width % 2)
        for p in range(200)
    ]
    ours = sinusoidal_encoding(torch.arange(200), width, convention="tensor2tensor", dtype=torch.float64)
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=0, atol=1e-12)


def test_halves_and_interleaved_hold_the_same_columns_where_the_spacing_is_the_same() -> None:
    positions = torch.arange(50)
    vaswani, marian = (sinusoidal_encoding(positions, 12, convention=name) for name in ("vaswani", "marian"))
    assert torch.equal(vaswani[:, 0::2], marian[:, :6])
    assert torch.equal(vaswani[:, 1::2], marian[:, 6:])


def test_fixed_bases_turn_once_in_as_many_positions() -> None:
    ours = sinusoidal_encoding(torch.arange(30), 6, convention=fixed_bases(4, 5, 7), dtype=torch.float64)
    theirs = [[f(2 * math.pi * p / b) for b in (4, 5, 7) for f in (math.sin, math.cos)] for p in range(30)]
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=0, atol=1e-13)
    assert frequencies(6, convention=fixed_bases(4, 5, 7)).tolist() == [2 * math.pi / b for b in (4, 5, 7)]


# ----------------------------------------------------------------------------------------------------------- property


@pytest.mark.parametrize(
    "convention",
    [
        *CONVENTIONS.values(),
        fixed_bases(4, 5, 7),
        fixed_bases(2.5),
        Convention("mine", layout="interleaved", spacing="ends", first_position=3),
        Convention("bases in halves", layout="halves", bases=(4, 9)),
    ],
    ids=lambda convention: convention.name,
)
def test_a_convention_comes_back_from_json_and_from_a_pickle(convention: Convention) -> None:
    back = Convention.from_dict(json.loads(json.dumps(convention.to_dict())))
    assert back == convention
    assert hash(back) == hash(convention)
    assert pickle.loads(pickle.dumps(convention)) == convention
    assert Convention(*convention.values()) == convention
    assert resolve_convention(convention) is convention


def test_a_preset_is_written_by_its_name_alone() -> None:
    for name, convention in CONVENTIONS.items():
        assert convention.to_dict() == {"name": name}
        assert resolve_convention(name) is convention


def test_a_convention_of_another_layout_may_not_pass_for_a_preset_in_a_file() -> None:
    impostor = Convention("vaswani", layout="halves")
    assert impostor.to_dict()["layout"] == "halves"
    assert Convention.from_dict(impostor.to_dict()) == impostor


# ------------------------------------------------------------------------------------------------------------ refusal


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: resolve_convention("vaswanni"), ValueError, r"'vaswani', 'marian'[\s\S]*fix: convention='vaswani'"),
        (lambda: resolve_convention(3), TypeError, "a name or a Convention"),
        (lambda: Convention("x", layout="columns"), ValueError, "'interleaved', 'halves'"),
        (lambda: Convention("x", spacing="log"), ValueError, "'width', 'ends'"),
        (lambda: Convention.from_dict({"name": "vaswani", "lay_out": 1}), ValueError, r"'lay_out'[\s\S]*layout"),
        (lambda: Convention.from_dict({"layout": "halves"}), ValueError, "needs a name"),
        (lambda: Convention.from_dict({"name": "alibi"}), ValueError, "'alibi'"),
        (fixed_bases, ValueError, "at least one"),
        (lambda: fixed_bases(4, 1), ValueError, r"more than 1[\s\S]*got: 1\b"),
        (lambda: fixed_bases(float("nan")), ValueError, "nan"),
        (lambda: fixed_bases("4"), TypeError, "'4'"),
        (lambda: sinusoidal_encoding(torch.arange(3), 8, convention=fixed_bases(4, 5, 7)), ValueError, "d_model=6"),
        (
            lambda: sinusoidal_encoding(torch.arange(3), 6, convention=fixed_bases(4, 5, 7), base=9),
            ValueError,
            "no base of their own",
        ),
    ],
)
def test_what_is_refused_and_with_which_words(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()

"""Recognition of tables: tables of this package and of transformers, changed ones and random ones."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from looping import for_each
from sinusoid_reference import table_of

from hf_posenc import Convention, fixed_bases, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, Identified, identify

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def largest_error(table: torch.Tensor, found: Identified) -> float:
    """The definition of `largest_error`, in plain float64."""
    rows = torch.arange(len(table)) + found.first_position
    made = sinusoidal_encoding(rows, table.shape[1], convention=found.convention, dtype=torch.float64)
    made[list(found.zero_rows)] = 0
    return float((table.double() - found.amplitude * made).abs().max())


@for_each("dtype", DTYPES)
@for_each("width", [4, 5, 65, 256])
@for_each("name", CONVENTIONS)
def test_every_table_that_we_write_is_recognized_as_exact(name: str, width: int, dtype: torch.dtype) -> None:
    convention = CONVENTIONS[name]
    table = table_of(300, width, convention=name, dtype=dtype)
    found = identify(table)
    assert found.is_sinusoidal
    assert found.is_exact
    assert name in found.presets
    if name != "vaswani" or width != 5:  # another convention gives the same table there
        assert found.convention.formula == convention.formula
    assert (found.first_position, found.amplitude) == (0, 1)
    assert found.zero_rows == (() if convention.padding_position is None else (1,))
    assert found.largest_error == pytest.approx(largest_error(table, found), abs=1e-15)


def test_zero_rows_before_the_first_position_shift_it() -> None:
    table = torch.zeros(130, 32)
    table[2:] = sinusoidal_encoding(torch.arange(128), 32)
    found = identify(table)
    assert (found.zero_rows, found.first_position, found.is_exact) == ((0, 1), -2, True)
    table[[50, 129]] = 0
    assert identify(table).zero_rows == (0, 1, 50, 129)
    assert "\n  zero rows      [0, 1, 50, 129]\n" in str(identify(table))


@pytest.mark.parametrize("inside", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("outside", [torch.float32, torch.float64])
def test_half_precision_numbers_in_a_wider_dtype_are_exact(inside: torch.dtype, outside: torch.dtype) -> None:
    found = identify(sinusoidal_encoding(torch.arange(400), 64, dtype=inside).to(outside))
    assert (found.is_exact, found.exact_in, found.dtype) == (True, inside, outside)


def test_one_number_with_another_last_bit_is_not_exact() -> None:
    table = sinusoidal_encoding(torch.arange(512), 64)
    table[400, 3] = torch.nextafter(table[400, 3], torch.tensor(2.0))
    found = identify(table)
    assert found.is_sinusoidal  # the sines of other libraries differ as much
    assert not found.is_exact
    rounded = sinusoidal_encoding(torch.arange(512), 64, dtype=torch.bfloat16)
    rounded[400, 3] += 2**-8 * rounded[400, 3].abs().log2().floor().exp2() * 2
    assert not identify(rounded).is_sinusoidal


OWN = [
    Convention("base", base=500),
    Convention("base and layout", "halves", "ends", base=8317.2345, cosine_first=True),
    Convention("columns", "interleaved", "ends"),
    Convention("wavelengths", wavelengths=(3.7, 880)),
    Convention("halves", "halves", "width", wavelengths=(4, 4096)),
    fixed_bases(*range(2, 26)),
]


@for_each("dtype", [torch.float32, torch.bfloat16, torch.float64])
@for_each("convention", OWN)
def test_a_custom_convention_is_recognized_only_if_it_is_given(convention: Convention, dtype: Any) -> None:
    table = sinusoidal_encoding(torch.arange(2, 200), 48, convention=convention, dtype=dtype) / 8
    unnamed = identify(table)
    assert not unnamed.is_sinusoidal
    assert unnamed.presets == ()
    found = identify(table, conventions=[convention])
    assert (found.is_exact, found.first_position, found.amplitude) == (True, 2, 0.125)
    assert found.convention.formula == convention.formula
    assert found.presets == ()
    assert identify(table_of(50, 48), conventions=[convention]).presets[0] == "vaswani"


def test_another_first_position_is_not_recognized() -> None:
    found = identify(sinusoidal_encoding(torch.arange(17, 117), 64))
    assert (found.is_sinusoidal, found.presets) == (False, ())


@pytest.mark.parametrize("factor", [8.0, math.sqrt(512), 0.02])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_scaled_table_is_recognized_with_its_amplitude(factor: float, dtype: torch.dtype) -> None:
    found = identify(sinusoidal_encoding(torch.arange(512), 128, dtype=dtype) * factor)
    assert found.is_sinusoidal
    assert found.is_exact == (factor == 8)  # a power of two changes no digit
    assert found.first_position == 0
    assert found.amplitude == pytest.approx(factor, rel=1e-6 if dtype == torch.float32 else 2e-3)
    assert f"amplitude      {factor:.2g}"[:16] in str(found)


@pytest.mark.parametrize(("rows", "width", "is_enough"), [(1, 8, False), (1, 16, True), (2, 8, True)])
def test_a_row_of_few_numbers_is_not_recognized(rows: int, width: int, is_enough: bool) -> None:
    found = identify(sinusoidal_encoding(torch.arange(1, rows + 1), width))
    assert (found.is_sinusoidal, found.is_exact, found.exact_in is not None) == (is_enough,) * 3


_FAIRSEQ = [
    ("m2m_100", "M2M100SinusoidalPositionalEmbedding", "M2M100"),
    ("nllb_moe", "NllbMoeSinusoidalPositionalEmbedding", "NLLB-MoE"),
    ("xglm", "XGLMSinusoidalPositionalEmbedding", "XGLM"),
    ("speech_to_text", "Speech2TextSinusoidalPositionalEmbedding", "Speech2Text"),
    ("speecht5", "SpeechT5SinusoidalPositionalEmbedding", "SpeechT5"),
    ("trocr", "TrOCRSinusoidalPositionalEmbedding", "TrOCR"),
    ("kosmos2", "Kosmos2TextSinusoidalPositionalEmbedding", "Kosmos-2"),
    ("seamless_m4t", "SeamlessM4TSinusoidalPositionalEmbedding", "SeamlessM4T"),
    ("fsmt", "SinusoidalPositionalEmbedding", "FSMT"),
]
_HALVES = [
    ("marian", "MarianSinusoidalPositionalEmbedding", "Marian"),
    ("pegasus", "PegasusSinusoidalPositionalEmbedding", "Pegasus"),
    ("roformer", "RoFormerSinusoidalPositionalEmbedding", "RoFormer"),
    ("informer", "InformerSinusoidalPositionalEmbedding", "Informer"),
    ("autoformer", "AutoformerSinusoidalPositionalEmbedding", "Autoformer"),
]


def of_transformers(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), name)


@for_each(("rows", "width"), [(512, 64), (40, 33)])
@for_each(("module", "name", "preset"), [*_FAIRSEQ, *_HALVES])
def test_tables_of_halves_are_marians_or_fairseqs(module: str, name: str, preset: str, rows: int, width: int) -> None:
    theirs = of_transformers(module, name)(rows, width, 1)
    if module == "fsmt":
        theirs.make_weight(rows, width, 1)
    found = identify(theirs.create_weight() if hasattr(theirs, "create_weight") else theirs)
    assert found.is_sinusoidal
    assert preset in found.presets
    if hasattr(theirs, "create_weight"):
        assert (found.is_exact, found.presets[0]) == (True, "marian")
        return
    assert found.convention.formula == CONVENTIONS["fairseq"].formula
    assert (found.first_position, found.zero_rows, found.amplitude) == (0, (1,), 1)
    assert found.presets[:4] == ("fairseq", "m2m100", "tensor2tensor", "whisper")
    assert 5e-8 < found.largest_error < 5e-7 * rows  # their angles are float32


@pytest.mark.parametrize(("module", "preset"), [("distilbert", "DistilBERT"), ("xlm", "XLM"), ("flaubert", "FlauBERT")])
def test_interleaved_tables_are_vaswanis(module: str, preset: str) -> None:
    table = torch.empty(512, 48)
    of_transformers(module, "create_sinusoidal_embeddings")(512, 48, table)
    found = identify(table)
    assert (found.is_exact, found.presets[0]) == (True, "vaswani")
    assert preset in found.presets


def test_whisper_qwen_musicgen_videomae_and_ctrl_are_distinguished() -> None:
    assert identify(of_transformers("whisper", "sinusoids")(1500, 384)).presets[:3] == (
        "tensor2tensor",
        "whisper",
        "fairseq",
    )
    qwen = of_transformers("qwen2_5_omni", "SinusoidsPositionEmbedding")(100, 64)
    assert "Qwen2.5-Omni" in identify(qwen).presets
    for module, name in (("musicgen", "Musicgen"), ("musicgen_melody", "MusicgenMelody")):
        found = identify(of_transformers(module, f"{name}SinusoidalPositionalEmbedding")(300, 64))
        assert found.presets == ("musicgen", "MusicGen", "MusicGen Melody")
        assert found.convention.formula == CONVENTIONS["musicgen"].formula
    assert "VideoMAE" in identify(of_transformers("videomae", "get_sinusoid_encoding_table")(100, 64)[0]).presets
    ctrl = of_transformers("ctrl", "positional_encoding")(256, 64, torch.float)
    assert "CTRL" in identify(ctrl).presets


@pytest.mark.parametrize(
    ("rows", "dtype", "error"),
    [(32_768, torch.float32, 1e-3), (8192, torch.bfloat16, 1e-3), (8192, torch.float16, 3e-4)],
    ids=str,
)
def test_long_tables_with_float32_angles_are_recognized_with_their_error(
    rows: int, dtype: torch.dtype, error: float
) -> None:
    theirs = of_transformers("m2m_100", "M2M100SinusoidalPositionalEmbedding").get_embedding(rows, 64).to(dtype)
    found = identify(theirs)
    assert found.is_sinusoidal
    assert not found.is_exact
    assert found.largest_error == pytest.approx(largest_error(theirs, found), rel=1e-9)
    assert error < found.largest_error < 4 * error


@for_each("dtype", [torch.float32, torch.bfloat16])
@for_each(("rows", "width"), [(2, 2), (2, 8), (3, 2), (5, 4), (512, 64), (64, 512), (33, 33)])
def test_random_tables_are_never_recognized(rows: int, width: int, dtype: torch.dtype) -> None:
    for seed in range(5 if rows * width < 1000 else 1):
        made = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
        for table in (made, made * 0.02, made.cumsum(0), torch.sigmoid(made)):
            found = identify(table.to(dtype))
            assert not found.is_sinusoidal
            assert found.presets == ()


@for_each("dtype", [torch.float32, torch.bfloat16])
@for_each("name", CONVENTIONS)
@for_each(("change", "first"), [(1e-3, 0), (0.05, 2), (0.2, 0)])
def test_sinusoids_that_were_trained_further_are_near_but_not_recognized(
    name: str, change: float, first: int, dtype: torch.dtype
) -> None:
    noise = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    table = (sinusoidal_encoding(torch.arange(first, first + 512), 64, convention=name) + change * noise).to(dtype)
    found = identify(table)
    assert not found.is_sinusoidal
    assert not found.is_exact
    assert found.is_near
    assert (found.convention.formula, found.first_position) == (CONVENTIONS[name].formula, first)
    assert found.largest_error == pytest.approx(largest_error(table, found), rel=1e-9)
    assert "near sinusoids, but changed: 512 rows of width 64" in str(found)
    assert f"\n  nearest        {str(found.convention)[:60]}" in str(found)


@pytest.mark.parametrize("row", [0, 300, 511])
def test_one_changed_row_is_reported(row: int) -> None:
    table = sinusoidal_encoding(torch.arange(512), 64)
    table[row] += 0.01
    found = identify(table)
    assert (found.is_sinusoidal, found.is_near, found.presets) == (False, True, ())
    assert found.largest_error == pytest.approx(0.01, rel=1e-4)
    assert "\n  largest error  0.01\n" in f"{found}\n"


def test_a_column_that_should_be_zero_counts() -> None:
    table = sinusoidal_encoding(torch.arange(100), 33, convention="tensor2tensor")
    table[7, 32] = 0.25
    found = identify(table)
    assert (found.is_sinusoidal, found.largest_error) == (False, 0.25)


def test_trained_and_constant_tables_are_not_recognized(trained_positions: torch.Tensor) -> None:
    assert not identify(trained_positions).is_sinusoidal
    assert "not recognized: 512 rows" in str(identify(trained_positions))
    assert not identify(torch.ones(10, 4)).is_sinusoidal
    assert not identify(torch.full((10, 4), -0.5)).is_sinusoidal


def test_a_table_of_zeros_is_not_recognized() -> None:
    found = identify(torch.zeros(5, 8))
    assert (found.is_sinusoidal, found.zero_rows, found.is_near) == (False, (0, 1, 2, 3, 4), False)
    assert "not recognized: 5 rows" in str(found)


def test_arrays_modules_parameters_and_views_give_the_same_result() -> None:
    table = sinusoidal_encoding(torch.arange(64), 16)
    embedding = torch.nn.Embedding.from_pretrained(table)
    buffer = torch.nn.Module()
    buffer.register_buffer("weights", table)
    before, expected = table.clone(), identify(table)
    assert torch.equal(table, before)
    unknown = table * torch.linspace(1, 1.1, 64)[:, None]
    wide = torch.zeros(64, 32)
    wide[:, ::2] = table
    for same in (
        table.numpy(),
        embedding,
        buffer,
        embedding.weight.requires_grad_(),
        wide[:, ::2],
        table.numpy().astype(">f4"),
    ):
        assert identify(same) == expected
    assert identify(table.double().numpy().astype(np.longdouble)).exact_in == torch.float32
    assert identify(table.tolist()).exact_in == torch.float32
    assert identify(sinusoidal_encoding([0, 1, 2], 16, dtype=torch.float16).numpy()).exact_in == torch.float16
    with torch.inference_mode():
        assert identify(table) == expected
    with torch.device("meta"):  # for new tensors
        assert identify(table) == expected
        assert identify(unknown).is_near
    torch.set_default_dtype(torch.float64)
    try:
        assert identify(table) == expected
    finally:
        torch.set_default_dtype(torch.float32)


@for_each(
    ("given", "error", "words"),
    [
        (torch.zeros(3, 5, 8), ValueError, "got: shape (3, 5, 8)"),
        (torch.zeros(()), ValueError, "got: shape ()"),
        (torch.zeros(0, 8), ValueError, "got: shape (0, 8)"),
        (torch.zeros(8, 1), ValueError, "at least two columns"),
        (torch.zeros(8, 8).fill_(math.nan), ValueError, "got: 64 of 64 are NaN or infinite"),
        (torch.eye(8).reciprocal(), ValueError, "got: 56 of 64 are NaN or infinite"),
        (torch.zeros(8, 8, dtype=torch.int64), TypeError, "got: a tensor of torch.int64"),
        (torch.zeros(8, 8, dtype=torch.complex64), TypeError, "floating-point numbers"),
        (torch.zeros(8, 8, device="meta"), NotImplementedError, "meta tensor; no data"),
        (np.zeros((8, 8), dtype=np.int32), TypeError, "floating-point numbers"),
        (torch.nn.LSTM(2, 2), TypeError, "got: LSTM(2, 2)"),
        ("vaswani", TypeError, "got: 'vaswani'"),
        ([[0.5, 1.0], [0.5]], TypeError, "got: [[0.5, 1.0], [0.5]]"),
    ],
)  # fmt: skip
def test_wrong_tables_raise(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as refused:
        identify(given)
    assert words in str(refused.value)

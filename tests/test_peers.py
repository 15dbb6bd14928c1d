"""Each preset compared with the real thing: the tables and modules of other packages.

A float32 angle p·f errs by up to half a unit in its last place, which is p·2**-24 at most, and by as much again through
the frequency; sine and cosine pass the error on, and the table rounds once more. So rows of position p may differ by
(p + 1)·2**-23 where a peer computes angles in float32, and by 2**-24 where it does in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from benchmarks.peers import PEERS, Peer
from benchmarks.theirs import of, of_transformers, timesteps
from looping import for_each
from sinusoid_reference import table_of
from test_readme import REPO

from hf_posenc.positions import CONVENTIONS, Convention, SinusoidalPositionalEncoding, sinusoidal_encoding

Theirs = Callable[[int, int], torch.Tensor]  # (length, width) to the rows of positions 0, 1, …


def assert_same_rows(theirs: torch.Tensor, ours: torch.Tensor, *, first: int = 0, angles: str = "float32") -> None:
    """Row by row, within what the peer's angles explain; `first` is the position of row 0."""
    assert theirs.shape == ours.shape
    assert theirs.dtype == ours.dtype == torch.float32
    positions = torch.arange(first, first + len(ours), dtype=torch.float64)
    allowed = (positions + 1) * 2**-23 if angles == "float32" else torch.full_like(positions, 2**-24)
    apart = (theirs.double() - ours.double()).abs().amax(1)
    beyond = int((apart / allowed).argmax())
    assert apart[beyond] <= allowed[beyond], f"row {beyond} is {apart[beyond]:.2e} apart, {allowed[beyond]:.2e} allowed"


def ours(length: int, width: int, convention: str | Convention, **more: Any) -> torch.Tensor:
    return sinusoidal_encoding(torch.arange(length), width, convention=convention, **more)


def name_of(peer: Peer) -> str:
    return f"{peer.package} {peer.name}".strip()


def test_every_preset_has_a_peer() -> None:
    assert {peer.convention for peer in PEERS} >= set(CONVENTIONS) - {"fairseq"}  # M2M100 stands for it, below


@for_each("width", [4, 64, 512])
@for_each("peer", PEERS)
def test_a_peers_rows_are_those_of_its_convention(peer: Peer, width: int) -> None:
    length = 100 if peer.slow else 1_500
    angles = "float64" if peer.slow else "float32"
    assert_same_rows(peer.rows(length, width, torch.float32), ours(length, width, peer.convention), angles=angles)


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.adds], ids=name_of)
def test_a_peers_module_adds_what_ours_adds_from_the_same_first_position(peer: Peer) -> None:
    x = torch.randn(2, 70, 32, generator=torch.Generator().manual_seed(0))
    module = SinusoidalPositionalEncoding(32, convention=peer.convention)
    assert peer.adds is not None
    torch.testing.assert_close(peer.adds(70, 32)(x), module(x), rtol=0, atol=73 * 2**-23 + 2**-20)


def _weights(model: str, name: str) -> Theirs:
    def rows(length: int, width: int) -> torch.Tensor:
        module = of_transformers(model, name)(length, width)
        for kept in ("weights", "positional_embedding", "weight"):
            if hasattr(module, kept):
                table: torch.Tensor = getattr(module, kept)
                return table
        raise AttributeError(name)

    return rows


def _created(model: str, name: str) -> Theirs:
    return lambda length, width: of_transformers(model, name)(length, width).create_weight()


def _filled(model: str) -> Theirs:
    def rows(length: int, width: int) -> torch.Tensor:
        out = torch.empty(length, width)
        of_transformers(model, "create_sinusoidal_embeddings")(length, width, out)
        return out

    return rows


def _called(model: str, name: str, *more: Any) -> Theirs:
    return lambda length, width: of_transformers(model, name)(length, width, *more).view(length, width)


FLOAT64 = {
    "Pegasus": ("marian", _created("pegasus", "PegasusSinusoidalPositionalEmbedding")),
    "RoFormer": ("marian", _created("roformer", "RoFormerSinusoidalPositionalEmbedding")),
    "Informer": ("marian", _created("informer", "InformerSinusoidalPositionalEmbedding")),
    "Autoformer": ("marian", _created("autoformer", "AutoformerSinusoidalPositionalEmbedding")),
    "XLM": ("vaswani", _filled("xlm")),
    "FlauBERT": ("vaswani", _filled("flaubert")),
    "VideoMAE": ("vaswani", _called("videomae", "get_sinusoid_encoding_table")),
}
FLOAT32 = {
    "Qwen2.5-Omni": ("whisper", _weights("qwen2_5_omni", "SinusoidsPositionEmbedding")),
    "MusicGen Melody": ("musicgen", _weights("musicgen_melody", "MusicgenMelodySinusoidalPositionalEmbedding")),
}
# Those of fairseq's kind: a table from position 0 on, the row of padding zero, the first token at padding + 1.
PADDED = {
    "M2M100": ("m2m_100", "M2M100SinusoidalPositionalEmbedding"),
    "NLLB-MoE": ("nllb_moe", "NllbMoeSinusoidalPositionalEmbedding"),
    "XGLM": ("xglm", "XGLMSinusoidalPositionalEmbedding"),
    "Speech2Text": ("speech_to_text", "Speech2TextSinusoidalPositionalEmbedding"),
    "SpeechT5": ("speecht5", "SpeechT5SinusoidalPositionalEmbedding"),
    "TrOCR": ("trocr", "TrOCRSinusoidalPositionalEmbedding"),
    "Kosmos-2": ("kosmos2", "Kosmos2TextSinusoidalPositionalEmbedding"),
    "SeamlessM4T": ("seamless_m4t", "SeamlessM4TSinusoidalPositionalEmbedding"),
    "FSMT": ("fsmt", "SinusoidalPositionalEmbedding"),
}


@for_each("width", [2, 8, 33, 64])
@for_each("model", FLOAT64)
def test_tables_of_float64_angles_are_ours_to_the_last_bit_but_one(model: str, width: int) -> None:
    convention, theirs = FLOAT64[model]
    assert_same_rows(theirs(200, width), ours(200, width, convention), angles="float64")


@for_each(
    ("model", "width"),
    [(model, width) for model in FLOAT32 for width in (8, 33, 64) if width % 2 == 0 or model != "Qwen2.5-Omni"],
)
def test_tables_of_float32_angles_are_ours_within_their_error(model: str, width: int) -> None:
    convention, theirs = FLOAT32[model]
    assert_same_rows(theirs(1_500, width), ours(1_500, width, convention))


@for_each("convention", ["fairseq", "m2m100"])
@for_each("width", [4, 5, 64, 511])
@for_each("model", PADDED)
def test_tables_with_a_padding_row_are_ours_with_the_same_row_zero(model: str, width: int, convention: str) -> None:
    theirs = of_transformers(*PADDED[model]).get_embedding(300, width, 1)
    table = table_of(300, width, convention=convention)
    assert_same_rows(theirs, table)
    assert torch.equal(theirs[1], table[1])
    if width % 2:
        assert torch.equal(theirs[:, -1], table[:, -1])
        assert not table[:, -1].any()


@for_each("convention", ["fairseq", "m2m100"])
@for_each("model", ["M2M100", "NLLB-MoE", "XGLM", "Speech2Text", "SpeechT5", "SeamlessM4T"])
def test_the_first_token_has_the_position_that_the_model_gives_it(model: str, convention: str) -> None:
    embed = of_transformers(*PADDED[model])(20, 16, 1)
    # XGLM counts from 0 and adds the offset in here, the others count tokens that are no padding.
    theirs = embed(torch.tensor([[0, 1, 2, 3] if model == "XGLM" else [5, 6, 7, 8]]))[0]
    added = SinusoidalPositionalEncoding(16, convention=convention)(torch.zeros(1, 4, 16))[0]
    assert_same_rows(theirs, added, first=2)


@pytest.mark.parametrize("width", [2, 3, 4, 33, 64])
def test_diffusers_timesteps_are_four_conventions_by_two_settings(width: int) -> None:
    for flip in (False, True):
        for shift in (0, 1):
            if width // 2 == shift:
                continue  # it divides by zero
            kind = Convention("ddpm", "halves", "ends" if shift else "width", cosine_first=flip)
            theirs = timesteps(flip=flip, shift=shift)(1_000, width)
            if shift or width % 2 == 0:
                assert_same_rows(theirs, ours(1_000, width, kind))
            else:  # an odd width divides by half of the even one, and ends in zeros
                assert_same_rows(theirs[:, :-1], ours(1_000, width - 1, kind))
                assert not theirs[:, -1].any()


@pytest.mark.parametrize("base", [100, 500.0])
def test_another_base_is_the_max_period_and_the_theta_of_others(base: float) -> None:
    make = of("diffusers.models.embeddings", "get_timestep_embedding")
    assert_same_rows(make(torch.arange(500), 32, max_period=base), ours(500, 32, "tensor2tensor", base=base))
    embed = of("x_transformers.x_transformers", "ScaledSinusoidalEmbedding")(32, theta=base).requires_grad_(False)
    embed.scale.fill_(1)
    assert_same_rows(embed(torch.empty(1, 500, 32)), ours(500, 32, "marian", base=base))


def test_diffusers_takes_real_numbers_for_times_as_we_do() -> None:
    times = torch.rand(50, generator=torch.Generator().manual_seed(0)) * 999
    theirs = of("diffusers.models.embeddings", "get_timestep_embedding")(times, 64)
    torch.testing.assert_close(
        theirs, sinusoidal_encoding(times, 64, convention="tensor2tensor"), rtol=0, atol=1_000 * 2**-23
    )


def test_the_guide_makes_the_image_table_and_the_steps_of_diffusers() -> None:
    page = (REPO / "docs" / "conventions.md").read_text(encoding="utf-8")
    made: dict[str, Any] = {}
    exec(page.partition("## Images, diffusion steps and times")[2].split("```")[1].removeprefix("python"), made)
    patches = torch.as_tensor(of("diffusers.models.embeddings", "get_2d_sincos_pos_embed")(768, 14, base_size=14))
    torch.testing.assert_close(made["patches"].double(), patches, rtol=0, atol=2**-25)
    steps = timesteps(flip=True, shift=0)(1_000, 256)[[0, 250, 999]]
    torch.testing.assert_close(made["steps"], steps, rtol=0, atol=1_000 * 2**-24)

"""The encoding has the same bits after casts, saving, loading, copies, fake modes and other changes of a framework.

Each test runs for all conventions, and with a model that contains the module where models are saved or cast.
"""

from __future__ import annotations

import copy
import decimal
import io
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from looping import for_each
from sinusoid_reference import DISTINCT, FIXED, named, widths
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from transformers import PretrainedConfig, PreTrainedModel

from hf_posenc import PositionalEmbedding
from hf_posenc.positions import (
    Convention,
    SinusoidalPositionalEncoding,
    clear_cache,
    frequencies,
    resolve_convention,
    sinusoidal_encoding,
)

conventions = pytest.mark.parametrize("convention", DISTINCT, ids=named)
LENGTH = 9
IDS = torch.tensor([[0, 0, 3, 5, 7, 9, 11, 2, 4], [6, 8, 10, 1, 3, 5, 7, 2, 4]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    clear_cache()
    yield
    clear_cache()


class Config(PretrainedConfig):
    """Config of a model as a user would write it."""

    model_type = "hf-posenc-tests"

    def __init__(self, d_model: int = 12, convention: str | list[float] = "vaswani", **more: Any) -> None:
        self.d_model, self.convention = d_model, convention
        super().__init__(**more)

    @classmethod
    def of(cls, convention: Convention) -> Config:
        return cls(widths(convention)[0], list(convention.bases) if convention.bases else convention.name)


class Model(PreTrainedModel):
    """An embedding, the encoding twice (inside a PositionalEmbedding and alone), a layer on top."""

    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        known = isinstance(config.convention, str)
        convention = resolve_convention(config.convention) if known else FIXED
        self.embed = PositionalEmbedding(nn.Embedding(16, config.d_model), convention=convention)
        self.pos = SinusoidalPositionalEncoding(config.d_model, convention=convention, scale="sqrt_d")
        self.head = nn.Linear(config.d_model, 3)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding | nn.Linear):
            nn.init.normal_(module.weight)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.head(self.pos(self.embed(input_ids, attention_mask=attention_mask)))


def build(convention: Convention) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model(Config.of(convention)).eval()


def rows_of(module: SinusoidalPositionalEncoding, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return the rows for default, given, distant and fractional positions."""
    x = torch.zeros(2, LENGTH, module.d_model, dtype=dtype)
    ids = torch.arange(LENGTH) + 3
    return [
        module(x),
        module(x, position_ids=ids),
        module(x, position_ids=IDS),
        module(x, position_ids=IDS + 2**30),
        module(x, position_ids=IDS / 4),
    ]


def exact_rows(convention: Convention, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return the same rows, from the function without a cache."""
    first, d_model = convention.first_position, widths(convention)[0]
    counted, placed = torch.arange(LENGTH) + first, torch.arange(LENGTH) + 3
    places = [counted.expand(2, -1), placed.expand(2, -1), IDS, IDS + 2**30, IDS / 4]
    return [sinusoidal_encoding(each, d_model, convention=convention, dtype=dtype) for each in places]


def assert_exact(module: SinusoidalPositionalEncoding, dtype: torch.dtype = torch.float32) -> None:
    """Check equal bits with an empty and with a filled cache."""
    with decimal.localcontext(decimal.Context()):
        expected = exact_rows(module.convention, dtype)
    clear_cache()
    for _ in range(2):
        for ours, rows in zip(rows_of(module, dtype), expected, strict=True):
            assert ours.dtype == dtype
            assert torch.equal(ours, rows)


CASTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "half and back": lambda model: model.half().float(),
    "bfloat16 and back": lambda model: model.bfloat16().float(),
    "to(float16) and back": lambda model: model.to(torch.float16).to(torch.float32),
    "double and back": lambda model: model.double().float(),
    "type": lambda model: model.type(torch.bfloat16).type(torch.float32),
    "apply": lambda model: model._apply(lambda tensor: tensor * 0),
}


@conventions
@for_each("cast", CASTS)
def test_a_cast_and_back_changes_no_bit(convention: Convention, cast: str) -> None:
    model = build(convention)
    assert_exact(CASTS[cast](model).pos)


@conventions
@for_each("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_in_another_dtype_rows_are_the_exact_ones_rounded_once(convention: Convention, dtype: torch.dtype) -> None:
    model = build(convention).to(dtype)
    assert_exact(model.pos, dtype)
    embedded = model.embed(IDS, attention_mask=MASK)
    rows = model.embed.embedding(IDS[1]) + exact_rows(convention, dtype)[0][1]
    assert embedded.dtype == dtype
    assert torch.equal(embedded[1], rows)


@conventions
def test_a_default_dtype_of_bfloat16_changes_no_bit(convention: Convention) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        clear_cache()
        module = SinusoidalPositionalEncoding(widths(convention)[0], convention=convention)
        made, direct = rows_of(module), exact_rows(convention)
    finally:
        torch.set_default_dtype(before)
    for ours, again, rows in zip(made, direct, exact_rows(convention), strict=True):
        assert torch.equal(ours, rows)
        assert torch.equal(again, rows)


@conventions
def test_the_decimal_context_of_the_caller_has_no_effect(convention: Convention) -> None:
    module = build(convention).pos
    clear_cache()
    with decimal.localcontext(decimal.Context(prec=3, traps=[decimal.Inexact])):
        assert_exact(module)
        turning = frequencies(module.d_model, convention=convention)
    assert torch.equal(frequencies(module.d_model, convention=convention), turning)


def test_a_fake_mode_and_the_meta_device_do_not_change_the_cache() -> None:
    module = SinusoidalPositionalEncoding(24)
    with FakeTensorMode():
        for positions in (None, torch.arange(5), torch.rand(2, 5)):
            assert isinstance(module(torch.empty(2, 5, 24), position_ids=positions), FakeTensor)
        assert isinstance(sinusoidal_encoding(torch.arange(3), 24), FakeTensor)
    empty = module(torch.empty(2, 5, 24, device="meta"), position_ids=torch.arange(5))
    assert (empty.device.type, empty.shape) == ("meta", (2, 5, 24))
    assert sinusoidal_encoding(torch.arange(3), 24, device="meta").is_meta
    with torch.device("meta"):
        ours = module(torch.zeros(1, 5, 24, device="cpu"))
        assert sinusoidal_encoding([1, 2], 24).device.type == "cpu"
    assert torch.equal(ours[0], sinusoidal_encoding(torch.arange(5), 24))


@conventions
def test_meta_then_empty_then_loaded_three_times_in_a_row(convention: Convention) -> None:
    model = build(convention)
    expected, checkpoint = model(IDS, MASK), model.state_dict()
    assert list(checkpoint) == ["embed.embedding.weight", "head.weight", "head.bias"]
    for _ in range(3):
        with torch.device("meta"):
            fresh = Model(Config.of(convention)).eval()
        assert fresh(IDS.to("meta"), MASK.to("meta")).is_meta
        fresh = fresh.to_empty(device="cpu")
        assert_exact(fresh.pos)
        fresh.load_state_dict(checkpoint, strict=True)
        assert torch.equal(fresh(IDS, MASK), expected)
        clear_cache()
        checkpoint = fresh.state_dict()


@conventions
def test_saved_and_loaded_by_transformers_three_times_in_a_row(convention: Convention, tmp_path: Path) -> None:
    model = build(convention)
    expected = model(IDS, MASK)
    for turn in range(3):
        model.save_pretrained(tmp_path / str(turn))
        clear_cache()
        model, loading = Model.from_pretrained(tmp_path / str(turn), output_loading_info=True)
        assert not any(loading.values())
        assert torch.equal(model(IDS, MASK), expected)
        assert_exact(model.pos)
    for dtype in (torch.bfloat16, torch.float16, "auto"):
        low = Model.from_pretrained(tmp_path / "2", dtype=dtype)
        kind = torch.float32 if dtype == "auto" else dtype
        assert low.head.weight.dtype == kind
        assert_exact(low.pos, kind)
        assert torch.equal(low(IDS, MASK), build(convention).to(kind)(IDS, MASK))
        assert_exact(low.float().pos)


@conventions
def test_the_table_in_an_old_checkpoint_is_not_loaded(convention: Convention, tmp_path: Path) -> None:
    model = build(convention)
    expected = model(IDS, MASK)
    table = model.pos.shared_rows(50, torch.empty(0)).clone()
    old = {**model.state_dict(), "pos.pe": table[:, None], "embed.encoding.pe": table[None].clone()}
    torch.manual_seed(1)
    fresh = Model(Config.of(convention)).eval()
    assert not torch.equal(fresh(IDS, MASK), expected)
    fresh.load_state_dict(old, strict=True)
    assert {"pos.pe", "embed.encoding.pe"} < set(old)
    assert torch.equal(fresh(IDS, MASK), expected)
    with pytest.raises(RuntimeError, match=r"pos\.other"):
        fresh.load_state_dict({**old, "pos.other": torch.zeros(1)}, strict=True)
    model.save_pretrained(tmp_path, state_dict=old)
    clear_cache()
    assert torch.equal(Model.from_pretrained(tmp_path)(IDS, MASK), expected)


def tutorial_table(length: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the table of PyTorch's tutorial, whose angles are products in float32."""
    position = torch.arange(length).unsqueeze(1)
    term = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * term), torch.cos(position * term)
    return table.to(dtype)


@for_each("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@for_each("length", [1, 60, 512, 5_000, 8_192])
def test_a_tutorials_table_of_the_same_positions_loads(length: int, dtype: torch.dtype) -> None:
    encode, table = SinusoidalPositionalEncoding(32), tutorial_table(length, 32, dtype)
    for form in (table, table[None], table[:, None], table.to("meta")):
        assert not any(encode.load_state_dict({"pe": form}))  # no missing and no unexpected keys
        assert torch.equal(encode(torch.zeros(1, 9, 32))[0], sinusoidal_encoding(torch.arange(9), 32))


@for_each(
    ("table", "words"),
    [
        (sinusoidal_encoding(torch.arange(64), 8, convention="marian"), ["'marian'", "convention='marian'"]),
        (sinusoidal_encoding(torch.arange(64), 8, convention="marian").half()[None], ["'marian'"]),
        (sinusoidal_encoding(torch.arange(64), 8)[:, None] * 3, ["'vaswani' times 3, from position 0", "'learned'"]),
        (torch.randn(1, 50, 8), ["no known convention", "'learned', 8, max_length=50"]),
        (torch.full((4, 8), math.nan), ["got: every number of a table must be finite"]),
        (torch.zeros(50, 16), ["shape (50, 16)", "SinusoidalPositionalEncoding(16)"]),
        (torch.zeros(50), ["shape (50,)"]),
    ],
)
@for_each("strict", [True, False])
def test_a_table_of_other_positions_is_refused_with_its_convention(
    table: torch.Tensor, words: list[str], strict: bool
) -> None:
    model = nn.Sequential(nn.Linear(8, 8), SinusoidalPositionalEncoding(8))
    with pytest.raises(RuntimeError, match=r"1\.pe holds other positions than Sinus") as caught:
        model.load_state_dict({**model.state_dict(), "1.pe": table}, strict=strict)
    assert [word for word in words if word not in str(caught.value)] == []


@conventions
def test_copies_and_pickles_are_small_and_equal(convention: Convention) -> None:
    model = build(convention)
    assert_exact(model.pos)  # fill the cache, which must not be pickled
    assert_exact(copy.deepcopy(model.pos))
    assert_exact(copy.deepcopy(model).pos)
    model.pos(torch.zeros(1, 5000, model.pos.d_model))
    for written in (pickle.dumps(model.pos), pickle.dumps(copy.copy(model.pos))):
        assert len(written) < 2048
        assert_exact(pickle.loads(written))
    buffer = io.BytesIO()
    torch.save(model.pos.state_dict(), buffer)
    assert len(buffer.getvalue()) < 2048


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_encoding_is_traced_before_its_table_is_computed() -> None:
    """The lengths are tensors then. `_empty_cache` makes it the first use, as in a fresh process."""
    module = SinusoidalPositionalEncoding(8)
    traced = torch.jit.trace(module, torch.zeros(1, 4, 8))
    clear_cache()
    for length in (4, 7):
        vectors = torch.randn(2, length, 8)
        torch.testing.assert_close(traced(vectors), module(vectors), rtol=0, atol=0)

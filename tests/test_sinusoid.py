"""The encoding held against the paper's formula (mpmath to 50 digits where exactness is claimed) and its properties.

Then the module: nothing in it to spoil, one graph under a compiler, the same bits however rows are asked for.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from hf_posenc.sinusoid import (
    CONVENTIONS,
    Convention,
    SinusoidalPositionalEncoding,
    cache,
    fixed_bases,
    frequencies,
    sinusoidal_encoding,
)
from hf_posenc.sinusoid.exact import round_once

DIGITS = {torch.float32: (24, -126), torch.bfloat16: (8, -126), torch.float16: (11, -14)}
LOW = [torch.float32, torch.bfloat16, torch.float16]
NAMES = list(CONVENTIONS)
# Numerators of the continued fraction of π: whole positions at which sin(p) comes as near to zero as it can.
NEAR_ZERO = [22, 355, 103993, 104348, 5419351, 80143857, 245850922, 411557987, 1068966896]


@pytest.fixture(autouse=True)
def _no_tables_kept() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def value(position: float, column: int, width: int) -> Any:
    """The paper's formula, section 3.5, as an mpmath number."""
    angle = mpmath.mpf(position) / mpmath.power(10000, mpmath.mpf(2 * (column // 2)) / width)
    return mpmath.cos(angle) if column % 2 else mpmath.sin(angle)


def units(exact: Any, dtype: torch.dtype) -> Any:
    """One unit in the last place of `dtype` at that value."""
    digits, least = DIGITS[dtype]
    exponent = least if exact == 0 else max(int(mpmath.floor(mpmath.log(abs(exact), 2))), least)
    return mpmath.mpf(2) ** (exponent - digits + 1)


def worst(positions: list[float], width: int, dtype: torch.dtype, columns: int, seed: int) -> float:
    """The largest error over some columns of each position, in units in the last place."""
    kind = torch.int64 if all(isinstance(p, int) for p in positions) else torch.float64
    rows = sinusoidal_encoding(torch.tensor(positions, dtype=kind), width, dtype=dtype).double().tolist()
    chosen, most = random.Random(seed), mpmath.mpf(0)
    with mpmath.workdps(50):
        for position, row in zip(positions, rows, strict=True):
            for column in chosen.sample(range(width), min(width, columns)):
                exact = value(position, column, width)
                most = max(most, abs(mpmath.mpf(row[column]) - exact) / units(exact, dtype))
    return float(most)


def draws(count: int, seed: int) -> list[float]:
    """Whole positions below 2**31, as many small as large."""
    chosen = random.Random(seed)
    return [chosen.randrange(2 ** chosen.randint(1, 31)) for _ in range(count)]


# --------------------------------------------------------------------------------------------------------- definition


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("width", [1, 5, 6, 128, 768])
def test_values_are_within_half_a_unit_of_the_exact_ones(width: int, dtype: torch.dtype) -> None:
    assert worst([*draws(60, width), *NEAR_ZERO, 2**31 - 1], width, dtype, 6, seed=1) <= 0.5001


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("width", [2, 7, 64, 512, 1023])
def test_values_are_within_half_a_unit_in_a_long_sweep(width: int, dtype: torch.dtype) -> None:
    assert worst([*draws(4_000, width), *NEAR_ZERO], width, dtype, 16, seed=2) <= 0.5001


@pytest.mark.parametrize("dtype", LOW)
def test_fractional_and_negative_positions_are_as_exact(dtype: torch.dtype) -> None:
    chosen = random.Random(3)
    positions = [chosen.uniform(-(2.0**k), 2.0**k) for k in range(-20, 40)]
    assert worst(positions, 64, dtype, 12, seed=3) <= 0.5001


def test_float64_is_within_2_to_the_minus_51() -> None:
    positions = draws(60, 4) + NEAR_ZERO
    rows = sinusoidal_encoding(torch.tensor(positions), 6, dtype=torch.float64).tolist()
    with mpmath.workdps(50):
        for position, row in zip(positions, rows, strict=True):
            for column, ours in enumerate(row):
                exact = value(position, column, 6)
                assert abs(mpmath.mpf(ours) - exact) <= mpmath.mpf(2) ** -51


def test_the_table_of_the_first_four_positions() -> None:
    expected = [
        [0, 1, 0, 1, 0, 1, 0, 1],
        [0.8415, 0.5403, 0.0998, 0.9950, 0.0100, 1, 0.0010, 1],
        [0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 1],
        [0.1411, -0.9900, 0.2955, 0.9553, 0.0300, 0.9996, 0.0030, 1],
    ]
    torch.testing.assert_close(sinusoidal_encoding(torch.arange(4), 8), torch.tensor(expected), rtol=0, atol=5.1e-5)
    assert frequencies(8).tolist() == [1.0, 0.1, 0.01, 0.001]


@pytest.mark.parametrize(
    ("scale", "expected"),
    [("sqrt_d", [[-1.4142, -0.4142], [-0.5727, 1.9545]]), (None, [[-1.0, 0.0], [-0.1585, 1.5403]])],
)
def test_a_known_sum_scaled_and_unscaled(scale: Any, expected: list[list[float]]) -> None:
    x = torch.tensor([[[-1.0, -1.0], [-1.0, 1.0]]])
    ours = SinusoidalPositionalEncoding(2, scale=scale)(x)
    torch.testing.assert_close(ours, torch.tensor([expected]), rtol=0, atol=5.1e-5)


def test_position_50_of_width_128() -> None:
    row = sinusoidal_encoding(torch.tensor(50), 128, dtype=torch.float64)
    assert row.shape == (128,)
    assert row[0].item() == pytest.approx(math.sin(50), rel=1e-15)
    assert row[127].item() == pytest.approx(math.cos(50 / 10000 ** (126 / 128)), rel=1e-15)


def test_frequencies_are_the_nearest_float64() -> None:
    for width, base in ((512, None), (7, 500.0), (64, 1e6)):
        with mpmath.workdps(50):
            exact = [mpmath.power(base or 10000, -mpmath.mpf(2 * i) / width) for i in range((width + 1) // 2)]
            assert frequencies(width, base=base).tolist() == [float(each) for each in exact]


@given(st.floats(-1, 1, allow_subnormal=False))
def test_sixteen_bits_are_rounded_once(number: float) -> None:
    given_value = torch.tensor(number, dtype=torch.float64)
    for dtype in (torch.bfloat16, torch.float16):
        near = given_value.to(dtype)
        up, down = (torch.nextafter(near, torch.tensor(side, dtype=dtype)) for side in (9.0, -9.0))
        ours = round_once(given_value, dtype)
        best = min(abs(each.double() - given_value) for each in (near, up, down))
        assert abs(ours.double() - given_value) == best


def test_torch_itself_rounds_twice() -> None:
    """The reason for `round_once`: should this ever fail, it can go."""
    middle = torch.tensor(1 + 2**-8 + 2**-40, dtype=torch.float64)
    assert middle.to(torch.bfloat16) == 1.0
    assert round_once(middle, torch.bfloat16) == 1 + 2**-7
    middle = torch.tensor(1 + 2**-11 + 2**-40, dtype=torch.float64)
    assert round_once(middle, torch.float16) == 1 + 2**-10


# ------------------------------------------------------------------------------------------- the four known properties


@pytest.mark.parametrize("convention", NAMES)
@pytest.mark.parametrize("width", [2, 4, 16, 128])
def test_bounded_equal_unique_and_the_same_distance_everywhere(width: int, convention: str) -> None:
    rows = sinusoidal_encoding(torch.arange(1500), width, convention=convention, dtype=torch.float64)
    assert rows.abs().max() <= 1
    again = sinusoidal_encoding(torch.tensor([5, 70, 5]), width, convention=convention, dtype=torch.float64)
    assert torch.equal(again, rows[[5, 70, 5]])
    assert len(torch.unique(rows, dim=0)) == 1500
    for apart in (1, 7, 400):
        distances = (rows[apart:] - rows[:-apart]).norm(dim=1)
        torch.testing.assert_close(distances, distances[:1].expand_as(distances), rtol=1e-9, atol=1e-9)


def test_fixed_bases_have_them_within_their_common_period() -> None:
    rows = sinusoidal_encoding(torch.arange(280), 6, convention=fixed_bases(4, 5, 7))
    assert rows.abs().max() <= 1
    assert torch.equal(rows[:140], rows[140:])
    assert len(torch.unique(rows[:140], dim=0)) == 140
    for apart in (1, 13, 70):
        distances = (rows[apart:] - rows[:-apart]).norm(dim=1)
        torch.testing.assert_close(distances, distances[:1].expand_as(distances), rtol=1e-5, atol=1e-5)


@given(position=st.integers(-(2**31), 2**31), width=st.integers(1, 40), convention=st.sampled_from(NAMES))
@settings(deadline=None)
def test_a_row_depends_on_its_own_position_alone(position: int, width: int, convention: str) -> None:
    alone = sinusoidal_encoding(torch.tensor(position), width, convention=convention)
    others = torch.tensor([[0.5, 2.0**40, position], [position, -1e-3, 7.0]], dtype=torch.float64)
    rows = sinusoidal_encoding(others, width, convention=convention)
    assert rows.shape == (2, 3, width)
    assert torch.equal(rows[0, 2], alone)
    assert torch.equal(rows[1, 0], alone)


@pytest.mark.parametrize("convention", NAMES)
@pytest.mark.parametrize("width", [1, 2, 3, 9])
def test_small_and_odd_widths_work(width: int, convention: str) -> None:
    rows = sinusoidal_encoding(torch.arange(5), width, convention=convention)
    assert rows.shape == (5, width)
    sines, cosines = CONVENTIONS[convention].counts(width)
    assert sines + cosines in (width, width - 1)
    if width % 2 and convention == "vaswani":
        slowest = torch.arange(5) * frequencies(width)[-1]
        assert torch.equal(rows[:, -1], slowest.sin().float())
    if width % 2 and convention in ("tensor2tensor", "fairseq"):
        assert torch.equal(rows[:, -1], torch.zeros(5))
    assert SinusoidalPositionalEncoding(width, convention=convention)(torch.zeros(2, 3, width)).shape == (2, 3, width)


# ----------------------------------------------------------------------------------------------- dtype, device, memory


@pytest.mark.parametrize("dtype", LOW)
def test_positions_may_come_in_any_kind(dtype: torch.dtype, device: torch.device) -> None:
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


def test_bf16_rows_are_distinct_wherever_the_exact_ones_round_apart() -> None:
    positions = torch.arange(0, 131072, 64)
    exact = sinusoidal_encoding(positions, 512, dtype=torch.float64)
    ours = SinusoidalPositionalEncoding(512).bfloat16()(
        torch.zeros(1, len(positions), 512, dtype=torch.bfloat16), positions
    )[0]
    assert torch.equal(ours, round_once(exact, torch.bfloat16))
    near = sinusoidal_encoding(torch.arange(2048), 512, dtype=torch.bfloat16)
    assert len(torch.unique(near, dim=0)) == 2048


@pytest.mark.parametrize("dtype", [*LOW, torch.float64])
def test_the_sum_follows_x(dtype: torch.dtype, device: torch.device) -> None:
    if device.type == "mps" and dtype == torch.float64:
        pytest.skip("no float64 there")
    x = torch.randn(2, 5, 7).to(device, dtype)
    module = SinusoidalPositionalEncoding(7)
    for ours in (module(x), module(x, torch.arange(5)), module(x, torch.arange(5).expand(2, -1))):
        assert ours.dtype == dtype
        assert ours.device == x.device
        assert torch.equal(ours, x + sinusoidal_encoding(torch.arange(5), 7, dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", [*LOW, torch.float64])
@pytest.mark.parametrize("scale", [None, "sqrt_d", 0.3])
@pytest.mark.parametrize("width", [1, 7, 33, 100])
def test_bits_do_not_depend_on_how_the_rows_were_asked_for(width: int, scale: Any, dtype: torch.dtype) -> None:
    module = SinusoidalPositionalEncoding(width, scale=scale)
    x = torch.randn(3, 19, width).to(dtype)
    expected = module(x)
    ids = torch.arange(19)
    assert torch.equal(module(x, ids), expected)
    assert torch.equal(module(x, ids.expand(3, -1)), expected)
    assert torch.equal(module(x, ids.expand(1, -1)), expected)
    assert torch.equal(module(x, ids.float()), expected)
    assert torch.equal(module(x, ids.expand(3, -1), bound=19), expected)
    assert torch.equal(module(x.requires_grad_()), expected)
    assert torch.equal(module(x, ids.expand(3, -1)), expected)
    x = x.detach()
    for positions in (None, ids, ids.expand(3, -1)):
        out = torch.empty_like(x)
        assert module(x, positions, out) is out
        assert torch.equal(out, expected)
    some = torch.tensor([4, 2**30, 0])
    large = module(x[:, :3], some)
    assert torch.equal(large[:, 0], module(x[:, :3], torch.tensor([4, 1, 0]))[:, 0])
    x.copy_(module(x, out=x))
    assert torch.equal(x, expected)


def test_what_is_handed_out_shares_memory_with_nothing_that_stays() -> None:
    module, x = SinusoidalPositionalEncoding(8), torch.zeros(2, 6, 8)
    ids = torch.arange(6)
    expected = sinusoidal_encoding(ids, 8).expand(2, -1, -1)
    for positions in (None, ids, ids.expand(2, -1)):
        module(x, positions).fill_(float("nan"))
        assert torch.equal(module(x, positions), expected)
    assert torch.equal(module(torch.zeros(1, 6, 8)), expected[:1])


def test_a_table_grows_and_a_single_far_position_does_not_make_one() -> None:
    module = SinusoidalPositionalEncoding(4)

    def kept() -> int:
        return sum(len(rows) for rows in cache._kept.tables.values())

    module(torch.zeros(1, 10, 4))
    assert kept() == 256
    module(torch.zeros(1, 300, 4))
    assert kept() == 512
    far = module(torch.zeros(1, 1, 4), torch.tensor([[100_000]]))
    assert kept() == 512
    assert torch.equal(far[0, 0], sinusoidal_encoding(torch.tensor(100_000), 4))
    assert module(torch.zeros(0, 5, 4)).shape == (0, 5, 4)
    assert module(torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 4)
    grown = module(torch.zeros(1, 2000, 4))
    assert torch.equal(grown[0], sinusoidal_encoding(torch.arange(2000), 4))


def test_each_key_has_its_own_table() -> None:
    x = torch.zeros(1, 4, 6)
    seen = [
        SinusoidalPositionalEncoding(6, convention=convention, base=base)(x)
        for convention, base in (("vaswani", None), ("vaswani", 500), ("marian", None), (fixed_bases(4, 5, 7), None))
    ]
    assert len({rows.numpy().tobytes() for rows in seen}) == 4
    assert torch.equal(SinusoidalPositionalEncoding(6, base=10000)(x), seen[0])


def test_the_number_of_tables_is_bounded() -> None:
    for width in range(1, 50):
        SinusoidalPositionalEncoding(width)(torch.zeros(1, 1, width))
    assert len(cache._kept.tables) <= 32


def test_threads_get_the_rows_they_asked_for() -> None:
    module, wrong = SinusoidalPositionalEncoding(16), []
    expected = sinusoidal_encoding(torch.arange(3000), 16)

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(40):
            length = chosen.randint(1, 3000)
            if not torch.equal(module(torch.zeros(1, length, 16))[0], expected[:length]):
                wrong.append(length)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


# ------------------------------------------------------------------------------------------------------------ no state


def test_there_is_nothing_in_it_to_spoil() -> None:
    module, x = SinusoidalPositionalEncoding(32, scale="sqrt_d"), torch.randn(2, 9, 32)
    expected = module(x)
    assert dict(module.state_dict()) == {}
    assert list(module.parameters()) == []
    assert list(module.buffers()) == []
    for change in (lambda m: m.half().float(), lambda m: m.bfloat16(), lambda m: m.to(torch.float16).double()):
        assert torch.equal(change(module)(x), expected)
    for _ in range(3):
        with torch.device("meta"):
            fresh = SinusoidalPositionalEncoding(32, scale="sqrt_d")
        fresh = fresh.to_empty(device="cpu")
        fresh.load_state_dict(module.state_dict(), strict=True)
        assert torch.equal(fresh(x), expected)


def test_copies_and_pickles_are_small_and_equal() -> None:
    module, x = SinusoidalPositionalEncoding(64, convention=fixed_bases(*range(2, 34))), torch.randn(1, 500, 64)
    expected = module(x)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    written = pickle.dumps(module)
    assert len(written) < 4000
    cache.clear()
    assert torch.equal(pickle.loads(written)(x), expected)
    buffer = io.BytesIO()
    torch.save(nn.Sequential(module).state_dict(), buffer)
    assert len(buffer.getvalue()) < 4000


@pytest.mark.parametrize("shape", [(1, 100, 8), (100, 8), (100, 1, 8)])
def test_a_pe_entry_of_an_old_checkpoint_is_passed_over(shape: tuple[int, ...]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.pos = SinusoidalPositionalEncoding(8)

    model = Model()
    old = {**model.state_dict(), "pos.pe": torch.randn(shape)}
    model.load_state_dict(old, strict=True)
    assert "pos.pe" in old
    with pytest.raises(RuntimeError, match=r"pos\.other"):
        model.load_state_dict({**old, "pos.other": torch.zeros(1)}, strict=True)


def test_inference_mode_first_and_training_later() -> None:
    module = SinusoidalPositionalEncoding(8)
    with torch.inference_mode():
        module(torch.zeros(1, 5, 8))
    for positions in (None, torch.arange(5), torch.arange(5)[None], torch.tensor([0, 1, 2, 3, 2**31])):
        x = torch.randn(1, 5, 8, requires_grad=True)
        module(x, positions).sum().backward()
        assert torch.equal(x.grad, torch.ones_like(x))


def test_a_fake_mode_and_the_meta_device_leave_nothing_behind() -> None:
    module = SinusoidalPositionalEncoding(24)
    with FakeTensorMode():
        for positions in (None, torch.arange(5), torch.rand(2, 5)):
            assert isinstance(module(torch.empty(2, 5, 24), positions), FakeTensor)
        assert isinstance(sinusoidal_encoding(torch.arange(3), 24), FakeTensor)
    empty = module(torch.empty(2, 5, 24, device="meta"), torch.arange(5))
    assert (empty.device.type, empty.shape) == ("meta", (2, 5, 24))
    assert sinusoidal_encoding(torch.arange(3), 24, device="meta").is_meta
    with torch.device("meta"):
        ours = module(torch.zeros(1, 5, 24, device="cpu"))
        assert sinusoidal_encoding([1, 2], 24).device.type == "cpu"
    assert torch.equal(ours[0], sinusoidal_encoding(torch.arange(5), 24))


def test_no_float64_leaves_the_cpu_and_settings_of_the_caller_do_not_matter() -> None:
    import decimal

    expected = sinusoidal_encoding(torch.arange(9), 10)
    cache.clear()
    torch.set_default_dtype(torch.float16)
    try:
        with decimal.localcontext(decimal.Context(prec=3, traps=[decimal.Inexact])):
            assert torch.equal(
                SinusoidalPositionalEncoding(10, base=10000.0)(torch.zeros(1, 9, 10).float())[0], expected
            )
            assert torch.equal(sinusoidal_encoding(torch.arange(9), 10, base=9999.0).float()[0], expected[0])
            assert frequencies(10).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


# ------------------------------------------------------------------------------------------- gradient, dropout, graphs


@pytest.mark.parametrize(("scale", "slope"), [(None, 1.0), ("sqrt_d", 4.0), (0.5, 0.5)])
def test_the_gradient_reaches_x(scale: Any, slope: float) -> None:
    module = SinusoidalPositionalEncoding(16, scale=scale)
    for positions in (None, torch.arange(5), torch.randint(0, 9, (2, 5)), torch.rand(2, 5)):
        x = torch.randn(2, 5, 16, requires_grad=True)
        module(x, positions).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, slope))


def test_dropout_only_while_training() -> None:
    module, x = SinusoidalPositionalEncoding(64, dropout=0.5), torch.ones(2, 50, 64)
    dropped = module(x)
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    assert torch.equal(dropped[dropped != 0], 2 * SinusoidalPositionalEncoding(64)(x)[dropped != 0])
    assert torch.equal(x, torch.ones(2, 50, 64))
    assert torch.equal(module.eval()(x), SinusoidalPositionalEncoding(64)(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, at the first use of its compiler
@pytest.mark.parametrize("scale", [None, "sqrt_d", 0.3])
def test_one_graph_under_a_compiler_and_no_float64_in_it(scale: Any) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    module = SinusoidalPositionalEncoding(16, scale=scale, convention="fairseq", max_length=1000)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=backend)
    for length in (5, 9, 300):
        x = torch.randn(3, length, 16, requires_grad=True)
        ids = torch.randint(0, 900, (3, length))
        torch.testing.assert_close(compiled(x), module(x))
        torch.testing.assert_close(compiled(x, ids), module(x, ids))
        compiled(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, module.factor))
    assert len(graphs) == 2
    assert all("hf_posenc.rows" in graph.code and "float64" not in graph.code for graph in graphs)
    with pytest.raises(ValueError, match="position 5000 is beyond the declared length"):
        compiled(x, ids + 5000 - ids.max())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_function_compiles_as_well() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda positions: sinusoidal_encoding(positions, 8, convention="marian"),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    for positions in (torch.arange(7), torch.rand(3, 4) * 100, torch.tensor(2**30)):
        assert torch.equal(compiled(positions), sinusoidal_encoding(positions, 8, convention="marian"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("width", [15, 16])
@pytest.mark.parametrize("convention", ["vaswani", "fairseq"])
def test_an_exported_program_holds_for_other_lengths_and_needs_no_package(convention: str, width: int) -> None:
    module = SinusoidalPositionalEncoding(width, convention=convention, scale="sqrt_d")
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2, max=4096)
    x = torch.randn(3, 7, width)
    program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: batch, 1: length}})
    other = torch.randn(5, 33, width)
    torch.testing.assert_close(program.module()(other), module(other))
    shapes = {"x": {0: batch, 1: length}, "position_ids": {0: batch, 1: length}}
    program = torch.export.export(module, (x, torch.randint(0, 9, (3, 7))), dynamic_shapes=shapes)
    ids = torch.randint(0, 2**31, (5, 33))
    torch.testing.assert_close(program.module()(other, ids), module(other, ids))
    assert "hf_posenc" not in "".join(str(node.target) for node in program.graph.nodes)


def test_settings_are_in_the_repr() -> None:
    module = SinusoidalPositionalEncoding(8, scale="sqrt_d", dropout=0.1)
    words = repr(module)
    for part in ("8", "convention='vaswani'", "base=10000.0", "scale='sqrt_d'", "dropout=0.1", "max_length=None"):
        assert part in words
    assert "fixed_bases(4, 5, 7)" in repr(SinusoidalPositionalEncoding(6, convention=fixed_bases(4, 5, 7)))


# ------------------------------------------------------------------------------------------------------------ refusal

X = torch.zeros(2, 5, 8)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sinusoidal_encoding(100, 8), TypeError, r"not how many[\s\S]*got: 100[\s\S]*torch\.arange\(100\)"),
        (lambda: sinusoidal_encoding(float("inf"), 8), TypeError, r"torch\.arange\(100\)"),
        (lambda: sinusoidal_encoding(torch.tensor([True]), 8), TypeError, r"torch\.bool[\s\S]*from_mask"),
        (lambda: sinusoidal_encoding(["a"], 8), TypeError, "real numbers"),
        (lambda: sinusoidal_encoding(torch.zeros(2, requires_grad=True), 8), ValueError, r"positions\.detach\(\)"),
        (lambda: sinusoidal_encoding(torch.arange(2), 0), ValueError, r"positive[\s\S]*got: 0"),
        (lambda: sinusoidal_encoding(torch.arange(2), -4), ValueError, "got: -4"),
        (lambda: sinusoidal_encoding(torch.arange(2), 4.0), TypeError, "whole number"),
        (lambda: sinusoidal_encoding(torch.arange(2), 4, dtype=torch.int64), TypeError, r"torch\.float32"),
        *((lambda base=base: frequencies(8, base=base), ValueError, "larger than 1") for base in (0, -3, 1, math.inf)),
        (lambda: frequencies(8, base="10000"), TypeError, "must be a number"),
        (lambda: SinusoidalPositionalEncoding(8, scale="sqrt"), ValueError, "scale='sqrt_d'"),
        (lambda: SinusoidalPositionalEncoding(8, scale=True), TypeError, "None, 'sqrt_d' or a number"),
        (lambda: SinusoidalPositionalEncoding(8, scale=math.nan), ValueError, "finite"),
        (lambda: SinusoidalPositionalEncoding(8, dropout=1.5), ValueError, r"between 0 and 1[\s\S]*1\.5"),
        (lambda: SinusoidalPositionalEncoding(8, dropout="0.1"), TypeError, "a number"),
        (lambda: SinusoidalPositionalEncoding(8, max_length=0), ValueError, "positive"),
        (
            lambda: SinusoidalPositionalEncoding(8)(X[0]),
            ValueError,
            r"expected \(batch, length, d_model\)[\s\S]*x\[None\]",
        ),
        (lambda: SinusoidalPositionalEncoding(9)(X), ValueError, r"d_model=9[\s\S]*\(2, 5, 8\)[\s\S]*Encoding\(8\)"),
        (lambda: SinusoidalPositionalEncoding(8)(X[None]), ValueError, r"\(1, 2, 5, 8\)"),
        (lambda: SinusoidalPositionalEncoding(8)(X.long()), TypeError, r"torch\.int64[\s\S]*PositionalEmbedding"),
        (lambda: SinusoidalPositionalEncoding(8)(100), TypeError, "got: 100"),
        (lambda: SinusoidalPositionalEncoding(8, max_length=4)(X), ValueError, "5 tokens are more than .* of 4"),
        (
            lambda: SinusoidalPositionalEncoding(8, max_length=5)(X, torch.arange(5) + 1),
            ValueError,
            r"position 5 is beyond[\s\S]*1 to 5[\s\S]*allowed is 4",
        ),
        (lambda: SinusoidalPositionalEncoding(8)(X, torch.arange(4)), ValueError, r"\(4,\), x \(2, 5, 8\)"),
        (lambda: SinusoidalPositionalEncoding(8)(X, torch.zeros(3, 5)), ValueError, r"shape \(3, 5\)"),
        (lambda: SinusoidalPositionalEncoding(8)(X, 7), TypeError, r"position_ids[\s\S]*torch\.arange\(7\)"),
        (lambda: SinusoidalPositionalEncoding(8)(X, X[..., 0] > 0), TypeError, r"torch\.bool"),
        (lambda: SinusoidalPositionalEncoding(8)(X, out=X[:1].clone()), ValueError, "empty_like"),
        (
            lambda: SinusoidalPositionalEncoding(8)(X.clone().requires_grad_(), out=X.clone()),
            ValueError,
            "leave out away",
        ),
    ],
)
def test_what_is_refused_and_with_which_words(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_declared_length_counts_tokens_not_positions() -> None:
    """fairseq's first token stands at position 2, and five tokens are still five."""
    module = SinusoidalPositionalEncoding(8, convention="fairseq", max_length=5)
    assert torch.equal(module(X), module(X, torch.arange(2, 7)))
    assert isinstance(module.convention, Convention)

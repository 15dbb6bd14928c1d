"""The encoding under `torch.compile` and `torch.export`: one graph for all lengths, equal bits, no float64.

Compiled programs are compared with the eager module, and the captured graphs are inspected.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from looping import slow
from sinusoid_reference import FIXED, FORMULAS, named, widths
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.export import Dim

from hf_posenc import PositionalEmbedding, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, Convention, SinusoidalPositionalEncoding, clear_cache

VASWANI, FAIRSEQ = CONVENTIONS["vaswani"], CONVENTIONS["fairseq"]
# The last length is longer than the tables of the others.
LENGTHS = (5, 9, 2, 300, 5000)
BEYOND = 2**18 + 3


class Graphs:
    """A compiler backend that records graphs and does not change them."""

    def __init__(self) -> None:
        self.seen: list[torch.fx.GraphModule] = []
        self.backend = aot_autograd(fw_compiler=self._keep, bw_compiler=lambda graph, _: make_boxed_func(graph))

    def _keep(self, graph: torch.fx.GraphModule, _: Any) -> Any:
        self.seen.append(graph)
        return make_boxed_func(graph)

    def compile(self, call: Any, **settings: Any) -> Any:
        return torch.compile(call, fullgraph=True, backend=self.backend, **({"dynamic": True} | settings))

    def dtypes(self) -> set[torch.dtype]:
        values = [node.meta.get("val") for graph in self.seen for node in graph.graph.nodes]
        return {value.dtype for value in values if isinstance(value, torch.Tensor)}

    def operators(self) -> list[str]:
        return [str(node.target) for graph in self.seen for node in graph.graph.nodes if node.op == "call_function"]


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    torch._dynamo.reset()
    clear_cache()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield Graphs()
    torch._dynamo.reset()


def shown(value: Any) -> str:
    """Return the id of a parameter."""
    return value.name if isinstance(value, Convention) else str(value)


def places(batch: int, length: int) -> dict[str, torch.Tensor | None]:
    """Return position ids of every accepted kind."""
    rows = torch.arange(batch * length).view(batch, length) * 7 % (3 * length)
    return {"counted": None, "one row": rows[0], "rows": rows, "fractions": rows / 4, "far": rows + 2**30}


@pytest.mark.parametrize(
    ("convention", "base", "kind", "scale"),
    [
        (VASWANI, None, "rows", None),
        slow(FIXED, None, "rows", None),
        slow(VASWANI, None, "counted", None),
        (FAIRSEQ, None, "counted", None),
        slow(VASWANI, 500.0, "one row", None),
        slow(VASWANI, None, "fractions", "sqrt_d"),
        (VASWANI, None, "far", 0.3),
    ],
    ids=shown,
)
def test_one_graph_for_all_lengths_and_no_float64_in_it(
    graphs: Graphs, convention: Convention, base: float | None, kind: str, scale: Any
) -> None:
    width = widths(convention)[-1]
    module = SinusoidalPositionalEncoding(width, convention=convention, base=base, scale=scale, max_length=2**31)
    compiled = graphs.compile(module)
    for length in LENGTHS:
        x, positions = torch.randn(3, length, width), places(3, length)[kind]
        ours = compiled(x, position_ids=positions)
        clear_cache()  # so that the second call computes its own table
        assert torch.equal(ours, module(x, position_ids=positions))
    assert len(graphs.seen) == 1
    assert torch.float64 not in graphs.dtypes()
    assert graphs.operators().count("hf_posenc.rows.default") == 1


@pytest.mark.filterwarnings("ignore:the embedding's spread is over 5 times")
@pytest.mark.parametrize(
    ("convention", "zero_padding", "has_mask"),
    [(VASWANI, True, True), slow(VASWANI, False, True), slow(FAIRSEQ, False, True), (FIXED, True, False)],
    ids=shown,
)
def test_one_graph_from_ids_to_embeddings(
    graphs: Graphs, convention: Convention, zero_padding: bool, has_mask: bool
) -> None:
    embedding = nn.Embedding(50, widths(convention)[0])
    embed = PositionalEmbedding(embedding, convention=convention, scale="sqrt_d", zero_padding=zero_padding)
    compiled = graphs.compile(embed)
    for length in LENGTHS:
        ids, mask = torch.randint(0, 50, (3, length)), torch.ones(3, length, dtype=torch.long)
        mask[0, : length // 2], mask[1, length - length // 3 :] = 0, 0
        given = {"attention_mask": mask} if has_mask else {}
        torch.testing.assert_close(compiled(ids, **given), embed(ids, **given), rtol=0, atol=1e-6)
    assert len(graphs.seen) == 1
    assert torch.float64 not in graphs.dtypes()


def test_one_graph_forward_and_backward(graphs: Graphs) -> None:
    module = SinusoidalPositionalEncoding(16, scale="sqrt_d", dropout=0.0)
    compiled = graphs.compile(module)
    for length in LENGTHS:
        x = torch.randn(3, length, 16, requires_grad=True)
        compiled(x, position_ids=places(3, length)["rows"]).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 4.0))
    assert len(graphs.seen) == 1


def test_a_length_beyond_the_largest_cached_table(graphs: Graphs) -> None:
    module = SinusoidalPositionalEncoding(2)
    compiled = graphs.compile(module)
    for length in (7, BEYOND):
        rows = compiled(torch.zeros(2, length, 2))
        assert torch.equal(rows[1, -1], sinusoidal_encoding(torch.tensor(length - 1), 2))
    assert len(graphs.seen) == 1


def test_the_default_compiler_makes_two_graphs() -> None:
    """`dynamic=None`, the default: one graph for the first length, one for all. torch treats length 1 separately."""
    torch._dynamo.reset()
    kept, module = Graphs(), SinusoidalPositionalEncoding(8)
    compiled = kept.compile(module, dynamic=None)
    for length in (4, 6, 9, 300, 77, 5000):
        x = torch.randn(2, length, 8)
        assert torch.equal(compiled(x), module(x))
    assert len(kept.seen) == 2
    for _ in range(3):
        assert torch.equal(compiled(x[:, :1]), module(x[:, :1]))
    assert len(kept.seen) == 3


def test_a_step_of_decoding_has_one_graph_for_all_positions(graphs: Graphs) -> None:
    module = SinusoidalPositionalEncoding(8)
    compiled = graphs.compile(module)
    for position in (3, 4, 5, 4097, 10**6):
        x, where = torch.randn(2, 1, 8), torch.tensor([[position], [position - 2]])
        assert torch.equal(compiled(x, position_ids=where), module(x, position_ids=where))
    assert len(graphs.seen) == 1


def test_a_position_beyond_max_length_raises_in_a_graph_too(graphs: Graphs) -> None:
    module = SinusoidalPositionalEncoding(8, max_length=100)
    compiled, x = graphs.compile(module), torch.zeros(2, 5, 8)
    compiled(x, position_ids=torch.arange(5) + 95)
    with pytest.raises(ValueError, match="position 100 is beyond the declared length"):
        compiled(x, position_ids=torch.arange(5) + 96)


@pytest.mark.parametrize("convention", [VASWANI, FIXED], ids=named)
def test_the_function_has_one_graph_too(graphs: Graphs, convention: Convention) -> None:
    width = widths(convention)[-1]
    compiled = graphs.compile(lambda positions: sinusoidal_encoding(positions, width, convention=convention))
    for length in LENGTHS:
        positions = torch.arange(length) * 1000
        assert torch.equal(compiled(positions), sinusoidal_encoding(positions, width, convention=convention))
    assert len(graphs.seen) == 1
    assert graphs.dtypes() == {torch.int64, torch.float32}


@pytest.mark.filterwarnings("ignore:the embedding's spread is over 5 times")
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="inductor needs a C++ compiler")
@pytest.mark.slow
def test_the_real_compiler_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # an empty cache, deleted afterwards
    torch._dynamo.reset()
    embed = PositionalEmbedding(nn.Embedding(50, 16), scale="sqrt_d")
    alone = torch._inductor.config.patch(compile_threads=1)  # no pool of processes for a kernel or two
    with alone, torch._dynamo.config.patch(error_on_recompile=True), torch.no_grad():
        compiled = torch.compile(embed, fullgraph=True, dynamic=True)
        for length in LENGTHS:
            ids, mask = torch.randint(0, 50, (3, length)), torch.ones(3, length, dtype=torch.long)
            mask[0, : length // 2] = 0
            torch.testing.assert_close(
                compiled(ids, attention_mask=mask), embed(ids, attention_mask=mask), rtol=0, atol=1e-6
            )
    torch._dynamo.reset()


BATCH, LENGTH = Dim("batch", min=2), Dim("length", min=2, max=2**40)  # torch 2.6 needs a largest one


@pytest.mark.parametrize(
    ("convention", "kind", "dtype"),
    [
        *(slow(convention, "rows", torch.float32) for convention in FORMULAS),
        (FAIRSEQ, "counted", torch.float32),
        slow(VASWANI, "counted", torch.bfloat16),
        (VASWANI, "fractions", torch.bfloat16),
    ],
    ids=shown,
)
def test_an_exported_program_is_bit_equal_for_every_length(
    convention: Convention, kind: str, dtype: torch.dtype
) -> None:
    width = widths(convention)[-1]
    module = SinusoidalPositionalEncoding(width, convention=convention, scale="sqrt_d")

    def at(length: int, rows: int = 5) -> dict[str, torch.Tensor]:
        positions = places(rows, length)[kind]
        return {} if positions is None else {"position_ids": positions}

    shapes = {name: {0: BATCH, 1: LENGTH} for name in ("x", *at(7))}
    x = torch.randn(3, 7, width, dtype=dtype)
    # The default from torch 2.7 on. strict=True traces with Dynamo, which leaves our operator in the program.
    program = torch.export.export(module, (x,), at(7, 3), dynamic_shapes=shapes, strict=False)
    run = program.module()
    for length in (33, 4097):
        x = torch.randn(5, length, width, dtype=dtype)
        assert torch.equal(run(x, **at(length)), module(x, **at(length)))
    assert "hf_posenc" not in "".join(str(node.target) for node in program.graph.nodes)


@pytest.mark.slow  # another process
def test_an_exported_program_runs_without_this_package(tmp_path: Path) -> None:
    """The program maps ids and a mask to embeddings, in a process that cannot import hf_posenc."""
    ids, mask = torch.randint(0, 50, (3, 7)), torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7, [1] * 5 + [0] * 2])
    more = torch.randint(0, 50, (4, 600)), (torch.arange(600) >= torch.tensor([[0], [5], [300], [599]])).long()
    embed = PositionalEmbedding(nn.Embedding(50, 12), convention="fairseq").eval()
    shapes = {name: {0: BATCH, 1: LENGTH} for name in ("input_ids", "attention_mask")}
    torch.export.save(
        torch.export.export(embed, (ids,), {"attention_mask": mask}, dynamic_shapes=shapes), tmp_path / "program.pt2"
    )
    torch.save(more, tmp_path / "inputs.pt")
    code = textwrap.dedent(
        """
        import sys
        sys.modules["hf_posenc"] = None
        from pathlib import Path
        import torch
        folder = Path(sys.argv[1])
        ids, mask = torch.load(folder / "inputs.pt")
        program = torch.export.load(folder / "program.pt2").module()
        torch.save(program(ids, attention_mask=mask).detach(), folder / "outputs.pt")
        """
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=tmp_path)
    assert torch.equal(torch.load(tmp_path / "outputs.pt"), embed(more[0], attention_mask=more[1]))

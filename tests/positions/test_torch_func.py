"""The encoding under torch.func: gradients of single samples, vmap over rows and over positions.

Compared with the same call without a transform, and with gradients of one sample at a time.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sinusoid_reference import widths
from test_stateless import IDS, LENGTH, MASK, build, conventions
from torch.func import functional_call, grad, vmap

from hf_posenc.positions import Convention, SinusoidalPositionalEncoding, sinusoidal_encoding


@conventions
@pytest.mark.parametrize("scale", [None, "sqrt_d"])
def test_gradients_of_single_samples(convention: Convention, scale: Any) -> None:
    """vmap over the rows of a batch, with position ids for each row or one row of them for all."""
    module = SinusoidalPositionalEncoding(widths(convention)[0], convention=convention, scale=scale)
    x, ids = torch.randn(4, LENGTH, module.d_model), torch.randint(0, 700, (4, LENGTH))

    def at(row: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        return module(row[None], position_ids=None if positions is None else positions[None])

    def loss(row: torch.Tensor, *positions: torch.Tensor) -> torch.Tensor:
        return at(row, *positions).square().sum()

    for places, given in ((None, ()), (ids, (ids,)), (ids + 2**30, (ids + 2**30,)), (ids / 4, (ids / 4,))):
        assert torch.equal(vmap(lambda *each: at(*each)[0])(x, *given), module(x, position_ids=places))
        torch.testing.assert_close(vmap(grad(loss))(x, *given), 2 * module.factor * module(x, position_ids=places))
    one = ids[:1]
    assert torch.equal(vmap(lambda row: module(row[None], position_ids=one)[0])(x), module(x, position_ids=one))
    assert torch.equal(vmap(lambda row: module(x, position_ids=row))(ids)[1], module(x, position_ids=ids[1]))
    direct = vmap(lambda row: sinusoidal_encoding(row, module.d_model, convention=convention))(ids)
    assert torch.equal(direct, sinusoidal_encoding(ids, module.d_model, convention=convention))


@conventions
def test_per_sample_gradients_of_a_whole_model_with_padding(convention: Convention) -> None:
    model = build(convention)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(given: dict[str, torch.Tensor], ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return functional_call(model, given, (ids[None], mask[None])).square().mean()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, IDS, MASK)
    for row in range(2):
        alone = grad(loss)(weights, IDS[row], MASK[row])
        for name, gradient in alone.items():
            torch.testing.assert_close(found[name][row], gradient)

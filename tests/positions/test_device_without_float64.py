"""A device without float64 compared with the CPU, bit for bit; it is simulated on the CPU.

Its tensors have device "mps" and CPU memory, and raise in operations with CPU tensors or float64.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from looping import for_each
from sinusoid_reference import DISTINCT, FORMATS, widths
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from hf_posenc.positions import Convention, SinusoidalPositionalEncoding, clear_cache, sinusoidal_encoding

FAR = "mps"


class FarTensor(torch.Tensor):
    """Tensor on the simulated device."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> FarTensor:
        if inner.dtype == torch.float64:
            raise TypeError("no float64 there")  # MPS raises a longer message
        # The device for C++ needs no device guard.
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device="meta"
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    device = property(lambda self: torch.device(FAR))
    is_meta = property(lambda self: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs or {}))
        if any(isinstance(each, torch.Tensor) and each.ndim and not isinstance(each, cls) for each in given):
            raise RuntimeError(f"{func} was given tensors of two devices")
        args, kwargs = tree_map_only(cls, lambda each: each.inner, (args, kwargs or {}))

        def back(out: torch.Tensor) -> FarTensor:
            same = [each for each in given if isinstance(each, cls) and each.inner is out]  # written in place
            return same[0] if same else cls(out)

        return tree_map_only(torch.Tensor, back, func(*args, **kwargs))


class far_device(TorchFunctionMode):
    """Mode in which tensors can be created on, and moved to, the simulated device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.tolist and isinstance(args[0], FarTensor):
            return args[0].inner.tolist()
        if func is torch.Tensor.to:
            was = isinstance(args[0], FarTensor)
            named = [each for each in (*args[1:], *kwargs.values()) if isinstance(each, torch.device | str)]
            goes = torch.device(named[0]).type == FAR if named else was
            plain = args[0].inner if was else args[0]
            args, kwargs = tree_map_only((torch.device, str), lambda _: "cpu", ((plain, *args[1:]), kwargs))
            out = func(*args, **kwargs)
            return FarTensor(out) if goes else out
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == FAR:
            return FarTensor(func(*args, **kwargs | {"device": "cpu"}))
        return func(*args, **kwargs)


@for_each("convention", DISTINCT)
@for_each("dtype", list(FORMATS))
def test_a_device_without_float64_gets_the_bits_of_the_cpu(convention: Convention, dtype: torch.dtype) -> None:
    """Rows are computed on the CPU and moved, so the bound is the same as on the CPU."""
    width = widths(convention)[0]
    module, x = SinusoidalPositionalEncoding(width, convention=convention), torch.randn(2, 5, width).to(dtype)
    near = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 4]])
    places = [None, near[0], near, near + 2**30, near.double() / 4, near.float() / 8]
    expected = [module(x, position_ids=positions) for positions in places]
    clear_cache()
    with far_device():
        there = x.to(FAR)
        for positions, rows in zip(places, expected, strict=True):
            for given_positions in (positions, _moved(positions)):
                ours = module(there, position_ids=given_positions)
                assert isinstance(ours, FarTensor)
                assert (ours.device.type, ours.dtype) == (FAR, dtype)
                assert torch.equal(ours.to("cpu"), rows)
        direct = sinusoidal_encoding(near, width, convention=convention, dtype=dtype, device=FAR)
        assert torch.equal(direct.to("cpu"), sinusoidal_encoding(near, width, convention=convention, dtype=dtype))


def _moved(positions: torch.Tensor | None) -> torch.Tensor | None:
    return None if positions is None else (positions.float() if positions.is_floating_point() else positions).to(FAR)


def test_float64_raises_on_the_simulated_device() -> None:
    with far_device():
        x = torch.zeros(3).to(FAR)
        for attempt in (x.double, lambda: x.to(torch.float64), lambda: torch.zeros(3, dtype=torch.float64).to(FAR)):
            with pytest.raises(TypeError, match="no float64"):
                attempt()
        with pytest.raises(RuntimeError, match="two devices"):
            x + torch.zeros(3)

"""A simulated accelerator, the device "sim": the CPU computes its values, and waits for a real one are counted.

An operation on tensors of both devices raises, unless the one on the CPU is a single number; so does `.numpy()`. A wait
is a line of the package that reads values, by `item`, `tolist`, `nonzero`, an index of bools or a copy to the CPU.
Copies to the device are counted apart. What a model does in its own code is not ours.
"""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

try:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as _register
except ImportError:  # before torch 2.9
    pytest.skip("this torch has no devices written in Python", allow_module_level=True)

_register("sim")
torch.sim.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]  # type: ignore[attr-defined]
SIM = torch.device("sim:0")
has_float64 = True  # MPS has none
_READS = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "bincount", "repeat_interleave"}
_READS |= {"_unique2", "unique_dim", "unique_consecutive"}
_INDEXED = {"index", "index_put_", "_index_put_impl_", "index_put"}
_waits: list[str] = []
_copies: list[str] = []


class SimTensor(torch.Tensor):
    """Tensor on the simulated device, with its values in the tensor `near` on the CPU."""

    near: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> SimTensor:
        if near.dtype == torch.float64 and not has_float64:
            raise TypeError("no float64 there")  # MPS raises a longer message
        strides, offset = near.stride(), near.storage_offset()
        kwargs = {"strides": strides, "storage_offset": offset, "dtype": near.dtype, "device": SIM}
        return torch.Tensor._make_wrapper_subclass(cls, near.size(), **kwargs)

    def __init__(self, near: torch.Tensor) -> None:
        self.near = near

    def __repr__(self) -> str:
        return f"SimTensor({self.near})"

    def tolist(self) -> Any:
        _note(_waits)
        return self.near.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a tensor on a device has no array")

    @classmethod
    def __torch_dispatch__(cls, operation: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, *args, **(kwargs or {}))


def counted(call: Callable[[], Any]) -> tuple[Any, list[str], list[str]]:
    """Return the result of a call, and the lines of the package that waited and that copied to the device."""
    _waits.clear()
    _copies.clear()
    return call(), [*_waits], [*_copies]


def _note(log: list[str], how: str = "") -> None:
    """Note the line that calls torch, if it is one of the package."""
    frames = [frame for frame in traceback.extract_stack() if not re.search("/torch/|simulated_device", frame.filename)]
    where = f"{frames[-1].filename}:{frames[-1].lineno}{how}"
    if "/hf_posenc/" in where:
        log.append(where.rpartition("/hf_posenc/")[2])


def _run(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation of torch on the CPU, and put its result on the device where a real one would have it."""
    name = operation._schema.name.removeprefix("aten::")
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    far, near = [x for x in given if isinstance(x, SimTensor)], [x for x in given if not isinstance(x, SimTensor)]
    stays = bool(far) if kwargs.get("device") is None else torch.device(kwargs["device"]).type == "sim"
    if name in ("copy_", "_copy_from", "_to_copy"):
        was = isinstance(args[name == "copy_"], SimTensor)
        stays = stays if name == "_to_copy" else isinstance(args[name != "copy_"], SimTensor)
        if was != stays:
            _note(
                _copies if stays else _waits,
                " non_blocking" if any(x is True for x in (*args, kwargs.get("non_blocking"))) else "",
            )
    elif far and any(x.dim() for x in near):
        raise RuntimeError(f"{operation} was given tensors of two devices")
    elif far and near:
        _note(_copies)
    is_index = name in _INDEXED and any(x is not None and x.dtype == torch.bool for x in args[1])
    if far and (name in _READS or is_index) and not (name == "repeat_interleave" and kwargs.get("output_size")):
        _note(_waits)

    def to_near(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "sim" else value
        return value.near if isinstance(value, SimTensor) else value

    def to_far(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        same = [x for x in far if x.near is value]  # written in place
        return same[0] if same else SimTensor(value) if stays else value

    kwargs.pop("pin_memory", None)
    result = operation(*tree_map(to_near, args), **tree_map(to_near, kwargs))
    if name in ("copy_", "_copy_from"):
        return args[name != "copy_"]
    return tree_map(to_far, result)


_library = torch.library.Library("_", "IMPL")
_library.fallback(_run, dispatch_key="PrivateUse1")
_aten = torch.library.Library("aten", "IMPL")
for _overload in ("default", "start", "start_step"):  # torch's own resize a tensor, whose new size would stay unknown
    _aten.impl(
        f"arange.{_overload}".removesuffix(".default"),
        functools.partial(_run, getattr(torch.ops.aten.arange, _overload)),
        "PrivateUse1",
    )

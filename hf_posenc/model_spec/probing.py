"""Running a model on a few tokens, and noting every look that it takes into its tables.

What the looks mean is worked out in `finding`; the model is left exactly as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from .._explain import explain, shorten
from .._huggingface import configurations, forward_names, opened, special_ids
from .untouched import untouched

_GIVE_THE_PART = "give the part that reads text alone, e.g. model.text_model, where the model has one"

# How a look into a table may be written, besides as an embedding.
_BY_INDEX = (torch.Tensor.__getitem__, torch.Tensor.index_select, torch.index_select)

# How vectors are joined with those of tokens, and how they are used otherwise: `+`, `torch.add`, `add_` are one.
_ADDS = ("add", "radd", "iadd", "sub", "rsub", "isub", "cat", "concat", "concatenate", "stack")
_MULTIPLIES = ("mul", "rmul", "imul", "matmul", "rmatmul", "bmm", "einsum", "baddbmm", "scaled_dot_product_attention")
_REORDERS = ("flip", "flipud", "roll", "gather", "index_select", "take_along_dim")


@dataclass(frozen=True, eq=False)
class Look:
    """One look into a two-dimensional table: the rows `(...)` int64 on the CPU, and what came out `(..., D)`.

    `is_added` is `False` if vectors of tokens were multiplied by what came out, as by a gate or in attention scores,
    and never added to it.
    """

    table: torch.Tensor
    rows: torch.Tensor
    values: torch.Tensor
    is_added: bool = True


class Probe:
    r"""A Hugging Face model, and how to run it on a few tokens without changing it.

    The base model is run where there is one: a head may want labels, choices or end-of-sequence tokens.

    Args:
        model (`PreTrainedModel`): wrappers are opened.

    Raises:
        ValueError: if it reads no token ids, or its numbers are not at hand (on the meta device, sharded over
            processes).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = opened(model)
        base = getattr(self.model, "base_model", self.model)
        self.base: nn.Module = base if isinstance(base, nn.Module) else self.model
        self.names = frozenset({*forward_names(self.model), *forward_names(self.base)})
        self._takes_any = not {"input_ids", "inputs_embeds"} & set(forward_names(self.base))
        if self.names and "input_ids" not in self.names:
            raise ValueError(
                explain(
                    f"{type(self.model).__name__} reads no token ids, so it has no positions of text",
                    got=f"its forward takes {', '.join(forward_names(self.model)[:2])}",
                    fix=_GIVE_THE_PART,
                )
            )
        check_numbers(self.model)
        self.tables: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            if tensor.dim() == 2 and tensor.is_floating_point():
                self.tables.setdefault(id(tensor), (name, tensor))
        self.input_table = token_embeddings(self.model)
        like = self.input_table if self.input_table is not None else next(self.model.parameters())
        self.device, self.dtype = like.device, like.dtype
        self.is_half = self.dtype in (torch.float16, torch.bfloat16)
        self.plain_ids = _plain_ids(self.model)
        self.padding_id = _padding_id(self.model)

    @property
    def has_decoder(self) -> bool:
        """Whether it reads a second sequence."""
        return "decoder_input_ids" in self.names

    def ids(self, rows: int, length: int, seed: int) -> torch.Tensor:
        """Token ids `(rows, length)` int64 that mean nothing special; two neighbours never count up."""
        drawn = np.random.default_rng(seed).choice(self.plain_ids, size=(rows, length))
        return torch.from_numpy(-np.sort(-drawn, axis=1))

    def run(
        self, inputs: Mapping[str, torch.Tensor], tables: Iterable[nn.Embedding] = ()
    ) -> tuple[list[Look], torch.Tensor]:
        r"""One forward of the base model; nothing of it is left behind.

        Args:
            inputs (mapping): keyword arguments, of which those that forward does not name are left out.
            tables (`nn.Embedding`s, *optional*): whose looks are to have the values that the module returned.

        Returns:
            The looks in their order, and the last hidden states (or logits) `(B, T, ·)`, float32 on the CPU.

        Raises:
            ValueError: if the model does not run on them.
        """
        with _Watch(self.tables) as watch, ExitStack() as hooks:
            for table in tables:
                hooks.callback(table.register_forward_hook(watch.returned).remove)
            with torch.no_grad():
                out = self._forward(inputs)
        return [replace(look, is_added=watch.is_added(look)) for look in watch.looks], out.float().cpu()

    def _forward(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last hidden states (or logits) `(B, T, ·)`; the model is as it was afterwards."""
        names = self.names if self._takes_any else frozenset(forward_names(self.base))
        given: dict[str, Any] = {name: tensor.to(self.device) for name, tensor in inputs.items() if name in names}
        for name, value in {"use_cache": False, "return_dict": True}.items():
            if name in names:
                given[name] = value
        try:
            with untouched(self.model):
                return _hidden(self.base(**given))
        except Exception as error:
            length = inputs["input_ids"].shape[1]
            raise ValueError(
                explain(
                    f"{type(self.base).__name__} did not run on {length} token ids alone, so what positions it has "
                    "cannot be seen",
                    got=f"{type(error).__name__}: {shorten(str(error), 200)}",
                    fix=_GIVE_THE_PART,
                )
            ) from error

    def effects(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        r"""Differentiate the last hidden states by parameters, buffers and other tensors that may hold positions.

        Args:
            inputs (mapping): as in `run`.

        Returns:
            `dict` from names to gradients of at least two dimensions, of tensors that have an effect; empty for a model
            that cannot be differentiated. Tables of tokens and the matrices of linear and convolutional layers are left
            out.
        """
        layers = (nn.Linear, nn.modules.conv._ConvNd)
        tensors = {
            f"{path}.{name}".lstrip("."): tensor
            for path, module in self.model.named_modules()
            if not isinstance(module, layers)
            for name, tensor in {**vars(module), **module._buffers, **module._parameters}.items()
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.is_leaf and tensor.dim() > 1
        }
        tensors = {name: tensor for name, tensor in tensors.items() if tensor is not self.input_table}
        if not tensors:
            return {}
        before = [(tensor, tensor.requires_grad) for tensor in tensors.values()]
        try:
            for tensor, _ in before:
                tensor.requires_grad_(True)
            with untouched(self.model), torch.enable_grad():
                out = self._forward(inputs)
                weights = torch.linspace(0, 97, out.numel(), device=out.device).view(out.shape).sin()
                found = torch.autograd.grad((out.float() * weights).sum(), list(tensors.values()), allow_unused=True)
        except Exception:  # Reformer's own backward, for one, wants training mode
            return {}
        finally:
            for tensor, required in before:
                tensor.requires_grad_(required)
        return {name: grad for name, grad in zip(tensors, found, strict=True) if grad is not None}


class _Watch(TorchFunctionMode):
    """Notes looks into some tables, however they are written: as an embedding, by index, by slice."""

    def __init__(self, tables: Mapping[int, Any]) -> None:
        super().__init__()
        self.tables = tables
        self.looks: list[Look] = []
        # What was made of the values of looks alone, by identity, with the table and the number of rows.
        self._made: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        self._uses: dict[int, list[bool]] = {}  # of each table: True for an addition

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self._made:
            self._follow(func, args, kwargs, out)
        if func is F.embedding:
            named = {**dict(zip(("input", "weight"), args, strict=False)), **kwargs}
            self._note(named["weight"], named["input"], out)
        elif func in _BY_INDEX and args and id(args[0]) in self.tables:
            index = kwargs.get("index", args[-1])
            if func is torch.Tensor.__getitem__:  # slices and ellipses too: see which numbers are left of 0, 1, 2, ...
                rows = torch.arange(len(args[0]), device=args[0].device)
                index = rows[index[0] if isinstance(index, tuple) else index]
            self._note(args[0], index, out)
        return out

    def returned(self, module: nn.Module, _: Any, out: Any) -> None:
        """What a module made of its look: some do more with a row than read it."""
        value = out[0] if isinstance(out, tuple) else out
        if self.looks and self.looks[-1].table is module.weight and isinstance(value, torch.Tensor):
            self.looks[-1] = replace(self.looks[-1], values=value.detach())

    def is_added(self, look: Look) -> bool:
        """Return True unless vectors of tokens were only multiplied by the rows of a table."""
        uses = self._uses.get(id(look.table), [])
        return any(uses) or not uses

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Note what is done with rows that were read: added to vectors `(B, T, ...)`, or multiplied with them."""
        flat = [each for arg in (*args, *kwargs.values()) for each in (arg if isinstance(arg, list | tuple) else [arg])]
        given = [each for each in flat if isinstance(each, torch.Tensor)]
        carried = next((each for each in given if id(each) in self._made), None)
        if carried is None or not isinstance(out, torch.Tensor):
            return
        table, width, _ = self._made[id(carried)]
        others = [each for each in given if id(each) not in self._made and each.dim() > 2 and each.shape[-1] > 1]
        if func.__name__ in _REORDERS:
            self._uses.setdefault(id(table), []).append(False)
        elif not any(each.is_floating_point() for each in others):
            self._made[id(out)] = table, width, out
        elif func.__name__.strip("_") in _ADDS:
            scores = carried.shape[-2:] == (width, width) and table.shape[1] != width
            self._uses.setdefault(id(table), []).append(not scores)
        elif func.__name__.strip("_") in _MULTIPLIES:
            self._uses.setdefault(id(table), []).append(False)

    def _note(self, table: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
        if id(table) in self.tables:
            self.looks.append(Look(table, rows.detach().cpu().long(), out.detach()))
            if rows.dim() and bool((rows.diff(dim=-1) == 1).all()):
                self._made[id(out)] = table, rows.shape[-1], out


def _hidden(out: Any) -> torch.Tensor:
    """The first tensor (B, T, ·) of an output, as a dict-like, a tuple or itself."""
    values = out.values() if isinstance(out, Mapping) else out if isinstance(out, tuple) else (out,)
    for value in values:
        if isinstance(value, torch.Tensor) and value.dim() == 3 and value.is_floating_point():
            return value
    return torch.zeros(2, 0, 0, device="cpu")  # nothing to compare


def check_numbers(model: nn.Module) -> None:
    r"""Raise if parameters are not at hand.

    Raises:
        ValueError: for parameters on the meta device, or sharded over processes.
    """
    # Shards are flat: what FSDP keeps of a matrix has one dimension, and DeepSpeed leaves an empty row.
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | nn.Embedding)}
    for name, tensor in model.named_parameters():
        is_flat = tensor.dim() < 2 and id(tensor) in matrices
        if tensor.is_meta or is_flat or type(tensor).__name__ == "DTensor" or "_flat_param" in name:
            where = "on the meta device" if tensor.is_meta else "sharded over processes"
            raise ValueError(
                explain(
                    "the model must be run on a few tokens, and its numbers are not at hand",
                    got=f"{name} is {where}",
                    fix="do this before the model is sharded, and after its weights are loaded",
                )
            )


def token_embeddings(model: Any) -> torch.Tensor | None:
    """The table `(V, D)` that token ids are looked up in, where a model says which."""
    try:
        weight = getattr(model.get_input_embeddings(), "weight", None)
    except (NotImplementedError, AttributeError, TypeError):  # CANINE has none, Flava does not say
        return None
    return weight if isinstance(weight, torch.Tensor) and weight.dim() == 2 else None


def _plain_ids(model: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Ids without a meaning of their own: padding moves positions, end-of-sequence tokens end things."""
    known = [getattr(each, "vocab_size", None) for each in configurations(model.config)]
    table = token_embeddings(model)
    rows = min([2**31 if table is None else len(table), *(size for size in known if type(size) is int and size > 0)])
    special = special_ids(model.config) | {
        int(module.padding_idx) for module in model.modules() if type(getattr(module, "padding_idx", None)) is int
    }
    plain = np.setdiff1d(np.arange(min(rows, 50_000)), sorted(special))
    return plain if len(plain) else np.arange(rows)


def _padding_id(model: Any) -> int:
    for each in configurations(model.config):
        found = getattr(each, "pad_token_id", None)
        if type(found) is int and found >= 0:
            return found
    return 0

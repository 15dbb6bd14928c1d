"""Run a Hugging Face model on a few tokens, record every lookup into its tables, and leave the model unchanged.

`position_tables` interprets the lookups, and `mask_support` the effect of masks.
"""

from __future__ import annotations

import copy
import logging
import random
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from .._common.errors import shorten, value_error
from .properties import (
    configurations,
    configured_length,
    fixed_length,
    forward_names,
    opened,
    special_ids,
    takes_use_cache,
)

IdsName = Literal["input_ids", "decoder_input_ids"]

_GIVE_THE_PART = "give the part that reads text alone, if the model has one: in Python, e.g. model.text_model"

# Table lookups by index, besides `F.embedding`.
_BY_INDEX = (torch.Tensor.__getitem__, torch.Tensor.index_select, torch.index_select)

# Operations that add table rows to token vectors (or append them), multiply the two, or reorder rows. Names are
# compared without underscores: `add` is `+`, `torch.add` and `add_`.
_ADDS = ("add", "radd", "iadd", "sub", "rsub", "isub", "cat", "concat", "concatenate", "stack")
_MULTIPLIES = ("mul", "rmul", "imul", "matmul", "rmatmul", "bmm", "einsum", "baddbmm", "scaled_dot_product_attention")
_REORDERS = ("flip", "flipud", "roll", "gather", "index_select", "take_along_dim")

# Modules store parameters, buffers, submodules and hooks in these dicts, which a forward may write to: transformers
# adds hooks in the first forward that returns hidden states or attentions.
_DICTS_OF_A_MODULE = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, dict))

# True in a block of `unchanged`: its runs are not those of a user.
is_unchanged: ContextVar[bool] = ContextVar("is_unchanged", default=False)

_ONE_AT_A_TIME = threading.RLock()  # `unchanged` changes random generators, logging and compiling of the whole process

# Numbers of sample tokens in the input and in the decoder's input, and of padding tokens in a padded row of either.
# They are low because models may be large. Input and decoder differ, so that their table lookups can be distinguished.
_USUAL = (7, 5, 3)
_TINY = (4, 3, 1)  # for models with fewer than a dozen positions


@dataclass(frozen=True, eq=False)
class Lookup:
    """One read from a 2D table of a model, by embedding, index or slice; recorded by `Probe.run`.

    Args:
        table (`torch.Tensor` `(V, D)`): the table.
        rows (`torch.Tensor` `(...)` int64): indices of the rows that were read, on the CPU.
        values (`torch.Tensor` `(..., D)`): the values that were read.
        uses (`list` of `bool`): all uses of the table in the run, True if the model adds values to token vectors, False
            if it multiplies by them, adds them to attention scores, or reorders them.
    """

    table: torch.Tensor
    rows: torch.Tensor
    values: torch.Tensor
    uses: list[bool]

    @property
    def is_added(self) -> bool:
        """True if the model adds values of the table to token vectors, or does not use them."""
        return any(self.uses) or not self.uses


class Probe:
    r"""A Hugging Face model with sample tokens, and methods that run it on them without changing it.

    It is used to find out by experiment which positions and masks a model uses. The model is run without its head, if
    it has one: a head may require labels, choices or end-of-sequence tokens.

    Args:
        model (`PreTrainedModel`): with or without wrappers.

    Raises:
        ValueError: if the model takes no token ids, or its weights are not available (on the meta device, sharded over
            processes).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = opened(model)
        base = getattr(self.model, "base_model", self.model)
        self.base: nn.Module = base if isinstance(base, nn.Module) else self.model
        self.names = frozenset({*forward_names(self.model), *forward_names(self.base)})
        self._takes_any = not {"input_ids", "inputs_embeds"} & set(forward_names(self.base))
        if self.names and "input_ids" not in self.names:
            raise value_error(
                f"{type(self.model).__name__} reads no token ids, so it has no positions of text",
                got=f"its forward takes {', '.join(forward_names(self.model)[:2])}",
                fix=_GIVE_THE_PART,
            )
        check_weights(self.model)
        self.tables: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            if tensor.dim() == 2 and tensor.is_floating_point():
                self.tables.setdefault(id(tensor), (name, tensor))
        self.input_table = token_embeddings(self.model)
        like = self.input_table if self.input_table is not None else next(self.model.parameters())
        self.device, self.dtype = like.device, like.dtype
        self.is_half = self.dtype in (torch.float16, torch.bfloat16)
        self.has_decoder = "decoder_input_ids" in self.names
        given = [getattr(config, "pad_token_id", None) for config in configurations(self.model.config)]
        self.padding_id = next((padding for padding in given if type(padding) is int and padding >= 0), 0)
        self.plain_ids = _plain_ids(self.model)
        room, fixed = configured_length(self.model.config), fixed_length(self.model.config)
        length, decoder_length, self.padding = _TINY if room is not None and room < 12 else _USUAL
        self.has_fixed_length = fixed is not None
        # Sample ids of encoder and decoder, each (2, T): the second row ends in other tokens.
        self.samples: dict[IdsName, torch.Tensor] = {
            "input_ids": self.ids(1, length if fixed is None else fixed, seed=0).repeat(2, 1),
            "decoder_input_ids": self.ids(1, decoder_length, seed=1).repeat(2, 1),
        }
        for ids in self.samples.values():
            ids[1, -self.padding :] = ids[1, 0]  # several tokens: one may have no effect in half precision

    def ids(self, rows: int, length: int, seed: int) -> torch.Tensor:
        """Return random ids `(rows, length)` int64 of ordinary tokens.

        The ids of a row descend, so that they cannot be taken for position ids.
        """
        ids = np.random.default_rng(seed).choice(self.plain_ids, size=(rows, length))
        return torch.from_numpy(-np.sort(-ids, axis=1))

    def padded(self, samples: Mapping[IdsName, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return model inputs of two rows: the first row of each of `samples`, once left-padded and once right-padded.

        The last tokens of the row are dropped for the padding, so that its length stays T.
        """
        inputs: dict[str, torch.Tensor] = {}
        for name, ids in samples.items():
            tokens, pad = ids[0, : -self.padding], torch.full((self.padding,), self.padding_id, device="cpu")
            inputs[name] = torch.stack([torch.cat([pad, tokens]), torch.cat([tokens, pad])])
            mask = torch.ones_like(ids)
            mask[0, : self.padding] = 0
            mask[1, -self.padding :] = 0
            inputs[name.replace("input_ids", "attention_mask")] = mask
        return inputs

    def run(
        self,
        inputs: Mapping[str, torch.Tensor],
        tables: Iterable[nn.Embedding] = (),
        more: Mapping[str, Any] | None = None,
    ) -> tuple[list[Lookup], torch.Tensor]:
        """Run the base model once; return its reads from 2D tables, and the last hidden states (or logits).

        `inputs` are keyword arguments, without those that the forward lacks; of `more`, none is dropped, so the forward
        may take them by `**kwargs`. The modules `tables` may change the rows they read, for example scale them: the
        `values` of their lookups are the module's output. The hidden states are `(B, T, ·)`, float32 on the CPU. Raise
        `ValueError` if the model does not run on these inputs.
        """
        with _Recorder(self.tables) as recorder, ExitStack() as hooks:
            for table in tables:
                hooks.callback(table.register_forward_hook(recorder.record_output).remove)
            with torch.no_grad():
                out = self._forward(inputs, more)
        return recorder.lookups, out.float().cpu()

    def _forward(self, inputs: Mapping[str, torch.Tensor], more: Mapping[str, Any] | None = None) -> torch.Tensor:
        """Run the base model and return the last hidden states (or logits) `(B, T, ·)`; raise if it fails."""
        names = self.names if self._takes_any else frozenset(forward_names(self.base))
        given = {name: value for name, value in inputs.items() if name in names} | dict(more or {})
        arguments = {name: value.to(self.device) if hasattr(value, "to") else value for name, value in given.items()}
        arguments |= {"return_dict": True} if "return_dict" in names else {}
        # A cache may change the mask, for example let packed documents see each other.
        arguments |= {"use_cache": False} if takes_use_cache(self.base, self.model.config) else {}
        try:
            with unchanged(self.model):
                return _hidden_states(self.base(**arguments))
        except Exception as error:
            length = inputs["input_ids"].shape[1]
            raise value_error(
                f"{type(self.base).__name__} did not run on {length} token ids alone, so its positions cannot be found",
                got=f"{type(error).__name__}: {shorten(str(error), 200)}",
                fix=_GIVE_THE_PART,
            ) from error

    def gradients(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the gradients of a weighted sum of the last hidden states, for tensors that may contain positions.

        The keys are names of parameters, buffers and attributes. Tensors without effect or of one dimension, token
        embeddings, and the weights of linear and convolutional layers are left out. The result is empty if the model
        cannot be differentiated.
        """
        tensors = {
            name: tensor
            for name, _, tensor in tensors_of(self.model)
            if tensor.is_leaf and tensor is not self.input_table
        }
        with ExitStack() as stack:
            for tensor in tensors.values():
                stack.callback(tensor.requires_grad_, tensor.requires_grad)
                tensor.requires_grad_(True)
            try:
                with unchanged(self.model), torch.enable_grad():
                    out = self._forward(inputs)
                    weights = torch.linspace(0, 97, out.numel(), device=out.device).view(out.shape).sin()
                    grads = torch.autograd.grad((out.float() * weights).sum(), [*tensors.values()], allow_unused=True)
            except Exception:  # no tensors, or a backward of its own, as Reformer's, that requires training mode
                return {}
        return {name: grad for name, grad in zip(tensors, grads, strict=True) if grad is not None}

    def is_same(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Return True if two outputs are equal up to rounding; use it for inputs of the same shape."""
        return relative_difference(one, other) < (1e-4 if self.is_half else 1e-6)

    def is_close(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Return True if two outputs are equal up to the larger rounding errors of inputs of different shapes."""
        return relative_difference(one, other) < (3e-2 if self.is_half else 1e-4)


class _Recorder(TorchFunctionMode):
    """Torch function mode that records each read from a model's tables by `F.embedding`, index or slice, in `lookups`.

    The keys of `tables` are the `id(tensor)` of these tables; its values are not used.
    """

    def __init__(self, tables: Mapping[int, Any]) -> None:
        super().__init__()
        self.tables = tables
        self.lookups: list[Lookup] = []
        # From the id of a tensor computed only from looked-up rows to (table, number of rows, that tensor). The tensor
        # is kept, because Python would give the id of a deleted one to another.
        self._computed: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        self._uses: dict[int, list[bool]] = {key: [] for key in tables}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self._computed:
            self._follow(func, args, kwargs, out)
        if func is F.embedding:
            arguments = {**dict(zip(("input", "weight"), args, strict=False)), **kwargs}
            self._record(arguments["weight"], arguments["input"], out)
        elif func in _BY_INDEX and args and id(args[0]) in self.tables:
            index = kwargs.get("index", args[-1])
            if func is torch.Tensor.__getitem__:  # index the row numbers 0, 1, 2, ...: also handles slices
                rows = torch.arange(len(args[0]), device=args[0].device)
                index = rows[index[0] if isinstance(index, tuple) else index]
            self._record(args[0], index, out)
        return out

    def record_output(self, module: nn.Module, _: Any, out: Any) -> None:
        """Replace the `values` of the last lookup by `out`, the output of the table's module, which may scale them."""
        value = out[0] if isinstance(out, tuple) else out
        if self.lookups and self.lookups[-1].table is module.weight and isinstance(value, torch.Tensor):
            self.lookups[-1] = replace(self.lookups[-1], values=value.detach())

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Record how the operation `func` uses rows that were read from a table."""
        # True for adding them to token vectors; False for multiplying by them, adding them to attention scores, or
        # reordering them. Without token vectors, as in a scaling, `out` counts as rows of the table from then on.
        flat = [item for arg in (*args, *kwargs.values()) for item in (arg if isinstance(arg, list | tuple) else [arg])]
        tensors = [item for item in flat if isinstance(item, torch.Tensor)]
        source = next((tensor for tensor in tensors if id(tensor) in self._computed), None)
        if source is None or not isinstance(out, torch.Tensor):
            return
        table, width, _ = self._computed[id(source)]
        operands = [
            tensor
            for tensor in tensors
            if id(tensor) not in self._computed and tensor.dim() > 2 and tensor.shape[-1] > 1
        ]
        if func.__name__ in _REORDERS:
            self._uses[id(table)].append(False)
        elif not any(operand.is_floating_point() for operand in operands):
            self._computed[id(out)] = table, width, out
        elif func.__name__.strip("_") in _ADDS:
            scores = source.shape[-2:] == (width, width) and table.shape[1] != width
            self._uses[id(table)].append(not scores)
        elif func.__name__.strip("_") in _MULTIPLIES:
            self._uses[id(table)].append(False)

    def _record(self, table: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
        if id(table) in self.tables:
            self.lookups.append(Lookup(table, rows.detach().cpu().long(), out.detach(), self._uses[id(table)]))
            if rows.dim() and bool((rows.diff(dim=-1) == 1).all()):
                self._computed[id(out)] = table, rows.shape[-1], out


# -------------------------------------------------------------------------------------------------- inputs and outputs


def with_masks(samples: Mapping[IdsName, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return keyword arguments for a forward: the ids in `samples`, and for each of them an attention mask of ones."""
    masks = {name.replace("input_ids", "attention_mask"): torch.ones_like(ids) for name, ids in samples.items()}
    return {**{str(name): ids for name, ids in samples.items()}, **masks}


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the mean of `|one - other|` divided by the mean of `|one|`; inf if the shapes differ."""
    if one.shape != other.shape:  # a model may choose a random output length
        return float("inf")
    # The mean, because one element in thousands may be rounded differently.
    return float((one - other).abs().mean() / one.abs().mean().clamp_min(1e-30))


def _hidden_states(out: Any) -> torch.Tensor:
    """Return the first 3D floating-point tensor of a model's output, which may be a mapping, a tuple or a tensor."""
    values = out.values() if isinstance(out, Mapping) else out if isinstance(out, tuple) else (out,)
    for value in values:
        if isinstance(value, torch.Tensor) and value.dim() == 3 and value.is_floating_point():
            return value
    return torch.zeros(2, 0, 0, device="cpu")  # nothing to compare


# ----------------------------------------------------------------------------------------------------- parts of a model


def check_weights(model: nn.Module) -> None:
    r"""Raise if some weights of a model are not available in this process."""
    # Shards are flat: FSDP stores a matrix in one dimension, and DeepSpeed leaves an empty row.
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | nn.Embedding)}
    for name, tensor in model.named_parameters():
        is_flat = tensor.dim() < 2 and id(tensor) in matrices
        if tensor.is_meta or is_flat or type(tensor).__name__ == "DTensor" or "_flat_param" in name:
            where = "on the meta device" if tensor.is_meta else "sharded over processes"
            raise value_error(
                "the model must be run on a few tokens, and its weights are not available",
                got=f"{name} is {where}",
                fix="do this before the model is sharded, and after its weights are loaded",
            )


def tensors_of(model: nn.Module) -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    """Yield name, module and tensor of all tensors of two or more dimensions, except those of linear layers.

    They are parameters, buffers and other attributes. Convolutional layers count as linear.
    """
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            for name, tensor in {**vars(module), **module._buffers, **module._parameters}.items():
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dim() > 1:
                    yield f"{path}.{name}".lstrip("."), module, tensor


def token_embeddings(model: Any) -> torch.Tensor | None:
    """Return the table `(V, D)` of token embeddings; `None` if `model.get_input_embeddings()` does not give one."""
    try:
        weight = getattr(model.get_input_embeddings(), "weight", None)
    except (NotImplementedError, AttributeError, TypeError):  # CANINE has none, Flava has no accessor for it
        return None
    return weight if isinstance(weight, torch.Tensor) and weight.dim() == 2 else None


def _plain_ids(model: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return up to 50,000 ids of ordinary tokens, `(N,)` int64, for samples."""
    # Special tokens are left out, because padding can move the positions of other tokens, and eos can end a sequence.
    sizes = [getattr(config, "vocab_size", None) for config in configurations(model.config)]
    table = token_embeddings(model)
    rows = min([2**31 if table is None else len(table), *(size for size in sizes if type(size) is int and size > 0)])
    special = special_ids(model.config) | {
        int(module.padding_idx) for module in model.modules() if type(getattr(module, "padding_idx", None)) is int
    }
    plain = np.setdiff1d(np.arange(min(rows, 50_000)), sorted(special))
    return plain if len(plain) else np.arange(rows)


# -------------------------------------------------------------------------------------------- leaving a model unchanged


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    r"""Put a model into evaluation mode in a `with` block, and restore the model and global state afterwards.

    Some models change their state in a forward: BigBird replaces its attention for short rows. Attributes, submodules,
    configurations, random generators and logging are restored; in-place changes of weights are not. In the block no
    code is compiled, and other threads wait at their own block, because these settings are those of the process.

    Example:
        >>> model = nn.Dropout().train()
        >>> with unchanged(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    with _ONE_AT_A_TIME, ExitStack() as stack:
        modules, config = list(model.modules()), getattr(model, "config", None)
        stack.callback(is_unchanged.reset, is_unchanged.set(True))
        for module in modules:
            stack.callback(_restore, vars(module), dict(vars(module)))
            for name in _DICTS_OF_A_MODULE & vars(module).keys():
                stack.callback(_restore, vars(module)[name], dict(vars(module)[name]))
            module.training = False
        for part in configurations(config) if config is not None else ():
            copies = {name: copy.copy(value) for name, value in vars(part).items() if isinstance(value, _MUTABLE)}
            stack.callback(_restore, vars(part), dict(vars(part)), copies)
        stack.callback(random.setstate, random.getstate())  # layer dropping draws from it in some models
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002  (BigBird draws from it)
        logger = logging.getLogger("transformers")
        stack.callback(vars(logger).update, handlers=logger.handlers, propagate=logger.propagate)
        # No messages. A change of the level would clear the caches of all loggers, which is slow.
        logger.handlers, logger.propagate = [logging.NullHandler()], False
        devices = sorted({tensor.device.index or 0 for tensor in model.parameters() if tensor.device.type == "cuda"})
        stack.enter_context(torch.random.fork_rng(devices))
        # Compiling for a few tokens would take minutes. Flex attention that is not compiled warns.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile", UserWarning)
        yield


_MUTABLE = (dict, list, set)


def _restore(now: dict[str, Any], before: dict[str, Any], copies: Mapping[str, Any] | None = None) -> None:
    """Restore the dict `now` to the entries of `before`, in place; entries that are the same are not written."""
    # `copies` of lists and dicts replace those that were changed in place.
    before |= {name: content for name, content in (copies or {}).items() if before[name] != content}
    for name in now.keys() - before.keys():
        del now[name]
    for name, value in before.items():
        if name not in now or now[name] is not value:
            now[name] = value

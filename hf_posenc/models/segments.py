"""Segments: the parts of a batch's rows that are computed, and attention in which each sees the tokens on its own path.

A segment is a row without the tokens that an earlier row begins with. No module of a model is known here; `once.py`
decides which rows may share tokens, and replaces the forward of a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from .._common.errors import value_error

Ints = NDArray[np.int64]
Sharing = Literal["beginnings", "rows"]
AS_IT_IS = "leave compute_once(model) out: the model is unchanged, and runs as before"


@dataclass
class Plan:
    """Plan of a batch of B rows and T columns, of which N tokens are computed, in one row.

    Args:
        tokens (`(N, C)` int64): token id, and position and type if the call has them.
        groups (list of `(segments, queries, keys)`): segments of equal shape, in the order of `tokens`.
        paths (`(K,)` int64, *optional*): the tokens that each segment attends to, one segment after another; `None` if
            every segment attends to its own tokens alone.
        sources, places (`(P,)` int64): tokens, and the places in the B·T places of the batch where they are put back.
        shape (`tuple`): B, T.
        shares (`"beginnings"` or `"rows"`, *optional*): what rows share; `None` for nothing.
    """

    tokens: Any
    groups: list[tuple[int, int, int]]
    paths: Any
    sources: Any
    places: Any
    shape: tuple[int, int]
    shares: Sharing | None
    is_used: bool = False  # by an attention function

    def to(self, device: torch.device) -> None:
        """Turn the arrays into tensors on `device`."""
        for name in ("tokens", "paths", "sources", "places"):
            array = getattr(self, name)
            setattr(self, name, None if array is None else torch.from_numpy(array).to(device))

    def put_back(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values `(N, ...)` of tokens at their places, `(B·T, ...)`, with zeros at padding."""
        sources, places = self.sources.to(values.device), self.places.to(values.device)
        out = values.new_zeros(self.shape[0] * self.shape[1], *values.shape[1:])
        return out.index_copy(0, places, values.index_select(0, sources))

    def put_back_all(self, out: Any, name: str | None = None) -> Any:
        """Return a model's output with every `(1, N, ...)` in it put back to `(B, T, ...)`, and router logits too."""
        if isinstance(out, torch.Tensor):
            if out.dim() > 2 and out.shape[:2] == (1, len(self.tokens)):
                return self.put_back(out[0]).view(*self.shape, *out.shape[2:])
            return self.put_back(out) if name == "router_logits" and len(out) == len(self.tokens) else out
        if isinstance(out, dict):
            for key in list(out):
                out[key] = self.put_back_all(out[key], key)
            return out
        return type(out)(self.put_back_all(x, name) for x in out) if type(out) in (tuple, list) else out


# The plan of the call that runs. It is read where masks are made and where rows are pooled, never inside of layers,
# which gradient checkpoints run again after the call.
current_plan: ContextVar[Plan | None] = ContextVar("current_plan", default=None)


def plan_rows(rows: Sequence[Ints], places: Ints, shape: tuple[int, int], shares: Sharing | None) -> Plan:
    """Return the plan for `rows` of tokens, each `(length, C)`, whose tokens stand at `places` of a batch."""
    table = np.concatenate(rows)
    lengths = [len(row) for row in rows]
    number = table[:, 0]  # one number for all columns, equal for equal tokens
    for column in table.T[1:]:
        number = number * (column.max() - column.min() + 1) + column - column.min()
    numbers = np.split(number, np.cumsum(lengths)[:-1])
    order: Sequence[int] = range(len(rows))
    shared = [0] * len(rows)  # tokens that a row shares with the row before it in `order`
    if shares is not None:  # rows that begin alike follow each other
        order = sorted(order, key=[row.astype(">i8").tobytes() for row in numbers].__getitem__)
        for before, row in itertools.pairwise(order):
            length = min(lengths[before], lengths[row])
            shared[row] = int(np.append(numbers[before][:length] != numbers[row][:length], True).argmax())
            if shares == "rows" and not shared[row] == lengths[row] == lengths[before]:
                shared[row] = 0

    def shape_of(row: int) -> tuple[int, int]:
        return lengths[row] - shared[row], lengths[row]

    segments = sorted((row for row in order if lengths[row] > shared[row]), key=shape_of)
    ends = np.cumsum([lengths[row] - shared[row] for row in segments])
    first = dict(zip(segments, [0, *ends.tolist()], strict=False))
    paths: list[Ints] = [np.empty(0, np.int64)] * len(rows)
    path = paths[0]
    for row in order:
        start, count = first.get(row, 0), lengths[row] - shared[row]
        paths[row] = path = np.concatenate([path[: shared[row]], np.arange(start, start + count)])
    sources = np.concatenate(paths)
    tokens = np.empty((int(ends[-1]), table.shape[1]), np.int64)
    tokens[sources] = table
    groups = [(len(list(group)), *each) for each, group in itertools.groupby(segments, key=shape_of)]
    keys = np.concatenate([paths[row] for row in segments]) if any(shared[row] for row in segments) else None
    return Plan(tokens, groups, keys, sources, places, shape, shares)


def add_blind(plan: Plan, tokens: Ints, places: Ints) -> None:
    """Add `tokens` `(V, C)` that attend to nothing, as the last padding before a left-padded row does."""
    count = len(plan.tokens)
    tokens, numbers = np.unique(tokens, axis=0, return_inverse=True)
    plan.paths = np.arange(count) if plan.paths is None else plan.paths
    plan.tokens, plan.groups = np.concatenate([plan.tokens, tokens]), [*plan.groups, (len(tokens), 1, 0)]
    plan.sources, plan.places = np.append(plan.sources, count + numbers.reshape(-1)), np.append(plan.places, places)


@dataclass
class SegmentMask:
    """Value that stands in the place of an attention mask: a plan, and the model's own rule about visible keys."""

    plan: Plan
    rule: Callable[..., Any]  # of transformers: (batch, head, query, key) → True if the key is visible
    _masks: dict[Any, tuple[bool, torch.Tensor | None]] = field(default_factory=dict)

    def of(self, queries: int, keys: int, like: torch.Tensor, is_eager: bool) -> tuple[bool, torch.Tensor | None]:
        """Return `is_causal` and the mask that a stock function takes, for the last `queries` of `keys` tokens."""
        from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

        is_causal = self.rule is causal_mask_function
        if self.rule is bidirectional_mask_function or (is_causal and queries == 1):
            return False, None
        if is_causal and queries == keys and not is_eager:  # no mask of T·T
            return True, None
        known = (queries, keys, like.device, like.dtype)
        if known not in self._masks:
            self._masks[known] = self._made(queries, keys, like, is_eager)
        return self._masks[known]

    def _made(self, queries: int, keys: int, like: torch.Tensor, is_eager: bool) -> tuple[bool, torch.Tensor | None]:
        column = torch.arange(keys, device="cpu")[None]
        row = column[0, keys - queries :, None]
        try:
            visible = self.rule(0, 0, row, column)
        except RuntimeError:  # a rule with tensors on the device, such as that of attention in chunks
            visible = self.rule(0, 0, row.to(like.device), column.to(like.device)).cpu()
        visible = visible.expand(queries, keys)
        if visible.all():
            return False, None
        if queries == keys and not is_eager and torch.equal(visible, row >= column):
            return True, None
        mask = visible.to(like.device)[None, None]
        if is_eager:
            zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
            mask = zeros.masked_fill(~mask, torch.finfo(like.dtype).min)
        return False, mask


def make_mask(stock: Callable[..., Any], *args: Any, mask_function: Any = None, **kwargs: Any) -> Any:
    """Return the stock mask, or a `SegmentMask` in a call that has a plan; see `wrap_attention`."""
    from transformers.masking_utils import causal_mask_function

    visible = mask_function or causal_mask_function
    # torch.compile, of any model in this process, cannot read a context variable.
    plan = None if torch.compiler.is_compiling() else current_plan.get()
    if plan is None:
        return stock(*args, mask_function=visible, **kwargs)
    if plan.shares == "beginnings" and bool(visible(0, 0, *torch.arange(2, device="cpu"))):
        rule, got = "a shared beginning must not see the tokens behind it", "a mask that shows later tokens"
        raise value_error(rule, got=got, fix=AS_IT_IS)
    return SegmentMask(plan, visible)


def attend(
    name: str,
    stock: Any,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Return the stock attention, or that of each segment if `attention_mask` is a `SegmentMask`; see `wrap_attention`.

    Queries, keys and values are `(1, heads, N, width)`, the result is `(1, N, heads, width)`.
    """
    mask = attention_mask
    if not isinstance(mask, SegmentMask):
        return stock(module, query, key, value, mask, *args, **kwargs)
    plan, count, layer = mask.plan, len(mask.plan.tokens), type(module).__name__
    if not count == query.shape[2] == key.shape[2]:
        got = f"{key.shape[2]} keys of {count} tokens in {layer}"
        raise value_error("attention must see the tokens of the batch, and no others", got=got, fix=AS_IT_IS)
    for argument, tensor in kwargs.items():
        if isinstance(tensor, torch.Tensor) and tensor.dim() > 2 and count in tensor.shape[-2:]:
            got = f"{argument} in {layer}"
            raise value_error("attention must not add a bias to pairs of tokens", got=got, fix=AS_IT_IS)
    plan.is_used = True
    if plan.paths is not None:
        paths = plan.paths.to(key.device)
        key, value = key.index_select(2, paths), value.index_select(2, paths)
    if is_flash(name):
        return stock(module, query, key, value, None, *args, **{**kwargs, **_offsets(plan, query.device)})
    is_eager = name in ("eager", None)

    def parts(x: torch.Tensor, axis: int) -> Any:
        # Not slices: the gradient of a slice is as long as the whole row.
        pieces = torch.split(x[0], [shape[0] * shape[axis] for shape in plan.groups], 1)
        return [
            piece.view(len(piece), shape[0], shape[axis], piece.shape[2]).transpose(0, 1)
            for piece, shape in zip(pieces, plan.groups, strict=True)
        ]

    out = []
    kwargs.pop("is_causal", None)
    each = zip(plan.groups, parts(query, 1), parts(key, 2), parts(value, 2), strict=True)
    for (segments, queries, keys), q, k, v in each:  # (segments, heads, queries or keys, width)
        if keys == 0:
            out.append(value.new_zeros(segments, query.shape[1], value.shape[3]))
            continue
        is_causal, seen = mask.of(queries, keys, query, is_eager)
        how = {} if is_eager else {"is_causal": is_causal}
        out.append(stock(module, q, k, v, seen, *args, **kwargs, **how)[0].flatten(0, 1))
    return torch.cat(out)[None], None


def is_flash(name: str | None) -> bool:
    """Return True for the name of an attention that takes offsets of segments, as flash attention does."""
    return name is not None and "flash" in name and not name.startswith("paged|")


def _offsets(plan: Plan, device: torch.device) -> dict[str, Any]:
    """Return the arguments by which flash attention finds the segments in a row of queries and a row of keys."""
    sizes = np.repeat([shape[1:] for shape in plan.groups], [shape[0] for shape in plan.groups], axis=0)
    offsets = np.concatenate([np.zeros((1, 2), int), sizes.cumsum(0)]).astype(np.int32)
    q, k = (torch.from_numpy(column).to(device) for column in offsets.T.copy())
    longest = {f"max_length_{name}": int(size) for name, size in zip("qk", sizes.max(0), strict=True)}
    return {"cu_seq_lens_q": q, "cu_seq_lens_k": k, **longest}

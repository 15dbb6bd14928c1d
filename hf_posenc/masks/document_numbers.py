"""Document number of each token, as `AttentionMask` stores it: from a batch or from lengths. Also masks of prefixes.

This module reads and checks inputs; `attention_mask` computes the masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._common.constants import PaddingSide
from .._common.errors import require_one_of, shorten, type_error, value_error
from .._common.integers import as_integers, to_numpy
from ..documents import LENGTHS, MASK_NUMBERS, NUMBERS, OFFSETS, number_tokens, read_mask
from ..positions import row_length
from ..ragged import Ragged
from .functions import as_integer_tensor
from .structure import rank_in_document

PADDING = -1  # the document number at padding
READ = ("attention_mask", *NUMBERS, "position_ids", *LENGTHS, *OFFSETS)
_FROM_DOCUMENTS = "AttentionMask.from_documents([[5, 9], [11]])"
_PREFIX = "prefix=3, or one number for each row: prefix=[3, 2]"


def documents_of_batch(batch: Mapping[str, Any]) -> torch.Tensor:
    """Return the document number of each token of a batch, `(B, T)` int64 in new memory, -1 at padding.

    Where values are at hand, `number_tokens` finds the documents and checks that the keys agree. On an accelerator they
    are computed there, without checks. With `attention_mask` of 0 and 1 alone, each row is one document. Raise if the
    batch has no key that describes them.
    """
    if not isinstance(batch, Mapping):
        raise type_error(
            "a batch is a mapping with attention_mask, document_ids or position_ids",
            got=type(batch).__name__,
            fix='AttentionMask.from_batch({"attention_mask": mask}), or AttentionMask.from_lengths(lengths)',
        )
    inputs = {name: batch[name] for name in ("input_ids", *READ) if not _is_missing(batch.get(name))}
    if isinstance(inputs.get("attention_mask"), list | tuple):
        inputs["attention_mask"] = np.array(inputs["attention_mask"])
    inputs, is_packed = read_mask(inputs)
    is_packed |= "attention_mask" not in batch and batch.get("use_cache") is False  # of a flat row
    inputs.pop("input_ids", None)
    if isinstance(inputs.get("attention_mask"), Ragged):  # of the texts of `pack_dataset`
        inputs["attention_mask"] = inputs["attention_mask"].pad(0)
    if MASK_NUMBERS in inputs:
        mask = batch["attention_mask"]
        layer_mask = next(iter(mask.values())) if isinstance(mask, Mapping) else mask  # of one kind of layer
        inputs[MASK_NUMBERS] = torch.as_tensor(inputs[MASK_NUMBERS], device=getattr(layer_mask, "device", "cpu"))
    mask = None if "attention_mask" not in inputs else _integer_mask(inputs.pop("attention_mask"))
    lengths = {name: inputs.pop(name) for name in (*LENGTHS, *OFFSETS) if name in inputs}
    ids = {
        name: as_integer_tensor(values, name, dims=2, example=f"{name}: [[0, 0, 1, -1]]").long()
        for name, values in inputs.items()
    }
    if mask is None:
        if not ids and not lengths:
            raise value_error(
                "the batch needs attention_mask, document_ids, or the position_ids of packed rows",
                got=f"keys {shorten(list(batch))}",
                fix="AttentionMask.from_lengths(lengths)",
            )
        tokens = next(iter(ids.values()), batch.get("input_ids"))
        if tokens is None:
            name, values = next(iter(lengths.items()))
            totals = [row.sum() if name in LENGTHS else row[-1] for row in _of_rows(name, values)]
            tokens = np.empty((len(totals), max(totals, default=0)), np.bool_)
        device = tokens.device if isinstance(tokens, torch.Tensor) else "cpu"
        mask = torch.ones(np.shape(tokens), dtype=torch.int64, device=device)
    ids = {name: _expanded(tensor, name, mask) for name, tensor in ids.items()}
    is_on_cpu = mask.device.type == "cpu"
    if not ids and not lengths and not (is_on_cpu and bool((mask > 1).any())):
        return mask - 1
    if ids and mask.numel() and not is_on_cpu:
        return _computed_numbers(mask, ids, is_packed=is_packed)
    sizes = np.full(len(mask), mask.shape[1])
    per_token = {"attention_mask": mask, **ids}
    columns = {name: Ragged(tensor.reshape(-1).cpu().numpy(), sizes) for name, tensor in per_token.items()}
    columns |= {name: _of_rows(name, values) for name, values in lengths.items()}
    of_tokens, _ = number_tokens({"input_ids": columns["attention_mask"], **columns}, is_packed=is_packed)
    return mask - 1 if of_tokens is None else torch.from_numpy(of_tokens.reshape(mask.shape)).to(mask.device)


def _computed_numbers(mask: torch.Tensor, ids: Mapping[str, torch.Tensor], *, is_packed: bool) -> torch.Tensor:
    """Return the document numbers that `number_tokens` finds in `(B, T)` columns, computed on their device."""
    is_real = mask != 0
    numbers = [ids[name] for name in (*NUMBERS, MASK_NUMBERS) if name in ids]
    for each in numbers:
        is_real = is_real & (each >= 0)
    documents = numbers[0] if numbers else mask - 1
    if not numbers and "position_ids" in ids:  # numbers above 1 in the mask are those of documents
        documents = torch.where((mask > 1).any(), documents, _restarts(ids["position_ids"], is_real, is_packed))
    return torch.where(is_real, documents, PADDING)


def _restarts(position_ids: torch.Tensor, is_real: torch.Tensor, is_packed: bool) -> torch.Tensor:
    """Return document numbers by the rules of `documents_by_positions`, for tokens that are real."""
    order = (~is_real).long().argsort(dim=1, stable=True)  # real tokens first
    positions, is_real = position_ids.gather(1, order), is_real.gather(1, order)
    lowest = positions.where(is_real, torch.iinfo(torch.int64).max).amin(1, keepdim=True)
    inside, at_first, step = is_real[:, 1:], (positions == lowest)[:, 1:], positions.diff(dim=1)
    begins = inside & at_first & (step < 0) & ~(inside & ~at_first & (step < 0)).any(1, keepdim=True)
    may_repeat = inside & at_first & ~(inside & ~at_first & (step != 1)).any(1, keepdim=True)
    begins |= may_repeat if is_packed else may_repeat & begins.any(1, keepdim=True)
    return torch.zeros_like(order).scatter_(1, order[:, 1:], begins.cumsum(1))


def _is_missing(values: Any) -> bool:
    """Return True for None, and for a list of None in each row."""
    return values is None or (isinstance(values, list) and len(values) > 0 and all(row is None for row in values))


def _of_rows(name: str, values: Any) -> Ragged:
    """Return the lengths or offsets of documents of each row; those of a flat batch are one list."""
    rows = values.tolist() if hasattr(values, "tolist") else list(values)
    return Ragged.from_rows(rows if rows and np.ndim(rows[0]) else [rows], name=name)


def _integer_mask(mask: object) -> torch.Tensor:
    """Convert an `attention_mask` of any type and dtype to int64 `(B, T)`: 0 at padding."""
    tensor = mask if isinstance(mask, torch.Tensor) else torch.from_numpy(np.array(mask))
    if tensor.ndim != 2:
        raise value_error(
            "attention_mask must have 2 dimensions, (batch, length)",
            got=f"shape {tuple(tensor.shape)}",
            fix="pass the tokenizer's attention_mask, 1 at real tokens and 0 at padding",
        )
    if tensor.device.type == "cpu" and bool(((tensor < 0) | (tensor != tensor.long())).any()):
        raise value_error(
            "attention_mask must be 1 at tokens and 0 at padding",
            got=shorten(sorted(set(tensor.flatten().tolist()))),
            fix="numbers of documents are 1, 2, 3, ..., or belong into a key document_ids",
        )
    return tensor.long()


def _expanded(ids: torch.Tensor, name: str, mask: torch.Tensor) -> torch.Tensor:
    """Return `ids` `(1, T)` or `(B, T)`, expanded to the shape `(B, T)` of `mask`."""
    if ids.shape not in (mask.shape, (1, mask.shape[1])):
        raise value_error(
            f"{name} and attention_mask must have the same shape",
            got=f"{tuple(ids.shape)} and {tuple(mask.shape)}",
            fix='AttentionMask.from_batch({"attention_mask": mask}) if the rows are not packed',
        )
    return ids.to(mask.device).expand(mask.shape)


def documents_of_lengths(
    documents: Sequence[Sequence[int]], max_length: int | None, padding_side: PaddingSide
) -> torch.Tensor:
    """Return the document number of each token of packed rows, `(B, T)` int64, from 0 in each row; -1 at padding.

    `documents` has a sequence of document lengths for each row. T is `max_length`, by default the length of the longest
    row. Raise if a row is longer than `max_length`.
    """
    require_one_of("padding_side", padding_side, ("left", "right"))
    rows = [
        as_integers(row, f"the document lengths of row {index}", minimum=0, fix=_FROM_DOCUMENTS)
        for index, row in enumerate(documents)
    ]
    totals = np.array([row.sum() for row in rows], dtype=np.int64)
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *(np.repeat(np.arange(len(row)), row) for row in rows)])
    width = row_length(totals, max_length)
    return torch.from_numpy(Ragged(numbers, totals).pad(PADDING, width, side=padding_side))


def prefix_tokens(documents: torch.Tensor, prefix: Any) -> torch.Tensor | None:
    r"""Return a mask that is True at the prefix of each document: first tokens that the whole document may attend to.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): document number of each token, negative at padding.
        prefix: one of

            - `int`: number of tokens in the prefix of every document;
            - integers `(B,)`: one such number for each row;
            - bool `(B, T)`: the mask itself;
            - `None`: no prefixes.

            A number larger than a document means the whole document.

    Returns:
        `torch.Tensor` `(B, T)` bool, in new memory, False at padding; `None` if `prefix` is `None`.

    Raises:
        ValueError: if a number is negative, or the shape does not fit.
        TypeError: if `prefix` contains neither integers nor bools.

    Example:
        >>> prefix_tokens(torch.tensor([[0, 0, 0, 1, 1, -1]]), 2)
        tensor([[ True,  True, False,  True,  True, False]])
    """
    if prefix is None:
        return None
    is_real = documents >= 0
    is_bool = prefix.dtype == torch.bool if isinstance(prefix, torch.Tensor) else to_numpy(prefix).dtype == np.bool_
    if is_bool:
        mask = torch.as_tensor(prefix, device=documents.device)
        if mask.shape != documents.shape:
            got = f"{tuple(mask.shape)} and {tuple(documents.shape)}"
            raise value_error("a bool mask of prefixes must be (batch, length)", got=got, fix=_PREFIX)
        return mask & is_real
    is_single = np.isscalar(prefix)
    counts = as_integer_tensor([prefix] if is_single else prefix, "prefix", dims=1, example=_PREFIX)
    if not is_single and len(counts) != len(documents):
        got = f"{len(counts)} for {len(documents)}"
        raise value_error("prefix needs one number for each row", got=got, fix=_PREFIX)
    if counts.device.type == "cpu" and counts.numel() and int(counts.min()) < 0:
        raise value_error("a prefix must not be negative", got=int(counts.min()), fix=_PREFIX)
    limits = prefix if is_single else counts.to(documents.device)[:, None]
    is_prefix: torch.Tensor = rank_in_document(documents) < limits
    return is_prefix & is_real


def check_cross(queries: torch.Tensor, keys: torch.Tensor) -> None:
    r"""Raise if a query of cross-attention has no key in its document, because its softmax would be NaN.

    Masks on other devices than the CPU are not checked.

    Example:
        >>> check_cross(torch.tensor([[0, 0, -1]]), torch.tensor([[0, -1]]))     # document 0 has a key
    """
    if len(queries) != len(keys):
        raise value_error(
            "queries and keys must have the same number of rows",
            got=f"{len(queries)} and {len(keys)}",
            fix="describe the two sides of the same batch",
        )
    if not queries.numel() or queries.device.type != "cpu":  # a look at the values would wait for the device
        return
    sorted_keys = torch.nn.functional.pad(keys.long(), (0, 1), value=-1).sort(dim=1).values.contiguous()
    index = torch.searchsorted(sorted_keys, queries.long().contiguous()).clamp(max=sorted_keys.shape[1] - 1)
    lost = (queries >= 0) & (sorted_keys.gather(1, index) != queries) & (keys >= 0).any(dim=1, keepdim=True)
    if bool(lost.any()):
        row, column = (int(number) for number in lost.nonzero()[0])
        raise value_error(
            f"document {int(queries[row, column])} in row {row} has queries and no keys to look at",
            got=f"{int(lost.sum())} such queries; documents of row {row} among the keys: "
            f"{sorted({number for number in keys[row].tolist() if number >= 0})}",
            fix="give both sides the same document numbers, e.g. from_documents with as many documents per row",
        )

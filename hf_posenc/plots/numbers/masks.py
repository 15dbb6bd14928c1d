"""Who may attend to whom in a batch, as arrays: the numbers of `plots.masks`.

It reads what is in the batch; what a model adds on its own, a GPT its look-ahead for one, it knows only when told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..._explain import explain, shorten
from ...batch import real_tokens
from ...masks import AttentionMask
from .arrays import as_numpy

_READ = (
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "document_ids",
    "look_ahead_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
)


class Masks(NamedTuple):
    r"""What a batch says about who may attend to whom; True means "may be attended to".

    Args:
        padding (`np.ndarray` `(B, T)` bool): where a token stands, and no padding.
        look_ahead (`np.ndarray` `(T, T)` bool, *optional*): the look-ahead mask, where there is one.
        combined (`np.ndarray` `(B, T, T)` bool): query i, the second dimension, may attend to key j, the third.
        position_ids (`np.ndarray` `(B, T)`, integer, *optional*): as in the batch.
        document_ids (`np.ndarray` `(B, T)` int64, *optional*): which document of its row each token belongs to, -1 at
            padding; where documents share a row.
    """

    padding: NDArray[np.bool_]
    look_ahead: NDArray[np.bool_] | None
    combined: NDArray[np.bool_]
    position_ids: NDArray[np.integer[Any]] | None
    document_ids: NDArray[np.int64] | None


def masks(batch: Mapping[str, Any], *, look_ahead: bool | None = None, decoder: bool = False) -> Masks:
    r"""The padding mask, the look-ahead mask, both together, position ids and documents of a batch.

    Args:
        batch (mapping from `str` to `torch.Tensor` or `np.ndarray`): with `input_ids` `(B, T)` or `inputs_embeds`
            `(B, T, D)`, and any of `attention_mask` `(B, T)`, or `(B, 1, T, T)` as added to scores, `look_ahead_mask`
            `(B, 1, T, T)`, `position_ids` and `document_ids` `(B, T)`. Where documents share a row and only
            `position_ids` tell, a new one begins where they restart.
        look_ahead (`bool`, *optional*): whether nobody sees what comes later. By default, what the batch says; `True`
            for a model that brings its own look-ahead mask, as GPT-2 does.
        decoder (`bool`, *optional*, defaults to `False`): those of the decoder, from `decoder_input_ids`,
            `decoder_attention_mask` and `look_ahead_mask`, in a batch for an encoder-decoder.

    Returns:
        `Masks` of NumPy arrays.

    Raises:
        ValueError: if the batch has no tokens, or a mask does not have their shape.

    Example:
        >>> batch = {"input_ids": np.array([[5, 6, 0]]), "attention_mask": np.array([[1, 1, 0]])}
        >>> masks(batch, look_ahead=True).combined[0].astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [1, 1, 0]])
    """
    reading = read(batch, look_ahead=look_ahead, decoder=decoder)
    later, combined = combine(reading, slice(None), slice(None))
    return Masks(reading.padding, later, combined, reading.position_ids, reading.document_ids)


class Reading(NamedTuple):
    """What a batch says, before anything of size T×T is made of it."""

    padding: NDArray[np.bool_]  # (B, T)
    position_ids: NDArray[Any] | None  # (B, T)
    document_ids: NDArray[np.int64] | None  # (B, T)
    look_ahead: Any  # (T, T) as the batch has it; True for one that is made here; None
    given: Any  # (B, T or 1, T), a mask of four dimensions without its heads; None


def read(batch: Mapping[str, Any], *, look_ahead: bool | None, decoder: bool) -> Reading:
    """The entries of a batch that say who may attend to whom, each of them in the shape of the tokens."""
    batch = part_of(batch, decoder=decoder)
    rows, length = shape_of(batch)
    given = _four_dimensional(batch.get("attention_mask"), (rows, length))
    padding = _padding(batch, given, (rows, length))
    position_ids = None
    if batch.get("position_ids") is not None:
        position_ids = positions_of(batch, (rows, length))
    later = True if look_ahead else None
    if look_ahead is not False and batch.get("look_ahead_mask") is not None:
        later = batch["look_ahead_mask"]
        while later.ndim > 2:  # one matrix, repeated for every row
            later = later[0]
        check_fit("look_ahead_mask", tuple(later.shape), (length, length))
    return Reading(padding, position_ids, _documents(batch, padding, position_ids), later, given)


def combine(reading: Reading, rows: slice, part: slice) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_]]:
    """The look-ahead mask `(P, P)` and everything together `(R, P, P)`, for some rows and a stretch of their tokens."""
    padding = reading.padding[rows, part]
    length = padding.shape[1]
    combined = np.broadcast_to(padding[:, None, :], (len(padding), length, length)).copy()
    if reading.given is not None:
        lines = part if reading.given.shape[1] > 1 else slice(None)
        combined &= _shown(reading.given[rows, lines, part])
    if reading.document_ids is not None:
        documents = reading.document_ids[rows, part]
        combined &= documents[:, :, None] == documents[:, None, :]
    if reading.look_ahead is None:
        return None, combined
    later = np.tri(length, dtype=bool) if reading.look_ahead is True else _shown(reading.look_ahead[part, part])
    return later, combined & later


def part_of(batch: Mapping[str, Any], *, decoder: bool) -> Mapping[str, Any]:
    """The entries of an encoder-decoder's batch that are about one of the two, under the plain names."""
    _check_mapping(batch)
    if decoder:
        if "decoder_input_ids" not in batch:
            alone = ", without model=, which leaves them to the model" if "labels" in batch else ""
            raise ValueError(
                explain(
                    "there is no decoder in this batch: it has no 'decoder_input_ids'",
                    got=f"{list(batch)}",
                    fix=f'DataCollatorWithPositionalEncoding(tokenizer, text_target_column="..."){alone}',
                )
            )
        mine = {name.removeprefix("decoder_"): value for name, value in batch.items() if name.startswith("decoder_")}
        return mine | {name: batch[name] for name in ("look_ahead_mask",) if name in batch}
    if "decoder_input_ids" in batch:  # the look-ahead mask is the decoder's, and as wide as its tokens
        return {name: value for name, value in batch.items() if name != "look_ahead_mask"}
    return batch


def shape_of(batch: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of the tokens."""
    _check_mapping(batch)
    for name, rank in (("input_ids", 2), ("inputs_embeds", 3)):
        if batch.get(name) is not None:
            shape = tuple(batch[name].shape)
            if len(shape) == rank and 0 not in shape:
                return int(shape[0]), int(shape[1])
            raise ValueError(
                explain(
                    f"'{name}' must have {rank} dimensions, none of them 0",
                    got=f"shape {shape}",
                    fix="plots.batch(collate(texts))",
                )
            )
    raise ValueError(
        explain(
            "a batch to draw needs 'input_ids' or 'inputs_embeds'",
            got=f"{list(batch)}",
            fix="plots.batch(collate(texts))",
        )
    )


def _check_mapping(batch: Any) -> None:
    """What a tokenizer gives without `return_tensors` has lists, which have no shape."""
    fix = 'plots.batch(collate(texts)), or tokenizer(texts, padding=True, return_tensors="pt")'
    if not isinstance(batch, Mapping):
        got = shorten(type(batch).__name__)
        raise TypeError(explain("a batch is a mapping from names to tensors or arrays", got=got, fix=fix))
    for name in _READ:
        value = batch.get(name)
        if value is not None and not isinstance(value, dict) and not hasattr(value, "shape"):
            got = f"a {type(value).__name__}"
            raise TypeError(explain(f"'{name}' must be a tensor or an array", got=got, fix=fix))


def check_fit(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    r"""Refuses an entry of another shape than the tokens.

    Raises:
        ValueError: with both shapes.

    Example:
        >>> check_fit("attention_mask", (2, 3), (2, 3))
    """
    if shape != expected:
        raise ValueError(
            explain(
                f"'{name}' does not fit the tokens of the batch",
                got=f"shape {shape}, where the tokens ask for {expected}",
                fix="plots.masks(collate(texts))",
            )
        )


def positions_of(batch: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[Any]:
    """The position ids, one row for all of them or one for each."""
    positions = as_numpy(batch["position_ids"])
    if positions.ndim == 1 or len(positions) == 1:
        check_fit("position_ids", positions.shape[-1:], shape[1:])
        return np.broadcast_to(positions, shape)
    check_fit("position_ids", positions.shape, shape)
    return positions


def _padding(batch: Mapping[str, Any], given: Any, shape: tuple[int, int]) -> NDArray[np.bool_]:
    if given is not None:  # somebody may see every token, and nobody may see padding
        return np.asarray(_shown(given).any(axis=1))
    known = real_tokens(batch)
    padding = np.ones(shape, dtype=bool) if known is None else as_numpy(known).astype(bool)
    check_fit("attention_mask", padding.shape, shape)
    return padding


def _documents(
    batch: Mapping[str, Any], padding: NDArray[np.bool_], position_ids: NDArray[Any] | None
) -> NDArray[np.int64] | None:
    if batch.get("document_ids") is not None:
        ids = as_numpy(batch["document_ids"]).astype(np.int64)
        check_fit("document_ids", ids.shape, padding.shape)
        return np.where(padding, ids, -1)
    if position_ids is None:
        return None
    real, positions = torch.from_numpy(padding.copy()), torch.from_numpy(position_ids.astype(np.int64))
    found = AttentionMask.from_batch({"attention_mask": real, "position_ids": positions}).documents.numpy()
    return found if (found > 0).any() else None


def _four_dimensional(mask: Any, shape: tuple[int, int]) -> Any:
    if isinstance(mask, dict):  # one for each kind of layer
        mask = next(iter(mask.values()))
    if mask is None or mask.ndim != 4:
        return None
    check_fit("attention_mask", (mask.shape[0], mask.shape[-1]), shape)
    return mask[:, 0]


def _shown(mask: Any) -> NDArray[np.bool_]:
    """True where a mask shows, be it one of bools or numbers that are added to scores."""
    values = as_numpy(mask)
    return values == 0 if values.dtype.kind == "f" else values.astype(bool)

"""Find the kinds of positions and the position tables of a Hugging Face model by running it on a few tokens.

Configurations are not enough: BERT reads row 0 of its table first, RoBERTa row 2, and other models start at row 2
without an entry in their configuration.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from ..ragged import round_up
from .probe import IdsName, Lookup, Probe, tensors_of, with_masks
from .properties import configurations

# "unknown": outputs depend on positions, in an unrecognized form.
PositionKind = Literal["learned", "sinusoidal", "rotary", "relative", "alibi", "unknown"]


@dataclass(frozen=True, eq=False)
class PositionTable:
    r"""Position table of a model, found by `find_positions`: each token reads one row, and the next token the next row.

    Args:
        name (`str`): name of the parameter or buffer, as in `model.named_parameters()`.
        tensor (`torch.Tensor` `(rows, D)`): the parameter or buffer itself.
        module (`nn.Module`): the module that has the tensor as an attribute.
        counts (`"input_ids"` or `"decoder_input_ids"`): the model input whose tokens read the table.
        first_row (`int`): index of the table row that the first token of a sequence reads.
        padding_row (`int`, *optional*): index of the row that all padding tokens read; `None` if there is no such row.
        offset (`int`, *optional*): index of the row minus the position id; `None` if `position_ids` do not select rows.
        left_padding_shifts (`bool`): True if left padding moves real tokens to later rows when only an attention mask
            is passed.
        ahead (`int`): number of rows read after the row of the last token: 1 in ProphetNet's decoder, which predicts
            two tokens at once.
    """

    name: str
    tensor: torch.Tensor
    module: nn.Module
    counts: IdsName
    first_row: int
    padding_row: int | None
    offset: int | None
    left_padding_shifts: bool
    ahead: int = 0

    @property
    def max_length(self) -> int:
        """Largest number of tokens in a sequence for which the table has rows."""
        return len(self.tensor) - self.first_row - self.ahead

    @property
    def is_learned(self) -> bool:
        """True if the table is a parameter, unless the class name of its module contains "Sinusoidal"."""
        return isinstance(self.tensor, nn.Parameter) and "Sinusoidal" not in type(self.module).__name__


@dataclass(frozen=True, eq=False)
class ModelPositions:
    r"""Result of `find_positions`: the position tables and kinds of positions that a model uses.

    Args:
        tables (`tuple` of `PositionTable`): the tables that were read in order, one row per token.
        kinds (`tuple` of `str`): the kinds of positions, such as "learned" or "rotary", those in tables first; empty if
            the model has no positions.
        not_reached (`tuple` of `str`): names of parameters and buffers that seem to contain positions, but were not
            read in order, one row per token.
        is_causal (`bool`): True if later tokens do not change a token's output.
        left_padding_shifts (`bool`): True if left padding changes the outputs of real tokens and right padding does
            not. The test passes an attention mask, and no position ids.
        takes_position_ids (`bool`): True if `position_ids` have an effect.
    """

    tables: tuple[PositionTable, ...]
    kinds: tuple[PositionKind, ...]
    not_reached: tuple[str, ...]
    is_causal: bool
    left_padding_shifts: bool
    takes_position_ids: bool

    @property
    def first_position(self) -> int:
        """Value of `position_ids` at the first token of a row; 0 if they do not select rows of a position table."""
        return next((table.first_row - table.offset for table in self.tables if table.offset is not None), 0)

    @property
    def padding_position(self) -> int | None:
        """Value of `position_ids` at padding tokens; `None` if no position table has a row for padding."""
        for table in self.tables:
            if table.offset is not None and table.padding_row is not None and table.padding_row >= table.offset:
                return table.padding_row - table.offset
        return None


def find_positions(model: nn.Module | Probe) -> ModelPositions:
    """Find the kinds of positions and the position tables of a model, by running it on a few tokens.

    The model is run on rows without padding, with padding, with `position_ids`, and on shorter rows. It is not changed.
    Raise `ValueError` if it does not run on token ids, or its weights are not available.
    """
    probe = model if isinstance(model, Probe) else Probe(model)
    samples, padding = probe.samples, probe.padding
    plain, plain_out = probe.run(with_masks(samples))
    short: list[Lookup] | None = None
    short_out = torch.zeros(0, device="cpu")
    if not probe.has_fixed_length:
        short, short_out = probe.run(with_masks({name: ids[:, :-padding] for name, ids in samples.items()}))
    padded, padded_out = probe.run(probe.padded(samples))
    tables = tuple(_tables(probe, plain, short, padded))
    takes_position_ids = False
    if "position_ids" in probe.names:
        first = max((table.first_row for table in tables), default=0)
        backwards = torch.arange(samples["input_ids"].shape[1], device="cpu").flip(0) + first  # not a mere shift
        lookups, out = probe.run({**with_masks(samples), "position_ids": backwards.repeat(2, 1)})
        tables = tuple(replace(table, offset=_offset(table.tensor, lookups, backwards)) for table in tables)
        # A table of equal rows, such as zeros, does not change the output, so check that it was read.
        is_read = any(table.offset is not None for table in tables)
        takes_position_ids = is_read or not probe.is_same(plain_out, out)
    before = slice(None, -padding)  # the tokens that are the same in both rows
    kinds = kinds_of(probe.model, tables)
    # Without tables any parameter counts, because Reformer's position parameters belong to no `nn.Embedding`.
    not_reached = tuple(
        name
        for name, module, tensor in unread_tables(probe.model, tables)
        if isinstance(tensor, nn.Parameter) and (not tables or isinstance(module, nn.Embedding))
    )
    if not kinds:
        by_length = _read_by_length(probe)
        if not by_length:  # do equal tokens at different places of a sequence have different outputs?
            _, equal = probe.run(_repeated_tokens(probe, 1))
            not_reached = () if probe.is_same(equal[:, 1:], equal[:, :-1]) else not_reached
        not_reached = by_length or not_reached
        kinds = ("unknown",) if not_reached else ()
    return ModelPositions(
        tables=tables,
        kinds=kinds,
        not_reached=not_reached,
        is_causal=not probe.has_decoder and probe.is_same(plain_out[0, before], plain_out[1, before]),
        left_padding_shifts=_left_padding_shifts(probe, tables, padded_out, short_out),
        takes_position_ids=takes_position_ids,
    )


def _left_padding_shifts(
    probe: Probe, tables: tuple[PositionTable, ...], padded: torch.Tensor, alone: torch.Tensor
) -> bool:
    """Return True if left padding changes the outputs of real tokens, and right padding does not."""
    tables = tuple(table for table in tables if table.counts == "input_ids")
    by_rows = any(table.left_padding_shifts for table in tables)
    if probe.has_fixed_length or (by_rows and probe.has_decoder):
        return by_rows
    if tables and not by_rows:
        return False
    samples, padding = probe.samples, probe.padding
    text = samples["input_ids"]
    if probe.has_decoder:
        # The decoder's tokens stay unpadded, so that only the encoder's output can change.
        inputs = {**samples, "decoder_input_ids": samples["decoder_input_ids"][:1].repeat(2, 1)}
        _, alone = probe.run(with_masks({**inputs, "input_ids": text[:, :-padding]}))
        left, right = probe.run({**with_masks(inputs), **probe.padded({"input_ids": text})})[1]
    else:
        left, right = padded[0, padding:], padded[1, :-padding]
    shifts = not probe.is_close(alone[0], left)
    # If real tokens read later rows without effect, positions are rotary. Without a table, a change of outputs is a
    # shift only if right padding does not cause it too.
    return shifts and (by_rows or probe.is_close(alone[0], right))


# --------------------------------------------------------------------------------------------------------------- tables


def _tables(probe: Probe, plain: list[Lookup], short: list[Lookup] | None, padded: list[Lookup]) -> list[PositionTable]:
    """Return the position tables among all tables that a model read in three runs."""
    # A position table is read in order, one row per token, and its rows are added to token vectors.
    tables: dict[int, PositionTable] = {}
    names: tuple[IdsName, ...] = ("decoder_input_ids", "input_ids")  # the shorter one first: it must fit exactly
    for lookup in plain:
        if lookup.table is probe.input_table or id(lookup.table) in tables:
            continue
        for counts in names if probe.has_decoder else names[1:]:
            length = probe.samples[counts].shape[1]
            rows = _rows_of_tokens(lookup, length, exact=counts == "decoder_input_ids")
            if rows is None or not _counts_up(rows, int(rows[0, 0])):
                continue
            name, tensor = probe.tables[id(lookup.table)]
            first = int(rows[0, 0])
            extra = 0 if short is None else _extra_rows(probe, lookup, short, counts)
            if extra is None or not lookup.is_added:
                continue
            shifts, padding_row = _rows_with_padding(lookup.table, padded, length, probe.padding, first)
            tables[id(tensor)] = PositionTable(
                name=name,
                tensor=tensor,
                module=probe.model.get_submodule(name.rpartition(".")[0]),
                counts=counts,
                first_row=first,
                padding_row=padding_row,
                offset=None,
                left_padding_shifts=shifts,
                ahead=extra or _rows_ahead(lookup.table, plain, length, first),
            )
            break
    return list(tables.values())


def _counts_up(rows: torch.Tensor, first: int) -> bool:
    """Return True if `rows` `(B, T)`, the table rows read by T tokens, are `first`, `first + 1`, `first + 2`, ..."""
    return bool((rows == first + torch.arange(rows.shape[1], device="cpu")).all())


def _extra_rows(probe: Probe, lookup: Lookup, short: list[Lookup], counts: IdsName) -> int | None:
    """Return the number of rows that `lookup` reads beyond one per token; `None` if they are not positions."""
    # Rows of positions become fewer with fewer tokens, and start at the same row. Prompts and labels read the same
    # number of rows for any number of tokens. Relative distances start at another row, or read twice as many rows.
    exact, length = counts == "decoder_input_ids", probe.samples[counts].shape[1]
    width, less = _width(lookup, length), length - probe.padding
    first = int(lookup.rows.flatten()[0])
    for short_lookup, fewer in _reads(lookup.table, short, less, exact=exact):
        if not _counts_up(fewer, first):
            continue
        narrow = _width(short_lookup, less)
        if width - narrow == probe.padding:
            return width - length
        # A model may pad rows to a multiple of its window, here to several windows, or to one.
        window = math.gcd(width, narrow)
        if (round_up(length, window), round_up(less, window)) != (width, narrow):
            continue
        if not torch.equal(lookup.rows, short_lookup.rows):
            return 0
        try:  # all rows of one window, or a prompt: a longer row distinguishes the two
            longer, _ = probe.run(
                with_masks({**probe.samples, counts: probe.samples[counts][:, :1].repeat(1, width + 1)})
            )
        except ValueError:
            return None
        wider = _reads(lookup.table, longer, width + 1, exact=exact)
        return 0 if any(_counts_up(rows, first) for _, rows in wider) else None
    return None


def _width(lookup: Lookup, length: int) -> int:
    """Return the number of table rows that a lookup reads for each sequence of the batch."""
    return length if lookup.rows.dim() == 1 and len(lookup.rows) == 2 * length else int(lookup.rows.shape[-1])


def _rows_of_tokens(lookup: Lookup, length: int, *, exact: bool = False) -> torch.Tensor | None:
    """Return the table row of each token, (B, length); `None` if `lookup` does not read a row per token."""
    # B is 1 if the sequences of the batch share the rows. If more than `length` rows are read, the first `length` are
    # those of the tokens, but not if the whole table is read.
    rows = lookup.rows
    if rows.dim() == 1 and len(rows) == 2 * length:  # both sequences in one dimension
        rows = rows.view(2, length)
    width = rows.shape[-1] if rows.dim() else 0
    if width < length or rows.numel() > 2 * width or (exact and width != length):
        return None
    if width > length and width == len(lookup.table):
        return None  # the whole table, whatever the length: global tokens
    # A model may pad rows to the width of its window; the first columns are still the tokens'.
    return rows.reshape(-1, width)[:, :length]


def _reads(
    table: torch.Tensor, lookups: list[Lookup], length: int, *, exact: bool = False
) -> Iterator[tuple[Lookup, torch.Tensor]]:
    """Yield each lookup that reads a row of `table` per token, with these rows, (B, length)."""
    for lookup in lookups:
        rows = _rows_of_tokens(lookup, length, exact=exact) if lookup.table is table else None
        if rows is not None:
            yield lookup, rows


def _rows_with_padding(
    table: torch.Tensor, padded: list[Lookup], length: int, padding: int, first: int
) -> tuple[bool, int | None]:
    """Return two values: True if left padding moves real tokens to other table rows, and the row of padding tokens."""
    for _, rows in _reads(table, padded, length):
        left, right = rows[0], rows[-1]
        at_padding = right[length - padding :]
        one_row = bool((at_padding == at_padding[0]).all()) and not bool((left == right).all())
        return int(left[padding]) != first, int(at_padding[0]) if one_row else None
    return False, None


def _rows_ahead(table: torch.Tensor, plain: list[Lookup], length: int, first: int) -> int:
    """Return the number of rows of `table` that are read after the row of the last token: 0 in most models."""
    # In ProphetNet's decoder it is 1. Reads of more than `length` rows are ignored: some models pad sequences to a
    # multiple of their window, and read rows for that padding.
    last = [int(lookup.rows.max()) for lookup in plain if lookup.table is table and lookup.rows.shape[-1] == length]
    return max([0, *(row - (first + length - 1) for row in last)])


def _offset(table: torch.Tensor, lookups: list[Lookup], positions: torch.Tensor) -> int | None:
    """Return the difference between the index of the row that a token reads from `table` and its position id."""
    for _, rows in _reads(table, lookups, len(positions)):
        differences = rows - positions
        if bool((differences == differences[0, 0]).all()):
            return int(differences[0, 0])
    return None


# ------------------------------------------------------------------------------------- positions that are not such rows


def _repeated_tokens(probe: Probe, count: int, shorter: int = 0) -> dict[str, torch.Tensor]:
    """Return model inputs: one row that repeats one token (`count=1`: a a a a) or two tokens (`count=2`: a b a b)."""
    ids = {name: tokens[:1, [0, -1][:count]].repeat(1, tokens.shape[1]) for name, tokens in probe.samples.items()}
    return with_masks({name: tensor[:, : probe.samples[name].shape[1] - shorter] for name, tensor in ids.items()})


def _read_by_length(probe: Probe) -> tuple[str, ...]:
    """Return the names of tensors of which the model uses more for longer rows: they seem to contain positions."""
    # A slice is used if its gradient is not zero. Exactly T used slices are absolute positions, and exactly 2T - 1 are
    # relative ones, so tables that are 3D, transposed, strided or reversed are found too.
    # The rows repeat two tokens, so that token embeddings use two slices at any T.
    if probe.has_fixed_length:
        return ()
    whole = probe.gradients(_repeated_tokens(probe, 2))
    less = probe.gradients(_repeated_tokens(probe, 2, probe.padding)) if whole else {}
    long = probe.samples["input_ids"].shape[1]
    short = long - probe.padding
    counts = {(long, short), (2 * long - 1, 2 * short - 1)}
    return tuple(
        name
        for name, grad in whole.items()
        if name in less and any(pair in counts for pair in zip(_nonzero(grad), _nonzero(less[name]), strict=True))
    )


def _nonzero(grad: torch.Tensor) -> list[int]:
    """Return, for each dimension of a gradient, the number of indices along it at which some value is not zero."""
    return [int((grad != 0).movedim(axis, 0).flatten(1).any(dim=1).sum()) for axis in range(grad.dim())]


_OF_POSITIONS = re.compile(r"(^|[._])(pos(?!t)|wpe)|position|sinusoid", re.IGNORECASE)
_NOT_OF_ROWS = re.compile(r"relative|rel_|distance|rotary|inv_freq|bias", re.IGNORECASE)


def unread_tables(model: nn.Module, tables: tuple[PositionTable, ...]) -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    """Yield name, module and tensor of each tensor named like positions, such as "wpe", that is not in `tables`."""
    known = {id(table.tensor) for table in tables}
    for name, module, tensor in tensors_of(model):
        called = f"{name} {type(module).__name__}"
        if id(tensor) not in known and _OF_POSITIONS.search(called) and not _NOT_OF_ROWS.search(called):
            known.add(id(tensor))
            yield name, module, tensor


# -------------------------------------------------------------------------------------------------- kinds, from modules

_SINUSOIDAL = re.compile(r"Sinusoid")
_RELATIVE = re.compile(r"relative|rel_?attn|rel_?pos|rel_?embed|emb_rel_|r_kernel|distance_embedding", re.IGNORECASE)
_ROTARY = re.compile(r"rotary|rope(?![a-z])|RoFormer", re.IGNORECASE)


def kinds_of(model: nn.Module, tables: tuple[PositionTable, ...]) -> tuple[PositionKind, ...]:
    r"""Return the kinds of positions of a model, such as "learned", from its tables and the names in its modules."""
    kinds: list[PositionKind] = []
    if any(table.is_learned for table in tables):
        kinds.append("learned")
    modules = list(model.modules())
    classes = {type(module).__name__ for module in modules}
    alibi = _has_alibi(model)
    rotary = not alibi and (  # Falcon has a rotary module even if it uses alibi
        any(_ROTARY.search(name) for name in classes)
        # GPT-J and CodeGen rotate their heads without a module for it.
        or any(hasattr(module, "inv_freq") or getattr(module, "rotary_dim", None) for module in modules)
    )
    # RoFormer rotates by a table of sinusoids; Pegasus-X and TrOCR have a module without a table.
    in_tables = any(not table.is_learned for table in tables)
    if not rotary and (in_tables or (not kinds and any(_SINUSOIDAL.search(name) for name in classes))):
        kinds.append("sinusoidal")
    if rotary:
        kinds.append("rotary")
    if any(_RELATIVE.search(name) for name in (*classes, *(name for name, _ in model.named_parameters()))):
        kinds.append("relative")
    if alibi:
        kinds.append("alibi")
    return tuple(kinds)


def _has_alibi(model: nn.Module) -> bool:
    """Return True if a name in the model's code contains "alibi", unless its configuration has `alibi=False`."""
    classes = {type(module) for module in model.modules()}
    homes = {cls.__module__ for cls in classes}
    names = {name for home in homes if "torch." not in f"{home}." for name in vars(sys.modules.get(home, sys))}
    names.update(name for cls in classes for name in vars(cls))
    if not any("alibi" in name for name in names):
        return False
    return False not in [getattr(config, "alibi", None) for config in configurations(getattr(model, "config", model))]

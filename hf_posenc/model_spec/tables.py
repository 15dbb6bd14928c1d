"""The position tables of a Hugging Face model: which they are, and which row the first token reads.

Never guessed from a configuration: BERT reads row 0 first, RoBERTa row 2, and some count from 2 without saying so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from .._huggingface import only_length, says_positions
from .probing import Look, Probe

Counted = Literal["input_ids", "decoder_input_ids"]


class _Lengths(NamedTuple):
    """How many tokens are tried. Two lengths, so that a decoder's looks are told from an encoder's."""

    input_ids: int
    decoder_input_ids: int
    padding: int  # of each, where rows are padded

    def of(self, counts: Counted) -> int:
        return self.input_ids if counts == "input_ids" else self.decoder_input_ids


# Short, because models may be large.
_USUAL = _Lengths(7, 5, 3)
_TINY = _Lengths(4, 3, 1)  # for models with room for less than a dozen positions


@dataclass(frozen=True, eq=False)
class PositionTable:
    r"""A table that a model reads by position: row `first_row` at a sequence's first token, then one row a token.

    Args:
        name (`str`): of the parameter or buffer, as in `model.named_parameters()`.
        tensor (`torch.Tensor` `(rows, D)`): the parameter or buffer itself.
        module (`nn.Module`): whose attribute it is.
        counts (`"input_ids"` or `"decoder_input_ids"`): whose positions it holds.
        first_row (`int`): which row the first token reads.
        padding_row (`int`, *optional*): the row that every padding token reads, where it is one and the same.
        offset (`int`, *optional*): row read minus `position_ids` given, where the model takes `position_ids`.
        left_padding_shifts (`bool`): whether, with an attention mask alone, padding on the left moves real tokens on to
            later rows.
    """

    name: str
    tensor: torch.Tensor
    module: nn.Module
    counts: Counted
    first_row: int
    padding_row: int | None
    offset: int | None
    left_padding_shifts: bool

    @property
    def max_length(self) -> int:
        """How many positions it has rows for."""
        return len(self.tensor) - self.first_row

    @property
    def is_learned(self) -> bool:
        """Whether it is a parameter that a model looks rows up in, and not a buffer or a module of sinusoids."""
        return isinstance(self.tensor, nn.Parameter) and "Sinusoidal" not in type(self.module).__name__


@dataclass(frozen=True, eq=False)
class Findings:
    r"""What a few tokens said about a model.

    Args:
        tables (`tuple` of `PositionTable`): those that were read.
        not_reached (`tuple` of `str`): tables that are called positions, and that these tokens did not read.
        is_causal (`bool`): whether a token's output is the same whatever comes later.
        left_padding_shifts (`bool`): whether padding on the left changes what real tokens get, where padding on the
            right does not; with an attention mask, and without position ids.
        takes_position_ids (`bool`): whether `position_ids` have an effect.
    """

    tables: tuple[PositionTable, ...]
    not_reached: tuple[str, ...]
    is_causal: bool
    left_padding_shifts: bool
    takes_position_ids: bool

    @property
    def first_position(self) -> int:
        """What `position_ids` says of the first token of a row."""
        return next((table.first_row - table.offset for table in self.tables if table.offset is not None), 0)

    @property
    def padding_position(self) -> int | None:
        """What `position_ids` says of padding, where the model has a number for that."""
        for table in self.tables:
            if table.offset is not None and table.padding_row is not None and table.padding_row >= table.offset:
                return table.padding_row - table.offset
        return None


def find_positions(model: nn.Module) -> Findings:
    r"""Runs a model three or four times on a few tokens: unpadded, padded on both sides, with position ids, cut short.

    Args:
        model (`PreTrainedModel`): any device and dtype; it is left as it was.

    Returns:
        `Findings`.

    Raises:
        ValueError: if it does not run on token ids, or its numbers are not at hand.
    """
    probe = Probe(model)
    lengths, ids = _tokens(probe)
    plain, plain_out = probe.run(_inputs(ids))
    padded, padded_out = probe.run(_padded(ids, lengths.padding, probe.padding_id))
    tables = tuple(_tables(probe, lengths, plain, padded))
    takes_position_ids = False
    if "position_ids" in probe.names:
        first = max((table.first_row for table in tables), default=0)
        backwards = torch.arange(lengths.input_ids, device="cpu").flip(0) + first  # what rotary positions see too
        looks, out = probe.run({**_inputs(ids), "position_ids": backwards.repeat(2, 1)})
        takes_position_ids = not _same(plain_out, out, probe.is_half)
        tables = tuple(replace(table, offset=_offset(table.tensor, looks, backwards)) for table in tables)
    shifts = False
    if not probe.has_decoder and not tables and only_length(probe.model.config) is None:
        _, alone_out = probe.run(_inputs({name: given[:, : -lengths.padding] for name, given in ids.items()}))
        right = _close(alone_out[0], padded_out[1, : -lengths.padding], probe.is_half)
        shifts = right and not _close(alone_out[0], padded_out[0, lengths.padding :], probe.is_half)
    return Findings(
        tables=tables,
        not_reached=_not_reached(probe.model, tables),
        is_causal=not probe.has_decoder and _same(plain_out[0, :-1], plain_out[1, :-1], probe.is_half),
        left_padding_shifts=shifts or any(table.left_padding_shifts for table in tables),
        takes_position_ids=takes_position_ids,
    )


def looks_at_positions(model: nn.Module, tables: Mapping[str, int]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    r"""Runs a model unpadded, padded on the right and on the left, and yields what it reads from some tables.

    Args:
        model (`PreTrainedModel`): as in `find_positions`.
        tables (mapping): whose keys are names of parameters.

    Yields:
        Name, rows `(...)` int64 and values `(..., D)` of each look.
    """
    probe = Probe(model)
    lengths, ids = _tokens(probe)
    for inputs in (_inputs(ids), _padded(ids, lengths.padding, probe.padding_id)):
        for look in probe.run(inputs)[0]:
            name = probe.tables[id(look.table)][0]
            if name in tables:
                yield name, look.rows, look.values.view(*look.rows.shape, -1)


def takes_square_masks(model: nn.Module, found: Findings) -> bool:
    r"""Whether an additive mask `(B, 1, T, T)` given as `attention_mask` hides what it should, and nothing else.

    Two documents share a row: what the first one says must not reach the second, and what the second one says must.

    Args:
        model (`PreTrainedModel`): as in `find_positions`.
        found (`Findings`): what that gave.

    Returns:
        `bool`; `False` for models that refuse such a mask or do not read it, and for two sequences.
    """
    probe = Probe(model)
    if probe.has_decoder or "attention_mask" not in probe.names or only_length(probe.model.config) is not None:
        return False
    length, first_document = 6, 3
    ids = probe.ids(1, length, seed=2).repeat(3, 1)  # (3, T)
    ids[1, 0], ids[2, first_document] = _another(probe, ids[0, 0]), _another(probe, ids[0, first_document])
    document = torch.arange(length, device="cpu") >= first_document
    may_attend = document[:, None] == document[None, :]
    if found.is_causal:
        may_attend = may_attend.tril()
    mask = torch.zeros(3, 1, length, length, dtype=probe.dtype).masked_fill(~may_attend, torch.finfo(probe.dtype).min)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if found.takes_position_ids:
        first = found.first_position
        inputs["position_ids"] = (torch.arange(length, device="cpu") + first).repeat(3, 1)
    try:
        _, out = probe.run(inputs)
    except ValueError:
        return False
    own, other_first, other_second = out[:, -1]
    return _same(own, other_first, probe.is_half) and not _same(own, other_second, probe.is_half)


def _another(probe: Probe, token: torch.Tensor) -> int:
    return next((int(plain) for plain in probe.plain_ids if plain != int(token)), int(token))


def _tokens(probe: Probe) -> tuple[_Lengths, dict[Counted, torch.Tensor]]:
    """How many tokens suit a model, and two rows of each sequence, which differ in their last token."""
    room, fixed = says_positions(probe.model.config), only_length(probe.model.config)
    lengths = _TINY if room is not None and room < 12 else _USUAL
    if fixed is not None:
        lengths = lengths._replace(input_ids=fixed)
    counted: tuple[Counted, ...] = ("input_ids", "decoder_input_ids")
    ids = {counts: probe.ids(1, lengths.of(counts), seed).repeat(2, 1) for seed, counts in enumerate(counted)}
    for given in ids.values():
        given[1, -1] = given[1, 0]
    return lengths, ids


def _inputs(ids: dict[Counted, torch.Tensor]) -> dict[str, torch.Tensor]:
    masks = {name.replace("input_ids", "attention_mask"): torch.ones_like(given) for name, given in ids.items()}
    return {**{str(name): given for name, given in ids.items()}, **masks}


def _padded(ids: dict[Counted, torch.Tensor], padding: int, padding_id: int) -> dict[str, torch.Tensor]:
    """The first row of each, cut short: padded on the left, and once more padded on the right."""
    made: dict[str, torch.Tensor] = {}
    for name, given in ids.items():
        real, pad = given[0, :-padding], torch.full((padding,), padding_id)
        made[name] = torch.stack([torch.cat([pad, real]), torch.cat([real, pad])])
        mask = torch.ones_like(given)
        mask[0, :padding] = 0
        mask[1, -padding:] = 0
        made[name.replace("input_ids", "attention_mask")] = mask
    return made


def _tables(probe: Probe, lengths: _Lengths, plain: list[Look], padded: list[Look]) -> list[PositionTable]:
    found: dict[int, PositionTable] = {}
    counted: tuple[Counted, ...] = ("decoder_input_ids", "input_ids")  # the shorter one first: it must fit exactly
    for look in plain:
        if look.table is probe.input_table or id(look.table) in found:
            continue
        for counts in counted if probe.has_decoder else counted[1:]:
            rows = _rows(look, lengths.of(counts), exact=counts == "decoder_input_ids")
            if rows is None or not bool((rows == rows[0, 0] + torch.arange(rows.shape[1])).all()):
                continue
            name, tensor = probe.tables[id(look.table)]
            first = int(rows[0, 0])
            shifts, padding_row = _with_padding(look.table, padded, lengths.of(counts), lengths.padding, first)
            found[id(tensor)] = PositionTable(
                name=name,
                tensor=tensor,
                module=probe.model.get_submodule(name.rpartition(".")[0]),
                counts=counts,
                first_row=first,
                padding_row=padding_row,
                offset=None,
                left_padding_shifts=shifts,
            )
            break
    return list(found.values())


def _rows(look: Look, length: int, *, exact: bool = False) -> torch.Tensor | None:
    """Which rows each sequence of the batch read: `(2 or 1, length)`, or `None` where the look is none by position."""
    rows = look.rows
    if rows.dim() == 1 and len(rows) == 2 * length:  # both sequences in one go
        rows = rows.view(2, length)
    width = rows.shape[-1] if rows.dim() else 0
    if width < length or rows.numel() > 2 * width or (exact and width != length):
        return None
    if width > length and width == len(look.table):
        return None  # the whole table, whatever the length: global tokens
    # A model may lengthen rows to the width of its window; the first columns are still the tokens'.
    return rows.reshape(-1, width)[:, :length]


def _with_padding(
    table: torch.Tensor, padded: list[Look], length: int, padding: int, first: int
) -> tuple[bool, int | None]:
    """Whether real tokens after padding read later rows, and which row padding reads, if it is one."""
    for look in padded:
        rows = _rows(look, length) if look.table is table else None
        if rows is not None:
            left, right = rows[0], rows[-1]
            behind = right[length - padding :]
            one_row = bool((behind == behind[0]).all()) and not bool((left == right).all())
            return int(left[padding]) != first, int(behind[0]) if one_row else None
    return False, None


def _offset(table: torch.Tensor, given: list[Look], positions: torch.Tensor) -> int | None:
    """How far a table's rows are from the position ids that were given."""
    for look in given:
        rows = _rows(look, len(positions)) if look.table is table else None
        apart = None if rows is None else rows - positions
        if apart is not None and bool((apart == apart[0, 0]).all()):
            return int(apart[0, 0])
    return None


_CALLED_POSITIONS = re.compile(r"(^|[._])(position|pos|wpe)", re.IGNORECASE)
_CALLED_RELATIVE = re.compile(r"relative|rel_|distance", re.IGNORECASE)


def _not_reached(model: Any, tables: tuple[PositionTable, ...]) -> tuple[str, ...]:
    """Parameters that are called a table of positions, and that a plain sequence of tokens does not read."""
    reached = {id(table.tensor) for table in tables}
    return tuple(
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() == 2
        and id(parameter) not in reached
        and isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Embedding)
        and _CALLED_POSITIONS.search(name)
        and not _CALLED_RELATIVE.search(name)
    )


def _same(one: torch.Tensor, other: torch.Tensor, is_half: bool) -> bool:
    """Whether two outputs of one forward, or of two of the same shape, are the same computation."""
    return _apart(one, other) < (1e-4 if is_half else 1e-6)


def _close(one: torch.Tensor, other: torch.Tensor, is_half: bool) -> bool:
    """Whether two outputs of forwards of different shapes are the same but for rounding."""
    return _apart(one, other) < (3e-2 if is_half else 1e-4)


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    # The mean, because one element in thousands may round another way without meaning anything.
    return float((one - other).abs().mean() / one.abs().mean().clamp_min(1e-30))

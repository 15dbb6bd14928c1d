"""Which tables a model reads by position, and which row the first token reads: seen, not guessed.

Never read off a configuration: BERT reads row 0 first, RoBERTa row 2, and some count from 2 without saying so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .._huggingface import only_length
from ..ragged import round_up
from .kinds import kinds_of
from .probing import Look, Probe
from .tables import Counted, Findings, PositionTable
from .trial import Lengths, close, inputs_of, padded_inputs_of, same, tokens_for


def find_positions(model: nn.Module) -> Findings:
    r"""Runs a model a few times on a few tokens: unpadded, padded on both sides, with position ids, cut short.

    Args:
        model (`PreTrainedModel`): any device and dtype; it is left as it was.

    Returns:
        `Findings`.

    Raises:
        ValueError: if it does not run on token ids, or its numbers are not at hand.
    """
    probe = Probe(model)
    lengths, ids = tokens_for(probe)
    plain, plain_out = probe.run(inputs_of(ids))
    short, short_out = _shorter(probe, ids, lengths)
    padded, padded_out = probe.run(padded_inputs_of(ids, lengths.padding, probe.padding_id))
    tables = tuple(_tables(probe, lengths, ids, plain, short, padded))
    takes_position_ids = False
    if "position_ids" in probe.names:
        first = max((table.first_row for table in tables), default=0)
        backwards = torch.arange(lengths.input_ids, device="cpu").flip(0) + first  # what rotary positions see too
        looks, out = probe.run({**inputs_of(ids), "position_ids": backwards.repeat(2, 1)})
        tables = tuple(replace(table, offset=_offset(table.tensor, looks, backwards)) for table in tables)
        # A table of equal rows, zeros say, is read at the given ids and changes no output.
        is_read = any(table.offset is not None for table in tables)
        takes_position_ids = is_read or not same(plain_out, out, probe.is_half)
    before = slice(None, -lengths.padding)  # the tokens in which both rows agree
    kinds, not_reached = kinds_of(probe.model, tables), _not_reached(probe.model, tables)
    if not kinds:
        not_reached = _grows(probe, lengths, ids) or (not_reached if _tells_places_apart(probe, lengths, ids) else ())
        kinds = ("unknown",) if not_reached else ()
    return Findings(
        tables=tables,
        kinds=kinds,
        not_reached=not_reached,
        is_causal=not probe.has_decoder and same(plain_out[0, before], plain_out[1, before], probe.is_half),
        left_padding_shifts=_left_padding_shifts(probe, lengths, ids, tables, padded_out, short_out),
        takes_position_ids=takes_position_ids,
    )


def _shorter(
    probe: Probe, ids: dict[Counted, torch.Tensor], lengths: Lengths
) -> tuple[list[Look] | None, torch.Tensor]:
    """Run a model on rows that are shorter by as many tokens as are padding elsewhere, if it takes such rows."""
    if only_length(probe.model.config) is not None:
        return None, torch.zeros(0, device="cpu")
    return probe.run(inputs_of({counts: given[:, : -lengths.padding] for counts, given in ids.items()}))


def _left_padding_shifts(
    probe: Probe,
    lengths: Lengths,
    ids: dict[Counted, torch.Tensor],
    tables: tuple[PositionTable, ...],
    padded: torch.Tensor,
    alone: torch.Tensor,
) -> bool:
    """Return True if padding on the left changes outputs of real tokens, and the same padding on the right does not."""
    by_rows = any(table.left_padding_shifts for table in tables)
    if only_length(probe.model.config) is not None or (by_rows and probe.has_decoder):
        return by_rows
    if tables and not by_rows:
        return False
    text, padding = ids["input_ids"], lengths.padding
    if probe.has_decoder:
        # A decoder's tokens stay unpadded, so that only what it gets from the text can change.
        whole = {**ids, "decoder_input_ids": ids["decoder_input_ids"][:1].repeat(2, 1)}
        _, alone = probe.run(inputs_of({**whole, "input_ids": text[:, :-padding]}))
        text_padded = padded_inputs_of({"input_ids": text}, padding, probe.padding_id)
        left, right = probe.run({**inputs_of(whole), **text_padded})[1]
    else:
        left, right = padded[0, padding:], padded[1, :-padding]
    shifts = not close(alone[0], left, probe.is_half)
    # Later rows that change nothing belong to rotary positions; without a table only the two sides tell.
    return shifts and (by_rows or close(alone[0], right, probe.is_half))


def looks_at_positions(model: nn.Module, tables: Mapping[str, int]) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    r"""Runs a model unpadded, padded on the right and on the left, and yields what it reads from some tables.

    Args:
        model (`PreTrainedModel`): as in `find_positions`.
        tables (mapping): whose keys are names of parameters.

    Yields:
        Name, rows `(...)` int64 and values `(..., D)` of each look.
    """
    probe = Probe(model)
    lengths, ids = tokens_for(probe)
    modules = {probe.model.get_submodule(name.rpartition(".")[0]) for name in tables}
    read = [module for module in modules if isinstance(module, nn.Embedding)]
    for inputs in (inputs_of(ids), padded_inputs_of(ids, lengths.padding, probe.padding_id)):
        for look in probe.run(inputs, read)[0]:
            name = probe.tables[id(look.table)][0]
            if name in tables:
                yield name, look.rows, look.values.reshape(*look.rows.shape, -1)


def _tables(
    probe: Probe,
    lengths: Lengths,
    ids: dict[Counted, torch.Tensor],
    plain: list[Look],
    short: list[Look] | None,
    padded: list[Look],
) -> list[PositionTable]:
    found: dict[int, PositionTable] = {}
    counted: tuple[Counted, ...] = ("decoder_input_ids", "input_ids")  # the shorter one first: it must fit exactly
    for look in plain:
        if look.table is probe.input_table or id(look.table) in found:
            continue
        for counts in counted if probe.has_decoder else counted[1:]:
            rows = _rows(look, lengths.of(counts), exact=counts == "decoder_input_ids")
            if rows is None or not _counts_up(rows, int(rows[0, 0])):
                continue
            name, tensor = probe.tables[id(look.table)]
            first = int(rows[0, 0])
            beside = 0 if short is None else _beside(probe, lengths, ids, look, short, counts)
            if beside is None or not look.is_added:
                continue
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
                ahead=beside or _ahead(look.table, plain, lengths.of(counts), first),
            )
            break
    return list(found.values())


def _counts_up(rows: torch.Tensor, first: int) -> bool:
    """Return True if every sequence reads `first` and the rows after it, one a token."""
    return bool((rows == first + torch.arange(rows.shape[1], device="cpu")).all())


def _beside(
    probe: Probe,
    lengths: Lengths,
    ids: dict[Counted, torch.Tensor],
    look: Look,
    short: list[Look],
    counts: Counted,
) -> int | None:
    """Return how many rows are read beside those of tokens; `None` if a shorter sequence does not read fewer rows.

    Prompts and labels are as many whatever the length, offsets between tokens begin elsewhere, or are twice as many.
    """
    exact, length = counts == "decoder_input_ids", lengths.of(counts)
    width, less = _width(look, length), length - lengths.padding
    first = int(look.rows.flatten()[0])
    for other in short:
        fewer = _rows(other, less, exact=exact) if other.table is look.table else None
        if fewer is None or not _counts_up(fewer, first):
            continue
        narrow = _width(other, less)
        if width - narrow == lengths.padding:
            return width - length
        # A model may pad rows to a multiple of its window, here to several of them, or to one.
        window = math.gcd(width, narrow)
        if (round_up(length, window), round_up(less, window)) != (width, narrow):
            continue
        if not torch.equal(look.rows, other.rows):
            return 0
        try:  # all of one window is read, or a prompt: a longer row tells
            longer, _ = probe.run(inputs_of({**ids, counts: ids[counts][:, :1].repeat(1, width + 1)}))
        except ValueError:
            return None
        wider = [_rows(each, width + 1, exact=exact) for each in longer if each.table is look.table]
        return 0 if any(each is not None and _counts_up(each, first) for each in wider) else None
    return None


def _width(look: Look, length: int) -> int:
    """How many rows a look reads for each sequence of the batch."""
    return length if look.rows.dim() == 1 and len(look.rows) == 2 * length else int(look.rows.shape[-1])


def _rows(look: Look, length: int, *, exact: bool = False) -> torch.Tensor | None:
    """Return the rows that each sequence read, `(2 or 1, length)`; `None` if they are none by position."""
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


def _ahead(table: torch.Tensor, plain: list[Look], length: int, first: int) -> int:
    """How many rows behind the last token's are read by looks as wide as the sequence; windows are wider."""
    last = [int(look.rows.max()) for look in plain if look.table is table and look.rows.shape[-1] == length]
    return max([0, *(row - (first + length - 1) for row in last)])


def _offset(table: torch.Tensor, given: list[Look], positions: torch.Tensor) -> int | None:
    """How far a table's rows are from the position ids that were given."""
    for look in given:
        rows = _rows(look, len(positions)) if look.table is table else None
        apart = None if rows is None else rows - positions
        if apart is not None and bool((apart == apart[0, 0]).all()):
            return int(apart[0, 0])
    return None


def _of_few_tokens(ids: dict[Counted, torch.Tensor], count: int, shorter: int = 0) -> dict[str, torch.Tensor]:
    """Sequences in which the same one token, or the same two in turn, come again and again; with masks of ones."""
    few = {name: given[:1, [0, -1][:count]].repeat(1, given.shape[1]) for name, given in ids.items()}
    return inputs_of({name: each[:, : ids[name].shape[1] - shorter] for name, each in few.items()})


def _grows(probe: Probe, lengths: Lengths, ids: dict[Counted, torch.Tensor]) -> tuple[str, ...]:
    """Return the parameters and buffers of which as many slices have an effect as there are tokens, all of them alike.

    In whatever order they are read, and along whichever dimension: tables of three dimensions, transposed, strided or
    reversed. Relative positions read twice as many slices, less one. Tables of tokens read two, for two tokens.
    """
    if only_length(probe.model.config) is not None:
        return ()
    whole = probe.effects(_of_few_tokens(ids, 2))
    less = probe.effects(_of_few_tokens(ids, 2, lengths.padding)) if whole else {}
    long, short = lengths.input_ids, lengths.input_ids - lengths.padding
    counts = {(long, short), (2 * long - 1, 2 * short - 1)}
    return tuple(
        name
        for name, used in whole.items()
        if name in less and any(pair in counts for pair in zip(_slices(used), _slices(less[name]), strict=True))
    )


def _slices(used: torch.Tensor) -> list[int]:
    """Along each dimension, how many slices hold anything but zeros."""
    return [int((used != 0).movedim(axis, 0).flatten(1).any(dim=1).sum()) for axis in range(used.dim())]


def _tells_places_apart(probe: Probe, lengths: Lengths, ids: dict[Counted, torch.Tensor]) -> bool:
    """Return True if outputs differ along a sequence of one token only."""
    _, out = probe.run(_of_few_tokens(ids, 1))
    return not same(out[:, 1:], out[:, :-1], probe.is_half)


_CALLED_POSITIONS = re.compile(r"(^|[._])(position|pos(?!t)|wpe)", re.IGNORECASE)
_CALLED_RELATIVE = re.compile(r"relative|rel_|distance", re.IGNORECASE)


def _not_reached(model: Any, tables: tuple[PositionTable, ...]) -> tuple[str, ...]:
    """Parameters that are called a table of positions, and that a plain sequence of tokens does not read.

    Where it reads none, whatever is called positions counts: Reformer's are two tables for one number.
    """
    reached = {id(table.tensor) for table in tables}
    return tuple(
        name
        for name, parameter in model.named_parameters()
        if id(parameter) not in reached
        and (not tables or isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Embedding))
        and _CALLED_POSITIONS.search(name)
        and not _CALLED_RELATIVE.search(name)
    )

"""What running a model on a few tokens says about its positions, as values.

How it is found out is in `finding`; what follows for feeding the model, in `spec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

Counted = Literal["input_ids", "decoder_input_ids"]
# "unknown": positions that are seen to be there, and not in which form.
Kind = Literal["learned", "sinusoidal", "rotary", "relative", "alibi", "unknown"]


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
        ahead (`int`): how many rows behind the last token's are read: 1 in ProphetNet's decoder, which predicts two
            tokens at once.
    """

    name: str
    tensor: torch.Tensor
    module: nn.Module
    counts: Counted
    first_row: int
    padding_row: int | None
    offset: int | None
    left_padding_shifts: bool
    ahead: int = 0

    @property
    def max_length(self) -> int:
        """How many tokens it has rows for."""
        return len(self.tensor) - self.first_row - self.ahead

    @property
    def is_learned(self) -> bool:
        """Whether it is a parameter that a model looks rows up in, and not a buffer or a module of sinusoids."""
        return isinstance(self.tensor, nn.Parameter) and "Sinusoidal" not in type(self.module).__name__


@dataclass(frozen=True, eq=False)
class Findings:
    r"""Positions of a model, found by running it on a few tokens.

    Args:
        tables (`tuple` of `PositionTable`): those that were read.
        kinds (`tuple` of `str`): the kinds of positions, tables first; empty for none.
        not_reached (`tuple` of `str`): parameters and buffers that hold positions, and that were not read one row a
            token, one row after the other.
        is_causal (`bool`): whether a token's output is the same whatever comes later.
        left_padding_shifts (`bool`): whether padding on the left changes what real tokens get, where padding on the
            right does not; with an attention mask, and without position ids.
        takes_position_ids (`bool`): whether `position_ids` have an effect.
    """

    tables: tuple[PositionTable, ...]
    kinds: tuple[Kind, ...]
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

"""`identify` finds the formula of a position table, and `check` the positions of a model and their numerical error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from .._common.errors import message_of
from ..models import (
    PositionTable,
    find_positions,
    is_hugging_face,
    not_a_model,
    opened,
    recorded_formula,
    unread_tables,
)
from ..positions import Convention, Identified, identify

__all__ = ["CheckedTable", "Identified", "PositionCheck", "check", "identify"]


@dataclass(frozen=True)
class CheckedTable:
    r"""One position table of a model, as listed in the `tables` of a `PositionCheck`.

    `check` makes it: it runs the model on a few tokens, and finds the row of the table that each token reads.

    Args:
        name (`str`): name of the parameter, buffer or other tensor, as in `model.named_parameters()`.
        counts (`"input_ids"` or `"decoder_input_ids"`, *optional*): name of the model input whose tokens read the
            table; `None` if no token read it.
        first_row (`int`, *optional*): row that the first token reads; `None` if no token read the table.
        padding_row (`int`, *optional*): row that every padding token reads; `None` if they read different rows or none.
        rows (`int`): number of rows of the table.
        is_trainable (`bool`): True if the table requires a gradient.
        left_padding_shifts (`bool`): True if left padding makes real tokens read later rows, when the model is given
            an attention mask and no `position_ids`.
        collapsed_rows (`int`): number of rows that are equal to an earlier row, not counting rows of zeros. A model
            cannot distinguish the positions of equal rows.
        identified (`Identified`, *optional*): result of `identify` for the table; `None` if it raised an error.
        problem (`str`): first lines of the message of that error; empty if there was none.
    """

    name: str
    counts: Literal["input_ids", "decoder_input_ids"] | None
    first_row: int | None
    padding_row: int | None
    rows: int
    is_trainable: bool
    left_padding_shifts: bool
    collapsed_rows: int
    identified: Identified | None
    problem: str = ""

    @property
    def is_sinusoidal(self) -> bool:
        """True if `identify` found a formula of sines and cosines for the table, up to rounding."""
        return self.identified is not None and self.identified.is_sinusoidal

    def __str__(self) -> str:
        if self.counts is None:
            use = "not read by a few tokens"
        else:
            use = f"{self.counts} read it from row {self.first_row}"
            if self.padding_row is not None:
                use += f", padding reads row {self.padding_row}"
        lines = [f"{self.name}: {use}; {'trainable' if self.is_trainable else 'frozen'}"]
        if self.collapsed_rows:
            lines.append(f"  {self.collapsed_rows:,} of {self.rows:,} rows are the same as one before")
        formula = f"unreadable: {self.problem}" if self.identified is None else str(self.identified)
        return "\n".join([*lines, *(f"  {line}" for line in formula.splitlines())])


@dataclass(frozen=True)
class PositionCheck:
    r"""Result of `check`: the kinds of positions of a model, and its position tables. `print` shows it as a report.

    Args:
        model (`str`): class name of the model.
        positions (`tuple` of `str`): kinds of positions, out of "learned", "sinusoidal", "rotary", "relative", "alibi"
            and "unknown"; empty if the model has none. A trainable table of sinusoids counts as sinusoidal.
        tables (`tuple` of `CheckedTable`): the tables that tokens read, then other tensors named like a position table.
        left_padding_shifts (`bool`): True if left padding changes the positions of real tokens, when the model is given
            an attention mask and no `position_ids`.
        takes_position_ids (`bool`): True if `position_ids` have an effect.
        unknown_in (`tuple` of `str`): names of the tensors or modules with positions of an unknown kind; empty if
            there are none.
    """

    model: str
    positions: tuple[str, ...]
    tables: tuple[CheckedTable, ...]
    left_padding_shifts: bool
    takes_position_ids: bool
    unknown_in: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = f"{' and '.join(self.positions)} positions" if self.positions else "no positions of its own"
        if self.positions == ("unknown",):
            kinds = f"positions of an unknown kind in {', '.join(self.unknown_in)}"
        lines = [f"{self.model}: {kinds}"]
        for table in self.tables:
            lines += [f"  {line}" for line in str(table).splitlines()]
        return "\n".join([*lines, f"  {self._padding()}"])

    def _padding(self) -> str:
        if not self.left_padding_shifts:
            return "left padding: does not change positions if only an attention mask is passed"
        fix = "pass position_ids" if self.takes_position_ids else "pad on the right: it takes no position_ids"
        return f"left padding: shifts the positions if only an attention mask is passed; {fix}"


def check(model: Any) -> PositionCheck:
    r"""Report the kinds of positions of a Hugging Face model, its position tables, and the effect of left padding.

    The model is run on a few tokens, to find the tables and rows that they read. Then `identify` finds the formula of
    each table from its numbers. It first tries the convention that `use_sinusoidal_positions` recorded in the model's
    configuration, if there is one.

    Args:
        model (`PreTrainedModel`): any device and dtype, with or without wrappers such as DDP, FSDP, PEFT and
            `torch.compile`. Its weights, buffers and mode, and the random state, do not change.

    Returns:
        `PositionCheck`, which `print` shows as a report.

    Raises:
        TypeError: if `model` is not a Hugging Face model.
        ValueError: if it does not run on token ids, such as Whisper, or its weights are not available (on the meta
            device, or sharded). `identify(table)` takes a table of such a model.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from hf_posenc import use_sinusoidal_positions
        >>> model = BertModel(BertConfig(vocab_size=90, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
        >>> check(model).positions
        ('learned',)
        >>> report = use_sinusoidal_positions(model)  # chooses base 30 and amplitude 0.5
        >>> print(check(model))
        BertModel: sinusoidal positions
          embeddings.position_embeddings.weight: input_ids read it from row 0; frozen
            sinusoids: 512 rows of width 8, float32
              formula        sines and cosines side by side, of p / 30^(2i/D)
              rows           row 0 holds position 0
              amplitude      0.5
              largest error  1.49e-08
              exact          rounded once to float32
          left padding: shifts the positions if only an attention mask is passed; pass position_ids
    """
    inner = opened(model)
    if not is_hugging_face(inner):
        fix = "a PreTrainedModel; for a table, or a module with one: identify(table)"
        raise not_a_model("check needs the Hugging Face model itself", inner, fix=fix)
    formula = recorded_formula(inner)
    recorded: tuple[Convention, ...] = ()
    if formula is not None:
        convention = formula.convention
        recorded = (convention if formula.base is None else replace(convention, base=formula.base),)
    positions = find_positions(inner)
    # RoFormer rotates queries and keys by a table of sinusoids, where an offset of all positions has no effect.
    absolute = [table for table in positions.tables if table.is_learned or "rotary" not in positions.kinds]
    tables = tuple(_checked(table.name, table.tensor, recorded, table, table in absolute) for table in positions.tables)
    modules = [table.module for table in positions.tables]  # I-BERT has rounded copies in them
    for name, module, tensor in unread_tables(inner, positions.tables):
        if tensor.dim() == 2 and module not in modules:
            tables += (_checked(name, tensor, recorded),)
    # The kinds in tables come first, then those without tables, such as "rotary".
    others = tuple(kind for kind in positions.kinds if kind not in ("learned", "sinusoidal", "unknown"))
    added = [table for table in tables if table.is_trainable or "rotary" not in others]
    kinds = (*sorted({"sinusoidal" if table.is_sinusoidal else "learned" for table in added}), *others)
    return PositionCheck(
        model=type(inner).__name__,
        positions=kinds or positions.kinds,
        tables=tables,
        left_padding_shifts=any(table.left_padding_shifts for table in absolute)
        or (positions.left_padding_shifts and not positions.tables),
        takes_position_ids=positions.takes_position_ids,
        unknown_in=positions.not_reached if "unknown" in positions.kinds else (),
    )


def _checked(
    name: str,
    tensor: torch.Tensor,
    recorded: tuple[Convention, ...],
    table: PositionTable | None = None,
    is_absolute: bool = False,
) -> CheckedTable:
    identified, problem = None, ""
    try:
        identified = identify(tensor, conventions=recorded)
    except (TypeError, ValueError) as error:
        message = message_of(error)
        problem = f"{message.rule}, {message.got}" if message else str(error).partition("\n")[0]
    return CheckedTable(
        name=name,
        counts=None if table is None else table.counts,
        first_row=None if table is None else table.first_row,
        padding_row=None if table is None else table.padding_row,
        rows=tensor.shape[0],
        is_trainable=tensor.requires_grad,
        left_padding_shifts=is_absolute and table is not None and table.left_padding_shifts,
        collapsed_rows=_collapsed_rows(tensor),
        identified=identified,
        problem=problem,
    )


def _collapsed_rows(tensor: torch.Tensor) -> int:
    """Return the number of rows in a table that are equal to an earlier one, without rows of zeros."""
    rows = tensor.detach().to("cpu").contiguous()
    rows = rows[(rows != 0).any(1)] + 0.0  # -0.0 is the same number as 0.0
    return len(rows) - len({row.tobytes() for row in rows.view(torch.uint8).numpy()})

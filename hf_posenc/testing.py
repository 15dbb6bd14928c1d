"""For your own tests: a model gives each document the same output packed, padded on either side, and alone.

It runs any Hugging Face model that reads one sequence, where that model is; nothing here is needed to train one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from ._explain import explain, one_of, shorten
from .collator import DataCollatorWithPositionalEncoding
from .masks import AttentionMask
from .model_spec import ModelPositions, ModelSpec, Probe, find_positions
from .packing import pack
from .positions import position_ids_from_documents, position_ids_from_mask


def assert_packed_equals_alone(
    model: nn.Module,
    texts: Sequence[Any],
    *,
    tokenizer: Any = None,
    restart: Literal["position_ids", "tables"] = "position_ids",
    atol: float = 1e-5,
) -> dict[str, float]:
    r"""Runs documents alone, padded right, padded left and packed, and compares what each token gets.

    Masks come from `AttentionMask.for_hf`. Where a model also keeps documents apart without a mask, by positions that
    restart, that is tried too. A model in training mode is run in evaluation mode, and is left as it was.

    Args:
        model (`PreTrainedModel`): one that reads one sequence, on any device; its base is run, without the head.
        texts (sequence of `str`, or of sequences of token ids): two or more documents.
        tokenizer (*optional*): for texts; whatever `DataCollatorWithPositionalEncoding` takes.
        restart (`"position_ids"` or `"tables"`, *optional*, defaults to `"position_ids"`): how positions begin again at
            each document. `"tables"` has the model look up the right rows whatever it was given: in one that takes no
            `position_ids` the only way to see whether masks are right, and no way to train it.
        atol (`float`, *optional*, defaults to 1e-5): largest difference that counts as equal.

    Returns:
        `dict` from each arrangement to its largest difference.

    Raises:
        AssertionError: naming the arrangement, the document and its token, if one differs.
        ValueError: if the model reads two sequences, or cannot begin again with its positions; if there are fewer than
            two documents.

    Example:
        >>> from transformers import GPT2Config, GPT2Model
        >>> config = GPT2Config(vocab_size=90, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        >>> found = assert_packed_equals_alone(GPT2Model(config), [[5, 6, 7], [8, 9], [10, 11, 12, 13]])
        >>> sorted(found)
        ['packed', 'packed, no mask', 'padded left', 'padded right']
    """
    if restart not in ("position_ids", "tables"):
        raise ValueError(one_of("restart", restart, ("position_ids", "tables")))
    documents = _documents(texts, tokenizer)
    runner = _Runner.of(model, restart)
    pad = runner.probe.padding_id
    alone = [runner.run(_padded([ids], "right", pad))[0] for ids in documents]
    found: dict[str, float] = {}
    for name, arranged, by_mask in _arrangements(documents, runner.spec, pad):
        out = runner.run(arranged, by_mask=by_mask)
        found[name] = 0.0
        for number, (row, place) in arranged.places.items():
            apart = (out[row, place] - alone[number]).abs().amax(-1)  # (tokens,)
            worst = int(apart.nan_to_num(torch.inf).argmax())
            found[name] = max(found[name], float(apart[worst]))
            if not float(apart[worst]) <= atol:
                raise AssertionError(
                    explain(
                        f"{runner.spec.name} gives document {number} another output {name} than alone",
                        got=f"{float(apart[worst]):.3g} apart at its token {worst} of {len(apart)}, atol={atol:g}",
                        fix=_advice(name, runner),
                    )
                )
    return found


@dataclass(frozen=True)
class _Arranged:
    """Documents in rows: what a model is given, and where each document went."""

    ids: torch.Tensor  # (B, T)
    mask: AttentionMask
    positions: torch.Tensor  # (B, T), from 0
    places: dict[int, tuple[int, slice]]


@dataclass(frozen=True)
class _Runner:
    """A model, and how it is told where documents begin."""

    probe: Probe
    spec: ModelSpec
    found: ModelPositions
    by_tables: bool

    @classmethod
    def of(cls, model: nn.Module, restart: str) -> _Runner:
        spec, found, probe = ModelSpec.of(model), find_positions(model), Probe(model)
        if probe.has_decoder:
            raise ValueError(
                explain(
                    f"{spec.name} reads two sequences, and packed rows of one are tried here",
                    fix="one part of it, e.g. model.get_encoder(), or BartForCausalLM for BART's decoder",
                )
            )
        if restart == "position_ids" and "position_ids" not in spec.accepts and found.tables:
            raise ValueError(
                explain(
                    f"{spec.name} takes no position_ids, so no document but the first of a row can begin at position 0",
                    got=f"positions in {found.tables[0].name}",
                    fix='do not pack for it; restart="tables" sees whether the masks are right',
                )
            )
        return cls(probe, spec, found, restart == "tables")

    def run(self, arranged: _Arranged, *, by_mask: bool = True) -> torch.Tensor:
        """What each token gets, `(B, T, D)` float32 on the CPU."""
        inputs: dict[str, Any] = {"input_ids": arranged.ids}
        if by_mask:
            inputs["attention_mask"] = arranged.mask.for_hf(self.spec)
        if "position_ids" in self.spec.accepts:
            padding = self.spec.padding_position
            inputs["position_ids"] = torch.where(
                (arranged.mask.documents < 0) & (padding is not None),
                padding or 0,
                arranged.positions + self.spec.first_position,
            )
        with ExitStack() as stack:
            if self.by_tables:
                rows = {id(table.tensor): arranged.positions + table.first_row for table in self.found.tables}
                stack.enter_context(_Rows(rows))
            _, out = self.probe.run(inputs)
        if not out.numel():
            raise ValueError(explain(f"{self.spec.name} gives no output for each token", fix="model.base_model"))
        return out


class _Rows(TorchFunctionMode):
    """Looks into some tables read the rows that are given here."""

    def __init__(self, rows: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.rows = rows

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.embedding:
            named = {**dict(zip(("input", "weight"), args, strict=False)), **kwargs}
            rows = self.rows.get(id(named["weight"]))
            if rows is not None:
                return func(**{**named, "input": rows.to(named["input"].device)})
        return func(*args, **kwargs)


def _documents(texts: Sequence[Any], tokenizer: Any) -> list[torch.Tensor]:
    if tokenizer is not None:
        collate = DataCollatorWithPositionalEncoding(tokenizer, truncation=False)
        texts = list(collate.columns({"text": list(texts)})["input_ids"])
    elif any(isinstance(text, str) for text in texts):
        raise ValueError(explain("texts need a tokenizer", got=shorten(list(texts)), fix="tokenizer=..., or token ids"))
    documents = [torch.as_tensor(np.asarray(ids), dtype=torch.int64) for ids in texts]
    if len(documents) < 2:
        raise ValueError(explain("two documents or more can share a row", got=len(documents), fix="give more texts"))
    return documents


def _arrangements(documents: list[torch.Tensor], spec: ModelSpec, pad: int) -> Iterator[tuple[str, _Arranged, bool]]:
    for side in ("right", "left"):
        yield f"padded {side}", _padded(documents, side, pad), True
    packed = _packed(documents, spec.max_length, pad)
    if spec.takes_4d_mask or not spec.isolates_by_position_ids:
        yield "packed", packed, True
    if spec.isolates_by_position_ids:
        yield "packed, no mask", packed, False


def _padded(documents: list[torch.Tensor], side: Any, pad: int) -> _Arranged:
    lengths = [len(ids) for ids in documents]
    mask = AttentionMask.from_lengths(lengths, padding_side=side)
    begins = [max(lengths) - length if side == "left" else 0 for length in lengths]
    positions = position_ids_from_mask(mask.documents >= 0)
    return _arranged(documents, mask, positions, dict(enumerate(enumerate(begins))), pad)


def _packed(documents: list[torch.Tensor], limit: int | None, pad: int) -> _Arranged:
    """In as few rows as hold them."""
    lengths = [len(ids) for ids in documents]
    plan = pack(lengths, sum(lengths) if limit is None else min(limit, sum(lengths)))
    rows = [[lengths[number] for number in row] for row in plan]
    begins = {
        int(number): (row, int(begin))
        for row, numbers in enumerate(plan)
        for number, begin in zip(numbers, np.cumsum([0, *rows[row]])[:-1], strict=True)
    }
    mask = AttentionMask.from_documents(rows)
    return _arranged(documents, mask, position_ids_from_documents(rows), begins, pad)


def _arranged(
    documents: list[torch.Tensor],
    mask: AttentionMask,
    positions: torch.Tensor,
    begins: dict[int, tuple[int, int]],
    pad: int,
) -> _Arranged:
    ids = torch.full_like(mask.documents, pad)
    places = {number: (row, slice(begin, begin + len(documents[number]))) for number, (row, begin) in begins.items()}
    for number, place in places.items():
        ids[place] = documents[number]
    return _Arranged(ids, mask, positions, places)


def _advice(name: str, runner: _Runner) -> str | None:
    if name == "padded left" and runner.spec.left_padding_shifts and "position_ids" not in runner.spec.accepts:
        return "pad on the right: this model counts padding on the left as positions"
    return "see hf_posenc.masks on what this model is given, and whether its output depends on other rows"

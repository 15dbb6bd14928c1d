"""`assert_packed_equals_alone`: check in your own tests that packing and padding do not change a model's output.

It works for any Hugging Face model that reads one sequence, on the model's device. Training does not use this module.
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

from ._explain import explain, one_of, shorten, value_error
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
    r"""Run documents alone, padded right, padded left and packed; raise if the output of a token differs.

    Masks are made with `AttentionMask.for_hf`. If restarting positions are enough for the model to isolate packed
    documents, it is also run on packed rows without a mask. The model is run in evaluation mode and is not changed.

    Args:
        model (`PreTrainedModel`): a model that reads one sequence, on any device. Only its base model is run.
        texts (sequence of `str`, or of sequences of token ids): two or more documents.
        tokenizer (*optional*): required for texts; any tokenizer that `DataCollatorWithPositionalEncoding` takes.
        restart (`"position_ids"` or `"tables"`, *optional*, defaults to `"position_ids"`): how positions restart at
            each document. `"tables"` changes which rows of its position tables the model reads. It is the only way to
            test masks with a model that takes no `position_ids`, and is not possible in training.
        atol (`float`, *optional*, defaults to 1e-5): largest difference that counts as equal.

    Returns:
        `dict` from each layout that was run (`"padded right"`, `"padded left"`, `"packed"`, `"packed, no mask"`) to its
        largest difference.

    Raises:
        AssertionError: if an output differs; the message names the document and the token.
        ValueError: if the model reads two sequences, or its positions cannot restart; if there are fewer than two
            documents.

    Example:
        >>> from transformers import GPT2Config, GPT2Model
        >>> config = GPT2Config(vocab_size=90, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        >>> differences = assert_packed_equals_alone(GPT2Model(config), [[5, 6, 7], [8, 9], [10, 11, 12, 13]])
        >>> sorted(differences)
        ['packed', 'packed, no mask', 'padded left', 'padded right']
    """
    if restart not in ("position_ids", "tables"):
        raise ValueError(one_of("restart", restart, ("position_ids", "tables")))
    documents = _documents(texts, tokenizer)
    runner = _Runner.of(model, restart)
    pad = runner.probe.padding_id
    alone = [runner.run(_padded([ids], "right", pad))[0] for ids in documents]
    differences: dict[str, float] = {}
    for name, batch, with_mask in _batches(documents, runner.spec, pad):
        out = runner.run(batch, with_mask=with_mask)
        differences[name] = 0.0
        for number, (row, columns) in batch.slices.items():
            each = (out[row, columns] - alone[number]).abs().amax(-1)  # (tokens,)
            worst = int(each.nan_to_num(torch.inf).argmax())
            differences[name] = max(differences[name], float(each[worst]))
            if not float(each[worst]) <= atol:
                fix = "see hf_posenc.masks about masks for this model, and check if outputs depend on other rows"
                if name == "padded left" and runner.spec.left_padding_shifts and not runner.takes_position_ids:
                    fix = "pad on the right: this model counts padding on the left as positions"
                raise AssertionError(
                    explain(
                        f"{runner.spec.name} gives document {number} another output {name} than alone",
                        got=f"{float(each[worst]):.3g} apart at its token {worst} of {len(each)}, atol={atol:g}",
                        fix=fix,
                    )
                )
    return differences


@dataclass(frozen=True)
class _Batch:
    """A padded batch of documents: ids, mask, positions, and the row and columns of each document."""

    ids: torch.Tensor  # (B, T)
    mask: AttentionMask
    positions: torch.Tensor  # (B, T), from 0 in each document
    slices: dict[int, tuple[int, slice]]  # row and columns of each document


@dataclass(frozen=True)
class _Runner:
    """Runner of the model under test.

    Positions restart at each document by `position_ids`; if `by_tables` is True, by changing which rows of its position
    tables the model reads.
    """

    probe: Probe
    spec: ModelSpec
    positions: ModelPositions
    by_tables: bool

    @classmethod
    def of(cls, model: nn.Module, restart: str) -> _Runner:
        probe = Probe(model)
        spec, positions = ModelSpec.of(model), find_positions(probe)
        if probe.has_decoder:
            raise value_error(
                f"{spec.name} reads two sequences, and packed rows of one are tried here",
                got=f"forward({', '.join(spec.accepts)})",
                fix="one part of it, e.g. model.get_encoder(), or BartForCausalLM for BART's decoder",
            )
        if restart == "position_ids" and "position_ids" not in spec.accepts and positions.tables:
            raise value_error(
                f"{spec.name} takes no position_ids, so only the first document of a row can begin at position 0",
                got=f"positions in {positions.tables[0].name}",
                fix='do not pack for it; restart="tables" tests if the masks are right',
            )
        return cls(probe, spec, positions, restart == "tables")

    @property
    def takes_position_ids(self) -> bool:
        return "position_ids" in self.spec.accepts

    def run(self, batch: _Batch, *, with_mask: bool = True) -> torch.Tensor:
        """Run the model on a batch, with its attention mask or without, and return the output of each token.

        The output is `(B, T, D)` float32 on the CPU.
        """
        inputs: dict[str, Any] = {"input_ids": batch.ids}
        if with_mask:
            inputs["attention_mask"] = batch.mask.for_hf(self.spec)
        if self.takes_position_ids:
            padding = self.spec.padding_position
            inputs["position_ids"] = torch.where(
                (batch.mask.documents < 0) & (padding is not None),
                padding or 0,
                batch.positions + self.spec.first_position,
            )
        with ExitStack() as stack:
            if self.by_tables:
                rows = {id(table.tensor): batch.positions + table.first_row for table in self.positions.tables}
                stack.enter_context(_ReplacedRows(rows))
            _, out = self.probe.run(inputs)
        if not out.numel():
            raise value_error(f"{self.spec.name} gives no output for each token", fix="model.base_model")
        return out


class _ReplacedRows(TorchFunctionMode):
    """Context in which `F.embedding(ids, table)` uses the row indices `rows[id(table)]`, if given, instead of `ids`."""

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
    """Return the token ids of each text, `(T,)` int64; raise if there are fewer than two texts."""
    if tokenizer is not None:
        collate = DataCollatorWithPositionalEncoding(tokenizer, truncation=False)
        texts = list(collate.columns({"text": list(texts)})["input_ids"])
    elif any(isinstance(text, str) for text in texts):
        raise value_error("texts need a tokenizer", got=shorten(list(texts)), fix="tokenizer=..., or token ids")
    documents = [torch.as_tensor(np.asarray(ids), dtype=torch.int64) for ids in texts]
    if len(documents) < 2:
        raise value_error("two documents or more can share a row", got=len(documents), fix="give more texts")
    return documents


def _batches(documents: list[torch.Tensor], spec: ModelSpec, pad: int) -> Iterator[tuple[str, _Batch, bool]]:
    """Yield a name, a batch and `with_mask` for the documents padded right, padded left, and packed.

    `with_mask` is False if the model should be run without an attention mask.
    """
    for side in ("right", "left"):
        yield f"padded {side}", _padded(documents, side, pad), True
    packed = _packed(documents, spec.max_length, pad)
    if spec.takes_4d_mask or not spec.isolates_by_position_ids:
        yield "packed", packed, True
    if spec.isolates_by_position_ids:
        yield "packed, no mask", packed, False


def _padded(documents: list[torch.Tensor], side: Any, pad: int) -> _Batch:
    """Return a batch with one document per row, padded on the given side with the id `pad`."""
    lengths = [len(ids) for ids in documents]
    mask = AttentionMask.from_lengths(lengths, padding_side=side)
    begins = {number: (number, max(lengths) - length if side == "left" else 0) for number, length in enumerate(lengths)}
    return _batch(documents, mask, position_ids_from_mask(mask.documents >= 0), begins, pad)


def _packed(documents: list[torch.Tensor], limit: int | None, pad: int) -> _Batch:
    """Return a batch with the documents packed into few rows of at most `limit` tokens; `None` is no limit.

    `pad` is the id of padding.
    """
    lengths = [len(ids) for ids in documents]
    plan = pack(lengths, sum(lengths) if limit is None else min(limit, sum(lengths)))
    rows = [[lengths[number] for number in row] for row in plan]
    begins = {
        int(number): (row, int(begin))
        for row, numbers in enumerate(plan)
        for number, begin in zip(numbers, np.cumsum([0, *rows[row]])[:-1], strict=True)
    }
    return _batch(documents, AttentionMask.from_documents(rows), position_ids_from_documents(rows), begins, pad)


def _batch(
    documents: list[torch.Tensor],
    mask: AttentionMask,
    positions: torch.Tensor,
    begins: dict[int, tuple[int, int]],
    pad: int,
) -> _Batch:
    """Return a batch in which document i begins at (row, column) `begins[i]`, and all other ids are `pad`.

    `positions` `(B, T)` are the positions of its tokens.
    """
    ids = torch.full_like(mask.documents, pad)
    slices = {number: (row, slice(begin, begin + len(documents[number]))) for number, (row, begin) in begins.items()}
    for number, where in slices.items():
        ids[where] = documents[number]
    return _Batch(ids, mask, positions, slices)

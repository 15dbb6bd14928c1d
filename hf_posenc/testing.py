"""Help for your own tests and demos: texts without a download, and checks of packing and padding.

The checks work for any Hugging Face model that reads one sequence, on the model's device. Training does not use this
module.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from ._common.compat import attention_implementation
from ._common.errors import explain, shorten, value_error
from ._common.sample_texts import standard_library_docstrings
from .collator import DataCollatorWithPositionalEncoding
from .masks import AttentionMask
from .models import (
    ComputedOnce,
    ModelSpec,
    Probe,
    at_tokens,
    compute_once,
    largest_difference,
    opened,
)
from .packing import pack
from .tokenization import train_bpe

__all__ = [
    "PackedLayout",
    "PackingCheck",
    "assert_once_equals_stock",
    "assert_packed_equals_alone",
    "measure_once",
    "measure_packing",
    "standard_library_docstrings",
]


def assert_packed_equals_alone(
    model: nn.Module,
    texts: Sequence[Any],
    *,
    tokenizer: Any = None,
    atol: float = 1e-5,
) -> dict[str, float]:
    r"""Raise `AssertionError` if padding a document, or packing it with others, changes a model's output for it.

    The model is run on each document alone, and on batches in these layouts: padded right, padded left and packed. The
    output of every token is compared. The model is run in evaluation mode and is not changed.

    Args:
        model (`PreTrainedModel`): any text model except an encoder-decoder, on any device. Only its base model is run.
        texts (sequence of `str`, or of sequences of token ids): two or more documents.
        tokenizer (*optional*): any tokenizer that `DataCollatorWithPositionalEncoding` takes. It is necessary if the
            texts are `str`.
        atol (`float`, *optional*, defaults to 1e-5): largest difference that counts as equal.

    Returns:
        `dict` from the name of each layout that was run to the largest difference in it. `"padded right"` and
        `"padded left"` are always run. `"packed, no mask"` is run for models that isolate the documents of a row if
        `position_ids` restart. `"packed"`, with a mask, is run for all other models, and for these if they take 4D
        masks. Masks are made with `AttentionMask.for_hf`.

    Raises:
        AssertionError: if the output of a token differs by more than `atol`; the message names the document and the
            token.
        ValueError: if the model is an encoder-decoder, or takes no mask that a layout needs; if there are fewer than
            two documents, or texts without a tokenizer.

    Example:
        >>> from transformers import GPT2Config, GPT2Model
        >>> config = GPT2Config(vocab_size=90, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        >>> differences = assert_packed_equals_alone(GPT2Model(config), [[5, 6, 7], [8, 9], [10, 11, 12, 13]])
        >>> sorted(differences)
        ['packed', 'packed, no mask', 'padded left', 'padded right']
    """
    documents = _documents(texts, tokenizer)
    probe, spec = Probe(model), ModelSpec.of(model)
    if probe.has_decoder:
        raise value_error(
            f"{spec.name} reads two sequences, and packed rows of one are tried here",
            got=f"forward({', '.join(spec.accepts)})",
            fix="one part of it, e.g. model.get_encoder(), or BartForCausalLM for BART's decoder",
        )
    alone = [_outputs(probe, spec, [ids], AttentionMask.from_lengths([len(ids)]))[0] for ids in documents]
    differences: dict[str, float] = {}
    for name, order, mask, with_mask in _layouts([len(ids) for ids in documents], spec):
        outputs = _outputs(probe, spec, [documents[number] for number in order], mask, with_mask=with_mask)
        differences[name] = 0.0
        for number, out in zip(order, outputs, strict=True):
            errors = (out - alone[number]).abs().amax(-1)  # (tokens,)
            worst = int(errors.nan_to_num(torch.inf).argmax())
            differences[name] = max(differences[name], float(errors[worst]))
            if not float(errors[worst]) <= atol:
                raise AssertionError(
                    explain(
                        f"{spec.name} gives document {number} another output {name} than alone",
                        got=f"{float(errors[worst]):.3g} apart at its token {worst} of {len(errors)}, atol={atol:g}",
                        fix="do not pack for a model that takes no position_ids, and pad on the right; for others see "
                        "hf_posenc.masks about masks, and check if outputs depend on other rows",
                    )
                )
    return differences


def assert_once_equals_stock(model: nn.Module, batch: Mapping[str, Any], *, rtol: float = 1e-4) -> ComputedOnce:
    r"""Raise `AssertionError` if a batch gets other outputs or gradients from `compute_once(model)` than from stock.

    `compute_once` compares short rows by itself. This compares a batch of yours, such as one with your longest rows.
    The stock model is a copy, which needs memory for the weights twice. Both run in evaluation mode.

    Args:
        model (`nn.Module`): as for `compute_once`, which is called for it if it was not.
        batch (mapping): keyword arguments of the model, with `input_ids` `(B, T)`. With `labels`, the gradients of the
            loss are compared, otherwise those of a weighted sum of the outputs.
        rtol (`float`, *optional*, defaults to 1e-4): largest difference that counts as equal, divided by the largest
            value of the output. Half precision needs about 0.05.

    Returns:
        `ComputedOnce` of the model; `print` shows if the batch ran as before, and why.

    Raises:
        AssertionError: if outputs at tokens, outputs of rows, or gradients differ by more than `rtol`.
        TypeError, ValueError: as `compute_once`.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=90, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        >>> ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]])
        >>> once = assert_once_equals_stock(GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids})
        >>> once.tokens
        Tokens(given=8, real=8, computed=5)
    """
    once = compute_once(model)
    stock = copy.deepcopy(model)
    compute_once(stock).remove()
    mask = batch.get("attention_mask")
    keep = torch.ones_like(batch["input_ids"], dtype=torch.bool) if mask is None else mask.bool()

    def run(each: nn.Module) -> list[torch.Tensor]:
        weights = [weight for weight in each.parameters() if weight.requires_grad]
        with torch.enable_grad():
            out = each(**batch)
            found = at_tokens(out, keep)
            loss: Any = getattr(out, "loss", None)
            if loss is None:
                weighted = [x.float().flatten() @ torch.linspace(-1, 1, x.numel(), device=x.device) for x in found]
                loss = torch.stack(weighted).sum()
            gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        # In one tensor: the gradient of a key's bias is 0, apart from rounding.
        return [*(x.detach() for x in found), torch.cat([gradient.float().flatten() for gradient in gradients])]

    stock.eval()
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        difference = largest_difference(run(stock), run(model))
    finally:
        for module, training in modes:
            module.training = training
    if not difference <= rtol:
        raise AssertionError(
            explain(
                f"{type(opened(model)).__name__} gives this batch other outputs when each token is computed once",
                got=f"a difference of {difference:.3g} of the largest value, rtol={rtol:g}",
                fix="compute_once(model).remove()",
            )
        )
    return once


def measure_once(model: nn.Module) -> str:
    r"""Return "equal" if `compute_once` takes a model, or "refused" with the reason; the model is left unchanged.

    Args:
        model (`nn.Module`): as for `compute_once`.

    Returns:
        `str` in one line.

    Example:
        >>> from transformers import BloomConfig, BloomModel
        >>> print(measure_once(BloomModel(BloomConfig(vocab_size=90, hidden_size=8, n_layer=1, n_head=2))))
        refused (a mask that is read outside of transformers' attention)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that were not measured
            compute_once(model).remove()
    except (TypeError, ValueError) as error:
        return f"refused ({getattr(error, 'got', None) or _first_line(error)})"
    return "equal"


class PackedLayout(NamedTuple):
    r"""Result of `measure_packing` for one layout of packed documents.

    Args:
        state (`"isolated"`, `"leaks"`, `"needs a kernel"` or `"impossible"`): if the collator makes batches of this
            layout for the model, `"isolated"`, or `"leaks"` if the difference is larger than rounding errors. Otherwise
            it refuses them: `"needs a kernel"` if the model raises an error that names a missing package, else
            `"impossible"`.
        difference (`float`, *optional*): largest difference between a token's output in the batch and alone, divided
            by the largest output alone. For a refused layout, the batch is a row with `position_ids` that restart (if
            the model takes them) and without a mask, as `DataCollatorWithFlattening` makes it. `None` if the model did
            not run.
        reason (`str`): reason for a refusal, or error of a model that did not run, in one line; otherwise empty.
    """

    state: Literal["isolated", "leaks", "needs a kernel", "impossible"]
    difference: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        naive = "" if self.state in ("isolated", "leaks") else " without a mask"
        number = "" if self.difference is None else f"{self.difference:.1g}{naive}"
        details = ", ".join(filter(None, [number, self.reason]))
        return f"{self.state} ({details})" if details else self.state


@dataclass(frozen=True)
class PackingCheck:
    r"""Result of `measure_packing`; `print` shows it in one line.

    Args:
        name (`str`): name of the model's class.
        attention (`str`, *optional*): its attention implementation, such as `"sdpa"`.
        rows (`PackedLayout`): result for `packing=True`, several documents in each row.
        flat (`PackedLayout`): result for `packing="flat"`, all documents of a batch in one row.
    """

    name: str
    attention: str | None
    rows: PackedLayout
    flat: PackedLayout

    def __str__(self) -> str:
        return f"{self.name}, {self.attention}: rows {self.rows}; flat {self.flat}"


def measure_packing(model: nn.Module) -> PackingCheck:
    r"""Measure how much the outputs for a document change if it is packed with others, for rows and for flat rows.

    The model is run on three documents of a few tokens: on each alone, and on the batches that
    `DataCollatorWithPositionalEncoding` makes of them with `packing=True` and `packing="flat"`. The model is
    run in evaluation mode and is not changed.

    Args:
        model (`PreTrainedModel`): on any device. Only its base model is run.

    Returns:
        `PackingCheck`, with the state of each layout and the largest difference that was measured. For models that
        cannot be run on token ids, and for encoder-decoders, both are `"impossible"`, with the reason.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(vocab_size=90, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> check = measure_packing(BertModel(config))
        >>> print(check)
        BertModel, sdpa: rows isolated (...); flat impossible (...)
        >>> check.rows.difference < 1e-5 < check.flat.difference
        True
    """
    name, attention = type(opened(model)).__name__, attention_implementation(getattr(model, "config", None))
    try:
        probe, spec = Probe(model), ModelSpec.of(model)
        if probe.has_decoder:
            raise value_error("an encoder-decoder reads two sequences")
        if spec.max_length is not None and spec.max_length < sum(_LENGTHS):
            raise value_error(f"rows of {spec.max_length} tokens are too short for three documents")
        # No token twice: some models keep the keys with the highest scores, and choose arbitrarily among equal ones.
        ids = np.resize(np.random.default_rng(0).permutation(probe.plain_ids), sum(_LENGTHS))
        documents = torch.split(torch.from_numpy(ids), list(_LENGTHS))
        inputs = [{"input_ids": ids[None], "attention_mask": torch.ones_like(ids)[None]} for ids in documents]
        expected = torch.cat([probe.run(document)[1][0] for document in inputs])  # (N, D)
        if len(expected) != sum(_LENGTHS):
            raise value_error("the model gives no output for each token")
    except Exception as error:  # any error, of a model with other inputs
        failed = PackedLayout("impossible", reason=_first_line(error))
        return PackingCheck(name, attention, failed, failed)

    def run(batch: Mapping[str, Any]) -> tuple[float | None, str]:
        try:
            arguments = {key: value for key, value in batch.items() if key != "input_ids"}
            _, out = probe.run({"input_ids": batch["input_ids"]}, more=arguments)  # (1, N, D)
        except ValueError as error:
            return None, _first_line(error.__cause__ or error)
        return float((out[0] - expected).abs().max() / expected.abs().max()), ""

    def layout(packing: bool | Literal["flat"]) -> PackedLayout:
        roles = {"pad_token": "<pad>", "unk_token": "<pad>"}
        # Not used, because the rows are token ids.
        tokenizer = train_bpe(["-"], 3, special_tokens=roles, byte_level=False, progress=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about this tokenizer
                collate = DataCollatorWithPositionalEncoding(
                    tokenizer, model=spec, max_length=sum(_LENGTHS), packing=packing
                )
                difference, reason = run(collate([{"input_ids": ids} for ids in documents]))
                leaks = difference is not None and not difference < (3e-2 if probe.is_half else 1e-4)  # NaN leaks
                return PackedLayout("leaks" if leaks else "isolated", difference, reason)
        except ValueError as error:
            if packing == "flat" and "install" in (spec.flat_error or "").lower():
                return PackedLayout("needs a kernel", reason=str(spec.flat_error).splitlines()[0])
            batch = {"input_ids": torch.cat(documents)[None]}
            if "position_ids" in spec.accepts:
                restarting = torch.cat([torch.arange(length, device="cpu") for length in _LENGTHS])
                batch["position_ids"] = restarting[None] + spec.first_position
            return PackedLayout("impossible", run(batch)[0], (getattr(error, "got", None) or "").partition("\n")[0])

    return PackingCheck(name, attention, layout(packing=True), layout(packing="flat"))


# Numbers of tokens of three documents. In this order, the collator packs them into one row.
_LENGTHS = (6, 5, 3)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message, with the error's class unless it is `ValueError`."""
    line = next(iter(str(error).splitlines()), "")
    return line if isinstance(error, ValueError) else f"{type(error).__name__}: {line}"


def _outputs(
    probe: Probe, spec: ModelSpec, documents: Sequence[torch.Tensor], mask: AttentionMask, *, with_mask: bool = True
) -> tuple[torch.Tensor, ...]:
    """Run a model on documents in the layout of `mask`, and return the output of each, `(T, D)` float32 on the CPU."""
    is_real = mask.documents >= 0  # (B, T); the documents fill these places one after another, row by row
    lengths = [len(ids) for ids in documents]
    ids = torch.full_like(mask.documents, probe.padding_id)
    ids[is_real] = torch.cat(list(documents))
    inputs: dict[str, Any] = {"input_ids": ids}
    if with_mask:
        inputs["attention_mask"] = mask.for_hf(spec)
    if "position_ids" in spec.accepts:
        positions = torch.full_like(
            ids, spec.first_position if spec.padding_position is None else spec.padding_position
        )
        positions[is_real] = torch.cat([torch.arange(length, device="cpu") for length in lengths]) + spec.first_position
        inputs["position_ids"] = positions
    _, out = probe.run(inputs)
    if not out.numel():
        raise value_error(f"{spec.name} gives no output for each token", fix="model.base_model")
    return torch.split(out[is_real], lengths)


def _documents(texts: Sequence[Any], tokenizer: Any) -> list[torch.Tensor]:
    """Return the token ids of each text, `(T,)` int64, without truncation."""
    if tokenizer is not None:
        collate = DataCollatorWithPositionalEncoding(tokenizer, truncation=False)
        texts = list(collate.columns({"text": list(texts)})["input_ids"])
    if len(texts) < 2 or any(isinstance(text, str) for text in texts):
        raise value_error(
            "packed rows are tested with two documents or more, and texts need a tokenizer",
            got=shorten(list(texts)),
            fix="two texts and tokenizer=..., or two lists of token ids",
        )
    return [torch.from_numpy(np.array(ids, dtype=np.int64)) for ids in texts]


def _layouts(lengths: list[int], spec: ModelSpec) -> Iterator[tuple[str, list[int], AttentionMask, bool]]:
    """Yield the layouts to test for documents of the given lengths: one document per row, padded, and packed rows."""
    for side in ("right", "left"):
        mask = AttentionMask.from_lengths(lengths, padding_side=side)
        yield f"padded {side}", list(range(len(lengths))), mask, True
    plan = list(pack(lengths, min(spec.max_length or sum(lengths), sum(lengths)), seed=None))
    packed = AttentionMask.from_documents([[lengths[number] for number in row] for row in plan])
    order = np.concatenate(plan).tolist()
    if spec.takes_4d_mask or not spec.isolates_by_position_ids:
        yield "packed", order, packed, True
    if spec.isolates_by_position_ids:
        yield "packed, no mask", order, packed, False

"""Calls on a simulated accelerator compared with the same calls on the CPU, bit by bit; and what they wait for.

`simulated_device` counts, at the second call. `test_device.py` runs these tests.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from looping import for_each
from mask_reference import any_description
from simulated_device import SIM, SimTensor, counted
from sinusoid_reference import DISTINCT, FORMATS, widths
from small_models import PAIRS, TEXTS, tiny
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.data import DataLoader

import hf_posenc
from hf_posenc import AttentionMask, Batch, ModelSpec, PositionalEmbedding, SinusoidalPositionalEncoding
from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc.positions import KINDS, Convention, clear_cache

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:collate\(...\) embeds with the present weights:UserWarning"),
    pytest.mark.filterwarnings("ignore:left padding changes the outputs of BartForConditionalGeneration:UserWarning"),
]
LAYOUTS: dict[str, dict[str, Any]] = {
    "padded": {},
    "left": {"padding_side": "left"},
    "packed": {"packing": True, "max_length": 32},
    "flat": {"packing": "flat"},
}
# What a second call waits for, and how many copies to the device it makes; every other call makes none.
WAITS = {
    **{f"block_mask, {layout}": 1 for layout in LAYOUTS},
    **{
        f"{form}, {layout}, dict": 1
        for layout in LAYOUTS
        for form in ("varlen", "block_mask", "for_hf", "no num_heads")
    },
    **dict.fromkeys(("no num_heads, packed, dict", "no num_heads, flat, dict"), 0),  # one has them, one row needs none
    "embed, dict": 1,
    "SinusoidalPositionalEncoding, position_ids": 1,
    "positional_encoding scaled, position_ids": 1,
    **dict.fromkeys(("sinusoidal_encoding", "position_ids_from_lengths", "padding_mask of lengths", "compute_once"), 1),
}
COPIES = {
    **{f"{call}, {layout}": 4 for layout in LAYOUTS for call in ("to", "collate")},
    **{"to, flat": 6, "collate, flat": 5},
    **{f"varlen, {layout}": 1 for layout in LAYOUTS},
    **dict.fromkeys(("sinusoidal_encoding", "position_ids_from_lengths", "padding_mask of lengths"), 1),
    "compute_once": 5,
}
# Public names that take no tensors, or read them by their nature, and those of other tests and other names here.
OTHERS = """
__version__ BatchPlan Convention MaskedLM PackingPlan TokenBudgetBatchSampler TokenBudgetMixin TokenLogMixin corpus
fixed_bases frequencies mix_datasets pack pack_dataset plan_batches reorder_columns stream_batches train_bpe
with_arrow_batches audit plots position_ids_from_documents testing
Batch DataCollatorWithPositionalEncoding LearnedPositionalEncoding ModelSpec use_sinusoidal_positions
"""


def flat(value: Any) -> list[Any]:
    """The tensors and other values in a result, in order."""
    if isinstance(value, BlockMask):
        value = [value.kv_num_blocks, value.kv_indices, value.full_kv_num_blocks, value.to_dense()]
    if isinstance(value, AttentionMask):
        value = value.documents
    if isinstance(value, Mapping):
        value = list(value.values())
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, list | tuple) else [value]


def assert_equal(near: Any, far: Any) -> None:
    near, far = flat(near), flat(far)
    assert len(near) == len(far) > 0
    for one, other in zip(near, far, strict=True):
        if isinstance(one, torch.Tensor):
            assert isinstance(other, SimTensor)  # nothing is left on the CPU
            assert one.dtype == other.dtype
            assert torch.equal(one, other.near)
        else:
            assert one == other


def calls_on(device: torch.device | str, tokenizer: Any) -> dict[str, Callable[[], Any]]:
    """Return a call for each public function that takes tensors, and for each layout, with its tensors on a device."""
    torch.manual_seed(0)
    table, half_table = nn.Embedding(1200, 8).to(device), nn.Embedding(1200, 8).half().to(device)
    with_positions = PositionalEmbedding(table)
    x, half, out = (
        given.to(device) for given in (torch.randn(2, 5, 8), torch.randn(2, 5, 8).half(), torch.empty(400, 8))
    )
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]).to(device)
    lengths, ids = torch.tensor([3, 4]).to(device), torch.tensor([[0, 1, 2, 0, 0], [0, 0, 1, 2, 3]]).to(device)
    llama = tiny("llama", use_cache=False, attn_implementation="eager").to(device).requires_grad_(False)
    hf_posenc.compute_once(llama)
    masks, positions = hf_posenc.masks, hf_posenc.positions
    calls: dict[str, Callable[[], Any]] = {
        "SinusoidalPositionalEncoding": lambda: [SinusoidalPositionalEncoding(8)(each) for each in (x, half, x[0])],
        "SinusoidalPositionalEncoding, position_ids": lambda: SinusoidalPositionalEncoding(8)(x, position_ids=ids),
        "sinusoidal_encoding": lambda: hf_posenc.sinusoidal_encoding(ids, 8),
        "position_ids_from_mask": lambda: hf_posenc.position_ids_from_mask(mask, start=2),
        "position_ids_from_lengths": lambda: positions.position_ids_from_lengths(lengths),
        "padding_mask": lambda: [hf_posenc.padding_mask(lengths, 6, padding_side=side) for side in ("left", "right")],
        "padding_mask of lengths": lambda: hf_posenc.padding_mask(lengths),
        "padding_mask_from_ids": lambda: masks.padding_mask_from_ids(ids, 0),
        "additive_mask": lambda: masks.additive_mask(mask.bool(), torch.float16),
        "look_ahead_mask": lambda: hf_posenc.look_ahead_mask(5, device=device),
        "AttentionMask": lambda: AttentionMask(ids, look_ahead=True, window=2).dense(),
        "PositionalEmbedding": lambda: with_positions(ids, mask),
        "PositionalEmbedding, bound": lambda: with_positions(ids, mask, position_ids=ids, bound=4),
        "compute_once": lambda: llama(input_ids=mask.repeat(4, 1) + 4, attention_mask=mask.repeat(4, 1)).logits,
    }
    for kind in KINDS:
        encoding = hf_posenc.positional_encoding(kind, 8, max_length=64).to(device)
        calls[f"positional_encoding {kind}"] = lambda each=encoding: [each(x), each(x, position_ids=ids)]
    calls["positional_encoding scaled, position_ids"] = lambda: hf_posenc.positional_encoding("scaled", 8).to(device)(
        x, position_ids=ids
    )
    for layout, settings in LAYOUTS.items():
        collate, embed = C(tokenizer, look_ahead=True, **settings), C(tokenizer, embedding=table, **settings)
        batch, in_half = (
            C(tokenizer, look_ahead=False, **settings)(TEXTS).to(device),
            embed.replace(embedding=half_table),
        )
        calls |= {
            f"to, {layout}": lambda collate=collate: collate(TEXTS).to(device),
            f"collate, {layout}": lambda embed=embed: embed(TEXTS),
            "embed, dict": lambda embed=embed, batch=batch: embed.embed(dict(batch)),
            f"embed, {layout}": lambda embed=embed, batch=batch: embed.embed(batch),
            f"embed out, {layout}": lambda embed=embed, batch=batch: torch.no_grad()(embed.embed)(batch, out=out),
            f"gradient, {layout}": lambda embed=embed, batch=batch: torch.autograd.grad(
                embed.embed(batch)["inputs_embeds"].square().sum(), table.weight
            ),
            f"embed half, {layout}": lambda embed=in_half, batch=batch: embed.embed(batch),
        }
        for name, given in ((layout, batch), (f"{layout}, dict", dict(batch))):
            calls |= {f"{form}, {name}": partial(call, given) for form, call in FORMS.items()}
    return calls


def of_both(call: Callable[[AttentionMask], Any]) -> Callable[[Any], Any]:
    """Return the call of a batch that makes its masks with and without look-ahead, and calls `call` with them."""
    return lambda batch: [call(AttentionMask.from_batch(batch, look_ahead=look_ahead)) for look_ahead in (True, False)]


BERT = ModelSpec(accepts=("input_ids", "attention_mask"), takes_4d_mask=True)
FORMS: dict[str, Callable[[Any], Any]] = {
    "from_batch": of_both(lambda mask: mask),
    "dense": of_both(AttentionMask.dense),
    "additive": of_both(lambda mask: mask.additive(torch.float16)),
    "prefix": lambda batch: AttentionMask.from_batch(batch, look_ahead=True, prefix=2, window=3).dense(),
    "cross": lambda batch: AttentionMask.cross(*2 * [AttentionMask.from_batch(batch)]).dense(),
    "for_sdpa": of_both(AttentionMask.for_sdpa),
    "for_multihead_attention": of_both(lambda mask: mask.for_multihead_attention(2)),
    "no num_heads": lambda batch: AttentionMask.from_batch(batch).for_transformer_encoder(
        *[2] * ("document_ids" in batch)
    ),
    "for_hf": lambda batch: AttentionMask.from_batch(batch).for_hf(BERT),
    "varlen": lambda batch: AttentionMask.from_batch(batch).varlen(),
    "block_mask": lambda batch: AttentionMask.from_batch(batch, look_ahead=True).block_mask(4),
}


def test_calls_on_a_device_equal_those_on_the_cpu_and_wait_as_often_as_the_table_says(unigram: Any) -> None:
    near, far = calls_on("cpu", unigram), calls_on(SIM, unigram)
    found = {}
    for name, call in far.items():
        first, waits, copies = (call(), *counted(call)[1:])
        found[name] = (waits, copies)
        # Without values, a mask takes the form that is right for all of them.
        if not name.startswith(("for_sdpa", "for_multihead_attention")) or not name.endswith("dict"):
            assert_equal(near[name](), first)
    wrong = {
        name: lines
        for name, lines in found.items()
        if (len(lines[0]), len(lines[1])) != (WAITS.get(name, 0), COPIES.get(name, 0))
    }
    assert not wrong
    assert {*WAITS, *COPIES} <= {*found}
    assert {*hf_posenc.__all__, *hf_posenc._ROOMS} - {name.partition(" ")[0] for name in found} == {*OTHERS.split()}


@hypothesis.settings(max_examples=200)
@hypothesis.given(any_description)
@hypothesis.example(AttentionMask(torch.tensor([[7, 9_000]]), queries=torch.tensor([[9_000, 7, 7]])))
def test_masks_are_equal_where_their_documents_are_known_and_where_they_are_not(mask: AttentionMask) -> None:
    far = mask.to(SIM)
    for form in (AttentionMask.dense, AttentionMask.additive, AttentionMask.for_sdpa):
        result, waits, _ = counted(partial(form, far))
        assert not waits
        assert_equal(["the form", form(mask)], ["the form", result])
    result, waits, _ = counted(partial(AttentionMask.dense, dataclasses.replace(far)))
    assert not waits
    assert_equal(mask.dense(), result)


@for_each("kind", ["sinusoidal", "learned"])
def test_an_embedding_reads_its_spread_once(kind: Any) -> None:
    """A learned encoding on the device has a spread of its own to be read."""
    table, ids, mask = nn.Embedding(9, 8).to(SIM), torch.tensor([[3, 4]]).to(SIM), torch.tensor([[1, 0]]).to(SIM)
    embed = PositionalEmbedding(table, encoding=kind)
    waits = [len(counted(partial(embed, ids, mask))[1]) for _ in range(2)]
    assert waits == [1 + int(kind == "learned"), 0]


@for_each("name", ["bert", "roberta", "gpt2", "opt", "bart", "t5"])
def test_a_step_of_training_on_a_device_equals_the_one_on_the_cpu(unigram: Any, name: str) -> None:
    """Six families, with sinusoids in their position tables; the package waits for nothing after the installation."""
    near = tiny(name, attn_implementation="eager", use_cache=False)
    if name == "gpt2":  # or it would warn, by an index that this device does not take
        near.config.pad_token_id = None
    far = copy.deepcopy(near).to(SIM)
    far.tie_weights()
    for model in (near, far):
        if name != "t5":  # which has no positions of its own
            hf_posenc.use_sinusoidal_positions(model)
    rows, settings = (TEXTS, {}) if name not in ("bart", "t5") else (PAIRS, {"text_target_column": "target"})
    settings |= {"labels": "causal_lm"} if name in ("gpt2", "opt") else {}
    layouts = ["padded", "left", *["packed"] * (rows is TEXTS), *["flat"] * (name == "gpt2")]

    def step(model: Any, collate: Any, device: Any) -> list[torch.Tensor]:
        model.zero_grad()
        out = model(**collate(rows).to(device))
        loss = out.loss if "loss" in out else out.last_hidden_state.square().mean()
        loss.backward()
        return [loss.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]

    for layout in layouts:
        collate = C(unigram, model=near, **settings, **LAYOUTS[layout])
        result, waits, _ = counted(partial(step, far, collate, SIM))
        assert_equal(step(near, collate, "cpu"), result)
        assert not waits


def test_a_batch_forgets_what_was_on_the_cpu_when_a_key_is_written(unigram: Any) -> None:
    collate = C(unigram, embedding=nn.Embedding(1200, 8).to(SIM))
    writes: list[Callable[[Batch], Any]] = [
        lambda batch: batch.update(position_ids=batch["position_ids"] + 300),
        lambda batch: batch["position_ids"].add_(300),
        lambda batch: batch.__setitem__("document_ids", batch["input_ids"].cumsum(1)),
    ]
    for write in writes:
        clear_cache()  # whose table has 256 rows for smaller bounds
        batch = C(unigram)(TEXTS).to(SIM)
        write(batch)
        for given in (batch, batch.to(SIM), Batch(batch)):
            near = Batch({key: tensor.cpu() for key, tensor in given.items()})
            wanted = collate.replace(embedding=copy.deepcopy(collate.embedding).cpu()).embed(near)["inputs_embeds"]
            assert torch.equal(collate.embed(given)["inputs_embeds"].near, wanted)
            assert_equal(AttentionMask.from_batch(near).dense(), AttentionMask.from_batch(given).dense())


def test_the_bound_of_positions_is_above_the_largest(unigram: Any) -> None:
    """The table of an encoding has 256 rows for bounds up to this number."""
    table, rows = nn.Embedding(1200, 8).requires_grad_(False), [{"input_ids": [5] * 257}]
    clear_cache()
    far = C(unigram, embedding=copy.deepcopy(table).to(SIM))(rows)
    assert_equal(C(unigram, embedding=table)(rows)["inputs_embeds"], far["inputs_embeds"])


def test_batches_of_workers_in_pinned_memory_are_copied_without_waiting(
    unigram: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated device has no pinned memory, so a clone stands in for it."""
    pinned: list[int] = []
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self: [copied := self.clone(), pinned.append(copied.data_ptr())][0]
    )
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: self.data_ptr() in pinned)
    collate = C(unigram, embedding=nn.Embedding(1200, 8).to(SIM))
    collate.embed(TEXTS)  # which reads the spread of the table, once
    for batch in DataLoader(TEXTS, batch_size=2, collate_fn=C(unigram), num_workers=1):
        near = batch.pin_memory()
        far, _, copies = counted(partial(near.to, SIM))
        assert len(copies) == len(near)
        assert all("non_blocking" in line for line in copies)
        assert not counted(partial(collate.embed, far))[1]


def test_numbers_in_the_mask_are_those_of_documents_on_a_device_too() -> None:
    batch = {"attention_mask": torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1]]), "position_ids": torch.zeros(2, 4).long()}
    assert_equal(AttentionMask.from_batch(batch), AttentionMask.from_batch(Batch(batch).to(SIM)))
    assert_equal(AttentionMask.from_batch(batch), AttentionMask.from_batch(dict(Batch(batch).to(SIM))))


def test_columns_that_disagree_raise_for_a_batch_that_was_on_the_cpu() -> None:
    """For other mappings, the values would have to be waited for, so the first column decides."""
    batch = Batch({"document_ids": torch.tensor([[0, 0, 1]]), "position_ids": torch.tensor([[0, 1, 2]])})
    batch["cu_seq_lens_q"] = torch.tensor([0, 1, 3], dtype=torch.int32)
    for given in (batch, batch.to(SIM)):
        with pytest.raises(ValueError, match="disagree about where documents begin"):
            AttentionMask.from_batch(given)
    assert AttentionMask.from_batch(dict(batch.to(SIM))).documents.near.tolist() == [[0, 0, 1]]


@for_each("kind", ["sinusoidal", "scaled", "learned"])
def test_a_table_refuses_a_position_beyond_its_length(kind: Any) -> None:
    encoding = hf_posenc.positional_encoding(kind, 8, max_length=4).to(SIM)
    with pytest.raises(IndexError):
        encoding(torch.zeros(1, 2, 8, device=SIM), position_ids=torch.tensor([[0, 4]]).to(SIM))


POSITIONS = st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4)


@hypothesis.given(POSITIONS, st.data())
def test_documents_by_positions_are_those_of_the_cpu(positions: list[list[int]], data: st.DataObject) -> None:
    """With padding anywhere, in rows known to be packed and in others."""
    size = 5 * len(positions)
    mask = data.draw(st.none() | st.lists(st.booleans(), min_size=size, max_size=size))
    batch = {"position_ids": torch.tensor(positions)} | ({"use_cache": False} if mask is None else {})
    if mask is not None:
        batch["attention_mask"] = torch.tensor(mask).view(-1, 5).long()
    far = {name: value if value is False else value.to(SIM) for name, value in batch.items()}
    assert_equal(AttentionMask.from_batch(batch), AttentionMask.from_batch(far))


@for_each("convention", DISTINCT)
@for_each("dtype", list(FORMATS))
def test_a_device_without_float64_gets_the_bits_of_the_cpu(convention: Convention, dtype: torch.dtype) -> None:
    """As MPS: rows are computed on the CPU and moved, wherever the positions are."""
    width = widths(convention)[0]
    module, x = SinusoidalPositionalEncoding(width, convention=convention), torch.randn(2, 5, width).to(dtype)
    near = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 4]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulated_device.has_float64", False)
        patch.setattr("hf_posenc.positions.arguments._WITHOUT_FLOAT64", ("sim",))
        with pytest.raises(TypeError, match="no float64"):
            x.double().to(SIM)
        for positions in (near[0], near, near + 2**30, near.double() / 4, near.float() / 8):
            wanted = module(x, position_ids=positions)
            far = (positions.float() if positions.is_floating_point() else positions).to(SIM)
            for given in (positions, far):
                assert_equal(wanted, module(x.to(SIM), position_ids=given))
        direct = partial(hf_posenc.sinusoidal_encoding, near, width, convention=convention, dtype=dtype)
        assert_equal(direct(), direct(device=SIM))

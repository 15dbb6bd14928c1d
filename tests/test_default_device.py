"""Results with another default device of torch, against those without: the same values on the same devices.

`torch.set_default_device` and `with torch.device(...)` decide where new weights go. The device of a result is that of
its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import datasets
import numpy as np
import torch
from looping import for_each
from small_models import PAIRS, TEXTS, tiny
from torch import nn
from transformers import BertForSequenceClassification

import hf_posenc
from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, MaskedLM, ModelSpec, PositionalEmbedding
from hf_posenc.positions import KINDS

C = DataCollatorWithPositionalEncoding
MODELS = {name: tiny(name) for name in ("bert", "roberta", "gpt2", "llama", "bart", "t5", "mamba")}
MODELS["classifier"] = BertForSequenceClassification(MODELS["bert"].config)
TABLE = nn.Embedding(1200, 8).requires_grad_(False)
ENCODINGS = {kind: hf_posenc.positional_encoding(kind, 8) for kind in KINDS}
EMBEDDINGS = {kind: PositionalEmbedding(TABLE, encoding=encoding).eval() for kind, encoding in ENCODINGS.items()}

IDS = torch.tensor([[2, 3, 4, 0], [0, 5, 6, 7]])
MASK = IDS.ne(0).long()
X = torch.randn(2, 4, 8)
DOCUMENTS = [[3, 2], [4]]
ROWS = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9], [5, 5, 5, 5, 5], [6]]})


def flat(value: Any) -> list[Any]:
    """The tensors, arrays and other values in a result, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, list | tuple) else [value]


def assert_same_elsewhere(call: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    want = flat(call())
    torch.manual_seed(0)
    with torch.device("meta"):
        got = flat(call())
    assert len(got) == len(want) > 0
    for ours, theirs in zip(got, want, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert ours.device == theirs.device == torch.device("cpu")
            assert torch.equal(ours, theirs)
        else:
            np.testing.assert_array_equal(ours, theirs)


def written(model: Any) -> list[Any]:
    """The weights after sinusoids were written, and after they were removed."""
    report = hf_posenc.use_sinusoidal_positions(model)
    weights = [weight.clone() for weight in model.parameters()]
    report.remove()
    return [*weights, *model.parameters()]


def computed_once(model: Any) -> list[Any]:
    """The logits of two equal batches in one, and the tokens that were computed."""
    once = hf_posenc.compute_once(model)
    logits = model(input_ids=IDS.repeat(2, 1), attention_mask=MASK.repeat(2, 1)).logits
    once.remove()
    return [logits, *once.tokens]


def masks() -> list[AttentionMask]:
    mask = AttentionMask.from_batch({"attention_mask": MASK}, look_ahead=True)
    return [
        AttentionMask.from_documents(DOCUMENTS, look_ahead=True, window=2),
        AttentionMask.from_documents(DOCUMENTS, prefix=[1, 3], look_ahead=True),
        AttentionMask.from_lengths([3, 2], padding_side="left"),
        AttentionMask.from_batch({"attention_mask": MASK}, look_ahead=True, prefix=MASK.bool()),
        AttentionMask.from_batch({"attention_mask": MASK}, look_ahead=True, prefix=MASK.bool().numpy()),
        AttentionMask.cross(mask, mask),
    ]


def forms(mask: AttentionMask) -> list[Any]:
    """The mask in the form of each library that takes it."""
    made: list[Any] = [mask.dense(), mask.additive(torch.float16, -9), mask.for_sdpa()]
    block = mask.block_mask(2)
    made += [block.kv_num_blocks, block.kv_indices, block.to_dense()]
    if mask.queries is None:
        made += [mask.for_multihead_attention(2), mask.for_transformer_encoder(2)]
        made += [*mask.varlen()] if mask.prefix is None else []
        made += [mask.for_hf(SPEC, dims=4)]
    return made


SPEC = ModelSpec(is_causal=True, accepts=("attention_mask",), takes_4d_mask=True)
# test_structure.py reads that every new tensor names its device.
CALLS: dict[str, Callable[[Any], Any]] = {
    "additive_mask": lambda _: hf_posenc.masks.additive_mask(MASK.bool(), torch.float16, value=-10),
    "padding_mask": lambda _: [hf_posenc.padding_mask(each, 5) for each in ([2, 1], np.array([2]), MASK.sum(1))],
    "padding_mask_from_ids": lambda _: [hf_posenc.masks.padding_mask_from_ids(each, 0) for each in (IDS, IDS.tolist())],
    "position_ids_from_documents": lambda _: hf_posenc.positions.position_ids_from_documents(DOCUMENTS),
    "position_ids_from_lengths": lambda _: hf_posenc.positions.position_ids_from_lengths([3, 1], padding_side="left"),
    "position_ids_from_mask": lambda _: hf_posenc.position_ids_from_mask(MASK, start=2),
    "reorder_columns": lambda _: hf_posenc.positions.reorder_columns("vaswani", "marian", 8),
    "sinusoidal_encoding": lambda _: [hf_posenc.sinusoidal_encoding(each, 6) for each in (IDS, IDS / 3, [1, 2**40])],
    **{
        f"positional_encoding {kind}": lambda _, encoding=encoding: [encoding(X), encoding(X, position_ids=IDS)]
        for kind, encoding in ENCODINGS.items()
    },
    **{
        f"PositionalEmbedding {kind}": lambda _, module=module: [
            module(IDS),
            module(IDS, MASK),
            module(IDS, MASK, position_ids=MASK.cumsum(1)),
        ]
        for kind, module in EMBEDDINGS.items()
    },
    **{f"AttentionMask {number}": lambda _, number=number: forms(masks()[number]) for number in range(len(masks()))},
    **{f"ModelSpec {name}": lambda _, model=model: asdict(ModelSpec.of(model)) for name, model in MODELS.items()},
    "use_sinusoidal_positions": lambda _: written(MODELS["bert"]),
    **{f"compute_once {name}": lambda _, name=name: computed_once(MODELS[name]) for name in ("llama", "gpt2")},
    "testing": lambda _: hf_posenc.testing.assert_packed_equals_alone(MODELS["gpt2"], IDS.tolist()),
    "DataCollatorWithPositionalEncoding": lambda t: C(t)(TEXTS),
    "DataCollatorWithPositionalEncoding left": lambda t: C(t, model=MODELS["bert"], padding_side="left")(TEXTS),
    "DataCollatorWithPositionalEncoding columns": lambda t: C(t, padding="max_length", max_length=8)({"text": TEXTS}),
    "DataCollatorWithPositionalEncoding packed": lambda t: C(t, packing=True, max_length=16, model=MODELS["bert"])(
        TEXTS
    ),
    "DataCollatorWithPositionalEncoding flat": lambda t: C(t, packing="flat", model=MODELS["gpt2"])(TEXTS),
    "DataCollatorWithPositionalEncoding pairs": lambda t: C(t, model=MODELS["t5"], text_target_column="target")(PAIRS),
    "DataCollatorWithPositionalEncoding arrays": lambda t: C(
        t, model=MODELS["bart"], text_target_column="target", return_tensors="np"
    )(PAIRS),
    "DataCollatorWithPositionalEncoding embedding": lambda t: C(t, embedding=TABLE)(TEXTS),
    "DataCollatorWithPositionalEncoding batches": lambda t: list(C(t).batches(TEXTS, 64)),
    "MaskedLM": lambda t: C(t, labels=MaskedLM(0.5))(TEXTS),
    "MaskedLM seed": lambda t: C(t, labels=MaskedLM(0.5, whole_word_mask=True), seed=0)(TEXTS),
    "Batch": lambda t: C(t)(TEXTS).to_html(),
    "Batch 4D": lambda t: C(t, packing=True, max_length=16, model=MODELS["bert"])(TEXTS).to_html(),
    "with_arrow_batches": lambda t: C(t)(hf_posenc.with_arrow_batches(ROWS).__getitems__([2, 0])),
}


@for_each("name", CALLS)
def test_another_default_device_changes_no_result(unigram, name: str) -> None:
    assert_same_elsewhere(lambda: CALLS[name](unigram))

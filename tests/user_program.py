"""A program that uses every public name, for type checkers: mypy in strict mode and pyright find no error.

`mypy` checks it with the package, `pip install pyright && pyright tests/user_program.py` with pyright. A test runs it.
"""

# pyright: strict

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel

import hf_posenc
from hf_posenc import (
    AttentionMask,
    Batch,
    Convention,
    DataCollatorWithPositionalEncoding,
    MaskedLM,
    ModelSpec,
    PositionalEmbedding,
    SinusoidalPositionalEncoding,
    TokenBudgetBatchSampler,
    TokenBudgetMixin,
    TokenLogMixin,
    audit,
    compute_once,
    corpus,
    frequencies,
    look_ahead_mask,
    mix_datasets,
    pack,
    pack_dataset,
    padding_mask,
    plan_batches,
    plots,
    position_ids_from_mask,
    positional_encoding,
    sinusoidal_encoding,
    stream_batches,
    testing,
    train_bpe,
    use_sinusoidal_positions,
    with_arrow_batches,
)
from hf_posenc.masks import additive_mask, padding_mask_from_ids
from hf_posenc.models import ComputedOnce
from hf_posenc.packing import BatchPlan, PackingPlan, mixture
from hf_posenc.positions import (
    LearnedPositionalEncoding,
    fixed_bases,
    position_ids_from_documents,
    position_ids_from_lengths,
    reorder_columns,
)

datasets: Any = importlib.import_module("datasets")  # it has no types
TEXTS = ["I ride bike", "bike ride I, she said", "a queen is a woman"] * 4


class Model(nn.Module):
    """Embeds a batch and adds the encoding of its positions."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.embed = PositionalEmbedding(nn.Embedding(vocab_size, d_model), convention="marian", scale="sqrt_d")
        self.encoding = SinusoidalPositionalEncoding(d_model, dropout=0.1)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        x: torch.Tensor = self.embed(  # (B, T, D)
            batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=batch["position_ids"]
        )
        encoded: torch.Tensor = self.encoding(x)
        return encoded


class Loop(TokenBudgetMixin):
    """Would be a `Trainer` as well."""


class LoggedLoop(TokenLogMixin):
    """Would be a `Trainer` as well."""


def collate(folder: Path) -> None:
    """Make batches in every way."""
    tokenizer = train_bpe(TEXTS, 300, special_tokens={"pad_token": "<pad>"}, progress=False)
    collator = DataCollatorWithPositionalEncoding(tokenizer, labels="causal_lm", pad_to_multiple_of=8)
    masking = MaskedLM(mlm_probability=0.3)
    with_mask = train_bpe(TEXTS, 300, special_tokens={"pad_token": "<pad>", "mask_token": "<mask>"}, progress=False)
    masked: Batch = DataCollatorWithPositionalEncoding(with_mask, labels=masking, seed=0)(TEXTS)
    assert masked["labels"].shape == masked["input_ids"].shape
    batch = assert_type(collator(TEXTS), Batch)
    assert_type(collator([{"text": text} for text in TEXTS]), Batch)
    assert_type(collator([("I ride", "bike")]), Batch)
    assert_type(collator.batch({"text": TEXTS}), Batch)
    columns = assert_type(collator({"text": TEXTS}), Mapping[str, Any])
    assert len(columns["input_ids"]) == len(TEXTS)
    ids: torch.Tensor = batch["input_ids"]  # (B, T)
    moved: Batch = batch.to("cpu", non_blocking=True)
    html: str = moved.to_html(title="a batch")
    words: list[list[str]] = collator.tokens(batch)
    decoded = collator.decode(batch)
    assert ids.shape[0] == len(words) == len(decoded)
    assert html
    assert Model(len(tokenizer), 8)(batch).shape == (*ids.shape, 8)
    live: Batch = collator.replace(labels=None, embedding=8).embed(TEXTS)
    assert live["inputs_embeds"].shape[-1] == 8
    collator.save_pretrained(folder / "collator")
    again = DataCollatorWithPositionalEncoding.from_pretrained(folder / "collator")
    assert again == collator

    dataset = datasets.Dataset.from_dict({"text": TEXTS}).map(collator, batched=True, remove_columns="text")
    lengths = np.array(dataset["length"])
    plan: BatchPlan = plan_batches(lengths, 64, seed=1)
    sampler = TokenBudgetBatchSampler(plan)
    loader: DataLoader[dict[str, object]] = DataLoader(
        with_arrow_batches(dataset), batch_sampler=sampler, collate_fn=collator
    )
    assert sum(len(each["input_ids"]) for each in loader) == len(TEXTS)
    stream: DataLoader[Any] = stream_batches(iter(TEXTS), 64, collator, window=100)
    assert sum(len(each["input_ids"]) for each in stream) == len(TEXTS)
    packed: PackingPlan = pack(lengths, 64)
    split = pack(lengths, 8, too_long="split")
    assert split.documents is not None
    assert len(packed) <= len(split.documents)
    assert len(pack_dataset(mix_datasets([dataset, dataset], [2, 1], 64), 64)) >= 1
    assert mixture([lengths, lengths], [2, 1], 64).epochs.sum() > 0


def arithmetic() -> None:
    """Compute encodings, positions and masks."""
    seconds = Convention("seconds", wavelengths=(0.01, 60))
    for convention in ("vaswani", seconds, fixed_bases(4, 5)):
        rows: torch.Tensor = sinusoidal_encoding(torch.arange(5), 4, convention=convention, dtype=torch.float64)
        assert rows.shape == (5, 4)
    order: torch.Tensor = reorder_columns("vaswani", "marian", 4)
    assert order.numel() == frequencies(4).numel() * 2
    x = torch.zeros(2, 3, 4)
    for encoding in (
        positional_encoding("exponential", 4),
        LearnedPositionalEncoding(4, max_length=8),
        positional_encoding("none", 4),
        positional_encoding("scaled", 4),
        positional_encoding("sinusoidal", 4),
    ):
        assert encoding(x).shape == x.shape
    keep = padding_mask([3, 2])  # (B, T)
    assert torch.equal(keep, padding_mask_from_ids([[5, 6, 7], [5, 6, 0]], 0))
    assert torch.equal(position_ids_from_mask(keep.long()), position_ids_from_lengths([3, 2]))
    assert position_ids_from_documents([[2, 1], [3]]).shape == (2, 3)
    additive: torch.Tensor = additive_mask(look_ahead_mask(3), torch.float16)
    mask = AttentionMask.from_lengths([3, 2], look_ahead=True)
    assert mask.dense().shape[-2:] == additive.shape
    assert mask.for_sdpa() == {"is_causal": True}


def models() -> None:
    """Fit batches to a model, and give it sinusoidal positions."""
    model = BertModel(BertConfig(vocab_size=300, hidden_size=8, num_attention_heads=1, max_position_embeddings=16))
    spec: ModelSpec = ModelSpec.of(model)
    limit: int | None = spec.max_length
    assert limit == 16
    report = use_sinusoidal_positions(model, recipe="matched")
    positions: audit.PositionCheck = audit.check(model)
    assert positions.model == "BertModel"
    report.remove()
    differences: dict[str, float] = testing.assert_packed_equals_alone(model, [[5, 6, 7], [8, 9]])
    assert differences
    once: ComputedOnce = testing.assert_once_equals_stock(model, {"input_ids": torch.tensor([[5, 6, 7], [5, 6, 7]])})
    assert compute_once(model, share=True) is once
    assert once.tokens.computed < once.tokens.given
    once.remove()
    measured: str = testing.measure_once(model)
    assert measured


def corpora(folder: Path) -> None:
    """Encode a corpus and verify it."""
    (folder / "a.txt").write_text("\n".join(TEXTS))
    report: corpus.Report = corpus.encode(
        folder / "a.txt", folder / "collator", folder / "out", packing=True, max_length=64, workers=0, progress=False
    )
    assert report.finished
    assert report.totals["documents"] == len(TEXTS)
    found: list[str] = corpus.verify(folder / "out")
    assert found == []


def main() -> None:
    """Run everything but the plots, which need matplotlib."""
    assert hf_posenc.__version__
    torch.manual_seed(0)  # some random embeddings of few tokens drown the positions, and warn
    with tempfile.TemporaryDirectory() as name:
        collate(Path(name))
        corpora(Path(name))
    arithmetic()
    models()
    assert callable(plots.encoding)


if __name__ == "__main__":
    main()

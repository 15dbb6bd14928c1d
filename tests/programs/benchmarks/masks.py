"""Masks beside a plain fill of the same memory, transformers' masks and torch's `create_block_mask`.

Outputs are compared at the queries of real tokens, because at padding every mask is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_block_mask
from transformers import LlamaConfig
from transformers.masking_utils import create_causal_mask

from hf_posenc import AttentionMask

from .measuring import Case, must_equal, take_turns

ROWS, FEW, LENGTH, PACKED_LENGTH, LONGEST = 32, 8, 2_048, 8_192, 900


def documents_of_rows(rows: int, length: int) -> list[list[int]]:
    """Return lengths of documents that fill each row to the last token."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(rows):
        ends = draw.integers(20, LONGEST, size=length // 20).cumsum()
        found.append(np.diff([0, *ends[ends < length], length]).tolist())
    return found


def theirs(attention: str, attention_mask: torch.Tensor | None, position_ids: torch.Tensor) -> Callable[[], Any]:
    """Return transformers' mask of a causal model, in which positions that restart begin a document."""
    config = LlamaConfig()
    config._attn_implementation = attention
    embeds = torch.empty(*position_ids.shape, 1)
    return lambda: create_causal_mask(config, embeds, attention_mask, None, position_ids=position_ids)


def dense(rounds: int) -> Iterator[Case]:
    """Compare bool masks (32, 1, 2048, 2048), padded and packed, then float32 masks (8, 1, 2048, 2048)."""
    lengths = np.random.default_rng(1).integers(200, LENGTH + 1, size=ROWS)
    lengths[0] = LENGTH
    straight = torch.arange(LENGTH).repeat(ROWS, 1)
    documents = documents_of_rows(ROWS, LENGTH)
    restarting = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in documents])
    padded = AttentionMask.from_lengths(lengths, look_ahead=True)
    packed = AttentionMask.from_documents(documents, look_ahead=True)
    few = AttentionMask.from_lengths(lengths[:FEW], look_ahead=True)
    keep = (padded.documents >= 0).long()
    boolean = torch.empty(ROWS, 1, LENGTH, LENGTH, dtype=torch.bool)
    floats = torch.empty(FEW, 1, LENGTH, LENGTH)
    for name, mask, render, buffer, other in (
        ("bool, padded", padded, padded.dense, boolean, theirs("sdpa", keep, straight)),
        ("bool, packed", packed, packed.dense, boolean, theirs("sdpa", None, restarting)),
        ("float32, padded", few, few.additive, floats, theirs("eager", keep[:FEW], straight[:FEW])),
    ):
        real = mask.documents >= 0
        right = other().expand(len(real), -1, -1, -1)[:, 0][real]
        must_equal(name, render(out=buffer)[:, 0][real], right)
        must_equal(name, render()[:, 0][real], right)
        runs: dict[str, Callable[[], object]] = {
            "transformers": other,
            "hf_posenc": render,
            "hf_posenc, `out=`": lambda render=render, buffer=buffer: render(out=buffer),
            "a plain fill of `out`": lambda buffer=buffer: buffer.fill_(1),
        }
        yield Case(name, take_turns(runs, rounds))


def blocks(rounds: int) -> Case:
    """Compare block masks of one packed row, from the lengths of its documents on."""
    lengths = documents_of_rows(1, PACKED_LENGTH)
    documents = AttentionMask.from_documents(lengths).documents[0]

    def torchs() -> Any:
        def sees(b: Any, h: Any, q: Any, k: Any) -> Any:
            return (documents[q] == documents[k]) & (q >= k)

        return create_block_mask(sees, 1, None, PACKED_LENGTH, PACKED_LENGTH, device="cpu")

    def ours() -> Any:
        return AttentionMask.from_documents(lengths, look_ahead=True).block_mask()

    one, other = ours(), torchs()
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_indices", "full_q_indices"):
        must_equal(name, getattr(one, name), getattr(other, name))
    return Case("block mask", take_turns({"torch's `create_block_mask`": torchs, "hf_posenc": ours}, rounds))


def run(rounds: int) -> Iterator[Case]:
    """Compare dense masks and block masks."""
    yield from dense(rounds)
    yield blocks(rounds)

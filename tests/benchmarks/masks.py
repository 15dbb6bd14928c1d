"""How fast masks are made, beside a plain fill of the same memory, transformers' masks and torch's `create_block_mask`.

`python -m tests.benchmarks.masks [--rounds 5]`, or as a part of `tests.benchmarks`. Outputs are compared at the queries
of real tokens: at padding everyone is free.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_block_mask
from transformers import LlamaConfig
from transformers.masking_utils import create_causal_mask

from hf_posenc import AttentionMask

from .measuring import Target, must_equal, show, take_turns

LENGTH, PACKED_LENGTH, LONGEST = 2_048, 8_192, 900


def documents_of_rows(rows: int, length: int) -> list[list[int]]:
    """Lengths of documents that fill each row to the last token."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(rows):
        ends = draw.integers(20, LONGEST, size=length // 20).cumsum()
        found.append(np.diff([0, *ends[ends < length], length]).tolist())
    return found


def theirs(attention: str, attention_mask: torch.Tensor | None, position_ids: torch.Tensor) -> Callable[[], Any]:
    """transformers' mask, as a causal model makes it; documents are told by positions that restart."""
    config = LlamaConfig()
    config._attn_implementation = attention
    embeds = torch.empty(*position_ids.shape, 1)
    return lambda: create_causal_mask(config, embeds, attention_mask, None, position_ids=position_ids)


def dense(rows: int, rounds: int) -> None:
    """Bool masks of (rows, 1, 2048, 2048) into one buffer, padded and packed."""
    lengths = np.random.default_rng(1).integers(200, LENGTH + 1, size=rows)
    lengths[0] = LENGTH
    padded = AttentionMask.from_lengths(lengths, look_ahead=True)
    left = AttentionMask.from_lengths(lengths, look_ahead=True, padding_side="left")
    packed = AttentionMask.from_documents(documents_of_rows(rows, LENGTH), look_ahead=True)
    straight = torch.arange(LENGTH).repeat(rows, 1)
    restarting = torch.cat([torch.cat([torch.arange(n) for n in row])[None] for row in documents_of_rows(rows, LENGTH)])
    of_padded = theirs("sdpa", (padded.documents >= 0).long(), straight)
    of_packed = theirs("sdpa", None, restarting)
    buffer = torch.empty(rows, 1, LENGTH, LENGTH, dtype=torch.bool)
    for mask, other in ((padded, of_padded), (packed, of_packed)):
        real = mask.documents >= 0
        must_equal("the dense mask", mask.dense(out=buffer)[:, 0][real], other().expand(rows, -1, -1, -1)[:, 0][real])
    show(
        f"Dense bool masks with look-ahead ({rows}, 1, {LENGTH:,}, {LENGTH:,}); ours into a buffer that is used again",
        take_turns(
            {
                "plain fill": lambda: buffer.fill_(True),
                "padded right": lambda: padded.dense(out=buffer),
                "padded left": lambda: left.dense(out=buffer),
                "packed": lambda: packed.dense(out=buffer),
                "padded right, fresh memory": padded.dense,
                "transformers, padded right": of_padded,
                "transformers, packed": of_packed,
            },
            rounds,
        ),
        per_second=(1, "masks"),
        targets=[
            Target("padded right", "plain fill", "≤", 1.3),
            Target("padded right", "transformers, padded right", "≤", 0.5),
            Target("packed", "transformers, packed", "≤", 0.5),
        ],
    )


def additive(rows: int, rounds: int) -> None:
    """Float masks of (rows, 1, 2048, 2048), which eager attention takes."""
    padded = AttentionMask.from_lengths([LENGTH] + [700] * (rows - 1), look_ahead=True)
    other = theirs("eager", (padded.documents >= 0).long(), torch.arange(LENGTH).repeat(rows, 1))
    buffer = torch.empty(rows, 1, LENGTH, LENGTH)
    real = padded.documents >= 0
    must_equal("the additive mask", padded.additive(out=buffer)[:, 0][real], other()[:, 0][real])
    show(
        f"Additive float32 masks with look-ahead ({rows}, 1, {LENGTH:,}, {LENGTH:,}), padded right",
        take_turns(
            {
                "plain fill": lambda: buffer.fill_(1),
                "into a buffer": lambda: padded.additive(out=buffer),
                "fresh memory": padded.additive,
                "transformers, eager": other,
            },
            rounds,
        ),
        per_second=(1, "masks"),
        targets=[Target("into a buffer", "transformers, eager", "≤", 0.5)],
    )


def blocks(rounds: int) -> None:
    """The block mask of one packed row, from the lengths of its documents on."""
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
    show(
        f"Block mask of {PACKED_LENGTH:,} packed tokens, {len(lengths[0])} documents",
        take_turns({"hf_posenc": ours, "create_block_mask": torchs}, rounds),
        per_second=(1, "masks"),
        targets=[Target("hf_posenc", "create_block_mask", "≥", 100)],
    )


def run(rounds: int) -> None:
    """All of it."""
    dense(32, rounds)
    additive(8, rounds)
    blocks(rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.masks")
    parser.add_argument("--rounds", type=int, default=5)
    run(parser.parse_args().rounds)

"""Decoding step by step with a key-value cache compared with one forward pass over the whole, for left-padded batches.

Positions come from the mask of all tokens so far; counting the tokens of a row, padding included, is shown to be wrong.
"""

from __future__ import annotations

import functools
import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looping import for_each
from sinusoid_reference import ALL, named, widths
from torch import nn
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from hf_posenc import PositionalEmbedding, position_ids_from_mask
from hf_posenc.positions import (
    Convention,
    SinusoidalPositionalEncoding,
    cache,
    clear_cache,
    fixed_bases,
)

# The tables are random, with a standard deviation of 1, so that positions are small beside them.
pytestmark = pytest.mark.filterwarnings("ignore:the embedding's spread")

conventions = pytest.mark.parametrize("convention", ALL, ids=named)
PROMPTS, NEW, VOCABULARY = (3, 9, 1, 6), 7, 40


def batch(lengths: tuple[int, ...] = PROMPTS, new: int = NEW, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask `(B, T + new)`: prompts padded on the left to T, then `new` tokens that all rows have."""
    longest = max(lengths)
    chosen = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCABULARY, (len(lengths), longest + new), generator=chosen)
    mask = (torch.arange(longest + new) >= longest - torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), new=st.integers(1, 5), start=st.integers(0, 3))
@settings(max_examples=50)
def test_the_last_column_of_the_mask_so_far_is_the_next_position(lengths: list[int], new: int, start: int) -> None:
    """All that a decoding loop needs: keep the mask, append a 1, take the last column."""
    _, mask = batch(tuple(lengths), new)
    full = position_ids_from_mask(mask, start=start)
    for stop in range(max(lengths), max(lengths) + new + 1):
        assert torch.equal(position_ids_from_mask(mask[:, :stop], start=start), full[:, :stop])
        assert full[:, stop - 1].tolist() == [start + length - 1 + stop - max(lengths) for length in lengths]


@conventions
@for_each("dtype", [torch.float32, torch.bfloat16])
def test_single_far_positions_have_the_bits_of_the_whole_table(convention: Convention, dtype: torch.dtype) -> None:
    """A step looks one row up, and makes no table for it; the full pass reads a table, or computes many rows."""
    module = SinusoidalPositionalEncoding(widths(convention)[0], convention=convention, scale="sqrt_d")
    length, first = 6000, convention.first_position
    x = torch.randn(2, length, module.d_model).to(dtype)
    steps = [0, 1, 255, 256, 257, 4095, 4096, 5999]
    clear_cache()
    alone = [module(x[:, at : at + 1], position_ids=torch.tensor([[at + first]])) for at in steps]
    assert sum(len(rows) for rows in cache._tables[0].values()) <= 1024
    clear_cache()
    full = module(x)
    for at, ours in zip(steps, alone, strict=True):
        assert torch.equal(ours[:, 0], full[:, at])
        again = module(x[:, at : at + 1], position_ids=torch.tensor([at + first]))  # now there is a table
        assert torch.equal(again, ours)
    beyond = torch.tensor([[2**18 - 1, 2**18, 2**22, 2**22 + 1, 2**31 - 1]])
    at_once = module(x[:, :5], position_ids=beyond)
    for at in range(5):
        assert torch.equal(module(x[:, at : at + 1], position_ids=beyond[:, at : at + 1])[:, 0], at_once[:, at])


# transformers 5.24 renamed it.
CACHE = "cache" if "cache" in inspect.signature(GPT2LMHeadModel.forward).parameters else "past_key_values"


@functools.cache
def gpt2() -> GPT2LMHeadModel:
    """A GPT-2 without positions of its own: what it is fed has them already."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        config = GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=12,
            n_layer=2,
            n_head=2,
            n_positions=64,
            initializer_range=0.3,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
        model = GPT2LMHeadModel(config).eval()
    nn.init.zeros_(model.transformer.wpe.weight)
    return model


@for_each("convention", [*ALL[:-1], fixed_bases(4, 5, 7, 11, 13, 17)])
@torch.no_grad()
def test_a_model_of_transformers_decodes_from_embeddings_with_its_cache(convention: Convention) -> None:
    model, (ids, mask) = gpt2(), batch()
    embed = PositionalEmbedding(model.get_input_embeddings(), convention=convention, scale=3.0)
    first, real, prompt = convention.first_position, mask.bool(), ids.shape[1] - NEW
    expected = model(inputs_embeds=embed(ids, attention_mask=mask), attention_mask=mask, use_cache=False).logits
    for naive in (False, True):
        past, logits = DynamicCache(config=model.config), []
        for start, stop in [(0, prompt), *((at, at + 1) for at in range(prompt, ids.shape[1]))]:
            so_far = mask[:, :stop]
            positions = position_ids_from_mask(so_far, start=first)
            if naive:
                positions = (torch.arange(stop) + first).expand(len(ids), -1)
            vectors = embed(ids[:, start:stop], attention_mask=so_far[:, start:], position_ids=positions[:, start:])
            out = model(inputs_embeds=vectors, attention_mask=so_far, use_cache=True, **{CACHE: past})
            logits.append(out.logits)
        difference = (torch.cat(logits, dim=1)[real] - expected[real]).abs().max()
        assert difference > 0.1 if naive else difference <= 1e-5, difference

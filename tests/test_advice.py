"""Mistakes of a first hour: each error names the thing that is meant, and what it says works when it is pasted."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from small_models import tiny
from torch import nn
from torch.utils.data import DataLoader

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc import PositionalEmbedding, SinusoidalPositionalEncoding, TokenBudgetBatchSampler, train_bpe
from hf_posenc.corpus import encode

IDS = torch.tensor([[1, 2]])


@pytest.fixture(scope="module")
def bpe() -> Any:
    return train_bpe(["I ride my bike", "the bike rides me"] * 3, 300, progress=False)


MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda bpe: C(tiny("gpt2"), bpe), TypeError, "DataCollatorWithPositionalEncoding(tokenizer, model=model)"),
    (lambda bpe: C(bpe, packing="rows"), ValueError, "fix: packing=True"),
    (lambda bpe: C(bpe, labels="next"), ValueError, "fix: labels='causal_lm'"),
    (lambda bpe: C(bpe)(["I"])["labels"], KeyError, 'labels="causal_lm" or "masked_lm"'),
    (lambda bpe: C(bpe)(["I"]).labels, AttributeError, 'labels="causal_lm" or "masked_lm"'),
    (lambda bpe: C(bpe)(["I"]).look_ahead, AttributeError, 'fix: batch["look_ahead_mask"]'),
    (lambda bpe: C(bpe)(["I"])["inputs_embeds"], KeyError, "embedding=512"),
    (lambda bpe: next(iter(DataLoader(["I"], collate_fn=C))), TypeError, "(tokenizer), then collate(rows)"),
    (lambda bpe: C(bpe)([["I", "Ġride"]]), TypeError, "convert_tokens_to_ids(row) for lists of tokens"),
    (lambda bpe: C(bpe, is_split_into_words=True)([["I"], ["I", "Ġride"]]), ValueError, "row 1 has the token 'Ġride'"),
    (lambda bpe: hf_posenc.PositionalEncoding, ImportError, "from hf_posenc import SinusoidalPositionalEncoding"),
    (lambda bpe: hf_posenc.SinusoidalPositions, ImportError, "from hf_posenc import use_sinusoidal_positions"),
    (lambda bpe: PositionalEmbedding(nn.Embedding(3, 4))(IDS, IDS, IDS), TypeError, "positional arguments but 4"),
    (lambda bpe: SinusoidalPositionalEncoding(4)(torch.zeros(1, 2, 4), IDS), TypeError, "takes 2 positional arguments"),
]


@pytest.mark.parametrize(("mistake", "error", "words"), MISTAKES)
def test_a_mistake_names_what_is_meant(
    bpe, mistake: Callable[[Any], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        mistake(bpe)


def test_other_names_are_missing_as_in_any_module() -> None:
    assert not hasattr(hf_posenc, "nothing")
    with pytest.raises(ImportError, match="use_sinusoidal_positions"):
        importlib.import_module("hf_posenc").__getattr__("SinusoidalPositions")


def test_token_strings_become_ids_as_the_message_says(bpe) -> None:
    text = "I ride my bike"
    tokens = bpe.tokenize(text)
    collate = C(bpe, is_split_into_words=True, add_special_tokens=False)
    rows = [{"input_ids": bpe.convert_tokens_to_ids(row)} for row in [tokens]]
    assert collate(rows)["input_ids"].tolist() == [bpe(text, add_special_tokens=False)["input_ids"]]
    assert collate([text.split()])["input_ids"].shape[0] == 1  # words are no tokens
    assert collate([["##", "▁", "Ġ", "Ġorġ", "##Title"]])["input_ids"].shape[0] == 1  # nor are these


def test_rows_that_are_tokenized_are_not_encoded_again(bpe, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    datasets.Dataset.from_dict({"input_ids": [[1, 2], [3]], "attention_mask": [[1, 1], [1]]}).to_parquet(rows)
    for settings in ({}, {"text_column": "input_ids"}):
        with pytest.raises(
            (TypeError, ValueError), match=r"rows\.parquet are tokenized already, and encode reads texts"
        ):
            encode(rows, bpe, tmp_path / "out", **settings)
    numbers = tmp_path / "numbers.parquet"
    datasets.Dataset.from_dict({"a": [1, 2]}).to_parquet(numbers)
    with pytest.raises(ValueError, match="fix: an input with a column of texts"):
        encode(numbers, bpe, tmp_path / "out")


def test_an_output_below_a_file_or_where_no_folder_can_be_made_is_named(bpe, tmp_path: Path) -> None:
    text = tmp_path / "texts.txt"
    text.write_text("I ride\n")
    with pytest.raises(ValueError, match=f"(?s)must be a folder.*a file: {re.escape(str(text))}\n"):
        encode(text, bpe, text / "sub")
    if Path("/proc").is_dir():
        with pytest.raises(ValueError, match="the output folder /proc/nope/out cannot be made"):
            encode(text, bpe, "/proc/nope/out")


def test_another_budget_names_the_saved_one() -> None:
    state = TokenBudgetBatchSampler([5, 3, 8], 64).state_dict()
    with pytest.raises(ValueError, match=r"fix: token_budget=64, as when it was saved"):
        TokenBudgetBatchSampler([5, 3, 8], 32).load_state_dict(state)

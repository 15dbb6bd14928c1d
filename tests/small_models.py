"""Model specs written by hand, and tiny models of Hugging Face with the 1,200 ids of the small tokenizers.

The tests of the collator with `model=` share them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import transformers

from hf_posenc import ModelSpec

TEXTS = ["I ride bike", "bike ride I, she said unsurprisingly", "a"]
PAIRS = [{"text": "I ride bike", "target": "a"}, {"text": "a", "target": "bike ride I, she said"}]

# What a padded batch has for everybody, in this order.
PLAIN = ["input_ids", "attention_mask", "position_ids"]


def spec(*accepts: str, **facts: Any) -> ModelSpec:
    """A model that reads ids and masks, and these names besides."""
    return ModelSpec(**{"name": "Reader", "accepts": ("input_ids", "attention_mask", *accepts), **facts})


BERT = spec("token_type_ids", "position_ids", "labels", positions=("learned",), max_length=512, takes_4d_mask=True)
ROBERTA = dataclasses.replace(BERT, name="Roberta", first_position=2, padding_position=1)
GPT2 = dataclasses.replace(BERT, name="Gpt", is_causal=True, shifts_labels=True)
BART = spec(
    "decoder_input_ids",
    "decoder_attention_mask",
    "labels",
    name="Bart",
    positions=("learned",),
    is_encoder_decoder=True,
    shifts_labels=True,
    decoder_start_token_id=2,
    max_length=64,
    max_target_length=64,
)
SHORT_BART = dataclasses.replace(BART, max_length=8, max_target_length=6)
BART_BASE = dataclasses.replace(
    BART, name="BartBase", accepts=tuple(name for name in BART.accepts if name != "labels"), shifts_labels=False
)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
NARROW = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
NARROW |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}
MADE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", SMALL),
    "roberta": ("RobertaModel", "RobertaConfig", SMALL | {"pad_token_id": 1, "max_position_embeddings": 66}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32}
        | {"max_position_embeddings": 64, "pad_token_id": 1},
    ),
    "mpnet": ("MPNetModel", "MPNetConfig", SMALL | {"pad_token_id": 1, "max_position_embeddings": 66}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", SMALL | {"num_key_value_heads": 2}),
    "bart": ("BartForConditionalGeneration", "BartConfig", NARROW),
    "bart-base": ("BartModel", "BartConfig", NARROW),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 1},
    ),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"hidden_size": 32, "state_size": 4, "num_hidden_layers": 1}),
}


def tiny(name: str, **more: Any) -> Any:
    """A small model with random weights, which knows the 1,200 ids of the small tokenizers."""
    cls, config, facts = MADE[name]
    ids = {"vocab_size": 1200, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return getattr(transformers, cls)(getattr(transformers, config)(**(ids | facts | more))).eval()


def of_class(name: str, **more: Any) -> Any:
    """Return a smaller model of a class of transformers by its name, for the same ids; further settings override."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    cls = getattr(transformers, name)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return cls(cls.config_class(**({"vocab_size": 1200, "pad_token_id": 0} | sizes | more))).eval()


def answers(model: Any, batch: Any) -> torch.Tensor:
    """Last hidden states or logits."""
    out = model(**batch)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state

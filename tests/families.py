"""Tiny models of Hugging Face families, built from their configurations, and facts about them.

`FAMILIES` has for each its configuration, its position tables, and the row of the first token in each. The rows were
written by hand, from the models' papers and sources, so that they do not depend on the tested code.
"""

from __future__ import annotations

import copy
import logging
import pickle
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import transformers

VOCABULARY = 97
WIDTH = 16
ROOM = 40  # largest number of tokens in a row, in every family

# The same few sizes, by the keys of each configuration.
_BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": ROOM,
}
_ROBERTA = _BERT | {"max_position_embeddings": ROOM + 2, "pad_token_id": 1}
_GPT2 = {
    "vocab_size": VOCABULARY,
    "pad_token_id": 3,
    "n_embd": WIDTH,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": ROOM,
    "n_inner": 24,
}
_XLM = {"vocab_size": VOCABULARY, "emb_dim": WIDTH, "n_layers": 2, "n_heads": 2, "max_position_embeddings": ROOM}
_BART = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": ROOM,
}
_LLAMA = _BERT | {"num_key_value_heads": 2, "head_dim": 8}
_T5 = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}

_ENCODER = {"encoder.embed_positions.weight": 0, "decoder.embed_positions.weight": 0}


def _both(first_row: int) -> dict[str, int]:
    return dict.fromkeys(_ENCODER, first_row)


@dataclass(frozen=True)
class Family:
    r"""The configuration of a tiny model, and facts about its positions.

    Args:
        prefix (`str`): of its classes' names in transformers: `BertConfig`, `BertModel`.
        small (`dict`): arguments of its configuration.
        tables (`dict`): of each learned position table in the base model, the row that a first token reads.
        padding (`int`, *optional*): value of `position_ids` at padding, if the family has one.
        takes_position_ids (`bool`): True if `position_ids` have an effect.
        is_causal (`bool`): True for a decoder alone.
        left_padding_shifts (`bool`): with an attention mask and no position ids.
        stays (`tuple` of `str`): other kinds of positions that it has.
        unreached (`tuple` of `str`): position tables that a plain sequence of tokens does not read.
        heads (`tuple` of `str`): endings of its classes with a head.
        model (`str`): ending of its base class.
        longer (`bool`): True if its configuration has a key for the number of positions alone.
        ahead (`int`): number of rows that a decoder reads after those of its tokens.
    """

    prefix: str
    small: dict[str, Any]
    tables: dict[str, int] = field(default_factory=dict)
    padding: int | None = None
    takes_position_ids: bool = True
    is_causal: bool = False
    left_padding_shifts: bool = True
    stays: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    model: str = "Model"
    longer: bool = True
    ahead: int = 0

    @property
    def has_decoder(self) -> bool:
        """True if it reads two sequences."""
        return any(name.startswith("decoder.") for name in self.tables) and len(self.tables) > 1

    def config(self, **more: Any) -> Any:
        """Return a new configuration, with the keys that saving a model adds."""
        saved = {"architectures": [f"{self.prefix}{self.model}"], "dtype": "float32"}
        return getattr(transformers, f"{self.prefix}Config")(**(saved | self.small | more))

    def build(self, head: str | None = None, *, seed: int = 0, **more: Any) -> Any:
        """Return a new model in evaluation mode, with random weights; torch's global generator is not used."""
        name = f"{self.prefix}{head or self.model}"
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return getattr(transformers, name)(self.config(architectures=[name], **more)).eval()


_ALONE = {"takes_position_ids": False, "left_padding_shifts": True}
_DECODER = {"is_causal": True}
_FROM_IDS = {"padding": 1, "left_padding_shifts": False}  # counts real tokens in its input ids, from padding's row on
_LM = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
_EMBEDDINGS = "embeddings.position_embeddings.weight"
_WPE = "wpe.weight"

# The 35 families that the documentation names.
NAMED: dict[str, Family] = {
    "bert": Family("Bert", _BERT, {_EMBEDDINGS: 0}, heads=(*_LM, "ForPreTraining", "LMHeadModel")),
    "roberta": Family("Roberta", _ROBERTA, {_EMBEDDINGS: 2}, **_FROM_IDS, heads=_LM),
    "xlm-roberta": Family("XLMRoberta", _ROBERTA, {_EMBEDDINGS: 2}, **_FROM_IDS, heads=_LM),
    "electra": Family("Electra", _BERT | {"embedding_size": 12}, {_EMBEDDINGS: 0}, heads=(*_LM, "ForPreTraining")),
    "albert": Family("Albert", _BERT | {"embedding_size": 12}, {_EMBEDDINGS: 0}, heads=_LM),
    "distilbert": Family(
        "DistilBert",
        {
            "vocab_size": VOCABULARY,
            "dim": WIDTH,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 24,
            "max_position_embeddings": ROOM,
        },
        {_EMBEDDINGS: 0},
        heads=_LM,
    ),
    "mobilebert": Family(
        "MobileBert",
        _BERT | {"embedding_size": 12, "intra_bottleneck_size": 8, "true_hidden_size": 8},
        {_EMBEDDINGS: 0},
        heads=_LM,
    ),
    "convbert": Family(
        "ConvBert", _BERT | {"embedding_size": WIDTH, "num_attention_heads": 4}, {_EMBEDDINGS: 0}, heads=_LM
    ),
    "rembert": Family(
        "RemBert", _BERT | {"input_embedding_size": 12, "output_embedding_size": 12}, {_EMBEDDINGS: 0}, heads=_LM
    ),
    "ernie": Family("Ernie", _BERT, {_EMBEDDINGS: 0}, heads=_LM),
    "big_bird": Family("BigBird", _BERT | {"block_size": 4, "num_random_blocks": 1}, {_EMBEDDINGS: 0}, heads=_LM),
    "camembert": Family("Camembert", _ROBERTA, {_EMBEDDINGS: 2}, **_FROM_IDS, heads=_LM),
    "mpnet": Family("MPNet", _ROBERTA, {_EMBEDDINGS: 2}, **_FROM_IDS, stays=("relative",), heads=_LM),
    "longformer": Family("Longformer", _ROBERTA | {"attention_window": 4}, {_EMBEDDINGS: 2}, **_FROM_IDS, heads=_LM),
    "luke": Family(
        "Luke",
        _ROBERTA | {"entity_vocab_size": 11, "entity_emb_size": 8},
        {_EMBEDDINGS: 2},
        **_FROM_IDS,
        unreached=("entity_embeddings.position_embeddings.weight",),
        heads=("ForMaskedLM", "ForSequenceClassification"),
    ),
    "esm": Family(
        "Esm",
        _ROBERTA | {"mask_token_id": 5},
        {_EMBEDDINGS: 2},
        **_FROM_IDS,
        heads=("ForMaskedLM", "ForSequenceClassification"),
    ),
    "nystromformer": Family("Nystromformer", _BERT, {_EMBEDDINGS: 2}, heads=_LM),
    "yoso": Family("Yoso", _BERT, {_EMBEDDINGS: 2}, heads=_LM),
    "gpt2": Family("GPT2", _GPT2, {_WPE: 0}, **_DECODER, heads=("LMHeadModel", "ForSequenceClassification")),
    "gpt_bigcode": Family("GPTBigCode", _GPT2, {_WPE: 0}, **_DECODER, heads=("ForCausalLM",)),
    "gpt_neo": Family(
        "GPTNeo",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_layers": 2,
            "num_heads": 2,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "intermediate_size": 24,
            "max_position_embeddings": ROOM,
        },
        {_WPE: 0},
        **_DECODER,
        heads=("ForCausalLM",),
    ),
    "openai-gpt": Family(
        "OpenAIGPT",
        {name: value for name, value in _GPT2.items() if name != "n_inner"},
        {"positions_embed.weight": 0},
        **_DECODER,
        heads=("LMHeadModel",),
    ),
    "xlm": Family("XLM", _XLM, {"position_embeddings.weight": 0}, heads=("WithLMHeadModel",)),
    "flaubert": Family("Flaubert", _XLM, {"position_embeddings.weight": 0}, heads=("WithLMHeadModel",)),
    "opt": Family(
        "OPT",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "word_embed_proj_dim": WIDTH,
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": ROOM,
        },
        {"decoder.embed_positions.weight": 2},
        left_padding_shifts=False,
        **_DECODER,
        heads=("ForCausalLM", "ForSequenceClassification"),
    ),
    "biogpt": Family("BioGpt", _BERT, {"embed_positions.weight": 2}, **_DECODER, heads=("ForCausalLM",)),
    "bart": Family("Bart", _BART, _both(2), **_ALONE, heads=("ForConditionalGeneration", "ForSequenceClassification")),
    "mbart": Family("MBart", _BART, _both(2), **_ALONE, heads=("ForConditionalGeneration",)),
    "plbart": Family("PLBart", _BART, _both(2), **_ALONE, heads=("ForConditionalGeneration",)),
    "mvp": Family("Mvp", _BART, _both(2), **_ALONE, heads=("ForConditionalGeneration",)),
    "blenderbot": Family("Blenderbot", _BART, _both(0), **_ALONE, heads=("ForConditionalGeneration",)),
    "blenderbot-small": Family("BlenderbotSmall", _BART, _both(0), **_ALONE, heads=("ForConditionalGeneration",)),
    "prophetnet": Family(
        "ProphetNet",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 2,
            "num_decoder_attention_heads": 2,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "max_position_embeddings": ROOM,
        },
        {"encoder.position_embeddings.weight": 1, "decoder.position_embeddings.weight": 1},
        **_ALONE,
        stays=("relative",),
        heads=("ForConditionalGeneration",),
        ahead=1,  # it predicts two tokens at once, and the second has a position of its own
    ),
    "led": Family(
        "LED",
        {name: value for name, value in _BART.items() if name != "max_position_embeddings"}
        | {"attention_window": 4, "max_encoder_position_embeddings": ROOM, "max_decoder_position_embeddings": ROOM},
        _both(0),
        **_ALONE,
        heads=("ForConditionalGeneration",),
    ),
    "bigbird_pegasus": Family(
        "BigBirdPegasus",
        _BART | {"block_size": 4, "num_random_blocks": 1},
        _both(0),
        **_ALONE,
        heads=("ForConditionalGeneration",),
    ),
}

# Other families that work.
OTHERS: dict[str, Family] = {
    "canine": Family(
        "Canine",
        {name: value for name, value in _BERT.items() if name != "vocab_size"}
        | {"num_hash_buckets": ROOM, "num_hash_functions": 2, "local_transformer_stride": 8},
        {"char_embeddings.char_position_embeddings.weight": 0},
        longer=False,  # it has as many positions as hash buckets
    ),
    "clip_text_model": Family("CLIPText", _BERT, {"embeddings.position_embedding.weight": 0}, **_DECODER),
    "deberta": Family(
        "Deberta",
        _BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        {_EMBEDDINGS: 0},
        stays=("relative",),
        heads=_LM,
        longer=False,  # the table of relative ones would grow along
    ),
    "deberta-v2": Family(
        "DebertaV2",
        _BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        {_EMBEDDINGS: 0},
        stays=("relative",),
        heads=_LM,
        longer=False,
    ),
    "fnet": Family("FNet", _BERT | {"pad_token_id": 3}, {_EMBEDDINGS: 0}, heads=("ForMaskedLM",)),
    "ibert": Family("IBert", _ROBERTA, {_EMBEDDINGS: 2}, **_FROM_IDS, heads=_LM),
    "layoutlm": Family(
        "LayoutLM",
        _BERT | {"max_2d_position_embeddings": 20},
        {_EMBEDDINGS: 0},
        unreached=tuple(f"embeddings.{each}_position_embeddings.weight" for each in "xyhw"),
        heads=("ForMaskedLM",),
    ),
    "lilt": Family(
        "Lilt",
        _ROBERTA | {"channel_shrink_ratio": 2, "hidden_size": 24, "max_2d_position_embeddings": 20},
        {_EMBEDDINGS: 2, "layout_embeddings.box_position_embeddings.weight": 2},
        **_FROM_IDS,
        unreached=tuple(f"layout_embeddings.{each}_position_embeddings.weight" for each in "xyhw"),
    ),
    "megatron-bert": Family("MegatronBert", _BERT, {_EMBEDDINGS: 0}, heads=_LM),
    "mra": Family("Mra", _BERT, {_EMBEDDINGS: 2}, is_causal=True),  # without its CUDA kernels it attends to nothing
    "siglip_text_model": Family("SiglipText", _BERT, {"embeddings.position_embedding.weight": 0}),
    "squeezebert": Family(
        "SqueezeBert",
        _BERT
        | {"embedding_size": WIDTH}
        | {f"{each}_groups": 2 for each in ("q", "k", "v", "post_attention", "intermediate", "output")},
        {_EMBEDDINGS: 0},
        heads=_LM,
    ),
    "tapas": Family("Tapas", _BERT, {_EMBEDDINGS: 0}, heads=("ForMaskedLM",)),
    "trocr": Family(
        "TrOCR", _BART, {"model.decoder.embed_positions.weight": 2}, **_ALONE, model="ForCausalLM", is_causal=True
    ),
    "xlm-roberta-xl": Family("XLMRobertaXL", _ROBERTA, {_EMBEDDINGS: 2}, **_FROM_IDS, heads=_LM),
}

FAMILIES: dict[str, Family] = NAMED | OTHERS

# Models that add positions to token embeddings without a LayerNorm behind the sum, by their sources.
WITHOUT_NORM = {
    *("biogpt", "bigbird_pegasus", "blenderbot", "blenderbot-small", "clip_text_model", "esm", "gpt2", "gpt_bigcode"),
    *("gpt_neo", "megatron-bert", "mobilebert", "opt", "siglip_text_model", "xlm-roberta-xl"),
}

# Models without a learned table of absolute positions, with their kind of positions.
REFUSED: dict[str, tuple[str, Family]] = {
    "llama": ("rotary", Family("Llama", _LLAMA)),
    "mistral": ("rotary", Family("Mistral", _LLAMA)),
    "qwen3": ("rotary", Family("Qwen3", _LLAMA)),
    "gemma": ("rotary", Family("Gemma", _LLAMA)),
    "gpt_neox": ("rotary", Family("GPTNeoX", _BERT)),
    "falcon": ("rotary", Family("Falcon", {name: _BERT[name] for name in list(_BERT)[:4]})),
    "bloom": ("alibi", Family("Bloom", {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 2, "n_head": 2})),
    "t5": ("relative", Family("T5", _T5)),
    "marian": ("sinusoidal", Family("Marian", _BART | {"pad_token_id": 0, "decoder_start_token_id": 0})),
    "pegasus": ("sinusoidal", Family("Pegasus", _BART)),
    "mamba": (
        "no",
        Family("Mamba", {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 4}),
    ),
}
_GPTJ = {name: value for name, value in _GPT2.items() if name != "n_inner"} | {"rotary_dim": 4}
_FSMT = {name: value for name, value in _BART.items() if name != "vocab_size"}

MORE_REFUSED: dict[str, tuple[str, Family]] = {
    "ctrl": (
        "sinusoidal",
        Family("CTRL", {key: _GPT2[key] for key in ("vocab_size", "n_embd", "n_layer", "n_head")} | {"dff": 24}),
    ),
    "esm with rotary positions": ("rotary", Family("Esm", _ROBERTA | {"position_embedding_type": "rotary"})),
    "falcon with alibi": ("alibi", Family("Falcon", {name: _BERT[name] for name in list(_BERT)[:4]} | {"alibi": True})),
    "fsmt": (
        "sinusoidal",
        Family("FSMT", _FSMT | {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "langs": ["en", "de"]}),
    ),
    "funnel": (
        "relative",
        Family(
            "Funnel",
            {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_head": 2, "d_head": 8, "d_inner": 24}
            | {"block_sizes": [1, 1], "num_decoder_layers": 1},
        ),
    ),
    "gptj": ("rotary", Family("GPTJ", _GPTJ)),
    "m2m_100": ("sinusoidal", Family("M2M100", _BART)),
    "modernbert": (
        "rotary",
        Family("ModernBert", _BERT | {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "eos_token_id": 2}),
    ),
    "mpt": (
        "alibi",
        Family("Mpt", {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layers": 2, "n_heads": 2, "max_seq_len": ROOM}),
    ),
    "pegasus_x": ("sinusoidal", Family("PegasusX", _BART | {"block_size": 4, "num_global_tokens": 2})),
    "roformer": ("rotary", Family("RoFormer", _BERT | {"embedding_size": 12})),
    "rwkv": (
        "no",
        Family(
            "Rwkv",
            {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "attention_hidden_size": WIDTH}
            | {"intermediate_size": 24},
        ),
    ),
    "trocr with sinusoids": (
        "sinusoidal",
        Family("TrOCR", _BART | {"use_learned_position_embeddings": False}, model="ForCausalLM"),
    ),
    "xglm": (
        "sinusoidal",
        Family(
            "XGLM",
            {"vocab_size": VOCABULARY, "d_model": WIDTH, "ffn_dim": 24, "num_layers": 2, "attention_heads": 2}
            | {"max_position_embeddings": ROOM},
        ),
    ),
    "xlnet": (
        "relative",
        Family("XLNet", {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layer": 2, "n_head": 2, "d_inner": 24}),
    ),
}


WITHOUT_TABLES = REFUSED | MORE_REFUSED

# The families that every test runs with; tests of the others are slow together. Two that count from 0 and from 2, a
# decoder, an encoder-decoder, one with relative positions as well; then one of each kind without a table.
COMMON = ("bert", "roberta", "gpt2", "bart", "mpnet")
COMMON_WITHOUT_TABLES = ("llama", "bloom", "t5", "marian", "mamba")


def family(name: str) -> Family:
    """Return a family with or without a learned table, by its name."""
    return FAMILIES[name] if name in FAMILIES else WITHOUT_TABLES[name][1]


def each_family(names: Iterable[str] = FAMILIES) -> list[Any]:
    """Return pytest's parameters for the families of some names, slow ones marked."""
    return [pytest.param(family(name), id=name, marks=speed_of(name)) for name in names]


def each_head() -> list[Any]:
    """Return pytest's parameters for every family with each of its heads, slow ones marked."""
    return [
        pytest.param(each, head, id=f"{name}-{head}", marks=speed_of(name, first=head == each.heads[0]))
        for name, each in FAMILIES.items()
        for head in each.heads
    ]


def each_family_without_table() -> list[Any]:
    """Return pytest's parameters for every family without a learned table, with its kind, slow ones marked."""
    return [pytest.param(*each, id=name, marks=speed_of(name)) for name, each in WITHOUT_TABLES.items()]


def speed_of(name: str, *, first: bool = True) -> Any:
    """Return the marks for tests of a family."""
    return () if first and name in COMMON + COMMON_WITHOUT_TABLES else pytest.mark.slow


class OwnConfig(transformers.PreTrainedConfig):
    """The configuration of `OwnModel`."""

    model_type = "own"

    def __init__(self, reads: tuple[str, ...] = ("positions",), **more: Any) -> None:
        super().__init__(**more)
        self.reads = list(reads)


class OwnModel(transformers.PreTrainedModel):
    r"""A small model of a user, with one head of attention, and tables that it reads in several ways.

    Args:
        config (`OwnConfig`): `reads` lists its tables: only `"positions"` are learned absolute positions.
    """

    config_class = OwnConfig

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.query, self.key = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        sizes = {"offsets": (2 * ROOM, 1), "distances": (ROOM, 1), "scalar gate": (ROOM, 1), "labels": (7, WIDTH)}
        for name in set(config.reads) & set(UNTOLD):
            shape = {"three dimensions": (1, ROOM, WIDTH), "transposed": (WIDTH, ROOM)}.get(name, (ROOM, WIDTH))
            self.register_buffer("pe", torch.randn(shape)) if name == "buffer" else None
            self.table = torch.nn.Parameter(torch.zeros(shape) if name == "three dimensions" else torch.randn(shape))
        for name in set(config.reads) - set(UNTOLD):
            rows, width = sizes.get(name, (ROOM, WIDTH))
            setattr(self, name.replace(" ", "_"), torch.nn.Embedding(rows, width))
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.words

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> Any:
        x, reads = self.words(input_ids), self.config.reads
        length, steps = x.shape[1], torch.arange(x.shape[1])
        if "positions" in reads:
            x = x + self.positions(steps)
        if "slice" in reads:
            x = x + self.slice.weight[:length]
        if "after prompt" in reads:  # positions of a prompt and of tokens, from one table
            every = self.after_prompt(torch.arange(length + 3))
            x = torch.cat([every[:3].expand(len(x), -1, -1), x + every[3:]], dim=1)
        if "prompt" in reads:
            x = torch.cat([self.prompt(torch.arange(8)).expand(len(x), -1, -1), x], dim=1)
        if "gate" in reads:
            x = x * torch.sigmoid(self.gate(steps))
        if "scalar gate" in reads:
            x = x * torch.sigmoid(self.scalar_gate(steps).expand(-1, WIDTH))
        if "labels" in reads:
            x = x + torch.softmax(x @ self.labels(torch.arange(7)).T, dim=-1) @ self.labels(torch.arange(7))
        untold = {
            "three dimensions": lambda: self.table[:, :length],
            "transposed": lambda: self.table[:, :length].T,
            "strided": lambda: self.table[::2][:length],
            "reversed": lambda: self.table[:length].flip(0),
            "from the end": lambda: self.table[steps.flip(0)],
            "buffer": lambda: self.pe[None][:, :length],
        }
        for name in set(reads) & set(UNTOLD):
            x = x + untold[name]()
        every = torch.arange(x.shape[1])
        scores = self.query(x) @ self.key(x).mT
        if "offsets" in reads:
            apart = every[:, None] - every
            scores = scores + self.offsets(apart + ROOM)[..., 0]
        if "distances" in reads:  # a row for each distance, from 0 on
            scores = scores + self.distances(every)[(every[:, None] - every).abs(), 0]
        if "row of offsets" in reads:  # from the most negative one on: 2T - 1 of them, counted from 0
            rows = self.row_of_offsets(torch.arange(2 * len(every) - 1))
            scores = scores + (self.query(x) @ rows.T).gather(
                -1, (every[:, None] - every + len(every) - 1).expand(len(x), -1, -1)
            )
        if "skewed" in reads:  # the last T rows, as in the Music Transformer
            scores = scores + self.query(x) @ self.skewed.weight[ROOM - len(every) :].T
        if "skewed from zero" in reads:
            scores = scores + self.query(x) @ self.skewed_from_zero(every).T
        if attention_mask is not None and attention_mask.shape[1] == x.shape[1]:
            scores = scores.masked_fill(attention_mask[:, None] == 0, -1e9)
        hidden = x + torch.softmax(scores, dim=-1) @ x
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=hidden)


UNTOLD = ("three dimensions", "transposed", "strided", "reversed", "from the end", "buffer")
DECOYS = (
    *("prompt", "labels", "gate", "scalar gate", "offsets", "distances", "row of offsets", "skewed"),
    "skewed from zero",
)


def own_model(*reads: str) -> OwnModel:
    """Return a new `OwnModel` in evaluation mode."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return OwnModel(OwnConfig(reads)).eval()


def tokens(family: Family, length: int = 7, target_length: int = 5, *, rows: int = 2) -> dict[str, torch.Tensor]:
    """Return random ids `(rows, length)` without special ones, and a mask of ones; the same for a decoder."""
    generator = torch.Generator().manual_seed(0)
    wanted = {"input_ids": length} | ({"decoder_input_ids": target_length} if family.has_decoder else {})
    ids = {name: torch.randint(20, VOCABULARY, (rows, width), generator=generator) for name, width in wanted.items()}
    masks = {name.replace("input_ids", "attention_mask"): torch.ones_like(given) for name, given in ids.items()}
    return ids | masks


def outputs(model: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return every floating tensor of a model's output; random generators are fixed, and the model is not changed."""
    model = copy.deepcopy(model)  # BigBird exchanges its attention for short rows
    np.random.seed(0)  # noqa: NPY002  (BigBird's)
    with torch.no_grad(), torch.random.fork_rng([]):
        torch.manual_seed(0)
        returned = model(**inputs, **({"use_cache": False} if hasattr(model.config, "use_cache") else {}))
    return [each for each in returned.to_tuple() if isinstance(each, torch.Tensor) and each.is_floating_point()]


def whole(model: Any) -> dict[str, Any]:
    """Return weights, `requires_grad`, buffers, modes and configuration of a model."""
    return {
        "state": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "buffers": {name: tensor.clone() for name, tensor in model.named_buffers()},
        "trains": {name: each.requires_grad for name, each in model.named_parameters()},
        "modes": {name: each.training for name, each in model.named_modules()},
        "config": copy.deepcopy(model.config.to_dict()),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for kind, values in before.items():
        assert list(values) == list(after[kind]), kind
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                assert value.dtype == after[kind][name].dtype
                assert torch.equal(value, after[kind][name]), name
            else:
                assert value == after[kind][name], (kind, name)


def traces(model: Any) -> dict[str, Any]:
    """Return attributes, hooks, random states and global settings, which a call must not change either."""
    modules = dict(model.named_modules())
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")
    return {
        "attributes": {
            name: {key: id(value) for key, value in vars(each).items() if key != "training"}
            for name, each in modules.items()
        },
        "children": {name: {key: id(value) for key, value in each._modules.items()} for name, each in modules.items()},
        "parameters": {name: id(each) for name, each in model.named_parameters(remove_duplicate=False)},
        "buffers": {name: id(each) for name, each in model.named_buffers(remove_duplicate=False)},
        "hooks": {name: [len(getattr(each, kind)) for kind in hooks] for name, each in modules.items()},
        "config": {name: id(value) for name, value in vars(model.config).items() if name != "sinusoidal_positions"},
        "torch's random state": torch.get_rng_state().tolist(),
        "numpy's random state": pickle.dumps(np.random.get_state()),  # noqa: NPY002
        "python's random state": random.getstate(),
        "gradient": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "logs": dict(vars(logging.getLogger("transformers"))),
    }

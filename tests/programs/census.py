"""Measure which classes of transformers isolate packed documents, and which can compute each token once.

`python -m tests.programs.census`.

Every causal language model and every encoder with a masked-language head is built with random weights, from its default
configuration with small sizes. `measure_packing` runs it with sdpa and with eager attention, `measure_once` with the
first of them. The results are written to docs/isolation.md, in eight minutes of CPU time.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import math
import re
import textwrap
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from hf_posenc import AttentionMask, ModelSpec
from hf_posenc.models import Probe
from hf_posenc.testing import PackingCheck, assert_once_equals_stock, measure_once, measure_packing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "isolation.md"
ATTENTIONS = ("sdpa", "eager")
MARK = "<!-- written by python -m tests.programs.census -->"
EXACT = 1e-5  # largest difference of an isolated document
VOCABULARY = 120

# Regular expressions for names of sizes in a configuration, with their largest values; the first match is used. HEAD
# stands for two sizes, which are tried in turn.
HEAD = 0
SIZES = [
    (r"position", 10**9),
    (r"vocab_size|vocab$", VOCABULARY),
    (r"group", 1),
    (r"attention_head_dim|mamba_.*head_?dim|mamba_d_head|qk_head_dim", 16),
    (r"head_?dim|d_head|d_kv|rope_dim|rotary_dim|_rank$|state_size|d_state|head_size", HEAD),
    (r"kv_heads|key_value_heads", 2),
    (r"index.*heads", 32),  # with fewer, scores are often zero, and the choice among equal ones is arbitrary
    (r"heads?$", 4),
    (r"per_tok|top_?k|moe_k|kv_shared|layer_period", 2),
    (r"layer_offset", 1),
    (r"layers?$|num_blocks|depth$|experts?$|window|attention_chunk_size|local_attention|block_size", 4),
    (r"intermediate|ffn|inner|mlp_.*size|hidden_dim|dff|attention_hidden_size", 64),
    (r"hidden_size|^d_|_embd|emb_dim|width|embed|(^|_)dim$|(bottleneck|embedding)_size", 32),
]
# Values for which a configuration has no default, or one that does not fit small sizes, by `model_type`.
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
VALUES: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "cohere_compass_text": {"rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), _ROPE)},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 2},
    "funnel": {"block_sizes": [1, 1], "num_decoder_layers": 1},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8}
    | {"indexer_budget": 4, "indexer_compress_ratio": 2},
    "qwen2_5_vl_text": {"rope_parameters": {**_ROPE, "mrope_section": [1, 1, 2]}},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8]},
    "xmod": {"default_language": "en_XX"},
}


def classes() -> list[type[Any]]:
    """Return the classes of the census; encoder-decoders are left out."""
    mappings = (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_MASKED_LM_MAPPING)
    every = dict.fromkeys(itertools.chain.from_iterable(mapping.values() for mapping in mappings))
    return [cls for cls in every if "decoder_input_ids" not in inspect.signature(cls.forward).parameters]


def small(config: Any, head: int, fill: bool) -> dict[str, Any]:
    """Return arguments that make a configuration small; with `fill`, also sizes that are None get a value."""
    values = dict(VALUES.get(config.model_type, {}))
    given = {name: value for name, value in vars(config).items() if name[0] != "_" and name not in values}
    for name, value in given.items():
        size = next((size or head for part, size in SIZES if re.search(part, name)), None)
        if "key_value_heads" in name and value == given.get("num_attention_heads"):
            size = 4
        if isinstance(value, transformers.PreTrainedConfig):
            values[name] = small(value, head, fill)
        elif isinstance(value, list) and len(value) > 4 and len(value) == given.get("num_hidden_layers"):
            kinds = list(dict.fromkeys(value)) if isinstance(value[0], str) else value  # one layer of each kind
            values[name] = (kinds * 4)[:4]
        elif re.search(r"_(id|index)$", name):
            if type(value) is int and value >= VOCABULARY:
                values[name] = VOCABULARY - 1 - len(values) % 20
        elif size is not None and ((type(value) is int and value > size) or (fill and value is None)):
            values[name] = size
    return values


def arguments(cls: type[Any], head: int, fill: bool) -> dict[str, Any]:
    """Return the arguments of a small configuration of a class; causal models get `is_decoder=True`."""
    default = cls.config_class()
    decodes = "MaskedLM" not in cls.__name__ and hasattr(default, "is_decoder") and not default.is_encoder_decoder
    return small(default, head, fill) | ({"is_decoder": True} if decodes else {})


def build(cls: type[Any], values: dict[str, Any], attention: str) -> Any:
    """Return a small model with weights that are large enough for differences to be seen."""
    model = cls(cls.config_class(**values, attn_implementation=attention)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:  # not tables of sinusoids
                noise = torch.randn(weight.shape, generator=generator)
                weight.copy_(0.2 * noise if weight.dim() > 1 else weight + 0.1 * noise)
    return model


class Measured(NamedTuple):
    """Results for a class, and its model."""

    check: PackingCheck
    model: Any


def measured(cls: type[Any], attention: str) -> Measured | str:
    """Measure a class in its first small configuration that runs, or return the reason why none does."""
    reasons = []
    for fill, head in itertools.product((False, True), (8, 16)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = build(cls, arguments(cls, head, fill), attention)
                check = measure_packing(model)
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        if check.rows.difference is not None or check.flat.state == "needs a kernel":
            return Measured(check, model)
        reasons.append(check.rows.reason)
    return reasons[0]


def mistakes(found: Measured) -> list[str]:
    """Return the layouts that were accepted although they leak, or refused although they do not, each with a reason."""
    check, probe, spec = found.check, Probe(found.model), ModelSpec.of(found.model)
    lengths = (3, 8, 3)  # the second document is longer than the windows
    ids = torch.from_numpy(probe.plain_ids[:14])[None]
    positions = torch.cat([torch.arange(length) for length in lengths])[None] + spec.first_position
    mask = AttentionMask.from_documents([lengths], look_ahead=spec.is_causal).additive(torch.float32)
    alone, other = (probe.run({"input_ids": each})[1][0] for each in (ids[:, 3:11], ids[:, [4, 3, *range(5, 11)]]))
    try:
        packed = probe.run({"input_ids": ids, "position_ids": positions, "attention_mask": mask})[1][0, 3:11]
        by_mask = float((packed - alone).abs().max() / alone.abs().max())
    except ValueError:
        by_mask = math.inf
    mixes = not probe.is_close(alone[-1], other[-1])  # MRA attends to nothing on the CPU
    wrong = []
    for name, layout, smallest in (("rows", check.rows, by_mask), ("flat", check.flat, check.flat.difference)):
        is_accepted = layout.state in ("isolated", "leaks")
        if is_accepted and not (layout.difference is not None and layout.difference <= EXACT):
            wrong.append(f"{check}: {name} leaks")
        if not is_accepted and mixes and smallest is not None and smallest <= EXACT:
            wrong.append(f"{check}: {name} is refused in error")
    return wrong


def mistakes_of_once(found: Measured) -> list[str]:
    """Return an error if a model that `compute_once` takes differs on rows that it did not compare."""
    probe, wrong = Probe(found.model), []
    rng = np.random.default_rng(7)
    start = rng.choice(probe.plain_ids, 13)
    rows = [np.append(start, rng.choice(probe.plain_ids, length)) for length in (7, 11, 2)]
    rows += [np.append(start[:6], rng.choice(probe.plain_ids, 6)), rng.choice(probe.plain_ids, 3), rows[0]]
    for left in (False, True):
        ids = np.full((6, 26), probe.padding_id)
        mask = np.zeros_like(ids)
        for row, places, seen in zip(rows, ids, mask, strict=True):
            part = slice(-len(row), None) if left else slice(len(row))
            places[part], seen[part] = row, 1
        batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of classes that are new in the list
                assert_once_equals_stock(found.model, batch)
        except Exception as error:
            wrong.append(f"{type(found.model).__name__}: {error}")
    return wrong


# Names of sizes that make attention differ from full attention, if they are smaller than the rows.
TINY = re.compile(r"window|chunk|local_attention|block|budget|compress|index.*top")


def differs_in_long_rows(cls: type[Any]) -> bool:
    """Return True if `compute_once` takes a class with the windows and the like of its default configuration."""
    for fill, head in itertools.product((False, True), (8, 16)):
        values = {name: value for name, value in arguments(cls, head, fill).items() if not TINY.search(name)}
        try:
            return measure_once(build(cls, values, "sdpa")) == "equal"
        except Exception:  # a size that does not fit, or no sdpa
            continue
    return False


Results = dict[type[Any], list[PackingCheck]]
Once = dict[type[Any], str]


def census() -> tuple[Results, Once, dict[type[Any], str], list[str]]:
    """Return the results of classes with each attention, and with `compute_once`, reasons for classes that were not
    measured, and all mistakes.
    """
    results: Results = {}
    once: Once = {}
    reasons: dict[type[Any], str] = {}
    wrong = []
    for cls in classes():
        for attention in ATTENTIONS:
            found = measured(cls, attention)
            if isinstance(found, str):
                reasons[cls] = found
            else:
                results.setdefault(cls, []).append(found.check)
                wrong += mistakes(found)
                if cls not in once:
                    once[cls] = measure_once(found.model)
                    if once[cls] == "equal":
                        wrong += mistakes_of_once(found)
                    elif differs_in_long_rows(cls):
                        wrong.append(f"{cls.__name__} is missing in UNSEEN of hf_posenc/models/once.py")
    return results, once, {cls: reason for cls, reason in reasons.items() if cls not in results}, wrong


# Classes that do not isolate in all layouts: the states of rows and of flat rows, and the words before the names.
OTHERS = {
    ("isolated", "impossible"): 'with `packing=True` only; `packing="flat"` is refused',
    ("impossible", "isolated"): 'with `packing="flat"` only; `packing=True` is refused',
    ("impossible", "needs a kernel"): "refused with `packing=True`; flat rows need a package that is missing here",
    ("impossible", "impossible"): "refused in both layouts, because documents would see each other",
}


# Reasons of `compute_once`, and the words before the names of the classes.
REFUSED = {
    r"outside of transformers": "attention reads the mask itself, outside of transformers' attention functions",
    r"computes attention itself": "attention does not come from transformers' attention functions",
    r"got none": "token ids do not come to the backbone, as in models of several inputs",
    r"bias|keys of": "attention adds a bias to pairs of tokens, or has other keys than the tokens",
    r"by their column": "queries are scaled by their column in long rows",
    r"differ": "outputs differ, such as those of recurrent layers and convolutions",
    r"": "another reason",
}


def tables(results: Results, once: Once, reasons: dict[type[Any], str]) -> str:
    """Return the results as Markdown: lists of the classes that isolate in all layouts, in one, and in none."""
    groups: dict[tuple[str, str], list[str]] = {}
    largest = 0.0
    for cls, checks in results.items():
        (states,) = {(check.rows.state, check.flat.state) for check in checks}  # the same with each attention
        name = cls.__name__.removesuffix("ForCausalLM")
        if states == ("isolated", "isolated"):
            name += " (eager)" * (len(checks) == 1)
            largest = max(largest, *(part.difference or 0.0 for each in checks for part in (each.rows, each.flat)))
        groups.setdefault(states, []).append(name)
    isolated = groups.pop(("isolated", "isolated"))
    lines = ["## Isolated in all layouts", ""]
    lines += [f"{len(isolated)} classes; the largest difference is {largest:.1g}. Names without `ForCausalLM`;"]
    lines += ["(eager) marks classes that have this attention only:", "", listed(isolated), "", "## Other classes", ""]
    for states, sentence in OTHERS.items():
        if names := groups.pop(states, []):
            lines += [f"{len(names)} {sentence}:", "", listed(names), ""]
    assert not groups, groups
    names = ", ".join(cls.__name__ for cls in reasons)
    lines += [textwrap.fill(f"Not measured, because they did not run on token ids alone: {names}.", 140), ""]
    lines += table_of_once(once)
    return "\n".join(lines).rstrip() + "\n"


def table_of_once(once: Once) -> list[str]:
    """Return the lines about `compute_once`: the classes that are equal, and those that are refused, by reason."""
    equal = [cls.__name__.removesuffix("ForCausalLM") for cls, state in once.items() if state == "equal"]
    text = f"""With [`compute_once`](compute-once.md), {len(equal)} classes give the outputs and gradients of the stock
model, on rows of 3 to 48 tokens with windows of 4:"""
    lines = ["## Each token once", "", textwrap.fill(text, 140), "", listed(equal), ""]
    refused: dict[str, list[str]] = {}
    for cls, state in once.items():
        if state != "equal":
            words = next(words for part, words in REFUSED.items() if re.search(part, state))
            refused.setdefault(words, []).append(cls.__name__.removesuffix("ForCausalLM"))
    lines += ["All others are refused, with the reason:", ""]
    for words in REFUSED.values():
        if words in refused:
            lines += [f"{len(refused[words])}: {words}:", "", listed(refused[words]), ""]
    return lines


def listed(names: Sequence[str]) -> str:
    """Return names in the order of the alphabet, in lines of at most 140 characters."""
    return textwrap.fill(", ".join(sorted(names, key=str.lower)) + ".", 140)


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    transformers.logging.set_verbosity_error()
    results, once, reasons, wrong = census()
    page = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{page}{MARK}\n\n{tables(results, once, reasons)}", encoding="utf-8")
    print(f"{len(results)} of {len(results) + len(reasons)} classes, {time.process_time():.0f} s of CPU time")
    equal = sorted({cls.config_class.model_type for cls, state in once.items() if state == "equal"})
    print("MEASURED of hf_posenc/models/once.py:", *equal)
    print(*wrong, sep="\n")


if __name__ == "__main__":
    main()

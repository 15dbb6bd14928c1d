"""`compute_once`: a Hugging Face model that computes each token of a stock batch once, whatever the trainer.

The forward of the backbone is replaced on the object. Outputs, losses and gradients stay those of the stock model: this
is compared when it is installed, and a model that differs is refused.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from .._common.compat import (
    attention_implementation,
    is_partitioned,
    is_replica,
    set_attention_implementation,
    wrap_attention,
)
from .._common.constants import IGNORED, PaddingSide
from .._common.errors import counted, shorten, value_error, warn
from ..ragged import Ragged
from .mask_support import FLAT_KEYS
from .probe import Probe, is_unchanged, unchanged
from .properties import configurations, configured_length, is_hugging_face, not_a_model, takes_use_cache
from .segments import (
    AS_IT_IS,
    Ints,
    Plan,
    SegmentMask,
    Sharing,
    add_blind,
    attend,
    current_plan,
    is_flash,
    make_mask,
    plan_rows,
)

Numbering = Literal["depth", "columns", "ids"] | None

# Arguments in which tokens can differ, and those of flat rows.
_PER_TOKEN = ("input_ids", "position_ids", "token_type_ids")
_FLAT = tuple(name for name in FLAT_KEYS if name not in _PER_TOKEN)

# Model types whose classes were compared in configurations with tiny windows, choices of keys and the like, by
# `python -m tests.programs.census`: the comparison of `compute_once` cannot see attention to the best 2,048 keys.
MEASURED = """
    afmoe albert apertus apertus1p5_text arcee aria_text axk1 beam bert bert-generation biogpt bitnet camembert
    codegen cohere cohere2 cohere2_moe cohere_compass_text ctrl cwm data2vec-text dbrx deepseek_v2 deepseek_v3
    diffllama distilbert dots1 electra emu3_text_model ernie ernie4_5 ernie4_5_moe esm esmc eurobert exaone4
    exaone_moe flex_olmo flint gemma gemma2 gemma3 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4
    glm4_moe glm4_moe_lite got_ocr2 gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite granite_swa granitemoe
    granitemoe_swa granitemoeshared gte helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax jais2
    jetmoe jina_embeddings_v3 kolibri1 laguna llama longcat_flash mellum mimo_v2_flash minicpm3 minimax_m2
    minimax_m3_vl_text ministral ministral3 mistral mixtral mllama_text_model modernbert modernbert-decoder
    modernvbert moshi moss_transcribe_diarize nanochat nemotron neomme nomic_bert olmo olmo2 olmo3 olmoe opt
    persimmon phi phi3 phi4_multimodal phimoe qwen2 qwen2_moe qwen3 qwen3_moe roberta roberta-prelayernorm roc_bert
    seed_oss smollm3 solar_open stablelm starcoder2 ultrabert ultravbert vaultgemma whisper xlm-roberta
    xlm-roberta-xl xmod youtu
"""

# Model types that differ in such configurations alone, with the reason.
UNSEEN = {"llama4_text": "queries are scaled by their column, from column 8,192 on"}

_LARGEST_SHARE = 0.95  # of the places of a batch: if more tokens differ, the call runs as before
_CLOSE = 2e-5  # largest difference of equal outputs, relative to the largest value of the output
_LARGEST_TWIN = 10**9  # parameters

# Labels with a value for each place, in the call of the whole model that runs.
_labels: ContextVar[tuple[torch.Tensor, ...]] = ContextVar("labels", default=())


class Tokens(NamedTuple):
    """Numbers of tokens, summed over the calls that had a plan.

    Args:
        given (`int`): places of the batches, padding included.
        real (`int`): tokens of the batches.
        computed (`int`): tokens that the backbone computed; all places in a call that ran as before.
    """

    given: int = 0
    real: int = 0
    computed: int = 0


class _Way(NamedTuple):
    """Way in which the calls of a model are computed, as the comparison with the stock model found it."""

    shares: Sharing = "beginnings"
    numbering: Numbering = None  # of positions, if a call gives none
    takes_left: bool = True  # left padding
    blind: Literal["none", "labelled", "all"] = "none"  # rows for which the padding before the first token is computed


class _AsBefore(Exception):
    """Reason why a call runs as before."""


def compute_once(model: Any, *, share: bool | None = None) -> ComputedOnce:
    r"""Make a Hugging Face model compute each token of a stock batch once, in any trainer or loop.

    The backbone computes no padding, no beginning that rows share (in causal models), no row twice (in encoders), and
    no mask of T×T: its tokens stand in one row, and each attends to the tokens of its own row. Padded batches, and flat
    rows with `cu_seq_lens_q`, go in as before, and stock outputs come out: logits, hidden states, router logits, losses
    and gradients, with zeros at padding. Class, configuration, weights, `state_dict` and saved files do not change.

    Two tokens count as one only if their ids, positions and token types, and those of all tokens before them, are
    equal. A call that cannot be computed so, or gains less than 5 %, runs as before: `print(once)` shows the reasons.
    In training with dropout, rows share nothing unless `share` is True, because each row has noise of its own.

    When it is installed, the outputs of the whole given model are compared with those that it had before, for padded
    batches of up to 48 tokens a row, in evaluation mode and float32. Weights in half precision are converted for this
    time, which needs memory for them. A model with quantized, offloaded or meta weights is compared as a model of the
    same configuration with random weights, on the CPU, with two layers of each kind and 1,024 token ids.

    It cannot see code outside of the given model that reads outputs at padding, nor label smoothing and
    `compute_loss_func` of `Trainer`, which take labels out of a batch: labels must be -100 at padding there. A hook on
    a layer inside the backbone gets `(1, N, D)`. Call it before `fully_shard` and before `torch.compile`.

    Args:
        model (`nn.Module`): a Hugging Face model, or a module that contains one, such as a PEFT model or a
            `SentenceTransformer`. Changed in place.
        share (`bool`, *optional*): True lets rows share tokens in training with dropout too, so that they share the
            noise; False, the initial value, does not. A later call with `share` changes it.

    Returns:
        `ComputedOnce`, for `print`, with `tokens` (given, real, computed) and `remove()`. A second call for the same
        model returns the same object.

    Raises:
        TypeError: if `model` does not contain a Hugging Face model.
        ValueError: if the model's outputs differ, with the reason; the model is then left unchanged. Encoder-decoders,
            models with several inputs and prompt tuning are refused, as are heads whose loss reads padding.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=90, **sizes))
        >>> once = compute_once(model)
        >>> ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 3, 0]])                      # a pair with a shared prompt
        >>> out = model(input_ids=ids, attention_mask=(ids > 0).long(), labels=ids.masked_fill(ids == 0, -100))
        >>> once.tokens
        Tokens(given=10, real=9, computed=6)
        >>> once.remove()
    """
    head, base = _parts(model)
    found = vars(base).get("forward")
    once = found.once if isinstance(found, _Forward) else ComputedOnce(model)
    is_measured = type(base).__module__.startswith("transformers.") and head.config.model_type in MEASURED.split()
    if not isinstance(found, _Forward) and not is_measured:
        warn(
            f"{type(base).__name__} gives its stock outputs for rows of up to 48 tokens; longer ones were not "
            "measured for this class, which may for example attend only to its best 2,048 keys",
            got="a class that is not in docs/isolation.md",
            fix="hf_posenc.testing.assert_once_equals_stock(model, batch) with your longest rows",
        )
    if share is not None:
        once.share = share
    return once


class ComputedOnce:
    """Result of `compute_once`; `print` shows its counts and the reasons of calls that ran as before.

    Args:
        tokens (`Tokens`): numbers of tokens (given, real, computed), summed over calls.
        calls (`int`): calls whose tokens were computed once.
        reasons (`Counter`): number of calls that ran as before, by reason.
        share (`bool`): True if rows share tokens in training with dropout, too.
    """

    def __init__(self, model: Any) -> None:
        self._head, self._base = _parts(model)
        self._pooler = getattr(self._base, "pooler", None)
        self._names = list(inspect.signature(type(self._base).forward).parameters)[1:]
        self.share, self.calls, self.tokens = False, 0, Tokens()
        self.reasons: Counter[str] = Counter()
        self._is_compiled, self._is_compared = False, True
        self._way = _Way()
        # They depend on absolute positions, or the largest position of a batch, also of its padding.
        rotary = str(getattr(self._base.config, "rope_parameters", None))
        self._scales_by_length = bool(re.search("dynamic|longrope|llama_4", rotary))
        _refuse_by_name(self._head)
        small = _twin(self._head)
        comparison = None if small is not None else _Comparison(model, self._head)
        self._attentions = wrap_attention(attend, make_mask)
        self._install()
        try:
            self._way = ComputedOnce(small)._way if comparison is None else comparison.way(self)
        except BaseException:
            self.remove()
            raise
        self.calls, self.tokens, self._is_compared = 0, Tokens(), False
        self.reasons.clear()

    def _install(self) -> None:
        self._is_on = True
        self._base.forward = _Forward(self, self._base, "_backbone")
        if self._head is not self._base:
            self._head.forward = _Forward(self, self._head, "_whole")
        self._hooks = [part.register_forward_pre_hook(_refuse_replica) for part in {self._head, self._base}]
        if self._pooler is not None:
            self._hooks.append(self._pooler.register_forward_pre_hook(_pool_rows))

    def remove(self) -> None:
        """Give the model its own forward back; a second call does nothing."""
        self._is_on = False  # if another library has wrapped the forward since
        for module in (self._head, self._base):
            if isinstance(forward := vars(module).get("forward"), _Forward):
                del module.forward
                if forward.own is not None:
                    module.forward = forward.own
        while self._hooks:
            self._hooks.pop().remove()

    def __repr__(self) -> str:
        given, real, computed = self.tokens
        lines = [
            f"compute_once({type(self._head).__name__}): {counted(self.calls, 'call')}, "
            f"tokens: {given:,} given, {real:,} real, {computed:,} computed"
        ]
        lines += [f"  as before, {counted(number, 'call')}: {why}" for why, number in self.reasons.items()]
        if self._is_compiled:
            lines.append("  as before, all calls in torch.compile, torch.export and tracing, which gain nothing")
        return "\n".join(lines)

    def _whole(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the model with its head; the backbone finds the labels in `_labels`."""
        names = inspect.signature(type(self._head).forward).parameters
        given = {**dict(zip(names, (self._head, *args), strict=False)), **kwargs}
        found = [value for name, value in given.items() if "label" in name and isinstance(value, torch.Tensor)]
        token = _labels.set(tuple(value for value in found if value.dim() == 2))
        try:
            return stock(*args, **kwargs)
        finally:
            _labels.reset(token)

    def _backbone(self, stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the backbone on the tokens of a plan, in one row, and put its outputs back."""
        kwargs = {**dict(zip(self._names, args, strict=False)), **kwargs}
        try:
            plan, names = self._planned(kwargs)
        except _AsBefore as reason:
            if self._is_counted:
                self.reasons[str(reason)] += 1
            return stock(**kwargs)
        plan.to(kwargs["input_ids"].device)
        kwargs = {name: value for name, value in kwargs.items() if name not in _FLAT}
        kwargs |= {name: plan.tokens[None, :, column] for column, name in enumerate(names)}
        kwargs["attention_mask"] = torch.ones_like(plan.tokens[None, :, 0])  # without one, documents are looked for
        if takes_use_cache(self._base, self._base.config):
            kwargs["use_cache"] = False
        token = current_plan.set(plan)
        try:
            out = stock(**kwargs)
        finally:
            current_plan.reset(token)
        if not plan.is_used:
            got = f"{type(self._base).__name__}, which computes attention itself"
            raise value_error("attention must come from the attention functions of transformers", got=got, fix=AS_IT_IS)
        return plan.put_back_all(out)

    # ------------------------------------------------------------------------------------------- the plan of a call

    def _planned(self, given: dict[str, Any]) -> tuple[Plan, list[str]]:
        """Return the plan of a call and the names of its columns; raise `_AsBefore` if the call runs as before."""
        ids, mask = self._read(given)
        shape = (len(ids), ids.shape[1])
        columns = {"input_ids": ids}
        for name in _PER_TOKEN[1:]:
            if (value := given.get(name)) is not None:
                if value.dim() != 2 or value.shape[1] != shape[1]:
                    raise _AsBefore(f"{name} of another shape")
                columns[name] = np.broadcast_to(value.cpu().numpy(), shape)
        blind = np.zeros(shape[0], bool)
        is_flat = given.get("cu_seq_lens_q") is not None
        if is_flat:
            lengths = _document_lengths(given["cu_seq_lens_q"].cpu().numpy(), mask)
        else:
            lengths = mask.sum(axis=1)
            blind = self._checked(mask, columns.get("position_ids"))
        if "position_ids" not in columns and self._way.numbering is not None:
            columns["position_ids"] = self._numbered(ids, mask, lengths if is_flat else None)
        table = np.stack(list(columns.values()), axis=2)  # (B, T, C)
        rows = np.split(table[mask], np.cumsum(lengths)[:-1])
        is_noisy = self._base.training and not self.share and self._drops()
        plan = plan_rows(rows, np.flatnonzero(mask), shape, None if is_noisy else self._way.shares)
        if blind.any():
            before = mask.argmax(axis=1)[blind] - 1
            add_blind(plan, table[blind, before], np.flatnonzero(blind) * shape[1] + before)
        is_quick = is_flat or self._is_compared or len(plan.tokens) <= _LARGEST_SHARE * mask.size
        if self._is_counted:
            counts = (mask.size, int(mask.sum()), len(plan.tokens) if is_quick else mask.size)
            self.tokens = Tokens(*(one + other for one, other in zip(self.tokens, counts, strict=True)))
        if not is_quick:
            raise _AsBefore(f"more than {_LARGEST_SHARE:.0%} of the places hold different tokens")
        self.calls += self._is_counted
        return plan, list(columns)

    @property
    def _is_counted(self) -> bool:  # runs by which this package examines a model are not
        return self._is_compared or not is_unchanged.get()

    def _read(self, given: Mapping[str, Any]) -> tuple[Ints, Any]:
        """Return the ids `(B, T)` int64 and the mask `(B, T)` bool of a call; raise `_AsBefore` if it has others."""
        config, ids, mask = self._base.config, given.get("input_ids"), given.get("attention_mask")
        name = attention_implementation(config)
        if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.is_meta:
            raise _AsBefore("no input_ids (B, T)")
        if name not in self._attentions and not is_flash(name):
            raise _AsBefore(f"attention {name}")
        if given.get("use_cache") and not torch.is_grad_enabled() and not self._is_compared:  # generation
            raise _AsBefore("use_cache=True without gradients")
        known = ("attention_mask", *_PER_TOKEN, *(_FLAT if given.get("cu_seq_lens_q") is not None else ()))
        for argument, value in given.items():
            has_one_value = isinstance(value, bool | int | float | str) or (torch.is_tensor(value) and not value.dim())
            if value is not None and not has_one_value and argument not in known:
                raise _AsBefore(f"argument {argument}")
        returned = {argument: given.get(argument) for argument in ("output_attentions", "output_router_logits")}
        returned = {name: getattr(config, name, False) if on is None else on for name, on in returned.items()}
        if returned["output_attentions"] or (returned["output_router_logits"] and given.get("return_dict") is False):
            raise _AsBefore("output_attentions, or output_router_logits in a tuple")
        if self._base.training and hasattr(self._base.get_input_embeddings(), "neftune_noise_alpha"):
            raise _AsBefore("NEFTune")
        mask = torch.ones_like(ids) if mask is None else mask
        if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape:
            raise _AsBefore("an attention_mask that is not (B, T)")
        # One copy, because each waits for an accelerator.
        token_ids, is_one, is_set = torch.stack([ids.long(), (mask == 1).long(), (mask != 0).long()]).cpu().numpy()
        if not np.array_equal(is_one, is_set) or not is_one.any():
            raise _AsBefore("an attention_mask of other values than 0 and 1, or without a token")
        return token_ids, is_one == 1

    def _checked(self, mask: Any, position_ids: Any) -> Any:
        """Return `(B,)` bool: rows whose loss reads the output of the padding before their first token."""
        is_left = ~mask[:, 0] & mask.any(axis=1)
        if position_ids is not None and (np.diff(position_ids)[mask[:, 1:] & mask[:, :-1]] != 1).any():
            raise _AsBefore("position_ids that do not go up by one")
        if ((mask[:, 1:] != mask[:, :-1]).sum(axis=1) + mask[:, 0] > 2).any():
            raise _AsBefore("padding between the tokens of a row")
        if self._scales_by_length and (is_left.any() or mask.shape[1] > mask.sum(axis=1).max()):
            raise _AsBefore("rotary positions scaled by the length of the padded rows")
        if is_left.any() and (self._pooler is not None or not self._way.takes_left):
            raise _AsBefore("left padding")
        blind = is_left & (self._way.blind == "all")
        for labels in _labels.get():
            if labels.shape == mask.shape:
                is_target = labels.cpu().numpy() != IGNORED
                if is_target[~mask].any():
                    raise _AsBefore(f"labels other than {IGNORED} at padding")
                blind |= is_left & is_target[np.arange(len(mask)), mask.argmax(axis=1)]
        is_sdpa = attention_implementation(self._base.config) == "sdpa"
        if blind.any() and (self._way.blind == "none" or not is_sdpa):
            raise _AsBefore("a label of the first token after left padding")
        return blind

    def _numbered(self, ids: Ints, mask: Any, lengths: Ints | None) -> Any:
        """Return the positions `(B, T)` that the stock forward uses without `position_ids`; `lengths` of a flat row."""
        padding, numbering = getattr(self._base.config, "pad_token_id", None) or 0, self._way.numbering
        if lengths is not None:
            first = padding + 1 if numbering == "ids" else 0
            return np.concatenate([np.arange(first, first + length) for length in lengths])[None]
        if numbering == "columns":
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        if numbering == "ids":
            return (ids != padding).cumsum(axis=1) * (ids != padding) + padding
        return np.maximum(mask.cumsum(axis=1) - 1, 0)

    def _drops(self) -> bool:
        """Return True if a dropout is above 0: then two rows have noises of their own."""
        # Some models read these from their configuration in each forward.
        found = [getattr(self._base.config, name, 0) for name in ("attention_dropout", "hidden_dropout", "dropout")]
        for module in (module for module in self._base.modules() if module.training):
            found.append(module.p if "Dropout" in type(module).__name__ and hasattr(module, "p") else 0)
            found += [value for name, value in vars(module).items() if "drop" in name or "jitter" in name]
        return any(isinstance(value, float) and value > 0 for value in found)


def _document_lengths(offsets: Ints, mask: Any) -> Ints:
    """Return the lengths of the documents in a flat row; raise `_AsBefore` if `offsets` do not divide one row."""
    lengths = np.diff(offsets)
    if len(mask) != 1 or not mask.all() or offsets[0] or (lengths < 0).any() or lengths.sum() != mask.size:
        raise _AsBefore("cu_seq_lens_q that do not divide one row")
    return lengths[lengths > 0]


class _Forward:
    """Forward of a module in the place of its own one; copies and pickles of the module have one of their own."""

    # Not a hook: sentence-transformers calls `model.forward` itself.
    def __init__(self, once: ComputedOnce, module: nn.Module, run: str) -> None:
        self.once, self.module, self.run = once, module, run
        self.own = vars(module).get("forward")  # of another library, such as accelerate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            self.once._is_compiled = True
        elif self.once._is_on:
            return getattr(self.once, self.run)(self.stock, *args, **kwargs)
        return self.stock(*args, **kwargs)

    def stock(self, *args: Any, **kwargs: Any) -> Any:
        # A bound method kept here would be this forward in a copy of the module.
        return self.own(*args, **kwargs) if self.own else type(self.module).forward(self.module, *args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        wrap_attention(attend, make_mask)  # in another process

    @property
    def __wrapped__(self) -> Any:  # for `inspect.signature`
        return self.own or type(self.module).forward.__get__(self.module)

    @property
    def __code__(self) -> Any:  # for `torch.export`
        return self.__wrapped__.__code__


def _refuse_replica(module: nn.Module, _: Any) -> None:
    if is_replica(module):
        raise value_error(
            "torch.nn.DataParallel would run the weights of the first device on every device",
            got=f"a replica of {type(module).__name__}",
            fix="torchrun --nproc-per-node=2 train.py, one process for each device; or CUDA_VISIBLE_DEVICES=0",
        )


def _pool_rows(_: nn.Module, args: Any) -> Any:
    plan = current_plan.get()
    return args if plan is None else (plan.put_back_all(args[0]), *args[1:])


def _parts(model: Any) -> tuple[Any, Any]:
    """Return the Hugging Face model in `model`, with its heads, and its backbone, which gets the token ids."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    head: Any = next((module for module in modules if is_hugging_face(module)), None)
    if head is None:
        raise not_a_model("compute_once takes a Hugging Face model, or a module that contains one", model)
    base = head
    while getattr(base, "base_model", base) is not base:
        base = base.base_model
    while len(inside := [module for module in base.children() if is_hugging_face(module)]) == 1:
        base = inside[0]  # the heads of OPT call its decoder
    return head, base


def _refuse_by_name(head: Any) -> None:
    configs = list(configurations(head.config))
    unseen = next((UNSEEN[config.model_type] for config in configs if config.model_type in UNSEEN), None)
    if any(config.is_encoder_decoder for config in configs):
        rule, got, fix = "an encoder-decoder is not computed once", type(head).__name__, "a decoder or an encoder alone"
    elif "start_positions" in inspect.signature(type(head).forward).parameters:
        rule, got = "the loss of question answering reads padding", type(head).__name__
        fix = "compute_once(model.base_model), and a head of your own that masks padding"
    elif unseen is not None:
        rule, got, fix = "long rows would have other outputs when each token is computed once", unseen, "another model"
    else:
        return
    raise value_error(rule, got=got, fix=f"{fix}; or {AS_IT_IS}")


# ------------------------------------------------------------------------------------- comparison with the stock model


class _Comparison:
    """Outputs of a whole stock model, which the model must return when it computes tokens once.

    They are taken before anything is changed: for padded batches with shared beginnings and equal rows, padded right
    and left, in evaluation mode and float32.
    """

    def __init__(self, model: nn.Module, head: Any) -> None:
        self.model, self.head = model, head
        probe = Probe(head)
        rng = np.random.default_rng(0)
        some = rng.permutation(probe.plain_ids)[:64]
        names = [f"{name}_token_id" for name in ("mask", "bos", "eos", "cls", "sep")]
        found = [getattr(head.config, name, None) for name in names]
        count = 0 if probe.input_table is None else len(probe.input_table)
        special = [token for token in found if type(token) is int and 0 <= token < count]
        room = configured_length(head.config)
        longer = 30 if room is None else min(30, room - 24)  # below 0 for tables of fewer than 24 positions
        self.batches: dict[PaddingSide, list[dict[str, torch.Tensor]]] = {"right": [], "left": []}
        for more in (min(longer, 0), longer):
            lengths = [max(2, length) for length in (14 + more, 18 + more, 12 + more, 11 + min(more, 0), 7 + more)]
            rows = [rng.choice(some[9:] if len(some) > 18 else some, length) for length in lengths]
            for row, shared in zip(rows, (9, 9, 9, 5), strict=False):
                count = max(1, shared + min(more, 0))
                row[:count] = some[:count]
            rows[-1][1:] = [*special, *rows[-1][1:]][: len(rows[-1]) - 1]  # ESM scales a row by its mask tokens
            ragged = Ragged.from_rows([*rows, rows[1]])
            for side, batches in self.batches.items():
                ids, mask = ragged.pad(probe.padding_id, side=side), ragged.inside(side=side).astype(np.int64)
                batch = {"input_ids": ids, "attention_mask": mask}
                batches.append({name: torch.from_numpy(x).to(probe.device) for name, x in batch.items()})
        with _in_float32(model, head):
            self.call = self._working_call()
            self.stock = {side: [self.call(b) for b in batches] for side, batches in self.batches.items()}

    def _working_call(self) -> Callable[[dict[str, torch.Tensor]], Any]:
        """Return the first way to call the model, or the Hugging Face model inside, that raises no error."""
        errors = []
        calls: tuple[Callable[[Any, dict[str, torch.Tensor]], Any], ...] = (
            lambda model, batch: model(**batch),
            lambda model, batch: model(dict(batch)),  # sentence-transformers
            lambda model, batch: model(**{name: x.view(2, 3, -1) for name, x in batch.items()}),  # multiple choice
        )
        for model, call in itertools.product(dict.fromkeys((self.model, self.head)), calls):
            try:
                call(model, self.batches["right"][0])
                return functools.partial(call, model)
            except Exception as error:  # any error, of a model with other inputs
                errors.append(f"{type(error).__name__}: {shorten(str(error), 120)}")
        rule = "compute_once compares a model on input_ids and attention_mask, and it does not run on them alone"
        raise value_error(rule, got=errors[0], fix=AS_IT_IS)

    def way(self, once: ComputedOnce) -> _Way:
        """Return the first way in which `once` gives the stock outputs; raise if there is none."""
        reasons, best = [], None
        numberings: tuple[Numbering, ...] = ("depth", "columns", "ids", None)
        numberings = numberings if "position_ids" in once._names else (None,)
        sharings: tuple[Sharing, ...] = ("beginnings", "rows")
        with _in_float32(self.model, self.head):
            for shares, numbering in itertools.product(sharings, numberings):
                once._way, once.calls = _Way(shares, numbering), 0
                try:
                    right, left = self._difference("right"), self._difference("left")
                except Exception as error:  # any error, of a model that does something else with masks and tokens
                    reason = getattr(error, "got", None) or f"{type(error).__name__}: {shorten(str(error), 120)}"
                    reads_mask = SegmentMask.__name__ in str(error)
                    reasons.append("a mask that is read outside of transformers' attention" if reads_mask else reason)
                    continue
                if not once.calls:
                    got = f"{type(once._base).__name__} got none: {', '.join(once.reasons)}"
                    raise value_error("batches of token ids must come to the backbone", got=got, fix=AS_IT_IS)
                if right <= _CLOSE and (left <= _CLOSE or best is None):
                    best = once._way._replace(takes_left=left <= _CLOSE)
                if max(right, left) <= _CLOSE:
                    break
                reasons.append(f"outputs that differ by {max(right, left):.1g}")
            if best is None:
                rule = f"{type(self.head).__name__} does not return its own outputs when each token is computed once"
                raise value_error(rule, got=reasons[-len(numberings)], fix=AS_IT_IS)
            if best.shares == "beginnings" and best.takes_left:
                once._way = best._replace(blind="all")
                is_equal = self._difference("left", with_blind=True) <= _CLOSE
                best = best._replace(blind="labelled" if is_equal else "none")
        return best

    def _difference(self, side: PaddingSide, *, with_blind: bool = False) -> float:
        """Return the largest difference to a stock output, relative to that output.

        With `with_blind`, the last padding before a row is compared, too.
        """
        differences = []
        for batch, stock in zip(self.batches[side], self.stock[side], strict=True):
            keep = batch["attention_mask"].bool()
            if with_blind:
                keep = keep | torch.nn.functional.pad(keep[:, 1:], (0, 1))
            differences.append(largest_difference(at_tokens(stock, keep), at_tokens(self.call(batch), keep)))
        return max(differences)


@contextmanager
def _in_float32(model: nn.Module, head: Any) -> Iterator[None]:
    """Run a model in evaluation mode and float32, and restore it: in bfloat16, a leak looks like rounding."""
    tensors = (*model.parameters(), *model.buffers())
    halves = [(tensor, tensor.data) for tensor in tensors if tensor.dtype in (torch.bfloat16, torch.float16)]
    device = next(head.parameters()).device.type
    with ExitStack() as stack:
        stack.enter_context(unchanged(nn.ModuleList([model])))
        stack.enter_context(unchanged(head))  # its configuration, too
        for config in configurations(head.config):
            if is_flash(attention_implementation(config)):  # it takes no float32
                set_attention_implementation(config, "sdpa")
        for tensor, data in halves:
            stack.callback(setattr, tensor, "data", data)
            tensor.data = data.float()
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device, enabled=False))
        yield


def at_tokens(out: Any, keep: torch.Tensor) -> list[torch.Tensor]:
    """Return all floating-point tensors of a model's output; those with a value for each place at `keep` `(B, T)`."""
    if isinstance(out, torch.Tensor):
        if out.shape[:2] == keep.shape:
            out = out[keep]
        elif out.dim() == 2 and len(out) == keep.numel():  # router logits
            out = out[keep.flatten()]
        return [out] if out.is_floating_point() else []
    values = out.values() if isinstance(out, Mapping) else out if isinstance(out, tuple | list) else ()
    return [tensor for value in values for tensor in at_tokens(value, keep)]


def largest_difference(stock: list[torch.Tensor], ours: list[torch.Tensor]) -> float:
    """Return the largest difference of two outputs, each divided by the largest value of its tensor; inf for NaN."""
    if [one.shape for one in stock] != [other.shape for other in ours]:
        return math.inf
    pairs = [(one, other) for one, other in zip(stock, ours, strict=True) if one.numel()]
    found = [float((one - other).abs().max() / one.abs().max().clamp(min=1e-6)) for one, other in pairs]
    return max((math.inf if math.isnan(difference) else difference for difference in found), default=0.0)


def _twin(head: Any) -> Any:
    """Return a small model of the same class and configuration, if weights of `head` cannot be float32."""
    floats = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    weights = list(head.parameters())
    is_usual = all(x.dtype in floats and not x.is_meta and not is_partitioned(x) for x in weights)
    if is_usual and getattr(head.config, "quantization_config", None) is None:
        return None
    try:
        config = copy.deepcopy(head.config)
        count = config.num_hidden_layers
        kinds = getattr(config, "layer_types", None) or [None] * count
        layers = [layer for layer in range(count) if kinds[:layer].count(kinds[layer]) < 2]  # two of each kind
        for name, value in list(vars(config).items()):
            if isinstance(value, list) and len(value) == count:
                setattr(config, name, [value[layer] for layer in layers])
        config.num_hidden_layers, config.vocab_size = len(layers), min(config.vocab_size, 1024)
        config.dtype = torch.float32
        vars(config).pop("quantization_config", None)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            if not isinstance(value := getattr(config, name, None), int) or value >= config.vocab_size:
                setattr(config, name, None)
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in type(head)(config).parameters())
        if size > _LARGEST_TWIN:
            raise value_error(f"{size:,} parameters in {counted(len(layers), 'layer')}")
        with torch.device("cpu"), torch.random.fork_rng([]):
            return type(head)(config).eval()
    except Exception as error:
        raise value_error(
            "a model whose weights are quantized, offloaded or on the meta device is compared as a small model of the "
            "same configuration, which could not be built",
            got=f"{type(error).__name__}: {shorten(str(error), 120)}",
            fix=f"compute_once(model) before the weights are quantized or offloaded; or {AS_IT_IS}",
        ) from None

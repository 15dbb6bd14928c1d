"""Steps of training with `compute_once` beside stock.

Small models of four layers, 256 wide, on one core: preference pairs, groups of eight answers, rows of 8 to 384 tokens,
one flat row, and training steps of TRL's DPO if TRL is installed. Losses and gradients are compared first.
"""

from __future__ import annotations

import copy
import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from hf_posenc import compute_once

from .measuring import Case, must_equal, take_turns

IDS = 1000
SIZES = {"vocab_size": IDS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 768}
Batch = dict[str, Any]


def padded(rows: list[tuple[list[int], list[int]]]) -> Batch:
    """Return a batch padded on the right, with labels of the second part of each row."""
    shape = (len(rows), max(len(prompt + answer) for prompt, answer in rows))
    ids, labels = np.zeros(shape, np.int64), np.full(shape, -100)
    for number, (prompt, answer) in enumerate(rows):
        end = len(prompt + answer)
        ids[number, :end] = prompt + answer
        labels[number, len(prompt) : end] = answer
    arrays = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64), "labels": labels}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def batches() -> dict[str, Batch]:
    """Return batches of a seed: prompts with two and with eight answers, rows of 8 to 384 tokens, one flat row."""
    rng = np.random.default_rng(0)

    def some(length: int) -> list[int]:
        return rng.integers(5, IDS, length).tolist()

    def answers(prompts: int, each: int) -> Batch:
        several = [some(256 - 3 * number) for number in range(prompts)]
        return padded([(prompt, some(int(rng.integers(25, 51)))) for prompt in several for _ in range(each)])

    lengths = np.clip(rng.lognormal(4.3, 0.7, 24), 8, 384).astype(int).tolist()
    offsets = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    ids = torch.tensor([some(sum(lengths))])
    flat: Batch = {"input_ids": ids, "labels": ids.clone(), "use_cache": False}
    flat["position_ids"] = torch.cat([torch.arange(length) for length in lengths])[None]
    flat |= {"cu_seq_lens_q": offsets, "cu_seq_lens_k": offsets, "max_length_q": max(lengths)}
    flat |= {"max_length_k": max(lengths)}
    return {
        "pairs": answers(4, 2),
        "groups of 8": answers(2, 8),
        "rows of 8 to 384 tokens": padded([([], some(length)) for length in lengths[:16]]),
        "one flat row": flat,
    }


def step(model: Any, batch: Batch) -> torch.Tensor:
    """Return the loss and the gradients `(1 + P,)` of a model of P weights."""
    loss = model(**batch).loss
    made = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([loss.detach()[None], *(gradient.flatten() for gradient in made)])


def run(rounds: int) -> Iterator[Case]:
    """Compare three models on the batches that suit them, and steps of DPO."""
    llama = LlamaForCausalLM(LlamaConfig(**SIZES))
    gpt2 = GPT2Config(vocab_size=IDS, n_embd=256, n_layer=4, n_head=4, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0)
    bert = BertForMaskedLM(BertConfig(**SIZES, hidden_dropout_prob=0, attention_probs_dropout_prob=0))
    made = batches()
    for model, names in ((llama, [*made]), (GPT2LMHeadModel(gpt2), ["pairs", "groups of 8"]), (bert, [*made][2:3])):
        replaced = copy.deepcopy(model)
        once = compute_once(replaced)
        for name in names:
            case, before = f"{type(model).__name__}, {name}", once.tokens
            stock, ours = step(model, made[name]), step(replaced, made[name])
            given, _, computed = (now - then for now, then in zip(once.tokens, before, strict=True))
            largest = float((ours - stock).abs().max())
            print(
                f"{case}: {given:,} tokens, {computed:,} computed; losses and gradients differ by at most {largest:.1e}"
            )
            must_equal(case, (ours - stock).abs().max() < 1e-5, torch.tensor(True))
            runs: dict[str, Callable[[], object]] = {
                "stock model": lambda model=model, name=name: step(model, made[name]),
                "`compute_once`": lambda model=replaced, name=name: step(model, made[name]),
            }
            yield Case(case, take_turns(runs, rounds))
    if importlib.util.find_spec("trl"):
        trainers = {"stock model": dpo(replaced=False), "`compute_once`": dpo(replaced=True)}
        losses = [torch.tensor(train().training_loss) for train in trainers.values()]
        must_equal("DPO", (losses[0] - losses[1]).abs() < 1e-5, torch.tensor(True))
        yield Case("TRL's DPO, three steps", take_turns(trainers, rounds))


def dpo(*, replaced: bool) -> Callable[[], Any]:
    """Return a function that runs three steps of TRL's DPO with a Llama, at a learning rate of 0."""
    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[EOS]": 1} | {f"w{number}": number for number in range(2, IDS)}
    rust = Tokenizer(models.WordLevel(words, unk_token="[EOS]"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=rust, pad_token="[PAD]", eos_token="[EOS]")
    rng = np.random.default_rng(0)

    def texts(length: int) -> list[str]:
        return [" ".join(f"w{number}" for number in rng.integers(2, IDS, length)) for _ in range(12)]

    answers = {name: [f" {text}" for text in texts(32)] for name in ("chosen", "rejected")}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=1))
        if replaced:
            compute_once(model)
        options = {"disable_tqdm": True, "report_to": [], "save_strategy": "no", "use_cpu": True, "bf16": False}
        sizes = {
            "max_steps": 3,
            "per_device_train_batch_size": 4,
            "learning_rate": 0.0,
            "gradient_checkpointing": False,
        }
        trainer = trl.DPOTrainer(
            model,
            ref_model=copy.deepcopy(model),
            args=trl.DPOConfig(folder, **options, **sizes),
            train_dataset=Dataset.from_dict({"prompt": texts(200)} | answers),
            processing_class=tokenizer,
        )
    return trainer.train

"""Prompts with completions, as texts: their rows of token ids, with a mask of the tokens to train on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..documents import Limits
from .config import Config
from .inputs import Given


def tokenize_prompts(config: Config, given: Given) -> Given:
    r"""Return rows of `input_ids`, and `completion_mask` with 1 at the tokens of completions.

    Prompt and completion are tokenized together, with an eos token at the end. The completion begins where the ids
    differ from those of the prompt alone: a token of both is the completion's. An encoder-decoder reads the prompt, and
    the completion is its target. Prompts alone are texts, of which labels of next tokens have no token to train on.

    Source:
        The preprocessing of `SFTTrainer` in TRL 1.16, github.com/huggingface/trl.
    """
    prompts, completions = given.prompts, given.completions
    assert prompts is not None
    if config.has_targets:
        return replace(given, texts=prompts, targets=completions)
    if completions is None and not (config.label_kind is not None and config.label_kind.predicts_next):
        return replace(given, texts=prompts)
    eos, eos_id = config.tokenizer.eos_token or "", config.tokenizer.eos_token_id
    # Together: tokenized apart, tokenizers such as SentencePiece's put a word boundary before each completion.
    answers = [text if text.endswith(eos) else text + eos for text in completions or ()]
    whole = [prompt + answer for prompt, answer in zip(prompts, answers, strict=False)]
    ids = list(config.encoder.tokenize([*prompts, *whole], limits=Limits()).ids)
    rows, masks = ids[: given.count], []
    if completions is None:
        masks = [np.zeros(len(row), np.int64) for row in rows]
    else:
        alone, rows = rows, ids[given.count :]
        for number, prompt in enumerate(alone):
            if eos and (rows[number][-2:] == eos_id).sum() == 2:  # a tokenizer may add an eos token itself
                rows[number] = rows[number][:-1]
            length = min(len(rows[number]) - bool(eos), len(prompt))  # the eos token is never the prompt's
            common = int(np.append(rows[number][:length] != prompt[:length], True).argmax())
            masks.append((np.arange(len(rows[number])) >= common).astype(np.int64))
    return replace(given, columns={**given.columns, "input_ids": rows, "completion_mask": masks})

"""Translate dates into ISO form with `Seq2SeqTrainer`: "the third of May 1998" to 1998-05-03.

A small BART, trained from scratch, reads nineteen spellings of a date and writes one. Only order distinguishes 12. 11.
2010 from 11. 12. 2010, and the model's only positions are sinusoids: `use_sinusoidal_positions` writes them into the
tables of encoder and decoder, and freezes them. The score is the exact match of all characters that `generate` writes,
on dates that the training data do not contain in any spelling.

Run it with `python examples/05_translate_dates.py`: a few minutes on two CPU cores; `--short` trains for some seconds.
It downloads nothing: the dates are made here, and the tokenizer is trained on them.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from datetime import date, timedelta
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    EvalPrediction,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainerState,
    set_seed,
)
from transformers.trainer_utils import PredictionOutput

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe, use_sinusoidal_positions

SEED = 0
FIRST, LAST = date(1969, 1, 1), date(2068, 12, 31)  # '69 to '68, as strptime reads two digits
EXAMPLE = date(1998, 5, 3)
HELD_OUT = 100  # dates, each in every spelling
STEPS, BATCH = 1200, 64
TARGET_LENGTH = 12  # tokens: <s>, the ten characters of a date, </s>

# No spelling like 3/5/1998, which is ambiguous.
SPELLINGS = (
    "the {third} of {date:%B} {date:%Y}",
    "the {third} of {date:%B} '{date:%y}",
    "on the {third} day of {date:%B} {year}",
    "{date:%A}, the {third} of {date:%B} in the year {year}",
    "{date:%B} the {third}, {year}",
    "{date:%A} the {date.day}{th} of {date:%B}, {date:%Y}",
    "in {year}, on {date:%B} {date.day}{th}",
    "day {date.day} of month {date.month} of the year {date:%Y}",
    "{date:%B} {date.day}{th}, {date:%Y}",
    "{date.day} {date:%B} {date:%Y}",
    "{date:%a} {date.day} {date:%b} '{date:%y}",
    "{date:%b} {date.day}, '{date:%y}",
    "{date:%d}{date:%b}{date:%y}",
    "{date:%d}-{date:%b}-{date:%Y}",
    "{date.day} {roman} {date:%Y}",
    "{date.day}. {date.month}. {date:%Y}",
    "{date:%Y}, {date:%B} {date.day}",
    "{date:%Y}/{date:%m}/{date:%d}",
    "{date:%Y}{date:%m}{date:%d}",
)
WORDS = """
zero one two three four five six seven eight nine
ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety
zeroth first second third fourth fifth sixth seventh eighth ninth
tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
I II III IV V VI VII VIII IX X XI XII
"""
ONES, TEENS, TENS, FIRSTS, TENTHS, ROMAN = (line.split() for line in WORDS.strip().splitlines())
NUMBERS = [*ONES, *TEENS, *(f"{ten}-{one}".removesuffix("-zero") for ten in TENS for one in ONES)]
ORDINALS = [*FIRSTS, *TENTHS, "twentieth", *(f"twenty-{first}" for first in FIRSTS[1:]), "thirtieth", "thirty-first"]


def spelled(day: date, spelling: str) -> str:
    """Return a date in one spelling."""
    year = f"{NUMBERS[day.year // 100]} {NUMBERS[day.year % 100]}"  # "nineteen ninety-eight"
    if 2000 <= day.year < 2010:
        year = f"two thousand and {NUMBERS[day.year % 100]}".removesuffix(" and zero")
    return spelling.format(
        date=day,
        third=ORDINALS[day.day],
        th="th" if day.day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th"),
        year=year,
        roman=ROMAN[day.month - 1],
    )


def pairs(training: int) -> tuple[Dataset, Dataset]:
    """Return `training` rows of random dates and spellings, and the held-out dates in every spelling."""
    chance = random.Random(SEED)
    days = [FIRST + timedelta(n) for n in range((LAST - FIRST).days + 1)]
    days.remove(EXAMPLE)
    chance.shuffle(days)
    held_out, known = [EXAMPLE, *days[: HELD_OUT - 1]], days[HELD_OUT - 1 :]

    def rows(chosen: list[tuple[date, str]]) -> Dataset:
        texts = [spelled(day, spelling) for day, spelling in chosen]
        cased = [chance.choice((text, text, text.lower(), text.upper())) for text in texts]
        return Dataset.from_dict({"text": cased, "iso": [day.isoformat() for day, _ in chosen]})

    drawn = [(chance.choice(known), chance.choice(SPELLINGS)) for _ in range(training)]
    return rows(drawn), rows([(day, spelling) for day in held_out for spelling in SPELLINGS])


def new_model(tokenizer: PreTrainedTokenizerFast, d_model: int = 128) -> BartForConditionalGeneration:
    """Return a small BART: 2 + 2 layers, 0.75 million weights."""
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(tokenizer),
            d_model=d_model,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=2 * d_model,
            decoder_ffn_dim=2 * d_model,
            max_position_embeddings=64,
            dropout=0.0,  # a date seldom comes twice in one spelling: nothing to memorize
            # As in the paper: token embeddings start at 1/√d and are multiplied by √d, so sinusoids need no scale.
            init_std=d_model**-0.5,
            scale_embedding=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.eos_token_id,  # as in BART
            forced_eos_token_id=None,  # the model has to learn where to stop
        )
    )


class Progress(TrainerCallback):
    """A callback that prints a line for each evaluation."""

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, metrics: dict[str, float], **more: Any) -> None:
        print(f"{state.global_step:5}  {metrics['eval_loss']:13.4f}  {metrics['eval_exact_match']:11.3f}", flush=True)


def decoded(collate: DataCollatorWithPositionalEncoding, ids: np.ndarray) -> np.ndarray:
    """Decode token ids into an array of texts."""
    return np.array(collate.decode(ids))


def trained(
    model: BartForConditionalGeneration,
    collate: DataCollatorWithPositionalEncoding,
    train: Dataset,
    held_out: Dataset,
    steps: int,
) -> PredictionOutput:
    """Train, evaluating on some held-out rows; return what the model writes for all of them."""

    def exact_match(output: EvalPrediction) -> dict[str, float]:
        return {"exact_match": np.mean(decoded(collate, output.predictions) == decoded(collate, output.label_ids))}

    with tempfile.TemporaryDirectory() as folder:
        args = Seq2SeqTrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=200,
            learning_rate=2e-3,
            lr_scheduler_type="cosine",
            warmup_steps=steps // 10,
            predict_with_generate=True,
            generation_max_length=1 + TARGET_LENGTH,  # plus the token that the decoder starts with
            eval_strategy="steps",
            eval_steps=steps // 6,
            seed=SEED,
            remove_unused_columns=False,  # keeps the columns 'text' and 'iso', which the collator reads
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Seq2SeqTrainer(
            model,
            args,
            train_dataset=train,
            eval_dataset=held_out.shuffle(seed=SEED).select(range(200)),
            data_collator=collate,
            processing_class=collate.tokenizer,
            compute_metrics=exact_match,
            callbacks=[Progress()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer.predict(held_out)


def main(short: bool) -> None:
    torch.set_num_threads(1)  # more threads do not make a model this small faster
    began = time.perf_counter()
    steps = STEPS // 8 if short else STEPS
    train, held_out = pairs(training=steps * BATCH)

    # Trained on texts without digits, the tokenizer merges none: every digit is one token.
    tokenizer = train_bpe([re.sub(r"\d", " ", text) for text in train["text"]], vocab_size=400, progress=False)
    set_seed(SEED)
    model = new_model(tokenizer)
    print(use_sinusoidal_positions(model, recipe="paper"))
    collate = DataCollatorWithPositionalEncoding(
        tokenizer, model=model, text_column="text", text_target_column="iso", max_target_length=TARGET_LENGTH
    )

    print(" step  held-out loss  exact match")
    output = trained(model, collate, train, held_out, steps)

    dates = decoded(collate, output.predictions)
    right = dates == np.array(held_out["iso"])
    shares = right.reshape(HELD_OUT, len(SPELLINGS)).mean(axis=0)
    print(f"\n{HELD_OUT} held-out dates in {len(SPELLINGS)} spellings, the first of them:")
    for text, iso, share in zip(held_out["text"][: len(SPELLINGS)], dates, shares, strict=False):
        print(f"{text:58} → {iso}  exact match {share:.2f}")
    print(f"held-out exact match: {output.metrics['test_exact_match']:.4f}")
    print(f"{steps} steps, {time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="train for an eighth of the steps")
    main(parser.parse_args().short)

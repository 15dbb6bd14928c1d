"""Texts to padded tensors at every size: `python -m tests.programs.benchmarks.sizes` prints a table.

Batches of 1 to 1,024 texts of 10 and 2,000 words, in English and in other scripts, for four kinds of tokenizers, with
default settings of this package beside `tokenizer(texts, padding=True, return_tensors="pt")`, on one core.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe

from .measuring import bert, cpu_milliseconds, docstrings
from .text import IDS, llama

ROWS, WORDS = (1, 8, 64, 1024), (10, 2000)
# The first article of the Universal Declaration of Human Rights.
OTHER_SCRIPTS = (
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है",
    "人人生而自由 在尊严和权利上一律平等 他们赋有理性和良心 并应以兄弟关系的精神相对待",
    "すべての人間は 生れながらにして自由であり かつ 尊厳と権利とについて平等である",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi",
)


def unigram(texts: Sequence[str]) -> Any:
    """Return a Unigram tokenizer as SentencePiece makes them."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    rust = Tokenizer(models.Unigram())
    rust.normalizer, rust.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    rust.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=IDS, special_tokens=["<unk>", "<pad>"], unk_token="<unk>", show_progress=False
    )
    rust.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=rust, unk_token="<unk>", pad_token="<pad>")


def batch_of(words: Sequence[str], rows: int, length: int, generator: np.random.Generator) -> list[str]:
    """Return texts of about `length` random words."""
    lengths = generator.integers(length - length // 5, length + length // 5 + 1, rows)
    return [" ".join(generator.choice(words, size)) for size in lengths]


def ratio(peer: Any, ours: Any, batches: Sequence[list[str]], seconds: float) -> float:
    """Return how many times as long the peer takes: the median over turns of the two, for about `seconds`."""
    ratios: list[float] = []
    spent = 0.0
    while not ratios or (spent < seconds and len(ratios) < 200):
        times = [cpu_milliseconds(lambda call=call: [call(texts) for texts in batches]) for call in (peer, ours)]
        ratios.append(times[0] / times[1])
        spent += sum(times) / 1000
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.benchmarks.sizes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of CPU time for each figure")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    seen = docstrings()
    english, other = sorted({*" ".join(seen).split()}), " ".join(OTHER_SCRIPTS).split()
    english = [word for word in english if word.isascii()]
    texts = [*seen, *OTHER_SCRIPTS * 20]
    tokenizers = {
        "BERT": bert(),
        "byte-level BPE": train_bpe(texts, IDS, progress=False),
        "SentencePiece-BPE": llama(texts),
        "Unigram": unigram(texts),
    }
    generator = np.random.default_rng(0)
    print(f"| tokenizer | texts | {' | '.join(f'{rows:,}' for rows in ROWS)} | 64, `look_ahead=False` |")
    print("| --- | --- |" + " ---: |" * (len(ROWS) + 1))
    for name, tokenizer in tokenizers.items():
        tokenizer.model_max_length = 10**6
        collate = DataCollatorWithPositionalEncoding(tokenizer)
        without_mask = collate.replace(look_ahead=False)

        def call(batch: list[str], tokenizer: Any = tokenizer) -> Any:
            return tokenizer(batch, padding=True, return_tensors="pt")

        for length in WORDS:
            for script, words in (("ASCII", english), ("other scripts", other)):
                cells = []
                for rows, ours in [*((rows, collate) for rows in ROWS), (64, without_mask)]:
                    count = max(1, 64 // rows) if length == WORDS[0] else 1  # short batches together
                    batches = [batch_of(words, rows, length, generator) for _ in range(count)]
                    for batch in batches:
                        expected, found = call(batch), ours(batch)
                        if any(not torch.equal(expected[key], found[key]) for key in ("input_ids", "attention_mask")):
                            raise SystemExit(f"{name}, {length} words, {script}: other ids than tokenizer(...)")
                    value = ratio(call, ours, batches, given.seconds)
                    cells.append(f"{value:.1f}" if value < 10 else f"{value:.0f}")
                print(f"| {name} | {length:,} words, {script} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

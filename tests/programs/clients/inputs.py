"""Tiny untrained models, their tokenizers, and texts, in the folders and files that the scripts read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, set_seed

from hf_posenc import train_bpe

WORDS = ("I ride bike she said the house by the sea café", "awful dull grey cold", "fine lovely bright warm")
# Large weights, so that predictions of a model that has learned little differ.
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BERT = {**SIZES, "initializer_range": 0.2}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
BART = {
    "d_model": 32,
    "decoder_start_token_id": 0,
    **{f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 64))},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
}


def write_inputs(folder: Path) -> None:
    """Write one folder per model, and train, validation and test files. No config of a GPT-2 names its pad token."""
    draw = random.Random(0)
    common, *kinds = (words.split() for words in WORDS)
    rows = []
    for number in range(96):
        words = draw.choices(common, k=draw.randrange(2, 12)) + draw.choices(kinds[number % 2], k=3)
        draw.shuffle(words)
        rows.append({"sentence1": " ".join(words), "sentence2": draw.choice(words), "label": number % 2})
    glue = folder / "nyu-mll" / "glue"  # the name by which nlp_example asks for its data set
    glue.mkdir(parents=True)
    splits = {"train": rows[:64], "validation": rows[64:80], "test": rows[80:]}
    for name, part in splits.items():
        texts = [str(row["sentence1"]) for row in part]
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
        _write(folder / f"{name}.json", part)
        _write(glue / f"{name}.json", ({"idx": 0, **row} for row in part))
        pairs = ({"en": text, "de": " ".join(reversed(text.split()))} for text in texts)
        _write(folder / f"{name}.jsonl", ({"translation": pair} for pair in pairs))
        words = [text.split() for text in texts]
        _write(folder / "words" / f"{name}.json", ({"tokens": row, "tags": [word[0] for word in row]} for row in words))
        last = [{"text": row[-1:], "answer_start": [len(" ".join(row[:-1])) + 1]} for row in words]
        asked = zip(map(str, range(99)), (row["sentence2"] for row in part), texts, last)  # noqa: B905
        questions = [dict(zip(("id", "question", "context", "answers"), row, strict=True)) for row in asked]
        _write(folder / "answers" / f"{name}.json", [{"data": questions}])
    files = "".join(f"      - split: {name}\n        path: {name}.json\n" for name in splits)
    (glue / "README.md").write_text(f"---\nconfigs:\n  - config_name: mrpc\n    data_files:\n{files}---\n")

    tokenizer = train_bpe([str(row["sentence1"]) for row in rows], vocab_size=300)
    ids = {"vocab_size": len(tokenizer), "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    padded = {**ids, "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 64}
    set_seed(0)
    bert = AutoModelForMaskedLM.from_config(AutoConfig.for_model("bert", **padded, **BERT))
    gpt2 = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **ids, **GPT2))
    bart = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model("bart", **padded, **BART))
    models = {"bert": bert, "bert-base-cased": bert, "bart": bart, "gpt2": gpt2}
    for name, model in models.items():
        model.save_pretrained(folder / name)
        if name == "gpt2":  # the script needs no padding token
            tokenizer.pad_token = None
        tokenizer.save_pretrained(folder / name)


def _write(path: Path, rows: Iterable[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

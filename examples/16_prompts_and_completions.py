"""Fine-tune on prompts with completions as they lie in a file of TRL, and of axolotl, with `Trainer`.

Rows of `prompt` and `completion` are read by their names, and only completions have labels. Rows of `instruction`,
`input` and `output` raise an error with the line that makes prompts and completions of them; this script takes that
line. The trained model then answers the prompts.

Run it with `python examples/16_prompts_and_completions.py`: half a minute on two CPU cores. It downloads nothing.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from datasets import load_dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe

NOUNS = {"bike": "ride", "song": "sing", "book": "read", "soup": "eat", "tea": "drink", "car": "drive"}


def write_files(folder: Path) -> list[str]:
    """Write a file as TRL reads it and one as axolotl reads it, and return their names."""
    trl = [{"prompt": f"What do I do with a {noun}?", "completion": f" I {verb} it."} for noun, verb in NOUNS.items()]
    alpaca = [
        {"instruction": "Name the thing.", "input": f"I {verb} it.", "output": f"a {noun}"}
        for noun, verb in NOUNS.items()
    ]
    for name, rows in {"trl.jsonl": trl, "alpaca.jsonl": alpaca}.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [str(folder / "trl.jsonl"), str(folder / "alpaca.jsonl")]


def main() -> None:
    """Train on each file, and print what is trained on and what the model answers."""
    with tempfile.TemporaryDirectory() as folder:
        for name in write_files(Path(folder)):
            dataset = load_dataset("json", data_files=name, split="train", cache_dir=f"{folder}/cache")
            texts = [text for row in dataset for text in row.values()]
            tokenizer = train_bpe(texts, vocab_size=400, progress=False)
            collate = DataCollatorWithPositionalEncoding(tokenizer, labels="causal_lm", add_special_tokens=False)
            try:
                collate(dataset[:1])
            except ValueError as error:
                print(error)
                dataset = dataset.map(
                    lambda row: {
                        "prompt": "\n".join(filter(None, [row["instruction"], row["input"]])),
                        "completion": "\n" + row["output"],
                    },
                    remove_columns=["instruction", "input", "output"],
                )
            train(collate, dataset, folder)


def train(collate: DataCollatorWithPositionalEncoding, dataset: object, folder: str) -> None:
    """Train a small GPT-2 on prompts with completions, and let it answer the prompts."""
    set_seed(0)
    tokenizer = collate.tokenizer
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), n_embd=64, n_layer=2, n_head=2, n_positions=64, **ids)
    )
    collate = collate.replace(model=model)
    print("trained on:", collate.decode(collate(list(dataset))["labels"][0], skip_special_tokens=False))
    arguments = TrainingArguments(
        folder,
        max_steps=100,
        learning_rate=3e-3,
        remove_unused_columns=False,  # the texts reach the collator; or tokenize first, with dataset.map
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    Trainer(model, arguments, train_dataset=dataset, data_collator=collate, processing_class=tokenizer).train()
    right = 0
    model.eval()
    prompts = collate.replace(labels=None, padding_side="left")
    for row in dataset:
        batch = prompts([{"prompt": row["prompt"]}])
        written = model.generate(**batch, max_new_tokens=12, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        right += collate.decode(written)[0] == row["prompt"] + row["completion"]
    print(f"answers that are right: {right} of {len(dataset)}")


if __name__ == "__main__":
    main()

"""Train a small GPT-2 without padding, resume it, save it, load it again and generate text: one whole run.

`packing="flat"` and a budget of 128 tokens make the batches. The run evaluates and saves every 20 steps; if it is
stopped and started again in the same folder, it continues from its last checkpoint. The saved folder has the model,
the tokenizer and the settings of the collator. For prompts, five settings differ from training: no end token, padding
on the left, one prompt in a row, and no labels.

Run it with `python examples/13_train_and_generate.py [FOLDER]`: half a minute on two CPU cores, in a temporary folder
if none is given. It downloads nothing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, pipeline, set_seed
from transformers.trainer_utils import get_last_checkpoint

from hf_posenc import DataCollatorWithPositionalEncoding, TokenBudgetMixin, train_bpe, use_sinusoidal_positions


class BudgetTrainer(TokenBudgetMixin, Trainer, token_budget=128):
    """`Trainer` on batches of at most 128 tokens."""


def train(folder: Path) -> None:
    """Train for 60 steps, print the loss on held-out texts, and save model, tokenizer and collator to `trained`."""
    set_seed(0)
    texts = ["I ride bike", "bike ride I, she said"] * 50
    tokenizer = train_bpe(texts, vocab_size=300)
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=64, n_layer=2, n_head=2, n_positions=64, **ids)
    model = GPT2LMHeadModel(config)
    use_sinusoidal_positions(model)

    collate = DataCollatorWithPositionalEncoding(tokenizer, model=model, labels="causal_lm", packing="flat")
    dataset = Dataset.from_dict({"text": texts}).train_test_split(0.1, seed=0)
    tokenized = dataset.map(collate, batched=True, remove_columns="text")
    checkpoints = folder / "checkpoints"
    arguments = TrainingArguments(
        str(checkpoints),
        max_steps=60,
        gradient_accumulation_steps=2,  # documents of one batch have similar lengths
        learning_rate=3e-3,
        eval_strategy="steps",
        eval_steps=20,
        save_steps=20,
        prediction_loss_only=True,  # a flat row is not a row of the data set
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = BudgetTrainer(
        model,
        arguments,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized["test"],
        data_collator=collate,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(checkpoints)) if checkpoints.exists() else None)
    print(f"loss per label: {trainer.evaluate()['eval_loss']:.4f}")
    trainer.save_model(str(folder / "trained"))
    collate.save_pretrained(folder / "trained")


def generate(folder: Path) -> None:
    """Load what `train` saved, and continue two prompts, with `generate` and with a pipeline."""
    model = GPT2LMHeadModel.from_pretrained(folder / "trained")
    collate = DataCollatorWithPositionalEncoding.from_pretrained(folder / "trained", model=model)
    prompts = collate.replace(packing=False, padding=True, padding_side="left", add_special_tokens=False, labels=None)
    batch = prompts(["<s>bike ride", "<s>I"])
    print(prompts.tokens(batch))
    generated = model.generate(**batch, max_new_tokens=20)
    print(collate.tokenizer.batch_decode(generated, skip_special_tokens=True))

    # A pipeline takes the tokenizer; without `add_special_tokens=False` the model reads "<s>bike ride</s>".
    write = pipeline("text-generation", model=model, tokenizer=collate.tokenizer)
    options = {"do_sample": False, "max_new_tokens": 20}
    print(write("<s>bike ride", add_special_tokens=False, return_full_text=False, **options))
    print(write("bike ride", **options))


def main() -> None:
    """Train and generate in the given folder, or in a temporary one."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        train(folder)
        generate(folder)


if __name__ == "__main__":
    main()

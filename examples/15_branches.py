"""Store a prompt once with all its answers: training on several answers, a preference loss, and multiple choice.

A small Llama learns which letter follows two others. Each question has two right answers, and a row has the question
and both, as branches that do not see each other. Four endings in a row are multiple choice: the model chooses the one
with the highest score. Last, `compute_loss` is the loss of DPO; its value and gradients are compared with those of one
row for each answer.

Run it with `python examples/15_branches.py`: half a minute on two CPU cores. It downloads nothing.
"""

from __future__ import annotations

import copy
import itertools
import random
import string
import tempfile
from dataclasses import replace
from typing import Any

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments, set_seed

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec, branch_log_probs, train_bpe

LETTERS = string.ascii_lowercase
QUESTIONS = "after {} and {} comes", "{}, {}, and then", "the alphabet: {} {}", "which letter follows {} {}?"


def questions() -> Dataset:
    """Return questions with two right answers, a chosen and a rejected one, and four endings; the first is right."""
    rows = []
    for question, (one, two, three) in itertools.product(
        QUESTIONS, zip(LETTERS, LETTERS[1:], LETTERS[2:], strict=False)
    ):
        endings = [f" {letter}" for letter in (three, *random.sample(LETTERS.replace(three, ""), 3))]
        row = {"prompt": question.format(one, two), "answers": [f" {three}", f" the letter {three}"]}
        rows.append(row | {"endings": endings, "chosen": endings[0], "rejected": endings[1]})
    return Dataset.from_list(rows)


class PreferenceTrainer(Trainer):
    """Trainer with the loss of DPO; each row has a chosen and a rejected answer."""

    reference: Any

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the loss of a batch."""
        self.model_accepts_loss_kwargs = False  # so Trainer divides this mean by the number of accumulated batches
        numbers = {"branch_ids": inputs.pop("branch_ids")}  # not an argument of the model
        outputs = model(**inputs)
        with torch.no_grad():
            before = branch_log_probs(self.reference(**inputs).logits, inputs | numbers).log_probs
        gain = branch_log_probs(outputs.logits, inputs | numbers).log_probs - before
        chosen, rejected = gain.view(-1, 2).T
        loss = -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()
        return (loss, outputs) if return_outputs else loss


def loss_of_separate_rows(model: Any, reference: Any, batch: Any) -> torch.Tensor:
    """Return the same loss from one row for each answer, without this package."""
    losses = []
    for ids, branches in zip(batch["input_ids"], batch["branch_ids"], strict=True):
        gains = []
        for branch in (1, 2):
            row, start = ids[(branches == 0) | (branches == branch)][None], int((branches == 0).sum())
            scores = [
                each(row).logits[0, start:-1].log_softmax(-1).gather(1, row[0, start + 1 :, None]).sum()
                for each in (model, reference)
            ]
            gains.append(scores[0] - scores[1].detach())
        losses.append(-torch.nn.functional.logsigmoid(0.1 * (gains[0] - gains[1])))
    return torch.stack(losses).mean()


def right(model: Any, collate: Any, rows: Dataset) -> str:
    """Return the share of questions whose right ending, the first one, has the highest score."""
    batch = collate(list(rows.select_columns(["prompt", "endings"])))
    branch_ids = batch.pop("branch_ids")
    with torch.no_grad():
        logits = model(**batch).logits
    scores = branch_log_probs(logits, {**batch, "branch_ids": branch_ids}).log_probs.view(-1, 4)
    return f"{(scores.argmax(1) == 0).float().mean():.0%}"


def train(cls: type[Trainer], model: Any, rows: Dataset, collate: Any, epochs: int, **attributes: Any) -> Trainer:
    """Train a model with a class of trainers, and return the trainer."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=5e-3,
            remove_unused_columns=False,  # the texts
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = cls(model=model, args=arguments, train_dataset=rows, data_collator=collate)
        vars(trainer).update(attributes)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model.eval()
    return trainer


def main() -> None:
    """Train on all answers, choose among endings, train with the preference loss, and compare it."""
    set_seed(0)
    data = questions().train_test_split(0.25, seed=0)
    rows, held_out = data["train"], data["test"]
    tokenizer = train_bpe([*rows["prompt"], *itertools.chain(*rows["answers"])], vocab_size=400)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **special))
    collate = DataCollatorWithPositionalEncoding(
        tokenizer, model=model, text_column="prompt", branches="answers", labels="causal_lm"
    )
    rows_of_answers = rows.select_columns(["prompt", "answers"])
    print(collate.tokens(collate([rows_of_answers[0]]))[0])
    spec = ModelSpec.of(model)
    spec = replace(spec, accepts=(*spec.accepts, "branch_ids"))  # batches keep them, for the scores
    endings = collate.replace(model=spec, branches="endings", labels=None)
    before = right(model, endings, held_out)
    train(Trainer, model, rows_of_answers, collate, epochs=30)
    print(f"right endings of held-out questions: {before} before training, {right(model, endings, held_out)} after")

    pairs, names = endings.replace(branches=("chosen", "rejected")), ["prompt", "chosen", "rejected"]
    reference = copy.deepcopy(model).requires_grad_(False)
    trainer = train(PreferenceTrainer, model, rows.select_columns(names), pairs, epochs=3, reference=reference)
    batch, weights = pairs(list(held_out.select_columns(names))), list(model.parameters())
    losses = trainer.compute_loss(model, dict(batch)), loss_of_separate_rows(model, reference, batch)
    ours, theirs = (torch.cat([part.flatten() for part in torch.autograd.grad(loss, weights)]) for loss in losses)
    print(f"preference loss: {losses[0]:.6f} with branches, {losses[1]:.6f} in separate rows")
    print(f"gradients differ by at most {(ours - theirs).abs().max():.0e} of {theirs.abs().max():.0e}")
    assert torch.allclose(*losses, atol=1e-5)
    assert torch.allclose(ours, theirs, atol=1e-5)


if __name__ == "__main__":
    main()

"""Script that trains a sentence-transformers model as its documentation does, without this package."""

from __future__ import annotations

import argparse


def main() -> None:
    from datasets import load_dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
    from transformers import set_seed

    parser = argparse.ArgumentParser()
    for name in ("model_name_or_path", "train_file", "validation_file", "output_dir", "resume_from_checkpoint"):
        parser.add_argument(f"--{name}")
    for name, kind in (("max_steps", int), ("save_steps", int), ("eval_steps", int), ("learning_rate", float)):
        parser.add_argument(f"--{name}", type=kind)
    given = parser.parse_args()
    set_seed(0)
    files = {"train": given.train_file, "validation": given.validation_file}
    rows = load_dataset("json", data_files=files).map(lambda row: {"label": float(row["label"])})
    model = SentenceTransformer(given.model_name_or_path, device="cpu")
    args = SentenceTransformerTrainingArguments(
        given.output_dir,
        max_steps=given.max_steps,
        save_steps=given.save_steps,
        eval_steps=given.eval_steps,
        eval_strategy="steps",
        logging_steps=1,
        learning_rate=given.learning_rate,
        per_device_train_batch_size=8,
        report_to="none",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        loss=CosineSimilarityLoss(model),
    )
    trainer.train(resume_from_checkpoint=given.resume_from_checkpoint)
    trainer.save_model()
    print(model.encode(["I ride bike", "she said"]).shape)


if __name__ == "__main__":
    main()

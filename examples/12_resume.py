"""Stop a run of Trainer, resume it from its last checkpoint, and compare its rows with those of a run without a stop.

Trainer runs alone and with `TokenBudgetMixin`: on a data set; on a stream, stopped in the first or second pass over its
rows; and with two changes between the stop and the resumption. The table counts the steps with other rows.

Run it with `python examples/12_resume.py`, or in two processes with
`python -m torch.distributed.run --nproc-per-node 2 examples/12_resume.py`: a minute on two CPU cores, no downloads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import warnings
from typing import Any

import datasets
import torch
import transformers
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from hf_posenc import TokenBudgetMixin

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
ROWS, WIDTH = 48 * WORLD, 16  # rows of the data set; tokens of the longest
SAVED, STOPPED, LAST = 2, 3, 5  # steps, if the run stops in its first pass over the rows
PASS = 6  # steps of a pass of Trainer alone, with 8 rows in a batch; the budget makes about as many
DOCUMENTS = [[number] + [ROWS] * (number * 7 % WIDTH) for number in range(ROWS)]  # the first token is the number


def rows() -> datasets.Dataset:
    """Return the data set."""
    return datasets.Dataset.from_dict({"input_ids": DOCUMENTS})


def stream() -> datasets.IterableDataset:
    """Return the same rows as a shuffled stream."""
    return rows().to_iterable_dataset().shuffle(seed=1, buffer_size=32)


def reshuffled() -> datasets.IterableDataset:
    """Return the stream in another order."""
    return rows().to_iterable_dataset().shuffle(seed=2, buffer_size=32)


def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Pad to one length, because accelerate needs batches of one size for the streams of Trainer alone."""
    ids = torch.tensor([row["input_ids"] + [ROWS] * (WIDTH - len(row["input_ids"])) for row in batch])
    return {"input_ids": ids, "labels": ids}


class Recorded(Trainer):
    """Trainer that records the rows of every step."""

    def training_step(self, model: Any, inputs: Any, *more: Any) -> Any:
        self.__dict__.setdefault("seen", []).append(inputs["input_ids"][:, 0].tolist())
        return super().training_step(model, inputs, *more)


class Budgeted(TokenBudgetMixin, Recorded, token_budget=64, window=24 * WORLD): ...


class Larger(TokenBudgetMixin, Recorded, token_budget=128, window=24 * WORLD): ...


class Stop(TrainerCallback):
    """Callback that ends a run some steps after its checkpoint, as a crash does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise InterruptedError


def steps_of(
    kind: type[Any], data: Any, folder: str, late: int, *, stop: bool, resume: bool, size: int = 8
) -> list[Any]:
    """Train, and return the rows of each step in all processes, sorted."""
    small = {"n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": WIDTH, "bos_token_id": 0, "eos_token_id": 0}
    trainer = kind(
        model=GPT2LMHeadModel(GPT2Config(vocab_size=ROWS + 1, **small)),
        args=TrainingArguments(
            folder,
            max_steps=LAST + late,
            save_strategy="steps" if stop else "no",
            save_steps=SAVED + late,
            per_device_train_batch_size=size,
            dataloader_num_workers=1,
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            use_cpu=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=data,
        data_collator=collate,
        callbacks=[Stop(STOPPED + late)] if stop else [],
    )
    trainer.remove_callback(PrinterCallback)
    with contextlib.suppress(InterruptedError):
        trainer.train(resume_from_checkpoint=resume)
    seen = gather_object([trainer.seen])
    return [sorted(number for part in step for number in part) for step in zip(*seen, strict=True)]


@functools.cache
def stopped(kind: type[Any], data: Any, late: int) -> tuple[str, list[Any]]:
    """Return the folder of a run that was stopped, and the rows of the steps after its checkpoint without the stop."""
    folder = gather_object([tempfile.mkdtemp()])[0]
    whole = steps_of(kind, data(), folder, late, stop=False, resume=False)
    steps_of(kind, data(), folder, late, stop=True, resume=False)
    return folder, whole[SAVED + late :]


def compared(kind: type[Any], data: Any, late: int, then: Any = None, resumed_kind: Any = None, size: int = 8) -> str:
    """Return how many steps of the resumed run have other rows than the run without a stop."""
    folder, expected = stopped(kind, data, late)
    try:
        resumed = steps_of(resumed_kind or kind, (then or data)(), folder, late, stop=False, resume=True, size=size)
    except ValueError as refused:
        return "refused: " + str(refused).splitlines()[0]
    others = sum(one != other for one, other in zip(resumed, expected, strict=True))
    return f"other rows in {others} of {len(resumed)} steps" if others else "the same rows"


def main() -> None:
    """Print the table in the first process."""
    PartialState(cpu=True)  # connects the processes
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=UserWarning)
    cases: list[tuple[str, Any, int, dict[str, Any], dict[str, Any]]] = [
        ("data set, second epoch", rows, PASS, {}, {}),
        ("shuffled stream, first pass", stream, 0, {}, {}),
        ("shuffled stream, second pass", stream, PASS, {}, {}),
        ("stream, then with another seed", stream, 0, {"then": reshuffled}, {"then": reshuffled}),
        ("stream, then with larger batches", stream, 0, {"size": 16}, {"resumed_kind": Larger}),
    ]
    for name, data, late, theirs, ours in cases:
        results = compared(Recorded, data, late, **theirs), compared(Budgeted, data, late, **ours)
        if int(os.environ.get("RANK", "0")) == 0:
            print(f"{name:34}Trainer: {results[0]:30}TokenBudgetMixin: {results[1]}", flush=True)
    PartialState().destroy_process_group()  # if there is one


if __name__ == "__main__":
    main()

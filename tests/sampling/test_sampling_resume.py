"""Runs that are killed and resumed from their last checkpoint, compared with runs that nothing disturbs, row by row."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from test_sampling_trainer import COUNT, Watched, made, rows
from transformers import TrainerCallback

from hf_posenc import TokenBudgetMixin, mix_datasets

SAVED = 3  # steps between checkpoints


class Budgeted(TokenBudgetMixin, Watched, token_budget=64, window=20): ...


class Killed(Exception):
    """The end of a process."""


class KillAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step == self.step:
            raise Killed


def stream() -> datasets.IterableDataset:
    return rows().to_iterable_dataset(num_shards=3)


def mixed() -> datasets.Dataset:
    """Forty short documents, and twenty that are repeated."""
    return mix_datasets([rows().select(range(40)), rows().select(range(40, COUNT))], [1, 2], 700)


class Forgetful(torch.utils.data.IterableDataset[Any]):
    """A stream that is shuffled without a seed."""

    def __iter__(self) -> Any:
        return iter([rows()[int(number)] for number in np.random.default_rng().permutation(COUNT)])


DATA: dict[str, Any] = {
    "map-style": rows,
    "stream": stream,
    "shuffled stream": lambda: stream().shuffle(seed=3, buffer_size=16),
    "generator": lambda: iter(list(rows())),
    "mixture": mixed,
    "stream of a mixture": lambda: mixed().to_iterable_dataset(),
}


def train(
    folder: Path,
    data: Any,
    *,
    kind: type[Any] = Budgeted,
    kill: int | None = None,
    resume: bool = False,
    **settings: Any,
) -> Any:
    """Train, also until the step `kill`."""
    trainer = made(kind, folder, data=data, **{"save_strategy": "steps", "save_steps": SAVED, **settings})
    if kill is not None:
        trainer.add_callback(KillAt(kill))
    with contextlib.nullcontext() if kill is None else pytest.raises(Killed):
        trainer.train(resume_from_checkpoint=resume)
    return trainer


def steps_of(trainer: Any) -> list[list[int]]:
    """The documents of every batch, in the order of training."""
    return trainer.documents()


WORKERS = {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 3}
# Data, arguments, the step of the checkpoint, and the later step at which the run is killed; an epoch has 8 steps.
CASES: list[Any] = [
    ("map-style", {"max_steps": 7, "gradient_accumulation_steps": 3}, 4, 6),
    ("map-style", {"num_train_epochs": 3, **WORKERS}, 19, 20),
    ("stream", {"max_steps": 14, **WORKERS}, 11, 13),
    ("stream", {"max_steps": 6, "gradient_accumulation_steps": 3}, 4, 5),
    ("mixture", {"max_steps": 14}, 9, 11),
    ("stream of a mixture", {"max_steps": 26, **WORKERS}, 20, 23),
    ("shuffled stream", {"max_steps": 26}, 17, 17),
    ("generator", {"max_steps": 8}, 4, 5),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "saved", "kill"), CASES)
def test_a_killed_run_resumes_with_the_very_rows_that_were_left(
    tmp_path: Path, name: str, settings: dict[str, Any], saved: int, kill: int
) -> None:
    data = DATA[name]
    whole = train(tmp_path, data(), save_strategy="no", **settings)
    killed = train(tmp_path, data(), kill=kill, save_steps=saved, **settings)
    resumed = train(tmp_path, data(), resume=True, save_strategy="no", **settings)
    done = saved * settings.get("gradient_accumulation_steps", 1)
    assert steps_of(killed)[:done] + steps_of(resumed) == steps_of(whole)
    assert resumed.state.global_step == whole.state.global_step
    for key, weight in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[key], weight), key


@pytest.mark.slow
def test_a_run_may_be_killed_twice_and_made_longer(tmp_path: Path) -> None:
    whole = train(tmp_path, stream(), max_steps=26, save_strategy="no")
    first = train(tmp_path, stream(), kill=7, max_steps=12, save_steps=5)
    second = train(tmp_path, stream(), kill=11, resume=True, max_steps=12, save_steps=5)
    third = train(tmp_path, stream(), resume=True, max_steps=12, save_steps=5)
    fourth = train(tmp_path, stream(), resume=True, max_steps=26, save_steps=5, save_strategy="no")
    seen = steps_of(first)[:5] + steps_of(second)[:5] + steps_of(third) + steps_of(fourth)
    assert seen == steps_of(whole)


def test_callbacks_may_be_restored_from_the_checkpoint(tmp_path: Path) -> None:
    settings = {"max_steps": 8, "restore_callback_states_from_checkpoint": True}
    whole = train(tmp_path, stream(), save_strategy="no", **settings)
    train(tmp_path, stream(), kill=5, **settings)
    resumed = train(tmp_path, stream(), resume=True, save_strategy="no", **settings)
    assert steps_of(resumed) == steps_of(whole)[3:]
    resumed.train()  # a new run of the same trainer
    assert steps_of(resumed)[5:] == steps_of(whole)


class Larger(TokenBudgetMixin, Watched, token_budget=96, window=20): ...


class Wider(TokenBudgetMixin, Watched, token_budget=64, window=30): ...


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of two runs of 8 steps that were killed at step 4: copy them."""
    folders = {name: tmp_path_factory.mktemp("killed") for name in ("map-style", "stream")}
    for name, folder in folders.items():
        train(folder, DATA[name](), kill=4, max_steps=8)
    return folders


OTHERS: list[tuple[str, Any, list[str]]] = [
    ("map-style", {"kind": Larger}, ["token_budget: saved 64, here 96"]),
    ("stream", {"kind": Larger}, ["token_budget: saved 64, here 96"]),
    ("stream", {"kind": Wider}, ["window: saved 20, here 30"]),
    ("map-style", {"seed": 7}, ["seed: saved 0, here 7"]),
    ("stream", {"data_seed": 7}, ["seed: saved 0, here 7"]),
    ("stream", {"gradient_accumulation_steps": 2}, ["batches_per_step: saved 1, here 2"]),
    ("map-style", {"data": lambda: rows().select(range(50))}, ["lengths: saved '", "in this Trainer"]),
]


@pytest.mark.parametrize(("name", "change", "words"), OTHERS)
def test_a_checkpoint_of_another_plan_is_refused_before_a_step(
    killed: dict[str, Path], tmp_path: Path, name: str, change: dict[str, Any], words: list[str]
) -> None:
    shutil.copytree(killed[name], tmp_path, dirs_exist_ok=True)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    data = change.pop("data", DATA[name])()
    with pytest.raises(ValueError, match="the state belongs to another plan") as caught:
        train(tmp_path, data, resume=True, max_steps=8, **change)
    for word in words:
        assert word in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_stream_with_other_rows_is_refused_unless_it_shall_begin_anew(tmp_path: Path) -> None:
    train(tmp_path, Forgetful(), kill=4, max_steps=8)
    with pytest.raises(ValueError, match=r"the stream has other rows, or another order[\s\S]*ignore_data_skip=True"):
        train(tmp_path, Forgetful(), resume=True, max_steps=8)
    anew = train(tmp_path, stream(), resume=True, max_steps=8, ignore_data_skip=True, save_strategy="no")
    assert steps_of(anew) == steps_of(train(tmp_path, stream(), max_steps=8, save_strategy="no"))[:5]


def test_a_stream_is_refused_with_another_version_of_datasets_which_may_shuffle_it_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffled, version = DATA["shuffled stream"], datasets.__version__
    train(tmp_path, shuffled(), kill=4, max_steps=5)
    monkeypatch.setattr(datasets, "__version__", "99.1")
    with pytest.raises(ValueError, match=rf"datasets: saved '{version}', here '99\.1'"):
        train(tmp_path, shuffled(), resume=True, max_steps=5)
    assert train(tmp_path, shuffled(), resume=True, max_steps=5, ignore_data_skip=True).state.global_step == 5
    train(tmp_path / "rows", rows(), kill=4, max_steps=5)
    monkeypatch.setattr(datasets, "__version__", version)
    assert train(tmp_path / "rows", rows(), resume=True, max_steps=5).state.global_step == 5  # a data set has an order


def test_a_stream_that_ends_before_the_saved_step_is_refused(tmp_path: Path) -> None:
    train(tmp_path, iter(list(rows())), kill=7, max_steps=9)
    with (
        pytest.raises(ValueError, match="the stream has other rows") as caught,
        pytest.warns(UserWarning, match="a pass without rows ends it"),
    ):
        train(tmp_path, iter(list(rows())[:20]), resume=True, max_steps=9)
    assert "none, because the stream ends before" in str(caught.value)


@pytest.mark.parametrize("stored", [None, {"attributes": {"plan": {}}}])
def test_a_checkpoint_without_a_plan_is_resumed_with_a_warning(
    killed: dict[str, Path], tmp_path: Path, stored: Any
) -> None:
    shutil.copytree(killed["map-style"], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "checkpoint-3" / "trainer_state.json"
    state = json.loads(path.read_text())
    if stored is None:
        del state["stateful_callbacks"]["TokenBudgetState"]
    else:
        state["stateful_callbacks"]["TokenBudgetState"] = stored
    path.write_text(json.dumps(state))
    with pytest.warns(UserWarning, match="the checkpoint has no state of a token budget") as warned:
        train(tmp_path, rows(), resume=True, max_steps=8)
    assert "ignore_data_skip=True" in str(warned[0].message)
    assert (tmp_path / "checkpoint-6" / "trainer_state.json").exists()

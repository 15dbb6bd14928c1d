"""`TokenLogMixin` compared with counts of the batches that the model gets, and with a run without it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import trainer_runs
import transformers
from small_models import of_class
from test_sampling_trainer import Budgeted, Watched
from test_sampling_trainer import run as train
from two_processes import skip_without_gloo, two_processes

from hf_posenc import DataCollatorWithPositionalEncoding, TokenLogMixin

NAMES = ("tokens_per_second", "padding_share", "trained_share")


class Logged(TokenLogMixin, Watched): ...


def run(kind: Any, folder: Path, data: Any = None, collate: Any = None, *, model: Any = "gpt2", **more: Any) -> Any:
    settings = {"per_device_train_batch_size": 4, "logging_strategy": "steps", "logging_steps": 2, **more}
    return train(kind, folder, model, data, collate, **settings)


def lines(trainer: Any) -> list[dict[str, float]]:
    """The lines of training."""
    return [line for line in trainer.state.log_history if "loss" in line]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Logged, Budgeted])
def test_shares_are_those_of_the_batches_of_the_steps_since_the_line_before(
    tmp_path: Path, kind: Any, workers: int
) -> None:
    settings = {} if kind is Logged else {"per_device_train_batch_size": 8}  # the default: a budget has no use for it
    trainer = run(kind, tmp_path, dataloader_num_workers=workers, gradient_accumulation_steps=2, **settings)
    logged = lines(trainer)
    assert len(logged) >= 2
    for number, line in enumerate(logged):
        fed = trainer.fed[4 * number : 4 * number + 4]  # two steps of two batches
        places = sum(batch["input_ids"].numel() for batch in fed)
        tokens = sum(int((batch["input_ids"] != 0).sum()) for batch in fed)
        trained = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in fed)  # GPT-2 shifts labels
        assert line["padding_share"] == pytest.approx((places - tokens) / places, abs=1e-12)
        assert line["trained_share"] == pytest.approx(trained / tokens, abs=1e-12)
        assert set(fed[0]) == {"input_ids", "labels", "attention_mask"}  # as the model gets them
    assert all(0 < line["trained_share"] < 1 and 0 < line["padding_share"] < 1 for line in logged)
    assert not any(name in line for line in trainer.state.log_history if line not in logged for name in NAMES)


def test_losses_and_weights_are_those_of_a_run_without_it(tmp_path: Path) -> None:
    with_counts, without = (
        run(kind, tmp_path, dataloader_num_workers=2, eval_strategy="epoch") for kind in (Logged, Watched)
    )
    changes = ("tokens_per_second", "padding_share", "trained_share", "eval_runtime", "train_runtime")
    histories = [
        [
            {name: value for name, value in line.items() if name not in changes and "_per_second" not in name}
            for line in trainer.state.log_history
        ]
        for trainer in (with_counts, without)
    ]
    assert histories[0] == histories[1]
    for one, other in zip(with_counts.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_evaluations_take_no_time_from_the_tokens_per_second(tmp_path: Path) -> None:
    class Slow(Logged):
        def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.1)
            return super().prediction_step(*args, **kwargs)

    start = time.perf_counter()
    trainer = run(Slow, tmp_path, max_steps=6, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=20)
    wall = time.perf_counter() - start
    seconds = []
    for number, line in enumerate(lines(trainer)):
        fed = trainer.fed[2 * number : 2 * number + 2]
        seconds.append(sum(int(batch["attention_mask"].sum()) for batch in fed) / line["tokens_per_second"])
    assert len(seconds) == 3
    assert 0 < sum(seconds) <= wall - 2 * 3 * 0.1  # two evaluations, one of them between two lines


@pytest.mark.parametrize("padded", ["left", "right", "right, by transformers"])
def test_the_share_of_labels_is_the_same_on_both_sides(tmp_path: Path, word_level: Any, padded: str) -> None:
    """A causal model reads all labels but those of first tokens."""
    model = of_class("GPT2LMHeadModel", vocab_size=len(word_level))
    documents = [[5 + number % 7] * (2 + number % 5) for number in range(24)]
    word_level.padding_side = padded.partition(",")[0]
    collate: Any = DataCollatorWithPositionalEncoding(word_level, model=model, labels="causal_lm")
    if "transformers" in padded:
        collate = transformers.DataCollatorForLanguageModeling(word_level, mlm=False)
    data = datasets.Dataset.from_dict({"input_ids": documents})
    (line,) = lines(run(Logged, tmp_path, data, collate, model=model, per_device_train_batch_size=8, logging_steps=3))
    tokens = sum(map(len, documents))
    assert line["trained_share"] == pytest.approx((tokens - len(documents)) / tokens, abs=1e-12)


@pytest.mark.parametrize("pad_token", ["!", "eos"])
@pytest.mark.parametrize(
    "packing", [{"packing": "flat", "pad_to_multiple_of": 64}, {"packing": True, "max_length": 32}]
)
def test_padding_of_packed_rows_is_all_but_the_documents(
    tmp_path: Path, byte_bpe: Any, packing: dict[str, Any], pad_token: str
) -> None:
    """Also if the padding token ends the documents too."""
    documents = [[5 + number % 7] * (3 + number % 5) + [byte_bpe.eos_token_id] for number in range(24)]
    data = datasets.Dataset.from_dict({"input_ids": documents})
    model = of_class("GPT2LMHeadModel", vocab_size=len(byte_bpe))
    collate = DataCollatorWithPositionalEncoding(
        byte_bpe, model=model, labels="causal_lm", pad_token=pad_token, **packing
    )
    trainer = run(Logged, tmp_path, data, collate, model=model, per_device_train_batch_size=8, logging_steps=3)
    tokens, places = sum(map(len, documents)), sum(batch["input_ids"].numel() for batch in trainer.fed)
    (line,) = lines(trainer)
    assert "attention_mask" in trainer.fed[0] or "pad_to_multiple_of" in packing
    assert places > tokens
    assert line["padding_share"] == pytest.approx(1 - tokens / places, abs=1e-12)
    assert line["trained_share"] == pytest.approx((tokens - len(documents)) / tokens, abs=1e-12)


def test_without_a_label_for_each_token_no_share_is_trained(tmp_path: Path, wordpiece: Any) -> None:
    model = of_class("BertForSequenceClassification")
    data = datasets.Dataset.from_dict({"input_ids": [[2, 7, 3], [2, 3]] * 8, "label": [0, 1] * 8})
    collate = DataCollatorWithPositionalEncoding(wordpiece, model=model)
    first = lines(run(Logged, tmp_path, data, collate, model=model))[0]
    assert set(NAMES) & set(first) == {"tokens_per_second", "padding_share"}
    assert 0 < first["padding_share"] < 1


def test_targets_of_an_encoder_decoder_are_no_share_of_its_input(tmp_path: Path, wordpiece: Any) -> None:
    model = trainer_runs.build("bart", wordpiece)
    data = datasets.Dataset.from_dict({"input_ids": [[2, 7, 3], [2, 3]] * 8, "labels": [[2, 9, 3], [2, 8, 8, 3]] * 8})
    collate = DataCollatorWithPositionalEncoding(wordpiece, model=model)
    assert set(NAMES) & set(lines(run(Logged, tmp_path, data, collate, model=model))[0]) == set(NAMES[:2])


def test_a_class_that_names_trainer_before_the_mixin_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError, match="TokenLogMixin must come before Watched") as caught:

        class Late(Watched, TokenLogMixin): ...

    assert str(caught.value).endswith("fix: class Late(TokenLogMixin, Watched): ...")


class Stream(torch.utils.data.IterableDataset[Any]):
    """Rows of one length, which accelerate reads in the first process and divides among all."""

    def __iter__(self) -> Any:
        for number in range(32):
            yield {"input_ids": [7] * (2 + number % 3) + [0] * (4 - number % 3), "labels": [7, 8, *[-100] * 4]}


def work(folder: Path) -> None:
    for name, data in (("rows", None), ("stream", Stream())):
        trainer = run(Logged, folder, data, max_steps=4)
        torch.save((trainer.fed, lines(trainer)), folder / f"{name} {trainer.args.process_index}.pt")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "stream"])
def test_two_processes_log_the_shares_of_both(tmp_path: Path, name: str) -> None:
    skip_without_gloo()
    with two_processes(tmp_path, "test_token_log", "work", tmp_path):
        pass
    (fed, logged), (other_fed, _) = (torch.load(tmp_path / f"{name} {rank}.pt", weights_only=False) for rank in (0, 1))
    assert len(logged) == 2
    for number, line in enumerate(logged):
        batches = [batch for each in (fed, other_fed) for batch in each[2 * number : 2 * number + 2]]
        places = sum(batch["input_ids"].numel() for batch in batches)
        tokens = sum(int((batch["input_ids"] != 0).sum()) for batch in batches)
        assert len(batches) == 4
        assert 0 < line["padding_share"] == pytest.approx(1 - tokens / places, abs=1e-12)

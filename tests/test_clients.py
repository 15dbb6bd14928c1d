"""Other people's training scripts: the patch that adds our lines, and the client that needs only packages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from clients.patching import with_our_lines
from test_readme import REPO

SCRIPT = '''\
"""A script, with an é before the call."""
def main():
    trainer = Trainer(
        model=model,
        data_collator=DataCollator(tokenizer, "é"),
        args=args,
    )
    return trainer
'''


def test_a_patched_script_differs_in_the_added_lines_and_the_replaced_arguments_only() -> None:
    given = {"data_collator": "collate", "processing_class": "collate"}
    assert with_our_lines(SCRIPT, "Trainer", ["collate = 1", "other = 2"], given) == (
        '"""A script, with an é before the call."""\n'
        "def main():\n"
        "    collate = 1\n"
        "    other = 2\n"
        "    trainer = Trainer(\n"
        "        model=model,\n"
        "        data_collator=collate,\n"
        "        args=args, processing_class=collate,\n"
        "    )\n"
        "    return trainer\n"
    )


def test_lines_go_before_the_call_of_a_method_without_arguments() -> None:
    assert with_our_lines("trainer.train()\n", "train", ["x = 1"], {}) == "x = 1\ntrainer.train()\n"


def test_a_script_without_the_call_is_refused() -> None:
    with pytest.raises(ValueError, match="no statement of the script calls Seq2SeqTrainer"):
        with_our_lines(SCRIPT, "Seq2SeqTrainer", [], {})


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sentence_transformers") is None, reason="needs sentence-transformers")
def test_the_trainer_of_sentence_transformers_trains_resumes_and_saves_with_sinusoidal_positions() -> None:
    command = [sys.executable, "-m", "tests.programs.clients", "--only", "sentence_transformers"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert "1 passed, 0 failed" in done.stdout, done.stdout + done.stderr

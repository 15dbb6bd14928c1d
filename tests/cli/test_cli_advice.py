"""Messages of the command line: the advice of each is pasted into its command, which then succeeds."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from looping import for_each

from hf_posenc import cli, train_bpe

FILES = {
    "a.jsonl": '{"text": "I ride", "label": 1, "id": 2}\n{"text": "my bike", "label": 0, "id": 3}\n',
    "body.jsonl": '{"the body": "I ride"}\n',
    "blank.jsonl": '{"text": "I ride"}\n{"text": ""}\n',
    "bare.csv": "I ride my bike,one\nthe bike,two\n",
    "ragged.csv": "text,n\nI ride,1\nmy bike,2,3\n",
    "latin.csv": "text,n\nGröße,1\n",
    "latin.txt": "Größe\n",
    "latin.jsonl": '{"text": "Größe"}\n',
    "a.dat": "I ride\n",
    "two/train.txt": "I ride\n",
    "two/test.txt": "my bike\n",
}
ADVICE = {  # commands, each with its exit status and a part of its advice
    "encode a.jsonl --max-length 0": (2, "--max-length 512"),
    "encode a.jsonl --max-length 1": (2, "--max-length 3"),
    "encode a.jsonl --max-length 2": (2, "--no-add-special-tokens"),
    "encode a.jsonl --max-length 3 --no-truncation": (1, "--truncation --return-overflowing-tokens"),
    "encode a.jsonl --return-overflowing-tokens --no-truncation": (2, "--truncation"),
    "encode a.jsonl --stride 2 --max-length 6": (2, "--return-overflowing-tokens"),
    "encode a.jsonl --packing": (2, "--max-length 512"),
    "encode a.jsonl --packing --max-length 8 --column id": (2, "without --packing"),
    "encode a.jsonl --column text": (2, "without --column"),
    "encode a.jsonl --column text --column id": (2, "--column id"),
    "encode a.jsonl --column label,id": (2, "--column label --column id"),
    "encode a.jsonl --column id --column labl": (2, "--column id --column label"),
    "encode a.jsonl --text-column body": (2, "--text-column text"),
    "encode body.jsonl": (2, "--text-column 'the body'"),
    "encode bare.csv": (2, """--loading 'column_names=["text", "column_1"]'"""),
    "encode ragged.csv": (1, "--loading on_bad_lines=skip"),
    "encode latin.csv": (1, "--loading encoding=latin-1"),
    "encode latin.txt": (1, "--loading encoding=latin-1"),
    "encode latin.jsonl": (1, "--loading encoding=latin-1"),
    "encode blank.jsonl": (1, "--on-bad-row skip"),
    "encode a.dat": (2, "--format text"),
    "encode two": (2, "--split all"),
    "encode two --split tain": (2, "--split train"),
    "encode a.jsonl --labels masked_lm": (2, "without --labels"),
    "encode a.jsonl --labels next": (2, "without --labels"),
    "encode a.jsonl --on-no-labels skip": (2, "--labels causal_lm"),
    "encode a.jsonl --is-split-into-words": (1, "without --is-split-into-words"),
    "encode a.jsonl --pad-token none": (2, "--pad-token '</s>'"),
    "encode a.jsonl --part 3/2": (2, "--part 3/8"),
    "encode a.jsonl --shards 0": (2, "--shards 64"),
    "encode a.jsonl --workers -1": (2, "--workers 2"),
    "labels bare.csv": (2, "--text-column 'I ride my bike'"),
    "labels a.jsonl --text-column body": (2, "--text-column text"),
    "labels a.jsonl --max-length 1": (2, "--max-length 3"),
    "labels latin.csv": (1, "--loading encoding=latin-1"),
    "labels a.dat": (2, "--format text"),
    "labels two": (2, "--split train"),
    "show I --padding-side up": (2, "--padding-side left"),
    "show I --pad-token none": (2, "--pad-token '</s>'"),
    "plot encoding --d-model 0": (2, "--d-model 32"),
    "plot encoding --convention mine": (2, "--convention marian"),
    "plot encoding --base 1": (2, "--base 10000"),
    "plot encoding --length 0": (2, "--length 100"),
    "plot dials --d-model 99": (2, "--d-model 32"),
    "plot dials --positions 0": (2, "--positions 10"),
    "plot batch I --packing": (2, "--max-length 512"),
    "plot masks I --row 5": (2, "--row 0"),
    "plot masks I --span 5 3": (2, "--span 0 3"),
    "plot attention --layer 9": (2, "--layer 5"),
}
WITHOUT_TOKENIZER = ("demo", "plot encoding", "plot dials", "plot attention", "plot embeddings")


def run(words: list[str]) -> int:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    return int(ended.value.code or 0)


def pasted(words: list[str], advice: str) -> list[str]:
    """Return the words of a command with the options of an advice in place of those with the same names."""
    added = shlex.split(advice)
    kept, is_kept = [], True
    for word in words:
        is_kept = word not in added if word.startswith("--") else is_kept
        kept += [word] if is_kept else []
    return kept + ([] if "without" in added else added)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the files and a tokenizer."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, encoding="latin-1")
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>"}
    train_bpe(["I ride my bike", "the bike"], 300, special_tokens=special, progress=False).save_pretrained("tok")


@for_each(("command", "expected"), ADVICE.items())
def test_the_advice_of_a_command_is_an_option_that_works(
    command: str, expected: tuple[int, str], files: None, capsys: pytest.CaptureFixture[str]
) -> None:
    status, advice = expected
    words = shlex.split(command)
    if not command.startswith(WITHOUT_TOKENIZER):
        words += ["--tokenizer", "tok"]
    if words[0] == "encode":
        words += ["--output", "out", "--quiet", *([] if "--workers" in words else ["--workers", "0"])]
        shutil.rmtree("out", ignore_errors=True)  # of the case before
    capsys.readouterr()
    assert run(words) == status
    message = capsys.readouterr().err
    assert advice in message.partition("\n  fix: ")[2]
    assert not re.search(r"(?<!\S)(?<!in Python )(?<!--loading )[a-z_]+=", message), message
    assert run(pasted(words, advice)) in (0, 1 if words[0] == "labels" else 0), capsys.readouterr().err

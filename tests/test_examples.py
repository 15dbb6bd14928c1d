"""The scripts of examples/: each runs without an error and prints what its docstring promises."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    """Run an example; return what it prints, or fail with its error output."""
    source = str(EXAMPLES.parent)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    print(f"{name}: {time.monotonic() - began:.0f} s\n{done.stdout}")
    return done.stdout


def test_every_example_has_a_test() -> None:
    tested = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))
    assert tested | {"figures.py"} == {path.name for path in EXAMPLES.glob("*.py")}  # by test_figures.py


@pytest.mark.slow
def test_01_shows_a_batch_and_its_embeddings(tmp_path: Path) -> None:
    out = run("01_collate_a_batch.py", tmp_path)
    assert re.search(r"input_ids +\(2, 13\) +int64", out)
    assert re.search(r"look_ahead_mask +\(2, 1, 13, 13\) +bool", out)
    assert "[CLS]@0  i@1  ride@2  bike@3  [SEP]@4  [PAD]@0" in out
    assert "un@7  ##sur@8  ##pr@9  ##ising@10  ##ly@11  [SEP]@12" in out
    look_ahead, both = out.split("look-ahead and padding")
    assert sum(line.count("■") for line in look_ahead.splitlines()) == 13 * 14 // 2
    assert sum(line.count("■") for line in both.splitlines()) == 1 + 2 + 3 + 4 + 9 * 5  # row 0 has five real tokens
    assert "inputs_embeds (2, 13, 64) torch.float32" in out
    for promise in (
        "the embeddings of 'I' at positions [1, 3] differ by position alone: True",
        "the table has a gradient: True",
        "embeddings at padding are 0: True",
        "padding side changes no embedding of a real token: True",
    ):
        assert promise in out


@pytest.mark.slow
def test_02_loses_no_text_between_map_and_dataloader(tmp_path: Path) -> None:
    out = run("02_datasets_map.py", tmp_path)
    texts, rows = map(int, re.findall(r"(\d+) texts became (\d+) rows", out)[0])
    assert texts == 4000
    assert rows > texts
    columns = re.findall(r"columns: (.*)", out)[0].split(", ")
    assert {"input_ids", "attention_mask", "length", "label", "overflow_to_sample_mapping"} <= set(columns)
    assert "look_ahead_mask" not in columns
    assert "inputs_embeds" not in columns
    batches, tokens = re.findall(r"(\d+) batches, ([\d,]+) tokens", out)[0]
    assert int(batches) == -(-rows // 32)
    assert int(tokens.replace(",", "")) == int(re.findall(r"column says ([\d,]+)", out)[0].replace(",", ""))
    last = rows - 32 * (int(batches) - 1)
    length = int(re.findall(rf"input_ids +\({last}, (\d+)\) +int64", out)[0])
    assert length % 8 == 0
    assert f"embedded: ({last}, {length}, 128) torch.float32" in out


@pytest.mark.slow
def test_03_learns_word_order_with_positions_and_guesses_without(tmp_path: Path) -> None:
    out = run("03_trainer.py", tmp_path)
    assert "both orders have the same tokens: True" in out
    assert float(re.findall(r"with positions: ([\d.]+)", out)[0]) >= 0.98
    assert float(re.findall(r"without positions: ([\d.]+)", out)[0]) == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
def test_04_reads_no_order_without_positions_and_some_with_sinusoids(tmp_path: Path) -> None:
    out = run("04_bert_from_scratch.py", tmp_path, "--short")
    assert re.search(r"position_embeddings.weight: 32 positions of width 128 from row 0, were random", out)
    table = re.findall(r"^(after 0|after 100|every row shuffled).*?((?: +\d\.\d{4}){4})$", out, re.MULTILINE)
    began, ended, shuffled = ([float(loss) for loss in losses.split()] for _, losses in table)
    frequencies = float(re.findall(r"token frequencies alone: ([\d.]+)", out)[0])
    assert all(loss > math.log(400) for loss in began)  # no better than chance before training
    # Better than knowing how frequent each token is, but for the paper's sinusoids, beside which tokens are too small.
    assert all(loss < frequencies for loss in (ended[0], ended[2], ended[3]))
    assert ended[1] == pytest.approx(frequencies, abs=0.05)
    sinusoidal, _, learned, none = (after - before for before, after in zip(ended, shuffled, strict=True))
    assert none == pytest.approx(0, abs=2e-4)  # the same in whatever order, but for the last digit printed
    assert min(sinusoidal, learned) > 5e-4
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "bert_from_scratch.png").stat().st_size > 10_000


@pytest.mark.slow
def test_05_begins_to_write_held_out_dates_in_their_form(tmp_path: Path) -> None:
    out = run("05_translate_dates.py", tmp_path, "--short")
    assert re.search(r"encoder.embed_positions.weight: 64 positions of width 128 from row 2, were random", out)
    assert re.search(r"decoder.embed_positions.weight: 64 positions of width 128 from row 2, of the decoder", out)
    losses = [float(loss) for loss in re.findall(r"^ *\d+ +(\d+\.\d{4}) +[\d.]+$", out, re.MULTILINE)]
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 2
    outputs = re.findall(r"^(.+?) +→ (.*?)  exact match [\d.]+$", out, re.MULTILINE)
    assert len({text for text, _ in outputs}) == 19
    assert sum(bool(re.fullmatch(r"\d{4}-\d{2}-\d{2}", date)) for _, date in outputs) >= 15
    assert float(re.findall(r"held-out exact match: ([\d.]+)", out)[0]) > 0.02  # by chance: one in 36,525


@pytest.mark.slow
def test_06_reads_the_same_tokens_in_three_kinds_of_batches(tmp_path: Path) -> None:
    out = run("06_pack_and_budget.py", tmp_path, "--short")
    numbers = r" +(\d+) +([\d,]+) +([\d.]+)% +([\d,]+) +([\d.]+)$"
    found = {kind: re.findall(rf"^{kind}{numbers}", out, re.MULTILINE)[0] for kind in ("random", "budget", "packed")}
    assert len({tokens for _, tokens, *_ in found.values()}) == 1
    padding = {kind: float(share) for kind, (_, _, share, *_) in found.items()}
    assert padding["packed"] < padding["budget"] < padding["random"]
    assert padding["packed"] < 5
    losses = [float(loss) for *_, loss in found.values()]
    assert max(losses) < math.log(2000)  # below that of guessing among all tokens
    assert max(losses) - min(losses) < 0.5


@pytest.mark.slow
def test_07_goes_on_round_with_positions_only_and_alone_with_the_padding_mask_only(tmp_path: Path) -> None:
    out = run("07_corners.py", tmp_path)
    line = r"^([\w ]+): test MSE ([\d.]+), and ([\d.]+) if each walk comes alone$"
    errors = {name: (float(mse), float(alone)) for name, mse, alone in re.findall(line, out, re.M)}
    assert errors["with positions"][0] < 0.02  # of which 0.01 is the noise of the corners
    assert errors["with positions"][1] == pytest.approx(errors["with positions"][0], abs=2e-4)
    assert errors["without positions"][0] > 0.45
    assert errors["without padding mask"][0] < 0.1 < errors["without padding mask"][1]
    first = re.findall(r"first prediction after 2, 3 and 4 corners: ([\d.]+), ([\d.]+), ([\d.]+)", out)
    halfway, missing, center = map(float, first[1])  # of the model without positions
    assert halfway > 0.45  # the point half-way between the two possible corners costs 0.5
    assert missing < 0.1
    assert center > 0.9  # the center of the square costs 1
    drawn = {path.stem for path in (tmp_path / "corners").iterdir()}
    assert drawn == {"attention", "losses", "with_positions", "without_positions", "without_padding_mask"}


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'ray[data]'")
@pytest.mark.ray
def test_08_makes_the_same_rows_in_a_pipeline_and_the_same_bytes_with_both_engines(tmp_path: Path) -> None:
    out = run("08_ray.py", tmp_path)
    assert "columns: input_ids list<item: int64>, attention_mask list<item: int64>, length int64, long bool" in out
    found = re.findall(r"^(map_batches|encode, ray|encode, processes): 4000 \w+, ([\d,]+) tokens", out, re.MULTILINE)
    assert [name for name, _ in found] == ["map_batches", "encode, ray", "encode, processes"]
    assert len({tokens for _, tokens in found}) == 1
    assert "the same bytes from both: True" in out
    assert "sound: True" in out
    assert re.search(r"read back: 4000 rows, input_ids, length, number; one of 125 batches:", out)
    assert re.search(r"input_ids +\(32, \d+\) +int64", out)


@pytest.mark.slow
def test_09_recalls_with_every_kind_of_position_that_can_and_not_without(tmp_path: Path) -> None:
    out = run("09_compare_positions.py", tmp_path, "--short")
    numbers = r" +[\d,]+ +(\d\.\d{3}) +(\d\.\d{3}|refused)$"
    found = {
        kind: re.findall(rf"^{kind}{numbers}", out, re.MULTILINE)[0]
        for kind in ("sinusoidal", "scaled", "learned", "exponential", "none")
    }
    for kind in ("sinusoidal", "scaled"):
        assert float(found[kind][0]) > 0.7
        assert float(found[kind][1]) > 0.5
    assert float(found["learned"][0]) > 0.7
    assert found["learned"][1] == "refused"
    assert "learned: a learned table has rows for integer positions only" in out
    assert all(0.2 < float(each) < 0.35 for each in found["none"])  # the tokens of the row, without positions


@pytest.mark.slow
def test_10_trains_a_module_of_your_own_together_with_its_table(tmp_path: Path) -> None:
    out = run("10_own_module.py", tmp_path)
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)$", out, re.MULTILINE)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 1
    assert "the table has a gradient: True" in out


@pytest.mark.slow
def test_11_isolates_documents_in_a_flat_row_and_fills_batches_to_a_budget(tmp_path: Path) -> None:
    out = run("11_flat_packing.py", tmp_path)
    assert re.search(r"cu_seq_lens_q +\(5,\) +int32", out)
    assert float(re.findall(r"in the row and alone: (\S+)", out)[0]) < 1e-5
    assert float(re.findall(r"logits by at most (\S+)", out)[0]) < 1e-5
    fill = dict(re.findall(r"^(\w+): \d+ batches, ([\d.]+)%", out, re.MULTILINE))
    assert 80 < float(fill["TokenBudgetBatchSampler"]) < float(fill["pack"]) <= 100
    first, last = (float(loss) for loss in re.findall(r"(?:step|last) (\d+\.\d+)", out))
    assert last < first


@pytest.mark.slow
def test_12_resumes_with_the_rows_that_were_left(tmp_path: Path) -> None:
    lines = run("12_resume.py", tmp_path).splitlines()
    ours = [line.split("TokenBudgetMixin: ")[1] for line in lines]
    assert ours[:3] == ["the same rows"] * 3
    assert ours[3].startswith("refused: the stream has other rows")
    assert ours[4].startswith("refused: the state belongs to another plan")


@pytest.mark.slow
def test_13_trains_resumes_and_writes_the_texts_that_it_was_trained_on(tmp_path: Path) -> None:
    out = run("13_train_and_generate.py", tmp_path, str(tmp_path))
    assert float(re.findall(r"loss per label: ([\d.]+)", out)[0]) < 0.6
    assert "[['<s>', 'bike', 'Ġride'], ['<pad>', '<s>', 'I']]" in out
    assert "['bike ride I, she said', 'I ride bike']" in out
    assert "[{'generated_text': ' I, she said'}]\n[{'generated_text': 'bike ride'}]" in out
    again = run("13_train_and_generate.py", tmp_path, str(tmp_path))  # from its last checkpoint
    assert re.findall("loss per label.*", again) == re.findall("loss per label.*", out)


@pytest.mark.slow
def test_14_writes_files_of_other_trainers_and_reads_the_first_document_back(tmp_path: Path) -> None:
    out = run("14_megatron.py", tmp_path)
    assert re.search(r"^\d+ tokens of uint16$", out, re.MULTILINE)
    assert "the first document is read back: True" in out
    assert "the files hold the same ids: True" in out


@pytest.mark.slow
def test_15_has_the_losses_of_stock_with_fewer_tokens(tmp_path: Path) -> None:
    out = run("15_compute_once.py", tmp_path)
    programs = 2 if importlib.util.find_spec("trl") else 1
    assert out.count("equal: True") == programs
    counts = re.findall(r"tokens: ([\d,]+) given, ([\d,]+) real, ([\d,]+) computed", out)
    assert len(counts) == programs
    for given, real, computed in ([int(count.replace(",", "")) for count in line] for line in counts):
        assert computed < 0.7 * real < real < given
    assert len(re.findall(r"s stock, [\d.]+ s with compute_once", out)) == programs


@pytest.mark.slow
def test_16_trains_on_completions_of_two_formats(tmp_path: Path) -> None:
    out = run("16_prompts_and_completions.py", tmp_path)
    assert out.count("answers that are right: 6 of 6") == 2
    assert "trained on:  I ride it.</s>" in out
    assert "trained on: \na bike</s>" in out
    assert "columns 'instruction' and 'output' are none of the formats" in out

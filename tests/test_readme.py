"""README.md and the guides in docs/: their code runs and prints what they show, their commands and files exist.

A page is one session, run in an empty folder. A ```python block runs in one namespace with those before it; a ```text
block right after one is its output (`...` stands for what may differ). A ```pycon block is a doctest. A ```console
block is commands after `$ `, each with its output. A ```diff block must leave code that compiles and imports names that
exist. Commands of a ```bash block are not run, but their options must exist. A block that cannot run has the reason
above it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from installed import before

from hf_posenc import DataCollatorWithPositionalEncoding as Collator
from hf_posenc import train_bpe
from hf_posenc.cli import main
from hf_posenc.view.lab import source

REPO = Path(__file__).resolve().parent.parent
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+?) -->\n+)?```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([\w-]+))?\)")
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(REPO).as_posix())


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    body: str
    line: int  # of its first line on the page
    runs: bool
    adjoins: bool  # only blank lines separate it from the block before


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    result: list[Block] = []
    end = 0
    for match in BLOCK.finditer(page):
        line = page.count("\n", 0, match.start("body")) + 1
        adjoins = bool(result) and not page[end : match.start()].strip()
        result.append(Block(match["kind"], match["body"], line, match["why"] is None, adjoins))
        end = match.end()
    return result


def check_code(page: str, name: str = "page") -> list[str]:
    """Run the code of a page; return where it fails or prints something else than the page shows."""
    wrong: list[str] = []
    names: dict[str, object] = {"__name__": "__main__"}

    def compare(expected: str, printed: str, where: str) -> None:
        if not doctest.OutputChecker().check_output(expected, printed, FLAGS):
            wrong.append(f"{where}: the page shows\n{expected}and the code prints\n{printed}")

    printed = None
    for block in blocks(page):
        where = f"{name}:{block.line}"
        if block.kind == "text" and block.adjoins and printed is not None:
            compare(block.body, printed, where)
        printed = None
        if not block.runs:
            continue
        if block.kind == "python":
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * (block.line - 1) + block.body, name, "exec", dont_inherit=True), names)
            except Exception as problem:
                wrong.append(f"{where}: {problem!r}")
            printed = out.getvalue()
        elif block.kind == "pycon":
            test = doctest.DocTestParser().get_doctest(block.body, names, where, name, block.line - 1)
            report = io.StringIO()
            doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=report.write, clear_globs=False)
            names.update(test.globs)
            if report.getvalue():
                wrong.append(f"{where}: {report.getvalue()}")
        elif block.kind == "console":
            for session in block.body.removeprefix("$ ").split("\n$ "):
                line, _, expected = session.partition("\n")
                program, *arguments = shlex.split(line)
                assert program == "hf-posenc"
                compare(expected, hf_posenc(*arguments), where)
        elif block.kind == "diff":
            lines = [line[1:] for line in block.body.splitlines() if line[:1] in {"+", " "}]
            tree = ast.parse("\n".join(lines))
            imports = [
                node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "hf_posenc"
            ]
            exec(compile(ast.Module(list(imports), []), where, "exec", dont_inherit=True), {})
    return wrong


def hf_posenc(*arguments: str) -> str:
    """Run the command line in the current folder; return what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as ended:
            return f"exit {ended.code}: {out.getvalue()}{err.getvalue()}" if ended.code else out.getvalue()
    return out.getvalue()


@cache
def help_of(subcommand: str) -> str:
    """Return the help of a subcommand of `hf-posenc`; "exit" and the status if there is none."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), pytest.raises(SystemExit) as ended:
        main([subcommand, "--help"])
    return f"exit {ended.value.code}: {out.getvalue()}" if ended.value.code else out.getvalue()


def check_commands(page: str) -> list[str]:
    """Return the subcommands of `hf-posenc`, and options of them, that the page names and that do not exist."""
    wrong = []
    shell = "\n".join(block.body for block in blocks(page) if block.kind == "bash").replace("\\\n", " ")
    for subcommand, rest in re.findall(r"hf-posenc ([a-z][\w-]*)([^\n&|]*)", shell):
        missing = [option for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", rest) if not has(subcommand, option)]
        if missing or help_of(subcommand).startswith("exit"):
            wrong.append(f"hf-posenc {subcommand}: {missing or help_of(subcommand)}")
    named = set(re.findall(r"hf-posenc ([a-z][\w-]*)", page))
    for option in sorted(set(re.findall(r"`(--[a-z][\w-]*)", BLOCK.sub("", page)))):
        if not any(has(subcommand, option) for subcommand in named):
            wrong.append(f"{option} is no option of hf-posenc {', '.join(sorted(named))}")
    return wrong


def has(subcommand: str, option: str) -> bool:
    """Return whether a subcommand of `hf-posenc` has an option."""
    return re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(subcommand)) is not None


def check_links(page: str, folder: Path) -> list[str]:
    """Return the relative links that lead nowhere, anchors included, and the missing files that the text names."""
    wrong = set()
    prose = BLOCK.sub("", page)
    for target, anchor in LINK.findall(prose):
        file = folder / target
        if target and not file.exists():
            wrong.add(target)
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8") if target else page):
            wrong.add(f"{target}#{anchor}")
    files = re.findall(r"(?<![\w/.-])((?:examples|tests|hf_posenc|\.ci)/[\w./-]*\w/?)", prose)
    return sorted(wrong | {path for path in files if not (REPO / path).exists()})


def anchors(page: str) -> set[str]:
    """Return the anchors of a page: its headings, as GitHub and mkdocs make them, and the scenes of the Lab in it."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page), re.MULTILINE)
    scenes = set(re.findall(r'<section [^>]*id="(\w+)"', source("lab.html"))) if "<!-- the lab -->" in page else set()
    return scenes | {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "line",
    [
        'pip install -c constraints.txt ".[fast,plots]" && hf-posenc demo',
        'pip install -c constraints.txt -e ".[test]" && pytest',
    ],
)
def test_the_two_install_lines_are_in_the_readme_word_for_word(line: str) -> None:
    page = (REPO / "README.md").read_text(encoding="utf-8")
    assert [text.strip() for text in page.splitlines()].count(line) == 1


def test_every_extra_of_the_package_is_in_the_readme() -> None:
    extras = set(
        tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    page = (REPO / "README.md").read_text(encoding="utf-8")
    listed = page.partition("Extras: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`(?= \(|,|\.)", listed)) == extras - {"dev", "test"}


def test_the_readme_stays_short() -> None:
    assert (REPO / "README.md").stat().st_size <= 7_500


@pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning")  # by TRL 1.16
@each_page
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bert_folder: Path
) -> None:
    if path.name in ("models.md", "trainer.md") and before("transformers", "5.2"):
        pytest.skip("the page shows what later versions of transformers do")
    monkeypatch.chdir(tmp_path)
    # The Hub is not used here: a tokenizer with the same vocabulary stands in for BERT's.
    page = path.read_text(encoding="utf-8").replace(
        'Encoding("google-bert/bert-base-uncased")', f'Encoding("{bert_folder}")'
    )
    assert check_code(page, path.name) == []


@each_page
def test_the_commands_of_a_page_exist(path: Path) -> None:
    assert check_commands(path.read_text(encoding="utf-8")) == []


@each_page
def test_the_links_of_a_page_lead_somewhere(path: Path) -> None:
    assert check_links(path.read_text(encoding="utf-8"), path.parent) == []


QUICKSTART = (REPO / "docs" / "quickstart.md").read_text(encoding="utf-8")
PROGRAMS = [section for section in QUICKSTART.split("\n## ") if "```python" in section]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda section: section.partition("\n")[0])
def test_a_program_of_the_quickstart_runs_alone(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_code(program, "quickstart.md") == []


# For the classes of the diffs: the stand-in of the program's pretrained BERT, of another architecture.
OTHER_MODELS = {
    "AutoModelForSeq2SeqLM": "T5ForConditionalGeneration(T5Config(d_model=64, d_ff=64, d_kv=32, num_layers=1, "
    "num_heads=2, decoder_start_token_id=0, vocab_size=len(tokenizer)))",
    "AutoModelForCausalLM": "GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=len(tokenizer), "
    "bos_token_id=1, eos_token_id=2))",
}
OTHER_TASKS = [block.body for block in blocks(QUICKSTART) if block.kind == "diff"]


@pytest.mark.parametrize("diff", OTHER_TASKS, ids=lambda diff: re.findall(r"AutoModelFor\w+", diff)[-1])
def test_a_diff_of_the_quickstart_changes_its_program_into_one_that_runs(
    diff: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = next(block.body for block in blocks(QUICKSTART) if "as Model\n" in block.body)
    for removed, added in re.findall(r"^-(.*\n)((?:\+.*\n)+)", diff, re.MULTILINE):
        assert program.count(removed) == 1
        program = program.replace(removed, re.sub(r"^\+", "", added, flags=re.MULTILINE))
    name = re.findall(r"AutoModelFor\w+", diff)[-1]
    program = program.replace("BertModel(config)", OTHER_MODELS.get(name, "BertModel(config)"))
    exec(compile(f"from transformers import *\n{program}", "quickstart.md", "exec", dont_inherit=True), {})


@pytest.mark.filterwarnings("ignore:only the tokens with 1 in")
def test_a_row_of_each_format_in_the_quickstart_makes_the_batch_that_the_table_lists() -> None:
    tokenizer = train_bpe(["I ride bike", "bike ride I, she said"], vocab_size=300)
    section = QUICKSTART.partition("\n## Formats of a row\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| [^|`]+ \| `(.+?)` \| (?:`(.+?)` )?\| (?:(`.+?) )?\|$", section, re.MULTILINE)
    assert len(lines) == section.count("\n| ") - 1  # without the names of the columns
    for row, settings, also in lines:
        collate = eval(f"Collator(tokenizer, {settings})", {"Collator": Collator, "tokenizer": tokenizer})
        batch = collate([ast.literal_eval(row)])
        always = {"input_ids", "position_ids", "look_ahead_mask"}
        assert always | set(re.findall(r"\w+", also)) <= set(batch), row
        assert ("attention_mask" in batch) == ("document_ids" not in batch), row
        assert ("labels" in batch) == ("labels" in also), row


def test_meta_a_page_that_shows_something_else_fails(tmp_path: Path) -> None:
    good = "```python\nx = 2\nprint(x)\n```\n\n```text\n2\n```\n```pycon\n>>> x + 1\n3\n```\n"
    assert check_code(good) == []
    assert "the code prints" in check_code(good.replace("\n2\n", "\n3\n"))[0]
    assert "Got" in check_code(good.replace("\n3\n", "\n4\n"))[0]
    assert "NameError" in check_code(good.replace("print(x)", "print(y)"))[0]
    assert check_code("<!-- not run: needs a GPU -->\n" + good.replace("print(x)", "print(y)")[:30] + "```\n") == []
    console = "```console\n$ hf-posenc --version\n{}\n```\n"
    assert check_code(console.format("hf-posenc 0...")) == []
    assert "the code prints" in check_code(console.format("version 0"))[0]


def test_meta_a_missing_option_file_or_anchor_is_found(tmp_path: Path) -> None:
    assert check_commands("```bash\nhf-posenc verify folder --no-such\n```\n") == ["hf-posenc verify: ['--no-such']"]
    assert check_commands("```bash\nhf-posenc encode a.txt -t bert --output out\n```\nand `--workers 2`") == []
    assert check_commands("```bash\nhf-posenc verify a \\\n    --gone\n```\n") == ["hf-posenc verify: ['--gone']"]
    assert check_commands("`hf-posenc verify folder` and `--gone`") == ["--gone is no option of hf-posenc verify"]
    (tmp_path / "there.md").write_text("# A title: it's `here`\n")
    links = (
        "[a](there.md) [b](there.md#a-title-its-here) [c](#gone) [d](there.md#gone) [e](no/such.md) `examples/99.py`"
    )
    assert check_links(links, tmp_path) == ["#gone", "examples/99.py", "no/such.md", "there.md#gone"]

"""README.md, held against the package: its code runs and prints what it says, its commands and files exist.

A ```python block runs in the order of the page, all in one namespace. A ```text block right after one is what that
code prints (with `...` for what may differ). A ```pycon block is a doctest. A ```diff block must leave code that
compiles and imports names that exist. A block that cannot run says so above it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+?) -->\n+)?```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One fenced block of the page."""

    kind: str
    body: str
    line: int  # the first one inside it
    runs: bool
    adjoins: bool  # nothing but blank lines between it and the block before


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found, end = [], 0
    for match in BLOCK.finditer(page):
        line = page.count("\n", 0, match.start("body")) + 1
        adjoins = bool(found) and not page[end : match.start()].strip()
        found.append(Block(match["kind"], match["body"], line, match["why"] is None, adjoins))
        end = match.end()
    return found


def check_code(page: str) -> list[str]:
    """Run the page's Python; return where it fails or prints something else than the page says."""
    wrong: list[str] = []
    names: dict[str, object] = {"__name__": "__main__"}
    checker = doctest.OutputChecker()
    printed = None
    for block in blocks(page):
        if block.kind == "text" and block.adjoins and printed is not None:
            if not checker.check_output(block.body, printed, FLAGS):
                wrong.append(f"README.md:{block.line}: the page says\n{block.body}and the code prints\n{printed}")
            printed = None
            continue
        printed = None
        if not block.runs:
            continue
        where = f"README.md:{block.line}"
        if block.kind == "python":
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * (block.line - 1) + block.body, "README.md", "exec", dont_inherit=True), names)
            except Exception as problem:
                wrong.append(f"{where}: {problem!r}")
            printed = out.getvalue()
        elif block.kind == "pycon":
            test = doctest.DocTestParser().get_doctest(block.body, names, where, "README.md", block.line - 1)
            report = io.StringIO()
            doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write, clear_globs=False)
            names.update(test.globs)
            if report.getvalue():
                wrong.append(f"{where}: {report.getvalue()}")
        elif block.kind == "diff":
            kept = [line[1:] for line in block.body.splitlines() if line[:1] in {"+", " "}]
            tree = ast.parse("\n".join(kept))
            imports = [
                node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "hf_posenc"
            ]
            exec(compile(ast.Module(list(imports), []), where, "exec", dont_inherit=True), {})
    return wrong


def check_commands(page: str) -> list[str]:
    """Return the `hf-posenc` subcommands on the page that the command line does not have."""
    wrong = []
    shell = [block.body for block in blocks(page) if block.kind in {"bash", "sh", "console"}]
    for command in sorted(set(re.findall(r"hf-posenc ([a-z][\w-]*)", "\n".join(shell)))):
        run = subprocess.run(
            [sys.executable, "-m", "hf_posenc", command, "--help"],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            wrong.append(f"hf-posenc {command}: {run.stderr}")
    return wrong


def check_paths(page: str) -> list[str]:
    """Return the files of this repository that the page names or links to and that are not there."""
    linked = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page)
    named = re.findall(r"(?<![\w/.-])((?:examples|tests|hf_posenc|\.ci)/[\w./-]*\w/?)", page)
    return sorted({path for path in [*linked, *named] if not (REPO / path).exists()})


@pytest.fixture
def page() -> str:
    return (REPO / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    ["pip install -c constraints.txt . && hf-posenc demo", 'pip install -c constraints.txt -e ".[test]" && pytest'],
)
def test_the_two_install_lines_are_there_word_for_word(page: str, line: str) -> None:
    assert [text.strip() for text in page.splitlines()].count(line) == 1


def test_the_code_on_the_page_runs_and_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sum(block.kind == "python" and block.runs for block in blocks(page)) > 0
    assert check_code(page) == []


def test_the_commands_on_the_page_exist(page: str) -> None:
    assert check_commands(page) == []


def test_the_files_on_the_page_exist(page: str) -> None:
    assert check_paths(page) == []


def test_a_page_that_says_something_else_is_seen() -> None:
    good = "```python\nx = 2\nprint(x)\n```\n\n```text\n2\n```\n```pycon\n>>> x + 1\n3\n```\n"
    assert check_code(good) == []
    assert "the code prints" in check_code(good.replace("\n2\n", "\n3\n"))[0]
    assert "Got" in check_code(good.replace("\n3\n", "\n4\n"))[0]
    assert "NameError" in check_code(good.replace("print(x)", "print(y)"))[0]
    assert check_code("<!-- not run: needs a GPU -->\n" + good.replace("print(x)", "print(y)")[:30] + "```\n") == []
    assert check_paths("see [this](no/such.md) and `examples/99_none.py`") == ["examples/99_none.py", "no/such.md"]

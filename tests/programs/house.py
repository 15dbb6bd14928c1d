"""Print the size of the package: `python -m tests.programs.house [FOLDER]`.

Counted are lines of code, of docstrings and of comments, modules, and lines of tests. The heart is what a call
`collate(texts)` runs: its functions and their lines of code, and the lines of code of the modules that hold them.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FREE_RELATIVE = re.compile(r"(What|Whether|How|Where|Who|Whose|Which|When|Of|As|That)\b")
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def trees(folder: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield path, source and syntax tree of every module below a folder."""
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        yield path.relative_to(folder), source, ast.parse(source)


def code_lines(source: str, tree: ast.Module) -> tuple[set[int], set[int], set[int]]:
    """Return the numbers of the lines of code, of docstrings and of comments that stand alone."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    comments, filled = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            comments.add(token.start[0])
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            filled.update(range(token.start[0], token.end[0] + 1))
    return filled - docstrings - comments, docstrings, comments


HEART = """
import inspect, json, sys
import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe
collate = DataCollatorWithPositionalEncoding(train_bpe(["a b c"] * 9, 300), embedding=None)
seen = set()
def note(frame, event, argument):
    code, name = frame.f_code, frame.f_globals.get("__name__", "")
    is_ours = name.startswith("hf_posenc") and code.co_filename[0] != "<" and code.co_name[0] != "<"
    if event == "call" and is_ours:
        seen.add((code.co_filename, code.co_firstlineno))
sys.setprofile(note)
collate(["a b", "c"])
sys.setprofile(None)
parameters = inspect.signature(DataCollatorWithPositionalEncoding).parameters
print(json.dumps([sorted(seen), len(hf_posenc.__all__), len(parameters)]))
"""


def heart(folder: Path) -> dict[str, int]:
    """Return the figures of `collate(texts)` and of the public names of the checkout in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run([sys.executable, "-c", HEART], env=environment, check=True, capture_output=True, text=True)
    functions, names, arguments = json.loads(ran.stdout)
    lines_of, own = {}, 0
    for file in sorted({file for file, _ in functions}):
        source = Path(file).read_text(encoding="utf-8")
        tree = ast.parse(source)
        lines_of[file], _, _ = code_lines(source, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if [file, first] in functions:
                    own += len(lines_of[file] & set(range(first, (node.end_lineno or 0) + 1)))
    return {
        "names at the top": names,
        "arguments of the collator": arguments,
        "functions that collate(texts) runs": len(functions),
        "lines of code in them": own,
        "modules that hold them": len(lines_of),
        "lines of code in these modules": sum(map(len, lines_of.values())),
    }


def free_relatives(package: Path) -> list[str]:
    """Return the docstrings that open with a free relative, as "module:line: first line"."""
    found = []
    for path, _, tree in trees(package):
        for node in ast.walk(tree):
            doc = ast.get_docstring(node) if isinstance(node, _DEFINITIONS) else None
            if doc and FREE_RELATIVE.match(doc):
                found.append(f"{path}:{getattr(node, 'lineno', 1)}: {doc.splitlines()[0]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    given = parser.parse_args()
    package = given.folder / "hf_posenc"
    rooms = Counter[str]()
    total = [0, 0, 0]
    for path, source, tree in trees(package):
        sizes = [*map(len, code_lines(source, tree))]
        rooms[path.parts[0].removesuffix(".py")] += sizes[0]
        total = [before + size for before, size in zip(total, sizes, strict=True)]
    for label, value in {
        **dict(zip(("lines of code", "lines of docstrings", "lines of comments"), total, strict=True)),
        "modules": len(list(trees(package))),
        "lines of tests": sum(source.count("\n") for _, source, _ in trees(given.folder / "tests")),
        **heart(given.folder.resolve()),
    }.items():
        print(f"{value:7,}  {label}")
    print("lines of code by room:", ", ".join(f"{room} {lines:,}" for room, lines in rooms.most_common()))


if __name__ == "__main__":
    main()

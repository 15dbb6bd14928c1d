"""Print the size and the shape of the package: `python -m tests.programs.house [FOLDER]`.

Counted are lines of code, of docstrings and of comments, modules, modules of fewer than 60 lines, private functions
with one caller or with a docstring of more than two lines, docstrings that open with a free relative ("What ...",
"Whether ...") instead of a noun or a verb, module names that occur twice, and the modules inside a room that the tests
import instead of the room or a public name. The heart is what a call `collate(texts)` runs: its functions and their
lines of code, and the lines of code of the modules that hold them.
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


def long_private_docstrings(tree: ast.Module) -> int:
    """Return the number of private functions whose docstring has more than two lines."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and re.match("_[a-z]", node.name))
    return sum((ast.get_docstring(node) or "").count("\n") > 1 for node in functions)


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


def internal_imports(tests: Path, package: Path) -> dict[str, list[str]]:
    """Return the modules inside rooms that tests import, each with the files that do."""
    found: dict[str, list[str]] = {}
    for path, _, tree in trees(tests):
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                parts = name.split(".")
                inside = package.joinpath(*parts[1:])
                is_module = inside.with_suffix(".py").exists() or (inside / "__init__.py").exists()
                is_internal = parts[0] == "hf_posenc" and len(parts) > 2 and parts[1] != "_common" and is_module
                if is_internal and str(path) not in found.get(name, []):
                    found.setdefault(name, []).append(str(path))
    return found


def single_callers(package: Path) -> int:
    """Return the number of private functions that are named once outside of their definition."""
    uses: Counter[str] = Counter()
    private = []
    for _, _, tree in trees(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and re.match(r"_[a-z]", node.name):
                private.append(node.name)
            elif isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
    return sum(uses[name] == 1 for name in private)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--list", action="store_true", help="also list what is counted last")
    given = parser.parse_args()
    package, tests = given.folder / "hf_posenc", given.folder / "tests"
    sizes = {path: source.count("\n") for path, source, _ in trees(package)}
    kinds = [tuple(map(len, code_lines(source, tree))) for _, source, tree in trees(package)]
    code, docstrings, comments = map(sum, zip(*kinds, strict=True))
    names = Counter(path.stem for path in sizes if path.stem not in ("__init__", "__main__"))
    internal, openings = internal_imports(tests, package), free_relatives(package)
    rooms = Counter[str]()
    for path, lines in sizes.items():
        rooms[path.parts[0].removesuffix(".py")] += lines
    for label, value in {
        "lines": sum(sizes.values()),
        "lines of code": code,
        "lines of docstrings": docstrings,
        "lines of comments": comments,
        "modules": len(sizes),
        "modules of fewer than 60 lines": sum(lines < 60 for path, lines in sizes.items() if path.stem != "__init__"),
        "private functions with one caller": single_callers(package),
        "private functions with a docstring of more than two lines": sum(
            long_private_docstrings(tree) for _, _, tree in trees(package)
        ),
        "docstrings that open with a free relative": len(openings),
        "module names that occur twice": sum(count > 1 for count in names.values()),
        "internal modules that tests import": len(internal),
        "lines of tests": sum(source.count("\n") for _, source, _ in trees(tests)),
        "rooms": len({path.parts[0] for path in sizes if not path.parts[0].startswith("__")}),
        **heart(given.folder.resolve()),
    }.items():
        print(f"{value:7,}  {label}")
    print("lines by room:", ", ".join(f"{room} {lines:,}" for room, lines in rooms.most_common()))
    if given.list:
        print(*openings, *(f"{name}: {', '.join(files)}" for name, files in internal.items()), sep="\n")
        print(*(name for name, count in names.items() if count > 1))


if __name__ == "__main__":
    main()

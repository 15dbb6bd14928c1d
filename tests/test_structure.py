"""The shape of the package, read from its source: who imports whom, what is public, what an import does, its errors.

Each check is a tool, or a function of a source tree that returns what it found wrong, one line each. Each has a test
that the tree at hand passes, and one that breaks a copy of it and must see the failure.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import free_relatives
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parent.parent

LINT, DEPTRY, RUFF = TOOLS = (
    "lint-imports --no-cache",
    "deptry hf_posenc",
    "ruff check --no-cache --output-format concise hf_posenc",
)
HEAVY = {"transformers", "datasets", "ray", "pyarrow", "matplotlib"}


def modules(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Every module below `package`: its path from there, its tree."""
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package), ast.parse(path.read_text(encoding="utf-8"))


def check_errors(package: Path) -> list[str]:
    """Every error a user can meet is worded by a function of `_common.errors`, or by one that returns nothing else."""
    worded = {"explain", "one_of"}
    classes = {"ValueError", "TypeError", "ImportError", "RuntimeError", "KeyError"}
    trees = list(modules(package))

    def is_worded(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in worded

    for _, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                returns = [part for part in ast.walk(node) if isinstance(part, ast.Return)]
                if returns and all(is_worded(part.value) for part in returns):
                    worded.add(node.name)
    wrong = []
    for inside, tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, ast.Raise) or node.exc is None:
                continue
            call = node.exc
            name = ast.unparse(call.func if isinstance(call, ast.Call) else call)
            if name == "KeyError":
                wrong.append(f"{inside}:{node.lineno}: KeyError tells a user nothing; say ValueError")
            elif name in classes and not (isinstance(call, ast.Call) and is_worded(next(iter(call.args), None))):
                wrong.append(f"{inside}:{node.lineno}: {name} is not worded by a function of _common/errors.py")
    return wrong


def check_constraints(repo: Path) -> list[str]:
    """Whatever `.[test]` brings has its exact version in constraints.txt."""
    lines = [line for line in (repo / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    wrong = [
        f"constraints.txt: {line} is not an exact version"
        for line in lines
        if not re.fullmatch(r"[\w.-]+==[\w.]+", line)
    ]
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines}
    settings = tomllib.loads((repo / "pyproject.toml").read_text())
    project = settings["project"]
    extras = project["optional-dependencies"]
    todo = [*settings["build-system"]["requires"], *project["dependencies"], *extras["test"]]
    seen: set[tuple[str, str]] = set()
    while todo:
        need = Requirement(todo.pop())
        name = canonicalize_name(need.name)
        if name == project["name"]:
            todo += [line for extra in need.extras for line in extras[extra]]
            continue
        for extra in ("", *need.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name not in pinned:
                wrong.append(f"constraints.txt: {name} is missing")
            try:
                below = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:  # hatchling lives in the build environment only
                continue
            if name == "torch":  # what an accelerator's build adds depends on the machine, not on us
                below = [line for line in below if not re.match(r"nvidia|cuda|triton", line)]
            for line in below:
                marker = Requirement(line).marker
                if marker is None or marker.evaluate({"extra": extra}):
                    todo.append(line)
    return wrong


# Functions of torch that make a tensor on the default device, which users set, unless they get one.
_NEW = re.compile(
    r"torch\.(arange|as_tensor|asarray|empty|eye|full|linspace|ones|rand|randint|randn|randperm|tensor|tril_indices"
    r"|triu_indices|zeros)"
)


def check_devices(package: Path) -> list[str]:
    """Every new tensor names its device. Only weights and `default_device` take the default one."""
    found = []
    for inside, tree in modules(package):
        calls = [(node, ast.unparse(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        weights = {id(each) for node, name in calls if name == "nn.Parameter" for each in node.args}
        for node, name in calls:
            named = id(node) in weights or any(keyword.arg == "device" for keyword in node.keywords)
            if _NEW.fullmatch(name) and not named and inside.name != "compat.py":
                found.append(f"{inside}:{node.lineno} calls {name} without device=")
    return found


# Names of a tokenizer of tokenizers, and of the attributes of transformers' tokenizers that hold one.
_OF_RUST = {
    *("backend_tokenizer", "_tokenizer", "normalizer", "pre_tokenizer", "post_processor", "to_str", "token_to_id"),
    *("id_to_token", "encode_batch_fast", "get_vocab_size", "get_added_tokens_decoder", "no_padding", "no_truncation"),
}
_SEAM = {Path("tokenization/rust.py"), Path("_common/compat.py")}  # the second replaces `_tokenizer`, a private name


def check_seam(package: Path) -> list[str]:
    """Only `_SEAM` uses attributes of tokenizers' objects, also by `getattr`."""
    found = []
    for inside, tree in modules(package):
        for node in ast.walk(tree) if inside not in _SEAM else ():
            name = getattr(node, "attr", None)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr", "setattr"}:
                name = ast.unparse(node.args[1]).strip("'")
            if name in _OF_RUST and ast.unparse(node) != "self._tokenizer":
                found.append(f"{inside}:{node.lineno} uses {name}")
    return found


@functools.cache
def found_on_import(package: Path) -> tuple[list[str], list[str]]:
    """Return the findings of `_QUIET` and of `_DOCUMENTED` in a process of their own, which imports `package`."""
    run = subprocess.run(
        [sys.executable, "-c", _QUIET + _DOCUMENTED, json.dumps({"package": str(package), "heavy": sorted(HEAVY)})],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if run.returncode:
        failed = [f"import failed: {run.stderr.strip().splitlines()[-1]}"]
        return failed, failed
    quiet, documented = run.stdout.splitlines()[-2:]
    return json.loads(quiet), json.loads(documented)


_QUIET = """
import json, logging, os, sys, threading, warnings
import torch
given = json.loads(sys.argv[1])
wrong = []
calls = {"socket.connect", "socket.getaddrinfo"}
sys.addaudithook(lambda event, args: event in calls and wrong.append(f"import hf_posenc calls {event} {args}"))
def state():
    loggers = [("root", logging.root), *logging.root.manager.loggerDict.items()]
    return {
        "environment": dict(os.environ), "sys.path": list(sys.path), "threads": threading.active_count(),
        "warning filters": list(warnings.filters), "logging level": logging.root.level,
        "logging handlers": {name: list(log.handlers) for name, log in loggers if getattr(log, "handlers", [])},
        "default dtype": torch.get_default_dtype(), "threads of torch": torch.get_num_threads(),
        "random state": torch.random.get_rng_state().tolist(), "CUDA": torch.cuda.is_initialized(),
    }
before = state()
import hf_posenc
for name in hf_posenc.__all__:  # names may load on first use: what they bring along counts as well
    getattr(hf_posenc, name, None)
after = state()
wrong += [f"import hf_posenc changes the {name}" for name in before if before[name] != after[name]]
wrong += [f"import hf_posenc loads {name}" for name in given["heavy"] if name in sys.modules]
if not hf_posenc.__file__.startswith(given["package"]):
    wrong.append(f"another hf_posenc was imported: {hf_posenc.__file__}")
print(json.dumps(wrong))
"""

_DOCUMENTED = r"""
import doctest, inspect, json, re, sys
import hf_posenc
wrong = [] if hf_posenc.__all__ == sorted(hf_posenc.__all__) else ["__all__ is not sorted"]
sections = ["Args:", "Returns:", "Raises:", "Source:", "Example:"]
for name in hf_posenc.__all__:
    try:
        value = getattr(hf_posenc, name)
    except Exception as problem:
        wrong.append(f"{name} cannot be imported: {problem!r}")
        continue
    if not callable(value):
        continue
    doc = inspect.cleandoc(value.__doc__ or "")
    found = [line.strip() for line in doc.splitlines() if line.strip() in sections and not line.startswith(" ")]
    if found != [section for section in sections if section in found]:
        wrong.append(f"{name}: its sections stand in the order {found}")
    if "Example:" not in found or not doctest.DocTestParser().get_examples(doc):
        wrong.append(f"{name}: its docstring has no example that runs")
    try:
        signature = inspect.signature(value)
    except ValueError:
        signature = inspect.Signature()
    taken = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if taken and "Args:" not in found:
        wrong.append(f"{name}: its docstring has no Args")
    for parameter in taken:
        if "Args:" in found and not re.search(rf"\b{parameter.name}\b", doc):
            wrong.append(f"{name}: its docstring does not name {parameter.name}")
    if inspect.isfunction(value) and signature.return_annotation not in (None, "None") and "Returns:" not in found:
        wrong.append(f"{name}: its docstring has no Returns")
    if inspect.isclass(value):
        for method, function in vars(value).items():
            function = getattr(function, "__func__", getattr(function, "fget", function))
            if inspect.isfunction(function) and not method.startswith("_") and not function.__doc__:
                wrong.append(f"{name}.{method}: no docstring")
print(json.dumps(wrong))
"""


def check_import_is_quiet(package: Path) -> list[str]:
    """`import hf_posenc` loads no heavy library and leaves the process as it was."""
    return found_on_import(package)[0]


def check_public_face(package: Path) -> list[str]:
    """Every name of `__all__` exists, and its docstring has an example that runs."""
    return found_on_import(package)[1]


def found_by(command: str, repo: Path) -> str:
    """Run a tool in a repository, and return its output if it finds a fault."""
    program, *arguments = command.split()
    done = subprocess.run(
        [Path(sys.executable).parent / program, *arguments],
        env={**os.environ, "PYTHONPATH": str(repo)},
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("command", TOOLS)
def test_a_tool_finds_no_fault(command: str) -> None:
    """Rooms, circles and torch; dependencies that are not declared or not used; calls and modules that are banned."""
    assert found_by(command, REPO) == ""


def test_the_contract_lists_the_rooms_of_the_page_for_contributors() -> None:
    rooms = re.findall(
        r"^\| `(\w+)(?:/|\.py)` \|", (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert contracts[0]["layers"] == ["__main__", *reversed(rooms)]


def test_every_error_goes_through_explain_or_one_of() -> None:
    assert check_errors(REPO / "hf_posenc") == []


def test_the_version_is_that_of_pyproject() -> None:
    import hf_posenc

    assert hf_posenc.__version__ == tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]


def test_every_new_tensor_names_its_device() -> None:
    assert check_devices(REPO / "hf_posenc") == []


def test_one_module_uses_the_objects_of_tokenizers() -> None:
    assert check_seam(REPO / "hf_posenc") == []


@pytest.mark.skipif(
    f"transformers=={importlib.metadata.version('transformers')}" not in (REPO / "constraints.txt").read_text(),
    reason="other versions than those of constraints.txt need other libraries",
)
def test_constraints_pin_everything_the_test_extra_installs() -> None:
    assert check_constraints(REPO) == []


def test_import_loads_no_heavy_library_and_changes_nothing() -> None:
    assert check_import_is_quiet(REPO / "hf_posenc") == []


def test_the_public_names_are_sorted_and_each_has_an_example() -> None:
    assert check_public_face(REPO / "hf_posenc") == []


def test_the_test_process_cannot_reach_the_network() -> None:
    with pytest.raises(RuntimeError, match=r"reach the network.*example\.com"):
        socket.create_connection(("example.com", 80))
    with socket.socket() as door, pytest.raises(RuntimeError, match=r"reach the network.*192\.0\.2\.1"):
        door.connect(("192.0.2.1", 80))
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_no_docstring_opens_with_a_free_relative() -> None:
    assert free_relatives(REPO / "hf_posenc") == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository's package and settings, free to be broken."""
    shutil.copytree(REPO / "hf_posenc", tmp_path / "hf_posenc", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(REPO / name, tmp_path)
    return tmp_path


def add(path: Path, line: str) -> None:
    """Write one more line at the end of a source file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")


_FAULTS = [  # tool, file, lines, and words that the tool prints
    (
        LINT,
        "positions/module.py",
        "def f():\n    from ..collator import Batch",
        "positions is not allowed to import hf_posenc.coll",
    ),
    (LINT, "ragged.py", "from hf_posenc import Batch", "hf_posenc.ragged is not allowed to import hf_posenc:"),
    (LINT, "packing/token_budget.py", "def f():\n    import torch", "hf_posenc.packing is not allowed to import torch"),
    (LINT, "collator/targets.py", "from .pipeline import tokenize", "No cycles are allowed in hf_posenc.collator"),
    (
        LINT,
        "view/lab.py",
        "def f():\n    import tokenizers",
        "hf_posenc is not allowed to import tokenizers",
    ),
    (LINT, "surprise.py", "", "hf_posenc.surprise"),
    (
        DEPTRY,
        "positions/module.py",
        "def f():\n    import dill.source",
        "DEP003 'dill' imported but it is a transitive",
    ),
    (
        RUFF,
        "masks/core.py",
        "import transformers",
        "masks/core.py:2:8: TID253 `transformers` is banned at the module level",
    ),
    (RUFF, "masks/a.py", "import pickle", "masks/a.py:2:8: TID251 `pickle` is banned"),
    (RUFF, "masks/b.py", "def f(x):\n    return eval(x)", "masks/b.py:3:12: S307"),
    (RUFF, "masks/c.py", "import torch\n\nX = torch.load('x')", "masks/c.py:4:5: TID251 `torch.load` is banned"),
]


def test_meta_what_a_tool_must_find_is_seen(copy: Path) -> None:
    """A copy with all these faults is compared with the words that each tool prints for each fault."""
    settings = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(settings.replace("dependencies = [", 'dependencies = [\n  "orjson>=3",', 1))
    for _, path, lines, _ in _FAULTS:
        add(copy / "hf_posenc" / path, lines)
    found = {command: re.sub(r"\x1b\[\d*m", "", found_by(command, copy)) for command in TOOLS}
    assert [(path, words) for tool, path, _, words in _FAULTS if words not in found[tool]] == []
    assert "DEP002 'orjson' defined as a dependency but not used" in found[DEPTRY]


def test_meta_a_docstring_that_opens_with_a_free_relative_is_seen(copy: Path) -> None:
    add(
        copy / "hf_posenc" / "positions.py",
        'def f():\n    """What f returns."""\ndef g():\n    """Return what f returns."""',
    )
    assert [line.split(": ")[1] for line in free_relatives(copy / "hf_posenc")] == ["What f returns."]


def test_meta_a_tensor_without_a_device_is_seen(copy: Path) -> None:
    add(copy / "hf_posenc" / "masks" / "reasons.py", "_ONES = torch.ones(3)")
    add(copy / "hf_posenc" / "ragged.py", "_ONES = torch.ones(3, device='cpu')")
    assert [line.partition(":")[0] for line in check_devices(copy / "hf_posenc")] == ["masks/reasons.py"]


def test_meta_an_object_of_tokenizers_in_another_module_is_seen(copy: Path) -> None:
    add(copy / "hf_posenc" / "ragged.py", "def f(t):\n    return self._tokenizer.backend_tokenizer")
    add(copy / "hf_posenc" / "testing.py", "def f(t):\n    return getattr(t, 'to_str')()")
    assert [line.split(":")[0] for line in check_seam(copy / "hf_posenc")] == ["ragged.py", "testing.py"]


def test_meta_an_error_in_other_words_is_seen(copy: Path) -> None:
    package = copy / "hf_posenc"
    add(package / "masks.py", "def f(x):\n    raise ValueError(f'bad {x}')")
    add(package / "ragged.py", "def g():\n    raise TypeError")
    add(package / "positions.py", "def h(d):\n    raise KeyError(d)")
    add(
        package / "packing.py", "def _words():\n    return explain('x')\ndef k():\n    raise ValueError(_words())"
    )  # allowed
    assert [line.split(":")[0] for line in check_errors(package)] == ["masks.py", "positions.py", "ragged.py"]


def test_meta_a_package_without_a_pin_is_seen(copy: Path) -> None:
    pins = (copy / "constraints.txt").read_text()
    (copy / "constraints.txt").write_text(re.sub(r"(?m)^pillow==.*\n", "", pins).replace("tqdm==", "tqdm>="))
    found = "\n".join(check_constraints(copy))
    assert "pillow is missing" in found
    assert "tqdm>=" in found


@pytest.mark.slow
def test_meta_an_import_that_does_something_and_a_public_name_that_is_new_or_unexplained_are_seen(copy: Path) -> None:
    package = copy / "hf_posenc"
    add(
        package / "__init__.py",
        "import os, logging, warnings, datasets\nos.environ['X_POSENC'] = '1'\nlogging.basicConfig()\n"
        "warnings.simplefilter('ignore')\n__all__ += ['Batch']",
    )
    add(package / "__init__.pyi", "from .masks import extra as extra\nfrom .masks import absent as absent")
    add(package / "masks" / "__init__.py", "def extra(x):\n    'Words.'")
    found = "\n".join(check_import_is_quiet(package))
    assert "changes the environment" in found
    assert "changes the warning filters" in found
    assert "changes the logging handlers" in found
    assert "loads datasets" in found
    found = "\n".join(check_public_face(package))
    assert "__all__ is not sorted" in found
    assert "absent cannot be imported" in found
    assert "extra: its docstring has no example that runs" in found
    assert "extra: its docstring has no Args" in found

"""The shape of the package, read from its source: who imports whom, what is public, what an import does, its errors.

Each check is a function of a source tree that returns what it found wrong, one line each. Each has a test that the tree
at hand passes, and one that breaks a copy of it and must see the failure.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from house import free_relatives
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parent.parent

# A room is a module or folder at the top of the package. It imports only rooms that stand above it in the table of
# CONTRIBUTING.md; those from "corpus" on may import heavy libraries. `__init__` names every public object, so only the
# command line may import it.
ROOMS = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
ROOMS.insert(ROOMS.index("cli"), "__init__")
# Modules that belong to a room although they stand outside of its folder.
ROOM_OF = {"__main__": "cli"}
HEAVY = {"transformers", "datasets", "ray", "pyarrow", "matplotlib"}
NUMPY_ONLY = set(ROOMS[: ROOMS.index("positions")])


@functools.cache
def parsed(source: str) -> ast.Module:
    """Parse a source text once: most checks read the same modules, those that break a copy read all but one of them."""
    return ast.parse(source)


@pytest.fixture(scope="module", autouse=True)
def _forget_the_trees() -> Iterator[None]:
    yield
    for cached in (parsed, nodes, written, imports):
        cached.cache_clear()


def modules(package: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Every module below `package`: its path from there, its room, its tree."""
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        name = inside.parts[0].removesuffix(".py")
        yield inside, ROOM_OF.get(name, name), parsed(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """Return every node of a module."""
    return list(ast.walk(tree))


@functools.cache
def written(node: ast.AST) -> str:
    """Return the source of a node."""
    return ast.unparse(node)


@functools.cache
def imports(tree: ast.Module) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import that runs, and whether it runs when the module is loaded. Those for type checkers are left out."""

    def walk(node: ast.AST, at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child, at_load
            elif isinstance(child, ast.If) and written(child.test).endswith("TYPE_CHECKING"):
                for statement in child.orelse:
                    yield from walk(statement, at_load)
            else:
                inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, at_load and not inner)

    return list(walk(tree, True))


def imported(node: ast.Import | ast.ImportFrom, inside: Path) -> list[str]:
    """The full dotted names that an import statement in the module at `inside` asks for."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        here = ["hf_posenc", *inside.parent.parts]
        base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def target_room(dotted: str, package: Path) -> str | None:
    """The room of this package that a dotted name belongs to; `None` for other people's modules."""
    first, _, rest = dotted.partition(".")
    if first != "hf_posenc":
        return None
    name = rest.split(".")[0]
    is_module = (package / f"{name}.py").exists() or (package / name / "__init__.py").exists()
    return ROOM_OF.get(name, name) if is_module else "__init__"


def check_layers(package: Path) -> list[str]:
    """A module imports only rooms above its own, inside functions too; every room is listed."""
    wrong = []
    for inside, room, tree in modules(package):
        if room not in ROOMS:
            wrong.append(f"{inside}: room {room!r} is not in ROOMS")
            continue
        for node, _ in imports(tree):
            for dotted in imported(node, inside):
                target = target_room(dotted, package)
                if target not in (None, room, *ROOMS[: ROOMS.index(room)]):
                    wrong.append(f"{inside}:{node.lineno}: {room} imports {target}, which does not stand above it")
    return wrong


def check_circles(package: Path) -> list[str]:
    """No modules import each other in a circle, not even for type checkers."""
    graph: dict[Path, set[Path]] = {}
    for inside, _, tree in modules(package):
        asked = [node for node in nodes(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [dotted.split(".")[1:] for node in asked for dotted in imported(node, inside)]
        paths = {Path(*parts[:end]).with_suffix(".py") for parts in names for end in (1, 2, 3) if parts[:end]}
        graph[inside] = {path for path in paths if (package / path).is_file()} - {inside}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [" ← ".join(map(str, error.args[1]))]
    return []


def check_heavy_imports(package: Path) -> list[str]:
    """No room above "corpus" loads a library that costs seconds or may be missing when it is imported."""
    wrong = []
    for inside, room, tree in modules(package):
        is_light = room not in ROOMS[ROOMS.index("corpus") :] or room == "__init__"
        for node, at_load in imports(tree):
            for dotted in imported(node, inside):
                library = dotted.split(".")[0]
                if at_load and library in HEAVY and (is_light or library == "matplotlib"):
                    wrong.append(f"{inside}:{node.lineno}: {library} is loaded with the module")
                if library == "torch" and room in NUMPY_ONLY and (at_load or inside.stem != "compat"):
                    wrong.append(f"{inside}:{node.lineno}: torch in {room}, which is NumPy only")
    return wrong


def check_errors(package: Path) -> list[str]:
    """Every error a user can meet is worded by a function of `_common.errors`, or by one that returns nothing else."""
    worded = {"explain", "one_of"}
    classes = {"ValueError", "TypeError", "ImportError", "RuntimeError", "KeyError"}
    trees = [(inside, tree) for inside, _, tree in modules(package)]

    def is_worded(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Call) and written(node.func).split(".")[-1] in worded

    for _, tree in trees:
        for node in nodes(tree):
            if isinstance(node, ast.FunctionDef):
                returns = [part for part in ast.walk(node) if isinstance(part, ast.Return)]
                if returns and all(is_worded(part.value) for part in returns):
                    worded.add(node.name)
    wrong = []
    for inside, tree in trees:
        for node in nodes(tree):
            if not isinstance(node, ast.Raise) or node.exc is None:
                continue
            call = node.exc
            name = written(call.func if isinstance(call, ast.Call) else call)
            if name == "KeyError":
                wrong.append(f"{inside}:{node.lineno}: KeyError tells a user nothing; say ValueError")
            elif name in classes and not (isinstance(call, ast.Call) and is_worded(next(iter(call.args), None))):
                wrong.append(f"{inside}:{node.lineno}: {name} is not worded by a function of _common/errors.py")
    return wrong


def check_version(repo: Path) -> list[str]:
    """The version is written in pyproject.toml and nowhere in the code; the changelog has an entry for it."""
    version = tomllib.loads((repo / "pyproject.toml").read_text())["project"]["version"]
    wrong = []
    for inside, _, tree in modules(repo / "hf_posenc"):
        for node in nodes(tree):
            if isinstance(node, ast.Constant) and node.value == version:
                wrong.append(f"{inside}:{node.lineno}: the version {version} is written out")
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                if "__version__" in names:
                    wrong.append(f"{inside}:{node.lineno}: __version__ is written out")
    entry = "Unreleased" if ".dev" in version else version
    if f"## [{entry}]" not in (repo / "CHANGELOG.md").read_text():
        wrong.append(f"CHANGELOG.md: no entry for {version}")
    return wrong


def sought(tree: ast.Module, inside: Path) -> Iterator[tuple[str, int]]:
    """Every library that a module imports or looks for by name, with the line."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node, _ in imports(tree):
        yield from ((dotted.split(".")[0], node.lineno) for dotted in imported(node, inside))
    for node in nodes(tree):
        if isinstance(node, ast.Call) and written(node.func).split(".")[-1] in {"find_spec", "import_module"}:
            name = next(iter(node.args), None)
            value = constants.get(name.id) if isinstance(name, ast.Name) else getattr(name, "value", None)
            if isinstance(value, str) and value[:1] != ".":
                yield value.split(".")[0], node.lineno


@functools.cache
def distributions() -> Mapping[str, list[str]]:
    """The installed distributions of each top-level module, which takes a second to read."""
    return importlib.metadata.packages_distributions()


def check_declared(repo: Path) -> list[str]:
    """What the package imports or looks for is a dependency, or in an extra for users; all that is declared is used."""
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    extras = {
        name: needs for name, needs in project["optional-dependencies"].items() if name not in {"dev", "docs", "test"}
    }
    declared = {
        canonicalize_name(Requirement(line).name)
        for line in (*project["dependencies"], *(line for needs in extras.values() for line in needs))
    } - {project["name"]}
    homes = distributions()
    wrong, used = [], {"accelerate"}  # by `transformers.Trainer`, which the extra `train` is for
    for inside, _, tree in modules(repo / "hf_posenc"):
        for name, line in sought(tree, inside):
            if name in sys.stdlib_module_names or name == "hf_posenc":
                continue
            brought_by = {canonicalize_name(home) for home in homes.get(name, [name])}
            used |= brought_by
            if not brought_by & declared:
                wrong.append(f"{inside}:{line}: {name} is looked for, and only the test extra may bring it")
    return wrong + [f"pyproject.toml: {name} is declared and never imported" for name in sorted(declared - used)]


def check_constraints(repo: Path) -> list[str]:
    """Whatever `.[test]` brings has its exact version in constraints.txt, for all Pythons of the classifiers."""
    lines = [line for line in (repo / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    wrong = [
        f"constraints.txt: {line} is not an exact version"
        for line in lines
        if not re.fullmatch(r"[\w.-]+==[\w.]+", line)
    ]
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines}
    settings = tomllib.loads((repo / "pyproject.toml").read_text())
    project = settings["project"]
    pythons = [f"{line.split()[-1]}.0" for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    for name, version in (line.split("==") for line in lines if "==" in line):
        try:
            package = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:  # hatchling lives in the build environment only
            continue
        if package["Version"].split("+")[0] != version:  # other versions are installed here
            continue
        needs = SpecifierSet(package.get("Requires-Python") or "")
        refused = [python for python in pythons if python not in needs]
        wrong += [f"constraints.txt: {name}=={version} needs Python {needs}, not {python}" for python in refused]
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


# Modules that reach the network, read formats that can hold code, or start programs; calls that run code.
_UNSAFE_MODULES = {
    *("requests", "httpx", "aiohttp", "urllib3", "urllib.request", "http.client", "socket", "ftplib", "smtplib"),
    *("pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "runpy", "subprocess"),
}
_UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.hub.load"}


def check_safety(package: Path) -> list[str]:
    """No module runs code from a file, loads a pickle, trusts code from the Hub or speaks to the network by itself."""
    wrong = []
    for inside, _, tree in modules(package):
        for node, _ in imports(tree):
            for dotted in imported(node, inside):
                if any(f"{dotted}.".startswith(f"{module}.") for module in _UNSAFE_MODULES):
                    wrong.append(f"{inside}:{node.lineno}: imports {dotted}, which is not safe")
        for node in nodes(tree):
            if not isinstance(node, ast.Call):
                continue
            name = written(node.func)
            given = {argument.arg: written(argument.value) for argument in node.keywords}
            if name in _UNSAFE_CALLS:
                wrong.append(f"{inside}:{node.lineno}: {name} can run code")
            if name == "torch.load" and given.get("weights_only") != "True":
                wrong.append(f"{inside}:{node.lineno}: torch.load without weights_only=True can run code")
            if name in {"np.load", "numpy.load"} and given.get("allow_pickle") != "False":
                wrong.append(f"{inside}:{node.lineno}: {name} without allow_pickle=False can run code")
            if given.get("trust_remote_code", "False") != "False":
                wrong.append(f"{inside}:{node.lineno}: {name} may trust code from the Hub")
    return wrong


# Functions of torch that make a tensor on the default device, which users set, unless they get one.
_NEW = re.compile(
    r"torch\.(arange|as_tensor|asarray|empty|eye|full|linspace|ones|rand|randint|randn|randperm|tensor|tril_indices"
    r"|triu_indices|zeros)"
)


def check_devices(package: Path) -> list[str]:
    """Every new tensor names its device. Only weights and `default_device` take the default one."""
    found = []
    for inside, _, tree in modules(package):
        calls = [(node, written(node.func)) for node in nodes(tree) if isinstance(node, ast.Call)]
        weights = {id(each) for node, name in calls if name == "nn.Parameter" for each in node.args}
        for node, name in calls:
            named = id(node) in weights or any(keyword.arg == "device" for keyword in node.keywords)
            if _NEW.fullmatch(name) and not named and inside.name != "compat.py":
                found.append(f"{inside}:{node.lineno} calls {name} without device=")
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


def test_a_module_imports_only_rooms_above_its_own() -> None:
    assert check_layers(REPO / "hf_posenc") == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert check_circles(REPO / "hf_posenc") == []


def test_no_room_above_corpus_loads_a_heavy_library_and_the_numpy_rooms_no_torch() -> None:
    assert check_heavy_imports(REPO / "hf_posenc") == []


def test_every_error_goes_through_explain_or_one_of() -> None:
    assert check_errors(REPO / "hf_posenc") == []


def test_the_version_is_written_once() -> None:
    import hf_posenc

    assert check_version(REPO) == []
    assert hf_posenc.__version__ == tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]


def test_what_is_imported_or_looked_for_is_declared_for_users_and_nothing_else_is() -> None:
    assert check_declared(REPO) == []


def test_no_module_runs_code_from_files_or_reaches_the_network_by_itself() -> None:
    assert check_safety(REPO / "hf_posenc") == []


def test_every_new_tensor_names_its_device() -> None:
    assert check_devices(REPO / "hf_posenc") == []


@pytest.mark.skipif(
    f"transformers=={importlib.metadata.version('transformers')}" not in (REPO / "constraints.txt").read_text(),
    reason="other versions than those of constraints.txt need other libraries",
)
def test_constraints_pin_everything_the_test_extra_installs_on_every_python_that_is_named() -> None:
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
    for name in ("pyproject.toml", "constraints.txt", "CHANGELOG.md"):
        shutil.copy(REPO / name, tmp_path)
    return tmp_path


def add(path: Path, line: str) -> None:
    """Write one more line at the end of a source file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")


def test_meta_an_import_of_a_room_below_or_of_one_that_is_not_listed_is_seen(copy: Path) -> None:
    package = copy / "hf_posenc"
    before = len(check_layers(package))
    add(package / "positions.py", "def f():\n    from . import collator\n    from .masks import padding_mask")
    add(package / "ragged.py", "from hf_posenc import Batch")
    (package / "surprise.py").write_text("")
    found = "\n".join(check_layers(package)[-10:])
    assert len(check_layers(package)) == before + 4
    assert "positions imports collator" in found
    assert "positions imports masks" in found
    assert "ragged imports __init__" in found
    assert "room 'surprise' is not in ROOMS" in found


def test_meta_a_circle_is_seen(copy: Path) -> None:
    add(copy / "hf_posenc" / "ragged.py", "if TYPE_CHECKING:\n    from .packing.shapes import best_shapes")
    add(copy / "hf_posenc" / "packing" / "shapes.py", "from ..ragged import Ragged")
    assert len(check_circles(copy / "hf_posenc")) == 1


def test_meta_a_docstring_that_opens_with_a_free_relative_is_seen(copy: Path) -> None:
    add(
        copy / "hf_posenc" / "positions.py",
        'def f():\n    """What f returns."""\ndef g():\n    """Return what f returns."""',
    )
    assert [line.split(": ")[1] for line in free_relatives(copy / "hf_posenc")] == ["What f returns."]


def test_meta_a_heavy_import_at_module_level_is_seen(copy: Path) -> None:
    package = copy / "hf_posenc"
    before = len(check_heavy_imports(package))
    add(package / "masks.py", "try:\n    import transformers\nexcept ImportError:\n    pass")
    add(package / "__init__.py", "from datasets import Dataset")
    add(package / "packing.py", "def f():\n    import torch")
    add(
        package / "positions.py", "if TYPE_CHECKING:\n    import datasets\n\ndef f():\n    import transformers"
    )  # allowed
    found = "\n".join(check_heavy_imports(package))
    assert len(check_heavy_imports(package)) == before + 3
    assert "transformers is loaded" in found
    assert "datasets is loaded" in found
    assert "torch in packing" in found


_UNSAFE = [  # source, and the words of its one finding
    ("import pickle", "imports pickle, which is not safe"),
    ("def f(x):\n    from pickle import loads\n    return loads(x)", "imports pickle.loads, which is not safe"),
    ("import subprocess as run", "imports subprocess, which is not safe"),
    ("def f(x): return eval(x)", "eval can run code"),
    ("def f(x): return torch.load(x)", "torch.load without weights_only=True"),
    ("def f(x): return torch.load(x, weights_only=False)", "torch.load without weights_only=True"),
    ("def f(x): return np.load(x)", "np.load without allow_pickle=False"),
    ("def f(x, y): return AutoModel.from_pretrained(x, trust_remote_code=y)", "may trust code from the Hub"),
    ("def f():\n    from urllib.request import urlopen", "imports urllib.request.urlopen, which is not safe"),
]


def test_meta_code_that_is_not_safe_is_seen(copy: Path) -> None:
    for number, (line, _) in enumerate(_UNSAFE):
        (copy / "hf_posenc" / f"unsafe_{number}.py").write_text(line)
    found = check_safety(copy / "hf_posenc")
    assert len(found) == len(_UNSAFE)
    for number, (line, (_, words)) in enumerate(zip(found, _UNSAFE, strict=True)):
        assert line.startswith(f"unsafe_{number}.py:")
        assert words in line


def test_meta_a_tensor_without_a_device_is_seen(copy: Path) -> None:
    add(copy / "hf_posenc" / "masks" / "reasons.py", "_ONES = torch.ones(3)")
    add(copy / "hf_posenc" / "ragged.py", "_ONES = torch.ones(3, device='cpu')")
    assert [line.partition(":")[0] for line in check_devices(copy / "hf_posenc")] == ["masks/reasons.py"]


def test_meta_an_error_in_other_words_is_seen(copy: Path) -> None:
    package = copy / "hf_posenc"
    before = len(check_errors(package))
    add(package / "masks.py", "def f(x):\n    raise ValueError(f'bad {x}')")
    add(package / "ragged.py", "def g():\n    raise TypeError")
    add(package / "positions.py", "def h(d):\n    raise KeyError(d)")
    add(
        package / "packing.py", "def _words():\n    return explain('x')\ndef k():\n    raise ValueError(_words())"
    )  # allowed
    found = "\n".join(check_errors(package))
    assert len(check_errors(package)) == before + 3
    assert all(name in found for name in ("masks.py", "ragged.py", "positions.py"))


def test_meta_a_second_place_for_the_version_is_seen(copy: Path) -> None:
    add(copy / "hf_posenc" / "masks.py", "__version__ = '9.9.9'")
    assert check_version(copy) != []
    assert check_version(copy) == [line for line in check_version(copy) if "masks.py" in line]
    (copy / "CHANGELOG.md").write_text("")
    assert any("no entry" in line for line in check_version(copy))


def test_meta_a_library_that_nothing_declares_or_nobody_imports_is_seen(copy: Path) -> None:
    assert check_declared(copy) == []
    add(copy / "hf_posenc" / "positions.py", "def f():\n    import dill.source")
    add(
        copy / "hf_posenc" / "models" / "audit.py",
        "_WRAPPER = 'peft'\nimport importlib.util\nimportlib.util.find_spec(_WRAPPER)",
    )
    settings = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(settings.replace("dependencies = [", 'dependencies = [\n  "orjson>=3",', 1))
    found = "\n".join(check_declared(copy))
    assert len(check_declared(copy)) == 3
    assert re.search(r"positions.py:\d+: dill is looked for", found)
    assert re.search(r"audit.py:\d+: peft is looked for", found)
    assert "orjson is declared and never imported" in found


def test_meta_a_package_without_a_pin_is_seen(copy: Path) -> None:
    pins = (copy / "constraints.txt").read_text()
    (copy / "constraints.txt").write_text(re.sub(r"(?m)^pillow==.*\n", "", pins).replace("tqdm==", "tqdm>="))
    found = "\n".join(check_constraints(copy))
    assert "pillow is missing" in found
    assert "tqdm>=" in found


def test_meta_a_pin_that_a_python_of_the_classifiers_cannot_install_is_seen(copy: Path) -> None:
    settings = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(settings.replace("Python :: 3.13", "Python :: 3.8"))
    installed = importlib.metadata.version("numpy")
    pins = (copy / "constraints.txt").read_text()
    (copy / "constraints.txt").write_text(re.sub(r"(?m)^numpy==.*$", f"numpy=={installed}", pins))
    found = [line for line in check_constraints(copy) if line.startswith(f"constraints.txt: numpy=={installed} needs")]
    assert [line.split()[-1] for line in found] == ["3.8.0"]


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

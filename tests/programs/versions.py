"""Run the tests with other versions: `python -m tests.programs.versions lowest`, `newest` or `pinned`.

Builds the package, installs the wheel into an empty environment in a temporary folder, and runs `hf-posenc demo` and
the tests there, beside a copy of the repository without the package's source. `lowest` installs the lowest declared
version of every dependency, all at once, `newest` the newest releases, and `pinned` the versions of constraints.txt.

The tests are those of a plain `pytest`, less

- those of the source (structure, releases, links to it) and the doctests in it, because the source is not there;
- those that need Ray, the site, a browser or a library that we are compared with: they skip, and name it. `.ci/run`
  has these tools, with the pinned versions; their own dependencies would choose other versions;
- unless the versions are pinned, those of notebooks, and of the printed results on pages and in pictures: a NumPy or
  torch of another year prints other digits and spaces. The pinned versions also run the first notebook.

`--core` runs the core's tests alone, with the wheel and no extra. `--python` names another interpreter, `--with` a
requirement that replaces the one of that name: `--with torch==2.13.0` for a CPU build, `--with "tokenizers>=0.dev0"`
for pre-releases. Other arguments are those of pytest, such as `tests/masks/test_masks.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

REPO = Path(__file__).resolve().parents[2]
EXTRAS = "bert,fast,plots,train"
CORE_TOOLS = ("pytest", "hypothesis")  # all that the core's tests need beside the package
TOOLS = (*CORE_TOOLS, "mpmath", "pandas", "peft", "pytest-xdist", "sentencepiece", "trl")
NOTEBOOK_TOOLS = ("ipykernel", "nbclient")
OF_THE_SOURCE = ("tests/test_structure.py", "tests/test_release.py")
LINKS = "tests/test_readme.py::test_the_links_of_a_page_lead_somewhere"  # some lead to the source
# They compare what is printed or drawn with what is committed.
OF_PINNED = ("tests/test_readme.py", "tests/test_figures.py")
A_NOTEBOOK = ("-m", "slow", "tests/test_notebooks.py", "-k", "runs_offline and 1_bpe")


def requirements(
    kind: str, tools: tuple[str, ...] = TOOLS, further: tuple[str, ...] = (), *, extras: str = EXTRAS
) -> list[str]:
    """Return the arguments of `pip install` for a kind of versions, without the package itself.

    Args:
        kind: `"lowest"`, `"newest"` or `"pinned"`.
        tools: names of libraries that the tests need.
        further: requirements, which replace those of the same names.
        extras: whose lowest versions are wanted too.
    """
    if kind == "pinned":
        return ["-c", str(REPO / "constraints.txt"), *tools, *further]
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] + [
        line for extra in extras.split(",") if extra for line in project["optional-dependencies"][extra]
    ]
    exact = tuple(map(lowest, declared)) if kind == "lowest" else ()
    replaced = {Requirement(line).name for line in further}
    return [*(line for line in exact if Requirement(line).name not in replaced), *tools, *further]


def lowest(line: str) -> str:
    """Return a requirement of exactly the lowest version that `line` allows.

    >>> lowest("numpy>=1.26,<3")
    'numpy==1.26'
    """
    need = Requirement(line)
    (version,) = (each.version for each in need.specifier if each.operator in (">=", "=="))
    return f"{need.name}=={version}"


def core_tests() -> list[str]:
    """Return the files of tests that need no extra. They are listed in .ci/run."""
    listed = re.findall(r"^core\+?=\(.*\)$", (REPO / ".ci" / "run").read_text(), re.MULTILINE)
    script = "\n".join([*listed, 'printf "%s\\n" "${core[@]}"'])
    return subprocess.run(["bash", "-c", script], cwd=REPO, check=True, capture_output=True, text=True).stdout.split()


def new_environment(python: str, folder: Path) -> Path:
    """Make an empty virtual environment and return the folder of its programs."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def build(folder: Path) -> None:
    """Build the wheel and the sdist of the repository into `folder`."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    with tempfile.TemporaryDirectory() as tools:
        python = new_environment(sys.executable, Path(tools)) / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", *project["build-system"]["requires"]], check=True)
        subprocess.run([python, "-m", "hatchling", "build", "-d", folder.resolve()], cwd=REPO, check=True)


def copy_without_source(folder: Path) -> None:
    """Copy the tests and all that they read to `folder`, but not the source of the package."""
    for name in ("tests", "docs", "examples", ".ci"):
        shutil.copytree(REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "venv"))
    for file in (*REPO.glob("*.md"), *(REPO / name for name in ("LICENSE", "constraints.txt", "mkdocs.yml"))):
        shutil.copy(file, folder)
    shutil.copy(REPO / "pyproject.toml", folder)


def main(arguments: list[str] | None = None) -> int:
    """Build, install and test; return 0 if everything passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.versions", description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["lowest", "newest", "pinned"])
    parser.add_argument("--core", action="store_true", help="the core's tests alone, without any extra")
    parser.add_argument("--python", default=sys.executable, help="the interpreter (default: this one)")
    parser.add_argument("--with", dest="further", action="append", default=[], metavar="REQUIREMENT")
    parser.add_argument("--sdist", action="store_true", help="install the sdist instead of the wheel")
    parser.add_argument("--dist", type=Path, help="folder in which the wheel and the sdist are kept")
    given, pytest_arguments = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hf_posenc_versions_") as temporary:
        outside = Path(temporary)
        dist = given.dist or outside / "dist"
        build(dist)
        (package,) = dist.glob("*.tar.gz" if given.sdist else "*.whl")
        programs = new_environment(given.python, outside / "environment")
        is_pinned = given.kind == "pinned"
        tools = CORE_TOOLS if given.core else (*TOOLS, *NOTEBOOK_TOOLS) if is_pinned else TOOLS
        needs = requirements(given.kind, tools, tuple(given.further), extras="" if given.core else EXTRAS)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]]), "HF_HUB_OFFLINE": "1"}
        pip = [programs / "python", "-m", "pip"]
        install = [*pip, "install", "-q", str(package) if given.core else f"{package}[{EXTRAS}]", *needs]
        subprocess.run(install, env=environment, check=True)
        subprocess.run([*pip, "freeze"], env=environment, check=True)
        copy_without_source(outside / "repository")
        pytest = [programs / "python", "-m", "pytest", "-q"]
        if not is_pinned:
            pytest += ["-o", "filterwarnings=default"]  # a deprecation in other versions is no failure of this package
        if pytest_arguments or given.core:
            commands = [[*pytest, *(pytest_arguments or core_tests())]]
        else:
            left_out = OF_THE_SOURCE if is_pinned else (*OF_THE_SOURCE, *OF_PINNED)
            commands = [
                [programs / "hf-posenc", "demo"],
                [*pytest, "--deselect", LINKS, *(f"--ignore={file}" for file in left_out)],
            ]
            commands += [[*pytest, *A_NOTEBOOK]] if is_pinned else []
        results = [
            subprocess.run(command, cwd=outside / "repository", env=environment, check=False).returncode
            for command in commands
        ]
        return int(any(results))


if __name__ == "__main__":
    sys.exit(main())

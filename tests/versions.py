"""Run the core's tests with other versions: `python -m tests.versions lowest`, `newest`, `pre` or `pinned`.

Builds the package, installs the wheel alone into an empty environment in a temporary folder, and runs the tests there,
outside of the repository. `lowest` installs the lowest declared version of every dependency, all at once, `newest` the
newest releases, `pre` also pre-releases of tokenizers and transformers, and `pinned` the versions of constraints.txt.
`--python` names another interpreter, `--with torch==2.13.0` a further requirement, for instance for a CPU build.
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

REPO = Path(__file__).resolve().parent.parent
TOOLS = ("pytest", "hypothesis")  # all that the core's tests need beside the package
EARLY = ("tokenizers", "transformers")  # their pre-releases have broken this package's tests before a release did


def requirements(kind: str) -> list[str]:
    """Return the arguments of `pip install` for a kind of versions, without the package itself."""
    if kind == "pinned":
        return ["-c", str(REPO / "constraints.txt"), *TOOLS]
    if kind == "pre":
        return [*TOOLS, *(f"{name}>=0.dev0" for name in EARLY)]  # allows pre-releases of these two only
    if kind == "newest":
        return list(TOOLS)
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    tools = [line for line in project["optional-dependencies"]["test"] if Requirement(line).name in TOOLS]
    return [lowest(line) for line in (*project["dependencies"], *tools)]


def lowest(line: str) -> str:
    """Return a requirement of exactly the lowest version that `line` allows.

    >>> lowest("numpy>=1.26,<3")
    'numpy==1.26'
    """
    need = Requirement(line)
    (version,) = (each.version for each in need.specifier if each.operator == ">=")
    return f"{need.name}=={version}"


def core_tests() -> list[str]:
    """Return the files of tests that need no extra. They are listed in .ci/run."""
    listed = re.findall(r"^core\+?=\(.*\)$", (REPO / ".ci" / "run").read_text(), re.MULTILINE)
    script = "\n".join([*listed, 'printf "%s\\n" "${core[@]}"'])
    return subprocess.run(["bash", "-c", script], cwd=REPO, check=True, capture_output=True, text=True).stdout.split()


def new_environment(python: str, folder: Path) -> str:
    """Make an empty virtual environment and return the path of its Python."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")


def build(folder: Path) -> None:
    """Build the wheel and the sdist of the repository into `folder`."""
    needs = tomllib.loads((REPO / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as tools:
        python = new_environment(sys.executable, Path(tools))
        subprocess.run([python, "-m", "pip", "install", "-q", *needs], check=True)
        subprocess.run([python, "-m", "hatchling", "build", "-d", folder.resolve()], cwd=REPO, check=True)


def main(arguments: list[str] | None = None) -> int:
    """Build, install and test; return the exit code of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["lowest", "newest", "pre", "pinned"])
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
        python = new_environment(given.python, outside / "environment")
        needs = [str(package), *requirements(given.kind), *given.further]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        subprocess.run([python, "-m", "pip", "install", "-q", *needs], env=environment, check=True)
        subprocess.run([python, "-m", "pip", "freeze"], env=environment, check=True)
        shutil.copytree(REPO / "tests", outside / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPO / "pyproject.toml", outside)
        # A deprecation in other versions of the libraries is no failure of this package.
        warnings = [] if given.kind == "pinned" else ["-o", "filterwarnings=default"]
        command = [python, "-m", "pytest", "-q", *warnings, *(pytest_arguments or core_tests())]
        return subprocess.run(command, cwd=outside, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

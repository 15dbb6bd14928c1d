"""Build and test the present version before a release: `python -m tests.programs.release` in a clean checkout.

Builds the wheel and the sdist into dist/, and tests both in empty environments outside of the repository: the demo, the
tests, the pages and a notebook with the wheel and the pinned versions, on each Python of the classifiers that is found
here; the tests with the lowest versions, and the core's tests with the sdist. It changes no file, uploads and commits
nothing. At the end, a placeholder in an address of the repository is an error, in whatever file.

Pythons are looked for as `python3.13` and so on, and among the versions of pyenv. The program names those that it did
not find. If it finds no other than the running one, that is an error, unless `--one-python` is given.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
_PLACEHOLDER = "github.com/OWNER/"  # tests look for it
_PYTHON = re.compile(r'"Programming Language :: Python :: (3\.[0-9]+)"')
CHECKS = ("pinned", "lowest", "pinned --core --sdist")  # arguments of tests.programs.versions


def interpreter(version: str) -> str | None:
    """Return the path of a Python of the given version, such as "3.13"; `None` if there is none on this machine."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for path in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")):
        # pyenv puts a `python3.13` on the path that fails if that version is not chosen.
        ask = [str(path), "-c", "import sys; print('.'.join(map(str, sys.version_info[:2])))"]
        if path and subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip() == version:
            return str(path)
    return None


def main(arguments: list[str] | None = None, repo: Path = REPO) -> None:
    """Build and test; raise if a test fails, or if the address of the repository is still a placeholder."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.release", description=__doc__.splitlines()[0])
    parser.add_argument("--one-python", action="store_true", help="go on if no other Python than this one is found")
    given = parser.parse_args(arguments)
    if changed := subprocess.check_output(["git", "status", "--porcelain"], cwd=repo, text=True):
        raise SystemExit(f"commit or remove these changes first:\n{changed}")
    project = (repo / "pyproject.toml").read_text(encoding="utf-8")
    found = {each: interpreter(each) for each in _PYTHON.findall(project)}
    others = [path for path in found.values() if path not in (None, sys.executable)]
    print("Tests run on:", ", ".join(f"Python {each}: {path or 'not found'}" for each, path in found.items()))
    if not others and not given.one_python:
        raise SystemExit("no other Python was found: install one of them, or go on with --one-python")
    dist = repo / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for check in (*CHECKS, *(f"{CHECKS[0]} --python {path}" for path in others)):
        run_check(repo, dist, check)
    print(f"\n{dist} holds the present version, which passed.")
    search = ["git", "grep", "-l", _PLACEHOLDER, "--", ":!tests"]
    if places := subprocess.run(search, cwd=repo, capture_output=True, text=True, check=False).stdout.split():
        raise SystemExit(f"replace {_PLACEHOLDER} in {', '.join(places)}")


def run_check(repo: Path, dist: Path, check: str) -> None:
    """Build into `dist`, and run `tests.programs.versions` with the arguments `check`; raise if a test fails."""
    command = [sys.executable, "-m", "tests.programs.versions", "--dist", dist, *check.split()]
    subprocess.run(command, cwd=repo, check=True)


if __name__ == "__main__":
    main()

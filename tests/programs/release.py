"""Make a release: `python -m tests.programs.release 0.2.0` in a clean checkout. It uploads and commits nothing.

Writes the version to pyproject.toml and CITATION.cff, turns [Unreleased] of CHANGELOG.md into the version with today's
date, builds the wheel and the sdist into dist/, and tests both in empty environments outside of the repository: the
demo, the tests, the pages and a notebook with the wheel and the pinned versions, on each Python of the classifiers that
the machine has; the tests with the lowest versions, and the core's tests with the sdist. If a step fails, the files are
as before. At the end it prints the commands that publish the release. Without a version it builds and tests the present
one, and changes no file. A placeholder in an address of the repository is an error, in whatever file: before the first
step with a version, after the last one without.

Pythons are looked for as `python3.13` and so on, and among the versions of pyenv. The program names those that it did
not find. If it finds no other than the running one, that is an error, unless `--one-python` is given.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

REPO = Path(__file__).resolve().parents[2]
_VERSION = re.compile(r'^version = "(.*)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[(.*?)\].*\n", re.MULTILINE)
_UNRELEASED = "Unreleased"
_PLACEHOLDER = "github.com/OWNER/"  # tests look for it
_CITED = re.compile(r"^(version|date-released): .*$", re.MULTILINE)
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


def released(project: str, changelog: str, version: str, date: str) -> tuple[str, str]:
    """Return the texts of pyproject.toml and CHANGELOG.md with the new version.

    Raises:
        ValueError: if the version is not larger than the present one, or [Unreleased] is empty or not there once.
    """
    (present,) = _VERSION.findall(project)
    try:
        is_larger = Version(version) > Version(present)
    except InvalidVersion as error:
        raise ValueError(f"{version} is not a version, such as 0.2.0") from error
    if not is_larger or str(Version(version)) != version:
        raise ValueError(f"the version must be larger than {present} and in its normal form: {version}")
    sections = [match[1] for match in _SECTION.finditer(changelog)]
    if sections[:1] != [_UNRELEASED] or len(set(sections)) < len(sections) or version in sections:
        raise ValueError(f"CHANGELOG.md must begin with [{_UNRELEASED}] and have each section once: {sections}")
    before, _, _, after = re.split(rf"(^## \[{_UNRELEASED}\])(.*\n)", changelog, maxsplit=1, flags=re.MULTILINE)
    if not re.search(r"^- ", re.split(_SECTION, after, maxsplit=1)[0], re.MULTILINE):
        raise ValueError(f"[{_UNRELEASED}] of CHANGELOG.md is empty: there is nothing to release")
    changelog = f"{before}## [{_UNRELEASED}]\n\n## [{version}] - {date}\n{after}"
    return _VERSION.sub(f'version = "{version}"', project), changelog


def main(arguments: list[str] | None = None, repo: Path = REPO) -> None:
    """Check, write, build and test; leave the two files as they were if a step fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.release", description=__doc__.splitlines()[0])
    parser.add_argument("version", nargs="?", help="such as 0.2.0; without it, build and test the present version")
    parser.add_argument("--one-python", action="store_true", help="go on if no other Python than this one is found")
    given = parser.parse_args(arguments)
    version: str | None = given.version
    if changed := subprocess.check_output(["git", "status", "--porcelain"], cwd=repo, text=True):
        raise SystemExit(f"commit or remove these changes first:\n{changed}")
    files = [repo / "pyproject.toml", repo / "CHANGELOG.md", repo / "CITATION.cff"]
    texts = [file.read_text(encoding="utf-8") for file in files]
    search = ["git", "grep", "-l", _PLACEHOLDER, "--", ":!tests"]
    places = subprocess.run(search, cwd=repo, capture_output=True, text=True, check=False).stdout.split()
    unfilled = f"replace {_PLACEHOLDER} in {', '.join(places)}" if places else ""
    if version and unfilled:
        raise SystemExit(unfilled)
    new = texts
    if version:
        today = datetime.date.today().isoformat()
        values = {"version": version, "date-released": today}
        try:
            new = [
                *released(texts[0], texts[1], version, today),
                _CITED.sub(lambda found: f"{found[1]}: {values[found[1]]}", texts[2]),
            ]
        except ValueError as error:
            raise SystemExit(str(error)) from error
    found = {each: interpreter(each) for each in _PYTHON.findall(texts[0])}
    others = [path for path in found.values() if path not in (None, sys.executable)]
    print("Tests run on:", ", ".join(f"Python {each}: {path or 'not found'}" for each, path in found.items()))
    if not others and not given.one_python:
        raise SystemExit("no other Python was found: install one of them, or go on with --one-python")
    checks = [*CHECKS, *(f"{CHECKS[0]} --python {path}" for path in others)]
    dist = repo / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    try:
        for file, text in zip(files, new, strict=True):
            file.write_text(text, encoding="utf-8")
        for check in checks:
            run_check(repo, dist, check)
    except BaseException:
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
        raise
    if not version:
        print(f"\n{dist} holds the present version, which passed.")
        raise SystemExit(unfilled or 0)
    print(f"\n{dist} holds version {version}, which passed. To publish it:")
    print(f'  git commit -am "Version {version}" && git tag v{version} && git push --follow-tags')
    print(f"  twine upload {dist}/*")


def run_check(repo: Path, dist: Path, check: str) -> None:
    """Build into `dist`, and run `tests.programs.versions` with the arguments `check`; raise if a test fails."""
    command = [sys.executable, "-m", "tests.programs.versions", "--dist", dist, *check.split()]
    subprocess.run(command, cwd=repo, check=True)


if __name__ == "__main__":
    main()

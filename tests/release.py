"""Make a release: `python -m tests.release 0.2.0` in a clean checkout. It uploads and commits nothing.

Writes the version to pyproject.toml, turns [Unreleased] of CHANGELOG.md into the version with today's date, builds the
wheel and the sdist into dist/, and runs the core's tests with each of them alone in an empty environment outside of the
repository. If a step fails, both files are as before. At the end it prints the commands that publish the release.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

REPO = Path(__file__).resolve().parent.parent
_VERSION = re.compile(r'^version = "(.*)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[(.*?)\].*\n", re.MULTILINE)
_UNRELEASED = "Unreleased"


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
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__.splitlines()[0])
    parser.add_argument("version")
    version = parser.parse_args(arguments).version
    if changed := subprocess.check_output(["git", "status", "--porcelain"], cwd=repo, text=True):
        raise SystemExit(f"commit or remove these changes first:\n{changed}")
    files = [repo / "pyproject.toml", repo / "CHANGELOG.md"]
    texts = [file.read_text(encoding="utf-8") for file in files]
    try:
        new = released(texts[0], texts[1], version, datetime.date.today().isoformat())
    except ValueError as error:
        raise SystemExit(str(error)) from error
    dist = repo / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    try:
        for file, text in zip(files, new, strict=True):
            file.write_text(text, encoding="utf-8")
        for package in ("wheel", "sdist"):
            check_package(repo, dist, package)
    except BaseException:
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
        raise
    print(f"\n{dist} holds version {version}, which passed the core's tests. To publish it:")
    print(f'  git commit -am "Version {version}" && git tag v{version} && git push --follow-tags')
    print(f"  twine upload {dist}/*")


def check_package(repo: Path, dist: Path, package: str) -> None:
    """Build the package into `dist`, and run the core's tests with it alone; raise if one fails."""
    command = [sys.executable, "-m", "tests.versions", "pinned", "--dist", dist]
    subprocess.run([*command, *(["--sdist"] if package == "sdist" else [])], cwd=repo, check=True)


if __name__ == "__main__":
    main()

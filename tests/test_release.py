"""The commands for releases and versions, without network: what they refuse, check and install."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import release
import versions
from packaging.requirements import Requirement

PROJECT = """[project]
name = "hf-posenc"
classifiers = ["Programming Language :: Python :: 3.98", "Programming Language :: Python :: 3.99"]
"""
CHECKS = ["pinned", "lowest", "pinned --core --sdist", "pinned --python python3.98"]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checks that run; Python 3.98 is on this machine, and 3.99 is not."""
    found: list[str] = []
    monkeypatch.setattr(release, "interpreter", {"3.98": "python3.98"}.get)
    monkeypatch.setattr(release, "run_check", lambda _repo, _dist, check: found.append(check))
    return found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    _commit(tmp_path)
    return tmp_path


def _commit(repo: Path) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "All"], cwd=repo, check=True)


def test_wheel_and_sdist_are_checked_on_each_python_that_is_found(
    repo: Path, checked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    release.main([], repo)
    assert checked == CHECKS
    assert "Python 3.98: python3.98, Python 3.99: not found" in capsys.readouterr().out


def test_a_release_needs_a_second_python_or_the_word_to_go_on(
    repo: Path, checked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "interpreter", {"3.98": sys.executable}.get)
    with pytest.raises(SystemExit, match="no other Python was found"):
        release.main([], repo)
    assert checked == []
    release.main(["--one-python"], repo)
    assert checked == list(release.CHECKS)


def test_a_python_is_found_by_its_version_and_only_if_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "versions" / "3.99.1" / "bin"
    folder.mkdir(parents=True)
    program = folder / "python"
    program.write_text("#!/bin/sh\necho 3.99\n")
    program.chmod(0o755)
    shim = tmp_path / "python3.99"  # as pyenv makes them
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert release.interpreter("3.99") is None
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert release.interpreter("3.99") == str(program)
    assert release.interpreter(".".join(map(str, sys.version_info[:2]))) == sys.executable


def test_a_release_needs_the_address_of_the_repository(repo: Path, checked: list[str]) -> None:
    (repo / "pyproject.toml").write_text(
        PROJECT + '[project.urls]\nRepository = "https://github.com/OWNER/hf_posenc"\n'
    )
    _commit(repo)
    with pytest.raises(SystemExit, match=r"replace github\.com/OWNER/ in pyproject\.toml"):
        release.main([], repo)
    assert checked == CHECKS


def test_the_page_of_the_package_has_its_own_install_line_and_no_relative_address() -> None:
    project = tomllib.loads((versions.REPO / "pyproject.toml").read_text())["project"]
    page = str(importlib.metadata.metadata("hf-posenc").get_payload())
    addresses = re.findall(r"\]\(([^)]+)\)", page)
    assert f"{project['urls']['Repository']}/raw/v{project['version']}/examples/packed.png" in addresses
    assert [address for address in addresses if not address.startswith(("https://", "#"))] == []
    assert re.findall(r"^pip install.*", page, re.MULTILINE) == [
        'pip install "hf-posenc[fast,plots]" && hf-posenc demo'
    ]


def test_the_citation_has_the_version_date_and_address_of_the_package() -> None:
    project = tomllib.loads((versions.REPO / "pyproject.toml").read_text())["project"]
    cited = dict(re.findall(r"^([\w-]+): (.+)$", (versions.REPO / "CITATION.cff").read_text(), re.MULTILINE))
    assert (cited["version"], cited["repository-code"]) == (project["version"], project["urls"]["Repository"])
    changelog = (versions.REPO / "CHANGELOG.md").read_text()
    assert f"## [{cited['version']}] - {cited['date-released']}\n" in changelog


def test_a_release_of_uncommitted_changes_is_refused(repo: Path) -> None:
    (repo / "new.py").write_text("")
    with pytest.raises(SystemExit, match=r"commit or remove these changes first:\n\?\? new\.py"):
        release.main([], repo)


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    project = tomllib.loads((versions.REPO / "pyproject.toml").read_text())["project"]
    extras = [line for name in versions.EXTRAS.split(",") for line in project["optional-dependencies"][name]]
    lines = versions.requirements("lowest", tools=())
    assert lines == [line.split(",")[0].replace(">=", "==") for line in [*project["dependencies"], *extras]]


def test_a_further_requirement_replaces_the_one_of_that_name() -> None:
    given = ("torch==2.9.1", "tokenizers>=0.dev0")
    lines = versions.requirements("lowest", ("pytest",), given)
    assert lines[-3:] == ["pytest", *given]
    assert [line for line in lines if line.startswith("torch==")] == ["torch==2.9.1"]


def test_other_versions_are_tested_with_all_that_the_tests_need_but_for_the_tools_that_are_named() -> None:
    project = tomllib.loads((versions.REPO / "pyproject.toml").read_text())["project"]
    needed = {Requirement(line).name for name in ("dev", "test") for line in project["optional-dependencies"][name]}
    compared_with = {"diffusers", "positional-encodings", "x-transformers"}
    of_the_source = {"deptry", "hf-posenc", "import-linter", "mypy", "playwright", "ruff"}
    assert needed - set(versions.TOOLS) == compared_with | of_the_source | set(versions.NOTEBOOK_TOOLS)


def test_the_core_tests_are_those_of_ci() -> None:
    files = versions.core_tests()
    assert {"tests/masks/test_masks.py", "tests/tokenization/test_tokenization.py"} <= set(files)
    assert all((versions.REPO / file).is_file() for file in files)

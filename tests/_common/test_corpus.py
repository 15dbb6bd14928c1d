"""The docstrings of the standard library, compared with those of imported objects, and odd source files."""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from pathlib import Path

import pytest

from hf_posenc.testing import standard_library_docstrings


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return standard_library_docstrings()


def test_there_are_thousands_of_texts_and_more_than_a_megabyte(texts: list[str]) -> None:
    assert 6_000 < len(texts) < 12_000  # Python 3.11 has 8,010
    assert 1_200_000 < sum(map(len, texts)) < 3_000_000  # and 1.72 million characters


def test_each_text_is_clean(texts: list[str]) -> None:
    assert all(text and text == text.strip() and text.encode() for text in texts)


def test_the_texts_are_the_docstrings_of_imported_objects(texts: list[str]) -> None:
    have = set(texts)
    for thing in (json, json.JSONDecoder, textwrap.dedent, textwrap.TextWrapper.fill, Path.read_text, inspect.cleandoc):
        assert inspect.cleandoc(thing.__doc__ or "").strip() in have


def write(folder: Path, name: str, source: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def test_definitions_inside_compound_statements_are_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.py",
        '''
"""Module."""
if 1:
    class A:
        """Class."""
        async def f(self):
            """Async."""
            try:
                pass
            except ValueError:
                def g():
                    """Handler."""
            else:
                def h():
                    """Else.

                    More.
                        Indented.
                    """
            finally:
                with open("x"):
                    def i(): "Finally."
else:
    match 1:
        case 1:
            def j(): "Case."
''',
    )
    assert standard_library_docstrings(tmp_path) == sorted(
        ["Module.", "Class.", "Async.", "Handler.", "Else.\n\nMore.\n    Indented.", "Finally.", "Case."]
    )


def test_tests_packages_broken_files_and_broken_unicode_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "good.py", '"""Good."""')
    write(tmp_path, "again.py", '"""\nGood.\n"""')
    write(tmp_path, "empty.py", '"""   """\ndef f(): ""')
    write(tmp_path, "surrogate.py", '"""Half a pair: \\ud800."""')
    write(tmp_path, "escape.py", r'"A \d that the parser remarks on."')
    write(tmp_path, "python2.py", '"""Old."""\nprint "x"')
    write(tmp_path, "test/t.py", '"""Test."""')
    write(tmp_path, "json/tests/t.py", '"""Tests."""')
    write(tmp_path, "site-packages/p/__init__.py", '"""Package."""')
    (tmp_path / "latin.py").write_bytes('"""Größe."""'.encode("latin-1"))
    (tmp_path / "zero.py").write_bytes(b'"""Null."""\0')
    assert standard_library_docstrings(tmp_path) == [r"A \d that the parser remarks on.", "Good."]


def test_nothing_is_imported(texts: list[str]) -> None:
    assert any("Turtle" in text for text in texts)
    assert not {"turtle", "antigravity"} & set(sys.modules)


def test_a_python_without_its_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not on this machine\n  got: no docstring below .*\n  fix: "):
        standard_library_docstrings(tmp_path)

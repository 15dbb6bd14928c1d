"""Real English that is already on the machine: the docstrings of the Python standard library.

Source files are read and parsed, never imported. Another version of Python has other docstrings.
"""

from __future__ import annotations

import ast
import inspect
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from ._explain import explain

# Other people's packages, and code that is written to be odd: lib2to3's test data is not even valid Python 3.
_NOT_PROSE = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def standard_library_docstrings(folder: str | Path | None = None) -> list[str]:
    r"""The docstrings of every module, class and function of the standard library, about 8,000 texts in 1.7 MB.

    They are cleaned as `inspect.cleandoc` does, each is there once, and they are sorted: the same Python gives the same
    list every time. Folders of tests and installed packages are left out, and so is a file that does not parse.

    Args:
        folder (`str` or `Path`, *optional*): where the standard library's source lies; by default that of this Python.

    Returns:
        `list[str]`, sorted; none is empty, and each is valid Unicode.

    Raises:
        ValueError: if no docstring is found, as in a Python that is installed without its source files.

    Example:
        >>> texts = standard_library_docstrings()
        >>> len(texts) > 5000, texts == sorted(set(texts))
        (True, True)
        >>> "Return the string obtained by replacing" in "\n".join(texts)
        True
    """
    root = Path(folder if folder is not None else sysconfig.get_path("stdlib"))
    found: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a parser's remarks on code that is not ours
        for inside, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in _NOT_PROSE]  # os.walk goes where this list says
            for name in files:
                if name.endswith(".py"):
                    found.update(_docstrings(Path(inside, name)))
    if not found:
        raise ValueError(
            explain(
                "the standard library's source files are not on this machine",
                got=f"no docstring below {root}",
                fix="give texts of your own, e.g. hf-posenc demo my_texts.txt",
            )
        )
    return sorted(found)


def _docstrings(path: Path) -> Iterator[str]:
    """The cleaned docstrings of one source file; none where it cannot be read or parsed."""
    try:
        todo: list[ast.AST] = [ast.parse(path.read_bytes())]
    except (OSError, SyntaxError, ValueError):
        return
    while todo:
        node = todo.pop()
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node, clean=False)
            if text is not None and (text := inspect.cleandoc(text).strip()) and _is_unicode(text):
                yield text
        # Definitions stand where statements stand; to look inside expressions as well would take twice the time.
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, field, None)
            if isinstance(below, list):
                todo.extend(below)


def _is_unicode(text: str) -> bool:
    """False for half a surrogate pair, which a non-raw docstring can hold and no tokenizer can take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

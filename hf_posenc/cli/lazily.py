"""A library that others import without using it is loaded when somebody does: a command then starts in half the time.

For commands alone, whose process is theirs. `importlib.util.LazyLoader` is not enough: it loads as soon as anybody asks
whether the library is there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# What the import system itself looks at, to find that the library is there.
_KNOWN = {"__spec__", "__name__", "__class__", "__dict__", "__loader__"}


@contextmanager
def on_first_use(name: str) -> Iterator[None]:
    r"""While it is entered, `import name` costs nothing until something of it is used.

    Afterwards the library is imported as ever; who imported it meanwhile has its attributes through a stand-in.

    Args:
        name (`str`): of a library. Nothing happens if it is loaded already, or not there.

    Example:
        >>> with on_first_use("this_library_is_not_there"):
        ...     "this_library_is_not_there" in sys.modules
        False
    """
    if name in sys.modules or (spec := importlib.util.find_spec(name)) is None:
        yield
        return
    later, parts = _Later(name), _Parts(f"{name}.")
    later.__spec__ = spec
    sys.modules[name] = later
    sys.meta_path.insert(0, parts)
    try:
        yield
    finally:
        sys.meta_path.remove(parts)
        if sys.modules.get(name) is later:
            del sys.modules[name]


class _Later(ModuleType):
    """Stands in `sys.modules` until an attribute is asked for; whoever holds it then has the attributes through it."""

    def __getattribute__(self, name: str) -> Any:
        if name in _KNOWN:
            return super().__getattribute__(name)
        own = super().__getattribute__("__name__")
        if sys.modules.get(own) is self:
            del sys.modules[own]
        return getattr(import_module(own), name)


class _Parts(MetaPathFinder, Loader):
    """`import name.part` asks the stand-in for its path, which loads the library, and that part with it: then it must
    not be loaded a second time."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Of a part that is there already."""
        there = fullname.startswith(self._prefix) and fullname in sys.modules
        return ModuleSpec(fullname, self, is_package=hasattr(sys.modules[fullname], "__path__")) if there else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """That part; what it was loaded by stays written in it."""
        there = sys.modules[spec.name]
        self._loaded_by = there.__spec__
        return there

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it has been executed."""
        module.__spec__ = self._loaded_by

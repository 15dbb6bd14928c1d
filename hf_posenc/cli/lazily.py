"""A library that others import without using it is loaded when somebody does: a command then starts in half the time.

For commands alone, whose process is theirs. `importlib.util.LazyLoader` is not enough: it loads as soon as anybody asks
whether the library is there.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# What the import system itself looks at, to find that the library is there.
_KNOWN = {"__spec__", "__name__", "__class__", "__dict__", "__loader__"}


class _Later(ModuleType):
    """Stands in `sys.modules` until an attribute is asked for; whoever holds it then has the attributes through it."""

    def __getattribute__(self, name: str) -> Any:
        if name in _KNOWN:
            return super().__getattribute__(name)
        own = super().__getattribute__("__name__")
        if sys.modules.get(own) is self:
            del sys.modules[own]
        return getattr(import_module(own), name)


def on_first_use(name: str) -> None:
    r"""From here on, `import name` costs nothing until something of it is used.

    Args:
        name (`str`): of a library. Nothing happens if it is loaded already, or not there.

    Example:
        >>> on_first_use("this_library_is_not_there")
        >>> "this_library_is_not_there" in sys.modules
        False
    """
    if name in sys.modules or (spec := importlib.util.find_spec(name)) is None:
        return
    later = _Later(name)
    later.__spec__ = spec
    sys.modules[name] = later

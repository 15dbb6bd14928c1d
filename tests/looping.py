"""A loop over cases inside one test, for tables and grids of dozens of cases.

`pytest.mark.parametrize` makes an item of each case, which every process of a run collects, reports and sets up: a few
milliseconds that the short cases here do not take themselves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test once for each case, in one item; a failure has a note with its case.

    Cases share the fixtures of the item, so a test that changes one of them, or skips, is parametrized instead.

    Args:
        names (`str`, or `tuple` of `str`): the argument of the test, or its arguments where a case is a tuple.
        cases (iterable): the values.
    """
    keys, table = ((names,), [(case,) for case in cases]) if isinstance(names, str) else (names, list(cases))

    def loop(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            for number, case in enumerate(table):
                one = dict(zip(keys, case, strict=True))
                try:
                    test(**given, **one)
                except pytest.skip.Exception as skipped:
                    raise TypeError(f"a test that skips a case is parametrized: {one}") from skipped
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"in case {number} of {len(table)}: {one}")
                    raise

        kept = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return loop


def slow(*case: Any) -> Any:
    """Leave a case of a parametrization to `pytest -m slow`; the others are one of each kind."""
    return pytest.param(*case, marks=pytest.mark.slow)

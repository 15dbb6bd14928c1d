"""Our lines in the source of someone else's script."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence


def with_our_lines(source: str, call: str, lines: Sequence[str], arguments: Mapping[str, str]) -> str:
    r"""Return `source` with `lines` before the first statement that calls `call`, and new arguments in all such calls.

    Args:
        source (`str`): a Python script.
        call (`str`): name of a class, function or method, such as `"Trainer"`.
        lines (sequence of `str`): statements; they get the indentation of the call.
        arguments (mapping): keyword arguments by name. A keyword that the call has is replaced, another one is added.

    Raises:
        ValueError: if no statement calls `call`.

    Example:
        >>> script = "trainer = Trainer(model, data_collator=None)"
        >>> print(with_our_lines(script, "Trainer", ["c = 1"], {"data_collator": "c", "processing_class": "c"}))
        c = 1
        trainer = Trainer(model, data_collator=c, processing_class=c)
    """
    text = source.encode()  # ast counts columns in UTF-8 bytes
    starts = [0, *(found.end() for found in re.finditer(b"\n", text))]
    edits: list[tuple[int, int, str]] = []
    for statement in ast.walk(ast.parse(source)):
        called = getattr(statement, "value", None)
        if not isinstance(called, ast.Call) or call not in (
            getattr(called.func, name, None) for name in ("id", "attr")
        ):
            continue
        if not edits:
            line = starts[statement.lineno - 1]
            edits.append((line, line, "".join(f"{' ' * statement.col_offset}{new}\n" for new in lines)))
        given = {word.arg: word.value for word in called.keywords}
        added = ""
        for name, value in arguments.items():
            if name in given:
                old = given[name]
                begin = starts[old.lineno - 1] + old.col_offset
                edits.append((begin, starts[old.end_lineno - 1] + old.end_col_offset, value))
            else:
                added += f", {name}={value}"
        if added:
            near = called.keywords[-1].value
            end = starts[near.end_lineno - 1] + near.end_col_offset
            edits.append((end, end, added))
    if not edits:
        raise ValueError(f"no statement of the script calls {call}")
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new.encode() + text[end:]
    return text.decode()

"""The Python script at the end of the page, which computes the same numbers as the page.

This module only writes the script. A test runs it and compares the numbers.
"""

from __future__ import annotations

import sys

from .shown import Shown, masks_span
from .sources import python_of_table, python_of_tokenizer


def python_of(shown: Shown) -> str:
    r"""Return a script that computes the shown `batch`, `tokens`, `encoding` and `distances`, and saves the pictures.

    Args:
        shown (`Shown`): the content of the page.

    Returns:
        `str`: Python code that runs wherever this package is installed.
    """
    settings = shown.settings
    how = f"convention={quoted(settings.convention)}, base={settings.base!r}"
    imports = ["import torch", "from hf_posenc import plots", "from hf_posenc import sinusoidal_encoding"]
    body: list[str] = []
    if shown.table is not None:
        more, tokenizer = python_of_tokenizer(settings)
        others, table = python_of_table(settings, shown.table.num_embeddings)
        imports += ["from hf_posenc import DataCollatorWithPositionalEncoding", *more, *others]
        body += ["texts = [", *(f"    {quoted(text)}," for text in settings.texts), "]", *tokenizer, *table]
        body += [
            "collate = DataCollatorWithPositionalEncoding(",
            "    tokenizer,",
            "    embedding=embedding,",
            *([] if shown.pad_token is None else [f"    pad_token={quoted(shown.pad_token)},"]),
            f"    convention={quoted(settings.convention)},",
            f"    base={settings.base!r},",
            *([] if settings.factor is None else [f"    scale={quoted(settings.factor)},"]),
            f"    max_length={settings.max_length},",
            f"    padding_side={quoted(settings.padding_side)},",
            f"    look_ahead={settings.look_ahead},",
            f"    packing={settings.packing},",
            ")",
            "batch = collate(texts)",
            "tokens = collate.tokens(batch)",
            "",
        ]
    shape = f"{settings.d_model}, {settings.positions}, {how}"
    body += [
        f"positions = torch.arange({settings.positions})",
        f"encoding = sinusoidal_encoding(positions, {settings.d_model}, {how}, dtype=torch.float64)",
        "distances = torch.cdist(encoding, encoding)  # (positions, positions)",
        "",
        "pictures = {",
        f'    "encoding": plots.encoding({shape}),',
        f'    "distances": plots.distances({shape}),',
    ]
    if shown.table is not None:
        scale = "" if settings.factor is None else f", scale={quoted(settings.factor)}"
        span = "" if masks_span(shown) is None else f", span={masks_span(shown)}"
        body.append(f'    "masks": plots.masks(batch, tokens{span}),')
    if shown.sentence:
        body += [
            f'    "embeddings": plots.embeddings(tokenizer, embedding, {quoted(shown.sentence)}, {how}{scale}),',
        ]
    body += ["}", "for name, picture in pictures.items():", '    plots.save(picture, f"{name}.png")']
    return "\n".join([*_sorted(imports), "", *body, ""])


def quoted(text: str) -> str:
    r"""Return the text as a Python literal in double quotes. Unprintable characters are escaped: some reorder a line.

    Example:
        >>> print(quoted('say "hi"\t\u202e'))
        "say \"hi\"\t\u202e"
    """
    escaped = "".join(
        f"\\{character}"
        if character in '\\"'
        else character
        if character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )
    return f'"{escaped}"'


def _sorted(imports: list[str]) -> list[str]:
    """Return imports sorted as by ruff: standard library, other packages, this package; names of one module joined."""
    names: dict[str, set[str]] = {}
    for line in imports:
        if line.startswith("from "):
            _, module, _, found = line.split(" ", 3)
            names.setdefault(module, set()).add(found)
    lines = [line for line in imports if line.startswith("import ")]
    lines += [f"from {module} import {', '.join(sorted(found))}" for module, found in names.items()]
    groups: list[list[str]] = [[], [], []]
    for line in sorted(set(lines), key=lambda line: (line.startswith("from "), line)):
        package = line.split(" ")[1].partition(".")[0]
        groups[2 if package == "hf_posenc" else package not in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(group) for group in groups if group).split("\n")

"""Damaged files: a file of a saved collator is changed, byte by byte or value by value.

A read ends with a result or a documented error. `tests/test_safety.py` has files that lead out of their folder, run
code or fill the memory.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hf_posenc import DataCollatorWithPositionalEncoding

from .collating import Refused, documented
from .kinds import MODELS, ROLES, Kind

_HOSTILE: list[Any] = [
    *(None, True, False, -1, 0, 1, 10**6, 2**31, 2**63, 10**30, -(10**9), 0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "../../outside/secret.txt", "/etc/passwd", "\x00", "data/../../outside/secret.txt", "é" * 300, "1e999"),
    *([], [[]], [1, "a", None], {}, {"a": {}}, [[[[[[[[1]]]]]]]], {"type": "Sequence"}, {"__class__": "os.system"}),
    *("eval", "AutoTokenizer", "PreTrainedTokenizerFast", "BertTokenizer", "os.system", "torch.nn.Linear", "float33"),
]
_WHOLE = [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"NaN", b"1" * 10_000, b"\x00"]


def mutate(draw: st.DrawFn, content: bytes) -> bytes:
    """Return content with some damage: JSON values replaced or removed, bytes replaced, or other content."""
    how = draw(st.sampled_from(["json", "json", "json", "bytes", "bytes", "whole"]))
    if how == "json":
        with contextlib.suppress(ValueError):
            return _other_values(draw, json.loads(content))
    if how == "whole":
        return draw(st.sampled_from(_WHOLE))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        new = draw(st.binary(max_size=8) | st.sampled_from([b"9" * 400, b"-1", b"1e999", b"NaN"]))
        content = content[:start] + new + content[start + draw(st.sampled_from([0, 1, 2, 64, len(content)])) :]
    return content


def _other_values(draw: st.DrawFn, value: Any) -> bytes:
    """Return JSON with one to three of its values replaced or removed, or with a key added."""
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if not places:
            break
        parent, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
        if action == "remove":
            del parent[key]
        elif action == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["trust_remote_code", "x", "__class__", "auto_map", "", "embedding"]))] = 1
        else:
            parent[key] = copy.deepcopy(draw(st.sampled_from(_HOSTILE)))
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a JSON value with a key in it; of a long list only the first entries."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, inner in items[:40]:
        yield value, key
        yield from _places(inner)


@functools.cache
def _originals() -> dict[str, dict[str, bytes]]:
    """Return the files of saved collators, with tokenizers of each kind."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            collate = DataCollatorWithPositionalEncoding(Kind(model, tuple(ROLES), "single").make(), max_length=8)
            collate.save_pretrained(f"{name}/{model}")
            found[model] = {path.name: path.read_bytes() for path in sorted(Path(name, model).iterdir())}
    return found


def damaged_collators(data: st.DataObject) -> int:
    """A damaged folder of a collator, or of a tokenizer alone, loads or is refused."""
    files = dict(_originals()[data.draw(st.sampled_from(MODELS), "tokenizer")])
    if data.draw(st.booleans(), "without digests"):
        saved = json.loads(files["hf_posenc.json"])
        del saved["tokenizer"]
        files["hf_posenc.json"] = json.dumps(saved).encode()
    name = data.draw(st.sampled_from(sorted(files)), "file")
    files[name] = mutate(data.draw, files[name])
    if data.draw(st.integers(0, 15), "missing") == 0:
        del files[name]
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Refused), documented():
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        if data.draw(st.booleans(), "collator"):
            collate = DataCollatorWithPositionalEncoding.from_pretrained(folder)
        else:
            collate = DataCollatorWithPositionalEncoding(folder, max_length=8)
        collate(["I ride bike", "she said"])
    return 1

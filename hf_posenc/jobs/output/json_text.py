"""The manifest's JSON as people read it, and tools compare it: settings line by line, and a shard a line.

How it looks only; what stands in it is for `manifest`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def laid_out(top: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> str:
    r"""The same content as the same text.

    Args:
        top (mapping of JSON values): in this order.
        shards (sequence of mappings): their records, each with its `file`.

    Returns:
        `str` of JSON.

    Example:
        >>> print(laid_out({"finished": True}, [{"rows": 2, "file": "shard-000000.parquet"}]), end="")
        {
          "finished": true,
          "shards": [
            {"file": "shard-000000.parquet", "rows": 2}
          ]
        }
    """
    lines = [f"  {_json(key)}: {_json(value, indent=2)}," for key, value in top.items()]
    listed = "[\n" + ",\n".join(f"    {_record(record)}" for record in shards) + "\n  ]" if shards else "[]"
    return "\n".join(["{", *lines, f'  "shards": {listed}', "}", ""])


def _record(record: Mapping[str, Any]) -> str:
    """A line of its own, the file first; the rest by name, so that no engine has a say in the order."""
    rest = {key: record[key] for key in sorted(record) if key != "file"}
    return json.dumps({"file": record["file"], **rest}, ensure_ascii=False)


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text.replace("\n", "\n  ")  # inside strings, line breaks are written as \\n

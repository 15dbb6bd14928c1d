"""The data card: the README.md of an output, with figures, settings, and code that loads the shards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._common.errors import counted, in_bytes
from .manifest import Manifest
from .output import TOKENIZER

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MOST_LISTED = 20  # rows of a table
_TOKEN_COLUMNS = ("input_ids", "token_type_ids", "position_ids", "labels")
# `load_dataset(folder)` reads the header.
_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/shard-*.parquet
# license: that of the texts; fill it in
---

# {title} as token ids

{documents} as {tokens:,} token ids, in {rows:,} rows and {shards} of {bytes} in all. A row has at most {longest:,}
tokens; {cut:,} documents were truncated, and {rejected:,} rejected ones are listed in `rejected/`. Batches of 32
neighboring rows, each padded to its longest, are {padding} padding.

{code}`manifest.json` holds these settings, and a checksum of each shard; `hf-posenc verify` compares them.
Other options of `hf-posenc encode` have their defaults.

{settings}

{columns}

{inputs}

"""
_CODE = """\
In this folder, or with its path before `data` and `tokenizer`:

```python
from datasets import load_dataset
from hf_posenc import DataCollatorWithPositionalEncoding

dataset = load_dataset("parquet", data_files="data/shard-*.parquet", split="train")
collate = DataCollatorWithPositionalEncoding({collator})
batch = collate(list({taken}.take(min(8, len(dataset)))))
print({{name: tuple(value.shape) for name, value in batch.items()}})
```

"""


def card(manifest: Manifest, tokenizer: PreTrainedTokenizerBase, *, is_local: bool) -> str:
    """Return the text of the data card; `is_local` is True if the tokenizer lies in the output."""
    config, totals, columns = manifest.config, manifest.totals, manifest.config["columns"]
    names = [Path(one["name"]).name for one in manifest.inputs]
    own = [name for name in _TOKEN_COLUMNS if name in columns]
    settings = [] if "labels" in columns else [f'labels="{"causal" if tokenizer.mask_token is None else "masked"}_lm"']
    if tokenizer.pad_token is None:
        pad_token = "eos" if tokenizer.eos_token is not None else tokenizer.convert_ids_to_tokens(0)
        settings.append(f"pad_token={_quoted(pad_token)}")
    if manifest.options["on_bad_row"] == "keep-empty" and totals["rejected"]:
        settings.append('empty="keep"')
    name = TOKENIZER if is_local else manifest.tokenizer["name"]
    taken = f"dataset.select_columns({_quoted(own)})" if set(columns) - {*own, "length"} else "dataset"
    listed = [(name, config[name]) for name in config if name != "columns"]
    sizes = [(name, one.get("size", one.get("rows"))) for name, one in zip(names, manifest.inputs, strict=True)]
    return _CARD.format(
        title=_plain(names[0]).replace("<", "&lt;") + (f" and {len(names) - 1:,} more" if len(names) > 1 else ""),
        documents=counted(totals["documents"], "document"),
        shards=counted(totals["shards"], "shard"),
        bytes=in_bytes(totals["bytes"]),
        padding=f"{100 - 100 * totals['tokens'] / max(totals['padded'], 1):.1f} %",
        **{name: totals[name] for name in ("tokens", "rows", "longest", "cut", "rejected")},
        code=_CODE.format(collator=", ".join([_quoted(name), *settings]), taken=taken) if totals["rows"] else "",
        settings=_table(("setting", "value"), [*listed, *manifest.tokenizer.items(), *manifest.libraries.items()]),
        columns=_table(("column", "type"), columns.items()),
        inputs=_table((counted(len(sizes), "input"), "bytes or rows"), sizes),
    )


def _quoted(value: Any) -> str:
    """Format a string, or a list of strings, as Python code with double quotation marks, such as `["input_ids"]`."""
    return json.dumps(value, ensure_ascii=False)


def _table(head: tuple[str, str], rows: Iterable[tuple[str, Any]]) -> str:
    """Return a Markdown table with two columns, named `head`, and at most 20 of the `rows`."""
    listed = [(f"`{_plain(name)}`", f"`{_plain(value)}`" if value is not None else "") for name, value in rows]
    more = [(f"and {len(listed) - _MOST_LISTED:,} more", "")] if len(listed) > _MOST_LISTED else []
    lines = [head, ("---", "---"), *listed[:_MOST_LISTED], *more]
    return "\n".join(f"| {left} | {right} |" for left, right in lines)


def _plain(value: Any) -> str:
    """Convert a value to one line of text that is safe inside a Markdown table cell and a code span."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")

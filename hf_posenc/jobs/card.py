"""The data card: the README.md of an output folder, with statistics, the cost of padding, and code to load the data.

All numbers are computed from the records of the shards. The YAML header has a commented-out license line for
the user to fill in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._common.errors import counted, in_bytes
from .._common.files import read_whole
from .folder import CARD, REJECTED, TOKENIZER, write_file
from .manifest import Manifest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_HEADER = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/shard-*.parquet
# license: that of the texts; fill it in
---
"""
# Holds the checksum of the lines above it, so that a card edited by the user is not overwritten.
_LAST_LINE = "<!-- written by hf-posenc {}; change anything above, and it is left alone -->"
_MOST_LISTED = 20  # inputs or columns listed, one per line
_TOKEN_COLUMNS = ("input_ids", "token_type_ids", "position_ids", "labels")

_READING = """\
In this folder, or with its path before `data` and `tokenizer`:

```python
from datasets import load_dataset

dataset = load_dataset("parquet", data_files="data/shard-*.parquet", split="train")
print(dataset)
```

Batches for a model, and for `Trainer(model, train_dataset=dataset, data_collator=collate)`:

```python
from hf_posenc import DataCollatorWithPositionalEncoding

collate = DataCollatorWithPositionalEncoding({collator})
batch = collate(list({rows}.take(min(8, len(dataset)))))
print({{name: tuple(value.shape) for name, value in batch.items()}})
```"""

_BY_LENGTH = """

Batches of rows of similar length, 16,384 tokens each:

```python
from hf_posenc import plan_batches

plan = plan_batches(dataset["length"], 16_384)
print(plan)
```"""


def write_card(manifest: Manifest, tokenizer: PreTrainedTokenizerBase) -> bool:
    r"""Write the data card, `README.md`, to the output folder; keep an existing file that the user wrote or edited.

    The YAML header of the card makes `load_dataset(folder)` read the shards.
    """
    path = manifest.folder / CARD
    if path.is_symlink() or (path.exists() and not _is_unchanged(path)):
        return False
    text = _card(manifest, tokenizer)
    write_file(path, f"{text}{_last_line(text)}\n".encode("utf-8", "replace"))
    return True


def _is_unchanged(path: Path) -> bool:
    try:
        text = read_whole(path).decode("utf-8")
    except (OSError, ValueError):
        return False
    above, _, last = text.removesuffix("\n").rpartition("\n")
    return last == _last_line(above + "\n")


def _last_line(text: str) -> str:
    return _LAST_LINE.format(hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())


def _card(manifest: Manifest, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the text of the data card (README.md): a YAML header, then Markdown."""
    config, totals = manifest.config, manifest.totals
    names = [Path(one["name"]).name for one in manifest.inputs]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    inputs = [
        (name, in_bytes(one["size"]) if one.get("size") is not None else "")
        for name, one in zip(names, manifest.inputs, strict=True)
    ]
    parts = [
        f"# {_plain(names[0]).replace('<', '&lt;')}{more} as token ids",
        f"{counted(totals['documents'], 'document')} as {totals['tokens']:,} token ids, in {totals['rows']:,} rows"
        + (f" of at most {config['pack']:,} tokens that several documents share" if config["pack"] else "")
        + f": {counted(totals['shards'], 'Parquet shard')} of {in_bytes(totals['bytes'])} in all.",
        "## Figures",
        _table(("", ""), _figures(config, totals)),
        "## Padding",
        _padding(totals, config["pack"]),
        "## Columns",
        _table(("column", "type"), _code(config["columns"].items())),
        *(("## Reading it", _reading(manifest, tokenizer)) if totals["rows"] else ()),
        "## How it was made",
        "`manifest.json` holds all of this, and a checksum of each shard; `hf-posenc verify` compares them.",
        _table(("setting", "value"), _code((name, config[name]) for name in config if name != "columns")),
        _table(("tokenizer", ""), _code(manifest.tokenizer.items())),
        _table((counted(len(inputs), "input"), "size"), _code(inputs)),
        _table(("library", "version"), _code(manifest.libraries.items())),
    ]
    return _HEADER + "\n" + "\n\n".join(parts) + "\n\n"


def _figures(config: Mapping[str, Any], totals: Mapping[str, int]) -> list[tuple[str, str]]:
    rows, tokens, rejected, cut = (totals[name] for name in ("rows", "tokens", "rejected", "cut"))
    replaced = "kept as empty rows" if config["on_bad_row"] == "keep-empty" else "left out"
    return [
        ("documents", f"{totals['documents']:,}"),
        ("rejected", f"{rejected:,}, {replaced} and listed in `{REJECTED}`" if rejected else "none"),
        ("truncated", f"{cut:,}, to {config['max_length']:,} tokens" if cut else "none"),
        ("rows", f"{rows:,}"),
        ("tokens", f"{tokens:,}"),
        ("tokens a row", f"{tokens / rows:,.1f} on average, {totals['longest']:,} at most" if rows else "none"),
        ("shards", f"{totals['shards']:,}"),
        ("on disk", in_bytes(totals["bytes"])),
    ]


def _padding(totals: Mapping[str, int], pack: int | None) -> str:
    """Return the Markdown section about padding: the share of padding in batches, and how to reduce it."""
    rows, tokens = totals["rows"], totals["tokens"]
    if not tokens:
        return "There are no tokens."
    width = pack or totals["longest"]
    limit = "the limit of a packed row" if pack else "the longest row"
    figures = [
        ("batches of 32 neighboring rows, each padded to its longest", _share(tokens, totals["padded"])),
        (f"all rows padded to {width:,} tokens, {limit}", _share(tokens, rows * width)),
    ]
    if pack:
        less = f"Packed rows are filled to {100 * tokens / (rows * pack):.1f} %."
    else:
        less = (
            "Batches of rows of similar length, which `plan_batches` makes from the column `length`, have "
            "less padding, and so have rows that documents share (`hf-posenc encode --pack`)."
        )
    return f"The share of padding in batches of these rows:\n\n{_table(('', 'padding'), figures)}\n\n{less}"


def _share(tokens: int, padded: int) -> str:
    return f"{100 - 100 * tokens / padded:.1f} %"


def _reading(manifest: Manifest, tokenizer: PreTrainedTokenizerBase) -> str:
    columns = manifest.config["columns"]
    own = [name for name in _TOKEN_COLUMNS if name in columns]
    settings = []
    if "labels" not in columns:
        settings.append('labels="causal_lm"' if tokenizer.mask_token is None else 'labels="masked_lm"')
    if tokenizer.pad_token is None:
        pad_token = "eos" if tokenizer.eos_token is not None else tokenizer.convert_ids_to_tokens(0)
        settings.append(f"pad_token={_quoted(pad_token)}")
    has_empty_rows = manifest.config["on_bad_row"] == "keep-empty" and manifest.totals["rejected"]
    if has_empty_rows:
        settings.append('empty="keep"')
    name = TOKENIZER if (manifest.folder / TOKENIZER).is_dir() else manifest.tokenizer["name"]
    code = _READING.format(
        collator=", ".join([_quoted(name), *settings]),
        rows=f"dataset.select_columns({_quoted(own)})" if set(columns) - {*own, "length"} else "dataset",
    )
    return code if manifest.config["pack"] or has_empty_rows else code + _BY_LENGTH


def _quoted(value: Any) -> str:
    """Format a string, or a list of strings, as Python code with double quotation marks, such as `["input_ids"]`."""
    return json.dumps(value, ensure_ascii=False)


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """Return a Markdown table with two columns, named `head`, and at most 20 of the `rows`."""
    lines = [head, ("---", "---"), *rows[:_MOST_LISTED]]
    if len(rows) > _MOST_LISTED:
        lines.append((f"and {len(rows) - _MOST_LISTED:,} more", ""))
    return "\n".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines)


def _code(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Format both cells of each table row as Markdown code, between backticks; an empty second cell stays empty."""
    return [(f"`{_plain(name)}`", f"`{_plain(value)}`" if value != "" else "") for name, value in rows]


def _plain(value: Any) -> str:
    """Convert a value to one line of text that is safe inside a Markdown table cell and a code span."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")

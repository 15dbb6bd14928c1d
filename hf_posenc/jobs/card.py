"""The data card: the README.md of an output folder, with statistics, the cost of padding, and code to load the data.

All numbers are sums over the shard records. The license is left for the owner of the texts to fill in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._explain import counted, in_bytes
from .folder import CARD, REJECTED, output_file
from .manifest import Manifest

_FRONT = """---
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
_MOST = 20  # inputs or columns listed, one per line
_MADE = ("input_ids", "token_type_ids", "position_ids", "labels")

_READING = """\
In this folder, or with its path before the pattern:

```python
from datasets import load_dataset

dataset = load_dataset("parquet", data_files="data/shard-*.parquet", split="train")
print(dataset)
```

Batches for a model, and for `Trainer(model, train_dataset=dataset, data_collator=collate)`:

```python
from hf_posenc import DataCollatorWithPositionalEncoding
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({tokenizer})
collate = DataCollatorWithPositionalEncoding(tokenizer{labels})
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


def write_card(folder: Path, manifest: Manifest) -> bool:
    r"""Write `README.md`, unless the user wrote or edited it. With its header, `load_dataset(folder)` reads the shards.

    Args:
        folder (`Path`): the output folder.
        manifest (`Manifest`): its manifest.

    Returns:
        `bool`: True if the card was written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = Manifest.open(Path(folder), config={}, tokenizer={}, inputs=[])
        ...     write_card(Path(folder), manifest), write_card(Path(folder), manifest)
        ...     _ = Path(folder, "README.md").write_text("# Mine")
        ...     write_card(Path(folder), manifest)
        (True, True)
        False
    """
    path = folder / CARD
    if path.is_symlink() or (path.exists() and not _is_unchanged(path)):
        return False
    text = card(manifest)
    with output_file(path) as temporary:
        temporary.write_text(f"{text}{_last_line(text)}\n", encoding="utf-8", errors="replace", newline="\n")
    return True


def _is_unchanged(path: Path) -> bool:
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    above, _, last = text.removesuffix("\n").rpartition("\n")
    return last == _last_line(above + "\n")


def _last_line(text: str) -> str:
    return _LAST_LINE.format(hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())


def card(manifest: Manifest) -> str:
    """Return the text of the card: YAML, then Markdown."""
    totals = _Totals(manifest)
    names = [Path(str(one.get("name", ""))).name for one in manifest.inputs] or ["a corpus"]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    columns = list((manifest.config.get("columns") or {}).items())
    parts = [
        f"# {_plain(names[0]).replace('<', '&lt;')}{more} as token ids",
        totals.summary(),
        "## Figures",
        _table(("", ""), totals.figures()),
        "## Padding",
        totals.padding(),
        "## Columns",
        _table(("column", "type"), _code(columns)),
        "## Reading it",
        _reading(manifest),
        "## How it was made",
        "`manifest.json` holds all of this, and a checksum of each shard; `hf-posenc verify` compares them.",
        _table(
            ("setting", "value"), _code((name, manifest.config[name]) for name in manifest.config if name != "columns")
        ),
        _table(("tokenizer", ""), _code({**manifest.tokenizer, "name": _tokenizer(manifest)}.items())),
        _table(
            (counted(len(manifest.inputs), "input"), "size"),
            _code((name, _size(one)) for name, one in zip(names, manifest.inputs, strict=False)),
        ),
        _table(("library", "version"), _code(manifest.libraries.items())),
    ]
    return _FRONT + "\n" + "\n\n".join(parts) + "\n\n"


class _Totals:
    """Sums over the records of all shards."""

    def __init__(self, manifest: Manifest) -> None:
        records = manifest.shards.values()
        self.shards, self.config = len(records), manifest.config
        names = ("rows", "documents", "tokens", "bytes", "rejected", "cut", "padded")
        self.sums = {name: sum(record[name] for record in records) for name in names}
        self.longest = max((record["longest"] for record in records), default=0)

    def summary(self) -> str:
        packed = self.config.get("pack")
        return (
            f"{counted(self.sums['documents'], 'document')} as {self.sums['tokens']:,} token ids, "
            f"in {self.sums['rows']:,} rows"
            + (f" of at most {packed:,} tokens that several documents share" if packed else "")
            + f": {counted(self.shards, 'Parquet shard')} of {in_bytes(self.sums['bytes'])} in all."
        )

    def figures(self) -> list[tuple[str, str]]:
        rows, tokens, rejected, cut = (self.sums[name] for name in ("rows", "tokens", "rejected", "cut"))
        replaced = "kept as empty rows" if self.config.get("on_bad_row") == "keep-empty" else "left out"
        limit = self.config.get("max_length")
        return [
            ("documents", f"{self.sums['documents']:,}"),
            ("rejected", f"{rejected:,}, {replaced} and listed in `{REJECTED}`" if rejected else "none"),
            ("truncated", (f"{cut:,}, to {limit:,} tokens" if limit else f"{cut:,}") if cut else "none"),
            ("rows", f"{rows:,}"),
            ("tokens", f"{tokens:,}"),
            ("tokens a row", f"{tokens / rows:,.1f} on average, {self.longest:,} at most" if rows else "none"),
            ("shards", f"{self.shards:,}"),
            ("on disk", in_bytes(self.sums["bytes"])),
        ]

    def padding(self) -> str:
        rows, tokens, pack = self.sums["rows"], self.sums["tokens"], self.config.get("pack")
        if not tokens:
            return "There are no tokens."
        width = pack or self.longest
        figures = [
            ("batches of 32 neighbouring rows, each padded to its longest", _share(tokens, self.sums["padded"])),
            (
                f"all rows padded to {width:,} tokens, {'the limit of a packed row' if pack else 'the longest row'}",
                _share(tokens, rows * width),
            ),
        ]
        if pack:
            less = f"Packed rows are filled to {100 * tokens / (rows * pack):.1f} %."
        else:
            less = (
                "Batches of rows of similar length, which `plan_batches` below makes from the column `length`, have "
                "less padding, and so have rows that documents share (`hf-posenc encode --pack`)."
            )
        return f"The share of padding in batches of these rows:\n\n{_table(('', 'padding'), figures)}\n\n{less}"


def _share(tokens: int, padded: int) -> str:
    return f"{100 - 100 * tokens / padded:.1f} %" if padded else "unknown"


def _reading(manifest: Manifest) -> str:
    columns = manifest.config.get("columns") or {}
    own = [name for name in _MADE if name in columns]
    code = _READING.format(
        tokenizer=json.dumps(_tokenizer(manifest)),
        labels="" if "labels" in columns else ', labels="causal_lm"',
        rows=f"dataset.select_columns({json.dumps(own)})" if set(columns) - {*own, "length"} else "dataset",
    )
    return code if manifest.config.get("pack") else code + _BY_LENGTH


def _tokenizer(manifest: Manifest) -> str:
    """Return the name of the tokenizer; for a local tokenizer, its folder without the parent folders."""
    name = str(manifest.tokenizer.get("name") or "the/tokenizer")
    return Path(name).name if re.match(r"[./~\\]|[A-Za-z]:", name) else name


def _size(fingerprint: dict[str, Any]) -> str:
    return in_bytes(fingerprint["size"]) if isinstance(fingerprint.get("size"), int) else ""


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """Return a Markdown table of two columns, with the first 20 rows."""
    lines = [head, ("---", "---"), *rows[:_MOST]]
    if len(rows) > _MOST:
        lines.append((f"and {len(rows) - _MOST:,} more", ""))
    return "\n".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines)


def _code(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return names and values as Markdown code; an empty string stays empty."""
    return [(f"`{_plain(name)}`", f"`{_plain(value)}`" if value != "" else "") for name, value in rows]


def _plain(value: Any) -> str:
    """Return a value as one line without characters that would end a Markdown table cell or code span."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")

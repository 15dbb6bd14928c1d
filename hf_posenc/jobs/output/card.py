"""The data card of an output folder: what is in it, what padding costs, and how to read it back, as README.md.

Every figure is a sum over the shards' records; what the texts are, and under which license, only their owner knows.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ..._explain import counted, in_bytes
from .folder import CARD, REJECTED, written_whole
from .manifest import Manifest
from .markdown import code_rows, plain, table

_FRONT = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: shard-*.parquet
# license: that of the texts; fill it in
---
"""
# The last line vouches for the ones above: a card that somebody wrote or changed is theirs.
_MARK = "<!-- written by hf-posenc {}; change anything above, and it is left alone -->\n"
_MARKED = re.compile(re.escape(_MARK).replace(r"\{\}", "([0-9a-f]{64})"))
_BATCH = 32  # rows, in the records' `padded`
_MOST = 20  # inputs, and columns, have a line each, up to so many


def write_card(folder: Path, manifest: Manifest) -> bool:
    r"""Writes `README.md`, unless the one that is there is by somebody else, or was changed by hand.

    With it, `load_dataset(folder)` reads the shards and nothing else.

    Args:
        folder (`Path`): the output folder.
        manifest (`Manifest`): what is in it.

    Returns:
        `bool`: whether the card that is there now is this one.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = Manifest.open(Path(folder), config={}, tokenizer={}, inputs=[], same_inputs=lambda _: [])
        ...     write_card(Path(folder), manifest), write_card(Path(folder), manifest)
        ...     _ = Path(folder, "README.md").write_text("# Mine")
        ...     write_card(Path(folder), manifest)
        (True, True)
        False
    """
    path = folder / CARD
    if path.is_symlink() or (path.exists() and not _is_untouched(path)):
        return False
    text = card(manifest)
    with written_whole(path) as aside:
        aside.write_text(text + _MARK.format(_digest(text)), encoding="utf-8", errors="replace", newline="\n")
    return True


def card(manifest: Manifest) -> str:
    r"""The text of the card.

    Args:
        manifest (`Manifest`): what it is about.

    Returns:
        `str`: YAML, then Markdown.
    """
    parts = [
        f"# {_title(manifest)} as token ids",
        _summary(manifest),
        "## Figures",
        table(("", ""), _figures(manifest)),
        "## Padding",
        _padding(manifest),
        "## Columns",
        table(("column", "type"), code_rows(_columns(manifest)), most=_MOST),
        "## Reading it back",
        _reading(manifest),
        "## How it was made",
        _made(manifest),
    ]
    return _FRONT + "\n" + "\n\n".join(parts) + "\n\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _is_untouched(path: Path) -> bool:
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    above, _, last = text.rstrip("\n").rpartition("\n")
    mark = _MARKED.fullmatch(last + "\n")
    return mark is not None and mark[1] == _digest(above + "\n")


# -- figures -----------------------------------------------------------------------------------------------------------


def _sum(manifest: Manifest, name: str) -> int:
    return sum(record.get(name) or 0 for record in manifest.shards.values())


def _longest(manifest: Manifest) -> int:
    return max((record.get("longest", 0) for record in manifest.shards.values()), default=0)


def _title(manifest: Manifest) -> str:
    """What was read. Not what the folder is called: the same job gives the same card wherever it writes."""
    names = [Path(str(one.get("name", ""))).name for one in manifest.inputs] or ["a corpus"]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return plain(names[0]).replace("<", "&lt;") + more


def _summary(manifest: Manifest) -> str:
    packed = manifest.config.get("pack")
    rows = f"{_sum(manifest, 'rows'):,} rows"
    return (
        f"{counted(_sum(manifest, 'documents'), 'document')} as {_sum(manifest, 'tokens'):,} token ids, in {rows}"
        + (f" of at most {packed:,} tokens that several documents share" if packed else "")
        + f": {counted(len(manifest.shards), 'Parquet shard')} of {in_bytes(_sum(manifest, 'bytes'))} in all."
    )


def _figures(manifest: Manifest) -> list[tuple[str, str]]:
    rows, tokens = _sum(manifest, "rows"), _sum(manifest, "tokens")
    rejected, cut = _sum(manifest, "rejected"), _sum(manifest, "cut")
    kept = "kept as empty rows" if manifest.config.get("on_bad_row") == "keep-empty" else "left out"
    limit = manifest.config.get("max_length")
    return [
        ("documents", f"{_sum(manifest, 'documents'):,}"),
        ("of them bad", f"{rejected:,}, {kept} and listed in `{REJECTED}`" if rejected else "none"),
        ("of them cut", f"{cut:,}, at {limit:,} tokens" if cut and limit else f"{cut:,}" if cut else "none"),
        ("rows", f"{rows:,}"),
        ("tokens", f"{tokens:,}"),
        ("tokens a row", f"{tokens / rows:,.1f} on average, {_longest(manifest):,} at most" if rows else "none"),
        ("shards", f"{len(manifest.shards):,}"),
        ("on disk", in_bytes(_sum(manifest, "bytes"))),
    ]


def _padding(manifest: Manifest) -> str:
    rows, tokens, longest = _sum(manifest, "rows"), _sum(manifest, "tokens"), _longest(manifest)
    if not tokens:
        return "There is no token in it."
    capacity = manifest.config.get("pack")
    width, whose = (capacity, "what a packed row may hold") if capacity else (longest, "the longest row")
    figures = [
        (
            f"batches of {_BATCH} neighbouring rows, each padded to its longest",
            _share(tokens, _sum(manifest, "padded")),
        ),
        (f"every row padded to {width:,} tokens, {whose}", _share(tokens, rows * width)),
    ]
    said = "How much of what a model computes would be padding, of the rows as they stand:"
    if capacity:
        after = f"Packed rows are filled to {100 * tokens / (rows * capacity):.1f} %."
    else:
        after = (
            "Less of it: batches of rows of like length, as `plan_batches` below makes them from the column `length`, "
            "or rows that documents share (`hf-posenc encode --pack`)."
        )
    return f"{said}\n\n{table(('', 'padding'), figures)}\n\n{after}"


def _share(tokens: int, places: int) -> str:
    return f"{100 - 100 * tokens / places:.1f} %" if places else "unknown"


def _columns(manifest: Manifest) -> list[tuple[str, str]]:
    columns = manifest.config.get("columns") or {}
    return [(str(name), str(columns[name])) for name in columns]


# -- how to read it, how it was made -----------------------------------------------------------------------------------


def _reading(manifest: Manifest) -> str:
    name = manifest.tokenizer.get("name") or "the/tokenizer"
    columns = manifest.config.get("columns") or {}
    labels = "" if "labels" in columns else ', labels="causal_lm"'
    own = [one for one in ("input_ids", "token_type_ids", "position_ids", "labels") if one in columns]
    carried = sorted(set(columns) - {*own, "length"})
    rows = f"dataset.select_columns({json.dumps(own)})" if carried else "dataset"
    code = f"""
        In this folder, or with its path before the pattern:

        ```python
        from datasets import load_dataset

        dataset = load_dataset("parquet", data_files="shard-*.parquet", split="train")
        print(dataset)
        ```

        Batches for a model, and for `Trainer(model, train_dataset=dataset, data_collator=collate)`:

        ```python
        from hf_posenc import DataCollatorWithPositionalEncoding
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained({json.dumps(name)})
        collate = DataCollatorWithPositionalEncoding(tokenizer{labels})
        batch = collate(list({rows}.take(min(8, len(dataset)))))
        print({{name: tuple(value.shape) for name, value in batch.items()}})
        ```
    """
    if not manifest.config.get("pack"):
        code += """
        Rows of like length together, 16,384 tokens a batch:

        ```python
        from hf_posenc import plan_batches

        plan = plan_batches(dataset["length"], 16_384)
        print(plan)
        ```
    """
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?m)^ {1,8}", "", code)).strip()


def _made(manifest: Manifest) -> str:
    settings = [(name, value) for name, value in sorted(manifest.config.items()) if name != "columns"]
    libraries = [(name, version) for name, version in sorted(manifest.libraries.items())]
    inputs = [(Path(str(one.get("name", ""))).name, _input_size(one)) for one in manifest.inputs]
    tokenizer = [(name, value) for name, value in sorted(manifest.tokenizer.items())]
    return "\n\n".join(
        [
            "`manifest.json` has all of this, and a checksum for each shard, which `hf-posenc verify` checks.",
            table(("setting", "value"), code_rows(settings)),
            table(("tokenizer", ""), code_rows(tokenizer)),
            table((counted(len(inputs), "input"), "size"), code_rows(inputs), most=_MOST),
            table(("library", "version"), code_rows(libraries)),
        ]
    )


def _input_size(one: dict[str, Any]) -> str:
    return in_bytes(one["size"]) if isinstance(one.get("size"), int) else ""

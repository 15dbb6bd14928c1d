"""`encode`: a corpus to shards, from the first look at the input to the card; goes on where an earlier run ended.

Puts the modules of this room together; each step is one of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from .._explain import as_integer, explain, one_of
from .asked import asked_for
from .flow import Flow
from .folder import Folder
from .job import OnBadRow, TooLong
from .manifest import Manifest
from .progress import Progress
from .sources import open_sources


def encode(
    inputs: Any,
    tokenizer: Any,
    output: str | Path,
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    columns: Sequence[str] | None = None,
    split: Literal["lines", "paragraphs"] = "lines",
    format: Literal["text", "json", "csv", "parquet", "arrow"] | None = None,
    dataset_config: str | None = None,
    dataset_split: str | None = None,
    max_length: int | None = None,
    too_long: TooLong | None = None,
    stride: int | None = None,
    add_special_tokens: bool | None = None,
    pack: int | None = None,
    labels: Literal["causal_lm"] | None = None,
    on_bad_row: OnBadRow = "error",
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    shard_bytes: int | None = None,
    progress: Progress | None = None,
) -> Manifest:
    r"""Tokenises a corpus of any size into Parquet shards, and goes on where an interrupted run ended.

    The shards hold `input_ids` (int32, not padded), `length`, and what was asked for; `load_dataset("parquet", ...)`
    reads them, and the collator makes batches of their rows. A shard appears whole or not at all; `manifest.json` has
    its checksum. The same input and settings give the same bytes, however often a run was killed, and by however many
    workers. Called again on a finished folder, it checks every shard and makes those again that are damaged.

    Args:
        inputs (`str`, `Path`, a data set of `datasets`, or a sequence of these): files, folders, patterns, names on the
            Hub. Text (a document a line), JSON lines, CSV, Parquet, Arrow, compressed or not; sets that `save_to_disk`
            wrote. They are streamed, and are to stay as they are until the end.
        tokenizer (`str`, `Path`, a tokenizer, or `DataCollatorWithPositionalEncoding`): a collator brings its own
            settings for columns, limits, pieces of long texts and packing.
        output (`str` or `Path`): a folder; new, or that of an earlier run of the same job.
        text_column, text_pair_column (`str`, *optional*): where the texts stand; `"text"` by default.
        columns (sequence of `str`, *optional*): the further columns to carry; all by default, none with `pack`.
        split (`"lines"` or `"paragraphs"`, *optional*, defaults to `"lines"`): what a document is in files of text.
        format (`str`, *optional*): what the files are, where their names do not tell: `"text"`, `"json"`, `"csv"`,
            `"parquet"`, `"arrow"`.
        dataset_config, dataset_split (`str`, *optional*): of a set on the Hub, or a folder with several splits.
        max_length (`int`, *optional*): limit on a row's tokens; never above the tokenizer's own.
        too_long (*optional*): what longer texts get: `"truncate"` (the default; they are counted), `"split"` (the rest
            becomes further rows), `"error"` (they are bad rows).
        stride (`int`, *optional*): tokens that neighbouring rows of a split text share.
        add_special_tokens (`bool`, *optional*): as transformers spells it.
        pack (`int`, *optional*): several documents share a row of at most so many tokens; `position_ids` restart.
        labels (`"causal_lm"`, *optional*): store the labels too. Masked ones are drawn when a batch is made.
        on_bad_row (*optional*, defaults to `"error"`): what a document gets that cannot be read, or has no tokens:
            `"error"` ends the run, naming file, line and reason; `"skip"` leaves it out; `"keep-empty"` keeps an empty
            text in its place. The last two list it in `rejected.jsonl`.
        workers (`int`, *optional*): processes; by default one for each core that this process may use.
        engine (`"local"` or `"ray"`, *optional*, defaults to `"local"`), address (`str`, *optional*): of a Ray cluster,
            whose machines all see `output`.
        shard_bytes (`int`, *optional*): about how much text goes into a shard; by default a 64th of the input, at least
            4 MB and at most 64 MB.
        progress (`Progress`, *optional*): is told how it goes. By default what matters is a warning: a limit below the
            one asked for, documents that were cut.

    Returns:
        `Manifest`: `.totals` (rows, documents, tokens, …), `.shards`, `.folder`.

    Raises:
        ValueError: for settings that are wrong; for a bad row; if the folder holds the output of another job, naming
            what differs; if the input changed while it was read.
        OSError: if the folder is in use by another run, or cannot be written to, or the disk is full.

    Example:
        >>> import tempfile
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2, "bike": 3}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "corpus.txt").write_text("I ride bike\nbike\n")
        ...     manifest = encode(Path(folder, "corpus.txt"), raw, Path(folder, "encoded"), workers=1)
        ...     print(manifest.totals["documents"], manifest.totals["tokens"])
        2 4
    """
    if engine not in ("local", "ray"):
        raise ValueError(one_of("engine", engine, ("local", "ray")))
    workers = None if workers is None else as_integer(workers, "workers", minimum=1, example=2)
    asked = asked_for(
        tokenizer,
        text_column=text_column,
        text_pair_column=text_pair_column,
        max_length=max_length,
        too_long=too_long,
        stride=stride,
        add_special_tokens=add_special_tokens,
        pack=pack,
        labels=labels,
        on_bad_row=on_bad_row,
    )
    sources = open_sources(
        inputs if isinstance(inputs, list | tuple) else [inputs],
        format=format,
        text_column=asked.text_column,
        text_pair_column=asked.text_pair_column,
        columns=_columns(columns, asked.pack),
        split=split,
        dataset_config=dataset_config,
        dataset_split=dataset_split,
    )
    if shard_bytes is not None:
        shard_bytes = as_integer(shard_bytes, "shard_bytes", minimum=1, example=64 << 20)
    with Folder(Path(output).expanduser()) as folder:
        flow = Flow(asked, sources, folder.path, split=split, shard_bytes=shard_bytes, progress=progress or Progress())
        return flow.run(engine, workers, address)


def _columns(asked: Sequence[str] | None, pack: int | None) -> Sequence[str] | None:
    """Those to read: none for packed rows, which are of several documents."""
    if pack is None:
        return asked
    if asked:
        raise ValueError(
            explain(
                "packed rows hold several documents, so they carry no columns",
                got=f"columns={list(asked)!r}, pack={pack}",
                fix="columns=[], or pack=None",
            )
        )
    return []

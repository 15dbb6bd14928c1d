"""`hf-posenc encode` writes a data set of texts to shards of token ids, and `hf-posenc verify` compares them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from ..corpus.reading import check_path
from .common import Format, Loading, arguments_of
from .terminal import Screen

_SampleBy = Literal["line", "paragraph", "document"]
_OnBadRow = Literal["error", "skip"]
_Engine = Literal["processes", "ray"]
_NoLabels = Literal["error", "skip", "keep"]
_Backend = Literal["auto", "tokenizers", "nanotoken", "gigatoken"]
_OVERFLOW = "--return-overflowing-tokens"  # without an option that says no


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def encode(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, folders, patterns such as 'data/*.txt', addresses such as s3://..., or data sets on the Hub.",
            show_default=False,
        ),
    ],
    tokenizer: Annotated[str, _option("On the Hub, or a folder with one.", "--tokenizer", "-t")],
    output: Annotated[str, _option("Folder of the shards, or an address such as s3://...", "--output", "-o")],
    column: Annotated[list[str] | None, _option("A further column to copy; repeatable.")] = None,
    format: Format = None,
    config: Annotated[str | None, _option("Configuration of a data set with several.")] = None,
    split: Annotated[str | None, _option("Split of a data set; also train+test, train[:1%], or all.")] = None,
    sample_by: Annotated[_SampleBy | None, _option("Documents of a text file; by default its lines.")] = None,
    loading: Loading = None,
    on_bad_row: Annotated[_OnBadRow, _option("Stop at a row without text or tokens, or list it.")] = "error",
    shards: Annotated[int | None, _option("Number of shards; by default they have 4 to 64 MiB of input.")] = None,
    workers: Annotated[int | None, _option("Number of processes; 0 works in this one.")] = None,
    engine: Annotated[_Engine, _option("Processes of this machine, or tasks of Ray.")] = "processes",
    address: Annotated[str | None, _option("Address of a Ray cluster; by default this machine.")] = None,
    part: Annotated[str | None, _option("Write only the k-th of n parts, such as 3/8, for n machines.")] = None,
    text_column: Annotated[str, _option("Column of the text.")] = "text",
    text_pair_column: Annotated[str | None, _option("Column of the second text of a pair.")] = None,
    text_target_column: Annotated[str | None, _option("Column of the text to predict: labels.")] = None,
    is_split_into_words: Annotated[bool, _option("Texts are lists of words.", "--is-split-into-words")] = False,
    max_length: Annotated[int | None, _option("Maximum tokens of a row; at most the tokenizer's limit.")] = None,
    max_target_length: Annotated[int | None, _option("Maximum tokens of a target.")] = None,
    truncation: Annotated[bool, _option("Truncate longer texts, or stop.")] = True,
    return_overflowing_tokens: Annotated[bool, _option("Continue longer texts in further rows.", _OVERFLOW)] = False,
    stride: Annotated[int, _option("Tokens that consecutive rows of a text share.")] = 0,
    add_special_tokens: Annotated[bool, _option("Add the special tokens of the tokenizer.")] = True,
    packing: Annotated[bool, _option("Put several documents into rows of --max-length.", "--packing")] = False,
    labels: Annotated[str | None, typer.Option(metavar="[causal_lm]", help="Store labels, too.")] = None,
    on_no_labels: Annotated[_NoLabels | None, _option("A row without a label: stop, skip or keep it.")] = None,
    pad_token: Annotated[str | None, _option("Padding token for a tokenizer without one.")] = None,
    backend: Annotated[_Backend, _option("Library that makes the ids; all make the same.")] = "auto",
    progress: Annotated[bool, _option("Show progress bars.", "--progress/--quiet", " /-q")] = True,
) -> None:
    """Encode a data set to Parquet shards of token ids.

    After a run was stopped or killed, the same command continues it. The exit status is 1 for bad data, 2 for a wrong
    command or a missing input, and 75 if the same command may work later, for example because the disk is full.
    """
    given = {name: value for name, value in locals().items() if value is not None and name != "loading"}
    for item in inputs:
        check_path(item)  # before slow imports
    screen = Screen()
    try:
        import datasets

        from .. import corpus

        if not progress:
            datasets.disable_progress_bars()
        report = corpus.encode(columns=given.pop("column", ()), **given, loading=arguments_of(loading))
    except KeyboardInterrupt:
        screen.complain("stopped; the same command continues where it was")
        raise typer.Exit(130) from None
    totals = report.totals
    facts = {name: f"{totals[name]:,}" for name in ("documents", "rows", "tokens", "cut", "blank", "bad", "shards")}
    facts["padding"] = f"{totals['padding']:.1%} in batches of 32 neighboring rows"
    if report.finished:
        facts["read back"] = f'datasets.load_dataset("{output}", split="train")'
    else:
        facts["finished"] = "no: shards of other parts are missing"
    screen.facts(facts)
    for row in report.bad_rows[:3]:
        screen.complain(f"note: row {row['row']:,} was left out: {row['reason']}, {row['text']}")


def verify(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder or address that `hf-posenc encode` wrote to.")],
) -> None:
    """Compare each shard with its checksum. Missing, damaged and unknown ones are listed.

    The exit status is 0 if no shard is listed, 1 if one is, and 2 if the job is not finished.
    """
    from .. import corpus

    bad = corpus.verify(folder)
    Screen().say("\n".join(bad) or f"{folder}: all shards are as they were written")
    if bad:
        raise typer.Exit(1)

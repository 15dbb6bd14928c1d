"""`hf-posenc encode`: a corpus to shards of token ids.

It reads options, shows progress and counts up; what may be asked for, and all the work, is in `jobs`.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from .._explain import counted, explain
from .figures import summary
from .progress import Bar
from .stopping import Stopping
from .terminal import Screen
from .wording import in_options, size

_INPUT, _TOKENS, _OUTPUT, _RUN = "What is read", "What becomes of a text", "What is written", "How it runs"

_GOES_ON = "the same command goes on where it was"

# The keywords of jobs.encode, and what they are called here.
OPTIONS = {
    "tokenizer": "--tokenizer",
    "output": "--output",
    "text_column": "--text-column",
    "text_pair_column": "--text-pair-column",
    "columns": "--column",
    "split": "--split",
    "format": "--format",
    "dataset_config": "--dataset-config",
    "dataset_split": "--dataset-split",
    "max_length": "--max-length",
    "too_long": "--too-long",
    "stride": "--stride",
    "add_special_tokens": "--special-tokens/--no-special-tokens",
    "pack": "--pack",
    "labels": "--labels",
    "on_bad_row": "--on-bad-row",
    "workers": "--workers",
    "engine": "--engine",
    "address": "--address",
    "shard_bytes": "--shard-size",
}


def encode(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, folders, patterns such as 'data/*.txt.gz', or data sets on the Hub.",
            show_default=False,
        ),
    ],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="On the Hub, or a folder with one.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the shards; made if it is not there.")
    ],
    text_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Where tables have their text; 'text' by default.", rich_help_panel=_INPUT),
    ] = None,
    text_pair_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where tables have a second text.", rich_help_panel=_INPUT)
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A further column to keep, and no others; repeatable.", rich_help_panel=_INPUT
        ),
    ] = None,
    no_columns: Annotated[
        bool,
        typer.Option("--no-columns", help="Keep no further columns; by default all are kept.", rich_help_panel=_INPUT),
    ] = False,
    split: Annotated[
        str,
        typer.Option(metavar="lines|paragraphs", help="What a document is, in text files.", rich_help_panel=_INPUT),
    ] = "lines",
    format: Annotated[
        str | None,
        typer.Option(
            metavar="text|json|csv|parquet|arrow",
            help="What the files are; by default their names say it.",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    dataset_config: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which configuration of a data set.", rich_help_panel=_INPUT)
    ] = None,
    dataset_split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which split of a data set.", rich_help_panel=_INPUT)
    ] = None,
    on_bad_row: Annotated[
        str,
        typer.Option(
            metavar="error|skip|keep-empty",
            help="What a row without a readable text gets; all but error note it in rejected.jsonl.",
            rich_help_panel=_INPUT,
        ),
    ] = "error",
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of a row, special ones included; the tokenizer's limit by default.",
            rich_help_panel=_TOKENS,
        ),
    ] = None,
    too_long: Annotated[
        str,
        typer.Option(
            metavar="truncate|split|error",
            help="What a longer text gets; split puts the rest into further rows.",
            rich_help_panel=_TOKENS,
        ),
    ] = "truncate",
    stride: Annotated[
        int, typer.Option(help="Tokens that the rows of a split text share.", rich_help_panel=_TOKENS)
    ] = 0,
    special_tokens: Annotated[
        bool, typer.Option(help="Add the tokenizer's special tokens.", rich_help_panel=_TOKENS)
    ] = True,
    pack: Annotated[
        int | None,
        typer.Option(
            metavar="CAPACITY", help="Put several texts into a row of so many tokens.", rich_help_panel=_TOKENS
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="causal_lm", help="Store labels as well.", rich_help_panel=_TOKENS),
    ] = None,
    shard_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Text in a shard, such as 64MB, 512KB or 1GiB.", rich_help_panel=_OUTPUT),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes; by default one for each core.", rich_help_panel=_RUN)
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="local|ray", help="Processes of this machine, or Ray.", rich_help_panel=_RUN)
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; without it, Ray on this machine.", rich_help_panel=_RUN)
    ] = None,
) -> None:
    """Encode a corpus of any size to Parquet shards of token ids.

    A run that was stopped or killed goes on where it was when the same command is given again.
    """
    screen = Screen()
    settings: dict[str, Any] = {
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "columns": _columns(column, no_columns),
        "split": split,
        "format": format,
        "dataset_config": dataset_config,
        "dataset_split": dataset_split,
        "max_length": max_length,
        "too_long": too_long,
        "stride": stride,
        "add_special_tokens": special_tokens,
        "pack": pack,
        "labels": labels,
        "on_bad_row": on_bad_row,
        "workers": workers,
        "engine": engine,
        "address": address,
        "shard_bytes": None if shard_size is None else size(shard_size, "--shard-size"),
    }
    if "-" in inputs:
        raise ValueError(
            explain(
                "standard input cannot be read a second time, so a run that was stopped could not go on in it",
                got="-",
                fix="hf-posenc encode FILE ..., with what comes through the pipe in a file",
            )
        )
    bar = settings["progress"] = Bar(screen)
    manifest = _encoded(screen, bar, inputs, tokenizer, output, settings)
    screen.facts(summary(manifest.shards.values(), output, made=bar.made, tokens_a_second=bar.tokens_a_second))


def _columns(named: list[str] | None, none: bool) -> list[str] | None:
    if named and none:
        raise ValueError(
            explain(
                "--no-columns and --column exclude each other",
                got=f"--no-columns --column {named[0]}",
                fix="one of the two",
            )
        )
    return [] if none else named or None


def _encoded(
    screen: Screen, bar: Bar, inputs: list[str], tokenizer: str, output: Path, settings: dict[str, Any]
) -> Any:
    """The manifest of the finished job. What stops it is said in options, with what there is to go on from."""
    with Stopping(f"stopped; {_GOES_ON}") as stopping:
        try:
            from ..jobs import encode as encode_corpus

            with bar, warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: bar.note(f"note: {message}")
                return encode_corpus(inputs, tokenizer, output, **settings)
        except KeyboardInterrupt:
            screen.complain(f"stopped: {_so_far(bar)}; {_GOES_ON}")
            raise typer.Exit(stopping.status) from None
        except (ValueError, TypeError) as error:
            _note(screen, bar)
            if "\n  got: " not in str(error) and "\n  fix: " not in str(error):
                raise
            raise ValueError(in_options(str(error), OPTIONS)) from None
        except BaseException:
            _note(screen, bar)
            raise


def _so_far(bar: Bar) -> str:
    there = counted(bar.finished, "shard") if bar.finished else "no shard"
    return f"{there} {'are' if bar.finished > 1 else 'is'} finished"


def _note(screen: Screen, bar: Bar) -> None:
    """What an error leaves behind; nothing where there is nothing yet."""
    if bar.finished:
        screen.complain(f"note: {_so_far(bar)}, and {'stay' if bar.finished > 1 else 'stays'}")

"""`hf-posenc encode`: write a corpus to shards of token ids. The options are the fields of `jobs.options.Options`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from .._explain import counted, explain
from ..jobs.options import Options, choices_of
from .progress import ProgressLine, summary
from .terminal import Screen


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
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the shards, created if necessary.")
    ],
    **options: Any,
) -> None:
    """Encode a corpus of any size to Parquet shards of token ids.

    A run that was stopped or killed continues where it was when the same command is given again.
    """
    if "-" in inputs:
        raise ValueError(
            explain(
                "standard input cannot be read a second time, so a run that was stopped could not continue in it",
                got="-",
                fix="hf-posenc encode FILE ..., with the text of the pipe in a file",
            )
        )
    screen = Screen()
    line = ProgressLine(screen)
    try:
        from ..jobs import encode as encode_corpus

        with line, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: line.message(str(message))
            manifest = encode_corpus(inputs, tokenizer, output, progress=line, **options)
    except KeyboardInterrupt:
        screen.complain(f"stopped: {_finished(line)}; the same command continues where it was")
        raise typer.Exit(130) from None
    except BaseException:
        if line.finished:
            screen.complain(f"note: {_finished(line)} and kept")
        raise
    records = manifest.shards.values()
    screen.facts(summary(records, Path(output), made=line.made, tokens_a_second=line.tokens_a_second))


def _finished(line: ProgressLine) -> str:
    return f"{counted(line.finished, 'shard')} finished" if line.finished else "no shard is finished"


def _parameters() -> Iterator[inspect.Parameter]:
    """Yield the parameters of `encode`, with the fields of `Options` as options of the command line."""
    hints = get_type_hints(encode, include_extras=True)
    for each in list(inspect.signature(encode).parameters.values())[:3]:
        yield each.replace(annotation=hints[each.name])
    hints = get_type_hints(Options)
    for field in fields(Options):
        hint, names = hints[field.name], [field.metadata["flag"]] if field.metadata["flag"] else []
        choices = choices_of(hint)
        if field.name == "columns":
            hint = list[str] | None
        elif choices:
            hint = str | None if field.default is None else str
        option = typer.Option(
            *names,
            metavar="|".join(choices) or None,
            help=field.metadata["help"],
            rich_help_panel=field.metadata["panel"],
        )
        keyword = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(field.name, keyword, default=field.default, annotation=Annotated[hint, option])


def _with_options(command: Callable[..., None]) -> None:
    command.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]


_with_options(encode)

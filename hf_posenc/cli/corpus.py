"""`hf-posenc encode` writes a corpus to shards of token ids, and `hf-posenc verify` reads them again.

The options of `encode` are the fields of `corpus.options.Options`.
"""

from __future__ import annotations

import warnings
from dataclasses import Field
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .._common.errors import counted, value_error
from ..corpus.options import choices_of, with_options
from .progress import ProgressLine
from .terminal import Screen


class PlainHelp(TyperCommand):
    """Command with help in plain text, because typer's tables cut long names of options at 80 columns."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)


def encode(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, folders, patterns such as 'data/*.txt', addresses such as s3://..., or data sets on the Hub.",
            show_default=False,
        ),
    ],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="On the Hub, or a folder with one.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the shards, or an address such as s3://...")
    ],
    **options: Any,
) -> None:
    """Encode a corpus of any size to Parquet shards of token ids.

    After a run was stopped or killed, the same command continues it.

    The options are also arguments of `hf_posenc.corpus.encode`.
    """
    if "-" in inputs:
        raise value_error(
            "standard input cannot be read a second time, so a run that was stopped could not continue in it",
            got="-",
            fix="hf-posenc encode FILE ..., with the text of the pipe in a file",
        )
    screen = Screen()
    line = ProgressLine(screen)
    try:
        from .. import corpus

        with line, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: line.message(str(message))
            manifest = corpus.encode(inputs, tokenizer, output, progress=line, **options)
    except KeyboardInterrupt:
        screen.complain(f"stopped: {_finished(line)}; the same command continues where it was")
        raise typer.Exit(130) from None
    except BaseException:
        if line.finished:
            screen.complain(f"note: {_finished(line)} and kept")
        raise
    screen.facts(line.summary(manifest.totals, output))


def _finished(line: ProgressLine) -> str:
    return f"{counted(line.finished, 'shard')} finished" if line.finished else "no shard is finished"


def verify(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder or address that `hf-posenc encode` wrote to.")],
) -> None:
    """Read every file that `hf-posenc encode` wrote, and list the missing, damaged and unknown ones.

    Each shard is compared with its stored checksum. The exit status is 0 if no file is listed, 1 if a file is listed or
    the run never finished, 2 if the folder holds no output.
    """
    from .. import corpus

    screen = Screen()
    with ProgressLine(screen) as line:
        report = corpus.verify(folder, line.checked)
    screen.say(str(report))
    if report.bad or not report.finished:
        raise typer.Exit(1)


def _option(option: Field[Any], hint: Any) -> Any:
    """Return the annotation from which typer makes a command-line option."""
    choices = choices_of(hint)
    if option.name == "columns":
        hint = list[str] | None
    elif choices:
        hint = str | None if option.default is None else str
    described = typer.Option(
        *filter(None, [option.metadata["flag"]]),
        metavar="|".join(choices) or None,
        help=option.metadata["help"],
    )
    return Annotated[hint, described]


encode.__signature__ = with_options(encode, _option)  # type: ignore[attr-defined]

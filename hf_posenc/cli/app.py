"""The command line: `show` for a text, `demo`, `encode`, `verify` for a corpus, `check` for a model, `plot`, `explore`.

A command a file; here they come together, and what they refuse is worded.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from .check import check_model
from .demo import demo
from .encode import encode
from .explore import explore
from .plot import plot
from .show import show
from .stopping import restore
from .terminal import Screen
from .verify import verify

app = typer.Typer(
    help="Text in, position-aware model inputs out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(show)
app.command()(demo)
app.command()(encode)
app.command()(verify)
app.command("check")(check_model)
app.command()(explore)
app.add_typer(plot, name="plot")


def main(arguments: Sequence[str] | None = None) -> None:
    r"""Runs `hf-posenc`, and says in three lines what was wrong with what it was given.

    Args:
        arguments (sequence of `str`, *optional*): those of the process by default.

    Raises:
        SystemExit: with 0, or with 2 for wrong arguments, files and texts.

    Example:
        >>> main(["show"])
        Traceback (most recent call last):
        SystemExit: 2
    """
    screen = Screen()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: screen.complain(f"note: {message}")
            app(args=arguments, prog_name="hf-posenc")
    except (ValueError, TypeError, ImportError, OSError) as error:
        # What explain() worded is about what the user gave. Anything else is a fault of ours, and needs its traceback.
        if not isinstance(error, OSError) and "\n  fix: " not in str(error) and "\n  got: " not in str(error):
            raise
        screen.complain(str(error))
        raise SystemExit(2) from None
    finally:
        if arguments is not None:  # called from Python: the process goes on
            restore()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hf-posenc {version('hf-posenc')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Holds the options that come before a command."""

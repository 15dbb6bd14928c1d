"""The program `hf-posenc`, with all of its commands and the report of their errors.

The commands `check`, `labels`, `check-tokenizer` and `explore` are defined here, the others in modules of their own.
"""

from __future__ import annotations

import platform
import re
import sys
import warnings
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from .._common.errors import BadDataError, bad_data_error, explain, message_of, shorten, value_error
from .._common.files import check_suffix, no_such_file, write_output
from .common import DefaultTokenizer, Format, Loading, Tokenizer, arguments_of, default_tokenizer, in_shell
from .corpus import encode, verify
from .demo import demo, read_lines, show
from .plot import pictures
from .terminal import Screen

# Lines of `hf-posenc --version`; nanotoken and gigatoken are the fast backends.
_REPORTED = (
    *("hf-posenc", "python", "platform"),
    *("torch", "transformers", "tokenizers", "datasets", "numpy", "pyarrow", "nanotoken", "gigatoken", "accelerate"),
    *("matplotlib", "ray"),
)

_ROWS = 1_000  # rows that are collated at once

app = typer.Typer(
    help="Text in, position-aware model inputs out.\n\nThe exit status is 1 for bad data, and for what `labels` and "
    "`verify` find, 2 for a wrong command or a missing input, and 75 if the same command may work later.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # typer's tables cut long names of options at 80 columns
    pretty_exceptions_enable=False,
    epilog='Example: hf-posenc show "I ride bike"',
)
app.command()(show)
app.command()(demo)
app.command(epilog="Example: hf-posenc encode 'corpus/*.txt' --tokenizer gpt2 --output encoded")(encode)
app.command(epilog="Example: hf-posenc verify encoded")(verify)


@app.command(epilog="Example: hf-posenc check google-bert/bert-base-uncased")
def check(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL_OR_FOLDER", help="A folder with a model, or one on the Hub."),
    ],
) -> None:
    """Report how a model encodes positions. Also if it isolates packed documents, and can compute each token once.

    The report lists the model's tables of position vectors, each table's formula and error, and the effect of left
    padding. Its last lines state if the model isolates packed documents, in rows and in one flat row, with the largest
    difference of an output, divided by the largest output; if documents leak with TRL; and if compute_once(model) gives
    the outputs of the stock model.
    """
    screen = Screen()
    from .. import audit
    from ..models import loaded_model
    from ..testing import measure_once, measure_packing

    loaded, missing = loaded_model(model, instead="; in Python hf_posenc.audit.check(model) takes any model")
    report = audit.check(loaded)
    screen.say(str(report))
    random = [table.name for table in report.tables if table.name in missing]
    if random:
        screen.say(f"  not in the checkpoint, so new random numbers: {', '.join(random)}")
    packing = measure_packing(loaded)
    screen.say(f"packed documents in {packing}")
    with_trl = {"isolated": "are isolated", "needs a kernel": "need that kernel"}.get(packing.flat.state, "leak")
    screen.say(f"with TRL's packing and padding_free, which send flat rows without a mask, documents {with_trl}")
    screen.say(f"compute_once(model): {measure_once(loaded)}")


@app.command(epilog="Example: hf-posenc labels tokenized -t google-bert/bert-base-uncased")
def labels(
    command: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A file (text, JSON lines, CSV, Parquet, Arrow), a folder of files, of save_to_disk or of encode, or "
            "a data set on the Hub.",
        ),
    ],
    tokenizer: Tokenizer = None,
    end_token: Annotated[
        str | None, typer.Option(help="Token that ends an answer; by default the tokenizer's.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the data set, such as train.")] = None,
    format: Format = None,
    loading: Loading = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of texts or conversations; by default text, messages or prompt.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Maximum tokens of a row that is tokenized here; by default the tokenizer's.")
    ] = None,
) -> None:
    """Report which tokens of a data set are trained on. Also list rows whose labels are probably wrong.

    Texts, conversations, and token ids without labels become labels as in training a causal language model. Rows with
    problems have no trained token, a truncated answer, or an end token that is not trained on, for example. If there
    are any, the exit status is 1. Without --tokenizer, end tokens and padding ids are not checked.
    """
    from ..corpus.reading import Reading, RemoteFiles, check_path, open_inputs

    check_path(data)
    import datasets
    import pyarrow as pa

    from .. import audit
    from ..documents import SUPERVISION

    screen = Screen()
    try:
        rows, _ = open_inputs(data, Reading(split=split, format=format, arguments=arguments_of(loading)))
        if isinstance(rows, RemoteFiles):
            files = rows
            tables = [table for part in range(len(files)) for _, table, _ in files.tables(part)]
            rows = datasets.Dataset(pa.concat_tables(tables))
        given: Any = rows
        if "input_ids" not in rows.column_names or {"labels", *SUPERVISION}.isdisjoint(rows.column_names):
            given = _collated(rows, tokenizer, text_column, max_length, screen)
        report = audit.labels(given, tokenizer, end_token=end_token)
    except ValueError as error:  # of datasets or Arrow, which read the rows now
        if message_of(error) is not None:
            raise
        fix = "a file, or a folder, of texts, conversations, or rows with input_ids and labels"
        raise bad_data_error(f"{data} cannot be read as rows", got=shorten(str(error)), fix=fix) from error
    screen.say(in_shell(explain(str(report)), command.find_root().command, ["labels"]))
    if report.problems:
        raise typer.Exit(1)


def _collated(
    rows: Any, tokenizer: str | None, text_column: str | None, max_length: int | None, screen: Screen
) -> Iterator[dict[str, Any]]:
    """Yield batches with `labels`, or with masks of the trained tokens, and print those of the first row."""
    names = rows.column_names
    if tokenizer is None:
        fix = "--tokenizer NAME_OR_FOLDER"
        raise value_error("rows without labels need a tokenizer", got=f"columns {', '.join(names)}", fix=fix)
    from ..collator import DataCollatorWithPositionalEncoding
    from ..collator.formats import format_columns
    from ..corpus.shards import placed
    from ..documents import SUPERVISION

    wanted = (text_column,) if text_column is not None else format_columns(names, ("text",))
    if wanted[0] not in names and "input_ids" not in names:
        texts = [name for name, kind in rows.features.items() if getattr(kind, "dtype", "") == "string"]
        fix = f"text_column={(texts or names)[0]!r}"
        raise value_error(f"there is no column {wanted[0]!r}", got=f"columns {', '.join(names)}", fix=fix)
    settings: dict[str, Any] = {} if text_column is None else {"text_column": text_column}
    collate = DataCollatorWithPositionalEncoding(
        tokenizer, labels="causal_lm", on_no_labels="keep", max_length=max_length, **settings
    )

    def batch_of(columns: dict[str, Any]) -> dict[str, Any]:
        made = collate.columns(columns)
        masks = {name: made[name] for name in SUPERVISION if name in made}
        return {"input_ids": made["input_ids"], **(masks or {"labels": made["input_ids"]})}

    def trained(batch: dict[str, Any]) -> str:
        ids, *others = (column[0] for column in batch.values())
        kept = [token for token, *marks in zip(ids, *others, strict=True) if "labels" in batch or all(marks)]
        return shorten(collate.tokenizer.decode(kept), 400)

    for first in range(0, len(rows), _ROWS):
        given = rows[first : first + _ROWS]
        with placed(first, min(_ROWS, len(rows) - first)):
            batch = batch_of(given)
        if not first:
            screen.say(f"trained on in row 0: {trained(batch)}")
            template = str(collate.tokenizer.chat_template)
            bare = re.sub(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}", r"{#\1 \2#}", template)
            if bare != template and "assistant_masks" in batch.keys() - given.keys():
                kwargs = {**(given.get("chat_template_kwargs", [None])[0] or {}), "chat_template": bare}
                other = trained(batch_of({**rows[:1], "chat_template_kwargs": [kwargs]}))
                if other != trained(batch):
                    screen.say(f"  without {{% generation %}} in the chat template: {other}")
        yield batch


@app.command(epilog="Example: hf-posenc check-tokenizer gpt2 my_texts.txt")
def check_tokenizer(
    tokenizer: Annotated[
        str, typer.Argument(metavar="NAME_OR_FOLDER", help="A folder with a tokenizer, or on the Hub.")
    ],
    file: Annotated[Path, typer.Argument(metavar="TEXTS", help="A text file; each line is a text.")],
) -> None:
    """Compare the ids of the fast library with those of tokenizers. Each line of a file is tokenized with both.

    The lines with different token ids are counted. If there are any, the exit status is 1.
    """
    screen = Screen()
    if not file.exists():
        raise FileNotFoundError(no_such_file(str(file)))
    from ..tokenization import Encoder, FastBackend, private_copy

    copy = private_copy(tokenizer)
    backend = Encoder(copy).backend
    if not isinstance(backend, FastBackend):
        backend = Encoder(copy, backend="nanotoken").backend  # raises with the reason
    assert isinstance(backend, FastBackend)
    lines, different = 0, []
    with file.open(encoding="utf-8", errors="replace") as opened:
        for batch in iter(lambda: list(islice(opened, 1000)), []):
            lines += len(batch)
            different += backend.differences([line.rstrip("\n") for line in batch])
    screen.say(f"{backend.name}: other token ids than tokenizers in {len(different):,} of {lines:,} texts")
    for text in different[:3]:
        screen.say(f"  {shorten(text)}")
    if different:
        raise typer.Exit(1)


@app.command(epilog="Example: hf-posenc explore --tokenizer google-bert/bert-base-uncased")
def explore(
    tokenizer: DefaultTokenizer = None,
    text: Annotated[Path | None, typer.Option(help="Show the first eight lines of this file.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("input-lab.html"),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Write the Input Lab, and open it. It is a page about tokens, masks, attention and positions.

    WordPiece tokenizers as BERT's and byte-level BPEs as GPT-2's run in the page. For other tokenizers, give --text.
    """
    check_suffix(output, "html", "htm")
    texts = None if text is None else [line.strip() for line in read_lines([text])[:8]]
    from ..tokenization import private_copy
    from ..view import lab_html, page_of

    chosen = tokenizer or default_tokenizer()[0]
    page = page_of(lab_html(private_copy(chosen), texts), "The Input Lab")
    with write_output(output) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="surrogateescape")
    Screen().facts({"page": str(output.resolve())})
    if browser:
        webbrowser.open(output.resolve().as_uri())


app.add_typer(pictures, name="plot")


def main(arguments: Sequence[str] | None = None) -> None:
    r"""Run a command of `hf-posenc`; errors in arguments, files and texts are printed without a traceback.

    Example:
        >>> main(["show"])  # its argument TEXT is missing
        Traceback (most recent call last):
        SystemExit: 2
    """
    screen, program = Screen(), typer.main.get_command(app)

    def said(error: BaseException) -> str:
        return in_shell(message_of(error) or str(error), program, sys.argv[1:] if arguments is None else arguments)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # those of pyparsing are UserWarnings, too
            warnings.showwarning = lambda message, *_, **__: screen.complain(f"note: {said(message)}")
            program(args=arguments, prog_name="hf-posenc")
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        # Errors with messages of explain() are about the arguments. Any other error is a bug of this package and keeps
        # its traceback.
        if not isinstance(error, OSError) and message_of(error) is None:
            raise
        screen.complain(said(error))
        is_wrong = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError)
        may_work_later = isinstance(error, OSError) and not is_wrong
        raise SystemExit(75 if may_work_later else 1 if isinstance(error, BadDataError) else 2) from None


def _print_versions(value: bool) -> None:
    if not value:
        return
    from importlib import metadata

    lines = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _REPORTED:
        with suppress(metadata.PackageNotFoundError, KeyError):  # KeyError: a folder without METADATA
            lines[name] = lines.get(name) or metadata.version(name)
    Screen().facts({name: lines.get(name) or "not installed" for name in _REPORTED})
    raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Print the versions that an issue needs."
        ),
    ] = False,
) -> None:
    """Define the options that come before the name of a command, such as `--version`."""

"""The command line: `hf-posenc show` for a text, `hf-posenc demo` for a corpus, `hf-posenc check` for a model.

It reads, times and writes; everything else is done by the package, which also checks what was given.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._explain import explain
from ._terminal import Screen

if TYPE_CHECKING:
    from .batch import Batch

_LIMIT = 512  # tokens a row, where the tokenizer itself has no smaller limit
_WIDTH = 256  # of the embeddings
_BATCH = 64
_EMBEDDED_BATCHES = 32
_SHOWN = 6  # rows of the batch that is printed

app = typer.Typer(
    help="Text in, position-aware model inputs out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="A tokenizer on the Hub, or a folder with one."),
]
PadToken = Annotated[
    str | None, typer.Option(help="A token to pad with, for a tokenizer without one; 'eos' takes its own.")
]


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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hf-posenc {version('hf-posenc')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Holds the options that come before a command."""


@app.command()
def show(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="One text, or several: they make a batch.")],
    tokenizer: Tokenizer = None,
    max_length: Annotated[int | None, typer.Option(help="Cut a text to so many tokens.")] = None,
    padding_side: Annotated[str | None, typer.Option(help="left or right; the tokenizer's own by default.")] = None,
    pad_token: PadToken = None,
    merges: Annotated[bool, typer.Option("--merges", help="Show how a BPE came to the tokens.")] = False,
) -> None:
    """Show what becomes of a text: tokens, ids, padding mask, position ids and look-ahead mask."""
    from .collator import DataCollatorWithPositionalEncoding
    from .tokenization import bpe_stages

    screen = Screen()
    used: Any = tokenizer if tokenizer is not None else _trained(_default_texts())[0]
    settings: Any = {"max_length": max_length, "padding_side": padding_side, "pad_token": pad_token}
    collate = DataCollatorWithPositionalEncoding(used, **settings)
    batch = collate.batch(texts)
    tokens, keep = collate.tokens(batch), _real(batch)
    for number, text in enumerate(texts):
        screen.heading(f"row {number}: {text}")
        if merges:
            for stages in bpe_stages(collate.tokenizer, text):
                screen.say("  " + "  →  ".join(" ".join(stage) for stage in stages))
        names = ("input_ids", "token_type_ids", "attention_mask", "position_ids")
        columns = {name: batch[name][number].tolist() for name in names if name in batch}
        screen.token_table(tokens[number], columns, keep[number])
    longest = max(range(len(texts)), key=lambda number: sum(keep[number]))
    screen.heading(f"look_ahead_mask, by the tokens of row {longest}: each line may look at what is filled")
    screen.look_ahead_picture(tokens[longest], batch["look_ahead_mask"][longest, 0].tolist())


@app.command()
def demo(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="UTF-8 text files, a text a line.", show_default=False),
    ] = None,
    tokenizer: Tokenizer = None,
    pad_token: PadToken = None,
    vocab_size: Annotated[int, typer.Option(help="Of the BPE that is trained where no tokenizer is named.")] = 8_000,
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture of the batch.")] = Path("hf_posenc.png"),
) -> None:
    """Collate and embed a corpus, show a batch of it, and say how fast that was.

    Without FILE the corpus is the docstrings of Python's own standard library.

    Without --tokenizer a BPE is trained on the corpus and kept for the next call.

    Nothing is downloaded, unless --tokenizer names one on the Hub.
    """
    from .collator import DataCollatorWithPositionalEncoding

    screen = Screen()
    texts = _lines_of(files) if files else _default_texts()
    size = sum(len(text.encode()) for text in texts)
    weight = f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size:,} bytes"
    whose = (
        ", ".join(map(str, files))
        if files
        else f"docstrings of the standard library of Python {platform.python_version()}"
    )
    screen.facts({"texts    ": f"{len(texts):,}, {weight}: {whose}"})
    used, about = _trained(texts, vocab_size) if tokenizer is None else (tokenizer, "")
    collate = DataCollatorWithPositionalEncoding(used, pad_token=pad_token, empty="keep", embedding=_WIDTH)
    if collate.max_length is None or collate.max_length > _LIMIT:
        collate = collate.replace(max_length=_LIMIT)
    screen.facts({"tokenizer": about or f"{tokenizer}, {len(collate.tokenizer):,} tokens"})

    batch = collate.batch(texts[:_SHOWN] if files else _some_of(texts))
    tokens, keep = collate.tokens(batch), _real(batch)
    screen.heading(f"{len(keep)} of the texts as a batch, padding in grey")
    screen.batch_table(tokens, keep)
    screen.heading("attention_mask: a block is a token, a dot is padding")
    screen.padding_picture(keep)
    longest = max(range(len(keep)), key=lambda number: sum(keep[number]))
    screen.heading(f"look_ahead_mask, by the tokens of row {longest}: each line may look at what is filled")
    screen.look_ahead_picture(tokens[longest], batch["look_ahead_mask"][longest, 0].tolist())
    screen.heading("what the model is given")
    screen.say(repr(batch))

    screen.heading(f"speed, in batches of {_BATCH} texts, rows of at most {collate.max_length} tokens")
    # What is longer goes on in further rows, so that every token of the corpus counts.
    whole = collate.replace(embedding=None, return_overflowing_tokens=True)
    starts = list(range(0, len(texts), _BATCH))
    some = starts[:: -(-len(starts) // _EMBEDDED_BATCHES)]
    embed = whole.replace(embedding=_WIDTH).embed
    screen.facts(
        {
            "text → batch     ": _speed(screen, "text to batch", whole.batch, texts, starts),
            "text → embeddings": _speed(screen, "text to embeddings", embed, texts, some) + f", width {_WIDTH}",
        }
    )
    screen.say()
    screen.facts({"picture": _draw(batch, tokens, output)})


@app.command("check")
def check_model(
    model: Annotated[str, typer.Argument(metavar="MODEL_OR_FOLDER", help="A folder with a model, or one on the Hub.")],
) -> None:
    """Report which positions a model has: formula of each table, how exact it is, what left padding does."""
    from .audit import check

    screen = Screen()
    loaded, missing = _loaded(model)
    found = check(loaded)
    screen.say(str(found))
    fresh = [table.name for table in found.tables if table.name in missing]
    if fresh:
        screen.say(f"  not in the checkpoint, and new random numbers: {', '.join(fresh)}")


def _loaded(name: str) -> tuple[Any, set[str]]:
    """The model of that name or folder, without a word from transformers, and what its checkpoint lacks."""
    import transformers

    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        model, info = transformers.AutoModel.from_pretrained(name, output_loading_info=True, trust_remote_code=False)
    except Exception as error:  # whatever a file that is no model makes its reader raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "nothing said")
        here = "a folder written by model.save_pretrained(folder)"
        hub = "a folder with a model; one on the Hub must be in the cache, or the Hub in reach and HF_HUB_OFFLINE unset"
        raise ValueError(
            explain(
                f"{name} cannot be loaded as a model",
                got=f"{type(error).__name__}: {first}",
                fix=f"{here if Path(name).exists() else hub}; in Python hf_posenc.audit.check(model) takes any model",
            )
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    return model, set(info["missing_keys"])


def _default_texts() -> list[str]:
    from .corpus import standard_library_docstrings

    return standard_library_docstrings()


def _lines_of(files: Sequence[Path]) -> list[str]:
    """One text a line, as they come; lines with nothing on them are no texts."""
    texts = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise ValueError(
                explain(f"{file} cannot be read", got=error.strerror, fix="the path of a text file, a text a line")
            ) from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ValueError(
                explain(
                    f"{file} is not UTF-8",
                    got=f"byte 0x{error.object[error.start]:02x} on line {line}",
                    fix=f"iconv -f WINDOWS-1252 -t UTF-8 {file} > {file.stem}_utf8{file.suffix}",
                )
            ) from None
        found = [line for line in lines if line.strip()]
        if not found:
            raise ValueError(
                explain(f"{file} has no text in it", got=f"{len(lines)} lines, all empty", fix="a text a line")
            )
        texts += found
    return texts


def _some_of(texts: Sequence[str]) -> list[str]:
    """Six short sentences from all over a corpus, of different lengths, for a batch that fits a screen."""
    short = [
        text for text in texts if 10 <= len(text) <= 32 and text[0].isupper() and " " in text and text.isprintable()
    ]
    step = max(1, len(short) // _SHOWN)
    return short[step // 2 :: step][:_SHOWN] or list(texts[:_SHOWN])


def _real(batch: Batch) -> list[list[bool]]:
    return [[bool(keep) for keep in row] for row in batch["attention_mask"].tolist()]


def _speed(screen: Screen, what: str, make: Callable[[Any], Batch], texts: Sequence[str], starts: Sequence[int]) -> str:
    """How many tokens a second go through, padding not counted; the first batch is made once before, unmeasured."""
    make(texts[starts[0] : starts[0] + _BATCH])
    tokens, seconds = 0, 0.0
    with screen.progress(what, starts) as each:
        for start in each:
            begun = time.perf_counter()
            batch = make(texts[start : start + _BATCH])
            seconds += time.perf_counter() - begun
            tokens += int(batch["attention_mask"].sum())
    part = "all" if len(starts) * _BATCH >= len(texts) else f"{len(starts)} of {-(-len(texts) // _BATCH)}"
    return f"{tokens / seconds:>11,.0f} tokens a second: {tokens:,} tokens in {seconds:.3g} s, {part} batches"


def _draw(batch: Batch, tokens: Sequence[Sequence[str]], output: Path) -> str:
    """Writes the picture and returns what to say of it."""
    from . import plots

    try:
        figure = plots.batch(batch, tokens)
    except ImportError as error:
        return str(error).replace("\n  fix:", ":")
    try:
        figure.savefig(output)
    except (OSError, ValueError) as error:  # a folder that is not there; an ending that is no format
        raise ValueError(
            explain("the picture cannot be written", got=f"{output}: {error}", fix="--output batch.png")
        ) from None
    return str(output.resolve())


def _trained(texts: Sequence[str], vocab_size: int = 8_000) -> tuple[Any, str]:
    """The BPE for these texts, and a few words on where it comes from."""
    from .tokenization.kept import kept_bpe

    kept = kept_bpe(texts, vocab_size, model_max_length=_LIMIT)
    about = f"byte-level BPE of {len(kept.tokenizer):,} tokens, "
    about += "trained by an earlier call" if kept.seconds is None else f"trained in {kept.seconds:.1f} s"
    where = "not kept: the cache cannot be written to" if kept.folder is None else f"kept in {kept.folder}"
    return kept.tokenizer, f"{about}, {where}"

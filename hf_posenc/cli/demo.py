"""`hf-posenc demo`: a corpus collated and embedded, shown, timed and drawn.

It reads, times and writes; everything else is done by the package, which also checks what was given.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._explain import explain
from .given import LIMIT, PadToken, Tokenizer, default_texts, real, trained
from .terminal import Screen

if TYPE_CHECKING:
    from ..batch import Batch

_WIDTH = 256  # of the embeddings
_BATCH = 64
_EMBEDDED_BATCHES = 32
_SHOWN = 6  # rows of the batch that is printed


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
    from ..collator import DataCollatorWithPositionalEncoding

    screen = Screen()
    texts = _lines_of(files) if files else default_texts()
    size = sum(len(text.encode()) for text in texts)
    weight = f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size:,} bytes"
    whose = (
        ", ".join(map(str, files))
        if files
        else f"docstrings of the standard library of Python {platform.python_version()}"
    )
    screen.facts({"texts    ": f"{len(texts):,}, {weight}: {whose}"})
    used, about = trained(texts, vocab_size) if tokenizer is None else (tokenizer, "")
    collate = DataCollatorWithPositionalEncoding(used, pad_token=pad_token, empty="keep", embedding=_WIDTH)
    if collate.max_length is None or collate.max_length > LIMIT:
        collate = collate.replace(max_length=LIMIT)
    screen.facts({"tokenizer": about or f"{tokenizer}, {len(collate.tokenizer):,} tokens"})

    batch = collate.batch(texts[:_SHOWN] if files else _some_of(texts))
    tokens, keep = collate.tokens(batch), real(batch)
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
    from .. import plots

    try:
        figure = plots.batch(batch, tokens)
    except ImportError as error:
        return str(error).replace("\n  fix:", ":")
    return str(plots.canvas.save(figure, output).resolve())

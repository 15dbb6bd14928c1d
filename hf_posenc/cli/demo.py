"""`hf-posenc show` and `hf-posenc demo`: print the collator's output for a few texts, and for a corpus.

Both print the same tables of a batch. The collator checks the arguments.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.errors import bad_data_error, explain, message_of
from .._common.files import check_suffix, no_such_file, write_output
from .common import (
    EXAMPLES,
    MAX_LENGTH,
    DefaultTokenizer,
    PadToken,
    Tokenizer,
    default_bpe,
    default_tokenizer,
    sample_corpus,
    trained_bpe,
)
from .terminal import Screen

if TYPE_CHECKING:
    from ..collator import Batch

_D_MODEL = 256
_BATCH_SIZE = 64
_SAMPLED_BATCHES = 16
_PRINTED_TEXTS, _PRINTED_TOKENS = 3, 24


def show(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="One text, or several, which form a batch.")],
    tokenizer: DefaultTokenizer = None,
    max_length: Annotated[int | None, typer.Option(help="Truncate a text to this many tokens.")] = None,
    padding_side: Annotated[str | None, typer.Option(help="left or right; by default the tokenizer's.")] = None,
    pad_token: PadToken = None,
    merges: Annotated[bool, typer.Option("--merges", help="Show the merges of a BPE tokenizer.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the batch to this HTML file, for a browser.")] = None,
) -> None:
    """Show the model inputs for a text. These are its tokens, ids, padding mask, position ids and look-ahead mask."""
    from ..collator import DataCollatorWithPositionalEncoding
    from ..tokenization import bpe_stages

    screen = Screen()
    if html is not None:
        check_suffix(html, "html", "htm")
    tokenizer_or_name: Any = tokenizer
    if tokenizer is None:
        tokenizer_or_name, about = default_bpe() if merges else default_tokenizer()
        screen.facts({"tokenizer": about})
    settings: Any = {"max_length": max_length, "padding_side": padding_side, "pad_token": pad_token}
    collate = DataCollatorWithPositionalEncoding(tokenizer_or_name, **settings)
    batch = collate.batch(texts)
    for text in texts if merges else ():
        screen.heading(f"merges: {text}")
        for stages in bpe_stages(collate.tokenizer, text):
            screen.say("  " + "  →  ".join(" ".join(stage) for stage in stages))
    screen.batch(batch, collate.tokens(batch), texts)
    if html is not None:
        with write_output(html) as temporary:
            temporary.write_text(batch.to_html(title=" · ".join(texts)), encoding="utf-8")
        screen.say(f"written to {html}")


def demo(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="UTF-8 text files with one text per line.", show_default=False),
    ] = None,
    tokenizer: Tokenizer = None,
    pad_token: PadToken = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the plot.")] = Path("hf_posenc.png"),
) -> None:
    """Print and plot a batch, and measure the speed. It is compared with transformers and torch alone, on a corpus.

    The texts are the first ones of FILE. Without FILE they are examples, and the corpus is the docstrings of three
    packages of Python.

    Without --tokenizer a BPE is trained on the corpus.

    Nothing is downloaded unless --tokenizer names a tokenizer on the Hub.
    """
    screen = Screen()
    with screen.passing.status("reading"):
        texts, source = (read_lines(files), ", ".join(map(str, files))) if files else sample_corpus()
        screen.facts({"corpus   ": source})
        import torch

        from ..collator import DataCollatorWithPositionalEncoding
        from ..plots.canvas import FORMATS
        from ..positions import sinusoidal_encoding

        check_suffix(output, *FORMATS)
    size = sum(len(text.encode()) for text in texts)
    amount = f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size:,} bytes"
    screen.facts({"texts    ": f"{len(texts):,}, {amount}"})
    tokenizer_or_name, origin = trained_bpe(texts) if tokenizer is None else (tokenizer, "")
    collate = DataCollatorWithPositionalEncoding(
        tokenizer_or_name, pad_token=pad_token, on_empty="keep", embedding=_D_MODEL
    )
    if collate.max_length is None or collate.max_length > MAX_LENGTH:
        collate = collate.replace(max_length=MAX_LENGTH)
    screen.facts({"tokenizer": origin or f"{tokenizer}, {len(collate.tokenizer):,} tokens"})

    examples = texts[:_PRINTED_TEXTS] if files else EXAMPLES
    batch = collate.batch(examples)
    tokens = collate.tokens(batch)
    screen.batch(batch, tokens, examples, max_tokens=_PRINTED_TOKENS)
    screen.heading("the batch")
    screen.say(repr(batch))

    screen.heading(f"speed, in batches of {_BATCH_SIZE} texts, rows of at most {collate.max_length} tokens")
    # Longer texts overflow into more rows, so that all tokens of the corpus count.
    whole = collate.replace(embedding=None, return_overflowing_tokens=True)
    starts = list(range(0, len(texts), _BATCH_SIZE))
    embed = whole.replace(embedding=_D_MODEL).embed
    sample = starts[:: -(-len(starts) // _SAMPLED_BATCHES)]
    settings: Any = {"padding": True, "truncation": True, "max_length": whole.max_length, "return_tensors": "pt"}
    settings["return_overflowing_tokens"] = whole.tokenizer.is_fast
    table = torch.nn.Embedding(len(whole.tokenizer), _D_MODEL).requires_grad_(False)
    positions = sinusoidal_encoding(torch.arange(whole.max_length or 0, device="cpu"), _D_MODEL)

    def call(batch_texts: Sequence[str]) -> Any:
        return whole.tokenizer(batch_texts, **settings)

    def plain(batch_texts: Sequence[str]) -> Any:
        inputs = call(batch_texts)
        inputs["inputs_embeds"] = table(inputs["input_ids"]) + positions[: inputs["input_ids"].shape[1]]
        return inputs

    screen.facts(
        {
            "text → batch": _speed(screen, "text to batch", whole.batch, texts, starts),
            "tokenizer(...)": _speed(screen, "tokenizer(...)", call, texts, sample),
            "text → embeddings": _speed(screen, "text to embeddings", embed, texts, sample) + f", width {_D_MODEL}",
            "tokenizer(...), table, sum": _speed(screen, "tokenizer(...), table, sum", plain, texts, sample),
        }
    )
    screen.say()
    from .. import plots

    try:
        picture = str(plots.save(plots.batch(batch, tokens), output).resolve())
    except ImportError as error:
        message = message_of(error)
        picture = f"{message.rule}: {message.fix}" if message else str(error)
    screen.facts({"picture": picture})


def read_lines(files: Sequence[Path]) -> list[str]:
    """Return the non-blank lines of all files as one list; raise `BadDataError` if a file has none or is not UTF-8."""
    texts = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except FileNotFoundError:
            raise FileNotFoundError(no_such_file(str(file))) from None
        except IsADirectoryError:
            fix = f"the files in it, such as {shlex.quote(str(file))}/*.txt"
            raise IsADirectoryError(explain(f"{file} is a folder, and texts are read from files", fix=fix)) from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise bad_data_error(
                f"{file} is not UTF-8",
                got=f"byte 0x{error.object[error.start]:02x} on line {line}",
                fix=f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(str(file))} > "
                + shlex.quote(f"{file.stem}_utf8{file.suffix}"),
            ) from None
        present = [line for line in lines if line.strip()]
        if not present:
            got = f"{len(lines)} lines, all blank"
            raise bad_data_error(f"{file} has no text", got=got, fix="one text per line")
        texts += present
    return texts


def _speed(
    screen: Screen, name: str, collate: Callable[[Any], Batch], texts: Sequence[str], starts: Sequence[int]
) -> str:
    """Measure the speed of `collate` on batches of `_BATCH_SIZE` texts, and return it as a line of text."""
    collate(texts[starts[0] : starts[0] + _BATCH_SIZE])
    tokens, seconds = 0, 0.0
    for start in screen.progress(name, starts):
        begin = time.perf_counter()
        batch = collate(texts[start : start + _BATCH_SIZE])
        seconds += time.perf_counter() - begin
        tokens += int(batch["attention_mask"].sum())
    total = -(-len(texts) // _BATCH_SIZE)
    part = "all" if len(starts) == total else f"{len(starts)} of {total}"
    return f"{tokens / seconds:>11,.0f} tokens per second: {tokens:,} tokens in {seconds:.3g} s, {part} batches"

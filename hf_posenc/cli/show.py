"""`hf-posenc show`: what becomes of one text, or of a few.

It prints what the collator gives and works out nothing of its own.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .given import PadToken, Tokenizer, default_texts, real, trained
from .terminal import Screen


def show(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="One text, or several: they make a batch.")],
    tokenizer: Tokenizer = None,
    max_length: Annotated[int | None, typer.Option(help="Cut a text to so many tokens.")] = None,
    padding_side: Annotated[str | None, typer.Option(help="left or right; the tokenizer's own by default.")] = None,
    pad_token: PadToken = None,
    merges: Annotated[bool, typer.Option("--merges", help="Show how a BPE came to the tokens.")] = False,
) -> None:
    """Show what becomes of a text: tokens, ids, padding mask, position ids and look-ahead mask."""
    from ..collator import DataCollatorWithPositionalEncoding
    from ..tokenization import bpe_stages

    screen = Screen()
    used: Any = tokenizer if tokenizer is not None else trained(default_texts())[0]
    settings: Any = {"max_length": max_length, "padding_side": padding_side, "pad_token": pad_token}
    collate = DataCollatorWithPositionalEncoding(used, **settings)
    batch = collate.batch(texts)
    tokens, keep = collate.tokens(batch), real(batch)
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

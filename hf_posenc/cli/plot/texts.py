"""`hf-posenc plot`, the pictures of texts: batch, masks, embeddings, crowding, attention.

Where no tokenizer or model is named, something stands in, and the picture says what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..._explain import explain
from ..options import PadToken, Tokenizer, default_texts, default_tokenizer
from .drawing import Base, ConventionName, Output, draw, several
from .standing_in import Used, collator_for, embedding_for, model_for

if TYPE_CHECKING:
    from ...collator import DataCollatorWithPositionalEncoding

_TEXTS = ["I ride bike", "bike ride I, she said"]
_SENTENCE = "a queen is a woman, a king is a man"

Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="One, or several: a batch.", show_default=False)
]
Sentence = Annotated[str, typer.Argument(metavar="TEXT", help="A sentence.")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME_OR_FOLDER", help="A model on the Hub, or a folder with one."),
]
PaddingSide = Annotated[str | None, typer.Option(help="left or right; the tokenizer's own by default.")]
MaxLength = Annotated[int | None, typer.Option(help="Cut a text to so many tokens; a packed row holds so many.")]
Packing = Annotated[bool, typer.Option("--packing", help="Let texts share rows.")]
LookAhead = Annotated[bool, typer.Option("--look-ahead/--no-look-ahead", help="With or without look-ahead mask.")]
Row = Annotated[int | None, typer.Option(help="Which row of the batch.")]
Span = Annotated[
    tuple[int, int] | None, typer.Option(metavar="FROM TO", help="Only the tokens from the one up to the other.")
]
Special = Annotated[bool, typer.Option("--special-tokens", help="[CLS] and the like as well.")]
Scale = Annotated[str | None, typer.Option(help="What token vectors are multiplied by: a number, or sqrt_d.")]


def batch(
    texts: Texts = None,
    output: Output = None,
    tokenizer: Tokenizer = None,
    padding_side: PaddingSide = None,
    max_length: MaxLength = None,
    packing: Packing = False,
    look_ahead: LookAhead = True,
    pad_token: PadToken = None,
    d_model: Annotated[
        int | None, typer.Option("--d-model", "-d", help="Embed, in this width, by random rows.")
    ] = None,
) -> None:
    """A batch of texts: tokens, padding mask, position ids, look-ahead mask."""
    from ... import plots

    collate, used = _collator(tokenizer, padding_side, max_length, packing, look_ahead, pad_token)
    collate = collate if d_model is None else collate.replace(embedding=d_model)
    made = collate.batch(texts or _TEXTS)
    draw("batch", output, lambda: plots.batch(made, collate.tokens(made)), **used)


def masks(
    texts: Texts = None,
    output: Output = None,
    tokenizer: Tokenizer = None,
    padding_side: PaddingSide = None,
    max_length: MaxLength = None,
    packing: Packing = False,
    look_ahead: LookAhead = True,
    pad_token: PadToken = None,
    row: Row = None,
    span: Span = None,
) -> None:
    """Who may attend to whom: padding mask, look-ahead mask, both together, documents."""
    from ... import plots

    collate, used = _collator(tokenizer, padding_side, max_length, packing, look_ahead, pad_token)
    made = collate.batch(texts or _TEXTS)
    draw("masks", output, lambda: plots.masks(made, collate.tokens(made), row=row, span=span), **used)


def embeddings(
    text: Sentence = _SENTENCE,
    output: Output = None,
    tokenizer: Tokenizer = None,
    model: Model = None,
    scale: Scale = None,
    convention: ConventionName = "vaswani",
    base: Base = None,
    special_tokens: Special = False,
) -> None:
    """A sentence's token embeddings in the plane, before and after positions."""
    from ... import plots

    used = embedding_for(tokenizer, model)
    how: Any = {"convention": convention, "base": base, "scale": _factor(scale), "add_special_tokens": special_tokens}
    draw(
        "embeddings",
        output,
        lambda: plots.embeddings(used.tokenizer, used.model, text, title=used.title, **how),
        **used.about,
    )


def crowding(
    text: Sentence = _SENTENCE,
    output: Output = None,
    tokenizer: Tokenizer = None,
    model: Model = None,
    convention: ConventionName = "vaswani",
    base: Base = None,
    special_tokens: Special = False,
) -> None:
    """The share of the norm that positions take in each token's vector, with and without √d."""
    from ... import plots

    used = embedding_for(tokenizer, model)
    how: Any = {"convention": convention, "base": base, "add_special_tokens": special_tokens}
    draw(
        "crowding", output, lambda: _titled(plots.crowding(used.tokenizer, used.model, text, **how), used), **used.about
    )


def attention(
    texts: Texts = None,
    output: Output = None,
    tokenizer: Tokenizer = None,
    model: Model = None,
    layer: Annotated[str, typer.Option(help="A number, several as in 0,1, or all; the last by default.")] = "-1",
    head: Annotated[str, typer.Option(help="A number, several as in 0,1, all, or mean.")] = "mean",
    kind: Annotated[str | None, typer.Option(help="encoder, decoder or cross, of an encoder-decoder.")] = None,
    row: Row = 0,
    span: Span = None,
    target: Annotated[str | None, typer.Option(help="What an encoder-decoder's decoder reads.")] = None,
    pad_token: PadToken = None,
) -> None:
    """The weights by which the tokens of a text look at each other."""
    from ... import plots

    used = model_for(tokenizer, model)
    collate, rows = collator_for(used, texts or [_SENTENCE], target, pad_token)
    made = collate.batch(rows)
    which: Any = {
        "layer": layer if layer == "all" else several(layer, "--layer"),
        "head": head if head in ("all", "mean") else several(head, "--head"),
        "kind": kind,
        "row": row,
        "span": span,
    }
    draw("attention", output, lambda: _titled(plots.attention(used.model, made, **which), used), **used.about)


def _collator(
    tokenizer: str | None,
    padding_side: str | None,
    max_length: int | None,
    packing: bool,
    look_ahead: bool,
    pad_token: str | None,
) -> tuple[DataCollatorWithPositionalEncoding, dict[str, str]]:
    """The collator of what was asked for, and a word on its tokenizer."""
    from ...collator import DataCollatorWithPositionalEncoding

    named: Any = tokenizer
    about = str(tokenizer)
    if tokenizer is None:
        named, about = default_tokenizer(default_texts())
    settings: Any = {"padding_side": padding_side, "max_length": max_length, "pad_token": pad_token, "packing": packing}
    return DataCollatorWithPositionalEncoding(named, look_ahead=look_ahead, **settings), {"tokenizer": about}


def _factor(scale: str | None) -> Any:
    if scale is None or scale == "sqrt_d":
        return scale
    try:
        return float(scale)
    except ValueError:
        raise ValueError(explain("--scale takes a number, or sqrt_d", got=repr(scale), fix="--scale sqrt_d")) from None


def _titled(picture: Any, used: Used) -> Any:
    """Whose weights these are stands above the picture."""
    from ...plots.canvas import TITLE, figure_of

    figure_of(picture).suptitle(used.title, fontsize=TITLE)
    return picture

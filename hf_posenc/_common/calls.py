"""Calls as tutorials and other libraries write them, and the lines of this package that do the same.

docs/lessons.md has these lines beside the code of the tutorials.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Number
from string import Formatter
from typing import Any, ParamSpec, TypeVar

from .errors import shorten, type_error, unknown_keyword

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# Arguments of the lines below, which most functions of this package have too, and their names elsewhere.
_NAMES_ELSEWHERE = {
    "vocab_size": "vocab vocabulary_size num_embeddings input_dim num_tokens n_vocab src_vocab_size",
    "d_model": "d dim depth width embed_dim embedding_dim emb_dim emb_size embed_size embedding_size d_embed d_hid "
    "hid_dim hidden_dim hidden_size num_hiddens model_dim n_embd output_dim",
    "length": "max_len maxlen max_length max_seq_len max_seq_length seq_len seq_length sequence_length position "
    "size sz num_positions n_position max_positions max_position_embeddings context_length block_size",
    "base": "n theta max_wavelength",
    "dropout": "p dropout_rate dropout_prob drop_prob rate",
    "ids": "seq sequence input_ids inp tokens target",
    "pad_token_id": "pad pad_id pad_idx padding_idx pad_token",
}
_ENCODING = "{name}({d_model}{more})"
_OF_IDS = 'padding_mask_from_ids(ids, pad_token_id={pad_token_id}), where True means "may be attended to"'
# For a function or class: the arguments of a tutorial's function in order, and the line to write. In a line, `name` is
# the called function, and `more` are the arguments that the line does not contain.
_LINES = {
    "PositionalEmbedding": {
        "max_length vocab_size d_model": "{name}(nn.Embedding({vocab_size}, {d_model}), encoding='learned', "
        "max_length={max_length}{more}), without encoding= for sinusoids",
        "vocab_size d_model": "{name}(nn.Embedding({vocab_size}, {d_model}), convention={convention!r}{more}), and "
        "scale='sqrt_d' for weights as small as those of Keras",
        "d_model max_length dropout": "SinusoidalPositionalEncoding({d_model}{more})",
    },
    "PositionalEncoding": {"d_model dropout max_length": _ENCODING, "d_model max_length dropout": _ENCODING},
    "sinusoidal_encoding": {"length d_model base": "{name}(torch.arange({length}), {d_model}{more})"},
    "positional_encoding": {
        "length d_model base": "sinusoidal_encoding(torch.arange({length}), {d_model}{more}) for sine and cosine in "
        "turn, sinusoidal_encoding(torch.arange({length}), {d_model}, convention={convention!r}{more}) for all sines "
        "first"
    },
    "frequencies": {"d_model base": _ENCODING},
    "look_ahead_mask": {"length": '{name}({length}{more}), where True means "may be attended to"'},
    "padding_mask": {"ids pad_token_id": _OF_IDS},
    "padding_mask_from_ids": {"ids pad_token_id": _OF_IDS},
}
_DEFAULTS = {"convention": "marian", "pad_token_id": 0}  # of the tutorials


def answers_tutorials(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a public function or a constructor, so that a call with wrong arguments raises `wrong_call`."""

    @functools.wraps(function)
    def checked(*args: _Arguments.args, **settings: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **settings)
        except TypeError:
            if (problem := _problem(function, args, settings)) is None:
                raise
        raise wrong_call(function, args, settings, problem)

    return checked


def wrong_call(
    function: Callable[..., Any], args: tuple[Any, ...], settings: Mapping[str, Any], problem: str
) -> TypeError:
    """Return the error for a call that does not fit `function`; it has the line to write instead."""
    of_class = function.__qualname__.rpartition(".")[0]
    called, values = (type(args[0]), args[1:]) if of_class else (function, args)
    name = called.__name__
    parameters = {**inspect.signature(called).parameters, **inspect.signature(function).parameters}
    own = [key for key, each in parameters.items() if each.kind is not each.VAR_KEYWORD and key != "self"]
    unknown = [key for key in settings if key not in own]
    renamed = {_own_name(key, own): value for key, value in settings.items()}
    lines = _LINES.get(of_class or name, _LINES["PositionalEncoding"] if of_class else {})
    fix = _filled_line(lines, name, values, renamed, own)
    names_suffice = bool(unknown) and _problem(function, args, renamed) is None
    if names_suffice and (fix is None or _ENCODING in lines.values()):
        fix = ", ".join(f"{key}={_short(value)}" for key, value in renamed.items() if key not in settings)
    elif fix is None and unknown:
        fix = unknown_keyword(unknown[0], own, {key: f"{key}={_short(settings[unknown[0]])}" for key in own}).fix
    elif fix is None:
        fix = f"arguments by name: {', '.join(own)}"
    rule = "there is " + " and ".join(f"no argument '{key}'" for key in unknown) if unknown else f"{name}: {problem}"
    arguments = [*map(_short, values), *(f"{key}={_short(value)}" for key, value in settings.items())]
    return type_error(rule, got=f"{name}({', '.join(arguments)})", fix=fix)


def _filled_line(
    lines: Mapping[str, str], name: str, values: tuple[Any, ...], settings: dict[str, Any], own: list[str]
) -> str | None:
    """Return the first of `lines` that the arguments of a call fit, with these arguments; `None` if they fit none."""
    for line_arguments, line in lines.items():
        order = line_arguments.split()
        by_place = dict(zip(order, values, strict=False))
        given = by_place | settings
        fields = {field for _, field, _, _ in Formatter().parse(line) if field} - {"name", "more"}
        numbers = [given.get(field) for field in fields - _DEFAULTS.keys()]
        numbers += [] if order[0] == "ids" else values
        if (
            len(values) <= len(order)
            and given.keys() <= {*order, *own}
            and all(isinstance(number, Number) for number in numbers)
            and by_place.get("dropout", 0) <= 1  # a larger number is a length
        ):
            more = "".join(f", {key}={_short(given[key])}" for key in given if key not in {"ids", *fields})
            return line.format_map(_DEFAULTS | given | {"name": name, "more": more})
    return None


def _problem(function: Callable[..., Any], args: tuple[Any, ...], settings: Mapping[str, Any]) -> str | None:
    """Return the reason why these are no arguments of `function`; `None` if they are."""
    try:
        inspect.signature(function).bind(*args, **settings)
    except TypeError as error:
        return str(error)
    return None


def _own_name(key: str, own: list[str]) -> str:
    """Return the name in this package of an argument of a function with the arguments `own`."""
    if key in own:
        return key
    name = next((name for name, elsewhere in _NAMES_ELSEWHERE.items() if key in elsewhere.split()), key)
    return "max_length" if name == "length" and name not in own and "max_length" in own else name


_short = functools.partial(shorten, limit=30)

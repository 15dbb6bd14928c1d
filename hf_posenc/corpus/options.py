"""Options of a job, in one dataclass for `encode`, the command line and the workers; progress callbacks of `encode`.

To add an option, add a field with its help here, and the code that uses it: `encode`, the command line and the manifest
take their lists of options from the fields. A job records the options that differ from their default, so the default of
a new option must do what was done without it. To change a default later, pass the old one as `implied`.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from .._common.errors import explain, one_of, type_error, unknown_keyword, value_error
from .._common.integers import as_integer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def _option(
    default: Any,
    help: str,
    *,
    recorded: bool = True,
    implied: Any = MISSING,
    flag: str | None = None,
    example: int | None = None,
    minimum: int = 1,
) -> Any:
    """Return the dataclass field for one option; `implied` is its value in a job that does not record it."""
    implied = default if implied is MISSING else implied
    metadata = {"help": help, "recorded": recorded, "implied": implied, "flag": flag, "example": example}
    return field(default=default, metadata={**metadata, "minimum": minimum})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `encode`, checked on creation; the `help` in the metadata of each field describes the option."""

    text_column: str = _option("text", "Column of the text in tables.")
    text_pair_column: str | None = _option(None, "Column of the second text of a pair in tables.")
    columns: Sequence[str] | None = _option(
        None,
        "A further column to carry, with or without a type (label:int64); repeatable. By default none is carried.",
        recorded=False,  # the manifest records the schema of the shards instead
        flag="--column",
    )
    source_columns: bool = _option(
        False,
        "Add the columns source and row: the file or data set of each document, and the byte (from 0) at which it "
        "begins there, or its row. Packed rows hold lists of them.",
        recorded=False,  # the manifest records the schema of the shards
    )
    document: Literal["line", "paragraph", "file"] = _option(
        "line",
        "Document of a text file: each line, each paragraph (blank lines separate them), or the whole file.",
    )
    format: Literal["text", "json", "csv", "parquet", "arrow"] | None = _option(
        None, "Format of the files; by default given by their extensions.", recorded=False
    )
    dataset_config: str | None = _option(None, "Configuration of a data set with several.", recorded=False)
    split: str | None = _option(None, "Split of a data set with several; also train+test, or all.", recorded=False)
    on_bad_row: Literal["error", "skip", "keep-empty"] = _option(
        "error",
        "A document that cannot be read, or has no tokens: stop, leave it out, or keep an empty text. The last two "
        "list it in rejected/.",
    )
    max_length: int | None = _option(
        None,
        "Maximum tokens of a row, including special tokens; by default, and at most, the limit of the tokenizer.",
        example=512,
    )
    too_long: Literal["truncate", "split", "error"] = _option(
        "truncate",
        "A text with more tokens: truncate and count it, continue it in further rows, or treat it as a bad row.",
    )
    stride: int = _option(0, "Tokens that neighboring rows of a split text share.", example=64, minimum=0)
    add_special_tokens: bool = _option(True, "Add the special tokens of the tokenizer.")
    pack: int | None = _option(
        None,
        "Put several documents into rows of at most this many tokens; position_ids restart in each document.",
        example=2048,
    )
    labels: Literal["causal_lm"] | None = _option(None, "Store labels as well.")
    shard_bytes: int | None = _option(
        None,
        "Bytes of input for each shard; by default a 64th of the input, at least 4 MiB and at most 64 MiB.",
        example=64 << 20,
    )
    backend: Literal["auto", "fast", "tokenizers"] = _option(
        "auto",
        "Tokenization library; all give the same token ids. By default the fast one for this tokenizer, if the extra "
        "`fast` is installed.",
        recorded=False,
    )
    workers: int | None = _option(
        None,
        "Number of processes; by default one for each core. 0 starts none and works in the calling process.",
        recorded=False,
        example=2,
        minimum=0,
    )
    engine: Literal["local", "ray"] = _option("local", "Processes of this machine, or Ray.", recorded=False)
    address: str | None = _option(
        None,
        "Address of a Ray cluster, whose machines can all open the inputs and the output; by default Ray is started on "
        "this machine.",
        recorded=False,
    )
    part: str | None = _option(
        None,
        "Encode only the k-th of n shares of the job, such as 3/8, for n machines that share the output.",
        recorded=False,
    )

    def __post_init__(self) -> None:
        hints = get_type_hints(Options)
        if self.labels == "masked_lm":  # type: ignore[comparison-overlap]
            raise ValueError(_masked_labels())
        for option in fields(Options):
            name, value, choices = option.name, getattr(self, option.name), choices_of(hints[option.name])
            if choices and value is not None and value not in choices:
                raise ValueError(one_of(name, value, choices))
            if hints[name] is bool and not isinstance(value, bool):
                raise type_error(f"{name} must be True or False", got=repr(value), fix=f"{name}=True")
            if option.metadata["example"] is not None and value is not None:
                number = as_integer(value, name, minimum=option.metadata["minimum"], example=option.metadata["example"])
                object.__setattr__(self, name, number)  # a NumPy integer becomes an int
        if isinstance(self.columns, str):
            fix = f"columns=[{self.columns!r}]"
            raise type_error("columns must be a list of names", got=repr(self.columns), fix=fix)
        if self.part is not None and not (
            (match := re.fullmatch(r"(\d+)/(\d+)", str(self.part))) and 1 <= int(match[1]) <= int(match[2])
        ):
            raise value_error("part must be k/n, with k from 1 to n", got=repr(self.part), fix='part="3/8"')
        self._check_together()

    def _check_together(self) -> None:
        """Raise `ValueError` for options that contradict each other, such as `engine="ray"` with `workers=0`."""
        for is_wrong, rule, got, fix in (
            (
                self.text_pair_column == self.text_column,
                "the two texts of a pair must be in two columns",
                f"text_column={self.text_column!r}, text_pair_column={self.text_pair_column!r}",
                "leave text_pair_column out",
            ),
            (
                self.engine == "ray" and self.workers == 0,
                "Ray performs tasks in processes of its own",
                'engine="ray", workers=0',
                'workers=None, or engine="local"',
            ),
            (
                self.stride and self.too_long != "split",
                "stride is the number of tokens that the rows of a split text share",
                f"stride={self.stride}, too_long={self.too_long!r}",
                'too_long="split", or stride=0',
            ),
            (
                self.pack is not None and self.on_bad_row == "keep-empty",
                "packed rows hold no empty documents",
                f'pack={self.pack}, on_bad_row="keep-empty"',
                'on_bad_row="skip", which lists them in rejected/',
            ),
            (
                self.pack is not None and self.columns,
                "packed rows hold several documents, so they carry no columns",
                f"columns={self.columns!r}, pack={self.pack}",
                "leave columns= out, or pack=None",
            ),
        ):
            if is_wrong:
                raise value_error(rule, got=got, fix=fix)

    @property
    def share(self) -> tuple[int, int]:
        """Pair of `k` and `n` from the option `part`, such as `(3, 8)`; `(1, 1)` without it."""
        k, n = (self.part or "1/1").split("/")
        return int(k), int(n)

    @property
    def texts(self) -> tuple[str, ...]:
        """Name of the text column, or names of the two columns of text pairs."""
        return (self.text_column,) if self.text_pair_column is None else (self.text_column, self.text_pair_column)

    def recorded(self) -> dict[str, Any]:
        """Return the options that affect the shards and differ from `implied_options`, by name, for the manifest."""
        return {name: now for name, value in implied_options().items() if (now := getattr(self, name)) != value}


def implied_options() -> dict[str, Any]:
    """Return the value of each option that affects the shards, by name, in a job that does not record it."""
    return {
        option.name: option.metadata.get("implied", option.default)
        for option in fields(Options)
        if option.metadata["recorded"]
    }


def with_options(
    function: Callable[..., Any], annotate: Callable[[Field[Any], Any], Any] = lambda option, hint: hint
) -> inspect.Signature:
    r"""Return the signature of a function, with its `**options` replaced by a keyword for each field of `Options`."""
    signature, hints = inspect.signature(function, eval_str=True), get_type_hints(Options)
    keywords = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=annotate(option, hints[option.name]),
        )
        for option in fields(Options)
    ]
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
    return signature.replace(parameters=[*parameters, *keywords])


def choices_of(hint: Any) -> tuple[str, ...]:
    r"""Return the choices of an option with a `Literal` type, and an empty tuple for other types.

    Example:
        >>> choices_of(Literal["a", "b"] | None), choices_of(int | None)
        (('a', 'b'), ())
    """
    literals = [hint, *get_args(hint)]
    return next((get_args(literal) for literal in literals if get_origin(literal) is Literal), ())


def resolve(given: Mapping[str, Any], tokenizer: Any) -> tuple[Options, PreTrainedTokenizerBase, int, list[str]]:
    r"""Check the options of a job, and complete them from its tokenizer or collator."""
    from ..documents import Limits
    from ..tokenization.loading import private_copy, stated_limit

    names = [option.name for option in fields(Options)]
    for name in given:
        if name not in names:
            raise TypeError(unknown_keyword(name, names, {"dataset_split": "split=..."}))
    given = {name: value for name, value in given.items() if value is not None}
    collate = tokenizer if _is_collator(tokenizer) else None
    settings, first_position = ({}, 0) if collate is None else (_settings_of(collate), collate.first_position)
    options = Options(**{**settings, **given})
    own_tokenizer = private_copy(tokenizer if collate is None else collate.tokenizer)
    for candidate in (tokenizer, own_tokenizer):  # the copy of a Unigram does not draw, and a path has no model
        _refuse_chance(candidate, then="" if collate is None else ", and a new collator of it")
    limits = {
        "the tokenizer": stated_limit(own_tokenizer),
        "the collator": None if collate is None else collate.max_length,
        "a packed row": options.pack,
    }
    requested = given.get("max_length")
    notes = [
        f"max_length is {limit}, the limit of {owner}, and not {requested}"
        for owner, limit in limits.items()
        if limit is not None and requested is not None and limit < requested
    ]
    limit = min((number for number in (requested, *limits.values()) if number is not None), default=None)
    options = replace(options, max_length=limit)
    special = own_tokenizer.num_special_tokens_to_add(pair=len(options.texts) > 1) if options.add_special_tokens else 0
    Limits(limit, overflow=options.too_long == "split", stride=options.stride).check_special_tokens(int(special))
    return options, own_tokenizer, first_position, notes


def _refuse_chance(tokenizer: Any, then: str) -> None:
    """Raise `ValueError` for a tokenizer that draws its tokens at random: a shard could not be made again."""
    where = "tokenizer.backend_tokenizer" if hasattr(tokenizer, "backend_tokenizer") else "tokenizer"
    model = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "model", None)
    sampling = getattr(tokenizer, "sp_model_kwargs", None) or {}
    if dropout := getattr(model, "dropout", None):
        got, code, text = f"dropout={dropout}", f"{where}.model.dropout = None", '"dropout": null in its tokenizer.json'
    elif (alpha := getattr(model, "alpha", None)) and getattr(model, "nbest_size", None) != 1:
        got, code, text = f"alpha={alpha}", f"{where}.model.alpha = None", ""
    elif sampling.get("enable_sampling"):
        got, text = f"sp_model_kwargs={sampling}", '"sp_model_kwargs": {} in its tokenizer_config.json'
        code = (
            f"tokenizer = type(tokenizer).from_pretrained({tokenizer.name_or_path or 'folder'!r}, sp_model_kwargs={{}})"
        )
    else:
        return
    raise value_error(
        "each run of a job makes the same shards, and this tokenizer draws the tokens of a text at random",
        got=got,
        fix=f"{code}, for the job{then}" + f"; or {text}" * bool(text),
    )


def _is_collator(tokenizer: Any) -> bool:
    """Return True for a `DataCollatorWithPositionalEncoding`; its module, which imports torch, is not imported here."""
    module = sys.modules.get("hf_posenc.collator.collator")
    return module is not None and isinstance(tokenizer, module.DataCollatorWithPositionalEncoding)


def _settings_of(collate: Any) -> dict[str, Any]:
    """Return the settings of a collator as options by name; raise `ValueError` if shards do not support one of them."""
    for name, fix in (
        ("text_target_column", "dataset.map(collate, batched=True) stores targets"),
        ("is_split_into_words", "join the words, or dataset.map(collate, batched=True)"),
        (
            "store_embeddings",
            "collate.replace(store_embeddings=False): embeddings are made from ids faster than a disk reads them; "
            "or dataset.map(collate, batched=True, batch_size=64)",
        ),
    ):
        if getattr(collate, name):
            raise value_error(f"shards cannot be made with {name}=", got=f"{name}={getattr(collate, name)!r}", fix=fix)
    if collate.label_name == "masked_lm":
        raise ValueError(_masked_labels())
    truncates = collate.truncation not in (False, "do_not_truncate")
    splits = truncates and collate.return_overflowing_tokens
    return {
        "text_column": collate.text_column,
        "text_pair_column": collate.text_pair_column,
        "too_long": "split" if splits else "truncate" if truncates else "error",
        "stride": collate.stride if splits else 0,
        "add_special_tokens": collate.add_special_tokens,
        "backend": collate.backend,
        "pack": collate.max_length if collate.packing else None,
    }


def _masked_labels() -> str:
    return explain(
        "masked labels are drawn when a batch is made, different ones in every epoch; stored ones would never change",
        got='labels="masked_lm"',
        fix='labels=None here, and DataCollatorWithPositionalEncoding(tokenizer, labels="masked_lm") for the batches',
    )


class Progress:
    r"""Callbacks that `encode` calls to report its progress; override them in a subclass.

    By default messages become warnings, and the other callbacks do nothing. All are called in the thread of `encode`.

    Example:
        >>> class Loud(Progress):
        ...     def shard(self, record):
        ...         print(record["file"], record["tokens"])
        >>> Loud().shard({"file": "data/shard-000000-000.parquet", "tokens": 812})
        data/shard-000000-000.parquet 812
    """

    def message(self, text: str) -> None:
        """Show a message, such as a reduced `max_length` or the number of truncated documents."""
        warnings.warn(text, stacklevel=2)

    def backend(self, name: str) -> None:
        """Report the library that computes the token ids, such as `"nanotoken 0.1.0"` or `"transformers"`."""

    def checked(self, size: int) -> None:
        """Report that one more finished shard, of `size` bytes, was read and compared with its checksum."""

    def start(self, *, bytes_total: int | None, bytes_done: int, shards_done: int) -> None:
        """Report that the writing of shards starts.

        `bytes_total` is the size of the input, or `None` if unknown. Earlier runs finished `shards_done` shards, from
        `bytes_done` bytes of the input.
        """

    def shard(self, record: dict[str, Any]) -> None:
        """Report that a shard is finished; `record` is its record in the manifest: name, counts and checksums."""

    def stop(self) -> None:
        """Report that the writing of shards ended, with or without an error."""

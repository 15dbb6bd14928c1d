"""The settings of a collator: their names, allowed values, and combinations that raise an error.

They are checked once, at construction. `Config` checks them against the tokenizer, the model and the embedding.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import numpy as np

from .._common.constants import PaddingSide
from .._common.errors import explain, one_of, shorten, type_error, unknown_keyword, value_error
from .._common.integers import as_integer
from ..documents import BOUNDARIES, LABEL_COLUMNS, PER_TOKEN, TOKEN_INDICES, Truncation
from ..tokenization import BackendName

if TYPE_CHECKING:
    from torch import nn

    from ..positions import PositionalEmbedding

Class = TypeVar("Class", bound=type)
Padding = Literal["longest", "max_length", "do_not_pad"]
LabelName = Literal["causal_lm", "masked_lm"]

_INTEGERS = {  # smallest value, and an example for the error message
    "max_length": (1, 512),
    "max_target_length": (1, 128),
    "pad_to_multiple_of": (1, 8),
    "stride": (0, 16),
    "seed": (0, 0),
}


@dataclass(frozen=True)
class MissingTable:
    """Placeholder for an embedding table whose weights were not pickled or saved with its collator.

    A loaded or unpickled collator with this embedding cannot embed. `num_embeddings` and `d_model` are the shape of the
    table, and `digest` is a hash of its weights and of the settings of its `PositionalEmbedding`. `settings` are those
    settings as source code, without defaults. `max_length` is the number of positions; `None` if unlimited.
    """

    num_embeddings: int
    d_model: int
    digest: str
    settings: str = ""
    max_length: int | None = None
    first_position: int = 0
    padding_position: int | None = None

    def message(self) -> str:
        """Return the message that the collator cannot embed, with the code that gives it a table again."""
        again = f"PositionalEmbedding(table, {self.settings})" if self.settings else "table"
        return explain(
            "the embedding table is not pickled or saved with a collator, so this copy cannot embed",
            got=f"a copy from a pickle or a folder; the table had {self.num_embeddings} rows of width {self.d_model}",
            fix=f"collate.replace(embedding={again}), or store_embeddings=True to pickle the table",
        )


@dataclass(frozen=True)
class MaskedLM:
    r"""Labels for masked language modeling: `labels=MaskedLM(...)`, or `labels="masked_lm"` for the defaults.

    Args:
        mlm_probability (`float`, *optional*, defaults to 0.15): share of the tokens to predict.
        mask_replace_prob (`float`, *optional*, defaults to 0.8): share of these that are replaced by the mask token.
        random_replace_prob (`float`, *optional*, defaults to 0.1): share of these that are replaced by random tokens;
            the rest stays unchanged.
        whole_word_mask (`bool`, *optional*, defaults to `False`): predict all tokens of a word or none. As in
            transformers, they are then always replaced by the mask token. If the tokenizer makes one word of a text, as
            Llama 2's does, words begin at tokens that begin with a space; the collator raises if there are none.

    Raises:
        ValueError: for a share outside 0 to 1, for shares of replacements that add up to more than 1, and for such
            shares together with `whole_word_mask`.
        TypeError: for a value of another type.

    Source:
        Devlin et al. 2018, "BERT", section 3.1. arXiv:1810.04805. Whole words: github.com/google-research/bert.

    Example:
        >>> MaskedLM(mlm_probability=0.3).mask_replace_prob
        0.8
    """

    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    whole_word_mask: bool = False

    def __post_init__(self) -> None:
        for name in ("mlm_probability", "mask_replace_prob", "random_replace_prob"):
            object.__setattr__(self, name, _share(name, getattr(self, name)))
        if not isinstance(self.whole_word_mask, bool):
            raise type_error("whole_word_mask must be True or False", got=repr(self.whole_word_mask))
        replaced = self.mask_replace_prob, self.random_replace_prob
        if sum(replaced) > 1:
            raise value_error(
                "mask_replace_prob and random_replace_prob must not add up to more than 1",
                got=f"{replaced[0]} + {replaced[1]}",
                fix="mask_replace_prob=0.8, random_replace_prob=0.1",
            )
        if self.whole_word_mask and replaced not in ((0.8, 0.1), (1.0, 0.0)):
            raise value_error(
                "whole_word_mask replaces all tokens to predict by the mask token",
                got=f"mask_replace_prob={replaced[0]}, random_replace_prob={replaced[1]}",
                fix="leave mask_replace_prob= and random_replace_prob= out",
            )


def _share(name: str, value: Any) -> float:
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise type_error(f"{name} must be a number", got=shorten(value), fix=f"{name}=0.15")
    if not 0 <= value <= 1:
        raise value_error(f"{name} must be between 0 and 1", got=value, fix=f"{name}=0.15")
    return value


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """Arguments of `DataCollatorWithPositionalEncoding`; its docstring explains them."""

    tokenizer: Any
    _: KW_ONLY
    embedding: "int | nn.Embedding | PositionalEmbedding | MissingTable | None" = None
    model: Any = None
    text_column: str = "text"
    text_pair_column: str | None = None
    text_target_column: str | None = None
    is_split_into_words: bool = False
    padding: bool | str = True
    padding_side: PaddingSide | None = None
    pad_token: str | None = None
    pad_to_multiple_of: int | None = None
    truncation: bool | str = True
    max_length: int | None = None
    max_target_length: int | None = None
    return_overflowing_tokens: bool = False
    stride: int = 0
    token_columns: tuple[str, ...] = ()
    add_special_tokens: bool = True
    on_empty: Literal["error", "keep"] = "error"
    look_ahead: bool | None = None
    packing: bool | Literal["flat"] = False
    labels: LabelName | MaskedLM | None = None
    on_no_labels: Literal["error", "skip", "keep"] | None = None
    mlm_probability: float | None = None
    seed: int | None = None
    store_embeddings: bool = False
    backend: BackendName = "auto"
    return_tensors: Literal["pt", "np"] = "pt"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.generic):  # such as lengths.max()
                object.__setattr__(self, field.name, value.item())
        self._check_values()
        self._check_combinations()

    @property
    def label_name(self) -> LabelName | None:
        """`labels` by name: `"masked_lm"` for a `MaskedLM`."""
        return "masked_lm" if isinstance(self.labels, MaskedLM) else self.labels

    @property
    def _text_columns(self) -> tuple[str, ...]:
        """Names of the columns with texts, second texts and targets, as far as they are set."""
        names = (self.text_column, self.text_pair_column, self.text_target_column)
        return tuple(name for name in names if name is not None)

    @property
    def _reads_formats(self) -> bool:
        """True if the names of columns decide which of them have the texts, and not the settings."""
        return self.text_column == "text" and self.text_pair_column is None and not self.is_split_into_words

    def settings(self) -> dict[str, Any]:
        """Return the values of all arguments by name, except the tokenizer and the embedding."""
        names = [field.name for field in dataclasses.fields(Settings) if field.name not in ("tokenizer", "embedding")]
        return {name: getattr(self, name) for name in names}

    def _check_values(self) -> None:
        """Raise for the first setting with a value that is not allowed."""
        if isinstance(self.packing, str) and self.packing == "padding_free":  # type: ignore[comparison-overlap]  # TRL
            raise value_error("packing must be one of True, False, 'flat'", got="'padding_free'", fix='packing="flat"')
        if self.labels is MaskedLM:  # type: ignore[comparison-overlap]
            raise type_error("labels must be an instance of MaskedLM", got="the class", fix="labels=MaskedLM()")
        for name, options in _CHOICES.items():
            value = self.label_name if name == "labels" else getattr(self, name)
            if not isinstance(value, str | bool | None) or value not in options:
                raise ValueError(one_of(name, value, options))
        for name in ("text_column", "text_pair_column", "text_target_column"):
            column = getattr(self, name)
            if not isinstance(column, str) and not (column is None and name != "text_column"):
                raise type_error(f"{name} must be the name of a column", got=repr(column), fix=f'{name}="text"')
        given: Any = self.token_columns
        names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else (None,)
        if not all(isinstance(name, str) for name in names):
            raise type_error("token_columns are names of columns", got=repr(given), fix='token_columns=("weight",)')
        object.__setattr__(self, "token_columns", names)  # a list: of a saved collator
        if known := {"input_ids", *BOUNDARIES, *PER_TOKEN, *LABEL_COLUMNS, *TOKEN_INDICES} & {*names}:
            raise value_error(
                "token_columns are columns with one value per token that have no meaning for this package",
                got=f"{sorted(known)}, which are read by their names",
                fix=f"token_columns={tuple(name for name in names if name not in known)}",
            )
        for name, (minimum, example) in _INTEGERS.items():
            if getattr(self, name) is not None or name == "stride":
                number = as_integer(getattr(self, name), name, minimum=minimum, example=example)
                object.__setattr__(self, name, number)  # a tensor or array of one integer becomes an int
        if self.mlm_probability is not None:
            object.__setattr__(self, "mlm_probability", _share("mlm_probability", self.mlm_probability))

    def _check_combinations(self) -> None:
        """Raise for the first pair of settings that cannot be used together."""
        padding, truncation = padding_of(self.padding), truncation_of(self.truncation)
        if self.return_overflowing_tokens and truncation == "do_not_truncate":
            raise value_error(
                "return_overflowing_tokens returns the tokens that truncation removes, and truncation is off",
                got=f"truncation={self.truncation!r}",
                fix="truncation=True",
            )
        if self.stride and not self.return_overflowing_tokens:
            raise value_error(
                "stride is the overlap of the pieces of a long row, and long rows are truncated",
                got=f"stride={self.stride}",
                fix="return_overflowing_tokens=True",
            )
        if self.mlm_probability is not None and self.labels != "masked_lm":
            share = f"mlm_probability={self.mlm_probability}"
            raise value_error(
                'mlm_probability is the share of tokens that labels="masked_lm" predicts',
                got=f"labels={self.labels!r}, {share}",
                fix=f'leave it out; or labels="masked_lm", {share}; or labels=MaskedLM({share}, ...)',
            )
        if self.return_tensors == "np" and self.embedding is not None:
            raise value_error(
                "embeddings are tensors", got='return_tensors="np" with an embedding', fix='return_tensors="pt"'
            )
        if self.packing == "flat":
            if self.padding_side is not None or padding == "max_length":
                raise value_error(
                    'packing="flat" puts all documents in one row of no fixed length, with padding only at its end',
                    got=f"padding_side={self.padding_side!r}, padding={self.padding!r}",
                    fix="packing=False for padded rows, such as prompts of generate; or padding_side=None, "
                    "padding=True for a flat row",
                )
        elif self.packing and padding == "do_not_pad":
            raise value_error("packed rows are padded to one length", got="padding=False", fix="padding=True")
        if self.text_target_column is not None and self.labels is not None:
            raise value_error(
                "labels come either from text_target_column or from the ids themselves",
                got=f"text_target_column={self.text_target_column!r}, labels={self.labels!r}",
                fix="labels=None",
            )
        if self.embedding is None and self.store_embeddings:
            raise value_error(
                "store_embeddings needs an embedding to store",
                got="embedding=None",
                fix="embedding=model.get_input_embeddings()",
            )


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the values that a type of `Literal`, `bool` and `None` allows; nothing for types such as `int`."""
    values: list[Any] = []
    for part in (kind,) if get_origin(kind) is Literal else get_args(kind) or (kind,):
        if part not in (MaskedLM, bool, NoneType) and get_origin(part) is not Literal:
            return ()
        values += {bool: (True, False), NoneType: (None,)}.get(part, get_args(part))
    return tuple(values)


# Allowed values of each setting that has a few.
_CHOICES = {field.name: options for field in dataclasses.fields(Settings) if (options := _choices(field.type))}


def padding_of(padding: object) -> Padding:
    r"""Convert the argument `padding`, a bool or a name, to the name of a padding strategy of transformers.

    Example:
        >>> padding_of(True), padding_of("max_length"), padding_of(False)
        ('longest', 'max_length', 'do_not_pad')
    """
    name: Padding = _name_of("padding", padding, {True: "longest", False: "do_not_pad"}, get_args(Padding))
    return name


def truncation_of(truncation: object) -> Truncation:
    r"""Convert the argument `truncation`, a bool, `None` or a name, to a truncation strategy of transformers.

    Example:
        >>> truncation_of(True), truncation_of(None), truncation_of("only_first")
        ('longest_first', 'do_not_truncate', 'only_first')
    """
    short = {True: "longest_first", False: "do_not_truncate", None: "do_not_truncate"}
    name: Truncation = _name_of("truncation", truncation, short, get_args(Truncation))
    return name


def _name_of(setting: str, value: object, short: Mapping[Any, str], names: tuple[str, ...]) -> Any:
    value = getattr(value, "value", value)  # transformers' enumerations
    if isinstance(value, (bool, type(None))) and value in short:
        return short[value]
    if not isinstance(value, str) or value not in names:
        raise ValueError(one_of(setting, value, [True, False, *names]))
    return value


# Keywords of other libraries (transformers' collators, TRL's SFTConfig, axolotl), and the equivalents of this package.
_BUDGET = "a Trainer with TokenBudgetMixin, whose batches have a limit of tokens"
_BY_MASK = "a column completion_mask or assistant_masks in the rows: only tokens with 1 are trained on"
# Other names of a setting, with the same values: the setting, and a value in place of one of another type.
_RENAMED: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(("d_model", "embedding_dim", "hidden_size"), ("embedding", 512)),
    **dict.fromkeys(("max_len", "model_max_length", "max_source_length", "max_seq_length"), ("max_length", 512)),
    "sequence_len": ("max_length", 512),
    **dict.fromkeys(("text", "dataset_text_field"), ("text_column", "text")),
    "text_pair": ("text_pair_column", "text_pair"),
    "text_target": ("text_target_column", "target"),
    "causal": ("look_ahead", True),
    "split_into_words": ("is_split_into_words", True),
}
_EQUIVALENTS = {
    "padding_free": 'packing="flat"',
    "return_flash_attn_kwargs": 'packing="flat", whose batches have them',
    "return_seq_idx": 'packing="flat", whose batches have seq_idx',
    "return_position_ids": "leave it out: position_ids are in every batch, unless the model takes none",
    "position_ids_start": "model=..., whose numbering the position_ids have",
    "separator_id": "leave it out: labels are -100 at the first token of each document",
    "packing_strategy": "packing=True, which fills rows best-fit",
    "sample_packing": "packing=True, max_length=2048",
    "eval_packing": "a second collator for the evaluation: collate.replace(packing=False)",
    "max_tokens": _BUDGET,
    "token_budget": _BUDGET,
    "assistant_only_loss": _BY_MASK,
    "completion_only_loss": _BY_MASK,
    "train_on_inputs": _BY_MASK,
    "chat_template": "tokenizer.chat_template = ... before",
    "chat_template_path": "tokenizer.chat_template = ... before",
    "eos_token": "tokenizer.eos_token = ... before; a post-processor of the tokenizer appends it to each text",
    "dataset_num_proc": "dataset.map(collate, batched=True, num_proc=...)",
    "shuffle_dataset": "dataset.shuffle(seed=0), or the seed of TrainingArguments",
    "tf_experimental_compile": "leave it out: batches are tensors of torch",
    "mlm": 'labels="masked_lm", or labels="causal_lm" for mlm=False',
    **dict.fromkeys(("pad_token_id", "padding_idx"), 'pad_token="[PAD]", the token itself'),
    **{
        name: f"embedding=PositionalEmbedding(table, {name}=...)"
        for name in ("convention", "base", "scale", "dropout", "zero_padding")
    },
    "mask_replace_prob": "labels=MaskedLM(mask_replace_prob=...)",
    "random_replace_prob": "labels=MaskedLM(random_replace_prob=...)",
    "whole_word_mask": "labels=MaskedLM(whole_word_mask=True)",
    "return_offsets_mapping": "labels=MaskedLM(whole_word_mask=True) returns the words of tokens",
    **dict.fromkeys(
        ("label_pad_token_id", "ignore_index"), "leave it out: labels are padded with -100, which losses ignore"
    ),
    "return_attention_mask": "leave it out: attention_mask is in every padded batch that needs one",
    "return_token_type_ids": "leave it out: token_type_ids are there where tokenizer.model_input_names lists them",
    "decoder_start_token_id": "model=..., which has one; without a model it is the tokenizer's bos",
    "device": 'with torch.device("cuda"): around it, for the table of a width; any other table keeps its device',
}


def refuse_unknown(settings: Mapping[str, Any], names: Sequence[str], called_here: Mapping[str, str] = {}) -> None:
    """Raise `TypeError` if a keyword of `settings` is not in `names`; the message suggests the right one."""
    for name, value in settings.items():
        if name not in names:
            renamed = {
                other: f"{setting}={(value if type(value) is type(usual) else usual)!r}"
                for other, (setting, usual) in _RENAMED.items()
            }
            raise TypeError(unknown_keyword(name, names, {**_EQUIVALENTS, **renamed, **called_here}))


def refuses_unknown_keywords(cls: Class) -> Class:
    """Make the constructor of a class raise `TypeError` for an unknown keyword or a second argument without a name.

    This is a class decorator. The message suggests the right keyword. The signature of the constructor is unchanged.
    """
    init: Callable[..., None] = cls.__init__  # type: ignore[misc]  # of this class, not of a subclass
    names = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **settings: Any) -> None:
        if len(args) > 1 or not (args or "tokenizer" in settings):
            raise type_error(
                "the tokenizer is the only argument without a name",
                got=", ".join(type(argument).__name__ for argument in args) or "no tokenizer",
                fix=f"{type(self).__name__}(tokenizer, model=model), embedding=, or another name",
            )
        refuse_unknown(settings, names)
        init(self, *args, **settings)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls

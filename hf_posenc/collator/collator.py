"""The collator: text in, position-aware model inputs out, through whichever socket it is plugged into.

Holds the settings and two halves: `Stage` makes arrays on the CPU, `Table` makes embeddings on a device.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._explain import explain, shorten
from ..batch import Batch
from ..embedding import PositionalEmbedding
from ..model_spec import ModelSpec
from ..tokenization.loading import number_of_ids, private_copy, to_files
from . import mapping, saving
from .arrange import Pieces
from .fitting import below_model, fitted, limits_of
from .inputs import empty_batch, is_columns, is_table
from .keywords import refuses_unknown_keywords
from .outputs import features_of, to_columns, to_mapping, to_table
from .reading import ids_of, texts_of, tokens_of
from .refusals import check_fit
from .settings import Settings
from .stage import Stage
from .table import BROUGHT, Table, check_exchange
from .warned import label_missing, left_out, padding_shifts, snapshot, target_missing, were_cut

if TYPE_CHECKING:
    from datasets import Features


@refuses_unknown_keywords
class DataCollatorWithPositionalEncoding(Settings):
    r"""Wraps a tokenizer: text, rows or columns in; padded ids, masks, position ids and embeddings out.

    A sequence (texts, pairs as tuples, row dicts, token ids) gives a padded `Batch`: for `Trainer`, a `DataLoader`, a
    notebook. A mapping of columns gives a mapping of columns, and a `pyarrow.Table` a table: for
    `dataset.map(collate, batched=True)`, `with_transform` and Ray's `map_batches`. `batch(x)` and `columns(x)` say
    which outright. It is a value: frozen, picklable, equal to its copies, never changed by use, and it changes nothing
    that it is given. Without `embedding` it makes CPU tensors only and may run in any worker.

    Shapes: B rows, T tokens a row after padding, D the width of the embeddings. True means "may be attended to".

    Args:
        tokenizer (`str`, `Path`, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): a name, a folder, or an object,
            fast or slow. A private copy is kept.
        embedding (`int`, `nn.Embedding` or `PositionalEmbedding`, *optional*): adds `inputs_embeds`. A width makes a
            frozen table of random numbers (from `seed`); a table of yours is used as it is at that moment. For other
            positions than sinusoids: `PositionalEmbedding(table, encoding="learned")`. The vectors hold positions: feed
            them to a module that adds none. Into a model that adds its own, as nearly all of Hugging Face, they would
            bring them twice, also when they come from `model.get_input_embeddings()`; with `model=` that raises.
        model (`nn.Module` or `ModelSpec`, *optional*): the model to fit. A batch then holds only keys that its forward
            names, never both ids and embeddings; position ids are counted as it counts them; rows are held to what it
            takes; and what it would pass over in silence (a mask, labels, packing) raises here. Wrappers are opened.
            Afterwards the attribute holds a `ModelSpec`, and nothing of the model's numbers is kept.
        text_column, text_pair_column, text_target_column (`str`, *optional*): where texts stand in rows and columns. A
            target becomes `labels`, and `decoder_input_ids`, the labels one to the right: those that `model` makes of
            them, else with `decoder_attention_mask`. The labels of tokenised rows are targets too, if `model` is an
            encoder-decoder that predicts tokens.
        is_split_into_words (`bool`, *optional*): texts come as lists of words.
        padding (*optional*, defaults to `True`): as transformers spells it; `True` is `"longest"`. `"max_length"` pads
            columns too.
        padding_side (`"left"` or `"right"`, *optional*): the tokenizer's own by default.
        pad_token (`str`, *optional*): a token of the vocabulary to pad with, for tokenizers without one; `"eos"` means
            the end-of-sequence token.
        pad_to_multiple_of (`int`, *optional*): rounds T up.
        truncation (*optional*, defaults to `True`): as transformers spells it. `False` raises on a row that is too
            long.
        max_length (`int`, *optional*): limit on a row's tokens. Afterwards the attribute holds the limit in force, the
            smallest of this one, the tokenizer's and the model's.
        max_target_length (`int`, *optional*): the same for targets; where the model says how many tokens its decoder
            takes, the tokenizer is not asked.
        return_overflowing_tokens (`bool`, *optional*), stride (`int`, *optional*): carry the rest of a long text into
            further rows, with `overflow_to_sample_mapping`; neighbours share `stride` tokens.
        add_special_tokens (`bool`, *optional*, defaults to `True`): as transformers spells it.
        empty (`"error"` or `"keep"`, *optional*): what a text without tokens gets.
        look_ahead (`bool`, *optional*): whether `look_ahead_mask` is in the batch. By default it is without `model`,
            and with one whose forward names it; with targets it is that of the decoder.
        packing (`bool`, *optional*): several documents share a row of `max_length` tokens; `position_ids` restart and
            `document_ids` tell them apart. A `model` that does not name those gets, as `attention_mask`, what isolates
            documents in its scores: (B, 1, T, T) in its dtype, 0 or the lowest finite number.
        labels (`"causal_lm"` or `"masked_lm"`, *optional*): labels made from the ids; otherwise a `label`, `label_ids`
            or `labels` column becomes `labels`, padded with -100 where there is one label a token, and stays where
            `model` names labels.
        mlm_probability, mask_replace_prob, random_replace_prob, whole_word_mask (*optional*): as in transformers.
        seed (`int`, *optional*): the same masks for the same document in every evaluation.
        convention (`str` or `Convention`, *optional*), base (`float`, *optional*), scale (`"sqrt_d"` or `float`,
            *optional*), dropout (`float`, *optional*), zero_padding (`bool`, *optional*): see `PositionalEmbedding`.
            They belong to the vectors of `embedding`, and raise beside a `model` without one; for sinusoids inside a
            model, `use_sinusoidal_positions`. Position ids too count from the convention's first position, unless
            `model` has positions of its own.
        device (*optional*): where the table of an `embedding` given as a width lies.
        store_embeddings (`bool`, *optional*): columns too get `inputs_embeds`, and the table travels with the collator.
        return_tensors (`"pt"` or `"np"`, *optional*): what a batch holds.

    Returns:
        `collate(rows)` is a `Batch`: `input_ids` (B, T) int64, `attention_mask` (B, T) int64, `token_type_ids` (B, T)
        int64 where the tokenizer names them, `position_ids` (B, T) int64, `look_ahead_mask` (B, 1, T, T) bool, a view
        of one T×T matrix; `labels`, int64 or float32 as losses take them, where rows bring some that are not all None;
        with `embedding`, `inputs_embeds` (B, T, D) in its dtype, and every tensor on its device, else on the CPU. With
        `model`, of all these the ones that its forward names. `input_ids`, or else `inputs_embeds`, come first.

        Further columns of numbers: int64, bool, and floats in their own dtype, which is float64 for Python's; with
        `model`, float32. A column of texts, empty lists or None is left out, and named once in a warning; one of
        numbers and something else raises.

    Raises:
        ValueError: for settings or rows that are wrong, with the row, the column and both numbers; for what `model`
            cannot read.
        TypeError: for the wrong kind of tokenizer, embedding, model, text or keyword.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.3 (look-ahead mask) and 3.5. arXiv:1706.03762.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = {"[PAD]": 0, "[UNK]": 1, "I": 2, "ride": 3, "bike": 4, "she": 5, "said": 6, ",": 7}
        >>> raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> collate = DataCollatorWithPositionalEncoding(raw, embedding=8)
        >>> batch = collate(["I ride bike", "bike ride I, she said"])
        >>> batch
        Batch(
          input_ids        (2, 6)        int64    cpu
          attention_mask   (2, 6)        int64    cpu
          position_ids     (2, 6)        int64    cpu
          look_ahead_mask  (2, 1, 6, 6)  bool     cpu
          inputs_embeds    (2, 6, 8)     float32  cpu
        )
        >>> collate.tokens(batch)[0]
        ['I', 'ride', 'bike', '[PAD]', '[PAD]', '[PAD]']
        >>> collate({"text": ["I ride bike"], "label": [1]})["input_ids"]
        [array([2, 3, 4])]
        >>> from transformers import RobertaConfig, RobertaModel
        >>> config = RobertaConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> fits = DataCollatorWithPositionalEncoding(raw, model=RobertaModel(config))
        >>> fits(["I ride bike", "bike"])["position_ids"]
        tensor([[2, 3, 4],
                [2, 1, 1]])
    """

    _asked: dict[str, Any]
    _table: Table
    _stage: Stage
    _said: set[str]
    _notes: dict[str, str]

    def __post_init__(self) -> None:
        super().__post_init__()
        mine = private_copy(self.tokenizer, pad_token=self.pad_token)
        spec = None if self.model is None else ModelSpec.of(self.model)
        table = Table(self, mine)
        if spec is not None:
            check_fit(self, spec, mine)
        given = {"max_length": self.max_length, "max_target_length": self.max_target_length}
        limits, told = limits_of(given, mine, spec, table.max_length)
        for message in told:
            warnings.warn(message, stacklevel=4)
        self._settle(tokenizer=mine, model=spec, **limits, **table.brought_settings())
        asked = {name: None if given[name] is None else limit for name, limit in limits.items()}
        self._settle(_asked={**self.settings(), **asked}, _table=table, _said=set(), _notes={})
        self._settle(_stage=Stage(self, mine, table.rows))

    def _settle(self, **values: Any) -> None:
        """Sets fields of a frozen dataclass that is still being built."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    # -- the sockets ---------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(
                explain(
                    "the settings of a collator cannot be changed, only replaced in a new one",
                    got=f"collate.{name} = {shorten(value)}",
                    fix=f"collate = collate.replace({name}={shorten(value)})",
                )
            )
        object.__setattr__(self, name, value)

    def __call__(self, given: Any, **settings: Any) -> Any:
        """Return `columns(given)` for columns, and for what `map(input_columns=...)` gives; else `batch(given)`."""
        if settings:
            named = ", ".join(f"{name}={shorten(value)}" for name, value in settings.items())
            raise TypeError(
                explain(
                    "collate(...) takes rows or columns alone; its settings belong to the collator",
                    got=named,
                    fix=f"DataCollatorWithPositionalEncoding(tokenizer, {named}), or collate.replace({named})(rows)",
                )
            )
        if is_columns(given):
            return self.columns(given)
        if mapping.is_mapped():  # one str is a row, and refused as such: map needs batched=True
            return self.columns({self.text_column: given} if isinstance(given, str) else given)
        return self.batch(given)

    def batch(self, given: Any) -> Batch:
        r"""One padded batch, from rows or from columns.

        Args:
            given: a `str`, a sequence of texts, pairs, row dicts or token ids; or columns.

        Returns:
            `Batch`, see the class. `inputs_embeds` in it are a snapshot without gradient; `embed` gives live ones.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
            RuntimeError: in a `DataLoader` worker, where embeddings would hang or be stale.
        """
        batch = self._collate(given)
        if self.embedding is None:
            return self._fitted(batch)
        if self._table.left_behind is not None:
            self._warn_once("left behind", self._table.left_behind.refusal())
            return self._fitted(batch)
        if self._table.is_training:
            self._warn_once("snapshot", snapshot())
        with torch.no_grad():
            return self._fitted(self._table.embed(batch))

    def columns(self, given: Any) -> Any:
        r"""Tokenised columns: rows in the order they came, not padded unless `padding="max_length"`.

        Args:
            given: columns (a mapping, a `pyarrow.Table`, a `pandas.DataFrame`) or rows.

        Returns:
            A `dict` of NumPy arrays, or of lists of them where rows differ in length; a `pyarrow.Table` for a table. It
            holds what `tokenizer.model_input_names` lists, `length`, and every column that came, repeated for each
            piece of a long text when pieces are asked for (`overflow_to_sample_mapping`). `batch` makes the labels.

            Called by `datasets.map`, the new columns alone: `map` keeps the others, or drops those in
            `remove_columns`. For tables and data frames (`with_format("arrow")` or `"pandas"`) `map` keeps what the
            collator returns, which are all columns, and ignores `remove_columns`: call `.remove_columns` afterwards.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
        """
        rows = self._pieces(given)
        module = None
        if self.store_embeddings:
            module = self._table.ready()
            self._warn_once("size", self._table.size_of_stored(len(rows.ids.values)))
        joined = mapping.joins_columns(given)  # map adds the columns that came itself
        columns = to_columns(self._stage.how, rows, module, carried=not joined or rows.is_split)
        for message in self._notes.values():  # of a worker; columns cannot carry them
            warnings.warn(message, stacklevel=3)
        self._notes.clear()
        if is_table(given):
            return to_table(columns)
        made = to_mapping(columns)
        return mapping.removable(made) if joined and rows.is_split and rows.from_texts else made

    def embed(self, given: Any) -> Batch:
        r"""A batch with live embeddings: the weights of this moment, with gradient, on the table's device.

        Args:
            given (`Batch`, or anything that `batch` takes): a batch of tensors is used as it is.

        Returns:
            A new `Batch` with `inputs_embeds` (B, T, D) in the table's dtype, every tensor on its device.

        Raises:
            ValueError: if there is no table, or it was left behind by a pickle.

        Example:
            >>> from tokenizers import Tokenizer, models
            >>> table = torch.nn.Embedding(3, 4)
            >>> words = {"[PAD]": 0, "[UNK]": 1, "hi": 2}
            >>> raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
            >>> collate = DataCollatorWithPositionalEncoding(raw, embedding=table)
            >>> collate.embed(["hi"])["inputs_embeds"].requires_grad
            True
        """
        if self.embedding is None:
            raise ValueError(
                explain(
                    "collate.embed needs an embedding table",
                    got="embedding=None",
                    fix="collate.replace(embedding=model.get_input_embeddings()), or embedding=512",
                )
            )
        is_batch = isinstance(given, Mapping) and isinstance(given.get("input_ids"), torch.Tensor)
        batch = Batch(given, tokens_of=self._tokens_of) if is_batch else self._collate(given)
        return self._fitted(self._table.embed(batch))

    # -- reading a batch -----------------------------------------------------------------------------------------

    def tokens(self, batch: Any) -> list[list[str]]:
        r"""The tokens of every row, padding included: one `str` a column.

        Args:
            batch: with `input_ids` (B, T); or ids (B, T) themselves, such as `batch["labels"]`.

        Returns:
            B lists of T `str`; -100, which is no token, as it is.
        """
        return [tokens_of(self.tokenizer, row) for row in ids_of(batch)]

    def decode(self, batch: Any, *, skip_special_tokens: bool = True) -> list[str]:
        r"""The text of every row.

        Args:
            batch: with `input_ids` (B, T), and `attention_mask` where rows are padded; or ids (B, T) themselves, such
                as `batch["labels"]` and what `generate` returns.
            skip_special_tokens (`bool`, *optional*, defaults to `True`): leave `[CLS]` and the like out.

        Returns:
            B `str`. Padding is left out by the mask, so that an end-of-sequence token is not taken for it; so is -100.
        """
        return texts_of(self.tokenizer, batch, skip_special_tokens=skip_special_tokens)

    def features(self, rows: Any, *, remove_columns: str | Sequence[str] = ()) -> Features:
        r"""Return the `datasets.Features` of `columns(rows)`, for `dataset.map(collate, features=...)`.

        Args:
            rows (`datasets.Dataset`, a streaming one, columns or rows): only the first of them are looked at.
            remove_columns (`str` or sequence of `str`, *optional*): columns that came and that `map` drops.

        Returns:
            `datasets.Features`; embeddings are `Array2D`, which stores and reads fastest.
        """
        known = dict(getattr(rows, "features", None) or {})
        stage = self._stage
        pieces = stage.pieces(mapping.first_rows(rows))
        made = to_columns(stage.how, pieces, None, carried=False)
        dropped = {remove_columns} if isinstance(remove_columns, str) else set(remove_columns)
        everything = to_mapping(to_columns(stage.how, pieces, None)).items()
        columns = {name: column for name, column in everything if name in made or name not in dropped}
        embedded = None
        if self.store_embeddings:
            module = self._table.ready()
            length = stage.how.limit if stage.how.padding == "max_length" else None
            embedded = length, module.d_model, str(self._table.stored_dtype).removeprefix("torch.")
        return features_of(columns, known, embedded)

    @property
    def model_input_names(self) -> list[str]:
        """What the tokenizer says that its models read; `Trainer(processing_class=collate)` asks for it."""
        return list(self.tokenizer.model_input_names)

    # -- a value -------------------------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> DataCollatorWithPositionalEncoding:
        r"""A new collator with some settings changed; this one is left as it is.

        Args:
            **changes: any argument of the class.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            TypeError: for an argument that does not exist.
            ValueError: for a bare table in place of an embedding whose positions are no sinusoids.
        """
        check_exchange(self.embedding, changes.get("embedding"))
        settings = {**self._asked, "tokenizer": self.tokenizer, "embedding": self.embedding, **changes}
        given = changes.get("embedding", ...)
        brings = isinstance(given, PositionalEmbedding)
        if brings or (given is None and settings["model"] is not None):  # its own settings, or vectors for no model
            settings = {name: value for name, value in settings.items() if name not in BROUGHT or name in changes}
        return type(self)(**settings)

    def save_pretrained(self, save_directory: Any) -> list[str]:
        r"""Writes `hf_posenc.json` and the tokenizer's files: settings and vocabulary, never weights.

        Args:
            save_directory (`str` or `Path`): made if missing.

        Returns:
            The paths written.
        """
        return saving.save(save_directory, self.tokenizer, (*self._state[:-1], self._table.state(numbers=False)))

    @classmethod
    def from_pretrained(
        cls, name: Any, *, embedding: Any = None, model: Any = None
    ) -> DataCollatorWithPositionalEncoding:
        r"""Reads what `save_pretrained` wrote.

        Args:
            name (`str` or `Path`): a folder, or a repository on the Hub.
            embedding (*optional*): the table, which is never saved; a width is. Where positions were no sinusoids, a
                `PositionalEmbedding` with such ones again.
            model (*optional*): another model to fit; what is known of the one it was saved with is in the file.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            ValueError: if there is no such file, its format is newer, or a key in it is unknown.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        loaded: DataCollatorWithPositionalEncoding = saving.load(
            cls, name, embedding=embedding, model=model, known=known
        )
        return loaded

    def __reduce__(self) -> tuple[Any, ...]:
        return saving.rebuild, self._state

    def __copy__(self) -> DataCollatorWithPositionalEncoding:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DataCollatorWithPositionalEncoding:
        return self  # a value; its table is somebody's, and stays where it is

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataCollatorWithPositionalEncoding) and self._state == other._state

    def __hash__(self) -> int:
        return hash(self._state)

    def __repr__(self) -> str:
        lines = [
            f"tokenizer={type(self.tokenizer).__name__}({number_of_ids(self.tokenizer)} ids)",
            f"embedding={self._table!r}",
            *(f"{name}={_shown(value)}" for name, value in self.settings().items()),
        ]
        return "\n".join([f"{type(self).__name__}(", *(f"    {line}," for line in lines), ")"])

    # -- how it is done ------------------------------------------------------------------------------------------

    @property
    def _state(self) -> saving.State:
        """What a pickle, a fingerprint and a comparison see. The table is read anew: its numbers can change."""
        table = self._table.state(numbers=self.store_embeddings)
        return saving.state(type(self), self.tokenizer, self._files, self._asked, table)

    @cached_property
    def _files(self) -> tuple[tuple[str, bytes], ...]:
        return tuple(sorted(to_files(self.tokenizer).items()))

    def _pieces(self, given: Any) -> Pieces:
        """Tokenises what has to be, cuts what is too long, and reports what was lost."""
        rows = self._stage.pieces(given)
        how = self._stage.how
        if rows.cut and self._asked["max_length"] is None:
            more = below_model(self.model, self.tokenizer, how.limit)
            self._warn_once(
                f"texts {how.limit}", were_cut("texts", rows.cut, rows.count, how.limit, how.limited_by, more)
            )
        if rows.targets_cut and self._asked["max_target_length"] is None:
            whose = how.targets_limited_by
            self._warn_once(
                f"targets {how.target_limit}",
                were_cut("targets", rows.targets_cut, rows.count, how.target_limit, whose),
            )
        if meant := self._stage.target_meant(rows):
            self._warn_once("target", target_missing(str(self.text_target_column), meant))
        return rows

    def _collate(self, given: Any) -> Batch:
        if self.embedding is not None and torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                explain(
                    "a collator with an embedding cannot run in a DataLoader worker: tensors would hang or be stale",
                    got=f"embedding={self._table!r}",
                    fix="collate without embedding, then collate.embed(batch) in the training loop, or let the model "
                    "embed (use_sinusoidal_positions(model)); or num_workers=0",
                )
            )
        rows = self._pieces(given)
        if not rows.count:
            raise ValueError(empty_batch(given))
        arrays = self._stage.arrays(rows)
        if left := self._stage.left_out(rows, arrays):
            self._warn_once(f"left out {left}", left_out(left, packed=self.packing))
        if self.model is not None and (meant := self._stage.label_meant(rows, arrays)):
            self._warn_once("label", label_missing(self.model.name, meant))
        count = len(arrays["input_ids"])
        once = arrays.pop("look_ahead_mask", None)  # (T, T)
        if self.return_tensors == "np":
            batch = Batch(arrays, tokens_of=self._tokens_of)
            if once is not None:
                batch["look_ahead_mask"] = np.broadcast_to(once, (count, 1, *once.shape))  # (B, 1, T, T)
            return batch
        batch = Batch({name: torch.from_numpy(array) for name, array in arrays.items()}, tokens_of=self._tokens_of)
        if once is not None:
            batch["look_ahead_mask"] = torch.from_numpy(once).expand(count, 1, *once.shape)  # (B, 1, T, T)
        return batch

    def _fitted(self, batch: Batch) -> Batch:
        """Return what the model reads of a batch, or all of it if there is no model; with the warnings to send."""
        if self.model is not None:
            if self._stage.shifts and "attention_mask" in batch and not batch["attention_mask"].all():
                self._warn_once("left padding", padding_shifts(self.model.name))
            batch = fitted(batch, self.model)
        batch.unsaid.update(self._notes)
        self._notes.clear()
        return batch

    def _tokens_of(self, ids: Sequence[int]) -> list[str]:
        return tokens_of(self.tokenizer, list(ids))

    def _warn_once(self, what: str, message: str) -> None:
        """Warn; in a worker of a `DataLoader`, note the warning for the batch, which takes it to the main process."""
        if what in self._said:
            return
        self._said.add(what)
        if torch.utils.data.get_worker_info() is None:
            warnings.warn(message, stacklevel=4)
        else:
            self._notes[what] = message


def _shown(value: Any) -> str:
    return f"<ModelSpec of {value.name}>" if isinstance(value, ModelSpec) else repr(value)

"""The collator: text in, position-aware model inputs out, for every caller.

Holds a finished `Config`; the other modules of this room are functions of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._explain import explain, shorten
from ..batch import Batch
from ..embedding import PositionalEmbedding
from ..model_spec import ModelSpec
from ..tokenization.loading import number_of_ids, to_files
from . import save
from .columns import features_of, first_rows, is_mapped, joins_columns, removable, to_columns, to_mapping, to_table
from .config import Config
from .decoding import ids_of, texts_of, tokens_of
from .embed import EMBEDDING_SETTINGS, check_exchange
from .fit import fit_batch, padding_changes_outputs
from .inputs import empty_batch, is_columns, is_table, read
from .padding import pad_batch
from .settings import Settings, refuses_unknown_keywords
from .tokens import Tokenized, tokenize
from .warn import Warnings, similar_target_column, truncation_warning, warn_of_columns

if TYPE_CHECKING:
    from datasets import Features


@refuses_unknown_keywords
class DataCollatorWithPositionalEncoding(Settings):
    r"""A data collator around a tokenizer: text, rows or columns in; ids, masks, position ids and embeddings out.

    A sequence (texts, pairs as tuples, row dicts, token ids) gives a padded `Batch`: for `Trainer`, a `DataLoader`, a
    notebook. A mapping of columns gives a mapping of columns, and a `pyarrow.Table` a table: for
    `dataset.map(collate, batched=True)`, `with_transform` and Ray's `map_batches`. `batch(x)` and `columns(x)` choose
    explicitly. A collator is a value: frozen, picklable, equal to its copies. It is not changed by use, and never
    changes its arguments. Without `embedding` it makes CPU tensors only and may run in any worker.

    Shapes: B rows, T tokens a row after padding, D the width of the embeddings. True means "may be attended to".

    Args:
        tokenizer (`str`, `Path`, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): a name, a folder, or an object,
            fast or slow. The collator uses a private copy.
        embedding (`int`, `nn.Embedding` or `PositionalEmbedding`, *optional*): adds `inputs_embeds`. A width makes a
            frozen table of random numbers (from `seed`); a given table is used with its present weights. For other
            positions than sinusoids: `PositionalEmbedding(table, encoding="learned")`. The vectors contain positions:
            use them with a module that adds none. Nearly all models of Hugging Face add their own, and would then have
            positions twice; with `model=` that raises.
        model (`nn.Module` or `ModelSpec`, *optional*): the model to fit. A batch then has only arguments of its
            forward, never both ids and embeddings; position ids are in its numbering; rows are truncated to its
            limit; and settings that it would silently ignore (a mask, labels, packing) raise here. Wrappers are opened.
            Afterwards the attribute is a `ModelSpec`, without the weights of the model.
        text_column, text_pair_column, text_target_column (`str`, *optional*): names of the columns of texts. A target
            becomes `labels`, and `decoder_input_ids`, the labels shifted right: made by `model`, or else by the
            collator with a `decoder_attention_mask`. The labels of tokenized rows are targets too, if `model` is an
            encoder-decoder that predicts tokens.
        is_split_into_words (`bool`, *optional*): texts are lists of words.
        padding (*optional*, defaults to `True`): as in transformers; `True` is `"longest"`. `"max_length"` pads
            columns too.
        padding_side (`"left"` or `"right"`, *optional*): the tokenizer's own by default.
        pad_token (`str`, *optional*): a token of the vocabulary to pad with, for tokenizers without one; `"eos"` means
            the end-of-sequence token.
        pad_to_multiple_of (`int`, *optional*): rounds T up.
        truncation (*optional*, defaults to `True`): as in transformers. `False` raises for a row that is too long.
        max_length (`int`, *optional*): limit on a row's tokens. Afterwards the attribute is the smallest of this limit,
            the tokenizer's and the model's.
        max_target_length (`int`, *optional*): the same for targets; a limit of the model's decoder replaces the one of
            the tokenizer.
        return_overflowing_tokens (`bool`, *optional*), stride (`int`, *optional*): continue a long text in further
            rows, with `overflow_to_sample_mapping`; neighbours share `stride` tokens.
        add_special_tokens (`bool`, *optional*, defaults to `True`): as in transformers.
        empty (`"error"` or `"keep"`, *optional*): raise for a text without tokens, or keep a row of padding.
        look_ahead (`bool`, *optional*): add `look_ahead_mask` to the batch. By default added without `model`, and with
            one whose forward has this argument; with targets it is the mask of the decoder.
        packing (`bool`, *optional*): several documents share a row of `max_length` tokens; `position_ids` restart and
            `document_ids` number the documents. A `model` without that argument gets an `attention_mask` that isolates
            documents: (B, 1, T, T) in its dtype, added to scores, 0 or the lowest finite number.
        labels (`"causal_lm"` or `"masked_lm"`, *optional*): labels made from the ids; otherwise a `label`, `label_ids`
            or `labels` column becomes `labels`, padded with -100 if there is one label per token, unless `model`
            takes no labels.
        mlm_probability, mask_replace_prob, random_replace_prob, whole_word_mask (*optional*): as in transformers.
        seed (`int`, *optional*): for the same masks of a document in every evaluation.
        convention (`str` or `Convention`, *optional*), base (`float`, *optional*), scale (`"sqrt_d"` or `float`,
            *optional*), dropout (`float`, *optional*), zero_padding (`bool`, *optional*): see `PositionalEmbedding`.
            They apply to the vectors of `embedding`, and raise with a `model` without one; for sinusoids inside a model
            call `use_sinusoidal_positions`. Position ids too count from the convention's first position, unless
            `model` has its own positions.
        device (*optional*): device of the table of an `embedding` given as a width.
        store_embeddings (`bool`, *optional*): columns too get `inputs_embeds`, and the table is pickled with the
            collator.
        return_tensors (`"pt"` or `"np"`, *optional*): tensors or arrays.

    Returns:
        `collate(rows)` is a `Batch`: `input_ids` (B, T) int64, `attention_mask` (B, T) int64, `token_type_ids` (B, T)
        int64 if the tokenizer lists them, `position_ids` (B, T) int64, `look_ahead_mask` (B, 1, T, T) bool, a view
        of one T×T matrix; `labels`, int64 or float32 as losses take them, if rows have some that are not all None;
        with `embedding`, `inputs_embeds` (B, T, D) in its dtype, and every tensor on its device, else on the CPU. With
        `model`, those of them that are arguments of its forward. `input_ids`, or else `inputs_embeds`, come first.

        Other columns of numbers: int64, bool, and floats in their own dtype, which is float64 for Python floats; with
        `model`, float32. A column of texts, empty lists or None is left out with a warning; a mixture of numbers and
        other values raises.

    Raises:
        ValueError: for wrong settings or rows, with the row, the column and both numbers; for settings that `model`
            cannot use.
        TypeError: for a wrong type of tokenizer, embedding, model or text, and for an unknown keyword.

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

    _config: Config
    _warnings: Warnings

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(Settings)}
        config = Config.of(Settings(**given))
        vars(self).update(config.in_force, _config=config, _warnings=Warnings())

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
        """Return `columns(given)` for columns and in `map(input_columns=...)`, otherwise `batch(given)`."""
        if settings:
            named = ", ".join(f"{name}={shorten(value)}" for name, value in settings.items())
            raise TypeError(
                explain(
                    "collate(...) takes only rows or columns; settings are arguments of the collator",
                    got=named,
                    fix=f"DataCollatorWithPositionalEncoding(tokenizer, {named}), or collate.replace({named})(rows)",
                )
            )
        if is_columns(given):
            return self.columns(given)
        if is_mapped():  # a single str is refused as one row: map needs batched=True
            return self.columns({self.text_column: given} if isinstance(given, str) else given)
        return self.batch(given)

    def batch(self, given: Any) -> Batch:
        r"""Return a padded batch from rows or from columns.

        Args:
            given: a `str`, a sequence of texts, pairs, row dicts or token ids; or columns.

        Returns:
            `Batch`, see the class. Its `inputs_embeds` are a snapshot without gradient; `embed` returns live ones.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
            RuntimeError: in a `DataLoader` worker, where embeddings would hang or be stale.
        """
        batch = self._collate(given)
        if self.embedding is None:
            return self._fitted(batch)
        embedder = self._config.embedder
        if embedder.missing is not None:
            self._warnings.once("missing table", embedder.missing.message())
            return self._fitted(batch)
        if embedder.is_training:
            message = explain(
                "collate(...) embeds with the present weights and without gradient",
                got="a trainable table in training mode",
                fix="collate.embed(batch) inside the training loop; under Trainer let the model embed input_ids",
            )
            self._warnings.once("snapshot", message)
        with torch.no_grad():
            return self._fitted(embedder.embed(batch))

    def columns(self, given: Any) -> Any:
        r"""Return tokenized columns: rows in their order, not padded unless `padding="max_length"`.

        Args:
            given: columns (a mapping, a `pyarrow.Table`, a `pandas.DataFrame`) or rows.

        Returns:
            A `dict` of NumPy arrays, or of lists of them if rows differ in length; a `pyarrow.Table` for a table. Its
            columns are `tokenizer.model_input_names`, `length`, and every given column, repeated for the rows of a
            long text with `return_overflowing_tokens`. Labels are made by `batch`.

            Called by `datasets.map`, only the new columns: `map` keeps the others, or drops those in `remove_columns`.
            For tables and data frames (`with_format("arrow")` or `"pandas"`) all columns, because `map` replaces them
            and ignores `remove_columns`: call `.remove_columns` afterwards.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
        """
        made = self._tokenize(given)
        module, embedder = None, self._config.embedder
        if self.store_embeddings:
            module = embedder.ready()
            self._warnings.once("size", embedder.size_of_stored(len(made.ids.values)))
        joined = joins_columns(given)  # map adds the given columns itself
        columns = to_columns(self._config, made, module, carried=not joined or made.has_split_texts)
        if is_table(given):
            return to_table(columns)
        result = to_mapping(columns)
        return removable(result) if joined and made.has_split_texts and made.from_texts else result

    def embed(self, given: Any) -> Batch:
        r"""Return a batch with live embeddings: from the present weights, with gradient, on the table's device.

        Args:
            given (`Batch`, or anything that `batch` takes): a batch of tensors is used as it is.

        Returns:
            A new `Batch` with `inputs_embeds` (B, T, D) in the table's dtype, every tensor on its device.

        Raises:
            ValueError: if there is no table, as after pickling.

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
        return self._fitted(self._config.embedder.embed(batch))

    # -- reading a batch -----------------------------------------------------------------------------------------

    def tokens(self, batch: Any) -> list[list[str]]:
        r"""Return the tokens of every row, padding included.

        Args:
            batch: with `input_ids` (B, T); or ids (B, T) themselves, such as `batch["labels"]`.

        Returns:
            B lists of T `str`; -100, which is not an id, as it is.
        """
        return [tokens_of(self.tokenizer, row) for row in ids_of(batch)]

    def decode(self, batch: Any, *, skip_special_tokens: bool = True) -> list[str]:
        r"""Return the text of every row.

        Args:
            batch: with `input_ids` (B, T), and `attention_mask` if rows are padded; or ids (B, T) themselves, such as
                `batch["labels"]` or the result of `generate`.
            skip_special_tokens (`bool`, *optional*, defaults to `True`): leave out `[CLS]` and the like.

        Returns:
            B `str`, without -100 and without padding. The mask marks the padding, not an id, which may be a real token.
        """
        return texts_of(self.tokenizer, batch, skip_special_tokens=skip_special_tokens)

    def features(self, rows: Any, *, remove_columns: str | Sequence[str] = ()) -> Features:
        r"""Return the `datasets.Features` of `columns(rows)`, for `dataset.map(collate, features=...)`.

        Args:
            rows (`datasets.Dataset`, a streaming one, columns or rows): only the first of them are read.
            remove_columns (`str` or sequence of `str`, *optional*): given columns that `map` drops.

        Returns:
            `datasets.Features`; embeddings are `Array2D`, which stores and reads fastest.
        """
        known = dict(getattr(rows, "features", None) or {})
        config = self._config
        made = tokenize(config, read(first_rows(rows), config.settings))
        own = to_columns(config, made, None, carried=False)
        dropped = {remove_columns} if isinstance(remove_columns, str) else set(remove_columns)
        everything = to_mapping(to_columns(config, made, None)).items()
        columns = {name: column for name, column in everything if name in own or name not in dropped}
        embedded = None
        if self.store_embeddings:
            length = config.limits.max_length if config.padding == "max_length" else None
            dtype = str(config.embedder.stored_dtype).removeprefix("torch.")
            embedded = length, config.embedder.ready().d_model, dtype
        return features_of(columns, known, embedded)

    @property
    def model_input_names(self) -> list[str]:
        """Inputs that the tokenizer lists for its models; `Trainer(processing_class=collate)` reads it."""
        return list(self.tokenizer.model_input_names)

    # -- a value -------------------------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> DataCollatorWithPositionalEncoding:
        r"""Return a new collator with some settings changed.

        Args:
            **changes: any argument of the class.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            TypeError: for an argument that does not exist.
            ValueError: for a bare table in place of an embedding with other positions than sinusoids.
        """
        check_exchange(self.embedding, changes.get("embedding"))
        settings = {**self._config.saved, "tokenizer": self.tokenizer, "embedding": self.embedding, **changes}
        given = changes.get("embedding", ...)
        own = isinstance(given, PositionalEmbedding)
        if own or (given is None and settings["model"] is not None):  # settings of positions that no longer apply
            settings = {k: value for k, value in settings.items() if k not in EMBEDDING_SETTINGS or k in changes}
        return type(self)(**settings)

    def save_pretrained(self, save_directory: Any) -> list[str]:
        r"""Write `hf_posenc.json` and the tokenizer's files: settings and vocabulary, never weights.

        Args:
            save_directory (`str` or `Path`): the folder, created if missing.

        Returns:
            The paths written.
        """
        return save.save(
            save_directory, self.tokenizer, (*self._state[:-1], self._config.embedder.state(numbers=False))
        )

    @classmethod
    def from_pretrained(
        cls, name: Any, *, embedding: Any = None, model: Any = None
    ) -> DataCollatorWithPositionalEncoding:
        r"""Load a collator that `save_pretrained` wrote.

        Args:
            name (`str` or `Path`): a folder, or a repository on the Hub.
            embedding (*optional*): the table, which is never saved, unless it was a width. For other positions than
                sinusoids, a `PositionalEmbedding` with such positions.
            model (*optional*): another model to fit; by default the saved `ModelSpec`.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            ValueError: if the file is missing, has a newer format, or an unknown key.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        loaded: DataCollatorWithPositionalEncoding = save.load(cls, name, embedding=embedding, model=model, known=known)
        return loaded

    def __reduce__(self) -> tuple[Any, ...]:
        return save.rebuild, self._state

    def __copy__(self) -> DataCollatorWithPositionalEncoding:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DataCollatorWithPositionalEncoding:
        return self  # frozen, and its table is shared with its owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataCollatorWithPositionalEncoding) and self._state == other._state

    def __hash__(self) -> int:
        return hash(self._state)

    def __repr__(self) -> str:
        lines = [
            f"tokenizer={type(self.tokenizer).__name__}({number_of_ids(self.tokenizer)} ids)",
            f"embedding={self._config.embedder!r}",
            *(f"{name}={_shown(value)}" for name, value in self.settings().items()),
        ]
        return "\n".join([f"{type(self).__name__}(", *(f"    {line}," for line in lines), ")"])

    # -- one call ------------------------------------------------------------------------------------------------

    @property
    def _state(self) -> save.State:
        """Everything that a pickle, a fingerprint and a comparison see. The weights of the table may have changed."""
        table = self._config.embedder.state(numbers=self.store_embeddings)
        return save.state(type(self), self.tokenizer, self._files, self._config.saved, table)

    @cached_property
    def _files(self) -> tuple[tuple[str, bytes], ...]:
        return tuple(sorted(to_files(self.tokenizer).items()))

    def _tokenize(self, given: Any) -> Tokenized:
        """Tokenize and truncate, and warn of lost tokens."""
        config, settings = self._config, self._config.settings
        made = tokenize(config, read(given, settings))
        for what, truncated, name in (
            ("texts", made.rows.truncated, "max_length"),
            ("targets", made.targets_truncated, "max_target_length"),
        ):
            if truncated and getattr(settings, name) is None:
                self._warnings.once(what, truncation_warning(config, what, truncated, made.count, name))
        if similar := similar_target_column(made, settings):
            message = explain(
                f"column '{settings.text_target_column}' is missing, so this batch has no labels",
                got=f"column '{similar}'",
                fix=f"text_target_column='{similar}', if that is the target",
            )
            self._warnings.once("target column", message)
        return made

    def _collate(self, given: Any) -> Batch:
        """Return a padded batch without embeddings."""
        if self.embedding is not None and torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                explain(
                    "a collator with an embedding cannot run in a DataLoader worker: tensors would hang or be stale",
                    got=f"embedding={self._config.embedder!r}",
                    fix="collate without embedding, then collate.embed(batch) in the training loop, or let the model "
                    "embed (use_sinusoidal_positions(model)); or num_workers=0",
                )
            )
        made = self._tokenize(given)
        if not made.count:
            raise ValueError(empty_batch(given))
        arrays = pad_batch(self._config, made)
        warn_of_columns(self._config, made, arrays, self._warnings)
        count = len(arrays["input_ids"])
        look_ahead = arrays.pop("look_ahead_mask", None)  # (T, T)
        if self.return_tensors == "np":
            batch = Batch(arrays, tokens_of=self._tokens_of)
            if look_ahead is not None:
                shape = (count, 1, *look_ahead.shape)
                batch["look_ahead_mask"] = np.broadcast_to(look_ahead, shape)  # (B, 1, T, T)
            return batch
        batch = Batch({name: torch.from_numpy(array) for name, array in arrays.items()}, tokens_of=self._tokens_of)
        if look_ahead is not None:
            batch["look_ahead_mask"] = torch.from_numpy(look_ahead).expand(count, 1, -1, -1)  # (B, 1, T, T)
        return batch

    def _fitted(self, batch: Batch) -> Batch:
        """Return the batch with the keys that the model reads."""
        model = self.model
        if model is None:
            return batch
        if padding_changes_outputs(model, self._config.side) and not batch.get("attention_mask", torch.ones(1)).all():
            message = explain(
                f"left padding changes the outputs of {model.name} for real tokens, because it takes no position_ids",
                got='padding_side="left"',
                fix='padding_side="right", or rows of one length',
            )
            self._warnings.once("left padding", message)
        return fit_batch(batch, model)

    def _tokens_of(self, ids: Sequence[int]) -> list[str]:
        return tokens_of(self.tokenizer, list(ids))


def _shown(value: Any) -> str:
    return f"<ModelSpec of {value.name}>" if isinstance(value, ModelSpec) else repr(value)

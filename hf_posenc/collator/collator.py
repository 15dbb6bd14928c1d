"""`DataCollatorWithPositionalEncoding`: turns text into position-aware model inputs.

The class holds a resolved `Config` and passes it to the functions of the other modules.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np
import torch

from .._common.errors import explain, shorten, type_error, value_error
from ..documents import Documents
from ..models import ModelSpec
from ..positions import SinusoidalPositionalEncoding
from ..ragged import lock_free_cache
from ..tokenization.encoder import calls_only_rust
from ..tokenization.loading import number_of_ids, sharing_copy, to_files
from ..tokenization.watching import WatchedTokenizer, watched
from . import save
from .batch import Batch, real_tokens
from .batches import Batches
from .columns import Column, check_repeated, features_of, to_columns, to_mapping, to_table
from .config import Config
from .embed import check_exchange
from .fit import fit_batch, left_padding_warning
from .inputs import empty_batch, is_columns, is_lazy_batch
from .pipeline import arrange, to_documents
from .settings import Settings, refuses_unknown_keywords
from .warn import Warnings, warn_of_batch, warn_of_source, warn_of_tokens

if TYPE_CHECKING:
    from datasets import Features


class _Table(Protocol):
    """A `pyarrow.Table`, for type checkers: pyarrow itself has no types."""

    @property
    def column_names(self) -> list[str]: ...
    def combine_chunks(self) -> Any: ...


Table = TypeVar("Table", bound=_Table)


@refuses_unknown_keywords
class DataCollatorWithPositionalEncoding(Settings):
    r"""Data collator that turns texts, rows or columns into ids, masks, position ids and embeddings.

    The type of the input decides the type of the output:

    - A sequence (texts, pairs as tuples, conversations, row dicts or token ids) returns a padded `Batch`, for
      `Trainer`, a `DataLoader` or a notebook.
    - A mapping of columns returns a mapping of columns, and a `pyarrow.Table` or a data frame returns a table, for
      `dataset.map(collate, batched=True)`, `with_transform` and Ray's `map_batches`.

    Call `batch(x)` or `columns(x)` to choose the output explicitly. A collator is immutable and picklable, and equals
    any collator with the same tokenizer, settings and table. A call never modifies its arguments. Without `embedding`
    a collator makes CPU tensors only and may run in any worker.

    Shapes: B rows, T tokens per row after padding, D the width of the embeddings. In bool masks, True means "may be
    attended to".

    Args:
        > Tokenizer, table and model
        tokenizer (`str`, `Path`, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): a name, a folder, or a fast or
            slow tokenizer. The collator uses a private copy, so that later changes, such as `tokenizer.add_tokens`,
            have no effect; the next call warns of them.
        embedding (`int`, `nn.Embedding` or `PositionalEmbedding`, *optional*): adds `inputs_embeds`, vectors that
            include positions. An `int` is the width of a new table: frozen, of random numbers (from `seed`), on torch's
            default device. A given table is used with its current weights, and gets the sinusoids of Vaswani et al. A
            `PositionalEmbedding` has settings: `PositionalEmbedding(table, scale="sqrt_d", convention="marian")`. Use
            the vectors with a module that adds no positions. Nearly all Hugging Face models add their own; with such a
            `model` this raises.
        model (`nn.Module` or `ModelSpec`, *optional*): the model that the batches are for. A batch then contains only
            arguments of the model's forward, and never both ids and embeddings. Position ids follow the model's
            numbering, and rows are truncated to its limit. Settings that the model would silently ignore (a mask,
            labels, packing) raise here. Wrapped models are unwrapped. The attribute `model` is a `ModelSpec`, which
            does not hold the weights.
        > Texts
        text_column, text_pair_column, text_target_column (`str`, *optional*): names of the columns with the texts or
            conversations, the second texts of pairs, and the targets, the texts to predict. By default the names of the
            columns decide: `text`; or `messages`, a conversation; or `prompt` with `completion`, two texts or two lists
            of messages; or `prompt` alone, which has no labels. Columns such as `instruction` with `output` raise, with
            the line that makes one of these formats. Conversations are lists of messages, which the tokenizer's chat
            template renders; only the assistant's messages, with the end token of each, are trained on. A prompt and
            its completion are tokenized together, with an eos token at the end, and `completion_mask` is 1 at the
            tokens of the completion; a `model` that is an encoder-decoder gets the completion as the target. The ids of
            a target become `labels`. `decoder_input_ids` are the labels shifted right: if `model` does not make them,
            the collator does, with a `decoder_attention_mask`. If `model` is an encoder-decoder with a language
            modeling head, the labels of tokenized rows are targets too.
        token_columns (sequence of `str`, *optional*): names of columns of tokenized rows that have one value per token,
            such as `("weight",)`, beside those that are known by their names. They are truncated, padded with 0 and
            packed with their tokens. Any other column has one value per row, whatever its length.
        is_split_into_words (`bool`, *optional*): True if texts are lists of words.
        add_special_tokens (`bool`, *optional*, defaults to `True`): as in transformers.
        on_empty (`"error"` or `"keep"`, *optional*): raise for a row without tokens (the default), or keep it as a row
            of padding.
        > Padding
        padding (*optional*, defaults to `True`): as in transformers; `True` is `"longest"`. `"max_length"` also pads
            the rows that the method `columns` returns.
        padding_side (`"left"` or `"right"`, *optional*): by default the side of the tokenizer. Targets are padded on
            the right.
        pad_token (`str`, *optional*): a token of the vocabulary to pad with, for tokenizers without one; `"eos"` means
            the end-of-sequence token.
        pad_to_multiple_of (`int`, *optional*): rounds T up to a multiple. With `packing="flat"`, the padding tokens at
            the end of the row are documents of their own, with labels of -100.
        > Length
        truncation (*optional*, defaults to `True`): as in transformers. `False` raises for a row that is too long.
        max_length (`int`, *optional*): maximal number of tokens in a row. The attribute `max_length` is the smallest of
            this limit and those of the tokenizer, the model and the embedding.
        max_target_length (`int`, *optional*): maximal number of tokens in a target. The attribute is the smaller of
            this limit and the decoder's. If the decoder has no limit, the tokenizer's is used instead.
        return_overflowing_tokens (`bool`, *optional*), stride (`int`, *optional*): continue a long text or row in
            further rows and return `overflow_to_sample_mapping`; consecutive rows share `stride` tokens. Tokenized rows
            that have a column `overflow_to_sample_mapping` keep its values. `Trainer.predict` needs rows that are
            not continued: tokenize with `dataset.map` first. A batch with more rows than it was given warns.
        > Masks and packing
        look_ahead (`bool`, *optional*): add `look_ahead_mask` to the batch. By default it is added if the forward of
            `model` has this argument. Without `model` it is added except with `packing="flat"` and masked labels. With
            targets the mask is for the decoder, and its T is that of `labels`. One for more than 65,536 tokens raises.
        packing (`bool` or `"flat"`, *optional*): `True` puts several documents into each row of `max_length` tokens.
            `position_ids` restart at each document, and `document_ids` number the documents. A `model` without a
            `document_ids` argument gets an `attention_mask` that isolates documents: (B, 1, T, T) in the model's dtype,
            added to attention scores, either 0 or the lowest finite number. `"flat"` puts all documents of the batch
            into one row, without a mask. The batch then has the keys of transformers'
            `DataCollatorWithFlattening`, and a `model` that does not isolate documents by these keys raises.
        > Labels
        labels (`"causal_lm"`, `"masked_lm"` or `MaskedLM`, *optional*): makes labels from the ids. Otherwise a `label`,
            `label_ids` or `labels` column becomes `labels`, unless `model` takes no labels. The head of `model` decides
            if they are labels of tokens or of rows. Without it the kind of a value does: a number is one label per row,
            a list of floats are several labels per row, and a list of integers are labels per token, in a padded row
            with -100 at padding. Labels per token are padded with -100. They are -100 at tokens with 0 in a column
            `completion_mask`, `assistant_masks`, `assistant_tokens_mask` or `loss_mask`; and at the first token of a
            document behind padding or another document, if labels are predicted from the token before. `labels` says
            so, or else `model`. Without both, given labels that are the ids of their own tokens are.
        on_no_labels (`"error"`, `"skip"` or `"keep"`, *optional*): treatment of a row whose labels are all -100, for
            example after truncation, or of one token if labels predict the next one. `"error"` raises, `"skip"` leaves
            it out and warns, and `"keep"` keeps it. By default such a row raises, unless `labels="masked_lm"` (a short
            row may have no masked token), or it has no tokens, or it is a packed document of one token beside others.
        mlm_probability (`float`, *optional*): share of tokens that `"masked_lm"` predicts, by default 0.15. If none is
            drawn in a batch, one token of the batch is, because the loss would be NaN; with a share of 0, none is.
        > Other
        seed (`int`, *optional*): with `labels="masked_lm"`, gives a document the same masks in every evaluation, except
            for the single token of a batch in which none was drawn. If `embedding` is a width, it also seeds the random
            numbers of the table.
        store_embeddings (`bool`, *optional*): adds `inputs_embeds` to columns too, and pickles the table with the
            collator.
        backend (`"auto"`, `"tokenizers"`, `"nanotoken"` or `"gigatoken"`, *optional*): library that makes token ids.
            `"auto"` uses nanotoken or gigatoken if the extra `fast` is installed and they support the tokenizer, and
            `tokenizers` otherwise. The name of a library raises if that cannot be used. All return the same ids, see
            `hf_posenc.tokenization.FastBackend`.
        return_tensors (`"pt"` or `"np"`, *optional*): return PyTorch tensors or NumPy arrays.

    Returns:
        `collate(rows)` returns a `Batch` with these keys; with `model`, only those that are arguments of its forward:

        - `input_ids`, `attention_mask` and `position_ids`: (B, T) int64.
        - `token_type_ids`: (B, T) int64, if they are in `tokenizer.model_input_names`.
        - `look_ahead_mask`: (B, 1, T, T) bool, a view of one T×T matrix.
        - `labels`: int64 or float32 as losses expect, if rows have labels that are not all None.
        - `inputs_embeds`: (B, T, D) in the dtype of the table, with `embedding`.
        - With `packing="flat"`, B is 1 and T the number of tokens, and there is no `attention_mask`. `seq_idx`, (1, T)
          int32, numbers the documents. `cu_seq_lens_q` and `cu_seq_lens_k`, int32, are their offsets. `max_length_q`
          and `max_length_k`, `int`, are the length of the longest. With `pad_to_multiple_of` it is rounded up, and the
          last offset is repeated up to a power of two, at least 16, for few shapes.

        The first key is `input_ids`, or `inputs_embeds` if there are no ids. With `embedding` every tensor is on the
        device of the table, otherwise on the CPU.

        Tokenized rows may be padded or packed: padding and gaps are left out, and the tokens of a document are brought
        together. `document_ids` or `seq_idx`, `seq_lengths`, `cu_seq_lens_q`, `position_ids` that restart, or numbers
        1, 2, ... in `attention_mask` separate the documents of a row.

        Other numeric columns are int64, bool or floats. Floats keep their dtype (float64 for Python floats), but are
        float32 with `model`. A column of texts, empty lists or None is left out with a warning. A column that mixes
        numbers and other values raises.

    Raises:
        ValueError: for wrong settings or rows, with the row, the column, the value and the limit; for settings that
            `model` cannot use.
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
    _watched: list[WatchedTokenizer]
    _module: weakref.ref[Any] | None

    def __post_init__(self) -> None:
        arguments = {field.name: getattr(self, field.name) for field in dataclasses.fields(Settings)}
        config = Config(Settings(**arguments))
        vars(self).update(vars(config.settings) | config.limits_in_use(), _config=config, _warnings=Warnings())
        if isinstance(arguments["tokenizer"], str | Path) and config.tokenizer.name_or_path:
            save.warn_of_saved(config.tokenizer.name_or_path)
        # Objects that users may change, and the model, to see if it is in training mode; `None` after pickling.
        self._watched = watched(arguments["tokenizer"], config.tokenizer, self.padding_side)
        self._module = None if isinstance(arguments["model"], ModelSpec | None) else weakref.ref(arguments["model"])

    @property
    def first_position(self) -> int:
        """Position id of a document's first token: that of `model` (2 for RoBERTa), or else that of `embedding`."""
        return self._config.first_position

    @property
    def model_input_names(self) -> list[str]:
        """Names of the inputs that the tokenizer makes; `Trainer(processing_class=collate)` reads them."""
        return list(self.tokenizer.model_input_names)

    # -- calls --------------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        fix = None
        if name in self.__dataclass_fields__:
            fix = f"collate = collate.replace({name}={shorten(value)})"
        elif not name.startswith("_") and hasattr(self.tokenizer, name):
            fix = f"tokenizer.{name} = {shorten(value)}, and then a collator of this tokenizer"
        if fix is not None:
            rule = "the settings of a collator cannot be changed, only replaced in a new one"
            raise dataclasses.FrozenInstanceError(explain(rule, got=f"collate.{name} = {shorten(value)}", fix=fix))
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            fix = None
            if not name.startswith("_") and hasattr(vars(self).get("tokenizer"), name):
                fix = (
                    f"collate.tokenizer.{name}; a pipeline takes tokenizer=collate.tokenizer, a trainer "
                    "processing_class=collate.tokenizer"
                )
            raise AttributeError(explain(f"a collator has no attribute '{name}'", fix=fix), name=name, obj=self)

    @overload
    def __call__(self, given: Sequence[Any]) -> Batch: ...  # rows
    @overload
    def __call__(self, given: Mapping[str, Any]) -> Mapping[str, Any]: ...  # columns
    @overload
    def __call__(self, given: Table) -> Table: ...
    @overload
    def __call__(self, given: Any) -> Any: ...  # a data frame
    def __call__(self, given: Any = None, *others: Any, **settings: Any) -> Any:
        """Return columns if `given` is columns, otherwise `batch(given)`.

        Columns are a mapping, a table or a data frame. The result of a mapping is a mapping of the columns that
        `columns(given)` returns and of the given ones, without the texts that were read. If a long text became several
        rows, given values are repeated. `Dataset.map` adds the given columns itself, so the batches that it passes give
        only the new ones. The result of a table or data frame is a `pyarrow.Table` of all columns.
        """
        named = ", ".join(f"{name}={shorten(value)}" for name, value in settings.items())
        if others or "text_pair" in settings:
            fix = "collate(list(zip(texts, pairs))), or rows such as {'text': 'I ride', 'label': 1}"
            if isinstance(given, Mapping):
                fix = "dataset.map(collate, batched=True), without with_indices= and with_rank="
            elif isinstance(given, str):
                fix = "collate([(text, pair)])"
            got = ", ".join([*map(shorten, (given, *others)), *filter(None, [named])])
            raise type_error("collate(...) takes one argument, rows or columns", got=got, fix=fix)
        if settings:
            fix = f"DataCollatorWithPositionalEncoding(tokenizer, {named}), or collate.replace({named})(rows)"
            if given is None:
                fix = f"collate(rows), or collate.tokenizer({named})"
            raise type_error(
                "collate(...) takes only rows or columns; settings are arguments of the collator",
                got=named,
                fix=f"{fix}; a pipeline takes tokenizer=collate.tokenizer",
            )
        if not is_columns(given):
            return self.batch(given)
        tokenized = self._to_documents(given)
        columns = self._new_columns(tokenized)
        carried = {name: values for name, values in tokenized.per_row.items() if name not in columns}
        if is_lazy_batch(given):  # `map` adds its columns, but for those in its `remove_columns`
            is_same = np.array_equal(tokenized.given_row, np.arange(len(tokenized.given_row)))
            given.update(to_mapping({} if is_same else carried))
            return to_mapping(columns)
        if isinstance(given, Mapping):
            carried = {name: values for name, values in carried.items() if name not in tokenized.text_columns}
            return to_mapping(columns | carried)
        if self.return_overflowing_tokens:
            check_repeated(carried)
        return to_table(columns | carried)

    def __len__(self) -> int:
        """Raise `TypeError`: the vocabulary is that of the tokenizer."""
        raise type_error("a collator has no length", got="len(collate)", fix="len(collate.tokenizer) for its ids")

    def __bool__(self) -> bool:
        """Return True, as for objects without `__len__`."""
        return True

    def batch(self, given: Any) -> Batch:
        r"""Return a padded batch from rows or from columns.

        Args:
            given: a `str`, a sequence of texts, pairs, row dicts or token ids; or columns.

        Returns:
            `Batch`, see the class. Its `inputs_embeds` have no gradient; `embed` returns embeddings with gradient.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
            RuntimeError: if a collator with `embedding` runs in a `DataLoader` worker, where it would hang or use
                outdated weights.
        """
        batch = self._collate(given)
        if self.embedding is None:
            return self._fitted(batch)
        embedder = self._config.embedder
        if embedder.missing is not None:
            self._warnings.once("missing table", embedder.missing.message())
            return self._fitted(batch)
        # Under Trainer, accelerate fetches a batch ahead: these would be the weights before the last optimizer step.
        if embedder.is_training:
            self._warnings.once(
                "snapshot",
                "collate(...) embeds with the present weights and without gradient",
                got="a trainable table in training mode",
                fix="collate.embed(batch) inside the training loop; under Trainer let the model embed input_ids",
            )
        with torch.no_grad():
            return self._fitted(embedder.embed(batch))

    def columns(self, given: Any) -> Any:
        r"""Tokenize columns or rows, and return the new columns. They are padded only with `padding="max_length"`.

        For `map(collate.columns, input_columns="text", batched=True)`, and for streams that remove other columns.
        `collate(columns)` returns the given columns, too.

        Args:
            given: columns (a mapping, a `pyarrow.Table`, a `pandas.DataFrame`) or rows.

        Returns:
            A `dict` of NumPy arrays, or of lists of arrays if rows differ in length; a `pyarrow.Table` for a table or a
            data frame. The columns are `tokenizer.model_input_names`, `length`, and columns with one value per token
            that tokenized rows have; also `labels` of targets, and with `return_overflowing_tokens`
            `overflow_to_sample_mapping`. Rows with boundaries of documents get `document_ids` and `position_ids`, and
            their `attention_mask`, if given, has the numbers 1, 2, ... of the documents. Labels made from ids are not
            stored, unless rows have masks such as `completion_mask`; `batch` makes them.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
        """
        columns = self._new_columns(self._to_documents(given))
        return to_table(columns) if is_columns(given) and not isinstance(given, Mapping) else to_mapping(columns)

    def embed(self, given: Any, *, out: torch.Tensor | None = None) -> Batch:
        r"""Return a batch with embeddings from the current weights, with gradient, on the table's device.

        Args:
            given (`Batch`, or any input of `batch`): a batch of tensors, which only gets embeddings; or rows or
                columns, which are made a batch first. The `position_ids` of a `dict` on an accelerator are waited for;
                those of a `Batch` that its `to` moved there are not.
            out (`torch.Tensor` `(..., D)`, *optional*): contiguous memory for at least B·T vectors, with the dtype and
                device of the table. `inputs_embeds` is a view of the first B·T vectors of `out`; the next call with the
                same `out` overwrites it. Raises if gradients are recorded. Reusing memory is several times faster than
                allocating it. By default new memory is allocated.

        Returns:
            A new `Batch` with `inputs_embeds` (B, T, D) in the table's dtype. All tensors are on the table's device.

        Raises:
            ValueError: if there is no table, for example after pickling.

        Example:
            >>> from tokenizers import Tokenizer, models
            >>> table = torch.nn.Embedding(3, 4)
            >>> words = {"[PAD]": 0, "[UNK]": 1, "hi": 2}
            >>> raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
            >>> collate = DataCollatorWithPositionalEncoding(raw, embedding=table)
            >>> collate.embed(["hi"])["inputs_embeds"].requires_grad
            True
        """
        self._config.embedder.ready()  # raises if there is no table
        is_batch = isinstance(given, Mapping) and isinstance(given.get("input_ids"), torch.Tensor)
        batch = Batch(given, **self._view) if is_batch else self._collate(given)
        return self._fitted(self._config.embedder.embed(batch, out))

    def batches(self, texts: Any, token_budget: int, *, window: int = 20_000) -> Batches:
        r"""Return an iterable over batches of texts, or tokenized rows, of similar length, for inference.

        Its method `in_order` puts the results of the batches in the order of the texts. The texts are tokenized one
        window at a time, and a batch is padded when the loop reaches it. Each batch has the keys that `batch` returns.

        Args:
            texts: rows or columns as in `batch`, or an iterable of rows such as a generator or a streamed data set.
            token_budget (`int`): maximal number of tokens in a batch, padding included. Tokens of targets do not count.
            window (`int`, *optional*, defaults to 20,000): number of texts that are tokenized and sorted by length
                together. A larger window needs less padding and more memory: 8 bytes per token of a window, for each
                column such as `input_ids`.

        Returns:
            `Batches`: an iterable of `Batch`, with the method `in_order(results)`. Each text is in exactly one batch.

        Raises:
            ValueError: with `packing` or `on_no_labels="skip"`, because a text may then have no row of its own. The
                loop over the batches raises it for a row of more tokens than the budget, and for the bad rows that
                `batch` refuses.
            TypeError: if `texts` is not an iterable, or `token_budget` or `window` is not an integer.

        Example:
            >>> from tokenizers import Tokenizer, models, pre_tokenizers
            >>> raw = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
            >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
            >>> table = torch.nn.EmbeddingBag(4, 2, padding_idx=0)
            >>> batches = DataCollatorWithPositionalEncoding(raw).batches(["a", "b b b", "b a", "a a b"], 6)
            >>> [tuple(batch.input_ids.shape) for batch in batches]
            [(2, 3), (2, 2)]
            >>> batches.in_order(table(batch.input_ids) for batch in batches).shape
            torch.Size([4, 2])
        """
        return Batches(self, texts, token_budget, window)

    # -- reading a batch ----------------------------------------------------------------------------------------------

    def tokens(self, batch: Any) -> list[list[str]]:
        r"""Return the token strings of every row, including padding tokens.

        Args:
            batch: a batch with `input_ids` (B, T), or an array of ids (B, T) such as `batch["labels"]`.

        Returns:
            B lists of T `str`. -100, which is not an id, is returned as `"-100"`.
        """
        return [self._tokens_of(row) for row in _rows_of_ids(batch)]

    def decode(self, batch: Any, *, skip_special_tokens: bool = True) -> list[str] | str:
        r"""Return the text of every row.

        Args:
            batch: a batch with `input_ids` (B, T), and with `attention_mask` if rows are padded; or an array of ids
                (B, T) such as `batch["labels"]` or the result of `generate`. One row of ids (T,) returns one string.
            skip_special_tokens (`bool`, *optional*, defaults to `True`): leave out special tokens such as `[CLS]`.

        Returns:
            B strings, without -100. In a batch, tokens with 0 in the mask are left out, because the padding id may also
            be the id of a real token. An array of ids has no mask: padding tokens in it are left out only if they are
            special tokens and `skip_special_tokens` is True.
        """
        row = batch.tolist() if hasattr(batch, "tolist") else batch
        if isinstance(row, list) and row and isinstance(row[0], int):
            return self.decode([row], skip_special_tokens=skip_special_tokens)[0]
        ids = _rows_of_ids(batch)
        is_token = real_tokens(batch, self._config.padding_id) if isinstance(batch, Mapping) else None
        keep = [[True] * len(row) for row in ids] if is_token is None else is_token.tolist()
        return [
            str(
                self.tokenizer.decode(
                    [token for token, is_real in zip(row, kept, strict=True) if is_real and token >= 0],
                    skip_special_tokens=skip_special_tokens,
                )
            )
            for row, kept in zip(ids, keep, strict=True)
        ]

    def features(self, rows: Any, *, remove_columns: str | Sequence[str] = ()) -> Features:
        r"""Return the types of the columns that `columns(rows)` returns, for `dataset.map(collate, features=...)`.

        Args:
            rows (`datasets.Dataset` or `IterableDataset`, columns or rows): only the first few rows are read.
            remove_columns (`str` or sequence of `str`, *optional*): names of given columns to leave out, as in the
                argument `remove_columns` of `map`.

        Returns:
            `datasets.Features`. `inputs_embeds` is an `Array2D`, the fastest feature to write and read.
        """
        dropped = {remove_columns} if isinstance(remove_columns, str) else set(remove_columns)
        return features_of(self._config, rows, dropped)

    # -- copies, files and comparison ---------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> DataCollatorWithPositionalEncoding:
        r"""Return a new collator with some arguments changed, and the others as in this one.

        Both collators share one parsed tokenizer, unless `tokenizer` or `pad_token` is changed.

        Args:
            **changes: arguments of the class.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            TypeError: for an argument that does not exist.
            ValueError: if an `nn.Embedding` or a width replaces a `PositionalEmbedding` with settings of its own.
        """
        check_exchange(self.embedding, changes.get("embedding"))
        allows_more = changes.keys() & {"model", "tokenizer", "embedding"}  # the given limits may be possible now
        limits = {} if allows_more else self._config.saved
        settings = {**vars(self._config.settings), **limits, **changes}
        if not changes.keys() & {"tokenizer", "pad_token"} and calls_only_rust(self.tokenizer):
            settings["tokenizer"] = sharing_copy(self.tokenizer)
        with save.on_device(self._config.embedder.device):
            collator = type(self)(**settings)
        if "tokenizer" not in changes:
            collator._watched += self._watched
        if "model" not in changes:
            collator._module = self._module
        return collator

    def save_pretrained(self, save_directory: Any) -> list[str]:
        r"""Save the collator in a folder: `hf_posenc.json` and the tokenizer's files.

        Weights are never saved. `backend` is not saved either, because it does not change the output; the loaded
        collator has the default.

        Args:
            save_directory (`str` or `Path`): the folder, created if missing.

        Returns:
            `list` of the written paths.
        """
        return save.save(
            save_directory, self.tokenizer, (*self._state[:-1], self._config.embedder.state(weights=False))
        )

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload collator",
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ) -> Any:
        r"""Upload the files of `save_pretrained` to the Hub, with a `README.md` that shows how to load the collator.

        The `README.md` also lists the settings. If the repository already has one, it is kept.

        Args:
            repo_id (`str`): the repository, such as `"me/my-collator"`, created if missing.
            commit_message (`str`, *optional*, defaults to `"Upload collator"`): message of the commit.
            private (`bool`, *optional*): visibility of a new repository.
            token (`str` or `bool`, *optional*): by default the token of `hf auth login`.
            revision (`str`, *optional*): a branch, created if missing.
            create_pr (`bool`, *optional*, defaults to `False`): open a pull request.

        Returns:
            `huggingface_hub.CommitInfo`.
        """
        return save.push(
            self,
            repo_id,
            token=token,
            private=private,
            revision=revision,
            create_pr=create_pr,
            commit_message=commit_message,
        )

    @classmethod
    def from_pretrained(cls, name: Any, **settings: Any) -> DataCollatorWithPositionalEncoding:
        r"""Load a collator saved by `save_pretrained` or `push_to_hub`.

        Args:
            name (`str` or `Path`): a folder, or a repository on the Hub.
            **settings: arguments of the class, such as `labels=None` or `model=model`, which replace the saved ones;
                and `cache_dir`, `force_download`, `local_files_only`, `proxies`, `revision`, `subfolder` and `token`,
                as in `AutoTokenizer.from_pretrained`. Remote code is never run.

        A table is not saved: pass `embedding=` again, and in place of a `PositionalEmbedding` one with the same
        settings; a bare table raises with the line to write. Without a table, the first batch warns, and batches have
        no embeddings. A width is saved. The saved `model` is a `ModelSpec`.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            ValueError: if a file is missing, or has a newer format.
            TypeError: for an argument, or a key of the file, that does not exist.
        """
        collator: DataCollatorWithPositionalEncoding = save.load(cls, name, settings)
        return collator

    def __reduce__(self) -> tuple[Any, ...]:
        # `datasets` hashes this, too: equal collators have one fingerprint in every process, also after use.
        return save.rebuild, (*self._state, save.pickled_backend(self.backend))

    def __copy__(self) -> DataCollatorWithPositionalEncoding:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DataCollatorWithPositionalEncoding:
        return self  # immutable, and a copy would no longer share the caller's table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataCollatorWithPositionalEncoding) and self._state == other._state

    def __hash__(self) -> int:
        return hash(self._state)

    def __repr__(self) -> str:
        lines = [
            f"tokenizer={type(self.tokenizer).__name__}({number_of_ids(self.tokenizer)} ids)",
            f"embedding={self._config.embedder!r}",
            *(
                f"{name}=<ModelSpec of {value.name}>" if isinstance(value, ModelSpec) else f"{name}={value!r}"
                for name, value in self.settings().items()
            ),
        ]
        return "\n".join([f"{type(self).__name__}(", *(f"    {line}," for line in lines), ")"])

    # -- steps of a call ----------------------------------------------------------------------------------------------

    @property
    def _state(self) -> save.State:
        """Settings, tokenizer files and embedding as plain values, for pickling, fingerprints and `==`."""
        # The state is not cached, because weights may change.
        table = self._config.embedder.state(weights=self.store_embeddings)
        settings = {name: value for name, value in self._config.saved.items() if name != "backend"}  # changes no output
        settings["device"] = self._config.embedder.device
        return save.state(type(self), self.tokenizer, self._files, settings, table)

    @lock_free_cache
    def _files(self) -> tuple[tuple[str, bytes], ...]:
        return tuple(sorted(to_files(self.tokenizer).items()))

    def _new_columns(self, tokenized: Documents) -> dict[str, Column]:
        module, embedder = None, self._config.embedder
        if self.store_embeddings:
            module = embedder.ready()
            self._warnings.once("size", embedder.stored_size_warning(len(tokenized.ids.values)))
        return to_columns(self._config, tokenized, module)

    def _to_documents(self, rows_or_columns: Any) -> Documents:
        tokenized, messages = to_documents(self._config, rows_or_columns)
        warn_of_tokens(self._config, tokenized, messages, self._watched, self._warnings)
        return tokenized

    def _collate(self, source: Any) -> Batch:
        """Tokenize `source`, unless it is `Documents`, and return a padded batch without embeddings."""
        # torch sends no tensor that requires a gradient to another process: the worker prints "Cowardly refusing to
        # serialize", and the main process waits for ever.
        if self.embedding is not None and torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                explain(
                    "a collator with an embedding cannot run in a DataLoader worker: tensors would hang or be stale",
                    got=f"embedding={self._config.embedder!r}",
                    fix="collate without embedding, then collate.embed(batch) in the training loop, or let the model "
                    "embed (use_sinusoidal_positions(model)); or num_workers=0",
                )
            )
        tokenized = source if isinstance(source, Documents) else self._to_documents(source)
        if not len(tokenized.ids):
            raise ValueError(empty_batch(source))
        arrays, left_out = arrange(self._config, tokenized)
        warn_of_batch(self._config, tokenized, arrays, left_out, self._warnings)
        # Rows of `batches` are not those of one call, and texts alone have nothing to warn of.
        if tokenized is not source and (tokenized.per_row or self.model is not None):
            is_training = self._module is not None and getattr(self._module(), "training", False)
            warn_of_source(self._config, tokenized, arrays, self._warnings, is_training=is_training)
        values: Mapping[str, Any] = arrays
        if self.return_tensors == "pt":  # the lengths of a flat batch are integers
            values = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
        elif "look_ahead_mask" in arrays:  # a view: a value written to one row would change all rows
            arrays["look_ahead_mask"].flags.writeable = False
        return Batch(values, **self._view)

    def _fitted(self, batch: Batch) -> Batch:
        """Remove from `batch`, in place, the keys that the collator's model does not accept, and return `batch`."""
        model = self.model
        if model is None:
            return batch
        if self._config.warning_of_ids is not None:
            self._warnings.once("ids", self._config.warning_of_ids)
        mask = batch._near.get("attention_mask") if self._config.side == "left" else None
        is_padded = mask is not None and not mask.all()
        if is_padded and (message := left_padding_warning(model, self._config.has_targets)):
            self._warnings.once("left padding", message)
        return fit_batch(batch, model)

    @lock_free_cache
    def _view(self) -> dict[str, Any]:
        """Arguments of `Batch` for its display in a notebook."""
        settings, model = self._config.settings, self.model
        view: dict[str, Any] = {"tokens_of": self._tokens_of, "special_ids": frozenset(self.tokenizer.all_special_ids)}
        view["labels_are_ids"] = None if self._config.has_targets else settings.labels is not None
        if settings.embedding is not None and self._config.embedder.missing is None:
            encoding = self._config.embedder.module.encoding
            if isinstance(encoding, SinusoidalPositionalEncoding):
                return view | {"encoding": encoding}
        elif model is None:  # the page shows example sinusoids
            return view
        return view | {"encoding_note": "No encoding is shown: the batch contains no sinusoids."}

    def _tokens_of(self, ids: Sequence[int]) -> list[str]:
        tokens = self.tokenizer.convert_ids_to_tokens([max(token, 0) for token in ids])
        return [str(token) if number >= 0 else str(number) for token, number in zip(tokens, ids, strict=True)]


def _rows_of_ids(source: Any) -> list[list[int]]:
    """Return the ids of a batch, tensor, array or list as one list per row; raise if `source` has no rows of ids."""
    if isinstance(source, Mapping):
        source = source["input_ids"]
    rows = source.tolist() if hasattr(source, "tolist") else source
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise value_error(
            "ids to be read come as rows, (batch, length)",
            got=shorten(source),
            fix="a batch, batch['labels'], model.generate(...), or one row as [row]",
        )
    return rows

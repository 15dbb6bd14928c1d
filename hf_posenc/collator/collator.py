"""The collator: text in, position-aware model inputs out, through whichever socket it is plugged into.

Chooses and arranges; reading, tokenising, padding, masking, embedding and saving each have a room of their own.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from .._explain import explain
from ..batch import Batch
from ..embedding import PositionalEmbedding
from ..ragged import PaddingSide
from ..sinusoid import resolve_convention
from ..tokenization.encoding import Encoder
from ..tokenization.loading import number_of_ids, private_copy, to_files
from . import saving, settings
from .arrange import PER_TOKEN, Pieces, pieces
from .inputs import Given, TextColumns, is_columns, is_table, read
from .labels import IGNORED, Masking
from .outputs import features_of, to_columns, to_mapping, to_table
from .rectangle import rectangle
from .table import TableLeftBehind, check_table, table_of_width

if TYPE_CHECKING:
    from datasets import Features
    from torch import nn
    from transformers import PreTrainedTokenizerBase

    from ..sinusoid import Convention

# Tokenizers without a limit say 1e30.
_NO_LIMIT = 10**9


@settings.refuses_unknown_keywords
@dataclass(frozen=True, eq=False, repr=False)
class DataCollatorWithPositionalEncoding:
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
            frozen table of random numbers (from `seed`); a table of yours is used as it is at that moment.
        text_column, text_pair_column, text_target_column (`str`, *optional*): where texts stand in rows and columns; a
            target becomes `labels`.
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
            smaller of this one and the tokenizer's.
        max_target_length (`int`, *optional*): the same for targets.
        return_overflowing_tokens (`bool`, *optional*), stride (`int`, *optional*): carry the rest of a long text into
            further rows, with `overflow_to_sample_mapping`; neighbours share `stride` tokens.
        add_special_tokens (`bool`, *optional*, defaults to `True`): as transformers spells it.
        empty (`"error"` or `"keep"`, *optional*): what a text without tokens gets.
        look_ahead (`bool`, *optional*): whether `look_ahead_mask` is in the batch; it is by default.
        packing (`bool`, *optional*): several documents share a row of `max_length` tokens; `position_ids` restart and
            `document_ids` tell them apart.
        labels (`"causal_lm"` or `"masked_lm"`, *optional*): labels made from the ids; otherwise a `label`, `label_ids`
            or `labels` column becomes `labels`, padded with -100 where there is one label a token.
        mlm_probability, mask_replace_prob, random_replace_prob, whole_word_mask (*optional*): as in transformers.
        seed (`int`, *optional*): the same masks for the same document in every evaluation.
        convention (`str` or `Convention`, *optional*), base (`float`, *optional*), scale (`"sqrt_d"` or `float`,
            *optional*), dropout (`float`, *optional*), zero_padding (`bool`, *optional*): see `PositionalEmbedding`.
        device (*optional*): where the table of an `embedding` given as a width lies.
        store_embeddings (`bool`, *optional*): columns too get `inputs_embeds`, and the table travels with the collator.
        return_tensors (`"pt"` or `"np"`, *optional*): what a batch holds.

    Returns:
        `collate(rows)` is a `Batch`: `input_ids` (B, T) int64, `attention_mask` (B, T) int64, `token_type_ids` (B, T)
        int64 where the tokenizer names them, `position_ids` (B, T) int64, `look_ahead_mask` (B, 1, T, T) bool, a view
        of one T×T matrix; `labels` and other columns of numbers where there are any; with `embedding`, `inputs_embeds`
        (B, T, D) in its dtype, and every tensor on its device, else on the CPU.

    Raises:
        ValueError: for settings or rows that are wrong, with the row, the column and both numbers.
        TypeError: for the wrong kind of tokenizer, embedding, text or keyword.

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
    """

    tokenizer: Any
    _: KW_ONLY
    embedding: int | nn.Embedding | PositionalEmbedding | TableLeftBehind | None = None
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
    add_special_tokens: bool = True
    empty: str = "error"
    look_ahead: bool | None = None
    packing: bool = False
    labels: str | None = None
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    whole_word_mask: bool = False
    seed: int | None = None
    convention: str | Convention = "vaswani"
    base: float | None = None
    scale: Literal["sqrt_d"] | float | None = None
    dropout: float = 0.0
    zero_padding: bool = True
    device: Any = None
    store_embeddings: bool = False
    return_tensors: str = "pt"

    def __post_init__(self) -> None:
        settings.check(self)
        mine = private_copy(self.tokenizer, pad_token=self.pad_token)
        # The frozen dataclass is still being built: its tokenizer becomes ours, its limit the one in force.
        object.__setattr__(self, "tokenizer", mine)
        limit = self._limit(self.max_length)
        object.__setattr__(self, "_asked_max_length", None if self.max_length is None else limit)
        object.__setattr__(self, "max_length", limit)
        object.__setattr__(self, "_said", set())
        settings.check_room(
            self.max_length,
            special=self._special_tokens(),
            multiple=self.pad_to_multiple_of,
            padding=settings.padding_of(self.padding),
            truncation=settings.truncation_of(self.truncation),
        )
        if mine.pad_token_id is None and settings.padding_of(self.padding) != "do_not_pad":
            raise ValueError(settings.no_pad_token(mine))
        if self.packing and self.max_length is None:
            raise ValueError(
                explain("packing=True needs the capacity of a row", got="max_length=None", fix="max_length=1024")
            )
        self._take_embedding()
        # Built now, so that what is wrong with them is said now.
        _ = self._encoder, self._target_encoder, self._masking

    # -- the sockets ---------------------------------------------------------------------------------------------

    def __call__(self, given: Any) -> Any:
        """`batch(given)` for rows, `columns(given)` for columns."""
        return self.columns(given) if is_columns(given) else self.batch(given)

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
            return batch
        if isinstance(self.embedding, TableLeftBehind):
            self._warn_once("left behind", self.embedding.refusal())
            return batch
        table = self._embedder
        if table.training and any(weight.requires_grad for weight in table.parameters()):
            self._warn_once(
                "snapshot",
                explain(
                    "collate(...) embeds with the weights of this moment and without gradient",
                    got="a trainable table in training mode",
                    fix="collate.embed(batch) inside the training loop; under Trainer let the model embed input_ids",
                ),
            )
        with torch.no_grad():
            return self._embedded(batch)

    def columns(self, given: Any) -> Any:
        r"""Tokenised columns: rows in the order they came, not padded unless `padding="max_length"`.

        Args:
            given: columns (a mapping, a `pyarrow.Table`, a `pandas.DataFrame`) or rows.

        Returns:
            A `dict` of NumPy arrays, or of lists of them where rows differ in length; a `pyarrow.Table` for a table. It
            holds what `tokenizer.model_input_names` lists, `length`, and every column that came, repeated for each
            piece of a long text when pieces are asked for (`overflow_to_sample_mapping`). `batch` makes the labels.

        Raises:
            ValueError, TypeError: for bad rows, see the class.
        """
        rows = self._pieces(read(given, self._names))
        embedder = None
        if self.store_embeddings:
            embedder = self._embedder
            self._warn_once("size", self._size_of_stored(rows))
        columns = to_columns(self._how, rows, embedder)
        return to_table(columns) if is_table(given) else to_mapping(columns)

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
        if isinstance(self.embedding, TableLeftBehind):
            raise ValueError(self.embedding.refusal())
        is_batch = isinstance(given, Mapping) and isinstance(given.get("input_ids"), torch.Tensor)
        return self._embedded(Batch(given, tokens_of=self._tokens_of) if is_batch else self._collate(given))

    # -- reading a batch -----------------------------------------------------------------------------------------

    def tokens(self, batch: Mapping[str, Any]) -> list[list[str]]:
        r"""The tokens of every row, padding included: one `str` a column.

        Args:
            batch (mapping): with `input_ids` (B, T).

        Returns:
            B lists of T `str`.
        """
        return [self._tokens_of(row) for row in batch["input_ids"].tolist()]

    def decode(self, batch: Mapping[str, Any], *, skip_special_tokens: bool = True) -> list[str]:
        r"""The text of every row.

        Args:
            batch (mapping): with `input_ids` (B, T), and `attention_mask` where rows are padded.
            skip_special_tokens (`bool`, *optional*, defaults to `True`): leave `[CLS]` and the like out.

        Returns:
            B `str`. Padding is left out by the mask, so that an end-of-sequence token is not taken for it.
        """
        ids = batch["input_ids"].tolist()
        keep = batch["attention_mask"].tolist() if "attention_mask" in batch else [[1] * len(row) for row in ids]
        real = [
            [token for token, is_real in zip(*pair, strict=True) if is_real] for pair in zip(ids, keep, strict=True)
        ]
        return [str(self.tokenizer.decode(row, skip_special_tokens=skip_special_tokens)) for row in real]

    def features(self, rows: Any) -> Features:
        r"""The `datasets.Features` of what `columns` gives for such rows, for `dataset.map(collate, features=...)`.

        Args:
            rows (`datasets.Dataset`, or anything that `columns` takes): only its first rows are looked at.

        Returns:
            `datasets.Features`; embeddings are `Array2D`, which stores and reads fastest.
        """
        return features_of(self, rows)

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
        """
        return type(self)(**{**self._settings(), "tokenizer": self.tokenizer, "embedding": self.embedding, **changes})

    def save_pretrained(self, save_directory: Any, **_ignored: Any) -> list[str]:
        r"""Writes `hf_posenc.json` and the tokenizer's files: settings and vocabulary, never weights.

        Args:
            save_directory (`str` or `Path`): made if missing.

        Returns:
            The paths written.
        """
        return saving.save(self, save_directory)

    @classmethod
    def from_pretrained(cls, name: Any, *, embedding: Any = None) -> DataCollatorWithPositionalEncoding:
        r"""Reads what `save_pretrained` wrote.

        Args:
            name (`str` or `Path`): a folder, or a repository on the Hub.
            embedding (*optional*): the table, which is never saved; a width is.

        Returns:
            `DataCollatorWithPositionalEncoding`.

        Raises:
            ValueError: if there is no such file, its format is newer, or a key in it is unknown.
        """
        return saving.load(cls, name, embedding=embedding)

    def __reduce__(self) -> tuple[Any, ...]:
        return saving.rebuild, saving.state(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and saving.state(self) == saving.state(other)

    def __hash__(self) -> int:
        return hash(saving.state(self)[2])

    def __repr__(self) -> str:
        lines = [f"tokenizer={type(self.tokenizer).__name__}({number_of_ids(self.tokenizer)} ids)"]
        for name, value in {**self._settings(), "max_length": self.max_length}.items():
            lines.append(f"{name}={value!r}")
        lines.insert(1, f"embedding={self._describe_embedding()}")
        return "\n".join([f"{type(self).__name__}(", *(f"    {line}," for line in lines), ")"])

    # -- how it is done ------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> TextColumns:
        return TextColumns(self.text_column, self.text_pair_column, self.text_target_column, self.is_split_into_words)

    @cached_property
    def _encoder(self) -> Encoder:
        return self._make_encoder(self.tokenizer, self.max_length)

    @cached_property
    def _target_encoder(self) -> Encoder | None:
        if self.text_target_column is None:
            return None
        target = private_copy(self.tokenizer)
        if hasattr(target, "_switch_to_target_mode"):
            target._switch_to_target_mode()
        return self._make_encoder(target, self._limit(self.max_target_length), overflow=False)

    def _make_encoder(self, tokenizer: PreTrainedTokenizerBase, limit: int | None, *, overflow: bool = True) -> Encoder:
        return Encoder(
            tokenizer,
            max_length=limit,
            truncation=settings.truncation_of(self.truncation),
            overflow=overflow and self.return_overflowing_tokens,
            stride=self.stride,
            add_special_tokens=self.add_special_tokens,
            is_split_into_words=self.is_split_into_words,
            words=self.whole_word_mask,
        )

    @cached_property
    def _masking(self) -> Masking | None:
        if self.labels != "masked_lm":
            return None
        return Masking(
            self.tokenizer,
            seed=self.seed,
            mlm_probability=self.mlm_probability,
            mask_replace_prob=self.mask_replace_prob,
            random_replace_prob=self.random_replace_prob,
            whole_word_mask=self.whole_word_mask,
        )

    @cached_property
    def _table_rows(self) -> int | None:
        """How many ids can be embedded, where there is a table."""
        table = self.embedding
        if table is None or isinstance(table, TableLeftBehind):
            return None
        return number_of_ids(self.tokenizer) if isinstance(table, int) else int(table.num_embeddings)

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return to_files(self.tokenizer)

    @cached_property
    def _embedder(self) -> PositionalEmbedding:
        """Made on first use, so that a worker that never embeds never makes a table."""
        table = self.embedding
        if isinstance(table, PositionalEmbedding):
            return table
        if isinstance(table, int):
            table = table_of_width(table, self.tokenizer, self.seed or 0, self.device)
        assert table is not None
        assert not isinstance(table, TableLeftBehind)
        made = PositionalEmbedding(
            table,
            convention=self.convention,
            base=self.base,
            scale=self.scale,
            dropout=self.dropout,
            zero_padding=self.zero_padding,
        )
        return made.train(table.training)

    def _take_embedding(self) -> None:
        """Checks the table, and lets the settings say what a `PositionalEmbedding` brings along."""
        convention = resolve_convention(self.convention)
        if self.embedding is None or isinstance(self.embedding, TableLeftBehind):
            return
        if self.device is not None and not isinstance(self.embedding, int):
            raise ValueError(
                explain(
                    "device= places the table of a width; a table of yours stays where it is",
                    got=f"device={self.device!r}",
                    fix="embedding=table.to(device)",
                )
            )
        check_table(self.embedding, number_of_ids(self.tokenizer))
        if isinstance(self.embedding, PositionalEmbedding):
            brought = self.embedding
            own = {field.name: field.default for field in dataclasses.fields(self)}
            for name in ("convention", "base", "scale", "dropout", "zero_padding"):
                theirs = getattr(brought, name, getattr(brought.encoding, name, None))
                mine = convention if name == "convention" else getattr(self, name)
                unset = getattr(self, name) == own[name]
                if not unset and mine != theirs:
                    raise ValueError(
                        explain(
                            f"{name}= is set by the PositionalEmbedding that was given",
                            got=f"{name}={getattr(self, name)!r}, and {theirs!r} in the embedding",
                            fix=f"leave {name}= out, or give its table: embedding=embedding.embedding",
                        )
                    )
                object.__setattr__(self, name, theirs)
        elif not isinstance(self.embedding, int):
            _ = self._embedder  # a model, or anything else that is no table, is refused here

    def _limit(self, asked: int | None) -> int | None:
        """One effective limit: the smaller of what was asked for and what the tokenizer says, if that is sane."""
        theirs = self.tokenizer.model_max_length
        limits = [limit for limit in (asked, theirs if theirs and theirs < _NO_LIMIT else None) if limit is not None]
        if asked is not None and min(limits) < asked:
            warnings.warn(
                explain(
                    f"max_length={asked} is beyond the tokenizer's own limit, so {min(limits)} is in force",
                    fix=f"tokenizer.model_max_length = {asked}, if the model takes that many",
                ),
                stacklevel=6,
            )
        return int(min(limits)) if limits else None

    def _special_tokens(self) -> int:
        if not self.add_special_tokens:
            return 0
        return int(self.tokenizer.num_special_tokens_to_add(pair=self.text_pair_column is not None))

    @cached_property
    def _how(self) -> settings.Arrangement:
        tokenizer = self.tokenizer
        fills = dict.fromkeys(PER_TOKEN, 0) | {"special_tokens_mask": 1, "word_ids": -1, "labels": IGNORED}
        fills["input_ids"] = int(tokenizer.pad_token_id or 0)
        fills["token_type_ids"] = int(tokenizer.pad_token_type_id)
        return settings.Arrangement(
            limit=self.max_length,
            padding=settings.padding_of(self.padding),
            truncation=settings.truncation_of(self.truncation),
            multiple=self.pad_to_multiple_of,
            side=self.padding_side or tokenizer.padding_side,
            truncation_side=tokenizer.truncation_side,
            overflow=self.return_overflowing_tokens,
            stride=self.stride,
            keep_empty=self.empty == "keep",
            look_ahead=self.look_ahead in (None, True),
            packing=self.packing,
            labels=self.labels,
            has_targets=self.text_target_column is not None,
            start=resolve_convention(self.convention).first_position,
            names=tuple(tokenizer.model_input_names),
            fills=fills,
            table_rows=self._table_rows,
        )

    def _pieces(self, given: Given) -> Pieces:
        """Tokenises what has to be, cuts what is too long, and reports what was lost."""
        rows = pieces(self._how, given, self._encoder, self._target_encoder)
        target_limit = self._target_encoder.max_length if self._target_encoder is not None else None
        for cut, what, limit in ((rows.cut, "texts", self.max_length), (rows.targets_cut, "targets", target_limit)):
            if cut:
                self._warn_once(
                    what,
                    explain(
                        f"{cut} of {given.count} {what} were cut to {limit} tokens",
                        got="said once; further ones are cut without a word",
                        fix="return_overflowing_tokens=True keeps the rest; truncation=False raises instead",
                    ),
                )
        return rows

    def _collate(self, given: Any) -> Batch:
        if self.embedding is not None and torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                explain(
                    "a collator with an embedding cannot run in a DataLoader worker: tensors would hang or be stale",
                    got=f"embedding={self._describe_embedding()}",
                    fix="collate without embedding, then collate.embed(batch) in the training loop, or let the model "
                    "embed (use_sinusoidal_positions(model)); or num_workers=0",
                )
            )
        arrays = rectangle(self._how, self._pieces(read(given, self._names)), self._masking)
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

    def _embedded(self, batch: Batch) -> Batch:
        table = self._embedder
        moved = batch.to(table.embedding.weight.device)
        keep = moved.get("attention_mask")
        if keep is None and "document_ids" in moved:
            keep = (moved["document_ids"] >= 0).long()
        moved["inputs_embeds"] = table(moved["input_ids"], keep, moved.get("position_ids"))
        return moved

    def _tokens_of(self, ids: Sequence[int]) -> list[str]:
        return [str(token) for token in self.tokenizer.convert_ids_to_tokens(list(ids))]

    def _settings(self) -> dict[str, Any]:
        """Every argument but the tokenizer and the table, as it was asked for."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("tokenizer", "embedding")]
        return {**{name: getattr(self, name) for name in names}, "max_length": self.__dict__["_asked_max_length"]}

    def _describe_embedding(self) -> str:
        table = self.embedding
        if table is None or isinstance(table, (int, TableLeftBehind)):
            return repr(table)
        inner = table.embedding if isinstance(table, PositionalEmbedding) else table
        return f"{type(table).__name__}({inner.num_embeddings}, {inner.embedding_dim})"

    def _size_of_stored(self, rows: Pieces) -> str:
        width = self._embedder.d_model
        per_token = width * self._embedder.embedding.weight.element_size()
        total = per_token * len(rows.ids.values)
        return explain(
            f"store_embeddings writes {per_token:,} bytes a token, {per_token // 4} times what ids take",
            got=f"{total / 1e6:,.1f} MB for these {len(rows.ids)} rows",
            fix="store ids and embed when collating: it is faster than reading embeddings back",
        )

    def _warn_once(self, what: str, message: str) -> None:
        said: set[str] = self.__dict__["_said"]
        if what not in said:
            said.add(what)
            warnings.warn(message, stacklevel=4)

"""Ids to vectors with positions, whole blocks of rows at a time: the column that `--embeddings` stores.

Values that travel to any process; torch is loaded where vectors are made, and not before.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..._explain import explain
from ...ragged import Ragged
from .embeddings import resolve_embeddings

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ...embedding import PositionalEmbedding

# What is on the accelerator, or made besides the result, at one time.
_PIECE_BYTES = 1 << 24
# Offsets of Arrow's lists are int32, and so are those that `datasets` reads.
_MOST_VALUES = 2**31 - 1
# What `datasets` calls the type of Array2D. In the field's metadata it is all that a reader without `datasets` skips,
# and a reader with it gets arrays (T, D) without a copy of each token.
_ARRAY_2D = b"datasets.features.features.Array2DExtensionType"
NAME = "inputs_embeds"


@dataclass(frozen=True)
class Vectors:
    r"""A table and an encoding of positions as plain values: a job's embeddings, the same in every process.

    Args:
        d_model (`int`): D.
        rows (`int`): how many ids the table has.
        dtype (`str`): what is stored; a bfloat16 table is stored as float32, since neither NumPy nor Parquet has it.
        digest (`str`): of the numbers and the settings; others have another one.
        first_position (`int`): the position of a document's first token, as its convention counts.
        max_length (`int`, *optional*): how many positions there are, where that is limited.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> from hf_posenc.tokenization.loading import private_copy
        >>> tokenizer = private_copy(Tokenizer(models.WordLevel({"<unk>": 0, "hi": 1}, unk_token="<unk>")))
        >>> vectors = Vectors.of(4, tokenizer)
        >>> vectors.d_model, vectors.dtype, vectors.bytes_per_token
        (4, 'float32', 16)
        >>> ids = Ragged.from_rows([[1, 0, 1], [1]])
        >>> column = vectors.column(ids, ids.counters())
        >>> column.type, [len(row) for row in column]
        (ListType(list<item: list<item: float>>), [3, 1])
    """

    d_model: int
    rows: int
    dtype: str
    digest: str
    first_position: int
    max_length: int | None
    _seed: int | None = field(repr=False)  # of a table that is made of random numbers, which then need not travel
    _packed: tuple[Any, ...] = field(repr=False)  # what `unpacked_with` takes; no table in it where there is a seed

    @classmethod
    def of(
        cls,
        embeddings: int | str | Path | nn.Embedding | PositionalEmbedding,
        tokenizer: Any,
        *,
        seed: int = 0,
        convention: Any = "vaswani",
        base: float | None = None,
        scale: Any = None,
    ) -> Vectors:
        r"""From whatever says which table: it is read once, here, and never changed.

        Args:
            embeddings (`int`, `str`, `Path`, `nn.Embedding` or `PositionalEmbedding`): a width makes a frozen table of
                random numbers, the one that the collator makes of `embedding=`; a name or folder is that of a model,
                whose input embeddings are taken without the positions that it may add to them.
            tokenizer (`PreTrainedTokenizerBase`): whose ids are looked up.
            seed (`int`, *optional*, defaults to 0): of the random numbers.
            convention (`str` or `Convention`, *optional*), base (`float`, *optional*), scale (`"sqrt_d"` or `float`,
                *optional*): see `PositionalEmbedding`, which brings its own.

        Returns:
            `Vectors`.

        Raises:
            ValueError: if the tokenizer has ids that the table has no row for; if there is no such model, or it has no
                table; for a setting that is out of its range, or that the given embedding settles.
            TypeError: if it is none of these.
        """
        from ...collator.weights import digest_with, packed_with, unpacked_with
        from ...tokenization.loading import number_of_ids

        settings = {"convention": convention, "base": base, "scale": scale}
        whole = resolve_embeddings(embeddings, number_of_ids(tokenizer), seed, settings)
        is_made = isinstance(embeddings, int)
        packed = packed_with(whole)
        mine = unpacked_with(*packed)
        _try(mine)  # here, so that what it warns of is said once, and not by every worker
        dtype = str(mine.embedding.weight.dtype).removeprefix("torch.")
        return cls(
            d_model=mine.d_model,
            rows=mine.num_embeddings,
            dtype="float32" if dtype == "bfloat16" else dtype,
            digest=digest_with(mine.embedding, mine.encoding),
            first_position=mine.encoding.first_position,
            max_length=mine.encoding.max_length,
            _seed=seed if is_made else None,
            _packed=((), *packed[1:]) if is_made else packed,
        )

    @property
    def bytes_per_token(self) -> int:
        """What a token's vector takes."""
        return self.d_model * np.dtype(self.dtype).itemsize

    def field(self) -> tuple[pa.Field, dict[str, Any]]:
        r"""The column for a Parquet schema, and the feature for its "huggingface" metadata.

        Returns:
            `pyarrow.Field`, lists of lists whose metadata says Array2D to `datasets`, and the feature as JSON holds it.
            Read back, that is 15 to 30 times as fast as lists of lists are, and a row is an array `(T, D)`.
        """
        shape = [None, self.d_model]
        kind = {
            b"ARROW:extension:name": _ARRAY_2D,
            b"ARROW:extension:metadata": json.dumps([shape, self.dtype]).encode(),
        }
        values = pa.list_(pa.list_(pa.from_numpy_dtype(self.dtype)))
        return pa.field(NAME, values, metadata=kind), {"shape": shape, "dtype": self.dtype, "_type": "Array2D"}

    def column(self, ids: Ragged, positions: Ragged) -> pa.ListArray:
        r"""The vectors of whole rows, made on the accelerator where there is one.

        Args:
            ids (`Ragged`): the rows.
            positions (`Ragged`): the position of each token; used as they are, so they may restart inside a row.

        Returns:
            `pyarrow.ListArray` of lists of `dtype`, of the type that `field` says: a vector for each token.

        Raises:
            ValueError: if the shapes differ, an id has no row, a position is beyond `max_length`, or there are more
                numbers than a list column can hold.
        """
        if not np.array_equal(ids.lengths, positions.lengths):
            raise ValueError(
                explain(
                    "each token needs a position of its own",
                    got=f"{len(ids.values)} tokens and {len(positions.values)} positions, in rows of other lengths",
                    fix="positions = ids.counters()",
                )
            )
        count = len(ids.values)
        if count * self.d_model > _MOST_VALUES:
            raise ValueError(
                explain(
                    f"a block of rows may have {_MOST_VALUES // self.d_model:,} vectors of width {self.d_model}",
                    got=f"{count:,} tokens in {len(ids)} rows, {count * self.bytes_per_token / 1e9:.1f} GB",
                    fix="fewer rows at a time; for single long documents max_length=512",
                )
            )
        values = self.embed(ids.values, positions.values)  # (N, D)
        each = np.arange(0, (count + 1) * self.d_model, self.d_model, dtype=np.int32)
        tokens = pa.ListArray.from_arrays(pa.array(each), pa.array(values.reshape(-1)))
        return pa.ListArray.from_arrays(pa.array(ids.offsets.astype(np.int32)), tokens)

    def embed(self, ids: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
        r"""The vectors of a run of tokens.

        Args:
            ids, positions (`np.ndarray` `(N,)` of whole numbers): one each a token.

        Returns:
            `np.ndarray` `(N, D)` of `dtype`: what `PositionalEmbedding` gives, in evaluation mode.

        Raises:
            ValueError: if an id has no row, or a position is beyond `max_length`.
        """
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.rows:
            raise ValueError(
                explain(
                    f"the embeddings have {self.rows} rows, and an id has none",
                    got=f"ids from {int(ids.min())} to {int(ids.max())}",
                    fix="the tokenizer that the embeddings were made for",
                )
            )
        import torch

        out = np.empty((len(ids), self.d_model), dtype=self.dtype)
        target, piece = torch.from_numpy(out), max(_PIECE_BYTES // self.bytes_per_token, 1)
        with _quietly_on_one_thread():
            module = self._module
            device = module.embedding.weight.device
            for start in range(0, len(ids), piece):
                some = slice(start, start + piece)
                made = module(_tensor(ids[some]).to(device), position_ids=_tensor(positions[some]).to(device))
                target[some].copy_(made[0])
        return out

    @cached_property
    def _module(self) -> PositionalEmbedding:
        from ...collator.table import table_of_width
        from ...collator.weights import packed, unpacked_with

        table, *rest = self._packed
        if self._seed is not None:
            table = packed(table_of_width(self.d_model, self.rows, self._seed, None))
        made: PositionalEmbedding = unpacked_with(table, *rest).eval().to(_device(self.dtype))
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The values alone: a module that was made here is made again there."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    """One row of them, in memory that torch may own: what comes from a pickle cannot be written to."""
    import torch

    return torch.from_numpy(np.array(values, dtype=np.int64))[None]  # (1, N)


@contextmanager
def _quietly_on_one_thread() -> Iterator[None]:
    """Each worker has a core, so torch gets one thread; and what is to be warned of was said when the job began."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


def _device(dtype: str) -> torch.device:
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None or (found.type == "mps" and dtype == "float64"):  # which Apple's have not
        return torch.device("cpu")
    return found


def _try(module: PositionalEmbedding) -> None:
    """A few tokens through it, for what it has to say."""
    import torch

    ids = torch.arange(min(module.num_embeddings, 256))[None]
    with torch.no_grad():
        module.eval()(ids, position_ids=torch.full_like(ids, module.encoding.first_position))

"""`PositionalEmbedding`: an `nn.Embedding` plus an encoding of positions.

For models that have their own embedding, such as those of Hugging Face, see `use_sinusoidal_positions`.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .._common.calls import answers_tutorials
from .._common.compat import has_forward_hooks
from .._common.errors import shorten, type_error, value_error, warn
from .alternatives import Kind, resolve_encoding
from .arguments import Scale, can_check_values, check_out, without_values
from .conventions import Convention
from .module import PositionalEncoding, SinusoidalPositionalEncoding
from .position_ids import check_mask, unchecked_position_ids

# Warn above this ratio of the encoding's standard deviation to the embedding's, and of the embedding's to the
# encoding's. At 5, the smaller one contributes 1/26 of a vector's variance.
MAX_SPREAD = 5.0
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


class PositionalEmbedding(nn.Module):
    r"""Token embeddings with the encoding of their positions: `embedding(ids) * scale + encoding`, then dropout.

    Positions are taken from `position_ids` if given. Otherwise the real tokens in `attention_mask` are counted, so that
    a text has the same vectors with left padding, right padding and none. Without either, positions count from the
    first column of each row. Positions are never computed from the ids.

    Args:
        embedding (`nn.Embedding` or a subclass): called as a module, so a subclass can have its own forward.
        encoding (`str` or `PositionalEncoding`, *optional*, defaults to `"sinusoidal"`): a kind of encoding, or a
            module. The kinds are `"sinusoidal"` (without parameters), `"scaled"`, `"learned"`, `"exponential"` and
            `"none"`. A new encoding has the device and dtype of `embedding.weight`. A module, such as the result of
            `positional_encoding(kind, d_model, ...)`, has settings of its own: `convention`, `base`, `max_length`,
            `scale` and `dropout` cannot be given with it.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): order of the sine and cosine columns,
            and spacing of their wavelengths.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`, `ExponentialPositionalEncoding`.
        max_length (`int`, *optional*): number of positions; later ones raise an error. By default a learned table has
            512 positions, and the other encodings have no limit.
        scale (`"sqrt_d"` or `float`, *optional*): factor of the token embeddings; `"sqrt_d"` means the square root of
            their width D, for tables with a standard deviation of 1/√D. By default 1. The first call warns if the token
            embeddings are much smaller than the encoding, or much larger than sinusoids.
        dropout (`float`, *optional*, defaults to 0): probability, applied to the sum in training mode only.
        zero_padding (`bool`, *optional*, defaults to `True`): return exactly 0.0 where `attention_mask` is 0, so that
            a sum over all tokens equals the sum over real tokens.

    Raises:
        TypeError: if `embedding` is not an `nn.Embedding`, or the kind of encoding does not have one of the given
            settings, such as `base` for `"learned"`.
        ValueError: if a setting is out of range or given with a module, if the kind of encoding does not exist, or if
            a module and the embedding differ in width.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", sections 3.4 and 3.5. arXiv:1706.03762.

    Example:
        >>> embed = PositionalEmbedding(nn.Embedding(100, 8))
        >>> ids, mask = torch.tensor([[0, 7, 8], [7, 8, 9]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
        >>> vectors = embed(ids, attention_mask=mask)
        >>> vectors.shape
        torch.Size([2, 3, 8])
        >>> torch.equal(vectors[0, 1:], vectors[1, :2])
        True
        >>> learned = PositionalEmbedding(nn.Embedding(100, 8), encoding="learned")
        >>> [name for name, _ in learned.named_parameters()]
        ['embedding.weight', 'encoding.weight']
    """

    @answers_tutorials
    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        encoding: Kind | PositionalEncoding = "sinusoidal",
        convention: str | Convention = "vaswani",
        base: float | None = None,
        max_length: int | None = None,
        scale: Scale = None,
        dropout: float = 0.0,
        zero_padding: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = _check_embedding(embedding)
        settings = {
            "convention": convention,
            "base": base,
            "max_length": max_length,
            "scale": scale,
            "dropout": dropout,
        }
        usual = {"convention": "vaswani", "dropout": 0.0}
        changed = {name: value for name, value in settings.items() if value != usual.get(name)}
        resolved = resolve_encoding(encoding, self.embedding.embedding_dim, changed)
        # An encoding that was given as a module stays on its device.
        self.encoding = (
            resolved if resolved is encoding else resolved.to(embedding.weight.device, embedding.weight.dtype)
        )
        if not isinstance(zero_padding, bool):
            raise type_error("zero_padding must be True or False", got=shorten(zero_padding), fix="zero_padding=True")
        self.zero_padding = zero_padding
        self._spread_seen = False

    @property
    def d_model(self) -> int:
        """Width D of the embeddings."""
        return self.embedding.embedding_dim

    @property
    def num_embeddings(self) -> int:
        """Number of rows of the table of token embeddings; ids must be smaller than this number."""
        return self.embedding.num_embeddings

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        position_ids: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        bound: int | None = None,
    ) -> torch.Tensor:
        r"""Return the embeddings of `input_ids` plus the encodings of their positions.

        Args:
            input_ids (`torch.Tensor` `(B, T)`, integer): moved to the embedding's device if necessary.
            attention_mask (`torch.Tensor` `(B, T)`, bool or 0 and 1, *optional*): 1 at real tokens, 0 at padding. By
                default all tokens are real.
            position_ids (`torch.Tensor` `(B, T)`, `(1, T)` or `(T,)`, *optional*): the positions. By default the real
                tokens of each row are counted from `encoding.first_position`.
            out (`torch.Tensor` `(B, T, D)`, *optional*): contiguous memory for the result, with the dtype and device of
                the embedding. Not allowed if gradients are recorded.
            bound (`int`, *optional*): a number larger than all `position_ids`, as in `SinusoidalPositionalEncoding`.

        Returns:
            `torch.Tensor` `(B, T, D)`, dtype and device of the embedding: `out` if it was given, otherwise new memory.

        Raises:
            ValueError: if a shape does not match, the mask contains a value other than 0 and 1, or is 0, 1 in every row
                without being bool, an id is negative or too large, or `out` cannot be used. Ids and mask values are
                checked on the CPU only, because on an accelerator the check would wait for the device.
            TypeError: if the ids are not a tensor of integers with two dimensions.
        """
        ids = self._checked_ids(input_ids)
        keep = None
        if attention_mask is not None:
            keep = _checked_keep(attention_mask, ids)
            if position_ids is None:
                first = self.encoding.first_position
                position_ids = unchecked_position_ids(keep, first)
                bound = first + ids.shape[1] if first >= 0 else None
        if out is not None:
            check_out(out, (*ids.shape, self.d_model), self.embedding.weight, self)
        zero_row = keep is not None and not self.zero_padding and self.encoding.padding_position is not None
        embedded = self._look_up(ids, None if zero_row else out)  # (B, T, D)
        self._compare_spread(embedded, keep)
        buffer = embedded if (out is None or embedded is out) and self._is_ours(embedded) and not zero_row else out
        if keep is not None and position_ids is not None and self._are_columns(position_ids, keep):
            position_ids = None
        result: torch.Tensor = self.encoding(embedded, position_ids=position_ids, out=buffer, bound=bound)
        if keep is None:
            return result
        if self.zero_padding:
            # Vectors at padding would leak into a mean over tokens (sentence-transformers #2569).
            # Overwrite instead of multiplying: 0 times infinity is NaN.
            is_plain = not result.requires_grad and result.is_contiguous()
            if not (is_plain and can_check_values(keep) and can_check_values(result)):
                return result.masked_fill_(~keep.unsqueeze(-1), 0.0)
            result.view(torch.uint8).numpy()[~keep.numpy()] = 0
        elif zero_row:
            plain = F.dropout(embedded * self.encoding.factor, self.encoding.dropout, self.training)
            return torch.where(keep.unsqueeze(-1), result, plain, out=out)
        return result

    def extra_repr(self) -> str:
        """Return `zero_padding` as text for `print(module)`; the submodules print all other settings."""
        return f"zero_padding={self.zero_padding}"

    def _checked_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the ids on the embedding's device; raise if they are not integers `(B, T)`, or out of range."""
        is_batch = isinstance(input_ids, torch.Tensor) and input_ids.ndim == 2
        if not is_batch or input_ids.dtype not in _INTEGERS:
            raise type_error(
                "input_ids must be a tensor of integers (batch, length)",
                got=shorten(input_ids),
                fix='batch["input_ids"] of a batch, collate(texts)["input_ids"] of texts, torch.tensor(ids) of lists, '
                "input_ids[None] of a single row",
            )
        ids = input_ids if input_ids.dtype in (torch.int32, torch.int64) else input_ids.long()
        rows = self.num_embeddings
        if can_check_values(ids) and ids.numel() and (ids.numpy().min() < 0 or ids.numpy().max() >= rows):
            bad = (ids < 0) | (ids >= rows)
            row, column = bad.nonzero()[0].tolist()
            raise value_error(
                f"row {row}, column {column} has id {int(ids[row, column])}, the embedding has {rows} rows",
                got=f"{int(bad.sum())} of {ids.numel()} ids without a row",
                fix="an embedding of max(tokenizer.get_vocab().values()) + 1 rows; only labels may hold -100",
            )
        return ids.to(self.embedding.weight.device)

    def _look_up(self, ids: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the token embeddings `(B, T, D)`, in `out` if it is given and the table is a plain one."""
        weight = self.embedding.weight
        is_usual = self._is_plain and type(weight) in (torch.Tensor, nn.Parameter) and self.embedding.max_norm is None
        if out is None or not is_usual or without_values(weight):
            embedded: torch.Tensor = self.embedding(ids)
            return embedded
        torch.index_select(weight.detach(), 0, ids.reshape(-1), out=out.view(-1, self.d_model))
        return out

    def _are_columns(self, position_ids: torch.Tensor, keep: torch.Tensor) -> bool:
        """Return True if all real tokens of a column have the position that the encoding counts for that column."""
        # One vector for each column is then added to all rows, and padding, which gets it too, is set to 0 afterwards.
        encoding = self.encoding
        # NumPy reads the values: beside another program on the same cores, each small operation of torch takes
        # milliseconds, until the threads of OpenMP have met.
        if not (can_check_values(keep) and can_check_values(position_ids) and self.zero_padding):
            return False
        if type(encoding) is not SinusoidalPositionalEncoding or has_forward_hooks(encoding):
            return False
        if encoding.max_length is not None or position_ids.is_floating_point():
            return False
        columns = np.arange(encoding.first_position, encoding.first_position + keep.shape[1])
        return position_ids.shape == keep.shape and bool(((position_ids.numpy() == columns) | ~keep.numpy()).all())

    @property
    def _is_plain(self) -> bool:
        """True if the embedding is a plain `nn.Embedding`: no subclass, no forward hooks."""
        return type(self.embedding) is nn.Embedding and not has_forward_hooks(self.embedding)

    def _is_ours(self, embedded: torch.Tensor) -> bool:
        """Return True if the result may overwrite `embedded`: no gradient needs it, and nothing else refers to it."""
        learns = embedded.requires_grad or any(weight.requires_grad for weight in self.encoding.parameters())
        return self._is_plain and not (torch.is_grad_enabled() and learns)

    def _compare_spread(self, embedded: torch.Tensor, keep: torch.Tensor | None) -> None:
        """Warn once, at the first call, if the encoding is much larger than the token embeddings `embedded`."""
        # The constructor does not compare them, because a checkpoint may be loaded later.
        if without_values(embedded) or self._spread_seen:  # in this order: compiled graphs must not read the attribute
            return
        x = embedded.detach().float()
        real = torch.ones_like(x, dtype=torch.bool) if keep is None else keep.unsqueeze(-1).expand_as(x)
        count = real.sum()
        x = x - torch.where(real, x, 0.0).sum() / count
        spread = float((torch.where(real, x, 0.0).square().sum() / (count - 1)).sqrt())
        if math.isnan(spread):  # fewer than two numbers
            return
        self._spread_seen = True
        encoding, tokens = self.encoding.spread(), spread * abs(self.encoding.factor)
        if encoding > MAX_SPREAD * tokens:
            warn(
                f"the encoding's spread is over {MAX_SPREAD:g} times the embedding's: positions drown the tokens",
                got=f"standard deviation {encoding:.2g} against {tokens:.2g}, scale={self.encoding.scale!r}",
                fix="scale='sqrt_d' as in the paper, or a LayerNorm after it and a filter for this warning",
            )
        elif type(self.encoding) is SinusoidalPositionalEncoding and MAX_SPREAD * encoding < tokens < math.inf:
            scale = encoding / tokens * abs(self.encoding.factor)
            warn(
                f"the embedding's spread is over {MAX_SPREAD:g} times the encoding's: tokens drown the positions",
                got=f"standard deviation {tokens:.2g} against {encoding:.2g}, scale={self.encoding.scale!r}",
                fix=f"scale={scale:.2g}; 'sqrt_d' is for tables with a standard deviation of 1/sqrt(D)",
            )


def _checked_keep(attention_mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return `attention_mask` as bool on the device of `ids`; raise if it is invalid or not of the shape of `ids`."""
    values = isinstance(attention_mask, torch.Tensor) and can_check_values(attention_mask)
    keep: torch.Tensor = check_mask(attention_mask)
    if keep.shape != ids.shape:
        raise value_error(
            "attention_mask must have the shape of input_ids",
            got=f"attention_mask {tuple(keep.shape)}, input_ids {tuple(ids.shape)}",
            fix="pass both as the tokenizer returned them",
        )
    # The positions of two tokens look like a mask. Padding alone in a column is rare, and may be given as bool.
    is_bool = isinstance(attention_mask, torch.Tensor) and attention_mask.dtype == torch.bool
    if values and not is_bool and len(keep) and keep.shape[1] == 2 and not keep[:, 0].any() and keep[:, 1].all():
        raise value_error(
            "attention_mask hides the first of two tokens in every row",
            got="0, 1 in each row, as position_ids are",
            fix="position_ids=..., or attention_mask=mask.bool() if the first token is padding",
        )
    return keep.to(ids.device)


def _check_embedding(embedding: object) -> nn.Embedding:
    """Return `embedding` if it is an `nn.Embedding`; raise otherwise."""
    # If `embedding` is a transformers model, transformers is imported already.
    library = sys.modules.get("transformers.modeling_utils")
    if library is not None and isinstance(embedding, library.PreTrainedModel):
        raise type_error(
            f"{type(embedding).__name__} adds its own positions: with these on top it would have them twice",
            got="a whole model as the embedding",
            fix="PositionalEmbedding(model.get_input_embeddings()) for embeddings outside the model, or "
            "use_sinusoidal_positions(model) for sinusoids inside it",
        )
    if not isinstance(embedding, nn.Embedding):
        raise type_error(
            "embedding must be an nn.Embedding or a subclass of it",
            got=shorten(embedding),
            fix="nn.Embedding(len(tokenizer), 512); of vectors to be trained, "
            "nn.Embedding.from_pretrained(torch.as_tensor(vectors).float(), freeze=False)",
        )
    return embedding

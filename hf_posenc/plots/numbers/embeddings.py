"""A sentence's token embeddings before and after positions: where they lie in the plane, and how large positions are.

The plane is that of the largest spread (PCA), of each cloud its own; what lies in the other dimensions it cannot show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..._explain import explain, shorten
from ...collator.decoding import tokens_of
from ...embedding import PositionalEmbedding
from ...sinusoid import Convention
from ...tokenization.loading import private_copy
from ..limits import check_finite
from .arrays import as_numpy
from .captured import evaluated

if TYPE_CHECKING:
    from ...tokenization.loading import AnyTokenizer

_ANY_LENGTH = int(1e30)  # for transformers, which else warns of a text longer than a model reads: here is no model


class Embedded(NamedTuple):
    r"""The tokens of a text as points in the plane, before and after positions.

    Args:
        tokens (`T` `str`): as the tokenizer writes them.
        before, after (`np.ndarray` `(T, 2)` float64): their first two principal components.
        spread_before, spread_after (`np.ndarray` `(2,)` float64): the part of the variance that each of them holds.
    """

    tokens: list[str]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    spread_before: NDArray[np.float64]
    spread_after: NDArray[np.float64]


class Crowding(NamedTuple):
    r"""How long the vectors of a text's tokens are beside those of their positions.

    Args:
        tokens (`T` `str`): as the tokenizer writes them.
        token_norms, position_norms (`np.ndarray` `(T,)` float64): lengths |e| and |p|.
        share, share_sqrt_d (`np.ndarray` `(T,)` float64): |p| / (|p| + |e|), and with √d · e in place of e.
    """

    tokens: list[str]
    token_norms: NDArray[np.float64]
    position_norms: NDArray[np.float64]
    share: NDArray[np.float64]
    share_sqrt_d: NDArray[np.float64]


def principal_components(points: NDArray[np.floating[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""The first two principal components of a cloud of points.

    Args:
        points (`np.ndarray` `(N, D)`): one point a row.

    Returns:
        `np.ndarray` `(N, 2)` float64, 0 where the cloud has fewer dimensions, and `(2,)`, the part of the variance that
        each holds. The sign of a component is such that its largest loading is positive.

    Raises:
        ValueError: if a number is not finite.

    Source:
        Pearson 1901, "On lines and planes of closest fit to systems of points in space".

    Example:
        >>> principal_components(np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))
        (array([[-1.5,  0. ],
               [ 1.5,  0. ]]), array([1., 0.]))
    """
    cloud = check_finite("embeddings", np.asarray(points, dtype=np.float64))
    centred = cloud - cloud.mean(axis=0)
    _, lengths, right = np.linalg.svd(centred, full_matrices=False)
    lengths = np.where(lengths > len(cloud) * np.finfo(np.float64).eps * np.abs(cloud).max(initial=0.0), lengths, 0.0)
    largest = right[np.arange(len(right)), np.abs(right).argmax(axis=1)]
    signed = right * np.where(largest < 0, -1.0, 1.0)[:, None]
    total = float((lengths**2).sum()) or 1.0
    plane, held = np.zeros((len(cloud), 2)), np.zeros(2)
    found = min(2, int((lengths > 0).sum()))  # a direction without spread has no direction
    plane[:, :found], held[:found] = centred @ signed[:found].T, lengths[:found] ** 2 / total
    return plane + 0.0, held  # no negative zeros


def embeddings(
    tokenizer: AnyTokenizer,
    embedding: nn.Embedding | PositionalEmbedding,
    text: str,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    scale: Literal["sqrt_d"] | float | None = None,
    add_special_tokens: bool = False,
) -> Embedded:
    r"""The token embeddings of a text before and after positions, each in the plane of their largest spread.

    Args:
        tokenizer (name, folder, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): splits the text.
        embedding (`nn.Embedding` or `PositionalEmbedding`): holds the vectors, `model.get_input_embeddings()` for one.
            A `PositionalEmbedding` brings positions of its own, and the settings below are not asked.
        text (`str`): a sentence.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`), base (number, *optional*), scale
            (`None`, `"sqrt_d"` or `float`, *optional*): as in `PositionalEmbedding`.
        add_special_tokens (`bool`, *optional*, defaults to `False`): `[CLS]` and the like as well.

    Returns:
        `Embedded` of NumPy arrays on the CPU.

    Raises:
        ValueError: if the text has no tokens, the table has no row for one, or a number is not finite.
        TypeError: if the kind of an argument is wrong.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"a": 0, "king": 1, "queen": 2}, unk_token="a"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> table = nn.Embedding.from_pretrained(torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]]))
        >>> found = embeddings(raw, table, "a king a queen")
        >>> found.tokens
        ['a', 'king', 'a', 'queen']
        >>> np.allclose(found.before[0], found.before[2]), np.allclose(found.after[0], found.after[2])
        (True, False)
    """
    module = _positional(embedding, convention=convention, base=base, scale=scale)
    tokens, vectors = _vectors(tokenizer, module, text, add_special_tokens=add_special_tokens)
    with evaluated(module):
        after = module.encoding(vectors)
    before, spread_before = principal_components(as_numpy(vectors[0]))
    moved, spread_after = principal_components(as_numpy(after[0]))
    return Embedded(tokens, before, moved, spread_before, spread_after)


def crowding(
    tokenizer: AnyTokenizer,
    embedding: nn.Embedding | PositionalEmbedding,
    text: str,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    add_special_tokens: bool = False,
) -> Crowding:
    r"""The share of the norm that positions take in the vectors of a text, with and without √d.

    Args:
        tokenizer, embedding, text, convention, base, add_special_tokens: as in `embeddings`.

    Returns:
        `Crowding` of NumPy arrays on the CPU.

    Raises:
        ValueError: if the text has no tokens, the table has no row for one, or a number is not finite.
        TypeError: if the kind of an argument is wrong.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.4 (√d). arXiv:1706.03762.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> raw = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        >>> crowding(raw, nn.Embedding.from_pretrained(torch.full((1, 4), 0.5)), "a").share_sqrt_d.round(3)
        array([0.414])
    """
    module = _positional(embedding, convention=convention, base=base, scale=None)
    tokens, vectors = _vectors(tokenizer, module, text, add_special_tokens=add_special_tokens)
    with evaluated(module):
        positions = module.encoding(torch.zeros_like(vectors))
    token_norms = np.linalg.norm(check_finite("embeddings", as_numpy(vectors[0]).astype(np.float64)), axis=1)
    position_norms = np.linalg.norm(check_finite("positions", as_numpy(positions[0]).astype(np.float64)), axis=1)

    def share(factor: float) -> NDArray[np.float64]:
        whole = position_norms + factor * token_norms
        part: NDArray[np.float64] = position_norms / np.where(whole > 0, whole, 1.0)
        return part

    return Crowding(tokens, token_norms, position_norms, share(1.0), share(float(module.d_model) ** 0.5))


def _positional(
    embedding: nn.Embedding | PositionalEmbedding,
    *,
    convention: str | Convention,
    base: float | None,
    scale: Literal["sqrt_d"] | float | None,
) -> PositionalEmbedding:
    if isinstance(embedding, PositionalEmbedding):
        return embedding
    return PositionalEmbedding(embedding, convention=convention, base=base, scale=scale)


def _vectors(
    tokenizer: AnyTokenizer, module: PositionalEmbedding, text: str, *, add_special_tokens: bool
) -> tuple[list[str], torch.Tensor]:
    """The tokens of a text, and their vectors `(1, T, D)` before positions."""
    if not isinstance(text, str):
        raise TypeError(explain("text must be one sentence, a str", got=shorten(text), fix='"a king is a man"'))
    mine = private_copy(tokenizer)
    mine.model_max_length = _ANY_LENGTH
    ids = list(mine(text, add_special_tokens=add_special_tokens)["input_ids"])
    if not ids:
        raise ValueError(explain("the text has no tokens", got=shorten(text), fix='"a king is a man"'))
    tokens = tokens_of(mine, ids)
    if max(ids) >= module.num_embeddings:
        bad = next(number for number, token in enumerate(ids) if token >= module.num_embeddings)
        raise ValueError(
            explain(
                f"token {tokens[bad]!r} has id {ids[bad]}, the embedding has {module.num_embeddings} rows",
                got=f"a tokenizer and an embedding that do not belong together, in {shorten(text)}",
                fix="model.get_input_embeddings() of the model that this tokenizer is for",
            )
        )
    with evaluated(module):
        return tokens, module.embedding(torch.tensor([ids], device=module.embedding.weight.device))

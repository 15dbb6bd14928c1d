"""The table in docs/lessons.md: each line of the package gives what the tutorial's function gives.

The functions of the tutorials are written here from their definitions, in NumPy: `theirs` has one for each row of the
table, and `same` compares. The line is taken from the page and evaluated as a reader would paste it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from looping import for_each
from matplotlib.figure import Figure
from torch import nn

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe

PAGE = Path(__file__).resolve().parent.parent / "docs" / "lessons.md"
TABLE = PAGE.read_text(encoding="utf-8").split("| tutorial | here |")[1].split("\n\n")[0]
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in TABLE.splitlines()[2:]]
LINES = {theirs: re.findall("`(.+?)`", line)[0] for theirs, line, _ in ROWS}

B, T, P, d = 2, 6, 60, 16
chance = np.random.default_rng(0)
ids = np.array([[7, 6, 5, 4, 3, 2], [1, 2, 3, 0, 0, 0]])
vectors = chance.normal(size=(5, d))
x = chance.normal(size=(B, T, d)).astype(np.float32)
weights = chance.dirichlet(np.ones(5), size=(2, 5))
q = chance.normal(size=(B, 3, T, d))
words = ["a", "king", "and", "a", "queen"]
table = (chance.normal(size=(10, d)) / d**0.5).astype(np.float32)
embedding = nn.Embedding.from_pretrained(torch.from_numpy(table))


def softmax(numbers: Any) -> Any:
    powers = np.exp(numbers - numbers.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def get_angles(pos: Any, i: Any, width: int, base: float = 10000) -> Any:
    return pos / np.power(base, (2 * (i // 2)) / width)


def interleaved(count: int, width: int, base: float = 10000) -> Any:
    angles = get_angles(np.arange(count)[:, None], np.arange(width)[None], width, base)
    angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    return angles[None].astype(np.float32)


def sines_first(length: int, depth: int) -> Any:
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(depth / 2)[None] / (depth / 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)


def div_term(width: int) -> Any:
    return np.exp(np.arange(0, width, 2) * (-np.log(10000.0) / width))


def table_of_pytorch(count: int, width: int) -> Any:
    angles, pe = np.arange(count)[:, None] * div_term(width), np.zeros((count, width), np.float32)
    pe[:, 0::2], pe[:, 1::2] = np.sin(angles), np.cos(angles)
    return pe


def pca(points: Any) -> Any:
    """Return the coordinates along the two largest eigenvectors of the covariance."""
    values, directions = np.linalg.eigh(np.cov(points.T))
    return points @ directions[:, np.argsort(values)[:-3:-1]]


def pca_before_and_after() -> Any:
    both = [points - points.mean(axis=0) for points in (vectors, vectors + interleaved(len(vectors), d)[0])]
    return pca(np.concatenate(both))[len(vectors) :]


THEIRS: dict[str, Callable[[], Any]] = {
    "`create_padding_mask(ids)` `(B, T)`, 1 for padding": lambda: (ids == 0).astype(np.float32),
    "`create_padding_mask(ids)` `(B, 1, 1, T)`, 1 for padding": lambda: (ids == 0).astype(np.float32)[:, None, None, :],
    "`create_padding_mask(ids)` `(B, T)`, 1 for tokens": lambda: 1 - (ids == 0).astype(np.float32),
    "`create_padding_mask(ids)` `(B, 1, T)`, 1 for tokens": lambda: 1 - (ids == 0).astype(np.float32)[:, None, :],
    "`create_look_ahead_mask(T)` `(T, T)`, 1 for later tokens": lambda: 1 - np.tril(np.ones((T, T))),
    "`create_look_ahead_mask(T)` `(1, T, T)`, 1 for earlier tokens": lambda: np.tril(np.ones((1, T, T))),
    "`make_std_mask(ids, 0)`": lambda: (ids != 0)[:, None, :] & (np.triu(np.ones((1, T, T)), k=1) == 0),
    "`combined_mask` of `create_masks`": lambda: np.maximum(
        (ids == 0).astype(np.float32)[:, None, None, :], 1 - np.tril(np.ones((T, T)))
    ),
    "`generate_square_subsequent_mask(T)`": lambda: nn.Transformer.generate_square_subsequent_mask(T),
    "`scaled_dot_product_attention(q, k, v, mask)` with 1 for padding": lambda: (
        softmax(q @ q.swapaxes(-1, -2) / d**0.5 - 1e9 * (ids == 0)[:, None, None]) @ q
    ),
    "`get_angles(pos, i, d)`": lambda: get_angles(np.arange(P)[:, None], np.arange(d)[None], d),
    "`div_term`": lambda: div_term(d),
    "`positional_encoding(P, d)` `(1, P, d)`, sine and cosine in turn": lambda: interleaved(P, d),
    "`positional_encoding(P, d)` `(P, d)`, all sines first": lambda: sines_first(P, d),
    "a table `pe` `(P, d)`": lambda: table_of_pytorch(P, d),
    '`register_buffer("pe", pe)`, then `x + self.pe[:, :T]`': lambda: x + table_of_pytorch(1000, d)[None][:, :T],
    "`PositionalEncoding(d, dropout, max_len)(x)`": lambda: x + interleaved(1000, d)[:, :T],
    "`PositionalEncoding(d, dropout)(x)` with `x` `(T, B, d)`": lambda: x + table_of_pytorch(1000, d)[:, None][:B],
    "`Embeddings`, then `PositionalEncoding`": lambda: table[ids] * d**0.5 + interleaved(T, d),
    "`PositionalEmbedding(vocab_size, d)(ids)` of Keras": lambda: table[ids] * d**0.5 + sines_first(T, d),
    '`pad_sequences(rows, 5, padding="post", truncating="post")`': lambda: [
        (row[:5] + [0] * 5)[:5] for row in ROWS_OF_IDS
    ],
    "`plt.pcolormesh(pe[0])`, heat map of `P`": lambda: interleaved(P, d)[0],
    "distances between all rows of `pe`": lambda: np.linalg.norm(
        interleaved(P, d)[0][:, None] - interleaved(P, d)[0][None], axis=-1
    ),
    "PCA of word vectors, before and after": pca_before_and_after,
    "attention weights of your own class": lambda: weights,
}
ROWS_OF_IDS = [[7, 6, 5, 4, 3, 2], [1, 2, 3]]


def values(result: Any, theirs: str) -> Any:
    """Return the numbers of a tensor, or those that a picture shows."""
    if not isinstance(result, Figure):
        return np.asarray(result.detach())
    if "PCA" in theirs:
        return np.asarray(result.axes[-1].lines[0].get_xydata())
    images = [np.asarray(panel.images[0].get_array()) for panel in result.axes if panel.images]
    return images if "weights" in theirs else images[0]


@for_each("theirs", LINES)
def test_a_line_of_the_table_gives_what_the_function_of_the_tutorial_gives(theirs: str) -> None:
    collate = DataCollatorWithPositionalEncoding(train_bpe(["I ride bike"], vocab_size=300, progress=False))
    names: dict[str, Any] = {name: getattr(hf_posenc, name) for name in hf_posenc.__all__}
    names["padding_mask_from_ids"] = hf_posenc.masks.padding_mask_from_ids
    names |= {"torch": torch, "F": F, "B": B, "T": T, "P": P, "d": d, "dropout": 0.0, "max_len": 100}
    names |= {"ids": torch.from_numpy(ids), **dict.fromkeys("qkv", torch.from_numpy(q))}
    names |= {"lengths": torch.tensor([6, 3]), "x": torch.from_numpy(x), "embedding": embedding, "vectors": vectors}
    names |= {"rows": ROWS_OF_IDS, "words": words, "weights": weights, "collate": collate}
    expected = np.asarray(THEIRS[theirs]())
    got = values(eval(LINES[theirs], names), theirs)
    if "PCA" in theirs:  # the sign of a component is arbitrary
        expected, got = np.abs(expected), np.abs(got)
    assert np.shape(got) == expected.shape
    assert np.allclose(got, expected, atol=1e-5)


def test_every_row_of_the_table_is_compared() -> None:
    assert set(LINES) == set(THEIRS)

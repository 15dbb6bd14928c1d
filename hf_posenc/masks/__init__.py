r"""Who may attend to whom, and each library's way of saying it.

Describes masks and renders them; it never decides which tokens are padding from ids unless it is told to.

True means "may be attended to" everywhere in this package. What others mean, and where this room turns it round:

| where                                                | True, or 1, means          | rendered by                      |
|------------------------------------------------------|----------------------------|----------------------------------|
| this package, every bool mask                        | may be attended to         | `dense`, the plain functions     |
| a tokenizer's `attention_mask`, 0 and 1              | a real token: may be       | the tokenizer, `padding_mask`    |
| `scaled_dot_product_attention(attn_mask=)`           | may be attended to         | `for_sdpa`                       |
| `nn.MultiheadAttention(attn_mask=, key_padding_mask=)` | must NOT be attended to  | `for_multihead_attention`        |
| `nn.TransformerEncoder(mask=, src_key_padding_mask=)`  | must NOT be attended to  | `for_transformer_encoder`        |
| `nn.TransformerEncoderLayer(src_mask=, ...)`         | must NOT be attended to    | `for_transformer_encoder_layer`  |
| Hugging Face 4-D, and all that is added to scores    | no bool: 0 may be, a large | `additive`, `additive_mask`      |
|                                                      | negative number must not   |                                  |

Queries at padding. Real tokens never see padding. What a query at padding sees cannot reach a real token, so it is only
kept from being nothing, which a softmax turns into NaN: a row of the batch without any real token counts as real
throughout, and any other query that would see nothing sees itself. Renderings agree on every real token; at padding
they are free, because some forms (`is_causal`, `key_padding_mask`) cannot say more.
"""

from .attention_mask import AttentionMask
from .plain import additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids

__all__ = ["AttentionMask", "additive_mask", "look_ahead_mask", "padding_mask", "padding_mask_from_ids"]

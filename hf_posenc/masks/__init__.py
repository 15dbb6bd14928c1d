r"""Who may attend to whom, and each library's way of saying it.

Describes masks and renders them; it never decides which tokens are padding from ids unless it is told to.

True means "may be attended to" everywhere in this package. What others mean, and where this room turns it round:

| where                                                  | True, or 1, means         | rendered by                     |
|--------------------------------------------------------|---------------------------|---------------------------------|
| this package, every bool mask                          | may be attended to        | `dense`, the plain functions    |
| a tokenizer's `attention_mask`; Hugging Face 2-D       | a real token: may be      | the tokenizer, `for_hf`         |
| `scaled_dot_product_attention(attn_mask=)`             | may be attended to        | `for_sdpa`                      |
| `flex_attention(block_mask=)`, its `mask_mod`          | may be attended to        | `block_mask`                    |
| `nn.MultiheadAttention(attn_mask=, key_padding_mask=)` | must NOT be attended to   | `for_multihead_attention`       |
| `nn.TransformerEncoder(mask=, src_key_padding_mask=)`  | must NOT be attended to   | `for_transformer_encoder`       |
| `nn.TransformerEncoderLayer(src_mask=, ...)`           | must NOT be attended to   | `for_transformer_encoder_layer` |
| `nn.TransformerDecoder(tgt_mask=, memory_mask=, ...)`  | must NOT be attended to   | `for_transformer_decoder`       |
| Hugging Face 4-D, and all that is added to scores      | no bool: 0 may, a large   | `for_hf`, `additive`,           |
|                                                        | negative number must not  | `additive_mask`                 |
| flash-attn and `varlen_attn`: `cu_seqlens`             | no mask: where one begins | `varlen`                        |

Queries at padding. Real tokens never see padding. What a query at padding sees cannot reach a real token, so it is only
kept from being nothing, which a softmax turns into NaN: a row of the batch without any real token counts as real
throughout; any other query at padding sees the real tokens of all documents, as far as look-ahead and window let it,
and itself where that is nothing. Renderings agree on every real token; at padding they are free, because some forms
(`is_causal`, `key_padding_mask`) cannot say more.
"""

from .attention_mask import AttentionMask
from .kernels import Varlen
from .plain import additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids

__all__ = ["AttentionMask", "Varlen", "additive_mask", "look_ahead_mask", "padding_mask", "padding_mask_from_ids"]

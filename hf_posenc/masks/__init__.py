r"""Attention masks: which tokens may attend to which, in the form that each library expects.

Only `padding_mask_from_ids` takes token ids; everything else takes masks, lengths or document numbers.

True means "may be attended to" everywhere in this package. Other libraries differ; methods of `AttentionMask` convert:

| where                                                  | True, or 1, means         | rendered by                     |
|--------------------------------------------------------|---------------------------|---------------------------------|
| this package, every bool mask                          | may be attended to        | `dense`, the functions          |
| a tokenizer's `attention_mask`; Hugging Face 2-D       | a real token              | the tokenizer, `for_hf`         |
| `scaled_dot_product_attention(attn_mask=)`             | may be attended to        | `for_sdpa`                      |
| `flex_attention(block_mask=)`, its `mask_mod`          | may be attended to        | `block_mask`                    |
| `nn.MultiheadAttention(attn_mask=, key_padding_mask=)` | must NOT be attended to   | `for_multihead_attention`       |
| `nn.TransformerEncoder(mask=, src_key_padding_mask=)`  | must NOT be attended to   | `for_transformer_encoder`       |
| `nn.TransformerEncoderLayer(src_mask=, ...)`           | must NOT be attended to   | `for_transformer_encoder_layer` |
| `nn.TransformerDecoder(tgt_mask=, memory_mask=, ...)`  | must NOT be attended to   | `for_transformer_decoder`       |
| Hugging Face 4-D, and any mask added to the scores     | numbers: 0 = may, large   | `for_hf`, `additive`,           |
|                                                        | negative = must not       | `additive_mask`                 |
| flash-attn and `varlen_attn`: `cu_seqlens`             | offsets of documents      | `varlen`                        |

Queries at padding: real tokens never see padding, so the output of a query at padding cannot reach a real token. Such a
query only needs at least one key, because a softmax over no keys is NaN. If a row has no real token, all its tokens
count as real. In other rows, a query at padding sees the real tokens of all documents, within look-ahead and window, or
itself if it would see none. All forms agree on every real token. At padding they may differ, because some forms
(`is_causal`, `key_padding_mask`) cannot express this rule.
"""

from .attention_mask import AttentionMask, Varlen
from .functions import additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids
from .reasons import reasons
from .triangle import look_ahead_of_batch

__all__ = [
    "AttentionMask",
    "Varlen",
    "additive_mask",
    "look_ahead_mask",
    "look_ahead_of_batch",
    "padding_mask",
    "padding_mask_from_ids",
    "reasons",
]

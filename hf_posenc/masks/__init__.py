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

from .functions import additive_mask, look_ahead_mask, padding_mask, padding_mask_from_ids
from .hugging_face import HuggingFaceForms
from .torch_forms import TorchForms, Varlen

__all__ = ["AttentionMask", "Varlen", "additive_mask", "look_ahead_mask", "padding_mask", "padding_mask_from_ids"]


class AttentionMask(TorchForms, HuggingFaceForms):
    r"""Attention mask of a batch, for padding, packed documents (several in one row), look-ahead, windows and prefixes.

    A token may attend to the real tokens of its own document. With `look_ahead`, it may attend only to itself, earlier
    tokens, and the prefix of its document. With `window`, it may attend only to tokens at a distance below `window`.

    Make a mask with `from_batch`, `from_lengths` or `from_documents`. `cross` combines two masks into one for
    cross-attention, where the tokens of one batch attend to the tokens of another. A mask stores a few numbers per
    token, and nothing of size T×T.

    Its methods, such as `dense`, `for_sdpa` and `for_hf`, return the mask as a tensor or as arguments for a function or
    model. All methods hide the same keys from real tokens. Every query keeps at least one key, so softmax gives no NaN.
    The docs of `hf_posenc.masks` say what True means for each method, and which keys a query at padding sees.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): the document of each token; negative at padding. Numbers are
            compared within a row only.
        look_ahead (`bool`, *optional*, defaults to `False`): hide later tokens (causal attention).
        window (`int`, *optional*): hide tokens at this distance or more, before or after: a window of 2 shows a token
            and its direct neighbors. It also hides the tokens of a prefix. By default there is no window.
        prefix (`torch.Tensor` `(B, T)` bool, *optional*): True at tokens that all tokens of their document may attend
            to, even earlier ones. Requires `look_ahead=True`.
        queries (`torch.Tensor` `(B, Q)`, integer, *optional*): for cross-attention, the document of each query;
            `documents` are then those of the keys. `cross` sets it.

    Raises:
        ValueError: if `documents` does not have two dimensions, if `window` is not positive, if `prefix` has another
            shape or comes without `look_ahead=True`, or if `queries` come with look-ahead, window or prefix.
        TypeError: if `documents` are not integers, or `window` is not one.

    Example:
        >>> mask = AttentionMask.from_lengths([3, 2], look_ahead=True)
        >>> mask
        AttentionMask(rows=2, length=3, tokens=5, look_ahead=True, packed=False, device=cpu)
        >>> mask.for_sdpa()     # look-ahead hides right padding from real tokens
        {'is_causal': True}
        >>> mask.dense()[1, 0]     # the third token of this row is padding
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True, False]])
    """

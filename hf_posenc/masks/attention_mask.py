"""`AttentionMask`: which tokens of a batch may attend to which, in a few numbers per token.

`description` makes masks and renders them as tensors, `torch_forms` and `hugging_face` as arguments of other libraries.
"""

from .hugging_face import HuggingFaceForms
from .torch_forms import TorchForms


class AttentionMask(TorchForms, HuggingFaceForms):
    r"""Attention mask of a batch, for padding, packed documents, look-ahead, windows and prefixes.

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

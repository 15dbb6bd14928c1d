"""`AttentionMask`: a small description of who may attend to whom in a batch, with every rendering of it.

What it holds is explained here; each of the parts it is put together from keeps one kind of renderings.
"""

from __future__ import annotations

from .hugging_face import HuggingFaceForms
from .kernels import KernelForms
from .torch_forms import TorchForms


class AttentionMask(TorchForms, KernelForms, HuggingFaceForms):
    r"""Who may attend to whom: padding, documents that share a row, look-ahead, windows, prefixes, in each one's words.

    A token may attend to the real tokens of its own document; with `look_ahead`, to those up to and including itself,
    and to its document's prefix; with a `window`, to those nearer than that. In `cross`, the tokens of one batch attend
    to those of another. `hf_posenc.masks` says what True means where, and what happens to queries at padding: in short,
    all renderings agree on every real token and none of them makes NaN.

    Make one with `from_batch`, `from_lengths`, `from_documents`, or `cross` from two of them. It holds one number a
    token, and nothing of size T×T.

    Args:
        documents (`torch.Tensor` `(B, T)`, integer): which document each token belongs to; negative at padding. Numbers
            count within a row only.
        look_ahead (`bool`, *optional*, defaults to `False`): hide what comes later (causal attention).
        window (`int`, *optional*): hide what is this many places away or more, before or after: a window of 2 shows a
            token and its nearest neighbours. It hides a prefix, too.
        prefix (`torch.Tensor` `(B, T)` bool, *optional*): tokens that all of their document may see, even from before.
        queries (`torch.Tensor` `(B, Q)`, integer, *optional*): the documents of the tokens that look, where they are
            others than those looked at.

    Raises:
        ValueError: if `documents` does not have two dimensions, or `window` is not positive.
        TypeError: if it does not hold whole numbers.

    Example:
        >>> mask = AttentionMask.from_lengths([3, 2], look_ahead=True)
        >>> mask
        AttentionMask(rows=2, length=3, tokens=5, look_ahead=True, packed=False, device=cpu)
        >>> mask.for_sdpa()     # right padding needs no mask when nobody looks ahead
        {'is_causal': True}
        >>> mask.dense()[1, 0]
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True, False]])
    """

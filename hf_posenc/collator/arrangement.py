"""What the arranging of rows has to know, every setting in one spelling.

Values only; who settles them is `stage`, and who goes by them `arrange`, `rectangle` and `outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ragged import PaddingSide
from ..tokenization.encoded import Truncation
from .settings import Padding


@dataclass(frozen=True)
class Arrangement:
    r"""What the arranging of rows needs to know: every setting in one spelling, and what the tokenizer adds.

    Args:
        limit (`int`, *optional*), limited_by (`str`, *optional*): how many tokens a row may have, and the model that
            takes no more.
        padding, truncation (`str`): as transformers spells them.
        multiple (`int`, *optional*): T is rounded up to it.
        side, truncation_side (`"left"` or `"right"`): where padding goes, and where tokens are cut off.
        overflow (`bool`), stride (`int`): whether the rest of a long row goes on in further rows, and their overlap.
        keep_empty (`bool`): whether a row without tokens is kept.
        look_ahead (`bool`): whether the batch gets a look-ahead mask.
        packing (`bool`): whether documents share rows.
        labels (`str`, *optional*): which labels are made from the ids.
        shifts_labels (`bool`, *optional*): True if the model predicts each label from the token before it; `None` if
            that is not known.
        has_targets (`bool`): whether labels are token sequences of their own.
        target_limit (`int`, *optional*), targets_limited_by (`str`, *optional*): the same for those.
        decoder_start (`int`, *optional*): the token that a decoder's inputs begin with, where they are made here.
        start (`int`): the position of a row's first token.
        model_start (`int`): the same in the model's own numbering; 0 without a model that has one.
        names (`tuple` of `str`): what the tokenizer says that its models read.
        fills (`dict` from `str` to `int`): what stands at padding, per column.
        accepts (`frozenset` of `str`, *optional*): what the model's forward names.
        known_ids (`int`, *optional*): how many ids the table or the model can look up.
        embeds (`bool`): whether there is a table.
    """

    limit: int | None
    limited_by: str | None
    padding: Padding
    truncation: Truncation
    multiple: int | None
    side: PaddingSide
    truncation_side: str
    overflow: bool
    stride: int
    keep_empty: bool
    look_ahead: bool
    packing: bool
    labels: str | None
    shifts_labels: bool | None
    has_targets: bool
    target_limit: int | None
    targets_limited_by: str | None
    decoder_start: int | None
    start: int
    model_start: int
    names: tuple[str, ...]
    fills: dict[str, int]
    accepts: frozenset[str] | None
    known_ids: int | None
    embeds: bool

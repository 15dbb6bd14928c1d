"""The settings of a job: everything that decides the bytes of its shards, and nothing else.

Plain values that travel to any process; how many processes there are, and which engine, is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from ..tokenization.serialized import SerializedTokenizer

OnBadRow = Literal["error", "skip", "keep-empty"]
TooLong = Literal["truncate", "split", "error"]


@dataclass(frozen=True)
class Job:
    r"""What every worker of a job has to know.

    Args:
        folder (`Path`): where the shards go; the same folder for every worker.
        tokenizer (`SerializedTokenizer`): what `tokens.Tokens` makes its encoder from.
        text_column (`str`), text_pair_column (`str`, *optional*): where the documents stand.
        carried (`pyarrow.Schema`): the further columns.
        max_length (`int`, *optional*): limit on a row's tokens, special tokens included.
        too_long (`str`): what a longer text gets: `"truncate"`, `"split"` (the rest becomes further rows), `"error"`.
        stride (`int`): tokens that neighbouring rows of a split text share.
        add_special_tokens (`bool`): as transformers spells it.
        pack (`int`, *optional*): how many tokens a packed row holds.
        first_position (`int`): the position of a document's first token.
        labels (`"causal_lm"`, *optional*): store labels besides.
        on_bad_row (`str`): what a bad row gets: `"error"`, `"skip"`, `"keep-empty"`.
        settings (`dict` of JSON values): the settings that are stored in the footer of each shard.
    """

    folder: Path
    tokenizer: SerializedTokenizer
    text_column: str
    text_pair_column: str | None
    carried: pa.Schema
    max_length: int | None
    too_long: TooLong = "truncate"
    stride: int = 0
    add_special_tokens: bool = True
    pack: int | None = None
    first_position: int = 0
    labels: Literal["causal_lm"] | None = None
    on_bad_row: OnBadRow = "error"
    settings: dict[str, Any] = field(default_factory=dict)

"""Which table and which positions a job embeds with: from a width, a model's name, or an object.

Read and checked once, where the job begins; what travels to its workers is `vectors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._explain import explain, shorten
from ..._huggingface import loaded_model

if TYPE_CHECKING:
    from torch import nn

    from ...embedding import PositionalEmbedding

_USUAL = {"convention": "vaswani", "base": None, "scale": None}


def resolve_embeddings(embeddings: object, needed: int, seed: int, settings: Mapping[str, Any]) -> PositionalEmbedding:
    r"""What embeds: made, loaded, or the one that was given.

    Args:
        embeddings (`int`, `str`, `Path`, `nn.Embedding` or `PositionalEmbedding`): see `Vectors.of`.
        needed (`int`): how many ids are looked up.
        seed (`int`): of the random numbers of a width.
        settings (mapping): convention, base and scale.

    Returns:
        `PositionalEmbedding` of a plain table and a kind of encoding that is known here.

    Raises:
        ValueError, TypeError: see `Vectors.of`.

    Example:
        >>> resolve_embeddings(4, 10, 0, {"convention": "marian"}).num_embeddings
        10
    """
    from ...collator.table import TableLeftBehind, table_of_width
    from ...embedding import PositionalEmbedding

    if isinstance(embeddings, bool) or (isinstance(embeddings, int) and embeddings < 1):
        raise ValueError(
            explain("embeddings as a width must be a positive whole number", got=embeddings, fix="embeddings=384")
        )
    if isinstance(embeddings, TableLeftBehind):  # that of a collator from a pickle or a folder
        raise ValueError(embeddings.refusal())
    table: Any = embeddings
    if isinstance(embeddings, int):
        table = table_of_width(embeddings, needed, seed, None)
    elif isinstance(embeddings, str | Path):
        table = input_embeddings(str(embeddings))
    whole = table if isinstance(table, PositionalEmbedding) else PositionalEmbedding(_checked(table), **settings)
    if whole is embeddings:
        _check_settled(settings)
    _check_plain(whole)
    if whole.num_embeddings < needed:
        named = f"of {embeddings} " if isinstance(embeddings, str | Path) else ""
        raise ValueError(
            explain(
                f"the tokenizer has {needed} ids, and the embeddings {named}have {whole.num_embeddings} rows",
                got="ids without a vector",
                fix=f"the tokenizer of that model; or model.resize_token_embeddings({needed}), and its new embeddings",
            )
        )
    return whole


def input_embeddings(name: str) -> nn.Embedding:
    r"""The table in which a model looks its ids up.

    Args:
        name (`str`): a folder that `save_pretrained` wrote, or a model on the Hub. No remote code is run.

    Returns:
        `nn.Embedding` on the CPU, without gradient, in the dtype of the checkpoint. Where the model does more than look
        rows up, such as multiplying them, it holds what comes out.

    Raises:
        ValueError: if there is no such model, it has no table, or its checkpoint lacks it.
    """
    import torch
    from torch import nn

    from ...collator.weights import frozen

    model, missing = loaded_model(name, instead="; or a width: embeddings=384")
    try:
        table = model.get_input_embeddings()
    except (NotImplementedError, AttributeError):
        table = None
    if not isinstance(table, nn.Embedding):
        raise ValueError(
            explain(
                f"{name} has no table of token embeddings",
                got=f"{type(model).__name__}, whose input embeddings are {type(table).__name__}",
                fix="a model that reads text, or a width: embeddings=384",
            )
        )
    lacks = [key for key, weight in model.named_parameters() if weight is table.weight and key in missing]
    if lacks:
        raise ValueError(
            explain(
                f"the checkpoint of {name} lacks the token embeddings, which would be random numbers",
                got=f"missing: {', '.join(lacks)}",
                fix="a whole checkpoint, written by model.save_pretrained(folder); or a width: embeddings=384",
            )
        )
    with torch.no_grad():
        rows = table.weight if type(table) is nn.Embedding else table(torch.arange(table.num_embeddings))
    return frozen(rows.detach().clone())


def _checked(table: object) -> nn.Embedding:
    from torch import nn

    if not isinstance(table, nn.Embedding):
        raise TypeError(
            explain(
                "embeddings must be a width, the name or folder of a model, an nn.Embedding or a PositionalEmbedding",
                got=shorten(table),
                fix="embeddings=384, or embeddings=model.get_input_embeddings()",
            )
        )
    return table


def _check_plain(whole: PositionalEmbedding) -> None:
    """Numbers and settings travel to workers, code does not."""
    from torch import nn

    from ...encodings import KINDS

    table, encoding = whole.embedding, whole.encoding
    if type(table) is not nn.Embedding or table.max_norm is not None:
        raise ValueError(
            explain(
                "a job embeds with a plain nn.Embedding; this one does more than look rows up",
                got=f"{type(table).__name__}, max_norm={table.max_norm}",
                fix="nn.Embedding.from_pretrained(table(torch.arange(table.num_embeddings)))",
            )
        )
    if type(encoding) not in KINDS.values():
        raise ValueError(
            explain(
                "a job adds positions of the kinds of positional_encoding; this one has code of its own",
                got=type(encoding).__name__,
                fix=f"encoding= one of {', '.join(KINDS)}",
            )
        )


def _check_settled(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        if value != _USUAL[name]:
            raise ValueError(
                explain(
                    f"{name}= is set by the PositionalEmbedding that was given",
                    got=f"{name}={value!r}",
                    fix=f"leave {name}= out, or give its table: embeddings=embedding.embedding",
                )
            )

"""One call that makes a Hugging Face text model use sinusoidal positions.

Rows are written into the table that the model reads anyway: no hook, no cost, and a stock class loads the result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .._explain import explain, shorten
from .._huggingface import is_hugging_face, no_model, opened
from ..model_spec import Findings, find_positions, kinds_of, token_embeddings
from ..sinusoid import Convention, resolve_convention
from ..sinusoid.settings import check_length
from .formula import Formula
from .held import held_by
from .kept import Kept
from .lengthen import lengthen
from .report import SinusoidalPositions, Written
from .verify import largest_difference

# The attribute of a model's configuration that says what was done to it; it is saved with the model.
CONFIG_KEY = "sinusoidal_positions"


def use_sinusoidal_positions(
    model: Any,
    *,
    convention: str | Convention = "vaswani",
    base: float | None = None,
    max_positions: int | None = None,
    replace_trained: bool = False,
    verify: bool = True,
) -> SinusoidalPositions:
    r"""Writes exact sinusoids into every learned position table of a Hugging Face model, and freezes them.

    For training from scratch: under `Trainer` the model then adds them to this very step's token embeddings, on its
    device, in one process or many. The model stays what it was in every other respect; a saved checkpoint loads in the
    stock class, without this package, with the same outputs. After `from_pretrained` the rows are trainable again:
    call this once more, which changes no number and freezes them.

    Which tables there are, and which row a first token reads, is found by running the model on a few tokens; it is
    left as it was. Row r holds position `r - first_row + convention.first_position`; rows before the first, which only
    padding reads, are zero. Call it before the model is wrapped for several processes, and before the optimizer is
    made.

    Args:
        model (`PreTrainedModel`): of any text family with learned absolute positions: BERT, RoBERTa, GPT-2, OPT, BART
            and their relatives. Changed in place.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing of the sinusoids.
        base (number, *optional*, defaults to 10000): see `sinusoidal_encoding`; a smaller one suits short rows.
        max_positions (`int`, *optional*): lengthens the tables, with the configuration and the model's buffers, so that
            a row may have so many tokens. A second model is built for a moment to see what depends on the length. A
            tokenizer's own limit stays in force: `tokenizer.model_max_length = max_positions`.
        replace_trained (`bool`, *optional*, defaults to `False`): write over a table that was trained, too. The model
            has to be trained anew then.
        verify (`bool`, *optional*, defaults to `True`): run the model once more and compare what its tables return,
            unpadded and padded on either side, with `sinusoidal_encoding`.

    Returns:
        `SinusoidalPositions`, a report that prints well; its `remove()` puts the model back bit for bit.

    Raises:
        TypeError: if `model` is no Hugging Face model; the message shows the two lines for a module of your own.
        ValueError: if the model has no learned absolute positions (rotary, relative, alibi, none), has sinusoids of its
            own (Marian, Pegasus), holds trained positions, cannot be lengthened, or the width does not suit the
            convention.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5. arXiv:1706.03762.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=90, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
        >>> report = use_sinusoidal_positions(model)
        >>> model.embeddings.position_embeddings.weight[1, :2]
        tensor([0.8415, 0.5403])
        >>> print(report)
        BertModel: sinusoidal positions (vaswani)
          embeddings.position_embeddings.weight: 512 positions of width 8 from row 0, were random
          frozen; verified, largest difference 0.0
          left padding shifts positions unless position_ids are given
          positions are ... times as large as token embeddings; see the README on scale
        >>> report.remove()
    """
    chosen = resolve_convention(convention)
    if max_positions is not None:
        max_positions = check_length(max_positions, "max_positions")
    model = _opened(model)
    found = find_positions(model)
    tables = tuple(table for table in found.tables if table.is_learned)
    if not tables:
        raise ValueError(_no_table(model, found))
    for table in tables:
        chosen.check_fit(table.tensor.shape[1], base)
    formula = Formula(chosen, base)
    recorded = _recorded(model)
    were = [held_by(model, table, formula, recorded, replace_trained) for table in tables]
    kept = Kept(model)
    try:
        if max_positions is not None:
            lengthen(model, found, tables, max_positions, kept)
        parameters = dict(model.named_parameters())
        for table in tables:
            parameter = parameters[table.name]
            kept.write(parameter, rows_of(parameter, table.first_row, formula))
        noted = {"convention": chosen.to_dict(), "base": base, "tables": [each.name for each in tables]}
        kept.set(model.config, CONFIG_KEY, noted)
        difference = largest_difference(model, tables, formula) if verify else None
    except BaseException:
        kept.put_back()
        raise
    written = [
        Written(
            name=table.name,
            counts=table.counts,
            first_row=table.first_row,
            rows=len(parameters[table.name]),
            d_model=table.tensor.shape[1],
            max_positions=len(parameters[table.name]) - table.first_row - table.ahead,
            was=was,
            left_padding_shifts=table.left_padding_shifts,
        )
        for table, was in zip(tables, were, strict=True)
    ]
    suffix = "base_layer.weight"  # in a module of PEFT, with the adapters beside it
    adapted = tuple(table.name.removesuffix(suffix) for table in tables if table.name.endswith(f".{suffix}"))
    return SinusoidalPositions(
        model=type(model).__name__,
        convention=chosen,
        base=base,
        tables=tuple(written),
        kept_positions=tuple(kind for kind in kinds_of(model, found.tables) if kind != "learned"),
        not_reached=found.not_reached,
        largest_difference=difference,
        takes_position_ids=found.takes_position_ids,
        still_trained=tuple(
            name for name, each in parameters.items() if each.requires_grad and name.startswith(adapted)
        ),
        spread=_spread(model, parameters[tables[0].name]),
        _kept=None if recorded is not None and all(was.endswith("sinusoids") for was in were) else kept,
    )


def rows_of(parameter: torch.Tensor, first_row: int, formula: Formula) -> torch.Tensor:
    r"""What belongs into a table: zeros before the first row, then the encoding of one position after the other.

    Example:
        >>> rows_of(torch.empty(3, 2), 1, Formula(Convention("vaswani")))
        tensor([[0.0000, 0.0000],
                [0.0000, 1.0000],
                [0.8415, 0.5403]])
    """
    length, d_model = parameter.shape
    rows = torch.zeros(length, d_model, dtype=parameter.dtype, device="cpu")
    rows[first_row:] = formula.rows(torch.arange(length - first_row, device="cpu"), d_model, parameter.dtype)
    return rows


def _opened(model: Any) -> Any:
    inner = opened(model)
    if not isinstance(inner, nn.Module):
        rule = "use_sinusoidal_positions takes the Hugging Face model itself, before training"
        raise TypeError(no_model(rule, model, trained=False))
    if not is_hugging_face(inner):
        raise TypeError(
            explain(
                "use_sinusoidal_positions writes into the position table of a Hugging Face model",
                got=shorten(f"{type(inner).__module__}.{type(inner).__qualname__}"),
                fix="in a module of your own, two lines:\n"
                "    self.positions = SinusoidalPositionalEncoding(d_model)  # in __init__\n"
                "    x = self.positions(x, position_ids)  # in forward, x (B, T, d_model)",
            )
        )
    return inner


def _recorded(model: Any) -> Formula | None:
    """The formula that an earlier call noted in the configuration."""
    noted = getattr(model.config, CONFIG_KEY, None)
    try:
        return Formula(Convention.from_dict(noted["convention"]), noted.get("base")) if noted else None
    except (KeyError, TypeError, ValueError):
        return None


def _spread(model: Any, rows: torch.Tensor) -> float | None:
    """How large positions are, in parts of the token embeddings' size."""
    tokens = token_embeddings(model)
    if tokens is None or not tokens.numel():
        return None
    # BART's family may multiply what it looks up by sqrt(d).
    scale = float(getattr(model.get_input_embeddings(), "embed_scale", 1.0))
    size = tokens.detach()[:4096].float().std() * scale
    return float(rows.detach().float().std() / size.clamp_min(1e-12))


def _no_table(model: Any, found: Findings) -> str:
    """Why a model cannot have sinusoids written into it, and what to do instead."""
    kinds = kinds_of(model, found.tables)
    name = type(model).__name__
    leave = "leave it as it is; DataCollatorWithPositionalEncoding(tokenizer, model=model) feeds it what it takes"
    if "sinusoidal" in kinds:
        tables = ", ".join(table.name for table in found.tables) or "computed for each batch"
        return explain(f"{name} has sinusoidal positions of its own already", got=tables, fix=leave)
    if kinds:
        words = " and ".join(kinds)
        return explain(
            f"{name} has {words} positions and no table of absolute ones; sinusoids would come on top of its own",
            got=f"{words} positions",
            fix=leave,
        )
    if found.not_reached:
        return explain(
            f"{name} does not read its positions one row a token, so sinusoids cannot be written into them",
            got=", ".join(found.not_reached),
            fix=leave,
        )
    return explain(
        f"{name} has no table of positions to write into",
        got="no positions of its own",
        fix="to add them to what it is fed: collate = DataCollatorWithPositionalEncoding(tokenizer, "
        "embedding=model.get_input_embeddings()), and inputs_embeds from collate.embed(batch)",
    )

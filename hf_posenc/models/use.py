"""`use_sinusoidal_positions`: make a Hugging Face text model use sinusoidal positions.

The rows are written into the model's own position table: no hook, no runtime cost; the stock class loads the result.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from .._common.errors import require_one_of, value_error, warn
from ..positions import MAX_SPREAD, USUAL_BASE, Convention, check_length, resolve_convention
from .changes import Changes, lengthen
from .position_tables import ModelPositions, PositionTable, find_positions
from .probe import Probe, relative_difference, token_embeddings, with_masks
from .properties import is_hugging_face, not_a_model, opened
from .report import SinusoidalPositions
from .table_contents import Formula, table_content

# The attribute of a model's configuration that records the formula; it is saved with the model.
CONFIG_KEY = "sinusoidal_positions"

# Largest base of the recipe "matched" for encoders: they mostly read inputs much shorter than their table of 512 rows.
# Causal models get the order of short inputs from their mask, and are trained on inputs as long as the table.
_LARGEST_BASE = 30
# Base for encoder-decoders, whose cross-attention aligns tokens by their positions alone. Smaller bases copy late.
_BASE_OF_ALIGNMENT = 100.0
_NO_MODEL = """model = AutoModel.from_config(config), and not a module around it; in a module of your own, two lines:
    self.positions = SinusoidalPositionalEncoding(d_model)  # in __init__
    x = self.positions(x, position_ids=position_ids)  # in forward, x (B, T, d_model)"""


def use_sinusoidal_positions(
    model: Any,
    *,
    recipe: Literal["matched", "paper"] = "matched",
    convention: str | Convention = "vaswani",
    base: float | None = None,
    freeze: bool | None = None,
    max_positions: int | None = None,
    replace_trained: bool = False,
) -> SinusoidalPositions:
    r"""Write exact sinusoids into every learned position table of a Hugging Face model.

    Call it before training from scratch, before the model is wrapped for several processes, and before the optimizer is
    made. The model then adds the sinusoids to its token embeddings in every forward, on any device and in any number of
    processes. A saved checkpoint loads in the stock class, without this package, and gives the same outputs. After
    `from_pretrained`, the sinusoids are trainable again; another call with the same arguments changes no number.

    Token embeddings in Hugging Face models have a standard deviation of about 0.02, sinusoids 0.71. Beside such large
    positions, tokens are learned late or never. The recipe `"matched"` therefore chooses by the kind of model:

    - *Encoders*, such as BERT and RoBERTa: frozen sinusoids of the size of the token embeddings, with a base of at most
      30, because texts are mostly much shorter than the table. Token embeddings are multiplied by the largest power of
      two that keeps their standard deviation within 1 / sqrt(D): small embeddings would grow quickly in training, and
      frozen positions cannot grow with them.
    - *Encoder-decoders*, such as BART: frozen sinusoids of about twice the size of the token embeddings, with base 100,
      because cross-attention aligns tokens by positions alone.
    - *Models without a LayerNorm after the sum of the embeddings*, such as GPT-2 and OPT: sinusoids of half the size of
      the token embeddings, with which the slowest column makes half a turn over the table. They are initial values
      that are trained further, because with frozen ones these models copy late or never.

    The size is a power of two, which adds no rounding error, so every row is exact. Token embeddings are never
    multiplied if the positions were trained.

    The recipe `"paper"` writes the unmodified sinusoids of the paper, with base 10000 and scale 1, and does not change
    token embeddings. Convention, base, scale and factor are recorded in `model.config.sinusoidal_positions`. If the
    tables still contain the recorded sinusoids, a call with the default recipe, convention and base keeps them.

    The tables are found by running the model on a few tokens. The first token reads row `first_row` of a table, for
    example row 2 in RoBERTa. This row gets the sinusoids of position `convention.first_position`, and each row after it
    those of the next position. Rows before `first_row`, which only padding reads, are set to zero. Then the model is
    run on unpadded, left-padded and right-padded rows, and the values that its tables return are compared with
    `sinusoidal_encoding`.

    Args:
        model (`PreTrainedModel`): of any text family with learned absolute positions: BERT, RoBERTa, GPT-2, OPT, BART
            and their relatives. Changed in place.
        recipe (`"matched"` or `"paper"`, *optional*, defaults to `"matched"`): see above.
        convention (`str` or `Convention`, *optional*, defaults to `"vaswani"`): layout and spacing of the sinusoids.
        base (number, *optional*): as in `sinusoidal_encoding`; by default, the recipe chooses it.
        freeze (`bool`, *optional*): True excludes the rows from training, False trains them further. By default the
            recipe chooses it; `"paper"` freezes them.
        max_positions (`int`, *optional*): new maximum number of tokens in a row; by default, lengths are not changed.
            Tables, configuration and buffers are lengthened, for which a second model is built temporarily. Also set
            the limit of the tokenizer: `tokenizer.model_max_length = max_positions`.
        replace_trained (`bool`, *optional*, defaults to `False`): overwrite trained tables as well. The model then has
            to be trained again.

    Returns:
        `SinusoidalPositions`, a report for `print`. Its `remove()` restores rows and configuration bit for bit, and
        divides the token embeddings by their factor.

    Raises:
        TypeError: if `model` is not a Hugging Face model. For your own module, the message shows other code to use.
        ValueError: in these cases; the model is then left unchanged:

            - It has no learned absolute positions, but rotary, relative, alibi or no positions, or its own sinusoids
              (Marian, Pegasus).
            - Its positions were trained or are sinusoids of another formula, and `replace_trained` is False.
            - It cannot be lengthened to `max_positions`, or is already longer.
            - Its width does not fit the convention.
            - Its tables return other values than were written.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5, and section 3.4 for the size of embeddings.
        arXiv:1706.03762.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=90, hidden_size=64, num_hidden_layers=1, num_attention_heads=2))
        >>> report = use_sinusoidal_positions(model)
        >>> model.embeddings.position_embeddings.weight[1, :2]     # 0.125 * sin(1), 0.125 * cos(1)
        tensor([0.1052, 0.0675])
        >>> print(report)
        BertModel: sinusoidal positions (vaswani)
          rows: sines and cosines side by side, of p / 30^(2i/D), multiplied by 0.125
          embeddings.position_embeddings.weight: 512 positions of width 64 from row 0, were random
          token embeddings multiplied by 4
          frozen; verified, largest difference 0.0
          left padding shifts positions unless position_ids are given
        >>> report.remove()
    """
    require_one_of("recipe", recipe, ("matched", "paper"))
    chosen = resolve_convention(convention)
    if max_positions is not None:
        max_positions = check_length(max_positions, "max_positions")
    if not is_hugging_face(model := opened(model)):
        rule = "use_sinusoidal_positions takes the Hugging Face model itself, before training"
        raise not_a_model(rule, model, fix=_NO_MODEL)
    positions = find_positions(probe := Probe(model))
    tables = tuple(table for table in positions.tables if table.is_learned)
    if not tables:
        raise _no_table(model, positions)
    for table in tables:
        chosen.check_fit(table.tensor.shape[1], base)
    is_normalized = _is_normalized(probe)
    freeze = (is_normalized or recipe == "paper") if freeze is None else freeze
    tokens = _token_tables(model)
    recorded, factor = _recorded(model, tables)
    formula, multiply = Formula(chosen, base), 1.0
    if recorded is not None and (recipe, convention, base) == ("matched", "vaswani", None):
        formula, recipe = recorded, getattr(model.config, CONFIG_KEY).get("recipe", "paper")
    elif recipe == "matched":
        size = _token_size(model, tokens) or float(tables[0].tensor.detach().float().std())
        formula, multiply = _matched(formula, positions, max_positions or 0, size, is_normalized)
    if recorded is not None:
        contents = [f"{recorded} sinusoids" for _ in tables]
    else:
        contents = [table_content(table, formula, replace_trained) for table in tables]
    if recorded is not None or "trained" in contents:
        # Token embeddings are multiplied already, or trained like the positions.
        formula, multiply = replace(formula, scale=formula.scale / multiply), 1.0
    record = {
        "recipe": recipe,
        "convention": formula.convention.to_dict(),
        "base": formula.base,
        "scale": formula.scale,
        "token_factor": factor * multiply,
    }
    changes = Changes(model)
    try:
        if max_positions is not None:
            lengthen(model, positions, tables, max_positions, changes)
        parameters = dict(model.named_parameters())
        for table in tables:
            parameter = parameters[table.name]
            changes.write(parameter, formula.table(parameter, table.first_row), freeze=freeze)
        for name in tokens if multiply != 1 else ():
            changes.multiply(parameters[name], multiply)
        changes.set(model.config, CONFIG_KEY, record)
        _check_lookups(model, tables, formula)
    except BaseException:
        changes.undo()
        raise
    size = _token_size(model, tokens)
    spread = float(parameters[tables[0].name].detach().float().std()) / size if size else 0.0
    if "random" in contents and recipe == "paper" and spread > MAX_SPREAD:
        warn(
            f"the positions written into {type(model).__name__} are {spread:.0f} times as large as its token "
            "embeddings, so that it may learn late or not at all: use_sinusoidal_positions(model, recipe='matched')"
        )
    trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
    # In a module of PEFT, the adapters are beside the table.
    beside = tuple(table.name.removesuffix("base_layer.weight") for table in tables)
    names = [table.name for table in tables]
    return SinusoidalPositions(
        model=type(model).__name__,
        convention=formula.convention,
        base=formula.base,
        scale=formula.scale,
        token_factor=factor * multiply,
        positions=replace(positions, tables=tuple(replace(each, tensor=parameters[each.name]) for each in tables)),
        contents=tuple(contents),
        frozen=tuple(name for name in names if name not in trained),
        still_trained=tuple(name for name in trained if name.startswith(beside) and name not in names),
        _changes=changes if recorded is None else Changes(model),
    )


def _no_table(model: Any, positions: ModelPositions) -> ValueError:
    """Return the error for a model without learned tables; `positions` is its `find_positions` result."""
    found = [f"{kind} positions" for kind in positions.kinds if kind != "unknown"]
    fix = "leave it as it is; DataCollatorWithPositionalEncoding(tokenizer, model=model) makes batches that fit it"
    if not positions.kinds:
        fix = (
            "to add them to its inputs: collate = DataCollatorWithPositionalEncoding(tokenizer, "
            "embedding=model.get_input_embeddings()), and inputs_embeds from collate.embed(batch)"
        )
    return value_error(
        f"{type(model).__name__} has no table of learned positions with one row a token to write into",
        got=", ".join([*found, *positions.not_reached]) or "no positions of its own",
        fix=fix,
    )


# ----------------------------------------------------------------------------------------------- the recipe, the record


def _matched(
    formula: Formula, positions: ModelPositions, max_positions: int, size: float, is_normalized: bool
) -> tuple[Formula, float]:
    """Return `formula` with the base and scale of the recipe "matched", and the factor for the token embeddings."""
    base, convention, multiply = formula.base, formula.convention, 1.0
    aligns = any(table.counts == "decoder_input_ids" for table in positions.tables)
    if base is None and convention == replace(convention, base=USUAL_BASE, bases=None, wavelengths=None):
        longest = max(max_positions, *(table.max_length for table in positions.tables))
        base = max(2.0, min(round(longest / math.pi), math.inf if positions.is_causal else _LARGEST_BASE))
        base = _BASE_OF_ALIGNMENT if aligns else base
    if aligns:
        size *= 1.75
    elif is_normalized:
        multiply = max(1.0, 2.0 ** math.floor(math.log2(positions.tables[0].tensor.shape[1] ** -0.5 / size)))
    else:
        size *= 0.5  # the blocks of the model add to these sums, so large ones would drown what they add
    # Sines and cosines have a root mean square of 1 / sqrt(2).
    return Formula(convention, base, 2.0 ** round(math.log2(size * multiply * math.sqrt(2)))), multiply


def _is_normalized(probe: Probe) -> bool:
    """Return True if a LayerNorm follows the sum of the embeddings, so that only the ratio of its parts matters."""
    # Then twice as large embeddings give the same outputs, apart from the epsilon of the LayerNorm.
    inputs = with_masks(probe.samples)
    tables = list({id(lookup.table): lookup.table for lookup in probe.run(inputs)[0] if lookup.is_added}.values())
    outputs, larger = [], 1
    try:
        for factor in (4, 2):  # four times as large, the epsilon counts little
            for table in tables:
                table.data.mul_(factor)
            larger *= factor
            outputs.append(probe.run(inputs)[1])
    finally:
        for table in tables:
            table.data.div_(larger)
    # In 61 families the difference is at most 0.3 % with a LayerNorm (in bfloat16), and at least 0.9 % without one.
    return relative_difference(*outputs) <= 5e-3


def _token_tables(model: Any) -> dict[str, torch.Tensor]:
    """Return `{parameter name: table}` for the token embeddings of a model; encoder and decoder may have one each."""
    parts = [model, getattr(model, "encoder", None), getattr(model, "decoder", None)]
    weights = [token_embeddings(part) for part in parts if part is not None]
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if any(parameter is weight for weight in weights)
    }


def _token_size(model: Any, tokens: dict[str, torch.Tensor]) -> float:
    """Return the standard deviation of the model's token embeddings `tokens`; 0 if `tokens` is empty."""
    first = next(iter(tokens.values()), torch.zeros(1, device="cpu"))
    # BART's family may multiply embeddings by sqrt(D).
    scale = float(getattr(model.get_input_embeddings(), "embed_scale", 1.0)) if tokens else 1.0
    return float(first.detach()[:4096].float().std(correction=0)) * scale


def recorded_formula(model: Any) -> Formula | None:
    """Return the `Formula` of sinusoids that is recorded in the configuration of `model`; `None` if there is none."""
    record: Any = getattr(model.config, CONFIG_KEY, None)
    try:
        return Formula(Convention.from_dict(record["convention"]), record.get("base"), record.get("scale", 1.0))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _recorded(model: Any, tables: tuple[PositionTable, ...]) -> tuple[Formula | None, float]:
    """Return the formula of the sinusoids and the factor of the token embeddings, as an earlier call recorded them."""
    formula = recorded_formula(model)
    if formula is None or not all(formula.matches(table.tensor[table.first_row :]) for table in tables):
        return None, 1.0
    return formula, float(getattr(model.config, CONFIG_KEY).get("token_factor", 1.0))


# ---------------------------------------------------------------------------------------------------------- afterwards


def _check_lookups(model: Any, tables: tuple[PositionTable, ...], formula: Formula) -> None:
    """Run the model, and raise if one of `tables` is not read, or does not return the sinusoids of `formula`."""
    probe = Probe(model)
    first_rows = {table.name: table.first_row for table in tables}
    modules = [probe.model.get_submodule(name.rpartition(".")[0]) for name in first_rows]
    embeddings = [module for module in dict.fromkeys(modules) if isinstance(module, nn.Embedding)]
    differences: dict[str, float] = {}
    # The second input has two rows, one padded on the left and one on the right.
    for inputs in (with_masks(probe.samples), probe.padded(probe.samples)):
        for lookup in probe.run(inputs, embeddings)[0]:
            name, rows = probe.tables[id(lookup.table)][0], lookup.rows
            if name in first_rows:
                values = lookup.values.reshape(*rows.shape, -1)
                exact = formula.rows(rows - first_rows[name], values.shape[-1], values.dtype)
                exact[rows < first_rows[name]] = 0
                differences[name] = max(differences.get(name, 0.0), float((values.cpu() - exact).abs().max()))
    for name in first_rows:
        if differences.get(name) != 0.0:
            raise value_error(
                f"{name} of {type(model).__name__} does not return what was written into it",
                got=f"a difference of {differences[name]:.3g}" if name in differences else "no lookup into it",
                fix="report it with the model's class; the model is as it was before the call",
            )

"""The audit of a model, for families of transformers whose tables and padding are known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from families import UNTOLD, assert_same, family, own_model, traces, whole
from looping import for_each

from hf_posenc import Convention, audit, fixed_bases, use_sinusoidal_positions
from hf_posenc.positions import CONVENTIONS

SINUSOIDAL = {"distilbert": {"sinusoidal_pos_embds": True}, "xlm": {"sinusoidal_embeddings": True}}


def made(name: str) -> Any:
    return family(name).build(**SINUSOIDAL.get(name, {}))


def table_of(found: audit.PositionCheck, part: str = "") -> audit.CheckedTable:
    return next(table for table in found.tables if part in table.name)


@for_each(
    ("name", "first_row", "padding_row", "preset", "zero_rows"),
    [
        ("marian", 0, None, "marian", ()),
        ("pegasus", 0, None, "marian", ()),
        ("m2m_100", 2, 1, "fairseq", (1,)),
        ("fsmt", 2, 1, "fairseq", (1,)),
        ("xglm", 2, None, "fairseq", (1,)),
        ("ctrl", 0, None, "marian", ()),
        ("distilbert", 0, None, "vaswani", ()),
        ("xlm", 0, None, "vaswani", ()),
    ],
)
def test_sinusoidal_tables_of_a_family_are_found(
    name: str, first_row: int, padding_row: int | None, preset: str, zero_rows: tuple[int, ...]
) -> None:
    found = audit.check(made(name))
    assert found.positions == ("sinusoidal",)
    assert len(found.tables) == (2 if name in {"marian", "pegasus", "m2m_100", "fsmt"} else 1)
    for table in found.tables:
        assert (table.first_row, table.padding_row) == (first_row, padding_row)
        assert table.counts == ("decoder_input_ids" if table.name.startswith("decoder.") else "input_ids")
        assert table.identified is not None
        assert table.is_sinusoidal
        assert (table.identified.presets[0], table.identified.zero_rows) == (preset, zero_rows)
        assert table.rows == {2: 42}.get(first_row, 256 if name == "ctrl" else 40)
        assert table.collapsed_rows == 0
    assert f"{found.model}: sinusoidal positions" in str(found)


@for_each(
    ("name", "shifts"),
    [
        ("xglm", True),
        ("ctrl", True),
        ("bert", True),
        ("gpt2", True),
        ("m2m_100", False),
        ("roberta", False),
        ("fsmt", False),
        ("llama", False),
        ("t5", False),
        ("roformer", False),
    ],
)
def test_left_padding_shifts_is_true_if_outputs_change(name: str, shifts: bool) -> None:
    model = made(name)
    found = audit.check(model)
    assert found.left_padding_shifts is shifts
    if not model.config.is_encoder_decoder:  # the definition: the same tokens, alone and after padding
        pad = model.config.pad_token_id or 0
        ids = torch.tensor([[11, 12, 13, 14]])
        padded = torch.cat([torch.full((1, 3), pad), ids], 1)
        mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
        with torch.no_grad():
            alone = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            after = model(input_ids=padded, attention_mask=mask).last_hidden_state[:, 3:]
        assert bool((alone - after).abs().max() > 1e-3) is shifts
    words = "shifts the positions" if shifts else "does not change positions"
    assert f"left padding: {words}" in str(found)


def test_marians_decoder_shifts_and_takes_no_position_ids() -> None:
    found = audit.check(made("marian"))
    assert table_of(found, "decoder").left_padding_shifts
    assert found.takes_position_ids is False
    assert "shifts the positions if only an attention mask is passed; pad on the right" in str(found)
    assert "pass position_ids" in str(audit.check(made("xglm")))


@for_each(
    ("name", "kinds"),
    [
        ("bert", ("learned",)),
        ("gpt2", ("learned",)),
        ("llama", ("rotary",)),
        ("roformer", ("rotary",)),
        ("t5", ("relative",)),
        ("bloom", ("alibi",)),
        ("mpnet", ("learned", "relative")),
        ("mamba", ()),
    ],
)
def test_the_kinds_of_positions_are_named(name: str, kinds: tuple[str, ...]) -> None:
    found = audit.check(made(name))
    assert found.positions == kinds
    for table in found.tables:
        assert table.is_sinusoidal is (name == "roformer")
    words = f"{' and '.join(kinds)} positions" if kinds else "no positions of its own"
    assert str(found).startswith(f"{found.model}: {words}\n")


@pytest.mark.parametrize("form", UNTOLD)
def test_positions_of_an_unknown_kind_are_reported(form: str) -> None:
    found = audit.check(own_model(form))
    assert found.positions == ("unknown",)
    assert found.unknown_in == (("pe",) if form == "buffer" else ("table",))
    assert f"positions of an unknown kind in {found.unknown_in[0]}" in str(found)


def test_the_positions_of_reformer_are_reported() -> None:
    sizes = {"attention_head_size": 8, "hidden_size": 16, "num_attention_heads": 2, "feed_forward_size": 24}
    chunks = {"local_attn_chunk_length": 16, "lsh_attn_chunk_length": 16, "num_buckets": 2, "attn_layers": ["lsh"]}
    axes = {"axial_pos_embds_dim": [8, 8], "axial_pos_shape": [8, 8], "max_position_embeddings": 64}
    found = audit.check(
        transformers.ReformerModel(transformers.ReformerConfig(vocab_size=97, **sizes, **chunks, **axes))
    )
    assert found.positions == ("unknown",)
    assert "of an unknown kind in embeddings.position_embeddings.weights.0, " in str(found)


def test_a_model_that_reads_no_token_ids_is_refused() -> None:
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8)
    with pytest.raises(ValueError, match="ViTModel reads no token ids"):
        audit.check(transformers.ViTModel(config))


def test_a_table_outside_parameters_and_buffers_is_found() -> None:
    found = audit.check(made("trocr with sinusoids"))
    assert found.positions == ("sinusoidal",)
    assert table_of(found).name == "model.decoder.embed_positions.weights"


@for_each("recipe", ["matched", "paper"])
@for_each(
    ("name", "convention"), [("bert", "vaswani"), ("gpt2", "vaswani"), *(("roberta", each) for each in CONVENTIONS)]
)
@pytest.mark.filterwarnings("ignore:the positions written into")
def test_written_sinusoids_are_exact_and_trained_in_a_gpt2_only(name: str, convention: str, recipe: Any) -> None:
    model = made(name)
    learned = table_of(audit.check(model))
    assert learned.is_trainable
    assert not learned.is_sinusoidal
    report = use_sinusoidal_positions(model, recipe=recipe, convention=convention)
    found = audit.check(model)
    table = table_of(found)
    assert found.positions == ("sinusoidal",)
    assert table.identified is not None
    assert (table.identified.is_exact, table.is_trainable) == (True, (name, recipe) == ("gpt2", "matched"))
    assert (convention in table.identified.presets) == (recipe == "paper")
    assert table.identified.amplitude == report.scale
    assert table.identified.convention.base == pytest.approx(report.base or 10000)
    assert table.first_row is not None
    assert table.identified.first_position == CONVENTIONS[convention].first_position - table.first_row
    assert table.identified.zero_rows == tuple(range(table.first_row))
    report.remove()
    assert audit.check(model).positions == ("learned",)


@pytest.mark.parametrize("convention", [Convention("own", wavelengths=(3, 77)), fixed_bases(*range(3, 11))])
@pytest.mark.filterwarnings("ignore:the positions written into")
def test_a_custom_convention_is_recognized_by_the_record_in_the_configuration(convention: Convention) -> None:
    model = made("bert")
    use_sinusoidal_positions(model, recipe="paper", convention=convention)
    table = table_of(audit.check(model))
    assert table.identified is not None
    assert (table.identified.is_exact, table.identified.presets) == (True, ())
    assert table.identified.convention.formula == convention.formula
    for record in ({"convention": {"name": "no such name"}}, "unreadable", None):
        model.config.sinusoidal_positions = record
        report = audit.check(model)
        assert report.positions == ("learned",)
        assert "not recognized: 40 rows of width 16, float32" in str(report)


def test_exactness_refers_to_the_dtype_of_the_table() -> None:
    model = made("bert")
    use_sinusoidal_positions(model)
    half = table_of(audit.check(model.to(torch.bfloat16)))
    assert half.identified is not None
    assert (half.identified.is_exact, half.identified.exact_in) == (True, torch.bfloat16)
    assert 1e-3 < half.identified.largest_error / half.identified.amplitude < 4e-3
    theirs = table_of(audit.check(made("m2m_100").to(torch.bfloat16)))
    assert theirs.is_sinusoidal


def test_equal_rows_are_counted_even_in_a_table_that_cannot_be_read() -> None:
    model = made("bert")
    use_sinusoidal_positions(model)
    with torch.no_grad():
        weight = model.embeddings.position_embeddings.weight
        weight[30:] = weight[29]
        weight[5] = -0.0
        weight[6] = 0.0
    table = table_of(audit.check(model))
    assert (table.rows, table.collapsed_rows) == (40, 10)
    assert "10 of 40 rows are the same as one before" in str(table)
    with torch.no_grad():
        weight[0] = float("nan")
    table = table_of(audit.check(model))
    assert not table.is_sinusoidal
    assert "unreadable: every number of a table must be finite, 16 of 640 are NaN or infinite" in str(table)
    assert (table.identified, table.collapsed_rows) == (None, 10)
    counted = made("bert")
    positions = torch.arange(40).add(500).to(torch.bfloat16)  # the dtype of positions in some models
    with torch.no_grad():
        counted.embeddings.position_embeddings.weight.copy_(positions[:, None] * torch.ones(16))
    assert table_of(audit.check(counted)).collapsed_rows == 40 - len(positions.unique())


@pytest.mark.parametrize("name", ["bert", "marian", "m2m_100", "ctrl"])
def test_the_model_does_not_change(name: str) -> None:
    model = made(name).train()
    before, marks = whole(model), traces(model)
    audit.check(model)
    assert_same(before, whole(model))
    assert traces(model) == marks


def test_other_modules_raise_and_the_message_names_identify() -> None:
    with pytest.raises(TypeError) as refused:
        audit.check(torch.nn.Linear(2, 2))
    assert "got: Linear(" in str(refused.value)
    assert "fix: a PreTrainedModel; for a table, or a module with one: identify(table)" in str(refused.value)
    with pytest.raises(TypeError, match="check needs the Hugging Face model itself"):
        audit.check("bert-base-uncased")

"""`use_sinusoidal_positions` on tiny models of some fifty Hugging Face families, compared with facts written by hand.

Expected values come from `families`, `sinusoidal_encoding` and transformers' own classes, not from `ModelSpec`.
"""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from families import (
    DECOYS,
    FAMILIES,
    NAMED,
    ROOM,
    VOCABULARY,
    WIDTH,
    WITHOUT_NORM,
    Family,
    assert_same,
    each_family,
    each_family_without_table,
    each_head,
    outputs,
    own_model,
    tokens,
    traces,
    whole,
)
from looping import for_each
from torch import nn

from hf_posenc import (
    ModelSpec,
    SinusoidalPositionalEncoding,
    fixed_bases,
    sinusoidal_encoding,
    use_sinusoidal_positions,
)
from hf_posenc.models import looks_trained
from hf_posenc.positions import CONVENTIONS, resolve_convention

# Most of these tests are about tables; which sinusoids are written is easiest to see with the paper's.
use_paper = functools.partial(use_sinusoidal_positions, recipe="paper")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:the positions written into"),
]

every_family = pytest.mark.parametrize("family", each_family())
BERT, ROBERTA, GPT2, BART = (FAMILIES[name] for name in ("bert", "roberta", "gpt2", "bart"))


def _rows(
    first_row: int, rows: int, width: int, convention: Any = "vaswani", base: float | None = None, scale: float = 1.0
) -> torch.Tensor:
    """Return the expected rows of a table: zeros, then the encoding of one position after the other."""
    start = resolve_convention(convention).first_position
    exact = sinusoidal_encoding(torch.arange(rows - first_row) + start, width, convention=convention, base=base) * scale
    return torch.cat([torch.zeros(first_row, width), exact])


def _expected(family: Family, model: nn.Module) -> dict[str, int]:
    """Return the first rows of a family's tables by their names in this model, which may have a head."""
    return {
        full: first
        for name, first in family.tables.items()
        for full, _ in model.named_parameters()
        if f".{full}".endswith(f".{name}")
        and not any(f".{full}".endswith(f".{other}") for other in family.tables if len(other) > len(name))
        and not any(f".{full}".endswith(f".{other}") for other in family.unreached)
    }


def _same_outputs(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _reloaded(model: Any, folder: Path) -> Any:
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder).eval()


def test_more_than_forty_families_are_tested() -> None:
    assert len(NAMED) == 35
    assert len(FAMILIES) > 45


@every_family
def test_the_facts_about_a_family_are_true(family: Family) -> None:
    """Changing a row changes outputs exactly if the facts list it as read."""
    model = family.build()
    inputs = tokens(family)
    for name, first in family.tables.items():
        table = model.get_parameter(name)
        in_decoder = family.has_decoder and "decoder" in name
        length = inputs["decoder_input_ids"].shape[1] + family.ahead if in_decoder else inputs["input_ids"].shape[1]
        every = torch.arange(len(table))
        read = (every >= first) & (every < first + length)
        plain, before = outputs(model, inputs), table.detach().clone()
        for rows, matters in [(~read, False), *((every == row, True) for row in range(first, first + length))]:
            with torch.no_grad():
                table[rows] += 1.0 + torch.rand(int(rows.sum()), table.shape[1])
            changed = [float((a - b).abs().max()) for a, b in zip(plain, outputs(model, inputs), strict=True)]
            assert (max(changed) > 1e-5) == matters, (name, rows.nonzero().flatten().tolist(), changed)
            with torch.no_grad():
                table.copy_(before)


@every_family
def test_every_learned_table_of_a_family_gets_exact_sinusoids_and_nothing_else_changes(family: Family) -> None:
    model, inputs = family.build(), tokens(family)
    model.get_parameter(frozen := next(iter(family.tables))).requires_grad_(False)  # that one was not trained before
    learned, _ = outputs(model, inputs), model.train()
    next(module for module in model.modules() if not list(module.children())).eval()  # modes need not be one
    expected = _expected(family, model)
    assert len(expected) == len(family.tables)
    stock, before, marks = whole(model), whole(model), traces(model)

    report = use_paper(model)

    after = whole(model)
    for name, first in expected.items():
        table = model.get_parameter(name)
        assert torch.equal(table, _rows(first, *table.shape)), name
        assert not table.requires_grad
        assert not torch.equal(before["state"].pop(name), after["state"].pop(name))
        assert before["trains"].pop(name) is (name != frozen)
        assert not after["trains"].pop(name)
        for alias, parameter in model.named_parameters(remove_duplicate=False):
            if parameter is table and alias != name:
                del before["state"][alias], after["state"][alias]
    record = after["config"].pop("sinusoidal_positions")
    assert record["convention"]["name"] == "vaswani"
    json.dumps(record)
    assert_same(before, after)
    assert traces(model) == marks

    assert {table.name: table.first_row for table in report.positions.tables} == expected
    assert all(table.tensor is model.get_parameter(table.name) for table in report.positions.tables)
    assert set(report.contents) == {"random"}
    assert sorted(report.frozen) == sorted(expected)
    assert report.positions.not_reached == family.unreached
    text = str(report)
    assert ("left padding shifts" in text) == family.left_padding_shifts
    assert text.splitlines()[0] == f"{type(model).__name__}: sinusoidal positions (vaswani)"
    for name in (*expected, *family.unreached):
        assert name in text
    for kind in family.stays:
        assert f"{kind} positions stay" in text

    report.remove()
    assert_same(stock, whole(model))
    assert traces(model) == marks
    assert _same_outputs(outputs(model.eval(), inputs), learned)
    with pytest.raises(RuntimeError, match="nothing to restore"):
        report.remove()


@every_family
def test_the_matched_recipe_brings_tokens_to_their_size_in_the_paper_and_sinusoids_to_theirs(
    family: Family, tmp_path: Path
) -> None:
    model, inputs = family.build(), tokens(family)
    expected, before, learned = _expected(family, model), whole(model), outputs(model, inputs)
    is_trained = any(FAMILIES[name] is family for name in WITHOUT_NORM)

    report = use_sinusoidal_positions(model)

    record, after = model.config.sinusoidal_positions, whole(model)
    assert record["recipe"] == "matched"
    for factor in (record["token_factor"], record["scale"]):
        assert math.log2(factor).is_integer()  # no digit of a row changes
    for name, first in expected.items():
        table = model.get_parameter(name)
        rows = len(table) - first - family.ahead * ("decoder" in name)
        if len(expected) == 1:
            longest = round(rows / math.pi)
            assert record["base"] in (max(2, longest), max(2, min(longest, 30)))
        assert not family.has_decoder or record["base"] == 100
        assert torch.equal(table, _rows(first, *table.shape, base=record["base"], scale=record["scale"])), name
        assert table.requires_grad == is_trained
    tables = {id(each): name for name, each in model.named_parameters()}
    name = tables.get(id(getattr(model.get_input_embeddings(), "weight", None))) if family.prefix != "Canine" else None
    if name is not None and name not in expected:
        was, now = before["state"][name], after["state"][name]
        assert torch.equal(now, was * record["token_factor"])
        scale = float(getattr(model.get_input_embeddings(), "embed_scale", 1.0))
        width = model.get_parameter(next(iter(expected))).shape[1]
        factor, size = record["token_factor"], float(now.std()) * scale
        if family.has_decoder:
            assert factor == 1
            size *= 1.75
        elif is_trained:
            assert factor == 1
            size *= 0.5
        else:
            assert factor == 1 or size <= 1.01 / math.sqrt(width)
            assert 2 * size > 0.99 / math.sqrt(width)
        assert 0.7 < record["scale"] / math.sqrt(2) / size < 1.42

    again = _reloaded(model, tmp_path)
    assert _same_outputs(outputs(again, inputs), outputs(model, inputs))
    reloaded = whole(again)
    same = use_sinusoidal_positions(again)
    assert (same.convention, same.base, same.scale) == (report.convention, report.base, report.scale)
    assert_same(reloaded | {"trains": {}}, whole(again) | {"trains": {}})
    report.remove()
    assert_same(before, whole(model))
    assert _same_outputs(outputs(model, inputs), learned)


@pytest.mark.parametrize(("family", "head"), each_head())
def test_a_family_with_a_head_gets_sinusoids_and_reloads_in_its_stock_class(
    family: Family, head: str, tmp_path: Path
) -> None:
    model = family.build(head)
    expected = _expected(family, model)
    assert len(expected) == len(family.tables)
    inputs = _for_head(model, tokens(family))
    before = whole(model)

    report = use_paper(model)

    for name, first in expected.items():
        table = model.get_parameter(name)
        assert torch.equal(table, _rows(first, *table.shape))
        assert not table.requires_grad
    again = _reloaded(model, tmp_path)
    assert _same_outputs(outputs(again, inputs), outputs(model, inputs))
    assert again.config.sinusoidal_positions == model.config.sinusoidal_positions
    assert all(again.get_parameter(name).requires_grad for name in expected)
    assert set(use_paper(again).contents) == {"vaswani sinusoids"}
    assert not any(again.get_parameter(name).requires_grad for name in expected)
    report.remove()
    assert_same(before, whole(model))


def _for_head(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return inputs with the special tokens that two heads require."""
    name = type(model).__name__
    if name == "BartForSequenceClassification":  # reads the last end-of-sequence token, and makes the second sequence
        inputs = {key: value for key, value in inputs.items() if "decoder" not in key}
        inputs["input_ids"][:, -1] = model.config.eos_token_id
    if name == "LongformerForQuestionAnswering":  # finds the question by three separators
        inputs["input_ids"][:, [2, 3, 6]] = model.config.sep_token_id
    return inputs


@pytest.mark.parametrize("family", each_family(name for name, each in FAMILIES.items() if each.longer))
def test_max_positions_lengthens_tables_config_and_buffers_so_that_longer_rows_run(
    family: Family, tmp_path: Path
) -> None:
    model, inputs = family.build(), tokens(family)
    before = whole(model)
    use_paper(model).remove()
    short = outputs(model, inputs)
    wanted = ROOM + 24
    report = use_paper(model, max_positions=wanted)

    for name, first in _expected(family, model).items():
        table = model.get_parameter(name)
        assert torch.equal(table, _rows(first, first + wanted + family.ahead, table.shape[1])), name
        assert not table.requires_grad
    assert min(table.max_length for table in report.positions.tables) == wanted
    long = tokens(family, wanted, wanted)
    if family.prefix != "Tapas":  # which reads its last row again and again
        with pytest.raises((RuntimeError, IndexError, ValueError), match=r"index|size|length|expand|shape"):
            outputs(family.build(), long)
    ours = outputs(model, long)
    again = _reloaded(model, tmp_path)  # by its configuration: sizes that differ would raise
    assert {name: tuple(each.shape) for name, each in again.named_buffers()} == {
        name: tuple(each.shape) for name, each in model.named_buffers()
    }
    assert _same_outputs(outputs(again, long), ours)
    report.remove()
    assert_same(before, whole(model))
    assert _same_outputs(outputs(model, inputs), short)


def test_lengthening_is_refused_if_the_configuration_key_changes_other_shapes() -> None:
    for name, family in FAMILIES.items():
        if not family.longer:
            model = family.build()
            before = whole(model)
            with pytest.raises(
                ValueError, match=f"the configuration of {type(model).__name__} cannot express 64 positions"
            ):
                use_paper(model, max_positions=64)
            assert_same(before, whole(model))
            assert name in {"canine", "deberta", "deberta-v2"}


@pytest.mark.parametrize(("kind", "family"), each_family_without_table())
def test_a_model_without_a_learned_table_is_refused_with_its_kind_of_positions(kind: str, family: Family) -> None:
    model = family.build().train()
    before, marks = whole(model), traces(model)
    with pytest.raises(ValueError, match=r".+\n  got: .+\n  fix: ") as raised:
        use_paper(model)
    text = str(raised.value)
    rule, got, fix = text.split("\n")
    assert rule.startswith(f"{type(model).__name__} has no table of learned positions")
    others = {"rotary", "relative", "alibi", "sinusoidal"} - {kind}
    if kind == "no":
        assert "embedding=model.get_input_embeddings()" in fix
    else:
        assert f"{kind} positions" in got
        assert not [other for other in others if other in rule + got]
        assert "leave it as it is" in fix
        assert "DataCollatorWithPositionalEncoding(tokenizer, model=model)" in fix
    assert_same(before, whole(model))
    assert traces(model) == marks


@for_each("decoy", DECOYS)
def test_tables_that_are_not_read_one_row_per_token_are_not_changed(decoy: str) -> None:
    """Prompts, labels, gates, offsets between tokens, relative attention."""
    alone = own_model(decoy)
    before = whole(alone)
    with pytest.raises(ValueError, match="no table of learned positions"):
        use_paper(alone)
    assert_same(before, whole(alone))
    beside = own_model("positions", decoy)
    before = getattr(beside, decoy.replace(" ", "_")).weight.detach().clone()
    report = use_paper(beside)
    assert report.frozen == ("positions.weight",)
    assert report.positions.tables[0].max_length == ROOM
    assert torch.equal(getattr(beside, decoy.replace(" ", "_")).weight, before)


@pytest.mark.parametrize(
    ("reads", "name", "room"),
    [("positions", "positions", ROOM), ("slice", "slice", ROOM), ("after prompt", "after_prompt", ROOM - 3)],
)
def test_positions_of_a_model_of_ones_own_are_written(reads: str, name: str, room: int) -> None:
    model = own_model(reads)
    report = use_paper(model)
    assert report.frozen == (f"{name}.weight",)
    assert report.positions.tables[0].max_length == room
    assert torch.equal(getattr(model, name).weight, _rows(0, ROOM, WIDTH))


@pytest.mark.parametrize("name", ["longformer", "led", "big_bird", "bigbird_pegasus"])
def test_a_model_that_pads_rows_to_a_wide_window_is_supported(name: str) -> None:
    wide = {"attention_window": 16} if name in ("longformer", "led") else {"block_size": 16}
    model = FAMILIES[name].build(**wide)
    assert {each.name: each.first_row for each in use_paper(model).positions.tables} == FAMILIES[name].tables


def _reformer() -> Any:
    sizes = {"attention_head_size": 8, "hidden_size": WIDTH, "num_attention_heads": 2, "feed_forward_size": 24}
    chunks = {"local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4, "num_buckets": 2, "attn_layers": ["local"]}
    axes = {"axial_pos_embds_dim": [8, 8], "axial_pos_shape": [8, 8], "max_position_embeddings": 64}
    return transformers.ReformerModel(transformers.ReformerConfig(vocab_size=VOCABULARY, **sizes, **chunks, **axes))


def _whisper() -> Any:
    small = {name: value for name, value in BART.small.items() if name != "max_position_embeddings"}
    heard = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": ROOM}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return transformers.WhisperModel(transformers.WhisperConfig(**small, **heard, **special))


def _vision(prefix: str) -> dict[str, Any]:
    small = {name: BERT.small[name] for name in list(BERT.small)[1:5]}
    return getattr(transformers, f"{prefix}Config")(**small, image_size=8, patch_size=4).to_dict()


def _clip() -> Any:
    text, image = FAMILIES["clip_text_model"].config().to_dict(), _vision("CLIPVision")
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=8))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(_reformer, r"ReformerModel .* positions", id="reformer, axial"),
        pytest.param(_whisper, "WhisperModel reads no token ids.*\n.*input_features", id="whisper, speech"),
        pytest.param(_clip, "CLIPModel did not run on 7 token ids alone", id="clip, two towers"),
    ],
)
def test_a_model_that_reads_more_than_text_is_refused(build: Any, words: str) -> None:
    model = build().eval()
    before, marks = whole(model), traces(model)
    with pytest.raises(ValueError, match=words) as raised:
        use_paper(model)
    assert "fix: give the part that reads text alone, if the model has one" in str(raised.value)
    assert_same(before, whole(model))
    assert traces(model) == marks


def test_the_part_of_a_larger_model_that_reads_text_can_be_given() -> None:
    clip, whisper = _clip(), _whisper()
    text_model, prefix = clip.text_model, ""
    if not isinstance(text_model, transformers.PreTrainedModel):  # before transformers 5.2
        text_model, prefix = transformers.CLIPTextModel(clip.config.text_config), "text_model."
    for part, name, first in [
        (text_model, f"{prefix}embeddings.position_embedding.weight", 0),
        (whisper.get_decoder(), "embed_positions.weight", 0),
    ]:
        use_paper(part)
        assert torch.equal(part.get_parameter(name), _rows(first, ROOM, WIDTH))


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 6)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.embedding(input_ids)


def test_an_own_module_is_refused_with_two_lines_of_code_that_work() -> None:
    with pytest.raises(
        TypeError, match=r"the Hugging Face model itself.*\n  got: Reader.*\n  fix: .*in a module of your own"
    ) as caught:
        use_paper(nn.DataParallel(Reader()))
    init, forward = (line.partition("#")[0].strip() for line in str(caught.value).splitlines()[-2:])
    assert init == "self.positions = SinusoidalPositionalEncoding(d_model)"
    assert forward == "x = self.positions(x, position_ids=position_ids)"
    scope: dict[str, Any] = {"nn": nn, "SinusoidalPositionalEncoding": SinusoidalPositionalEncoding}
    exec(
        "class Mine(nn.Module):\n"
        "    def __init__(self, d_model):\n        super().__init__()\n"
        f"        {init}\n"
        f"    def forward(self, x, position_ids):\n        {forward}\n        return x",
        scope,
    )
    positions = torch.tensor([[0, 1, 2]])
    x = scope["Mine"](6)(torch.zeros(1, 3, 6), positions)
    assert torch.equal(x, sinusoidal_encoding(positions, 6))


@for_each(
    ("call", "error", "words"),
    [
        (lambda _: use_paper("bert-uncased"), TypeError, r"fix: model = AutoModel.from_pretrained\('bert-uncased'\)$"),
        (lambda model: use_paper(model, recipe="mached"), ValueError, r"(?s)recipe must be.*'mached'.*matched"),
        (lambda model: use_paper(model, convention="sinusoids"), ValueError, "sinusoids"),
        (lambda model: use_paper(model, convention=fixed_bases(4, 5, 7)), ValueError, "3 fixed bases make 6 columns"),
        (lambda model: use_paper(model, base=0), ValueError, "base must be finite and larger than 1"),
        *(
            (lambda model, wrong=wrong: use_paper(model, max_positions=wrong), error, f"max_positions {words}")
            for wrong, error, words in (
                (0, ValueError, "must be positive"),
                (2.5, TypeError, "must be an integer"),
                (ROOM - 1, ValueError, f"lengthens a table, and this one is longer\n.*{ROOM - 1}.*{ROOM}"),
            )
        ),
    ],
)
def test_wrong_arguments_raise_before_anything_is_changed(call: Any, error: type[Exception], words: str) -> None:
    model = BERT.build()
    before = whole(model)
    with pytest.raises(error, match=words):
        call(model)
    assert_same(before, whole(model))


def _with_trained_positions(table: torch.Tensor) -> Any:
    """A small BERT with the position table of a large one, which was trained."""
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=384, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    model = transformers.BertModel(config).eval()
    model.embeddings.position_embeddings.weight.data.copy_(table)
    return model


def test_a_trained_table_is_not_replaced_unless_asked_for(trained_positions: torch.Tensor) -> None:
    model = _with_trained_positions(trained_positions)
    before, marks = whole(model), traces(model)
    with pytest.raises(
        ValueError, match=r"this would overwrite 512 trained position vectors of embeddings\.position_embeddings"
    ) as caught:
        use_paper(model)
    assert "the first 512 of 512 rows differ" in str(caught.value)
    assert "replace_trained=True" in str(caught.value)
    with pytest.raises(ValueError, match="overwrite 512 trained position vectors"):
        use_paper(model, max_positions=600)
    assert_same(before, whole(model))
    assert traces(model) == marks

    report = use_paper(model, replace_trained=True)
    assert report.contents == ("trained",)
    assert torch.equal(model.embeddings.position_embeddings.weight, _rows(0, 512, 384))
    report.remove()
    assert_same(before, whole(model))
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(ValueError, match="overwrite 512 trained position vectors"):
            use_paper(model.to(dtype))


def test_a_long_table_that_was_trained_on_short_rows_is_not_overwritten() -> None:
    """A hundred steps on rows of 32 tokens: the other rows are as they were drawn, and outnumber those by far."""
    model = GPT2.build("LMHeadModel", n_positions=1024, n_embd=32).train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        inputs = torch.randint(20, VOCABULARY, (4, 8), generator=generator).repeat(1, 4)  # what comes next is known
        model(input_ids=inputs, labels=inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    before = whole(model)
    with pytest.raises(
        ValueError, match=r"this would overwrite 1024 trained position vectors.*\n  got: the first 32 of 1024 rows"
    ):
        use_paper(model)
    assert_same(before, whole(model))


def _short_rows(change: str, table: torch.Tensor) -> None:
    """Change a table as training on rows of 32 tokens or fewer does; one sign at a time."""
    first = table[:32]
    if change == "alike":
        first[:] = first[:1] + 0.1 * first
    elif change == "longer":
        first *= 52
    elif change == "shorter":
        first *= 0.2
    elif change == "one direction":
        first += 0.2 * first.norm(dim=1).mean() / table.shape[1] ** 0.5
    elif change == "opposite neighbors":
        first[1::2] = -first[::2] + 0.1 * first[1::2]
    elif change == "one row":
        first[:1] *= 4


@pytest.mark.parametrize("change", ["alike", "longer", "shorter", "one direction", "opposite neighbors", "one row"])
def test_each_sign_of_training_among_the_first_rows_counts(change: str) -> None:
    model = BERT.build(max_position_embeddings=2048, hidden_size=128)
    with torch.no_grad():
        _short_rows(change, model.embeddings.position_embeddings.weight)
    with pytest.raises(ValueError, match="this would overwrite 2048 trained position vectors"):
        use_paper(model)


@every_family
def test_a_fresh_table_counts_as_random_in_every_family_and_dtype(family: Family) -> None:
    for seed in range(1, 4):
        model = family.build(seed=seed)
        for name, first in _expected(family, model).items():
            rows = model.get_parameter(name)[first:]
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                assert not looks_trained(rows.to(dtype)), (name, seed, dtype)


def test_fresh_tables_of_all_sizes_count_as_random() -> None:
    generator = torch.Generator().manual_seed(0)
    for width in (1, 2, 3, 8, 128):
        for rows in (1, 2, 3, 5, 33, 512):
            for _ in range(20):
                table = torch.randn(rows, width, generator=generator)
                uniform = torch.rand(rows, width, generator=generator) - 0.5
                table[rows // 2] = 0.0  # padding
                assert not looks_trained(table), (rows, width)
                assert not looks_trained(uniform), (rows, width)
    for seed in range(500):
        assert not looks_trained(torch.randn(ROOM, WIDTH, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["bert", "bart", *(pytest.param(name, marks=pytest.mark.slow) for name in ("roberta", "gpt2", "opt"))]
)
def test_half_precision_gets_exact_values_rounded_once_and_is_recognized_after_a_reload(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    model = family.build().to(dtype)
    model.config.dtype = str(dtype).removeprefix("torch.")
    before = whole(model)
    report = use_paper(model)
    for table, first in _expected(family, model).items():
        written = model.get_parameter(table)
        positions = torch.arange(len(written) - first)
        assert written.dtype == dtype
        assert torch.equal(written[first:], sinusoidal_encoding(positions, WIDTH, dtype=dtype))
    again = _reloaded(model, tmp_path)
    assert next(again.parameters()).dtype == dtype
    assert use_paper(again).contents[0] == "vaswani sinusoids"
    # written in float32, read back in half precision: the same rows
    full = family.build()
    use_paper(full)
    assert use_paper(full.to(dtype)).contents[0] == "vaswani sinusoids"
    for table in _expected(family, model):
        assert torch.equal(full.get_parameter(table), model.get_parameter(table))
    report.remove()
    assert_same(before, whole(model))


@pytest.mark.parametrize(
    ("convention", "base"),
    [*((name, None) for name in CONVENTIONS), (fixed_bases(4, 5, 7, 9, 11, 13, 17, 19), None), ("vaswani", 100)],
    ids=str,
)
@pytest.mark.parametrize("name", ["roberta", pytest.param("bart", marks=pytest.mark.slow)])
def test_every_convention_is_written_from_its_first_position_and_recognized_again(
    name: str, convention: Any, base: float | None, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    model, inputs = family.build(), tokens(family)
    report = use_paper(model, convention=convention, base=base)
    assert (report.convention, report.base) == (resolve_convention(convention), base)
    assert base is None or f"of p / {base}^(2i/D)\n" in str(report)
    for table, first in _expected(family, model).items():
        assert torch.equal(model.get_parameter(table), _rows(first, ROOM + first, WIDTH, convention, base))
    again = _reloaded(model, tmp_path)
    assert _same_outputs(outputs(again, inputs), outputs(model, inputs))
    assert again.config.sinusoidal_positions["base"] == base
    repeated = use_paper(again, convention=convention, base=base)
    was = resolve_convention(convention).name + (f", base {base}" if base else "")
    assert set(repeated.contents) == {f"{was} sinusoids"}
    with pytest.raises(RuntimeError, match="nothing to restore"):
        repeated.remove()


def test_recorded_sinusoids_may_be_replaced_and_those_of_another_origin_are_refused(tmp_path: Path) -> None:
    model = BERT.build()
    use_paper(model)
    report = use_paper(model, convention="tensor2tensor")
    assert report.contents == ("vaswani sinusoids",)
    assert model.config.sinusoidal_positions["convention"]["name"] == "tensor2tensor"
    other = BERT.build()
    with torch.no_grad():
        other.embeddings.position_embeddings.weight.copy_(_rows(0, ROOM, WIDTH, "tensor2tensor"))
    with pytest.raises(ValueError, match=f"overwrite {ROOM} trained position vectors"):
        use_paper(other)
    assert use_paper(other, convention="tensor2tensor").contents == ("tensor2tensor sinusoids",)


def test_a_model_may_be_wrapped_for_several_processes(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        for family in (BERT, BART):
            model = family.build()
            use_paper(nn.parallel.DistributedDataParallel(model)).remove()
            use_paper(model)
            wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            wrapped(**tokens(family)).last_hidden_state.sum().backward()
            assert all(model.get_parameter(name).grad is None for name in family.tables)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT asks for it
def test_the_report_names_adapters_of_the_positions_which_stay_trainable() -> None:
    peft = pytest.importorskip("peft")
    base = GPT2.build("LMHeadModel")
    report = use_paper(peft.get_peft_model(base, peft.LoraConfig(target_modules=["wpe", "wte"], r=2)))
    assert report.frozen == ("transformer.wpe.base_layer.weight",)
    assert torch.equal(base.transformer.wpe.base_layer.weight, _rows(0, ROOM, WIDTH))
    adapters = tuple(f"transformer.wpe.lora_embedding_{each}.default" for each in "AB")
    assert report.still_trained == adapters
    assert f"adapters of the tables are trained, and change the positions: {', '.join(adapters)}" in str(report)
    other = peft.get_peft_model(GPT2.build("LMHeadModel"), peft.LoraConfig(target_modules=["wte"], r=2))
    assert "adapters" not in str(use_paper(other))


def test_a_model_on_the_meta_device_is_refused() -> None:
    with torch.device("meta"):
        model = transformers.BertModel(BERT.config())
    with pytest.raises(
        ValueError, match=r"its weights are not available\n  got: .* is on the meta device\n  fix: .*after its"
    ):
        use_paper(model)
    assert not hasattr(model.config, "sinusoidal_positions")


def test_an_encoder_decoder_of_two_models_gets_both_tables_each_from_its_own_first_row(tmp_path: Path) -> None:
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        ROBERTA.config(),
        BERT.config(max_position_embeddings=ROOM - 4, is_decoder=True, add_cross_attention=True),
        decoder_start_token_id=5,
        pad_token_id=1,
    )
    model = transformers.EncoderDecoderModel(config).eval()
    spec = ModelSpec.of(model)
    assert (spec.max_length, spec.max_target_length, spec.decoder_start_token_id) == (ROOM, ROOM - 4, 5)
    assert spec.shifts_labels
    report = use_paper(model)
    assert {(table.name, table.first_row, table.counts) for table in report.positions.tables} == {
        ("encoder.embeddings.position_embeddings.weight", 2, "input_ids"),
        ("decoder.bert.embeddings.position_embeddings.weight", 0, "decoder_input_ids"),
    }
    inputs = tokens(BART)
    again = _reloaded(model, tmp_path)
    assert _same_outputs(outputs(again, inputs), outputs(model, inputs))
    assert set(use_paper(again).contents) == {"vaswani sinusoids"}


def test_one_table_shared_by_encoder_and_decoder_is_written_once_and_restored() -> None:
    model = BART.build()
    model.decoder.embed_positions.weight = model.encoder.embed_positions.weight
    before = whole(model)
    report = use_paper(model)
    assert [table.name for table in report.positions.tables] == ["encoder.embed_positions.weight"]
    assert torch.equal(model.decoder.embed_positions.weight, _rows(2, ROOM + 2, WIDTH))
    report.remove()
    assert_same(before, whole(model))
    report = use_paper(model, max_positions=ROOM + 8)
    assert model.decoder.embed_positions.weight is model.encoder.embed_positions.weight
    assert torch.equal(model.decoder.embed_positions.weight, _rows(2, ROOM + 10, WIDTH))
    report.remove()
    assert model.decoder.embed_positions.weight is model.encoder.embed_positions.weight
    assert_same(before, whole(model))


def test_verification_finds_a_table_that_returns_other_values_and_the_model_is_restored() -> None:
    class Louder(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * (1 + 2**-20)

    class Skewed(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            rows = nn.functional.embedding(input, self.weight)
            return torch.where(input[..., None] == 3, rows + 1e-6, rows)

    for corrupt in (Louder, Skewed):
        model = BERT.build()
        model.embeddings.position_embeddings.__class__ = corrupt
        before, marks = whole(model), traces(model)
        with pytest.raises(ValueError, match=r"does not return what was written into it\n  got: a difference of \d"):
            use_paper(model)
        assert_same(before, whole(model))
        assert traces(model) == marks
        with pytest.raises(ValueError, match="does not return what was written"):
            use_paper(model, max_positions=ROOM + 5)
        assert_same(before, whole(model))


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "bart"])
def test_training_changes_everything_except_the_positions_and_remove_keeps_it(name: str) -> None:
    family = FAMILIES[name]
    model = family.build(family.heads[0]).train()
    learned = {table: model.get_parameter(table).detach().clone() for table in _expected(family, model)}
    report = use_paper(model)
    exact = {table: model.get_parameter(table).detach().clone() for table in learned}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    inputs = tokens(family)
    labels = inputs["decoder_input_ids" if family.has_decoder else "input_ids"]
    model(**inputs, labels=labels).loss.backward()
    assert all(model.get_parameter(table).grad is None for table in learned)
    optimizer.step()
    for table in learned:
        assert torch.equal(model.get_parameter(table), exact[table])
    after = {key: each.detach().clone() for key, each in model.named_parameters() if key not in learned}
    report.remove()
    for table, rows in learned.items():
        assert torch.equal(model.get_parameter(table), rows)
        assert model.get_parameter(table).requires_grad
    assert all(torch.equal(each, after[key]) for key, each in model.named_parameters() if key in after)


def test_a_gradient_from_before_the_call_does_not_change_the_rows() -> None:
    model = BERT.build().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(**tokens(BERT)).last_hidden_state.sum().backward()
    use_paper(model)
    optimizer.step()
    assert torch.equal(model.embeddings.position_embeddings.weight, _rows(0, ROOM, WIDTH))


def test_remove_works_after_a_change_of_dtype() -> None:
    model = ROBERTA.build()
    learned = model.embeddings.position_embeddings.weight.detach().clone()
    report = use_paper(model, max_positions=ROOM + 6)
    model.to(torch.bfloat16)
    report.remove()
    assert torch.equal(model.embeddings.position_embeddings.weight, learned.bfloat16())
    assert outputs(model, tokens(ROBERTA))[0].dtype == torch.bfloat16


@pytest.mark.slow  # imports everything in another process
def test_a_stock_class_gives_the_same_logits_in_a_process_that_cannot_import_this_package(tmp_path: Path) -> None:
    model, inputs = BART.build("ForConditionalGeneration"), tokens(BART, ROOM + 7)
    use_paper(model, max_positions=ROOM + 7)
    model.save_pretrained(tmp_path)
    torch.save(inputs, tmp_path / "inputs.pt")
    script = f"""
        import sys
        sys.modules["hf_posenc"] = None  # any import of it raises
        import torch, transformers
        torch.set_num_threads(1)
        model = transformers.BartForConditionalGeneration.from_pretrained({str(tmp_path)!r}).eval()
        torch.save(model(**torch.load({str(tmp_path / "inputs.pt")!r})).logits, {str(tmp_path / "found.pt")!r})
        try:
            import hf_posenc
        except ImportError:
            print("cannot import hf_posenc")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ran.stdout.strip() == "cannot import hf_posenc"
    assert torch.equal(torch.load(tmp_path / "found.pt"), model(**inputs).logits)


def test_the_report_prints_as_documented() -> None:
    assert str(use_paper(FAMILIES["luke"].build())).splitlines() == [
        "LukeModel: sinusoidal positions (vaswani)",
        "  rows: sines and cosines side by side, of p / 10000^(2i/D)",
        f"  embeddings.position_embeddings.weight: {ROOM} positions of width {WIDTH} from row 2, were random",
        "  frozen; verified, largest difference 0.0",
        "  not reached by a plain sequence of tokens, and left as it was: entity_embeddings.position_embeddings.weight",
    ]
    assert str(use_sinusoidal_positions(FAMILIES["luke"].build())).splitlines()[:5] == [
        "LukeModel: sinusoidal positions (vaswani)",
        "  rows: sines and cosines side by side, of p / 13^(2i/D), multiplied by 0.25",
        f"  embeddings.position_embeddings.weight: {ROOM} positions of width {WIDTH} from row 2, were random",
        "  token embeddings multiplied by 8",
        "  frozen; verified, largest difference 0.0",
    ]
    lines = str(use_paper(BART.build())).splitlines()
    assert any(line.strip().startswith("decoder.embed_positions") and "of the decoder" in line for line in lines)
    assert "  left padding shifts positions: pad on the right" in lines
    assert "  left padding shifts positions unless position_ids are given" in str(use_paper(BERT.build())).splitlines()


def test_the_papers_recipe_warns_once_when_positions_drown_tokens() -> None:
    model = BERT.build()
    model.embeddings.word_embeddings.weight.data.normal_(std=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use_sinusoidal_positions(model, recipe="paper")
    model = BERT.build()
    words = r"BertModel are 30 times as large as its token embeddings.*\(model, recipe='matched'\)"
    with pytest.warns(UserWarning, match=words) as given:
        use_sinusoidal_positions(model, recipe="paper")
    assert len(given) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use_sinusoidal_positions(model, recipe="paper")


@pytest.mark.parametrize(("family", "is_frozen"), [(BERT, True), (BART, True), (GPT2, False)])
def test_the_recipe_chooses_what_is_frozen_and_freeze_overrides_it_and_no_call_warns(
    family: Family, is_frozen: bool
) -> None:
    model = family.build()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(use_sinusoidal_positions(model).frozen) is is_frozen
        use_sinusoidal_positions(model)  # a second call
    for freeze, word in ((True, "frozen"), (False, "trainable")):
        report = use_sinusoidal_positions(family.build(), freeze=freeze)
        assert bool(report.frozen) is freeze
        assert f"{word}; verified" in str(report)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # PEFT asks for it
@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("by", ["LoRA", "LoRA of the token embeddings", "requires_grad"])
def test_the_tables_are_the_same_whatever_was_frozen_before(name: str, by: str) -> None:
    model, stock = FAMILIES[name].build(), FAMILIES[name].build()
    before = dict(model.named_parameters())
    adapted = {"bert": ("query", "word_embeddings"), "gpt2": ("c_attn", "wte"), "bart": ("q_proj", "shared")}
    if by == "requires_grad":
        model.requires_grad_(False)
        use_sinusoidal_positions(model)
    else:
        peft = pytest.importorskip("peft")
        targets = list(adapted[name])[: 1 if by == "LoRA" else 2]
        config = peft.LoraConfig(target_modules=targets, fan_in_fan_out=name == "gpt2")
        use_sinusoidal_positions(peft.get_peft_model(model, config))
    use_sinusoidal_positions(stock)
    for parameter, expected in stock.named_parameters():  # the token embeddings too
        assert torch.equal(before[parameter], expected), parameter


def test_the_matched_recipe_leaves_token_embeddings_that_are_large_or_trained() -> None:
    model = BERT.build()
    model.embeddings.word_embeddings.weight.data.normal_(std=0.8)
    report = use_sinusoidal_positions(model)
    assert (report.token_factor, report.scale) == (1, 1)
    model = BERT.build()
    with torch.no_grad():
        model.embeddings.position_embeddings.weight[:] = torch.linspace(-1, 1, ROOM)[:, None]
    assert use_sinusoidal_positions(model, replace_trained=True).token_factor == 1


def test_a_causal_model_gets_a_base_that_suits_its_whole_table_and_others_at_most_30() -> None:
    sizes = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = [
        transformers.BertModel(transformers.BertConfig(**sizes, intermediate_size=32, max_position_embeddings=512)),
        transformers.GPT2Model(transformers.GPT2Config(**sizes, n_positions=512)),
    ]
    assert [use_sinusoidal_positions(model).base for model in made] == [30, 163]


def test_a_call_with_defaults_keeps_recorded_sinusoids_also_those_of_the_paper(tmp_path: Path) -> None:
    model = BERT.build()
    use_sinusoidal_positions(model, recipe="paper", convention="marian")
    again = _reloaded(model, tmp_path)
    before = whole(again)
    report = use_sinusoidal_positions(again)
    assert (report.convention.name, report.base, report.scale) == ("marian", None, 1)
    assert again.config.sinusoidal_positions["recipe"] == "paper"
    assert_same(before | {"trains": {}, "config": {}}, whole(again) | {"trains": {}, "config": {}})
    fresh = BERT.build()
    fresh.config.sinusoidal_positions = model.config.sinusoidal_positions  # as where a saved configuration is used anew
    assert use_sinusoidal_positions(fresh).scale == 0.25


def test_a_second_call_does_not_change_token_embeddings_and_the_first_report_restores_all() -> None:
    model = BERT.build()
    before = whole(model)
    first = use_sinusoidal_positions(model)
    words = model.embeddings.word_embeddings.weight.detach().clone()
    use_sinusoidal_positions(model, base=100)
    with pytest.raises(RuntimeError, match="nothing to restore"):
        use_sinusoidal_positions(model, recipe="paper").remove()
    assert torch.equal(model.embeddings.word_embeddings.weight, words)
    first.remove()
    assert_same(before, whole(model))


def test_remove_after_training_divides_the_token_embeddings_that_were_learned() -> None:
    model = BERT.build()
    report = use_sinusoidal_positions(model)
    words = model.embeddings.word_embeddings.weight
    with torch.no_grad():
        words.add_(0.5)
    learned = words.detach().clone()
    report.remove()
    assert torch.equal(words, learned / report.token_factor)


def test_the_first_report_raises_if_the_tables_were_exchanged() -> None:
    model = BERT.build()
    first = use_paper(model)
    use_paper(model, max_positions=ROOM + 4)
    with pytest.raises(RuntimeError, match="other tables now than those that were written"):
        first.remove()
    assert torch.equal(model.embeddings.position_embeddings.weight, _rows(0, ROOM + 4, WIDTH))
    assert model.config.sinusoidal_positions["convention"]["name"] == "vaswani"


def test_a_table_of_zeros_is_known_to_be_read_at_position_ids() -> None:
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertModel(config)
    torch.nn.init.zeros_(model.embeddings.position_embeddings.weight)
    assert "unless position_ids are given" in str(use_paper(model))

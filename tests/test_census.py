"""`measure_packing` compared with states written by hand, and the census of all classes with docs/isolation.md."""

from __future__ import annotations

import dataclasses
import re

import families
import pytest
import torch
import transformers
from census import EXACT, MARK, PAGE, census, measured, mistakes, tables
from installed import before

from hf_posenc import ModelSpec
from hf_posenc.models import MEASURED
from hf_posenc.testing import measure_packing

STATES = """
    BertForMaskedLM                     sdpa   isolated    impossible
    GPT2LMHeadModel                     eager  isolated    isolated
    LlamaForCausalLM                    sdpa   isolated    isolated
    OPTForCausalLM                      sdpa   isolated    impossible
    ModernBertForMaskedLM               sdpa   isolated    impossible
    BartForCausalLM                     eager  impossible  impossible
    MambaForCausalLM                    eager  impossible  impossible
    MptForCausalLM                      eager  isolated    impossible
    Lfm2ForCausalLM                     sdpa   impossible  needs a kernel
    Qwen2_5_VLForConditionalGeneration  sdpa   isolated    impossible
"""


@pytest.mark.skipif(before("transformers", "5.20"), reason="ModernBERT and LFM2 take less, and do not raise")
@pytest.mark.parametrize("line", STATES.strip().splitlines())
def test_the_states_of_a_class_are_those_written_by_hand(line: str) -> None:
    name, attention, rows, flat = re.split(" {2,}", line.strip())
    found = measured(getattr(transformers, name), attention)
    assert not isinstance(found, str), found
    check = found.check
    states = [layout.state for layout in (check.rows, check.flat)]
    assert [check.attention, *states] == [attention, rows, flat]
    for layout in (check.rows, check.flat):
        if layout.state == "needs a kernel":
            assert "Install" in layout.reason
        else:
            assert (layout.difference is not None and layout.difference <= EXACT) == (layout.state == "isolated")
    assert str(check).startswith(f"{name}, {attention}: rows {rows} (")
    assert "\n" not in str(check)
    assert mistakes(found) == []


def skip_for_another_version(page: str) -> None:
    """Skip a test if the page is about another version of transformers."""
    if f"transformers {'.'.join(transformers.__version__.split('.')[:2])} " not in page:
        pytest.skip("the page is about another version of transformers")


@pytest.mark.slow
def test_models_that_cannot_be_run_are_impossible_with_a_reason() -> None:
    bart = measure_packing(families.FAMILIES["bart"].build())
    assert bart.rows == bart.flat == ("impossible", None, "an encoder-decoder reads two sequences")
    own = measure_packing(torch.nn.Linear(2, 2))
    assert (own.name, own.attention, own.rows.state, own.rows.difference) == ("Linear", None, "impossible", None)
    assert own.rows.reason
    pooled = measure_packing(families.FAMILIES["canine"].build())
    assert (pooled.rows.state, pooled.flat.state) == ("impossible", "impossible")
    clip = transformers.CLIPConfig(text_config={"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2})
    assert "did not run" in measure_packing(transformers.CLIPModel(clip)).flat.reason


def test_a_leak_of_a_layout_that_the_collator_makes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.FAMILIES["bert"].build()
    claims = dataclasses.replace(ModelSpec.of(model), isolates_by_position_ids=True, flat_keys=("position_ids",))
    monkeypatch.setattr(ModelSpec, "of", classmethod(lambda cls, _: claims))
    check = measure_packing(model)
    assert (check.rows.state, check.flat.state) == ("isolated", "leaks")
    assert "flat leaks (0." in str(check)


def test_a_mistake_is_seen() -> None:
    found = measured(transformers.GPT2LMHeadModel, "eager")
    assert not isinstance(found, str)
    check = found.check
    leak = dataclasses.replace(
        check, rows=check.rows._replace(difference=1e-3), flat=check.flat._replace(state="impossible")
    )
    assert [line.rpartition(": ")[2] for line in mistakes(found._replace(check=leak))] == [
        "rows leaks",
        "flat is refused in error",
    ]


@pytest.mark.slow
def test_the_census_covers_the_classes_makes_no_mistake_and_has_the_states_of_the_page() -> None:
    results, once, reasons, wrong = census()
    assert len(results) >= 0.95 * (len(results) + len(reasons)), reasons
    assert wrong == []
    page = PAGE.read_text(encoding="utf-8")
    skip_for_another_version(page)
    shown, now = (
        re.sub(r"\b\d[\d.]*(e-\d+)?", "#", text).strip()
        for text in (page.partition(MARK)[2], tables(results, once, reasons))
    )
    assert now == shown
    assert {cls.config_class.model_type for cls, state in once.items() if state == "equal"} == {*MEASURED.split()}

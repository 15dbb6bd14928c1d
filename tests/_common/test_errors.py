"""The parts of an error message: the rule, the given value and the fix."""

from __future__ import annotations

import pickle

import pytest

from hf_posenc._common.errors import explain, message_of, one_of, runtime_error, type_error, value_error


@pytest.mark.parametrize("kind", [value_error, type_error, runtime_error])
def test_an_error_carries_the_parts_of_its_message_also_after_pickling(kind) -> None:
    error = kind("d_model must be positive", got=0, fix="d_model=8")
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == "d_model must be positive\n  got: 0\n  fix: d_model=8"
        assert (each.rule, each.got, each.fix) == ("d_model must be positive", "0", "d_model=8")
        assert vars(message_of(each)) == vars(each)


def test_parts_that_are_left_out_are_none() -> None:
    assert vars(value_error("no rows")) == {"rule": "no rows", "got": None, "fix": None}


def test_every_class_of_error_has_the_message_and_errors_of_others_have_none() -> None:
    assert message_of(ImportError(explain("needs Ray", fix="pip install ray"))).fix == "pip install ray"
    assert message_of(ValueError(one_of("side", "lft", ("left", "right")))).got == "'lft'"
    assert message_of(ValueError("a rule\n  got: 1\n  fix: 2")) is None
    assert message_of(ValueError()) is None

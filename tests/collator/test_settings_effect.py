"""No setting without effect: each one changes the batch or the columns, alone and beside labels, or raises."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from looping import for_each
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, MaskedLM

C = DataCollatorWithPositionalEncoding
TABLE = nn.Embedding.from_pretrained(torch.randn(1200, 8, generator=torch.Generator().manual_seed(0)))
ROWS: dict[str, list[Any]] = {
    "text": ["I ride bike, she said", "bike", "ride " * 30],
    "other": ["she said", "I ride", "a"],
    "words": [["I", "ride"], ["bike"], ["she", "said"]],
}
EMPTY = {"text": ["I ride bike", ""]}
# Another value than the default for each argument, and columns for which it counts.
VALUES: list[tuple[str, Any, dict[str, list[Any]]]] = [
    ("embedding", TABLE, ROWS),
    ("embedding", 8, ROWS),
    ("text_column", "other", ROWS),
    ("text_pair_column", "other", ROWS),
    ("text_target_column", "other", ROWS),
    ("is_split_into_words", True, {"text": ROWS["words"]}),
    ("padding", "max_length", ROWS),
    ("padding", False, ROWS),
    ("padding_side", "left", ROWS),
    ("pad_token", "[MASK]", ROWS),
    ("pad_to_multiple_of", 64, ROWS),
    ("truncation", False, {"text": ["ride " * 600]}),
    ("max_length", 16, ROWS),
    ("max_target_length", 4, ROWS),
    ("return_overflowing_tokens", True, ROWS),
    ("stride", 2, ROWS),
    ("token_columns", ("weight",), {"input_ids": [[5, 6, 7], [8, 9]], "weight": [[1, 2, 3], [4, 5]]}),
    ("add_special_tokens", False, ROWS),
    ("on_empty", "keep", EMPTY),
    ("look_ahead", False, ROWS),
    ("look_ahead", True, ROWS),
    ("packing", True, ROWS),
    ("packing", "flat", ROWS),
    ("on_no_labels", "error", ROWS),
    ("on_no_labels", "skip", ROWS),
    ("on_no_labels", "keep", ROWS),
    ("mlm_probability", 0.15, ROWS),
    ("mlm_probability", 0.5, ROWS),
    ("store_embeddings", True, ROWS),
    ("return_tensors", "np", ROWS),
]
LABELS = [None, "causal_lm", "masked_lm", MaskedLM(0.3)]
# Settings that may have no effect, and the reason.
WITHOUT_EFFECT = {
    "tokenizer": "required",
    "model": "has tests of its own: a batch has only the arguments of its forward",
    "labels": "the second argument of this test",
    "backend": "all libraries make the same ids",
    "seed": "makes what is drawn anyway the same in each run",
}
# Values that are a default written out, or a limit that nothing reaches.
DEFAULTS: list[tuple[str, Any, Any]] = [
    ("look_ahead", True, None),
    ("look_ahead", True, "causal_lm"),
    ("look_ahead", False, "masked_lm"),
    ("look_ahead", False, "MaskedLM"),
    ("mlm_probability", 0.15, "masked_lm"),
    ("on_no_labels", "error", "causal_lm"),
    ("on_no_labels", "skip", "causal_lm"),
    ("on_no_labels", "keep", "causal_lm"),
    ("on_no_labels", "keep", "masked_lm"),
    ("on_no_labels", "keep", "MaskedLM"),
    ("on_no_labels", "error", "masked_lm"),
    ("on_no_labels", "error", "MaskedLM"),
    ("on_no_labels", "skip", "masked_lm"),
    ("on_no_labels", "skip", "MaskedLM"),
]


def results(tokenizer: Any, columns: dict[str, list[Any]], settings: dict[str, Any]) -> Any:
    """Return the batch and the columns of a collator as lists, or the message of its error."""
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        try:
            collate = C(tokenizer, **settings)
            batch = collate.batch(columns)
            torch.manual_seed(0)
            stored = collate.columns(columns)
        except (ValueError, TypeError) as error:
            return str(error)
    values = {name: (type(value), np.asarray(value).tolist()) for name, value in batch.items()}
    return values, {name: [np.asarray(row).tolist() for row in rows] for name, rows in stored.items()}


@for_each("labels", LABELS)
@for_each(("name", "value", "columns"), VALUES)
def test_a_setting_changes_the_batch_or_raises(
    wordpiece: Any, name: str, value: Any, columns: dict[str, list[Any]], labels: Any
) -> None:
    if (name, value, "MaskedLM" if isinstance(labels, MaskedLM) else labels) in DEFAULTS:
        return
    default: dict[str, Any] = {} if labels is None else {"labels": labels}
    default |= {"add_special_tokens": False} if name == "on_empty" else {}
    given = {**default, name: value}
    assert results(wordpiece, columns, given) != results(wordpiece, columns, default)


def test_every_argument_is_tried() -> None:
    arguments = {field.name for field in dataclasses.fields(C)}
    assert arguments == {*(name for name, _, _ in VALUES), *WITHOUT_EFFECT}


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        *(
            ({"mlm_probability": 0.3, "labels": labels}, 'labels="masked_lm", mlm_probability=0.3; or labels=MaskedLM(')
            for labels in (None, "causal_lm", MaskedLM())
        ),
        ({"max_target_length": 8}, 'text_target_column="target"'),
    ],
    ids=str,
)
def test_a_setting_without_effect_raises_with_the_way_out(wordpiece: Any, settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=r"mlm_probability is the share|max_target_length is a limit") as caught:
        C(wordpiece, **settings)
    assert fix in str(caught.value)


def test_labels_that_no_row_has_are_named(wordpiece: Any) -> None:
    with pytest.raises(
        ValueError, match=r"(?s)on_no_labels is the treatment.*on_no_labels='skip'.*labels=\"causal_lm\""
    ):
        C(wordpiece, on_no_labels="skip")(["I ride bike"])
    assert len(C(wordpiece, on_no_labels="skip")([{"text": "I", "label": 1}])["labels"]) == 1


@pytest.mark.parametrize("packing", [True, "flat"])
def test_packed_documents_without_a_model_are_named_once(wordpiece: Any, packing: Any) -> None:
    collate = C(wordpiece, packing=packing, max_length=64)
    collate(["I ride bike"])  # one document
    with pytest.warns(UserWarning, match=r"(?s)packed documents attend to each other.*model=model.*AttentionMask"):
        collate(["I ride bike", "she said"])
    collate(["I ride bike", "she said"])
    for look_ahead in (True, False):
        C(wordpiece, packing=packing, max_length=64, look_ahead=look_ahead)(["I ride bike", "she said"])
    with pytest.warns(UserWarning, match="packed documents attend to each other"):
        C(wordpiece)([{"input_ids": [5, 6, 7], "document_ids": [0, 0, 1]}])


# Arguments of other libraries' collators and trainers that this one does not have, and a part of the answer.
ELSEWHERE = {
    "mlm": "labels=",
    "whole_word_mask": "MaskedLM(whole_word_mask=True)",
    "mask_replace_prob": "MaskedLM(mask_replace_prob",
    "random_replace_prob": "MaskedLM(random_replace_prob",
    "tf_experimental_compile": "leave it out",
    "label_pad_token_id": "-100",
    "return_position_ids": "position_ids are in every batch",
    "return_flash_attn_kwargs": 'packing="flat"',
    "return_seq_idx": 'packing="flat"',
    "position_ids_start": "model=",
    "separator_id": "-100",
    "padding_free": 'packing="flat"',
    "packing_strategy": "packing=True",
    "sample_packing": "packing=True",
    "sequence_len": "max_length",
    "max_seq_length": "max_length",
    "eval_packing": "replace(packing=False)",
    "max_tokens": "TokenBudgetMixin",
    "token_budget": "TokenBudgetMixin",
    "text": "text_column",
    "dataset_text_field": "text_column",
    "assistant_only_loss": "assistant_masks",
    "completion_only_loss": "completion_mask",
    "train_on_inputs": "completion_mask",
    "chat_template_path": "chat_template",
    "eos_token": "eos_token",
    "dataset_num_proc": "num_proc",
    "shuffle_dataset": "shuffle",
}
COLLATORS = [
    transformers.DataCollatorWithPadding,
    transformers.DataCollatorForLanguageModeling,
    transformers.DataCollatorForSeq2Seq,
    transformers.DataCollatorForTokenClassification,
    transformers.DataCollatorWithFlattening,
]


@for_each("name", ELSEWHERE)
def test_an_argument_of_another_library_gets_its_answer(wordpiece: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"there is no argument '{name}'") as caught:
        C(wordpiece, **{name: True})
    assert ELSEWHERE[name] in str(caught.value).partition("fix: ")[2]


@pytest.mark.parametrize("theirs", COLLATORS, ids=lambda kind: kind.__name__)
def test_every_argument_of_the_collators_of_transformers_is_taken_or_answered(theirs: Any) -> None:
    names = {name for name in inspect.signature(theirs).parameters if name not in ("self", "args", "kwargs")}
    assert names - {field.name for field in dataclasses.fields(C)} <= ELSEWHERE.keys()


def test_the_values_of_other_libraries_get_their_answer(wordpiece: Any) -> None:
    with pytest.raises(ValueError, match=r"fix: packing=\"flat\""):
        C(wordpiece, packing="padding_free")
    with pytest.raises(ValueError, match=r"(?s)has \d+ tokens, limit 4.*got: truncation=False"):
        C(wordpiece, max_length=4, truncation=False)(["I ride bike, she said"])

"""Rows as other libraries make them, in every layout, against their documents alone: the same targets and losses.

The reference knows documents as lists of tokens and labels. The rows are made of them with padding, gaps, interleaved
documents, boundaries in each column that says so, and masks or labels; the collator arranges them. `programs/fuzz`
truncates such rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from looping import slow
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_posenc import AttentionMask, audit, pack_dataset
from hf_posenc import DataCollatorWithPositionalEncoding as C

IDS, CLASSES, CAPACITY = 30, 4, 24
IGNORED = -100
LAYOUTS: dict[str, dict[str, Any]] = {
    "right": {},
    "left": {"padding_side": "left"},
    "packed": {"packing": True, "max_length": CAPACITY},
    "packed left": {"packing": True, "max_length": CAPACITY, "padding_side": "left"},
    "flat": {"packing": "flat"},
}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class Document(NamedTuple):
    """Tokens and labels; the label of a token is its id, or a class, or -100."""

    ids: list[int]
    labels: list[int]


def _tokenizer(side: str = "right") -> PreTrainedTokenizerFast:
    names = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(2, IDS))]
    raw = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", truncation_side=side)


TOKENIZERS = {side: _tokenizer(side) for side in ("left", "right")}


def _models() -> dict[str, Any]:
    torch.manual_seed(0)
    shared = {"vocab_size": IDS, "initializer_range": 0.3, "pad_token_id": 0}
    gpt2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    no_dropout = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    return {
        "GPT-2": transformers.GPT2LMHeadModel(transformers.GPT2Config(**shared, **gpt2, **no_dropout)).eval(),
        "Mistral with a window of 3": transformers.MistralForCausalLM(
            transformers.MistralConfig(**shared, **SMALL, num_key_value_heads=2, sliding_window=3)
        ).eval(),
        "BERT": transformers.BertForTokenClassification(
            transformers.BertConfig(**shared, **SMALL, num_labels=CLASSES)
        ).eval(),
        "T5": transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=IDS, **t5)).eval(),
    }


MODELS = _models()
COLLATORS = {
    (name, layout): C(TOKENIZERS["right"], model=MODELS[name], on_no_labels="keep", **LAYOUTS[layout])
    for name in ("GPT-2", "Mistral with a window of 3", "BERT")
    for layout in LAYOUTS
    if (name, layout) != ("BERT", "flat")
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="only the tokens with 1 in|a batch has more rows")
        yield


BOUNDARIES = ["document_ids", "seq_idx", "attention_mask", "seq_lengths", "cu_seq_lens_q", "position_ids"]
OWN_IDS = st.lists(st.tuples(st.integers(2, IDS - 1), st.booleans()), min_size=1, max_size=7)
CLASS = st.sampled_from([IGNORED, *range(CLASSES)])
CLASS_IDS = st.lists(st.tuples(st.integers(CLASSES, IDS - 1), CLASS), min_size=1, max_size=7)


def documents_of(classes: bool) -> st.SearchStrategy[list[list[Document]]]:
    """Draw up to three rows of up to three documents."""
    own = OWN_IDS.map(lambda each: Document([id for id, _ in each], [id if kept else IGNORED for id, kept in each]))
    labelled = CLASS_IDS.map(lambda each: Document([id for id, _ in each], [label for _, label in each]))
    return st.lists(st.lists(labelled if classes else own, min_size=1, max_size=3), min_size=1, max_size=3)


def rows_of(rows: list[list[Document]], boundaries: str, given_as: str, data: st.DataObject) -> list[dict[str, Any]]:
    """Return rows that hold the documents, with padding and gaps, and interleaved if `boundaries` can say so."""
    if boundaries == "position_ids":  # 0 0 1 may be one document with two equal positions
        assume(all(len(document.ids) > 1 for row in rows for document in row))
    form = float if data.draw(st.booleans(), "floats") else int
    numbers_alone = boundaries in ("document_ids", "seq_idx") and data.draw(st.booleans(), "without a mask")
    return [_row_of(row, boundaries, given_as, data, form, numbers_alone) for row in rows]


def _row_of(
    documents: list[Document], boundaries: str, given_as: str, data: st.DataObject, form: type, numbers_alone: bool
) -> dict[str, Any]:
    # The next token of which document, or padding (-1), stands at each place.
    order = [number for number, document in enumerate(documents) for _ in document.ids]
    if boundaries in ("document_ids", "seq_idx") and data.draw(st.booleans(), "interleaved"):
        order = data.draw(st.permutations(order), "order")
        order = _in_order_of_sizes(order, [len(document.ids) for document in documents])
    for place in sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=3), "gaps"), reverse=True):
        order.insert(place, -1)
    left = [iter(zip(document.ids, document.labels, strict=True)) for document in documents]
    tokens = [(data.draw(st.sampled_from([0, 0, 5])), IGNORED) if n < 0 else next(left[n]) for n in order]
    ids, labels = [token for token, _ in tokens], [label for _, label in tokens]
    lengths = [len(document.ids) for document in documents]
    row: dict[str, Any] = {"input_ids": ids, "attention_mask": [int(n >= 0) for n in order]}
    if boundaries in ("document_ids", "seq_idx"):
        names = data.draw(st.permutations(range(9)), "numbers")  # any numbers will do
        row[boundaries] = [-1 if n < 0 else names[n] for n in order]
        if numbers_alone:
            del row["attention_mask"]
    elif boundaries == "attention_mask":
        row["attention_mask"] = [n + 1 for n in order]
    elif boundaries == "seq_lengths":
        row["seq_lengths"] = lengths
    elif boundaries == "cu_seq_lens_q":
        row["cu_seq_lens_q"] = np.cumsum([0, *lengths]).tolist()
    else:
        places = [iter(range(length)) for length in lengths]
        row["position_ids"] = [0 if n < 0 else next(places[n]) for n in order]
    if given_as in ("labels", "labels and a mask"):
        row["labels"] = labels
    if given_as == "labels and a mask":  # each hides what the other shows
        show = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)), "shown")
        places_ = zip(ids, labels, show, order, strict=True)
        row["labels"] = [id if is_shown and n >= 0 else label for id, label, is_shown, n in places_]
        row["completion_mask"] = [int(label != IGNORED) for label in labels]
    elif given_as != "labels":
        row[given_as] = [form(label != IGNORED) for label in labels]
    return row


def _in_order_of_sizes(order: list[int], sizes: list[int]) -> list[int]:
    """Return an order in which documents begin as they are numbered, with as many tokens as each has."""
    left, out, begun = list(sizes), [], 0
    for drawn in order:
        number = drawn if drawn < begun and left[drawn] else begun
        if number == len(sizes) or not left[number]:
            number = next(other for other, count in enumerate(left) if count)
        begun = max(begun, number + 1)
        left[number] -= 1
        out.append(number)
    return out


def alone(model: Any, documents: list[Document], *, shifts: bool) -> tuple[float, list[int]]:
    """Return the mean loss over all targets of documents that are run one by one, and the targets."""
    total, targets = 0.0, []
    for document in documents:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([document.ids])).logits[0]
        logits, labels = (logits[:-1], document.labels[1:]) if shifts else (logits, document.labels)
        chosen = torch.tensor(labels, dtype=torch.long)
        total += float(torch.nn.functional.cross_entropy(logits, chosen, reduction="sum", ignore_index=IGNORED))
        targets += [label for label in labels if label != IGNORED]
    return total / max(1, len(targets)), sorted(targets)


def check(model: Any, batch: Any, documents: list[Document], *, shifts: bool) -> None:
    loss, targets = alone(model, documents, shifts=shifts)
    labels = batch["labels"][:, 1:] if shifts else batch["labels"]
    assert sorted(labels[labels != IGNORED].tolist()) == targets
    if targets:
        with torch.no_grad():
            assert abs(float(model(**batch).loss) - loss) < 2e-4


@pytest.mark.parametrize("name", [slow("GPT-2"), "Mistral with a window of 3"])
@given(
    rows=documents_of(classes=False),
    boundaries=st.sampled_from(BOUNDARIES),
    given_as=st.sampled_from(["labels", "completion_mask", "loss_mask", "labels and a mask"]),
    layout=st.sampled_from(list(LAYOUTS)),
    draw=st.data(),
)
@settings(max_examples=150)
def test_a_causal_model_learns_from_rows_what_it_learns_from_their_documents(
    name: str,
    rows: list[list[Document]],
    boundaries: str,
    given_as: str,
    layout: str,
    draw: st.DataObject,
) -> None:
    model, collate = MODELS[name], COLLATORS[name, layout]
    documents = [document for row in rows for document in row]
    has_labels = given_as.startswith("labels")
    if not has_labels:
        collate = collate.replace(labels="causal_lm")
    batch = collate(rows_of(rows, boundaries, given_as, draw))
    check(model, batch, documents, shifts=True)
    if "labels" in batch and batch["labels"].ne(IGNORED).any():
        assert audit.labels([{**batch, "labels": batch["labels"]}]).kind in ("tokens", "classes")


def documents_in(batch: Any) -> list[Any]:
    """Return ids, positions and targets of each document of a batch, sorted; divided by the mask that is made of it."""
    numbers, found = AttentionMask.from_batch(batch).documents, []
    for row, number in sorted({(row, n) for row, each in enumerate(numbers.tolist()) for n in each if n >= 0}):
        here = numbers[row] == number
        ids, positions, labels = (batch[name][row][here].tolist() for name in ("input_ids", "position_ids", "labels"))
        found.append((ids, positions, labels[1:]))
    return sorted(found)


@given(
    rows=documents_of(classes=False),
    boundaries=st.sampled_from(BOUNDARIES),
    layout=st.sampled_from(list(LAYOUTS)),
    draw=st.data(),
)
@settings(max_examples=100)
def test_batches_given_back_stored_and_packed_rows_and_the_audit_have_the_documents_of_the_rows(
    rows: list[list[Document]], boundaries: str, layout: str, draw: st.DataObject
) -> None:
    given_rows, documents = rows_of(rows, boundaries, "labels", draw), [document for row in rows for document in row]
    collate = C(TOKENIZERS["right"], on_no_labels="keep", **LAYOUTS[layout])
    batch = collate(given_rows)
    batch.pop("look_ahead_mask", None)
    stored = collate.columns({name: [row[name] for row in given_rows] for name in given_rows[0]})
    packed = pack_dataset(datasets.Dataset.from_list(given_rows), CAPACITY, document_ids=True)
    read = C(TOKENIZERS["right"], on_no_labels="keep")(list(packed.remove_columns("attention_mask")))
    wanted = sorted((document.ids, [*range(len(document.ids))], document.labels[1:]) for document in documents)
    for each in (batch, collate.batch(batch), collate.batch(stored), read):
        assert documents_in(each) == wanted
    targets = sum(label != IGNORED for document in documents for label in document.labels[1:])
    assume(targets > 0)
    assert audit.labels([batch], TOKENIZERS["right"]).trained == targets
    assert audit.labels(given_rows, TOKENIZERS["right"]).trained == targets


@given(
    rows=documents_of(classes=True),
    boundaries=st.sampled_from(BOUNDARIES),
    layout=st.sampled_from([layout for layout in LAYOUTS if layout != "flat"]),
    draw=st.data(),
)
@settings(max_examples=80)
def test_an_encoder_learns_classes_of_tokens_from_rows_as_from_their_documents(
    rows: list[list[Document]], boundaries: str, layout: str, draw: st.DataObject
) -> None:
    batch = COLLATORS["BERT", layout](rows_of(rows, boundaries, "labels", draw))
    check(MODELS["BERT"], batch, [document for row in rows for document in row], shifts=False)


@given(
    inputs=st.lists(OWN_IDS, min_size=1, max_size=3),
    limit=st.none() | st.integers(1, 5),
    side=st.sampled_from(["left", "right"]),
    draw=st.data(),
)
@settings(max_examples=80)
def test_an_encoder_decoder_learns_from_padded_rows_and_targets_what_it_learns_without_padding(
    inputs: list[list[tuple[int, bool]]], limit: int | None, side: str, draw: st.DataObject
) -> None:
    model, total, targets, rows = MODELS["T5"], 0.0, [], []
    for each in inputs:
        document = Document([id for id, _ in each], [id for id, _ in each])
        (row,) = rows_of([[document]], "attention_mask", "labels", draw)
        target = draw.draw(st.lists(st.integers(2, IDS - 1), min_size=1, max_size=6), "target")
        padding = draw.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)), "padding of the target")
        if draw.draw(st.booleans(), "-100 at padding"):
            row["labels"] = [IGNORED] * padding[0] + target + [IGNORED] * padding[1]
            row["decoder_attention_mask"] = [1] * len(row["labels"])
        else:
            row["labels"] = target + [0] * padding[1]
            row["decoder_attention_mask"] = [1] * len(target) + [0] * padding[1]
        rows.append(row)
        kept = target if limit is None else target[:limit] if side == "right" else target[-limit:]
        with torch.no_grad():
            loss = model(input_ids=torch.tensor([document.ids]), labels=torch.tensor([kept])).loss
        total, targets = total + float(loss) * len(kept), targets + kept
    batch = C(TOKENIZERS[side], model=model, max_target_length=limit)(rows)
    assert sorted(batch["labels"][batch["labels"] != IGNORED].tolist()) == sorted(targets)
    with torch.no_grad():
        assert abs(float(model(**batch).loss) - total / len(targets)) < 2e-4

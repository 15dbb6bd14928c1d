"""Rows with branches, against one row for each branch: the same loss, gradients, masks and scores.

A tree is a prompt and its answers, as lists of ids. Its separate rows are the prompt with each answer.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from looping import for_each
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from hf_posenc import AttentionMask, ModelSpec, TokenBudgetMixin, audit, branch_log_probs, corpus, pack_dataset
from hf_posenc import DataCollatorWithPositionalEncoding as C

IDS, CAPACITY = 40, 32
LAYOUTS: dict[str, dict[str, Any]] = {
    "right": {},
    "left": {"padding_side": "left"},
    "packed": {"packing": True, "max_length": CAPACITY},
    "packed left": {"packing": True, "max_length": CAPACITY, "padding_side": "left"},
}


class Tree(NamedTuple):
    """A prompt and its answers."""

    prompt: list[int]
    answers: list[list[int]]

    def row(self) -> dict[str, list[int]]:
        """The row of ids, written as the definition says it."""
        ids, branches = self.prompt[:-1], [0] * len(self.prompt[:-1])
        for number, answer in enumerate(self.answers, 1):
            part = [*self.prompt[-1:], *answer]
            ids, branches = ids + part, branches + [number] * len(part)
        return {"input_ids": ids, "branch_ids": branches}


def _tokenizer() -> PreTrainedTokenizerFast:
    names = ["[PAD]", "[UNK]", "[EOS]", *(f"w{number}" for number in range(3, IDS))]
    raw = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]")


TOKENIZER = _tokenizer()
WIDE = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
GROUPED = {**WIDE, "num_key_value_heads": 1, "head_dim": 8}
WINDOW = {**GROUPED, "sliding_window": 4, "attn_implementation": "eager"}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": WIDE,
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    "qwen3": GROUPED,
    "mistral": WINDOW,  # a window shorter than the rows
    "gemma2": WINDOW,  # two kinds of layers
    "gemma3_text": {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "opt": {"hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "dropout": 0.0}
    | {"word_embed_proj_dim": 16},
}


def _models() -> dict[str, Any]:
    shared = {"vocab_size": IDS, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2, "initializer_range": 0.3}
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return {
            name: AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **shared, **sizes))
            for name, sizes in FAMILIES.items()
        }


@pytest.fixture(scope="module")
def causal_models() -> dict[str, Any]:
    return _models()


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    made = torch.autograd.grad(loss, weights, allow_unused=True)
    return torch.cat([grad.flatten() for grad in made if grad is not None])


def separate(model: Any, trees: list[Tree]) -> tuple[torch.Tensor, list[float]]:
    """The mean loss of all answers, each in a row of its own; and the log probability of each answer."""
    losses, scores = [], []
    for tree in trees:
        for answer in tree.answers:
            ids = torch.tensor([tree.prompt + answer])
            start = max(len(tree.prompt), 1)
            logits = model(input_ids=ids, use_cache=False).logits[0, start - 1 : -1]
            loss = torch.nn.functional.cross_entropy(logits, ids[0, start:], reduction="none")
            losses.append(loss)
            scores.append(-loss.sum().item())
    return torch.cat(losses).mean(), scores


def fitted(model: Any) -> ModelSpec:
    """The spec of a model, so that batches keep `branch_ids` for the scores."""
    spec = ModelSpec.of(model)
    return dataclasses.replace(spec, accepts=(*spec.accepts, "branch_ids"))


def check(model: Any, spec: ModelSpec, trees: list[Tree], rows: Any, **options: Any) -> None:
    """Compare loss, gradients and scores of a collator's batch with those of separate rows."""
    batch = C(TOKENIZER, model=spec, labels="causal_lm", on_no_labels="keep", **options)(rows)
    inputs = {name: value for name, value in batch.items() if name != "branch_ids"}
    out = model(**inputs, use_cache=False)
    loss, scores = separate(model, trees)
    torch.testing.assert_close(out.loss, loss, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(gradients(model, out.loss), gradients(model, loss), rtol=1e-3, atol=2e-5)
    made = branch_log_probs(out.logits, batch)
    assert len(made.rows) == len(scores)
    np.testing.assert_allclose(sorted(made.log_probs.tolist()), sorted(scores), rtol=1e-4, atol=1e-4)


token = st.integers(3, IDS - 1)


@st.composite
def trees_strategy(draw: Any, most: int = 8) -> list[Tree]:
    def answers() -> list[list[int]]:
        return draw(st.lists(st.lists(token, min_size=1, max_size=3), min_size=1, max_size=most))

    prompts = draw(st.lists(st.lists(token, min_size=1, max_size=6), min_size=1, max_size=3))
    return [Tree(prompt, answers()) for prompt in prompts]


@pytest.mark.slow
@for_each("name", [*FAMILIES])
@for_each("layout", [*LAYOUTS])
@settings(max_examples=10)
@given(trees=trees_strategy())
def test_branches_have_the_loss_and_gradients_of_separate_rows(
    causal_models: dict[str, Any], name: str, layout: str, trees: list[Tree]
) -> None:
    model = causal_models[name]
    options = LAYOUTS[layout] | ({"max_length": 64} if "max_length" in LAYOUTS[layout] else {})
    check(model, fitted(model), trees, [tree.row() for tree in trees], **options)


TREES = [Tree([5, 6, 7, 8], [[9, 10, 2], [11, 2], [12, 13, 14, 15, 2]]), Tree([3], [[4, 2], [7, 2], [9, 2]])]
TREES += [Tree([20, 21, 22], [[23, 2]])]


@for_each("layout", [*LAYOUTS])
@for_each("name", [*FAMILIES])
def test_three_rows_have_the_loss_of_separate_rows(causal_models: dict[str, Any], name: str, layout: str) -> None:
    model = causal_models[name]
    check(model, fitted(model), TREES, [tree.row() for tree in TREES], **LAYOUTS[layout])


@settings(max_examples=15, deadline=None)
@given(trees=trees_strategy(3), limit=st.integers(2, 8), left=st.booleans())
def test_truncated_rows_have_the_loss_of_truncated_separate_rows(
    causal_models: dict[str, Any], trees: list[Tree], limit: int, left: bool
) -> None:
    model = causal_models["llama"]
    short = [
        Tree(prompt := tree.prompt[-limit:], [answer[: limit - len(prompt)] for answer in tree.answers])
        for tree in trees
    ]
    assume(any(answer for tree in short for answer in tree.answers))
    with warnings.catch_warnings(action="ignore"):
        check(
            model,
            fitted(model),
            short,
            [tree.row() for tree in trees],
            max_length=limit,
            padding_side="left" if left else "right",
        )


def test_branches_in_bfloat16_have_the_loss_of_separate_rows(causal_models: dict[str, Any]) -> None:
    model = copy.deepcopy(causal_models["llama"]).bfloat16()
    batch = C(TOKENIZER, model=model, labels="causal_lm", on_no_labels="keep")([tree.row() for tree in TREES])
    assert batch["attention_mask"].dtype == torch.bfloat16
    exact, _ = separate(causal_models["llama"], TREES)
    torch.testing.assert_close(model(**batch, use_cache=False).loss.float(), exact, rtol=2e-2, atol=0.0)


def test_a_compiled_model_has_the_loss_of_separate_rows(causal_models: dict[str, Any]) -> None:
    model = causal_models["gpt2"]
    compiled = torch.compile(model, backend="eager", dynamic=True)
    collate = C(TOKENIZER, model=compiled, labels="causal_lm")
    for trees in (TREES[:1], TREES[:2]):
        with torch.no_grad():
            loss = compiled(**collate([tree.row() for tree in trees]), use_cache=False).loss
        torch.testing.assert_close(loss, separate(model, trees)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_a_step_of_trainer_with_two_workers_is_that_of_separate_rows(
    causal_models: dict[str, Any], tmp_path: Path
) -> None:
    model = copy.deepcopy(causal_models["llama"])
    rows = datasets.Dataset.from_list([tree.row() for tree in TREES])
    args = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=1,
        learning_rate=0.1,
        optim="sgd",
        max_grad_norm=0.0,
        per_device_train_batch_size=3,
        dataloader_num_workers=2,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model, args, train_dataset=rows, data_collator=C(TOKENIZER, model=model, labels="causal_lm")
    )
    trainer.train()
    before = causal_models["llama"]
    gradient = gradients(before, separate(before, TREES)[0])
    moved = [old - new for old, new in zip(before.parameters(), model.parameters(), strict=True)]
    torch.testing.assert_close(torch.cat([step.flatten() for step in moved]), 0.1 * gradient, rtol=1e-3, atol=2e-6)


def words(ids: list[int]) -> str:
    return "".join(f" w{token}" for token in ids if token > 2)


def sources(trees: list[Tree]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Input of a collator that means the same trees, and its settings."""
    columns = {"prompt": [words(tree.prompt) for tree in trees], "all": [[*map(words, tree.answers)] for tree in trees]}
    yield "texts", columns, {"branches": "all", "text_column": "prompt"}
    yield (
        "rows",
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        {"branches": "all", "text_column": "prompt"},
    )
    ids = {"prompt_ids": [tree.prompt for tree in trees], "all": [tree.answers for tree in trees]}
    yield "ids", ids, {"branches": "all"}
    yield "suffix", {"prompt_ids": ids["prompt_ids"], "all_ids": ids["all"]}, {"branches": "all"}
    pairs = {f"a{number}": [words(tree.answers[number]) for tree in trees] for number in range(len(trees[0].answers))}
    names = tuple(pairs)
    yield "columns", {"prompt": columns["prompt"], **pairs}, {"branches": names, "text_column": "prompt"}
    chats = [[{"role": "user", "content": text}] for text in columns["prompt"]]
    said = [[[{"role": "assistant", "content": text}] for text in row] for row in columns["all"]]
    yield "conversations", {"prompt": chats, "all": said}, {"branches": "all", "text_column": "prompt"}


TEMPLATE = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}[EOS]{% endif %}{% endfor %}"


def rows_of(columns: Any) -> list[dict[str, list[int]]]:
    """The rows of a batch or of columns, without padding."""
    return [
        {
            "input_ids": [int(token) for token, branch in row if branch >= 0],
            "branch_ids": [int(b) for _, b in row if b >= 0],
        }
        for row in (zip(*pair, strict=True) for pair in zip(columns["input_ids"], columns["branch_ids"], strict=True))
        for row in [list(row)]
    ]


def test_texts_conversations_and_ids_make_the_same_rows() -> None:
    tokenizer = _tokenizer()
    tokenizer.chat_template = TEMPLATE
    trees = [Tree([5, 6, 7], [[8, 2], [9, 10, 2]]), Tree([11], [[12, 13, 2], [14, 2]])]
    want = [tree.row() for tree in trees]
    with warnings.catch_warnings(action="ignore"):
        for name, given_rows, options in sources(trees):
            collate = C(tokenizer, **options, look_ahead=False)
            assert rows_of(collate.batch(given_rows)) == want, name
            assert rows_of(collate.columns(given_rows)) == want, name
            if not isinstance(given_rows, list):
                table = datasets.Dataset.from_dict(given_rows)
                assert rows_of(table.map(collate, batched=True, batch_size=1)) == want, name


def test_a_prompt_and_its_answers_are_the_example_of_the_docs() -> None:
    batch = C(TOKENIZER, labels="causal_lm", look_ahead=False)([Tree([5, 6], [[7, 8], [9, 10]]).row()])
    assert {name: values[0].tolist() for name, values in batch.items()} == {
        "input_ids": [5, 6, 7, 8, 6, 9, 10],
        "position_ids": [0, 1, 2, 3, 1, 2, 3],
        "branch_ids": [0, 1, 1, 1, 2, 2, 2],
        "labels": [-100, -100, 7, 8, -100, 9, 10],
    }


@for_each("packing", [False, True])
def test_rows_that_are_read_again_are_the_same_rows(packing: bool) -> None:
    rows = [tree.row() for tree in TREES]
    with warnings.catch_warnings(action="ignore"):
        collate = C(TOKENIZER, packing=packing, max_length=CAPACITY, look_ahead=False)
        first = collate(rows)
        assert all(torch.equal(values, first[name]) for name, values in collate.batch(first).items())
        stored = datasets.Dataset.from_list(rows).map(collate, batched=True)
        assert all(torch.equal(values, first[name]) for name, values in collate.batch(stored[:]).items())
        packed = pack_dataset(stored, CAPACITY, pad_token_id=0)
        again = C(TOKENIZER, look_ahead=False).batch(packed[:])
    mask = AttentionMask.from_batch(again, look_ahead=True).dense()
    assert int(mask.sum(-1).max()) <= max(len(tree.prompt) + max(map(len, tree.answers)) for tree in TREES)


@for_each("layout", [*LAYOUTS])
def test_rows_that_trainer_strips_of_branch_ids_still_have_them(causal_models: dict[str, Any], layout: str) -> None:
    model = causal_models["llama"]
    collate = C(TOKENIZER, model=fitted(model), labels="causal_lm", **LAYOUTS[layout])
    trees = [tree for tree in TREES if len(tree.prompt) > 1]  # others become documents of their own
    rows = datasets.Dataset.from_list([tree.row() for tree in trees])
    kept = ("input_ids", "attention_mask", "position_ids", "labels")  # arguments of the forward
    stored = rows.map(collate, batched=True).select_columns([*kept])
    want, got = collate([dict(row) for row in rows]), collate([dict(row) for row in stored])
    for name in ("input_ids", "position_ids", "labels", "attention_mask"):
        assert torch.equal(want[name], got[name]), name
    with warnings.catch_warnings(action="ignore"):
        packed = pack_dataset(rows.map(collate, batched=True), CAPACITY, pad_token_id=0)
        again = collate.replace(packing=False)([{name: row[name] for name in kept} for row in packed])
        want = collate.replace(packing=False)([dict(row) for row in packed])
    assert torch.equal(want["attention_mask"], again["attention_mask"])
    assert torch.equal(want["labels"], again["labels"])


@for_each(
    ("ids", "positions"),
    [
        ([5, 6, 7, 8, 9, 9, 10], [0, 1, 2, 3, 1, 2, 3]),  # another token at the repeated position
        ([5, 6, 7, 8, 6, 9, 10], [0, 1, 2, 3, 1, 2, 2]),  # a position that does not rise by one
        ([5, 6, 7, 8, 6, 9, 7], [0, 1, 2, 3, 1, 2, 4]),
        ([5, 6, 7, 8, 7, 9, 6], [0, 1, 2, 3, 2, 3, 1]),  # two positions
        ([5, 6, 7, 8], [0, 1, 999, 1000]),
        ([5, 6, 7, 8, 6], [3, 4, 5, 6, -1]),
    ],
)
def test_other_positions_show_no_branches(ids: list[int], positions: list[int]) -> None:
    batch = C(TOKENIZER, look_ahead=False)([{"input_ids": ids, "position_ids": positions}])
    assert "branch_ids" not in batch
    assert batch["position_ids"].tolist() == [positions]


def test_columns_with_a_value_per_token_move_with_their_tokens() -> None:
    row = {"input_ids": [0, 5, 6, 9, 7, 8, 6, 2, 0], "branch_ids": [-1, 0, 1, 0, 1, 1, 2, 2, -1]}
    row |= {"document_ids": [-1, 3, 3, 1, 3, 3, 3, 3, -1], "completion_mask": [0, 0, 0, 1, 1, 0, 0, 1, 0]}
    with warnings.catch_warnings(action="ignore"):
        settings = {"labels": "causal_lm", "on_no_labels": "keep", "token_columns": "weight"}
        batch = C(TOKENIZER, look_ahead=False, **settings)([row | {"weight": [8, 1, 2, 3, 4, 5, 6, 7, 8]}])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 6, 2, 9]]
    assert batch["weight"].tolist() == [[1, 2, 4, 5, 6, 7, 3]]
    assert batch["branch_ids"].tolist() == [[0, 1, 1, 1, 2, 2, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 1, 2, 0]]
    assert batch["labels"].tolist() == [[-100, -100, 7, -100, -100, 2, -100]]


def sees(tree_row: dict[str, list[int]], query: int, key: int, window: int | None) -> bool:
    """The definition: shared tokens before it and its own branch, at a distance of positions below the window."""
    branches = tree_row["branch_ids"]
    positions = [
        branches[:place].count(branches[place]) + (branches.count(0) if branches[place] else 0)
        for place in range(len(branches))
    ]
    is_near = window is None or positions[query] - positions[key] < window
    return key <= query and branches[key] in (0, branches[query]) and is_near


@settings(max_examples=40)
@given(trees=trees_strategy(4), window=st.none() | st.integers(1, 6), left=st.booleans())
def test_masks_follow_the_definition(trees: list[Tree], window: int | None, left: bool) -> None:
    rows = [tree.row() for tree in trees]
    with warnings.catch_warnings(action="ignore"):
        batch = C(TOKENIZER, look_ahead=False, padding_side="left" if left else "right")(rows)
    mask = AttentionMask.from_batch(batch, look_ahead=True, window=window)
    made = mask.dense()[:, 0]
    for index, row in enumerate(rows):
        length = len(row["input_ids"])
        start = made.shape[-1] - length if left else 0
        part = made[index, start : start + length, start : start + length]
        assert part.tolist() == [[sees(row, query, key, window) for key in range(length)] for query in range(length)]
    assert made.any(-1).all()
    assert torch.equal(mask.additive() == 0, mask.dense())
    assert torch.equal(mask.for_sdpa().get("attn_mask", mask.dense()).expand_as(mask.dense()), mask.dense())
    heads = mask.for_multihead_attention(2)
    if "attn_mask" in heads and mask.is_packed:
        assert torch.equal(heads["attn_mask"].view(len(rows), 2, *made.shape[1:])[:, 0], ~made)


def test_flex_attention_gets_the_mask_and_cumulative_lengths_are_refused() -> None:
    mask = AttentionMask.from_batch({"branch_ids": torch.tensor([[0, 1, 1, 2, 2]])}, look_ahead=True)
    block = mask.block_mask(1)
    assert torch.equal(block.to_dense()[0, 0].bool(), mask.dense()[0, 0])
    with pytest.raises(ValueError, match="cumulative lengths cannot express branches"):
        mask.varlen()
    with pytest.raises(ValueError, match="branches must have the shape of documents"):
        AttentionMask(torch.zeros(1, 3, dtype=torch.long), branches=torch.zeros(1, 2, dtype=torch.long))


def test_a_prefix_shows_only_shared_tokens_to_all_branches() -> None:
    branches = torch.tensor([[0, 0, 1, 2]])
    made = AttentionMask.from_batch({"branch_ids": branches}, look_ahead=True, prefix=3).dense()[0, 0].int()
    assert made.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]


def test_max_length_limits_the_prompt_and_one_answer() -> None:
    tree = Tree([5, 6, 7, 8], [[9, 10, 11], [12]])
    for limit, prompt, answers, empty in (
        (6, [5, 6, 7, 8], [[9, 10], [12]], 0),
        (5, [5, 6, 7, 8], [[9], [12]], 0),
        (4, [5, 6, 7, 8], [[], []], 2),
        (2, [7, 8], [[], []], 2),
    ):
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            batch = C(TOKENIZER, max_length=limit, look_ahead=False)([tree.row()])
        assert [batch[name][0].tolist() for name in ("input_ids", "branch_ids")] == [
            *Tree(prompt, answers).row().values()
        ]
        assert any(f"answers without tokens: {empty} of 2" in str(each.message) for each in messages) == bool(empty)
    with pytest.raises(ValueError, match="row 0 has 7 tokens, limit 6"):
        C(TOKENIZER, max_length=6, truncation=False)([tree.row()])
    with pytest.raises(ValueError, match="row 0 has 9 tokens with all its branches, and a row holds 8"):
        C(TOKENIZER, max_length=8, packing=True)([tree.row()])
    with pytest.raises(ValueError, match="row 0 has branches, which cannot be continued in further rows"):
        C(TOKENIZER, max_length=6, return_overflowing_tokens=True)([tree.row()])
    for too_long in ("error", "truncate", "split"):
        with pytest.raises(ValueError, match="row 1 has 9 tokens with all its branches, and a packed row holds 8"):
            pack_dataset(datasets.Dataset.from_list([TREES[2].row(), tree.row()]), 8, pad_token_id=0, too_long=too_long)


def test_models_that_count_columns_or_keep_a_state_are_refused() -> None:
    shared = {"vocab_size": IDS, "pad_token_id": 0}
    for name, facts in {
        "bloom": {"hidden_size": 16, "n_layer": 1, "n_head": 2},
        "mamba": {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 1},
        "mpt": {"d_model": 16, "n_layers": 1, "n_heads": 2},
    }.items():
        model = AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(name, **shared, **facts)).eval()
        with pytest.raises(ValueError, match="cannot keep them apart"):
            C(TOKENIZER, model=model, branches="all")
        with pytest.raises(ValueError, match=r"rows have branches, and .* cannot keep them apart"):
            C(TOKENIZER, model=model)([TREES[0].row()])
        assert len(C(TOKENIZER, model=model)([TREES[2].row()])["input_ids"]) == 1  # one branch is an ordinary row
    llama = transformers.LlamaConfig(**shared, **WIDE)
    with pytest.raises(ValueError, match="one output for each row"):
        C(TOKENIZER, model=transformers.LlamaForSequenceClassification(llama), branches="all")


def test_settings_that_do_not_fit_branches_are_refused() -> None:
    for name, value in {
        "text_pair_column": "b",
        "text_target_column": "b",
        "is_split_into_words": True,
        "return_overflowing_tokens": True,
        "packing": "flat",
    }.items():
        with pytest.raises(ValueError, match=f"{name} cannot be used with branches"):
            C(TOKENIZER, branches="all", **{name: value})
    for wrong in ((), 3, ("a", "a"), ("a", 1)):
        with pytest.raises(TypeError, match="branches must be a column of lists of answers"):
            C(TOKENIZER, branches=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='packing="flat" has no mask'):
        C(TOKENIZER, packing="flat")([TREES[0].row()])


@for_each(
    ("row", "message"),
    [
        ({"branch_ids": [0, 1, 1, 0, 2]}, "branch_ids must be 0 at the shared tokens"),
        ({"branch_ids": [0, 1, 1, 3, 3]}, "branch_ids must be 0 at the shared tokens"),
        ({"branch_ids": [2, 2, 2, 2, 2]}, "branch_ids must be 0 at the shared tokens"),
        ({"branch_ids": [0, 1, 1, 2, 2]}, "each branch of a document must begin with the same token"),
        ({"branch_ids": [0, 1, 1]}, "3 values in 'branch_ids' for 5 tokens"),
        ({"branch_ids": [0.5] * 5}, "branch_ids"),
    ],
)
def test_wrong_branch_ids_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        C(TOKENIZER)([{"input_ids": [5, 6, 7, 8, 9], **row}])


@for_each(
    ("row", "message"),
    [
        ({"prompt": "w5", "all": "w6"}, "row 0 of column 'all' is str, expected a list of answers"),
        ({"prompt": "w5", "all": []}, "row 0 of column 'all' has no answer"),
        ({"prompt": "w5", "all": ["w6", None]}, "row 0 of column 'all' is NoneType, expected a text like row 0"),
        ({"prompt": None, "all": ["w6"]}, "row 0 of column 'prompt' is NoneType, expected a text, a list of messages"),
        ({"prompt": "w5", "all": [[6]]}, "row 0 of column 'all' is list, expected a text like row 0"),
        ({"text": "w5", "all": ["w6"]}, "column 'prompt' is missing; the columns that arrived are"),
        ({"prompt": "w5"}, "column 'all' is missing; the columns that arrived are"),
        ({"input_ids": [5, 6]}, "branches='all', and these rows of token ids show no branches"),
        ([5, 6], "branches='all', and these rows of token ids show no branches"),
        ("w5", "branches='all' are columns, and these rows are texts alone"),
    ],
)
def test_wrong_prompts_and_answers_are_refused(row: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        C(TOKENIZER, branches="all", text_column="prompt")([row])


def test_lists_of_answers_in_several_columns_are_refused_with_the_setting_for_one_column() -> None:
    with pytest.raises(
        TypeError, match=r"row 0 of column 'chosen' is list, .*\n.*\n.*branches=\"chosen\" for a column"
    ):
        C(TOKENIZER, branches=("chosen",), text_column="prompt")([{"prompt": "w5", "chosen": ["w6", "w7"]}])


def test_a_prompt_whose_tokens_change_with_the_answer_is_named() -> None:
    raw = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "ride": 2, "rides": 3, "I": 4}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    collate = C(raw, branches="all", text_column="prompt", pad_token="[PAD]", look_ahead=False)
    with pytest.warns(UserWarning, match="the tokens of the prompt of row 0 are not those with its answers") as found:
        batch = collate([{"prompt": "I ride", "all": ["s", " I"]}])
    assert "'ride' at the end of the prompt alone" in str(found[0].message)
    assert batch["input_ids"].tolist() == [[4, 3, 4, 2, 4]]
    assert batch["branch_ids"].tolist() == [[1, 1, 2, 2, 2]]


def test_special_tokens_stand_where_the_template_puts_them() -> None:
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "I": 4, "ride": 5}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    collate = C(raw, branches="all", text_column="prompt", pad_token="[PAD]", look_ahead=False)
    batch = collate([{"prompt": "I", "all": [" ride", " I ride"]}])
    assert batch["input_ids"].tolist() == [[2, 4, 5, 3, 4, 4, 5, 3]]


def test_a_prompt_without_tokens_makes_documents_of_the_answers() -> None:
    with warnings.catch_warnings(action="ignore"):
        collate = C(TOKENIZER, branches="all", text_column="prompt", labels="causal_lm", look_ahead=False)
        batch = collate([{"prompt": "", "all": ["w5 w6", "w7 w8"]}])
    assert batch["branch_ids"].tolist() == [[1, 1, 1, 2, 2, 2]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]
    assert batch["labels"].tolist() == [[-100, 6, 2, -100, 8, 2]]


def test_scores_sum_the_log_probabilities_of_each_answer_by_their_definition() -> None:
    rows = [tree.row() for tree in TREES]
    with warnings.catch_warnings(action="ignore"):
        batch = C(TOKENIZER, packing=True, max_length=CAPACITY, look_ahead=False)(rows)
    logits = torch.randn(*batch["input_ids"].shape, IDS, dtype=torch.float64, requires_grad=True)
    scores = branch_log_probs(logits, batch)
    ids, branches, documents = (batch[name].tolist() for name in ("input_ids", "branch_ids", "document_ids"))
    for score, row, document, branch in zip(*(each.tolist() for each in scores), strict=True):
        places = [i for i, of in enumerate(zip(documents[row], branches[row], strict=True)) if of == (document, branch)]
        want = sum(float(logits[row, i - 1].log_softmax(-1)[ids[row][i]].detach()) for i in places[1:])
        assert score == pytest.approx(want)
    assert scores.log_probs.dtype == torch.float64
    scores.log_probs.sum().backward()
    assert logits.grad is not None
    labels = batch["input_ids"].masked_fill(batch["branch_ids"] != 1, -100)
    assert (branch_log_probs(logits, {**batch, "labels": labels}).log_probs[scores.branches != 1] == 0).all()
    with pytest.raises(ValueError, match="the scores of branches need the batch's branch_ids"):
        branch_log_probs(logits, {"input_ids": batch["input_ids"]})
    with pytest.raises(ValueError, match="must have the same B and T"):
        branch_log_probs(logits[:, 1:], batch)


def test_a_saved_collator_has_its_branches(tmp_path: Any) -> None:
    collate = C(TOKENIZER, branches=("chosen", "rejected"), text_column="prompt")
    collate.save_pretrained(tmp_path)
    assert C.from_pretrained(tmp_path) == collate
    assert C.from_pretrained(tmp_path).branches == ("chosen", "rejected")


def test_an_audit_counts_each_answer() -> None:
    rows = [tree.row() for tree in TREES]
    rows = [
        {**row, "labels": [row["input_ids"][i] if b else -100 for i, b in enumerate(row["branch_ids"])]} for row in rows
    ]
    found = audit.labels(rows, TOKENIZER)
    assert found.trained == sum(len(answer) for tree in TREES for answer in tree.answers)
    assert not found.problems
    rows[0]["input_ids"][6] = rows[0]["labels"][6] = 9  # the end of the first answer
    assert audit.labels(rows, TOKENIZER).problems == {"truncated": (0,)}


def test_a_token_budget_counts_whole_trees(causal_models: dict[str, Any], tmp_path: Any) -> None:
    class BudgetTrainer(TokenBudgetMixin, transformers.Trainer, token_budget=60): ...

    collate = C(TOKENIZER, model=causal_models["llama"], labels="causal_lm", max_length=16)
    trees = [Tree([5, 6, 7], [[8] * 12, [9] * 12])] * 6  # of 28 tokens; a path has 15
    args = transformers.TrainingArguments(
        str(tmp_path), report_to="none", remove_unused_columns=False, dataloader_pin_memory=False
    )
    rows = datasets.Dataset.from_list([tree.row() for tree in trees])
    trainer = BudgetTrainer(causal_models["llama"], args, train_dataset=rows, data_collator=collate)
    assert [len(batch["input_ids"]) for batch in trainer.get_train_dataloader()] == [2, 2, 2]


def test_a_prompt_is_no_answer_of_its_own() -> None:
    with pytest.raises(ValueError, match="branches are the answers to the prompts of text_column"):
        C(TOKENIZER, branches=("chosen", "rejected"), text_column="chosen")


def test_encode_refuses_branches(tmp_path: Any) -> None:
    rows = datasets.Dataset.from_dict({"prompt": ["w5"], "all": [["w6"]]})
    with pytest.raises(ValueError, match="encode reads one text of each row, and branches are several"):
        corpus.encode(rows, C(TOKENIZER, branches="all", text_column="prompt"), tmp_path / "out", workers=0)

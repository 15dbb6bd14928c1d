"""Masked labels compared with transformers' collator, whole words, rows without labels, and refused labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from small_models import of_class
from torch.utils.data import DataLoader

from hf_posenc import DataCollatorWithPositionalEncoding, MaskedLM, ModelSpec, pack_dataset

C = DataCollatorWithPositionalEncoding


def _many(wordpiece: Any, **settings: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    rows = [[2, *rng.integers(5, 1200, 500).tolist(), 3] for _ in range(80)]
    batch = C(wordpiece, look_ahead=False, **settings)(rows)
    return batch["input_ids"], batch["labels"], torch.tensor(rows)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize(("chosen", "masked", "random"), [(0.15, 0.8, 0.1), (0.4, 0.5, 0.5), (0.3, 0.0, 0.0)])
def test_masking_rates_are_the_given_ones(
    wordpiece, seed: int | None, chosen: float, masked: float, random: float
) -> None:
    torch.manual_seed(0)
    ids, labels, before = _many(wordpiece, seed=seed, labels=MaskedLM(chosen, masked, random))
    picked = labels != -100
    inner = (before > 3).float().mean()
    assert picked.float().mean().item() == pytest.approx(chosen * inner.item(), abs=0.01)
    assert torch.equal(labels[picked], before[picked])
    assert torch.equal(ids[~picked], before[~picked])
    share = (ids[picked] == wordpiece.mask_token_id).float().mean().item()
    assert share == pytest.approx(masked, abs=0.03)
    changed = ((ids[picked] != before[picked]) & (ids[picked] != wordpiece.mask_token_id)).float().mean().item()
    assert changed == pytest.approx(random, abs=0.03)
    assert not picked[(before == 2) | (before == 3)].any()


def test_without_a_seed_the_masks_are_transformers_own_draw(wordpiece) -> None:
    """The same generator state, the same tokens masked, where no padding takes part in the draw."""
    from transformers import DataCollatorForLanguageModeling

    rows = [[2, *range(10, 60), 3], [2, *range(60, 110), 3]]
    torch.manual_seed(3)
    theirs = DataCollatorForLanguageModeling(wordpiece)([{"input_ids": row} for row in rows])
    torch.manual_seed(3)
    ours = C(wordpiece, labels="masked_lm")(rows)
    assert torch.equal(ours["input_ids"], theirs["input_ids"])
    assert torch.equal(ours["labels"], theirs["labels"])


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("kind", [int, bool])
def test_special_tokens_masks_of_rows_are_used_as_transformers_uses_them(wordpiece, kind: type, words: bool) -> None:
    from transformers import DataCollatorForLanguageModeling

    ids = [2, *range(10, 38), 3]
    pattern = [index % 3 == 0 for index in range(30)]
    for marks in ([True] * 30, [False] * 30, pattern):
        row = {"input_ids": ids, "special_tokens_mask": [kind(mark) for mark in marks]}
        collate = C(wordpiece, labels=MaskedLM(mlm_probability=0.9, whole_word_mask=words))
        if words:
            row["word_ids"] = list(range(30))
            assert (collate([row])["labels"][0][torch.tensor(marks)] == -100).all()
            continue
        torch.manual_seed(3)
        theirs = DataCollatorForLanguageModeling(wordpiece, mlm_probability=0.9)([dict(row)])
        torch.manual_seed(3)
        ours = collate([row])
        assert torch.equal(ours["input_ids"], theirs["input_ids"])
        assert torch.equal(ours["labels"], theirs["labels"])
        assert (ours["labels"][0] == -100).all() == all(marks)
    padded = {"input_ids": [*ids, 0, 0], "attention_mask": [1] * 30 + [0, 0], "special_tokens_mask": [1] * 30 + [0, 0]}
    assert (C(wordpiece, labels="masked_lm", seed=1)([padded])["labels"] == -100).all()


def test_causal_labels_of_rows_are_never_advised_or_taken_for_a_model_that_sees_the_tokens(wordpiece) -> None:
    stored = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7, 8], [9, 10, 11], [12]]})
    rows = list(pack_dataset(stored, 4))
    with pytest.raises(ValueError, match="labels for causal models") as refused:
        C(wordpiece, labels="masked_lm")(rows)
    assert "labels=None)" in str(refused.value)  # of pack_dataset, not of the collator
    assert "labels=None to use them" not in str(refused.value)
    bert = ModelSpec(
        accepts=("input_ids", "attention_mask", "position_ids", "labels"), positions=("learned",), takes_4d_mask=True
    )
    with pytest.raises(ValueError, match="it would learn to copy them"):
        C(wordpiece, model=bert)(rows)
    masked = C(wordpiece, labels="masked_lm", seed=0, model=bert)(list(pack_dataset(stored, 4, labels=None)))
    assert masked["labels"].shape == masked["input_ids"].shape


def _by_text(batches: list[Any]) -> list[tuple[list[int], list[int]]]:
    out = []
    for batch in batches:
        for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
            real = mask.bool()
            out.append((ids[real].tolist(), labels[real].tolist()))
    return out


@pytest.mark.parametrize("words", [False, True])
def test_with_a_seed_a_text_has_the_same_masks_at_any_batch_size_side_and_worker(
    wordpiece, sentences, words: bool
) -> None:
    texts = [text[:200] for text in sentences[:30]]
    collate = C(wordpiece, labels=MaskedLM(whole_word_mask=words), seed=5, look_ahead=False)
    want = _by_text([collate(texts)])
    assert any(label != -100 for _, labels in want for label in labels)
    assert _by_text(list(DataLoader(texts, batch_size=7, collate_fn=collate))) == want
    alone = _by_text(list(DataLoader(texts, batch_size=1, collate_fn=collate)))
    has_label = [set(labels) != {-100} for _, labels in want]
    assert not all(has_label)
    assert [row for row, drew in zip(alone, has_label, strict=True) if drew] == [
        row for row, drew in zip(want, has_label, strict=True) if drew
    ]
    assert all(set(labels) != {-100} for _, labels in alone)  # a batch of one row has a label, too
    assert _by_text([collate.replace(padding_side="left")(texts)]) == want
    assert _by_text(list(DataLoader(texts, batch_size=4, collate_fn=collate, num_workers=2))) == want
    assert _by_text([collate.replace(seed=6)(texts)]) != want
    columns = collate({"text": texts})
    rows = [{name: values[row] for name, values in columns.items()} for row in range(len(texts))]
    assert _by_text([collate(rows)]) == want


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("packing", [False, True, "flat"])
@pytest.mark.parametrize("words", [False, True])
def test_a_batch_has_a_label_if_a_token_can_be_one(wordpiece, seed: int | None, packing: Any, words: bool) -> None:
    """A share that draws nearly never gives one token, or word, and a share of 0 none."""
    labels = MaskedLM(mlm_probability=1e-9, whole_word_mask=words)
    collate = C(wordpiece, labels=labels, seed=seed, packing=packing, max_length=32)
    plain = C(wordpiece, packing=packing, max_length=32)
    texts = ["unsurprisingly so", "I ride", "a"]
    drawn = set()
    for _ in range(20):
        batch, ids = collate(texts), plain(texts)["input_ids"]
        targets = batch["labels"] != -100
        text_tokens = ids[targets]
        assert torch.equal(batch["labels"][targets], text_tokens)
        assert not torch.isin(text_tokens, torch.tensor(wordpiece.all_special_ids)).any()
        assert torch.equal(batch["input_ids"][~targets], ids[~targets])
        tokens = [wordpiece.tokenize(word) for word in " ".join(texts).split()]
        picked = wordpiece.convert_ids_to_tokens(text_tokens.tolist())
        assert picked in tokens if words else len(picked) == 1
        drawn.add(tuple(picked))
    assert (len(drawn) == 1) == (seed is not None)
    assert len({str(collate.replace(seed=other)(texts)["labels"].tolist()) for other in range(20)}) > 2
    none = collate.replace(labels=MaskedLM(mlm_probability=0, whole_word_mask=words), on_no_labels="keep")(texts)
    assert (none["labels"] == -100).all()


def _one_word_a_text() -> dict[str, Any]:
    """Return tokenizers whose pre-tokenizer makes one word of a text, by their form."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<unk>", "<mask>"]
    bpe = {"unk_token": "<unk>"}, trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    as_llama = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    forms: dict[str, tuple[Any, Any, Any]] = {
        "metaspace": (models.BPE(**bpe[0]), None, pre_tokenizers.Metaspace(split=False)),
        "unigram": (models.Unigram(), None, pre_tokenizers.Metaspace(split=False)),
        "llama": (models.BPE(**bpe[0]), as_llama, None),
        "gemma": (
            models.BPE(**bpe[0]),
            normalizers.Replace(" ", "▁"),
            pre_tokenizers.Split(" ", "merged_with_previous"),
        ),
        "bytes": (models.BPE(), None, pre_tokenizers.ByteLevel(use_regex=False)),
        "spaces": (models.BPE(**bpe[0]), None, None),
    }
    found: dict[str, Any] = {}
    words = sorted({word for text in _TEXTS for word in text.split()})
    for name, (model, normalizer, pre_tokenizer) in forms.items():
        raw, trainer = Tokenizer(model), bpe[1]
        if normalizer is not None:
            raw.normalizer = normalizer
        if pre_tokenizer is not None:
            raw.pre_tokenizer = pre_tokenizer
        if name == "unigram":
            trainer = trainers.UnigramTrainer(
                vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False
            )
        raw.train_from_iterator([*words, *(f" {word}" for word in words)] * 3, trainer)
        raw.decoder = decoders.ByteLevel() if name == "bytes" else decoders.Metaspace()
        roles = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
        found[name] = PreTrainedTokenizerFast(tokenizer_object=raw, **roles)
    return found


_TEXTS = [
    *("the cat sat on the mat", "a dog ran after the red ball", "birds sang in the park all day long"),
    *("she rides her bike", "unsurprisingly so", "cats and dogs"),
]


@pytest.mark.parametrize("name", ["metaspace", "unigram", "llama", "gemma", "bytes", "spaces"])
def test_words_begin_at_spaces_where_the_tokenizer_makes_one_word_of_a_text(name: str) -> None:
    """Compared with the words of the text: tokens that begin with ▁, Ġ or a space begin them."""
    tokenizer = _one_word_a_text()[name]
    collate = C(tokenizer, labels=MaskedLM(mlm_probability=0.3, whole_word_mask=True), max_length=99, seed=0)
    sizes = set()
    for seed in range(10):
        batch = collate.replace(seed=seed)(_TEXTS)
        for row, text in enumerate(_TEXTS):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            tokens = tokenizer.convert_ids_to_tokens(ids)
            is_target = (batch["labels"][row] != -100)[: len(ids)].tolist()
            word, by_word = -1, dict[int, set[bool]]()
            for place, (token, target) in enumerate(zip(tokens, is_target, strict=True)):
                word += place == 0 or token.startswith(("▁", "Ġ", " "))
                by_word.setdefault(word, set()).add(target)
            assert len(by_word) == len(text.split())
            assert all(len(targets) == 1 for targets in by_word.values())
            sizes.add((sum(map(min, by_word.values())), len(by_word)))
    assert len({number for number, _ in sizes}) > 2
    assert (8, 8) not in sizes  # no row is masked whole
    rows = [{"input_ids": ids} for ids in tokenizer(_TEXTS)["input_ids"]]
    one_word = [{**row, "word_ids": tokenizer(text).word_ids()} for row, text in zip(rows, _TEXTS, strict=True)]
    # Rows of ids, also with the words of the tokenizer, and those that `map` stores.
    for given in (rows, one_word, _rows(collate({"text": _TEXTS}))):
        assert _by_text([collate(given)]) == _by_text([collate(_TEXTS)])


def _rows(columns: Any) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_added_tokens_are_words_of_their_own() -> None:
    from tokenizers import AddedToken

    tokenizer = _one_word_a_text()["llama"]
    tokenizer.add_tokens([AddedToken("[ride]", normalized=False)])
    number = tokenizer.convert_tokens_to_ids("[ride]")
    collate = C(tokenizer, labels=MaskedLM(mlm_probability=0.5, whole_word_mask=True))
    ids, apart = tokenizer("cats[ride]dogs<mask>so")["input_ids"], set()
    place = ids.index(number)
    for seed in range(30):
        labels = collate.replace(seed=seed)([ids])["labels"][0]
        assert labels[ids.index(tokenizer.mask_token_id)] == -100
        apart.add(tuple((labels[place - 1 : place + 2] != -100).tolist()))
    assert len(apart) == 8


def test_words_that_no_token_shows_are_refused_when_the_collator_is_made(word_level) -> None:
    from tokenizers import Tokenizer, models, normalizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "[MASK]": 2, "a": 3, "b": 4}, unk_token="[UNK]"))
    for normalizer in (None, normalizers.Replace(" ", "")):
        if normalizer is not None:
            raw.normalizer = normalizer
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", mask_token="[MASK]")
        with pytest.raises(ValueError, match=r"makes one word of a text\n  got: 'a ?b' for .*\n  fix: labels=MaskedLM"):
            C(tokenizer, labels=MaskedLM(whole_word_mask=True))
        words = C(tokenizer, labels=MaskedLM(whole_word_mask=True), is_split_into_words=True, seed=0)
        assert words([["a", "b"]])["labels"].shape == (1, 2)


@pytest.mark.parametrize("seed", [None, 1])
def test_whole_words_are_masked_whole(wordpiece, sentences, seed: int | None) -> None:
    texts = [text[:300] for text in sentences if text.isascii()][:20]
    batch = C(wordpiece, labels=MaskedLM(mlm_probability=0.3, whole_word_mask=True), seed=seed)(texts)
    picked = 0
    for row, text in enumerate(texts):
        words = wordpiece(text).word_ids()
        labels = batch["labels"][row][: len(words)].tolist()
        by_word: dict[int, set[bool]] = {}
        for word, label in zip(words, labels, strict=True):
            if word is None:
                assert label == -100
            else:
                by_word.setdefault(word, set()).add(label != -100)
        assert all(len(seen) == 1 for seen in by_word.values())
        picked += sum(True in seen for seen in by_word.values())
    assert picked > 20
    masked = batch["labels"] != -100
    assert (batch["input_ids"][masked] == wordpiece.mask_token_id).all()


def test_whole_words_need_to_be_known(wordpiece) -> None:
    collate = C(wordpiece, labels=MaskedLM(whole_word_mask=True))
    row = dict(wordpiece("I ride", return_offsets_mapping=True))
    for rows in ([[5, 6, 7]], [row]):
        with pytest.raises(ValueError, match=r"word of each token.* offset_mapping is not read\n  got: .*\n  fix: "):
            collate(rows)
    collate([{**row, "word_ids": wordpiece("I ride").word_ids()}])


def test_masked_labels_need_a_mask_token_and_shares_that_add_up(byte_bpe) -> None:
    with pytest.raises(ValueError, match='labels="masked_lm" needs a tokenizer with a mask token'):
        C(byte_bpe, pad_token="eos", labels="masked_lm")
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"mlm_probability": 1.5}, ValueError, "mlm_probability must be between 0 and 1"),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.5}, ValueError, "must not add up to more than 1"),
        (
            {"mask_replace_prob": 0.5, "whole_word_mask": True},
            ValueError,
            "whole_word_mask replaces all tokens to predict",
        ),
        ({"whole_word_mask": 1}, TypeError, "whole_word_mask must be True or False"),
        ({"random_replace_prob": "0.1"}, TypeError, "random_replace_prob must be a number"),
    ]
    for settings, error, words in wrong:
        with pytest.raises(error, match=words):
            MaskedLM(**settings)


@pytest.mark.parametrize("kind", [int, bool, np.array])
def test_a_mask_that_is_0_at_all_tokens_of_a_row_is_refused(wordpiece, kind: Any) -> None:
    def rows(*masks: list[int]) -> list[dict[str, Any]]:
        ids = [[2, 7, 8, 3], [2, 7, 3, 0]]
        return [
            {"input_ids": row, "attention_mask": kind(mask) if kind is np.array else list(map(kind, mask))}
            for row, mask in zip(ids, masks, strict=True)
        ]

    for empty in ("error", "keep"):
        collate = C(wordpiece, on_empty=empty)
        assert collate(rows([1, 1, 1, 1], [1, 1, 1, 0]))["attention_mask"].sum() == 7
        with pytest.raises(ValueError, match="attention_mask is 0 at all 4 tokens of row 0"):
            collate(rows([0, 0, 0, 0], [0, 0, 0, 1]))
        with pytest.raises(
            ValueError, match=r"is 0 at all 3 tokens of row 1, .*\n  got: attention_mask \[0, 0, 0, 1\]"
        ):
            collate.columns(rows([1, 1, 1, 1], [0, 0, 0, 1]))
        with pytest.raises(ValueError, match="attention_mask is 0 at all"):
            collate([{"input_ids": [7], "attention_mask": kind([0]) if kind is np.array else [kind(0)]}])
    collate = C(wordpiece)
    hidden = collate(rows([1, 1, 0, 1], [1, 0, 0, 0]))  # some tokens may be hidden
    assert hidden["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    padding = [{"input_ids": [2, 3], "attention_mask": [1, 1]}, {"input_ids": [0, 0], "attention_mask": [0, 0]}]
    with pytest.raises(ValueError, match="row 1 has no tokens"):
        collate(padding)
    assert C(wordpiece, on_empty="keep")(padding)["attention_mask"].tolist() == [[1, 1], [0, 0]]


UNSUPERVISED = [
    {"input_ids": [5, 6, 7, 8], "labels": [-100, -100, -100, 8]},
    {"input_ids": [5, 6], "labels": [-100, 6]},
    {"input_ids": [7, 8, 9], "labels": [-100, -100, 9]},
]


def test_a_row_whose_labels_are_all_ignored_after_truncation_is_refused_with_its_number_and_lengths(word_level) -> None:
    with pytest.raises(ValueError, match="row 0 has nothing to learn: its 3 labels are all -100") as refused:
        C(word_level, max_length=3)(UNSUPERVISED)
    assert "got: 1 such rows of 3; max_length=3" in str(refused.value)
    assert 'on_no_labels="skip" leaves such rows out, "keep" keeps them' in str(refused.value)
    with pytest.raises(ValueError, match="row 0 has nothing to learn"):
        C(word_level, max_length=2)(UNSUPERVISED)
    with pytest.raises(ValueError, match="row 0 has nothing to learn: its 1 labels are all -100"):
        C(word_level)([{"input_ids": [5], "labels": [-100]}])
    assert C(word_level, max_length=4)(UNSUPERVISED)["labels"].shape == (3, 4)
    assert C(word_level, max_length=3, on_no_labels="keep")(UNSUPERVISED)["labels"].shape == (3, 3)
    with pytest.raises(ValueError, match="on_no_labels must be one of"):
        C(word_level, on_no_labels="ignore")


@pytest.mark.parametrize("packing", [False, True, "flat"])
def test_rows_without_labels_are_left_out_and_counted_once(word_level, packing: Any) -> None:
    collate = C(word_level, max_length=3, on_no_labels="skip", packing=packing)
    rows = [{**row, "n": number} for number, row in enumerate(UNSUPERVISED)] if not packing else UNSUPERVISED
    with pytest.warns(UserWarning, match="1 (of 3 rows|documents) were left out: their labels are all -100"):
        batch = collate(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = collate(rows)
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
    assert sorted(batch["labels"][batch["labels"] != -100].tolist()) == [6, 9]
    assert sorted(batch["input_ids"][batch["input_ids"] != 0].tolist()) == [5, 6, 7, 8, 9]
    if not packing:
        assert batch["n"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="no row of the batch has a label other than -100, so none would be left"):
        collate(UNSUPERVISED[:1])


def test_a_target_without_tokens_is_refused_or_left_out_with_its_row(word_level) -> None:
    rows = [{"text": "a b", "target": ""}, {"text": "b", "target": "a"}]
    settings = {"text_target_column": "target", "max_target_length": 4}
    with pytest.raises(
        ValueError, match=r"row 0 has nothing to learn: its 0 labels are all -100\n.*max_target_length=4"
    ):
        C(word_level, **settings)(rows)
    with pytest.warns(UserWarning, match="1 of 2 rows were left out"):
        batch = C(word_level, **settings, on_no_labels="skip")(rows)
    assert batch["input_ids"].shape == batch["labels"].shape == (1, 1)


@pytest.mark.parametrize(
    ("name", "settings", "labels", "fix"),
    [
        ("GPT2LMHeadModel", {}, "masked_lm", 'labels="causal_lm", or a masked language model'),
        ("BertLMHeadModel", {"is_decoder": True}, "masked_lm", 'labels="causal_lm", or a masked language model'),
        ("GPT2ForTokenClassification", {}, "causal_lm", "AutoModelForCausalLM"),
        ("BertForMaskedLM", {"is_decoder": True}, "causal_lm", "AutoModelForCausalLM"),  # causal, but it does not shift
        ("BertForMaskedLM", {}, "causal_lm", 'labels="masked_lm"'),
        ("BartForConditionalGeneration", {}, "causal_lm", "text_target_column"),  # its encoder reads every label
        ("BartForConditionalGeneration", {}, "masked_lm", "text_target_column"),
    ],
)
def test_labels_that_do_not_fit_the_shift_of_the_model_are_refused(
    wordpiece, name: str, settings: dict[str, Any], labels: str, fix: str
) -> None:
    with pytest.raises(ValueError, match=rf"labels='{labels}' .*{name}") as refused:
        C(wordpiece, model=of_class(name, **settings), labels=labels)
    assert fix in str(refused.value)


def test_warnings_have_the_line_that_called_the_package_as_their_place(word_level) -> None:
    """At any depth: of a call, of a loop over batches, of a collator that is made."""
    rows = [{"input_ids": [5, 6], "loss_mask": [0, 1], "note": "a"}]
    word_level.model_max_length = 4
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        C(word_level, labels="causal_lm")(rows)
        C(word_level, labels="causal_lm").columns({"input_ids": [[5, 6, 0]]})
        C(word_level, max_length=9)
        list(C(word_level).batches(["a b c d e f"], 8))
    places = [(Path(each.filename).name, str(each.message)) for each in caught]
    assert len(places) >= 4
    assert [place for place in places if place[0] != Path(__file__).name] == []

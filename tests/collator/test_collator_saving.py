"""Pickles, folders and copies compared with the original: the same batches, no weights, no code, nothing unknown."""

from __future__ import annotations

import json
import pickle
import pickletools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from looping import for_each, slow
from tokenizers import normalizers, pre_tokenizers, processors
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, ModelSpec, PositionalEmbedding, positional_encoding
from hf_posenc.positions import KINDS

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a"]


def _fingerprint(collate: Any) -> str:
    from datasets.fingerprint import Hasher

    return str(Hasher.hash(collate))


def _assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(np.asarray(_plain(one[name])), np.asarray(_plain(other[name])), err_msg=name)


def _plain(values: Any) -> Any:
    return values.float() if isinstance(values, torch.Tensor) and values.dtype == torch.bfloat16 else values


@pytest.fixture(params=["wordpiece", "unigram", "byte_bpe", "bert", "slow"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    tokenizer = request.getfixturevalue(request.param)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def test_without_its_table_a_copy_collates_and_refuses_to_embed(wordpiece) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    collate = C(wordpiece, embedding=table)
    again = pickle.loads(pickle.dumps(collate))
    with pytest.warns(UserWarning, match="is not pickled or saved with a collator"):
        batch = again(TEXTS)
    assert torch.equal(batch["input_ids"], collate(TEXTS)["input_ids"])
    with pytest.raises(ValueError, match=r"(?s)is not pickled or saved.*collate.replace\(embedding=table\)"):
        again.embed(TEXTS)
    _assert_same(again.replace(embedding=table)(TEXTS), collate(TEXTS))
    assert again == collate
    assert _fingerprint(again) == _fingerprint(collate)


@pytest.mark.filterwarnings("ignore:the embedding's spread")  # of a random table
def test_a_table_that_is_stored_travels(wordpiece) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        table = nn.Embedding(1200, 8, dtype=dtype).requires_grad_(False)
        collate = C(wordpiece, embedding=table, store_embeddings=True)
        again = pickle.loads(pickle.dumps(collate))
        _assert_same(again(TEXTS), collate(TEXTS))
    module = PositionalEmbedding(nn.Embedding(1200, 8).requires_grad_(False), convention="marian", scale=3.0)
    collate = C(wordpiece, embedding=module, store_embeddings=True)
    _assert_same(pickle.loads(pickle.dumps(collate))(TEXTS), collate(TEXTS))


def _learned(kind: Any, **settings: Any) -> PositionalEmbedding:
    torch.manual_seed(0)
    module = PositionalEmbedding(nn.Embedding(1200, 8), encoding=kind, **settings)
    for weight in module.encoding.parameters():
        nn.init.normal_(weight)
    return module.requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", list(KINDS))
def test_an_encoding_that_is_stored_travels_with_its_weights(wordpiece, kind: Any, dtype: torch.dtype) -> None:
    module = _learned(kind, scale=2.0, dropout=0.25, zero_padding=False, max_length=40).eval().to(dtype)
    collate = C(wordpiece, embedding=module, store_embeddings=True)
    again = pickle.loads(pickle.dumps(collate))
    assert again == collate
    assert hash(again) == hash(collate)
    assert _fingerprint(again) == _fingerprint(collate)
    again.embedding.eval()
    _assert_same(again(TEXTS), collate(TEXTS))
    assert not any(weight.requires_grad for weight in again.embedding.parameters())


@pytest.mark.parametrize("kind", ["scaled", "learned", "exponential", "none"])
def test_a_missing_encoding_is_not_replaced_by_sinusoids(wordpiece, tmp_path: Path, kind: Any) -> None:
    module = _learned(kind, max_length=40)
    collate = C(wordpiece, embedding=module)
    collate.save_pretrained(tmp_path)
    pickled = pickle.loads(pickle.dumps(collate))
    assert pickled == collate
    assert _fingerprint(pickled) == _fingerprint(collate)
    for again in (pickled, C.from_pretrained(tmp_path)):
        assert again.max_length == collate.max_length == 40
        with pytest.warns(UserWarning, match=rf"(?s)not pickled.*PositionalEmbedding\(table, encoding='{kind}'\)"):
            assert torch.equal(again(TEXTS)["input_ids"], collate(TEXTS)["input_ids"])
        with pytest.raises(ValueError, match="bare table would get the default positions"):
            again.replace(embedding=module.embedding)
        _assert_same(again.replace(embedding=module)(TEXTS), collate(TEXTS))
    with pytest.raises(ValueError, match="bare table would get the default positions"):
        C.from_pretrained(tmp_path, embedding=module.embedding)
    _assert_same(C.from_pretrained(tmp_path, embedding=module)(TEXTS), collate(TEXTS))


@pytest.mark.parametrize("kind", ["scaled", "learned"])
def test_other_weights_of_an_encoding_give_another_fingerprint(wordpiece, kind: Any) -> None:
    module = _learned(kind)
    for stored in (False, True):
        collate = C(wordpiece, embedding=module, store_embeddings=stored)
        before = _fingerprint(collate)
        collate(TEXTS)
        assert _fingerprint(collate) == before
        with torch.no_grad():
            next(module.encoding.parameters()).add_(0.5)
        assert _fingerprint(collate) != before


def test_an_encoding_with_code_of_its_own_cannot_be_stored(wordpiece) -> None:
    class Mirrored(type(positional_encoding("none", 8))):
        pass

    module = PositionalEmbedding(nn.Embedding(1200, 8).requires_grad_(False), encoding=Mirrored(8))
    collate = C(wordpiece, embedding=module, store_embeddings=True)
    with pytest.raises(ValueError, match=r"(?s)kinds of positional_encoding.*Mirrored.*store_embeddings=False"):
        pickle.dumps(collate)


def test_a_table_with_code_of_its_own_cannot_be_stored(wordpiece) -> None:
    class Scaled(nn.Embedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids) * 2

    collate = C(wordpiece, embedding=Scaled(1200, 8).requires_grad_(False), store_embeddings=True)
    with pytest.raises(ValueError, match=r"(?s)plain nn.Embedding.*from_pretrained"):
        pickle.dumps(collate)


def test_a_pickle_makes_no_warning_of_its_own(wordpiece) -> None:
    """A worker unpickles the collator; what was warned of at construction is not warned of again there."""
    with pytest.warns(UserWarning, match="beyond the limit of the tokenizer"):
        collate = C(wordpiece, text_target_column="t", max_target_length=1000, max_length=600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(collate))
        collate.replace(padding_side="left")


def test_a_pickle_of_another_format_is_refused(wordpiece) -> None:
    function, state = C(wordpiece).__reduce__()
    with pytest.raises(ValueError, match=r"(?s)format of this pickle.*format_version=99"):
        function(99, *state[1:])


def test_a_pickle_names_only_this_package_and_the_tokenizers_class(wordpiece) -> None:
    names = [argument for code, argument, _ in pickletools.genops(pickle.dumps(C(wordpiece))) if "UNICODE" in code.name]
    modules = {name for name in names if isinstance(name, str) and "." in name and name.replace(".", "").isidentifier()}
    roots = {module.split(".")[0] for module in modules}
    assert roots <= {"hf_posenc", "transformers", "tokenizer_config", "tokenizer", "vocab"}, roots


def test_a_folder_holds_the_settings_and_the_tokenizers_files_and_nothing_that_runs(wordpiece, tmp_path: Path) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    paths = C(wordpiece, embedding=table, store_embeddings=True).save_pretrained(tmp_path / "new" / "folder")
    found = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert {"hf_posenc.json", "tokenizer.json", "tokenizer_config.json"} <= found
    assert {Path(path).name for path in paths} == found
    assert not [name for name in found if name.endswith((".py", ".pkl", ".bin", ".safetensors", ".pt"))]
    assert (tmp_path / "new" / "folder" / "hf_posenc.json").stat().st_size < 3_000
    saved = json.loads((tmp_path / "new" / "folder" / "hf_posenc.json").read_text())
    assert saved["format_version"] == 4
    assert saved["stride"] == 0


def test_a_folder_without_its_table_collates_and_takes_a_new_one(wordpiece, tmp_path: Path) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    module = PositionalEmbedding(table, convention="marian")
    collate = C(wordpiece, embedding=module)
    collate.save_pretrained(tmp_path)
    again = C.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"embedding=PositionalEmbedding\(table, convention='marian'\);"):
        C.from_pretrained(tmp_path, embedding=table)
    with pytest.warns(UserWarning, match="is not pickled or saved"):
        assert "inputs_embeds" not in again(TEXTS)
    _assert_same(C.from_pretrained(tmp_path, embedding=module)(TEXTS), collate(TEXTS))


def _edited(folder: Path, **changes: Any) -> None:
    file = folder / "hf_posenc.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


WRONG_SETTINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"color": "red"}, TypeError, "there is no argument 'color'"),
    *(({"format_version": version}, ValueError, f"got: format_version={version!r}") for version in (3, 5, None, "1")),
    ({"padding_side": "up"}, ValueError, r"padding_side must be one of(?s:.*)\n  in:  .*hf_posenc\.json$"),
    ({"max_length": "long"}, TypeError, r"max_length must be an integer(?s:.*)\n  in:  .*hf_posenc\.json$"),
    ({"pad_token": 5}, ValueError, r"pad_token must be a token of the tok(?s:.*)\n  in:  .*hf_posenc\.json$"),
    *(
        (
            {name: value},
            ValueError,
            rf"'{name}' in .*hf_posenc\.json is not what save_pretrained wrote\n  got: .*{reason}",
        )
        for name, value, reason in (
            *(("embedding", value, "") for value in ([], ["table", 1], ["digest", 1], {"code": ["os"]})),
            ("labels", {"mlm_probability": "often"}, "mlm_probability must be a number"),
            ("tokenizer", {"sha256": 5}, ""),
            *(("device", value, "") for value in (True, "no such device", [], 0.5)),
            *(("model", value, "") for value in (5, "bert", {"accepts": 5}, {"accepts": [5]}, {"nmae": "Bert"})),
            *(("model", {"shifts_labels": value}, ".*shifts_labels") for value in ("end", 1)),
        )
    ),
]


@for_each(("changes", "error", "words"), WRONG_SETTINGS)
def test_wrong_settings_in_a_file_are_refused_by_key_and_file(
    wordpiece, tmp_path: Path, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    _edited(tmp_path, **changes)
    with pytest.raises(error, match=words) as refused:
        C.from_pretrained(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert "\n  fix: " in str(refused.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{ not json", r"hf_posenc\.json is not what save_pretrained wrote"),
        ("[]", r"the format of .*hf_posenc\.json is not the one"),
        ("5", r"hf_posenc\.json is not what save_pretrained wrote"),
        ("[" * 100_000 + "]" * 100_000, r"hf_posenc\.json is not what save_pretrained wrote"),
    ],
    ids=["no JSON", "list", "number", "nested"],
)
def test_a_broken_file_is_refused(wordpiece, tmp_path: Path, content: str, words: str) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "hf_posenc.json").write_text(content)
    with pytest.raises(ValueError, match=words):
        C.from_pretrained(tmp_path)


def test_a_tokenizer_class_that_is_none_is_refused_by_name(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tokenizer_class": "Trainer"}))
    with pytest.raises(ValueError, match=r"beside hf_posenc\.json cannot be read[\s\S]*'Trainer'"):
        C.from_pretrained(tmp_path)


def test_a_folder_with_another_tokenizer_in_it_is_refused_by_name(bert, wordpiece, tmp_path: Path) -> None:
    C(bert).save_pretrained(tmp_path)
    bert(TEXTS, padding=True, truncation=True, max_length=4)  # baked into the file, and no difference
    bert.save_pretrained(tmp_path)
    assert C.from_pretrained(tmp_path) == C(bert)
    wordpiece.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer\.json, a part of .*, is not the one that was saved"):
        C.from_pretrained(tmp_path)
    for content in ("[" * 100_000, "[1]", "not json"):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(ValueError, match=r"tokenizer\.json, a part of .*, is not the one that was saved"):
            C.from_pretrained(tmp_path)
    wordpiece.save_pretrained(tmp_path)
    _edited(tmp_path, tokenizer={"class": None, "number_of_ids": 30522, "sha256": {}})
    with pytest.raises(ValueError, match=r"had 30522 ids\n  got: 1200 in"):
        C.from_pretrained(tmp_path)


def test_a_folder_whose_record_of_the_tokenizer_was_removed_loads_unchecked(bert, wordpiece, tmp_path: Path) -> None:
    C(bert, max_length=32).save_pretrained(tmp_path)
    wordpiece.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"remove 'tokenizer' from hf_posenc\.json"):
        C.from_pretrained(tmp_path)
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    del saved["tokenizer"]
    (tmp_path / "hf_posenc.json").write_text(json.dumps(saved))
    assert C.from_pretrained(tmp_path) == C(wordpiece, max_length=32)


_LETTERS = [*"abcdefghijklmnopqrstuvwxyz ,.éÉ", "\u0301"]
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
_ACCENTS = ["I ride bike, e\u0301 É  ABC", "bike ride a. 1234", "I"]


def _word_pieces() -> dict[str, Any]:
    words = [*_SPECIAL, "<sep>", "<cls>", "[QUESTION]", *_LETTERS, *(f"##{each}" for each in _LETTERS), "ride"]
    return {"vocab": {word: i for i, word in enumerate(dict.fromkeys(words))}}


def _byte_pairs() -> dict[str, Any]:
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = sorted(ByteLevel.alphabet())
    words = [*_SPECIAL, *alphabet, *(f"{each}</w>" for each in alphabet), "▁", "▁a", "Ġa", "bi", "ke", "ri"]
    merges = [("▁", "a"), ("Ġ", "a"), ("b", "i"), ("k", "e"), ("r", "i")]
    return {"vocab": {word: i for i, word in enumerate(dict.fromkeys(words))}, "merges": merges}


def _scores() -> dict[str, Any]:
    random = np.random.default_rng(0)
    words = dict.fromkeys([*_SPECIAL, "▁", *_LETTERS, *(f"▁{each}" for each in _LETTERS), "bi", "ke", "ri", "▁bike"])
    return {"vocab": [(word, -random.exponential() * 10.0 ** random.integers(-5, 2)) for word in words]}


_CLASSES = {
    _word_pieces: ["Bert", "Funnel", "Splinter"],
    _byte_pairs: [
        "Roberta",
        "GPT2",
        "CLIP",
        "Qwen2",
        "GPTNeoX",
        "Whisper",
        "Nllb",
        "Gemma",
        "Llama",
        "CodeLlama",
        "Luke",
    ],
    _scores: ["XLMRoberta", "T5", "Albert", "XLNet", "MBart50", "DebertaV2"],
    dict: ["ByT5", "Canine"],
}
_USUAL = {"Bert", "Roberta", "GPT2", "Llama", "XLMRoberta", "T5", "Albert", "ByT5"}


def _tokenizer_of(name: str) -> Any:
    vocabulary = next(make for make, names in _CLASSES.items() if name in names)
    return getattr(transformers, f"{name}Tokenizer")(**vocabulary())


def _changed(tokenizer: Any, change: str | None) -> Any:
    """Change a tokenizer after it was made, as its users do."""
    if change == "role":
        tokenizer.add_special_tokens({"cls_token": "[NEWCLS]"})
    elif change == "parts" and tokenizer.is_fast:
        rust = tokenizer.backend_tokenizer
        rust.normalizer, rust.pre_tokenizer = normalizers.NFC(), pre_tokenizers.Whitespace()
        rust.post_processor = processors.TemplateProcessing("$A x", None, [("x", 5)])
    return tokenizer


@pytest.mark.parametrize("change", [None, "role", "parts"])
@pytest.mark.parametrize(
    "name", [name if name in _USUAL else slow(name) for names in _CLASSES.values() for name in names]
)
def test_a_changed_tokenizer_gives_the_same_ids_and_fingerprint_in_every_copy(
    name: str, change: str | None, tmp_path: Path
) -> None:
    tokenizer = _changed(_tokenizer_of(name), change)
    pad = {} if tokenizer.pad_token is not None else {"pad_token": "a"}
    collate = C(tokenizer, **pad)
    if (name, change) == ("Albert", "role"):  # its class refuses what it wrote itself
        with pytest.raises(ValueError, match=r"AlbertTokenizer cannot be rebuilt.*\n.*\n  fix: .*backend_tokenizer"):
            pickle.loads(pickle.dumps(collate))
        return
    want = tokenizer(_ACCENTS)["input_ids"]
    collate.save_pretrained(tmp_path / "collator")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    copies = [pickle.loads(pickle.dumps(collate)), C.from_pretrained(tmp_path / "collator"), collate.replace()]
    copies.append(pickle.loads(pickle.dumps(copies[1])))
    for each in copies:
        assert [list(row) for row in each({"text": _ACCENTS})["input_ids"]] == want
        assert each == collate
        assert _fingerprint(each) == _fingerprint(collate)
    named = C(tmp_path / "tokenizer", **pad)
    assert named == pickle.loads(pickle.dumps(named))
    assert named == C(transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer"), **pad)
    unchanged = _tokenizer_of(name)
    if unchanged(_ACCENTS)["input_ids"] != want:
        assert _fingerprint(C(unchanged, **pad)) != _fingerprint(collate)


class Shouting(transformers.PreTrainedTokenizerFast):
    """Someone's own class, with a step of its own."""

    def _encode_plus(self, text: Any, **settings: Any) -> Any:
        return super()._encode_plus(text.upper(), **settings)


def test_a_class_that_transformers_does_not_have_comes_back_from_a_pickle_and_not_from_a_folder(
    raw_wordpiece, tmp_path: Path
) -> None:
    collate = C(Shouting(tokenizer_object=raw_wordpiece, pad_token="[PAD]"))
    _assert_same(pickle.loads(pickle.dumps(collate))(TEXTS), collate(TEXTS))
    collate.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)was a Shouting.*fix: .*\(Shouting\.from_pretrained\("):
        C.from_pretrained(tmp_path)
    assert C(Shouting.from_pretrained(tmp_path)) == collate


class Prefixed(transformers.PreTrainedTokenizerFast):
    """Someone's own class, whose attribute is in no file and decides what stands before a text."""

    prefix: int | None = None

    def _switch_to_input_mode(self) -> None:
        if self.prefix is not None:
            self._tokenizer.post_processor = processors.TemplateProcessing("x $A", None, [("x", self.prefix)])


def test_an_attribute_that_no_file_stores_is_refused_if_it_changes_ids(raw_wordpiece) -> None:
    tokenizer = Prefixed(tokenizer_object=raw_wordpiece, pad_token="[PAD]")
    tokenizer.prefix = 7
    collate = C(tokenizer)
    pickled = pickle.dumps(collate)
    assert collate(["I"])["input_ids"][0, 0] == 7
    Prefixed.prefix = 8  # what a new object of the class begins with
    try:
        with pytest.raises(ValueError, match="this Prefixed would give other ids than the one that was pickled"):
            pickle.loads(pickled)
    finally:
        Prefixed.prefix = None


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("encod", "{C}.from_pretrained('encoder')"),  # mistyped
        ("encoder/hf_posenc.json", "{C}.from_pretrained('encoder')"),
        ("out", "{C}.from_pretrained('out/checkpoint-5')"),
        ("tokenizer", "{C}('tokenizer'), for a bare tokenizer"),
        ("nobody/has-this", "{C}('nobody/has-this'), for a bare tokenizer; or a folder"),
    ],
)
def test_the_error_for_a_path_without_a_collator_leads_to_the_one_that_is_meant(
    name: str, fix: str, wordpiece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("encoder", "out/checkpoint-5"):
        C(wordpiece).save_pretrained(folder)
    wordpiece.save_pretrained("tokenizer")
    with pytest.raises(ValueError, match=f"no saved collator at '{name}'") as refused:
        C.from_pretrained(name)
    assert refused.value.fix.startswith(fix.format(C="DataCollatorWithPositionalEncoding"))


OTHER: dict[str, Any] = {
    **{"labels": None, "max_length": 7, "packing": False, "padding_side": "left", "seed": 3, "embedding": 4},
    **{
        "model": ModelSpec(accepts=("input_ids", "inputs_embeds", "document_ids", "labels")),
        "pad_token": "[MASK]",
        "on_no_labels": "keep",
    },
    **{"text_column": "body", "add_special_tokens": False, "on_empty": "keep", "backend": "tokenizers"},
}


@pytest.mark.parametrize("name", [*OTHER, None])
def test_a_saved_collator_loads_with_other_settings(wordpiece, tmp_path: Path, name: str | None) -> None:
    """Compared with `replace`."""
    collate = C(wordpiece, labels="causal_lm", packing=True, max_length=16)
    collate.save_pretrained(tmp_path)
    changes = OTHER if name is None else {name: OTHER[name]}
    loaded = C.from_pretrained(tmp_path, **changes)
    assert loaded.settings() == collate.replace(**changes).settings()
    assert loaded == collate.replace(**changes)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_len": 5}, "fix: max_length=5"),
        ({"mlm": True}, 'fix: labels="masked_lm"'),
        ({"tokenizer": "bert"}, r"fix: collate.replace\(tokenizer="),
        ({"revison": "main"}, "fix: revision="),
    ],
)
def test_an_unknown_setting_is_refused_as_by_the_constructor(
    wordpiece, tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=f"there is no argument '{next(iter(wrong))}'\n  {words}"):
        C.from_pretrained(tmp_path, **wrong)
    with pytest.raises(ValueError, match="max_length must be"):
        C.from_pretrained(tmp_path, max_length=0)


@pytest.mark.parametrize("kind", [str, Path])
def test_the_folder_of_a_saved_collator_is_no_bare_tokenizer(wordpiece, tmp_path: Path, kind: Any) -> None:
    collate = C(wordpiece, labels="causal_lm", max_length=16)
    collate.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="has a saved collator, and only its tokenizer is loaded") as warned:
        bare = C(kind(tmp_path))
    assert (bare.labels, bare.max_length) == (None, C(wordpiece).max_length)
    first, second = str(warned[0].message).partition("fix: ")[2].split("; or ")
    names = {"DataCollatorWithPositionalEncoding": C, "AutoTokenizer": transformers.AutoTokenizer}
    assert eval(first, names) == collate
    assert C(eval(second.partition(", for")[0], names)) == bare  # without a warning
    collate.replace(labels=None)
    (tmp_path / "hf_posenc.json").unlink()
    assert C(kind(tmp_path)) == bare


def test_a_subclass_comes_back_as_itself(wordpiece, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(Mine(wordpiece)))
    assert type(again) is Mine
    assert again != C(wordpiece)
    Mine(wordpiece).save_pretrained(tmp_path)
    assert type(Mine.from_pretrained(tmp_path)) is Mine


class Mine(C):
    """Someone's own collator, at module level as pickle wants it."""


@pytest.mark.filterwarnings("ignore:position_ids count from 0")
def test_a_slow_tokenizer_that_reads_files_survives_pickling_and_replacing(two_modes) -> None:
    collate = C(two_modes)
    again = pickle.loads(pickle.dumps(collate))
    assert again == collate
    assert (
        again.replace(max_length=32)(["one house"])["input_ids"].tolist()
        == collate(["one house"])["input_ids"].tolist()
    )


@pytest.mark.parametrize("model_type", ["qwen2", "phi3", "mistral"])
def test_a_models_config_beside_the_collator_does_not_change_its_tokenizer(
    bert, byte_bpe, tmp_path, model_type
) -> None:
    """`AutoTokenizer` would take the class of the model for some families, and that class splits texts otherwise."""
    transformers.AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    for number, (tokenizer, pad) in enumerate([(bert, None), (byte_bpe, "eos")]):
        collate = C(tokenizer, pad_token=pad)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text((tmp_path / "config.json").read_text())
        collate.save_pretrained(folder)
        again = C.from_pretrained(folder)
        assert again == collate
        text = ["It's 2024, DON'T café", "x = 12345;\n\n\n  y"]
        assert torch.equal(again(text)["input_ids"], collate(text)["input_ids"])


@pytest.mark.parametrize(
    ("name", "value"), [("truncation_side", "left"), ("padding_side", "left"), ("split_special_tokens", True)]
)
def test_attributes_set_on_a_tokenizer_are_part_of_the_value(bert, name: str, value: Any) -> None:
    before = C(bert, max_length=4)
    setattr(bert, name, value)
    after = C(bert, max_length=4)
    assert after != before
    again = pickle.loads(pickle.dumps(after))
    assert again == after
    assert getattr(again.tokenizer, name) == value


def test_named_chat_templates_are_saved_and_read_back(byte_bpe, tmp_path: Path) -> None:
    byte_bpe.chat_template = {"default": "A", "tool": "B"}
    collate = C(byte_bpe, pad_token="eos")
    collate.save_pretrained(tmp_path)
    assert C.from_pretrained(tmp_path) == collate


def test_a_table_that_does_more_than_look_up_does_not_travel(bert) -> None:
    table = torch.nn.Embedding(30522, 4, max_norm=1.0).requires_grad_(False)
    with pytest.raises(ValueError, match="does more than look up rows"):
        pickle.dumps(C(bert, embedding=table, store_embeddings=True))
    plain = torch.nn.Embedding(30522, 4, _weight=table.weight, _freeze=True)
    other_norm = torch.nn.Embedding(30522, 4, max_norm=1.0, norm_type=1.0, _weight=table.weight, _freeze=True)
    assert C(bert, embedding=table) not in (C(bert, embedding=plain), C(bert, embedding=other_norm))
    one, other = (
        C(bert, embedding=PositionalEmbedding(plain, encoding=positional_encoding("exponential", 4, base=base)))
        for base in (100, 1000)
    )
    assert one != other


@pytest.mark.parametrize("number", [np.array(3), torch.tensor(3), np.int8(3)])
def test_an_integer_of_any_kind_is_stored_as_an_int(word_level, number: Any) -> None:
    collate = C(word_level, pad_to_multiple_of=number)
    assert type(collate.pad_to_multiple_of) is int
    assert pickle.loads(pickle.dumps(collate)) == collate

"""Pickles, folders and copies held against the original: the same batches, no weights, no code, nothing unknown."""

from __future__ import annotations

import copy
import io
import json
import pickle
import pickletools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, fixed_bases, positional_encoding
from hf_posenc.encodings import KINDS

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a"]

SETTINGS: list[dict[str, Any]] = [
    {},
    {"embedding": 8, "seed": 2, "convention": "marian", "scale": "sqrt_d"},
    {"embedding": 6, "convention": fixed_bases(4, 5, 7), "scale": 2.5},
    {"max_length": 6, "return_overflowing_tokens": True, "stride": 1, "padding_side": "left"},
    {"labels": "masked_lm", "seed": 1, "mlm_probability": 0.4},
    {"packing": True, "max_length": 64, "look_ahead": False},
    {"padding": "max_length", "max_length": 32, "return_tensors": "np"},
]


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


# ------------------------------------------------------------------------------------------------------------- pickles


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "plain")
def test_a_pickled_collator_gives_the_same_batches(wordpiece, settings: dict[str, Any]) -> None:
    collate = C(wordpiece, **settings)
    again = pickle.loads(pickle.dumps(collate))
    _assert_same(again(TEXTS), collate(TEXTS))
    assert repr(again) == repr(collate)


def test_a_pickled_collator_of_any_tokenizer_gives_the_same_batches(tokenizer) -> None:
    collate = C(tokenizer)
    _assert_same(pickle.loads(pickle.dumps(collate))(TEXTS), collate(TEXTS))


@pytest.mark.parametrize("way", ["pickle", "replace", "deepcopy", "folder"])
def test_a_copy_is_equal_and_has_the_same_fingerprint(tokenizer, way: str, tmp_path: Path) -> None:
    collate = C(tokenizer, max_length=64)
    again = {
        "pickle": lambda: pickle.loads(pickle.dumps(collate)),
        "replace": collate.replace,
        "deepcopy": lambda: copy.deepcopy(collate),
        "folder": lambda: (collate.save_pretrained(tmp_path), C.from_pretrained(tmp_path))[1],
    }[way]()
    assert again == collate
    assert hash(again) == hash(collate)
    assert _fingerprint(again) == _fingerprint(collate)
    _assert_same(again(TEXTS), collate(TEXTS))


def test_a_pickle_is_the_same_bytes_before_and_after_use(wordpiece) -> None:
    collate = C(wordpiece)
    before = pickle.dumps(collate)
    collate(TEXTS)
    collate({"text": TEXTS})
    collate.tokens(collate(TEXTS))
    assert pickle.dumps(collate) == before


def test_a_pickle_is_small_and_holds_no_weights(wordpiece) -> None:
    table = nn.Embedding(50_000, 64).requires_grad_(False)
    size = len(pickle.dumps(C(wordpiece, embedding=table)))
    assert size < len(pickle.dumps(C(wordpiece))) + 1_000
    assert size < 1_000_000


def test_a_table_left_behind_is_told_when_embedding_and_collating_works(wordpiece) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    collate = C(wordpiece, embedding=table)
    again = pickle.loads(pickle.dumps(collate))
    with pytest.warns(UserWarning, match="did not travel with this collator"):
        batch = again(TEXTS)
    assert torch.equal(batch["input_ids"], collate(TEXTS)["input_ids"])
    with pytest.raises(ValueError, match=r"(?s)did not travel.*collate.replace\(embedding=table\)"):
        again.embed(TEXTS)
    _assert_same(again.replace(embedding=table)(TEXTS), collate(TEXTS))
    assert again == collate
    assert _fingerprint(again) == _fingerprint(collate)


def test_a_table_that_is_stored_travels(wordpiece) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        table = nn.Embedding(1200, 8, dtype=dtype).requires_grad_(False)
        collate = C(wordpiece, embedding=table, store_embeddings=True, scale="sqrt_d")
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


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_encoding_that_is_stored_travels_with_its_weights(wordpiece, kind: Any) -> None:
    module = _learned(kind, scale=2.0, dropout=0.25, zero_padding=False, max_length=40).eval()
    collate = C(wordpiece, embedding=module, store_embeddings=True)
    again = pickle.loads(pickle.dumps(collate))
    assert again == collate
    assert hash(again) == hash(collate)
    assert _fingerprint(again) == _fingerprint(collate)
    again.embedding.eval()
    _assert_same(again(TEXTS), collate(TEXTS))
    assert not any(weight.requires_grad for weight in again.embedding.parameters())


@pytest.mark.parametrize("kind", ["scaled", "learned", "fourier", "exponential", "none"])
def test_an_encoding_left_behind_is_told_and_not_taken_for_sinusoids(wordpiece, tmp_path: Path, kind: Any) -> None:
    module = _learned(kind, max_length=40)
    collate = C(wordpiece, embedding=module)
    collate.save_pretrained(tmp_path)
    pickled = pickle.loads(pickle.dumps(collate))
    assert pickled == collate
    assert _fingerprint(pickled) == _fingerprint(collate)
    for again in (pickled, C.from_pretrained(tmp_path)):
        assert again.max_length == collate.max_length == 40
        with pytest.warns(UserWarning, match=rf"(?s)did not travel.*PositionalEmbedding\(table, encoding='{kind}'\)"):
            assert torch.equal(again(TEXTS)["input_ids"], collate(TEXTS)["input_ids"])
        with pytest.raises(ValueError, match="bare table would get sinusoids"):
            again.replace(embedding=module.embedding)
        _assert_same(again.replace(embedding=module)(TEXTS), collate(TEXTS))
    with pytest.raises(ValueError, match="bare table would get sinusoids"):
        C.from_pretrained(tmp_path, embedding=module.embedding)
    _assert_same(C.from_pretrained(tmp_path, embedding=module)(TEXTS), collate(TEXTS))


@pytest.mark.parametrize("kind", ["scaled", "learned", "fourier"])
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


def test_kinds_and_settings_of_an_encoding_are_told_apart(wordpiece) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    encodings = [
        "none",
        "exponential",
        positional_encoding("exponential", 8, base=100),
        positional_encoding("sinusoidal", 8, max_length=99),
        "sinusoidal",
    ]
    seen = {_fingerprint(C(wordpiece, embedding=PositionalEmbedding(table, encoding=each))) for each in encodings}
    assert len(seen) == 5
    assert "PositionalEmbedding(1200, 8, encoding='none')" in repr(
        C(wordpiece, embedding=PositionalEmbedding(table, encoding="none"))
    )


def test_an_encoding_with_code_of_its_own_cannot_be_stored(wordpiece) -> None:
    class Mirrored(type(positional_encoding("none", 8))):
        pass

    module = PositionalEmbedding(nn.Embedding(1200, 8).requires_grad_(False), encoding=Mirrored(8))
    collate = C(wordpiece, embedding=module, store_embeddings=True)
    with pytest.raises(ValueError, match=r"(?s)kinds of positional_encoding travel.*Mirrored.*store_embeddings=False"):
        pickle.dumps(collate)


def test_a_table_with_code_of_its_own_cannot_be_stored(wordpiece) -> None:
    class Scaled(nn.Embedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids) * 2

    collate = C(wordpiece, embedding=Scaled(1200, 8).requires_grad_(False), store_embeddings=True)
    with pytest.raises(ValueError, match=r"(?s)plain nn.Embedding.*from_pretrained"):
        pickle.dumps(collate)


def test_a_pickle_makes_no_warning_of_its_own(wordpiece) -> None:
    """A worker unpickles the collator; what was said at construction is not said again there."""
    with pytest.warns(UserWarning, match="beyond the tokenizer's own limit"):
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


# ------------------------------------------------------------------------------------------------------------- folders


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "plain")
def test_a_saved_collator_gives_the_same_batches(wordpiece, settings: dict[str, Any], tmp_path: Path) -> None:
    collate = C(wordpiece, **settings)
    collate.save_pretrained(tmp_path)
    again = C.from_pretrained(tmp_path)
    _assert_same(again(TEXTS), collate(TEXTS))
    assert repr(again).splitlines()[2:] == repr(collate).splitlines()[2:]


def test_a_saved_collator_of_any_tokenizer_gives_the_same_batches(tokenizer, tmp_path: Path) -> None:
    collate = C(tokenizer, max_length=20)
    with warnings.catch_warnings(action="ignore"):
        collate.save_pretrained(tmp_path)
        again = C.from_pretrained(str(tmp_path))
        _assert_same(again(TEXTS), collate(TEXTS))


def test_a_padding_token_chosen_here_is_saved_too(byte_bpe, tmp_path: Path) -> None:
    C(byte_bpe, pad_token="eos").save_pretrained(tmp_path)
    assert C.from_pretrained(tmp_path)(["a b c", "a"])["input_ids"][1, -1] == byte_bpe.eos_token_id


def test_a_folder_holds_the_settings_and_the_tokenizers_files_and_nothing_that_runs(wordpiece, tmp_path: Path) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    paths = C(wordpiece, embedding=table, store_embeddings=True).save_pretrained(tmp_path / "new" / "folder")
    found = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert {"hf_posenc.json", "tokenizer.json", "tokenizer_config.json"} <= found
    assert {Path(path).name for path in paths} == found
    assert not [name for name in found if name.endswith((".py", ".pkl", ".bin", ".safetensors", ".pt"))]
    assert (tmp_path / "new" / "folder" / "hf_posenc.json").stat().st_size < 3_000
    saved = json.loads((tmp_path / "new" / "folder" / "hf_posenc.json").read_text())
    assert saved["format_version"] == 2
    assert saved["scale"] is None


def test_a_folder_without_its_table_collates_and_takes_a_new_one(wordpiece, tmp_path: Path) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    collate = C(wordpiece, embedding=table, convention="marian")
    collate.save_pretrained(tmp_path)
    again = C.from_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="did not travel"):
        assert "inputs_embeds" not in again(TEXTS)
    _assert_same(C.from_pretrained(tmp_path, embedding=table)(TEXTS), collate(TEXTS))


def test_a_stored_table_is_never_written_to_a_folder_and_its_absence_is_told(wordpiece, tmp_path: Path) -> None:
    table = nn.Embedding(1200, 8).requires_grad_(False)
    collate = C(wordpiece, embedding=table, store_embeddings=True)
    collate.save_pretrained(tmp_path)
    again = C.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="did not travel with this collator"):
        again({"text": TEXTS})
    with pytest.raises(ValueError, match="did not travel with this collator"):
        again.features(TEXTS)
    with warnings.catch_warnings(action="ignore"):
        complete = C.from_pretrained(tmp_path, embedding=table)({"text": TEXTS})
    assert "inputs_embeds" in complete


def test_the_tokenizer_of_the_folder_is_usable_alone(wordpiece, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    C(wordpiece).save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(TEXTS)["input_ids"] == wordpiece(TEXTS)["input_ids"]


def _edited(folder: Path, **changes: Any) -> None:
    file = folder / "hf_posenc.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_unknown_keys_are_refused_by_name(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    _edited(tmp_path, from_the_future=1, colour="red")
    with pytest.raises(ValueError, match=r"\['colour', 'from_the_future'\]"):
        C.from_pretrained(tmp_path)


@pytest.mark.parametrize("version", [3, None, "1"])
def test_another_format_is_refused(wordpiece, tmp_path: Path, version: Any) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    _edited(tmp_path, format_version=version)
    with pytest.raises(ValueError, match="format_version="):
        C.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", ["{ not json", "[]", "5", '{"format_version": 2, "embedding": {"code": ["os"]}}'])
def test_a_broken_file_is_refused_in_our_words(wordpiece, tmp_path: Path, content: str) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "hf_posenc.json").write_text(content)
    with pytest.raises(ValueError, match=r"hf_posenc\.json"):
        C.from_pretrained(tmp_path)


def test_a_bad_value_in_a_file_is_refused_like_a_bad_argument(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    _edited(tmp_path, padding_side="up")
    with pytest.raises(ValueError, match="padding_side must be one of"):
        C.from_pretrained(tmp_path)


def test_a_folder_without_a_collator_says_what_to_call_instead(wordpiece, tmp_path: Path) -> None:
    wordpiece.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no saved collator at") as refused:
        C.from_pretrained(tmp_path)
    assert "DataCollatorWithPositionalEncoding(" in str(refused.value)
    with pytest.raises(ValueError, match="no saved collator at"):
        C.from_pretrained("nobody/has-this")


def test_saving_onto_a_file_is_refused(wordpiece, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="writes into a folder, and this is a file"):
        C(wordpiece).save_pretrained(tmp_path / "file")


def test_a_subclass_comes_back_as_itself(wordpiece, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(Mine(wordpiece)))
    assert type(again) is Mine
    assert again != C(wordpiece)
    Mine(wordpiece).save_pretrained(tmp_path)
    assert type(Mine.from_pretrained(tmp_path)) is Mine


class Mine(C):
    """Someone's own collator, at module level as pickle wants it."""


def test_torch_saves_and_loads_it_without_weights(wordpiece) -> None:
    file = io.BytesIO()
    torch.save({"collate": C(wordpiece)}, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)["collate"]
    _assert_same(again(TEXTS), C(wordpiece)(TEXTS))

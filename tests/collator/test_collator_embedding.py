"""`inputs_embeds`: gradients, snapshots, memory, devices, stored columns and refusals."""

from __future__ import annotations

import itertools
import json
import pickle
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from small_models import of_class
from torch import nn
from torch.utils.data import DataLoader

from hf_posenc import (
    AttentionMask,
    DataCollatorWithPositionalEncoding,
    PositionalEmbedding,
    fixed_bases,
)
from hf_posenc.models import LayerMasks

C = DataCollatorWithPositionalEncoding
TEXTS = ["I ride bike", "bike ride I, she said", "a"]


def _frozen(rows: int = 1200, width: int = 16, dtype: torch.dtype = torch.float32) -> nn.Embedding:
    torch.manual_seed(0)
    return nn.Embedding(rows, width, dtype=dtype).requires_grad_(False)


def test_the_repr_of_a_collator_has_the_settings_of_its_embedding(wordpiece) -> None:
    module = PositionalEmbedding(_frozen(), convention="marian", scale="sqrt_d", dropout=0.25, zero_padding=False)
    settings = "convention='marian', scale='sqrt_d', dropout=0.25, zero_padding=False"
    assert f"embedding=PositionalEmbedding(1200, 16, {settings})" in repr(C(wordpiece, embedding=module))
    assert "embedding=PositionalEmbedding(1200, 16)" in repr(C(wordpiece, embedding=PositionalEmbedding(_frozen())))
    own = PositionalEmbedding(_frozen(width=6), convention=fixed_bases(4, 5, 7), base=None)
    assert "PositionalEmbedding(1200, 6, convention=fixed_bases(4, 5, 7))," in repr(C(wordpiece, embedding=own))


def test_everything_lies_on_the_tables_device(wordpiece, device: torch.device) -> None:
    batch = C(wordpiece, embedding=_frozen().to(device))(TEXTS)
    assert {tensor.device.type for tensor in batch.values()} == {device.type}
    with device:
        collate = C(wordpiece, embedding=8)
    for each in (collate, collate.replace(seed=1), pickle.loads(pickle.dumps(collate))):
        assert {tensor.device.type for tensor in each(TEXTS).values()} == {device.type}


def test_storing_embeddings_leaves_the_mode_of_every_module_and_the_number_of_threads(wordpiece) -> None:
    module = PositionalEmbedding(_frozen(), dropout=0.5).train()
    module.encoding.eval()
    modes = [each.training for each in module.modules()]
    assert set(modes) == {True, False}
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with warnings.catch_warnings(action="ignore"):
        collate = C(wordpiece, embedding=module, store_embeddings=True)
        want = collate({"text": TEXTS})["inputs_embeds"]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: collate({"text": TEXTS})["inputs_embeds"], range(40)))
    assert all(np.array_equal(one, other) for each in found for one, other in zip(each, want, strict=True))
    assert [each.training for each in module.modules()] == modes
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


def test_rows_are_truncated_to_the_positions_of_an_encoding(wordpiece) -> None:
    module = PositionalEmbedding(_frozen(), encoding="learned", max_length=4).requires_grad_(False)
    collate = C(wordpiece, embedding=module)
    assert collate.max_length == 4
    with pytest.warns(
        UserWarning, match="1 of 3 texts were truncated to 4 tokens|2 of 3 texts were truncated to 4 tokens"
    ):
        assert collate(TEXTS)["inputs_embeds"].shape[1] == 4
    with pytest.warns(UserWarning, match="max_length=9 is beyond the limit of the encoding of embedding=, so 4"):
        C(wordpiece, embedding=module, max_length=9)
    assert C(wordpiece, embedding=module, max_length=3).max_length == 3
    assert collate.replace(embedding=None).max_length != 4
    with pytest.raises(ValueError, match="limit 4"):
        collate.replace(truncation=False)(TEXTS)


def test_positions_count_from_the_first_one_of_the_encoding(wordpiece) -> None:
    scaled = PositionalEmbedding(_frozen(), encoding="scaled", convention="fairseq", scale=2.0)
    collate = C(wordpiece, embedding=scaled)
    assert collate.first_position == pickle.loads(pickle.dumps(collate)).first_position == 2
    batch = collate.embed(TEXTS)
    assert batch["position_ids"][batch["attention_mask"] == 1].min() == 2


def test_a_bare_table_does_not_silently_turn_other_positions_into_sinusoids(wordpiece) -> None:
    collate = C(wordpiece, embedding=PositionalEmbedding(_frozen(), encoding="learned"))
    for other in (_frozen(), 16):
        with pytest.raises(ValueError, match=r"(?s)bare table would get the default.*encoding='learned'"):
            collate.replace(embedding=other)
        with pytest.raises(ValueError, match=r"(?s)bare table.*=PositionalEmbedding\(table, scale=2.0\);"):
            C(wordpiece, embedding=PositionalEmbedding(_frozen(), scale=2.0)).replace(embedding=other)
    assert "inputs_embeds" not in collate.replace(embedding=None)(TEXTS)
    plain = collate.replace(embedding=PositionalEmbedding(_frozen()))(TEXTS)
    assert torch.equal(plain["inputs_embeds"], C(wordpiece, embedding=_frozen())(TEXTS)["inputs_embeds"])


def test_a_snapshot_has_no_gradient_and_warns_once(wordpiece) -> None:
    collate = C(wordpiece, embedding=nn.Embedding(1200, 8))
    with pytest.warns(UserWarning, match="without gradient") as warned:
        batch = collate(TEXTS)
    assert "collate.embed" in str(warned[0].message)
    assert "under Trainer let the model embed" in str(warned[0].message)
    assert not batch["inputs_embeds"].requires_grad
    collate(TEXTS)  # warned once


def test_a_table_that_does_not_train_gets_no_warning(wordpiece) -> None:
    for table in (_frozen(), nn.Embedding(1200, 8).eval()):
        with warnings.catch_warnings(action="error"):
            assert not C(wordpiece, embedding=table)(TEXTS)["inputs_embeds"].requires_grad


def test_live_embeddings_have_a_gradient_and_this_moments_weights(wordpiece) -> None:
    table = nn.Embedding(1200, 8)
    collate = C(wordpiece, embedding=table)
    live = collate.embed(TEXTS)
    live["inputs_embeds"].square().sum().backward()
    used = live["input_ids"][live["attention_mask"].bool()].unique()
    assert (table.weight.grad[used].abs().sum(-1) > 0).all()
    rest = torch.ones(1200, dtype=torch.bool)
    rest[used] = False
    assert (table.weight.grad[rest] == 0).all()
    with torch.no_grad():
        table.weight += 1
    again = collate.embed(live)
    real = live["attention_mask"].bool()
    torch.testing.assert_close(
        again["inputs_embeds"][real], live["inputs_embeds"][real].detach() + 1, rtol=0, atol=1e-5
    )
    assert (again["inputs_embeds"][~real] == 0).all()


def test_embed_does_not_truncate_a_batch(wordpiece) -> None:
    batch = C(wordpiece, look_ahead=False)(TEXTS)
    embedded = C(wordpiece, embedding=_frozen(), look_ahead=False, max_length=3).embed(batch)
    assert torch.equal(embedded["input_ids"], batch["input_ids"])
    assert embedded["inputs_embeds"].shape[:2] == batch["input_ids"].shape


def test_embed_reads_padding_from_a_mask_of_any_form_and_checks_it(wordpiece) -> None:
    batch, collate = C(wordpiece, look_ahead=False)(TEXTS), C(wordpiece, embedding=_frozen(), look_ahead=False)
    want, additive = collate.embed(batch)["inputs_embeds"], AttentionMask.from_batch(batch).additive()
    for mask in (additive, LayerMasks({"sliding_attention": additive, "full_attention": additive})):
        assert torch.equal(collate.embed({**batch, "attention_mask": mask})["inputs_embeds"], want)
    with pytest.raises(ValueError, match="attention_mask must contain only 0 and 1"):
        collate.embed({**batch, "attention_mask": 2 * batch["attention_mask"]})


@pytest.mark.parametrize("side", ["left", "right"])
def test_memory_may_be_used_again_for_batches_of_any_size(wordpiece, side: Any) -> None:
    collate = C(wordpiece, embedding=_frozen(), padding_side=side)
    size = collate(TEXTS)["input_ids"].numel()
    for texts, memory in itertools.product(
        (TEXTS, TEXTS[:1], TEXTS[::-1], collate(TEXTS)), (torch.full((3, 40, 16), torch.nan), torch.empty(size, 16))
    ):
        batch, expected = collate.embed(texts, out=memory), collate.embed(texts)
        assert batch.keys() == expected.keys()
        assert all(torch.equal(batch[name], expected[name]) for name in expected)
        assert batch["inputs_embeds"].data_ptr() == memory.data_ptr()
        assert batch["inputs_embeds"].is_contiguous()


def test_memory_for_trained_tables_needs_no_grad(wordpiece) -> None:
    table = nn.Embedding(1200, 16)
    collate, memory = C(wordpiece, embedding=table), torch.empty(100, 16)
    with pytest.raises(ValueError, match="out cannot be used where a gradient is recorded") as refused:
        collate.embed(TEXTS, out=memory)
    assert "torch.no_grad()" in str(refused.value)
    with torch.no_grad():
        assert torch.equal(collate.embed(TEXTS, out=memory)["inputs_embeds"], collate.embed(TEXTS)["inputs_embeds"])


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (torch.empty(2, 16), r"room for \d+ vectors"),
        (torch.empty(100, 17), "vectors of width"),
        (torch.empty(16, 100).T, "contiguous tensor with room"),
        (torch.empty(100, 16).double(), r"torch\.float64[\s\S]*torch\.float32"),
        ("memory", "got: 'memory'"),
        (torch.tensor(0.0), "vectors of width"),
    ],
)
def test_memory_that_does_not_fit_is_refused(wordpiece, out: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        C(wordpiece, embedding=_frozen()).embed(TEXTS, out=out)


def test_the_error_of_embed_without_a_table_names_the_argument(wordpiece) -> None:
    with pytest.raises(ValueError, match=r"(?s)embeddings need a table.*get_input_embeddings"):
        C(wordpiece).embed(TEXTS)


@pytest.mark.workers
@pytest.mark.parametrize("table", [8, "frozen", "trainable"])
def test_embedding_in_a_worker_raises_in_the_main_process_at_once(wordpiece, table: Any) -> None:
    table = {"frozen": _frozen(), "trainable": nn.Embedding(1200, 8)}.get(table, table)
    loader = DataLoader(TEXTS, batch_size=3, collate_fn=C(wordpiece, embedding=table), num_workers=1, timeout=120)
    words = r"(?s)cannot run in a DataLoader worker.*collate\.embed.*use_sinusoidal_positions"
    with pytest.raises(RuntimeError, match=words) as refused:
        list(loader)
    traceback.clear_frames(refused.tb)  # else the worker ends five seconds late


def test_columns_may_be_made_in_a_worker_by_a_collator_with_a_table(wordpiece) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"text": TEXTS}).with_transform(C(wordpiece, embedding=8))
    (batch,) = DataLoader(rows, batch_size=3, collate_fn=C(wordpiece), num_workers=1)
    assert batch["input_ids"].shape[0] == 3


def test_a_table_with_fewer_rows_than_ids_is_refused_with_the_call_to_make(wordpiece) -> None:
    words = (
        r"tokenizer has 1200 ids, the embedding has 1199 rows; call model.resize_token_embeddings\(1200\)"
        r"[\s\S]*fix: model.resize_token_embeddings\(1200\), then embedding=model.get_input_embeddings\(\)"
    )
    for table in (nn.Embedding(1199, 4), PositionalEmbedding(nn.Embedding(1199, 4))):
        with pytest.raises(ValueError, match=words):
            C(wordpiece, embedding=table)
    wordpiece.add_tokens(["bicycle"])
    with pytest.raises(ValueError, match="tokenizer has 1201 ids, the embedding has 1200 rows"):
        C(wordpiece, embedding=nn.Embedding(1200, 4))


def test_the_error_for_a_model_as_embedding_names_both_fixes(wordpiece) -> None:
    model = of_class("BertModel")
    with pytest.raises(TypeError, match="adds its own positions") as refused:
        C(wordpiece, embedding=model)
    assert "get_input_embeddings()" in str(refused.value)
    assert "use_sinusoidal_positions" in str(refused.value)
    table = model.get_input_embeddings().requires_grad_(False)
    assert "inputs_embeds" in C(wordpiece, embedding=PositionalEmbedding(table, scale=100.0))(TEXTS)


@pytest.mark.parametrize("table", [nn.Linear(4, 4), "bert", torch.zeros(5, 4), 4.0])
def test_values_that_are_not_tables_are_refused(wordpiece, table: Any) -> None:
    with pytest.raises(TypeError, match=r"nn.Embedding"):
        C(wordpiece, embedding=table)


def test_the_device_of_a_table_made_from_a_width_is_torchs_default_device_and_is_saved(wordpiece, tmp_path) -> None:
    with torch.device("meta"):
        collate = C(wordpiece, embedding=8)
    assert C(wordpiece, embedding=8) != collate
    assert C.from_pretrained(collate.save_pretrained(tmp_path) and tmp_path) == collate
    for make in (lambda: C(wordpiece, embedding=8, device="cuda"), lambda: collate.replace(device="cuda")):
        with pytest.raises(TypeError, match=r"(?s)no argument 'device'.*with torch.device\(\"cuda\"\): around it"):
            make()
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    assert saved["device"] == "meta"
    del saved["on_no_labels"]  # a setting that is not in the file has its default
    (tmp_path / "hf_posenc.json").write_text(json.dumps({**saved, "device": None}))
    assert C.from_pretrained(tmp_path) == C(wordpiece, embedding=8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the test needs a machine without CUDA")
def test_a_table_saved_on_cuda_is_made_on_the_cpu_of_a_machine_without(wordpiece, tmp_path) -> None:
    expected = C(wordpiece, embedding=8)(TEXTS)["inputs_embeds"]
    with torch.device("cuda:0"):
        collate = C(wordpiece, embedding=8)
    collate.save_pretrained(tmp_path)
    for loaded in (C.from_pretrained(tmp_path), pickle.loads(pickle.dumps(collate))):
        assert loaded == collate
        with pytest.warns(UserWarning, match=r"(?s)on the CPU.*cuda:0 is not available.*null in hf_posenc.json"):
            batch = loaded(TEXTS)
        assert torch.equal(batch["inputs_embeds"], expected)
        assert torch.equal(loaded(TEXTS)["inputs_embeds"], expected)  # and warns once
        assert "inputs_embeds" in loaded.replace(embedding=_frozen())(TEXTS)
    saved = json.loads((tmp_path / "hf_posenc.json").read_text())
    (tmp_path / "hf_posenc.json").write_text(json.dumps({**saved, "device": None}))
    assert torch.equal(C.from_pretrained(tmp_path)(TEXTS)["inputs_embeds"], expected)

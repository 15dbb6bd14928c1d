"""Stored embeddings held against `PositionalEmbedding` and the collator; read back by `datasets` without help."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, positional_encoding
from hf_posenc.jobs.shards import vectors as module
from hf_posenc.jobs.shards.vectors import Vectors
from hf_posenc.ragged import Ragged

TEXTS = ["I ride bike", "bike ride I, she said", "a"]
IDS = Ragged.from_rows([[3, 1, 4, 1, 5], [9], [], [2, 6, 5]])


def _table(rows: int = 1200, width: int = 8, dtype: torch.dtype = torch.float32) -> nn.Embedding:
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return nn.Embedding.from_pretrained(values.to(dtype))


def _parquet(path: Path, vectors: Vectors, ids: Ragged, positions: Ragged, *, with_features: bool = True) -> Path:
    """As a shard is written: a schema with the field, and what says Array2D to `datasets`."""
    field, feature = vectors.field()
    said = {"info": {"features": {"length": {"dtype": "int64", "_type": "Value"}, field.name: feature}}}
    schema = pa.schema(
        [pa.field("length", pa.int64()), field], metadata={"huggingface": json.dumps(said)} if with_features else None
    )
    table = pa.table({"length": ids.lengths, field.name: vectors.column(ids, positions)}).cast(schema)
    pq.write_table(table, path)
    return path


# --------------------------------------------------------------------------------------------------------- definition


@pytest.mark.parametrize("given", [8, "table", "embedding"])
def test_stored_vectors_are_those_of_the_collators_batch(wordpiece, given: Any) -> None:
    encoding = positional_encoding("fourier", 8).requires_grad_(False)
    chosen = {"table": _table(), "embedding": PositionalEmbedding(_table(), encoding=encoding)}.get(given, given)
    collate = DataCollatorWithPositionalEncoding(wordpiece, embedding=chosen)
    batch = collate(TEXTS)
    ids = Ragged.from_rows(wordpiece(TEXTS)["input_ids"])
    vectors = Vectors.of(chosen, wordpiece)
    made = vectors.column(ids, ids.counters(vectors.first_position))
    for row, length in enumerate(ids.lengths.tolist()):
        assert made[row].as_py() == batch["inputs_embeds"][row, :length].tolist()


def test_positions_are_used_as_they_are_so_documents_of_a_packed_row_restart(wordpiece) -> None:
    vectors = Vectors.of(8, wordpiece)
    packed, alone = Ragged.from_rows([[3, 1, 4, 9, 2]]), Ragged.from_rows([[3, 1, 4], [9, 2]])
    together = vectors.column(packed, Ragged.from_rows([[0, 1, 2, 0, 1]]))
    apart = vectors.column(alone, alone.counters())
    assert together.flatten() == apart.flatten()


@pytest.mark.parametrize("convention", ["vaswani", "fairseq"])
def test_conventions_scales_and_seeds_are_those_of_the_collator(wordpiece, convention: str) -> None:
    collate = DataCollatorWithPositionalEncoding(wordpiece, embedding=8, seed=5, convention=convention, scale="sqrt_d")
    vectors = Vectors.of(8, wordpiece, seed=5, convention=convention, scale="sqrt_d")
    batch = collate(["I ride"])
    ids = Ragged.from_rows(batch["input_ids"].numpy())
    positions = ids.counters(vectors.first_position)
    assert batch["position_ids"][0].tolist() == positions.values.tolist()
    assert vectors.column(ids, positions)[0].as_py() == batch["inputs_embeds"][0].tolist()


def test_pieces_change_nothing(wordpiece, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = Vectors.of(8, wordpiece)
    whole = vectors.column(IDS, IDS.counters())
    monkeypatch.setattr(module, "_PIECE_BYTES", 2 * vectors.bytes_per_token)
    assert vectors.column(IDS, IDS.counters()) == whole
    assert [len(row) for row in whole] == [5, 1, 0, 3]


@pytest.mark.parametrize(
    ("dtype", "stored", "size"),
    [(torch.float32, "float32", 4), (torch.bfloat16, "float32", 4), (torch.float16, "float16", 2)],
)
def test_each_dtype_is_stored_as_itself_but_bfloat16(wordpiece, dtype: Any, stored: str, size: int) -> None:
    vectors = Vectors.of(_table(dtype=dtype), wordpiece)
    assert (vectors.dtype, vectors.bytes_per_token) == (stored, 8 * size)
    want = PositionalEmbedding(_table(dtype=dtype))(torch.from_numpy(IDS.values)[None, :5])[0]
    got = vectors.embed(IDS.values[:5], np.arange(5))
    assert got.dtype == np.dtype(stored)
    assert torch.equal(torch.from_numpy(got).float(), want.float())


# ------------------------------------------------------------------------------------------------------------ journeys


def test_a_pickle_gives_the_same_vectors_and_a_width_travels_as_its_seed(wordpiece) -> None:
    for given, most in ((256, 4_000), (_table(), 1200 * 8 * 4 + 4_000)):
        vectors = Vectors.of(given, wordpiece)
        want = vectors.column(IDS, IDS.counters())  # what was made for use does not travel
        sent = pickle.dumps(vectors)
        assert len(sent) < most
        again = pickle.loads(sent)
        assert again == vectors
        assert again.column(IDS, IDS.counters()) == want
        assert str(vectors.digest) in repr(vectors)
        assert len(repr(vectors)) < 300


_FRESH = """
import sys, pickle
from hf_posenc.jobs.shards import vectors
loaded = {"torch", "transformers", "datasets"} & set(sys.modules)
made = pickle.load(open(sys.argv[1], "rb"))
import numpy as np
print(sorted(loaded), made.digest, made.embed(np.arange(5), np.arange(5)).tobytes().hex())
"""


def test_a_fresh_process_makes_the_same_bytes_and_loads_torch_only_then(wordpiece, tmp_path: Path) -> None:
    vectors = Vectors.of(8, wordpiece)
    (tmp_path / "sent").write_bytes(pickle.dumps(vectors))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FRESH, str(tmp_path / "sent")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[1],
    )
    assert run.returncode == 0, run.stderr
    loaded, digest, made = run.stdout.rsplit(maxsplit=2)
    assert loaded == "[]"
    assert digest == vectors.digest
    assert made == vectors.embed(np.arange(5), np.arange(5)).tobytes().hex()


def test_the_digest_tells_numbers_and_settings_apart(wordpiece) -> None:
    one = _table()
    changed = _table()
    with torch.no_grad():
        changed.weight[7, 3] += 1
    made = [
        Vectors.of(8, wordpiece),
        Vectors.of(16, wordpiece),
        Vectors.of(8, wordpiece, seed=1),
        Vectors.of(8, wordpiece, convention="marian"),
        Vectors.of(8, wordpiece, base=500.0),
        Vectors.of(8, wordpiece, scale=3.0),
        Vectors.of(one, wordpiece),
        Vectors.of(changed, wordpiece),
        Vectors.of(_table(dtype=torch.bfloat16), wordpiece),
        Vectors.of(PositionalEmbedding(one, encoding="exponential"), wordpiece),
    ]
    assert len({vectors.digest for vectors in made}) == len(made)
    assert Vectors.of(_table(), wordpiece).digest == Vectors.of(one, wordpiece).digest


def test_a_table_that_changes_afterwards_is_not_looked_at_again(wordpiece) -> None:
    table = _table()
    vectors = Vectors.of(table, wordpiece)
    want = vectors.embed(IDS.values, IDS.counters().values)
    with torch.no_grad():
        table.weight.zero_()
    assert np.array_equal(pickle.loads(pickle.dumps(vectors)).embed(IDS.values, IDS.counters().values), want)


def test_what_is_to_be_warned_of_is_said_when_the_job_begins_and_not_by_workers(wordpiece) -> None:
    small = nn.Embedding.from_pretrained(_table().weight * 0.01)
    with pytest.warns(UserWarning, match="positions drown the tokens"):
        vectors = Vectors.of(small, wordpiece)
    with warnings.catch_warnings(action="error"):
        vectors.column(IDS, IDS.counters())


# -------------------------------------------------------------------------------------------------------- reading back


@pytest.mark.parametrize("with_features", [True, False])
def test_datasets_reads_arrays_of_tokens_by_width_without_help(wordpiece, tmp_path: Path, with_features: bool) -> None:
    datasets.disable_progress_bars()
    vectors = Vectors.of(8, wordpiece)
    rows = Ragged.from_rows([[3, 1, 4, 1, 5], [9], [2, 6, 5]])
    file = _parquet(tmp_path / "shard.parquet", vectors, rows, rows.counters(), with_features=with_features)
    want = [vectors.embed(row, np.arange(len(row))) for row in rows]
    read = datasets.load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert read.features["inputs_embeds"] == datasets.Array2D(shape=(None, 8), dtype="float32")
    stream = datasets.load_dataset("parquet", data_files=str(file), split="train", streaming=True)
    for form in ("torch", "numpy"):
        for source in (read.with_format(form), stream.with_format(form)):
            for row, vector in zip(source, want, strict=True):
                assert tuple(row["inputs_embeds"].shape) == vector.shape
                assert np.array_equal(np.asarray(row["inputs_embeds"]), vector)
        for some, vector in zip(read.with_format(form)[:3]["inputs_embeds"], want, strict=True):
            assert np.array_equal(np.asarray(some), vector)


def test_without_datasets_the_column_is_lists_of_lists(wordpiece, tmp_path: Path) -> None:
    file = _parquet(tmp_path / "shard.parquet", Vectors.of(8, wordpiece), IDS, IDS.counters())
    read = "import pyarrow.parquet as pq, sys; print(pq.read_table(sys.argv[1]).schema.field('inputs_embeds').type)"
    run = subprocess.run(
        [sys.executable, "-c", read, str(file)], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() in ("list<item: list<item: float>>", "list<element: list<element: float>>")


# -------------------------------------------------------------------------------------------------------------- models


@pytest.fixture
def saved_bert(tmp_path: Path) -> Path:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(vocab_size=1200, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    model = BertModel(config)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(50)  # so that positions do not drown them
    model.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_of_a_model_the_input_embeddings_are_taken_and_its_own_positions_are_not(
    wordpiece, saved_bert: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers import BertModel

    for name in (saved_bert, str(saved_bert)):
        vectors = Vectors.of(name, wordpiece)
        assert capfd.readouterr() == ("", "")
        table = BertModel.from_pretrained(saved_bert).get_input_embeddings()
        capfd.readouterr()
        want = PositionalEmbedding(table)(torch.from_numpy(IDS.values)[None, :5])[0]
        assert np.array_equal(vectors.embed(IDS.values[:5], np.arange(5)), want.detach().numpy())


def test_a_model_that_multiplies_its_embeddings_gives_what_comes_out(wordpiece, tmp_path: Path) -> None:
    from transformers import Gemma3TextConfig, Gemma3TextModel

    config = Gemma3TextConfig(
        vocab_size=1200,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=8,
    )
    model = Gemma3TextModel(config)
    with torch.no_grad():
        model.embed_tokens.weight.normal_()
    model.save_pretrained(tmp_path / "gemma")
    vectors = Vectors.of(tmp_path / "gemma", wordpiece)
    plain = PositionalEmbedding(nn.Embedding.from_pretrained(model.embed_tokens(torch.arange(1200)).detach()))
    assert np.array_equal(vectors.embed(IDS.values[:5], np.arange(5)), plain(torch.from_numpy(IDS.values)[None, :5])[0])


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_table_smaller_than_the_tokenizers_ids_is_refused_with_both_numbers(wordpiece, bert, saved_bert) -> None:
    needed = max(wordpiece.get_vocab().values()) + 1
    with pytest.raises(ValueError, match=f"the tokenizer has {needed} ids, and the embeddings have 5 rows"):
        Vectors.of(_table(rows=5), wordpiece)
    with pytest.raises(ValueError, match=r"30522 ids, and the embeddings of .*bert have 1200 rows"):
        Vectors.of(saved_bert, bert)


def test_what_is_no_table_is_refused_with_the_way_out(wordpiece, saved_bert: Path, tmp_path: Path) -> None:
    for width in (0, -3, True):
        with pytest.raises(ValueError, match="must be a positive whole number"):
            Vectors.of(width, wordpiece)
    with pytest.raises(TypeError, match="must be a width, the name or folder of a model"):
        Vectors.of([1.0], wordpiece)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"cannot be loaded[\s\S]*a folder written by model.save_pretrained"):
        Vectors.of(tmp_path, wordpiece)
    with pytest.raises(ValueError, match=r"cannot be loaded[\s\S]*must be in the cache"):
        Vectors.of("nobody/nothing", wordpiece)
    with pytest.raises(ValueError, match="more than look rows up"):
        Vectors.of(nn.Embedding(1200, 8, max_norm=1.0), wordpiece)
    with pytest.raises(ValueError, match="convention= is set by the PositionalEmbedding"):
        Vectors.of(PositionalEmbedding(_table()), wordpiece, convention="marian")
    left = pickle.loads(pickle.dumps(DataCollatorWithPositionalEncoding(wordpiece, embedding=_table())))
    with pytest.raises(ValueError, match="did not travel"):
        Vectors.of(left.embedding, wordpiece)


def test_a_checkpoint_without_token_embeddings_is_refused(wordpiece, saved_bert: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = saved_bert / "model.safetensors"
    kept = {name: weight for name, weight in load_file(file).items() if "word_embeddings" not in name}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks the token embeddings[\s\S]*missing: embeddings.word_embeddings"):
        Vectors.of(saved_bert, wordpiece)


def test_positions_beyond_a_learned_table_and_ids_without_a_row_are_refused(wordpiece) -> None:
    vectors = Vectors.of(PositionalEmbedding(_table(), encoding="learned", max_length=4), wordpiece)
    assert vectors.max_length == 4
    with pytest.raises(ValueError, match="4"):
        vectors.column(IDS, IDS.counters())
    with pytest.raises(ValueError, match="1200 rows, and an id has none"):
        Vectors.of(_table(), wordpiece).embed(np.array([1200]), np.array([0]))
    with pytest.raises(ValueError, match="a position of its own"):
        vectors.column(IDS, Ragged.from_rows([[0]]))


def test_more_numbers_than_a_list_column_holds_are_refused(wordpiece, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_VALUES", 40)
    with pytest.raises(ValueError, match="may have 5 vectors of width 8"):
        Vectors.of(8, wordpiece).column(IDS, IDS.counters())


# --------------------------------------------------------------------------------------------------------- accelerator


def test_the_accelerator_makes_the_same_vectors(wordpiece, device: Any) -> None:
    vectors = Vectors.of(8, wordpiece)
    if torch.device(device).type == "cpu":
        assert vectors.embed(IDS.values, IDS.values).shape == (len(IDS.values), 8)
        return
    want = PositionalEmbedding(DataCollatorWithPositionalEncoding(wordpiece, embedding=8)._table.module.embedding)
    made = want(torch.from_numpy(IDS.values)[None], position_ids=torch.from_numpy(IDS.values)[None])[0]
    np.testing.assert_allclose(vectors.embed(IDS.values, IDS.values), made.numpy(), rtol=0, atol=1e-6)
    assert vectors._module.embedding.weight.device.type == torch.device(device).type

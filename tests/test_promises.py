"""What stays the same within a major version: public names, keys of a batch, bits of the encoding, saved collators.

The promises begin with 0.2.0. For every release, `python tests/test_promises.py` adds folders of the present version to
tests/data, with the settings of the last ones.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
import torch
import user_program
from torch import nn

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, fixed_bases

DATA = Path(__file__).parent / "data"
TEXTS = ["I ride bike", "bikes I ride, she said unsurprisingly", "é"]


def test_the_public_names() -> None:
    assert hf_posenc.__all__ == [
        "AttentionMask",
        "Batch",
        "Convention",
        "DataCollatorWithPositionalEncoding",
        "MaskedLM",
        "ModelSpec",
        "PositionalEmbedding",
        "SinusoidalPositionalEncoding",
        "TokenBudgetBatchSampler",
        "TokenBudgetMixin",
        "TokenLogMixin",
        "__version__",
        "audit",
        "compute_once",
        "corpus",
        "fixed_bases",
        "frequencies",
        "look_ahead_mask",
        "mix_datasets",
        "pack",
        "pack_dataset",
        "padding_mask",
        "plan_batches",
        "plots",
        "position_ids_from_mask",
        "positional_encoding",
        "sinusoidal_encoding",
        "stream_batches",
        "testing",
        "train_bpe",
        "use_sinusoidal_positions",
        "with_arrow_batches",
    ]


def test_a_program_that_uses_every_public_name_runs() -> None:
    assert set(hf_posenc.__all__) <= {*vars(user_program), "__version__"}
    user_program.main()


PACKED = ["input_ids", "token_type_ids", "position_ids"]
KERNEL = ["cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
ROWS = ["input_ids", "attention_mask", "token_type_ids", "position_ids"]


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({}, [*ROWS, "look_ahead_mask"]),
        ({"look_ahead": False}, ROWS),
        ({"embedding": 8}, [*ROWS, "look_ahead_mask", "inputs_embeds"]),
        ({"labels": "causal_lm"}, [*ROWS, "labels", "look_ahead_mask"]),
        (
            {"max_length": 4, "return_overflowing_tokens": True},
            [*ROWS, "overflow_to_sample_mapping", "look_ahead_mask"],
        ),
        ({"packing": True, "max_length": 64}, [*PACKED, "document_ids", "look_ahead_mask"]),
        ({"packing": "flat", "max_length": 64}, [*PACKED, "seq_idx", *KERNEL]),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, dict) else "",
)
def test_the_keys_of_a_batch(wordpiece, settings: dict[str, Any], keys: list[str]) -> None:
    with warnings.catch_warnings(action="ignore"):  # texts are cut
        assert list(DataCollatorWithPositionalEncoding(wordpiece, **settings)(TEXTS)) == keys


def test_the_columns_of_a_column_call(wordpiece) -> None:
    columns = DataCollatorWithPositionalEncoding(wordpiece)({"text": TEXTS})
    assert list(columns) == ["input_ids", "token_type_ids", "attention_mask", "length"]


GOLDEN = json.loads(golden.FILE.read_text(encoding="utf-8"))


def test_the_bits_of_every_convention() -> None:
    made: dict[str, dict[str, dict[str, str]]] = {}
    for convention, width in golden.cases():
        made.setdefault(convention.name, {})[str(width)] = golden.of_package(convention, width)
    assert made == GOLDEN


@pytest.mark.slow
def test_the_file_of_bits_holds_the_formula_rounded_once() -> None:
    for convention, width in golden.cases():
        assert golden.of_formula(convention, width) == GOLDEN[convention.name][str(width)], (convention.name, width)


SAVED = sorted((DATA / "saved").glob("*/*"))


def _loaded(folder: Path) -> DataCollatorWithPositionalEncoding:
    embedding: dict[str, Any] = {}
    if folder.name == "table":
        table = nn.Embedding.from_pretrained(torch.arange(96.0).view(16, 6) / 64)
        own = PositionalEmbedding(table, convention=fixed_bases(4, 5, 7), scale="sqrt_d")
        embedding = {"embedding": own}
    return DataCollatorWithPositionalEncoding.from_pretrained(folder, **embedding)


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_collator_of_every_version_gives_the_batch_that_it_gave(folder: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # texts are cut
        batch = _loaded(folder)(TEXTS)
    expected = json.loads((folder / "batch.json").read_text())
    assert list(batch) == list(expected)
    for key, values in batch.items():
        np.testing.assert_array_equal(np.asarray(values), np.array(expected[key], np.asarray(values).dtype), key)


def test_every_saved_format_has_a_folder(wordpiece, tmp_path: Path) -> None:
    DataCollatorWithPositionalEncoding(wordpiece).save_pretrained(tmp_path)
    now = json.loads((tmp_path / "hf_posenc.json").read_text())
    written = [json.loads((folder / "hf_posenc.json").read_text()) for folder in SAVED]
    assert {saved["format_version"] for saved in written} == set(range(4, now["format_version"] + 1))  # 4 is of 0.2.0
    for saved in written:  # a setting that was added since then has its default
        assert saved.keys() <= now.keys()


def write_folders(version: str) -> None:
    """Write the saved collators of a version to tests/data, with the settings of the last version."""
    for folder in (each for each in SAVED if each.parent == SAVED[-1].parent):
        collate, new = _loaded(folder), DATA / "saved" / version / folder.name
        collate.save_pretrained(new)
        batch = {key: np.asarray(values).tolist() for key, values in collate(TEXTS).items()}
        (new / "batch.json").write_text(json.dumps(batch) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_folders(hf_posenc.__version__)

"""The content of the page for given settings: the batch, the data of the lessons, messages and a Python script."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._common.errors import explain, value_error
from .._common.sample_texts import BERT, bert_folder, standard_library_docstrings
from ..collator import DataCollatorWithPositionalEncoding, real_tokens
from ..positions import PositionalEmbedding, sinusoidal_encoding
from ..tokenization import bpe_stages, train_bpe
from ..tokenization.loading import number_of_ids, private_copy
from .settings import Settings

_BPE_SIZE, _LIMIT = 8_000, 512
_CURVE = 64  # positions of the lessons on the encoding
_WORDS = 6  # of the lesson on merges
# Catching warnings, torch's random state and first imports from transformers are not thread safe.
_LOCK = threading.RLock()


def answer(values: object) -> dict[str, Any]:
    r"""Return everything that the page of `hf-posenc explore` shows for given settings, as a dict of JSON values.

    Example:
        >>> sorted(answer({"text": "I ride bike", "d_model": 1}))  # the page allows d_model from 2 to 512
        ['error']
    """
    try:
        with _LOCK, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            settings = Settings.read(values)
            content = _content(settings)
        notes = [*settings.left_out, *(str(warning.message).partition("\n")[0] for warning in caught)]
        return {**content, "notes": list(dict.fromkeys(notes))}
    except Exception as error:
        text = str(error)
        if "\n  fix: " not in text and "\n  got: " not in text:
            traceback.print_exception(error, file=sys.stderr)
            first = f"{type(error).__name__}: {text.partition(chr(10))[0]}"
            text = explain("this is a bug of hf_posenc", got=first, fix="please report it, with the settings")
        return {"error": text}


def _content(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {"convention": settings.convention, "base": settings.base}
    encoding = sinusoidal_encoding(torch.arange(_CURVE), settings.d_model, **options)
    content: dict[str, Any] = {"encoding": encoding[:, :64].tolist(), "dots": (encoding @ encoding.T).tolist()}
    if not settings.texts:
        return content
    tokenizer = _tokenizer(settings)
    pad_token = "eos" if tokenizer.pad_token is None and tokenizer.eos_token is not None else None
    table = _table(number_of_ids(tokenizer), settings.d_model)
    collate = _collator(tokenizer, pad_token).replace(
        embedding=PositionalEmbedding(table, scale="sqrt_d" if settings.scale == "sqrt_d" else None, **options),
        max_length=settings.max_length,
        padding_side=settings.padding_side,
        look_ahead=settings.look_ahead,
        packing=settings.packing,
    )
    batch = collate(list(settings.texts))
    whole = collate.replace(embedding=None, max_length=None, packing=False)
    lengths = whole.columns({whole.text_column: list(settings.texts)})["length"]
    if truncated := sum(length > settings.max_length for length in lengths):
        message = f"{truncated} of {len(lengths)} texts are truncated to {settings.max_length} tokens"
        warnings.warn(message, stacklevel=1)
    return {
        **content,
        "batch": batch.to_html(),
        "real": [int(real_tokens(batch).sum()), batch["input_ids"].numel()],
        "attention": _attention(collate, table, settings),
        "merges": _merges(tokenizer, settings.texts[0]),
        "python": _python(settings, pad_token),
    }


# ----------------------------------------------------------------------------------------- tokenizer and embeddings


def _tokenizer(settings: Settings) -> Any:
    if settings.tokenizer == "bpe":
        return _bpe()
    if settings.tokenizer == "bert":
        return _bert()
    folder = Path(settings.folder).expanduser()
    try:
        is_there = bool(settings.folder) and folder.is_dir()
    except (OSError, ValueError):  # the path is too long, or contains a NUL
        is_there = False
    if not is_there:
        fix = "the path of a folder that tokenizer.save_pretrained(folder) wrote"
        raise value_error("there is no such folder on this machine", got=repr(settings.folder), fix=fix)
    return private_copy(folder)


@functools.cache
def _bpe() -> Any:
    return train_bpe(standard_library_docstrings(), _BPE_SIZE, model_max_length=_LIMIT)


@functools.cache
def _bert() -> Any:
    folder = bert_folder()
    if folder is None:
        raise ImportError(explain("BERT's tokenizer is not installed", fix='pip install "hf-posenc[bert]"'))
    return private_copy(folder)


@functools.lru_cache(maxsize=2)
def _collator(tokenizer: Any, pad_token: str | None) -> DataCollatorWithPositionalEncoding:
    return DataCollatorWithPositionalEncoding(tokenizer, pad_token=pad_token)


@functools.lru_cache(maxsize=2)
def _table(rows: int, d_model: int) -> nn.Embedding:
    """Return a frozen embedding table `(rows, d_model)` of seeded normal numbers with standard deviation 1/√d_model."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(rows, d_model, generator=generator) * d_model**-0.5
    return nn.Embedding(rows, d_model, _weight=weight).requires_grad_(False)


# ----------------------------------------------------------------------------------------------------------- lessons


def _attention(collate: DataCollatorWithPositionalEncoding, table: nn.Embedding, settings: Settings) -> dict[str, Any]:
    """Return the data of the lesson on attention: one head is run on the first text, without and with positions."""
    alone = collate.replace(packing=False, padding_side="right", look_ahead=False, embedding=None)
    ids: torch.Tensor = alone([settings.texts[0]])["input_ids"][0, :16]
    width, start = settings.d_model, collate.first_position
    vectors = table(ids) * (width**0.5 if settings.scale == "sqrt_d" else 1)  # (T, D)
    places = torch.arange(start, start + len(ids))
    rows = sinusoidal_encoding(places, width, convention=settings.convention, base=settings.base)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(width, width, generator=generator) * width**-0.5 for _ in range(3))

    def attend(x: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the attention weights `(T, T)` and the mean output `(D,)` for embeddings `(T, D)`."""
        x = F.layer_norm(x, (width,))
        scores = (x @ query) @ (x @ key).T / width**0.5
        weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
        return weights, (weights @ (x @ value)).mean(0)

    later = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    hidden, nothing = later & settings.look_ahead, torch.zeros_like(later)
    found: dict[str, Any] = {"tokens": collate.tokens(ids[None])[0]}
    for name, positions in (("without", torch.zeros_like(rows)), ("with", rows)):
        weights, _ = attend(vectors + positions, hidden)
        (_, output), (_, reversed_output) = (attend(x + positions, nothing) for x in (vectors, vectors.flip(0)))
        found[name] = {"weights": weights.tolist(), "difference": float((output - reversed_output).abs().max())}
    return found


def _merges(tokenizer: Any, text: str) -> list[list[str]] | None:
    """Return the merge steps of the first six words of a text; `None` if the tokenizer is not a BPE."""
    try:
        words = bpe_stages(tokenizer, text)[:_WORDS]
    except TypeError:
        return None
    return [[" ".join(stage) for stage in stages] for stages in words]


# ------------------------------------------------------------------------------------------------------------ Python


def _python(settings: Settings, pad_token: str | None) -> str:
    """Return the text of a Python script that makes the batch on the page and writes it as HTML to batch.html."""
    ours = ["from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding"]
    theirs: list[str] = []
    if settings.tokenizer == "bert":
        theirs = ["import importlib.resources"]
        tokenizer = f'importlib.resources.files("{BERT}") / "model"'
    elif settings.tokenizer == "bpe":
        ours = [f"{ours[0]}, train_bpe", "from hf_posenc.testing import standard_library_docstrings"]
        tokenizer = f"train_bpe(standard_library_docstrings(), {_BPE_SIZE:_}, model_max_length={_LIMIT})"
    else:
        theirs = ["from pathlib import Path"]
        tokenizer = f"Path({settings.folder!r}).expanduser()"
    options: dict[str, Any] = {
        "max_length": settings.max_length,
        "padding_side": settings.padding_side,
        "look_ahead": settings.look_ahead,
        "packing": settings.packing,
    }
    options |= {} if pad_token is None else {"pad_token": pad_token}
    encoding: dict[str, Any] = {"convention": settings.convention, "base": settings.base}
    encoding |= {"scale": "sqrt_d"} if settings.scale == "sqrt_d" else {}
    lines = [
        *theirs,
        "import torch",
        "",
        *ours,
        "",
        "texts = [",
        *(f"    {text!r}," for text in settings.texts),
        "]",
        f"tokenizer = {tokenizer}",
        f"collate = DataCollatorWithPositionalEncoding(tokenizer, {_keywords(options)})",
        "rows = max(collate.tokenizer.get_vocab().values()) + 1",
        "generator = torch.Generator().manual_seed(0)",
        f"weight = torch.randn(rows, {settings.d_model}, generator=generator) * {settings.d_model}**-0.5",
        "embedding = torch.nn.Embedding.from_pretrained(weight)",
        f"embedding = PositionalEmbedding(embedding, {_keywords(encoding)})",
        "batch = collate.replace(embedding=embedding)(texts)",
        'with open("batch.html", "w", encoding="utf-8") as file:',
        '    file.write(batch.to_html(title="A batch"))',
    ]
    return "\n".join(lines) + "\n"


def _keywords(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={one!r}" for name, one in options.items())

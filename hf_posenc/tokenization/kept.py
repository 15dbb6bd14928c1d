"""A trained BPE kept on this machine, so that the same texts are trained on once.

It lies in the folder that Hugging Face libraries share for what they make themselves, and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .bpe import train_bpe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_FORMAT = 1  # raise it when train_bpe comes to give another tokenizer for the same texts


@dataclass(frozen=True)
class Kept:
    r"""A tokenizer and where it comes from.

    Args:
        tokenizer (`PreTrainedTokenizerFast`): as `train_bpe` gives it.
        folder (`Path`, *optional*): where it is kept; `None` where nothing can be written.
        seconds (`float`, *optional*): how long the training took; `None` when an earlier call did it.
    """

    tokenizer: PreTrainedTokenizerFast
    folder: Path | None
    seconds: float | None


def kept_bpe(texts: Sequence[str], vocab_size: int, *, model_max_length: int | None = None) -> Kept:
    r"""The BPE for these texts: from an earlier call where there is one, else trained now and kept.

    What is kept is found by its texts and settings, written in one move, and trained anew if it was damaged.

    Args:
        texts (sequence of `str`): what to learn from.
        vocab_size (`int`), model_max_length (`int`, *optional*): as in `train_bpe`.

    Returns:
        `Kept`.

    Raises:
        TypeError, ValueError: as `train_bpe`.
    """
    folder = _place(texts, f"{_FORMAT} {vocab_size} {model_max_length}")
    found = _load(folder) if folder is not None else None
    if found is not None:
        return Kept(found, folder, None)
    begun = time.perf_counter()
    tokenizer = train_bpe(texts, vocab_size, model_max_length=model_max_length)
    seconds = time.perf_counter() - begun
    return Kept(tokenizer, folder if folder is not None and _keep(tokenizer, folder) else None, seconds)


def _place(texts: Sequence[str], settings: str) -> Path | None:
    from huggingface_hub import cached_assets_path

    digest = hashlib.sha256(settings.encode())
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    try:
        return Path(cached_assets_path("hf_posenc", namespace="bpe", subfolder=digest.hexdigest()[:16])) / "tokenizer"
    except (OSError, ValueError):  # a home that cannot be written to; a file where the folder should be
        return None


def _keep(tokenizer: PreTrainedTokenizerFast, folder: Path) -> bool:
    """Writes beside the place and renames, so that nobody ever reads half of it."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
            made = Path(beside, "tokenizer")
            tokenizer.save_pretrained(made)
            (made / "sha256").write_text(_digest(made), encoding="ascii")
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    except OSError:
        return _load(folder) is not None  # someone else may have been quicker, with the same tokenizer
    return True


def _load(folder: Path) -> PreTrainedTokenizerFast | None:
    """The tokenizer kept there; `None` where there is none, or it is not what was written."""
    from transformers import AutoTokenizer

    try:
        if (folder / "sha256").read_text(encoding="ascii") == _digest(folder):
            return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError):
        return None
    return None


def _digest(folder: Path) -> str:
    files = ("tokenizer.json", "tokenizer_config.json")
    return hashlib.sha256(b"\0".join((folder / name).read_bytes() for name in files)).hexdigest()

"""The libraries whose version may change the bytes of a shard, and which of each is installed.

Names and versions only; what follows from another one is for `manifest` and the engines.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...tokenization.serialized import RustOnlyTokenizer

if TYPE_CHECKING:
    from ..job import Job

# Of every job.
LIBRARIES = ("hf-posenc", "tokenizers", "numpy", "pyarrow")


def deciding(job: Job) -> tuple[str, ...]:
    r"""The libraries that have a say in what this job writes.

    Args:
        job (`Job`): with a tokenizer that travels as its files, transformers has one too.

    Returns:
        `tuple` of `str`: names of distributions, for `installed`.
    """
    tokenizer = (
        () if job.tokenizer is None or isinstance(job.tokenizer.content, RustOnlyTokenizer) else ("transformers",)
    )
    return (*LIBRARIES, *tokenizer)


def installed(names: Iterable[str] = LIBRARIES) -> dict[str, str]:
    r"""The versions that are installed here.

    Args:
        names (iterable of `str`, *optional*): of distributions.

    Returns:
        `dict` from name to version: `"unknown"` for a checkout on the path, and for what is not there at all.

    Example:
        >>> list(installed()), installed(["no-such-distribution"])
        (['hf-posenc', 'tokenizers', 'numpy', 'pyarrow'], {'no-such-distribution': 'unknown'})
    """
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found

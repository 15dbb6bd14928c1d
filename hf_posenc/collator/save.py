"""Serialization of collators: for pickles, fingerprints of `datasets`, folders and the Hub.

A state holds the settings, the tokenizer's files and the digest of the table. With `store_embeddings=True` a pickle
also holds the weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import torch

from .._common.compat import leave_out_of_fingerprints
from .._common.errors import shorten, value_error, warn
from .._common.files import atomic_write, is_path, path_inside, read_whole
from ..models import ModelSpec
from ..tokenization.encoder import calls_only_rust
from ..tokenization.loading import CONFIG, TOKENIZER, from_files, load_saved, number_of_ids, saved_file
from ..tokenization.rust import to_json
from .embed import check_exchange, from_state
from .settings import MaskedLM, MissingTable, refuse_unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Part of every fingerprint. Increase it if the same input gives another output, or if keys of the file change meaning.
FORMAT_VERSION = 4
FILE_NAME = "hf_posenc.json"
# Arguments of `from_pretrained` that are passed to transformers.
_HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")

Files = tuple[tuple[str, bytes], ...]
State = tuple[int, type, type, Files, str, Any]


def state(
    cls: type, tokenizer: PreTrainedTokenizerBase, files: Files, settings: Mapping[str, Any], table: Any
) -> State:
    """Return the state of a collator: the values to pickle, compare and hash; its output depends on nothing else.

    The values pickle to the same bytes in every process. The backend is left out, because it does not change the
    output. `table` is the embedding as `Embedder.state` returns it.
    """
    # A `MaskedLM` and a `ModelSpec` become dicts.
    plain = json.dumps(settings, sort_keys=True, default=dataclasses.asdict)
    return FORMAT_VERSION, cls, type(tokenizer), files, plain, table


def rebuild(*state: Any) -> Any:
    """Return a collator from its pickled values: those of `state`, then a `PickledBackend`. Unpickling calls it."""
    version, *rest = state
    _check_version(version, "this pickle")
    cls, kind, files, plain, table, backend = rest
    settings = {name: _converted(name, value) for name, value in json.loads(plain).items()}
    settings["backend"] = backend.name
    return _made(cls, from_files(kind, dict(files)), from_state(table), settings)


@dataclasses.dataclass(frozen=True)
class PickledBackend:
    """Name of the backend in a pickled collator; a class of its own, which fingerprints of `datasets` leave out."""

    name: str


def pickled_backend(name: str) -> PickledBackend:
    """Return the backend's name for a pickle; fingerprints leave it out, because all backends return the same ids."""
    leave_out_of_fingerprints(PickledBackend)
    return PickledBackend(name)


def on_device(device: str | None) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager in which a collator makes the table of a width on `device`; `None` changes nothing."""
    return contextlib.nullcontext() if device is None else torch.device(device)


def _made(cls: type[Any], tokenizer: PreTrainedTokenizerBase, embedding: Any, settings: Mapping[str, Any]) -> Any:
    """Return a collator of class `cls`, made from a loaded tokenizer, an embedding and settings."""
    arguments = {name: value for name, value in settings.items() if name != "device"}
    with on_device(settings.get("device")):
        collate = cls(tokenizer, embedding=embedding, **arguments)
    if tokenizer.is_fast and to_json(tokenizer) != to_json(collate.tokenizer):
        raise value_error(
            f"this {type(tokenizer).__name__} would give other ids than the one that was pickled or saved",
            got="an attribute was set after construction, and save_pretrained of transformers does not write it",
            fix="give it to the tokenizer as an argument, or collate with tokenizer.backend_tokenizer",
        )
    return collate


def save(folder: str | Path, tokenizer: PreTrainedTokenizerBase, state: State) -> list[str]:
    """Write a collator's files to `folder` and return their paths.

    See `DataCollatorWithPositionalEncoding.save_pretrained`. `state` is the result of the function `state`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    version, _cls, _kind, files, settings, table = state
    digests = {name: _digest(name, content) for name, content in files if name not in _MAY_CHANGE}
    kind = None if calls_only_rust(tokenizer) else type(tokenizer).__name__  # None if only its Rust part is used
    record = {"class": kind, "number_of_ids": number_of_ids(tokenizer), "sha256": digests}
    saved = {"format_version": version, "tokenizer": record, **json.loads(settings), "embedding": table}
    contents = {
        **dict(files),
        FILE_NAME: (json.dumps(saved, indent=2) + "\n").encode(),
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as temporary:
            temporary.write_bytes(content)
    return [str(folder / name) for name in contents]


def push(collate: Any, repo_id: str, *, token: Any, private: bool | None, revision: str | None, **commit: Any) -> Any:
    """Upload a collator and its `README.md` to the Hub; see `DataCollatorWithPositionalEncoding.push_to_hub`."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision is not None:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        collate.save_pretrained(folder)
        if not api.file_exists(repo_id, "README.md", revision=revision):
            (Path(folder) / "README.md").write_text(_card(collate, repo_id), encoding="utf-8")
        return api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, **commit)


def _card(collate: Any, repo_id: str) -> str:
    name, module = type(collate).__name__, type(collate).__module__
    table = "" if collate.embedding is None or isinstance(collate.embedding, int) else ", embedding=table"
    return f"""---
library_name: transformers
tags:
- hf_posenc
---

# {repo_id.rpartition("/")[2]}

A data collator of the Python package hf-posenc. It turns texts into token ids, masks and position ids.

```python
from {"hf_posenc" if module.startswith("hf_posenc.") else module} import {name}

collate = {name}.from_pretrained("{repo_id}"{table})
batch = collate(["I ride bike", "bike ride I, she said"])
```

`AutoTokenizer.from_pretrained("{repo_id}")` returns its tokenizer, without hf-posenc.

## Settings

```text
{collate!r}
```
"""


def warn_of_saved(name: str) -> None:
    """Warn if the folder that a tokenizer was loaded from has a saved collator with settings."""
    if (Path(name) / FILE_NAME).is_file():
        warn(
            f"'{name}' has a saved collator, and only its tokenizer is loaded, without its settings",
            got=f"{FILE_NAME} beside the tokenizer",
            fix=f"DataCollatorWithPositionalEncoding.from_pretrained({name!r}); or "
            f"AutoTokenizer.from_pretrained({name!r}), for the tokenizer alone",
        )


def load(cls: type[Any], name: str | Path, options: Mapping[str, Any]) -> Any:
    """Load a collator from a folder or the Hub; see `DataCollatorWithPositionalEncoding.from_pretrained`."""
    names = [field.name for field in dataclasses.fields(cls)]
    changes = {option: value for option, value in options.items() if option not in _HUB}
    others = {"tokenizer": "collate.replace(tokenizer=...), once it is loaded"}
    refuse_unknown(changes, [*(name for name in names if name != "tokenizer"), *_HUB], others)
    hub = {option: value for option, value in options.items() if option in _HUB and value is not None}
    path = _find(name, hub)
    try:
        saved = dict(json.loads(read_whole(path)))
    except (ValueError, TypeError, RecursionError) as error:
        raise value_error(
            f"{FILE_NAME} is not what save_pretrained wrote", got=f"{path}: {error}", fix="save it again"
        ) from error
    _check_version(saved.pop("format_version", None), str(path))
    table = _setting_of("embedding", saved.get("embedding"), path)
    check_exchange(table, changes.get("embedding"))
    settings = {key: _setting_of(key, value, path) for key, value in saved.items() if key not in changes} | changes
    if changes.get("labels", "masked_lm") != "masked_lm" and "mlm_probability" not in changes:
        settings.pop("mlm_probability", None)  # of the saved labels
    record, embedding = settings.pop("tokenizer", None), settings.pop("embedding", None)
    tokenizer = _saved_tokenizer(name, record, hub)
    try:
        return _made(cls, tokenizer, embedding, settings)
    except (TypeError, ValueError) as error:  # add the file to the message
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{error}\n  in:  {path}") from error


# Files without digest: users may edit them, and errors in them are found on loading.
_MAY_CHANGE = (CONFIG, "chat_template.jinja")


def _digest(name: str, content: bytes) -> str:
    """Return the SHA-256 of the `content` of a tokenizer's file `name`."""
    # In `tokenizer.json` the settings of padding and truncation are ignored, because calls of a tokenizer change them.
    if name == TOKENIZER:
        with contextlib.suppress(ValueError, TypeError, RecursionError):  # a damaged file is hashed as it is
            content = json.dumps({**json.loads(content), "padding": None, "truncation": None}, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def _saved_tokenizer(name: str | Path, record: Any, hub: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """Load the tokenizer from the folder or repository `name`; raise a `ValueError` if it was changed after saving."""
    kind, number, digests = record or (None, None, {})
    again = f"save the collator again; or remove 'tokenizer' from {FILE_NAME}, to use the tokenizer in the folder"
    for file, digest in digests.items():
        path = saved_file(name, file, **hub)
        if path is None or _digest(file, read_whole(path)) != digest:
            problem = "not there" if path is None else "not the one that was saved"
            rule = f"{file}, a part of this collator's tokenizer, is {problem}"
            raise value_error(rule, got=str(name), fix=f"copy it there; or {again}")
    try:
        tokenizer = load_saved(name, **hub)
    except Exception as error:  # the error depends on the damaged file
        raise value_error(
            f"the tokenizer saved beside {FILE_NAME} cannot be read", got=f"{name}: {error}", fix="save it again"
        ) from error
    if number not in (None, found_ids := number_of_ids(tokenizer)):
        raise value_error(
            f"the tokenizer saved with this collator had {number} ids", got=f"{found_ids} in {name}", fix=again
        )
    if kind not in (None, found_kind := type(tokenizer).__name__):
        raise value_error(
            f"the tokenizer saved with this collator was a {kind}, whose class splits texts differently",
            got=f"a {found_kind}, since transformers has no class of that name",
            fix=f"DataCollatorWithPositionalEncoding({kind}.from_pretrained({str(name)!r}), ...)",
        )
    return tokenizer


def _tokenizer_record(record: Any) -> tuple[str | None, int, dict[str, str]]:
    """Return the class name, the number of ids and the SHA-256 of each file of a saved tokenizer."""
    digests = dict(record["sha256"])
    for file in digests:
        path_inside(Path(), file)
    return record["class"], record["number_of_ids"], digests


def _find(name: str | Path, hub: Mapping[str, Any]) -> Path:
    reason = f"no {FILE_NAME} in a folder or repository of that name"
    try:
        if (path := saved_file(name, FILE_NAME, **hub)) is not None:
            return path
    except (OSError, ValueError) as error:  # no such folder or repository
        reason = "no such folder" if is_path(name) else str(error).splitlines()[0]
    folder = Path(name).expanduser()
    place = folder if folder.is_dir() else folder.parent
    saved = [str(file.parent) for pattern in ("", "*/") for file in sorted(place.glob(pattern + FILE_NAME))]
    near = difflib.get_close_matches(str(name), saved, n=1) or saved[: folder.exists()]
    fix = (
        f"DataCollatorWithPositionalEncoding({str(name)!r}), for a bare tokenizer; or a folder that "
        "collate.save_pretrained(folder) wrote; or a repository that collate.push_to_hub(name) wrote, in the cache, or "
        "with the Hub reachable and HF_HUB_OFFLINE unset"
    )
    if near:
        fix = f"DataCollatorWithPositionalEncoding.from_pretrained({near[0]!r})"
    raise value_error(f"no saved collator at '{name}'", got=reason, fix=fix)


def _check_version(version: object, where: str) -> None:
    if version != FORMAT_VERSION:
        raise value_error(
            f"the format of {where} is not the one that this version of hf_posenc reads, {FORMAT_VERSION}",
            got=f"format_version={shorten(version)}",
            fix="make the collator again and save it; if a newer version saved it, pip install --upgrade hf-posenc",
        )


def _converted(key: str, value: Any) -> Any:
    """Return the value of the setting `key` from its JSON value."""
    return _READERS[key](value) if key in _READERS and value is not None else value


def _setting_of(key: str, value: Any, path: Path) -> Any:
    """Return the value of the setting `key` from its JSON value in the file `path`; errors name both."""
    try:
        return _converted(key, value)
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:
        raise value_error(
            f"'{key}' in {path} is not what save_pretrained wrote",
            got=f"{shorten(value)}: {error}",
            fix="save it again",
        ) from error


def _missing_table(table: Any) -> Any:
    """Return the argument `embedding=` from `table`, the entry `"embedding"` of `hf_posenc.json`."""
    # For a table the result is a `MissingTable`, because weights are not saved.
    if isinstance(table, int) and not isinstance(table, bool):
        return table
    if not isinstance(table, list) or table[:1] != ["digest"]:
        raise value_error("expected a width, or a list that begins with 'digest'")
    return _typed(MissingTable(*table[1:]))


def _typed(loaded: Any) -> Any:
    """Return a dataclass object; raise a `TypeError` if a value does not fit the type of its field."""
    from huggingface_hub.dataclasses import type_validator

    for name, hint in get_type_hints(type(loaded)).items():
        type_validator(name, getattr(loaded, name), hint)
    return loaded


# Functions that convert JSON values to objects, by key. `None` is not converted.
_READERS: dict[str, Callable[[Any], Any]] = {
    "tokenizer": _tokenizer_record,
    "embedding": _missing_table,
    "device": lambda value: str(torch.device(value)),
    "labels": lambda value: MaskedLM(**value) if isinstance(value, dict) else value,
    "model": lambda value: _typed(ModelSpec(**value)),
}

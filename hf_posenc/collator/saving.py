"""A collator as plain values and back: for pickles, for `datasets` fingerprints, and for a folder on disk.

Settings, tokenizer files and the digest of a table; never code, and weights only where they were asked to travel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._explain import explain
from ..embedding import PositionalEmbedding
from ..sinusoid import Convention
from ..tokenization.loading import from_files
from .table import TableLeftBehind, digest, packed, unpacked

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .collator import DataCollatorWithPositionalEncoding

# Part of every fingerprint: raise it whenever the same input gives another output, or the file another meaning.
FORMAT_VERSION = 1
FILE_NAME = "hf_posenc.json"

State = tuple[int, type, type["PreTrainedTokenizerBase"], tuple[tuple[str, bytes], ...], str, Any]


def state(collator: DataCollatorWithPositionalEncoding) -> State:
    r"""Everything that decides the output of a collator, as values that pickle to the same bytes in every process.

    Args:
        collator (`DataCollatorWithPositionalEncoding`): any.

    Returns:
        `tuple`: format version, class, tokenizer class, tokenizer files, settings as JSON, and the table: its numbers
        with `store_embeddings=True`, else its digest.
    """
    files = tuple(sorted(collator._files.items()))
    settings = json.dumps(_plain(collator._settings()), sort_keys=True)
    return FORMAT_VERSION, type(collator), type(collator.tokenizer), files, settings, _table_state(collator)


def rebuild(
    version: int,
    cls: type[DataCollatorWithPositionalEncoding],
    kind: type[PreTrainedTokenizerBase],
    files: tuple[tuple[str, bytes], ...],
    settings: str,
    table: Any,
) -> DataCollatorWithPositionalEncoding:
    """The way back from `state`: what unpickling calls."""
    _check_version(version, "this pickle")
    return cls(from_files(kind, dict(files)), embedding=_table_from(table), **_from_plain(json.loads(settings)))


def save(collator: DataCollatorWithPositionalEncoding, folder: str | Path) -> list[str]:
    """Writes `hf_posenc.json` and the tokenizer's files; see `DataCollatorWithPositionalEncoding.save_pretrained`."""
    folder = Path(folder)
    if folder.is_file():
        raise ValueError(explain("save_pretrained writes into a folder, and this is a file", got=str(folder)))
    folder.mkdir(parents=True, exist_ok=True)
    kind, *table = _table_state(collator.replace(store_embeddings=False)) or (None,)
    saved = {
        "format_version": FORMAT_VERSION,
        **_plain(collator._settings()),
        "embedding": {kind: table} if kind else None,
    }
    contents = {**collator._files, FILE_NAME: (json.dumps(saved, indent=2) + "\n").encode()}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in contents]


def load(
    cls: type[DataCollatorWithPositionalEncoding], name: str | Path, *, embedding: Any
) -> DataCollatorWithPositionalEncoding:
    """Reads what `save` wrote, from a folder or the Hub; see `DataCollatorWithPositionalEncoding.from_pretrained`."""
    saved = json.loads(_find(name).read_text(encoding="utf-8"))
    _check_version(saved.pop("format_version", None), str(name))
    table = saved.pop("embedding", None)
    unknown = sorted(set(saved) - set(_plain(_defaults(cls))))
    if unknown:
        raise ValueError(
            explain(
                f"{FILE_NAME} holds settings that this version does not know: {unknown}",
                got=str(name),
                fix="pip install --upgrade hf-posenc, or take them out of the file",
            )
        )
    if embedding is None and table is not None:
        embedding = _table_from(next((kind, *values) for kind, values in table.items()))
    return cls(name, embedding=embedding, **_from_plain(saved))


def _find(name: str | Path) -> Path:
    local = Path(name) / FILE_NAME
    if local.is_file():
        return local
    reason = f"no {FILE_NAME} in that folder"
    if not Path(name).exists():
        from transformers.utils import cached_file

        try:
            return Path(str(cached_file(str(name), FILE_NAME)))
        except OSError as error:
            reason = str(error).splitlines()[0]
    raise ValueError(
        explain(
            f"no saved collator at '{name}'",
            got=reason,
            fix="a folder that collate.save_pretrained(folder) wrote; for a bare tokenizer, "
            f"DataCollatorWithPositionalEncoding({str(name)!r})",
        )
    )


def _check_version(version: object, where: str) -> None:
    if version != FORMAT_VERSION:
        raise ValueError(
            explain(
                f"the format of {where} is not the one that this version of hf_posenc reads, {FORMAT_VERSION}",
                got=f"format_version={version!r}",
                fix="pip install --upgrade hf-posenc, or save it again",
            )
        )


def _defaults(cls: type[DataCollatorWithPositionalEncoding]) -> dict[str, Any]:
    import dataclasses

    return {
        field.name: field.default for field in dataclasses.fields(cls) if field.name not in ("tokenizer", "embedding")
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON holds them."""
    plain = dict(settings)
    if isinstance(plain["convention"], Convention):
        plain["convention"] = plain["convention"].to_dict()
    if plain["device"] is not None:
        plain["device"] = str(plain["device"])
    for name in ("padding", "truncation"):
        plain[name] = getattr(plain[name], "value", plain[name])
    return plain


def _from_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(plain)
    if isinstance(settings.get("convention"), dict):
        settings["convention"] = Convention.from_dict(settings["convention"])
    return settings


def _table_state(collator: DataCollatorWithPositionalEncoding) -> Any:
    embedding = collator.embedding
    if embedding is None:
        return None
    if isinstance(embedding, int):
        return "width", embedding
    if isinstance(embedding, TableLeftBehind):
        return "left behind", embedding.num_embeddings, embedding.d_model, embedding.digest
    table = embedding.embedding if isinstance(embedding, PositionalEmbedding) else embedding
    if collator.store_embeddings:
        return "table", *packed(table)
    return "left behind", table.num_embeddings, table.embedding_dim, digest(table)


def _table_from(table: Any) -> Any:
    if table is None:
        return None
    kind, *values = table
    if kind == "width":
        return values[0]
    return unpacked(*values) if kind == "table" else TableLeftBehind(*values)

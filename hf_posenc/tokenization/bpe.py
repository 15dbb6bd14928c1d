"""`train_bpe`: train a byte-pair encoding with the trainer of the tokenizers library.

`merges.py` shows step by step how the merges are found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

from .._common.errors import require_one_of, shorten, type_error, value_error
from .._common.integers import as_integer
from . import rust
from .merges import checked_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_ROLES = ("pad_token", "bos_token", "eos_token", "cls_token", "sep_token", "mask_token", "unk_token")


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    *,
    special_tokens: Mapping[str, str | Sequence[str]] | None = None,
    byte_level: bool = True,
    min_frequency: int = 2,
    model_max_length: int | None = None,
    progress: bool | None = None,
) -> PreTrainedTokenizerFast:
    r"""Train a byte-pair encoding (BPE) on `texts`, and return its tokenizer. The same texts give the same tokenizer.

    With `byte_level` (as in GPT-2 and RoBERTa) the alphabet is the 256 bytes: every text of every script can be encoded
    without unknown tokens, and `decode` returns the same text. Without it the alphabet is the characters of the texts,
    the space before a word becomes `▁`, and other characters become `unk_token`.

    Every text begins with the `cls_token`, or else the `bos_token`, and ends with the `sep_token`, or else the
    `eos_token`. If there is a `sep_token`, the second text of a pair has token type 1. To generate from a causal model,
    tokenize prompts with `add_special_tokens=False`, because a prompt must not end with the `eos_token`.

    Args:
        texts (iterable of `str`): the corpus, such as a list, generator or `datasets.Column`; it is iterated once.
        vocab_size (`int`): maximal number of tokens, special tokens and alphabet included. A small corpus has fewer
            pairs to merge, and gives fewer tokens.
        special_tokens (mapping from role to token, *optional*): the roles are those of transformers, such as
            `"pad_token"`; the value of `"extra_special_tokens"` is a list of tokens. The tokens get the first ids, in
            this order. By default `{"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "mask_token":
            "<mask>"}`, and without `byte_level` also `"unk_token": "<unk>"`.
        byte_level (`bool`, *optional*, defaults to `True`): bytes or characters, see above.
        min_frequency (`int`, *optional*, defaults to 2): smallest number of occurrences of a pair to merge.
        model_max_length (`int`, *optional*): maximal number of tokens in a row, the limit that a collator uses. By
            default there is no limit.
        progress (`bool`, *optional*): show a progress bar on stderr; by default, if stderr is a terminal.

    Returns:
        `transformers.PreTrainedTokenizerFast`. `save_pretrained` writes it, `AutoTokenizer.from_pretrained` reads it.

    Raises:
        TypeError: if `texts` is one `str`, or contains a value that is not `str`; the message names the row.
        ValueError: if `vocab_size` is too small for the special tokens and the alphabet, there is no text, or a
            text has a lone surrogate; if `special_tokens` has an unknown role, or without `byte_level` no `unk_token`.

    Source:
        Sennrich, Haddow and Birch 2016, arXiv:1508.07909; over bytes: Radford et al. 2019, "Language Models are
        Unsupervised Multitask Learners", section 2.2.

    Example:
        >>> tokenizer = train_bpe(["I ride bike", "bike ride I, she said"] * 2, 270)
        >>> tokenizer("I ride bike").tokens()
        ['<s>', 'I', 'Ġride', 'Ġ', 'bike', '</s>']
        >>> tokenizer.decode(tokenizer("Ünsäglich 🚲")["input_ids"], skip_special_tokens=True)
        'Ünsäglich 🚲'
    """
    from transformers import PreTrainedTokenizerFast

    roles = _checked_roles(special_tokens, byte_level)
    reserved = list(dict.fromkeys(token for value in roles.values() for token in _as_list(value)))
    rows = checked_texts(texts)
    as_integer(vocab_size, "vocab_size", minimum=1, example=8_000)
    as_integer(min_frequency, "min_frequency", minimum=1, example=2)
    _check_room(vocab_size, len(reserved), 256 if byte_level else 0, "bytes")
    raw = rust.untrained_bpe(byte_level, roles.get("unk_token"))
    rust.train(
        raw,
        rows,
        len(texts) if isinstance(texts, Sized) else None,
        byte_level=byte_level,
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=reserved,
        show_progress=sys.stderr is not None and sys.stderr.isatty() if progress is None else progress,
    )
    if not byte_level:  # the trainer keeps every character, even if vocab_size is smaller
        characters = sum(len(token) == 1 for token in rust.vocabulary_of(raw).keys() - {*reserved})
        _check_room(vocab_size, len(reserved), characters, "characters")
    opening = roles.get("cls_token") or roles.get("bos_token")
    closing = roles.get("sep_token") or roles.get("eos_token")
    second = 1 if "sep_token" in roles else 0
    if around := list(filter(None, dict.fromkeys((opening, closing)))):
        single = [opening, "$A:0", closing]
        pair = [*single, f"$B:{second}", closing and f"{closing}:{second}"]
        rust.add_template(raw, list(filter(None, single)), list(filter(None, pair)), around)
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        model_input_names=["input_ids", *["token_type_ids"] * ("sep_token" in roles), "attention_mask"],
        clean_up_tokenization_spaces=False,  # it would remove the space from "a ."
        **({} if model_max_length is None else {"model_max_length": model_max_length}),
        **roles,
    )


def _checked_roles(special_tokens: Mapping[str, str | Sequence[str]] | None, byte_level: bool) -> dict[str, Any]:
    if special_tokens is None:
        usual = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
        return usual if byte_level else usual | {"unk_token": "<unk>"}
    if not isinstance(special_tokens, Mapping):
        raise type_error(
            "special_tokens must be a mapping from role to token",
            got=shorten(special_tokens),
            fix='special_tokens={"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}',
        )
    for role, value in special_tokens.items():
        require_one_of("a role in special_tokens", role, (*_ROLES, "extra_special_tokens"))
        is_one = role != "extra_special_tokens"
        if isinstance(value, str) != is_one or not all(isinstance(each, str) and each for each in _as_list(value)):
            raise type_error(
                "special_tokens must have a token for each role, and a list of tokens as extra_special_tokens",
                got=f"{role!r}: {shorten(value)}",
                fix='special_tokens={"pad_token": "<pad>", "extra_special_tokens": ["<user>", "<bot>"]}',
            )
    roles = {role: value for role, value in special_tokens.items() if _as_list(value)}
    if not byte_level and "unk_token" not in roles:
        raise value_error(
            "without byte_level unknown characters need a token",
            got=f"special_tokens={shorten(dict(special_tokens))}",
            fix='add "unk_token": "<unk>", or byte_level=True',
        )
    return roles


def _as_list(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _check_room(vocab_size: int, reserved: int, alphabet: int, of_what: str) -> None:
    minimum = reserved + alphabet
    if vocab_size < minimum:
        rule = f"vocab_size must be enough for {reserved} special tokens and {alphabet} {of_what}, {minimum} in all"
        raise value_error(rule, got=vocab_size, fix=f"vocab_size={max(8_000, 2 * minimum)}")

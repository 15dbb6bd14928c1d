"""Small tokenizers of every kind, and a hypothesis strategy for them.

A `Kind` is a recipe, so that the fuzzed tokenizer and that of the reference share no state.
"""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import ByT5Tokenizer, CanineTokenizer, PerceiverTokenizer, PreTrainedTokenizerFast

WORDS = ["I", "ride", "bike", "she", "said", "the", "a", "un", "sur", "pris", "ing", ",", "!", "é", "我", "1", "👍"]
ROLES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "bos_token": "<s>",
    "eos_token": "</s>",
}

SLOW = {"byt5": ByT5Tokenizer, "canine": CanineTokenizer, "perceiver": PerceiverTokenizer}
MODELS = ("word_level", "wordpiece", "unigram", "char_bpe", "bpe", "byte_bpe", "sentencepiece")
TEMPLATES = ("none", "bert", "roberta", "single", "start", "end", "types")
_MERGES = [("b", "i"), ("k", "e"), ("bi", "ke"), ("r", "i"), ("t", "h"), ("th", "e"), ("i", "n"), ("in", "g")]


@dataclass(frozen=True, repr=False)
class Kind:
    """Recipe of a tokenizer.

    `model` is one of `MODELS` or `SLOW`; `roles` are the special tokens that it has; `template` is its post-processor;
    `added` are added tokens with their flags; `raw` is True for a `tokenizers.Tokenizer`; `baked` is True for one with
    padding and truncation of its own; `aliases` is True if the token "æ" has the id of "a".
    """

    model: str
    roles: tuple[str, ...] = ("pad_token", "unk_token")
    template: str = "none"
    added: tuple[tuple[str, bool, bool, bool, bool], ...] = ()
    normalizes: bool = False
    raw: bool = False
    baked: bool = False
    padding_side: str = "right"
    truncation_side: str = "right"
    max_length: int | None = None
    has_types: bool = False
    splits_special: bool = False
    aliases: bool = False

    def __repr__(self) -> str:
        changed = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: value for name, value in changed.items() if value != getattr(Kind, name, None)}
        return f"Kind({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def make(self) -> Any:
        """Return a new tokenizer."""
        if self.model in SLOW:
            # CANINE makes its vocabulary of a million characters several times.
            with mock.patch.object(CanineTokenizer, "get_vocab", lambda it: _characters() | it.added_tokens_encoder):
                slow = SLOW[self.model](padding_side=self.padding_side, truncation_side=self.truncation_side)
            slow.model_max_length = self.max_length or int(1e30)
            return slow
        rust = self.rust()
        if self.raw:
            return rust
        names = ["input_ids", *(["token_type_ids"] if self.has_types else []), "attention_mask"]
        settings: dict[str, Any] = {} if self.max_length is None else {"model_max_length": self.max_length}
        with tempfile.TemporaryDirectory() as folder:  # `tokenizer_object=` would lose a token of each shared id
            path = Path(folder, "tokenizer.json")
            path.write_text(_content(rust))
            return PreTrainedTokenizerFast(
                tokenizer_file=str(path),
                model_input_names=names,
                padding_side=self.padding_side,
                truncation_side=self.truncation_side,
                split_special_tokens=self.splits_special,
                **{role: ROLES[role] for role in self.roles},
                **settings,
            )

    def rust(self) -> Tokenizer:
        """Return a new `tokenizers.Tokenizer` of this kind; not for slow ones."""
        special = [ROLES[role] for role in ROLES if role in self.roles]
        unknown = ROLES["unk_token"] if "unk_token" in self.roles else None
        rust = Tokenizer(_model(self.model, tuple(special), unknown, self.aliases))
        _set_steps(rust, self.model, self.normalizes)
        rust.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
        for content, special_token, single_word, strip, normalized in self.added:
            token = AddedToken(content, single_word=single_word, lstrip=strip, rstrip=strip, normalized=normalized)
            (rust.add_special_tokens if special_token else rust.add_tokens)([token])
        _set_template(rust, self.template)
        if self.baked:
            rust.enable_padding(pad_id=0, pad_token=special[0] if special else "!", length=7)
            rust.enable_truncation(3)
        return rust


def _content(rust: Tokenizer) -> str:
    """Return the content of a `tokenizer.json` with all tokens; no token of its merges shares an id."""
    content = json.loads(rust.to_str())
    if isinstance(content["model"]["vocab"], dict):
        content["model"]["vocab"] = rust.get_vocab(with_added_tokens=False)
    return json.dumps(content)


def _model(model: str, special: tuple[str, ...], unknown: str | None, aliases: bool) -> Any:
    """Return a model of the tokenizers library with a small vocabulary, the special tokens first."""
    letters = sorted({letter for word in WORDS for letter in word} | set("abcdefghijklmnopqrstuvwxyz▁"))
    if model == "word_level":
        ids = _numbered([*special, *WORDS], aliases)
        return models.WordLevel(ids, unk_token=unknown) if unknown else models.WordLevel(ids)
    if model == "wordpiece":
        pieces = [*special, *WORDS, *letters, *(f"##{piece}" for piece in [*WORDS, *letters])]
        settings = {"max_input_chars_per_word": 20, **({"unk_token": unknown} if unknown else {})}
        return models.WordPiece(_numbered(pieces, aliases), **settings)
    if model == "unigram":
        pieces = list(dict.fromkeys([*special, *WORDS, *(f"▁{word}" for word in WORDS), *letters]))
        scores = [(piece, 0.0 if piece in special else -1.0 - number / 7) for number, piece in enumerate(pieces)]
        return models.Unigram(scores, None if unknown is None else pieces.index(unknown), False)
    end, merges = "", list(_MERGES)
    if model == "char_bpe":
        end, merges = "</w>", [*_MERGES, ("ri", "d"), ("rid", "e</w>"), ("i", "e</w>")]
    if model == "byte_bpe":
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        merges += [("Ġ", "bike"), ("Ġ", "the")]
    if model == "sentencepiece":
        merges += [("▁", "bike"), ("▁", "the")]
    pieces = [*special, *([f"<0x{byte:02X}>" for byte in range(256)] if model == "sentencepiece" else [])]
    pieces += [*letters, *(f"{letter}{end}" for letter in letters if end), *("".join(pair) for pair in merges)]
    settings = {} if unknown is None else {"unk_token": unknown, "fuse_unk": True}
    if end:
        settings["end_of_word_suffix"] = end
    return models.BPE(_numbered(pieces, aliases), merges, byte_fallback=model == "sentencepiece", **settings)


@functools.cache
def _characters() -> dict[str, int]:
    return {chr(number): number for number in range(0x110000)}


def _numbered(pieces: list[str], aliases: bool) -> dict[str, int]:
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    others = {piece.replace("a", "æ"): ids[piece] for piece in ("a", "##a", "a</w>") if piece in ids and aliases}
    return {**ids, **others}


def _set_steps(rust: Tokenizer, model: str, normalizes: bool) -> None:
    """Set normalizer, pre-tokenizer and decoder as they are usual for a model."""
    if model == "word_level":
        rust.pre_tokenizer = pre_tokenizers.Whitespace()
        rust.normalizer = normalizers.Lowercase() if normalizes else None
    elif model == "wordpiece":
        rust.pre_tokenizer, rust.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        rust.normalizer = normalizers.BertNormalizer(lowercase=normalizes)
    elif model == "unigram":
        rust.pre_tokenizer, rust.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        rust.normalizer = normalizers.NFKC() if normalizes else None
    elif model == "char_bpe":
        rust.pre_tokenizer, rust.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder()
        rust.normalizer = normalizers.BertNormalizer() if normalizes else None
    elif model == "bpe":
        rust.pre_tokenizer = pre_tokenizers.Whitespace()
        rust.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]) if normalizes else None
    elif model == "byte_bpe":
        rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=normalizes)
        rust.decoder = decoders.ByteLevel()
    else:
        rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        rust.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        if normalizes:  # as in newer Llamas
            rust.normalizer, rust.pre_tokenizer = None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)


def _set_template(rust: Tokenizer, template: str) -> None:
    """Set a post-processor with the first and last special tokens that the vocabulary has; none if it has none."""
    ids = {token: rust.token_to_id(token) for token in ROLES.values() if rust.token_to_id(token) is not None}
    starts = [token for token in ("[CLS]", "<s>") if token in ids]
    ends = [token for token in ("[SEP]", "</s>") if token in ids]
    if not starts or not ends or template == "none":
        return
    start, end = (starts[0], ids[starts[0]]), (ends[0], ids[ends[0]])
    if template == "bert":
        rust.post_processor = processors.BertProcessing(end, start)
    elif template == "roberta":
        rust.post_processor = processors.RobertaProcessing(end, start, trim_offsets=False, add_prefix_space=False)
    else:
        forms = {
            "single": (f"{start[0]} $A {end[0]}", f"{start[0]} $A {end[0]} $B:1 {end[0]}:1"),
            "start": (f"{start[0]} $A", f"{start[0]} $A {start[0]}:1 $B:1"),
            "end": (f"$A {end[0]}", f"$A {end[0]} $B {end[0]}"),
            "types": (f"{start[0]}:2 $A:1 {end[0]}:3", f"{start[0]}:2 $A:1 {end[0]}:3 $B:0 {end[0]}:1"),
        }
        template_of = processors.TemplateProcessing(*forms[template], special_tokens=list({start, end}))
        byte_level = processors.ByteLevel(trim_offsets=False)
        several = template == "single" and rust.decoder is not None and "ByteLevel" in str(rust.decoder)
        rust.post_processor = processors.Sequence([byte_level, template_of]) if several else template_of


_ADDED = st.tuples(
    st.sampled_from(["<x>", "<X>", "bike ride", "[NEW]", "ing", "é", " the", "the ", "▁the"]), *[st.booleans()] * 4
)


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    """Draw a tokenizer of any kind, with any of the special tokens."""
    sides = st.sampled_from(["right", "right", "left"])
    limits = st.sampled_from([None, None, None, 512, 8, 5])
    common = {"padding_side": draw(sides), "truncation_side": draw(sides), "max_length": draw(limits)}
    is_canine = draw(st.integers(0, 99)) == 99  # rare, because it is slow
    model = "canine" if is_canine else draw(st.sampled_from([*MODELS, *MODELS, "byt5", "perceiver"]))
    if model in SLOW:
        return Kind(model, **common)
    missing = draw(st.lists(st.sampled_from(tuple(ROLES)), max_size=3)) if draw(st.booleans()) else []
    raw = draw(st.integers(0, 3)) == 3
    return Kind(
        model,
        tuple(role for role in ROLES if role not in missing),
        draw(st.sampled_from(TEMPLATES)),
        tuple(draw(st.lists(_ADDED, max_size=2, unique_by=lambda token: token[0])) if draw(st.booleans()) else ()),
        normalizes=draw(st.booleans()),
        raw=raw,
        baked=draw(st.integers(0, 4)) == 4,
        has_types=draw(st.booleans()),
        splits_special=draw(st.integers(0, 9)) == 9,
        aliases=draw(st.integers(0, 3)) == 3,
        **common,
    )


@functools.lru_cache(maxsize=64)
def reference_tokenizer(kind: Kind) -> Any:
    """Return the tokenizer that the reference calls: a transformers tokenizer without padding of its own."""
    made = kind.make()
    if kind.raw:
        made.no_padding()
        made.no_truncation()
    elif made.is_fast:
        made.backend_tokenizer.no_padding()
        made.backend_tokenizer.no_truncation()
    return made

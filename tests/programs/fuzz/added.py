"""Added tokens with every combination of flags: the ids of fast backends held against those of `tokenizers`."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers

from hf_posenc.tokenization import FastBackend, Pieces, Unsupported, is_from_rust

from .kinds import Kind

_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
# Special tokens, words, parts of one another, white space, accents composed and decomposed, and combining marks.
_CONTENTS = ["<x>", "x>", "<", "[MASK]", "bike ride", "the", "he", "th", "ing", "I", "##ing", "s", "1", "!", "我", "🚲"]
_CONTENTS += [" ", "  ", "   ", "\n", "\n\n", "\t", " a", "a ", "the  ", "\u00a0", "\u3000", "▁", "▁the", "Ġthe"]
_CONTENTS += ["é", "café", "cafe", "cafe\u0301", "CAFÉ", "n\u0303", "\u0301", "\u212b", "각", "ﬁ", "İ", "ß", "\x01"]
_BESIDE = [" ", " ", "  ", "\n", "\t", "e", "n", "y", "_", "0", ".", "bike", "said", "over", "THE", "\u200d", "\u1161"]
_BESIDE += ["\u0301", "\u0323\u0301", "\u0327", "\u0338", "\u0c3c", "\U00016d67"]
_NORMALIZERS: dict[str, Any] = {
    "NFC": normalizers.NFC,
    "NFD": normalizers.NFD,
    "Lowercase": normalizers.Lowercase,
    "BertNormalizer": normalizers.BertNormalizer,
    "cased": lambda: normalizers.BertNormalizer(lowercase=False),
}


def added_tokens(data: st.DataObject) -> int:
    """Compare the ids of whole texts and of their pieces with those of `tokenizers`; return the number of texts."""
    draw = data.draw
    kind = Kind(
        draw(st.sampled_from(["wordpiece", "byte_bpe", "byte_bpe", "sentencepiece"])), normalizes=draw(st.booleans())
    )
    rust = kind.rust()
    if draw(st.booleans()):
        usual = ["NFC"] if kind.model == "byte_bpe" else list(_NORMALIZERS)  # others have no fast backend
        rust.normalizer = _NORMALIZERS[draw(st.sampled_from(usual))]()
    contents = draw(st.lists(st.sampled_from(_CONTENTS), min_size=1, max_size=5, unique=True))
    for content in contents:
        flags = {name: draw(st.booleans()) for name in _FLAGS}
        if kind.model != "wordpiece" and draw(st.integers(0, 9)):
            flags["single_word"] = False  # no fast backend
        (rust.add_special_tokens if flags["special"] else rust.add_tokens)([AddedToken(content, **flags)])
    try:
        backend = FastBackend(rust.to_str())
    except (Unsupported, ImportError):
        return 1
    changes = (str, str, _nfd, _nfc, str.upper, _start, _rest, str.strip)
    forms = [form(content) for content in contents for form in changes]
    part = st.sampled_from(forms) | st.sampled_from([*_BESIDE, *_CONTENTS])
    texts = draw(st.lists(st.lists(part, min_size=1, max_size=8).map("".join), min_size=1, max_size=40))
    texts = [text for text in texts if _is_encoded(rust, text)]
    assert backend.differences(texts) == []
    whole = " said the bike, ".join(texts)
    if _is_encoded(rust, whole):
        pieces = backend.tokenize(list(Pieces(backend.rust).of(whole, 10)))
        assert pieces.values.tolist() == rust.encode(whole, add_special_tokens=False).ids
    return len(texts) + 1


def _nfd(content: str) -> str:
    return unicodedata.normalize("NFD", content)


def _nfc(content: str) -> str:
    return unicodedata.normalize("NFC", content)


def _start(content: str) -> str:
    return content[:-1]


def _rest(content: str) -> str:
    return content[1:]


def _is_encoded(rust: Tokenizer, text: str) -> bool:
    """Return False if `tokenizers` itself panics, as it does for some added tokens that a normalizer changes."""
    try:
        rust.encode(text, add_special_tokens=False)
    except BaseException as error:
        if not is_from_rust(error):
            raise
        return False
    return True

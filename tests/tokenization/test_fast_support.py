"""The search for characters of newer versions of Unicode compared with a regular expression of the same ranges."""

from __future__ import annotations

import re

import pytest

from hf_posenc.tokenization.fast_support import NEWER_UNICODE, has_newer_unicode

EVERY = "".join(map(chr, range(0x110000)))  # surrogates too
EXPRESSION = re.compile(f"[{NEWER_UNICODE}]")
OLDER, NEWER = EXPRESSION.sub("", EVERY), EXPRESSION.findall(EVERY)


@pytest.mark.parametrize("length", [1, 100, 1000])
def test_every_character_is_found_in_texts_of_all_lengths_as_by_the_expression(length: int) -> None:
    assert len(OLDER) + len(NEWER) == 0x110000
    assert len(NEWER) == 5596
    assert not any(has_newer_unicode(OLDER[start : start + length]) for start in range(0, len(OLDER), length))
    assert all(has_newer_unicode("é" * (length - 1) + character) for character in NEWER)
    assert all(has_newer_unicode(character + "é" * (length - 1)) for character in NEWER)

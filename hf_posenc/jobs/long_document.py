"""`LongDocument`: a line, paragraph or file of many megabytes that is decoded while it is tokenized.

It is never in memory as a whole. Records of JSON and CSV must be parsed whole, so they are not read in this way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from .task import BLANK, Part

EXCERPT = 200  # characters of a rejected document that `rejected.jsonl` shows
BLANK_LINE = re.compile(BLANK + rb"(?:\n|\Z)", re.MULTILINE)
_IN_BLANK_LINES = bytes({*"".join(filter(str.isspace, map(chr, range(0x3001)))).encode()})
_HEAD = 4 * EXCERPT


class LongDocument:
    r"""Decoder of a very long document, which is never in memory as a whole; `read_documents` yields it.

    The iterator `blocks` yields the text of the document in consecutive blocks. If reading fails, `blocks` ends early,
    and `finish` raises the error. After `finish`, these attributes describe the document:

    - `bad`: the reason why the document is not valid UTF-8; `None` if it is valid.
    - `is_blank`: True if the document holds only whitespace.
    - `raw` and `beginning`: its first bytes, and its first characters.

    Args:
        part (`Part`): the document, of the kind `"lines"`, `"paragraphs"` or `"file"`.

    Example:
        >>> document = LongDocument(Part("a.txt", "file", 1, "I ride\r\nbike ☂".encode()))
        >>> "".join(document.blocks)
        'I ride\nbike ☂'
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.bad: str | None = None
        self.is_blank = True
        self.raw, self.beginning = b"", ""
        self.blocks = self._until_error()
        self._error: Exception | None = None

    def finish(self) -> None:
        """Read the rest of the document, so that its attributes are complete.

        Raise the error that ended `blocks`, if there is one: the file could not be read, or it changed.
        """
        for _ in self.blocks:
            pass
        if self._error is not None:
            raise self._error

    def _until_error(self) -> Iterator[str]:
        # An error that is raised while a tokenizer reads the blocks would look like an error of the tokenizer.
        try:
            yield from self._texts()
        except Exception as error:
            self._error = error

    def _texts(self) -> Iterator[str]:
        """Decode the document, yield its text in blocks, and set the attributes that describe it."""
        kind, undecoded, position = self.part.kind, b"", 0
        stripped = self._stripped()
        while True:
            more = next(stripped, None)
            undecoded += more or b""
            try:
                text, length = codecs.utf_8_decode(undecoded, "strict", more is None)
            except UnicodeDecodeError as error:
                byte, at = undecoded[error.start], position + error.start
                self.bad = not_unicode(byte, at, error.reason)
                for _ in stripped:
                    pass
                return
            undecoded, position = undecoded[length:], position + length
            if kind == "file":
                text = text.replace("\r\n", "\n")
            self.is_blank = self.is_blank and (not text or text.isspace())
            if len(self.beginning) < EXCERPT:
                self.beginning = (self.beginning + text)[:EXCERPT]
            yield text
            if more is None:
                return

    def _stripped(self) -> Iterator[bytes]:
        r"""Yield the bytes of the document in blocks; no block ends inside `\r\n`."""
        kind, held = self.part.kind, b""
        for block in self.part.blocks():
            if len(self.raw) < _HEAD:
                self.raw = (self.raw + block[:_HEAD])[:_HEAD]
            held += block
            body = held.rstrip(_IN_BLANK_LINES)
            held = held[len(body) :]
            yield body.replace(b"\r\n", b"\n") if kind == "paragraphs" else body
        if kind == "lines":
            held = held.removesuffix(b"\n").removesuffix(b"\r")
        elif kind == "paragraphs":
            blank = BLANK_LINE.search(b"x" + held)
            held = held[: blank.start() - 1] if blank else held
            held = held.replace(b"\r\n", b"\n").removesuffix(b"\n")
        yield held


def not_unicode(byte: int, position: int, reason: str) -> str:
    """Return the reason why a document is not UTF-8, given the invalid byte, its position and the decoder's reason."""
    return f"is not UTF-8: byte 0x{byte:02x} at position {position} ({reason})"

"""ruamel.yaml's scanner and parser alone, adapted to read what go-yaml v2 reads, as events with line marks.

The parts overridden here are those in which the two differ (tabs after text, the end of block scalars, escapes,
the characters of anchors) or in which ruamel.yaml processes long comments and text one character at a time.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import events as e
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.parser import Parser
from ruamel.yaml.reader import Reader, ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError
from ruamel.yaml.tokens import ScalarToken

__all__ = ["Events", "MarkedYAMLError", "ReaderError", "YAMLError", "e"]

_BLANKS = re.compile(r"[ \t]*")
_COMMENT = re.compile(r"[^\r\n\0]*")
_BLOCK = re.compile(r"(?:[^ \t\r\n\0:]|:(?![ \t\r\n\0]))*")
_FLOW = re.compile(r"(?:[^ \t\r\n\0:,?\[\]{}]|:(?![ \t\r\n\0]))*")
_MARKER = re.compile(r"(?:---|\.\.\.)(?=[ \t\r\n\0])")
_UNICODE_BREAK = re.compile("[\x85\u2028\u2029]")

_ESCAPES = {**{key: text for key, text in Scanner.ESCAPE_REPLACEMENTS.items() if key != "/"}, "'": "'"}


class Events(Reader, Scanner, Parser):
    """The events of one text, from `get_event` and `peek_event`. Raises YAMLError, usually with a mark."""

    # A plain attribute, because ruamel queries its resolver for it at every scalar, which is slow.
    processing_version = (1, 1)
    comment_handling = None

    ESCAPE_REPLACEMENTS = _ESCAPES

    def __init__(self, text: str) -> None:
        self._resolver: Any = self
        # go-yaml treats these as line breaks, ruamel.yaml only in some places. They are never intended as line breaks.
        line_break = _UNICODE_BREAK.search(text)
        if line_break:
            raise ReaderError("", line_break.start(), ord(line_break[0]), "unicode", "a Unicode line break")
        Reader.__init__(self, text, loader=self)
        Scanner.__init__(self, loader=self)
        Parser.__init__(self, loader=self)

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Consume and return the match at this position. The patterns match within a line."""
        match = pattern.match(self.buffer, self.pointer)
        text = match[0] if match else ""
        self.pointer += len(text)
        self.index += len(text)
        self.column += len(text)
        return text

    def scan_to_next_token(self) -> None:
        while True:
            while (char := self.buffer[self.pointer]) == " " or (
                char == "\t" and (self.flow_level > 0 or not self.allow_simple_key)
            ):
                self.forward()
            if char == "#":
                self.skip(_COMMENT)
            if not self.scan_line_break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def scan_plain(self) -> ScalarToken:
        indent = self.indent + 1
        pattern = _FLOW if self.flow_level else _BLOCK
        start = end = self.get_mark()
        text: list[str] = []
        blanks = ""  # before the next piece: spaces within a line, or the folded line breaks
        broken = False
        while True:
            if self.column == 0 and _MARKER.match(self.buffer, self.pointer):
                break
            if self.buffer[self.pointer] == "#":
                break
            if piece := self.skip(pattern):
                text += [blanks, piece]
                blanks, broken = "", False
                end = self.get_mark()
            if self.buffer[self.pointer] not in " \t\r\n":
                break
            spaces, breaks = "", 0
            while (char := self.buffer[self.pointer]) in " \t\r\n":
                if char in "\r\n":
                    self.scan_line_break()
                    breaks, broken = breaks + 1, True
                elif broken and char == "\t" and self.column < indent:
                    raise ScannerError("while scanning a plain scalar", start, "found '\\t'", self.get_mark())
                else:
                    spaces += char
                    self.forward()
            blanks = (" " if breaks == 1 else "\n" * (breaks - 1)) if breaks else spaces
            if not self.flow_level and self.column < indent:
                break
        self.allow_simple_key = broken
        return ScalarToken("".join(text), True, start, end)

    def scan_block_scalar_ignored_line(self, start_mark: Any) -> None:
        self.skip(_BLANKS)
        if self.buffer[self.pointer] == "#":
            self.skip(_COMMENT)
        if self.buffer[self.pointer] not in "\r\n\0":
            raise ScannerError("while scanning a block scalar", start_mark, "expected a line break", self.get_mark())
        self.scan_line_break()

    def scan_block_scalar_indentation(self) -> Any:
        # Replaces ruamel.yaml's own, which rejects an empty line with fewer blanks than the text has.
        breaks, widest, end = [], 0, self.get_mark()
        while (char := self.buffer[self.pointer]) in " \r\n":
            if char == " ":
                self.forward()
                widest = max(widest, self.column)
            else:
                breaks.append(self.scan_line_break())
                end = self.get_mark()
        self.refuse_tab()
        return breaks, widest, end

    def scan_block_scalar_breaks(self, indent: int) -> Any:
        breaks = super().scan_block_scalar_breaks(indent)
        if self.column < indent:
            self.refuse_tab()
        return breaks

    def refuse_tab(self) -> None:
        if self.buffer[self.pointer] == "\t":
            raise ScannerError("while scanning a block scalar", None, "found '\\t'", self.get_mark())

    def check_directive(self) -> bool:
        if self.column == 0:
            raise ScannerError(
                None, None, "a line begins with %, but Helm does not support directives", self.get_mark()
            )
        return False

"""Find the line of each key of a TOML file, for errors that point at it: `tomllib` tells values and no places."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable

__all__ = ["KeyPath", "key_lines"]

KeyPath = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\n#\]}]*")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
# A closing delimiter may be preceded by one or two quotes that belong to the text.
_LONG_BASIC = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""(?:""?(?!"))?', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''(?:[^']|'(?!''))*'''(?:''?(?!'))?", re.DOTALL)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return for each key and table, by its full path, the line on which it is first named, counted from 1.

    `text` is TOML that `tomllib` accepts; an element of an array has the line of the array's key.
    Of an array of tables all elements share one path.
    """
    scan = _Scan(text)
    scan.document()
    return scan.lines


class _Scan:
    """Walk over the text once; `at` is the place of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self._newlines = [m.start() for m in re.finditer("\n", text)]

    def document(self) -> None:
        table: KeyPath = ()
        self._skip(_GAP)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_GAP)

    def _header(self) -> KeyPath:
        line = self._line()
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        self.at += brackets
        table = self._key()
        self._note((), table, line)
        self.at += brackets
        return table

    def _pair(self, table: KeyPath | None) -> None:
        """Read `key = value`; `table` is None inside arrays, where nothing is noted."""
        line = self._line()
        key = self._key()
        if table is not None:
            self._note(table, key, line)
        self.at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(None if table is None else (*table, *key))

    def _value(self, path: KeyPath | None) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._inside("]", lambda: self._value(None))
        elif first == "{":
            self._inside("}", lambda: self._pair(path))
        else:
            self._skip(_SCALAR)

    def _inside(self, end: str, item: Callable[[], None]) -> None:
        self.at += 1
        self._skip(_GAP)
        while self.text[self.at] != end:
            item()
            self._skip(_GAP)
            if self.text[self.at] == ",":
                self.at += 1
                self._skip(_GAP)
        self.at += 1

    def _key(self) -> KeyPath:
        parts = []
        while True:
            self._skip(_BLANK)
            if self.text[self.at] in "\"'":
                start = self.at
                self._string()
                parts.append(str(tomllib.loads(f"k = {self.text[start : self.at]}")["k"]))
            else:
                start = self.at
                self._skip(_BARE)
                parts.append(self.text[start : self.at])
            self._skip(_BLANK)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def _string(self) -> None:
        quote = self.text[self.at]
        long = self.text.startswith(quote * 3, self.at)
        if quote == '"':
            self._skip(_LONG_BASIC if long else _BASIC)
        else:
            self._skip(_LONG_LITERAL if long else _LITERAL)

    def _note(self, table: KeyPath, key: KeyPath, line: int) -> None:
        for length in range(1, len(key) + 1):
            self.lines.setdefault((*table, *key[:length]), line)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def _line(self) -> int:
        return bisect_right(self._newlines, self.at - 1) + 1

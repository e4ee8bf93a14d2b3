"""Read JSON strictly, with the line of every value.

The standard parser keeps the last of two equal keys, takes NaN and forgets the lines of values.
A gate must not be weaker than its file looks, so this one refuses the first two and keeps the third.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from penstock.errors import SuiteMalformed

__all__ = ["MAX_CHARACTERS", "Node", "node_of", "parse_json"]

MAX_CHARACTERS = 4 * 1024 * 1024
_MAX_DEPTH = 32
_MAX_NUMBER = 400

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Node:
    """One JSON value: a scalar, a list of nodes, or a dict of nodes.

    `where` says the place for errors: `file:line` where the text came from a file, otherwise a path of keys.
    """

    value: object
    where: str

    @property
    def kind(self) -> str:
        """Name the value's type in JSON's words."""
        if isinstance(self.value, dict):
            return "an object"
        if isinstance(self.value, list):
            return "a list"
        if self.value is None:
            return "null"
        return {bool: "true or false", str: "text"}.get(type(self.value), "a number")

    @property
    def items(self) -> list[Node]:
        """Return the members of a list."""
        return cast("list[Node]", self.value)

    @property
    def members(self) -> dict[str, Node]:
        """Return the members of an object."""
        return cast("dict[str, Node]", self.value)


def parse_json(text: str, where: str) -> Node:
    """Return the value that the text of the file `where` holds.

    Raises SuiteMalformed with the line for anything that is not exactly JSON, for a repeated key, and for text beyond
    4 Mi characters or 32 levels.
    """
    if len(text) > MAX_CHARACTERS:
        raise SuiteMalformed(f"the suite has {len(text)} characters, more than {MAX_CHARACTERS}", where=where)
    return _Reader(text, where).document()


def node_of(value: object, where: str) -> Node:
    """Return a Python value as nodes, so that suites given as dicts take the same path as files."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise SuiteMalformed(f"key {key!r} is not text", where=where)
        return Node({key: node_of(member, f"{where}.{key}") for key, member in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([node_of(member, f"{where}[{place}]") for place, member in enumerate(value)], where)
    if value is None or isinstance(value, bool | int | float):
        return Node(value, where)
    if isinstance(value, str):
        return Node(_whole_text(value, where), where)
    raise SuiteMalformed(f"a value of type {type(value).__name__} cannot stand in a suite", where=where)


def _whole_text(text: str, where: str) -> str:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise SuiteMalformed("text holds half of a surrogate pair", where=where)
    return text


class _Reader:
    """Walk the text once, left to right."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._file = where
        self._at = 0
        self._counted = 0
        self._line = 1

    def document(self) -> Node:
        value = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._refusal("there is more text after the end")
        return value

    def _where(self) -> str:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return f"{self._file}:{self._line}"

    def _refusal(self, problem: str) -> SuiteMalformed:
        return SuiteMalformed(problem, where=self._where())

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _take(self, character: str) -> bool:
        self._skip()
        if self._text.startswith(character, self._at):
            self._at += len(character)
            return True
        return False

    def _value(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise self._refusal(f"values are nested deeper than {_MAX_DEPTH}")
        self._skip()
        where = self._where()
        if self._take("{"):
            return Node(self._object(depth), where)
        if self._take("["):
            return Node(self._list(depth), where)
        if self._text.startswith('"', self._at):
            return Node(self._string(), where)
        return Node(self._scalar(), where)

    def _object(self, depth: int) -> dict[str, Node]:
        members: dict[str, Node] = {}
        if self._take("}"):
            return members
        while True:
            self._skip()
            if not self._text.startswith('"', self._at):
                raise self._refusal("a key in double quotes is missing")
            key = self._string()
            if key in members:
                raise self._refusal(f"key {key!r} stands twice")
            if not self._take(":"):
                raise self._refusal(f"a colon is missing after key {key!r}")
            members[key] = self._value(depth + 1)
            if self._take("}"):
                return members
            if not self._take(","):
                raise self._refusal("a comma or a closing brace is missing")

    def _list(self, depth: int) -> list[Node]:
        items: list[Node] = []
        if self._take("]"):
            return items
        while True:
            items.append(self._value(depth + 1))
            if self._take("]"):
                return items
            if not self._take(","):
                raise self._refusal("a comma or a closing bracket is missing")

    def _string(self) -> str:
        token = _STRING.match(self._text, self._at)
        if token is None:
            raise self._refusal("text is not closed, or holds a control character")
        try:
            text = str(json.loads(token.group()))
        except ValueError:
            raise self._refusal("text holds an escape that JSON does not know") from None
        self._at = token.end()
        return _whole_text(text, self._where())

    def _scalar(self) -> object:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            if len(number.group()) > _MAX_NUMBER:
                raise self._refusal(f"a number has more than {_MAX_NUMBER} characters")
            self._at = number.end()
            whole = number.group(1) is None and number.group(2) is None
            return int(number.group()) if whole else float(number.group())
        word = _WORD.match(self._text, self._at)
        if word is not None and word.group() in _WORDS:
            self._at = word.end()
            return _WORDS[word.group()]
        text = word.group() if word else self._text[self._at : self._at + 1]
        raise self._refusal(f"{text!r} is no JSON value" if text else "the text ends too early")

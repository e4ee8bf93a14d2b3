"""Find types in Spark DDL that Spark does not have, without Spark: a check of files starts none."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["ddl_problem"]

_TOKEN = re.compile(r"`(?:``|[^`])*`|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[<>(),:]|[^\s<>(),:`'\"]+")
_TYPES = frozenset(
    [
        "array",
        "bigint",
        "binary",
        "boolean",
        "byte",
        "char",
        "character",
        "date",
        "dec",
        "decimal",
        "double",
        "float",
        "geography",
        "geometry",
        "int",
        "integer",
        "interval",
        "long",
        "map",
        "numeric",
        "real",
        "short",
        "smallint",
        "string",
        "struct",
        "time",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "tinyint",
        "varchar",
        "variant",
        "void",
    ]
)
_QUOTES, _COMMENTS = "`'\"", ("--", "/*")
_MARKS = frozenset("<>(),:")
_NESTED = {"array": 1, "map": 2}
"""How many types a type holds."""


class _WrongTypeError(Exception):
    """The text has a problem that Spark would refuse it for."""


class _OddError(Exception):
    """The text is not written as expected; Spark says what it thinks of it."""


def ddl_problem(ddl: str) -> str | None:
    """Return what is wrong with a type in DDL such as "id long, seen array<string>"; None where nothing is found.

    Spark's own parser has the last word: whatever is not a type where one must be passes.
    """
    tokens = _TOKEN.findall(ddl)
    if any(comment in token for token in tokens if token[0] not in _QUOTES for comment in _COMMENTS):
        return None
    columns = _Columns(tokens)
    try:
        columns.read(ends=())
    except _WrongTypeError as why:
        return str(why)
    except _OddError:
        return None
    return None


class _Columns:
    """Follow the tokens of a list of columns, type by type."""

    def __init__(self, tokens: list[str]) -> None:
        self._left: Iterator[str] = iter(tokens)
        self._next = next(self._left, None)

    def read(self, ends: tuple[str, ...]) -> None:
        """Pass over columns up to one of the tokens that end them, or up to the end of the text."""
        while self._next is not None and self._next not in ends:
            name = self._take()
            if self._next == ":":
                self._take()
            if self._next is None or self._next in (",", *ends):
                raise _WrongTypeError(f"column {name!r} has no type")
            self._type(name)
            self._pass_to((",", *ends))
            if self._next == ",":
                self._take()

    def _take(self, wanted: str | None = None) -> str:
        token = self._next
        if token is None or (wanted is not None and token != wanted):
            raise _OddError
        self._next = next(self._left, None)
        return token

    def _type(self, column: str) -> None:
        word = self._take()
        if word in _MARKS:  # such as all columns as one type, struct<…>
            raise _OddError
        kind = word.lower()
        if kind not in _TYPES:
            raise _WrongTypeError(f"column {column!r} has the type {word!r}, which Spark does not have")
        if kind == "struct" and self._next == "<":
            self._take()
            self.read(ends=(">",))
            self._take(">")
        elif kind in _NESTED:
            self._take("<")
            for number in range(_NESTED[kind]):
                if number:
                    self._take(",")
                self._type(column)
                self._pass_to((",", ">"))
            self._take(">")

    def _pass_to(self, ends: tuple[str, ...]) -> None:
        """Pass over what may follow a type, such as (10, 2), NOT NULL, a collation or a comment."""
        depth = 0
        while self._next is not None and (depth or self._next not in ends):
            depth += {"(": 1, ")": -1}.get(self._take(), 0)

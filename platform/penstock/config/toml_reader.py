"""Read a TOML file into a model, and say what is wrong with it at the line of the key (F66).

`tomllib` tells values and no places, so the lines of the keys are found by a walk over the text.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import types
import typing
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.errors import ConfigError

__all__ = ["DESCRIBED", "KeyPath", "Loc", "closest", "describe", "key_lines", "place_of", "read_model", "shown_path"]

Model = TypeVar("Model", bound=BaseModel)
Loc = tuple[int | str, ...]

_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_TWICE = re.compile(r"Cannot (?:overwrite a value|declare|mutate)|[Dd]uplicate")
DESCRIBED = "described"
"""The type of an error whose message says already what is wrong, and where."""
_MAY_BE_SECRET = ("airflow", "conf")
"""Keys whose refused value may hold a password."""
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
Problem = tuple[int, str]
"""A line of a file, 0 where none can be named, and what is wrong there."""
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


def read_model(model: type[Model], path: Path) -> tuple[Model, dict[KeyPath, int]]:
    """Return a TOML file as a model, and the line of each of its keys.

    Raises ConfigError at the first line that is wrong; `problems` holds all of them.
    """
    shown = shown_path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=shown) from None
    except (OSError, UnicodeDecodeError) as why:
        raise ConfigError(f"the file cannot be read: {why}", where=shown) from why
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        raise _refused(shown, [_bad_toml(str(why), text)]) from None
    lines = key_lines(text)
    try:
        return model.model_validate(tables), lines
    except ValidationError as why:
        problems = [_problem(model, error, lines) for error in why.errors()]
        raise _refused(shown, problems) from None


def closest(name: str, known: Sequence[str]) -> str:
    """Return a clause that suggests the most similar known name, or lists them all where none is similar."""
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there is {', '.join(map(repr, sorted(known)))}" if known else "there is none"


def shown_path(path: Path) -> str:
    """Return a path as people write it: from here where it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def place_of(path: Path, lines: Mapping[KeyPath, int], key: KeyPath) -> str:
    """Return a file and the line of a key, or of the nearest table around it; the file alone where there is none."""
    line = _line_of(lines, key)
    return f"{shown_path(path)}:{line}" if line else shown_path(path)


def _line_of(lines: Mapping[KeyPath, int], loc: Sequence[int | str]) -> int:
    keys = [str(part) for part in loc]
    for length in range(len(keys), 0, -1):
        line = lines.get(tuple(keys[:length]))
        if line is not None:
            return line
        # `spark.conf` may be written with its dots bare, so that one name of the model is several keys of the file.
        line = lines.get((*keys[: length - 1], *keys[length - 1].split(".")))
        if line is not None:
            return line
    return 0


def _refused(shown: str, problems: list[Problem]) -> ConfigError:
    problems = sorted(problems)
    (line, what), *others = problems
    more = [f"line {line}: {what}" for line, what in others]
    where = f"{shown}:{line}" if line else shown
    return ConfigError("; ".join([what, *more]), where=where, problems=tuple(problems))


def _bad_toml(error: str, text: str) -> Problem:
    at = _AT_LINE.search(error)
    line = int(at.group(1)) if at else max(1, text.count("\n") + (not text.endswith("\n")))
    problem = _AT_LINE.sub("", error).removesuffix(" (at end of document)")
    if _TWICE.match(problem):
        lines = text.splitlines()
        return line, f"a key or table stands twice: {lines[line - 1].strip()!r}"
    return line, f"this is not TOML: {problem}"


def _problem(model: type[BaseModel], error: ErrorDetails, lines: dict[KeyPath, int]) -> Problem:
    loc: Loc = error["loc"]
    if loc[-1:] == ("[key]",):  # pydantic's mark for the name of a key, where a value would have the name itself
        loc = loc[:-1]
        reason = error.get("ctx", {}).get("error", error["msg"])
        return _line_of(lines, loc), f"the key {loc[-1]!r} in [{'.'.join(map(str, loc[:-1]))}]: {reason}"
    return _line_of(lines, loc), describe(model, loc, error)


def describe(model: type[BaseModel], loc: Loc, error: ErrorDetails, *, around: Loc = ()) -> str:
    """Return what is wrong with a value, in words.

    `loc` are the keys that lead to it from the table of `model`, and `around` those that lead to that table.
    """
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == DESCRIBED:
        return error["msg"]
    *table, name = [str(part) for part in (*around, *loc)] or [""]
    if loc and isinstance(loc[-1], int):
        name = f"item {loc[-1] + 1} of {table.pop()}"
    place = f" in [{'.'.join(table)}]" if table else ""
    if kind == "extra_forbidden":
        known = _keys_of(model, loc[:-1])
        return f"unknown key {name!r}{place}; {closest(name, known)}"
    if kind == "missing":
        return f"the key {name!r} is missing{place}"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return f"{name} is {value!r}{place}; use {' or '.join(map(repr, allowed))}"
    if kind in _WANTED:
        return f"{name} is {value!r}{place}; it takes {_WANTED[kind]}"
    if kind == "greater_than_equal":
        return f"{name} is {value!r}{place}; the least is {context['ge']}"
    if kind == "value_error":
        shown = f"{name}{place}:" if name in _MAY_BE_SECRET else f"{name} is {value!r}{place};"
        return f"{shown} {context['error']}"
    return f"{name}{place}: {error['msg']}"


def _keys_of(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys that a table of the model may hold."""
    current: Any = model
    for part in loc:
        current = _inner(current, str(part))
        if current is None:
            return []
    if not (isinstance(current, type) and issubclass(current, BaseModel)):
        return []
    return [field.alias or name for name, field in current.model_fields.items()]


def _inner(kind: Any, key: str) -> Any:
    """Return the type of a key's value: that of a model's field, or of a mapping's values."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = next((f for n, f in kind.model_fields.items() if key in (n, f.alias)), None)
        return None if field is None else _without_none(field.annotation)
    arguments = typing.get_args(kind)
    return _without_none(arguments[1]) if len(arguments) == 2 else None  # noqa: PLR2004 - key and value


def _without_none(kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        return next((k for k in typing.get_args(kind) if k is not type(None)), None)
    return kind


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

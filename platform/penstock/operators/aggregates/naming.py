"""Name partial aggregates by what they aggregate, so that they are found again whatever else a step aggregates.

A partial's name is its kind and its expression: `_sum_v`, `_n_v`; of an expression that is no plain name, a hash of it.
Blanks and letter case outside quotes make no difference.
Up to format 1 of the fact PARTIALS a name was the place of the first aggregate that used it: `_p0_sum`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping

from penstock.graph.aggregates import AggregateKind

__all__ = ["PARTIALS", "cast_of", "cells_of", "old_names", "partial_name", "plain_sql", "said_in"]

PARTIALS = "partials"
"""The fact of a partition's state that maps names of partials that are by place to those of today."""
PARTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "count": (("n", "n"),),
    "integer": (("sum", "sum"), ("carry", "carry")),
    "decimal": (("decimal", "sum"),),
    "double": (("double", "double"),),
    "min": (("min", "min"),),
    "max": (("max", "max"),),
    "moments": (("mn", "n"), ("mean", "mean"), ("squares", "squares")),
    "first": (("first_of", "first"),),
    "last": (("last_of", "last"),),
}
"""The partials of each kind of cell: what a name says today, and what it said."""
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|[^'\"`]+|.", re.DOTALL)
_CAST = re.compile(r"cast\((.+)\bas (?:decimal|dec|numeric|double)(?:\([\d,]*\))?\)")
_NAME = re.compile(r"[a-z_]\w{0,39}", re.ASCII)
_HASHED = re.compile(r"x[0-9a-f]{16}")
_SAID = re.compile(rf"({'|'.join(sorted((kind.value for kind in AggregateKind), key=len, reverse=True))})\(")


def plain_sql(expression: str) -> str:
    """Return an expression without what makes no difference to it.

    >>> plain_sql(" CAST( v AS  double)") == plain_sql("cast(`v` as DOUBLE)")
    True
    """
    found = []
    for token in _TOKEN.findall(expression.strip()):
        if token[0] == "`" and re.fullmatch(r"`[A-Za-z_]\w*`", token, re.ASCII):
            found.append(token[1:-1].lower())
        elif token[0] in "'\"`":
            found.append(token)
        else:
            text = re.sub(r"\s+", " ", token).lower()
            found.append(re.sub(r" ?([^\w\s]) ?", r"\1", text))
    return "".join(found)


def partial_name(part: str, expression: str) -> str:
    """Return the column of a partial."""
    plain = plain_sql(expression)
    if _NAME.fullmatch(plain) and not _HASHED.fullmatch(plain):
        return f"_{part}_{plain}"
    return f"_{part}_x{hashlib.sha256(plain.encode()).hexdigest()[:16]}"


def cast_of(expression: str) -> str | None:
    """Return what an expression casts to decimal or double, None for one that is no such cast as a whole."""
    found = _CAST.fullmatch(plain_sql(expression))
    if found is None:
        return None
    depth = 0
    for letter in found[1]:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return None
    return found[1].strip() if depth == 0 else None


def cells_of(kind: AggregateKind, result: str) -> tuple[str, ...]:
    """Return what cells an aggregate of an expression is computed from; `result` is its type in words."""
    if kind in (AggregateKind.MIN, AggregateKind.MAX, AggregateKind.FIRST, AggregateKind.LAST):
        return (kind.value,)
    if kind is AggregateKind.COUNT:
        return ("count",)
    if kind in (AggregateKind.SUM, AggregateKind.MEAN):
        family = "decimal" if result.startswith("decimal") else "integer" if result.startswith("int") else "double"
        return ("count", family)
    return ("moments",)


def old_names(aggregates: Iterable[tuple[AggregateKind, str, str]]) -> dict[str, str]:
    """Return, for names by place, today's; aggregates are kind, expression and type of the result, in their order."""
    first: dict[tuple[str, str], int] = {}
    names: dict[str, str] = {}
    for place, (kind, expression, result) in enumerate(aggregates):
        for cell in cells_of(kind, result) if expression else ():
            at = first.setdefault((cell, expression), place)
            for part, was in PARTS[cell]:
                names[f"_p{at}_{was}"] = partial_name(part, expression)
    return names


def said_in(text: str) -> Iterator[tuple[AggregateKind, str, str]]:
    """Yield kind, expression and result's type of each aggregate of a layout: `sum(v) int64, count() int64`."""
    at = 0
    while found := _SAID.match(text, at):
        end = _closing(text, found.end())
        comma = _outside(text, end + 1)
        yield AggregateKind(found[1]), text[found.end() : end], text[end + 1 : comma].strip()
        at = comma + len(", ")


def _closing(text: str, at: int) -> int:
    """Return where the parenthesis closes that was opened before `at`."""
    depth = 1
    for token in _TOKEN.finditer(text, at):
        if token[0][0] in "'\"`" and len(token[0]) > 1:
            continue
        for place, letter in enumerate(token[0], token.start()):
            depth += (letter == "(") - (letter == ")")
            if not depth:
                return place
    return len(text)


def _outside(text: str, at: int) -> int:
    """Return where the next comma stands that is in no brackets."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "([<") - (text[place] in ")]>")
        if text[place] == "," and not depth:
            return place
    return len(text)

"""Name partial aggregates by their expressions, so that code with other aggregates finds them in the state.

A partial's name is its kind and its expression, such as `_sum_v` and `_n_v`. An expression that is no plain name is in
it as a hash. Blanks and letter case outside quotes make no difference.
Aggregates of different kinds share no partials. A count beside a sum is not the number of the sum's values, where the
job added one of the two later.

Older checkpoints have other names. Sums and counts of an expression had one `_n_v`, and all `first` had one place,
`_first_time` and so on. Before that a name was the place of the first aggregate that used it: `_p0_sum`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from penstock.graph.aggregates import AggregateKind
from penstock.operators.aggregates.cells import ORDER
from penstock.operators.aggregates.kinds import ONE_CELL

__all__ = [
    "PARTIALS",
    "PARTS",
    "aggregates_in",
    "cast_of",
    "cell_of",
    "names_of",
    "old_names",
    "partial_name",
    "plain_sql",
    "shared_places",
]

PARTIALS = "partials"
"""The fact of a partition's state that maps names of partials that are by place to those of today."""
_PLACES = ("time", *ORDER)
PARTS: Mapping[str, tuple[str, ...]] = {
    "count": ("n",),
    "integer": ("summed", "sum", "carry"),
    "decimal": ("decimals", "decimal"),
    "double": ("doubles", "double"),
    "moments": ("mn", "mean", "squares"),
    "approx_quantile": ("buckets",),
    "collect": ("items",),
    "top_k": ("top",),
    "rows": ("kept",),
    "custom": ("custom",),
    "first": (*(f"first_{place}" for place in _PLACES), "first_of"),
    "last": (*(f"last_{place}" for place in _PLACES), "last_of"),
    **{kind.value: (of.part,) for kind, of in ONE_CELL.items()},
}
"""The partials of each kind of cell: of sums first how many values were added, of edges first the row's place."""
_OLD_PARTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "count": (("n", "n"),),
    "integer": (("n", "n"), ("sum", "sum"), ("carry", "carry")),
    "decimal": (("n", "n"), ("decimal", "sum")),
    "double": (("n", "n"), ("double", "double")),
    "min": (("min", "min"),),
    "max": (("max", "max"),),
    "moments": (("mn", "n"), ("mean", "mean"), ("squares", "squares")),
    "first": (("first_of", "first"),),
    "last": (("last_of", "last"),),
}
"""The partials of older checkpoints: their part by expression, and before that their suffix by place."""
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|[^'\"`]+|.", re.DOTALL)
_CAST = re.compile(r"cast\((.+)\bas (?:decimal|dec|numeric|double)(?:\([\d,]*\))?\)")
_NAME = re.compile(r"[a-z_]\w{0,39}", re.ASCII)
_HASHED = re.compile(r"x[0-9a-f]{16}")
_CALL = re.compile(rf"({'|'.join(sorted((kind.value for kind in AggregateKind), key=len, reverse=True))})\(")


def plain_sql(expression: str) -> str:
    """Return an expression without what makes no difference to it.

    >>> plain_sql(" CAST( v AS  double)") == plain_sql("cast(`v` as DOUBLE)")
    True
    """
    tokens = []
    for token in _TOKEN.findall(expression.strip()):
        if token[0] == "`" and re.fullmatch(r"`[A-Za-z_]\w*`", token, re.ASCII):
            tokens.append(token[1:-1].lower())
        elif token[0] in "'\"`":
            tokens.append(token)
        else:
            text = re.sub(r"\s+", " ", token).lower()
            tokens.append(re.sub(r" ?([^\w\s]) ?", r"\1", text))
    return "".join(tokens)


@lru_cache(4_096)  # each task of each batch asks for the same few
def partial_name(part: str, expression: str) -> str:
    """Return the column of a partial."""
    plain = plain_sql(expression)
    if _NAME.fullmatch(plain) and not _HASHED.fullmatch(plain):
        return f"_{part}_{plain}"
    return f"_{part}_x{hashlib.sha256(plain.encode()).hexdigest()[:16]}"


def cast_of(expression: str) -> str | None:
    """Return what an expression casts to decimal or double, None for one that is no such cast as a whole."""
    match = _CAST.fullmatch(plain_sql(expression))
    if match is None:
        return None
    depth = 0
    for letter in match[1]:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return None
    return match[1].strip() if depth == 0 else None


def cell_of(kind: AggregateKind, result: str) -> str:
    """Return the kind of cell that an aggregate of an expression needs; `result` is its type in words."""
    if kind in (AggregateKind.SUM, AggregateKind.MEAN):
        return "decimal" if result.startswith("decimal") else "integer" if result.startswith("int") else "double"
    return kind.value if kind.value in PARTS else "moments"


def names_of(aggregates: Iterable[tuple[AggregateKind, str, str]], *, old: bool) -> set[str]:
    """Return the partials of expressions that these aggregates have, or `old`, had; kind, expression, result's type."""
    names: set[str] = set()
    for kind, expression, result in aggregates:
        if not expression:
            continue
        cell = cell_of(kind, result)
        parts = [part for part, _ in _OLD_PARTS.get(cell, ())] if old else PARTS[cell]
        names.update(partial_name(part, expression) for part in parts)
        if old and cell in ("first", "last"):
            names.update(shared_places(cell))
    return names


def shared_places(cell: str) -> tuple[str, ...]:
    """Return the columns of older checkpoints for the place of the first or last row, of all expressions."""
    return tuple(f"_{cell}_{place}" for place in _PLACES)


def old_names(aggregates: Iterable[tuple[AggregateKind, str, str]]) -> dict[str, str]:
    """Return, for names by place, today's; aggregates are kind, expression and type of the result, in their order."""
    first: dict[tuple[str, str], int] = {}
    names: dict[str, str] = {}
    for place, (kind, expression, result) in enumerate(aggregates):
        cell = cell_of(kind, result)
        for part, was in _OLD_PARTS.get(cell, ()) if expression else ():
            owner = "count" if part == "n" else cell
            names[f"_p{first.setdefault((owner, expression), place)}_{was}"] = partial_name(part, expression)
    return names


def aggregates_in(text: str) -> Iterator[tuple[AggregateKind, str, str]]:
    """Yield kind, expression and result's type of each aggregate of a layout: `sum(v) int64, count() int64`."""
    at = 0
    while match := _CALL.match(text, at):
        end = _closing(text, match.end())
        comma = _outside(text, end + 1)
        yield AggregateKind(match[1]), text[match.end() : end], text[end + 1 : comma].strip()
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
    """Return the index of the next comma outside brackets."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "([<") - (text[place] in ")]>")
        if text[place] == "," and not depth:
            return place
    return len(text)

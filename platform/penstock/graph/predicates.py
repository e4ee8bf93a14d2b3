"""Parse the predicates in Spark SQL that state partitions evaluate, where no Spark is: a part of the language.

There are comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, + - * / % div, unix_seconds and its like, literals, columns.
Anything else is refused by name. What each means is that of Spark in ANSI mode, as `operators.predicate_values` does.
Tasks evaluate other expressions in this part of the language likewise (decision 177).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import BadExpression
from penstock.graph.source_location import job_error

__all__ = ["Call", "Chain", "Column", "Literal", "Predicate", "columns_of", "parse_expression", "parse_predicate"]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is NULL."""

    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and below it the fields of structs."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator over its operands: the sign, `negative`, `positive`, `and`, `or`, `not`, `is_null`, or a function."""

    name: str
    of: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Three operands or more of equal precedence, computed from left to right: one sign between each two.

    A tree of pairs would have a level for each operand. One of 300 levels cannot be sent to a task, and a tree of
    halves would add doubles in another order than Spark.
    """

    signs: tuple[str, ...]
    of: tuple[Predicate, ...]


Predicate = Literal | Column | Call | Chain


def columns_of(node: Predicate) -> Iterator[str]:
    """Yield the names of the columns that an expression reads."""
    match node:
        case Column(path):
            yield path[0]
        case Call(of=of) | Chain(of=of):
            for part in of:
                yield from columns_of(part)


class _Token(NamedTuple):
    kind: str
    text: str


_TOKENS = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<text>'(?:[^'\\]|'')*')|"
    r"(?P<quoted>`[^`]+`)|(?P<name>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|==|[-+*/%=<>(),.]))",
    re.ASCII,
)
_COMPARISONS = {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = frozenset({"and", "or", "not", "in", "between", "is", "null", "true", "false", "like", "case", "cast", "div"})
_FUNCTIONS = frozenset({"unix_micros", "unix_millis", "unix_seconds"})
_COMMENT = re.compile("--|/[*]")
_MOST_LEVELS = 100
"""Operators within each other. Python sends no tree of 300 levels to a task, and fewer from deep in a program."""
_MOST_DIGITS = 38
"""How many digits a decimal of Spark has at most."""
_LANGUAGE = (
    "it may have columns, literals, comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, + - * / % div, and the functions "
    "unix_seconds, unix_millis and unix_micros"
)


def parse_predicate(text: object, what: str) -> Predicate:
    """Return a predicate; raises BadExpression at the user's line for what is none, or beyond this part of SQL.

    Args:
        text: The predicate.
        what: Its name, for errors.
    """
    if not isinstance(text, str) or not text.strip():
        raise job_error(f"{what} is {text!r}, not a predicate in Spark SQL", BadExpression)
    try:
        return parse_expression(text)
    except ValueError as why:
        raise job_error(f"{what} is {text!r}, and {why}: {_LANGUAGE}", BadExpression) from None


def parse_expression(text: str) -> Predicate:
    """Return an expression, whether it is true or false or has another value; raises ValueError for any other text."""
    try:
        made = _Parser(list(_tokens(text))).whole()
    except RecursionError:
        raise ValueError("it has too many parentheses or signs within each other") from None
    _refuse_deep(made)
    return made


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKENS.match(text, at)
        if match is None or _COMMENT.match(text, match.start(match.lastgroup or 0)):
            raise ValueError(f"{text[at:].split(maxsplit=1)[0]!r} is not understood")
        kind = str(match.lastgroup)
        yield _Token(kind, match[kind])
        at = match.end()


class _Parser:
    """Descends by precedence, as Spark's grammar has it."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def whole(self) -> Predicate:
        made = self.either()
        if self.at < len(self.tokens):
            raise ValueError(f"{self.tokens[self.at].text!r} is not understood")
        return made

    def either(self) -> Predicate:
        parts = [self.both()]
        while self.word("or"):
            parts.append(self.both())
        return _halved("or", parts)

    def both(self) -> Predicate:
        parts = [self.negated()]
        while self.word("and"):
            parts.append(self.negated())
        return _halved("and", parts)

    def negated(self) -> Predicate:
        return Call("not", (self.negated(),)) if self.word("not") else self.compared()

    def compared(self) -> Predicate:
        made = self.sum()
        if (sign := self.sign(*_COMPARISONS)) is not None:
            return Call(_COMPARISONS[sign], (made, self.sum()))
        if self.word("is"):
            turned = self.word("not")
            self.need(self.word("null"), "NULL")
            return _turned(Call("is_null", (made,)), turned=turned)
        turned = self.word("not")
        if self.word("between"):
            least = self.sum()
            self.need(self.word("and"), "AND")
            return _turned(Call("and", (Call(">=", (made, least)), Call("<=", (made, self.sum())))), turned=turned)
        if self.word("in"):
            self.need(self.sign("(") is not None, "(")
            same = [Call("=", (made, self.sum()))]
            while self.sign(",") is not None:
                same.append(Call("=", (made, self.sum())))
            self.need(self.sign(")") is not None, ")")
            return _turned(_halved("or", same), turned=turned)
        self.need(not turned, "IN or BETWEEN")
        return made

    def sum(self) -> Predicate:
        signs, parts = [], [self.product()]
        while (sign := self.sign("+", "-")) is not None:
            signs.append(sign)
            parts.append(self.product())
        return _chained(signs, parts)

    def product(self) -> Predicate:
        signs, parts = [], [self.signed()]
        while (sign := self.sign("*", "/", "%") or ("div" if self.word("div") else None)) is not None:
            signs.append(sign)
            parts.append(self.signed())
        return _chained(signs, parts)

    def signed(self) -> Predicate:
        sign = self.sign("-", "+")
        if sign is None:
            return self.single()
        if sign == "-" and self.at < len(self.tokens) and self.tokens[self.at].kind == "number":
            return _number(f"-{self.next().text}")
        return Call("negative" if sign == "-" else "positive", (self.signed(),))

    def single(self) -> Predicate:
        if self.sign("(") is not None:
            made = self.either()
            self.need(self.sign(")") is not None, ")")
            return made
        token = self.next()
        match token.kind:
            case "number":
                return _number(token.text)
            case "text":
                return Literal(token.text[1:-1].replace("''", "'"))
            case "name" if token.text.lower() in ("null", "true", "false"):
                return Literal({"null": None, "true": True, "false": False}[token.text.lower()])
            case "name" if token.text.lower() in _FUNCTIONS and self.sign("(") is not None:
                made = Call(token.text.lower(), (self.either(),))
                self.need(self.sign(")") is not None, ")")
                return made
            case "name" | "quoted" if token.text.lower() not in _WORDS:
                return self.column(token)
        raise ValueError(f"{token.text!r} is not understood")

    def column(self, token: _Token) -> Column:
        path = [token.text.strip("`")]
        if self.sign("(") is not None:
            raise ValueError(f"{token.text} is a function")
        while self.sign(".") is not None:
            path.append(self.next().text.strip("`"))
        return Column(tuple(path))

    # --- tokens -------------------------------------------------------------------------------

    def next(self) -> _Token:
        if self.at == len(self.tokens):
            raise ValueError("ends too soon")
        self.at += 1
        return self.tokens[self.at - 1]

    def sign(self, *signs: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "sign" and self.tokens[self.at].text in signs:
            self.at += 1
            return self.tokens[self.at - 1].text
        return None

    def word(self, word: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == ("name", self.tokens[self.at].text):
            there = self.tokens[self.at].text.lower() == word
            self.at += there
            return there
        return False

    def need(self, there: bool, what: str) -> None:  # noqa: FBT001 - whether it was there
        if not there:
            after = f"after {self.tokens[self.at - 1].text!r}" if self.at else "at its beginning"
            raise ValueError(f"lacks {what} {after}")


def _refuse_deep(made: Predicate) -> None:
    """Raise ValueError for a tree with too many levels."""
    level, below = 1, [made]
    while below := [part for node in below if isinstance(node, Call | Chain) for part in node.of]:
        level += 1
        if level > _MOST_LEVELS:
            raise ValueError(f"it has more than {_MOST_LEVELS} operators within each other")


def _number(text: str) -> Literal:
    """Return a number, of which the sign is a part: the least INT is no negative BIGINT, and decimals have one zero."""
    if re.search("[eE]", text):
        return Literal(float(text))
    if "." not in text:
        return Literal(int(text))
    if len(text.strip("-")) > _MOST_DIGITS + 1:
        raise ValueError(f"{text} has more digits than a decimal of Spark")
    return Literal(float(text) + 0.0)


def _chained(signs: Sequence[str], parts: Sequence[Predicate]) -> Predicate:
    """Return operands of equal precedence as they are computed."""
    match signs:
        case []:
            return parts[0]
        case [sign]:
            return Call(sign, tuple(parts))
    return Chain(tuple(signs), tuple(parts))


def _halved(name: str, parts: Sequence[Predicate]) -> Predicate:
    """Return a tree of AND or OR that is as flat as can be: Python neither follows nor sends one of 300 levels."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    return Call(name, (_halved(name, parts[:middle]), _halved(name, parts[middle:])))


def _turned(made: Predicate, *, turned: bool) -> Predicate:
    return Call("not", (made,)) if turned else made

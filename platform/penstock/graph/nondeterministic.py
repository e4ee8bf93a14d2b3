"""Find functions of SQL whose value for a row may be another one when a batch runs again (decision 189).

A batch gives the same rows however often it runs, on any machine and in any number of tasks (SEMANTICS 1.2, 1.6).
"""

from __future__ import annotations

import re

__all__ = ["clock_read", "may_read_more", "nondeterministic_call", "subquery"]

_WHY = {
    "would give the same values in every batch, because the plan is made once; derive the value from the row, as "
    "xxhash64(id) does": "rand randn random randstr uniform uuid shuffle",
    "depends on the task, partition or file that has the row, and no result may; derive the value from the row, as "
    "xxhash64(id) does": "monotonically_increasing_id spark_partition_id input_file_name input_file_block_start "
    "input_file_block_length",
    "calls Java, which may give a row another value each time; use map_batches": "java_method reflect try_reflect",
}
_CLOCK = (
    "reads the clock, so a batch that runs again would give other rows; the batch time is the same then, and "
    "map_batches(name, fn, output=...) gives it to fn as info.time"
)
_REASONS = {name: why for why, names in _WHY.items() for name in names.split()} | dict.fromkeys(
    ("current_date", "curdate", "current_time", "current_timestamp", "localtimestamp", "now"), _CLOCK
)
_CALL = re.compile(rf"\b({'|'.join(_REASONS)})\s*\(", re.IGNORECASE)
_SECONDS_NOW = re.compile(r"\b((?:to_)?unix_timestamp)\s*\(\s*\)", re.IGNORECASE)
_WORD = re.compile(r"\b(current_date|current_time|current_timestamp)\b", re.IGNORECASE)
"""Functions without parentheses, unless a column has the name."""
_MADE = re.compile("""['"(]""")
"""Without a text or a function nothing is a text that Spark reads as a time."""
_TYPED = re.compile(r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*'(now|today|tomorrow|yesterday)'", re.IGNORECASE)
_TODAY = re.compile(r"[\x00-\x20]*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CHARACTERS = 0x110000
_BLANKS = "0bnrtZ"
"""Escapes of characters that Spark takes off both ends of a time."""
_TEXT = re.compile(
    r"""`([^`]*)`|--[^\n]*|/[*].*?[*]/|\br'[^']*'|'(?:[^'\\]|\\.)*'""" r'|\br"[^"]*"|"(?:[^"\\]|\\.)*"',
    re.IGNORECASE | re.DOTALL,
)
"""Names in backquotes, and texts and comments, in which nothing is called.

In a text that begins with r, a backslash stands for itself; in a name, quotes and hyphens do.
"""


def _code(expression: str) -> str:
    """Return an expression without its comments, texts and names of columns; texts that may be times stay as one."""
    return _TEXT.sub(_without_text, expression)


def _without_text(found: re.Match[str]) -> str:
    """Return a name in backquotes that may be a function's, the word of a time, a blank for a comment; else no text."""
    if found[0].startswith(("--", "/*")):
        return " "
    name = found[1]
    if name is not None:
        return name if name.isidentifier() else "''"
    raw = found[0][:1] in "rR"
    text = found[0][2:] if raw else _ESCAPED.sub(_character, found[0][1:])
    today = _TODAY.match(text)
    return f"'{today[1]}'" if today is not None else "''"


def _character(found: re.Match[str]) -> str:
    """Return the character that an escape stands for, of those that Spark takes off a time a blank."""
    for digits, base in ((found[1] or found[2], 16), (found[3], 8)):
        if digits is not None and int(digits, base) < _CHARACTERS:
            return chr(int(digits, base))
    letter: str | None = found[4]
    return " " if letter is None or letter in _BLANKS else letter


def nondeterministic_call(expression: str) -> str | None:
    """Return what is wrong with a function that an expression calls, None where it calls none of these."""
    code = _code(expression)
    call = _CALL.search(code)
    if call is not None:
        return f"{call[1]} in {expression!r} {_REASONS[call[1].lower()]}"
    clock = _SECONDS_NOW.search(code) or _TYPED.search(code)
    return None if clock is None else f"{clock[1]} in {expression!r} {_CLOCK}"


def may_read_more(expression: str) -> bool:
    """Return whether only Spark knows that an expression reads its row alone, and no clock and no table."""
    return _WORD.search(expression) is not None or _MADE.search(expression) is not None


def clock_read(expression: str) -> str:
    """Return what is wrong with a function or a text that becomes the time at which the batch runs."""
    return f"{expression!r} has a function such as current_date or a text such as 'now', which {_CLOCK}"


def subquery(expression: str) -> str:
    """Return what is wrong with a subquery."""
    return (
        f"{expression!r} has a subquery, which reads other rows, and a batch that runs again may find others there. "
        "Use join_static for a table, whose version the batch names"
    )

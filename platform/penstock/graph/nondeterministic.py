"""Find functions of SQL whose value for a row may be another one when a batch runs again (decision 189).

A batch gives the same rows however often it runs, on any machine and in any number of tasks (SEMANTICS 1.2, 1.6).
"""

from __future__ import annotations

import re

__all__ = ["clock_words", "nondeterministic_call", "read_clock"]

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
_TODAY = re.compile(r"'\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark reads as a time where it casts them to one."""
_TYPED = re.compile(r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*'(now|today|tomorrow|yesterday)'", re.IGNORECASE)
_CAST = re.compile(
    r"\b(?:try_)?(?:cast\(\s*(now|today|tomorrow|yesterday)\b[^#(),]* as (?:date|timestamp)"
    r"|to_(?:date|timestamp\w*)\(\s*(now|today|tomorrow|yesterday)\b[^#(),]*, none)"
)
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
    """Return a name in backquotes that may be a function's, the word of a time, and an empty text for all else."""
    name = found[1]
    if name is not None:
        return name if name.isidentifier() else "''"
    today = _TODAY.match(f"'{found[0].lstrip('rR')[1:]}")
    return f"'{today[1]}'" if today is not None else "''"


def nondeterministic_call(expression: str) -> str | None:
    """Return what is wrong with a function that an expression calls, None where it calls none of these."""
    code = _code(expression)
    call = _CALL.search(code)
    if call is not None:
        return f"{call[1]} in {expression!r} {_REASONS[call[1].lower()]}"
    clock = _SECONDS_NOW.search(code) or _TYPED.search(code)
    return None if clock is None else f"{clock[1]} in {expression!r} {_CLOCK}"


def clock_words(expression: str) -> bool:
    """Return whether an expression has words that may read the clock: only Spark knows whether they do."""
    code = _code(expression)
    return _WORD.search(code) is not None or _TODAY.search(code) is not None


def read_clock(expression: str, resolved: str) -> str | None:
    """Return what is wrong with such words, None where none of them reads the clock.

    Args:
        expression: The user's text.
        resolved: What Spark has made of it, in its words: a column has a number there, and a function parentheses.
    """
    code = _code(expression)
    resolved = resolved.lower()
    word = next((found[1] for found in _WORD.finditer(code) if f"{found[1].lower()}(" in resolved), None)
    if word is None and _TODAY.search(code) and (cast := _CAST.search(resolved)) is not None:
        word = cast[1] or cast[2]
    return None if word is None else f"{word} in {expression!r} {_CLOCK}"

"""Format numbers, sizes and durations for people. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["counted", "finite", "number", "quantity", "size", "span", "total"]

_SECOND = 1_000_000
_UNITS = (
    ("year", 365 * 86_400 * _SECOND),
    ("day", 86_400 * _SECOND),
    ("hour", 3_600 * _SECOND),
    ("minute", 60 * _SECOND),
    ("second", _SECOND),
)
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")
_KIB = 1024


def finite(value: object) -> float | None:
    """Return a record's value as a float, None where it is no number or beyond a float's range."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None


def total(rows: object) -> int | None:
    """Return the sum of a record's rows by source, None where a source does not know its own, or it holds none."""
    if not isinstance(rows, Mapping) or not rows or not all(isinstance(n, int) for n in rows.values()):
        return None
    return sum(rows.values())


def number(value: float) -> str:
    """Return a number with thousands separators; a fraction only where it is small enough to matter."""
    return f"{value:,.1f}" if isinstance(value, float) and abs(value) < 10 else f"{value:,.0f}"  # noqa: PLR2004 - one digit


def quantity(count: int, noun: str) -> str:
    """Return a count with its noun: 1 batch, 2,000 batches."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s", "sh", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def span(micros: int) -> str:
    """Return a duration in words, in its two largest units: `2 hours 5 minutes`, `under a second`."""
    if micros < 0:
        return f"{span(-micros)} ahead"
    if micros < _SECOND:
        return "under a second"
    at = next(i for i, (_, unit) in enumerate(_UNITS) if micros >= unit)
    words = []
    for noun, unit in _UNITS[at : at + 2]:
        count, micros = divmod(micros, unit)
        if count:
            words.append(quantity(count, noun))
    return " ".join(words)


def size(count: float) -> str:
    """Return a size in the unit that leaves one to four digits."""
    for unit in _SIZES:
        if count < _KIB or unit == _SIZES[-1]:
            break
        count /= _KIB
    return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"


def counted(counts: dict[str, int]) -> str:
    """Return counts by name: `3 passed, 1 failed`."""
    return ", ".join(f"{n:,} {name}" for name, n in counts.items())

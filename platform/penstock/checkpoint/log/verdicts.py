"""Write the verdicts of a Commit in few bytes: windows that passed one after another are one item.

A verdict has a check, a unit, an action, a status, rows, and the results of failed rules. A unit is the end of a window
in microseconds, or null for a batch. Units at equal distances are one item, if they have one check, action and status,
and no result. It has the first unit, `every`, which is their distance, and `rows` as a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["packed", "unpacked"]

EVERY = "every"
_ALIKE = ("check", "action", "status")


def packed(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return verdicts as they are written; `unpacked` gives the same again, in their order."""
    items: list[dict[str, Any]] = []
    for verdict in verdicts:
        if not items or not _joined(items[-1], verdict):
            items.append(dict(verdict))
    return items


def unpacked(written: Any) -> Any:
    """Return verdicts one by one; what is no list of objects is left as it is, for the model to refuse."""
    if not isinstance(written, list):
        return written
    return [verdict for item in written for verdict in _single(item)]


def _joined(last: dict[str, Any], verdict: Mapping[str, Any]) -> bool:
    """Put a verdict into the item before it, where it follows."""
    plain = {*_ALIKE, "unit", "rows", "results"}
    if verdict.keys() != plain or verdict["results"] or verdict["unit"] is None:
        return False
    if last.keys() - {EVERY} != plain or last["results"] or any(last[name] != verdict[name] for name in _ALIKE):
        return False
    if EVERY not in last:
        if last["unit"] is None or last["unit"] == verdict["unit"]:
            return False
        last |= {EVERY: verdict["unit"] - last["unit"], "rows": [last["rows"]]}
    elif verdict["unit"] != last["unit"] + last[EVERY] * len(last["rows"]):
        return False
    last["rows"].append(verdict["rows"])
    return True


def _single(item: Any) -> Iterator[Any]:
    first, every, rows_of = (item.get(name) if isinstance(item, dict) else None for name in ("unit", EVERY, "rows"))
    if not (isinstance(first, int) and isinstance(every, int) and isinstance(rows_of, list)):
        yield item
        return
    for place, rows in enumerate(rows_of):
        single = {name: value for name, value in item.items() if name != EVERY}
        yield single | {"unit": first + place * every, "rows": rows}

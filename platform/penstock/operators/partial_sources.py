"""Say from which partials that are there others are told: those of the same numbers, or of what they are cast from.

An aggregate is told as a whole or not at all. If its sum were of the rows from now on, and the count beside it of all,
their mean would be wrong.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from penstock.operators.aggregates import ROWS, AggregatePlan
from penstock.operators.aggregates.naming import PARTS, cast_of, cells_of, partial_name, shared_places

__all__ = ["Told", "through", "told_from"]

Told = Mapping[str, tuple[str, ...]]
"""For partials the columns that tell them: one, or the two of a sum of integers. A partial that is not in it is new."""

_WHOLE = ("sum", "carry")
_WAYS: Mapping[str, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "count": ((("n",),), (("summed",),), (("decimals",),), (("doubles",),), (("mn",),)),
    "integer": ((("n",), ("sum",), ("carry",)),),
    "decimal": ((("n",), ("decimal",)),),
    "double": ((("n",), ("double",)), (("decimals",), ("decimal",)), (("n",), ("decimal",))),
}
"""By cell what tells its parts beside itself. `n` beside a sum is of older checkpoints."""
_OF_INTEGERS = (((("summed",), _WHOLE)), ((("n",), _WHOLE)))
"""What tells a sum of the same numbers in another type."""


def told_from(plan: AggregatePlan, there: Container[str]) -> dict[str, tuple[str, ...]]:
    """Return what tells the partials of a plan."""
    told: dict[str, tuple[str, ...]] = {ROWS: (ROWS,)}
    for aggregate in plan.aggregates:
        for cell in cells_of(aggregate.kind, str(aggregate.result)) if aggregate.expression is not None else ():
            names = [partial_name(part, aggregate.expression or "") for part in PARTS[cell]]
            for way in _ways(cell, aggregate.expression or ""):
                if all(name in there for names_of_part in way for name in names_of_part):
                    told |= dict(zip(names, way, strict=True))
                    break
    return told


def through(told: Told, older: Told) -> dict[str, tuple[str, ...]]:
    """Return what tells partials that are told from others, which in turn are told from older ones."""
    return {
        name: tuple(column for source in sources for column in older[source])
        for name, sources in told.items()
        if all(source in older for source in sources)
    }


def _ways(cell: str, expression: str) -> list[list[tuple[str, ...]]]:
    """Return, best first, the columns that may tell each part of a cell."""

    def named(label: str, way: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
        return [tuple(partial_name(part, label) for part in parts) for parts in way]

    itself = tuple((part,) for part in PARTS[cell])
    ways = [named(expression, way) for way in (itself, *_WAYS.get(cell, ()))]
    if cell in ("first", "last"):
        value = partial_name(PARTS[cell][-1], expression)
        ways.append([*((place,) for place in shared_places(cell)), (value,)])
    of_integers = _OF_INTEGERS if cell in ("decimal", "double") else ()
    ways += [named(expression, way) for way in of_integers]
    inner = cast_of(expression)
    if inner is not None:
        exact = (itself, *_WAYS[cell]) if cell in ("count", "double") else ()
        ways += [named(inner, way) for way in (*exact, *of_integers)]
    return ways

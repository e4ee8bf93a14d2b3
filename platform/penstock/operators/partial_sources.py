"""Choose the stored partials that give the partials of other aggregates: of the same values, or of the uncast ones.

All partials of an aggregate have sources, or none has. With a sum of new rows only, and a count of all rows, the mean
would be wrong.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from penstock.operators.aggregates import ROWS, AggregatePlan
from penstock.operators.aggregates.naming import PARTS, cast_of, cells_of, partial_name, shared_places

__all__ = ["Sources", "sources_of", "through"]

Sources = Mapping[str, tuple[str, ...]]
"""For partials the stored columns that give them: one, or the two of a sum of integers. A missing partial is new."""

_WHOLE = ("sum", "carry")
_WAYS: Mapping[str, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "count": ((("n",),), (("summed",),), (("decimals",),), (("doubles",),), (("mn",),)),
    "integer": ((("n",), ("sum",), ("carry",)),),
    "decimal": ((("n",), ("decimal",)),),
    "double": ((("n",), ("double",)), (("decimals",), ("decimal",)), (("n",), ("decimal",))),
}
"""By cell the sources of its parts beside themselves. `n` beside a sum is of older checkpoints."""
_OF_INTEGERS = (((("summed",), _WHOLE)), ((("n",), _WHOLE)))
"""The sources of a sum of the same numbers in another type."""


def sources_of(plan: AggregatePlan, stored: Container[str]) -> dict[str, tuple[str, ...]]:
    """Return the sources of a plan's partials, of columns in `stored`."""
    sources: dict[str, tuple[str, ...]] = {ROWS: (ROWS,)}
    for aggregate in plan.aggregates:
        for cell in cells_of(aggregate.kind, str(aggregate.result)) if aggregate.expression is not None else ():
            names = [partial_name(part, aggregate.expression or "") for part in PARTS[cell]]
            for way in _ways(cell, aggregate.expression or ""):
                if all(name in stored for names_of_part in way for name in names_of_part):
                    sources |= dict(zip(names, way, strict=True))
                    break
    return sources


def through(sources: Sources, older: Sources) -> dict[str, tuple[str, ...]]:
    """Return the sources of partials in an older generation, where `older` has the sources of their sources."""
    return {
        name: tuple(column for source in names for column in older[source])
        for name, names in sources.items()
        if all(source in older for source in names)
    }


def _ways(cell: str, expression: str) -> list[list[tuple[str, ...]]]:
    """Return, best first, the columns that may give each part of a cell."""

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

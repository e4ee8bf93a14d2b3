"""Find the first and the last row of a group, by event time and then by arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.aggregates.cells import ORDER, Partials, Rows, as_arrow
from penstock.state.keys import Ints

__all__ = ["Edge", "EdgeInput"]


@dataclass(frozen=True, slots=True)
class EdgeInput:
    """An input of `Edge`: its type, the columns of its row's place, and the column of the row's value.

    `places` are event time, then ORDER.
    """

    name: str
    kind: pa.DataType
    places: tuple[str, ...]
    column: str


@dataclass(frozen=True, slots=True)
class Edge:
    """The place of the first or the last row, and its value, null or not, of one or more inputs.

    Each input has places of its own: a later added input has seen no earlier row. Where all inputs have the same
    places, as they mostly do, `merge` looks for the winners once.
    """

    inputs: tuple[EdgeInput, ...]
    last: bool

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return for each input five bigints and one column of its type."""
        return tuple(
            field
            for edge_input in self.inputs
            for field in (
                *(pa.field(place, pa.int64()) for place in edge_input.places),
                pa.field(edge_input.column, edge_input.kind),
            )
        )

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Find the edge of the rows of each group."""
        places = (rows.times, *rows.order)
        if len(places) != 1 + len(ORDER):
            raise ValueError(f"first and last need the columns of arrival order: {', '.join(ORDER)}")
        won = _winners(places, ids, groups, last=self.last)
        standing, index = [place[won] for place in places], pa.array(won)
        partials: Partials = {}
        for edge_input in self.inputs:
            partials |= dict(zip(edge_input.places, standing, strict=True))
            partials[edge_input.column] = rows.inputs[edge_input.name].take(index)
        return partials

    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Find the edge of the partials of each group."""
        merged: Partials = {}
        sought: list[tuple[list[Ints], Ints]] = []
        for edge_input in self.inputs:
            places = [partials[name] for name in edge_input.places]
            won = next((known for others, known in sought if _are_equal(places, others)), None)
            if won is None:
                won = _winners(places, ids, groups, last=self.last)
                sought.append((places, won))
            merged |= {name: place[won] for name, place in zip(edge_input.places, places, strict=True)}
            merged[edge_input.column] = as_arrow(partials[edge_input.column]).take(pa.array(won))
        return merged


def _are_equal(places: list[Ints], others: list[Ints]) -> bool:
    return all(np.array_equal(place, other) for place, other in zip(places, others, strict=True))


def _winners(places: Sequence[Ints], ids: Ints, groups: int, *, last: bool) -> Ints:
    """Return for each group the index of the row whose places come first, or last, compared one after another.

    Each place is one pass over the rows that are still equal, so nothing is sorted.
    Every group must have a row.
    """
    rows = np.arange(len(ids))
    limits = np.iinfo(np.int64)
    for place in places:
        at, values = ids[rows], place[rows]
        best = np.full(groups, limits.min if last else limits.max, dtype=np.int64)
        (np.maximum if last else np.minimum).at(best, at, values)
        rows = rows[values == best[at]]
        if len(rows) == groups:
            break
    won = np.empty(groups, dtype=np.int64)
    won[ids[rows]] = rows
    return won

"""Count different values about: a theta sketch of each group (SEMANTICS 3.3).

The sketches are those of Apache DataSketches (Dasgupta, Lang, Rhodes and Thaler, "A framework for estimating stream
expression cardinalities", ICDT 2016). A trimmed one is the same, to the byte, in whatever order rows come and partials
merge. HyperLogLog of the same library is not: what it estimates depends on how rows were cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.aggregates.cells import Cell, Column, Partials, Rows, as_arrow, without_nulls
from penstock.operators.aggregates.extremes import has_order
from penstock.operators.aggregates.one_cell import OneCell
from penstock.state.hashing import can_hash, hash_columns, normalise
from penstock.state.keys import Ints

__all__ = ["ABOUT_DIFFERENT", "ThetaSketches", "count_of_sketches"]

_LG_SIZE = 10
"""A sketch keeps 2**10 hashes: it counts exactly up to there, and beyond with a standard error of 1 / sqrt(1023)."""


@dataclass(frozen=True, slots=True)
class ThetaSketches(Cell):
    """The sketches of groups, null where a group has no values; `kind` is the type of the values."""

    nothing_is_null = True

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Return one column of sketches, in the bytes of DataSketches."""
        return (pa.field(self.columns[0], pa.binary()),)

    def reduce(self, rows: Rows, ids: Ints, groups: int) -> Partials:
        """Sketch the values of each group by their hashes, which tell values of any type apart."""
        from datasketches import update_theta_sketch

        values, ids = without_nulls(self.read(rows), ids)
        hashed = normalise(values) if can_hash(values.type) else values.cast(pa.string())
        sketches: list[bytes | None] = [None] * groups
        for group, hashes in _by_group(hash_columns([hashed], len(values)), ids):
            sketch = update_theta_sketch(_LG_SIZE)
            for value in hashes.tolist():
                sketch.update(value)
            # It may hold nearly twice as many, depending on the order of its rows.
            sketch.trim()
            sketches[group] = sketch.compact().serialize()
        return {self.columns[0]: pa.array(sketches, pa.binary())}

    def merge(self, partials: Partials, ids: Ints, groups: int) -> Partials:
        """Unite the sketches of each group; one that is alone stays as it is."""
        from datasketches import theta_union

        column, ids = without_nulls(as_arrow(partials[self.columns[0]]), ids)
        sketches: list[bytes | None] = [None] * groups
        for group, places in _by_group(np.arange(len(ids)), ids):
            stored = column.take(pa.array(places)).to_pylist()
            if len(stored) > 1:
                union = theta_union(_LG_SIZE)
                for sketch in stored:
                    union.update(_sketch(sketch))
                stored = [union.get_result().serialize()]
            sketches[group] = stored[0]
        return {self.columns[0]: pa.array(sketches, pa.binary())}


def count_of_sketches(sketches: Column) -> pa.Array:
    """Return about how many different values have these sketches."""
    counts = [
        0 if sketch is None else round(_sketch(sketch).get_estimate()) for sketch in as_arrow(sketches).to_pylist()
    ]
    return pa.array(counts, pa.int64())


ABOUT_DIFFERENT = OneCell(
    part="hashes",
    cell=ThetaSketches,
    accepts=has_order,
    refused="whose values cannot be compared here",
    result=pa.int64(),
    compute=count_of_sketches,
    # Once a layout said nothing of them, and they were lists of hashes.
    kept="{} in theta sketches",
    hides="sketches",
)
"""`approx_count_distinct`."""


def _sketch(stored: bytes) -> Any:
    from datasketches import compact_theta_sketch

    return compact_theta_sketch.deserialize(stored)


def _by_group(items: Ints, ids: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each group that has items, with these."""
    order = np.argsort(ids, kind="stable")
    items, ids = items[order], ids[order]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]]) if len(ids) else np.zeros(0, dtype=np.int64)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ids)], strict=len(ids) > 0):
        yield int(ids[start]), items[start:end]

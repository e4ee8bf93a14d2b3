"""Do the state work of a window step in one partition: merge slices, close windows (DESIGN 6, 7)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregates import AGGREGATES
from penstock.operators.aggregates.naming import PARTIALS
from penstock.operators.functions.key_index import BatchClock
from penstock.operators.schema_evolution import Evolution
from penstock.operators.windows.partials import GROUP, HASH, SLICE_START
from penstock.operators.windows.slice_state import FRONT, LATE, LATE_NEXT, RUNNING, SLICES, TOTAL
from penstock.operators.windows.slices import BEGINNING_OF_TIME, END_OF_TIME
from penstock.operators.windows.stored_partials import GENERATION, OLDER, StoredPartials
from penstock.operators.windows.time_windows import WINDOW_END, StepResult, WindowStep, begin, step
from penstock.operators.windows.window_blocks import sorted_front
from penstock.operators.windows.window_evolution import changed_windows, kept_now, names_in, reads
from penstock.runtime.tasks.arrival_order import ranked_together
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import LAYOUT, PartitionState
from penstock.runtime.tasks.specs import HASHED, MAIN, TIME, Piece, Rebuilt, StepDone
from penstock.state.compaction import Combine
from penstock.state.hashing import content_hashes
from penstock.state.reader import Adapters
from penstock.state.references import batch_of
from penstock.state.writer import Change
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["WindowStepWork"]

_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class WindowStepWork:
    """The state work of the window step `name`."""

    name: str
    spec: WindowStep

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.spec.keys

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the rows put out."""
        return self.spec.output

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps: keys, aggregates and windows."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.spec.keys)
        kept = ", ".join(f"{aggregate} {result}" for aggregate, result in kept_now(self.spec.plan))
        window = self.spec.window
        return f"[{keys}] {kept} in windows of {window.size} us every {window.every} us from {window.offset}"

    @property
    def described(self) -> Mapping[str, Any]:
        """Return what tells others how slices of the same key are merged."""
        return {AGGREGATES: self.spec.plan.described()}

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return what reads partials of other aggregates as those of today; of state of an older version, by place."""
        read = self._reads(facts)
        return Adapters(dict.fromkeys(_OF_PARTIALS, read), read.generation)

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return what does the same to rows of a snapshot."""
        old = names_in(layout)
        return lambda rows: StoredPartials.of_table(self.spec.layout, rows.column_names, old)(rows)

    @property
    def hash_column(self) -> str:
        """Return the column of what comes through the shuffle that has the hashes of the keys."""
        return HASH

    @property
    def counted_as(self) -> str:
        """Return under which name the step's rows are accounted for."""
        return f"window:{self.name}"

    @property
    def merge(self) -> Mapping[str, Combine | None]:
        """Return how compaction merges the rows of each part."""
        layout = self.spec.layout
        return {SLICES: layout.combine, LATE: layout.combine, FRONT: lambda fronts: sorted_front(fronts, layout)}

    def evolution(self, state: PartitionState) -> Evolution:
        """Return how this state differs: windows go on from the same keys and slices, and from other aggregates."""
        stored = state.reader.stored(SLICES)
        return changed_windows(state.written_as, self.layout_name, self._reads(state.facts), stored)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        read = StoredPartials.of_table(self.spec.layout, stored.names, names_in(layout))
        return changed_windows(layout, self.layout_name, read, stored)

    def lost(self, state: PartitionState) -> tuple[str, ...]:
        """Return nothing: a window reads all that a window of these keys and bounds has written."""
        return ()

    def run(
        self, state: PartitionState, tables: list[pa.Table], facts: BatchContext
    ) -> Generator[Piece, None, StepDone]:
        """Fold in the slices, and close the windows that are due."""
        source = _Slices(state, self.spec)
        late, close = facts.late[self.name], facts.close[self.name]
        deltas = ranked_together(tables, self.spec.plan)
        result = yield from _placed(
            step(source, deltas, self.spec, late_watermark=late, close_watermark=close), self.keys
        )
        change = Change(
            append=result.append,
            replace=result.replace,
            floors=dict.fromkeys((SLICES, FRONT, LATE, LATE_NEXT), result.floor),
            facts={**_without_older(result.facts), **self._kept(state, facts.batch)},
        )
        return StepDone(change=change, due=result.next_due, due_time=None, rows=result.rows)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, partials and `slice_start`."""
        return {MAIN: pa.schema([*self.keys, *self.spec.plan.fields, pa.field(SLICE_START, _UTC)])}

    @property
    def shown_in(self) -> Mapping[str, str]:
        """Return where slices stand; running aggregates, fronts and late rows are made again from them."""
        return {SLICES: MAIN}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each slice and key."""
        return self.spec.layout.readable(rows).cast(self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: BatchClock) -> Rebuilt:
        """Return state with these slices, all windows closed that the moment's watermark had closed."""
        given, schema = tables[MAIN], self.spec.layout.schema
        placed = given.append_column(GROUP, given[SLICE_START].cast(pa.int64())).append_column(HASH, given[HASHED])
        slices = placed.select(schema.names).cast(schema)
        begun = begin(slices, self.spec, closed_to=moment.watermark)
        facts = {**begun.facts, PARTIALS: {}, GENERATION: 0}
        change = Change(append=begun.append, floors={SLICES: begun.floor}, facts=facts)
        return Rebuilt(change=change, due=begun.next_due, due_time=None)

    def whole(self, state: PartitionState) -> pa.Table:
        """Return keys, partials and `slice_start`; one row a slice and key."""
        scanned = _Slices(state, self.spec).scan(SLICES, BEGINNING_OF_TIME, END_OF_TIME)
        return self.shown(SLICES, self.spec.layout.combine(scanned))

    def _reads(self, facts: Mapping[str, Any]) -> StoredPartials:
        return reads(self.spec.layout, facts, facts.get(LAYOUT))

    def _kept(self, state: PartitionState, batch: int) -> dict[str, Any]:
        """Return the facts that say how what the batch leaves is read."""
        read, files = self._reads(state.facts), state.reader.manifest.files()
        oldest = min((found for name in files if (found := batch_of(name)) is not None), default=batch)
        return {PARTIALS: dict(read.old), **read.facts(batch, oldest)}

    def rows(self, state: PartitionState) -> list[dict[str, Any]]:
        """Return the same as rows."""
        rows: list[dict[str, Any]] = self.whole(state).to_pylist()
        return rows


def _placed(made: Generator[pa.Table, None, StepResult], keys: pa.Schema) -> Generator[Piece, None, StepResult]:
    """Give the rows of windows their event time: of [s, e) it is e - 1 (SEMANTICS 2.1)."""
    while True:
        try:
            output = next(made)
        except StopIteration as end:
            result: StepResult = end.value
            return result
        ends = output[WINDOW_END].cast(pa.int64())
        closed = output.append_column(TIME, pc.subtract(ends, 1))
        yield Piece(rows=closed, stand=partial(_stand, closed, keys))


def _stand(closed: pa.Table, keys: pa.Schema) -> Stand:
    """Return where the rows of closed windows stand: behind all rows, by the ends of the windows, then key hash."""
    by_time = np.full(closed.num_rows, BY_TIME, dtype=np.int64)
    hashes = content_hashes([closed[name] for name in keys.names], closed.num_rows)
    return Stand(rows=by_time, times=closed[TIME].to_numpy(), hashes=hashes)


_OF_PARTIALS = (SLICES, LATE, RUNNING, FRONT, TOTAL, LATE_NEXT)


def _without_older(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts without what is said of older generations, which the batch says anew."""
    return {name: value for name, value in facts.items() if name != OLDER}


class _Slices:
    """The state of a partition as the window's step reads it."""

    def __init__(self, state: PartitionState, spec: WindowStep) -> None:
        self.state = state
        self.schema = spec.layout.schema
        self.facts = state.facts

    def scan(self, part: str, lo: int, hi: int) -> Sequence[pa.Table]:
        """Return the rows with lo <= `_group` < hi."""
        return self.state.scan(part, lo, hi, None if part == FRONT else self.schema)

    def groups(self, part: str) -> npt.NDArray[np.int64]:
        """Return the distinct groups that have rows."""
        return self.state.groups(part)

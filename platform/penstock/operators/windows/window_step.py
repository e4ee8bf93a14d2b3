"""Both sides of time windows: rows become slices before the shuffle, and windows after it (DESIGN 6, 7)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph.policies import Accumulation
from penstock.graph.specs.time_windows import LATE_OUTLET
from penstock.graph.steps import MAIN_OUTLET
from penstock.graph.windows import REVISION, Extent, LateTo, TimeWindow
from penstock.operators.aggregates import AGGREGATES, AggregatePlan
from penstock.operators.aggregates.naming import PARTIALS
from penstock.operators.protocol import (
    HASHED,
    LAYOUT,
    MAIN,
    TIME,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    RowsOfBranch,
    Send,
    StateView,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution
from penstock.operators.windows.applied_windows import AppliedFunction, emitting
from penstock.operators.windows.arrival_places import placed, ranked_together
from penstock.operators.windows.lateness import judge
from penstock.operators.windows.partials import SLICE_START, WINDOW_END
from penstock.operators.windows.revisions import panes_readable, stored_panes
from penstock.operators.windows.slice_state import FRONT, LATE, LATE_NEXT, PANES, RUNNING, SLICES, TOTAL
from penstock.operators.windows.stored_partials import GENERATION, OLDER, StoredPartials
from penstock.operators.windows.time_windows import WindowStep, begin, preaggregate, step
from penstock.operators.windows.two_stacks import sorted_front
from penstock.operators.windows.window_evolution import changed_windows, kept_now, names_in, reads
from penstock.operators.windows.window_rows import LATE_COLUMNS, late_rows
from penstock.state.parts import Combine, Merge, Part, by_name
from penstock.state.reader import Adapters
from penstock.state.references import batch_of
from penstock.state.row_layout import GROUP, HASH, conform
from penstock.state.writer import Change

__all__ = ["WindowSide", "WindowStepWork"]

_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSide:
    """Map side of a window step."""

    bound: BoundSide
    window: TimeWindow
    plan: AggregatePlan

    @property
    def visible(self) -> pa.Schema | None:
        """Return the columns of late rows, where a side stream takes them."""
        return self.bound.visible if isinstance(self.window.late, LateTo) else None

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return late rows: their own columns, then event time, watermark and step."""
        visible = self.visible
        return {} if visible is None else {LATE_OUTLET: pa.schema([*visible, *LATE_COLUMNS])}

    def differs(self, other: WindowSide) -> str | None:
        """Return that keys or partials have other types; the columns of late rows are compared where they go."""
        return None if (self.bound.keys, self.plan.fields) == (other.bound.keys, other.plan.fields) else "other types"

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Judge the rows by the watermark of the batch, and aggregate those that count into slices."""
        times = rows.table[TIME].to_numpy()
        judged = judge(times, self.window, facts.late)
        counted = judged.counted
        yield Tally(
            {
                "rows": len(times),
                "counted": int(counted.sum()),
                "late": int(judged.late.sum()),
                "partly_late": int(judged.partly_late.sum()),
                "in_no_window": int(judged.no_window.sum()),
            }
        )
        if LATE_OUTLET in facts.read and judged.late.any():
            late = rows.only(judged.late)
            table = late_rows(late.table.select([*late.visible, TIME]), watermark=facts.late, step=self.bound.name)
            yield Emit(outlet=LATE_OUTLET, rows=table, arrivals=late.arrivals)
        kept = rows if counted.all() else rows.only(counted)
        if kept.table.num_rows:
            yield Send(self._slices(kept, facts).rename_columns({HASH: HASHED}))

    def _slices(self, rows: RowsOfBranch, facts: StepFacts) -> pa.Table:
        kept = placed(rows, self.plan, batch=facts.batch, chained=self.bound.chained)
        partials = preaggregate(kept.rows, kept.order, plan=self.plan, window=self.window)
        return kept.beside(partials, self.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStepWork(WindowStep):
    """A window step after the shuffle; `applied` is the function over its windows, where there is one."""

    applied: AppliedFunction | None = None

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the output."""
        return {MAIN_OUTLET: self.output if self.applied is None else self.applied.output}

    @property
    def explained(self) -> Mapping[str, str]:
        """Return how the windows are made."""
        return {"How windows are made": self.strategy.value}

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps: keys, aggregates and windows."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.keys)
        kept = ", ".join(f"{aggregate} {result}" for aggregate, result in kept_now(self.plan))
        window = self.window
        grow = "growing " if window.extent is Extent.GROWING else ""
        until = f" until {window.allowed_lateness} us after their end" if window.allowed_lateness else ""
        panes = "all rows" if window.accumulation is Accumulation.ACCUMULATING else "new rows"
        early = f", with early panes of {panes}" if window.has_early else ""
        bounds = f"{window.size} us every {window.every} us from {window.offset}{until}{early}"
        return f"[{keys}] {kept} in {grow}windows of {bounds}"

    @property
    def described(self) -> Mapping[str, Any]:
        """Return what tells others how slices of the same key are merged."""
        return {AGGREGATES: self.plan.described()}

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return what reads partials of other aggregates as those of today; of state of an older version, by place."""
        read = self._reads(facts)
        return Adapters(dict.fromkeys(_OF_PARTIALS, read), read.generation)

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return what does the same to rows of a snapshot."""
        old = names_in(layout)
        return lambda rows: StoredPartials.of_table(self.layout, rows.column_names, old)(rows)

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return that partials of a key add up; tables show slices and panes, from which the others are rebuilt."""
        layout, keys = self.layout, tuple(self.keys.names)
        combined: dict[str, Combine] = dict.fromkeys((SLICES, LATE, RUNNING, TOTAL, LATE_NEXT), layout.combine)
        combined[FRONT] = lambda fronts: sorted_front(fronts, layout)
        parts = by_name(
            Part(name=name, identity=keys, merge=Merge.COMBINE, combine=combine, table=MAIN if name == SLICES else None)
            for name, combine in combined.items()
        )
        panes = Part(name=PANES, identity=keys, merge=Merge.LATEST, table=MAIN)
        return parts | ({PANES: panes} if self.window.has_panes else {})

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs; it accepts other aggregates, and refuses other keys and windows."""
        stored = state.stored(SLICES)
        return changed_windows(state.written_as, self.layout_name, self._reads(state.facts), stored)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        read = StoredPartials.of_table(self.layout, stored.names, names_in(layout))
        return changed_windows(layout, self.layout_name, read, stored)

    def lost(self, state: StateView) -> tuple[str, ...]:
        """Return nothing: a window reads all that a window of these keys and bounds has written."""
        return ()

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Fold in the slices, and close the windows that are due."""
        deltas = ranked_together([sent.rename_columns({HASHED: HASH}) for sent in inputs[0]], self.plan)
        with emitting(self.applied, self.keys, facts) as emitted:
            for made in self.made(state, deltas, facts):
                if isinstance(made, pa.Table):
                    yield from emitted(made)
                elif isinstance(made, Change):
                    # Each batch writes anew what it says of older generations.
                    own = {name: value for name, value in (made.facts or {}).items() if name != OLDER}
                    yield replace(made, facts={**own, **self._kept(state, facts.batch)})
                else:
                    yield made

    def made(
        self, state: StateView, deltas: Sequence[pa.Table], facts: StepFacts
    ) -> Iterator[pa.Table | Tally | Due | Change]:
        """Yield windows as the output has them, and what else a batch does."""
        return step(state, deltas, self, late_watermark=facts.late, close_watermark=facts.watermark)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, partials and `slice_start`; a row of a key and window that was revised has `window_end`."""
        of_panes = [pa.field(WINDOW_END, _UTC), pa.field(REVISION, pa.int64())] if self.window.has_panes else []
        return {MAIN: pa.schema([*self.keys, *self.plan.fields, pa.field(SLICE_START, _UTC), *of_panes])}

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the columns of revised windows: without them none was."""
        return frozenset({WINDOW_END, REVISION} if self.window.has_panes else ())

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each slice and key, or for each revised window and key."""
        readable = panes_readable(rows) if part == PANES else self.layout.readable(rows)
        return conform(readable, self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return state with these slices, all windows closed that the moment's watermark had closed."""
        table, schema = tables[MAIN], self.layout.schema
        panes: pa.Table | None = None
        if self.window.has_panes:
            if {WINDOW_END, REVISION} <= {*table.column_names}:
                panes = stored_panes(table.filter(pc.is_valid(table[WINDOW_END])), self.layout, HASHED)
            table = table.filter(pc.is_valid(table[SLICE_START]))
        placed = table.append_column(GROUP, table[SLICE_START].cast(pa.int64())).append_column(HASH, table[HASHED])
        slices = placed.select(schema.names).cast(schema)
        begun = begin(slices, self, closed_to=moment.watermark, panes=panes)
        facts = {**(begun.change.facts or {}), PARTIALS: {}, GENERATION: 0}
        return replace(begun, change=replace(begun.change, facts=facts))

    def _reads(self, facts: Mapping[str, Any]) -> StoredPartials:
        return reads(self.layout, facts, facts.get(LAYOUT))

    def _kept(self, state: StateView, batch: int) -> dict[str, Any]:
        """Return the facts that say how what the batch leaves is read."""
        read, files = self._reads(state.facts), state.manifest.files()
        oldest = min((written for name in files if (written := batch_of(name)) is not None), default=batch)
        return {PARTIALS: dict(read.old), **read.facts(batch, oldest)}


_OF_PARTIALS = (SLICES, LATE, RUNNING, FRONT, TOTAL, LATE_NEXT)

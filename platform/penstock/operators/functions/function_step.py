"""Make an operator of functions that keep state: rows are sent whole, put in order, and run in their partition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.errors import JobError, StateError, UnknownName
from penstock.graph.policies import OnError
from penstock.graph.specs.state_functions import ASIDE_OUTLET, SNAPSHOTS_OUTLET, Form, StateFunction
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import column_array, ddl_schema, integers
from penstock.operators.functions.arrow_calls import ArrowCalls
from penstock.operators.functions.calls_base import ASIDE, Calls, Emitted
from penstock.operators.functions.function_spec import DEADLINE, FunctionStep
from penstock.operators.functions.key_index import (
    BATCH_TIMERS,
    EVENT_TIMERS,
    NONE,
    PARTS,
    STATE,
    KeyIndex,
    moments,
    readable,
)
from penstock.operators.functions.row_and_timer_calls import RowCalls
from penstock.operators.functions.update_calls import UpdateCalls
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    TIMERS,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.whole_rows import WholeRows, WholeRowsStep
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.arrival import BY_TIME, Stand

__all__ = ["FunctionStepWork", "bind", "bind_side", "calls_of"]

_UTC = pa.timestamp("us", tz="UTC")
_CLOCK, _AT = "_clock", "_at"
_OWN = frozenset({GROUP, HASH, EXPIRES, DEADLINE, DELETED, _CLOCK, _AT, "_state_partition"})
"""Columns that rows of state have beside keys and state, in segments and in the tables of data checkpoints."""
_CLOCKS = {EVENT_TIMERS: "event", BATCH_TIMERS: "batch"}
_CALLS: Mapping[Form, type[Calls]] = {Form.ROWS: RowCalls, Form.ARROW: ArrowCalls, Form.UPDATE: UpdateCalls}


def bind_side(_spec: StateFunction, side: BoundSide) -> WholeRows:
    """Return the map side of a step's input: rows are sent whole."""
    return WholeRows.of(side)


def bind(spec: StateFunction, sides: Sequence[WholeRows], context: StepContext) -> FunctionStepWork:
    """Return a step; raises BadExpression and JobError for DDL and names that it cannot have."""
    (rows,), name = sides, context.name
    state = ddl_schema(spec.state, f"state= of step {name!r}")
    taken = {*_OWN, *(key.lower() for key in rows.keys.names)}
    if unfit := next((column for column in state.names if column.lower() in taken), None):
        raise JobError(f"state= of step {name!r} has a column {unfit!r}, which is a key's name or Penstock's own")
    if unfit := next((key for key in rows.keys.names if key.lower() in _OWN), None):
        raise JobError(f"a key column of step {name!r} has the name {unfit!r}, which Penstock uses for itself")
    if spec.form is Form.ARROW and spec.timeout.event_time:
        raise JobError(f"step {name!r} is vectorised, and nothing sets a deadline there: use idle(…)")
    if spec.value is not None and spec.value not in rows.visible.names:
        raise UnknownName(f"step {name!r} reads the column {spec.value!r}; the stream has {rows.visible.names}")
    output = pa.schema([*rows.keys, *state])
    if spec.output is not None:
        output = ddl_schema(spec.output, f"output= of step {name!r}")
    quarantine = spec.on_error is OnError.QUARANTINE
    added = {*ASIDE.names, "_batch"} if quarantine else set()
    if unfit := next((column for column in rows.visible.names if column.lower() in added), None):
        raise JobError(f"column {unfit!r} has the name of one that step {name!r} adds in quarantine; rename it")
    return FunctionStepWork(
        rows_as=rows,
        name=name,
        spec=replace(spec, initial=None),  # which may hold a Spark session, and that cannot be sent to a task
        keys=rows.keys,
        state=state,
        output=output,
        event=context.event,
        timed_by=_column(spec.event_time, output) if context.timed and quarantine else None,
    )


def _column(expression: str | None, columns: pa.Schema) -> str | None:
    """Return the column that an expression of Spark's is, None where it is none or computes one."""
    plain = (expression or "").strip().strip("`").lower()
    return next((name for name in columns.names if name.lower() == plain), None)


def calls_of(
    step: FunctionStep,
    state: StateView,
    moment: StepFacts,
    where: Callable[[int], str] = "row {} of the batch".format,
) -> Calls:
    """Return the calls of a batch in one partition; `where` returns in words where a row of the batch came from."""
    return _CALLS[step.spec.form](step, state, moment, where)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStepWork(WholeRowsStep, FunctionStep):
    """A step with a function, after the shuffle."""

    rows_as: WholeRows

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the columns of the output, of the quarantine with why rows are there, and of a snapshot."""
        aside = pa.schema([*self.rows_as.visible, *ASIDE, ("_batch", pa.int64())])
        return {MAIN_OUTLET: self.output, ASIDE_OUTLET: aside, SNAPSHOTS_OUTLET: self._held}

    @property
    def _held(self) -> pa.Schema:
        return pa.schema([*self.keys, *self.state])

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps for each key."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.keys)
        columns = ", ".join(f"{field.name} {field.type}" for field in self.state)
        return f"[{keys}] {columns}; {self._timeout}"

    @property
    def _timeout(self) -> str:
        timeout = self.spec.timeout
        named = [*(["idle"] if timeout.idle is not None else []), *(["event_time"] if timeout.event_time else [])]
        return f"timeout {' and '.join(named) or 'none'}"

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return that the newest row of a key hides the older; tables show state and timers, and not the index."""
        keys = tuple(self.keys.names)
        shown = {STATE: MAIN, **(dict.fromkeys(_CLOCKS, TIMERS) if TIMERS in self.tables else {})}
        return by_name(Part(name=name, identity=keys, merge=Merge.LATEST, table=shown.get(name)) for name in PARTS)

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs from what the step keeps; it accepts new, wider and moved columns."""
        stored, lost = state.schema(STATE), Evolution(refused=self.lost(state))
        if stored is None:
            return lost
        return self.evolved(state.written_as, state.manifest.keys, stored) + lost

    def lost(self, state: StateView) -> tuple[str, ...]:
        """Return that timers wait, where the form has none that fire."""
        if self.spec.form is Form.ROWS or all(state.first_group(part, None) is None for part in _CLOCKS):
            return ()
        return (f"timers wait in it, which only map_with_state fires, and it is {self.spec.form.value} now",)

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of columns that were kept as a layout says."""
        if layout == self.layout_name:
            return Evolution()
        old_keys = pa.schema([stored.field(name) for name in keys])
        old = pa.schema([field for field in stored if field.name not in _OWN.union(keys)])
        evolution = evolve(old_keys, self.keys, old, self.state)
        was = layout.rpartition("; ")[2]
        if was != self._timeout:
            # Nothing would look at the keys that are there: the index is written with them.
            evolution += Evolution(refused=(f"{was} before, and {self._timeout} now",))
        return evolution

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Run the rows, the timers and the timeouts of a batch."""
        rows = self.rows_as.received(inputs[0])
        times = rows[TIME].fill_null(NONE).to_numpy()
        keys = self.rows_as.key_table(rows)
        visible, hashes = rows.select(self.rows_as.visible.names), integers(rows, HASHED)
        calls = calls_of(self, state, facts, partial(self.rows_as.described, rows))
        done = calls.run_batch(visible, hashes, keys, times)
        arrivals = partial(self.rows_as.arrivals, rows)
        yield Emit(rows=_with_time(done.output), stand=lambda: done.output.stand, arrivals=arrivals)
        aside = _with_time(done.aside)
        aside = aside.append_column("_batch", pa.repeat(pa.scalar(facts.batch, pa.int64()), aside.num_rows))
        yield Emit(outlet=ASIDE_OUTLET, rows=aside, stand=lambda: done.aside.stand, arrivals=arrivals)
        failed = sum(row is not None for row, *_ in done.failed)
        yield Tally({"merged": rows.num_rows - failed, **({"quarantined": failed} if failed else {})})
        yield done.due
        after = yield done.change
        if SNAPSHOTS_OUTLET in facts.read:
            assert after is not None
            yield self._snapshot(after, partial(done.now_of, times=times))

    def _snapshot(self, state: StateView, now: Callable[[Ints], Ints]) -> Emit:
        """Return keys and state columns of every key that has state."""
        schema = pa.schema([*self._held, (HASHED, pa.int64())])
        live = live_rows(state, STATE, self.parts)
        tables = [self.shown(STATE, rows).append_column(HASHED, rows[HASH]).select(schema.names) for rows in live]
        whole = pa.concat_tables(tables) if tables else schema.empty_table()
        hashes = integers(whole, HASHED)
        times = now(hashes)
        stand = Stand(rows=np.full(len(times), BY_TIME, dtype=np.int64), times=times, hashes=hashes)
        rows = whole.append_column(TIME, pa.array(times))
        return Emit(outlet=SNAPSHOTS_OUTLET, rows=rows, stand=lambda: stand)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, state and `_expires`; where a function can set timers, also keys, clock and time of each."""
        both = self.spec.timeout.idle is not None and self.spec.timeout.event_time
        moments = [pa.field(name, _UTC) for name in ((EXPIRES, DEADLINE) if both else (EXPIRES,))]
        shown = {MAIN: pa.schema([*self.keys, *self.state, *moments])}
        if self.spec.form is Form.ROWS:
            shown[TIMERS] = pa.schema([*self.keys, pa.field(_CLOCK, pa.string()), pa.field(_AT, _UTC)])
        return shown

    @property
    def may_lack(self) -> frozenset[str]:
        """Return the moments of timeouts."""
        return frozenset({EXPIRES, DEADLINE})

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each key, or for each timer; `_expires` is a batch time, or else the key's deadline."""
        if part in _CLOCKS:
            keys = conform(rows.select(self.keys.names), self.keys).columns
            clock = pa.repeat(pa.scalar(_CLOCKS[part]), rows.num_rows)
            return pa.table([*keys, clock, rows[GROUP].cast(_UTC)], schema=self.tables[TIMERS])
        stored = conform(rows, pa.schema([*self.keys, *self.stored]))
        return readable(stored).cast(self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return state, index and timers; raises StateError for a key that has several rows."""
        rows, timers = tables[MAIN], tables.get(TIMERS)
        named = [rows] if timers is None else [rows, timers]
        keys = pa.concat_tables([table.select(self.keys.names).cast(self.keys) for table in named])
        ledger = KeyIndex(self, None, moment)
        ledger.open(np.concatenate([integers(table, HASHED) for table in named]), keys)
        mine = ledger.row_ids[: rows.num_rows]
        place = np.full(len(ledger.hashes), -1, dtype=np.int64)
        place[mine] = np.arange(len(mine))
        if (more := len(mine) - int((place >= 0).sum())) > 0:
            raise StateError(f"the state given to step {self.name!r} has {more:,} more rows than keys; a key has one")
        ledger.exists[mine] = ledger.changed[mine] = True
        if self.spec.timeout.idle is not None:
            expires = moments(rows, EXPIRES)
            ledger.expires[mine] = np.where(expires == NONE, moment.time + self.spec.timeout.idle, expires)
        if self.spec.timeout.event_time:
            ledger.deadlines[mine] = moments(rows, EXPIRES if self.spec.timeout.idle is None else DEADLINE)
        if timers is not None:
            parts = {clock: part for part, clock in _CLOCKS.items()}
            at: Ints = column_array(timers, _AT).cast(pa.int64()).to_numpy()
            for clock, when, key in zip(timers[_CLOCK].to_pylist(), at, ledger.row_ids[len(mine) :], strict=True):
                ledger.set_timer(parts[clock], int(when), int(key))
        taken = pa.array(place, mask=place < 0)
        change = ledger.change([column_array(rows, f.name).take(taken).cast(f.type) for f in self.state])
        due = ledger.next_due(change)
        return Rebuilt(change=change, due=due.watermark, due_time=due.time)


def _with_time(emitted: Emitted) -> pa.Table:
    """Return rows with their event times, null for a row that has none."""
    times = emitted.times
    return emitted.rows.append_column(TIME, pa.array(times, pa.int64(), mask=times == NONE))

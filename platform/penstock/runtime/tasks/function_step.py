"""Do the state work of a step with a function in one partition: order the rows, run them, give them event time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadExpression, JobError, StateError, UnknownName
from penstock.graph.nodes import Form, FunctionNode
from penstock.graph.policies import OnError
from penstock.operators.functions.function_spec import FunctionStep
from penstock.operators.functions.key_index import (
    BATCH_TIMERS,
    DEADLINE,
    EVENT_TIMERS,
    NONE,
    PARTS,
    STATE,
    BatchClock,
    KeyIndex,
    readable,
)
from penstock.operators.functions.state_functions import ASIDE, run_function
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.windows.partials import GROUP, HASH, column_array, integers
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.columns import arrow_schema, refuse_taken
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.routing import PLACE, key_column
from penstock.runtime.tasks.specs import HASHED, MAIN, TIME, TIMERS, Piece, Rebuilt, StepDone
from penstock.sources.base import PARTITION, POSITION
from penstock.state.compaction import LATEST, Combine
from penstock.state.full_compaction import live_rows
from penstock.state.keys import Bools, Ints
from penstock.state.reader import Adapters
from penstock.state.row_layout import DELETED, EXPIRES, conform
from penstock.time.arrival import ARRIVAL, arrival_order, described, of_source, split

__all__ = ["FunctionRows", "FunctionStepWork", "function_work"]

_UTC = pa.timestamp("us", tz="UTC")
_CLOCK, _AT = "_clock", "_at"
_OWN = frozenset({GROUP, HASH, EXPIRES, DEADLINE, DELETED, _CLOCK, _AT, "_state_partition"})
"""Columns that rows of state have beside keys and state, in segments and in the tables of data checkpoints."""
_CLOCKS = {EVENT_TIMERS: "event", BATCH_TIMERS: "batch"}


class _Nothing:
    """The state of a partition before there is any."""

    def lookup(self, part: str, hashes: Ints, keys: pa.Table, *, schema: pa.Schema) -> tuple[Bools, pa.Table]:
        """Find nothing."""
        none = pa.table([pa.nulls(len(hashes), field.type) for field in schema], schema=schema)
        return np.zeros(len(hashes), dtype=np.bool_), none

    def scan(self, part: str, group_from: int | None, group_to: int | None) -> Sequence[pa.Table]:
        """Return nothing."""
        return ()

    def first_group(self, part: str, at_least: int | None) -> int | None:
        """Return nothing."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRows:
    """What comes to a step: the columns that its function sees, and the key columns.

    `chained`: whether their order is told by ARRIVAL, because rows that a step has put out are among them. If not, and
    one row may come along several of `ranks` ways, its position is told as position * ranks + rank.
    """

    visible: pa.Schema
    keys: pa.Schema
    chained: bool = False
    ranks: int = 1

    def key(self, name: str) -> str:
        """Return the column by which a key is compared: its own, but for floats, of which some are made alike."""
        return key_column(name) if pa.types.is_floating(self.keys.field(name).type) else name

    @property
    def sent(self) -> pa.Schema:
        """Return the columns that travel: those of the user, place, hash, and the keys that are compared otherwise."""
        of_source = [(PARTITION, pa.int32()), (POSITION, pa.int64()), (PLACE, pa.int32())]
        hidden = [(TIME, pa.int64()), *([(ARRIVAL, pa.binary())] if self.chained else of_source)]
        keys = [pa.field(self.key(field.name), field.type) for field in self.keys if self.key(field.name) != field.name]
        return pa.schema([*self.visible, *(pa.field(*one) for one in hidden), pa.field(HASHED, pa.int64()), *keys])

    def ordered(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a batch in order of arrival (SEMANTICS 1.6)."""
        if self.chained:
            return rows.take(arrival_order(rows[ARRIVAL]))
        order = np.lexsort([rows[name].to_numpy() for name in (POSITION, PARTITION, PLACE)])
        return rows.take(pa.array(order))

    def arrivals(self, rows: pa.Table) -> pa.Array:
        """Return where such rows stand."""
        if self.chained:
            return rows[ARRIVAL].combine_chunks()
        places, partitions, positions = (rows[name].to_numpy() for name in (PLACE, PARTITION, POSITION))
        keys = of_source(places, partitions, positions // self.ranks)
        return keys if self.ranks == 1 else split(keys, positions % self.ranks)

    def described(self, rows: pa.Table, place: int) -> str:
        """Return in words where a row of such came from."""
        return described(self.arrivals(rows.slice(place, 1))[0].as_py())


def function_work(
    node: FunctionNode, rows: FunctionRows, *, event: bool, behind: tuple[str, ...] = (), timed: bool = False
) -> FunctionStepWork:
    """Return the work of a step; `behind` are the steps behind it, `timed` whether one reads its output as it is.

    Raises BadExpression and JobError for DDL and names that it cannot have.
    """
    state = _schema_of(node.state, "state", node)
    taken = {*_OWN, *(name.lower() for name in rows.keys.names)}
    if unfit := next((name for name in state.names if name.lower() in taken), None):
        raise JobError(f"state= of step {node.name!r} has a column {unfit!r}, which is a key's name or Penstock's own")
    if unfit := next((name for name in rows.keys.names if name.lower() in _OWN), None):
        raise JobError(f"a key column of step {node.name!r} has the name {unfit!r}, which Penstock uses for itself")
    if node.form is Form.ARROW and node.timeout.event_time:
        raise JobError(f"step {node.name!r} is vectorised, and nothing sets a deadline there: use idle(…)")
    if node.value is not None and node.value not in rows.visible.names:
        raise UnknownName(f"step {node.name!r} reads the column {node.value!r}; the stream has {rows.visible.names}")
    output = pa.schema([*rows.keys, *state]) if node.output is None else _schema_of(node.output, "output", node)
    refuse_taken(output.names)
    quarantine = node.on_error is OnError.QUARANTINE
    added = {*ASIDE.names, "_batch"} if quarantine else set()
    if unfit := next((name for name in rows.visible.names if name.lower() in added), None):
        raise JobError(f"column {unfit!r} has the name of one that step {node.name!r} adds in quarantine; rename it")
    spec = FunctionStep(
        name=node.name,
        form=node.form,
        fn=node.fn,
        keys=rows.keys,
        state=state,
        output=output,
        visible=tuple(rows.visible.names),
        timeout=node.timeout,
        event=event,
        quarantine=quarantine,
        value=node.value,
        touched_only=node.touched_only,
        with_key_time=node.with_key_time,
        same_rows=node.same_rows,
        timed_by=_column(node.event_time, output) if timed and quarantine else None,
    )
    return FunctionStepWork(spec, rows, behind)


def _column(expression: str | None, columns: pa.Schema) -> str | None:
    """Return the column that an expression of Spark's is, None where it is none or computes one."""
    plain = (expression or "").strip().strip("`").lower()
    return next((name for name in columns.names if name.lower() == plain), None)


def _schema_of(ddl: str, what: str, node: FunctionNode) -> pa.Schema:
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType):
        raise BadExpression(f"{what}= of step {node.name!r} is {ddl!r}, one type: write names and types, as n long")
    found = arrow_schema(parsed)
    names = [name.lower() for name in found.names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise JobError(f"{what}= of step {node.name!r} has two columns {twice!r}")
    return found


@dataclass(frozen=True, slots=True)
class FunctionStepWork:
    """The state work of a step with a function."""

    spec: FunctionStep
    rows_as: FunctionRows
    behind: tuple[str, ...] = ()
    """The steps that read what it puts out."""

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.spec.keys

    @property
    def output(self) -> pa.Schema:
        """Return the columns of the rows put out."""
        return self.spec.output

    @property
    def held(self) -> pa.Schema:
        """Return the columns of a snapshot: keys and state."""
        return pa.schema([*self.spec.keys, *self.spec.state])

    @property
    def aside(self) -> pa.Schema:
        """Return the columns of what is put in quarantine: the row's, and why it is there."""
        return pa.schema([*self.rows_as.visible, *ASIDE, ("_batch", pa.int64())])

    @property
    def layout_name(self) -> str:
        """Return in words what this step keeps for each key."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.spec.keys)
        columns = ", ".join(f"{field.name} {field.type}" for field in self.spec.state)
        return f"[{keys}] {columns}; {self._timeout}"

    @property
    def _timeout(self) -> str:
        timeout = self.spec.timeout
        named = [*(["idle"] if timeout.idle is not None else []), *(["event_time"] if timeout.event_time else [])]
        return f"timeout {' and '.join(named) or 'none'}"

    @property
    def described(self) -> Mapping[str, Any]:
        """Return nothing: the newest row of a key is its state, and columns say what they are."""
        return {}

    def adapters(self, facts: Mapping[str, Any]) -> Adapters:
        """Return nothing: a column is found by its name, and one that is new is null."""
        return Adapters()

    def adapted(self, table: str, layout: str) -> Callable[[pa.Table], pa.Table]:
        """Return rows as they are, for the same reason."""
        return lambda rows: rows

    @property
    def hash_column(self) -> str:
        """Return the column of what comes through the shuffle that has the hashes of the keys."""
        return HASHED

    @property
    def counted_as(self) -> str:
        """Return under which name the step's rows are accounted for."""
        return f"function:{self.spec.name}"

    @property
    def merge(self) -> Mapping[str, Combine | None]:
        """Return how compaction merges the rows of each part: the newest of a key hides the older."""
        return dict.fromkeys(PARTS, LATEST)

    def evolution(self, state: PartitionState) -> Evolution:
        """Return how this state differs from what the step keeps: new, wider and moved columns it can go on with."""
        stored, lost = state.schema(STATE), Evolution(refused=self.lost(state))
        if stored is None:
            return lost
        return self.evolved(state.written_as, state.reader.manifest.keys, stored) + lost

    def lost(self, state: PartitionState) -> tuple[str, ...]:
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
        found = evolve(old_keys, self.keys, old, self.spec.state)
        was = layout.rpartition("; ")[2]
        if was != self._timeout:
            # Nothing would look at the keys that are there: the index is written with them.
            found += Evolution(refused=(f"{was} before, and {self._timeout} now",))
        return found

    def run(
        self, state: PartitionState, tables: list[pa.Table], facts: BatchContext
    ) -> Generator[Piece, None, StepDone]:
        """Run the rows, the timers and the timeouts of a batch."""
        spec = self.spec
        sent = self.rows_as.sent
        rows = pa.concat_tables([table.cast(sent) for table in tables]) if tables else sent.empty_table()
        rows = self.rows_as.ordered(rows).combine_chunks()
        times = rows[TIME].fill_null(NONE).to_numpy()
        keys = pa.table([rows[self.rows_as.key(name)] for name in spec.keys.names], schema=spec.keys)
        judged = max((mark for name in self.behind if (mark := facts.late[name]) is not None), default=None)
        moment = BatchClock(
            batch=facts.batch,
            time=facts.time,
            watermark=facts.close[spec.name],
            judged=judged,
            reached=facts.reached.get(spec.name),
            epoch=facts.epoch,
        )
        visible, hashes = rows.select(spec.visible), integers(rows, HASHED)
        done = run_function(spec, state, visible, hashes, keys, times, moment, partial(self.rows_as.described, rows))
        aside = done.aside.append_column("_batch", pa.repeat(pa.scalar(facts.batch, pa.int64()), done.aside.num_rows))
        arrivals = partial(self.rows_as.arrivals, rows)
        yield Piece(rows=_with_time(done.output, done.times), stand=lambda: done.stand, arrivals=arrivals)
        return StepDone(
            change=done.change,
            due=done.due,
            due_time=done.due_time,
            rows=done.rows,
            aside=Piece(rows=_with_time(aside, done.aside_times), stand=lambda: done.aside_stand, arrivals=arrivals),
            aside_rows=done.aside_rows,
            now=done.now,
        )

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, state and `_expires`; where a function can set timers, also keys, clock and time of each."""
        both = self.spec.timeout.idle is not None and self.spec.timeout.event_time
        moments = [pa.field(name, _UTC) for name in ((EXPIRES, DEADLINE) if both else (EXPIRES,))]
        shown = {MAIN: pa.schema([*self.spec.keys, *self.spec.state, *moments])}
        if self.spec.form is Form.ROWS:
            shown[TIMERS] = pa.schema([*self.spec.keys, pa.field(_CLOCK, pa.string()), pa.field(_AT, _UTC)])
        return shown

    @property
    def shown_in(self) -> Mapping[str, str]:
        """Return where state and timers stand; the index is made again."""
        return {STATE: MAIN, **(dict.fromkeys(_CLOCKS, TIMERS) if TIMERS in self.tables else {})}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return a row for each key, or for each timer; `_expires` is a batch time, or else the key's deadline."""
        if part in _CLOCKS:
            keys = conform(rows.select(self.keys.names), self.keys).columns
            clock = pa.repeat(pa.scalar(_CLOCKS[part]), rows.num_rows)
            return pa.table([*keys, clock, rows[GROUP].cast(_UTC)], schema=self.tables[TIMERS])
        stored = conform(rows, pa.schema([*self.spec.keys, *self.spec.kept.stored]))
        return readable(stored).cast(self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: BatchClock) -> Rebuilt:
        """Return state, index and timers; raises StateError for a key that has several rows."""
        spec, rows, timers = self.spec, tables[MAIN], tables.get(TIMERS)
        named = [rows] if timers is None else [rows, timers]
        keys = pa.concat_tables([table.select(self.keys.names).cast(self.keys) for table in named])
        ledger = KeyIndex(spec.kept, _Nothing(), moment)
        ledger.open(np.concatenate([integers(table, HASHED) for table in named]), keys)
        mine = ledger.row_ids[: rows.num_rows]
        place = np.full(len(ledger.hashes), -1, dtype=np.int64)
        place[mine] = np.arange(len(mine))
        if (more := len(mine) - int((place >= 0).sum())) > 0:
            raise StateError(f"the state given to step {spec.name!r} has {more:,} more rows than keys; a key has one")
        ledger.exists[mine] = ledger.changed[mine] = True
        if spec.timeout.idle is not None:
            said = _moments(rows, EXPIRES)
            ledger.expires[mine] = np.where(said == NONE, moment.time + spec.timeout.idle, said)
        if spec.timeout.event_time:
            ledger.deadlines[mine] = _moments(rows, EXPIRES if spec.timeout.idle is None else DEADLINE)
        if timers is not None:
            parts = {clock: part for part, clock in _CLOCKS.items()}
            at: Ints = column_array(timers, _AT).cast(pa.int64()).to_numpy()
            for clock, when, key in zip(timers[_CLOCK].to_pylist(), at, ledger.row_ids[len(mine) :], strict=True):
                ledger.set_timer(parts[clock], int(when), int(key))
        taken = pa.array(place, mask=place < 0)
        change = ledger.change([column_array(rows, f.name).take(taken).cast(f.type) for f in spec.state])
        due, due_time = ledger.next_due(change)
        if spec.every_batch and ledger.exists.any():
            due_time = moment.time + 1  # at the next tick
        return Rebuilt(change=change, due=due, due_time=due_time)

    def whole(self, state: PartitionState) -> pa.Table:
        """Return keys and state columns of every key that has state, and the hash of the key."""
        live = live_rows(state.reader, STATE, self.merge)
        tables = [self.shown(STATE, rows).append_column(HASHED, rows[HASH]) for rows in live]
        columns = pa.schema([*self.held, (HASHED, pa.int64())])
        return pa.concat_tables([table.select(columns.names) for table in tables]) if tables else columns.empty_table()

    def rows(self, state: PartitionState) -> list[dict[str, Any]]:
        """Return keys, state and `_expires`, behind which the key is forgotten: a batch time, or else its deadline."""
        shown = self._newest(state)
        rows: list[dict[str, Any]] = shown.to_pylist()
        return rows

    def _newest(self, state: PartitionState) -> pa.Table:
        """Return the main table of a partition."""
        tables = [self.shown(STATE, rows) for rows in live_rows(state.reader, STATE, self.merge)]
        return pa.concat_tables(tables) if tables else self.tables[MAIN].empty_table()


def _with_time(rows: pa.Table, times: Ints) -> pa.Table:
    """Add the event times of rows, null for a row that has none."""
    return rows.append_column(TIME, pa.array(times, pa.int64(), mask=times == NONE))


def _moments(rows: pa.Table, name: str) -> Ints:
    """Return a column of moments, NONE where the table does not say."""
    if name not in rows.column_names:
        return np.full(rows.num_rows, NONE, dtype=np.int64)
    found: Ints = column_array(rows, name).cast(pa.int64()).fill_null(NONE).to_numpy()
    return found

"""Lay out the state of windows of rows, and what shows and rebuilds it.

Parts, all with `_hash` and the key columns:

- `waiting`: rows that no round has seen. `_group` is their time. It is the only part where length and slide are both
  durations. There a floor removes what is too old for all windows.
- `rows`: rows that a window has, or that the next one may have. Where later rows push a row out of a window, it stays
  for the next view. `_group` is `_arrived`, and tombstones remove them. Without keys a floor does.
- `keys`: for each key the end of its last round, where rows are counted in event time, and the batch time of its last
  row, where keys have a TTL.
- `idle`: an entry for each key with a TTL. `_group` is the batch time that checks it.

`_arrived` is the place in the order of arrival: the batch times 2**32, plus the number of the row in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import JobError
from penstock.graph.durations import Duration
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.operators.columns import column_array
from penstock.operators.functions.key_index import NONE
from penstock.operators.protocol import MAIN, StateView
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.tuple_windows.tuple_side import behind_by
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH
from penstock.time.clock import END_OF_TIME

__all__ = [
    "ARRIVED",
    "AT",
    "CLOSED",
    "ENTERED",
    "FIRED",
    "IDLE",
    "KEYS",
    "ROWS",
    "SEEN",
    "WAITING",
    "TupleLayout",
    "booleans",
    "micros",
]

WAITING, ROWS, KEYS, IDLE = "waiting", "rows", "keys", "idle"
ARRIVED, AT, ENTERED, FIRED, SEEN = "_arrived", "_time", "_entered", "_fired", "_seen"
CLOSED = "closed"
"""The fact that has the end of the last round, where the slide is a duration."""
_UTC = pa.timestamp("us", tz="UTC")
_OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, ARRIVED, AT, ENTERED, FIRED, SEEN, "_state_partition"})
_LAYOUT = "rows of windows: "


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleLayout:
    """The columns and parts of the state; a plain value that can be pickled.

    `columns` are those that are kept of each row, without the keys. `aggregated` is whether no function sees the rows.
    """

    name: str
    window: TupleWindow
    keys: pa.Schema
    columns: pa.Schema
    aggregated: bool = False

    def __post_init__(self) -> None:
        """Raise JobError for a name that is taken."""
        if taken := next((n for n in (*self.keys.names, *self.columns.names) if n.lower() in _OWN), None):
            raise JobError(f"window {self.name!r} reads a column {taken!r}, a name that Penstock uses for itself")

    # --- the form of the window -----------------------------------------------------------------

    @property
    def event(self) -> bool:
        """Return whether the time of rows is event time."""
        return self.window.time is Time.EVENT

    @property
    def length(self) -> int | None:
        """Return the length in microseconds, None where it is a count."""
        return self.window.length.micros if isinstance(self.window.length, Duration) else None

    @property
    def slide(self) -> int | None:
        """Return the slide in microseconds, None where it is a count."""
        return self.window.slide.micros if isinstance(self.window.slide, Duration) else None

    @property
    def by_clock(self) -> bool:
        """Return whether the time of rows alone says what keeps them: length and slide are durations."""
        return self.length is not None and self.slide is not None

    @property
    def counts_in_event_time(self) -> bool:
        """Return whether the last end of each key says which rows count."""
        return self.event and self.slide is None

    @property
    def pushes(self) -> bool:
        """Return whether later rows push a row out at once: a count each duration of batch time.

        Rows enter in the order of arrival, so that the last ones are those of the next window.
        """
        return not self.event and self.length is None and self.slide is not None

    @property
    def counted(self) -> int:
        """Return the length as a number of rows, 0 where it is a duration."""
        return int(getattr(self.window.length, "rows", 0))

    @property
    def prunes(self) -> bool:
        """Return whether rows that wait leave before their end: a count each duration of event time, for aggregates."""
        return self.event and self.length is None and self.slide is not None and self.aggregated

    @property
    def idle(self) -> int | None:
        """Return the TTL; rows of durations go by themselves."""
        return None if self.by_clock else self.window.idle

    def clock(self, *, time: int, watermark: int | None) -> int | None:
        """Return the time up to which windows are evaluated.

        A row at the watermark may still come (SEMANTICS 2.2), and the window that ends there has it. So ends that are
        multiples of a duration wait until the watermark has passed them.
        """
        if not self.event:
            return time
        clock = behind_by(watermark, self.window.lag)
        return clock if clock is None or clock == END_OF_TIME or self.slide is None else max(clock - 1, NONE)

    def last_end(self, clock: int | None, origin: int) -> int | None:
        """Return the last end that a clock has reached, or with a count as slide the clock itself."""
        if clock is None or self.slide is None or clock == END_OF_TIME:
            return clock
        return clock - (clock - origin) % self.slide

    # --- parts ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> pa.Schema:
        """Return the columns of the part `waiting`."""
        return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, *self.placed, *self.columns])

    @property
    def rows(self) -> pa.Schema:
        """Return the columns of the part `rows`."""
        more = [(ENTERED, pa.bool_()), *self.columns, (DELETED, pa.bool_())]
        return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, *self.placed, *more])

    @property
    def of_keys(self) -> pa.Schema:
        """Return the columns of the part `keys`."""
        hidden = [(GROUP, pa.int64()), (HASH, pa.int64())]
        return pa.schema([*hidden, *self.keys, (FIRED, _UTC), (SEEN, _UTC), (DELETED, pa.bool_())])

    @property
    def placed(self) -> pa.Schema:
        """Return the columns for the place and the time of a row."""
        return pa.schema([(ARRIVED, pa.int64()), (AT, _UTC)])

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return the parts that the form has; the main table shows all but the index."""
        kinds = {WAITING: Merge.APPEND, ROWS: Merge.LATEST, KEYS: Merge.LATEST, IDLE: Merge.LATEST}
        keys = tuple(self.keys.names)
        return by_name(
            Part(name=name, identity=keys, merge=kind, table=None if name == IDLE else MAIN)
            for name, kind in kinds.items()
        )

    @property
    def table(self) -> pa.Schema:
        """Return the columns of the main table.

        A row of a key has `_seen` and no `_time`; a row that waits has no `_entered`.
        """
        own = [*self.placed, (ENTERED, pa.bool_()), (FIRED, _UTC), (SEEN, _UTC)]
        return pa.schema([*self.keys, *own, *self.columns])

    # --- evolution ------------------------------------------------------------------------------

    @property
    def described(self) -> str:
        """Return in words what this step keeps."""
        keys = ", ".join(f"{field.name} {field.type}" for field in self.keys)
        return _LAYOUT + json.dumps({"keys": keys, "window": str(self.window)})

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs from what the step keeps."""
        changed = self._changed(state.written_as)
        for part in (WAITING, ROWS):
            stored = state.schema(part)
            if stored is not None and not changed.refused:
                changed += self._evolved(stored)
        return changed

    def evolved(self, layout: str, stored: pa.Schema) -> Evolution:
        """Return the same of columns that were kept as a layout says."""
        changed = self._changed(layout)
        return changed if changed.refused else changed + self._evolved(stored)

    def _changed(self, layout: str) -> Evolution:
        if layout == self.described:
            return Evolution()
        if not layout.startswith(_LAYOUT):
            return Evolution(refused=(f"it keeps {layout}, where this window keeps {self.described}",))
        was, now = (json.loads(text.removeprefix(_LAYOUT)) for text in (layout, self.described))
        names = [name for name in now if was.get(name) != now[name]]
        return Evolution(refused=tuple(f"{name} was {was.get(name)!r} and is {now[name]!r}" for name in names))

    def _evolved(self, stored: pa.Schema) -> Evolution:
        own = {*_OWN, *self.keys.names}
        return evolve(self.keys, self.keys, pa.schema([f for f in stored if f.name not in own]), self.columns)

    # --- rows of parts --------------------------------------------------------------------------

    def entries_due(self, state: StateView, time: int) -> list[pa.Table]:
        """Return the entries of the part `idle` that are due at a batch time."""
        return [] if self.idle is None else state.scan(IDLE, None, time + 1)

    def entries(self, groups: Ints, rows: pa.Table) -> pa.Table:
        """Return rows of the part `idle` for the keys of some rows."""
        schema = pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys])
        return pa.table([pa.array(groups), rows[HASH], *(rows[n] for n in self.keys.names)], schema=schema)

    def stored(self, part: str, rows: pa.Table, **own: Any) -> pa.Table:
        """Return rows of a part: those of `own` columns, and the others of `rows`."""
        schema = {WAITING: self.waiting, ROWS: self.rows, KEYS: self.of_keys}[part]
        columns: Sequence[Any] = [pa.array(own[f.name]) if f.name in own else rows[f.name] for f in schema]
        typed = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.table(typed, schema=schema)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Return stored rows with the columns of the main table."""
        known = {*rows.column_names}
        columns = [
            rows[f.name].cast(f.type) if f.name in known else pa.nulls(rows.num_rows, f.type) for f in self.table
        ]
        return pa.table(columns, schema=self.table)


def micros(rows: pa.Table, name: str, *, null: int = 0) -> Ints:
    """Return a column of moments as microseconds."""
    times: Ints = column_array(rows, name).cast(pa.int64()).fill_null(null).to_numpy()
    return times


def booleans(rows: pa.Table, name: str) -> Bools:
    """Return a column of booleans, null as false."""
    filled = pc.fill_null(column_array(rows, name), False)  # noqa: FBT003 - Arrow takes it by place
    values: Bools = filled.to_numpy(zero_copy_only=False)
    return values

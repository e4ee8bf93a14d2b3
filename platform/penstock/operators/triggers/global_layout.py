"""The state of global windows: what is kept for each key, its rows, and when it is judged again (SEMANTICS 6).

`state` has a row for each key: the trigger and its slots, and how many rows the window has. Where rows are merged, it
has their partial aggregates too. `rows` has the rows of the windows; `_group` is the number of a row among those of its
key, which begins at 0 when the window is empty. In both the newest row hides the older, and a tombstone both.
`event_due` and `time_due` have entries that say when to judge a key though no row comes, in `_group`: by the watermark,
and by the batch time. A key always has one at or before that moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import JobError
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.functions.key_index import NONE, STATE, moments
from penstock.operators.protocol import MAIN
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.state.keys import Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH
from penstock.time.clock import END_OF_TIME

__all__ = [
    "EVENT_DUE",
    "EVENT_TIME",
    "HELD",
    "INPUT",
    "LAYOUT_OF",
    "NEXT",
    "ROW",
    "ROWS",
    "SLOTS",
    "STATE",
    "TIMED",
    "TIME_DUE",
    "TRIGGER",
    "TTL",
    "VALUES",
    "GlobalLayout",
    "counted_from",
    "expiries",
]

ROWS, EVENT_DUE, TIME_DUE = "rows", "event_due", "time_due"
TRIGGER, SLOTS, VALUES, HELD, NEXT = "_trigger", "_slots", "_values", "_held", "_next"
ROW, EVENT_TIME, INPUT = "_row", "_event_time", "_input_"
LAYOUT_OF = "global windows: "
TTL = "_ttl"
"""The `ttl` that the moment at which a key expires was computed by; null in state of an older version."""
TIMED = "ttl"
"""The fact that has the `ttl` of keys, in microseconds; False, or none, for none.

State of an older version has True where it had one.
"""
_UTC = pa.timestamp("us", tz="UTC")
_LAST = END_OF_TIME - 2
"""The last moment at which a key may expire: one microsecond later it is due."""
_OF_KEY = pa.schema(
    [
        (TRIGGER, pa.string()),
        (SLOTS, pa.list_(pa.int64())),
        (VALUES, pa.list_(pa.string())),
        (HELD, pa.int64()),
        (NEXT, pa.int64()),
        ("_" + EVENT_DUE, pa.int64()),
        ("_" + TIME_DUE, pa.int64()),
    ]
)
_OWN = frozenset({GROUP, HASH, EXPIRES, TTL, DELETED, ROW, EVENT_TIME, "_deadline", "_state_partition", *_OF_KEY.names})
"""Columns that rows of state have beside those of the stream, in segments and in the tables of data checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLayout:
    """The columns that are kept; a plain value that can be pickled.

    Attributes:
        keys: The key columns.
        trigger: The trigger in words. State that was written under another one begins again.
        columns: The columns of the stream that rows keep beside the keys.
        inputs: The columns of what aggregates and evictor read of rows, by expression.
        plan: The aggregates; None for a function.
        merged: Whether the rows of a window are merged into partials, so that no row is kept.
    """

    keys: pa.Schema
    trigger: str
    columns: pa.Schema
    inputs: Mapping[str, pa.DataType]
    plan: AggregatePlan | None
    merged: bool

    def check(self, what: str) -> None:
        """Raise JobError for names that the state takes for itself."""
        partials = () if self.plan is None or not self.merged else (field.name for field in self.plan.fields)
        own = {name.lower() for name in (*_OWN, *partials)}
        for name in (*self.keys.names, *self.columns.names):
            if name.lower() in own or name.lower().startswith(INPUT):
                raise JobError(f"{what} has a column {name!r}, a name that Penstock uses for itself; rename it")

    @property
    def of_key(self) -> pa.Schema:
        """Return the columns of a row of `state`, without group, hash and keys."""
        partials = self.plan.fields if self.plan is not None and self.merged else ()
        # A key without rows has no partials.
        times = [(EXPIRES, pa.int64()), (TTL, pa.int64())]
        return pa.schema([*_OF_KEY, *times, *(field.with_nullable(nullable=True) for field in partials)])

    @property
    def of_row(self) -> pa.Schema:
        """Return the columns of a row of `rows`, without group, hash and keys."""
        return pa.schema([(ROW, pa.int64()), (EVENT_TIME, _UTC), *self.columns, *self.input_columns])

    @property
    def input_columns(self) -> pa.Schema:
        """Return the columns of the inputs."""
        return pa.schema([(f"{INPUT}{number}", kind) for number, kind in enumerate(self.inputs.values())])

    def input_of(self, expression: str) -> str:
        """Return the column of an expression."""
        return f"{INPUT}{list(self.inputs).index(expression)}"

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return that newest rows hide older ones; the main table shows keys and rows, and entries follow from them."""
        shown = {STATE: MAIN, **({} if self.merged else {ROWS: MAIN}), EVENT_DUE: None, TIME_DUE: None}
        keys = tuple(self.keys.names)
        return by_name(Part(name=n, identity=keys, merge=Merge.LATEST, table=table) for n, table in shown.items())

    @property
    def table(self) -> pa.Schema:
        """Return the columns of the main table. Rows of the window have `_row`, and those of keys have none."""
        of_key = [field.with_type(_UTC) if field.name == EXPIRES else field for field in self.of_key]
        return pa.schema([*self.keys, *of_key, *(() if self.merged else self.of_row)])

    def rows(self, groups: Ints, hashes: Ints, keys: pa.Table, of: pa.Table, *, deleted: bool = False) -> pa.Table:
        """Return rows of a part that have these columns, all of them live ones or all of them tombstones."""
        marks = pa.array(np.full(len(hashes), deleted, dtype=np.bool_))
        columns = [pa.array(groups), pa.array(hashes), *keys.columns, *of.columns, marks]
        hidden = [(GROUP, pa.int64()), (HASH, pa.int64())]
        return pa.table(columns, schema=pa.schema([*hidden, *self.keys, *of.schema, (DELETED, pa.bool_())]))

    def entries(self, groups: Ints, hashes: Ints, keys: pa.Table) -> pa.Table:
        """Return entries of `event_due` or `time_due`."""
        hidden = [(GROUP, pa.int64()), (HASH, pa.int64())]
        columns = [pa.array(groups), pa.array(hashes), *keys.columns]
        return pa.table(columns, schema=pa.schema([*hidden, *self.keys]))

    # --- compared with what was kept ----------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return what is kept; the trigger is in it to say that it has changed."""
        return LAYOUT_OF + json.dumps({"trigger": self.trigger, **self._kept})

    @property
    def _kept(self) -> dict[str, Any]:
        return {
            "keys": ", ".join(f"{field.name} {field.type}" for field in self.keys),
            "keeps": "partials" if self.merged else "rows",
            "inputs": [f"{sql} {kind}" for sql, kind in self.inputs.items()],
            "partials": [f"{f.name} {f.type}" for f in self.plan.fields]
            if self.plan is not None and self.merged
            else [],
        }

    def evolved(self, layout: str, stored: pa.Schema | None) -> Evolution:
        """Return how state that was kept as a layout says differs; `stored` are the columns of its rows.

        Another trigger begins again. Columns of rows may be new, wider, or stand elsewhere.
        """
        if not layout.startswith(LAYOUT_OF):
            return Evolution(refused=(f"it keeps {layout}, where a global window keeps {self.layout_name}",))
        was = json.loads(layout.removeprefix(LAYOUT_OF))
        trigger = was.pop("trigger")
        changed = Evolution()
        for name, now in self._kept.items():
            if was.get(name) != now:
                changed += Evolution(refused=(f"its {name} were {_listed(was.get(name))} and are {_listed(now)}",))
        if trigger != self.trigger:
            changed += Evolution(
                accepted=(f"the trigger was {trigger} and is {self.trigger}, which begins with the next row of a key",)
            )
        if stored is None or self.merged or changed.refused:
            return changed
        own = {*_OWN, *self.keys.names, *self.input_columns.names}
        return changed + evolve(self.keys, self.keys, pa.schema([f for f in stored if f.name not in own]), self.columns)


def counted_from(of_keys: pa.Table) -> Ints:
    """Return the batch times that the `ttl` of keys counts from; NONE where a row of their state does not say it."""
    expires, ttl = moments(of_keys, EXPIRES), moments(of_keys, TTL)
    known = (expires != NONE) & (ttl != NONE) & (expires < _LAST)
    return np.where(known, expires - np.where(known, ttl, 0), NONE)


def expiries(ttl_from: Ints, expires: Ints, ttl: int, time: int) -> Ints:
    """Return when keys expire by a `ttl`, whatever it was before: that long after the moment that it counts from.

    Args:
        ttl_from: int64: these moments, NONE where they are not known.
        expires: int64: when keys of which they are not known would expire by the `ttl` of before, NONE for never.
        ttl: The `ttl` in microseconds.
        time: The batch time, from which it counts at the latest for such keys.
    """
    latest = min(time + ttl, _LAST)
    not_known = np.where(expires == NONE, latest, np.minimum(expires, latest))
    counted: Ints = np.where(ttl_from == NONE, not_known, np.minimum(ttl_from, _LAST - ttl) + ttl)
    return counted


def _listed(kept: str | Sequence[str] | None) -> str:
    return kept or "none" if kept is None or isinstance(kept, str) else ", ".join(kept) or "none"

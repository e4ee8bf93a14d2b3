"""Describe the state of `join`: the rows of both inputs that may still match, and those that nothing has matched yet.

The state of a partition has a part for each input, `left` and `right`. A row has `_hash`, the keys, `_side`,
`_event_time`, and the other columns of its input. `_batch` and `_number` are its place in the order of arrival, the
number being that among rows of its key and side. `_group` is the start of its time slice.

The parts of an inner join append. A row of an outer side has `_matched` too. Its first match writes it again, and its
emission writes a tombstone, so the newest row of a key and place hides the older. `unmatched_left` or
`unmatched_right` has an entry for each row that was not matched when it arrived. `_group` is its event time, which
finds those that are due. An entry is no proof: the row itself says whether it was matched since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.graph.durations import Duration
from penstock.graph.specs.join import SIDES, JoinKind
from penstock.operators.columns import column_array
from penstock.operators.interval_pairs import shifted, slice_starts
from penstock.operators.joined_rows import KEPT, OWN, JoinedRows
from penstock.operators.protocol import HASHED, MAIN, Rebuilt, StateView, StepFacts
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.whole_rows import WholeRows
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.clock import END_OF_TIME

__all__ = ["MATCHED", "WAITING", "WIDTHS", "JoinLayout"]

WAITING = ("unmatched_left", "unmatched_right")
"""The parts with the entries of rows that wait for a match, by side."""
MATCHED = "_matched"
WIDTHS = "slices"
"""The fact that has the width of the slices of each part, in microseconds. Stored rows keep it if the bounds change."""
_SLICES, _LEAST_WIDTH = 8, 1_000_000
"""A row stays at most an eighth of its time too long, or a second, and few slices are searched for a key."""
_LEAST = -(2**63)
_LAYOUT = "rows of both inputs: "


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLayout(JoinedRows):
    """The state of the step; the bounds are in microseconds, and inclusive."""

    name: str
    inputs: tuple[WholeRows, ...]
    earliest: int
    latest: int
    how: JoinKind = JoinKind.INNER

    # --- when rows are of use -----------------------------------------------------------------

    def reach(self, side: int) -> tuple[int, int]:
        """Return the bounds of the other input's event time minus that of a row of this one."""
        return (self.earliest, self.latest) if side == 0 else (-self.latest, -self.earliest)

    def useful(self, side: int, times: Ints, watermark: int | None) -> Bools:
        """Return which rows can match one that is not older than the watermark."""
        return shifted(times, self.reach(side)[1]) >= (_LEAST if watermark is None else watermark)

    def last_matches(self, side: int, times: Ints) -> Ints:
        """Return the latest event time that could match each row; a row waits for a watermark beyond it."""
        return np.minimum(shifted(times, self.reach(side)[1]), END_OF_TIME - 1)

    @property
    def widths(self) -> dict[str, int]:
        """Return the width of a slice of each part: by how long its rows are of use, which differs."""
        return {part: min(max(_LEAST_WIDTH, self.reach(s)[1] // _SLICES), 2**60) for s, part in enumerate(SIDES)}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return what this step keeps; the bounds, right - left in microseconds, say which rows are there."""
        columns = {part: self.columns(side).names for side, part in enumerate(SIDES)}
        how = {} if self.how is JoinKind.INNER else {"how": self.how.value}
        return _LAYOUT + json.dumps({"keys": self.key_words, **columns, "within": [self.earliest, self.latest], **how})

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return a part for each input, which the main table shows, and one for the entries of each outer side."""
        keys = tuple(self.keys.names)
        place = (*keys, "_batch", "_number")
        made = [
            Part(name=side, identity=place, merge=Merge.LATEST, table=MAIN)
            if outer
            else Part(name=side, identity=keys, merge=Merge.APPEND, table=MAIN)
            for side, outer in zip(SIDES, self.how.outer, strict=True)
        ]
        waiting = [name for name, outer in zip(WAITING, self.how.outer, strict=True) if outer]
        return by_name([*made, *(Part(name=name, identity=keys, merge=Merge.APPEND) for name in waiting)])

    def by_key(self, side: int) -> Part:
        """Return the part of an input as one in which all rows of a key are found, also those that others hide."""
        return Part(name=SIDES[side], identity=tuple(self.keys.names), merge=Merge.APPEND)

    def stored(self, side: int) -> pa.Schema:
        """Return the columns of a part."""
        outer = [(MATCHED, pa.bool_()), (DELETED, pa.bool_())] if self.how.outer[side] else []
        return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, *KEPT, *outer, *self.columns(side)])

    @property
    def entry(self) -> pa.Schema:
        """Return the columns of an entry."""
        return pa.schema(
            [(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, KEPT.field("_batch"), KEPT.field("_number")]
        )

    def entries(self, rows: pa.Table, times: Ints) -> pa.Table:
        """Return the entries of rows that wait."""
        group = rows.schema.get_field_index(GROUP)
        return conform(rows.set_column(group, GROUP, pa.array(times)), self.entry)

    # --- how it may differ --------------------------------------------------------------------

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs."""
        changed = self._changed(state.written_as)
        for side, part in enumerate(SIDES):
            stored = state.schema(part)
            if stored is not None and not changed.refused:
                changed += self._evolved(stored, self.columns(side))
        return changed

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        changed = self._changed(layout)
        if not changed.refused:
            # A column that has moved to the other input is one that is gone and one that is new.
            for side, part in enumerate(SIDES):
                names = _kept_by(layout)[part]
                changed += self._evolved(pa.schema([f for f in stored if f.name in names]), self.columns(side))
        return changed

    def _changed(self, layout: str) -> Evolution:
        """Return how keys, kind and bounds differ. Narrower bounds need no row that wider ones have forgotten."""
        if not layout.startswith(_LAYOUT):
            return Evolution(refused=(f"it keeps {layout}, where join keeps {self.layout_name}",))
        was, refused = _kept_by(layout), []
        if was["keys"] != self.key_words:
            refused.append(f"its keys were [{was['keys']}] and are [{self.key_words}]")
        if (how := was.get("how", JoinKind.INNER.value)) != self.how.value:
            refused.append(
                f"how was {how!r} and is {self.how.value!r}: which rows had a match is known for outer sides only; "
                "start the new kind of join under another name"
            )
        earliest, latest = was["within"]
        if self.earliest < earliest or self.latest > latest:
            before, now = ((Duration(a), Duration(b)) for a, b in ((earliest, latest), (self.earliest, self.latest)))
            refused.append(
                f"within was from {before[0]} to {before[1]} and is from {now[0]} to {now[1]}: rows that only the "
                "wider bounds need are forgotten"
            )
        return Evolution(refused=tuple(refused))

    def _evolved(self, stored: pa.Schema, columns: pa.Schema) -> Evolution:
        own = {*OWN, *self.keys.names, *([MATCHED] if any(self.how.outer) else [])}
        return evolve(self.keys, self.keys, pa.schema([f for f in stored if f.name not in own]), columns)

    # --- how it is shown ----------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, `_side`, `_event_time`, the place in the order of arrival, and the columns of both inputs.

        Of an outer join also `_matched`, which is null for rows of a side that is not outer.
        """
        matched = [(MATCHED, pa.bool_())] if any(self.how.outer) else []
        return {MAIN: pa.schema([*self.keys, *KEPT, *matched, *self.columns(0), *self.columns(1)])}

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the rows that may match at the moment, or wait; raises StateError for a row that lacks what it needs.

        A row without a match that is due stays: the next batch emits it.
        """
        rows = tables[MAIN]
        append, due = {}, []
        for side, (part, mine) in enumerate(zip(SIDES, self.sides_of(rows), strict=True)):
            times: Ints = column_array(mine, "_event_time").cast(pa.int64()).to_numpy()
            hidden = {GROUP: slice_starts(times, self.widths[part]), DELETED: np.zeros(len(times), dtype=np.bool_)}
            whole = mine.append_column(HASH, mine[HASHED])
            for name, column in hidden.items():
                whole = whole.append_column(name, pa.array(column))
            kept = conform(whole, self.stored(side))
            useful = self.useful(side, times, moment.watermark)
            if self.how.outer[side]:
                if none := mine[MATCHED].null_count:
                    raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {MATCHED}")
                waits = ~column_array(mine, MATCHED).to_numpy(zero_copy_only=False).astype(np.bool_)
                useful |= waits
                append[WAITING[side]] = self.entries(kept.filter(pa.array(waits)), times[waits])
                due += [int(last) + 1 for last in self.last_matches(side, np.sort(times[waits])[:1])]
            append[part] = kept.filter(pa.array(useful))
        return Rebuilt(
            change=Change(append=append, facts={WIDTHS: self.widths}), due=min(due, default=None), due_time=None
        )


def _kept_by(layout: str) -> dict[str, Any]:
    """Return what a layout says: `keys` in words, the columns of `left` and `right`, `within`, and `how` if outer."""
    kept: dict[str, Any] = json.loads(layout.removeprefix(_LAYOUT))
    return kept

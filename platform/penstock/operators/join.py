"""Run `join`: emit each pair of rows with equal keys whose event times differ by what the bounds allow.

The state of a partition has two parts, `left` and `right`, with the rows that may still match. Parts append. A row has
`_hash`, the keys, `_side`, `_event_time`, and the other columns of its input. `_batch` and `_number` are its place in
the order of arrival, the number being that among rows of its key and side. `_group` is the start of its time slice.

A pair belongs to the row that arrives later, which finds the other one in the state or among earlier rows of its
batch. Late rows never reach the step, so a row is of no use once the watermark has passed all that it could match.
Then the output is the same with and without it. So it follows from rows and watermarks alone. Whole slices are
removed by the floor of the part with the next batch, and removal asks for none.

A batch costs what its rows, their candidates and its pairs cost. Candidates are rows of the batch's keys in the slices
that the bounds reach.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import JobError, StateError
from penstock.graph.durations import Duration
from penstock.graph.specs.join import IntervalJoin
from penstock.graph.steps import MAIN_OUTLET
from penstock.operators.columns import column_array, integers
from penstock.operators.grouping import group_rows
from penstock.operators.interval_pairs import (
    Moments,
    number_in_key,
    pairs_within,
    pieces,
    row_bytes,
    shifted,
    slice_start,
    slice_starts,
)
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    RowsOfBranch,
    Send,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution, evolve
from penstock.operators.whole_rows import WholeRows, WholeRowsStep
from penstock.state.keys import Bools, Ints
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import DELETED, EXPIRES, GROUP, HASH, conform
from penstock.state.writer import Change
from penstock.time.arrival import Stand, arrival_ranks

__all__ = ["JoinStep", "bind", "bind_side"]

SIDES = ("left", "right")
"""The inputs, which are parts of the state, values of `_side`, and names in the accounting."""
_KEPT = pa.schema(
    [
        ("_side", pa.string()),
        ("_event_time", pa.timestamp("us", tz="UTC")),
        ("_batch", pa.int64()),
        ("_number", pa.int64()),
    ]
)
_OWN = frozenset({GROUP, HASH, EXPIRES, DELETED, "_deadline", "_state_partition", *_KEPT.names})
"""Columns that rows of state have beside those of the input, in segments and in the tables of data checkpoints."""
_WIDTHS = "slices"
"""The fact that has the width of the slices of each part, in microseconds. Stored rows keep it if the bounds change."""
_SLICES, _LEAST_WIDTH = 8, 1_000_000
"""A row stays at most an eighth of its time too long, or a second, and few slices are searched for a key."""
_MOST_PAIRS, _MOST_BYTES = 65_536, 32 << 20
"""What one piece of the output has at most; one pair may be larger."""
_LEAST = -(2**63)
_LAYOUT = "rows of both inputs: "


def bind_side(_spec: IntervalJoin, side: BoundSide) -> JoinSide:
    """Return the map side of an input; raises JobError for a column that the state takes for itself."""
    rows = JoinSide.of(side, side=SIDES[side.side])
    if unfit := next((name for name in rows.visible.names if name.lower() in _OWN), None):
        raise JobError(
            f"an input of join {side.name!r} has a column {unfit!r}, a name that Penstock uses for itself; rename it"
        )
    return rows


def bind(spec: IntervalJoin, sides: Sequence[JoinSide], context: StepContext) -> JoinStep:
    """Return the step; raises JobError for a column that both inputs have and that is no key."""
    step = JoinStep(name=context.name, inputs=tuple(sides), earliest=spec.earliest, latest=spec.latest)
    left, right = ({name.lower(): name for name in step.columns(side).names} for side in (0, 1))
    if twice := next((name for lower, name in right.items() if lower in left), None):
        raise JobError(
            f"both inputs of join {context.name!r} have a column {twice!r}; rename it in one of them before the join, "
            f"as in select('{', '.join(step.keys.names)}', '{twice} AS other_{twice}')"
        )
    return step


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSide(WholeRows):
    """Map side of one input: late rows and rows with a null key are counted and dropped, the others are sent whole."""

    side: str

    def prepare(self, rows: RowsOfBranch, facts: StepFacts) -> Iterator[Send | Emit | Tally]:
        """Yield the rows that may match."""
        times = integers(rows.table, TIME)
        late: Bools = times < (_LEAST if facts.late is None else facts.late)
        lacking = np.zeros(len(times), dtype=np.bool_)
        for column in rows.keys.values():
            lacking |= rows.table[column].is_null().to_numpy()
        dropped, lates = late | lacking, int(late.sum())
        counts = {"rows": int(dropped.sum()), "late": lates, f"late_{self.side}": lates}
        yield Tally({**counts, "null_keys": counts["rows"] - lates})
        yield from WholeRows.prepare(self, rows.only(~dropped) if counts["rows"] else rows, facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStep(WholeRowsStep):
    """The step in the state partitions; the bounds are in microseconds, and inclusive."""

    name: str
    inputs: tuple[WholeRows, ...]
    earliest: int
    latest: int

    @property
    def keys(self) -> pa.Schema:
        """Return the key columns."""
        return self.inputs[0].keys

    def columns(self, side: int) -> pa.Schema:
        """Return the columns of an input that are no keys."""
        return pa.schema([field for field in self.inputs[side].visible if field.name not in self.keys.names])

    @property
    def outlets(self) -> Mapping[str, pa.Schema]:
        """Return the output: keys, then the columns of the left and of the right input."""
        return {MAIN_OUTLET: pa.schema([*self.keys, *self.columns(0), *self.columns(1)])}

    # --- what is kept -------------------------------------------------------------------------

    @property
    def _key_words(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self.keys)

    @property
    def layout_name(self) -> str:
        """Return what this step keeps; the bounds, right - left in microseconds, say which rows are there."""
        columns = {part: self.columns(side).names for side, part in enumerate(SIDES)}
        return _LAYOUT + json.dumps({"keys": self._key_words, **columns, "within": [self.earliest, self.latest]})

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return a part for each input, which appends; the main table shows both."""
        keys = tuple(self.keys.names)
        return by_name(Part(name=side, identity=keys, merge=Merge.APPEND, table=MAIN) for side in SIDES)

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
        """Return how keys and bounds differ. Narrower bounds need no row that wider ones have forgotten."""
        if not layout.startswith(_LAYOUT):
            return Evolution(refused=(f"it keeps {layout}, where join keeps {self.layout_name}",))
        was, refused = _kept_by(layout), []
        if was["keys"] != self._key_words:
            refused.append(f"its keys were [{was['keys']}] and are [{self._key_words}]")
        earliest, latest = was["within"]
        if self.earliest < earliest or self.latest > latest:
            before, now = ((Duration(a), Duration(b)) for a, b in ((earliest, latest), (self.earliest, self.latest)))
            refused.append(
                f"within was from {before[0]} to {before[1]} and is from {now[0]} to {now[1]}: rows that only the "
                "wider bounds need are forgotten"
            )
        return Evolution(refused=tuple(refused))

    def _evolved(self, stored: pa.Schema, columns: pa.Schema) -> Evolution:
        own = {*_OWN, *self.keys.names}
        return evolve(self.keys, self.keys, pa.schema([f for f in stored if f.name not in own]), columns)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        """Return keys, `_side`, `_event_time`, the place in the order of arrival, and the columns of both inputs."""
        return {MAIN: pa.schema([*self.keys, *_KEPT, *self.columns(0), *self.columns(1)])}

    def shown(self, part: str, rows: pa.Table) -> pa.Table:
        """Return the rows; the columns of the other input are null."""
        return conform(rows, self.tables[MAIN])

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the rows that may still match at the moment; raises StateError for a row that does not say its own."""
        rows = tables[MAIN]
        for name in _KEPT.names:
            if none := rows[name].null_count:
                raise StateError(f"the state given to step {self.name!r} has {none:,} rows without {name}")
        strange = rows.filter(pc.invert(pc.is_in(rows["_side"], pa.array(SIDES))))
        if strange.num_rows:
            side = strange["_side"][0].as_py()
            raise StateError(f"the state given to step {self.name!r} has rows with _side {side!r}, not left or right")
        append = {}
        for side, part in enumerate(SIDES):
            mine = rows.filter(pc.equal(rows["_side"], part))
            times: Ints = column_array(mine, "_event_time").cast(pa.int64()).to_numpy()
            grouped = mine.append_column(GROUP, pa.array(slice_starts(times, self._widths[part])))
            kept = conform(grouped.append_column(HASH, mine[HASHED]), self.stored(side))
            append[part] = kept.filter(pa.array(self._useful(side, times, moment.watermark)))
        return Rebuilt(change=Change(append=append, facts={_WIDTHS: self._widths}), due=None, due_time=None)

    def stored(self, side: int) -> pa.Schema:
        """Return the columns of a part."""
        return pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *self.keys, *_KEPT, *self.columns(side)])

    @property
    def _widths(self) -> dict[str, int]:
        """Return the width of a slice of each part: by how long its rows are of use, which differs."""
        return {part: min(max(_LEAST_WIDTH, self.reach(s)[1] // _SLICES), 2**60) for s, part in enumerate(SIDES)}

    def reach(self, side: int) -> tuple[int, int]:
        """Return the bounds of the other input's event time minus that of a row of this one."""
        return (self.earliest, self.latest) if side == 0 else (-self.latest, -self.earliest)

    def _useful(self, side: int, times: Ints, watermark: int | None) -> Bools:
        """Return which rows can match one that is not older than the watermark."""
        return shifted(times, self.reach(side)[1]) >= (_LEAST if watermark is None else watermark)

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Emit the pairs that the batch's rows complete, then keep those rows and forget the ones that are due."""
        received = [side.received(tables) for side, tables in zip(self.inputs, inputs, strict=True)]
        counts = [rows.num_rows for rows in received]
        yield Tally({"merged": sum(counts), **dict(zip(SIDES, counts, strict=True))})
        widths: dict[str, int] = state.facts.get(_WIDTHS, self._widths)
        append = {}
        if any(counts):
            batch = _Batch(self, state, received, facts.batch, widths)
            for side in (0, 1):
                pairs = 0
                for emit in batch.emits(side):
                    pairs += emit.rows.num_rows
                    yield emit
                yield Tally({"pairs": pairs})
            for side, part in enumerate(SIDES):
                useful = self._useful(side, batch.rows[side].times, facts.watermark)
                append[part] = batch.stored[side].filter(pa.array(useful))
        append = {part: rows for part, rows in append.items() if rows.num_rows}
        floors = self._floors(state, facts.watermark, widths)
        # Also where no row is of use: the bounds by which it was forgotten must be known to wider ones.
        yield Change(append=append, floors=floors, facts={**state.facts, _WIDTHS: widths} if any(counts) else None)

    def _floors(self, state: StateView, watermark: int | None, widths: Mapping[str, int]) -> Mapping[str, int]:
        """Return the slices below which all rows are due, where there are any."""
        if watermark is None:
            return {}
        floors = {part: slice_start(watermark - self.reach(side)[1], widths[part]) for side, part in enumerate(SIDES)}
        first = {part: state.first_group(part, None) for part in floors}
        return {part: floor for part, floor in floors.items() if (least := first[part]) is not None and least < floor}


def _kept_by(layout: str) -> dict[str, Any]:
    """Return what a layout says: `keys` in words, the columns of `left` and `right`, and `within`."""
    kept: dict[str, Any] = json.loads(layout.removeprefix(_LAYOUT))
    return kept


class _Batch:
    """The rows of a batch in one partition, by input; there is a row at least.

    `stored` are the rows as the state keeps them. `rows` have their keys by number, in the order of `hashes`, and their
    places in the order of arrival of both inputs.
    """

    def __init__(
        self, step: JoinStep, state: StateView, received: Sequence[pa.Table], batch: int, widths: Mapping[str, int]
    ) -> None:
        self.step, self.state, self.widths = step, state, widths
        each = list(zip(step.inputs, received, strict=True))
        keys = pa.concat_tables([side.key_table(rows) for side, rows in each]).combine_chunks()
        hashes = np.concatenate([integers(rows, HASHED) for rows in received])
        grouping = group_rows([column_array(keys, name) for name in keys.column_names], hashes)
        self.keys, self.hashes = keys.take(pa.array(grouping.first)), hashes[grouping.first]
        self.arrivals = cache(lambda: pa.concat_arrays([side.arrivals(rows) for side, rows in each]))
        self.starts = (0, received[0].num_rows)
        one_sided = self.starts[1] in {0, len(hashes)}
        places = np.arange(len(hashes), dtype=np.int64) if one_sided else arrival_ranks(self.arrivals())
        self.rows: list[Moments] = []
        self.stored: list[pa.Table] = []
        for side, (own, rows) in enumerate(each):
            mine, times = slice(self.starts[side], self.starts[side] + rows.num_rows), integers(rows, TIME)
            self.rows.append(Moments(grouping.ids[mine], times, places[mine]))
            hidden = {
                GROUP: pa.array(slice_starts(times, widths[SIDES[side]])),
                HASH: rows[HASHED],
                **dict(zip(keys.column_names, own.key_table(rows).columns, strict=True)),
                "_side": pa.repeat(pa.scalar(SIDES[side]), len(times)),
                "_event_time": rows[TIME].cast(_KEPT.field("_event_time").type),
                "_batch": pa.array(np.full(len(times), batch, dtype=np.int64)),
                "_number": pa.array(number_in_key(grouping.ids[mine])),
            }
            schema = step.stored(side)
            columns = [hidden[name] if name in hidden else rows[name] for name in schema.names]
            self.stored.append(pa.table(columns, schema=schema))

    def emits(self, side: int) -> Iterator[Emit]:
        """Yield, by pieces, the pairs of which the row of this input arrived later, in order of arrival."""
        rows, new = self.rows[side], self.rows[1 - side]
        if not len(rows.ids):
            return
        held_ids, held = self._held(side)
        candidates = pa.concat_tables([held, self.stored[1 - side]]).combine_chunks()
        if not candidates.num_rows:
            return
        others = Moments(
            np.concatenate([held_ids, new.ids]),
            column_array(candidates, "_event_time").cast(pa.int64()).to_numpy(),
            np.concatenate([np.full(len(held_ids), -1, dtype=np.int64), new.places]),
        )
        order = np.lexsort((integers(candidates, "_number"), integers(candidates, "_batch"), others.times, others.ids))
        own_bytes, other_bytes = row_bytes(self.stored[side]), row_bytes(candidates)
        for pairs in pairs_within(rows, others, order, self.step.reach(side), _MOST_PAIRS):
            for mine, theirs in pieces(*pairs, own_bytes, other_bytes, _MOST_BYTES):
                times = np.maximum(rows.times[mine], others.times[theirs])
                yield self._emit(side, mine, candidates.take(pa.array(theirs)), times)

    def _held(self, side: int) -> tuple[Ints, pa.Table]:
        """Return the held rows of the other input that have keys of the batch and may match, and their key numbers."""
        rows, (earliest, latest) = self.rows[side], self.step.reach(side)
        ends = int(rows.times.min()) + earliest, int(rows.times.max()) + latest
        low, high = (slice_start(time, self.widths[SIDES[1 - side]]) for time in ends)
        own, schema = np.unique(rows.ids), self.step.stored(1 - side)
        keys = self.keys.take(pa.array(own))
        part = self.step.parts[SIDES[1 - side]]
        places, held = self.state.rows_of(part, self.hashes[own], keys, (low, high + 1), schema=schema)
        return own[places], held

    def _emit(self, side: int, mine: Ints, others: pa.Table, times: Ints) -> Emit:
        rows = self.stored[side].take(pa.array(mine))
        left, right = (rows, others) if side == 0 else (others, rows)
        names = [*self.step.keys.names, *self.step.columns(0).names]
        columns = [*(left[name] for name in names), *(right[name] for name in self.step.columns(1).names)]
        none = np.zeros(len(mine), dtype=np.int64)
        stand = Stand(rows=mine + self.starts[side], times=none, hashes=none)
        pairs = pa.table(columns, schema=self.step.outlets[MAIN_OUTLET]).append_column(TIME, pa.array(times))
        return Emit(rows=pairs, stand=lambda: stand, arrivals=self.arrivals)

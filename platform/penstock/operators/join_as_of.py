"""Run `join_as_of`: emit each left row with the right row of its key that was newest at its event time.

The state of a partition has four parts:

- `left` and `right` append. They have the rows that the watermark has not passed, with their event times in `_group`.
- `newest` has for each key the newest right row that the watermark has passed. The newest row hides the older.
- `deadlines` has an entry for each key of `newest`: `_group` is the watermark that the key's row is of use to last.

A batch *settles* the rows that its watermark W has passed. All right rows older than W have come by then, because
late rows never reach the step. So a left row takes its right row from `newest` and from those that are settled with it.
It is emitted in that batch, and its event time is not below the W of the batch before. Downstream steps judge lateness
by that one (SEMANTICS 2.1), so the row is not late there.

The settled rows go from `left` and `right` by the floor of the part. Of the right rows of a key only the newest stays,
and it is forgotten when no left row that is not late can take it. A batch costs what its rows and those that it
settles cost, however many keys are held.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.graph.durations import Duration
from penstock.graph.join_arguments import JoinKind
from penstock.graph.specs.join_as_of import AsOfJoin
from penstock.operators.as_of_batch import (
    DEADLINES,
    LEFT,
    NEWEST,
    RIGHT,
    AsOfBatch,
    AsOfRows,
    Settled,
    event_times,
    passed,
)
from penstock.operators.columns import integers
from penstock.operators.joined_rows import SIDES, JoinedSide, refuse_shared_columns, refuse_taken_columns
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    BoundSide,
    Due,
    Emit,
    Rebuilt,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.operators.schema_evolution import Evolution
from penstock.operators.whole_rows import WholeRows
from penstock.state.parts import Merge, Part, by_name
from penstock.state.row_layout import GROUP, HASH, conform
from penstock.state.writer import Change

__all__ = ["AsOfStep", "bind", "bind_side"]

_LAYOUT = "rows as of a time: "
_SIDE_OF = {LEFT: 0, RIGHT: 1, NEWEST: 1}


def bind_side(spec: AsOfJoin, side: BoundSide) -> JoinedSide:
    """Return the map side of an input; raises JobError for a column that the state takes for itself."""
    left = side.side == 0
    rows = JoinedSide.of(side, side=SIDES[side.side], keeps_null_keys=left and spec.how is JoinKind.LEFT)
    refuse_taken_columns(side, rows.visible, "join_as_of")
    return rows


def bind(spec: AsOfJoin, sides: Sequence[JoinedSide], context: StepContext) -> AsOfStep:
    """Return the step; raises JobError for a column that both inputs have and that is no key."""
    step = AsOfStep(name=context.name, inputs=tuple(sides), within=spec.within, how=spec.how)
    refuse_shared_columns(step, "join_as_of")
    return step


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOfStep(AsOfRows):
    """The step in the state partitions; `within` is in microseconds, and inclusive."""

    name: str
    inputs: tuple[WholeRows, ...]
    within: int
    how: JoinKind

    # --- what is kept -------------------------------------------------------------------------

    @property
    def layout_name(self) -> str:
        """Return what this step keeps; `within`, in microseconds, says which rows are there."""
        columns = {part: self.columns(side).names for side, part in enumerate(SIDES)}
        return _LAYOUT + json.dumps({"keys": self.key_words, **columns, "within": self.within})

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return the parts; the main table shows all rows, and deadlines follow from them."""
        keys = tuple(self.keys.names)
        waiting = (Part(name=part, identity=keys, merge=Merge.APPEND, table=MAIN) for part in (LEFT, RIGHT))
        newest = Part(name=NEWEST, identity=keys, merge=Merge.LATEST, table=MAIN)
        return by_name([*waiting, newest, Part(name=DEADLINES, identity=keys, merge=Merge.LATEST)])

    def evolution(self, state: StateView) -> Evolution:
        """Return how this state differs."""
        changed = self._changed(state.written_as)
        for part, side in _SIDE_OF.items():
            stored = state.schema(part)
            if stored is not None and not changed.refused:
                changed += self.evolved_rows(stored, side)
        return changed

    def evolved(self, layout: str, keys: Sequence[str], stored: pa.Schema) -> Evolution:
        """Return the same of what was kept as a layout says."""
        changed = self._changed(layout)
        if not changed.refused:
            # A column that has moved to the other input is one that is gone and one that is new.
            for side, part in enumerate(SIDES):
                names = _kept_by(layout)[part]
                changed += self.evolved_rows(pa.schema([f for f in stored if f.name in names]), side)
        return changed

    def _changed(self, layout: str) -> Evolution:
        """Return how keys and bound differ. A shorter bound needs no row that a longer one has forgotten."""
        if not layout.startswith(_LAYOUT):
            return Evolution(refused=(f"it keeps {layout}, where join_as_of keeps {self.layout_name}",))
        was, refused = _kept_by(layout), []
        if was["keys"] != self.key_words:
            refused.append(f"its keys were [{was['keys']}] and are [{self.key_words}]")
        if self.within > was["within"]:
            before, now = Duration(was["within"]), Duration(self.within)
            refused.append(f"within was {before} and is {now}: rows that only the longer one needs are forgotten")
        return Evolution(refused=tuple(refused))

    def rebuilt(self, tables: Mapping[str, pa.Table], moment: StepFacts) -> Rebuilt:
        """Return the rows that wait at the moment, and the newest of the settled right ones of each key.

        Raises:
            StateError: A row does not say its own side, time and place.
        """
        left, right = (self._restored(side, rows) for side, rows in enumerate(self.sides_of(tables[MAIN])))
        past = passed(integers(right, GROUP), moment.watermark)
        append = {LEFT: left, RIGHT: right.filter(pa.array(~past))}
        if moment.watermark is not None:
            rows = left.slice(0, 0), right.filter(pa.array(past))
            append.update(Settled(self, None, rows, left.slice(0, 0), moment.watermark).append())
        append = {part: rows for part, rows in append.items() if rows.num_rows}
        waits = integers(left, GROUP)
        due = int(waits.min()) + 1 if len(waits) else None
        return Rebuilt(change=Change(append=append, facts={}), due=due, due_time=None)

    def _restored(self, side: int, rows: pa.Table) -> pa.Table:
        grouped = rows.append_column(GROUP, pa.array(event_times(rows))).append_column(HASH, rows[HASHED])
        return conform(grouped, self.stored(side))

    # --- what a batch does --------------------------------------------------------------------

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Take the batch's rows, emit the left rows that the watermark has passed, then keep what is still of use."""
        received = [side.received(tables) for side, tables in zip(self.inputs, inputs, strict=True)]
        counts = [rows.num_rows for rows in received]
        yield Tally({"merged": sum(counts), **dict(zip(SIDES, counts, strict=True))})
        batch = AsOfBatch(self, state, received, facts)
        yield from batch.emits()
        yield Due(batch.due)
        yield batch.change()


def _kept_by(layout: str) -> dict[str, Any]:
    """Return what a layout says: `keys` in words, the columns of `left` and `right`, and `within`."""
    kept: dict[str, Any] = json.loads(layout.removeprefix(_LAYOUT))
    return kept

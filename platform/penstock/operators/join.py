"""Run `join`: emit each pair of rows with equal keys whose event times differ by what the bounds allow.

An outer join also emits each row of its outer sides that matches nothing.

Late rows never reach the step, so a row is of no use once the watermark has passed all that it could match. Then the
pairs are the same with and without it. So they follow from rows and watermarks alone, and so do rows without a match:
each is emitted by the first watermark that makes it of no use. Whole slices are removed by the floor of the part with
the next batch. Removal asks for no batch, and a row that waits for a match does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.graph.specs.join import SIDES, IntervalJoin
from penstock.operators.columns import integers
from penstock.operators.interval_pairs import slice_start
from penstock.operators.join_batch import JoinBatch, with_flag
from penstock.operators.join_state import MATCHED, WAITING, WIDTHS, JoinLayout
from penstock.operators.join_unmatched import (
    due_before,
    due_rows,
    emitted_at_their_place,
    emitted_by_time,
    without_key,
)
from penstock.operators.joined_rows import JoinedSide, refuse_shared_columns, refuse_taken_columns
from penstock.operators.protocol import (
    BoundSide,
    Due,
    Emit,
    StateView,
    StepContext,
    StepFacts,
    Tally,
)
from penstock.state.row_layout import DELETED, GROUP, HASH, conform
from penstock.state.writer import Change

__all__ = ["JoinStep", "bind", "bind_side"]


def bind_side(spec: IntervalJoin, side: BoundSide) -> JoinedSide:
    """Return the map side of an input; raises JobError for a column that the state takes for itself."""
    rows = JoinedSide.of(side, side=SIDES[side.side], keeps_null_keys=spec.how.outer[side.side])
    refuse_taken_columns(side, rows.visible, "join", also=[MATCHED] if any(spec.how.outer) else [])
    return rows


def bind(spec: IntervalJoin, sides: Sequence[JoinedSide], context: StepContext) -> JoinStep:
    """Return the step; raises JobError for a column that both inputs have and that is no key."""
    step = JoinStep(name=context.name, inputs=tuple(sides), earliest=spec.earliest, latest=spec.latest, how=spec.how)
    refuse_shared_columns(step, "join")
    return step


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStep(JoinLayout):
    """The step in the state partitions."""

    def run(
        self, state: StateView, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Generator[Emit | Change | Due | Tally, StateView | None, None]:
        """Emit the pairs that the batch's rows complete, then the outer rows that are due; keep and forget rows."""
        received = [side.received(tables) for side, tables in zip(self.inputs, inputs, strict=True)]
        counts = [rows.num_rows for rows in received]
        yield Tally({"merged": sum(counts), **dict(zip(SIDES, counts, strict=True))})
        for side in self._outer:
            lacking = without_key(self, side, received[side])
            if lacking.any():
                alone = received[side].filter(pa.array(lacking))
                yield from self._unmatched(side, emitted_at_their_place(self, side, alone))
                received[side] = received[side].filter(pa.array(~lacking)).combine_chunks()
        widths: dict[str, int] = state.facts.get(WIDTHS, self.widths)
        floors = self._floors(state, facts.watermark, widths)
        append: dict[str, list[pa.Table]] = {name: [] for name in self.parts}
        matched = [self.stored(side).empty_table() for side in (0, 1)]
        waited = list(matched)
        if any(rows.num_rows for rows in received):
            batch = JoinBatch(self, state, received, facts.batch, widths)
            for side in (0, 1):
                for emit in batch.emits(side):
                    yield from self._counted("pairs", emit)
            matched = batch.held_matched
            waited = self._keep(batch, append, facts.watermark, floors)
        for side in self._outer:
            before = due_before(self, side, facts.watermark)
            for rows in due_rows(self, state, side, before, widths, matched[side]):
                yield from self._unmatched(side, emitted_by_time(self, side, rows, facts))
                append[SIDES[side]].append(self._deleted(side, rows, floors.get(SIDES[side])))
            yield from self._unmatched(side, emitted_by_time(self, side, waited[side], facts))
            first = state.first_group(WAITING[side])
            if before is not None and first is not None and first < before:
                floors[WAITING[side]] = before
        changed = {part: pa.concat_tables(rows).combine_chunks() for part, rows in append.items() if rows}
        changed = {part: rows for part, rows in changed.items() if rows.num_rows}
        # Also where no row is of use: the bounds by which it was forgotten must be known to wider ones.
        noted = any(counts) or (any(self.how.outer) and bool(changed or floors))
        after = yield Change(append=changed, floors=floors, facts={**state.facts, WIDTHS: widths} if noted else None)
        yield from self._due(after)

    @property
    def _outer(self) -> list[int]:
        return [side for side in (0, 1) if self.how.outer[side]]

    def _keep(
        self,
        batch: JoinBatch,
        append: dict[str, list[pa.Table]],
        watermark: int | None,
        floors: Mapping[str, int],
    ) -> list[pa.Table]:
        """Add to the state what may match later; return the rows of each outer side that never had a match and are due.

        These are sorted as rows are emitted by time.
        """
        waited = [batch.stored[side].slice(0, 0) for side in (0, 1)]
        for side, part in enumerate(SIDES):
            times = batch.rows[side].times
            useful = self.useful(side, times, watermark)
            rows = batch.stored[side]
            if self.how.outer[side]:
                had = batch.matched[side]
                rows = rows.set_column(rows.schema.get_field_index(MATCHED), MATCHED, pa.array(had))
                waits = useful & ~had
                append[WAITING[side]].append(self.entries(rows.filter(pa.array(waits)), times[waits]))
                never = np.flatnonzero(~useful & ~had)
                places = [integers(rows, name)[never] for name in ("_number", HASH)]
                waited[side] = rows.take(pa.array(never[np.lexsort((*places, times[never]))]))
                # Also where it is of no use any more: until its slice goes, the state must not say that it waits.
                append[part].append(_staying(batch.held_matched[side], floors.get(part)))
            append[part].append(rows.filter(pa.array(useful)))
        return waited

    def _deleted(self, side: int, rows: pa.Table, floor: int | None) -> pa.Table:
        """Return the tombstones of rows that were emitted, but for those that go with their slice."""
        places = _staying(rows, floor).select([GROUP, HASH, *self.keys.names, "_batch", "_number"])
        return with_flag(conform(places, self.stored(side)), DELETED)

    def _unmatched(self, side: int, emits: Iterator[Emit]) -> Iterator[Emit | Tally]:
        for emit in emits:
            yield from self._counted(f"unmatched_{SIDES[side]}", emit)

    def _counted(self, name: str, emit: Emit) -> Iterator[Emit | Tally]:
        yield emit
        n, one = emit.rows.num_rows, {name: emit.rows.num_rows}
        more = {"emitted": n, **({} if name == "pairs" else {"unmatched": n})} if any(self.how.outer) else {}
        yield Tally({**one, **more})

    def _floors(self, state: StateView, watermark: int | None, widths: Mapping[str, int]) -> dict[str, int]:
        """Return the slices below which all rows are due, where there are any."""
        if watermark is None:
            return {}
        floors = {part: slice_start(watermark - self.reach(side)[1], widths[part]) for side, part in enumerate(SIDES)}
        first = {part: state.first_group(part, None) for part in floors}
        return {part: floor for part, floor in floors.items() if (least := first[part]) is not None and least < floor}

    def _due(self, after: StateView | None) -> Iterator[Due]:
        """Yield the watermark for which the first row waits."""
        for side in self._outer:
            assert after is not None
            first = after.first_group(WAITING[side])
            if first is not None:
                yield Due(int(self.last_matches(side, np.array([first], dtype=np.int64))[0]) + 1)


def _staying(rows: pa.Table, floor: int | None) -> pa.Table:
    """Return rows of state but for those that go with their slice."""
    return rows if floor is None else rows.filter(pa.array(integers(rows, GROUP) >= floor))

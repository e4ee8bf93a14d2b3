"""A step in its state partition: what it yields goes on at once, and its state is written once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.protocol import Due, Emit, Send, StepFacts, Tally
from penstock.runtime.tasks.staging import Outlet
from penstock.runtime.tasks.state_stage import _PartitionBatch
from penstock.state.writer import Change
from penstock.time.arrival import ARRIVAL, BY_TIME, Stand

FACTS = StepFacts(batch=1, time=1, watermark=None)
ROWS = pa.table({"v": [1, 2]})


class State:
    """Note the changes that are written; the state after the n-th is the text `after n`."""

    def __init__(self) -> None:
        self.written: list[Change] = []

    def write(self, change: Change, files: Any, *, partitions: int) -> int:
        self.written.append(change)
        return len(self.written)

    def at(self, written: int) -> str:
        return f"after {written}"


class Work:
    """Yield what it was given; note what comes back for each."""

    def __init__(self, *yields: Any) -> None:
        self.yields, self.answers = yields, list[Any]()

    def run(self, state: Any, inputs: Any, facts: StepFacts) -> Any:
        for item in self.yields:
            self.answers.append((yield item))


def batch_of(work: Work) -> tuple[_PartitionBatch, State]:
    """Return a batch of a step with the outlet "" that goes along one lane."""
    state, lane = State(), Outlet(sinks=(), lanes=("lane",), schema=ROWS.schema, place=0, ordered=())
    spec = SimpleNamespace(step="s", work=work, outlets={"": lane}, partitions=3, depth=1)
    files = SimpleNamespace(stage=lambda *_, **__: ())  # no sinks
    return _PartitionBatch(spec, state, files), state  # type: ignore[arg-type]


def test_only_a_change_is_answered_and_with_the_state_that_it_leaves() -> None:
    """Snapshots are made of it."""
    work = Work(Tally({"merged": 2}), Change(facts={}), Tally({"merged": 1, "quarantined": 1}), Due(7, 9))
    batch, state = batch_of(work)
    assert list(batch.run([], FACTS)) == []
    assert work.answers == [None, "after 1", None, None]
    assert (batch.counts, batch.due) == ({"merged": 3, "quarantined": 1}, Due(7, 9))
    assert batch.written() == 1
    assert state.written == [Change(facts={})]


def test_a_step_that_changes_nothing_is_compacted_all_the_same() -> None:
    """Writing an empty change does it, within the budget."""
    batch, state = batch_of(Work())
    assert list(batch.run([], FACTS)) == []
    assert batch.written() == 1
    assert state.written == [Change()]


def test_two_changes_in_a_batch_are_refused() -> None:
    """The second would be written beside what the first has left."""
    batch, _ = batch_of(Work(Change(), Change()))
    with pytest.raises(RuntimeError, match="two changes"):
        list(batch.run([], FACTS))


def test_the_earliest_of_several_due_times_counts() -> None:
    """Each clock on its own; None is never, and takes nothing back."""
    batch, _ = batch_of(Work(Due(7, 3), Due(5), Due(None, 9)))
    list(batch.run([], FACTS))
    assert batch.due == Due(5, 3)


def test_what_nobody_knows_is_refused() -> None:
    """A step sends through the shuffle on its map side only."""
    batch, _ = batch_of(Work(Send(ROWS)))
    with pytest.raises(RuntimeError, match="yielded Send"):
        list(batch.run([], FACTS))


def test_each_piece_goes_on_before_the_next_is_made() -> None:
    """So a step that emits much holds one piece; the order of arrival counts on through the pieces."""
    made: list[str] = []
    none = np.zeros(2, dtype=np.int64)
    by_time = Stand(rows=np.full(2, BY_TIME, dtype=np.int64), times=none, hashes=none)

    class Pieces(Work):
        def run(self, state: Any, inputs: Any, facts: StepFacts) -> Any:
            for name in ("first", "second"):
                made.append(name)
                yield Emit(rows=ROWS, stand=lambda: by_time)

    items = batch_of(Pieces())[0].run([], FACTS)
    first = next(items).body
    assert made == ["first"]
    (second,) = (item.body for item in items)
    assert isinstance(first, pa.Table)
    assert isinstance(second, pa.Table)
    order = [*first[ARRIVAL].to_pylist(), *second[ARRIVAL].to_pylist()]
    assert order == sorted(set(order))


def test_rows_that_lack_a_column_of_their_outlet_are_an_error_that_names_the_step() -> None:
    """What the operator says in `outlets` and what it emits stand in two modules."""
    batch, _ = batch_of(Work(Emit(rows=pa.table({"w": [1]}))))
    with pytest.raises(RuntimeError, match="step 's' says that its outlet '' has the column 'v', and emitted .* w"):
        list(batch.run([], FACTS))

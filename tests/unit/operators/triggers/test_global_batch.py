"""What a batch of global windows emits, when, and what it leaves (SEMANTICS 1.4, 1.6, 2.1, 2.10, 6, 7.2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from global_disk import GlobalDisk, numbers_of

from penstock import agg, count, hours, micros, seconds
from penstock.graph.durations import Duration
from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.window_functions import WindowFunction
from penstock.operators.triggers.global_batch import GlobalBatch
from penstock.operators.triggers.global_layout import TIMED, TTL, GlobalLayout
from penstock.state import EVENT
from penstock.time.clock import END_OF_TIME
from penstock.triggers import (
    AfterAll,
    AfterCount,
    AfterDelta,
    AfterProcessingTime,
    AtEnd,
    Every,
    Moment,
    Purging,
    TriggerResult,
    Wake,
)
from penstock.windows import GlobalWindow


def applied(trigger: Any, **window: Any) -> GlobalWindows:
    """Return a step with a function that lists the numbers of the rows."""
    return GlobalWindows(window=GlobalWindow(**window).trigger(trigger), function=WindowFunction(numbers_of, "-"))


def rows(*numbers: int, key: str | None = "a", v: float = 0.0) -> list[dict[str, Any]]:
    """Return rows of a key at these microseconds."""
    return [{"k": key, "n": n, "v": v, "t": n} for n in numbers]


def test_three_of_seven_rows_fire_once_with_seven(tmp_path: Path) -> None:
    """6: a trigger is judged once per batch, key and window, after the batch's rows."""
    disk = GlobalDisk(applied(Purging(Every(count(3)))), tmp_path)
    made = disk.batch(rows(*range(7)), time=1)
    assert made.output == [{"k": "a", "rows": [*range(7)]}]
    assert disk.table() == []


def test_rows_after_the_finish_are_dropped_and_counted(tmp_path: Path) -> None:
    """6, 2.10: also those of later batches; the key keeps a mark, and no row."""
    window = GlobalWindow().trigger(AfterCount(2)).late_to("after")
    disk = GlobalDisk(GlobalWindows(window=window, function=WindowFunction(numbers_of, "-")), tmp_path)
    assert disk.batch(rows(1, 2), time=1).output == [{"k": "a", "rows": [1, 2]}]
    made = disk.batch(rows(3, 4) + rows(5, key="b"), time=2)
    assert (made.output, made.late) == ([], [3, 4])
    assert {name: made.counts[name] for name in ("rows", "merged", "counted", "late")} == {
        "rows": 3,
        "merged": 3,
        "counted": 1,
        "late": 2,
    }
    assert [(r["k"], r["_held"], r["_slots"][0]) for r in disk.table() if r["_row"] is None] == [
        ("b", 1, 0),
        ("a", 0, 1),
    ]


def test_batches_without_rows_are_asked_for(tmp_path: Path) -> None:
    """1.4: by batch time and by the watermark; one that waits for another trigger asks for that one's moment."""
    disk = GlobalDisk(applied(AfterAll(AfterProcessingTime(micros(5)), AfterProcessingTime(micros(20)))), tmp_path)
    made = disk.batch(rows(1), time=10)
    assert (made.due, made.due_time) == (None, 15)
    assert disk.batch([], time=15).due_time == 30
    assert disk.batch([], time=30).output == [{"k": "a", "rows": [1]}]
    disk = GlobalDisk(applied(Every(micros(10), clock=EVENT), unbounded=True), tmp_path / "event")
    (tmp_path / "event").mkdir()
    assert disk.batch(rows(12), time=1).due == 20
    made = disk.batch([], time=2, watermark=34)
    assert (made.output, made.due) == ([{"k": "a", "rows": [12]}], 40)


def test_the_end_of_time_is_asked_for_once(tmp_path: Path) -> None:
    """2.1: a source that has ended, or a drain, fires AtEnd."""
    disk = GlobalDisk(applied(AtEnd(), unbounded=True), tmp_path)
    assert disk.batch(rows(1), time=1).due == END_OF_TIME - 1
    made = disk.batch([], time=2, watermark=END_OF_TIME)
    assert (made.output, made.due, made.due_time) == ([{"k": "a", "rows": [1]}], None, None)


def test_a_purged_window_is_forgotten_and_asks_for_nothing(tmp_path: Path) -> None:
    """No empty pane follows; a reference of AfterDelta stays, because the next row is compared with it."""
    disk = GlobalDisk(applied(Purging(Every(micros(10)))), tmp_path)
    disk.batch(rows(1), time=5)
    made = disk.batch([], time=10)
    assert (made.output, made.due_time, disk.table()) == ([{"k": "a", "rows": [1]}], None, [])
    (tmp_path / "delta").mkdir()
    disk = GlobalDisk(applied(Purging(AfterDelta("v", 3))), tmp_path / "delta")
    disk.batch(rows(1), time=1)
    disk.batch(rows(2, v=5.0), time=2)
    assert [r["_held"] for r in disk.table()] == [0]


def test_a_key_expires_after_its_ttl_and_its_rows_are_counted(tmp_path: Path) -> None:
    """7.2: strictly later than the time of the last row's batch + ttl; a row of that batch keeps the key."""
    disk = GlobalDisk(applied(Every(count(9)), ttl=micros(10)), tmp_path)
    made = disk.batch(rows(1, 2) + rows(3, key="b"), time=100)
    assert made.due_time == 111
    assert disk.batch([], time=110).counts["expired"] == 0
    made = disk.batch(rows(4, key="b"), time=111)
    assert (made.counts["expired"], made.due_time) == (2, 122)
    assert {r["k"] for r in disk.table()} == {"b"}
    assert disk.batch(rows(5), time=112).counts["counted"] == 1
    assert [(r["k"], r["n"]) for r in disk.table() if r["_row"] is not None] == [("b", 3), ("a", 5), ("b", 4)]


def test_a_ttl_forgets_a_finish(tmp_path: Path) -> None:
    """So the marks of finished keys do not grow for ever; a later row begins again."""
    disk = GlobalDisk(applied(AfterCount(1), ttl=micros(10)), tmp_path)
    disk.batch(rows(1), time=1)
    assert disk.batch([], time=12).counts["expired"] == 0
    assert disk.table() == []
    assert disk.batch(rows(2), time=13).output == [{"k": "a", "rows": [2]}]


@pytest.mark.parametrize(
    ("reached", "judged", "expected"),
    [(None, None, [2, 7]), (None, 5, [5, 7]), (40, None, [40, 40]), (40, 50, [50, 50])],
)
def test_the_output_has_the_event_time_that_was_reached(
    tmp_path: Path, reached: int | None, judged: int | None, expected: list[int]
) -> None:
    """2.1: the watermark; in the first batch the highest of the key's rows; never late for the steps behind."""
    disk = GlobalDisk(applied(Purging(Every(count(1)))), tmp_path)
    made = disk.batch(rows(1, 2) + rows(7, key="b"), time=100, reached=reached, judged=judged)
    assert sorted(made.times) == expected


def test_a_whole_stream_is_one_window(tmp_path: Path) -> None:
    """Without keys a function gets ()."""
    spec = GlobalWindows(
        window=GlobalWindow().trigger(Purging(Every(count(3)))),
        function=WindowFunction(lambda key, view: [{"k": str(key), "rows": view.current["n"].to_pylist()}], "-"),
    )
    disk = GlobalDisk(spec, tmp_path, keys=pa.schema([]))
    assert disk.batch(rows(1) + rows(2, key="b"), time=1).output == []
    assert disk.rescale(1, 1, None) == (None, None)
    assert disk.batch(rows(3, key="c"), time=2).output == [{"k": "()", "rows": [1, 2, 3]}]
    counted = GlobalWindows(window=spec.window, aggregates={"n": agg.count(), "last": agg.last("n")})
    (tmp_path / "counted").mkdir()
    disk = GlobalDisk(counted, tmp_path / "counted", keys=pa.schema([]))
    disk.batch(rows(1, 2), time=1)
    assert disk.batch(rows(3, key="c"), time=2).output == [{"n": 3, "last": 3}]


class Quiet:
    """Fires when no row has come for so many microseconds of batch time: what only `due` makes possible."""

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Note when the row came."""
        state["until"] = (at.batch_time + timedelta(seconds=10)).isoformat()

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Fire when it is time."""
        quiet = at.batch_time >= datetime.fromisoformat(state["until"])
        return TriggerResult.FIRE_AND_PURGE if quiet else TriggerResult.CONTINUE

    def due(self, state: dict[str, Any]) -> Wake | None:
        """Return that time."""
        return Wake(time=datetime.fromisoformat(state["until"])) if state else None


def test_a_trigger_of_the_users_is_woken(tmp_path: Path) -> None:
    """1.4, 6: its state is kept and rebuilt in other partitions, and its `due` asks for a batch."""
    disk = GlobalDisk(applied(Quiet(), ttl=hours(1)), tmp_path, partitions=2)
    second = 1_000_000
    assert disk.batch(rows(1), time=second).due_time == 11 * second
    assert disk.rescale(3, second, None)[1] == 11 * second
    assert disk.batch(rows(2), time=5 * second).output == []
    assert disk.batch([], time=11 * second).due_time == 15 * second
    assert disk.batch([], time=15 * second).output == [{"k": "a", "rows": [1, 2]}]


def test_another_trigger_begins_again_with_the_next_row(tmp_path: Path) -> None:
    """10.1: the rows that are held stay in the window."""
    disk = GlobalDisk(applied(Purging(Every(count(3)))), tmp_path)
    disk.batch(rows(1, 2), time=1)
    disk.change_spec(applied(Purging(Every(count(2)))))
    assert disk.evolution().refused == ()
    assert disk.batch(rows(3), time=2).output == []
    assert disk.batch(rows(4), time=3).output == [{"k": "a", "rows": [1, 2, 3, 4]}]


def test_a_ttl_that_is_new_counts_from_the_next_row(tmp_path: Path) -> None:
    """And one that is taken away forgets nothing more."""
    disk = GlobalDisk(applied(Every(count(9)), unbounded=True), tmp_path)
    disk.batch(rows(1), time=1)
    disk.change_spec(applied(Every(count(9)), ttl=seconds(1)))
    assert disk.batch(rows(2), time=2).due_time == 2 + 1_000_001
    disk.change_spec(applied(Every(count(9)), unbounded=True))
    assert disk.batch([], time=5_000_000).counts["expired"] == 0


@pytest.mark.parametrize("restored", [False, True], ids=["a restart", "a restore"])
def test_a_ttl_that_comes_later_forgets_keys_that_get_no_row(tmp_path: Path, *, restored: bool) -> None:
    """7.7, 10.1: it counts from the first batch with it; triggers of the user's are not judged for that."""
    watched = Watched()
    disk = GlobalDisk(applied(watched, unbounded=True), tmp_path)
    disk.batch(rows(1) + rows(2, key="b"), time=1)
    disk.change_spec(applied(watched, ttl=micros(5)))
    if restored:
        disk.rebuild(disk.shown(), 1, time=10)
    watched.judged.clear()
    made = disk.batch(rows(3, key="c"), time=10)
    assert (made.due_time, watched.judged) == (16, [1])
    assert [disk.batch([], time=time).counts["expired"] for time in (15, 16)] == [0, 3]
    assert disk.table() == []


@pytest.mark.parametrize("moved", [False, True], ids=["restarts", "with other partitions"])
def test_another_ttl_dates_all_keys_at_once(tmp_path: Path, *, moved: bool) -> None:
    """7.2, 10.1: a key expires later than its last row's batch + the `ttl` of now, be that shorter or longer."""
    disk = GlobalDisk(applied(Every(count(9)), ttl=micros(500)), tmp_path)
    disk.batch(rows(1), time=1)
    disk.batch(rows(2, key="b"), time=7)

    def change_ttl(ttl: Duration, partitions: int, time: int) -> None:
        disk.change_spec(applied(Every(count(9)), ttl=ttl))
        if moved:
            disk.rebuild(disk.shown(), partitions, time=time)

    change_ttl(micros(5), 2, 9)
    assert disk.batch(rows(3, key="c"), time=10).counts["expired"] == 1
    change_ttl(micros(900), 3, 11)
    assert [disk.batch([], time=time).counts["expired"] for time in (13, 907, 908, 910, 911)] == [0, 0, 1, 0, 1]
    assert disk.table() == []


def test_a_person_may_say_when_keys_expire(tmp_path: Path) -> None:
    """10.3: another `_expires` in the table moves a key, also where the `ttl` changes; none counts from the restore."""
    disk = GlobalDisk(applied(Every(count(9)), ttl=micros(10)), tmp_path)
    disk.batch(rows(1) + rows(2, key="b"), time=1)
    shown = disk.shown()
    edited = [
        later if key == "a" and later is not None else None
        for key, later in zip(shown["k"].to_pylist(), shown["_expires"].cast(pa.int64()).to_pylist(), strict=True)
    ]
    at = shown.schema.get_field_index("_expires")
    moved = pa.array([None if value is None else value + 100 for value in edited], pa.timestamp("us", tz="UTC"))
    disk.change_spec(applied(Every(count(9)), ttl=micros(20)))
    disk.rebuild(shown.set_column(at, "_expires", moved), 2, time=50)
    assert [disk.batch([], time=time).counts["expired"] for time in (70, 71, 121, 122)] == [0, 1, 0, 1]


def of_older_version(root: Path, monkeypatch: pytest.MonkeyPatch, ttl: int) -> tuple[GlobalDisk, pa.Table]:
    """Return a state of before decision 197, in which two keys got a row at 1, and its table."""
    disk = GlobalDisk(applied(Every(count(9)), ttl=micros(ttl)), root)
    whole = GlobalLayout.of_key.fget
    assert whole is not None
    with monkeypatch.context() as before:
        before.setattr(GlobalBatch, "_facts", lambda batch: {**batch.facts_before, TIMED: True})
        before.setattr(
            GlobalLayout, "of_key", property(lambda own: pa.schema([f for f in whole(own) if f.name != TTL]))
        )
        disk.batch(rows(1) + rows(2, key="b"), time=1)
        return disk, disk.shown()


@pytest.mark.parametrize("moved", [False, True], ids=["restarts", "with other partitions"])
def test_state_of_an_older_version_keeps_to_its_ttl_until_the_next_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, moved: bool
) -> None:
    """7.2, 10.1: a longer `ttl` applies to keys that get a row; others expire as they would have, and are counted."""
    disk, shown = of_older_version(tmp_path, monkeypatch, ttl=50)
    disk.change_spec(applied(Every(count(9)), ttl=micros(900)))
    if moved:
        disk.rebuild(shown, 2, time=10)
    disk.batch(rows(3), time=10)
    assert [disk.batch([], time=time).counts["expired"] for time in (51, 52, 910, 911)] == [0, 1, 0, 2]
    assert disk.table() == []


@pytest.mark.parametrize("moved", [False, True], ids=["restarts", "with other partitions"])
def test_state_of_an_older_version_expires_by_the_shorter_ttl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, moved: bool
) -> None:
    """10.1, F51: it has no moment that a `ttl` counts from, so a shorter one counts from its first batch."""
    disk, shown = of_older_version(tmp_path, monkeypatch, ttl=500)
    disk.change_spec(applied(Every(count(9)), ttl=micros(5)))
    if moved:
        disk.rebuild(shown, 2, time=10)
    disk.batch(rows(3, key="c"), time=10)
    disk.change_spec(applied(Every(count(9)), ttl=micros(900)))
    assert [disk.batch([], time=time).counts["expired"] for time in (15, 16, 910, 911)] == [0, 2, 0, 1]


@pytest.mark.parametrize("moved", [False, True], ids=["a restart", "with other partitions"])
@pytest.mark.parametrize("partitions", [1, 8])
def test_a_ttl_that_comes_back_counts_from_then_on(tmp_path: Path, partitions: int, *, moved: bool) -> None:
    """1.6, 7.2: for all keys, whichever got rows meanwhile, and whichever they share a partition with."""
    disk = GlobalDisk(applied(Every(count(9)), ttl=micros(5)), tmp_path, partitions=partitions)
    disk.batch([row for key in "abcdef" for row in rows(1, key=key)], time=1)
    disk.change_spec(applied(Every(count(9)), unbounded=True))
    disk.batch(rows(2), time=2)
    disk.change_spec(applied(Every(count(9)), ttl=micros(5)))
    if moved:
        disk.rebuild(disk.shown(), 3, time=8)
    assert [disk.batch([], time=time).counts["expired"] for time in (8, 13, 14)] == [0, 0, 7]


class Watched:
    """Never fires, and lists how many rows a window has when it is judged."""

    def __init__(self) -> None:
        self.judged: list[int] = []

    def on_row(self, state: dict[str, Any], row: dict[str, Any], at: Moment) -> None:
        """Do nothing."""

    def judge(self, state: dict[str, Any], at: Moment) -> TriggerResult:
        """Note the call."""
        self.judged.append(at.count)
        return TriggerResult.CONTINUE

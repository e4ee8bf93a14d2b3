"""What functions and aggregates get of global windows, and which rows stay (SEMANTICS 1.6, 3.3, 6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from global_disk import OUTPUT, VISIBLE, GlobalDisk, numbers_of

from penstock import agg, count
from penstock.errors import StateRowTooLarge, UserFunctionError, WrongWindowOutput
from penstock.evictors import KeepDelta, KeepLast
from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.window_functions import WindowFunction
from penstock.triggers import Every, Purging
from penstock.windows import GlobalWindow, WindowView

EACH = GlobalWindow().trigger(Every(count(2)))


def applied(fn: Any, window: GlobalWindow = EACH) -> GlobalWindows:
    """Return a step with a function."""
    return GlobalWindows(window=window, function=WindowFunction(fn, "-"))


def rows(*numbers: int, key: str | None = "a") -> list[dict[str, Any]]:
    """Return rows of a key, whose values are their numbers."""
    return [{"k": key, "n": n, "v": float(n), "t": n} for n in numbers]


def test_a_function_gets_the_rows_of_the_stream_in_order_of_arrival(tmp_path: Path) -> None:
    """1.6: all visible columns and no others, held rows before those of the batch; bounds are None."""
    views: list[WindowView] = []

    def seen(key: object, view: WindowView) -> pa.Table:
        views.append(view)
        return OUTPUT.empty_table()

    disk = GlobalDisk(applied(seen), tmp_path)
    disk.batch(rows(5), time=1)
    disk.batch(rows(3, 1), time=2)
    (view,) = views
    assert view.current.schema == VISIBLE
    assert view.current.to_pylist() == [{"k": "a", "n": n, "v": float(n)} for n in (5, 3, 1)]
    assert (view.start, view.end, view.new, view.expired) == (None, None, None, None)


@pytest.mark.parametrize("result", [None, [], OUTPUT.empty_table()], ids=["None", "no dicts", "an empty table"])
def test_a_function_may_give_no_row(tmp_path: Path, result: object) -> None:
    """The window has fired all the same."""
    made = GlobalDisk(applied(lambda key, view: result), tmp_path).batch(rows(1, 2), time=1)
    assert (made.output, made.counts["fired"]) == ([], 1)


def test_a_function_that_raises_or_gives_what_it_must_not_stops_the_batch(tmp_path: Path) -> None:
    """With the key."""
    with pytest.raises(UserFunctionError, match="key 'a'"):
        GlobalDisk(applied(lambda key, view: 1 / 0), tmp_path).batch(rows(1, 2), time=1)
    with pytest.raises(WrongWindowOutput, match="key 'a'"):
        GlobalDisk(applied(lambda key, view: [{"n": 1}]), tmp_path).batch(rows(1, 2), time=1)


def test_what_is_evicted_is_gone(tmp_path: Path) -> None:
    """6: evictors run before the function, and what they take out never comes back; it is counted."""
    disk = GlobalDisk(applied(numbers_of, EACH.evict(KeepLast(3))), tmp_path)
    made = [disk.batch(rows(n, n + 1), time=n) for n in (1, 3, 5)]
    assert [m.output[0]["rows"] for m in made] == [[1, 2], [2, 3, 4], [4, 5, 6]]
    assert [m.counts["evicted"] for m in made] == [0, 1, 2]
    assert [r["n"] for r in disk.table() if r["_row"] is not None] == [4, 5, 6]


def test_rows_leave_from_the_middle_too(tmp_path: Path) -> None:
    """KeepDelta: 9 differs from the last row, and 1 and 2 stay around it."""
    disk = GlobalDisk(applied(numbers_of, EACH.evict(KeepDelta("v", 5))), tmp_path)
    disk.batch(rows(1), time=1)
    disk.batch(rows(9), time=2)
    assert [r["n"] for r in disk.table() if r["_row"] is not None] == [9]
    made = disk.batch(rows(6, 10), time=3)
    assert made.output == [{"k": "a", "rows": [9, 6, 10]}]


AGGREGATES = {
    "n": agg.count(),
    "total": agg.sum("n"),
    "mean": agg.mean("v"),
    "first": agg.first("n"),
    "last": agg.last("n"),
    "rows": agg.collect("n", limit=10),
}


def test_aggregates_are_those_of_the_rows_whether_rows_or_partials_are_kept(tmp_path: Path) -> None:
    """3.3: an evictor that keeps all of them changes nothing but what is stored; a key without rows fires nothing."""
    made = []

    for number, window in enumerate([EACH, EACH.evict(KeepLast(100))]):
        (tmp_path / str(number)).mkdir()
        disk = GlobalDisk(
            GlobalWindows(window=window, aggregates=AGGREGATES), tmp_path / str(number), partitions=2, hashes=2
        )
        batches = [rows(5, 1) + rows(7, key="b"), rows(9), rows(4) + rows(8, 2, key="b"), [], rows(3)]
        made.append([sorted(disk.batch(b, time=t).output, key=lambda row: row["k"]) for t, b in enumerate(batches)])
    assert made[0] == made[1]
    assert [[row["n"] for row in batch] for batch in made[0]] == [[2], [], [4, 3], [], []]
    assert made[0][2][0] == {"k": "a", "n": 4, "total": 19, "mean": 4.75, "first": 1, "last": 9, "rows": [5, 1, 9, 4]}


def test_partials_begin_again_after_a_purge(tmp_path: Path) -> None:
    """No row is kept in the state of aggregates without an evictor."""
    spec = GlobalWindows(window=GlobalWindow().trigger(Purging(Every(count(2)))), aggregates={"total": agg.sum("n")})
    disk = GlobalDisk(spec, tmp_path)
    assert disk.batch(rows(1), time=1).output == []
    assert "_row" not in disk.table()[0]
    assert disk.batch(rows(2), time=2).output == [{"k": "a", "total": 3}]
    assert disk.table() == []
    assert disk.batch(rows(10, 20), time=3).output == [{"k": "a", "total": 30}]


def test_a_distinct_count_is_bounded_by_the_bytes_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.3: above `state_row` the batch stops and names the key; the estimate of as many values does not."""
    window = GlobalWindow(unbounded=True).trigger(Every(count(100_000)))
    facts = GlobalDisk.facts
    monkeypatch.setattr(GlobalDisk, "facts", lambda disk: replace(facts(disk), row_cap=16_000))
    exact = GlobalDisk(GlobalWindows(window=window, aggregates={"n": agg.count_distinct("n")}), tmp_path)
    exact.batch(rows(*range(800)), time=1)
    with pytest.raises(StateRowTooLarge, match=r"step 'w' keeps .* for the key \{'k': 'a'\}"):
        exact.batch(rows(*range(800, 1600)), time=2)
    (tmp_path / "about").mkdir()
    about = GlobalDisk(
        GlobalWindows(window=window, aggregates={"n": agg.approx_count_distinct("n")}), tmp_path / "about"
    )
    for batch in range(4):
        about.batch(rows(*range(800 * batch, 800 * batch + 800)), time=batch + 1)

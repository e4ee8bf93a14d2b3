"""Windows of counts and durations of rows through the whole engine (SEMANTICS 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Job, agg, count, seconds
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Time, Tumbling, TupleWindow

pytestmark = [pytest.mark.slow, pytest.mark.sample(3, of="jobs of windows")]


def shown(key: Any, view: Any) -> list[dict[str, Any]]:
    """Return the numbers of the rows of a view."""
    parts = {name: getattr(view, name)["n"].to_pylist() for name in ("current", "new", "expired")}
    return [{"user": key, "start": view.start, "end": view.end, **parts}]


def job_of(partitions: int = 2) -> Job:
    """Return a job with windows by count, by batch time and by event time."""
    job = Job("rows", interval=seconds(1), partitions=partitions)
    source = MemorySource("user string, n int, t timestamp")
    rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0))
    keyed = rows.key_by("user")
    counted = keyed.window("counted", TupleWindow(count(3), count(2), ttl=seconds(60)))
    counted.apply(
        shown,
        output="user string, start timestamp, end timestamp, current array<int>, new array<int>, expired array<int>",
    ).write("out_counted", MemorySink())
    ticked = keyed.window("ticked", TupleWindow.tumbling(seconds(3), unbounded=True))
    ticked.aggregate(rows=agg.count(), last=agg.last("n")).write("out_ticked", MemorySink())
    window = TupleWindow.tumbling(seconds(10), time=Time.EVENT, lag=seconds(5), late_to="old")
    late = rows.window("timed", window).aggregate(rows=agg.count(), highest=agg.max("n"))
    late.write("out_timed", MemorySink())
    job.late("old").write("out_old", MemorySink())
    return job


def row(user: str | None, n: int, t: int) -> dict[str, Any]:
    """Return a row; times are in seconds."""
    return {"user": user, "n": n, "t": t}


def test_windows_go_through_crashes_restores_and_other_partitions(tmp_path: Path) -> None:
    """5.1 to 5.6, 10.1: rows of several tasks, in order of arrival; a late row; state that others read."""
    with Harness(job_of(), tmp_path) as h:
        h.batch({"rows": [row("a", 1, 50), row("b", 2, 51), row("a", 3, 58)]})
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 4, 60), row("a", 5, 63)]})
        h.restart()
        held = read(tmp_path, "rows", "counted")
        assert sorted(n for n in held["n"].to_pylist() if n is not None) == [2, 3, 4, 5]
        h.restore(partitions=3, job=job_of(partitions=3))
        h.batch({"rows": [row("b", 6, 52), row("b", 7, 80)]})
        h.batch()
        h.batch({"rows": [row("c", 8, 90)]})
        output = h.output()
    assert [(r["user"], r["current"], r["new"], r["expired"], r["start"]) for r in output["out_counted"]] == [
        ("a", [1, 3], [1, 3], [], None),
        ("a", [3, 4, 5], [4, 5], [1], None),
        ("b", [2, 6], [2, 6], [], None),
    ]
    ticked = sorted((int(r["window_end"].timestamp()), r["user"], r["rows"], r["last"]) for r in output["out_ticked"])
    assert ticked == [(3, "a", 4, 5), (3, "b", 1, 2), (6, "b", 2, 7)]
    assert [(int(r["window_end"].timestamp()), r["rows"], r["highest"]) for r in output["out_timed"]] == [
        (50, 1, 1),
        (60, 3, 4),
        (70, 1, 5),
        (80, 1, 7),
    ]
    assert [r["n"] for r in output["out_old"]] == [6]


def test_windows_behind_a_lag_do_not_depend_on_the_cuts(tmp_path: Path) -> None:
    """2.1, 10.5: a window that has waited for its lag is on time for the windows behind it."""
    results = []
    for size in (5, 1):
        job = Job("behind", partitions=2)
        source = MemorySource("user string, n int, t timestamp")
        rows = job.source("rows", source, event_time="t", max_out_of_order=seconds(0)).key_by("user")
        lasting = TupleWindow.tumbling(seconds(10), time=Time.EVENT, lag=seconds(20), unbounded=True)
        counted = rows.window("rows_of", lasting).aggregate(n=agg.count())
        behind = counted.window("windows_of", Tumbling(seconds(10)).drop_late()).aggregate(windows=agg.count())
        behind.write("out", MemorySink())
        given = [row("a", n, t) for n, t in enumerate((5, 15, 25, 35, 45))]
        with Harness(job, tmp_path / str(size)) as h:
            made = [out for at in range(0, 5, size) for out in h.batch({"rows": given[at : at + size]})["out"]]
            made += h.drain()["out"]
            assert h.commit().accounting["window:windows_of"]["late"] == 0
        results.append([(out["window_start"].timestamp(), out["windows"]) for out in made])
    assert results[0] == results[1] == [(10 * at, 1) for at in range(1, 6)]

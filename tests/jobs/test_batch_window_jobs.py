"""A job with windows of batch time: a crash, a restart, a restore, other partitions, checks (SEMANTICS 1.3, 4, 11.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, sub
from pathlib import Path
from typing import Any

import pytest

from penstock import Job, agg, seconds
from penstock.errors import StepsChanged
from penstock.graph.policies import OnFail
from penstock.graph.window_functions import WindowView
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import BatchWindow

pytestmark = [pytest.mark.slow, pytest.mark.sample(3, of="jobs of windows")]

FOUR = BatchWindow(seconds(4), slide=seconds(2))
SUITE = {"name": "few", "expectations": [{"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 2}}]}


HELD = agg.custom(zero=0, add=add, merge=add, subtract=sub, result=str, input="v", state="n long", output="string")


def own(key: str | None, view: WindowView) -> list[dict[str, Any]]:
    """Return the values of a key in a window, in order of arrival."""
    return [{"who": key, "vs": view.current["v"].to_pylist(), "until": view.end}]


def job_of(partitions: int = 2) -> Job:
    """Return a job with each form; its interval is that of the harness."""
    job = Job("windows", partitions=partitions)
    rows = job.source("rows", MemorySource("k string, v int"))
    by_key = rows.key_by("k")
    rows.window("all", FOUR).rows().write("rows_out", MemorySink())
    rows.window("total", FOUR).count().write("total_out", MemorySink())
    by_key.window("lists", FOUR).group("v").write("lists_out", MemorySink())
    by_key.window("texts", FOUR).reduce_by_key(lambda a, b: a + b, value="string(v)").write("texts_out", MemorySink())
    moving = by_key.window("sums", FOUR).reduce_by_key(lambda a, b: a + b, inverse=lambda a, b: a - b, keep="v != 0")
    moving.write("sums_out", MemorySink())
    both = by_key.window("both", FOUR).aggregate(n=agg.count(), total=agg.sum("v"), last=agg.last("v"), held=HELD)
    both.write("both_out", MemorySink())
    by_key.window("own", FOUR).apply(own, output="who string, vs array<int>, until timestamp").write(
        "own_out", MemorySink()
    )
    counts = rows.window("values", FOUR).count_by_value("v")
    counts.check("few", suite=SUITE, on_fail=OnFail.WARN).write("values_out", MemorySink())
    return job


def feed(*rows: tuple[str | None, int]) -> dict[str, list[dict[str, Any]]]:
    """Return rows of the source."""
    return {"rows": [{"k": key, "v": value} for key, value in rows]}


def ends(rows: Sequence[Mapping[str, Any]], column: str, end: str = "window_end") -> list[tuple[int, Any]]:
    """Return the end of each window with a column."""
    return [(int(r[end].timestamp()), r[column]) for r in rows]


def test_windows_of_batch_time_go_through_crashes_restores_and_other_partitions(tmp_path: Path) -> None:
    """1.3, 4.2, 10.1: ranges go by batch times, whatever happens between the batches."""
    with Harness(job_of(), tmp_path, interval=seconds(1), zero=0) as h:
        h.batch(feed(("a", 1), (None, 9)))
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            h.batch(feed(("a", 2), ("b", 2)))
        h.restart()
        assert sorted(ends(h.output()["lists_out"], "v"), key=repr) == [(2, [1, 2]), (2, [2]), (2, [9])]
        assert sorted(ends(h.output()["values_out"], "count")) == [(2, 1), (2, 1), (2, 2)]
        verdict = h.commit().verdicts[0]
        assert (verdict["unit"], verdict["status"]) == (2_000_000, "failed")
        h.batch(feed(("a", 3)))
        h.restore(partitions=3, job=job_of(3))
        made = h.batch(feed(("a", 4)), at=7)
        assert ends(made["rows_out"], "v") == [(4, 1), (4, 9), (4, 2), (4, 2), (4, 3), (6, 3)]
        assert ends(made["total_out"], "count") == [(4, 5), (6, 1)]
        assert sorted(ends(made["texts_out"], "string(v)")) == [(4, "123"), (4, "2"), (4, "9"), (6, "3")]
        assert sorted(ends(made["sums_out"], "v")) == [(4, 2), (4, 6), (4, 9), (6, 3)]
        assert sorted((r["n"], r["total"], r["last"], r["held"]) for r in made["both_out"]) == [
            (1, 2, 2, "2"), (1, 3, 3, "3"), (1, 9, 9, "9"), (3, 6, 3, "6"),
        ]  # fmt: skip
        assert sorted(ends(made["own_out"], "vs", "until")) == [(4, [1, 2, 3]), (4, [2]), (4, [9]), (6, [3])]
        assert {r["who"] for r in made["own_out"]} == {"a", "b", None}
        made = h.batch()
        assert ends(made["lists_out"], "v") == ends(made["own_out"], "vs", "until") == [(8, [4])]
        assert [(row["k"], row["v"]) for row in made["sums_out"]] == [("a", 4)]
        assert [row["k"] for row in h.state("sums") if row["window_end"] is not None] == ["a"]
        h.restore(batch=3)  # whose time is 7, and the next one's 9
        assert ends(h.batch(feed(("b", 5)))["rows_out"], "v") == [(8, 4)]
        assert sorted(ends(h.batch()["lists_out"], "v")) == [(10, [4]), (10, [5])]
        totals = h.commit().totals["window:all"]
        assert (totals["counted"], totals["in_no_window"]) == (totals["rows"], 0)
        assert [row["_rows"] for row in h.state("total") if row["window_end"] is not None] == [2]


def rare(window: BatchWindow) -> Job:
    """Return a job with windows of batch time that it counts."""
    job = Job("rare", partitions=1)
    rows = job.source("rows", MemorySource("k string, v int"))
    rows.key_by("k").window("counts", window).count().write("counts_out", MemorySink())
    return job


def test_a_slide_whose_windows_would_lack_rows_in_no_window_is_refused(tmp_path: Path) -> None:
    """F51, 4.1: a restart with it stops by name; a multiple of the slide resumes."""
    with Harness(rare(BatchWindow(seconds(1), slide=seconds(2))), tmp_path, interval=seconds(1), zero=0) as h:
        for _ in range(3):
            h.batch(feed(("a", 1)))
        with pytest.raises(StepsChanged, match="because the others were in no window"):
            h.restart(rare(BatchWindow(seconds(2), slide=seconds(1))))
        h.restart(rare(BatchWindow(seconds(1), slide=seconds(4))))
        assert ends(h.batch(feed(("a", 1), ("a", 1)))["counts_out"], "count") == [(4, 2)]

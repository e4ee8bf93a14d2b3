"""Time windows give what the suites of Flink, Beam, Kafka Streams and Spark expect of theirs (SEMANTICS 2 and 3).

Rows are key, value and event time in seconds. The watermark of a batch holds from the next one on. Flink's watermark W
says that no row at or before W comes, ours none before W: so where theirs is 1.999 s, ours is 2 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import NO_BOUND, plain

from penstock import Job, agg, count, millis, seconds
from penstock.graph.durations import Duration
from penstock.graph.windows import EventWindow
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import (
    BatchWindow,
    Cumulative,
    LatenessRule,
    Session,
    Sliding,
    Tumbling,
    drop_late,
)

pytestmark = pytest.mark.sample(2, of="windows as elsewhere")

Batch = tuple[Sequence[tuple[Any, ...]], float | None, Mapping[str, Sequence[tuple[Any, ...]]]]
"""Rows, the watermark that they end with (None: as the source has it), and the new rows of each window, sorted."""
SCHEMA = "k string, v int, t timestamp"


def job_of(windows: Mapping[str, EventWindow], *, schema: str = SCHEMA, bound: Duration = NO_BOUND) -> Job:
    """Return a job that sums the values of each window."""
    job = Job("elsewhere", partitions=2)
    source = job.source("rows", MemorySource(schema), event_time="t", max_out_of_order=bound).key_by("k")
    for name, window in windows.items():
        source.window(f"{name}_w", window).aggregate(total=agg.sum("v")).write(name, MemorySink())
    return job


def fed(rows: Sequence[tuple[Any, ...]], *more: str) -> dict[str, Any]:
    """Return rows of the source."""
    return {"rows": [dict(zip(("k", "v", "t", *more), row, strict=True)) for row in rows]}


def check(job: Job, batches: Sequence[Batch], root: Path) -> Mapping[str, Any]:
    """Run the batches, with a restart in the middle, and compare what they emit; return the totals of all counts."""
    with Harness(job, root) as h:
        for place, (rows, watermark, expected) in enumerate(batches):
            if place == len(batches) // 2:
                h.restart()
            output = h.batch(fed(rows), watermark=watermark)
            emitted = {name: sorted(plain(made)) for name, made in output.items() if made}
            assert emitted == {name: sorted(made) for name, made in expected.items()}, f"batch {place}"
        return h.commit().totals


def test_a_window_has_the_rows_of_its_bounds(tmp_path: Path) -> None:
    """3, 2.5: tumbling, sliding and cumulative windows of WindowOperatorTest and of Flink SQL, before 1970 as well."""
    windows: dict[str, EventWindow] = {
        "tumbling": Tumbling(seconds(3)).drop_late(),
        "sliding": Sliding(seconds(3), every=seconds(1)).drop_late(),
        "cumulative": Cumulative(seconds(3), step=seconds(1)).drop_late(),
        "shifted": Tumbling(seconds(3), offset=seconds(-1)).drop_late(),
    }
    second = [("b", 1, 3.999), ("b", 1, 3.0), ("b", 1, 1.998), ("b", 1, 1.999), ("b", 1, 1.0)]
    rows = [*second, ("a", 1, 0.02), ("a", 1, 0), ("a", 1, 0.999), ("c", 1, -0.001)]
    check(
        job_of(windows),
        [
            (rows, 0, {name: [("c", -3, 0, 1)] for name in ("tumbling", "sliding", "cumulative")}),
            ([], 1, {"sliding": [("a", -2, 1, 3), ("c", -2, 1, 1)], "cumulative": [("a", 0, 1, 3)]}),
            (
                [],
                2,
                {
                    "sliding": [("a", -1, 2, 3), ("b", -1, 2, 3), ("c", -1, 2, 1)],
                    "cumulative": [("a", 0, 2, 3), ("b", 0, 2, 3)],
                    "shifted": [("a", -1, 2, 3), ("b", -1, 2, 3), ("c", -1, 2, 1)],
                },
            ),
            (
                [],
                3,
                {name: [("a", 0, 3, 3), ("b", 0, 3, 3)] for name in ("sliding", "cumulative", "tumbling")},
            ),
            ([], 4, {"sliding": [("b", 1, 4, 5)], "cumulative": [("b", 3, 4, 2)]}),
            (
                [],
                6,
                {
                    "sliding": [("b", 2, 5, 2), ("b", 3, 6, 2)],
                    "cumulative": [("b", 3, 5, 2), ("b", 3, 6, 2)],
                    "tumbling": [("b", 3, 6, 2)],
                    "shifted": [("b", 2, 5, 2)],
                },
            ),
            ([], 9, {}),
        ],
        tmp_path,
    )


def test_sessions_merge_and_have_gaps_of_their_own(tmp_path: Path) -> None:
    """3: WindowOperatorTest, and the dynamic gaps of it and of Spark: those not above 0 are in quarantine."""
    job = Job("elsewhere", partitions=2)
    rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0))
    fixed = rows.key_by("k").window("fixed_w", Session(seconds(3)).drop_late()).aggregate(total=agg.sum("v"))
    fixed.write("fixed", MemorySink())
    other = job.source(
        "other", MemorySource(f"{SCHEMA}, gap interval day to second"), event_time="t", max_out_of_order=seconds(0)
    )
    own = other.key_by("k").window("own_w", Session(gap="gap").drop_late()).aggregate(total=agg.sum("v"))
    own.write("own", MemorySink())
    first = [("b", 1, 0), ("b", 2, 1), ("b", 3, 2.5), ("a", 1, 0.01), ("a", 2, 1)]
    second = [("a", 3, 2.5), ("b", 4, 5.501), ("b", 5, 6), ("b", 5, 6), ("b", 6, 6.05)]
    with Harness(job, tmp_path) as h:
        timed = [
            ("a", 1, 0.01, 3), ("a", 2, 4, 6), ("b", 3, 0, 3), ("b", 4, 3, 1), ("b", 5, 10, 0.001),
            *(("c", 1, 1, gap) for gap in (0, -5, None)),
        ]  # fmt: skip
        given = [(k, v, t, None if gap is None else timedelta(seconds=gap)) for k, v, t, gap in timed]
        made = h.batch({**fed(first), "other": fed(given, "gap")["rows"]}, watermark={"other": 30})
        assert sorted(plain(made["own"])) == [
            ("a", 0.01, 3.01, 1),
            ("a", 4, 10, 2),
            ("b", 0, 4, 7),
            ("b", 10, 10.001, 5),
        ]
        assert made["fixed"] == []
        assert h.commit().totals["window:own_w"]["quarantined"] == 3
        h.restart()
        made = h.batch(fed(second), watermark=12.001)["fixed"]
        assert sorted(plain(made)) == [("a", 0.01, 5.5, 6), ("b", 0, 5.5, 6), ("b", 5.501, 9.05, 20)]
        assert h.batch(fed([("b", 10, 15), ("b", 20, 15)]), watermark=18)["fixed"] == [], "a row at the end would join"
        assert plain(h.batch(watermark=18.001)["fixed"]) == [("b", 15, 18, 30)]


def test_panes_accumulate_or_not_and_late_rows_revise(tmp_path: Path) -> None:
    """2.3, 2.6, 3.2: GroupByKey over Beam's TestStream, with allowed lateness; testLateness of Flink."""

    def by_rows() -> Any:
        return Tumbling(seconds(10)).update_late(within=seconds(5), then=drop_late()).emit_on(count(2))

    windows: dict[str, EventWindow] = {
        "accumulating": by_rows().accumulating(),
        "discarding": by_rows().discarding(),
        "by_default": Tumbling(seconds(10)).update_late(within=seconds(5), then=drop_late()),
        "by_time": Tumbling(seconds(10))
        .update_late(within=seconds(5), then=drop_late())
        .emit_every(seconds(3))
        .discarding(),
        "strict": Tumbling(seconds(10)).drop_late().lateness_rule(LatenessRule.WATERMARK),
    }
    w = ("a", 0, 10)
    b = ("b", 0, 10, 1)
    totals = check(
        job_of(windows),
        [
            ([("a", 1, 1)], 0, {}),
            (
                [("a", 2, 2), ("a", 4, 3)],
                5,
                {"accumulating": [(*w, 7, "EARLY", 0)], "discarding": [(*w, 7, "EARLY", 0)]},
            ),
            ([("a", 8, 4)], 5, {"by_time": [(*w, 15, "EARLY", 0)]}),
            (
                [("a", 16, 6), ("b", 1, 6)],
                10,
                {
                    "accumulating": [(*w, 31, "EARLY", 1), (*w, 31, "ON_TIME", 2), (*b, "ON_TIME", 0)],
                    "discarding": [(*w, 24, "EARLY", 1), (*b, "ON_TIME", 0)],
                    "by_default": [(*w, 31, "ON_TIME", 0), (*b, "ON_TIME", 0)],
                    "by_time": [(*w, 16, "ON_TIME", 1), (*b, "ON_TIME", 0)],
                    "strict": [(*w, 23), b],
                },
            ),
            (
                [("a", 32, 9), ("a", 64, 8)],
                12,
                {
                    "accumulating": [(*w, 127, "LATE", 3)],
                    "discarding": [(*w, 96, "LATE", 2)],
                    "by_default": [(*w, 127, "LATE", 1)],
                    "by_time": [(*w, 96, "LATE", 2)],
                },
            ),
            (
                [("a", 128, 1)],
                15,
                {
                    "accumulating": [(*w, 255, "LATE", 4)],
                    "discarding": [(*w, 128, "LATE", 3)],
                    "by_default": [(*w, 255, "LATE", 2)],
                    "by_time": [(*w, 128, "LATE", 3)],
                },
            ),
            ([("a", 256, 1)], 16, {}),
        ],
        tmp_path,
    )
    assert {name: totals[f"window:{name}_w"]["late"] for name in windows} == {
        **dict.fromkeys(windows, 1),
        "strict": 5,
    }


def test_a_window_is_suppressed_until_it_closes(tmp_path: Path) -> None:
    """2.1, 2.5, 3.2: SuppressScenarioTest, with a grace period of 1 ms, beside what it does without suppression."""
    windows: dict[str, EventWindow] = {
        "final": Tumbling(millis(2)).drop_late(),
        "table": Tumbling(millis(2)).drop_late().emit_on(count(1)).accumulating(),
        "sessions": Session(millis(5)).drop_late(),
    }
    first, second, third = ("a", 0, 0.002), ("a", 0.002, 0.004), ("a", 0.004, 0.006)
    batches: list[Batch] = [
        ([("a", 1, 0)], None, {"table": [(*first, 1, "EARLY", 0)]}),
        ([("a", 1, 0.001)], None, {"table": [(*first, 2, "EARLY", 1)]}),
        ([("a", 1, 0.002)], None, {"table": [(*second, 1, "EARLY", 0)]}),
        ([("a", 1, 0.001)], None, {"table": [(*first, 3, "EARLY", 2)]}),
        ([("a", 1, 0)], None, {"table": [(*first, 4, "EARLY", 3)]}),
        (
            [("a", 1, 0.005)],
            None,
            {
                "final": [(*first, 4), (*second, 1)],
                "table": [(*first, 4, "ON_TIME", 4), (*second, 1, "ON_TIME", 1), (*third, 1, "EARLY", 0)],
            },
        ),
        ([("a", 1, 0)], None, {}),
        (
            [("a", 1, 0.03)],
            None,
            {
                "final": [(*third, 1)],
                "table": [(*third, 1, "ON_TIME", 1), ("a", 0.03, 0.032, 1, "EARLY", 0)],
                "sessions": [("a", 0, 0.01, 7)],
            },
        ),
    ]
    totals = check(job_of(windows, bound=millis(1)), batches, tmp_path)
    assert totals["window:final_w"]["late"] == totals["window:table_w"]["late"] == 1
    assert totals["window:sessions_w"]["late"] == 0, "a session that is open takes it"


def sides(key: str, view: Any) -> list[dict[str, Any]]:
    """Return the values of both sides."""
    values: dict[str, list[str]] = {"a": [], "b": []}
    for row in view.current.to_pylist():
        values[row["side"]].append(row["v"])
    return [{"k": key, **values}]


def test_two_streams_are_grouped_together_by_a_union(tmp_path: Path) -> None:
    """3, 4.2: coGroup of Flink's CoGroupJoinITCase, and the joins of a batch of BasicOperationsSuite."""
    job = Job("elsewhere", interval=seconds(1), partitions=2)
    streams = {
        name: job.source(
            name, MemorySource("k string, v string, t timestamp"), event_time="t", max_out_of_order=seconds(0)
        ).with_columns(side=f"'{name}'")
        for name in ("a", "b")
    }
    both = streams["a"].union(streams["b"]).key_by("k")
    for name, window in {"timed": Tumbling(millis(3)).drop_late(), "batch": BatchWindow(seconds(1))}.items():
        grouped = both.window(f"{name}_w", window).apply(sides, output="k string, a array<string>, b array<string>")
        grouped.write(name, MemorySink())

    def made(h: Harness, a: Sequence[tuple[str, str, float]], b: Sequence[tuple[str, str, float]]) -> dict[str, Any]:
        output = h.batch({"a": fed(a)["rows"], "b": fed(b)["rows"]})
        return {name: sorted((r["k"], "".join(r["a"]), "".join(r["b"])) for r in rows) for name, rows in output.items()}

    first = [(k, v, place / 1000) for place, (k, v) in enumerate(zip("aaabbbaaa", "xyzuvwijk", strict=True))]
    second = [(k, v, at / 1000) for k, v, at in [("a", "u", 0), ("a", "w", 1), ("b", "i", 3), ("c", "x", 6)]]
    with Harness(job, tmp_path) as h:
        assert made(h, first[:4], second[:2])["batch"] == [("a", "xyz", "uw"), ("b", "u", "")]
        h.restart()
        output = made(h, first[4:], second[2:])
        assert output["batch"] == [("a", "ijk", ""), ("b", "vw", "i"), ("c", "", "x")]
        assert output["timed"] == [("a", "xyz", "uw"), ("b", "uvw", "i")]
        output = made(h, [("d", "x", 0.009)], [("d", "y", 0.009)])
        assert output == {"batch": [("d", "x", "y")], "timed": [("a", "ijk", ""), ("c", "", "x")]}

"""Jobs that call functions over windows: crashes, restarts, rescaling, late rows, chains (SEMANTICS 1.6, 2.6, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, agg, seconds
from penstock.errors import BadExpression, JobError
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Session, Tumbling, WindowView, drop_late, late_to

pytestmark = pytest.mark.slow

SCHEMA = "user string, shop int, t timestamp, tags array<struct<name: string>>, sizes map<string, int>"


class Visits:
    """Return a row for each row of a window, with its place there; a new list in each task."""

    def open(self, info: Any) -> None:
        self.batch = info.batch

    def __call__(self, key: Any, view: WindowView) -> list[dict[str, Any]]:
        rows = view.current.to_pylist()
        return [
            {
                "who": key.user,
                "until": view.end,
                "place": place,
                "names": [tag["name"] for tag in row["tags"] or ()],
                "large": dict(row["sizes"]).get("l"),
            }
            for place, row in enumerate(rows)
        ]


def shops(partitions: int) -> Job:
    """Return a job that lists what each user has in each shop, revises for a minute, and chains two windows."""
    job = Job("shops", partitions=partitions)
    rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0))
    keyed = rows.key_by("user", "shop")
    window = Tumbling(seconds(10)).update_late(within=seconds(60), then=late_to("too_late"))
    listed = keyed.window("listed", window).apply(
        Visits(), output="who string, until timestamp, place int, names array<string>, large int"
    )
    listed.write("out", MemorySink())
    job.late("too_late").write("too_late", MemorySink())
    plain = keyed.window("plain", Tumbling(seconds(10)).drop_late()).apply(
        Visits(), output="who string, until timestamp, place int, names array<string>, large int"
    )
    per_user = plain.key_by("who").window("per_user", Tumbling(seconds(20)).drop_late())
    per_user.aggregate(places=agg.collect("place", limit=99)).write("chained", MemorySink())
    visits = rows.key_by("user").window("visits", Session(seconds(5)).drop_late())
    visits.apply(
        lambda key, view: pa.table({"user": [key], "n": [view.current.num_rows]}), output="user string, n int"
    ).write("sessions", MemorySink())
    return job


def row(user: str | None, t: float, name: str, shop: int = 1) -> dict[str, Any]:
    """Return a row with nested values."""
    return {"user": user, "shop": shop, "t": t, "tags": [{"name": name}], "sizes": {"l": int(t)}}


def told(rows: list[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return output as user, end, place, names, and the pane where there is one."""
    return [
        (
            r["who"],
            int(r["until"].timestamp()),
            r["place"],
            "".join(r["names"]),
            *(r[p] for p in ("_pane", "_revision") if p in r),
        )
        for r in rows
    ]


@pytest.mark.sample(3, of="jobs of windows")
def test_functions_over_windows_go_through_crashes_late_rows_and_other_partitions(tmp_path: Path) -> None:
    """2.1, 2.6, 3, 10.1: rows in order of arrival over batches; a late one calls again; chained rows keep their order."""
    with Harness(shops(2), tmp_path) as h:
        h.batch({"rows": [row("a", 5, "x"), row("b", 6, "y"), row(None, 1, "z")]})
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 3, "w"), row("a", 8, "v", shop=2)]})
        h.restart()
        h.restore(partitions=3, job=shops(3))
        first = h.batch({"rows": [row("a", 12, "u")]})["out"]
        assert sorted(told(first), key=repr) == [
            ("a", 10, 0, "v", "ON_TIME", 0),
            ("a", 10, 0, "x", "ON_TIME", 0),
            ("a", 10, 1, "w", "ON_TIME", 0),
            ("b", 10, 0, "y", "ON_TIME", 0),
            (None, 10, 0, "z", "ON_TIME", 0),
        ]
        assert {r["large"] for r in first} == {1, 3, 5, 6, 8}
        revised = h.batch({"rows": [row("a", 4, "late")]})["out"]
        assert told(revised) == [("a", 10, place, name, "LATE", 1) for place, name in enumerate(["x", "w", "late"])]
        made = h.batch({"rows": [row("c", 200, "far")]})
        assert told(made["out"]) == [("a", 20, 0, "u", "ON_TIME", 0)]
        h.batch({"rows": [row("a", 5, "lost")]})
        assert [r["tags"] for r in h.late("too_late")] == [[{"name": "lost"}]]
        output = h.output()
        # Two windows of user a close at 10, by key hash; rows of each stand in the order in which they were returned.
        chained = {r["who"]: r["places"] for r in output["chained"]}
        assert chained.pop("a") in ([0, 0, 1, 0], [0, 1, 0, 0])
        assert chained == {"b": [0], None: [0]}
        assert sorted((r["user"] or "", r["n"]) for r in output["sessions"]) == [("", 1), ("a", 5), ("b", 1)]
        assert "_kept_rows" in h.state("listed")[0]


@pytest.mark.parametrize(
    ("output", "error", "match"),
    [
        ("long", BadExpression, "output= of window 'w' is 'long', one type"),
        ("n long, N int", JobError, "output= of window 'w' has two columns 'n'"),
        ("n long, _pane string", JobError, "has a column '_pane', which each of its panes gets"),
    ],
    ids=["one type", "twice", "pane"],
)
def test_output_that_no_window_can_have_is_refused(
    tmp_path: Path, output: str, error: type[Exception], match: str
) -> None:
    """At the start, where Spark parses it."""
    job = Job("job", partitions=1)
    rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0))
    window = Tumbling(seconds(1)).update_late(within=seconds(1), then=drop_late())
    rows.key_by("user").window("w", window).apply(Visits(), output=output).write("out", MemorySink())
    with pytest.raises(error, match=match), Harness(job, tmp_path) as h:
        h.batch({})


def spread(state: dict[str, int | None], value: int) -> dict[str, int | None]:
    low, high = state["low"], state["high"]
    return {"low": value if low is None else min(low, value), "high": value if high is None else max(high, value)}


def wider(a: dict[str, int | None], b: dict[str, int | None]) -> dict[str, int | None]:
    for value in b.values():
        a = a if value is None else spread(a, value)
    return a


@pytest.mark.sample(3, of="jobs of windows")
def test_custom_aggregates_go_through_a_restart_and_other_partitions(tmp_path: Path) -> None:
    """3.3: the state of several columns is a dict, that of one its value; both are Spark DDL."""

    def job_of(partitions: int) -> Job:
        job = Job("spreads", partitions=partitions)
        rows = job.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0))
        width = agg.custom(
            zero={"low": None, "high": None},
            add=spread,
            merge=wider,
            result=lambda state: float(state["high"] - state["low"]),
            input="shop",
            state="low int, high int",
            output="double",
        )
        names = agg.custom(
            zero=list,
            add=lambda state, value: [*state, value],
            merge=lambda a, b: a + b,
            result=lambda state: "".join(sorted(state)),
            input="tags[0].name",
            state="names array<string>",
            output="string",
        )
        windows = rows.key_by("user").window("w", Tumbling(seconds(10)).drop_late())
        windows.aggregate(width=width, names=names, n=agg.count()).write("out", MemorySink())
        return job

    with Harness(job_of(2), tmp_path) as h:
        h.batch({"rows": [row("a", 5, "x", shop=3), row("b", 6, "y")]})
        h.restore(partitions=3, job=job_of(3))
        h.batch({"rows": [row("a", 7, "w", shop=9)]})
        rows = h.batch(watermark=20)["out"]
    assert {r["user"]: (r["width"], r["names"], r["n"]) for r in rows} == {"a": (6.0, "wx", 2), "b": (0.0, "y", 1)}

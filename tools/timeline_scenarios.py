"""The jobs and rows of the timelines in docs/operators, which `tools.operator_timelines` runs and draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Job, OnNewVersion, agg, count, seconds
from penstock.evictors import KeepLast
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import idle
from penstock.triggers import Every
from penstock.windows import (
    BatchWindow,
    Cumulative,
    GlobalWindow,
    Session,
    Sliding,
    Time,
    Tumbling,
    TupleWindow,
    drop_late,
)

__all__ = ["SCENARIOS", "Row", "Scenario", "seconds_of"]

Row = dict[str, Any]
_SCHEMA = "k string, t timestamp, v long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job, and the rows of its batches, of which each has `t`, in seconds.

    `label` says what stands beside a row that came in, and `shown` beside what came out. `spans` is whether that are
    windows, with bounds. `tables` has what writes a table anew, from the rows that a batch has under its name.
    """

    title: str
    ticks: Sequence[float]
    build: Callable[[], Job]
    batches: Sequence[Mapping[str, Sequence[Row]]]
    shown: Callable[[Row], str]
    label: Callable[[Row], str] = lambda row: str(row["v"])
    spans: bool = True
    at: Callable[[Row], float] = lambda row: seconds_of(row["t"])
    tables: Mapping[str, Callable[[Sequence[Row]], None]] = field(default_factory=dict)


def seconds_of(at: float | datetime) -> float:
    """Return a time as seconds since 1970."""
    return at.astimezone(UTC).timestamp() if isinstance(at, datetime) else at


def _rows(*given: tuple[str, float, int]) -> list[Row]:
    return [{"k": key, "t": at, "v": value} for key, at, value in given]


def _windows(window: Any) -> Callable[[], Job]:
    def build() -> Job:
        job = Job("timeline", partitions=2)
        rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
        made = rows.key_by("k").window("w", window).aggregate(n=agg.count(), total=agg.sum("v"))
        made.write("out", MemorySink())
        return job

    return build


def _deduplicated() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    rows.deduplicate("d", by=["k"], within=seconds(20)).write("out", MemorySink())
    return job


def _joined() -> Job:
    job = Job("timeline", partitions=2)
    orders = job.source("orders", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    paid = job.source(
        "payments", MemorySource("k string, t timestamp, v long"), event_time="t", max_out_of_order=seconds(5)
    )
    pairs = orders.select("k", "v AS ordered").join(
        "j", paid.select("k", "v AS paid", "t AS at"), on=["k"], within=(seconds(0), seconds(10))
    )
    pairs.write("out", MemorySink())
    return job


def _triggered() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    window = GlobalWindow().trigger(Every(count(3))).evict(KeepLast(4))
    made = rows.key_by("k").window("w", window).aggregate(values=agg.collect("v", limit=9), newest=agg.max("t"))
    made.write("out", MemorySink())
    return job


def _paid_or_not() -> Job:
    job = Job("timeline", partitions=2)
    orders = job.source("orders", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(0))
    paid = job.source("payments", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(0))
    pairs = orders.select("k", "v AS ordered", "t AS ordered_at").join(
        "j", paid.select("k", "v AS paid"), on=["k"], within=(seconds(0), seconds(10)), how="left"
    )
    pairs.write("out", MemorySink())
    return job


def _as_of() -> Job:
    job = Job("timeline", partitions=2)
    trades = job.source("trades", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    quotes = job.source("quotes", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    quoted = trades.join_as_of("q", quotes.select("k", "v AS bid"), on=["k"], within=seconds(15), how="left")
    quoted.write("out", MemorySink())
    return job


def _counted() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    window = TupleWindow(count(3), count(2), unbounded=True)
    made = rows.key_by("k").window("w", window).aggregate(values=agg.collect("v", limit=9), newest=agg.max("t"))
    made.write("out", MemorySink())
    return job


def _lasting() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(0))
    window = TupleWindow(seconds(10), seconds(5), time=Time.EVENT, lag=seconds(5), unbounded=True)
    made = rows.key_by("k").window("w", window).aggregate(n=agg.count(), total=agg.sum("v"))
    made.write("out", MemorySink())
    return job


def _mapped() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    rows.map_batches("halves", _halves, output="t timestamp, half double", same_rows=True).write("out", MemorySink())
    return job


def _halves(rows: pa.Table, _info: object) -> pa.Table:
    return pa.table({"t": rows["t"], "half": pc.multiply(rows["v"], 0.5)})


def _by_batch() -> Job:
    job = Job("timeline", interval=seconds(1), partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA)).key_by("k")
    sums = rows.window("w", BatchWindow(seconds(4), slide=seconds(2))).reduce_by_key(lambda a, b: a + b, value="v")
    sums.write("out", MemorySink())
    return job


def _total(time: Any, key: str, row: Row | None, state: Any) -> Row:
    if row is None:
        return {"k": key, "total": state.get()["total"], "t": time, "why": "timed out"}
    total = row["v"] + (state.get()["total"] if state.exists() else 0)
    state.update(total=total)
    return {"k": key, "total": total, "t": row["t"], "why": ""}


def _totals() -> Job:
    job = Job("timeline", interval=seconds(10), partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA)).key_by("k")
    totals = rows.map_with_state(
        "totals",
        _total,
        state="total long",
        output="k string, total long, t timestamp, why string",
        timeout=idle(seconds(15)),
    )
    totals.write("out", MemorySink())
    return job


_prices: list[tuple[str, int]] = []
"""The table of `join_static`, as it is now."""


def _write_prices(rows: Sequence[Row]) -> None:
    _prices[:] = [(row["k"], row["v"]) for row in rows]


def _read_prices() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.active().createDataFrame(_prices, "k string, price long")


def _priced() -> Job:
    job = Job("timeline", interval=seconds(10), partitions=2)
    orders = job.source("orders", MemorySource(_SCHEMA))
    priced = orders.join_static(_read_prices, on=["k"], how="left", refresh=OnNewVersion(), name="prices")
    priced.write("out", MemorySink())
    return job


def _sums(row: Row) -> str:
    return f"n {row['n']}, sum {row['total']}"


_BATCHES = (
    {"rows": _rows(("a", 2, 1), ("a", 8, 2), ("a", 13, 3))},
    {"rows": _rows(("a", 9, 4), ("a", 21, 5))},
    {"rows": _rows(("a", 17, 6), ("a", 36, 7))},
)
"""Out of order by up to five seconds, so that none is late."""
_TICKS = (0, 10, 20, 30, 40)

SCENARIOS: Mapping[str, Scenario] = {
    "tumbling": Scenario(
        title="Tumbling(seconds(10)), rows at most 5 s out of order",
        ticks=_TICKS,
        build=_windows(Tumbling(seconds(10)).drop_late()),
        batches=_BATCHES,
        shown=_sums,
    ),
    "sliding": Scenario(
        title="Sliding(seconds(20), every=seconds(10)): each row is in two windows",
        ticks=(-10, *_TICKS),
        build=_windows(Sliding(seconds(20), every=seconds(10)).drop_late()),
        batches=_BATCHES,
        shown=_sums,
    ),
    "cumulative": Scenario(
        title="Cumulative(seconds(20), step=seconds(5)): the sum so far, every 5 s",
        ticks=_TICKS,
        build=_windows(Cumulative(seconds(20), step=seconds(5)).drop_late()),
        batches=_BATCHES,
        shown=_sums,
    ),
    "revisions": Scenario(
        title="Tumbling(seconds(10)).update_late(within=seconds(20), …): a late row revises its window",
        ticks=_TICKS,
        build=_windows(Tumbling(seconds(10)).update_late(within=seconds(20), then=drop_late())),
        batches=(
            {"rows": _rows(("a", 2, 1), ("a", 8, 2), ("a", 13, 3))},
            {"rows": _rows(("a", 22, 4))},
            {"rows": _rows(("a", 6, 5), ("a", 33, 6))},
        ),
        shown=lambda row: f"{row['_pane']} {row['_revision']}: {_sums(row)}",
    ),
    "session": Scenario(
        title="Session(seconds(8)): a row out of order joins two sessions into one",
        ticks=(0, 10, 20, 30, 40, 50),
        build=_windows(Session(seconds(8)).drop_late()),
        batches=(
            {"rows": _rows(("a", 2, 1), ("a", 13, 2))},
            {"rows": _rows(("a", 8, 3), ("a", 30, 4))},
            {"rows": _rows(("a", 48, 5))},
        ),
        shown=_sums,
    ),
    "deduplicate": Scenario(
        title='deduplicate(by=["k"], within=seconds(20)): the first row of each key, until it is forgotten',
        ticks=(0, 10, 20, 30, 40, 50),
        build=_deduplicated,
        batches=(
            {"rows": _rows(("a", 2, 1), ("b", 6, 1), ("a", 9, 2))},
            {"rows": _rows(("b", 21, 2), ("c", 30, 1))},
            {"rows": _rows(("a", 33, 3))},
            {"rows": _rows(("b", 44, 3))},
        ),
        label=lambda row: f"{row['k']}{row['v']}",
        shown=lambda row: f"{row['k']}{row['v']}",
        spans=False,
    ),
    "join": Scenario(
        title="join(within=(seconds(0), seconds(10))): a payment at most 10 s after its order",
        ticks=_TICKS,
        build=_joined,
        batches=(
            {"orders": _rows(("a", 3, 1), ("b", 6, 2)), "payments": _rows(("a", 9, 1))},
            {"orders": _rows(("a", 15, 3)), "payments": _rows(("b", 14, 2), ("a", 27, 4))},
        ),
        label=lambda row: f"{row['k']}{row['v']}",
        shown=lambda row: f"{row['k']}: {row['ordered']} and {row['paid']}",
        spans=False,
        at=lambda row: seconds_of(row["at"]),
    ),
    "triggers": Scenario(
        title="GlobalWindow().trigger(Every(count(3))).evict(KeepLast(4)): judged once a batch, after its rows",
        ticks=_TICKS,
        build=_triggered,
        batches=(
            {"rows": _rows(("a", 2, 1), ("a", 8, 2))},
            {"rows": _rows(("a", 13, 3), ("a", 9, 4), ("a", 21, 5))},
            {"rows": _rows(("a", 25, 6))},
            {"rows": _rows(("a", 30, 7), ("a", 36, 8))},
        ),
        shown=lambda row: f"rows {', '.join(map(str, row['values']))}",
        spans=False,
        at=lambda row: seconds_of(row["newest"]),
    ),
    "early": Scenario(
        title="Tumbling(seconds(20)).emit_on(count(2)): early panes, then the final one",
        ticks=_TICKS,
        build=_windows(Tumbling(seconds(20)).drop_late().emit_on(count(2))),
        batches=_BATCHES,
        shown=lambda row: f"{row['_pane']} {row['_revision']}: {_sums(row)}",
    ),
    "outer-join": Scenario(
        title='join(…, how="left"): an order that nobody has paid within 10 s comes with nulls',
        ticks=_TICKS,
        build=_paid_or_not,
        batches=(
            {"orders": _rows(("a", 3, 1), ("b", 6, 2)), "payments": _rows(("a", 9, 1))},
            {"orders": _rows(("c", 20, 3)), "payments": _rows(("d", 18, 4))},
            {"orders": _rows(("e", 25, 5)), "payments": _rows(("c", 24, 3))},
        ),
        label=lambda row: f"{row['k']}{row['v']}",
        shown=lambda row: f"{row['k']}: {row['ordered']} and {row['paid']}",
        spans=False,
        at=lambda row: seconds_of(row["ordered_at"]),
    ),
    "as-of": Scenario(
        title="join_as_of(within=seconds(15)): each trade with the quote that was newest at its time",
        ticks=_TICKS,
        build=_as_of,
        batches=(
            {"trades": _rows(("a", 10, 1)), "quotes": _rows(("a", 2, 50), ("a", 12, 52))},
            {"trades": _rows(("a", 19, 2)), "quotes": _rows(("a", 8, 51))},
            {"trades": _rows(("a", 36, 3)), "quotes": _rows(("a", 37, 53))},
        ),
        shown=lambda row: f"trade {row['v']}: {row['bid']}",
        spans=False,
    ),
    "static-join": Scenario(
        title='join_static(prices, how="left", refresh=OnNewVersion()): by the times of batches',
        ticks=(0, 10, 20, 30, 40),
        build=_priced,
        batches=(
            {"prices": _rows(("a", 7, 50), ("b", 7, 80)), "orders": _rows(("a", 10, 1))},
            {"orders": _rows(("b", 20, 2))},
            {"prices": _rows(("a", 27, 55)), "orders": _rows(("a", 30, 3), ("b", 30, 4))},
        ),
        label=lambda row: f"{row['k']}: {row['v']}",
        shown=lambda row: f"{row['v']} at {row['price']}",
        spans=False,
        tables={"prices": _write_prices},
    ),
    "counts": Scenario(
        title="TupleWindow(count(3), count(2)): after each two rows of a key, its last three",
        ticks=_TICKS,
        build=_counted,
        batches=_BATCHES,
        shown=lambda row: f"rows {', '.join(map(str, row['values']))}",
        spans=False,
        at=lambda row: seconds_of(row["newest"]),
    ),
    "durations": Scenario(
        title="TupleWindow(seconds(10), seconds(5), time=Time.EVENT, lag=seconds(5))",
        ticks=(-10, *_TICKS),
        build=_lasting,
        batches=_BATCHES,
        shown=_sums,
    ),
    "batch-windows": Scenario(
        title="BatchWindow(seconds(4), slide=seconds(2)).reduce_by_key(…): by the times of batches",
        ticks=(0, 2, 4, 6, 8),
        build=_by_batch,
        batches=[{"rows": _rows(("a", batch, batch))} for batch in range(1, 7)],
        shown=lambda row: f"v {row['v']}",
    ),
    "functions": Scenario(
        title="map_with_state(…, timeout=idle(seconds(15))): a total for each key, by the times of batches",
        ticks=(0, 10, 20, 30, 40, 50),
        build=_totals,
        batches=[{"rows": _rows(("a", 10, 1), ("b", 10, 5))}, {"rows": _rows(("a", 20, 2))}, {}, {}],
        label=lambda row: f"{row['k']}: {row['v']}",
        shown=lambda row: f"{row['k']}: {row['total']} {row['why']}".strip(),
        spans=False,
    ),
    "map-batches": Scenario(
        title="map_batches(halves, same_rows=True): each row at once, with its event time, and nothing is kept",
        ticks=_TICKS,
        build=_mapped,
        batches=_BATCHES,
        shown=lambda row: f"{row['half']:g}",
        spans=False,
    ),
}

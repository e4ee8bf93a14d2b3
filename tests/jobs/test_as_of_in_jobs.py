"""`join_as_of` in a job: exact through crashes, restarts and rescaling, and never late downstream (SEMANTICS 7.6)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import EveryBatches, Job, agg, seconds
from penstock.errors import JobError, StepsChanged
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(1, of="as-of joins")

TRADES, QUOTES = "id string, price long, t timestamp", "id string, bid long, u timestamp"
SLACK, WITHIN = 4, 9
Rows = list[dict[str, Any]]


def quoted(*, partitions: int = 2, how: Any = "left", within: int = WITHIN, quotes: str = QUOTES) -> Job:
    """Return a job that gives each trade the quote of its time, and counts both trades and quotes downstream."""
    job = Job("quoted", partitions=partitions)
    job.checkpoint(every=EveryBatches(3))
    trades = job.source("trades", MemorySource(TRADES), event_time="t", max_out_of_order=seconds(SLACK))
    right = job.source("quotes", MemorySource(quotes), event_time="u", max_out_of_order=seconds(SLACK))
    made = trades.join_as_of("quoted", right, on=["id"], within=seconds(within), how=how)
    made.select("id", "price", "bid").write("out", MemorySink())
    counts = made.key_by("id").window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count())
    counts.write("counts", MemorySink())
    return job


def drawn(random_: random.Random, batch: int, value: str, time: str) -> Rows:
    """Return rows of few keys, at most so late that none is dropped."""
    return [
        {"id": random_.choice(["a", "b", None]), value: 100 * batch + n, time: 3 * batch + 10 - random_.randrange(4)}
        for n in range(random_.randrange(1, 6))
    ]


def expected(trades: Rows, quotes: Rows) -> list[tuple[int, int | None]]:
    """Return which quote each trade takes, by its definition."""
    pairs = []
    for trade in trades:
        fits = [
            (quote["u"], n, quote["bid"])
            for n, quote in enumerate(quotes)
            if quote["id"] == trade["id"] is not None and trade["t"] - WITHIN <= quote["u"] <= trade["t"]
        ]
        pairs.append((trade["price"], max(fits)[2] if fits else None))
    return sorted(pairs, key=str)


def pairs(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int | None]]:
    """Return which quotes trades took."""
    return sorted(((row["price"], row["bid"]) for row in rows), key=str)


def test_each_trade_takes_its_quote_once(tmp_path: Path) -> None:
    """Through crashes, a restart, another number of partitions, and from a data checkpoint; no row is late downstream."""
    random_, trades, quotes = random.Random(7), [], []
    with Harness(quoted(), tmp_path) as h:
        for batch in range(6):
            fed = {"trades": drawn(random_, batch, "price", "t"), "quotes": drawn(random_, batch, "bid", "u")}
            trades += fed["trades"]
            quotes += fed["quotes"]
            if batch in (2, 4):
                h.crash_after({2: "Compute", 4: "CommitBatch"}[batch])
                with pytest.raises(Crashed):
                    h.batch(fed)
                h.restart()
            else:
                h.batch(fed)
            if batch == 3:
                h.restore(partitions=3, job=quoted(partitions=3))
        assert read(tmp_path, "quoted", "quoted").num_rows == len(h.state("quoted")) > 0
        for value in (500, 501):
            end = {"trades": [{"id": "z", "price": value, "t": value}], "quotes": [{"id": "z", "bid": 0, "u": value}]}
            h.batch(end)
        rows = [row for row in h.output()["out"] if row["id"] != "z"]
        assert pairs(rows) == expected(trades, quotes)
        assert {bid is None for _, bid in pairs(rows)} == {True, False}
        totals = h.commit().totals
        assert totals["window:w"]["late"] == 0
        assert sum(row["n"] for row in h.output()["counts"]) == len(rows)
        counted = totals["join_as_of:quoted"]
        assert counted["rows"] == counted["merged"] + counted["null_keys"] == len(trades) + len(quotes) + 4
        assert counted["null_keys"] == sum(quote["id"] is None for quote in quotes)
        assert counted["matched"] + counted["unmatched"] >= len(trades)


def test_rows_of_a_window_take_the_row_of_its_end(tmp_path: Path) -> None:
    """Behind a window, whose rows are of the batch in which the watermark passes them (SEMANTICS 2.1)."""
    job = Job("chained", partitions=2)
    trades = job.source("trades", MemorySource(TRADES), event_time="t", max_out_of_order=seconds(0))
    quotes = job.source("quotes", MemorySource(QUOTES), event_time="u", max_out_of_order=seconds(0))
    sums = trades.key_by("id").window("w", Tumbling(seconds(10)).drop_late()).aggregate(total=agg.sum("price"))
    sums.join_as_of("quoted", quotes, on=["id"], within=seconds(5)).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"trades": [{"id": "a", "price": n, "t": n} for n in range(8)]})
        h.batch({"quotes": [{"id": "a", "bid": n, "u": n} for n in (3, 6, 9, 10)]})
        out = h.batch({"trades": [{"id": "b", "price": 0, "t": 12}], "quotes": [{"id": "b", "bid": 0, "u": 12}]})["out"]
        assert [(row["id"], row["total"], row["bid"]) for row in out] == [("a", 28, 9)]
        assert h.commit().totals["join_as_of:quoted"]["late"] == 0


@pytest.mark.fault("F51")
def test_a_changed_join_resumes_where_its_state_fits(tmp_path: Path) -> None:
    """A longer bound is refused, and a shorter one resumes; other types of keys are refused by name."""
    with Harness(quoted(), tmp_path) as h:
        h.batch({"quotes": [{"id": "a", "bid": 1, "u": 0}], "trades": [{"id": "a", "price": 1, "t": 5}]})
        with pytest.raises(StepsChanged, match="only the longer one needs"):
            h.restart(quoted(within=WITHIN + 1))
        with pytest.raises(JobError, match="other types"):
            h.restart(quoted(quotes="id long, bid long, u timestamp"))
        h.restart(quoted(within=4, how="inner"))
        h.batch({name: [{"id": "z", value: 0, time: 90}] for name, value, time in _INPUTS})
        assert pairs(h.output()["out"]) == []
        assert h.commit().totals["join_as_of:quoted"]["unmatched"] == 1


_INPUTS = (("trades", "price", "t"), ("quotes", "bid", "u"))


def test_sources_that_end_settle_every_row(tmp_path: Path) -> None:
    """Bounded sources close at their end (SEMANTICS 2.1)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    job = Job("ended", partitions=1)
    streams: list[Stream] = []
    for name, value in (("trades", "price"), ("quotes", "bid")):
        times = pa.array([5_000_000, 7_000_000], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"id": ["a", "a"], value: [1, 2], f"{value}_at": times}), tmp_path / f"{name}.parquet")
        replay = FileReplay(str(tmp_path / f"{name}.parquet"), order_by=f"{value}_at")
        streams.append(job.source(name, replay, event_time=f"{value}_at", max_out_of_order=seconds(0)))
    streams[0].join_as_of("quoted", streams[1], on=["id"], within=seconds(1)).write("out", MemorySink())
    with Harness(job, tmp_path / "checkpoint") as h:
        h.run()
        assert pairs(h.output()["out"]) == [(1, 1), (2, 2)]

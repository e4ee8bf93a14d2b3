"""Jobs with outer joins: crashes, rescaling, restores, a window behind them, and a stream joined with itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import EveryBatches, Job, agg, seconds
from penstock.errors import KeyTypesDiffer, StepsChanged
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="outer joins")

ORDERS, PAYMENTS = "id string, amount long, t timestamp", "id string, card string, paid_at timestamp"


def paid(how: str = "left", *, partitions: int = 2, payments: str = PAYMENTS, **casts: str) -> Job:
    """Return a job that joins orders with payments of the next 20 seconds, and counts both kinds by ten seconds."""
    job = Job("paid", partitions=partitions)
    job.checkpoint(every=EveryBatches(2))
    a = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    b = job.source("payments", MemorySource(payments), event_time="paid_at", max_out_of_order=seconds(0))
    joined = a.join(
        "paid", b.with_columns(**casts) if casts else b, on=["id"], within=(seconds(0), seconds(20)), how=how
    )
    joined.write("out", MemorySink())
    counted = joined.key_by("card").window("tens", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count())
    counted.write("counts", MemorySink())
    return job


def order(key: str | None, amount: int, t: int) -> dict[str, Any]:
    """Return an order; times are in seconds."""
    return {"id": key, "amount": amount, "t": t}


def payment(key: str | None, card: str, t: int) -> dict[str, Any]:
    """Return a payment."""
    return {"id": key, "card": card, "paid_at": t}


def brief(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return id, amount and card of rows."""
    return [(row["id"], row["amount"], row["card"]) for row in rows]


def tick(h: Harness, t: int) -> list[tuple[Any, ...]]:
    """Move both sources on to a time by an order and a payment that match; return the other rows that come."""
    out = h.batch({"orders": [order(f"t{t}", 0, t)], "payments": [payment(f"t{t}", "tick", t)]})["out"]
    return [row for row in brief(out) if row[2] != "tick"]


def test_unpaid_orders_come_once_and_no_window_behind_loses_them(tmp_path: Path) -> None:
    """7.6, 2.1, 1.4, 1.6, 2.10: when the watermark is beyond the bound, through a crash, a rescale and a snapshot.

    The watermark moves by a second a batch, so a row with the event time of its order would be late for the window.
    """
    with Harness(paid(), tmp_path) as h:
        first = [order("a", 1, 0), order(None, 2, 0), order("b", 3, 1), order("c", 4, 0)]
        assert brief(h.batch({"orders": first, "payments": [payment(None, "x", 0)]})["out"]) == [(None, 2, None)]
        assert tick(h, 19) == []
        h.batch({"orders": [order("d", 5, 19)], "payments": [payment("a", "visa", 20), payment("a", "more", 20)]})
        assert brief(h.output()["out"])[-2:] == [("a", 1, "visa"), ("a", 1, "more")]
        assert tick(h, 20) == []  # a payment at 20 would be on time
        table = read(tmp_path, "paid", "paid").to_pylist()
        assert sorted((r["id"], r["_matched"]) for r in table if r["id"] in "abcd" and r["_side"] == "left") == [
            ("a", True),
            ("b", False),
            ("c", False),
            ("d", False),
        ]
        h.crash_after("Compute")
        with pytest.raises(Crashed):
            tick(h, 21)
        h.restart()
        assert brief(h.output()["out"])[-1] == ("c", 4, None)
        h.restore(partitions=3, job=paid(partitions=3))
        assert tick(h, 22) == [("b", 3, None)]
        assert tick(h, 39) == []
        assert tick(h, 40) == [("d", 5, None)]
        tick(h, 41)
        tick(h, 90)
        totals = h.commit().totals
        assert totals["window:tens"]["late"] == 0
        counted = {name: totals["join:paid"][name] for name in ("unmatched_left", "null_keys", "emitted", "pairs")}
        assert counted["unmatched_left"] == 4
        assert counted["null_keys"] == 1
        assert counted["emitted"] == counted["pairs"] + 4
        counts = [(r["window_start"].timestamp(), r["n"]) for r in h.output()["counts"] if r["card"] is None]
        assert counts == [(0, 1), (20, 2), (30, 1)]


def test_a_snapshot_knows_which_orders_were_paid(tmp_path: Path) -> None:
    """10.1: rows that were read again match again, and rows that came before the snapshot do not come once more."""
    with Harness(paid("full"), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 0), order("b", 2, 3)], "payments": [payment("a", "visa", 1)]})
        assert tick(h, 21) == []
        assert tick(h, 22) == []
        assert tick(h, 23) == []
        assert tick(h, 24) == [("b", 2, None)]
        with pytest.raises(StepsChanged, match="how was 'full' and is 'left'"):
            h.restart(paid("left"))
        h.restore(snapshot="1", job=paid("full"))
        again = [row for row in brief(h.run()["out"]) if row[2] != "tick"]
        assert again == [("b", 2, None)]
        h.batch({"payments": [payment("z", "late", 99)], "orders": [order("y", 9, 99)]})
        h.batch({"payments": [payment("x", "last", 500)], "orders": [order("x", 9, 500)]})
        assert [row for row in brief(h.output()["out"]) if row[0] in "yz"] == [("z", None, "late"), ("y", 9, None)]


def test_a_stream_is_joined_with_itself(tmp_path: Path) -> None:
    """7.6: pairs are exact, each row matches itself where the bounds have 0, and also where both inputs are one node."""
    job = Job("self", partitions=3)
    a = job.source("a", MemorySource("id string, v long, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    within = (seconds(1), seconds(5))
    a.join("next", a.select("id", "v AS w"), on=["id"], within=within, how="left").write("nexts", MemorySink())
    keys = a.select("id")
    keys.join("same", keys, on=["id"], within=(seconds(0), seconds(0)), how="full").write("sames", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"a": [{"id": "k", "v": v, "t": t} for v, t in ((1, 10), (2, 12), (3, 20))]})
        h.batch({"a": [{"id": "k", "v": 4, "t": 21}, {"id": "z", "v": 5, "t": 50}]})
        h.batch({"a": [{"id": "z", "v": 6, "t": 100}]})
        out = [(row["v"], row["w"]) for row in h.output()["nexts"]]
        assert sorted(out, key=str) == [(1, 2), (2, None), (3, 4), (4, None), (5, None)]
        assert len(h.output()["sames"]) == 6


@pytest.mark.remedy("PEN-OPR-030")
def test_keys_of_other_types_are_refused(tmp_path: Path) -> None:
    """With both types and what to cast, when the job starts; cast keys join."""
    numbered = "id long, card string, paid_at timestamp"
    with (
        pytest.raises(KeyTypesDiffer, match="id string and id int64") as met,
        Harness(paid(payments=numbered), tmp_path),
    ):
        pass
    assert "CAST(id AS STRING)" in met.value.remedy
    assert __file__ in str(met.value.where)
    with Harness(paid(payments=numbered, id="CAST(id AS STRING)"), tmp_path) as h:
        out = h.batch({"orders": [order("7", 1, 0)], "payments": [{"id": 7, "card": "visa", "paid_at": 1}]})["out"]
        assert brief(out) == [("7", 1, "visa")]

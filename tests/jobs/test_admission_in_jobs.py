"""What bounds a batch changes when rows are read, and nothing else (SEMANTICS 8.3, 8.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from growing import Topic
from harness_jobs import plain
from project_samples import make_project
from typer.testing import CliRunner

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Offsets
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.roots import control_store
from penstock.cli.main import app
from penstock.rates import Constant
from penstock.rates.limits import Limits
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.driver.rate_control import RatePolicy
from penstock.runtime.process.control import OrderWatch
from penstock.runtime.process.signals import StopSwitch
from penstock.sinks import MemorySink
from penstock.supervise.orders import StreamOrders
from penstock.supervise.records import StreamRecords
from penstock.testing import Harness
from penstock.time.clock import SystemClock
from penstock.windows import Tumbling

pytestmark = pytest.mark.spark


def counting(topic: Topic, *, max_rate: float | None = None) -> Job:
    """Return a job that counts the rows of a topic by partition in windows of ten seconds."""
    job = Job("admitted", partitions=1)
    rows = job.source("topic", topic, event_time="t", max_out_of_order=seconds(0))
    if max_rate is not None:
        rows.max_rate(max_rate)
    windows = rows.key_by("p").window("w", Tumbling(seconds(10)).late_to("late"))
    windows.aggregate(n=agg.count()).write("counts", MemorySink())
    job.late("late").write("late", MemorySink())
    return job


def offsets_of(h: Harness) -> list[Offsets]:
    """Return the Offsets in the log, oldest first."""
    log = h._running().driver.log
    entries = [entry for _, entry in log.entries_back(log.find_tail())][::-1]
    return [entry for entry in entries if isinstance(entry, Offsets)]


def drained(tmp_path: Path, name: str, *, max_rate: float | None = None, **settings: Any) -> tuple[Any, list[Offsets]]:
    """Return the windows of a job over a topic with two partitions, and the Offsets of its batches."""
    topic = Topic({"a": 60, "b": 20})
    with Harness(
        counting(topic, max_rate=max_rate), tmp_path / name, settings=DriverSettings(drain=True, **settings)
    ) as h:
        output = h.run()
        assert output["late"] == []
        return sorted(plain(output["counts"])), offsets_of(h)


def test_the_result_is_the_same_whatever_bounds_the_batches(tmp_path: Path) -> None:
    """Rows a batch, rows a second, the cap of a first batch and a rate cut the stream elsewhere, and it is the same."""
    everything, unbound = drained(tmp_path, "none")
    assert unbound[0].limits == {}
    by_rows, offsets = drained(tmp_path, "rows", limits=lambda: Limits(rows=16))
    assert (by_rows, offsets[0].limits) == (everything, {"rows": 16, "bound": {"topic": "rows"}})
    by_code, offsets = drained(tmp_path, "code", max_rate=24)
    assert (by_code, offsets[0].limits) == (everything, {"bound": {"topic": "max_rate"}})
    assert offsets[0].ranges["topic"]["end"] == {"a": 18, "b": 6}
    policy = RatePolicy(estimator=lambda _: Constant(20), first_batch=7, target=1_000_000)
    by_rate, offsets = drained(tmp_path, "rate", rates=policy)
    assert by_rate == everything
    assert offsets[0].ranges["topic"]["end"] == {"a": 7, "b": 7}
    assert offsets[0].limits == {"bound": {"topic": "first_batch"}}
    assert offsets[1].limits == {"rate": 20, "bound": {"topic": "rate"}}
    assert offsets[1].ranges["topic"]["end"] == {"a": 23, "b": 11}  # 20 rows by a lag of 53 and 13


def test_a_limit_that_changes_is_recorded_by_the_first_batch_that_uses_it(tmp_path: Path) -> None:
    """SEMANTICS 8.5; a pause reads nothing, and what it keeps from being read is not idle."""
    limits = [Limits(rows=8), Limits(rows=8, paused=True), Limits(max_rate=5)]
    topic = Topic({"a": 60, "b": 20})
    with Harness(counting(topic), tmp_path, settings=DriverSettings(limits=lambda: limits[0])) as h:
        h.batch(follow=False)
        assert h.commit().sources["topic"].position == {"a": 6, "b": 2}
        waits = MagicMock(spec=Listener)
        h._running().driver.listeners += (waits,)
        limits.pop(0)
        h.batch(follow=False)
        assert h.commit().sources["topic"].position == {"a": 6, "b": 2}
        paused = {"rows": 8, "paused": True, "bound": {"topic": "paused"}}
        waits.on_waiting.assert_called_with(paused, {"topic": ["a", "b"]})  # for status: a pause has no Offsets
        limits.pop(0)
        h.batch(follow=False)
        assert h.commit().sources["topic"].position == {"a": 10, "b": 3}
        recorded = [offsets.limits for offsets in offsets_of(h)]
        assert recorded[0] == {"rows": 8, "bound": {"topic": "rows"}}
        assert recorded[-1] == {"max_rate": 5, "bound": {"topic": "max_rate"}}


def command(root: Path, *words: str) -> None:
    """Run a command of the project, which succeeds."""
    ran = CliRunner().invoke(app, [*words, "--project", str(root)])
    assert ran.exit_code == 0, ran.output


def test_penstock_limits_is_recorded_by_the_next_batch_of_a_running_driver(tmp_path: Path) -> None:
    """SEMANTICS 8.5: rates go from the command to the stream's record and the Offsets, and a pause reads nothing."""
    root = make_project(tmp_path / "project", rows=1)
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    command(root, "start", "orders")
    orders = OrderWatch(StreamOrders(records, 1), StopSwitch(60.0, clock=SystemClock()), first=Limits(rows=8))
    of_partition = {"rows": 8, "max_rate_per_partition": 2, "bound": {"topic": "max_rate_per_partition"}}
    rows = {"topic": "rows"}
    topic = Topic({"a": 60, "b": 20})
    with Harness(counting(topic), tmp_path / "root", settings=DriverSettings(limits=orders.limits)) as h:
        for words, recorded, read in (
            ((), {"rows": 8, "bound": {"topic": "rows"}}, {"a": 6, "b": 2}),
            (("--max-rate", "4"), {"rows": 8, "max_rate": 4, "bound": {"topic": "max_rate"}}, {"a": 9, "b": 3}),
            (("--max-rate", "none", "--max-rate-per-partition", "2"), of_partition, {"a": 11, "b": 5}),
            (("--pause",), of_partition, {"a": 11, "b": 5}),  # nothing is due, so there is no batch
            (("--no-pause",), of_partition, {"a": 13, "b": 7}),
            (
                ("--source", "topic", "--rows", "4", "--max-rate-per-partition", "none"),
                {**of_partition, "sources": {"topic": {"rows": 4, "max_rate_per_partition": None}}, "bound": rows},
                {"a": 16, "b": 8},
            ),
            (("--source", "topic", "--defaults"), of_partition, {"a": 18, "b": 10}),
            (("--max-rate-per-partition", "default", "--rows", "none"), {}, {"a": 60, "b": 20}),
        ):
            if words:
                command(root, "limits", "orders", *words)
            orders.look()
            h.batch(follow=False)
            assert (offsets_of(h)[-1].limits, h.commit().sources["topic"].position) == (recorded, read), words

"""A sink that is busy has the same batch published again, and holds nobody up for ever (F56)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from checkpoint_samples import commit
from fake_engine import FakeEngine, Witness, World, make_driver, plain_job, run_to_end

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.log import Log
from penstock.errors import EXIT_RETRY, SinkBusy
from penstock.runtime.driver.loop import Driver, DriverSettings
from penstock.runtime.driver.publishing import origin_of, publish_patiently
from penstock.sinks import MemorySink
from penstock.sinks.base import Origin
from penstock.sources import MemorySource
from penstock.time.clock import ManualClock
from penstock.windows import Tumbling


class Naps(ManualClock):
    """A clock that notes how long it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)


def busy(times: int, retry_after: float) -> Callable[[], None]:
    """Return what publishes after so many refusals."""
    left = [None] * times

    def publish() -> None:
        if left:
            left.pop()
            raise SinkBusy("no room", retry_after=retry_after)

    return publish


@pytest.mark.parametrize(
    ("times", "retry_after", "naps"),
    [(0, 1.0, []), (1, 0.2, [0.2]), (2, 0.5, [0.5, 0.5]), (1, 2.5, [1.0, 1.0, 0.5])],
    ids=["free", "busy once", "busy twice", "in short naps"],
)
def test_the_driver_waits_as_long_as_the_sink_asks(times: int, retry_after: float, naps: list[float]) -> None:
    """With a hook before each nap, at which a stop is heard."""
    clock = Naps()
    hooks = list(publish_patiently(busy(times, retry_after), "out", 3, clock, 10))
    assert clock.naps == naps
    assert [(hook.stage, hook.when, hook.batch) for hook in hooks] == [("PublishSinks", "busy out", 3)] * len(naps)


@pytest.mark.parametrize("retry_after", [0.0, -1.0, 4.0], ids=["at once", "before now", "in four seconds"])
def test_patience_ends(retry_after: float) -> None:
    """A sink that never has room, or that names no time to wait, ends the driver for a retry."""
    clock = Naps()
    with pytest.raises(SinkBusy) as caught:
        list(publish_patiently(busy(99, retry_after), "out", 3, clock, 10))
    assert sum(clock.naps) == (10 if retry_after > 0 else 0)
    assert caught.value.exit_code == EXIT_RETRY


def driver_of(world: World, store: Witness, name: str, refusals: int) -> Driver:
    """Return a driver whose sink `raw` is busy so many times in a row, each time that batch 1 is published."""
    left = [None] * refusals

    def on_publish(sink: str, batch: int) -> Exception | None:
        if (sink, batch) == ("raw", 1) and left:
            left.pop()
            raise SinkBusy("no room", retry_after=1.0)
        return None

    engine = FakeEngine(world, plain_job(), name, on_publish=on_publish)
    settings = DriverSettings(busy_patience=3)
    return make_driver(world, store, name, graph=plain_job(), engine=engine, settings=settings)


@pytest.mark.fault("F56", "F57")
@pytest.mark.remedy("PEN-SNK-010")
def test_a_busy_sink_gets_each_batch_once() -> None:
    """DESIGN 4: no batch overtakes the one that waits; where patience ends, the next start publishes it."""
    world, store = World(times=[float(n) for n in range(6)]), Witness()
    with pytest.raises(SinkBusy):
        run_to_end(driver_of(world, store, "first", 9))
    assert max(row.batch for row in world.table("raw").shown) == 0
    run_to_end(driver_of(world, store, "second", 2))
    log = Log(store)
    committed = {entry.batch for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Commit)}
    assert {row.batch for row in world.table("raw").shown} == committed
    assert sorted(row.row for row in world.table("raw").shown) == sorted(row.row for row in world.table("copy").shown)
    assert len(world.table("raw").shown) == len(world.times)


@pytest.mark.parametrize(
    ("sink", "marks", "watermark"),
    [
        ("out", {"w": 7, "x": 3}, 7),
        ("both", {"w": 7, "x": 3}, 3),
        ("both", {"w": 7, "x": None}, None),
        ("raw", {"w": 7, "x": 3}, None),
        ("gone", {"w": 7, "x": 3}, None),
    ],
)
def test_a_sink_is_informed_of_the_lowest_watermark_above_it(
    sink: str, marks: dict[str, int | None], watermark: int | None
) -> None:
    """Of one step, of two, where one has none yet, without steps, and where the job has the sink no longer."""
    job = Job("timed")
    rows = job.source("rows", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(1))
    spec = Tumbling(seconds(10)).drop_late()
    w, x = (rows.key_by("k").window(name, spec).aggregate(n=agg.count()) for name in ("w", "x"))
    rows.write("raw", MemorySink())
    w.write("out", MemorySink())
    w.union(x).write("both", MemorySink())
    made = commit(3, epoch=2, time=9, watermarks_in=marks)
    assert origin_of(job.graph(), sink, made) == Origin(job="timed", time=9, watermark=watermark, epoch=2)

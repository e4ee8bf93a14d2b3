"""A job whose code changed goes on where that is safe, and is refused where rows would be lost (F51)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable
from harness_jobs import ORDERS, order, plain, windowed_job

from penstock import Job, agg, seconds
from penstock.errors import IntegerOverflow, StepsChanged
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import Delta, MemorySink
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

ZERO = seconds(0)


class Parts:
    """Sources and sinks that outlive the jobs which name them, as files and tables do."""

    def __init__(self) -> None:
        self.sources: dict[str, MemorySource] = {}
        self.sinks: dict[str, MemorySink] = {}

    def job(self, sources: list[str], sinks: list[str]) -> Job:
        """Return a job that writes the first source to every sink, and each other source to its own."""
        job = Job("changed", partitions=1)
        for number, name in enumerate(sources):
            source = self.sources.setdefault(name, MemorySource(ORDERS))
            rows = job.source(name, source, event_time="t", max_out_of_order=seconds(0))
            for sink in sinks if number == 0 else [f"{name}_out"]:
                rows.write(sink, self.sinks.setdefault(sink, MemorySink()))
        return job


def test_a_sink_goes_once_its_rows_are_published(tmp_path: Path) -> None:
    """The driver that left said so in its Release; one that was killed did not."""
    parts = Parts()
    with Harness(parts.job(["orders"], ["out", "gone"]), tmp_path) as h:
        h.batch({"orders": [order("a", 1)]})
        h.restart(parts.job(["orders"], ["out"]))
        h.restart(parts.job(["orders"], ["out", "gone"]))
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch({"orders": [order("b", 2), order("c", 3)]})
        with pytest.raises(StepsChanged, match="2 rows for sink 'gone'"):
            h.restart(parts.job(["orders"], ["out"]))
        # Nor does a restore to that batch, behind which nobody computes the rows again; one to a batch before it does.
        batch = h.commit().batch
        with pytest.raises(StepsChanged, match="2 rows for sink 'gone'"):
            h.restore(batch=batch, job=parts.job(["orders"], ["out"]))
        h.restart(parts.job(["orders"], ["out", "gone"]))
        h.restart(parts.job(["orders"], ["out"]))
    assert [len(parts.sinks[name].rows()) for name in ("out", "gone")] == [3, 3]


def test_a_source_under_another_name_is_not_read_from_its_beginning(tmp_path: Path) -> None:
    """Its position stands under the old name: going on would give its rows twice."""
    parts = Parts()
    with Harness(parts.job(["orders"], ["out"]), tmp_path) as h:
        h.batch({"orders": [order("a", 1)]})
        parts.sources["renamed"] = parts.sources["orders"]
        with pytest.raises(StepsChanged, match="source 'orders'"):
            h.restart(parts.job(["renamed"], ["out"]))


@pytest.mark.remedy("PEN-CKP-016")
def test_a_source_that_is_dropped_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    """10.1: the next Commit knows it no more, no start need say so again, and under its name a new source begins."""
    parts = Parts()
    two, one = parts.job(["orders", "more"], ["out"]), parts.job(["orders"], ["out"])
    with Harness(two, tmp_path) as h:
        h.batch({"orders": [order("a", 1)], "more": [order("b", 2)]})
        h.settings = DriverSettings(drop=("more",))
        with pytest.raises(StepsChanged, match="source 'more' is to be dropped and the job still has it"):
            h.restart(two)
        h.settings = DriverSettings()
        with pytest.raises(StepsChanged, match="--drop more lets the position go"):
            h.restart(one)
        h.settings = DriverSettings(drop=("more",))
        h.restart(one)
        assert {*h.commit().sources} == {"orders", "more"}, "it goes with the next batch"
        assert plain(h.batch({"orders": [order("a", 5)]})["out"]) == [("a", 5.0, 1)]
        assert {*h.commit().sources} == {"orders"}
        h.settings = DriverSettings(stop_at_end=True)
        parts.sinks["more_out"] = MemorySink()
        h.restart(two)
        assert plain(h.run()["more_out"]) == [("b", 2.0, 1)]


def test_a_restore_that_drops_a_source_drops_it_for_good(tmp_path: Path) -> None:
    """1.2: a batch that was begun with it is run with it, or given up by a restore."""
    parts = Parts()
    one = parts.job(["orders"], ["out"])
    with Harness(parts.job(["orders", "more"], ["out"]), tmp_path) as h:
        h.batch({"orders": [order("a", 1)], "more": [order("b", 2)]})
        h.batch({"orders": [order("a", 3)], "more": [order("b", 4)]})
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.batch({"orders": [order("a", 5)], "more": [order("b", 6)]})
        h.settings = DriverSettings(drop=("more",))
        with pytest.raises(StepsChanged, match="batch 2 was begun with source 'more'.*--from batch=1 --drop more"):
            h.restart(one)
        h.restore(batch=0, job=one)
        h.settings = DriverSettings()
        h.restart(one)
        assert {*h.commit().sources} == {"orders"}
        assert plain(h.batch({"orders": []})["out"]) == [("a", 3.0, 1), ("a", 5.0, 1)]


def windowed(*names: str) -> Job:
    """Return a job that counts the rows of sources in windows of 10 seconds."""
    made = Job("windowed", partitions=1)
    sources = [made.source(name, MemorySource(ORDERS), event_time="t", max_out_of_order=ZERO) for name in names]
    rows = sources[0] if len(sources) == 1 else sources[0].union(sources[1])
    window = rows.key_by("user").window("w", Tumbling(seconds(10)).drop_late())
    window.aggregate(n=agg.count()).write("out", MemorySink())
    return made


def test_a_watermark_that_a_dropped_source_held_back_goes_on(tmp_path: Path) -> None:
    """2.1: the watermark of a step is that of the sources it has, and never goes back."""
    with Harness(windowed("orders", "more"), tmp_path) as h:
        assert h.batch({"orders": [order("a", 1), order("a", 25)], "more": [order("a", 2)]})["out"] == []
        h.settings = DriverSettings(drop=("more",))
        h.restart(windowed("orders"))
        shown = h.batch({"orders": [order("a", 31)]})["out"]
        assert [(row["window_start"].second, row["n"]) for row in shown] == [(0, 2), (20, 1)]


@pytest.mark.parametrize("restores", [False, True])
def test_what_waited_for_a_dropped_source_alone_comes_without_another_row(tmp_path: Path, *, restores: bool) -> None:
    """2.1: the sources that are left may have ended, or be silent, and their windows stayed open for good."""
    with Harness(windowed("orders", "more"), tmp_path) as h:
        assert h.batch({"orders": [order("a", 1), order("a", 25)], "more": [order("a", 2)]})["out"] == []
        h.settings = DriverSettings(drop=("more",), stop_at_end=True)
        if restores:
            h.restore(batch=0, job=windowed("orders"))
            h.settings = DriverSettings(stop_at_end=True)
        h.restart(windowed("orders"))
        assert [(row["window_start"].second, row["n"]) for row in h.run()["out"]] == [(0, 2)]
        assert {*h.commit().sources} == {"orders"}
        batch = h.commit().batch
        h.restart(windowed("orders"))
        h.run()
        assert h.commit().batch == batch, "once"


def test_a_source_that_is_new_begins_at_its_beginning(tmp_path: Path) -> None:
    """Also where only what is there at the start is read."""
    parts = Parts()
    with Harness(parts.job(["orders"], ["out"]), tmp_path) as h:
        h.batch({"orders": [order("a", 1)]})
        h.settings = type(h.settings)(stop_at_end=True)
        parts.sources["more"] = MemorySource(ORDERS)
        parts.sources["more"].feed([order("b", 2)])
        h.restart(parts.job(["orders", "more"], ["out"]))
        assert plain(h.run()["more_out"]) == [("b", 2.0, 1)]


@pytest.mark.remedy("PEN-CKP-016")
def test_a_restore_that_drops_a_step_drops_it_for_good(tmp_path: Path) -> None:
    """Starts after it need not say so again, as they must where no restore has written it down (DESIGN 5)."""

    def without() -> Job:
        job = Job("windowed", partitions=1)
        job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0)).write(
            "out", MemorySink()
        )
        return job

    with Harness(windowed_job(Tumbling(seconds(10)).drop_late(), partitions=1), tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5)]})
        h.batch({"orders": [order("a", 2, 5)]})
        with pytest.raises(StepsChanged, match="the checkpoint has state of step 'w'"):
            h.restore(batch=0, job=without())
        h.settings = DriverSettings(drop=("w",))
        h.restore(batch=0, job=without())
        h.settings = DriverSettings()
        h.restart(without())
        assert (h.commit().batch, h.commit().state) == (0, {})
        h.batch({"orders": [order("a", 3, 5)]})
        assert h.commit().batch > 1


@pytest.mark.sample(1)
@pytest.mark.remedy("PEN-STA-004")
@pytest.mark.parametrize(
    ("cast", "table", "expected"),
    [("DECIMAL(20,0)", "wide", Decimal(2**63 + 41)), ("DOUBLE", "wide", float(2**63 + 41))],
)
def test_the_remedy_of_an_overflow_works(cast: str, table: str, expected: object, tmp_path: Path) -> None:
    """PEN-STA-004, SEMANTICS 3.3: the cast keeps the sums of rows that came before, and the batch is done again."""

    def job(total: str, table: str) -> Job:
        made = Job("sums", partitions=1)
        rows = made.source("rows", MemorySource("k string, t timestamp, v long"), event_time="t", max_out_of_order=ZERO)
        summed = rows.key_by("k").window("w", Tumbling(seconds(100)).drop_late()).aggregate(total=agg.sum(total))
        summed.write("out", Delta(tmp_path / table))
        return made

    def row(t: float, v: int) -> dict[str, object]:
        return {"k": "a", "t": datetime.fromtimestamp(t, UTC), "v": v}

    with Harness(job("v", "narrow"), tmp_path / "root") as h:
        h.batch({"rows": [row(1, 2**62), row(2, 41)]})
        h.batch({"rows": [row(3, 2**62)]})
        with pytest.raises(IntegerOverflow, match=r"total = sum\(v\).*CAST the column to decimal or double"):
            h.batch({"rows": [row(100, 1)]})
        with pytest.raises(IntegerOverflow):
            h.restart()  # the batch is done again, with the code as it was
        h.restart(job(f"CAST(v AS {cast})", table))
    rows = DeltaTable(tmp_path / table).to_pyarrow_table().to_pylist()
    assert [row["total"] for row in rows] == [expected]

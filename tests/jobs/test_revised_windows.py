"""Windows that late rows revise, through the whole engine (SEMANTICS 2.5, 2.6; issue 20.7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pane_rows import in_order, plain, row

from penstock import Job, agg, seconds
from penstock.sinks import Delta, MemorySink, Mode
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling, drop_late, late_to

pytestmark = pytest.mark.sample(1, of="revised windows")


def job_of(table: Path, partitions: int = 2) -> Job:
    """Return a job with a window whose revisions contain all rows, and one whose panes a second window adds up."""
    job = Job("revised", partitions=partitions)
    rows = job.source("rows", MemorySource("k string, t timestamp, v int"), event_time="t", max_out_of_order=seconds(0))
    spec = Tumbling(seconds(10)).update_late(within=seconds(10), then=late_to("too_late"))
    whole = rows.key_by("k").window("w", spec).aggregate(n=agg.count(), total=agg.sum("v"))
    whole.write("log", MemorySink())
    whole.write("newest", Delta(table, mode=Mode.UPSERT, keys=["k", "window_end"]))
    job.late("too_late").write("late", MemorySink())
    panes = Tumbling(seconds(10)).update_late(within=seconds(10), then=drop_late()).discarding()
    each = rows.key_by("k").window("p", panes).aggregate(n=agg.count())
    each.key_by("k").window("minute", Tumbling(seconds(60)).drop_late()).aggregate(n=agg.sum("n")).write(
        "minutes", MemorySink()
    )
    return job


@pytest.mark.slow
@pytest.mark.fault("F43")
def test_late_rows_revise_a_window_over_a_crash_and_a_rescale(tmp_path: Path) -> None:
    """2.6, 2.10, 10.5: numbers go on after a crash and in other partitions; a table by keys has the newest."""
    table = tmp_path / "table"
    with Harness(job_of(table), tmp_path / "root") as h:
        first = h.batch({"rows": [row("a", 1, 1), row("b", 2, 2), row("a", 12)]})
        assert plain(first["log"]) == [("a", 10, "ON_TIME", 0, 1, 1), ("b", 10, "ON_TIME", 0, 1, 2)]
        second = h.batch({"rows": [row("a", 3, 10), row("c", 4, 5)]})
        assert plain(second["log"]) == [("a", 10, "LATE", 1, 2, 11), ("c", 10, "LATE", 0, 1, 5)]
        h.crash_after("CommitBatch")
        with pytest.raises(Crashed):
            h.batch({"rows": [row("a", 5, 100)]})
        assert plain(h.restart()["log"]) == [("a", 10, "LATE", 2, 3, 111)]
        assert [(r["k"], r["_revision"]) for r in h.state("w") if r["window_end"] is not None] == [("a", 2)]
        offline = read(tmp_path / "root", "revised", "w").to_pylist()
        assert in_order(offline) == in_order(h.state("w")), "the state is read without the job's code"
        h.restore(batch=h.commit().batch, partitions=5, job=job_of(table, 5))
        fourth = h.batch({"rows": [row("a", 6, 1000), row("a", 13)]})
        assert plain(fourth["log"]) == [("a", 10, "LATE", 3, 4, 1111)]
        h.batch(watermark=20)
        late = h.batch({"rows": [row("a", 7), row("b", 21)]})
        assert late["log"] == []
        assert [(r["k"], r["_step"]) for r in h.late("too_late")] == [("a", "w")]
        counts = h.commit().accounting["window:w"]
        assert counts == {"rows": 2, "counted": 1, "late": 1, "partly_late": 0, "in_no_window": 0, "merged": 1}
        kept = DeltaTable(table).to_pyarrow_table().to_pylist()
        assert plain(kept) == [
            ("a", 10, "LATE", 3, 4, 1111),
            ("a", 20, "ON_TIME", 0, 2, 0),
            ("b", 10, "ON_TIME", 0, 1, 2),
            ("c", 10, "LATE", 0, 1, 5),
        ]
        h.batch(watermark=61)
        sums = {r["k"]: r["n"] for r in h.output()["minutes"]}
        assert sums == {"a": 6, "b": 2, "c": 1}

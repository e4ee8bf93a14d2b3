"""Rows in quarantine go through again, each once, whatever crashes (decision 134)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from folder_files import lines_of

from penstock import Job, agg, seconds
from penstock.checkpoint.requeue_requests import RequeueAnswer, RequeueRequests
from penstock.errors import RequeueRefused
from penstock.sinks import Delta, MemorySink
from penstock.sources import DeltaTable, Files, Json, MemorySource, Start
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="requeues")

SCHEMA = "k string, t timestamp, v long"


def job_of(schema: str = SCHEMA, *, event_time: str = "t", bad: Any = None) -> Job:
    """Build a job whose undated rows, and rows with other columns, are in quarantine."""
    job = Job("orders", partitions=2)
    rows = job.source("rows", MemorySource(schema), event_time=event_time, max_out_of_order=seconds(0))
    rows.filter("v > 0").write("out", MemorySink())
    windows = rows.key_by("k").window("sum", Tumbling(seconds(10)).late_to("late"))
    windows.aggregate(total=agg.sum("v")).write("sums", MemorySink())
    job.late("late").write("late_rows", MemorySink())
    job.quarantine("rows").write("bad", bad or MemorySink())
    return job


def requests_of(h: Harness) -> RequeueRequests:
    return RequeueRequests(h.root.store(), "orders")


def ask(h: Harness, source: str = "rows", *, from_batch: int | None = None) -> str:
    """Leave a request, and have the driver look at once: it does so each second while it waits."""
    requeues = h._running().engine.requeues
    assert requeues is not None
    requeues._looked = None
    return requests_of(h).ask(source, from_batch=from_batch, by="test")


def bad_row(v: int) -> dict[str, Any]:
    return {"k": "a", "t": None, "v": v}


def shown(h: Harness, sink: str = "out") -> list[int]:
    return sorted(row["v"] for row in h.output()[sink])


def test_corrected_code_takes_the_quarantine_of_before_once(tmp_path: Path) -> None:
    """Rows of both kinds, decoded and not, go through all steps; counted apart, and a second request has nothing."""
    with Harness(job_of(bad=Delta(tmp_path / "bad")), tmp_path / "checkpoints") as h:
        h.batch({"rows": [{"k": "a", "t": 5, "v": 1}, bad_row(2), {"k": "a", "t": 5, "v": 3, "w": 1}]})
        corrected = job_of(
            f"{SCHEMA}, w long", event_time="coalesce(t, timestamp_seconds(7))", bad=Delta(tmp_path / "bad")
        )
        h.restart(corrected)
        first = ask(h)
        second = ask(h)
        h.batch()
        assert shown(h) == [1, 2, 3]
        assert requests_of(h).answer(first) == RequeueAnswer(rows=2, batch=1)
        h.batch({"rows": [{"k": "a", "t": 30, "v": 4}]})
        assert requests_of(h).answer(second) == RequeueAnswer(rows=0, batch=None)
        assert [row["total"] for row in h.output()["sums"]] == [6]
        totals = h.commit().totals
        assert totals["requeue:rows"] == {"read": 2, "quarantined": 0, "passed": 2}
        assert totals["source:rows"] == {"read": 4, "quarantined": 2, "passed": 2}


def test_lines_of_a_file_are_decoded_by_the_corrected_code(tmp_path: Path) -> None:
    """Though the file may be gone; a line that fails again keeps the reason that names its file and line."""

    def job(kind: str) -> Job:
        made = Job("orders")
        source = Files(tmp_path / "in", format=Json(f"k string, v {kind}"), settle=seconds(0), with_columns=["_path"])
        made.source("rows", source).write("out", MemorySink())
        made.quarantine("rows").write("bad", MemorySink())
        return made

    file = lines_of(tmp_path / "in" / "a", '{"k": "a", "v": 1}', '{"k": "b", "v": "2"}', "no JSON")
    with Harness(job("int"), tmp_path / "checkpoints") as h:
        before = [row["_reason"] for row in h.batch()["bad"]]
        file.unlink()
        h.restart(job("string"))
        request = ask(h)
        h.batch()
        assert [(row["k"], row["v"], row["_path"]) for row in h.output()["out"]][1:] == [("b", "2", None)]
        again = [row["_reason"] for row in h.output()["bad"]][2:]
        assert again == [f"{before[1]} (requeued 1 time, first quarantined in batch 0)"]
        assert str(file) in again[0]
        assert requests_of(h).answer(request) == RequeueAnswer(rows=2, batch=1)


@pytest.mark.parametrize(
    ("stage", "when"),
    [
        ("FixOffsets", "before"),
        ("FixOffsets", "after"),
        pytest.param("Compute", "after", marks=pytest.mark.soak),
        ("CommitBatch", "after"),
        pytest.param("PublishSinks", "after", marks=pytest.mark.soak),
    ],
)
def test_a_crash_at_any_stage_doubles_and_loses_none(tmp_path: Path, stage: str, when: str) -> None:
    """10.5: the Offsets name the rows, and the next driver answers what the one that died has not."""
    with Harness(job_of(), tmp_path) as h:
        h.batch({"rows": [bad_row(2), {"k": "a", "t": 5, "v": 1}]})
        h.restart(job_of(event_time="coalesce(t, timestamp_seconds(7))"))
        request = ask(h)
        h.crash_at(stage, when)
        with pytest.raises(Crashed):
            h.batch()
        h.restart()
        h.batch({"rows": [{"k": "a", "t": 6, "v": 4}]})
        assert shown(h) == [1, 2, 4]
        assert h.commit().totals["requeue:rows"]["read"] == 1
        answer = requests_of(h).answer(request)
        assert answer is not None
        assert answer.rows == 1
        assert requests_of(h).ask("rows", from_batch=None, by="test", again=request) == request
        h.batch({"rows": [{"k": "a", "t": 6, "v": 5}]})
        assert h.commit().totals["requeue:rows"]["read"] == 1, "the same id is the same request"
        assert not (h.root / "orders" / "requeued").files()


def test_rows_that_fail_again_say_how_often(tmp_path: Path) -> None:
    """With partition and position of before; each later request takes them once more, and again if asked to."""
    with Harness(job_of(), tmp_path) as h:
        h.batch({"rows": [{"k": "a", "t": 5, "v": 1}, bad_row(2)]})
        for _ in range(2):
            ask(h)
            h.batch({"rows": [{"k": "a", "t": 5, "v": 1}]})
        rows = h.output()["bad"]
        assert [(row["_partition"], row["_position"]) for row in rows] == [(0, 1)] * 3
        assert [row["_reason"] for row in rows] == [
            "null event time",
            "null event time (requeued 1 time, first quarantined in batch 0)",
            "null event time (requeued 2 times, first quarantined in batch 0)",
        ]
        assert h.commit().totals["requeue:rows"] == {"read": 2, "quarantined": 2, "passed": 0}
        again = ask(h, from_batch=0)
        h.batch({"rows": [{"k": "a", "t": 5, "v": 1}]})
        answer = requests_of(h).answer(again)
        assert answer is not None
        assert answer.rows == 1, "of one position the newest"


def test_a_row_that_was_read_again_since_a_restore_is_not_sent(tmp_path: Path) -> None:
    """10.1, 10.5: what a superseded batch quarantined stays in the table, and its rows have come from the source."""
    with Harness(job_of(), tmp_path) as h:
        h.batch({"rows": [bad_row(2)]})
        h.batch({"rows": [bad_row(3)]})
        h.restart(job_of(event_time="coalesce(t, timestamp_seconds(7))"))
        h.restore(batch=0)
        h.batch()
        assert shown(h) == [3]
        assert h.commit().superseded == [[1, 2]]
        for since, sent in ((None, 1), (0, 1), (1, 0)):
            asked = ask(h, from_batch=since)
            h.batch({"rows": [{"k": "a", "t": 30, "v": 1}]})
            answer = requests_of(h).answer(asked)
            assert answer is not None
            assert answer.rows == sent
        assert shown(h) == [1, 1, 1, 2, 2, 3]


def test_a_row_that_the_source_does_not_bring_again_is_sent(tmp_path: Path) -> None:
    """10.1, 10.5: a restore of nothing begins after the newest version; what came before is in quarantine alone.

    It is sent where a batch to begin with is given, as undone batches may have sent it.
    """

    def job(event_time: str) -> Job:
        made = Job("orders", partitions=1)
        table = DeltaTable(tmp_path / "in", start=Start.LATEST)
        rows = made.source("rows", table, event_time=event_time, max_out_of_order=seconds(0))
        rows.write("out", MemorySink())
        made.quarantine("rows").write("bad", MemorySink())
        return made

    def append(*values: int) -> None:
        rows = [{"t": None, "v": v} for v in values]
        write_deltalake(str(tmp_path / "in"), pa.Table.from_pylist(rows, schema=columns), mode="append")

    columns = pa.schema([("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    append(1)
    with Harness(job("t"), tmp_path / "checkpoints") as h:
        h.batch()
        append(2, 3)
        h.batch()
        h.restore(empty=True, job=job("coalesce(t, timestamp_seconds(v))"))
        h.batch()
        append(4)
        h.batch()
        assert shown(h) == [4]
        for sent, since in ((0, None), (2, 0), (0, None)):
            asked = ask(h, from_batch=since)
            append(5)
            h.batch()
            answer = requests_of(h).answer(asked)
            assert answer is not None
            assert answer.rows == sent
        assert shown(h) == [2, 3, 4, 5, 5, 5]


def test_requeued_rows_move_no_watermark_and_are_late_by_the_rules(tmp_path: Path) -> None:
    """2.5, 2.6: a row whose window is forgotten goes to the late data of the step, counted."""
    with Harness(job_of(), tmp_path) as h:
        h.batch({"rows": [bad_row(2), bad_row(90), {"k": "a", "t": 30, "v": 1}]})
        mark = h.commit().watermarks_out["sum"]
        h.restart(job_of(event_time="coalesce(t, timestamp_seconds(v * 2))"))
        ask(h)
        h.batch()
        assert shown(h, "late_rows") == [2]
        assert shown(h) == [1, 2, 90]
        assert h.commit().totals["window:sum"]["late"] == 1
        assert h.commit().watermarks_out["sum"] == mark, "though a row of 180 s went through"
        assert h.commit().sources["rows"].partitions.keys() == {"0"}


def test_values_of_every_type_come_back_as_they_were(tmp_path: Path) -> None:
    """A text of columns has all of them, to the last microsecond and digit; what was null is null."""
    schema = (
        "t timestamp, at timestamp, n timestamp_ntz, d date, b binary, x decimal(20,10), f float, g double, "
        "s struct<a: int, n: timestamp_ntz>, m map<string, bigint>, l array<timestamp_ntz>, v long"
    )
    local = datetime(2026, 1, 1, 2, 3, 4, 567891)  # noqa: DTZ001 - a local time has no zone
    full = {
        "at": local.replace(tzinfo=UTC), "n": local, "d": local.date(), "b": b"\x00\xff", "x": Decimal("1.0000000001"),
        "f": 0.10000000149011612, "g": 0.1 + 0.2, "s": {"a": None, "n": local}, "m": {"k": 2**53 + 1},
        "l": [local, None], "v": 1,
    }  # fmt: skip

    def job(event_time: str) -> Job:
        made = Job("orders")
        rows = made.source("rows", MemorySource(schema), event_time=event_time, max_out_of_order=seconds(0))
        rows.write("out", MemorySink())
        made.quarantine("rows").write("bad", MemorySink())
        return made

    with Harness(job("t"), tmp_path) as h:
        h.batch({"rows": [{"t": 1, **full}]})
        h.batch({"rows": [{"t": None, **full}, {"t": None, "v": 2}]})
        h.restart(job("coalesce(t, timestamp_seconds(7))"))
        ask(h)
        h.batch()
        (first, again, empty) = sorted(h.output()["out"], key=lambda row: (row["v"], str(row["t"]) == "None"))
        assert {**again, "t": first["t"]} == first
        assert {name for name, value in empty.items() if value is not None} == {"v"}


@pytest.mark.remedy("PEN-OPR-025")
def test_what_cannot_be_sent_again_is_answered_with_an_error(tmp_path: Path) -> None:
    """An unknown source, and a quarantine that no sink shows as it is; the job runs on, and a corrected one can."""

    def job(*, whole: bool) -> Job:
        made = Job("orders")
        rows = made.source("rows", MemorySource(SCHEMA), event_time="t", max_out_of_order=seconds(0))
        rows.write("out", MemorySink())
        quarantine = made.quarantine("rows")
        (quarantine if whole else quarantine.select("_raw")).write("bad", Delta(tmp_path / f"bad-{whole}"))
        return made

    with Harness(job(whole=False), tmp_path / "checkpoints") as h:
        h.batch({"rows": [bad_row(2)]})
        requests = requests_of(h)
        for source, problem in (("order", "no source 'order'"), ("rows", "no sink that can be read")):
            asked = ask(h, source)
            h.batch({"rows": [bad_row(3)]})
            with pytest.raises(RequeueRefused, match=problem):
                requests.answer(asked)
        h.restart(job(whole=True))
        h.batch({"rows": [bad_row(4)]})
        asked = ask(h)
        h.batch({"rows": [{"k": "a", "t": 1, "v": 1}]})
        answer = requests.answer(asked)
        assert answer is not None
        assert answer.rows == 1

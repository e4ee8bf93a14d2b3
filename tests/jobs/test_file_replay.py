"""A file replay asks Spark for its schema and its order, and runs through the whole engine (SEMANTICS 9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Job, seconds
from penstock.errors import (
    BadExpression,
    ConfigError,
    ReadByOtherRules,
    ReadOtherwise,
    SortedCopyDamaged,
    SourceChanged,
)
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, records
from penstock.sources import replay as replay_module
from penstock.sources.base import ERROR, RAW
from penstock.sources.replay import ROW
from penstock.testing import Crashed, Harness

CSV = "day,hour,v\n2024-01-02,5,1\n2024-01-01,23,2\n2024-01-01,x,3\n2024-01-02,,4\n2024-01-01,7,5\n"
DDL = "day date, hour int, v int"


def job_of(path: Path, **arguments: Any) -> Job:
    """Return a job that copies a replay into sink `out`, and its bad records into `bad`."""
    job = Job("replay", partitions=1)
    chosen = {"order_by": "v", "schema": DDL, **arguments}
    rows = job.source("rows", FileReplay(path, **chosen))  # HERE
    rows.write("out", MemorySink())
    job.quarantine("rows").write("bad", MemorySink())
    return job


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file."""
    path = tmp_path / "rows.csv"
    path.write_text(CSV)
    return path


@pytest.mark.fault("F40")
def test_rows_come_in_the_order_of_an_expression(path: Path, tmp_path: Path) -> None:
    """FileReplay: order_by is a column or Spark SQL; nulls last; a bad record is quarantined with its text."""
    job = job_of(path, order_by="make_timestamp(year(day), month(day), day(day), hour, 0, 0)", rows_per_batch=2)
    with Harness(job, tmp_path / "checkpoints") as h:
        output = h.run()
        assert [row["v"] for row in output["out"]] == [5, 2, 1, 4]
        (bad,) = output["bad"]
        assert bad["_reason"] == "record 3 of the file: column 'hour': 'x' does not fit int"
        assert '"x"' in bad["_raw"]
        assert h.commit().batch == 2, "five rows, two a batch"


WRONG = [
    ({"order_by": "nowhere"}, BadExpression, "nowhere"),
    ({"order_by": "v +"}, BadExpression, "end of input"),
    ({"schema": "v intt"}, BadExpression, "INTT"),
    ({"schema": "v int, w int"}, ConfigError, "'w'"),
]


@pytest.mark.parametrize(("arguments", "error", "word"), WRONG)
def test_a_wrong_replay_is_refused_before_anything_is_written(
    arguments: dict[str, Any], error: type[Exception], word: str, path: Path, tmp_path: Path
) -> None:
    """DESIGN 3: at the user's line, or at the file."""
    with pytest.raises(error, match=word) as caught, Harness(job_of(path, **arguments), tmp_path / "checkpoints"):
        pass
    where = str(getattr(caught.value, "where", ""))
    assert where.startswith((__file__, str(path)))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.remedy("PEN-SRC-002")
@pytest.mark.fault("F39")
def test_a_batch_whose_file_changed_is_not_done_again(path: Path, tmp_path: Path) -> None:
    """F39, SEMANTICS 9.1: a range that was fixed replays as it was, or the start fails; put back, it goes on."""
    job = job_of(path, rows_per_batch=2)
    with Harness(job, tmp_path / "checkpoints", interval=seconds(1)) as h:
        h.crash_after("FixOffsets")
        with pytest.raises(Crashed):
            h.run()
        path.write_text(CSV + "2024-01-01,1,0\n")
        with pytest.raises(SourceChanged, match=r"rows\.csv"):
            h.restart()
        path.write_text(CSV)  # the same bytes at another time
        h.restart()
        h.run()
        assert sorted(row["v"] for row in h.output()["out"]) == [1, 2, 4, 5]


@pytest.mark.remedy("PEN-SRC-005")
@pytest.mark.fault("F39")
def test_a_schema_is_what_it_parses_to(path: Path, tmp_path: Path) -> None:
    """A5, SEMANTICS 9.1: a space more is no change; another type is one, and each remedy that is told works."""
    with Harness(job_of(path, rows_per_batch=2), tmp_path / "checkpoints") as h:
        h.batch()
        h.restart(job_of(path, rows_per_batch=2, schema=" day DATE,hour  int, v INT"))
        other = job_of(path, rows_per_batch=2, schema="day date, hour string, v int")
        with pytest.raises(ReadOtherwise, match="--from empty"):
            h.restart(other)
        h.restart(job_of(path, rows_per_batch=2))
        h.batch()
        with pytest.raises(ReadOtherwise):
            h.restore(batch=0, job=other)
        h.restore(empty=True, job=other)
        h.run()
        assert h.commit().sources["rows"].position["row"] == 5


@pytest.mark.fault("F22", "F39")
@pytest.mark.remedy("PEN-SRC-008")
def test_a_position_that_was_counted_by_older_rules_is_refused_and_each_remedy_works(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F39, SEMANTICS 9.1: 1e300 was inf in a float column and is bad now, so that rows behind it have other numbers."""
    path.write_text("v,w\n1,1\n2,1e300\n3,3\n4,4\n5,5\n")
    job = job_of(path, rows_per_batch=3, schema="v int, w float")
    with Harness(job, tmp_path / "checkpoints") as h:
        with monkeypatch.context() as older:
            older.setattr(replay_module, "_RULES", 1)
            older.setattr(records, "_is_bent", lambda *_: False)
            h.restart()
            assert [row["v"] for row in h.batch()["out"]] == [1, 2, 3]
        with pytest.raises(ReadByOtherRules, match="--from empty"):
            h.restart()
        with monkeypatch.context() as older:
            older.setattr(replay_module, "_RULES", 1)
            older.setattr(records, "_is_bent", lambda *_: False)
            h.restart()
            assert h.commit().sources["rows"].position["row"] == 3
        h.restore(empty=True, job=job)
        output = h.run()
        assert [row["v"] for row in output["out"]] == [1, 3, 4, 5]
        assert [row["_reason"] for row in output["bad"]] == [
            "record 2 of the file: column 'w': '1e300' does not fit float"
        ]


@pytest.mark.remedy("PEN-SRC-007")
@pytest.mark.fault("F14")
def test_a_changed_byte_of_a_sorted_copy_ends_the_batch_and_a_start_mends_it(path: Path, tmp_path: Path) -> None:
    """F14: no other value is read; the job retries, and the copy is made anew."""
    with Harness(job_of(path, rows_per_batch=2), tmp_path / "checkpoints") as h:
        h.batch()
        copy = h._running().engine.readers["rows"].prepared  # type: ignore[attr-defined]
        damaged = bytearray(copy.read_bytes())
        damaged[len(damaged) // 4] ^= 1
        copy.write_bytes(damaged)
        with pytest.raises(SortedCopyDamaged) as raised:
            h.batch()
        assert raised.value.exit_code == 75
        h.restart()
        h.run()
        assert sorted(row["v"] for row in h.output()["out"]) == [1, 2, 4, 5]


def test_a_file_in_pieces_of_which_some_are_empty_is_ordered_whole(tmp_path: Path, spark: Any) -> None:
    """Spark's own way from Arrow loses rows behind an empty piece."""
    rows = pa.table(
        {"v": pa.array([3, 1, 2], pa.int64()), ROW: pa.array([0, 1, 2]), ERROR: pa.nulls(3), RAW: pa.nulls(3)}
    )
    later = rows.set_column(rows.schema.get_field_index(ROW), ROW, pa.array([3, 4, 5]))
    pieces = pa.concat_tables([rows, rows.slice(0, 0), rows.slice(0, 0), later])
    spec = FileReplay(tmp_path / "rows.parquet", order_by="v * 10")
    assert replay_module._order(spec, pieces, spark).to_pylist() == [30, 10, 20, 30, 10, 20]

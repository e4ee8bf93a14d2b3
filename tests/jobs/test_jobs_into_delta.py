"""Jobs whose keyed state lands in Delta tables as one row a key, through crashes of the driver and lost batches."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from delta_tables import Upserts
from deltalake import DeltaTable

from penstock import Job
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import SinkBehind
from penstock.runtime.restore.sink_upkeep import maintain_sinks
from penstock.sinks import Delta, Mode
from penstock.sinks.delta import compaction
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness

pytestmark = [pytest.mark.integration, pytest.mark.slow]
HOOKS = [("Compute", "after"), ("CommitBatch", "after"), ("PublishSinks", "published all"), ("PublishSinks", "after")]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def count(time: Any, key: Any, row: Any, state: Any) -> dict[str, Any]:
    """Count the rows of a key."""
    n = state.get_or({"n": 0})["n"] + 1
    state.update(n=n)
    return {"k": key, "n": n}


def copying(folder: Path) -> Job:
    """Return a job with tables of all rows, of the newest row of each key, and of a count for each key."""
    job = Job("copy", partitions=2)
    rows = job.source("rows", MemorySource("k long, v long, p string"))
    rows.write("all", Delta(folder / "all"))
    rows.write("newest", Delta(folder / "newest", ("p",), mode=Mode.UPSERT, keys=["k"]))
    counts = rows.key_by("k").map_with_state("count", count, state="n long", output="k long, n long", unbounded=True)
    counts.write("counts", Delta(folder / "counts", mode=Mode.UPSERT, keys=["k"]))
    return job


@pytest.mark.fault("F01", "F55")
def test_a_table_has_one_row_a_key_through_crashes_of_the_driver(tmp_path: Path) -> None:
    """A driver dies at each hook; each restart publishes what is missing, once. A table that lost a batch stops it."""
    newest: dict[int, tuple[int, str]] = {}
    counts: dict[int, int] = {}
    with Harness(copying(tmp_path), tmp_path / "root") as h:
        for number, (stage, when) in enumerate(HOOKS):
            batch = [{"k": n % 3, "v": number * 10 + n, "p": "ab"[(number + n) % 2]} for n in range(10)]
            newest.update({row["k"]: (row["v"], row["p"]) for row in batch})
            counts.update({k: counts.get(k, 0) + sum(row["k"] == k for row in batch) for k in range(3)})
            h.crash_at(stage, when)
            with pytest.raises(Crashed):
                h.batch({"rows": batch})
            h.restart()
        assert sorted((row["k"], (row["v"], row["p"])) for row in rows_of(tmp_path / "newest")) == sorted(
            newest.items()
        )
        assert sorted((row["k"], row["n"]) for row in rows_of(tmp_path / "counts")) == sorted(counts.items())
        assert sorted(row["v"] for row in rows_of(tmp_path / "all")) == list(range(10 * len(HOOKS)))
        versions = {name: DeltaTable(str(tmp_path / name)).version() for name in ("all", "newest", "counts")}
        assert set(versions.values()) == {len(HOOKS)}, "each batch is one commit, after the one that made the table"
        (tmp_path / "newest/_delta_log" / f"{len(HOOKS):020}.json").unlink()
        with pytest.raises(SinkBehind, match="missing are"):
            h.restart()


@pytest.mark.fault("F71")
def test_upkeep_beside_a_job_spares_what_a_restore_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month passes after each batch. The job goes on, and a restore still takes rows back from each table."""
    monkeypatch.setattr(compaction, "_YOUNG", -60.0)
    month, joined = 30 * 86_400.0, 0
    job = copying(tmp_path)
    with Harness(job, tmp_path / "root") as h:
        for name in ("all", "newest", "counts"):
            keep = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
            DeltaTable(str(tmp_path / name)).alter.set_table_properties(keep)
        for number in range(6):
            h.batch({"rows": [{"k": n % 3, "v": number * 10 + n, "p": "ab"[(number + n) % 2]} for n in range(4)]})
            for name in ("all", "newest", "counts"):
                (tmp_path / name / "left-by-a-dead-task.parquet").touch()
            for file in tmp_path.glob("*/*.parquet"):
                os.utime(file, (time.time() - month, time.time() - month))
            store = LocalStore(tmp_path / "root" / "copy")
            recovered = recover(Log(store))
            done = dict(maintain_sinks(job.graph(), recovered, read_metadata(store).uuid, now=time.time()))
            assert [upkeep.left_alone for upkeep in done.values()] == ["", "", ""]
            assert min(upkeep.deleted for upkeep in done.values()) > 0
            joined += sum(upkeep.joined for upkeep in done.values())
        assert joined > 0
        assert len(DeltaTable(str(tmp_path / "all")).file_uris()) == 1
        h.restore(batch=3, truncate_sinks=True)
        assert sorted(row["v"] for row in rows_of(tmp_path / "all")) == [10 * b + n for b in range(4) for n in range(4)]
        counts = sorted((row["k"], row["n"]) for row in rows_of(tmp_path / "counts"))
        assert counts == [(0, 8), (1, 4), (2, 4)]
        h.batch({"rows": [{"k": 0, "v": 99, "p": "a"}]})
        assert (99, "a") in [(row["v"], row["p"]) for row in rows_of(tmp_path / "newest") if row["k"] == 0]


@pytest.mark.sample(seconds=25)
def test_upkeep_joins_files_beside_readers_and_writers_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append of delta-spark while files are joined stays, and a stream over the table gets each row once."""
    table = Upserts(tmp_path).made()
    publisher = table.publisher()
    read = (
        spark.readStream.format("delta").load(str(table.path)).writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "position")).trigger(availableNow=True)
    )  # fmt: skip

    def streamed() -> list[tuple[int, int]]:
        read.start(str(tmp_path / "read")).awaitTermination()
        return sorted((row.k, row.v) for row in spark.read.parquet(str(tmp_path / "read")).collect())

    for number in range(3):
        publisher.publish(table.batch(number, (number, "a", number)))
    assert streamed() == [(0, 0), (1, 1), (2, 2)]
    create, tries = compaction.create_entry, list[int]()

    def overtaken(*asked: Any) -> bool:
        tries.append(len(tries))
        if len(tries) == 1:
            rows = spark.createDataFrame([(7, "a", 7)], "k long, p string, v long")
            rows.write.format("delta").mode("append").save(str(table.path))
        return create(*asked)

    monkeypatch.setattr(compaction, "create_entry", overtaken)
    assert compaction.compact(table.path, now=time.time() + 100) == (3, 1)
    assert len(tries) == 2
    assert streamed() == [(0, 0), (1, 1), (2, 2), (7, 7)]

"""Jobs that write into PostgreSQL: once through crashes at each hook, and stopped where the table has lost rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Job
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import EXIT_PERSON, SinkBehind, SinkSchemaMismatch
from penstock.runtime.driver.ownership import anybody_may
from penstock.runtime.driver.settings import Identity
from penstock.runtime.restore.sink_repair import SinksAtRest, skip
from penstock.sinks import Mode, Postgres
from penstock.sources import MemorySource
from penstock.testing import Crashed, Harness

pytestmark = [pytest.mark.integration, pytest.mark.slow]
HOOKS = [("Compute", "after"), ("CommitBatch", "after"), ("PublishSinks", "published all"), ("PublishSinks", "after")]


def copying(postgres: Any, table: str) -> Job:
    """Return a job with a table of all rows, and one of the newest row of each key."""
    job = Job("copy", partitions=2)
    rows = job.source("rows", MemorySource("k long, v long"))
    rows.write("all", Postgres(postgres.dsn(), f"{table}_all"))
    rows.write("newest", Postgres(postgres.dsn(), f"{table}_newest", mode=Mode.UPSERT, keys=["k"]))
    return job


@pytest.mark.fault("F01", "F55")
def test_rows_are_there_once_through_crashes_of_the_driver(postgres: Any, tmp_path: Path) -> None:
    """A driver dies at each hook; each restart publishes what is missing."""
    table = postgres.new_name()
    with Harness(copying(postgres, table), tmp_path / "root") as h:
        for number, (stage, when) in enumerate(HOOKS):
            h.crash_at(stage, when)
            with pytest.raises(Crashed):
                h.batch({"rows": [{"k": n % 3, "v": number * 10 + n} for n in range(10)]})
            h.restart()
        h.batch({"rows": [{"k": 7, "v": 100}]})
    expected = [*range(10 * len(HOOKS)), 100]
    assert [v for (v,) in postgres.ask(f"SELECT v FROM {table}_all ORDER BY v")] == expected  # noqa: S608 - ours
    assert postgres.ask(f"SELECT k, v FROM {table}_newest ORDER BY k") == [(0, 39), (1, 37), (2, 38), (7, 100)]  # noqa: S608 - ours


def test_a_restart_over_a_table_that_lost_its_batches_stops(postgres: Any, tmp_path: Path) -> None:
    """SEMANTICS 9.5: the table was dropped between two runs, and is created anew."""
    table = postgres.new_name()
    with Harness(copying(postgres, table), tmp_path / "root") as h:
        for n in range(2):
            h.batch({"rows": [{"k": n, "v": n}]})
        postgres.ask(f"DROP TABLE {table}_all")
        with pytest.raises(SinkBehind, match="missing are 0"):
            h.restart()


@pytest.mark.fault("F70")
@pytest.mark.remedy("PEN-SNK-003")
def test_a_column_of_another_type_stops_the_batch_before_its_commit(postgres: Any, tmp_path: Path) -> None:
    """SEMANTICS 9.6: somebody changes the table while the job runs. With the type put back, the batch is re-run."""
    table = postgres.new_name()

    def shown(name: str) -> list[int]:
        return [int(v) for (v,) in postgres.ask(f"SELECT v FROM {table}_{name} ORDER BY v")]  # noqa: S608 - ours

    with Harness(copying(postgres, table), tmp_path / "root") as h:
        h.batch({"rows": [{"k": 0, "v": 0}]})
        postgres.ask(f"ALTER TABLE {table}_all ALTER v TYPE text")
        with pytest.raises(SinkSchemaMismatch, match=r"'v' is text .* int64") as refused:
            h.batch({"rows": [{"k": 1, "v": 1}]})
        assert (refused.value.exit_code, h.commit().batch) == (EXIT_PERSON, 0)
        assert (shown("all"), shown("newest")) == ([0], [0])
        postgres.ask(f"ALTER TABLE {table}_all ALTER v TYPE bigint USING v::bigint")
        h.restart()
        h.batch({"rows": [{"k": 2, "v": 2}]})
    assert (shown("all"), shown("newest")) == ([0, 1, 2], [0, 1, 2])


@pytest.mark.remedy("PEN-SNK-006")
def test_a_memory_of_batches_that_somebody_deleted_is_skipped_and_not_redone(postgres: Any, tmp_path: Path) -> None:
    """9.5: the rows are there, so the remedy says to skip: a redo would write those of a sink that appends twice."""
    table, root = postgres.new_name(), tmp_path / "root"
    job = copying(postgres, table)
    with Harness(job, root) as h:
        for n in range(2):
            h.batch({"rows": [{"k": n, "v": n}]})
        postgres.ask("DELETE FROM penstock_batches WHERE target = %s::regclass", f"{table}_all")
        with pytest.raises(SinkBehind, match=r"missing are 0.*sinks JOB skip SINK.*a redo would write them twice"):
            h.restart()
        folder = root / job.name
        sinks = SinksAtRest(job.graph(), folder / "staged", None)
        store, me = LocalStore(folder), Identity(holder="test", code_version="test")
        skip(Log(store), sinks, "all", read_metadata(store).uuid, me, anybody_may)
        h.restart()
        h.batch({"rows": [{"k": 2, "v": 2}]})
    assert postgres.ask(f"SELECT v FROM {table}_all ORDER BY v") == [(0,), (1,), (2,)]  # noqa: S608 - ours

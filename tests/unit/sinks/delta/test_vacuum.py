"""Files that nothing needs are deleted, and what a Commit, a restore or a reader may need is spared."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from delta_tables import APP, Upserts
from deltalake import DeltaTable

from penstock.runtime.tasks.staging import TaskFiles
from penstock.sinks import Delta
from penstock.sinks.base import Needed, Publication, Staged, Target
from penstock.sinks.delta import vacuum as module
from penstock.sinks.delta.compaction import compact
from penstock.sinks.delta.vacuum import vacuum
from penstock.sinks.staged_files import stage_table

WEEK = 7 * 86_400.0
OTHER = "5f0c9bb4-2222-4222-8333-444455556666/copy"


def aged(table: Upserts, *, days: float) -> None:
    """Have all files of the table be as old as that, and each removal too."""
    moment = time.time() - days * 86_400
    for file in table.path.rglob("*.parquet"):
        os.utime(file, (moment, moment))
    for entry in (table.path / "_delta_log").glob("*.json"):
        lines = entry.read_text()
        for line in lines.split("deletionTimestamp"):
            digits = "".join(c for c in line[2:18] if c.isdigit())
            if len(digits) == 13:
                lines = lines.replace(digits, str(int(moment * 1000)))
        entry.write_text(lines)


@pytest.fixture
def table(tmp_path: Path) -> Upserts:
    """Return a table of four batches for one key, and a file that no version names."""
    made = Upserts(tmp_path).made()
    publisher = made.publisher()
    for number in range(4):
        publisher.publish(made.batch(number, (1, "a", number)))
    (made.path / "000000000004-left.parquet").write_bytes(b"x" * 10)
    return made


def places(table: Upserts) -> set[str]:
    """Return the data files that are there."""
    return {file.name for file in table.path.glob("*.parquet")}


@pytest.mark.fault("F71")
def test_what_nothing_needs_goes_after_the_retention_of_the_table(table: Upserts) -> None:
    """A week where the table says nothing; counts and bytes are told, and the rows stay."""
    for days, left in ((0, 5), (6, 5), (8, 1)):
        aged(table, days=days)
        size = sum((table.path / name).stat().st_size for name in places(table))
        deleted, freed = vacuum(table.path, Needed(), now=time.time())
        assert (len(places(table)), deleted) == (left, 5 - left)
        assert freed == size - sum((table.path / name).stat().st_size for name in places(table))
    assert table.shown() == [(1, "a", 3)]


@pytest.mark.fault("F71")
def test_a_file_that_a_commit_names_is_spared_however_old_it_is(table: Upserts) -> None:
    """A stream that was down for a month publishes its last batch."""
    aged(table, days=40)
    vacuum(table.path, Needed(staged=frozenset({"000000000004-left.parquet"})), now=time.time())
    assert places(table) == {*table.files(), "000000000004-left.parquet"}


def test_a_version_that_a_restore_may_need_is_spared(table: Upserts) -> None:
    """SEMANTICS 10.1: after a vacuum the sink can still be truncated to these batches, and to no other."""
    aged(table, days=40)
    targets = [Target(app=APP, batch=batch, slot=batch) for batch in (1, 3)]
    assert vacuum(table.path, Needed(targets=targets), now=time.time())[0] == 3
    version = table.sink.find_version(targets[0])
    assert version is not None
    assert table.sink.put_back(targets[0], version, slot=20, newest=3)
    assert table.shown() == [(1, "a", 1)]


@pytest.mark.fault("F71")
def test_what_another_job_has_staged_in_the_table_is_spared(tmp_path: Path) -> None:
    """For a quarter of a year: a stream that shares the table publishes its batch after the upkeep of the other."""
    table = Upserts(tmp_path)
    table.sink, table.staging = Delta(table.path), table.path
    publisher = table.made().publisher()

    def staged(batch: int) -> Publication:
        file = stage_table(table.rows((batch, "a", 0)), table.path, f"{batch:012d}-1-0123456789ab-7-rows-0.parquet")
        return Publication(app=OTHER, batch=batch, files=[Staged(**file)], schema=table.schema)

    for batch in range(3):
        publisher.publish(staged(batch))
    waiting = staged(3)
    compact(table.path, now=time.time() + 100)
    aged(table, days=40)
    assert vacuum(table.path, Needed(), now=time.time())[0] == 3, "those that were joined"
    publisher.publish(waiting)
    assert table.shown() == [(batch, "a", 0) for batch in range(4)]
    staged(4)
    aged(table, days=91)
    assert vacuum(table.path, Needed(), now=time.time())[0] == 1


def test_the_name_of_what_tasks_stage_is_known(tmp_path: Path) -> None:
    """`TaskFiles` gives it, and so does who looks for files of other jobs."""
    facts = SimpleNamespace(batch=4, epoch=2, run=uuid4().hex[:12], staging={"out": str(tmp_path)}, forms={})
    files = TaskFiles(facts, 17, "1b0")  # type: ignore[arg-type]
    assert len(list(files.stage(pa.table({"k": [1]}), ("out",)))) == 1
    files.settle()
    (name,) = (file.name for file in tmp_path.iterdir())
    assert module._STAGED.fullmatch(name)


def test_young_files_stay_whatever_the_table_says(table: Upserts) -> None:
    """They may be of a batch that runs."""
    DeltaTable(str(table.path)).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    assert vacuum(table.path, Needed(), now=time.time()) == (0, 0)
    aged(table, days=2)
    assert vacuum(table.path, Needed(), now=time.time())[0] == 4


def test_other_files_and_folders_of_the_table_stay(table: Upserts) -> None:
    """Only files of rows are deleted, and none whose name begins as Delta's own."""
    for name in ("note.txt", "_hidden.parquet", ".crc.parquet"):
        (table.path / name).write_text("x")
        os.utime(table.path / name, (0, 0))
    aged(table, days=40)
    vacuum(table.path, Needed(), now=time.time())
    assert {"note.txt", "_hidden.parquet", ".crc.parquet"} <= {file.name for file in table.path.iterdir()}


def test_a_table_that_is_not_there_is_left(tmp_path: Path) -> None:
    """Before the first batch."""
    assert vacuum(tmp_path / "table", Needed(), now=time.time()) == (0, 0)

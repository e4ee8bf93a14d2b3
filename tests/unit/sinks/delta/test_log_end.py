"""No commit follows a version in a log that is another one since: its table could not be read any more (F59, F70)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from delta_tables import APP, Upserts
from deltalake import DeltaTable, Schema

from penstock.errors import SinkBehind, SinkRefused
from penstock.sinks import Delta, Mode
from penstock.sinks.base import Publication, Staged
from penstock.sinks.delta import compaction, log_end, publisher, upsert_publisher
from penstock.sinks.delta.log_end import LogEnd, create_entry, load_with_end
from penstock.sinks.staged_files import stage_table

pytestmark = pytest.mark.fault("F59", "F70")

LATER = 120.0
Change = Callable[[Upserts], None]


def made_again(table: Upserts) -> None:
    """Delete the table, and make one with its columns."""
    shutil.rmtree(table.path)
    DeltaTable.create(str(table.path), Schema.from_arrow(table.schema))


def log_made_again(table: Upserts) -> None:
    """Make a table over the files of the old one, in the same folder of the log."""
    for file in (table.path / "_delta_log").iterdir():
        file.unlink()
    DeltaTable.create(str(table.path), Schema.from_arrow(table.schema), mode="overwrite")


def put_back_and_cleaned(table: Upserts) -> None:
    """Put an older version back, and clean the log down to its checkpoint: the next name seems free."""
    found = DeltaTable(str(table.path))
    found.restore(found.version() - 1)
    found.create_checkpoint()
    for entry in (table.path / "_delta_log").glob("*.json"):
        entry.unlink()


CHANGES: list[Change] = [made_again, log_made_again, put_back_and_cleaned]
changed = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@pytest.fixture
def table(tmp_path: Path) -> Upserts:
    """Return a table with two batches."""
    table = Upserts(tmp_path).made()
    for batch in range(2):
        table.publisher().publish(table.batch(batch, (batch, "a", batch)))
    return table


def changing(monkeypatch: pytest.MonkeyPatch, module: Any, change: Callable[[], None]) -> None:
    """Have a table changed at the moment of the first commit of a module."""
    create, tries = module.create_entry, list[int]()

    def overtaken(*asked: Any) -> bool:
        tries.append(len(tries))
        if len(tries) == 1:
            change()
        return bool(create(*asked))

    monkeypatch.setattr(module, "create_entry", overtaken)


@pytest.mark.parametrize("change", [made_again, log_made_again], ids=lambda change: change.__name__)
def test_an_append_does_not_follow_in_another_log(
    change: Change, table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry had the number after the old version: the new table was unreadable, and the batch told as published."""
    sink = Delta(table.path)
    running = sink.open(sink.staging(table.path), None)
    assert running.version(APP) == 1
    changing(monkeypatch, publisher, lambda: change(table))
    rows = table.rows((2, "a", 2))
    file = Staged(**stage_table(rows, table.staging, "again.parquet"))
    shutil.copy(table.staging / file.path, table.path / file.path)
    with pytest.raises(SinkBehind):
        running.publish(Publication(app=APP, batch=2, files=(file,), schema=table.schema))
    assert (DeltaTable(str(table.path)).version(), table.shown()) == (0, [])


@pytest.mark.spark
@pytest.mark.parametrize(("step", "batch"), [("_refuse_noted", 1), ("_commit_by_spark", 1), ("_commit_by_spark", 0)])
def test_a_partitioned_table_that_is_made_again_at_the_commit_is_told(
    step: str, batch: int, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9.5: delta-spark appended to the new table, which showed the batch: nobody missed those before it."""
    table = Upserts(tmp_path)
    sink = Delta(table.path, partition_by=["p"])

    def started() -> Any:
        sink.create(table.schema, spark)
        return sink.open(sink.staging(table.staging), spark)

    def asked_of(number: int) -> Publication:
        file = Staged(**stage_table(table.rows((number, "a", number)), table.staging, f"{number}.parquet"))
        return Publication(app=APP, batch=number, files=(file,), schema=table.schema)

    running, batches = started(), [asked_of(number) for number in range(batch + 1)]
    for before in batches[:batch]:
        running.publish(before)
    taken, tries = getattr(publisher.DeltaPublisher, step), list[int]()

    def overtaken(*asked: Any) -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            shutil.rmtree(table.path)
            sink.create(table.schema, spark)
        taken(*asked)

    monkeypatch.setattr(publisher.DeltaPublisher, step, overtaken)
    if batch == 0:
        running.publish(batches[0])
    elif step == "_refuse_noted":
        with pytest.raises(SinkBehind, match="shows no batch of this checkpoint as the newest, and had batch 0"):
            running.publish(batches[1])
        assert table.shown() == [], "nothing is written into a table that lacks batches"
    else:
        with pytest.raises(SinkRefused, match="replaced while it took batch 1, .* had batch 0.*Move the new one away"):
            running.publish(batches[1])
        table.path.rename(tmp_path / "away")
    running = started()
    assert running.version(APP) == (None if batch else 0), "each start finds what the table lacks"
    for again in batches:
        running.publish(again)
    assert table.shown() == [(n, "a", n) for n in range(batch + 1)]


@changed
def test_a_merge_does_not_follow_in_another_log(
    change: Change, table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge takes long, and what a table shows is asked anew."""
    running = table.publisher()
    assert running.version(APP) == 1
    changing(monkeypatch, upsert_publisher, lambda: change(table))
    cleaned = change is put_back_and_cleaned  # what the table notes is believed then
    with nullcontext() if cleaned else pytest.raises(SinkBehind):
        running.publish(table.batch(2, (2, "a", 2)))
    assert table.shown() == ([(0, "a", 0), (2, "a", 2)] if cleaned else [])


@changed
def test_upkeep_does_not_follow_in_another_log(change: Change, table: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the files to the next one."""
    table.append((7, "a", 7))
    changing(monkeypatch, compaction, lambda: change(table))
    assert compaction.compact(table.path, now=2e9 + LATER) == (0, 0)
    assert table.shown() == ([(0, "a", 0), (1, "a", 1)] if change is put_back_and_cleaned else [])


def changing_behind_load(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Have a table changed directly after it was loaded for the first time."""
    load, tries = log_end.load, list[int]()

    def overtaken(path: Path) -> DeltaTable | None:
        loaded: DeltaTable | None = load(path)
        tries.append(len(tries))
        if len(tries) == 1:
            change()
        return loaded

    monkeypatch.setattr(log_end, "load", overtaken)


@changed
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.UPSERT])
def test_a_log_that_is_another_one_behind_the_load_is_read_again(
    mode: Mode, change: Change, table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new table had no entry with the number of the version, as if that had been cleaned: one came behind the gap."""
    sink = Delta(table.path)
    running = sink.open(sink.staging(table.path), None) if mode is Mode.APPEND else table.publisher()
    assert running.version(APP) == 1
    batch = table.batch(2, (2, "a", 2))
    for file in batch.files if mode is Mode.APPEND else ():
        shutil.copy(table.staging / file.path, table.path / file.path)
    changing_behind_load(monkeypatch, lambda: change(table))
    cleaned = change is put_back_and_cleaned  # what the table notes is believed then
    with nullcontext() if cleaned else pytest.raises(SinkBehind):
        running.publish(batch)
    assert table.shown() == ([(0, "a", 0), (2, "a", 2)] if cleaned else [])


@changed
def test_upkeep_reads_a_log_again_that_is_another_one_behind_the_load(
    change: Change, table: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins files of the table that is there."""
    table.append((7, "a", 7))
    changing_behind_load(monkeypatch, lambda: change(table))
    cleaned = change is put_back_and_cleaned
    assert compaction.compact(table.path, now=2e9 + LATER) == ((2, 1) if cleaned else (0, 0))
    assert table.shown() == ([(0, "a", 0), (1, "a", 1)] if cleaned else [])


def end_of(table: Upserts) -> LogEnd:
    """Return the end of a log."""
    found = load_with_end(table.path)
    assert found is not None
    return found[1]


def test_an_end_stands_while_its_entry_does(table: Upserts) -> None:
    """Whoever commits after it; where its entry was cleaned, as long as nobody has folded the log since."""
    end = end_of(table)
    assert (end.stands(), end.is_newest()) == (True, True)
    table.append((7, "a", 7))
    assert (end.stands(), end.is_newest()) == (True, False)
    assert not create_entry(end, end.version + 1, b"{}"), "the name is taken"
    assert end.after() == end_of(table)
    put_back_and_cleaned(table)
    cleaned = end_of(table)
    assert (end.stands(), cleaned.stands(), cleaned.is_newest()) == (False, True, False)
    hint = table.path / "_delta_log" / "_last_checkpoint"
    Path(shutil.copy(hint, table.path / "hint")).replace(hint)
    assert not cleaned.stands()


@pytest.mark.parametrize(
    ("hint", "newest"),
    [("its own", True), ('{"version": 3}', False), ("{", False), ("[]", False), ('{"version": "2"}', False)],
)
def test_a_checkpoint_of_the_version_or_before_takes_no_later_entry_away(
    table: Upserts, hint: str, *, newest: bool
) -> None:
    """Each hundredth commit has one, and to load the table again takes longer than all else of a commit."""
    end = end_of(table)
    assert end.version == 2
    DeltaTable(str(table.path)).create_checkpoint()
    file = table.path / "_delta_log" / "_last_checkpoint"
    if hint != "its own":
        file.write_text(hint)
    assert (end.stands(), end.is_newest()) == (True, newest)

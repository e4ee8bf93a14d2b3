"""Which version of a table showed a batch, and how it is put in force again: delta-rs on small tables, no Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock.errors import CannotTruncate
from penstock.sinks.base import Target
from penstock.sinks.delta.restore import find_version, put_back

pytestmark = pytest.mark.fault("F59")

APP = "uuid/out"


class Table:
    """A table that a checkpoint publishes into; each publication has the batch as its one row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        DeltaTable.create(str(path), pa.schema([("batch", pa.int64())]))

    def publish(self, *batches: int, app: str = APP, version: int | None = None) -> None:
        for batch in batches:
            transaction = Transaction(app, batch if version is None else version)
            rows = pa.table({"batch": pa.array([batch], pa.int64())})
            properties = CommitProperties(app_transactions=[transaction])
            write_deltalake(str(self.path), rows, mode="append", commit_properties=properties)

    def rows(self) -> list[int]:
        return sorted(DeltaTable(str(self.path)).to_pyarrow_table()["batch"].to_pylist())

    def version(self) -> int:
        return DeltaTable(str(self.path)).version()

    def truncate(self, batch: int | None, at: int = -1, *, slot: int, newest: int) -> bool:
        """Go back to a batch whose commit stood in slot `at`, by the Restore in `slot`."""
        target = Target(app=APP, batch=batch, slot=at)
        version = find_version(self.path, target)
        assert version is not None
        return put_back(self.path, Target(app=APP, batch=batch, slot=slot), version, slot=slot, newest=newest)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Batches 0 to 5 are in versions 1 to 6, but for batch 3, which had no rows."""
    filled = Table(tmp_path / "table")
    filled.publish(0, 1, 2, 4, 5)
    return filled


def find(table: Table, batch: int | None, slot: int = 100) -> int | None:
    return find_version(table.path, Target(app=APP, batch=batch, slot=slot))


@pytest.mark.parametrize(("batch", "version"), [(None, 0), (0, 1), (2, 3), (3, 3), (4, 4), (5, None), (9, None)])
def test_the_version_is_the_one_before_the_first_batch_that_came_later(
    table: Table, batch: int | None, version: int | None
) -> None:
    """Also for a batch without rows; where none came later there is nothing to do."""
    assert find(table, batch) == version


def test_there_is_nothing_to_do_where_there_is_no_table(tmp_path: Path) -> None:
    """A job that goes back before its first batch with rows."""
    assert find_version(tmp_path / "none", Target(app=APP, batch=0, slot=1)) is None


def test_it_is_put_back_once_and_the_batches_of_the_app_are_not_forgotten(table: Table) -> None:
    """What was published stays known by its number, so that no later batch takes it for its own."""
    assert table.truncate(2, slot=50, newest=5)
    assert (table.rows(), table.version()) == ([0, 1, 2], 6)
    target = Target(app=APP, batch=2, slot=50)
    assert not put_back(table.path, target, 3, slot=50, newest=5)
    assert table.version() == 6
    assert DeltaTable(str(table.path)).transaction_version(APP) == 5
    table.publish(6)
    assert not put_back(table.path, target, 3, slot=50, newest=6), "however late it is asked for again"
    assert table.rows() == [0, 1, 2, 6]


def test_the_way_back_is_that_of_the_log(table: Table) -> None:
    """What a batch showed follows from the Restores before its commit, and not from its number alone."""
    table.truncate(2, slot=50, newest=5)  # version 6
    table.publish(6, 8)  # versions 7 and 8, with slots 60 and 80
    assert find(table, 6, slot=60) == 7
    assert find(table, 7, slot=70) == 7
    assert find(table, 2, slot=20) == 3
    assert find(table, 5, slot=40) == 5, "before the truncation"
    assert table.truncate(5, 40, slot=90, newest=8)
    assert table.rows() == [0, 1, 2, 4, 5], "what was taken back is there again"
    assert find(table, 8, slot=80) == 8
    assert table.truncate(None, slot=95, newest=8)
    assert table.rows() == []


def test_a_batch_without_rows_behind_a_truncation_shows_what_that_left(table: Table) -> None:
    """Its commit stands behind the Restore."""
    table.truncate(2, slot=50, newest=5)
    table.publish(7)
    assert find(table, 6, slot=60) == 6


@pytest.mark.parametrize("app", ["another/app", "uuid/out2", "other/out"])
def test_what_others_have_written_since_is_not_undone(table: Table, app: str) -> None:
    """Whoever they are; what they wrote before that version stays, and is in nobody's way."""
    table.publish(7, app=app)
    table.publish(8)
    with pytest.raises(CannotTruncate, match="version 6 of the table would be undone as well: WRITE"):
        find(table, 2)
    assert find(table, 5) == 6


def test_a_commit_that_changes_nothing_is_in_nobodys_way(table: Table) -> None:
    """As the one that a VACUUM leaves."""
    (table.path / "_delta_log" / f"{6:020d}.json").write_text(
        '{"commitInfo":{"timestamp":1,"operation":"VACUUM END"}}\n'
    )
    assert find(table, 2) == 3


def test_a_held_batch_that_was_released_since_goes_with_its_number(table: Table) -> None:
    """One that the target has stays: its rows would be lost, as they come in no later batch."""
    table.publish(4, app=f"{APP}/held/4")
    assert find(table, 2) == 3
    table.publish(1, app=f"{APP}/held/1")
    with pytest.raises(CannotTruncate, match="the release of batch 1"):
        find(table, 2)


def test_a_version_whose_files_are_gone_is_refused(table: Table) -> None:
    """Those in force now are not asked for; here a truncation has left files to a VACUUM."""
    table.truncate(2, slot=50, newest=5)
    DeltaTable(str(table.path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(CannotTruncate, match=r"files of version 5 of the table are gone: .*and 1 more"):
        find(table, 5, slot=40)


def test_a_log_that_no_longer_says_who_wrote_is_refused(tmp_path: Path) -> None:
    """Cleaned up after a checkpoint of the table."""
    table = Table(tmp_path / "cleaned")
    table.publish(0, 1, 2)
    DeltaTable(str(table.path)).create_checkpoint()
    for number in range(3):
        (table.path / "_delta_log" / f"{number:020d}.json").unlink()
    table.publish(4, 5)
    assert find(table, 4) == 4
    with pytest.raises(CannotTruncate, match="no longer says who wrote version 2"):
        find(table, 1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"delta.appendOnly": "true"}, "gives none back: delta.appendOnly"),
        ({"delta.enableChangeDataFeed": "true"}, "more than delta-rs may write: delta.enableChangeDataFeed"),
    ],
)
def test_a_table_that_forbids_it_is_refused(tmp_path: Path, setting: dict[str, str], message: str) -> None:
    """Before anything is decided."""
    path = tmp_path / "table"
    DeltaTable.create(str(path), pa.schema([("batch", pa.int64())]), configuration=setting)
    for batch in range(2):
        properties = CommitProperties(app_transactions=[Transaction(APP, batch)])
        rows = pa.table({"batch": pa.array([batch], pa.int64())})
        write_deltalake(str(path), rows, mode="append", commit_properties=properties)
    with pytest.raises(CannotTruncate, match=message):
        find_version(path, Target(app=APP, batch=0, slot=9))


def test_somebody_who_comes_between_the_decision_and_the_deed_is_not_undone(table: Table) -> None:
    """Nor is a batch of a driver that came later, which the log of then did not know."""
    target = Target(app=APP, batch=2, slot=50)
    table.publish(6)
    with pytest.raises(CannotTruncate, match="batch 6 already"):
        put_back(table.path, target, 3, slot=50, newest=5)
    table.publish(1, app="another/app")
    with pytest.raises(CannotTruncate, match="version 7 of the table would be undone"):
        put_back(table.path, target, 3, slot=50, newest=6)
    assert table.rows() == [0, 1, 1, 2, 4, 5, 6]


def test_a_commit_that_lands_while_it_is_put_back_is_seen(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs puts a restore right behind the version that was looked at, or not at all."""
    restore, raced = DeltaTable.restore, []

    def raced_restore(self, *args, **kwargs):
        if not raced:
            raced.append(True)
            table.publish(1, app="another/app")
        return restore(self, *args, **kwargs)

    monkeypatch.setattr(DeltaTable, "restore", raced_restore)
    with pytest.raises(CannotTruncate, match="version 6 of the table would be undone"):
        put_back(table.path, Target(app=APP, batch=2, slot=50), 3, slot=50, newest=5)
    assert table.rows() == [0, 1, 1, 2, 4, 5]

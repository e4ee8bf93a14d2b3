"""The version of a joined table that a batch uses is a file below the checkpoint (SEMANTICS 1.2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock import EveryBatches, Job, OnNewVersion
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import TableVersionGone
from penstock.graph.join_static import Refresh
from penstock.runtime.driver.table_versions import RecordedTables, Version
from penstock.runtime.spark.static_tables import StaticTables
from penstock.sinks import MemorySink
from penstock.sources import MemorySource


def tables(
    root: Path,
    refresh: Refresh = None,
    recorded: Mapping[str, Version] | None = None,
    fixed: Mapping[str, Version] | None = None,
) -> StaticTables:
    """Return what a start knows of `prices`, with the versions of batch 0 and of a batch that is to run again."""
    job = Job("priced")
    rows = job.source("rows", MemorySource("id string, n long"))
    rows.join_static(root / "prices", on=["id"], refresh=refresh).write("out", MemorySink())
    versions = RecordedTables(fixed=fixed or {}, committed=recorded or {}, batch=1)
    return StaticTables(job.graph().static_joins, LocalFolder(root / "files"), versions)


def write(root: Path, price: int) -> None:
    """Write the next version."""
    write_deltalake(str(root / "prices"), pa.table({"id": ["a"], "price": [price]}), mode="overwrite")


def commit(versions: Mapping[str, Any]) -> Any:
    """Return a Commit, as far as tables are concerned."""
    return SimpleNamespace(tables=dict(versions))


def price(files: Mapping[str, str]) -> int:
    """Return what tasks read."""
    with pa.memory_map(files["prices"]) as file:
        return int(pa.ipc.open_file(file).read_all()["price"][0].as_py())


def names(root: Path) -> int:
    """Return how many files there are."""
    return len(LocalFolder(root / "files").files())


def test_a_version_stays_until_a_newer_one_is_due(tmp_path: Path) -> None:
    """Across starts; and what a later start does not need is removed."""
    write(tmp_path, 1)
    first = tables(tmp_path).versions(None, 0)
    write(tmp_path, 2)
    again = tables(tmp_path)
    assert again.versions(commit(first), 1) == first
    assert price(again.files(first)) == 1
    newer = tables(tmp_path, OnNewVersion())
    second = newer.versions(commit(first), 2)
    assert (second["prices"]["version"], second["prices"]["taken"]) == (1, 2)
    assert newer.versions(commit(second), 3) == second
    assert price(newer.files(second)) == 2
    assert names(tmp_path) == 2
    newer.sweep(SimpleNamespace(commit=commit(second), pending=None))  # type: ignore[arg-type]
    assert names(tmp_path) == 1
    assert price(newer.files(second)) == 2


def test_a_version_that_stays_keeps_its_columns(tmp_path: Path) -> None:
    """From its file, or the table where that is gone; a policy that is due, and another table, have the newest ones."""
    write(tmp_path, 1)
    first = tables(tmp_path).versions(None, 0)
    other = pa.table({"id": ["a"], "cost": ["dear"]})
    write_deltalake(str(tmp_path / "prices"), other, mode="overwrite", schema_mode="overwrite")

    def columns(refresh: Refresh = None) -> list[str]:
        return tables(tmp_path, refresh, first).schemas["prices"].names

    assert columns() == ["id", "price"]
    assert columns(OnNewVersion()) == ["id", "cost"]
    assert tables(tmp_path, None, first).columns == {"prices": "id string, price int64"}
    assert columns(EveryBatches(1)) == ["id", "cost"]
    assert columns(EveryBatches(2)) == ["id", "price"]
    assert tables(tmp_path).schemas["prices"].names == ["id", "cost"]
    (file,) = LocalFolder(tmp_path / "files").files()
    file.unlink()
    assert columns() == ["id", "price"]
    assert price(tables(tmp_path, None, first).files(first)) == 1
    (tmp_path / "prices").rename(tmp_path / "old")
    write_deltalake(str(tmp_path / "prices"), other)
    assert columns() == ["id", "cost"]


@pytest.mark.parametrize("refresh", [None, OnNewVersion(), EveryBatches(1)], ids=str)
def test_a_batch_that_runs_again_has_the_columns_that_it_had(tmp_path: Path, refresh: Refresh) -> None:
    """1.2: also those of its version that its driver left out, and those that the table got after its version."""
    write(tmp_path, 1)
    running = tables(tmp_path, refresh)
    more = pa.table({"id": ["a"], "price": [2], "more": ["x"]})
    write_deltalake(str(tmp_path / "prices"), more, mode="overwrite", schema_mode="overwrite")
    left_out = running.versions(None, 0)
    assert left_out["prices"]["columns"] == ["id", "price"]
    assert tables(tmp_path, refresh, fixed=left_out).schemas["prices"].names == ["id", "price"]
    known = {"prices": {key: value for key, value in left_out["prices"].items() if key != "columns"}}
    assert tables(tmp_path, refresh, fixed=known).schemas["prices"].names == ["id", "price", "more"]
    later = {"prices": {**left_out["prices"], "columns": ["id", "more", "most", "price"]}}
    most = more.append_column("most", pa.array([1.5]))
    write_deltalake(str(tmp_path / "prices"), most, mode="overwrite", schema_mode="overwrite")
    again = tables(tmp_path, refresh, fixed=later).schemas["prices"]
    assert again.names == ["id", "more", "most", "price"]
    assert again.field("most").type == pa.float64()
    (tmp_path / "prices").rename(tmp_path / "old")
    write_deltalake(str(tmp_path / "prices"), pa.table({"id": ["a"], "cost": ["dear"]}))
    assert tables(tmp_path, refresh, fixed=left_out).schemas["prices"].names == ["id", "price"]


def test_columns_that_a_table_got_are_joined_before_their_version_is_due(tmp_path: Path) -> None:
    """A start has them, with nulls until then."""
    write(tmp_path, 1)
    first = tables(tmp_path, EveryBatches(9)).versions(None, 0)
    more = pa.table({"id": ["a"], "more": ["x"], "price": [2]})
    write_deltalake(str(tmp_path / "prices"), more, mode="overwrite", schema_mode="overwrite")
    assert tables(tmp_path, EveryBatches(9), first).schemas["prices"].names == ["id", "more", "price"]


def test_a_file_that_is_gone_or_damaged_is_made_again(tmp_path: Path) -> None:
    """From the version of the table; where that has other rows it is gone."""
    write(tmp_path, 1)
    versions = tables(tmp_path).versions(None, 0)
    (file,) = LocalFolder(tmp_path / "files").files()
    for damage in (b"", b"ARROW1 and no more"):
        file.write_bytes(damage)
        assert price(tables(tmp_path).files(versions)) == 1
    file.unlink()
    with pytest.raises(TableVersionGone, match="batch 0, of version 0, are gone: the table has other rows now"):
        tables(tmp_path).files({"prices": {**versions["prices"], "fingerprint": "another"}})
    with pytest.raises(TableVersionGone, match="of version 7, are gone"):
        tables(tmp_path).files({"prices": {**versions["prices"], "version": 7}})


def test_another_table_of_the_name_is_another_version(tmp_path: Path) -> None:
    """A table that was made again begins at version 0, as the one before."""
    write(tmp_path, 1)
    first = tables(tmp_path).versions(None, 0)
    (tmp_path / "prices").rename(tmp_path / "old")
    write(tmp_path, 2)
    second = tables(tmp_path).versions(commit(first), 1)
    assert second["prices"]["version"] == 0
    assert price(tables(tmp_path).files(second)) == 2


def test_a_version_is_removed_once_a_commit_has_another(tmp_path: Path) -> None:
    """A job that runs for months keeps one file of a table that changes."""
    write(tmp_path, 0)
    newer = tables(tmp_path, OnNewVersion())
    known = newer.versions(None, 0)
    for batch in range(1, 5):
        newer.files(known)
        newer.forget(known)
        assert names(tmp_path) == 1
        write(tmp_path, batch)
        known = newer.versions(commit(known), batch)
    assert price(newer.files(known)) == 4


def test_long_values_of_nested_columns_tell_versions_apart(tmp_path: Path) -> None:
    """The file is named by all bytes of the rows."""
    write_deltalake(str(tmp_path / "tags"), pa.table({"id": ["a"], "tags": [["x" * 150]]}))
    job = Job("tagged")
    rows = job.source("rows", MemorySource("id string, n long"))
    rows.join_static(tmp_path / "tags", on=["id"], refresh=OnNewVersion()).write("out", MemorySink())
    tagged = StaticTables(job.graph().static_joins, LocalFolder(tmp_path / "files"), RecordedTables())
    seen = []
    for end in "12":
        table = pa.table({"id": ["a"], "tags": [["x" * 150 + end]]})
        write_deltalake(str(tmp_path / "tags"), table, mode="overwrite")
        seen.append(tagged.versions(None, 0)["tags"]["fingerprint"])
    assert seen[0] != seen[1]

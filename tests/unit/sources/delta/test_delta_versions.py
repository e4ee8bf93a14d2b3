"""A Delta table is read as a whole, as of any version that it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import FileVanished, SourceGap, SourceNotFound
from penstock.sources.delta.log import DeltaLog
from penstock.sources.delta.versions import DeltaVersions
from penstock.sources.file.positions import Entry
from penstock.sources.file.systems import Listed, LocalFiles


def test_each_version_has_its_rows_and_columns(tmp_path: Path) -> None:
    """Partition columns among them, and a column that the table has got since is not in older versions."""
    path = tmp_path / "prices"
    write_deltalake(str(path), pa.table({"k": ["a", "b"], "v": [1, 2]}), partition_by=["k"])
    write_deltalake(str(path), pa.table({"k": ["a"], "v": [3], "w": [1.5]}), mode="append", schema_mode="merge")
    versions = DeltaVersions(path)
    assert versions.newest() == 1
    assert sorted(row["v"] for row in versions.rows(0).to_pylist()) == [1, 2]
    assert sorted(versions.rows(0).column_names) == ["k", "v"]
    assert sorted((r["k"], r["v"], r["w"]) for r in versions.rows(1).to_pylist()) == [
        ("a", 1, None),
        ("a", 3, 1.5),
        ("b", 2, None),
    ]
    assert sorted((f.name, str(f.type)) for f in versions.schema(1)) == [
        ("k", "string"),
        ("v", "int64"),
        ("w", "double"),
    ]
    assert versions.id_of(0) == versions.id_of(1)


def test_a_version_that_is_gone_is_named(tmp_path: Path) -> None:
    """Its files, its log, or the whole table."""
    path = tmp_path / "prices"
    for value in range(3):
        write_deltalake(str(path), pa.table({"v": [value]}), mode="overwrite")
    DeltaTable(str(path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    versions = DeltaVersions(path)
    assert versions.rows(2)["v"].to_pylist() == [2]
    with pytest.raises(FileVanished):
        versions.rows(1)
    (path / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(SourceGap, match="version 1"):
        versions.rows(1)
    with pytest.raises(SourceNotFound):
        DeltaVersions(tmp_path / "none").newest()


@dataclass(frozen=True)
class Counted(LocalFiles):
    """Files whose use is counted."""

    opened: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)

    def open(self, path: str) -> IO[bytes]:
        self.opened.append(path)
        return super().open(path)

    def look(self, paths: Sequence[str]) -> list[Entry | None]:
        self.looked.extend(paths)
        return super().look(paths)

    def listed(self, path: str, known: np.ndarray | None = None) -> Listed | None:
        self.lists.append(path)
        return super().listed(path, known)


def counted(path: Path, versions: int) -> tuple[DeltaVersions, Counted]:
    """Return a table of so many versions whose log has no checkpoint, and its files; the newest is known."""
    write_deltalake(str(path), pa.table({"v": [0]}))
    for version in range(1, versions):
        add_entry(path, version)
    files = Counted(str(path))
    table = DeltaVersions(path)
    table._log = DeltaLog(files)
    assert table.newest() == versions - 1
    table.id_of(versions - 1)
    for uses in (files.opened, files.looked, files.lists):
        uses.clear()
    return table, files


def add_entry(path: Path, version: int, *actions: object) -> None:
    """Write a version that changes no row."""
    lines = [json.dumps(action) for action in ({"commitInfo": {"timestamp": version}}, *actions)]
    (path / "_delta_log" / f"{version:020}.json").write_text("\n".join(lines))


def test_a_look_at_a_table_without_a_new_version_reads_nothing(tmp_path: Path) -> None:
    """A batch asks for two files, however long the log is; a new version costs a listing and its own entry."""
    table, files = counted(tmp_path / "long", 1000)
    own = table.id_of(999)
    files.looked.clear()
    assert (table.newest(), table.id_of(999)) == (999, own)
    assert (files.opened, files.lists) == ([], [])
    assert len(files.looked) <= 4
    add_entry(tmp_path / "long", 1000)
    assert (table.newest(), table.id_of(1000)) == (1000, own)
    assert files.opened == [f"_delta_log/{1000:020}.json"]
    assert files.lists == ["_delta_log"]
    assert len(files.looked) <= 10


def test_what_is_known_of_a_table_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    """One that was made again has as many versions, or more; an entry with other columns counts."""
    path = tmp_path / "again"
    table, _ = counted(path, 3)
    first = table.id_of(2)
    path.rename(tmp_path / "old")
    write_deltalake(str(path), pa.table({"w": [0]}))
    assert table.newest() == 0
    assert table.id_of(0) != first
    path.rename(tmp_path / "older")
    table, _ = counted(path, 3)
    first = table.id_of(2)
    path.rename(tmp_path / "oldest")
    write_deltalake(str(path), pa.table({"w": [0]}))
    for version in range(1, 5):
        add_entry(path, version, {"txn": {"appId": "a", "version": version}})
    assert table.newest() == 4
    assert table.id_of(4) != first
    write_deltalake(str(path), pa.table({"w": [1], "x": [1]}), mode="append", schema_mode="merge")
    assert table.schema(table.newest()).names == ["w", "x"]
    assert table.schema(4).names == ["w"]

"""A Delta table is read as a whole, as of any version that it has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import FileVanished, SourceGap, SourceNotFound
from penstock.sources.delta.versions import DeltaVersions


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

"""A folder keeps its format, the columns that name folders, and the type of each column (F70)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import ManifestDamaged, SinkSchemaMismatch
from penstock.sinks.files.folders import LocalOutput
from penstock.sinks.files.layout import Layout, check_layout, extend_layout

KV = pa.schema([("k", pa.int64()), ("v", pa.string())])


def layout(schema: pa.Schema = KV, form: str = "Parquet", by: tuple[str, ...] = ("v",)) -> Layout:
    """Return a layout."""
    return Layout.of(form, by, schema)


def test_more_columns_are_noted_and_fewer_fit(tmp_path: Path) -> None:
    """A column keeps its type, also one that came later, or is not in the stream any more."""
    folder = LocalOutput(str(tmp_path))
    wider = KV.append(pa.field("w", pa.float64()))
    for schema in (KV, KV, wider, KV, wider):
        check_layout(folder, layout(schema))
        extend_layout(folder, layout(schema))
    assert len(folder.names("_penstock/layout")) == 2
    with pytest.raises(SinkSchemaMismatch, match=r"'w' is double in the folder, and string in the stream"):
        check_layout(folder, layout(KV.append(pa.field("w", pa.string()))))


@pytest.mark.fault("F70")
@pytest.mark.parametrize(
    ("other", "why"),
    [
        (layout(form="JSON lines"), "files of Parquet, and not of JSON lines"),
        (layout(by=()), r"partitioned by \['v'\], and not by \[\]"),
        (layout(by=("k", "v")), "and not by"),
        (layout(KV.set(0, pa.field("k", pa.int32()))), "'k' is int64 in the folder, and int32"),
    ],
    ids=["format", "not partitioned", "otherwise partitioned", "type"],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path, other: Layout, why: str) -> None:
    """Before the first batch, by `check` and by `create`."""
    folder = LocalOutput(str(tmp_path))
    extend_layout(folder, layout())
    for refuse in (check_layout, extend_layout):
        with pytest.raises(SinkSchemaMismatch, match=why):
            refuse(folder, other)
    assert folder.names("_penstock/layout") == ["000000000000"]


def test_two_jobs_that_begin_at_once_both_have_their_columns(tmp_path: Path) -> None:
    """Exclusive create: the second one reads what the first has noted, and adds its own."""
    wider = KV.append(pa.field("w", pa.float64()))

    class Overtaken(LocalOutput):
        """A folder in which somebody else is first."""

        def create(self, path: str, data: bytes | memoryview) -> bool:
            extend_layout(LocalOutput(self.root), layout(KV))
            return super().create(path, data)

    extend_layout(Overtaken(str(tmp_path)), layout(wider))
    assert len(LocalOutput(str(tmp_path)).names("_penstock/layout")) == 2
    with pytest.raises(SinkSchemaMismatch, match="'w'"):
        check_layout(LocalOutput(str(tmp_path)), layout(KV.append(pa.field("w", pa.string()))))


@pytest.mark.remedy("PEN-SNK-021")
def test_a_damaged_layout_is_named(tmp_path: Path) -> None:
    """With its place; a folder without one begins anew."""
    folder = LocalOutput(str(tmp_path))
    extend_layout(folder, layout())
    path = tmp_path / "_penstock" / "layout" / f"{0:012d}"
    path.write_bytes(b"{}")
    with pytest.raises(ManifestDamaged, match="000000000000"):
        check_layout(folder, layout())
    path.unlink()
    extend_layout(folder, layout())

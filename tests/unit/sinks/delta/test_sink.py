"""A Delta sink that cannot be meant is refused before a table is made."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from penstock import Job
from penstock.errors import ConfigError, SinkError, SinkSchemaMismatch
from penstock.runtime.inspect.explain import explain_graph, guarantees
from penstock.sinks import Delta, Mode
from penstock.sinks.base import Needed
from penstock.sources import MemorySource


def test_partition_by_takes_names_and_not_one_text(tmp_path: Path) -> None:
    """Its letters would be taken for columns."""
    with pytest.raises(ConfigError, match="is a text"):
        Delta(tmp_path / "t", partition_by="user")  # type: ignore[arg-type]


def test_partition_by_names_columns_of_the_stream(tmp_path: Path) -> None:
    """Refused with what there is, and no folder is left."""
    sink = Delta(tmp_path / "t", partition_by=("nope",))
    with pytest.raises(SinkSchemaMismatch, match="'nope'.*user"):
        sink.create(pa.schema([("user", pa.string())]), None)
    assert not (tmp_path / "t").exists()


@pytest.mark.fault("F42")
def test_a_column_that_the_stream_has_gained_is_added_to_the_table_by_hand(tmp_path: Path) -> None:
    """F42: as docs/delta.md says; before, the start is refused and names it."""
    sink, wider = Delta(tmp_path / "t"), pa.schema([("user", pa.string()), ("worst", pa.float64())])
    sink.create(wider.remove(1), None)
    with pytest.raises(SinkSchemaMismatch, match="the table lacks worst double"):
        sink.check(wider)
    DeltaTable(tmp_path / "t").alter.add_columns([Field("worst", PrimitiveType("double"))])
    sink.check(wider)


def test_explain_names_the_mode_and_the_guarantee(tmp_path: Path) -> None:
    """Both modes show each batch exactly once."""
    job = Job("copy")
    rows = job.source("rows", MemorySource("k long"))
    rows.write("all", Delta(tmp_path / "all"))
    rows.write("newest", Delta(tmp_path / "newest", mode=Mode.UPSERT, keys=["k"]))
    graph = job.graph()
    text = str(explain_graph(graph))
    assert "all, append" in text
    assert "newest, upsert by k" in text
    assert [promise.partition(":")[0] for _, promise in guarantees(graph)] == ["exactly once"] * 2


def test_a_data_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    """F13: a requeue, a start and an upkeep meet it outside a publication, where nothing else gives it a name."""
    write_deltalake(str(tmp_path), pa.table({"k": pa.array([1], pa.int64()), "_batch": pa.array([0], pa.int64())}))
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(b"x" * file.stat().st_size)
    sink = Delta(tmp_path, mode=Mode.UPSERT, keys=["k"])
    schema = pa.schema([("k", pa.int64()), ("_batch", pa.int64())])
    for reads in (lambda: sink.read_batches(range(1)), lambda: sink.check(schema)):
        with pytest.raises(SinkError, match=rf"cannot be read.*{file.name}"):
            reads()


def test_upkeep_names_a_damaged_file_and_leaves_the_table(tmp_path: Path) -> None:
    """It is one of those that would be joined."""
    for _ in range(2):
        write_deltalake(str(tmp_path), pa.table({"k": [1]}), mode="append")
    file = min(tmp_path.glob("*.parquet"))
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(SinkError, match=rf"cannot be read.*{file.name}"):
        Delta(tmp_path).maintain(Needed(), now=time.time() + 100)
    assert (DeltaTable(str(tmp_path)).version(), len(list(tmp_path.glob("*.parquet")))) == (1, 2)

"""A Delta sink that cannot be meant is refused before a table is made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Job
from penstock.errors import JobError, SinkSchemaMismatch
from penstock.runtime.inspect.explain import explain_graph, guarantees
from penstock.sinks import Delta, Mode
from penstock.sources import MemorySource


def test_partition_by_takes_names_and_not_one_text(tmp_path: Path) -> None:
    """Its letters would be taken for columns."""
    with pytest.raises(JobError, match="takes names"):
        Delta(tmp_path / "t", partition_by="user")  # type: ignore[arg-type]


def test_partition_by_names_columns_of_the_stream(tmp_path: Path) -> None:
    """Refused with what there is, and no folder is left."""
    sink = Delta(tmp_path / "t", partition_by=("nope",))
    with pytest.raises(SinkSchemaMismatch, match="'nope'.*user"):
        sink.create(pa.schema([("user", pa.string())]), None)
    assert not (tmp_path / "t").exists()


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

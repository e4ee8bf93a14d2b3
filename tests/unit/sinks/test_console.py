"""The console prints whatever a batch holds: what it cannot print would stop a job for ever (SEMANTICS 9.6, F74)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.sinks import Console
from penstock.sinks.base import Publication, Staged
from penstock.sinks.staged_files import stage_table

FAR = 2**60
"""Microseconds: the year 38,503, which no datetime holds."""


@pytest.mark.fault("F74")
def test_values_that_no_python_object_can_hold_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A timestamp beyond the year 9999, a date, and one inside a list; those beside them are as they always are."""
    rows = pa.table(
        {
            "at": pa.array([FAR, 0], pa.timestamp("us", tz="UTC")),
            "day": pa.array([2**31 - 1, 0], pa.date32()),
            "all": pa.array([[FAR], [0]], pa.list_(pa.timestamp("us"))),
            "n": [7, 8],
        }
    )
    file = Staged(**stage_table(rows, tmp_path, "000000000000.parquet"))
    publisher = Console().open(tmp_path, None)
    publisher.publish(Publication(app="a", batch=0, files=[file], schema=rows.schema))
    printed = capsys.readouterr().out
    assert "batch 0" in printed
    assert "1970-01-01" in printed
    assert "7" in printed

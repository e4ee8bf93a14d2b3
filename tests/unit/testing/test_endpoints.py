"""The test kit shows what is in the tables and folders of a job (API: `Harness.output`)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import Job
from penstock.sinks import Console, Delta, JsonLines, Parquet
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.testing.endpoints import shown

FIRST = {"k": "a\u2028b", "n": 1, "at": datetime(2026, 11, 28, tzinfo=UTC)}
SECOND = {"k": None, "n": 2, "at": None}


def test_each_table_and_folder_shows_its_rows(tmp_path: Path) -> None:
    """Batch after batch, also for a job that was built anew; JSON has times as texts, a console keeps nothing."""

    def job() -> Job:
        made = Job("shown", partitions=1)
        rows = made.source("rows", MemorySource("k string, n int, at timestamp"))
        rows.write("delta", Delta(tmp_path / "delta"))
        rows.write("parquet", Parquet(tmp_path / "parquet"))
        rows.write("by_n", Parquet(tmp_path / "by_n", partition_by=["n"]))
        rows.write("json", JsonLines(tmp_path / "json"))
        rows.write("console", Console())
        return made

    texts = [{**FIRST, "at": "2026-11-28T00:00:00.000000Z"}, SECOND]
    with Harness(job(), tmp_path / "root") as h:
        h.batch({"rows": [FIRST]})
        h.restart(job())
        h.batch({"rows": [SECOND]})
        output = h.output()
    assert sorted(output.pop("delta"), key=lambda row: row["n"]) == [FIRST, SECOND]
    assert output == {"parquet": [FIRST, SECOND], "by_n": [FIRST, SECOND], "json": texts, "console": []}


@pytest.mark.parametrize("sink", [Parquet, JsonLines])
def test_a_folder_without_files_shows_nothing(tmp_path: Path, sink: Any) -> None:
    """Before the first batch."""
    assert shown(sink(tmp_path / "out")) == []

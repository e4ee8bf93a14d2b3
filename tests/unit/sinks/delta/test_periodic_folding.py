"""The log of a table is folded as often as the table says, beside who writes into it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from penstock.sinks.delta.periodic_folding import PeriodicFolding, folding_interval


@pytest.mark.parametrize(("setting", "every"), [(None, 100), ("7", 7), ("0", 100), ("seldom", 100)])
def test_a_table_says_how_often(setting: str | None, every: int, tmp_path: Path) -> None:
    """`delta.checkpointInterval`; what is no number counts as nothing."""
    configuration = {} if setting is None else {"delta.checkpointInterval": setting}
    schema = Schema.from_arrow(pa.schema([("k", pa.int64())]))
    table = DeltaTable.create(str(tmp_path), schema)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text(
        log.read_text().replace('"configuration":{}', f'"configuration":{str(configuration).replace(chr(39), chr(34))}')
    )
    assert folding_interval(DeltaTable(str(tmp_path))) == every
    assert table.version() == 0


def test_it_is_folded_where_that_is_due_and_a_failure_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers need it for speed alone: nothing is raised."""
    DeltaTable.create(str(tmp_path / "table"), Schema.from_arrow(pa.schema([("k", pa.int64())])))
    folding = PeriodicFolding(tmp_path / "table", "the table")
    for version in (1, 2, 3):
        folding.after(version, 3)
    folding.wait()
    assert [file.name for file in (tmp_path / "table/_delta_log").glob("*.checkpoint.parquet")]
    gone = PeriodicFolding(tmp_path / "gone", "the table")
    for version in (3, 4):
        gone.after(version, 3)
        gone.wait()
    assert "no checkpoint of a table's log" in capsys.readouterr().out

"""The newest batch of a table is that of the version in force, whatever another program has put back (9.5, F70)."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sinks.delta.log_entry import actions_of, entry_name
from penstock.sinks.delta.restored_version import version_put_back
from penstock.sinks.delta.table import batch_shown

APP = "uuid/out"
TIMES = [{"datetime": "1795892948571"}, {"version": None, "timestamp": '"2026-11-28 10:00:00"'}]
"""How delta-rs and delta-spark note a RESTORE to a time."""


class Table:
    """A Delta table, and the newest batch that each of its versions shows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shows: list[int | None] = []
        self.write()

    @property
    def newest(self) -> int:
        return DeltaTable(str(self.path)).version()

    def write(self, batch: int | None = None) -> None:
        """Add a row, as another program or with a batch."""
        noted = [] if batch is None else [Transaction(APP, batch)]
        rows = pa.table({"k": [len(self.shows)]})
        write_deltalake(str(self.path), rows, mode="append", commit_properties=CommitProperties(app_transactions=noted))
        self.shows.append(self.shows[-1] if batch is None and self.shows else batch)

    def compact(self) -> None:
        """Replace files by one with their rows."""
        DeltaTable(str(self.path)).optimize.compact()
        self.shows += [self.shows[-1]] * (self.newest + 1 - len(self.shows))

    def restore(self, version: int, named: dict[str, object] | None) -> None:
        """Put a version back, and note a time in its place, unless `named` is None."""
        before = self.newest
        DeltaTable(str(self.path)).restore(version)
        if self.newest > before:
            self.shows.append(self.shows[version])
        if named is not None and self.newest > before:
            entry = self.path / "_delta_log" / entry_name(self.newest)
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            for action in actions:
                if "commitInfo" in action:
                    action["commitInfo"]["operationParameters"] = named
            entry.write_text("".join(json.dumps(action) + "\n" for action in actions))

    def shown(self) -> int | None:
        return batch_shown(DeltaTable(str(self.path)), self.path, APP)


@pytest.mark.fault("F70")
@pytest.mark.parametrize("named", TIMES, ids=["delta-rs", "delta-spark"])
def test_a_restore_to_a_time_is_noticed(tmp_path: Path, named: dict[str, object]) -> None:
    """It names no version, so the rows of the batches since stayed away in silence."""
    table = Table(tmp_path)
    for batch in range(3):
        table.write(batch)
    table.compact()
    table.restore(2, named)
    assert version_put_back(tmp_path, table.newest, actions_of(tmp_path, table.newest) or []) == 2
    assert DeltaTable(str(tmp_path)).transaction_version(APP) == 2
    assert table.shown() == 1
    table.write()
    assert table.shown() == 1
    table.write(2)
    assert table.shown() == 2


@pytest.mark.fault("F70")
@pytest.mark.parametrize("second", ["batch", "compact"])
def test_a_restore_to_a_time_from_before_another_is_noticed(tmp_path: Path, second: str) -> None:
    """The second one undoes what the first has undone; once, its entry was taken for the end of what is undone."""
    table = Table(tmp_path)
    table.write(0)
    table.write(1) if second == "batch" else table.compact()
    table.restore(1, TIMES[0])
    assert table.shown() == 0
    table.restore(0, TIMES[0])
    assert table.shown() is None


@pytest.mark.fault("F13")
def test_a_torn_entry_from_before_a_checkpoint_stops_nobody(tmp_path: Path) -> None:
    """No reader of the newest version needs it, and what the table notes is believed."""
    table = Table(tmp_path)
    table.write(0)
    table.write()
    DeltaTable(str(tmp_path)).create_checkpoint()
    entry = tmp_path / "_delta_log" / entry_name(2)
    entry.write_bytes(entry.read_bytes()[:-9])
    assert table.shown() == 0


@settings(max_examples=examples(20), deadline=None)
@given(
    deeds=st.lists(
        st.one_of(
            st.sampled_from(["batch", "other", "compact"]),
            st.tuples(st.integers(0, 9), st.sampled_from([*TIMES, None])),
        ),
        max_size=9,
    )
)
def test_whatever_is_put_back_the_batch_shown_is_the_one_of_the_model(deeds: list[object]) -> None:
    """Restores of restores too, and of versions whose files were compacted since."""
    with TemporaryDirectory() as folder:
        table = Table(Path(folder))
        for number, deed in enumerate(deeds):
            match deed:
                case "batch":
                    table.write(number)
                case "other":
                    table.write()
                case "compact":
                    table.compact()
                case (int() as version, named) if table.newest:
                    table.restore(version % table.newest, named)
            assert table.shown() == table.shows[-1], deeds[: number + 1]

"""A table with several rows of a key is named at the start, and a table of ours is not read for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta_tables import Upserts
from deltalake import DeltaTable, write_deltalake

from penstock.errors import KeysRepeated
from penstock.sinks.delta import unique_keys as module
from penstock.sinks.delta.unique_keys import is_known_unique


@pytest.mark.remedy("PEN-SNK-023")
def test_a_table_with_several_rows_of_a_key_is_refused_until_they_are_gone(tmp_path: Path) -> None:
    """KeysRepeated, with a key; the remedy is followed."""
    table = Upserts(tmp_path)
    write_deltalake(str(table.path), table.rows((1, "a", 1), (2, "a", 2)))
    table.append((2, "b", 3))
    with pytest.raises(KeysRepeated, match="several rows with k=2") as caught:
        table.made()
    assert (caught.value.where, caught.value.exit_code) == (str(table.path), 78)
    DeltaTable(str(table.path)).delete("v = 2")
    table.made().publisher().publish(table.batch(0, (1, "a", 9)))
    assert table.shown() == [(1, "a", 9), (2, "b", 3)]


def test_a_table_that_only_the_job_has_written_is_not_read_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry of a merge says of which keys there is one row; what others have added since is read."""
    table = Upserts(tmp_path).made()
    table.publisher().publish(table.batch(0, (1, "a", 1)))
    reads: list[None] = []
    monkeypatch.setattr(module, "repeated_key", lambda *_: reads.append(None))
    table.made()
    assert reads == []
    table.append((2, "a", 2))
    table.made()
    assert len(reads) == 1


def test_a_merge_does_not_vouch_for_rows_that_others_have_added(tmp_path: Path) -> None:
    """A publisher that runs does not read the table for that; the next start does."""
    table = Upserts(tmp_path).made()
    publisher = table.publisher()
    publisher.publish(table.batch(0, (1, "a", 1)))
    assert is_known_unique(table.path, 1, ["k"])
    assert not is_known_unique(table.path, 1, ["p"])
    table.append((1, "b", 2), (2, "b", 2))
    publisher.publish(table.batch(1, (3, "a", 3)))
    assert not is_known_unique(table.path, 3, ["k"])
    with pytest.raises(KeysRepeated, match="k=1"):
        table.made()
    publisher.publish(table.batch(2, (1, "c", 4)))
    table.made().publisher().publish(table.batch(3, (4, "c", 4)))
    assert is_known_unique(table.path, 5, ["k"])


def test_an_entry_that_was_cleaned_away_vouches_for_nothing(tmp_path: Path) -> None:
    """A log that was folded and cleaned."""
    table = Upserts(tmp_path).made()
    table.publisher().publish(table.batch(0, (1, "a", 1)))
    DeltaTable(str(table.path)).create_checkpoint()
    (table.path / "_delta_log" / f"{1:020}.json").unlink()
    assert not is_known_unique(table.path, 1, ["k"])
    table.made()

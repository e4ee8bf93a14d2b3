"""Small files are joined beside a job that writes: the rows stay, and who reads the table as a stream gets none again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from delta_tables import APP, Upserts
from deltalake import DeltaTable, write_deltalake

from penstock.sinks import Delta
from penstock.sinks.base import Target
from penstock.sinks.delta import compaction as module
from penstock.sinks.delta.compaction import bins, compact
from penstock.sinks.delta.data_files import DataFile
from penstock.sinks.delta.unique_keys import is_known_unique

LATER = 100.0
"""Seconds after which files are old enough."""


def entry(table: Upserts, version: int) -> list[dict[str, Any]]:
    """Return the actions of a version."""
    text = (table.path / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["plain", "partitioned"])
def test_rows_stay_and_files_become_few(partition_by: tuple[str, ...], tmp_path: Path) -> None:
    """One file for each partition; no action says that data has changed, and the job goes on as before."""
    table = Upserts(tmp_path, partition_by=partition_by).made()
    publisher = table.publisher()
    for number in range(4):
        publisher.publish(table.batch(number, (number, "a", number), (10 + number, "b", number)))
    before = table.shown()
    assert compact(table.path, now=time.time()) == (0, 0), "they were written just now"
    many, parts = len(table.files()), len(partition_by) + 1
    assert compact(table.path, now=time.time() + LATER) == (many, parts)
    assert (table.shown(), len(table.files()), table.left()) == (before, parts, set())
    version = DeltaTable(str(table.path)).version()
    changes = {action["dataChange"] for line in entry(table, version) for action in line.values() if "path" in action}
    assert changes == {False}
    assert is_known_unique(table.path, version, ["k"]), "who starts needs not read the keys"
    assert compact(table.path, now=time.time() + LATER) == (0, 0)
    publisher.publish(table.batch(4, (0, "b", 9)))
    assert table.shown() == [(0, "b", 9), *before[1:]]


def test_a_table_that_rows_are_added_to_is_joined_between_two_batches(tmp_path: Path) -> None:
    """`Mode.APPEND`: the publisher sees that others have committed, and its next batch lands once."""
    table = Upserts(tmp_path)
    table.sink = Delta(table.path)
    table.staging = table.path
    publisher = table.made().publisher()
    for number in range(6):
        batch = table.batch(number, (number, "a", number))
        publisher.publish(batch)
        if number == 3:
            assert compact(table.path, now=time.time() + LATER) == (4, 1)
    publisher.publish(batch)
    assert (table.shown(), len(table.files())) == ([(n, "a", n) for n in range(6)], 3)


OTHERS = ["a batch", "an append", "files that are removed", "other columns"]


@pytest.mark.parametrize("what", OTHERS)
def test_who_commits_meanwhile_comes_first(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry comes after; where a file of it has gone, or the table has changed, the files stay as they are."""
    table = Upserts(tmp_path).made()
    publisher = table.publisher()
    for number in range(3):
        publisher.publish(table.batch(number, (number, "a", number)))
    create, tries = module.create_entry, list[int]()

    def overtaken(*asked: Any) -> bool:
        tries.append(len(tries))
        if len(tries) == 1:
            if what == "a batch":
                publisher.publish(table.batch(3, (7, "a", 7)))
            elif what == "an append":
                table.append((7, "a", 7))
            elif what == "files that are removed":
                publisher.publish(table.batch(3, (1, "b", 7)))
            else:
                DeltaTable(str(table.path)).alter.set_table_properties({"delta.checkpointInterval": "7"})
        return create(*asked)

    monkeypatch.setattr(module, "create_entry", overtaken)
    lands = what in {"a batch", "an append"}
    assert compact(table.path, now=time.time() + LATER) == ((3, 1) if lands else (0, 0))
    rows = {"a batch": [(7, "a", 7)], "an append": [(7, "a", 7)]}.get(what, [])
    second = (1, "b", 7) if what == "files that are removed" else (1, "a", 1)
    assert table.shown() == [(0, "a", 0), second, (2, "a", 2), *rows]
    assert table.left() == set()


def test_a_batch_that_is_merged_meanwhile_lands_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No conflict fails the job: its publisher merges again from the joined files."""
    from penstock.sinks.delta import upsert_publisher

    table = Upserts(tmp_path).made()
    publisher = table.publisher()
    for number in range(3):
        publisher.publish(table.batch(number, (number, "a", number)))
    create, tries = upsert_publisher.create_entry, list[int]()

    def overtaken(*asked: Any) -> bool:
        tries.append(len(tries))
        if len(tries) == 1:
            assert compact(table.path, now=time.time() + LATER) == (3, 1)
        return create(*asked)

    monkeypatch.setattr(upsert_publisher, "create_entry", overtaken)
    publisher.publish(table.batch(3, (1, "b", 7), (4, "b", 8)))
    assert table.shown() == [(0, "a", 0), (1, "b", 7), (2, "a", 2), (4, "b", 8)]
    assert (len(tries), table.left()) == (2, set())


def test_a_restore_takes_rows_back_as_if_files_had_not_been_joined(tmp_path: Path) -> None:
    """SEMANTICS 10.1: an entry without changes is nobody's, so it is in nobody's way."""
    table = Upserts(tmp_path).made()
    publisher = table.publisher()
    for number in range(4):
        publisher.publish(table.batch(number, (number, "a", number)))
        if number in {1, 3}:
            assert compact(table.path, now=time.time() + LATER)[1] == 1
    target = Target(app=APP, batch=2, slot=9)
    version = table.sink.find_version(target)
    assert version is not None
    assert table.sink.put_back(target, version, slot=20, newest=3)
    assert table.shown() == [(n, "a", n) for n in range(3)]


def test_files_are_put_together_up_to_the_size_that_the_table_wants() -> None:
    """`bins`: the oldest first; large files, and one that has no other, stay."""
    sizes = [10, 60, 40, 45, 30, 49, 5]
    files = [DataFile(path=f"{n}", size=size, rows=1, modified=n) for n, size in enumerate(sizes)]
    assert [[file.size for file in each] for each in bins(files, 100)] == [[10, 40, 45], [30, 49, 5]]
    assert list(bins(files[:1], 100)) == []
    assert list(bins([], 100)) == []


def test_a_table_that_is_gone_is_left(tmp_path: Path) -> None:
    """Before the first batch, or after somebody has removed it."""
    assert compact(tmp_path / "table", now=time.time()) == (0, 0)
    write_deltalake(str(tmp_path / "empty"), Upserts(tmp_path).rows())
    assert compact(tmp_path / "empty", now=time.time() + LATER) == (0, 0)

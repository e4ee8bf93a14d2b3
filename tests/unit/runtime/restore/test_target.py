"""What stays published is told before a job goes back behind it (SEMANTICS 10.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkpoint_samples import commit, offsets, own

from penstock.checkpoint.log.entries import Restore, Save, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CannotRestore
from penstock.runtime.restore.target import LAST, RestoreTarget, Superseded, find_superseded, parse_start

HERE = LocalFolder("no-snapshots")


def back(batch: int) -> RestoreTarget:
    return RestoreTarget(restore=True, batch=batch)


def superseded(log: Log, start: RestoreTarget) -> Superseded:
    return find_superseded(start.resolve(recover(log), HERE))


def file(rows: int) -> StagedFile:
    return StagedFile(path=f"{rows}.parquet", size=1, rows=rows, checksum="", stats={})


@pytest.fixture
def log():
    """Batches 0 to 3: sink `a` gets 1, 2, 3, 4 rows, sink `b` 10 in batch 2 only."""
    filled = Log(MemoryStore())
    owned = own(filled)
    for batch in range(4):
        staged = {"a": [file(batch), file(1)], "b": [file(10)] if batch == 2 else []}
        owned.append(offsets(batch))
        owned.append(commit(batch, staged=staged))
    return filled


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("last", LAST),
        ("empty", RestoreTarget(restore=True)),
        ("snapshot=7", RestoreTarget(restore=True, snapshot="7")),
        ("snapshot=hourly@7", RestoreTarget(restore=True, snapshot="hourly@7")),
        ("batch=12", back(12)),
        ("saved=x", RestoreTarget(restore=True, saved="x")),
    ],
)
def test_where_to_start_is_read(text, start):
    """`last` restores nothing."""
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text", ["", "batch", "batch=", "batch=-1", "batch=x", "12", "Last", "saved=", "saved=X", "saved=../x"]
)
def test_other_words_are_refused(text):
    """With those that can be written."""
    with pytest.raises(ValueError, match="none of last, batch=N, saved=NAME, snapshot=VERSION and empty"):
        parse_start(text)


def test_each_sink_is_named_with_the_batches_and_rows_after(log):
    """Of the batches after the restored one only."""
    left_behind = superseded(log, back(1))
    assert [(s.sink, s.batches, s.rows) for s in left_behind.sinks] == [("a", (2, 3), 7), ("b", (2,), 10)]
    assert left_behind.lines() == [
        "back to batch 1: these rows stay published, and will be published again under new batch ids",
        "  a: 7 rows of 2 batches from 2 to 3",
        "  b: 10 rows of batch 2",
    ]
    assert left_behind.to_json() == {
        "back_to": 1,
        "sinks": {"a": {"batches": [2, 3], "rows": 7}, "b": {"batches": [2], "rows": 10}},
        "uncounted_before": None,
        "truncate": False,
        "again": {},
    }


def test_with_truncation_they_go_away(log):
    """And come again as the others do."""
    left_behind = superseded(log, replace(back(1), truncate=True))
    assert left_behind.lines() == [
        "back to batch 1: these rows go away from their sinks, and will be published again under new batch ids",
        "  a: 7 rows of 2 batches from 2 to 3",
        "  b: 10 rows of batch 2",
    ]
    assert left_behind.to_json()["truncate"] is True


def test_what_a_restore_has_taken_back_is_not_counted_until_another_brings_it_again(log):
    """Sinks show what the Restores that truncated have left, and what was published since."""
    owned = own(log)
    fields = {"source": "batch", "saved": None, "partitions": None, "truncate": {"a": 1}}
    owned.append(Restore(epoch=owned.epoch, writer=owned.writer, batch=1, **fields))
    owned.append(offsets(4, owned.epoch, owned.writer))
    owned.append(commit(4, owned.epoch, owned.writer, staged={"a": [file(4)]}))
    left_behind = superseded(log, back(0))
    assert [(s.sink, s.batches) for s in left_behind.sinks] == [("a", (1, 4))]
    left_behind = superseded(log, replace(back(3), truncate=True))
    assert [(s.sink, s.batches) for s in left_behind.sinks] == [("a", (4,))]
    assert left_behind.lines()[2:] == [
        "these rows, which an earlier restore has taken back, are in their sinks again",
        "  a: 7 rows of 2 batches from 2 to 3",
        "  b: 10 rows of batch 2",
    ]


def test_going_back_to_nothing_leaves_all_behind(log):
    """Also what the log no longer counts."""
    left_behind = superseded(log, RestoreTarget(restore=True))
    assert [(s.sink, s.rows) for s in left_behind.sinks] == [("a", 10), ("b", 10)]
    owned = own(log)
    owned.append(offsets(4, 2))
    owned.append(commit(4, 2, floor=3))
    left_behind = superseded(log, RestoreTarget(restore=True))
    assert [(s.sink, s.batches) for s in left_behind.sinks] == [("a", (3,))]
    assert left_behind.lines()[-1] == "  and the rows of batches 0 to 2, which the log no longer counts"


def test_nothing_after_the_batch_is_said_too(log):
    """The newest batch has none after it."""
    assert superseded(log, back(3)).lines() == ["back to batch 3: no sink has published rows after it"]


def test_a_batch_that_is_not_kept_is_refused_with_those_that_are(log):
    """Before anything is taken over."""
    with pytest.raises(CannotRestore, match="batches 0 to 3"):
        superseded(log, back(9))


def test_what_the_log_no_longer_counts_is_told_of_a_saved_batch_too(log):
    """Though none of the kept batches has published a row."""
    owned = own(log)
    first = recover(log).kept[0]
    owned.append(Save(epoch=owned.epoch, writer=owned.writer, name="first", commit=first))
    for batch in (4, 5):
        owned.append(offsets(batch, owned.epoch, owned.writer))
        owned.append(commit(batch, owned.epoch, owned.writer, floor=4))
    left_behind = superseded(log, RestoreTarget(restore=True, saved="first"))
    assert (left_behind.batch, left_behind.sinks) == (0, ())
    assert left_behind.lines()[-1] == "  and the rows of batches 1 to 3, which the log no longer counts"

"""What the Kafka demo reads out of a job's log, from logs written by the log's own code."""

from __future__ import annotations

from checkpoint_samples import commit, offsets, own

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from tools.demo_kafka_check import Batch
from tools.demo_kafka_log import read_batches, rows_read


def ranges(*partitions):
    """Return what Offsets say of a source: the ranges of partitions, or that nothing is read."""
    span = {"ids": {"t": "x"}, "ranges": [["t", *partition] for partition in partitions], "skipped": []}
    return {"departures": {"start": None, "end": {}, "span": span if partitions else None}}


def test_each_committed_batch_is_read_with_its_ranges(tmp_path):
    """A batch that a second driver ran again is there once, and one without a Commit is not there."""
    log = Log(LocalStore(tmp_path))
    assert rows_read(tmp_path, "departures") == 0
    first = own(log)
    first.append(offsets(0, ranges=ranges((0, 0, 5), (1, 0, 7))))
    first.append(commit(0, totals={"source:departures": {"read": 12}}))
    first.append(offsets(1, ranges=ranges((0, 5, 6), (1, 7, 7))))
    second = own(log, writer="w2")
    assert rows_read(tmp_path, "departures") == 12
    second.append(commit(1, 2, "w2", totals={"source:departures": {"read": 13}}))
    second.append(offsets(2, 2, "w2", ranges=ranges()))
    second.append(commit(2, 2, "w2", totals={"source:departures": {"read": 13}}))
    second.append(offsets(3, 2, "w2", ranges=ranges((0, 6, 9))))
    assert read_batches(tmp_path, "departures") == [
        Batch(id=0, time=0, ranges={0: (0, 5), 1: (0, 7)}),
        Batch(id=1, time=1_000_000, ranges={0: (5, 6), 1: (7, 7)}),
        Batch(id=2, time=2_000_000, ranges={}),
    ]
    assert rows_read(tmp_path, "departures") == 13

"""The rows and the units of a job's gates are summed up over its Commits, and each sink has its table."""

from __future__ import annotations

from checkpoint_samples import commit

from penstock.checkpoint.log.entries import SourceProgress
from penstock.ui.commits import gates_of, sinks_of, sources_of

GATED = {"accounting": {"check:gate": {"in": 20, "published": 12, "quarantined": 5, "dropped": 1, "held": 2}}}
JUDGED = {"check": "gate", "unit": 60_000_000, "status": "failed", "rows": 3, "action": "quarantine", "results": []}


def test_totals_go_before_the_batches_that_are_kept():
    """They are of all batches; where a batch of an older version is in force there are none."""
    old = commit(1, verdicts=[JUDGED], **GATED)
    new = commit(2, totals={"check:gate": {"in": 900, "published": 800, "quarantined": 100}}, **GATED)
    [before], [after] = gates_of([old]), gates_of([old, new])
    assert (before.rows["quarantined"], before.in_all) == (5, False)
    assert (after.rows, after.in_all) == ({"published": 800, "quarantined": 100, "dropped": 0, "held": 0}, True)
    assert (after.units, after.kept) == ({"failed, quarantine": 1}, 2)
    assert gates_of([]) == []


def test_a_sink_says_what_it_writes():
    """As its driver has noted; what an older driver has not noted is unknown."""
    newest = commit(1, staged={"totals": [], "archive": []})
    noted = {"totals": "Kafka topic totals"}
    written = {sink.name: sink.writes for sink in sinks_of(newest, {}, noted)}
    assert written == {"totals": "Kafka topic totals", "archive": None}
    assert {sink.writes for sink in sinks_of(newest, {}, None)} == {None}
    assert {sink.writes for sink in sinks_of(newest, {}, {"totals": 1, "archive": 2})} == {None}


def test_offsets_can_be_read_by_a_person():
    """Files packs the names that it has read into one text, which may have 60,000 characters."""
    position = {"files": 2_000, "read": "eNp" * 20_000, "floor": [7, "day=1/x.json"]}
    progress = SourceProgress(position=position, partitions={}, ended=False)
    (source,) = sources_of(commit(1, sources={"orders": progress}), None)
    assert source.offsets == 'files 2,000, read (60,000 characters), floor [7, "day=1/x.json"]'


def test_offsets_of_a_topic_with_many_partitions_are_shown():
    """They are many short values, which a person compares, and no packed text; a packed one among them is not."""
    offsets = {str(number): 1_000 + number for number in range(40)}
    position = {"topics": {"orders": {"id": "5wOEJdMhT-6v9l0cWDGhbA", "offsets": offsets, "packed": ["x" * 300]}}}
    progress = SourceProgress(position=position, partitions={}, ended=False)
    (source,) = sources_of(commit(1, sources={"orders": progress}), None)
    assert '"39": 1039' in source.offsets
    assert '"packed": ["(300 characters)"]' in source.offsets

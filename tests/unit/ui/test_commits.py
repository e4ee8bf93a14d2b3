"""The rows and the units of a job's gates are summed up over its Commits, and each sink has its table."""

from __future__ import annotations

from checkpoint_samples import commit

from penstock.ui.commits import gates_of, sinks_of

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


def test_a_sink_of_files_has_no_table():
    """A driver notes Delta tables alone. Only where it has noted none at all is a sink's table unknown."""
    newest = commit(1, staged={"totals": [], "archive": []})
    noted = {"totals": "tables/totals"}
    assert {sink.name: sink.table for sink in sinks_of(newest, {}, noted)} == {"totals": "tables/totals", "archive": ""}
    assert {sink.table for sink in sinks_of(newest, {}, None)} == {None}
    assert {sink.table for sink in sinks_of(newest, {}, {"totals": 1, "archive": 2})} == {None}

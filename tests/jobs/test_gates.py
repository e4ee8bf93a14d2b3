"""What becomes of window rows that fail a gate, policy by policy, in whole jobs (SEMANTICS 11, F52)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from harness_jobs import ORDERS, order, plain

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import GateError, GateStopped, JobError
from penstock.quality import OnFail
from penstock.quality.compile import CompiledGate
from penstock.quality.measure import Partial
from penstock.runtime.driver.loop import DriverSettings
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(2, of="gates")

BETWEEN = "expect_column_values_to_be_between"
CRITICAL = {"type": BETWEEN, "kwargs": {"column": "total", "max_value": 100}}
WARNING = {"type": BETWEEN, "kwargs": {"column": "n", "max_value": 1}, "severity": "warning"}
SMALL = {"name": "small", "expectations": [CRITICAL, WARNING]}
FEW = {
    "name": "few",
    "expectations": [{"type": "expect_column_sum_to_be_between", "kwargs": {"column": "total", "max_value": 100}}],
}
NOTED = {"name": "small", "expectations": [WARNING]}
RULE = "small:1:expect_column_values_to_be_between(total)"
FIRST, SECOND = (0.0, 10.0), (10.0, 20.0)
GOOD = [("ann", *SECOND, 1, 5), ("bob", *SECOND, 1, 7)]
BAD = [("ann", *FIRST, 2, 5), ("bob", *FIRST, 1, 500)]


def gated_job(source: MemorySource | None = None, suite: dict[str, Any] = SMALL, **policies: OnFail) -> Job:
    """Write the totals of users in windows of 10 s through one check for each policy."""
    job = Job("gated", partitions=1)
    orders = job.source("orders", source or MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    window = Tumbling(seconds(10)).drop_late()
    totals = orders.key_by("user").window("w", window).aggregate(n=agg.count(), total=agg.sum("v"))
    for name, policy in policies.items():
        totals.check(name, suite=suite, on_fail=policy).write(f"{name}_out", MemorySink())
        if policy is OnFail.QUARANTINE:
            job.quarantine(name).write(f"{name}_bad", MemorySink())
    return job


def feed(h: Harness) -> dict[str, Any]:
    """Fill a window with a row that fails and one with none, and close both; return what the sinks show."""
    h.batch({"orders": [order("ann", 1, 2), order("ann", 2, 3), order("bob", 3, 500)]})
    h.batch({"orders": [order("ann", 11, 5), order("bob", 12, 7)]})
    h.batch({"orders": [order("zoe", 30)]})
    return {name: sorted(plain(rows)) for name, rows in h.output().items()}


def test_rows_that_fail_go_where_the_policy_says(tmp_path: Path) -> None:
    """Each row is published, dropped, in quarantine or held, and counted as such (SEMANTICS 2.10, 11.3, 11.5)."""
    policies = {p.value: p for p in (OnFail.WARN, OnFail.DROP, OnFail.QUARANTINE, OnFail.HOLD)}
    with Harness(gated_job(**policies), tmp_path) as h:
        shown = feed(h)
    counts_of: dict[str, Counter[str]] = defaultdict(Counter)
    verdicts: dict[str, list[str]] = defaultdict(list)
    for kept in commits(tmp_path):
        for name, counts in kept.accounting.items():
            counts_of[name].update(counts)
        for verdict in kept.verdicts:
            verdicts[str(verdict["check"])].append(str(verdict["status"]))
    both = sorted([*BAD, *GOOD])
    without = sorted([BAD[0], *GOOD])
    assert shown["warn_out"] == both
    assert shown["drop_out"] == without
    assert shown["quarantine_out"] == without
    assert shown["hold_out"] == GOOD
    assert +counts_of["check:warn"] == {"in": 4, "published": 4}
    assert +counts_of["check:drop"] == {"in": 4, "published": 3, "dropped": 1}
    assert +counts_of["check:quarantine"] == {"in": 4, "published": 3, "quarantined": 1}
    assert +counts_of["check:hold"] == {"in": 4, "published": 2, "held": 2}
    assert {name: sorted(statuses) for name, statuses in verdicts.items()} == {
        name: ["failed", "passed"] for name in policies
    }


def test_a_row_in_quarantine_says_why_and_since_when(tmp_path: Path) -> None:
    """With the rules that withheld it and the batch, beside its own columns."""
    with Harness(gated_job(gate=OnFail.QUARANTINE), tmp_path) as h:
        feed(h)
        (row,) = h.output()["gate_bad"]
    assert (row["user"], row["total"], row["_rules"]) == ("bob", 500, [RULE])
    (judged,) = [commit.batch for commit in commits(tmp_path) if commit.staged.get("gate_bad")]
    assert row["_batch"] == judged


def test_held_rows_outlast_the_retention(tmp_path: Path) -> None:
    """Nobody has decided on them: their files stay, and so does the batch that names them (SEMANTICS 11.5, F30)."""
    with Harness(gated_job(gate=OnFail.HOLD), tmp_path, settings=DriverSettings(keep=2)) as h:
        feed(h)
        for second in range(40, 180, 10):
            h.batch({"orders": [order("zoe", second)]})
    kept = commits(tmp_path)
    (held,) = [commit for commit in kept if commit.held]
    assert kept[0].batch <= held.batch < kept[-1].batch - 10
    for file in held.held["gate_out"]:
        assert (tmp_path / "gated" / "staged" / "gate_out" / file.path).is_file()


@pytest.mark.remedy("PEN-QLT-003")
def test_a_gate_that_stops_the_job_lets_nothing_of_the_batch_out(tmp_path: Path) -> None:
    """No Commit and no row; the same batch is judged again at the next start, and by the suite of then (11.5)."""
    source = MemorySource(ORDERS)
    with Harness(gated_job(source, gate=OnFail.STOP), tmp_path) as h:
        with pytest.raises(GateStopped) as stopped:
            feed(h)
        assert RULE in str(stopped.value)
        assert h.output() == {"gate_out": []}
        before = h.commit().batch
        with pytest.raises(GateStopped):
            h.restart()
        assert h.commit().batch == before
        h.restart(gated_job(source, NOTED, gate=OnFail.STOP))
        assert sorted(plain(h.output()["gate_out"])) == sorted(BAD)


@pytest.mark.remedy("PEN-QLT-002")
@pytest.mark.fault("F53")
def test_a_gate_that_raises_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its policy: an error of its own kind, no Commit and no row; the same batch is judged again (11.8)."""
    decide = CompiledGate.decide_units

    def broken(gate: CompiledGate, partials: Iterable[Partial]) -> list[Any]:
        if seen := list(partials):
            raise KeyError("no such column")
        return decide(gate, seen)

    with Harness(gated_job(gate=OnFail.WARN), tmp_path) as h:
        with monkeypatch.context() as patched:
            patched.setattr(CompiledGate, "decide_units", broken)
            with pytest.raises(GateError, match="check 'gate' raised KeyError"):
                feed(h)
            before = h.commit().batch
            with pytest.raises(GateError):
                h.restart()
            assert h.output() == {"gate_out": []}
        h.restart()
        assert h.commit().batch > before
        assert sorted(plain(h.output()["gate_out"])) == sorted(BAD)


@pytest.mark.parametrize(("suite", "left"), [(SMALL, [BAD[0]]), (FEW, [])])
def test_a_person_drops_what_stopped_the_job(
    tmp_path: Path, suite: dict[str, Any], left: list[tuple[Any, ...]]
) -> None:
    """The rows that fail a row rule go; the whole window where a table rule failed; other windows stay (11.5)."""
    with Harness(gated_job(suite=suite, gate=OnFail.STOP), tmp_path) as h:
        with pytest.raises(GateStopped):
            feed(h)
        h.settings = DriverSettings(gates={h.commit().batch + 1: "drop"})
        h.restart()
        h.batch({"orders": [order("zoe", 30)]})
        assert sorted(plain(h.output()["gate_out"])) == sorted([*left, *GOOD])
    counts = Counter[str]()
    for commit in commits(tmp_path):
        counts.update(commit.accounting.get("check:gate", {}))
    assert +counts == {"in": 4, "published": 2 + len(left), "dropped": 2 - len(left)}


def test_a_batch_without_rows_is_not_judged(tmp_path: Path) -> None:
    """SEMANTICS 11.1: its verdict is empty, and there is none on a window that did not close."""
    job = Job("gated", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    positive = {"name": "s", "expectations": [{"type": BETWEEN, "kwargs": {"column": "v", "min_value": 1}}]}
    orders.check("rows", suite=positive, on_fail=OnFail.STOP).write("rows_out", MemorySink())
    window = orders.window("w", Tumbling(seconds(10)).drop_late()).aggregate(v=agg.sum("v"))
    window.check("windows", suite=positive, on_fail=OnFail.STOP).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 1)]})
        h.batch(watermark=10)
    verdicts = [[(v["check"], v["status"]) for v in commit.verdicts] for commit in commits(tmp_path)]
    assert verdicts[0] == [("rows", "passed")]
    assert sorted(verdicts[-1]) == [("rows", "empty"), ("windows", "passed")]


def test_windows_of_two_steps_are_not_judged_as_one(tmp_path: Path) -> None:
    """They may end at the same time and are different units; refused at the line of the check."""
    job = Job("gated", partitions=1)
    orders = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    short, two = (
        orders.window(name, Tumbling(seconds(size)).drop_late()).aggregate(total=agg.sum("v"))
        for name, size in (("one", 5), ("two", 10))
    )
    short.union(two).check("gate", suite=FEW, on_fail=OnFail.STOP).write("out", MemorySink())
    with pytest.raises(JobError, match=r"windows of several steps.*test_gates.py"), Harness(job, tmp_path):
        pass


@pytest.mark.parametrize("windowed", [False, True])
def test_each_check_judges_by_its_own_rules(tmp_path: Path, *, windowed: bool) -> None:
    """Also where several read the same stream, in one pass over the same rows (SEMANTICS 11.3)."""
    job = Job("gated", partitions=1)
    rows = job.source("orders", MemorySource(ORDERS), event_time="t", max_out_of_order=seconds(0))
    if windowed:
        rows = rows.key_by("user").window("w", Tumbling(seconds(10)).drop_late()).aggregate(v=agg.sum("v"))
    for name, rule in {
        "strict": {"type": BETWEEN, "kwargs": {"column": "v", "max_value": 10}},
        "lax": {"type": BETWEEN, "kwargs": {"column": "v", "max_value": 100}},
        "named": {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "user"}},
    }.items():
        rows.check(name, suite={"name": name, "expectations": [rule]}, on_fail=OnFail.DROP).write(
            f"{name}_out", MemorySink()
        )
    with Harness(job, tmp_path) as h:
        h.batch({"orders": [order("a", 1, 5), order("b", 1, 50), order(None, 1, 500)]})
        h.batch(watermark=10)
        values = {name: sorted(row["v"] for row in shown) for name, shown in h.output().items()}
    assert values == {"strict_out": [5], "lax_out": [5, 50], "named_out": [5, 50]}


def commits(root: Path) -> list[Commit]:
    """Return the Commits that the log keeps."""
    return [*recover(Log(LocalStore(root / "gated"))).kept]

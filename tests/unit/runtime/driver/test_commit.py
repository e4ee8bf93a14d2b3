"""From what the tasks reported to what the Commit says: which files are published, held or withheld (SEMANTICS 11)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Job, agg, seconds
from penstock.checkpoint.log.entries import (
    END_OF_TIME,
    Commit,
    ManifestRef,
    Offsets,
    PartitionProgress,
    SourceProgress,
    StagedFile,
    StepWatermarks,
    to_bytes,
)
from penstock.errors import GateStopped
from penstock.graph.policies import OnEnd, OnFail
from penstock.quality.suite import Severity
from penstock.quality.verdict import RuleResult, Status, Verdict
from penstock.runtime.driver.commit import CommitDraft, decide
from penstock.runtime.driver.receipts import BatchReceipts, check_accounting
from penstock.sources.base import Source, Span
from penstock.windows import Tumbling

ROW, TABLE = "s:1:row", "s:2:table"


class Closing(Source):
    """A source whose end closes all windows."""

    on_end = OnEnd.CLOSE


@dataclass
class FakeReader:
    """Answer what `decide` asks of a source."""

    is_ended: bool

    def partitions(self, span: Span) -> tuple[str, ...]:
        return tuple(span["partitions"])

    def ended(self, position: Mapping[str, Any] | None) -> bool:
        return self.is_ended

    def passed_over(self, start: Any, end: Any, span: Span) -> Mapping[str, Any]:
        return span.get("passed_over", {})  # type: ignore[no-any-return]


class FakeEngine:
    """Answer what `decide` asks: a gate that found what the test says, a source that has ended or not."""

    def __init__(self, job: Job, verdicts: Sequence[tuple[int | None, Verdict]] = (), *, ended: bool = False) -> None:
        self.graph = job.graph()
        self.found = list(verdicts)
        self.is_ended = ended

    def source(self, name: str) -> FakeReader:
        return FakeReader(is_ended=self.is_ended)

    def decide(self, check: str, partials: Sequence[Mapping[str, str]]) -> list[tuple[int | None, Verdict]]:
        return self.found


def idle_job() -> Job:
    """Return a job over one source whose partitions become idle after three seconds."""
    job = Job("idle")
    rows = job.source("s", Closing(), event_time="t", max_out_of_order=seconds(0), idle_after=seconds(3))
    rows.window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count()).write("out", object())
    return job


@pytest.mark.parametrize(
    ("since", "idle"),
    [({}, True), ({"since": 60_000_000}, False)],
    ids=["by a driver that did not say when it began", "by one that did"],
)
def test_an_outage_makes_nothing_idle_once_offsets_say_when_the_driver_began(
    since: dict[str, Any], *, idle: bool
) -> None:
    """SEMANTICS 2.4, F22: Offsets and Commits of an older release are read, and mean what they meant."""
    engine: Any = FakeEngine(idle_job())
    written = json.loads(to_bytes(older_commit()).splitlines()[1])
    del written["sources"]["s"]["partitions"]["0"]["gone"]
    before = Commit.model_validate(written)
    offsets = Offsets(
        epoch=1,
        writer="w",
        batch=1,
        time=61_000_000,
        ranges={"s": {"start": {}, "end": {}, "span": None}},
        watermarks={"w": StepWatermarks(late=None, close=None)},
        limits={},
        settings={"zero": 0, **since},
    )
    progress = decide(engine, offsets, before, BatchReceipts(), gates={}).fields["sources"]["s"]
    assert progress.partitions["0"] == PartitionProgress(highest=5, seen_at=1, idle=idle)


@pytest.mark.parametrize("batch", [1, 2], ids=["no batch is undone", "batch 1 is undone"])
def test_a_commit_adds_what_a_source_passes_over_where_batches_are_undone(batch: int) -> None:
    """10.1: a requeue looks there for rows of undone batches; without any, no range is needed."""
    known = older_commit().sources["s"].model_copy(update={"passed_over": {"0": [[0, 5]]}})
    before = older_commit().model_copy(update={"sources": {"s": known}})
    span = {"partitions": ["0"], "passed_over": {"0": [[7, 9]], "1": [[0, 3]]}}
    offsets = Offsets(
        epoch=1,
        writer="w",
        batch=batch,
        time=61_000_000,
        ranges={"s": {"start": {}, "end": {}, "span": span}},
        watermarks={"w": StepWatermarks(late=None, close=None)},
        limits={},
        settings={"zero": 0},
    )
    engine: Any = FakeEngine(idle_job())
    progress = decide(engine, offsets, before, BatchReceipts(), gates={}).fields["sources"]["s"]
    added = {"0": [[0, 5], [7, 9]], "1": [[0, 3]]}
    assert progress.passed_over == (added if batch == 2 else {"0": [[0, 5]]})


def older_commit() -> Commit:
    """Return a Commit of a partition that last had a row at the first microsecond."""
    partition = PartitionProgress(highest=5, seen_at=1, idle=False)
    return Commit(
        epoch=1,
        writer="w",
        batch=0,
        time=1,
        state={},
        staged={},
        held={},
        verdicts=[],
        sources={"s": SourceProgress(position={}, partitions={"0": partition}, ended=False)},
        watermarks_out={"w": None},
        due={"w": None},
        accounting={},
        timings={},
        published={},
        floor=0,
    )


def verdict(*failed: str, rows: int = 10) -> Verdict:
    """Return a verdict in which these rules failed; ROW is a rule that judges rows one by one."""
    results = tuple(
        RuleResult(rule=rule, severity=Severity.CRITICAL, success=rule not in failed) for rule in (ROW, TABLE)
    )
    return Verdict(
        status=Status.FAILED if failed else Status.PASSED,
        rows=rows,
        results=results,
        withheld_rules=(ROW,) if ROW in failed else (),
        withheld_mask=1 if ROW in failed else 0,
    )


def checked_job(on_fail: OnFail, on_table_fail: OnFail | None = None) -> Job:
    """Return a job with two sinks behind check `c`, whose quarantine goes to sink `bad`."""
    job = Job("checked")
    numbers = job.source("numbers", Closing())
    checked = numbers.check("c", suite={}, on_fail=on_fail, on_table_fail=on_table_fail)
    checked.write("out", object())
    checked.write("out_copy", object())
    if on_fail is OnFail.QUARANTINE:
        job.quarantine("c").write("bad", object())
    return job


def file(path: str, rows: int, *fails: str) -> StagedFile:
    """Return a staged file whose rows fail these rules."""
    return StagedFile(path=path, size=1, rows=rows, checksum="c", stats={}, fails=list(fails))


def checked_outcome(*, quarantine: bool, units: Sequence[int | None] = (None,)) -> BatchReceipts:
    """Return what the tasks say of 7 good rows and 3 that fail ROW, for each unit."""
    outcome = BatchReceipts(measured={"c": [{"partial": "of the gate"}]})
    for unit in units:
        for sink in ("out", "out_copy"):
            outcome.staged.setdefault((sink, "c"), []).extend(
                [(file(f"{sink}-good-{unit}", 7), unit), (file(f"{sink}-dirty-{unit}", 3, ROW), unit)]
            )
        if quarantine:
            outcome.staged.setdefault(("bad", "c"), []).append((file(f"bad-{unit}", 3, ROW), unit))
    outcome.accounting["check:c"] = {"in": 10 * len(units)}
    return outcome


OFFSETS = Offsets(
    epoch=1,
    writer="w",
    batch=4,
    time=40,
    ranges={"numbers": {"start": None, "end": {"at": 10}, "span": {"partitions": ["p0", "p1"]}}},
    watermarks={},
    limits={},
    settings={"zero": 5},
)


def decided(
    on_fail: OnFail,
    measured: Verdict,
    *,
    tables: OnFail | None = None,
    ruling: str | None = None,
    units: Sequence[tuple[int | None, Verdict]] | None = None,
) -> tuple[CommitDraft, BatchReceipts]:
    """Return the decision on one batch, after its accounting was found to hold."""
    units = [(None, measured)] if units is None else units
    engine = FakeEngine(checked_job(on_fail, tables), units)
    outcome = checked_outcome(quarantine=on_fail is OnFail.QUARANTINE, units=[unit for unit, _ in units])
    gates = {} if ruling is None else {OFFSETS.batch: ruling}
    decision = decide(engine, OFFSETS, None, outcome, gates=gates)  # type: ignore[arg-type]
    check_accounting(outcome, {})
    return decision, outcome


def paths(files: Mapping[str, Sequence[StagedFile]], unit: int | None = None) -> dict[str, list[str]]:
    """Return the files of each sink by the word that tells them apart."""
    return {sink: [f.path.removesuffix(f"-{unit}").removeprefix(f"{sink}-") for f in fs] for sink, fs in files.items()}


GOOD, ALL, HELD = {"published": 7}, {"published": 10}, {"held": 10}
CASES: list[
    tuple[str, OnFail, OnFail | None, tuple[str, ...], list[str], list[str], dict[str, list[str]], dict[str, int]]
] = [
    # what, policy, table policy, failed rules, staged, held, in quarantine, accounting
    ("warn publishes all", OnFail.WARN, None, (ROW, TABLE), ["good", "dirty"], [], {}, ALL),
    ("passed publishes all", OnFail.DROP, None, (), ["good", "dirty"], [], {}, ALL),
    ("drop", OnFail.DROP, None, (ROW,), ["good"], [], {}, GOOD | {"dropped": 3}),
    ("quarantine", OnFail.QUARANTINE, None, (ROW,), ["good"], [], {"bad": ["bad"]}, GOOD | {"quarantined": 3}),
    ("quarantine of none", OnFail.QUARANTINE, None, (), ["good", "dirty"], [], {}, ALL),
    ("hold", OnFail.HOLD, None, (ROW,), [], ["good", "dirty"], {}, HELD),
    ("a table rule has no rows to drop", OnFail.DROP, None, (TABLE,), [], ["good", "dirty"], {}, HELD),
    ("table warn", OnFail.DROP, OnFail.WARN, (TABLE,), ["good", "dirty"], [], {}, ALL),
    ("drop and hold", OnFail.DROP, OnFail.HOLD, (ROW, TABLE), [], ["good"], {}, {"held": 7, "dropped": 3}),
]


@pytest.mark.fault("F52")
@pytest.mark.parametrize(
    ("policy", "tables", "failed", "staged", "held", "aside", "fates"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
def test_the_verdict_chooses_among_files(
    policy: OnFail,
    tables: OnFail | None,
    failed: tuple[str, ...],
    staged: list[str],
    held: list[str],
    aside: dict[str, list[str]],
    fates: dict[str, int],
) -> None:
    """SEMANTICS 11.3 to 11.6, 2.10: a row is withheld only if a rule it fails has failed with `mostly` applied."""
    decision, outcome = decided(policy, verdict(*failed), tables=tables)
    both = {"out": staged, "out_copy": staged} if staged else {}
    assert paths(decision.fields["staged"], None) == both | aside
    assert paths(decision.fields["held"], None) == ({"out": held, "out_copy": held} if held else {})
    assert outcome.accounting["check:c"] == {"in": 10, **fates}
    assert decision.stopped == {}
    decision.stop_if_gate_says_so()


def test_a_batch_held_by_a_table_rule_keeps_its_quarantine_for_the_release() -> None:
    """SEMANTICS 11.5: what a person releases is the batch, with the rows that the row rules put aside."""
    decision, outcome = decided(OnFail.QUARANTINE, verdict(ROW, TABLE), tables=OnFail.HOLD)
    assert decision.fields["staged"] == {}
    assert paths(decision.fields["held"]) == {"out": ["good"], "out_copy": ["good"], "bad": ["bad"]}
    assert outcome.accounting["check:c"] == {"in": 10, "held": 10}


def test_stop_makes_no_commit_and_names_the_rules() -> None:
    """SEMANTICS 11.5: STOP ends the job with 78, for a person."""
    decision, _ = decided(OnFail.STOP, verdict(ROW))
    with pytest.raises(GateStopped, match="check 'c' failed in batch 4: s:1:row") as caught:
        decision.stop_if_gate_says_so()
    assert (caught.value.exit_code, caught.value.fields) == (78, {"check": "c", "batch": 4})


SAID = [
    ("publish", {"out": ["good", "dirty"]}, {}, ALL),
    ("drop", {"out": ["good"]}, {}, GOOD | {"dropped": 3}),
    ("hold", {}, {"out": ["good", "dirty"]}, HELD),
]


@pytest.mark.parametrize(("ruling", "staged", "held", "fates"), SAID, ids=[s[0] for s in SAID])
def test_a_person_has_the_word_on_a_batch_that_the_gate_stopped(
    ruling: str, staged: dict[str, list[str]], held: dict[str, list[str]], fates: dict[str, int]
) -> None:
    """SEMANTICS 11.5: `--gate N=publish|drop|hold` goes on from there."""
    decision, outcome = decided(OnFail.STOP, verdict(ROW), ruling=ruling)
    assert decision.stopped == {}
    assert paths({k: v for k, v in decision.fields["staged"].items() if k == "out"}) == staged
    assert paths({k: v for k, v in decision.fields["held"].items() if k == "out"}) == held
    assert outcome.accounting["check:c"] == {"in": 10, **fates}
    assert decision.fields["verdicts"][0]["action"] == {"publish": "publish", "drop": "drop", "hold": "hold"}[ruling]


def test_a_word_on_another_batch_changes_nothing() -> None:
    """A person decides one batch, by its id; and a gate that does not stop asks nobody."""
    engine = FakeEngine(checked_job(OnFail.STOP), [(None, verdict(ROW))])
    outcome = checked_outcome(quarantine=False)
    decision = decide(engine, OFFSETS, None, outcome, gates={3: "publish"})  # type: ignore[arg-type]
    assert list(decision.stopped) == ["c"]
    decision, _ = decided(OnFail.DROP, verdict(ROW), ruling="publish")
    assert paths(decision.fields["staged"])["out"] == ["good"]


def test_each_window_has_its_own_verdict_and_one_holds_the_batch() -> None:
    """SEMANTICS 11.1, 11.5: the unit is a closed window; what a person releases is a batch."""
    units = [(100, verdict()), (200, verdict(ROW))]
    decision, outcome = decided(OnFail.DROP, verdict(), units=units)
    assert [f.path for f in decision.fields["staged"]["out"]] == ["out-good-100", "out-dirty-100", "out-good-200"]
    assert outcome.accounting["check:c"] == {"in": 20, "published": 17, "dropped": 3}
    decision, outcome = decided(OnFail.HOLD, verdict(), units=units)
    assert decision.fields["staged"] == {}
    assert len(decision.fields["held"]["out"]) == 4
    assert outcome.accounting["check:c"] == {"in": 20, "held": 20}
    assert [(v["unit"], v["status"], v["action"]) for v in decision.fields["verdicts"]] == [
        (100, "passed", "publish"),
        (200, "failed", "hold"),
    ]


def test_sinks_without_a_check_publish_whatever_a_gate_says() -> None:
    """DESIGN 4: a file that no check guards is published."""
    outcome = BatchReceipts(staged={("out", None): [(file("a", 2), None), (file("b", 3), None)]})
    job = Job("plain")
    job.source("numbers", Closing()).write("out", object())
    decision = decide(FakeEngine(job), OFFSETS, None, outcome, gates={})  # type: ignore[arg-type]
    assert [f.path for f in decision.fields["staged"]["out"]] == ["a", "b"]
    assert (decision.fields["held"], decision.fields["verdicts"]) == ({}, [])


# --- time ------------------------------------------------------------------------------------


def _windowed(outcome: BatchReceipts, *, ended: bool = False, before: Commit | None = None) -> dict[str, Any]:
    job = Job("windowed", partitions=2)
    numbers = job.source("numbers", Closing(), event_time="t", max_out_of_order=seconds(1))
    windows = numbers.window("w", Tumbling(seconds(10)).drop_late()).aggregate(n=agg.count())
    windows.write("out", object())
    offsets = OFFSETS.model_copy(update={"watermarks": {"w": StepWatermarks(late=3, close=7)}})
    engine = FakeEngine(job, ended=ended)
    return decide(engine, offsets, before, outcome, gates={}).fields  # type: ignore[arg-type]


def test_a_commit_says_where_time_and_sources_stand() -> None:
    """SEMANTICS 2.1: the watermark out is the minimum over the partitions, minus the bound."""
    outcome = BatchReceipts(rows={"numbers": {"0": 2, "1": 1}}, highest={"numbers": {"0": 5_000_000, "1": 9_000_000}})
    fields = _windowed(outcome)
    assert fields["watermarks_out"] == {"w": 4_000_000}
    assert fields["watermarks_in"] == {"w": 7}
    progress = fields["sources"]["numbers"]
    assert (progress.position, progress.ended) == ({"at": 10}, False)
    assert {name: p.highest for name, p in progress.partitions.items()} == {"p0": 5_000_000, "p1": 9_000_000}
    assert (fields["batch"], fields["time"], fields["zero"]) == (4, 40, 5)


@pytest.mark.parametrize("said", [7_000_000, 7_000_000.0])
def test_a_source_may_say_its_watermark_as_any_number(monkeypatch: pytest.MonkeyPatch, said: float) -> None:
    """A position is JSON: `time.time() * 1e6` is a float, and stands in the log as one."""
    end = {"at": 10, "watermark": said}
    ranges = {"numbers": {**OFFSETS.ranges["numbers"], "end": end}}
    monkeypatch.setattr(sys.modules[__name__], "OFFSETS", OFFSETS.model_copy(update={"ranges": ranges}))
    assert _windowed(BatchReceipts(rows={"numbers": {}}, highest={}))["watermarks_out"] == {"w": 7_000_000}


def test_a_partition_never_read_holds_the_watermark() -> None:
    """SEMANTICS 2.1: at the beginning of time."""
    outcome = BatchReceipts(rows={"numbers": {"0": 1}}, highest={"numbers": {"0": 5_000_000}})
    assert _windowed(outcome)["watermarks_out"] == {"w": None}


def test_the_end_of_a_bounded_source_moves_the_watermark_to_the_end_of_time() -> None:
    """SEMANTICS 2.1: with on_end=CLOSE."""
    assert _windowed(BatchReceipts(), ended=True)["watermarks_out"] == {"w": END_OF_TIME}


def test_state_that_no_task_changed_is_named_again() -> None:
    """DESIGN 4: a Commit names the manifest of every partition, changed in this batch or before."""
    refs = [ManifestRef(path=f"m{n}", size=1, checksum=f"c{n}") for n in range(3)]
    first = _windowed(BatchReceipts(state={"w": {"0": refs[0], "1": refs[1]}}))
    before = Commit(epoch=1, writer="w", timings={}, published={}, floor=0, **first)
    second = _windowed(BatchReceipts(state={"w": {"1": refs[2]}}), before=before)
    assert second["state"] == {"w": {"0": refs[0], "1": refs[2]}}


def test_the_watermark_never_goes_back() -> None:
    """SEMANTICS 2.1: a partition that appears later, with older rows, does not move it back."""
    first = BatchReceipts(rows={"numbers": {"0": 1, "1": 1}}, highest={"numbers": {"0": 50_000_000, "1": 50_000_000}})
    before = Commit(epoch=1, writer="w", timings={}, published={}, floor=0, **_windowed(first))
    lower = before.model_copy(update={"sources": {}})
    two = BatchReceipts(rows={"numbers": {"0": 1, "1": 1}}, highest={"numbers": {"0": 5_000_000, "1": 5_000_000}})
    assert _windowed(two, before=lower)["watermarks_out"] == {"w": 49_000_000}

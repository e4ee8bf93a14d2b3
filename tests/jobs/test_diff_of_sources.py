"""What a diff says of changed sources, filters and checks is what a start does with them (F51, F39)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import Job, seconds
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import PenstockError, ReadOtherwise, SourceChanged
from penstock.runtime.restore.compatibility import Compatibility, Finding, when_left
from penstock.runtime.spark.engine import SparkEngine
from penstock.sinks import MemorySink
from penstock.sources import FileReplay, Files, Json, MemorySource, Rate
from penstock.testing import Crashed, Harness
from penstock.testing.environment import session_of_tests

pytestmark = [pytest.mark.spark, pytest.mark.fault("F51", "F39")]

ROWS = "t,v\n" + "".join(f"1970-01-01 00:00:0{i},{9 - i}\n" for i in range(6))
SUITE = {"column": "v", "min_value": 0, "max_value": 99}


def make_job(
    path: Path,
    *,
    order_by: str = "t",
    schema: str = "t timestamp, v int",
    bound: int = 1,
    predicates: tuple[str, ...] = ("v > 0",),
    suite: Mapping[str, Any] = SUITE,
    columns: str = "v",
) -> Job:
    """Return a job that filters, selects and checks the rows of a file, two a batch."""
    job = Job("changed", partitions=1)
    replay = FileReplay(path, order_by=order_by, rows_per_batch=2, schema=schema)
    rows = job.source("rows", replay, event_time="t", max_out_of_order=seconds(bound))
    for predicate in predicates:
        rows = rows.filter(predicate)
    rule = {"type": "expect_column_values_to_be_between", "kwargs": dict(suite)}
    checked = rows.select(columns).check("gate", suite={"name": "s", "expectations": [rule]})
    checked.write("out", MemorySink())
    job.quarantine("gate").write("bad", MemorySink())
    return job


def findings_of(job: Job, root: Path, *, running: bool = True) -> dict[str, Finding]:
    """Return what a diff finds, beside a driver that runs or without one, by kind and name."""
    recovered = recover(Log(LocalStore(root / "changed")))
    recovered = when_left(recovered) if running else recovered
    engine = SparkEngine(job.graph(), session_of_tests(), folder=root / "changed", suites=suites_of(job))
    return {f"{f.kind.value} {f.name}": f for f in engine.compare(recovered)}


def suites_of(job: Job) -> dict[str, Any]:
    """Return the suites of a job, which are in its code."""
    return {check.name: check.suite for check in job.graph().checks}


TOLD = {
    "nothing": ({}, {}),
    "a bound": ({"bound": 2}, {"source rows": (Compatibility.KEPT, "max_out_of_order was 1 s and is 2 s")}),
    "a filter": (
        {"predicates": ("v > 1",)},
        {"filter filter_1": (Compatibility.CHANGED, "predicate was v > 0 and is v > 1")},
    ),
    "a filter more": (
        {"predicates": ("v > 0", "v < 9")},
        {"filter filter_2": (Compatibility.NEW, "predicate was none and is v < 9")},
    ),
    "no filter": ({"predicates": ()}, {"filter filter_1": (Compatibility.GONE, "predicate was v > 0 and is none")}),
    "columns": ({"columns": "v + 1 AS v"}, {"select 1": (Compatibility.CHANGED, "columns was v and is v + 1 AS v")}),
    "a suite": ({"suite": {**SUITE, "max_value": 98}}, {"check gate": (Compatibility.CHANGED, "suite was ")}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", TOLD)
def test_what_a_start_accepts_is_told_all_the_same(what: str, tmp_path: Path) -> None:
    """A filter, a bound, a suite: they count from the next batch, and no state shows that they have changed."""
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    change, expected = TOLD[what]
    with Harness(make_job(path), tmp_path) as h:
        h.batch()
        findings = findings_of(make_job(path, **change), tmp_path)  # type: ignore[arg-type]
        changed = {name: f for name, f in findings.items() if f.says}
        assert changed.keys() == expected.keys()
        for name, (fate, says) in expected.items():
            assert (changed[name].fate, changed[name].refusal) == (fate, None)
            assert says in "; ".join(changed[name].says)
        h.restart(make_job(path, **change))  # type: ignore[arg-type]
        h.batch()
        assert not [f for f in findings_of(make_job(path, **change), tmp_path).values() if f.says]  # type: ignore[arg-type]


REFUSED = {
    "another order": {"order_by": "v"},
    "another type": {"schema": "t timestamp, v long"},
    "another file": {},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("begun", [False, True], ids=["between batches", "with a batch that was begun"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_source_that_cannot_be_read_on_is_found_before_a_start(what: str, tmp_path: Path, *, begun: bool) -> None:
    """SEMANTICS 9.1: the diff and the start say the same; the job of before goes on."""
    path, other = tmp_path / "rows.csv", ROWS.replace("05,4", "05,5")
    path.write_text(ROWS)
    with Harness(make_job(path), tmp_path) as h:
        h.batch()
        if begun:
            h.crash_after("FixOffsets")
            with pytest.raises(Crashed):
                h.batch()
        if what == "another file":
            path.write_text(other)
        finding = findings_of(make_job(path, **REFUSED[what]), tmp_path, running=not begun)["source rows"]  # type: ignore[arg-type]
        error = SourceChanged if what == "another file" else ReadOtherwise
        assert (finding.fate, type(finding.refusal)) == (Compatibility.INCOMPATIBLE, error)
        with pytest.raises(PenstockError) as raised:
            h.restart(make_job(path, **REFUSED[what]))  # type: ignore[arg-type]
        assert str(raised.value) == str(finding.refusal)
        if what == "another file":
            path.write_text(ROWS)
        h.restart(make_job(path))
        h.run()
        assert len(h.output()["out"]) == 6


def test_a_source_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    """SEMANTICS 9.1: its positions have other members; --from empty reads it from its beginning."""
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)

    def job_of(source: Any) -> Job:
        job = Job("changed", partitions=1)
        job.source("rows", source).select("1 AS v").write("out", MemorySink())
        return job

    fed = MemorySource("v int")
    with Harness(job_of(FileReplay(path, order_by="t", rows_per_batch=2)), tmp_path) as h:
        h.batch()
        for other in (Rate(1), Files(tmp_path, format=Json("v int")), fed):
            finding = findings_of(job_of(other), tmp_path)["source rows"]
            assert (finding.fate, type(finding.refusal)) == (Compatibility.INCOMPATIBLE, ReadOtherwise)
            with pytest.raises(ReadOtherwise, match="source 'rows' was of another kind"):
                h.restart(job_of(other))
        h.restore(empty=True, job=job_of(fed))
        h.batch({"rows": [{"v": 1}]})
        assert len(h.output()["out"]) == 2 + 1

"""How busy a job is, by what its Commits measured."""

from __future__ import annotations

from checkpoint_samples import commit

from penstock.rates.cores import CoreAdvice
from penstock.runtime.process.job_load import LoadReport, load_report


def busy(batch: int, epoch: int = 1, *, task_ms: float = 1_500, **load: float):
    """Return the Commit of a batch that has read all of 1,000 rows."""
    counts = {"source:orders": {"read": 1_000}, "filter:f": {"rows": 1_000}}
    facts = {"late_ms": 20.5, "waiting": 1_000, "task_ms": task_ms, "gc_ms": 150, "spilled_bytes": 7} | load
    return commit(batch, epoch, accounting=counts, load=facts)


def test_delay_garbage_spills_and_cores_are_those_of_the_newest_batches() -> None:
    """1,000 rows a second cost a second and a half of a core."""
    report = load_report([busy(k) for k in range(4)])
    cores = CoreAdvice(cores=2, offered=1_000, per_core=4_000 / 6)
    assert report == LoadReport(late_ms=20.5, gc_share=0.1, spilled_bytes=28, cores=cores)
    assert report.to_json() == {
        "scheduling_delay_ms": 20.5,
        "gc_share": 0.1,
        "spilled_bytes": 28,
        "cores_needed": {"cores": 2, "offered": 1_000, "per_core": 4_000 / 6},
    }


def test_batches_of_a_driver_before_do_not_count() -> None:
    """It may have had other cores, and time passed between the two."""
    report = load_report([*(busy(k, task_ms=90_000) for k in range(4)), *(busy(k, 2) for k in range(4, 7))])
    assert report.cores is not None
    assert report.cores.cores == 2


def test_what_commits_do_not_say_is_not_known() -> None:
    """Those of older drivers say nothing, and the first batch of a run does not know the time of its tasks."""
    assert load_report([]) == LoadReport()
    assert load_report([commit(0), commit(1)]) == LoadReport()
    only = [commit(k, load={"late_ms": 3.0, "task_ms": 5.0, "gc_ms": 0.0}) for k in range(3)]
    assert load_report(only) == LoadReport(late_ms=3.0, gc_share=0.0)

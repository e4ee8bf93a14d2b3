"""Make of the receipts of a batch what its Commit says. Pure: no Spark, no disk, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from penstock.checkpoint.log.entries import ManifestRef, StagedFile
from penstock.errors import AccountingBroken, NondeterministicStep
from penstock.graph.steps import StepNode
from penstock.runtime.tasks.specs import AHEAD

__all__ = ["BatchReceipts", "added", "check_accounting", "collect", "mostly", "totals"]


@dataclass(kw_only=True)
class BatchReceipts:
    """The merged receipts of a batch's tasks.

    `staged` maps (sink, check or None) to files; `measured` maps each check to the parts of its verdicts.
    """

    rows: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    highest: dict[str, dict[str, int]] = field(default_factory=dict)
    state: dict[str, dict[str, ManifestRef]] = field(default_factory=dict)
    due: dict[str, int | None] = field(default_factory=dict)
    due_time: dict[str, int | None] = field(default_factory=dict)
    staged: dict[tuple[str, str | None], list[tuple[StagedFile, int | None]]] = field(default_factory=dict)
    measured: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    accounting: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ahead: Counter[str] = field(default_factory=Counter)
    """Rows of each source that are in quarantine because they are too far in the future."""
    written: Counter[str] = field(default_factory=Counter)
    """Bytes: `segments` of changed state, `rewritten` by compaction, `output` staged, `state:<step>` held in all.

    `fetched` are those of state that a task did not find where it ran, and that came from HDFS; not there if none did.
    """
    load: dict[str, float] = field(default_factory=dict)
    """What Spark says of the tasks, by the names that a Commit has in `load`; empty if it did not say."""


def collect(receipts: Iterable[Mapping[str, Any]], steps: Iterable[StepNode] = ()) -> BatchReceipts:
    """Merge the receipts of one batch of a job with these steps, of which each counts something in every batch.

    Raises NondeterministicStep when two tasks answer for one state partition with different contents.
    """
    outcome = BatchReceipts()
    for step in steps:
        outcome.accounting[step.counted_as].update(dict.fromkeys(step.spec.counts, 0))
    initial = []
    for receipt in receipts:
        match receipt["kind"]:
            case "read":
                _read(outcome, receipt)
            case "filter" | "mapped" | "requeued":
                outcome.accounting[receipt["of"]].update(receipt["counts"])
            case "step":
                outcome.accounting[receipt["counted_as"]].update(receipt["counts"])
            case "state":
                _state(outcome, receipt)
            case "initial":
                initial.append(receipt)
            case "staged":
                _staged(outcome, receipt)
            case "measured":
                outcome.measured.setdefault(receipt["check"], []).append(receipt["partial"])
                outcome.accounting[f"check:{receipt['check']}"]["in"] += receipt["rows"]
            case "load":
                outcome.load = {name: receipt[name] for name in ("task_ms", "gc_ms", "spilled_bytes")}
            case kind:
                raise NondeterministicStep(f"a task sent a receipt of unknown kind {kind!r}")
    for receipt in initial:
        _initial(outcome, receipt)
    return outcome


def _initial(outcome: BatchReceipts, receipt: Mapping[str, Any]) -> None:
    """Take initial state of a partition, which the batch replaces where it has changed any of it."""
    if receipt["manifest"] is not None:
        ref = ManifestRef(**receipt["manifest"])
        outcome.state.setdefault(receipt["step"], {}).setdefault(str(receipt["partition"]), ref)
        outcome.written["segments"] += receipt["written"]


def check_accounting(
    outcome: BatchReceipts, expected: Mapping[str, int | None], steps: Iterable[StepNode] = ()
) -> None:
    """Raise AccountingBroken where a sum of SEMANTICS 2.10 does not hold, or something was counted for nobody.

    `expected` is the number of rows in each source's span, as the source counts them, None where it cannot.
    """
    for source, rows in expected.items():
        read = outcome.accounting.get(f"source:{source}", {"read": 0})["read"]
        if rows is not None and rows != read:
            raise AccountingBroken(f"source {source!r} has {rows:,} rows in this range and {read:,} were read")
    of_steps = {step.counted_as: step.spec for step in steps}
    for name, counts in outcome.accounting.items():
        spec = of_steps.get(name)
        sums = _SUMS.get(name.partition(":")[0]) if spec is None else spec.sums
        if spec is not None and (strange := counts.keys() - {*spec.counts, *spec.sums, *chain(*spec.sums.values())}):
            raise AccountingBroken(f"{name} counted {sorted(strange)}, of which its operator says nothing")
        if sums is None:
            raise AccountingBroken(f"rows of {name} were counted, which the job does not have: {dict(counts)}")
        for whole, parts in sums.items():
            if counts.get(whole, 0) == sum(counts.get(part, 0) for part in parts):
                continue
            if parts == (_MERGED,):
                taken = counts.get(_MERGED, 0)
                raise AccountingBroken(f"{name} {whole} {counts.get(whole, 0):,} rows and its state took {taken:,}")
            raise AccountingBroken(f"the rows of {name} do not add up: {dict(counts)}")


_MERGED = "merged"
_SUMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "source": {"read": ("quarantined", "passed")},
    "filter": {"rows": ("kept", "filtered")},
    "requeue": {"read": ("quarantined", "passed")},
    "join_static": {},  # a row may have many matches
    "map_batches": {},  # a function may make as many rows as it likes
    "check": {"in": ("published", "dropped", "quarantined", "held")},
}


def _read(outcome: BatchReceipts, receipt: Mapping[str, Any]) -> None:
    source = receipt["source"]
    outcome.rows[source].update(receipt["rows"])
    highest = outcome.highest.setdefault(source, {})
    for partition, time in receipt["highest"].items():
        highest[partition] = max(time, highest.get(partition, time))
    read = sum(receipt["rows"].values())
    quarantined = sum(receipt["quarantined"].values())
    counts = {"read": read, "quarantined": quarantined, "passed": read - quarantined}
    outcome.accounting[f"source:{source}"].update(counts)
    if ahead := receipt["quarantined"].get(AHEAD, 0):
        outcome.ahead[source] += ahead


def _state(outcome: BatchReceipts, receipt: Mapping[str, Any]) -> None:
    step, partition = receipt["step"], str(receipt["partition"])
    known = outcome.state.setdefault(step, {})
    if receipt["manifest"] is not None:
        ref = ManifestRef(**receipt["manifest"])
        if partition in known and known[partition].checksum != ref.checksum:
            raise NondeterministicStep(f"two tasks answered for partition {partition} of step {step!r}, differently")
        known[partition] = ref
    for known_due, due in ((outcome.due, receipt["due"]), (outcome.due_time, receipt["due_time"])):
        before = known_due.get(step)
        known_due[step] = due if before is None else before if due is None else min(before, due)
    outcome.accounting[receipt["counted_as"]].update(receipt["counts"])
    for name, count in (("segments", "written"), ("rewritten", "rewritten"), (f"state:{step}", "size")):
        outcome.written[name] += receipt[count]
    if receipt["fetched"]:
        outcome.written["fetched"] += receipt["fetched"]


def _staged(outcome: BatchReceipts, receipt: Mapping[str, Any]) -> None:
    file = dict(receipt["file"])
    unit = file.pop("unit")
    made = StagedFile(**{"stats": {}, **file})
    outcome.staged.setdefault((receipt["sink"], receipt["check"]), []).append((made, unit))
    outcome.written["output"] += made.size


def mostly(counted: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str]]:
    """Yield where more than half of a batch's rows were late, or in quarantine for the future.

    Each is a name in the accounting and the count that says it: `late` or `too_far_ahead`.
    """
    for name, counts in counted.items():
        for whole, part in (("rows", "late"), ("read", "too_far_ahead")):
            if counts.get(part, 0) * 2 > counts.get(whole, 0):
                yield name, part


def totals(before: Mapping[str, Mapping[str, int]], outcome: BatchReceipts) -> dict[str, dict[str, int]]:
    """Return the sums of all batches up to this one: what they were before it, and the accounting of the batch.

    `too_far_ahead` is a part of what a source has in quarantine. `batches` counts the batches in which most rows were
    late, or too far ahead.
    """
    counted = {name: dict(counts) for name, counts in outcome.accounting.items()}
    for source, rows in outcome.ahead.items():
        counted[f"source:{source}"]["too_far_ahead"] = rows
    counted["batches"] = {"batches": 1, **{f"mostly_{reason}": 1 for _, reason in mostly(counted)}}
    return added(before, counted)


def added(
    left: Mapping[str, Mapping[str, int]], other: Mapping[str, Mapping[str, int]], times: int = 1
) -> dict[str, dict[str, int]]:
    """Return the sums of two sets of counts, the other taken so many times."""
    sums = {name: dict(counts) for name, counts in left.items()}
    for name, counts in other.items():
        known = sums.setdefault(name, {})
        for what, n in counts.items():
            known[what] = known.get(what, 0) + times * n
    return sums

"""Say how busy a job is, by what its Commits measured: delay, garbage, spills, and the cores that it needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.checkpoint.log.entries import Commit
from penstock.rates.cores import BatchLoad, CoreAdvice, cores_needed

__all__ = ["NEWEST", "LoadReport", "load_report"]

NEWEST = 20
"""How many batches a report is of, at most: a load that changed a minute ago is to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The load of the newest batches of one driver. What the Commits do not say is None.

    Attributes:
        late_ms: How much later than its batch time the newest batch began, milliseconds: the scheduling delay.
        gc_share: The part of the tasks' time in which Java collected garbage, from 0 to 1.
        spilled_bytes: How much memory the tasks of all of these batches together have moved to disk.
        cores: The cores that the job needs for what arrives at its live sources.
    """

    late_ms: float | None = None
    gc_share: float | None = None
    spilled_bytes: int | None = None
    cores: CoreAdvice | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        cores = None if self.cores is None else asdict(self.cores)
        return {
            "scheduling_delay_ms": self.late_ms,
            "gc_share": self.gc_share,
            "spilled_bytes": self.spilled_bytes,
            "cores_needed": cores,
        }


def load_report(commits: Sequence[Commit]) -> LoadReport:
    """Return the report of Commits, oldest first; only those of the newest driver count."""
    newest = [commit for commit in commits if commit.epoch == commits[-1].epoch][-NEWEST:]
    measured = [commit for commit in newest if "task_ms" in commit.load]
    tasks = sum(commit.load["task_ms"] for commit in measured)
    collected = sum(commit.load.get("gc_ms", 0.0) for commit in measured)
    spilled = [int(commit.load["spilled_bytes"]) for commit in measured if "spilled_bytes" in commit.load]
    loads = [
        BatchLoad(
            time=commit.time,
            rows=sum(counts["read"] for name, counts in commit.accounting.items() if name.startswith("source:")),
            waiting=commit.load["waiting"],
            task_ms=commit.load["task_ms"],
        )
        for commit in measured
        if "waiting" in commit.load
    ]
    return LoadReport(
        late_ms=newest[-1].load.get("late_ms") if newest else None,
        gc_share=round(collected / tasks, 4) if tasks else None,
        spilled_bytes=sum(spilled) if spilled else None,
        cores=cores_needed(loads),
    )

"""Make a simulated plant of what the log says of a job: the rows that arrived, and what its batches cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import log
from statistics import pstdev

from penstock.checkpoint.log.batch_report import BatchReport
from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.roots import job_log
from penstock.config.settings import Settings
from penstock.errors import CheckpointCorrupt, HistoryTooShort
from penstock.rates.cost_fit import CostFit, Sample
from penstock.rates.load import Load
from penstock.rates.simulate import Plant
from penstock.runtime.inspect.job_status import kept_checkpoints

__all__ = ["History", "history_of", "read_history"]

_LEAST = 3
"""Batches with rows below which no cost can be fitted."""


@dataclass(frozen=True, slots=True)
class History:
    """The batches of a job as a plant.

    Attributes:
        plant: The rows as they arrived, and the costs as they were fitted; all rows come to one partition.
        batches: How many batches the log has.
        interval_ms: The batch interval of the newest, milliseconds; None for a job that runs as fast as possible.
        settled: Whether their row counts differ enough to tell the fixed cost from the cost per row.
    """

    plant: Plant
    batches: int
    settled: bool
    interval_ms: float | None = None


def read_history(settings: Settings, job: str) -> History:
    """Return the history that the log of a job keeps; raises HistoryTooShort."""
    kept, _ = kept_checkpoints(settings, job) or ([], None)
    history = history_of(job, [point.commit for point in kept if not point.undone])
    return replace(history, interval_ms=_interval_ms(job_log(settings.root / job)))


def _interval_ms(entries: Log | None) -> float | None:
    """Return the interval that the newest Offsets say; None where damage hides them, which `kept_checkpoints` lists."""
    newest = () if entries is None else entries.entries_back(entries.find_tail())
    interval = None
    with suppress(CheckpointCorrupt):
        interval = next((entry.settings.get("interval") for _, entry in newest if isinstance(entry, Offsets)), None)
    return interval / 1_000 if isinstance(interval, int) else None


def history_of(job: str, commits: Sequence[Commit]) -> History:
    """Return the history of Commits, oldest first, of which none is undone; raises HistoryTooShort.

    The time of a batch is that up to its commit: what followed, the log does not say.
    """
    rows = [BatchReport.of(commit).rows for commit in commits]
    samples: list[Sample] = [
        (float(n), ms)
        for n, commit in zip(rows, commits, strict=True)
        if n and (ms := sum(commit.timings.values())) > 0
    ]
    if len(samples) < _LEAST:
        raise HistoryTooShort(f"the log of {job} has {len(samples)} batches with rows and timings, {_LEAST} are needed")
    fit = CostFit.of(samples, fade=1.0)
    noise = [log(ms / fit.expected_ms(n)) for n, ms in samples if fit.expected_ms(n) > 0]
    plant = Plant(
        load=Load.of_counts([commit.time / 1_000_000 for commit in commits], _arrived(commits, rows)),
        fixed_ms=fit.fixed_ms,
        row_ms=fit.row_ms,
        noise=pstdev(noise),
        shares=(1,),
    )
    return History(plant=plant, batches=len(commits), settled=fit.settled)


def _arrived(commits: Sequence[Commit], rows: Sequence[int]) -> list[int]:
    """Return how many rows came before each batch, since the one before it.

    A batch that is held back reads less than what came. What waited as it was planned, and what the batches before it
    read, is all that had come by then. Where no source is live nothing waited, and what a batch reads had come.
    """
    waited = [commit.load.get("waiting") for commit in commits]
    counts, total, read = list[int](), 0, 0
    for now, count in zip(waited, rows, strict=True):
        come = max(total, read + max(count, int(now or 0)))  # of sources that are not live nothing waits
        counts.append(come - total)
        total, read = come, read + count
    return counts

"""Give the newest batches of a job as series over time: how long they took, rows, lag, watermark, size of state. Pure.

A Commit does not have the time to commit and to publish it, nor the rows that the sources had left. For the batches of
the newest generations the driver's own log has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.log.entries import END_OF_TIME
from penstock.runtime.inspect.job_status import KeptCheckpoint
from penstock.ui.driver_log import Spent
from penstock.ui.formatting import quantity, size, span
from penstock.ui.model import JobView

__all__ = ["Chart", "charts_of"]

_PHASES = ("FixOffsets", "Compute", "CommitBatch", "PublishSinks")
_SECOND = 1_000_000
Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture: its series, a value a batch, None where there is none, in the `unit` that the page draws them in.

    `unit` is ms, rows, seconds, bytes, or moment: seconds since 1970. `stacked` series add up. `says` is the same in
    words. `data` is what the page's script reads.
    """

    name: str
    title: str
    unit: str
    says: str
    series: Mapping[str, Values]
    times: tuple[float, ...]
    batches: tuple[int, ...]
    stacked: bool = False

    @property
    def data(self) -> str:
        """Return the picture as JSON."""
        facts = {"unit": self.unit, "stacked": self.stacked, "times": self.times, "batches": self.batches}
        return json.dumps({**facts, "series": [{"label": n, "values": v} for n, v in self.series.items()]})


def charts_of(view: JobView, spent: Mapping[int, Spent]) -> list[Chart]:
    """Return the pictures of the batches that were read; one about which nothing is known is left out."""
    batches = [batch for batch in view.batches if not batch.undone]
    if not batches:
        return []
    left = {"left": tuple(spent[n].left if (n := batch.report.batch) in spent else None for batch in batches)}
    pictures = (
        ("took", "Batch duration by phase", "ms", _phases(batches, spent)),
        ("rows", "Rows a batch", "rows", _rows(batches)),
        ("lag", "Rows left in the sources", "rows", left),
        ("watermark", *_watermarks(view, batches)),
        ("state", "Size of the state", "bytes", _sizes(batches)),
    )
    times = tuple(batch.report.time / _SECOND for batch in batches)
    numbers = tuple(batch.report.batch for batch in batches)
    charts = []
    for name, title, unit, series in pictures:
        known = {label: values for label, values in series.items() if any(value is not None for value in values)}
        if known:
            drawn = Chart(
                name=name, title=title, unit=unit, says=_in_words(unit, known), series=known, times=times,
                batches=numbers, stacked=name == "took",
            )  # fmt: skip
            charts.append(drawn)
    return charts


def _phases(batches: Sequence[KeptCheckpoint], spent: Mapping[int, Spent]) -> dict[str, Values]:
    """Return milliseconds by phase; those of the Commit where the driver's log does not have the batch any more."""
    timings = [spent[n].timings if (n := batch.report.batch) in spent else batch.commit.timings for batch in batches]
    return {phase: tuple(timing.get(phase) for timing in timings) for phase in _PHASES}


def _rows(batches: Sequence[KeptCheckpoint]) -> dict[str, Values]:
    counts = {
        "read": [batch.report.rows for batch in batches],
        "output": [sum(batch.report.output.values()) for batch in batches],
        "late": [sum(batch.report.late.values()) for batch in batches],
        "quarantined": [sum(c.get("quarantined", 0) for c in b.commit.accounting.values()) for b in batches],
        "held": [sum(batch.report.held.values()) for batch in batches],
    }
    series = {name: tuple(map(float, values)) for name, values in counts.items()}
    # A line that never leaves the ground is noise, but for the two that every stream has.
    return {name: values for name, values in series.items() if name in ("read", "output") or any(values)}


def _watermarks(view: JobView, batches: Sequence[KeptCheckpoint]) -> tuple[str, str, dict[str, Values]]:
    """Return the batch's time minus each step's watermark, in seconds; with old data, the watermark itself.

    The title and the unit come before them.
    """
    steps = dict.fromkeys(step for batch in batches for step in batch.report.watermarks)
    old = view.is_replay
    series: dict[str, Values] = {}
    for step in steps:
        marks = [batch.report.watermarks.get(step) for batch in batches]
        series[step] = tuple(
            None if mark is None or mark >= END_OF_TIME else (mark if old else batch.report.time - mark) / _SECOND
            for batch, mark in zip(batches, marks, strict=True)
        )
    return ("Watermark", "moment", series) if old else ("Watermark delay", "seconds", series)


def _sizes(batches: Sequence[KeptCheckpoint]) -> dict[str, Values]:
    sizes = [batch.commit.written for batch in batches]
    kinds = dict.fromkeys(kind for written in sizes for kind in written if kind.startswith("state:"))
    return {kind.partition(":")[2]: tuple(written.get(kind) for written in sizes) for kind in kinds}


def _in_words(unit: str, series: Mapping[str, Values]) -> str:
    """Return the newest and the greatest value of each series, for who does not see the picture."""
    words = _WORDS.get(unit)
    if words is None:
        return ""
    known = {name: [value for value in values if value is not None] for name, values in series.items()}
    return "; ".join(f"{name} {words(values[-1])}, at most {words(max(values))}" for name, values in known.items())


_WORDS: dict[str, Callable[[float], str]] = {
    "ms": lambda value: f"{value:,.0f} ms",
    "rows": lambda value: quantity(int(value), "row"),
    "seconds": lambda value: span(int(value * _SECOND)),
    "bytes": size,
}

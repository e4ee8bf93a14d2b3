"""Draw the newest batches of a job as bars: where each one stands, how high it is, and what is said of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.runtime.batch_report import shown_moment
from penstock.ui.model import Batch
from penstock.ui.words import counted, quantity

__all__ = ["Bar", "Lane", "Timeline", "timeline_of"]

BARS = 100
TOP = 100.0
_PLACES = 40
_LEAST = 2.0
"""A bar this low can still be seen; a batch without rows has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One batch: `x` counts bars from the left, `height` is 0 to 100."""

    x: int
    height: float
    undone: bool
    says: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The batches, by `x`, of which something is to be noted."""

    name: str
    marks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The picture of the newest batches, oldest at the left; `says` is the same in words.

    `places` is how many bars would fill it: few batches are drawn as bars, and not as walls.
    """

    bars: tuple[Bar, ...]
    lanes: tuple[Lane, ...]
    most: int
    places: int
    says: str


def timeline_of(batches: Sequence[Batch]) -> Timeline | None:
    """Return the picture of the newest hundred batches, None where there are none."""
    shown = batches[-BARS:]
    if not shown:
        return None
    most = max(batch.report.rows for batch in shown)
    bars = tuple(
        Bar(x=x, height=_height(batch.report.rows, most), undone=batch.kept.undone, says=_sentence(batch))
        for x, batch in enumerate(shown)
    )
    noted = (
        ("late rows", [batch.late for batch in shown]),
        ("rules failed", [batch.failed for batch in shown]),
        ("held", [batch.held for batch in shown]),
        ("undone", [batch.kept.undone for batch in shown]),
    )
    lanes = tuple(Lane(name, tuple(x for x, n in enumerate(marks) if n)) for name, marks in noted if any(marks))
    return Timeline(
        bars=bars, lanes=lanes, most=most, places=max(len(shown), _PLACES), says=_in_words(shown, most, lanes)
    )


def _height(rows: int, most: int) -> float:
    return 0.0 if rows == 0 else round(max(_LEAST, TOP * rows / most), 2)


def _sentence(batch: Batch) -> str:
    report = batch.report
    facts = [f"batch {report.batch}, {shown_moment(report.time)}: {quantity(report.rows, 'row')} read"]
    if batch.late:
        facts.append(f"{batch.late:,} late")
    if report.verdicts:
        facts.append(counted(dict(report.verdicts)))
    if batch.held:
        facts.append(f"{batch.held:,} held")
    if batch.kept.undone:
        facts.append("undone by a restore")
    return ", ".join(facts)


def _in_words(shown: Sequence[Batch], most: int, lanes: Sequence[Lane]) -> str:
    first, last = shown[0].report.batch, shown[-1].report.batch
    highest = next(batch.report.batch for batch in shown if batch.report.rows == most)
    noted = "".join(f" {lane.name.capitalize()}: {quantity(len(lane.marks), 'batch')}." for lane in lanes)
    return (
        f"Rows read by batches {first:,} to {last:,}: {sum(b.report.rows for b in shown):,} in all, "
        f"at most {most:,}, in batch {highest:,}.{noted}"
    )

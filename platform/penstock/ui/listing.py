"""List the jobs of a project for the page of all streams: trouble first, filtered, and with totals. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.ui.model import JobView, Tone
from penstock.ui.reading import Broken

__all__ = ["SHOWN", "Listing", "listing_of"]

SHOWN = {Tone.BAD: "failed", Tone.WAITS: "waiting", Tone.GOOD: "running", Tone.QUIET: "stopped"}
"""Words for the tones of a state, in the order in which jobs are listed."""
_ORDER = {tone: place for place, tone in enumerate(SHOWN)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The jobs that are shown, and totals of all: `counts` by word, `rate` rows a second, `left` rows, `held` batches.

    `wanted` is the requested word, None for all, and `text` a part of a job's name.
    """

    rows: tuple[JobView | Broken, ...]
    jobs: int
    counts: dict[str, int]
    rate: float
    left: int
    held: int
    wanted: str | None
    text: str


def listing_of(rows: Sequence[JobView | Broken], *, wanted: str, text: str) -> Listing:
    """Return the jobs whose name has a text in it and whose state is as wanted, those in trouble first."""
    views = [row for row in rows if isinstance(row, JobView)]
    tone = wanted if wanted in SHOWN.values() else None
    counts = Counter(SHOWN[row.tone] for row in rows)
    shown = [row for row in rows if text.lower() in row.job and tone in (None, SHOWN[row.tone])]
    return Listing(
        rows=tuple(sorted(shown, key=lambda row: (_ORDER[row.tone], row.job))),
        jobs=len(rows),
        counts={word: counts[word] for word in SHOWN.values() if counts[word]},
        rate=sum(view.rate or 0.0 for view in views),
        left=sum(view.rows_left or 0 for view in views),
        held=sum(len(view.reading.status.held) for view in views),
        wanted=tone,
        text=text,
    )

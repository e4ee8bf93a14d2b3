"""Read what `penstock status JOB --watermarks` shows: no Spark, no job code, nothing written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.checkpoint.log.batch_report import moment
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.roots import job_log
from penstock.config.settings import Settings
from penstock.errors import RootMissing
from penstock.runtime.inspect.job_status import read_status
from penstock.runtime.inspect.open_windows import HeldRows, OpenWindow, held_rows, open_windows
from penstock.runtime.inspect.watermark_report import SourceMark, StepMark, watermark_report
from penstock.time.clock import Clock

__all__ = ["WatermarkView", "read_watermarks"]

LARGEST = 5
"""How many open windows of a step are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkView:
    """What holds watermarks back, the largest open windows, and the rows that steps without windows hold."""

    steps: tuple[StepMark, ...]
    sources: tuple[SourceMark, ...]
    windows: tuple[OpenWindow, ...]
    held: tuple[HeldRows, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, times as text."""
        return {
            "steps": [step.to_json() for step in self.steps],
            "sources": [source.to_json() for source in self.sources],
            "largest_windows": [
                asdict(window) | {"start": moment(window.start), "end": moment(window.end)} for window in self.windows
            ],
            "held_rows": [asdict(rows) for rows in self.held],
        }


def read_watermarks(settings: Settings, job: str, clock: Clock) -> WatermarkView:
    """Return the view of the Commit in force; without one it is empty.

    Raises RootMissing for a job without a checkpoint, and what reading its state raises.
    """
    folder = settings.root / job
    log = job_log(folder)
    if log is None:
        raise RootMissing("there is no checkpoint", where=str(folder))
    recovered = recover(log, Damage.LIST)
    record = read_status(settings, job, clock, recovered=recovered).record
    steps, sources = watermark_report(recovered.commit, record)
    if recovered.commit is None:
        return WatermarkView(steps=(), sources=(), windows=(), held=())
    windows = open_windows(folder / "state", recovered.commit, LARGEST)
    return WatermarkView(
        steps=steps, sources=sources, windows=tuple(windows), held=tuple(held_rows(folder / "state", recovered.commit))
    )

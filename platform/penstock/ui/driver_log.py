"""Read the end of what a stream's drivers have written: their events, their complaints, and how long phases took.

A supervisor that starts drivers here has both files of each in `_logs/JOB/` of the control root. A driver that somebody
started by hand has none, nor has one on another machine. Only some bytes at the end of each file are read, however
large it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.supervise.launchers.local import end_of, events_of, log_files
from penstock.supervise.watching import logs_of
from penstock.ui.formatting import finite, total

__all__ = ["DriverLog", "Spent", "read_driver_log"]

_EVENTS = 256 * 2**10
_COMPLAINTS = 16 * 2**10
_LINES = 40
_GENERATIONS = 2  # a driver that has just started has no batches in its own log yet
_OWN = ("event", "level", "timestamp", "job", "traceback")


@dataclass(frozen=True, slots=True)
class Spent:
    """How long a batch took, milliseconds by phase, and the rows left in the sources, None where they cannot tell."""

    timings: Mapping[str, float]
    left: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLog:
    """The end of the newest driver's log. `traceback` is of the error that ended it, None where none did.

    `batches` are those that this driver and the ones before it have logged.
    """

    generation: int
    events: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    traceback: str | None = None
    batches: Mapping[int, Spent] = field(default_factory=dict)


def read_driver_log(root: CheckpointFolder, job: str) -> DriverLog | None:
    """Return the end of the log of a job's newest driver, None where there is none."""
    folder = logs_of(root, job)
    known = sorted((int(path.stem) for path in folder.glob("*.jsonl") if path.stem.isdecimal()), reverse=True)
    if not known:
        return None
    batches: dict[int, Spent] = {}
    newest: list[dict[str, Any]] = []
    for generation in reversed(known[:_GENERATIONS]):
        newest = list(events_of(end_of(log_files(folder, generation)[0], _EVENTS)))
        batches |= _batches(newest)
    failed: Mapping[str, Any] = next((event for event in reversed(newest) if event.get("event") == "run.failed"), {})
    traceback = failed.get("traceback")
    complaints = end_of(log_files(folder, known[0])[1], _COMPLAINTS).decode("utf-8", "replace").splitlines()
    return DriverLog(
        generation=known[0],
        events=tuple(_line(event) for event in newest[-_LINES:]),
        complaints=tuple(complaints[-_LINES:]),
        traceback=traceback if isinstance(traceback, str) else None,
        batches=batches,
    )


def _batches(events: list[dict[str, Any]]) -> dict[int, Spent]:
    batches = {}
    for event in events:
        batch, timings = event.get("batch"), event.get("timings")
        if event.get("event") == "batch.committed" and isinstance(batch, int) and isinstance(timings, dict):
            known = {str(name): ms for name, value in timings.items() if (ms := finite(value)) is not None}
            batches[batch] = Spent(known, total(event.get("rows_left")))
    return batches


def _line(event: Mapping[str, Any]) -> str:
    """Return an event as a line for people, without empty fields and those that the page shows elsewhere."""
    facts = " ".join(f"{name}={value}" for name, value in event.items() if name not in _OWN and value not in (None, {}))
    return f"{event.get('timestamp', '')} {event.get('level', '')} {event.get('event', '')} {facts}".strip()

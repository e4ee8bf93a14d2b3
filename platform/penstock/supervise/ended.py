"""Tell what the record of a stream does not: how its driver has ended, and of one that was started by hand."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.supervise.control import stream_control
from penstock.supervise.stream import Phase, Stream

if TYPE_CHECKING:
    from penstock.runtime.inspect.job_status import JobState
    from penstock.runtime.process.project import Project

__all__ = ["driver_end", "is_outdated", "runs_by_hand"]

_AT_WORK = (Phase.RUNNING, Phase.DRAINING)
_NO_END = ("RUNNING", "NEW", "GONE")
"""The states of a job that tell of no driver that has ended."""


def is_outdated(stream: Stream, state: JobState, *, supervised: bool) -> bool:
    """Return whether the record has a driver at work that has ended, as the state of the job says (decision 229).

    Without a supervisor nobody writes down that it has.
    """
    return not supervised and stream.phase in _AT_WORK and state.name not in _NO_END


def runs_by_hand(project: Project, job: str) -> bool:
    """Return whether a driver of a job runs that was started by hand; where its files are in trouble nobody knows."""
    with suppress(PenstockError):
        return stream_control(project, job).runs_by_hand()
    return False


def driver_end(project: Project, job: str, stream: Stream) -> JobState | None:
    """Return how the driver of an outdated record has ended, None for any other record.

    Where the files of a job are in trouble its record counts. Only of a stream without a supervisor the log is read.
    """
    with suppress(PenstockError):
        control = stream_control(project, job)
        if stream.phase in _AT_WORK and not control.is_supervised():
            from penstock.runtime.inspect.job_status import read_status  # with Arrow, which a list seldom needs

            state = read_status(project.settings(job), job, control.clock).state
            return state if is_outdated(stream, state, supervised=False) else None
    return None

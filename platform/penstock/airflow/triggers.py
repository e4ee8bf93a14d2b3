"""Wait for a stream without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from penstock.airflow.command_context import control_of
from penstock.errors import SupervisorAbsent
from penstock.supervise.stream import Phase

__all__ = ["AWAITED", "StreamTrigger", "through"]

_POLL = 5.0
AWAITED = {
    "healthy": (Phase.RUNNING, Phase.DRAINING, Phase.FINISHED),
    "end": (Phase.STOPPED, Phase.FINISHED),
    "stopped": (Phase.STOPPED, Phase.FINISHED),
    "drained": (Phase.FINISHED,),
    "suspended": (Phase.SUSPENDED,),
}
"""The phases that end a wait."""


def through(until: str) -> tuple[Phase, ...]:
    """Return the phases at rest that are no end: a suspended stream is to be resumed, and is followed on then."""
    return (Phase.SUSPENDED,) if until == "end" else ()


class StreamTrigger(BaseTrigger):
    """Fires once the stream that began with generation `first` is in an awaited phase, is over, or was restarted.

    It fires as well where nobody supervises, and says so and no more: the task looks at the record itself. Cancelling
    it does nothing to the stream.
    """

    def __init__(self, *, project: str, job: str, first: int, until: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.project, self.job, self.first, self.until = project, job, first, until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments from which the triggerer makes the trigger."""
        facts = {"project": self.project, "job": self.job, "first": self.first, "until": self.until}
        return ("penstock.airflow.triggers.StreamTrigger", facts)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every few seconds."""
        # Opening asks storage, which may not answer for long, and the loop is that of all triggers.
        control = await asyncio.to_thread(control_of, self.project, self.job)
        silence, shown = control.silence(), ""
        while True:
            stream = await asyncio.to_thread(control.newest)
            # In the log of the task: of a start that fails the phase stays, and the reason says with what.
            if stream.phase_in_words != shown:
                shown = stream.phase_in_words
                self.log.info("%s is %s", self.job, shown)
            over = stream.phase.is_final and stream.phase not in through(self.until)
            if stream.first > self.first or over or stream.phase in AWAITED[self.until]:
                yield TriggerEvent({"phase": stream.phase.value})  # type: ignore[no-untyped-call]
                return
            try:
                await asyncio.to_thread(silence.check)
            except SupervisorAbsent as why:
                yield TriggerEvent({"absent": why.what})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(_POLL)

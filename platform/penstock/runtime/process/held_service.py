"""Decide on held batches in the one process that commits to a job's tables: its driver, or who owns the log (9.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, Recovered, recover
from penstock.checkpoint.log.takeover import View
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CheckpointError, Fenced, PenstockError, SinkError
from penstock.graph.graph import JobGraph
from penstock.quality.held.decision_records import Decision, HeldDecision, HeldRecords
from penstock.quality.held.overtaken import InForce
from penstock.quality.held.release import discard, find_held, release, waiting
from penstock.quality.held.requests import HeldAsk, HeldAsks
from penstock.runtime.driver.ownership import idle_log
from penstock.runtime.driver.settings import Identity
from penstock.runtime.process.heartbeat import EVERY, StatusRecords
from penstock.runtime.restore.sink_truncation import refuse_before_truncation
from penstock.time.clock import Clock

__all__ = ["HeldService", "HeldWork", "decide_at_rest"]

log = structlog.get_logger()

_LOOK_EVERY = 1.0
"""Seconds between two looks at what is asked."""


@dataclass(slots=True)
class HeldWork:
    """What it takes to decide on the held batches of one job.

    `staged` is the job's folder for sinks without one of their own; `spark` is a session, or what opens one when used.
    """

    records: HeldRecords
    log: Log
    graph: JobGraph
    uuid: str
    staged: CheckpointFolder
    spark: Any

    def decide(
        self, batch: int, decision: Decision, *, owned: OwnedLog, by: str, recovered: Recovered | None = None
    ) -> HeldDecision:
        """Release or discard a batch, by who owns the log.

        Raises Fenced once the log is another's, and what `held.release` and `held.discard` raise.
        """
        recovered = recovered or recover(self.log, Damage.LIST)
        held, mine = find_held(self.records, recovered, batch), owned.refuse_lost
        if decision is Decision.DISCARD:
            return discard(
                self.records,
                held,
                self.graph,
                uuid=self.uuid,
                staged=self.staged,
                spark=self.spark,
                by=by,
                still_mine=mine,
            )
        before = (b for b in waiting(self.records, recovered) if b < batch and b not in recovered.held.undone)
        return release(
            self.records,
            held,
            self.graph,
            uuid=self.uuid,
            staged=self.staged,
            spark=self.spark,
            by=by,
            still_mine=mine,
            older={b: recovered.held[b].held for b in before},
            in_force=InForce.of(recovered),
        )


class HeldService:
    """Carry out, between the batches of a driver, what is asked of held ones; an error is the asker's."""

    def __init__(self, asks: HeldAsks, work: HeldWork, clock: Clock) -> None:
        self._asks = asks
        self._work = work
        self._clock = clock
        self._looked: float | None = None

    def serve(self, owned: OwnedLog) -> None:
        """Look at what is asked, once a second at most, and do it; raises Fenced once the log is another's."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        try:
            for ask in self._asks.pending():
                self._asks.reply(ask, self._outcome(ask, owned))
        except Fenced:
            raise
        except (PenstockError, OSError) as why:  # storage: who asked asks again
            log.warning("held.not_heard", reason=str(why))

    def _outcome(self, ask: HeldAsk, owned: OwnedLog) -> HeldDecision | PenstockError:
        body = {"batch": ask.batch, "decision": ask.decision.value, "by": ask.by}
        try:
            ruling = self._work.decide(ask.batch, ask.decision, owned=owned, by=ask.by)
        except Fenced:  # who asked asks the next driver
            raise
        except PenstockError as why:
            log.warning("held.refused", **body, reason=str(why))
            return why
        except Exception as why:  # noqa: BLE001 - an error of a release must not end the driver
            log.warning("held.refused", **body, reason=f"{type(why).__name__}: {why}")
            return SinkError(f"{type(why).__name__}: {why}")
        log.info("held.decided", **body)
        return ruling


def decide_at_rest(
    work: HeldWork,
    batch: int,
    decision: Decision,
    identity: Identity,
    may_take_over: Callable[[View], None],
    status: StatusRecords,
) -> HeldDecision:
    """Decide on a held batch of a job that nobody runs: own the log meanwhile, so that no driver begins beside it.

    Raises HolderAlive where a driver runs, CheckpointError where sinks have still to take rows back, and what
    `idle_log` and `HeldWork.decide` raise.
    """
    reason = f"{decision.value} of held batch {batch}"
    with idle_log(work.log, identity, may_take_over, refusal=CheckpointError, reason=reason) as (owned, recovered):
        refuse_before_truncation(work.graph, lambda name: f"{work.uuid}/{name}", recovered, refusal=CheckpointError)
        with _signs_of_life(status, identity):
            return work.decide(batch, decision, owned=owned, by=identity.holder, recovered=recovered)


@contextmanager
def _signs_of_life(status: StatusRecords, identity: Identity) -> Iterator[None]:
    """Beat as a driver does: to open Spark may take longer than the patience with a holder that is silent.

    Each record repeats what the job's last driver has said of itself, and so does the one at the end.
    """
    newest = status.newest()
    before = {} if newest is None else newest.body
    end = threading.Event()

    def beat() -> None:
        while not end.wait(EVERY):
            with suppress(PenstockError, OSError):
                status.put({**before, "writer": identity.writer, "holder": identity.holder})

    thread = threading.Thread(target=beat, name="penstock-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        if before:
            with suppress(PenstockError, OSError):
                status.put(before)

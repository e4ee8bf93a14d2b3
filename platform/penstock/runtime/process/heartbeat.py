"""Publish the state of a run: numbered records at `<root>/_control/status/<job>/`, written by a thread of the driver.

The records are the driver's heartbeat as well: a watcher takes over when their number stops growing (DESIGN 4).
They decide nothing else. What a job has done is said by its log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.batch_report import BatchReport
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import EXIT_SOFTWARE, FormerCheckpoint, PenstockError, RootMissing
from penstock.runtime.driver.stages import Hook
from penstock.time.clock import Clock

__all__ = ["EVERY", "DriverStatus", "Heartbeat", "StatusRecords", "batches_in", "former_checkpoint"]

log = structlog.get_logger()

EVERY = 2.0
"""Seconds between two heartbeats."""
LEAST = 0.5
"""Seconds between two records at least, however fast batches follow each other."""
_PRUNE_EVERY = 64
_RATE_OVER = 60.0
"""Seconds of which a rate tells at least, and so many batches: with few, one more or less would make it jump."""
_RATE_BATCHES = 10
_HELD = 50
"""Held batches that a record names at most."""
_BEGINS = {"works": False, "proved": False, "waits_since": None}
_BEGINNING = ("FixOffsets", "Compute")
"""The stages that a batch may begin with: data, or a due time, waits from there until its Commit."""


class StatusRecords(Records):
    """The status records of one job; `store` is that of the folder which holds all jobs."""

    def __init__(self, store: CheckpointStore, job: str) -> None:
        super().__init__(store, "status", job)
        self._written = 0

    def put(self, body: dict[str, Any]) -> int:
        """Write a record, and now and then delete old ones; returns its number."""
        seq = super().put(body)
        self._written += 1
        if self._written % _PRUNE_EVERY == 1:
            self.prune()
        return seq

    def newest_of(self, writer: str | None) -> int | None:
        """Return the number of the newest record if this writer wrote it; None for any writer."""
        record = self.newest()
        if record is None or (writer is not None and record.body.get("writer") != writer):
            return None
        return record.seq


def former_checkpoint(folder: CheckpointFolder) -> FormerCheckpoint | None:
    """Return what is wrong with a job that has no log, and whose last driver knew of a batch; None for a new job."""
    last = None
    with suppress(RootMissing):
        last = StatusRecords(control_store(folder.parent, make=False), folder.name).newest()
    if last is None or not (last.body.get("last") or last.body.get("next_batch")):
        return None
    return FormerCheckpoint(f"{folder.name} has had a checkpoint in this root, and it is gone", where=str(folder))


def batches_in(body: Mapping[str, Any], name: str) -> set[int]:
    """Return the batches that a record lists; what makes no sense counts as not there (F77)."""
    batches = body.get(name)
    return {batch for batch in batches if isinstance(batch, int)} if isinstance(batches, list) else set()


@dataclass
class DriverStatus:
    """Listens to a driver and holds the content of its next record; read by the heartbeat's thread.

    `facts` do not change: holder, writer, generation, code_version. Of the others:

    - `left` are the rows that a bounded source still has, by source, and `lag` those of the others as the driver last
      looked.
    - `limits` are those of the newest batch, or of the wait since then, as Offsets have them. `held_back` are the
      partitions that it left rows in, by source.
    - `judged` is the newest batch that a check has judged.
    - `held` are batches that a gate has held, whatever was decided on them since, and `undone` those of them that a
      restore has rewound past.
    - `works` says that a batch was published, or that the driver has waited. A driver that computes its first batch has
      still to show that.
    - `proved` says that a batch was published, or that there was none to do. To wait for a tick proves nothing of the
      code.
    - `waits_since` is when a batch began that is not committed yet.
    """

    facts: dict[str, Any]
    clock: Clock
    _changing: dict[str, Any] = field(default_factory=lambda: {"state": "running", **_BEGINS})
    _batches: deque[tuple[float, int]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_hook(self, hook: Hook) -> None:
        """Note the stage that the driver is in: progress is watched, not only life (DESIGN 11)."""
        proved = {"proved": True} if hook.stage == "Wait" else {}
        if hook.stage in _BEGINNING and hook.when == "before" and self._changing.get("waits_since") is None:
            self._note(waits_since=self.clock.wall())
        elif (hook.stage, hook.when) == ("CommitBatch", "after"):
            self._note(waits_since=None)
        stage = {"name": hook.stage, "when": hook.when, "batch": hook.batch, "since": self.clock.wall()}
        self._note(**proved, stage=stage)

    def on_nap(self) -> None:
        """Note that the driver waits for rows or for a tick."""
        self._note(works=True, stage={"name": "Wait", "when": "before", "batch": None, "since": self.clock.wall()})

    def on_takeover(self, recovered: Recovered, left: dict[str, int | None]) -> None:
        """Note the epoch and the state of the job."""
        epoch = recovered.last_takeover.epoch if recovered.last_takeover is not None else None
        held, undone = [*recovered.held][-_HELD:], sorted(recovered.held.undone)[-_HELD:]
        with self._lock:
            self._batches = deque([(self.clock.monotonic(), 0)])
        # Whatever it waited for before, it begins now.
        self._note(**_BEGINS, epoch=epoch, next_batch=recovered.next_batch, left=left, held=held, undone=undone)

    def on_limits(self, limits: Mapping[str, Any], held_back: Mapping[str, Sequence[str]]) -> None:
        """Note the limits in force, the rate, which rule bound each source, and the partitions that keep rows."""
        self._note(limits=dict(limits), held_back={source: list(names) for source, names in held_back.items()})

    def on_progress(self, commit: Commit, *, ms: float, left: dict[str, int | None]) -> None:
        """Note a batch that was committed and published."""
        report = BatchReport.of(commit)
        done: dict[str, Any] = {"last": report.to_json(), "ms": round(ms, 1), "left": left}
        if report.verdicts:
            done["judged"] = {"batch": report.batch, "verdicts": dict(report.verdicts)}
        with self._lock:
            self._batches.append((self.clock.monotonic(), report.rows))
            if report.held:
                done["held"] = [*self._changing.get("held", ()), report.batch][-_HELD:]
        self._note(works=True, proved=True, epoch=commit.epoch, **done)

    def on_lag(self, rows: Mapping[str, int]) -> None:
        """Note the rows that sources without an end have left, by source."""
        self._note(lag=dict(rows))

    def on_receivers(self, states: Sequence[dict[str, Any]]) -> None:
        """Note how the receivers are."""
        self._note(receivers=list(states))

    def on_data_checkpoint(self, event: dict[str, Any]) -> None:
        """Note the newest data checkpoint, the interval and why it is that."""
        self._note(data_checkpoint=event)

    def end(self, state: str, error: Exception | None = None) -> None:
        """Note how the run ended: finished, stopped or failed, and with what."""
        failure: dict[str, Any] | None = None
        exit_code = 0
        if isinstance(error, PenstockError):
            failure = {"code": error.code, "what": error.what, "where": error.where, "remedy": error.remedy}
            exit_code = error.exit_code
        elif error is not None:
            failure = {"code": None, "what": f"{type(error).__name__}: {error}", "where": None, "remedy": None}
            exit_code = EXIT_SOFTWARE
        self._note(state=state, error=failure, exit_code=exit_code)

    def body(self) -> dict[str, Any]:
        """Return the record as it is now."""
        with self._lock:
            rate = {"rows_per_second": self._rate()}
            return {**self.facts, **self._changing, **rate, "at": self.clock.wall()}

    def _rate(self) -> float | None:
        """Return the rows read a second of the clock on the wall, waits included; None before the first batch.

        Of the last minute, or of the last ten batches where those took longer.
        """
        now, batches = self.clock.monotonic(), self._batches
        while len(batches) > _RATE_BATCHES + 1 and now - batches[1][0] > _RATE_OVER:
            batches.popleft()
        if len(batches) <= 1 or now <= batches[0][0]:
            return None
        rows = sum(rows for _, rows in batches) - batches[0][1]
        return round(rows / (now - batches[0][0]), 1)

    def _note(self, **changes: Any) -> None:
        with self._lock:
            self._changing.update(changes)


class Heartbeat:
    """Write a record every two seconds and soon after each commit, from a thread of its own.

    A failure of storage is logged once, and the write is retried: a driver that can write its log needs no heartbeat.
    The thread ends with `stop`, and with the main thread if that ends without it.
    `owned` says that the driver has the log: from then on its end is written even if the thread never began.
    """

    def __init__(
        self, records: StatusRecords, status: DriverStatus, *, every: float = EVERY, least: float = LEAST
    ) -> None:
        self._records = records
        self._status = status
        self._every = every
        self._least = least
        self._wake = threading.Event()
        self._end = threading.Event()
        self._failing = False
        self._thread: threading.Thread | None = None
        self.owned = False

    def start(self) -> None:
        """Begin; called once the log is owned, because a record of a driver that waits would look like its holder's."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="penstock-heartbeat", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Write a record soon: there is news."""
        self._wake.set()

    def stop(self, *, last: bool = True) -> None:
        """End the thread; with `last`, and if it ever began or the log is `owned`, write one more record."""
        self._end.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=self._every)
        if last and (self.owned if self._thread is None else not self._thread.is_alive()):
            self._put(self._held_before() if self._thread is None else None)

    def _beat(self) -> None:
        main = threading.main_thread()
        while not self._end.is_set() and main.is_alive():
            self._wake.clear()
            self._put()
            if self._end.wait(self._least):
                return
            self._wake.wait(max(0.0, self._every - self._least))

    def _held_before(self) -> dict[str, Any]:
        """Return the batches that the driver before knew as held: pages that read the end of a log have no others."""
        try:
            newest = self._records.newest()
        except (PenstockError, OSError):
            return {}
        return {} if newest is None else {name: newest.body.get(name, []) for name in ("held", "undone")}

    def _put(self, more: Mapping[str, Any] | None = None) -> None:
        try:
            self._records.put({**(more or {}), **self._status.body()})
        except (PenstockError, OSError) as why:
            if not self._failing:
                log.warning("status.not_written", reason=str(why))
            self._failing = True
        else:
            self._failing = False

"""Tell the listeners of a job's code what becomes of its batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from penstock.checkpoint.log.batch_report import BatchReport
from penstock.checkpoint.log.entries import Commit, Offsets
from penstock.checkpoint.log.listener import Listener
from penstock.graph.listeners import BatchInfo
from penstock.runtime.process.job_load import NEWEST, load_report
from penstock.time.clock import Clock

__all__ = ["BatchEvents", "tell_listeners"]

log = structlog.get_logger()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BatchEvents(Listener):
    """Call the methods that each listener has.

    They are called between the stages of a batch, so a slow one makes batches late. An error in one is logged and harms
    nothing: what a listener is for is no part of the batch. A batch that another driver has begun counts as submitted
    when this one takes it up.
    """

    def __init__(self, listeners: Sequence[Any], clock: Clock) -> None:
        self._listeners = listeners
        self._clock = clock
        self._batch: BatchInfo | None = None
        self._newest: deque[Commit] = deque(maxlen=NEWEST)

    def on_batch_submitted(self, offsets: Offsets) -> None:
        """Tell that a batch is planned."""
        self._tell("on_batch_submitted", self._begun(offsets))

    def on_batch_started(self, offsets: Offsets) -> None:
        """Tell that a batch is computed."""
        info = self._batch
        if info is None or info.batch != offsets.batch:
            info = self._begun(offsets)
        self._tell("on_batch_started", replace(info, started=self._now()))

    def on_batch_completed(self, commit: Commit) -> None:
        """Tell that a batch is published, with its rows."""
        if self._batch is not None and self._batch.batch == commit.batch:
            report = BatchReport.of(commit)
            info = replace(self._batch, completed=self._now(), rows=dict(report.read), output=dict(report.output))
            self._tell("on_batch_completed", replace(info, **self._load(commit)))

    def _load(self, commit: Commit) -> dict[str, Any]:
        """Return how busy the job is, as `penstock status` reads it in the Commits."""
        self._newest.append(commit)
        load, advice = commit.load, load_report(self._newest).cores
        late, waiting, tasks = load.get("late_ms"), load.get("waiting"), load.get("task_ms")
        spilled = load.get("spilled_bytes")
        return {
            "late_by": None if late is None else late / 1_000,
            "waiting": None if waiting is None else int(waiting),
            "gc_share": min(1.0, load.get("gc_ms", 0.0) / tasks) if tasks else None,
            "spilled_bytes": None if spilled is None else int(spilled),
            "cores": None if advice is None else advice.cores,
        }

    def _begun(self, offsets: Offsets) -> BatchInfo:
        return BatchInfo(batch=offsets.batch, time=_moment(offsets.time), submitted=self._now())

    def _now(self) -> datetime:
        return _moment(self._clock.wall())

    def _tell(self, event: str, info: BatchInfo) -> None:
        self._batch = info
        tell_listeners(self._listeners, event, info, batch=info.batch)


def tell_listeners(listeners: Sequence[Any], event: str, info: Any, **facts: Any) -> None:
    """Call the method of an event where a listener has it; an error is logged with the facts."""
    for listener in listeners:
        heard = getattr(listener, event, None)
        if heard is None:
            continue
        try:
            heard(info)
        except Exception as why:  # noqa: BLE001 - no error of a listener is worth a batch
            name = f"{type(listener).__module__}.{type(listener).__qualname__}"
            log.warning("listener.failed", listener=name, event_name=event, error=repr(why), **facts)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)

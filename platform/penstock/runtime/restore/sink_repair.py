"""Bring a sink and the log together again, for a job that nobody runs: publish again, or skip (9.5, 9.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.log.entries import Commit, Skip
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.log.takeover import View
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CannotSkip, CheckpointCopied, UnknownName
from penstock.graph.graph import JobGraph
from penstock.runtime.driver.ownership import idle_log
from penstock.runtime.driver.publishing import origin_of
from penstock.runtime.driver.settings import Identity
from penstock.runtime.driver.sink_recovery import missing_batches
from penstock.runtime.restore.sink_truncation import refuse_before_truncation
from penstock.sinks.staged_files import schema_of
from penstock.sinks.staged_publisher import StagedPublisher

__all__ = ["SinkStand", "SinksAtRest", "redo", "skip", "stands"]


@dataclass(slots=True)
class SinksAtRest:
    """The sinks of a job, opened one by one when they are asked.

    `staged` is the job's folder for sinks without one of their own; `spark` is a session, or what opens one when used.
    """

    graph: JobGraph
    staged: CheckpointFolder
    spark: Any
    _opened: dict[str, StagedPublisher] = field(default_factory=dict)

    def sink(self, name: str) -> StagedPublisher:
        """Return the publisher of a sink, opened when it is first asked for."""
        if name not in self._opened:
            known = {node.name: node.sink for node in self.graph.sinks}
            if name not in known:
                raise UnknownName(f"the job has no sink {name!r}; there is {list(known)}")
            self._opened[name] = StagedPublisher(name, known[name], self.staged / name, self.spark).open()
        return self._opened[name]

    def publish(self, name: str, app: str, commit: Commit) -> None:
        """Make the files of a Commit visible; the table is made where it is gone."""
        sink, files = self.sink(name), commit.staged[name]
        sink.create(schema_of(sink.staging, files[0]))
        sink.publish(app, commit.batch, files, origin_of(self.graph, name, commit))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStand:
    """What a sink lacks: `missing` are batches that it has shown, `waiting` is one that it may not have shown yet."""

    sink: str
    missing: tuple[Commit, ...]
    waiting: Commit | None

    @property
    def behind(self) -> tuple[Commit, ...]:
        """Return the batches with rows that the sink does not show, or may not, oldest first."""
        waits = self.waiting is not None and bool(self.waiting.staged.get(self.sink))
        return (*self.missing, self.waiting) if waits and self.waiting is not None else self.missing

    def rows(self, commit: Commit) -> int:
        """Return the rows that a batch has for the sink."""
        return sum(file.rows for file in commit.staged[self.sink])


def stands(sinks: SinksAtRest, recovered: Recovered, uuid: str, names: Sequence[str] = ()) -> list[SinkStand]:
    """Return how the sinks stand, or those of these names; one that the job has no longer can only wait."""
    known = [node.name for node in sinks.graph.sinks]
    standings = []
    for sink in names or known:
        app = f"{uuid}/{sink}"
        missing = missing_batches(sinks.sink, sink, app, recovered) if sink in known else []
        waiting = recovered.to_publish(sink)
        if waiting is not None and sink in known and sinks.sink(sink).deduplicates:
            seen = sinks.sink(sink).version(app)
            waiting = None if seen is not None and seen >= waiting.batch else waiting
        standings.append(SinkStand(sink=sink, missing=tuple(missing), waiting=waiting))
    return standings


def redo(
    log: Log, sinks: SinksAtRest, sink: str, uuid: str, identity: Identity, may_take_over: Callable[[View], None]
) -> SinkStand:
    """Publish again what a sink has lost, oldest first; the next start publishes what waits.

    Raises CheckpointCorrupt, before anything is published, where a file is gone, CannotSkip where a restore is still
    to have sinks take rows back, HolderAlive, and what publishing raises.
    """
    reason = f"sink {sink} was given batches again"
    with idle_log(log, identity, may_take_over, refusal=CannotSkip, reason=reason) as (owned, recovered):
        refuse_before_truncation(sinks.graph, lambda name: f"{uuid}/{name}", recovered, refusal=CannotSkip)
        stand = stands(sinks, recovered, uuid, [sink])[0]
        for commit in stand.missing:
            sinks.sink(sink).verify(commit.staged[sink])
        for commit in stand.missing:
            owned.refuse_lost()  # who has the log now may have gone back, and these rows come again
            sinks.publish(sink, f"{uuid}/{sink}", commit)
    return stand


def _copied(sinks: SinksAtRest, sink: str, uuid: str, recovered: Recovered) -> Commit | None:
    """Return the last Commit if the sink shows its number with the rows of a copy of the checkpoint."""
    last = recovered.to_publish(sink)
    if last is None or not last.staged.get(sink):
        return None
    try:  # of a batch that is visible it changes nothing, and no driver is there whom it could fence
        sinks.publish(sink, f"{uuid}/{sink}", last)
    except CheckpointCopied:
        return last
    return None


def skip(
    log: Log, sinks: SinksAtRest, sink: str, uuid: str, identity: Identity, may_take_over: Callable[[View], None]
) -> SinkStand:
    """Have a sink skip the batches that it does not show, and count their rows in the log; of one that shows all none.

    Raises CannotSkip where the job has to be started first; HolderAlive.
    """
    reason = f"sink {sink} skips batches"
    with idle_log(log, identity, may_take_over, refusal=CannotSkip, reason=reason) as (owned, recovered):
        stand = stands(sinks, recovered, uuid, [sink])[0]
        if stand.waiting is None and (copied := _copied(sinks, sink, uuid, recovered)) is not None:
            stand = replace(stand, waiting=copied)
        if stand.behind:
            rows = sum(map(stand.rows, stand.behind))
            batches = [commit.batch for commit in stand.behind]
            owned.append(Skip(epoch=owned.epoch, writer=owned.writer, sink=sink, batches=batches, rows=rows))
    return stand

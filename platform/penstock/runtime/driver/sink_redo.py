"""Settle at a start what the sinks show: compare it with the log, then publish the last Commit again (DESIGN 4 c0).

Where the newest Restore truncates sinks (SEMANTICS 10.1), that comes first, also when another process wrote the entry.
So it is a redo, as publishing is. A driver that dies before, or between two sinks, loses nothing, and each sink
remembers for which Restore it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.recovery import Damage, Recovered
from penstock.errors import CannotTruncate, CheckpointCorrupt, SinkAhead, SinkBehind
from penstock.runtime.driver.engine import Engine
from penstock.runtime.driver.sink_recovery import find_behind, find_damaged, refuse_old_copy
from penstock.runtime.driver.stages import Hook, PublishSinks
from penstock.sinks.base import Target

__all__ = ["Settling", "redo_truncation", "settle_sinks"]

log = structlog.get_logger()


class Settling(Protocol):
    """The driver, as far as its sinks are settled: what it asks, and where it notes what it finds."""

    engine: Engine
    sinks: tuple[str, ...]
    published: dict[str, int]
    damaged: CheckpointCorrupt | None
    behind: dict[str, SinkBehind]

    def app(self, sink: str) -> str:
        """Return the name under which a sink remembers this checkpoint's batches."""

    def run_stage(self, stage: PublishSinks, *, commit: Commit) -> Iterator[Hook]:
        """Publish what a Commit has for sinks."""


def settle_sinks(driver: Settling, recovered: Recovered, damage: Damage) -> Iterator[Hook]:
    """Redo what a driver before may have left undone; sinks that are known to show the last Commit are left alone.

    Raises SinkAhead, SinkBehind and CheckpointCorrupt. With `Damage.LIST` the last two are noted in `driver` for a
    restore, and a sink that is behind gets nothing: it would look as if it had everything before that.
    """
    engine, app = driver.engine, driver.app
    refuse_old_copy(engine, driver.sinks, app, recovered)
    driver.behind = find_behind(engine.sink, driver.sinks, app, recovered)
    driver.published = dict(recovered.known)
    if driver.behind and damage is Damage.FAIL:
        raise next(iter(driver.behind.values()))
    yield from redo_truncation(engine, app, recovered, damage)
    last = recovered.last_published_commit
    todo = tuple(s for s in driver.sinks if recovered.to_publish(s) is not None and s not in driver.behind)
    driver.damaged = find_damaged(engine, todo, app, recovered)
    if driver.damaged is not None and damage is Damage.FAIL:
        raise driver.damaged
    if last is not None and todo and driver.damaged is None:
        try:
            yield from driver.run_stage(PublishSinks(last.batch, todo), commit=last)
        except SinkAhead:
            # A later Commit, which cannot be read any more, was published, and this one before it.
            if not (recovered.problems or recovered.damaged):
                raise


def redo_truncation(engine: Engine, app: Callable[[str], str], recovered: Recovered, damage: Damage) -> Iterator[Hook]:
    """Do what the newest Restore says of the sinks, if no Commit has followed it; what was done is left.

    That is settled before another Restore is written, so no driver that lost the log long ago has it to do. Where
    another program has written to a table since, nobody does it ever: a driver refuses to start, and a restore
    (`Damage.LIST`) continues without.
    """
    restore = recovered.truncation
    if restore is None or restore.place is None:
        return
    yield Hook("Truncate", "before", restore.batch)
    for sink, version in restore.truncate.items():
        if not any(node.name == sink for node in engine.graph.sinks):
            if damage is Damage.FAIL:  # the next Commit would settle it, and the rows would stay beside those to come
                raise CannotTruncate(f"sink {sink!r} is to take rows back, and the job has it no longer", sink=sink)
            log.warning("sink.not_truncated", sink=sink, version=version, reason="the job has it no longer")
            continue
        # Of the target only the batch counts here: what the table is to show was settled when the entry was written.
        target = Target(app=app(sink), batch=restore.batch, slot=restore.place.slot)
        try:
            done = engine.sink(sink).put_back(target, version, slot=restore.place.slot, newest=recovered.used)
        except CannotTruncate:
            if damage is Damage.FAIL:
                raise
            continue
        if done:
            log.info("sink.truncated", sink=sink, version=version, batch=restore.batch)
        yield Hook("Truncate", f"truncated {sink}", restore.batch)
    yield Hook("Truncate", "after", restore.batch)

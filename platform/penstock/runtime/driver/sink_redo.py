"""Settle at a start what the sinks show: compare it with the log, then publish the last Commit again (DESIGN 4 c0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.checkpoint.log.recovery import Damage, Recovered
from penstock.errors import SinkAhead
from penstock.runtime.driver.sink_recovery import find_behind, find_damaged, refuse_old_copy
from penstock.runtime.driver.stages import Hook, PublishSinks
from penstock.runtime.restore.sink_truncation import redo_truncation

if TYPE_CHECKING:
    from penstock.runtime.driver.loop import Driver

__all__ = ["settle_sinks"]


def settle_sinks(driver: Driver, recovered: Recovered, damage: Damage) -> Iterator[Hook]:
    """Redo what a driver before may have left undone; sinks that are known to show the last Commit are left alone.

    Raises SinkAhead, SinkBehind and CheckpointCorrupt. With `Damage.LIST` the last two are noted in `driver` for a
    restore, and a sink that is behind gets nothing: it would look as if it had everything before that.
    """
    engine, app = driver.engine, driver.app
    refuse_old_copy(engine, driver.sinks, app, recovered)
    driver.behind = find_behind(engine, driver.sinks, app, recovered, driver.log)
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

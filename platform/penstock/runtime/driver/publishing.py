"""Publish the batch of a Commit to a sink, and wait for one that is busy as long as it asks (F56)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from penstock.checkpoint.log.entries import Commit
from penstock.errors import SinkBusy
from penstock.graph.graph import JobGraph
from penstock.graph.steps import StepNode
from penstock.runtime.driver.stages import Hook
from penstock.sinks.base import Origin
from penstock.time.clock import Clock

__all__ = ["origin_of", "publish_patiently"]

log = structlog.get_logger()

_NAP = 1.0
"""Seconds between two hooks of a driver that waits, where a stop is heard and status shows what it waits for."""


def origin_of(graph: JobGraph, sink: str, commit: Commit) -> Origin:
    """Return the batch of a Commit as a sink of the job is informed of it.

    The watermark is None where the graph has no such sink any more.
    """
    above = (step for node in graph.sinks if node.name == sink for step in graph.upstream(node))
    marks = [commit.watermarks_in.get(step.name) for step in above if isinstance(step, StepNode)]
    known = [mark for mark in marks if mark is not None]
    # A step without a watermark has closed nothing: it is at the beginning of time.
    lowest = min(known) if known and len(known) == len(marks) else None
    return Origin(job=graph.name, time=commit.time, watermark=lowest, epoch=commit.epoch)


def publish_patiently(
    publish: Callable[[], None], sink: str, batch: int, clock: Clock, patience: float
) -> Iterator[Hook]:
    """Publish a batch, and yield a hook `busy SINK` for each second, or part of one, that the sink asks to wait.

    Args:
        publish: Publishes the batch; called again after each wait.
        sink: The name of the sink.
        batch: The number of the batch.
        clock: What waits.
        patience: Seconds that may be waited in all.

    Raises:
        SinkBusy: The sink is busy still when the patience is at its end.
    """
    waited, asked = 0.0, False
    while True:
        try:
            publish()
        except SinkBusy as why:
            left = min(max(why.retry_after, 0.0), patience - waited)
            if left <= 0:
                raise
            if not asked:
                log.warning("sink.busy", sink=sink, batch=batch, retry_after=why.retry_after, why=why.what)
            asked = True
            while left > 0:
                yield Hook("PublishSinks", f"busy {sink}", batch)
                nap = min(left, _NAP)
                clock.sleep(nap)
                waited, left = waited + nap, left - nap
        else:
            return

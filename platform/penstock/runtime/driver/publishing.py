"""Publish to a sink that may be busy: wait as long as it asks, and publish the same batch again (F56)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from penstock.errors import SinkBusy
from penstock.runtime.driver.stages import Hook
from penstock.time.clock import Clock

__all__ = ["publish_patiently"]

log = structlog.get_logger()

_NAP = 1.0
"""Seconds between two hooks of a driver that waits, where a stop is heard and status shows what it waits for."""


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

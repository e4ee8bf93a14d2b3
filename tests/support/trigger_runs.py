"""Judge a trigger batch by batch, without state on disk: what fires, for one key beside others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.triggers.composed_machines import machine_of
from penstock.operators.triggers.machines import CONTINUE, PURGE, TriggerBatch
from penstock.operators.triggers.row_triggers import RowTriggers


@dataclass(frozen=True)
class Step:
    """A batch: how many rows the key gets, or which, as (event time, value); and the clocks, None for as before.

    `late` is given for a chained step, and is the mark for others.
    """

    rows: int | Sequence[tuple[int, float | None]] = 0
    time: int | None = None
    mark: int | None = None
    zero: int = 0
    late: int | None = None


def firings(trigger: Any, steps: Sequence[Step], *, other: int = 0) -> list[int | None]:
    """Return for each batch how many rows the window of key 1 has that is emitted, None where it is not.

    Keys 0 and 2 have no rows; key 0 gets `other` ones in the first batch.
    """
    machine = machine_of(trigger, RowTriggers("w", [None] * 3))
    slots = np.tile(np.array(machine.first(), dtype=np.int64), (3, 1))
    held, fired = np.zeros(3, dtype=np.int64), []
    time, mark, every = 0, None, np.ones(3, dtype=np.bool_)
    for number, step in enumerate(steps):
        time, mark = (step.time if step.time is not None else time + 1), (step.mark if step.mark is not None else mark)
        given = [(0, 0.0)] * step.rows if isinstance(step.rows, int) else [*step.rows]
        given = given if not machine.finished(slots)[1] else []
        ids = np.array([0] * (other if number == 0 else 0) + [1] * len(given), dtype=np.int64)
        given = [(0, 0.0)] * (len(ids) - len(given)) + given
        held = held + np.bincount(ids, minlength=3)
        batch = TriggerBatch(
            total=3,
            ids=ids,
            times=np.array([t for t, _ in given], dtype=np.int64),
            held=held,
            time=time,
            watermark=mark,
            late=mark if step.late is None else step.late,
            zero=step.zero,
            values={"v": pa.array([v for _, v in given], pa.float64())},
            rows=lambda given=given: [{"t": t, "v": v} for t, v in given],
            names=lambda: ["a", "b", "c"],
        )
        machine.take(slots, batch, every)
        codes = machine.ready(slots, batch, every)
        fires = (codes != CONTINUE) & (held > 0)
        machine.fire(slots, batch, fires)
        fired.append(int(held[1]) if fires[1] else None)
        emptied = fires & ((codes == PURGE) | machine.finished(slots))
        held = np.where(emptied, 0, held)
        machine.emptied(slots, held == 0)
    return fired

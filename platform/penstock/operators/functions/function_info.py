"""The arguments of functions with state beside rows and state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

__all__ = ["ArrowInfo", "TaskInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """The argument of a function's `open`: the batch, its time and watermark (aware datetimes), the driver's epoch.

    The watermark is None before there is one.
    """

    batch: int
    time: datetime
    watermark: datetime | None
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowInfo(TaskInfo):
    """The argument of a vectorised function: TaskInfo, and `keys`, with a row for each row of the state.

    `key_index` (int64) is the place in `keys` of each row's key. In the call for keys that time out `timing_out` is
    set, and there are no rows.
    """

    keys: pa.Table
    key_index: pa.Array
    timing_out: bool = False

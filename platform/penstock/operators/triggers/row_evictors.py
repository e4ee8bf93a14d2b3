"""Choose the rows that an evictor of the user's leaves in windows (SEMANTICS 6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import WrongTriggerResult
from penstock.graph.trigger_protocol import Moment
from penstock.graph.window_evictors import RowEvictor
from penstock.operators.functions.python_values import key_values
from penstock.operators.functions.user_function import UserFunction
from penstock.operators.protocol import StepFacts
from penstock.state.key_state import as_datetime
from penstock.state.keys import Bools, Ints

__all__ = ["kept_by"]


def kept_by(step: str, evictor: RowEvictor, rows: pa.Table, ids: Ints, keys: pa.Table, facts: StepFacts) -> Bools:
    """Return which rows stay, after a call for each window.

    Args:
        step: The name of the step.
        evictor: The evictor.
        rows: The rows as the stream has them.
        ids: int64: the window of each row, from 0, ascending. Rows of a window are in the order of arrival.
        keys: The key of each window.
        facts: Those of the batch.

    Raises:
        UserFunctionError: The evictor raises.
        WrongTriggerResult: It does not return a boolean for each row.
    """
    total = int(ids[-1]) + 1 if len(ids) else 0
    user = UserFunction(f"step {step!r}, evictor {type(evictor).__qualname__}", evictor)
    ends = np.searchsorted(ids, np.arange(total + 1)).tolist()
    now, mark = as_datetime(facts.time), None if facts.watermark is None else as_datetime(facts.watermark)
    kept = np.empty(len(ids), dtype=np.bool_)
    for window, name in enumerate(key_values(keys, total)):
        start, end = ends[window : window + 2]
        at = Moment(event_time=None, batch_time=now, watermark=mark, count=end - start)
        try:
            given = evictor.keep(rows.slice(start, end - start), at)
        except Exception as why:
            raise user.blamed(why, f"keep of key {name!r}") from why
        kept[start:end] = _mask(given, end - start, f"{user.step}: keep returned {given!r:.80} for key {name!r}")
    return kept


def _mask(given: object, rows: int, what: str) -> Bools:
    """Return a mask of so many rows; raises WrongTriggerResult for what is none, in words that begin with `what`."""
    column = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    mask: Bools | None = None
    if isinstance(column, pa.Array):
        if pa.types.is_boolean(column.type) and not column.null_count:
            mask = column.to_numpy(zero_copy_only=False)
    elif isinstance(column, np.ndarray):
        mask = column if column.dtype == np.bool_ and column.ndim == 1 else None
    elif isinstance(column, list | tuple) and all(isinstance(item, bool) for item in column):
        mask = np.array(column, dtype=np.bool_)
    if mask is None or len(mask) != rows:
        raise WrongTriggerResult(f"{what}, not a boolean for each of {rows} rows")
    return mask

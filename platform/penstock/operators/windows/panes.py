"""The panes of windows that are emitted more than once: their two columns, the last of a step's output (SEMANTICS 3.2).

`_pane` says why a row was emitted: EARLY before the window closed, ON_TIME when it closed, LATE after that.
`_revision` counts the rows that a step has emitted for one key and window, from 0, whatever their pane. So the row with
the highest number is the newest.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.graph.policies import Pane
from penstock.graph.windows import PANE, REVISION
from penstock.state.keys import Ints

__all__ = ["PANE_FIELDS", "pane_columns"]

PANE_FIELDS = (pa.field(PANE, pa.string()), pa.field(REVISION, pa.int64()))
"""The columns that follow the aggregates of a window with panes."""


def pane_columns(pane: Pane, revisions: Ints | int, rows: int) -> list[pa.Array]:
    """Return the columns of so many rows of one pane; `revisions` is the number of all of them, or one for each."""
    numbers = np.broadcast_to(np.asarray(revisions, dtype=np.int64), (rows,))
    return [pa.repeat(pa.scalar(pane.value, pa.string()), rows), pa.array(numbers)]

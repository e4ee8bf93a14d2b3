"""SEMANTICS 3.2: the columns of windows that are emitted more than once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.graph.policies import Pane
from penstock.operators.windows.panes import PANE_FIELDS, pane_columns


@pytest.mark.parametrize("pane", Pane, ids=lambda pane: pane.value)
def test_rows_of_a_pane_say_why_they_were_emitted_and_count(pane):
    """API: `_pane` is EARLY, ON_TIME or LATE, `_revision` 0, 1, …: one number for all rows, or one for each."""
    columns = pa.table(pane_columns(pane, np.array([0, 3, 1]), 3), schema=pa.schema(PANE_FIELDS))
    assert columns.to_pydict() == {"_pane": [pane.value] * 3, "_revision": [0, 3, 1]}
    assert pa.table(pane_columns(pane, 2, 2), names=["_pane", "_revision"])["_revision"].to_pylist() == [2, 2]
    assert pa.table(pane_columns(pane, 0, 0), schema=pa.schema(PANE_FIELDS)).num_rows == 0

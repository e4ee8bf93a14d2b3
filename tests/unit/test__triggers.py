"""Triggers are imported from `penstock.triggers`."""

from __future__ import annotations

import penstock.triggers
from penstock.graph import trigger_compositions, window_triggers


def test_all_triggers_are_there() -> None:
    """With what those of the user's need."""
    ready = {*window_triggers.__all__, *trigger_compositions.__all__}
    assert {*penstock.triggers.__all__} - ready == {"Moment", "RowTrigger", "TriggerResult", "Wake"}
    assert ready <= {*penstock.triggers.__all__}

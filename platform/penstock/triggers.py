"""Name the triggers of a global window: `from penstock.triggers import Every, Purging`."""

from penstock.graph.trigger_compositions import (
    AfterAll,
    AfterAny,
    AfterEach,
    AfterFirst,
    OrFinally,
    Purging,
    Repeatedly,
)
from penstock.graph.trigger_protocol import Moment, RowTrigger, TriggerResult, Wake
from penstock.graph.window_triggers import (
    AfterCount,
    AfterDelta,
    AfterEventTime,
    AfterProcessingTime,
    AtEnd,
    Every,
    Never,
)

__all__ = [
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterDelta",
    "AfterEach",
    "AfterEventTime",
    "AfterFirst",
    "AfterProcessingTime",
    "AtEnd",
    "Every",
    "Moment",
    "Never",
    "OrFinally",
    "Purging",
    "Repeatedly",
    "RowTrigger",
    "TriggerResult",
    "Wake",
]

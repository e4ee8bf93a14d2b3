"""Name the windows a stream can be cut into: `from penstock.windows import Tumbling`."""

from penstock.graph.batch_window import BatchWindow
from penstock.graph.policies import LatenessRule
from penstock.graph.specs.global_windows import GlobalWindow
from penstock.graph.specs.session_windows import Session
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.graph.window_functions import WindowView
from penstock.graph.windows import Cumulative, Sliding, TimeWindow, Tumbling, drop_late, late_to

__all__ = [
    "BatchWindow",
    "Cumulative",
    "GlobalWindow",
    "LatenessRule",
    "Session",
    "Sliding",
    "Time",
    "TimeWindow",
    "Tumbling",
    "TupleWindow",
    "WindowView",
    "drop_late",
    "late_to",
]

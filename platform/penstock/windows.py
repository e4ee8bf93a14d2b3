"""Name the windows a stream can be cut into: `from penstock.windows import Tumbling`."""

from penstock.graph.policies import LatenessRule
from penstock.graph.windows import Sliding, TimeWindow, Tumbling

__all__ = ["LatenessRule", "Sliding", "TimeWindow", "Tumbling"]

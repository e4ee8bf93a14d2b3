"""Stream with Python on Spark, operated with Airflow.

A job is ordinary Python that describes sources, windows, state, gates and sinks.
"""

from typing import TYPE_CHECKING, Any

from penstock import agg, state
from penstock.graph.alignment import Align, align
from penstock.graph.cache import CacheLevel
from penstock.graph.durations import Count, Duration, count, days, hours, micros, millis, minutes, seconds
from penstock.graph.job import Job, Stream
from penstock.graph.join_static import OnNewVersion
from penstock.graph.keyed import KeyedStream
from penstock.graph.listeners import BatchInfo, ReceiverInfo
from penstock.graph.schedules import AUTO, NEVER, EveryBatches
from penstock.graph.specs.batch_windows import BatchWindowedStream
from penstock.graph.specs.time_windows import WindowedStream
from penstock.runtime.inspect.state_table import read

if TYPE_CHECKING:
    from penstock.config.settings import JobConf

__all__ = [
    "AUTO",
    "NEVER",
    "Align",
    "BatchInfo",
    "BatchWindowedStream",
    "CacheLevel",
    "Count",
    "Duration",
    "EveryBatches",
    "Job",
    "JobConf",
    "KeyedStream",
    "OnNewVersion",
    "ReceiverInfo",
    "Stream",
    "WindowedStream",
    "agg",
    "align",
    "count",
    "days",
    "hours",
    "micros",
    "millis",
    "minutes",
    "seconds",
]

# Users look for it among what a state function needs. It reads whole jobs, and so stands above `state`.
state.read = read


def __getattr__(name: str) -> Any:
    """Return JobConf, whose module reads configuration files: a job that only names the type does without."""
    if name == "JobConf":
        from penstock.config.settings import JobConf

        return JobConf
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

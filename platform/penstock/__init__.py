"""Stream with Python on Spark, operated with Airflow.

A job is ordinary Python that describes sources, windows, state, gates and sinks.
"""

from penstock import agg
from penstock.graph.durations import Count, Duration, count, days, hours, micros, millis, minutes, seconds
from penstock.graph.job import Job, Stream
from penstock.graph.keyed import KeyedStream, WindowedStream
from penstock.graph.schedules import AUTO, NEVER, EveryBatches

__all__ = [
    "AUTO",
    "NEVER",
    "Count",
    "Duration",
    "EveryBatches",
    "Job",
    "KeyedStream",
    "Stream",
    "WindowedStream",
    "agg",
    "count",
    "days",
    "hours",
    "micros",
    "millis",
    "minutes",
    "seconds",
]

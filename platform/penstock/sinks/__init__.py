"""Write rows: stage them in the tasks, publish what the Commit names."""

from penstock.sinks.console import Console
from penstock.sinks.delta.sink import Delta
from penstock.sinks.memory import MemorySink

__all__ = ["Console", "Delta", "MemorySink"]

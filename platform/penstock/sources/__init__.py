"""Read rows that can be read again."""

from penstock.graph.policies import BadRecord, OnEnd
from penstock.sources.memory import MemorySource
from penstock.sources.replay import FileReplay

__all__ = ["BadRecord", "FileReplay", "MemorySource", "OnEnd"]

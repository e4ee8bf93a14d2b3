"""Read rows that can be read again."""

from penstock.graph.policies import BadRecord, OnEnd, OnGap
from penstock.sources.formats import ArrowFunction, Avro, Csv, Json, Raw, Text
from penstock.sources.kafka import Kafka, Start
from penstock.sources.memory import MemorySource
from penstock.sources.replay import FileReplay

__all__ = [
    "ArrowFunction",
    "Avro",
    "BadRecord",
    "Csv",
    "FileReplay",
    "Json",
    "Kafka",
    "MemorySource",
    "OnEnd",
    "OnGap",
    "Raw",
    "Start",
    "Text",
]

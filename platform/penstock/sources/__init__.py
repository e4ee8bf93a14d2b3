"""Read rows that can be read again."""

from penstock.graph.policies import (
    Afterwards,
    BadRecord,
    OnEnd,
    OnGap,
    OnMissingColumn,
    OnNewColumn,
    OnRewrite,
    OnUnreadable,
)
from penstock.sources.delta.source import DeltaTable
from penstock.sources.file.formats import Parquet
from penstock.sources.file.reader import bytes_, files
from penstock.sources.file.source import Files
from penstock.sources.formats import ArrowFunction, Avro, Csv, Json, Raw, Text
from penstock.sources.http_source import Http
from penstock.sources.kafka import Kafka
from penstock.sources.memory import MemorySource
from penstock.sources.rate import Rate
from penstock.sources.received import Receive
from penstock.sources.replay import FileReplay
from penstock.sources.socket_source import Socket
from penstock.sources.starts import Start, Version, version

__all__ = [
    "Afterwards",
    "ArrowFunction",
    "Avro",
    "BadRecord",
    "Csv",
    "DeltaTable",
    "FileReplay",
    "Files",
    "Http",
    "Json",
    "Kafka",
    "MemorySource",
    "OnEnd",
    "OnGap",
    "OnMissingColumn",
    "OnNewColumn",
    "OnRewrite",
    "OnUnreadable",
    "Parquet",
    "Rate",
    "Raw",
    "Receive",
    "Socket",
    "Start",
    "Text",
    "Version",
    "bytes_",
    "files",
    "version",
]

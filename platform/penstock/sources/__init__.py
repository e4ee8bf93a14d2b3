"""Read rows that can be read again."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Imported when used: the process of a receiver needs one of these modules, and all take a third of a second.
_MODULES = {
    "Afterwards": "penstock.graph.policies",
    "ArrowFunction": "penstock.sources.formats",
    "Avro": "penstock.sources.formats",
    "BadRecord": "penstock.graph.policies",
    "Csv": "penstock.sources.formats",
    "DeltaTable": "penstock.sources.delta.source",
    "FileReplay": "penstock.sources.replay",
    "Files": "penstock.sources.file.source",
    "Http": "penstock.sources.http_source",
    "Json": "penstock.sources.formats",
    "Kafka": "penstock.sources.kafka",
    "MemorySource": "penstock.sources.memory",
    "OnEnd": "penstock.graph.policies",
    "OnGap": "penstock.graph.policies",
    "OnMissingColumn": "penstock.graph.policies",
    "OnNewColumn": "penstock.graph.policies",
    "OnRewrite": "penstock.graph.policies",
    "OnUnreadable": "penstock.graph.policies",
    "Parquet": "penstock.sources.file.formats",
    "Rate": "penstock.sources.rate",
    "Raw": "penstock.sources.formats",
    "Receive": "penstock.sources.received",
    "Socket": "penstock.sources.socket_source",
    "Start": "penstock.sources.starts",
    "Text": "penstock.sources.formats",
    "Version": "penstock.sources.starts",
    "bytes_": "penstock.sources.file.reader",
    "files": "penstock.sources.file.reader",
    "version": "penstock.sources.starts",
}


def __getattr__(name: str) -> Any:
    """Return what the module of a name defines."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the names that can be imported."""
    return __all__

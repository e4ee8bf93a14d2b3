"""Write rows: stage them in the tasks, publish what the Commit names."""

from penstock.sinks.avro import Avro
from penstock.sinks.console import Console
from penstock.sinks.delta.sink import Delta
from penstock.sinks.encoders import Json, Raw, Text
from penstock.sinks.files.manifest import PublishedFile
from penstock.sinks.files.sink import JsonLines, Parquet
from penstock.sinks.foreach_batch import ForeachBatch, PublishedBatch
from penstock.sinks.kafka import Delivery, Kafka
from penstock.sinks.kafka_brokers import NewTopic
from penstock.sinks.keys import Mode
from penstock.sinks.memory import MemorySink
from penstock.sinks.postgres.sink import Postgres

__all__ = [
    "Avro",
    "Console",
    "Delivery",
    "Delta",
    "ForeachBatch",
    "Json",
    "JsonLines",
    "Kafka",
    "MemorySink",
    "Mode",
    "NewTopic",
    "Parquet",
    "Postgres",
    "PublishedBatch",
    "PublishedFile",
    "Raw",
    "Text",
]

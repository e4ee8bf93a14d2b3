"""Write rows: stage them in the tasks, publish what the Commit names."""

from penstock.sinks.console import Console
from penstock.sinks.delta.sink import Delta
from penstock.sinks.encoders import Json, Raw, Text
from penstock.sinks.kafka import Delivery, Kafka
from penstock.sinks.kafka_brokers import NewTopic
from penstock.sinks.memory import MemorySink

__all__ = ["Console", "Delivery", "Delta", "Json", "Kafka", "MemorySink", "NewTopic", "Raw", "Text"]

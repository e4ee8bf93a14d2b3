"""A real Kafka on loopback: one broker in KRaft mode, which tests kill, freeze and start again."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.runtime.spark.jars import ensure
from penstock.runtime.spark.java import java_command
from tools import jars
from tools.certificates import Certificates
from tools.hdfs_server import BRIEF_JAVA
from tools.waiting import free_port, until

_FORMATTED = """\
version=1
node.id=1
cluster.id=4L6g3nShT-eMCtK--X86sw
"""
"""What storage has before its first broker; any id of a cluster will do."""
_LOG = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
_SHIPPED_JAVA = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""What Kafka's own start script gives Java."""
_BRISK = {
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "file.delete.delay.ms": 0,
}
"""Retention and compaction are looked after at once, not every five minutes."""
_PATIENCE = 60.0
_SET = AlterConfigOpType.SET
_SILENT = logging.getLogger("tools.kafka_server")
_SILENT.setLevel(logging.CRITICAL + 1)


def _asking_for_passwords(users: Mapping[str, str], listener: str) -> dict[str, str]:
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    modules = "org.apache.kafka.common.security"
    return {
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required {known};",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the broker itself, and who comes by the other port
        "allow.everyone.if.no.acl.found": "true",
    }


class KafkaServer:
    """A broker that keeps its port, a free one unless `port` is given. All that it keeps and says is below `folder`.

    With `users`, names and passwords, there is a second port, `guarded`, for which one needs one of them, by PLAIN or
    by SCRAM-SHA-512. Each of them may do what no rule of access names. With `tls` that port is encrypted, and asks who
    has no password for a certificate. `settings` are further ones of the broker, `java` the options of Java.
    """

    def __init__(
        self, folder: Path, *, port: int | None = None, users: Mapping[str, str] | None = None,
        tls: Certificates | None = None, settings: Mapping[str, Any] | None = None,
        java: Sequence[str] = BRIEF_JAVA,
    ) -> None:  # fmt: skip
        trouble = ensure(jars.KAFKA)
        assert not trouble, trouble
        self.folder = folder
        self._java_options = java
        self._users = users or {}
        self._names = 0
        self._port, self._guarded, controller = port or free_port(), free_port(), free_port()
        self._settings: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            **dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), 1),
            **dict.fromkeys(("offsets.topic.replication.factor", "transaction.state.log.replication.factor"), 1),
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **_BRISK,
        }
        if users is not None or tls is not None:
            protocol = f"{'' if users is None else 'SASL_'}{'PLAINTEXT' if tls is None else 'SSL'}"
            listener = f"listener.name.{protocol.lower()}"
            self._settings["listeners"] += f",{protocol}://{self.guarded}"
            self._settings["advertised.listeners"] += f",{protocol}://{self.guarded}"
            protocols = f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocol}:{protocol}"
            self._settings["listener.security.protocol.map"] = protocols
            if users is not None:
                self._settings |= _asking_for_passwords(users, listener)
            if tls is not None:
                self._settings |= {
                    f"{listener}.ssl.keystore.type": "PEM",
                    f"{listener}.ssl.keystore.location": tls.server_both,
                    f"{listener}.ssl.truststore.type": "PEM",
                    f"{listener}.ssl.truststore.location": tls.authority,
                    f"{listener}.ssl.client.auth": "required" if users is None else "none",
                }
        self._settings |= settings or {}
        self.process: subprocess.Popen[bytes]

    @classmethod
    def as_shipped(cls, folder: Path) -> KafkaServer:
        """Return one that is compiled, collected and cleaned as Kafka comes, for measurements beside it."""
        server = cls(folder, java=_SHIPPED_JAVA)
        for name in _BRISK:
            del server._settings[name]
        return server

    @property
    def address(self) -> str:
        """Return where it answers: host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def guarded(self) -> str:
        """Return where it answers users with a password, or by TLS."""
        return f"127.0.0.1:{self._guarded}"

    def start(self) -> None:
        """Make its storage and start it; returns when it answers. Who calls this must call `end`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self._settings.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        (self.folder / "log4j.properties").write_text(_LOG)
        # As Kafka's StorageTool formats it, which starts Java for these lines.
        (self.folder / "data").mkdir()
        (self.folder / "data" / "meta.properties").write_text(_FORMATTED)
        self.start_broker()
        self.wait()
        until(self._coordinates, "a coordinator of groups")
        self._add_users()

    def start_broker(self) -> None:
        """Start it over what it kept; returns before it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._java("kafka.Kafka"), self._properties], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until it answers."""
        until(self._is_up, f"Kafka to come up; its log is in {self.folder}", seconds=_PATIENCE)

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Stop it in its tracks, connections and all, until `thaw`."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it, if it was started: nothing of it is needed again."""
        if hasattr(self, "process"):
            self.kill()

    def new_name(self) -> str:
        """Return a name that no topic has had."""
        self._names += 1
        return f"topic-{self._names}"

    @cached_property
    def admin(self) -> AdminClient:
        """Return the client that makes and deletes topics: its answers end with it."""
        # It lives on while the broker is away, which it would say on stderr.
        return AdminClient({"bootstrap.servers": self.address}, logger=_SILENT)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; returns when it can be written."""
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config))])
        made[topic].result()
        until(lambda: self._leads(topic, partitions), f"a leader of {topic}")

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when it is gone."""
        self.admin.delete_topics([topic])[topic].result()
        until(lambda: topic not in self.admin.list_topics(timeout=10).topics, f"{topic} to go")

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before an offset, as retention does it."""
        at = TopicPartition(topic, partition, offset)

        # A client that knew the topic before the partition was added finds no leader of it.
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.delete_records([at])[at].result()

    def configure(self, topic: str, **config: str) -> None:
        """Set settings of a topic; returns when the broker says them."""
        entries = [ConfigEntry(name, value, incremental_operation=_SET) for name, value in config.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result()

        def has_them() -> bool:
            asked = ConfigResource(ResourceType.TOPIC, topic)
            there = self.admin.describe_configs([asked])[asked].result()
            return all(there[name].value == value for name, value in config.items())

        until(has_them, f"the settings of {topic}")

    def produce(
        self, topic: str, records: Iterable[bytes | None], partition: int = 0, *,
        settings: Mapping[str, Any] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """Write records to a partition, and wait until all are there; `more` goes to `Producer.produce`.

        `settings` are further ones of the producer.
        """
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5, "acks": "all", **(settings or {})})
        for value in records:
            producer.produce(topic, value=value, partition=partition, **more)
            producer.poll(0)
        assert producer.flush(_PATIENCE) == 0

    def transaction(self, topic: str, records: Iterable[bytes], partition: int = 0, *, commit: bool = True) -> None:
        """Write records in one transaction, and commit or abort it."""
        producer = self.producer(**{"transactional.id": f"test-{topic}"})
        producer.init_transactions(_PATIENCE)
        producer.begin_transaction()
        for value in records:
            producer.produce(topic, value=value, partition=partition)
        producer.flush(_PATIENCE)
        (producer.commit_transaction if commit else producer.abort_transaction)(_PATIENCE)

    def producer(self, **settings: Any) -> Producer:
        """Return a producer."""
        return Producer({"bootstrap.servers": self.address, **settings})

    # --- inside ------------------------------------------------------------------------------
    @property
    def _properties(self) -> str:
        return str(self.folder / "server.properties")

    def _java(self, name: str) -> list[str]:
        logging = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        return [java_command(os.environ) or "java", *self._java_options, logging, "-cp", f"{jars.KAFKA.folder}/*", name]

    def _is_up(self) -> bool:
        assert self.process.poll() is None, f"Kafka ended; see its log in {self.folder}"
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            return bool(self.admin.list_topics(timeout=1).brokers)
        except (OSError, KafkaException):
            return False

    def _add_users(self) -> None:
        """Have the broker keep what SCRAM needs of each user; PLAIN has the passwords in its settings."""
        if not self._users:
            return
        kept = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        made = [UserScramCredentialUpsertion(name, kept, word.encode()) for name, word in self._users.items()]
        for done in self.admin.alter_user_scram_credentials(made).values():
            done.result()

    def _coordinates(self) -> bool:
        """Return whether it answers for groups; the first question makes it create the topic of their offsets."""
        # As a consumer: an AdminClient whose question was too early has crashed when the answer came after all.
        asking = Consumer({"bootstrap.servers": self.address, "group.id": "nobody"}, logger=_SILENT)
        try:
            return all(at.error is None for at in asking.committed([TopicPartition("nothing", 0)], timeout=5))
        except KafkaException:
            return False
        finally:
            asking.close()

    def _leads(self, topic: str, partitions: int) -> bool:
        there: Mapping[int, Any] = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(there) == partitions and all(partition.leader == 1 for partition in there.values())

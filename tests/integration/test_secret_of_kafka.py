"""What a job from a topic into a topic leaves and prints: the password that both get from the environment is nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cli_runner import Shell
from kafka_topics import records_in
from project_samples import JOB, make_project

from tools.kafka_server import KafkaServer

pytestmark = pytest.mark.timeout(900)

PASSWORD = "hush-7-horses"  # noqa: S105 - of a broker of the test
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
INTO_KAFKA = JOB.replace(
    "from penstock import",
    "import os\n\nfrom penstock.sinks import Kafka\nfrom penstock import",
    1,
).replace(
    "    return job",
    f'    options = {LOGIN!r} | {{"sasl.password": os.environ["ORDERS_PASSWORD"]}}\n'
    '    totals.write("topic", Kafka("TOPIC", servers="SERVERS", key="user", options=options))\n'
    "    return job",
)
SOURCE = """
[sources.orders]
kind = "kafka"
topics = ["TOPIC-in"]
servers = "SERVERS"
format = { kind = "json", schema = "user string, t timestamp, v bigint" }

[sources.orders.options]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "ann"
"sasl.password" = "${env:ORDERS_PASSWORD}"

[tables]
totals = "tables/totals"

[spark.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.compress" = "false"
"spark.eventLog.dir" = "file://EVENTS"
"""


@pytest.fixture
def guarded(tmp_path) -> Iterator[KafkaServer]:
    """Return a broker that knows ann by her password."""
    server = KafkaServer(tmp_path / "kafka", users={"ann": PASSWORD})
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.mark.integration
@pytest.mark.sample(seconds=60)
@pytest.mark.fault("F62")
def test_no_file_and_no_output_has_the_password(tmp_path, guarded: KafkaServer, monkeypatch):
    """Of explain, a run, and a run with a wrong password: the checkpoint, Spark's events, and all that they print."""
    topic, root = guarded.new_name(), tmp_path / "project"
    for name in (topic, f"{topic}-in"):
        guarded.create(name)
    rows = [{"user": "ann", "t": f"2024-01-01T00:00:{second:02}Z", "v": second} for second in range(60)]
    rows.append({"user": "ann", "t": "2024-01-01T01:00:00Z", "v": 60})
    guarded.produce(f"{topic}-in", [json.dumps(row).encode() for row in rows])
    (root / "events").mkdir(parents=True)
    shell = Shell(make_project(root, job=INTO_KAFKA.replace("TOPIC", topic).replace("SERVERS", guarded.guarded)))
    toml = SOURCE.replace("TOPIC", topic).replace("SERVERS", guarded.guarded).replace("EVENTS", str(root / "events"))
    (root / "conf" / "jobs" / "orders.toml").write_text(toml)
    monkeypatch.setenv("ORDERS_PASSWORD", PASSWORD)
    try:
        printed = [shell.run("explain", "orders"), shell.run("run", "orders", "--available-now", java=True)]
        assert [code for code, _, _ in printed] == [0, 0], printed
        monkeypatch.setenv("ORDERS_PASSWORD", f"not-{PASSWORD}")
        printed.append(shell.run("run", "orders", "--available-now", "--debug"))
        assert (printed[-1][0], "PEN-SRC-013" in printed[-1][2]) == (78, True), printed[-1]
    finally:
        shell.end()
    (record,) = records_in(guarded.address, topic)
    assert json.loads(record.value or b"")["total"] == sum(range(60))

    assert not [text for _, out, err in printed for text in (out, err) if PASSWORD in text]
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_relative_to(root / ".jars")]
    assert {"checkpoints", "events", "tables", "jobs"} <= {path.relative_to(root).parts[0] for path in files}
    contents = {path: path.read_bytes() for path in files}
    assert any(b"SparkListenerJobStart" in content for content in contents.values())
    assert not [path for path, content in contents.items() if PASSWORD.encode() in content]

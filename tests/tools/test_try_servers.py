"""`make try-servers`: a broker and a database that answer where it says, and that are gone afterwards."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from cli_runner import PATIENCE
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parents[2]


def start(*words: str) -> subprocess.Popen[str]:
    """Start it."""
    command = [sys.executable, "-m", "tools.try_servers", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.sample(seconds=15)
def test_both_answer_where_it_says_until_it_is_interrupted() -> None:
    """With the topics that were asked for."""
    servers = start("readings:3", "plain")
    assert servers.stdout is not None
    said = ""
    while "Ctrl-C" not in said:
        line = servers.stdout.readline()
        assert line, said
        said += line
    address, dsn = re.findall(r"^(?:Kafka|PostgreSQL) +(\S+)$", said, re.MULTILINE)
    assert "readings, 3 partitions" in said
    assert "plain, 1 partition\n" in said
    broker = AdminClient({"bootstrap.servers": address})
    there = broker.list_topics(timeout=10).topics
    assert {name: len(there[name].partitions) for name in ("readings", "plain")} == {"readings": 3, "plain": 1}
    with psycopg.connect(dsn) as database:
        assert database.execute("SELECT 1").fetchall() == [(1,)]
    servers.send_signal(signal.SIGINT)
    _, errors = servers.communicate(timeout=PATIENCE)
    assert (servers.returncode, errors) == (0, "")
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=2)


@pytest.mark.parametrize("word", [":3", "a:0", "a:many", "a:-1"])
def test_words_that_are_no_topics_are_refused(word: str) -> None:
    """Before anything starts."""
    refused = start(word)
    _, errors = refused.communicate(timeout=PATIENCE)
    assert (refused.returncode, errors) == (2, f"{word!r} is no topic: write NAME or NAME:PARTITIONS\n")

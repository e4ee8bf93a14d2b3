"""kill -9 for real of drivers that read Kafka and write into it: each dies at a point of its own, and no row is doubled.

The job is that of `killed_job`, with a topic for its input, and one beside its tables.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import killed_job
import pytest
from kafka_topics import records_in
from test_kill import finished, rows, run

from penstock.runtime.driver.stages import Stage

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = [
    ("Compute", "after", 1),
    ("CommitBatch", "after", 2),
    ("PublishSinks", "published raw", 3),
    ("PublishSinks", "published topic", 4),
]


def give(kafka: Any, folder: Path, topic: str, rows: int = killed_job.ROWS) -> None:
    """Write the rows of a job into a topic of their own, which it reads, and make the one that it writes."""
    killed_job.make_input(folder, rows)
    for name in (f"{topic}-in", topic):
        kafka.create(name)
    kafka.produce(f"{topic}-in", killed_job.records(folder))
    (folder / "kafka").write_text(f"{kafka.address} {topic}-in {topic}")


@pytest.mark.sample(seconds=90)
@pytest.mark.fault("F01", "F54", "F55")
def test_each_row_is_in_the_topic_once(kafka: Any, tmp_path: Path, spark: Any) -> None:
    """As in the table beside it; each batch has its rows, and the batches come in their order."""
    topic = f"killed-{secrets.token_hex(4)}"
    give(kafka, tmp_path, topic)
    for kill in KILLS:
        run(tmp_path, *kill)
    assert finished(tmp_path, spark)
    records = records_in(kafka.address, topic)
    ids = [json.loads(record.value or b"")["id"] for record in records]
    assert Counter(ids) == Counter(range(killed_job.ROWS))
    assert rows(tmp_path / "raw").total() == killed_job.ROWS
    batches = [int(record.headers["penstock-batch"]) for record in records]
    assert batches == sorted(batches)
    assert [id_ // killed_job.A_BATCH for id_ in ids] == batches


MANY = 400


@pytest.mark.soak
@pytest.mark.fault("F01", "F54", "F55")
def test_a_driver_may_die_at_every_hook(kafka: Any, tmp_path: Path, spark: Any) -> None:
    """At each of a start and of a batch, one driver after the other, as a run that nobody kills passes them."""
    topics = {name: f"killed-{name}-{secrets.token_hex(4)}" for name in ("whole", "killed")}
    whole, killed = (tmp_path / name for name in topics)
    for folder in (whole, killed):
        give(kafka, folder, topics[folder.name], MANY)
    passed = dict.fromkeys((hook.stage, hook.when) for hook in killed_job.hooks(whole, spark))
    kills = [hook for hook in passed if hook[0] != "Release"]
    assert {stage for stage, _ in kills} >= {stage.value[0] for stage in Stage}
    assert len(kills) < MANY // killed_job.A_BATCH
    for batch, (stage, when) in enumerate(kills):
        run(killed, stage, when, batch)
    assert finished(killed, spark)
    for sink in killed_job.SINKS:
        assert rows(killed / sink) == rows(whole / sink)
    for topic in topics.values():
        records = records_in(kafka.address, topic)
        assert Counter(json.loads(record.value or b"")["id"] for record in records) == Counter(range(MANY))

"""The page on migration from DStreams names what is there, and its examples do what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.sources import Json, Kafka
from tools.doc_blocks import python_blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "migration.md").read_text("utf-8")
REFERENCE = "".join((DOCS / f"{name}.md").read_text("utf-8") for name in ("api", "configuration", "commands"))
"""Pages that other tests compare with the code."""
OF_THE_EXAMPLES = {"amount", "dataframe", "late", "name", "orders", "total", "v"}


def example(name: str) -> Any:
    """Return a function of the page by its name, from a block that needs no other."""
    (code,) = [block.code for block in python_blocks(PAGE) if f"def {name}(" in block.code]
    namespace: dict[str, Any] = {}
    exec(compile(code, "migration.md", "exec", dont_inherit=True), namespace)  # noqa: S102 - the point of this test
    return namespace[name]


def names_of_penstock() -> list[str]:
    """Return the names in code of the last column of each table, without texts in quotes."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| --", "| DStreams"))]
    spans = [span for row in rows for span in re.findall(r"`([^`]+)`", row.split(" | ")[-1])]
    bare = [re.sub(r'"[^"]*"', "", span) for span in spans]
    return sorted({word for span in bare for word in re.findall(r"[A-Za-z_]{2,}", span)} - OF_THE_EXAMPLES)


def test_each_name_that_replaces_one_of_dstreams_is_in_the_reference() -> None:
    """Of the API, the keys of files, and the commands."""
    names = names_of_penstock()
    assert {"update_state_by_key", "max_rate_per_partition", "initial_rate", "Sliding", "drain"} <= {*names}
    assert [name for name in names if not re.search(rf"\b{name}\b", REFERENCE)] == []


def test_the_job_beside_that_of_dstreams_is_whole() -> None:
    """Its graph is what `penstock run` begins with."""
    graph = example("build")(None).graph()
    assert sorted(node.name for node in graph.sinks) == ["bad", "hourly_amounts", "late"]


@pytest.mark.integration
def test_a_job_begins_at_the_offsets_that_the_old_one_has_committed(kafka: Any, topic: str) -> None:
    """The function of the page gives those of a real group, and `start=` takes them; a new partition is left out."""
    kafka.create(topic, 2)
    kafka.produce(topic, [b"{}"] * 5)
    old = Consumer({"bootstrap.servers": kafka.address, "group.id": f"old-{topic}"})
    old.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    old.close()
    offsets = example("offsets_of")(f"old-{topic}", topic, kafka.address)
    assert offsets == {(topic, 0): 3}
    assert Kafka([topic], servers=kafka.address, format=Json("v long"), start=offsets).start == offsets

"""The page for people of other systems names what is there, for each of the five systems of issue 20."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "other-systems.md").read_text("utf-8")
PAGES = ("api", "configuration", "commands", "checkpoints", "supervision", "rates")
REFERENCE = "".join((DOCS / f"{name}.md").read_text("utf-8") for name in PAGES)
"""Pages that other tests compare with the code, and those of operation."""
OF_THE_EXAMPLES = {"explode", "obj"}
"""A function of SQL, and a name of the user's."""


def rows_of(system: str) -> list[list[str]]:
    """Return the cells of the table of a system: its word, ours, and what differs."""
    section = PAGE.split(f"\n## {system}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def names_in(cell: str) -> set[str]:
    """Return the names in code of a cell, without texts in quotes."""
    spans = (re.sub(r"\"[^\"]*\"|'[^']*'", "", span) for span in re.findall(r"`([^`]+)`", cell))
    return {word for span in spans for word in re.findall(r"[A-Za-z_]{2,}", span)} - OF_THE_EXAMPLES


@pytest.mark.parametrize("system", ["Spark DStreams", "Spark Structured Streaming", "Storm", "Flink", "Kafka Streams"])
def test_each_name_that_replaces_one_of_another_system_is_in_the_reference(system: str) -> None:
    """Issue 20.9: their word, ours, and what differs; ours is a name of the API, of files or of commands."""
    rows = rows_of(system)
    assert len(rows) >= 8
    assert {len(row) for row in rows} == {3}
    assert [row for row in rows if not row[0] or not (row[1] or row[2])] == []
    names = {name for row in rows for name in names_in(row[1])}
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", REFERENCE)) == []

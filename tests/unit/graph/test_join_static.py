"""What a graph knows of a join with a table, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import EveryBatches, Job, OnNewVersion
from penstock.errors import BadName, DuplicateName, JobError
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import MemorySource


def _prices() -> None:
    """Stand for a function that returns a DataFrame."""


def stream() -> Stream:
    """Return a stream of a new job."""
    return Job("priced").source("rows", MemorySource("id string, n long"))


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("tables/prices", "prices"),
        (Path("tables") / "Prices 2026", "prices_2026"),
        ("webhdfs://host:9870/prices/", "prices"),
        (_prices, "prices"),
    ],
    ids=["path", "Path", "url", "function"],
)
def test_a_join_is_named_after_its_table(table: Any, named: str) -> None:
    """The last part of a path, or the function; another name is given by name=."""
    rows = stream()
    rows.join_static(table, on=["id"], refresh=EveryBatches(10)).write("out", MemorySink())
    rows.join_static(table, on=["id"], how="left", refresh=OnNewVersion(), name="again").write("more", MemorySink())
    first, second = rows._job.graph().static_joins
    assert (first.name, first.settings()["refresh"]) == (named, "the newest version every 10 batches")
    assert (second.name, second.settings()["how"], second.counted_as) == ("again", "left", "join_static:again")
    with pytest.raises(DuplicateName, match="already the name"):
        rows.join_static(table, on=["id"])


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"table": None}, JobError, "give a path, or a function"),
        ({"table": ""}, JobError, "give a path, or a function"),
        ({"on": "id"}, JobError, "not a list of columns"),
        ({"on": ["id", "id"]}, DuplicateName, "twice"),
        ({"how": "right"}, JobError, "write 'inner' or 'left'"),
        ({"refresh": 10}, JobError, "EveryBatches"),
        ({"table": "tables/7"}, BadName, "named '7'"),
        ({"name": "Prices"}, BadName, "named 'Prices'"),
    ],
    ids=["no table", "no path", "a text", "twice", "a kind", "a number", "a name of digits", "upper case"],
)
def test_unfit_arguments_are_refused(given: dict[str, Any], error: type[JobError], words: str) -> None:
    """At once, at the user's line."""
    arguments = {"table": "tables/prices", "on": ["id"], **given}
    with pytest.raises(error, match=words) as met:
        stream().join_static(**arguments)
    assert __file__ in str(met.value.where)

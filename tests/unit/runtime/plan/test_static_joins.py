"""A join with a table refuses keys and columns that do not fit, by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import Job
from penstock.errors import JobError, TableUnfit, UnknownName
from penstock.graph.join_static import StaticJoinNode
from penstock.runtime.plan.static_joins import refuse_unfit
from penstock.sinks import MemorySink
from penstock.sources import MemorySource

STREAM = pa.schema([("id", pa.string()), ("n", pa.int64())])


def node(*keys: str) -> StaticJoinNode:
    """Return the step of a job."""
    job = Job("priced")
    rows = job.source("rows", MemorySource("id string, n long"))
    rows.join_static("prices", on=list(keys)).write("out", MemorySink())
    return job.graph().static_joins[0]


@pytest.mark.parametrize(
    ("keys", "table", "error", "words"),
    [
        (["x"], {"x": pa.int64()}, UnknownName, "'x'; the stream has"),
        (["id"], {"x": pa.int64()}, TableUnfit, "has no column 'id'; it has x"),
        (["id"], {"id": pa.int64()}, TableUnfit, "is string in the stream and int64 in the table"),
        (["id"], {"id": pa.string(), "N": pa.int64()}, TableUnfit, "both have a column 'N'"),
    ],
    ids=["no key of the stream", "no key of the table", "another type", "a name of both"],
)
def test_what_does_not_fit_is_refused(
    keys: list[str], table: dict[str, pa.DataType], error: type[JobError], words: str
) -> None:
    """Names are compared as Spark compares them."""
    with pytest.raises(error, match=words):
        refuse_unfit(node(*keys), STREAM, pa.schema(table.items()))


def test_keys_of_equal_types_fit() -> None:
    """With other columns of the table beside them."""
    refuse_unfit(node("id", "n"), STREAM, pa.schema([*STREAM, ("price", pa.int64())]))

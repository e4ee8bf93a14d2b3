"""A function over tables is refused where it cannot be one, and where event time behind it is unknown."""

import pytest

from penstock import Job, agg, seconds
from penstock.errors import BadExpression, BadName, DuplicateName, JobError, NoEventTime, PenstockError
from penstock.graph.graph import JobGraph
from penstock.graph.map_batches import MapBatchesNode
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.windows import Tumbling


def stream(job: Job):
    return job.source("orders", MemorySource("k string, t timestamp"), event_time="t", max_out_of_order=seconds(0))


def same(table, info):
    return table


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("m", "same", {"output": "k string"}), JobError),
        (("m", same, {"output": ""}), BadExpression),
        (("m", same, {"output": None}), BadExpression),
        (("m", same, {"output": "k string", "same_rows": 1}), JobError),
        (("M", same, {"output": "k string"}), BadName),
        (("orders", same, {"output": "k string"}), DuplicateName),
    ],
)
def test_what_is_no_function_over_tables_is_refused_at_its_line(arguments, error: type[PenstockError]) -> None:
    """When the job is written."""
    name, fn, more = arguments
    with pytest.raises(error) as refused:
        stream(Job("j")).map_batches(name, fn, **more)
    assert type(refused.value) is error
    assert str(refused.value.where).startswith(__file__)


def test_a_window_needs_the_event_time_of_rows_that_a_function_made() -> None:
    """SEMANTICS 7.1: refused unless the function returns a row for each row; then each keeps its own."""

    def built(*, same_rows: bool) -> JobGraph:
        job = Job("j")
        rows = stream(job).map_batches("m", same, output="k string", same_rows=same_rows)
        window = rows.filter("k > 'a'").key_by("k").window("w", Tumbling(seconds(5)).drop_late())
        window.aggregate(n=agg.count()).write("out", MemorySink())
        return job.graph()

    with pytest.raises(NoEventTime, match="map_batches 'm' at .*test_map_batches"):
        built(same_rows=False)
    (function,) = built(same_rows=True).functions
    assert isinstance(function, MapBatchesNode)
    assert function.counted_as == "map_batches:m"

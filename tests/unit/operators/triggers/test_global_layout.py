"""Which changes of a job the state of global windows takes, and which names it keeps for itself (SEMANTICS 6, 10.1)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock import agg
from penstock.errors import JobError
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.triggers.global_layout import GlobalLayout

KEYS = pa.schema([("k", pa.string())])
ROWS = GlobalLayout(
    keys=KEYS,
    trigger="AfterCount(3)",
    columns=pa.schema([("n", pa.int32())]),
    inputs={"n + 1": pa.int32()},
    plan=None,
    merged=False,
)
PLAN = AggregatePlan.build({"n": agg.count()}, {"n": None})
SUMS = AggregatePlan.build({"n": agg.sum("n")}, {"n": pa.int64()})
MERGED = replace(ROWS, columns=pa.schema([]), inputs={}, plan=PLAN, merged=True)
STORED = pa.schema([("k", pa.string()), ("_row", pa.int64()), ("n", pa.int32()), ("_input_0", pa.int32())])


@pytest.mark.parametrize(
    ("now", "accepted"),
    [
        pytest.param(ROWS, "", id="nothing"),
        pytest.param(replace(ROWS, trigger="AfterCount(4)"), "the trigger was AfterCount(3)", id="another trigger"),
        pytest.param(replace(ROWS, columns=pa.schema([("n", pa.int64())])), "is wider", id="a wider column"),
        pytest.param(
            replace(ROWS, columns=pa.schema([("n", pa.int32()), ("m", pa.int32())])),
            "m int32 is new",
            id="a new column",
        ),
    ],
)
def test_a_job_resumes_with_another_trigger_and_with_more_columns(now: GlobalLayout, accepted: str) -> None:
    """The differences are said."""
    evolution = now.evolved(ROWS.layout_name, STORED)
    assert evolution.refused == ()
    assert accepted in " ".join(evolution.accepted)
    assert bool(evolution.accepted) is bool(accepted)


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        pytest.param(ROWS, replace(ROWS, keys=pa.schema([("k", pa.int64())])), "its keys were k string", id="keys"),
        pytest.param(ROWS, replace(ROWS, inputs={"n + 2": pa.int32()}), "its inputs were n + 1 int32", id="inputs"),
        pytest.param(ROWS, replace(ROWS, columns=pa.schema([])), "column n int32 is gone", id="a column that is gone"),
        pytest.param(ROWS, MERGED, "its keeps were rows and are partials", id="partials in the place of rows"),
        pytest.param(MERGED, replace(MERGED, plan=SUMS), "its partials were", id="other aggregates"),
    ],
)
def test_what_the_state_lacks_is_refused(before: GlobalLayout, now: GlobalLayout, why: str) -> None:
    """Each with both sides."""
    refused = " ".join(now.evolved(before.layout_name, STORED).refused)
    assert why in refused


def test_state_of_another_step_is_refused() -> None:
    """A layout that is none of a global window."""
    assert ROWS.evolved("[k string] event time of the first row", STORED).refused


@pytest.mark.parametrize("name", ["_held", "_row", "_Expires", "_input_0", "_trigger"])
def test_names_of_the_state_are_taken(name: str) -> None:
    """As keys and as columns."""
    with pytest.raises(JobError, match="rename it"):
        replace(ROWS, columns=pa.schema([(name, pa.int64())])).check("window 'w'")
    with pytest.raises(JobError, match="rename it"):
        replace(ROWS, keys=pa.schema([(name, pa.int64())])).check("window 'w'")
    ROWS.check("window 'w'")


def test_the_table_has_keys_and_rows_and_moments_for_people() -> None:
    """`_expires` is a timestamp there."""
    assert ROWS.table.field("_expires").type == pa.timestamp("us", tz="UTC")
    assert {"_held", "_row", "_event_time", "n", "_input_0"} <= {*ROWS.table.names}
    assert "_row" not in MERGED.table.names
    assert "_rows" in MERGED.table.names

"""Partials as tables: what merging gives does not depend on how rows are spread over tables (DESIGN 7)."""

from __future__ import annotations

import importlib

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg
from penstock.operators.aggregates import AggregatePlan
from penstock.operators.windows.partials import PartialLayout

PARTIALS = importlib.import_module("penstock.operators.windows.partials")
PLAN = AggregatePlan.build({"n": agg.count(), "total": agg.sum("v")}, {"total": pa.int64()})
LAYOUT = PartialLayout(plan=PLAN, keys=pa.schema([("k", pa.string())]))
ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd")), max_size=8)
"""Slice and key; keys of different texts may share a hash, which is the length of this one."""
HASHES = {"a": 3, "b": -1, "c": 3, "d": 7}


ORDER = [("_group", "ascending"), ("_hash", "ascending"), ("k", "ascending")]
"""Keys that share slice and hash stand in any order."""


def table(rows: list[tuple[int, str]]) -> pa.Table:
    """Return partials of one input row each."""
    columns: dict[str, list] = {field.name: [1] * len(rows) for field in LAYOUT.schema}
    columns |= {"_group": [at for at, _ in rows], "_hash": [HASHES[key] for _, key in rows], "k": [k for _, k in rows]}
    columns["_carry_v"] = [0] * len(rows)
    return pa.table(columns, schema=LAYOUT.schema)


@settings(max_examples=examples(60))
@given(st.lists(ROWS, max_size=4), st.booleans())
def test_tables_that_lie_one_behind_another_are_put_together_as_others_are_merged(drawn, in_order):
    """DESIGN 7: one row a slice and key, sorted by slice, then hash, also where nothing was to be merged."""
    if in_order:
        places = sorted({row for rows in drawn for row in rows}, key=lambda row: (row[0], HASHES[row[1]]))
        drawn = [[row for row in places if row[0] // 2 == pair] for pair in (2, 0, 1)]
    tables = [table(rows) for rows in drawn]
    with pytest.MonkeyPatch.context() as merging:
        merging.setattr(PARTIALS, "_in_order", lambda tables: None)
        expected = LAYOUT.combine(tables)
    assert LAYOUT.combine(tables).sort_by(ORDER).equals(expected.sort_by(ORDER))
    assert LAYOUT.combine(tables).drop_columns(["k"]).equals(expected.drop_columns(["k"]))


def test_one_table_in_order_is_not_copied():
    """DESIGN 12, P11: the rows of a batch that one task has put together are taken as they are."""
    rows = table([(0, "b"), (0, "a"), (1, "d")])
    taken, given_rows = (t.column("_group").chunk(0).buffers()[1].address for t in (LAYOUT.combine([rows]), rows))
    assert taken == given_rows

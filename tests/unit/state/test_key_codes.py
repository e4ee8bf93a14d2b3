"""Items of key columns have one number exactly if they are the same key (SEMANTICS 3.4)."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.compaction import latest
from penstock.state.key_codes import key_codes
from penstock.state.keys import canonical
from penstock.state.row_layout import GROUP, HASH

FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
NAMES = st.none() | st.sampled_from(["", "a", "b"])
KINDS = {
    "double": (pa.float64(), FLOATS),
    "string": (pa.string(), NAMES),
    "decimal": (pa.decimal128(5, 2), st.none() | st.decimals(-9, 9, places=2)),
    "null": (pa.null(), st.none()),
    "struct": (
        pa.struct({"x": pa.float64(), "name": pa.string()}),
        st.none() | st.fixed_dictionaries({"x": FLOATS, "name": NAMES}),
    ),
    "list": (pa.list_(pa.float64()), st.none() | st.lists(FLOATS, max_size=2)),
    "map": (pa.map_(pa.string(), pa.int64()), st.none() | st.lists(st.tuples(st.just("a"), st.integers(0, 1)))),
}


@pytest.mark.parametrize("kind", KINDS)
@given(draw=st.data())
def test_equal_keys_have_one_number(kind: str, draw: st.DataObject) -> None:
    """Nulls are equal, NaN is, and both zeros are one, also inside of lists and structs."""
    type_, values = KINDS[kind]
    items = draw.draw(st.lists(values, min_size=1, max_size=8))
    column = pa.array(items, type_)
    codes, keys_of = key_codes(column).tolist(), [canonical(item) for item in column.to_pylist()]
    same = [[a == b for b in keys_of] for a in keys_of]
    assert same == [[a == b for b in codes] for a in codes]


@given(
    tables=st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), NAMES, FLOATS), max_size=6, unique_by=repr), max_size=4
    )
)
def test_the_newest_row_of_each_key_stays_where_keys_share_a_hash(
    tables: list[list[tuple[int, int, str | None, float | None]]],
) -> None:
    """A merge keeps one row a group and key, that of the newest table."""
    newest: dict[object, int] = {}
    made = []
    for number, rows in enumerate([[(0, 0, "a", 0.0)], *tables]):
        once = {canonical(row): row for row in rows}
        ordered = sorted(once.values(), key=lambda row: row[:2])
        newest |= {canonical(row): number for row in ordered}
        groups, hashes, names, scores = zip(*ordered, strict=True) if ordered else ((), (), (), ())
        made.append(
            pa.table(
                {
                    GROUP: pa.array(groups, pa.int64()),
                    HASH: pa.array(hashes, pa.int64()),
                    "name": pa.array(names, pa.string()),
                    "score": pa.array(scores, pa.float64()),
                    "number": pa.array([number] * len(ordered), pa.int64()),
                }
            )
        )
    merged = latest(made, ["name", "score"], drop_deleted=False).to_pylist()
    assert {canonical((r[GROUP], r[HASH], r["name"], r["score"])): r["number"] for r in merged} == newest
    assert len(merged) == len(newest)


def test_many_rows_that_share_a_hash_are_merged_together() -> None:
    """No row of 100,000 becomes a Python object: those of one key and slice of an outer join differ by position only."""
    rows = 100_000
    table = pa.table(
        {
            GROUP: pa.array(np.zeros(rows, dtype=np.int64)),
            HASH: pa.array(np.full(rows, 7)),
            "k": pa.array(["one"] * rows),
            "position": pa.array(np.arange(rows)),
        }
    )
    by_row = mock.Mock(side_effect=AssertionError("a row at a time"))
    with mock.patch("penstock.state.keys.canonical", by_row), mock.patch("penstock.state.key_codes.canonical", by_row):
        merged = latest([table, table], ["k", "position"], drop_deleted=False)
    assert merged["position"].to_pylist() == list(range(rows))

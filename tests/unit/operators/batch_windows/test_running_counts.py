"""Counts of windows by what enters and leaves (SEMANTICS 4.4)."""

from __future__ import annotations

import pyarrow as pa

from penstock import micros
from penstock.graph.batch_window import BatchWindow
from penstock.operators.batch_windows.batch_sides import CountSide
from penstock.operators.batch_windows.running_counts import CountForm

WINDOW = BatchWindow(micros(2))


def counts(**of: int) -> pa.Table:
    """Return stored counts of keys, whose hash is that of their first letter."""
    return pa.table(
        {
            "_hash": pa.array([ord(key) for key in of], pa.int64()),
            "k": pa.array([*of], pa.string()),
            "_rows": pa.array(list(of.values()), pa.int64()),
        }
    )


def test_a_key_without_rows_goes_and_the_others_add_up() -> None:
    """4.4: as countByValueAndWindow, which filters counts of 0."""
    form = CountForm(
        side=CountSide(window=WINDOW, keys=pa.schema([("k", pa.string())]), values=pa.schema([]), expression=None)
    )
    held, made = form.moved(counts(a=3, b=1), counts(a=1, b=1), counts(c=2))
    assert made.rows.to_pylist() == [{"k": "a", "count": 2}, {"k": "c", "count": 2}]
    assert made.hashes.tolist() == [97, 99]
    assert held["_rows"].to_pylist() == [2, 2]
    assert not form.stays


def test_the_count_of_a_stream_without_keys_stays_at_0() -> None:
    """4.4: as countByWindow, whose one key is never filtered."""
    side = CountSide(window=WINDOW, keys=pa.schema([]), values=pa.schema([]), expression=None)
    form = CountForm(side=side)
    one = pa.table({"_hash": pa.array([7], pa.int64()), "_rows": pa.array([2], pa.int64())})
    held, made = form.moved(one, one, one.slice(0, 0))
    assert (made.rows.to_pylist(), held["_rows"].to_pylist(), form.stays) == ([{"count": 0}], [0], True)

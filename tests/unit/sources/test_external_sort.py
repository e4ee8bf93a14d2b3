"""More rows than memory holds are sorted as all at once would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.sources.external_sort import ROW, externally_sorted, pieces

KEYS = st.one_of(st.none(), st.integers(-3, 3), st.just(2**62))


def parts_of(keys: list[int | None], size: int) -> Iterator[pa.Table]:
    """Yield rows of these keys, so many a table, numbered."""
    for first in range(0, max(len(keys), 1), size):
        part = keys[first : first + size]
        yield pa.table({"k": pa.array(part, pa.int64()), ROW: pa.array(range(first, first + len(part)), pa.int64())})


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(KEYS, max_size=60),
    size=st.integers(1, 20),
    most=st.integers(1, 400),
    batch=st.integers(1, 9),
    ordered=st.booleans(),
)
def test_runs_are_merged_to_what_one_sort_gives(
    keys: list[int | None], size: int, most: int, batch: int, tmp_path: Path, *, ordered: bool
) -> None:
    """FileReplay: ties keep the order of the file's rows, nulls come last; nothing is left in the folder."""
    keys = sorted(keys, key=lambda k: (k is None, k or 0)) if ordered else keys
    numbered = [table.append_column("n", table[ROW]) for table in parts_of(keys, size)]
    ordered_tables = list(externally_sorted(numbered, lambda part: part["k"], tmp_path, most=most, batch=batch))
    rows = [
        (k, n) for table in ordered_tables for k, n in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True)
    ]
    assert rows == sorted(
        zip(keys, range(len(keys)), strict=True), key=lambda row: (row[0] is None, row[0] or 0, row[1])
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
def test_the_rows_of_a_large_file_are_never_in_memory_at_once(tmp_path: Path, *, ordered: bool) -> None:
    """A5: what Arrow holds stays near the bound, whatever the number of rows."""
    count, size = 400_000, 20_000
    text = "x" * 90

    def parts() -> Iterator[pa.Table]:
        for first in range(0, count, size):
            numbers = range(first, first + size)
            keys = numbers if ordered else [(n * 7_919) % count for n in numbers]
            yield pa.table({"k": pa.array(keys, pa.int64()), "s": [text] * size, ROW: pa.array(numbers, pa.int64())})

    before, most, rows, last = pa.total_allocated_bytes(), 0, 0, -1
    for table in pieces(externally_sorted(parts(), lambda part: part["k"], tmp_path, most=2**21, batch=1_024), 5_000):
        assert table.num_rows == 5_000
        assert table["k"][0].as_py() == last + 1
        rows, last = rows + table.num_rows, table["k"][-1].as_py()
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == count
    assert most < count * len(text) / 2


@given(sizes=st.lists(st.integers(0, 7), max_size=12), rows=st.integers(1, 5))
def test_pieces_have_as_many_rows_as_they_are_to(sizes: list[int], rows: int) -> None:
    """All but the last; none is empty."""
    numbers = iter(range(100))
    tables = [pa.table({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    cut = [table["n"].to_pylist() for table in pieces(tables, rows)]
    assert [n for piece in cut for n in piece] == list(range(sum(sizes)))
    assert all(len(piece) == rows for piece in cut[:-1])
    assert all(cut)

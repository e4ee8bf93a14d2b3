"""Matches of a row stand where the row stood, and every row is accounted for (SEMANTICS 1.6, 2.10)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.graph.join_arguments import JoinKind
from penstock.operators.protocol import TIME
from penstock.operators.static_index import StaticIndex
from penstock.runtime.tasks import static_rows
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.runtime.tasks.static_rows import StaticRows, joined, table_of
from penstock.sources.base import PARTITION, POSITION
from penstock.time.arrival import ARRIVAL

VISIBLE = pa.schema([("id", pa.string()), ("n", pa.int64())])
TABLE = pa.schema([("id", pa.string()), ("price", pa.int64())])
HIDDEN = pa.schema(
    [
        (TIME, pa.int64()),
        (ROW_STATUS, pa.int32()),
        (PARTITION, pa.int32()),
        (POSITION, pa.int64()),
        (ARRIVAL, pa.binary()),
    ]
)


def step(how: JoinKind) -> StaticRows:
    """Return the second step of a branch that takes rows."""
    return StaticRows(
        name="prices", keys=("id",), visible=VISIBLE, table=TABLE, how=how, hidden=HIDDEN, place=0, taken=2
    )


def rows(*given: tuple[str | None, int]) -> pa.Table:
    """Return rows of key and status, at their positions."""
    n = len(given)
    return pa.table(
        {
            "id": pa.array([key for key, _ in given], pa.string()),
            "n": pa.array(range(n), pa.int64()),
            TIME: pa.array(range(100, 100 + n), pa.int64()),
            ROW_STATUS: pa.array([status for _, status in given], pa.int32()),
            PARTITION: pa.array([0] * n, pa.int32()),
            POSITION: pa.array(range(n), pa.int64()),
        }
    )


def table(*prices: tuple[str | None, int]) -> StaticIndex:
    """Return a table of prices."""
    columns = [pa.array([key for key, _ in prices], pa.string()), pa.array([p for _, p in prices], pa.int64())]
    return StaticIndex(pa.table(columns, schema=TABLE), ["id"])


@pytest.mark.parametrize("how", [*JoinKind])
def test_every_row_is_taken_and_its_matches_are_made(how: JoinKind) -> None:
    """Rows that a filter has dropped, or that are in quarantine, are not seen."""
    made = pa.concat_tables(
        joined(
            step(how), rows(("a", 0), ("b", 1), ("c", 0), (None, 0), ("a", -1)), table(("a", 1), ("a", 2), (None, 3))
        )
    )
    assert made.schema == pa.schema([*VISIBLE, ("price", pa.int64()), *HIDDEN])
    statuses = made[ROW_STATUS].to_pylist()
    assert sorted(status for status in statuses if status) == [-1, 1, 2, 2, 2]
    alive = [(row["n"], row["price"], row[TIME]) for row in made.to_pylist() if row[ROW_STATUS] == 0]
    alone = [] if how is JoinKind.INNER else [(2, None, 102), (3, None, 103)]
    assert alive == [(0, 1, 100), (0, 2, 100), *alone]
    assert all(row["price"] is None and row["id"] is None for row in made.to_pylist() if row[ROW_STATUS])


def test_matches_of_a_row_sort_between_the_rows_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes, also where they come in several pieces and are more than one number tells apart."""
    from penstock.operators import static_index

    monkeypatch.setattr(static_index, "_MOST_BYTES", 100)
    monkeypatch.setattr(static_rows, "_WAYS", 3)
    prices = [("a", n) for n in range(8)]
    made = list(joined(step(JoinKind.LEFT), rows(("b", 0), ("a", 0), ("c", 0), ("a", 0)), table(*prices)))
    assert len(made) > 4
    alive = [row for row in pa.concat_tables(made).to_pylist() if row[ROW_STATUS] == 0]
    alive.sort(key=lambda row: row[ARRIVAL])
    assert [(row["n"], row["price"]) for row in alive] == [
        (0, None),
        *((1, n) for n in range(8)),
        (2, None),
        *((3, n) for n in range(8)),
    ]
    assert len({row[ARRIVAL] for row in alive}) == len(alive)


def test_a_worker_reads_a_version_once(tmp_path: Path) -> None:
    """And a column that the version lacks is null."""
    old = pa.table({"id": ["a"]})
    with pa.ipc.new_file(str(tmp_path / "prices-1.arrow"), old.schema) as writer:
        writer.write_table(old)
    index = table_of(str(tmp_path / "prices-1.arrow"), step(JoinKind.LEFT))
    assert index.table.to_pylist() == [{"id": "a", "price": None}]
    assert table_of(str(tmp_path / "prices-1.arrow"), step(JoinKind.LEFT)) is index

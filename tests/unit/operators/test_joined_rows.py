"""What joins of two streams keep and count of their rows (SEMANTICS 2.10, 7.6)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import JobError, StateError
from penstock.operators.joined_rows import KEPT, JoinedRows, JoinedSide, refuse_shared_columns, refuse_taken_columns
from penstock.operators.protocol import HASHED, TIME, BoundSide, RowsOfBranch, Send, StepFacts, Tally
from penstock.operators.whole_rows import WholeRows
from penstock.sources.base import PARTITION, POSITION

KEYS = pa.schema([("k", pa.string())])


class Joined(JoinedRows):
    """A join that keeps rows, and does nothing else."""

    def __init__(self, left: str, right: str) -> None:
        self.name = "s"
        self.inputs = tuple(
            WholeRows(visible=pa.schema([*KEYS, (name, pa.int64())]), keys=KEYS) for name in (left, right)
        )


def sent(rows: list[tuple[str | None, int]], *, keeps: bool, late: int | None) -> tuple[list[Any], dict[str, int]]:
    """Return the keys that the left side sends of rows of key and time, and what it counts."""
    side = JoinedSide(visible=pa.schema([*KEYS, ("x", pa.int64())]), keys=KEYS, side="left", keeps_null_keys=keeps)
    n = len(rows)
    table = pa.table(
        {
            "k": pa.array([key for key, _ in rows], pa.string()),
            "x": pa.array(range(n), pa.int64()),
            TIME: pa.array([time for _, time in rows], pa.int64()),
            "h": pa.array([7] * n, pa.int64()),
            PARTITION: pa.array([0] * n, pa.int32()),
            POSITION: pa.array(range(n), pa.int64()),
        }
    )
    branch = RowsOfBranch(
        table=table, visible=["k", "x"], keys={"k": "k"}, inputs={}, hash_column="h", place=0, way=0, ways=1
    )
    keys: list[Any] = []
    counts: dict[str, int] = {}
    for piece in side.prepare(branch, StepFacts(batch=0, time=0, watermark=late, late=late)):
        match piece:
            case Send():
                keys += piece.rows["k"].to_pylist()
            case Tally():
                for name, count in piece.counts.items():
                    counts[name] = counts.get(name, 0) + count
    return keys, counts


@pytest.mark.parametrize(
    ("keeps", "keys", "null_keys"), [(False, ["a", "b"], 1), (True, ["a", None, "b"], 0)], ids=["dropped", "kept"]
)
def test_late_rows_and_null_keys_are_dropped_and_counted(
    keeps: bool,  # noqa: FBT001
    keys: list[str | None],
    null_keys: int,
) -> None:
    """A late row with a null key is late; rows with a null key stay where the join emits them."""
    rows = [("a", 10), (None, 10), ("a", 9), (None, 9), ("b", 11)]
    counted = {"rows": 5, "late": 2, "late_left": 2, "null_keys": null_keys}
    assert sent(rows, keeps=keeps, late=10) == (keys, counted)
    assert sent(rows[:1], keeps=keeps, late=None)[0] == ["a"]


def test_stored_rows_say_their_place() -> None:
    """By batch, and by number among the rows of their key, whatever the partition."""
    step = Joined("x", "y")
    rows = pa.table(
        {
            **{field.name: pa.array([0, 0, 0]).cast(field.type) for field in step.inputs[0].sent},
            "k": ["a", "b", "a"],
            "x": pa.array([5, 6, 7], pa.int64()),
            HASHED: pa.array([1, 2, 1], pa.int64()),
            TIME: pa.array([30, 20, 10], pa.int64()),
        }
    )
    stored = step.stored_rows(0, rows, *(pa.array(ids, pa.int64()).to_numpy() for ids in ([0, 1, 0], [3, 2, 1])), 9)
    assert stored.schema == step.stored(0)
    shown = step.shown("left", stored).to_pylist()
    assert [(row["k"], row["_side"], row["_batch"], row["_number"], row["x"], row["y"]) for row in shown] == [
        ("a", "left", 9, 0, 5, None),
        ("b", "left", 9, 0, 6, None),
        ("a", "left", 9, 1, 7, None),
    ]


def test_rows_that_state_is_made_of_say_what_they_are() -> None:
    """Each names its side, time and place."""
    step = Joined("x", "y")
    row = {"k": "a", "_side": "left", "_event_time": 0, "_batch": 0, "_number": 0, "x": 1, "y": None}

    def table(**changed: Any) -> pa.Table:
        return pa.Table.from_pylist([row, {**row, "_side": "right", **changed}], schema=step.tables[""])

    assert [rows.num_rows for rows in step.sides_of(table())] == [1, 1]
    for name in KEPT.names:
        with pytest.raises(StateError, match=f"1 rows without {name}"):
            step.sides_of(table(**{name: None}))
    with pytest.raises(StateError, match="_side 'up'"):
        step.sides_of(table(_side="up"))


def test_names_that_a_join_cannot_have_are_refused() -> None:
    """Of the state, and of both inputs but for keys."""
    side = BoundSide(name="s", side=0, keys=KEYS, columns=("k",), visible=KEYS, inputs={})
    with pytest.raises(JobError, match="an input of join 's' has a column '_Side'"):
        refuse_taken_columns(side, pa.schema([("k", pa.string()), ("_Side", pa.string())]), "join")
    refuse_taken_columns(side, KEYS, "join")
    with pytest.raises(JobError, match=r"both inputs of join 's' have a column 'X'.*'X AS other_X'"):
        refuse_shared_columns(Joined("x", "X"), "join")
    refuse_shared_columns(Joined("x", "y"), "join")

"""State functions hold Python objects for a piece of a batch only, and write only what changed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.graph.specs.state_functions import Form, StateFunction
from penstock.operators.functions.calls_base import Calls
from penstock.operators.functions.function_spec import FunctionStep
from penstock.operators.functions.function_step import calls_of
from penstock.operators.functions.key_index import PARTS, StepFacts
from penstock.operators.functions.python_values import PIECE
from penstock.state.manifest import Manifest
from penstock.state.reader import StateReader
from penstock.state.writer import write_changes
from tests.support.state_samples import latest_parts

KEYS = pa.schema([("k", pa.int64())])


def step_of(form: Form, fn: Callable[..., Any], state: pa.DataType) -> FunctionStep:
    return FunctionStep(
        name="step",
        spec=StateFunction(form=form, fn=fn, state="", value="v" if form is Form.UPDATE else None),
        keys=KEYS,
        state=pa.schema([("n", state)]),
        output=pa.schema([*KEYS, ("n", state)]),
        event=False,
    )


class Partition:
    """One partition of a step on disk."""

    def __init__(self, folder: Path, step: FunctionStep) -> None:
        self.folder, self.step, self.batch = folder, step, 0
        self.manifest = Manifest(step="step", partition=0, keys=("k",))

    def run(self, rows: pa.Table, step: FunctionStep | None = None) -> Calls:
        reader = StateReader(self.folder, self.manifest)
        moment = StepFacts(batch=self.batch, time=self.batch, watermark=None)
        hashes = rows["k"].to_numpy()
        times = np.zeros(rows.num_rows, dtype=np.int64)
        done = calls_of(step or self.step, reader, moment).run_batch(rows, hashes, rows.select(["k"]), times)
        name, parts = f"{self.batch:012d}-0-x", latest_parts(PARTS, ["k"])
        self.manifest = write_changes(reader, name, done.change, batch=self.batch, parts=parts).manifest
        self.batch += 1
        return done

    def written(self, done: Calls) -> dict[int, Any]:
        rows = done.change.append.get("state")
        return {} if rows is None else dict(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))


def peak(work: Callable[[], Any]) -> int:
    """Return the most bytes of Python objects that were alive at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide(rows: int, keys: int) -> pa.Table:
    texts = {f"c{n}": [f"{n}-{at}-{'x' * 40}" for at in range(rows)] for n in range(4)}
    return pa.table({"k": pa.array([at % keys for at in range(rows)], pa.int64()), **texts})


@pytest.mark.slow
def test_rows_become_python_objects_by_piece(tmp_path: Path) -> None:
    """A batch of many rows takes a fraction of what its rows take as dicts."""
    rows = wide(12 * PIECE, 50)
    step = step_of(Form.ROWS, lambda time, key, row, state: None, pa.int64())
    whole = peak(rows.to_pylist)
    assert peak(lambda: Partition(tmp_path, step).run(rows)) < whole / 4


def test_rows_that_are_put_out_do_not_stay_python_objects(tmp_path: Path) -> None:
    """What a function returns is made columns of as it goes, every row once and in order."""
    rows = wide(3 * PIECE + 7, 50)
    step = step_of(
        Form.ROWS,
        lambda time, key, row, state: {"k": key, "n": int(row["c0"][2:].split("-")[0])},
        pa.int64(),
    )
    done = Partition(tmp_path, step).run(rows)
    assert done.output.rows["n"].to_pylist() == list(range(rows.num_rows))
    assert done.output.stand.rows.tolist() == list(range(rows.num_rows))


def updating(fn: Callable[..., Any], state: pa.DataType = pa.int64()) -> FunctionStep:  # noqa: B008 - a constant
    return step_of(Form.UPDATE, fn, state)


def values(keys: range, value: int = 1) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.int64())})


def test_only_state_that_changed_is_written(tmp_path: Path) -> None:
    """update_state_by_key is called for every key, and writes the three that it changes (SEMANTICS 7.5)."""
    step = updating(lambda new, old: (old or 0) + sum(new))
    part = Partition(tmp_path, step)
    part.run(values(range(2 * PIECE)))
    done = part.run(values(range(3)))
    assert part.written(done) == {0: 2, 1: 2, 2: 2}
    assert done.output.rows.num_rows == 2 * PIECE
    assert part.written(part.run(values(range(0)))) == {}


@pytest.mark.slow
def test_keys_without_rows_leave_no_objects_behind(tmp_path: Path) -> None:
    """A batch without rows over many keys takes a fraction of what their states take as dicts."""
    step = updating(lambda new, old: old or f"{new[0]:0200}", pa.string())
    part = Partition(tmp_path, step)
    part.run(values(range(12 * PIECE)))
    done: list[Calls] = []
    used = peak(lambda: done.append(part.run(values(range(0)))))
    assert used < peak(done[0].output.rows.to_pylist) / 2


@pytest.mark.parametrize(
    ("state", "first", "then"),
    [
        (pa.float64(), 0.0, -0.0),
        (pa.list_(pa.int64()), [1], None),
        (pa.int64(), 5, None),
        (pa.string(), "a", "b"),
        (pa.decimal128(9, 2), 1, 2),
    ],
    ids=["the sign of nought", "a list changed in place", "removed", "a text", "a decimal"],
)
def test_a_change_is_never_taken_for_none(tmp_path: Path, state: pa.DataType, first: Any, then: Any) -> None:
    """State is compared with what stands in the files, bit by bit, and not with what the function holds."""

    def change(new: list[Any], old: Any) -> Any:
        if isinstance(old, list):
            old.append(2)
            return old
        return then

    part = Partition(tmp_path, updating(lambda new, old: first, state))
    part.run(values(range(2)))
    step = updating(change, state)
    done = part.run(values(range(1)), replace(step, spec=replace(step.spec, touched_only=True)))
    (row,) = done.change.append["state"].to_pylist()
    assert row["k"] == 0
    assert row["_deleted"] == (then is None and not isinstance(first, list))
    expected = [1, 2] if isinstance(first, list) else then
    assert row["_deleted"] or str(row["n"]) == str(expected) or row["n"] == expected


def test_values_of_a_key_stay_together_and_in_order(tmp_path: Path) -> None:
    """A key with more rows than a piece is called once, with all of them as they came."""
    seen: dict[int, list[int]] = {}

    def keep(new: list[int], old: int | None) -> int:
        seen[len(seen)] = new
        return len(new)

    rows = pa.table({"k": pa.array([0, 1] * (2 * PIECE), pa.int64()), "v": pa.array(range(4 * PIECE), pa.int64())})
    Partition(tmp_path, updating(keep)).run(rows)
    assert seen == {0: list(range(0, 4 * PIECE, 2)), 1: list(range(1, 4 * PIECE, 2))}

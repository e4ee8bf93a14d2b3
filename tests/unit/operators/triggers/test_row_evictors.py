"""Evictors of the user's see each window that fires, and say which of its rows stay (SEMANTICS 6)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from global_disk import VISIBLE, GlobalDisk, numbers_of

from penstock import agg, count
from penstock.errors import UserFunctionError, WrongTriggerResult
from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.window_functions import WindowFunction
from penstock.operators.protocol import StepFacts
from penstock.operators.triggers.row_evictors import kept_by
from penstock.triggers import Every, Moment
from penstock.windows import GlobalWindow


class Even:
    """Keeps the rows with an even number."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[int], Moment]] = []

    def keep(self, rows: pa.Table, at: Moment) -> Any:
        """Say which."""
        self.seen.append((rows["n"].to_pylist(), at))
        return pc.equal(pc.bit_wise_and(rows["n"], 1), 0)


class Gives:
    """Gives what a test says."""

    def __init__(self, given: object) -> None:
        self.given = given

    def keep(self, rows: pa.Table, at: Moment) -> Any:
        """Return it."""
        return self.given


def rows(*numbers: int, key: str = "a") -> list[dict[str, Any]]:
    """Return rows of a key."""
    return [{"k": key, "n": n, "v": float(n), "t": n} for n in numbers]


def kept(evictor: Any) -> list[bool]:
    """Return what stays of two rows of one window."""
    table = pa.Table.from_pylist(rows(1, 2), schema=pa.schema([*VISIBLE])).select(VISIBLE.names)
    facts = StepFacts(batch=0, time=7, watermark=5)
    mask: list[bool] = kept_by("w", evictor, table, np.array([0, 0]), pa.table({"k": ["a"]}), facts).tolist()
    return mask


@pytest.mark.parametrize("function", [True, False], ids=["a function", "aggregates"])
def test_what_it_evicts_is_gone(tmp_path: Path, *, function: bool) -> None:
    """It sees all columns of the stream, also where only aggregates read the window, and held rows as well as new."""
    window = GlobalWindow(unbounded=True).trigger(Every(count(3))).evict(Even())
    spec = (
        GlobalWindows(window=window, function=WindowFunction(numbers_of, "-"))
        if function
        else GlobalWindows(window=window, aggregates={"rows": agg.collect("n", limit=9)})
    )
    disk = GlobalDisk(spec, tmp_path, partitions=2)
    disk.batch(rows(1, 2), time=1)
    assert disk.batch(rows(4) + rows(6, 7, 9, key="b"), time=2).counts["evicted"] == 3
    disk.rescale(3, 2, None)
    made = disk.batch(rows(5, 8, 10), time=3)
    assert made.output == [{"k": "a", "rows": [2, 4, 8, 10]}]


def test_a_window_that_it_empties_gives_nothing(tmp_path: Path) -> None:
    """There are no empty panes, and the key is forgotten."""
    window = GlobalWindow(unbounded=True).trigger(Every(count(1))).evict(Even())
    disk = GlobalDisk(GlobalWindows(window=window, aggregates={"n": agg.count()}), tmp_path)
    assert disk.batch(rows(1) + rows(2, key="b"), time=1).output == [{"k": "b", "n": 1}]
    assert {row["k"] for row in disk.table()} == {"b"}


def test_it_knows_the_clocks_and_the_number_of_rows() -> None:
    """Batch time and watermark, as a trigger does."""
    evictor = Even()
    assert kept(evictor) == [False, True]
    ((numbers, at),) = evictor.seen
    assert (numbers, at.count, at.event_time) == ([1, 2], 2, None)
    start = datetime.fromtimestamp(0, UTC)
    assert (at.batch_time, at.watermark) == (start.replace(microsecond=7), start.replace(microsecond=5))


@pytest.mark.parametrize(
    "given",
    [
        [True, False],
        (True, False),
        np.array([True, False]),
        pa.array([True, False]),
        pa.chunked_array([[True], [False]]),
    ],
    ids=["list", "tuple", "numpy", "Arrow", "chunks"],
)
def test_a_mask_may_be_of_any_kind(given: object) -> None:
    """As long as it has a boolean for each row."""
    assert kept(Gives(given)) == [True, False]


@pytest.mark.parametrize(
    "given",
    [None, True, [True], [1, 0], np.array([1, 0]), pa.array([True, None]), pa.array([1, 0])],
    ids=["None", "one boolean", "too few", "numbers", "numbers of numpy", "a null", "numbers of Arrow"],
)
@pytest.mark.remedy("PEN-OPR-037")
def test_what_is_no_mask_stops_the_batch(given: object) -> None:
    """With the key; a boolean for each row helps."""
    with pytest.raises(WrongTriggerResult, match="for key 'a', not a boolean for each of 2 rows"):
        kept(Gives(given))
    assert kept(Gives([True, True])) == [True, True]


def test_an_error_of_the_evictor_names_key_and_line() -> None:
    """The user's own line."""

    class Raises:
        def keep(self, rows: pa.Table, at: Moment) -> Any:
            return 1 / 0

    with pytest.raises(UserFunctionError, match=r"keep of key 'a'.*test_row_evictors"):
        kept(Raises())

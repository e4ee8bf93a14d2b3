"""Run each kind of windows and joins on rows of one shape, beside its definition, and compare them in each batch.

A row has `k`, `t` in microseconds, `v`, and `n`, its number. A join takes even numbers on the left, odd on the right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from as_of_disk import AsOfDisk
from batch_window_disk import BatchWindowDisk
from batch_window_model import BatchWindowModel
from deduplicate_disk import DeduplicateDisk, DeduplicateModel
from global_disk import GlobalDisk, numbers_of
from global_model import Clock
from global_model import Model as GlobalModel
from join_disk import JoinDisk
from join_model import JoinModel
from session_disk import SessionDisk
from session_model import SessionModel
from step_disk import StepDisk
from tuple_disk import TupleDisk
from tuple_model import TupleModel
from window_disk import WindowDisk

from penstock import agg, count, micros
from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import Form
from penstock.graph.specs.global_windows import GlobalWindows
from penstock.graph.specs.session_windows import Session
from penstock.graph.specs.time_windows import TimeWindows
from penstock.graph.specs.tuple_windows import Time, TupleWindow
from penstock.graph.window_functions import WindowFunction
from penstock.graph.windows import Cumulative, Sliding, TimeWindow, Tumbling
from penstock.state import EVENT
from penstock.testing.model import WindowModel
from penstock.triggers import Every
from penstock.windows import GlobalWindow

__all__ = ["RUNS", "Row", "Run"]

Row = dict[str, Any]
_VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
_EXACT = {"rows": agg.count(), "total": agg.sum("v")}


def _micros(moment: Any) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Run(ABC):
    """A step on disk and its model; times and sizes are microseconds."""

    disk: StepDisk

    @abstractmethod
    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Run a batch on both, assert that they emit the same, and return how many rows that is."""


class TimeRun(Run):
    """Windows of event time."""

    def __init__(self, window: TimeWindow, root: str) -> None:
        self.disk = WindowDisk(TimeWindows(window=window, aggregates=_EXACT), _VISIBLE, root, partitions=2)
        self.model = WindowModel(window, ("k",), _EXACT, time=lambda row: row["t"])

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare bounds, keys and aggregates."""
        made = self.disk.batch([rows], late=mark, close=mark)
        shown = {(row["k"], _micros(row["window_start"]), _micros(row["window_end"])): row for row in made.rows}
        wanted = {
            (*window.key, window.start, window.end): window.results
            for window in self.model.batch(rows, late=mark, close=mark).windows
        }
        assert shown.keys() == wanted.keys()
        assert len(shown) == len(made.rows)
        for place, results in wanted.items():
            assert all(value.matches(shown[place][name]) for name, value in results.items()), place
        return len(shown)


class SessionRun(Run):
    """Sessions whose gap is the size."""

    def __init__(self, size: int, root: str) -> None:
        self.disk = SessionDisk(Session(micros(size)).drop_late(), {"rows": agg.count()}, root, partitions=2)
        self.model = SessionModel(gap=lambda _: size)

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare bounds and numbers of rows."""
        made = self.disk.batch([rows], late=mark, close=mark)
        expected = self.model.batch([{**row, "at": row["n"]} for row in rows], late=mark, close=mark)
        shown = [(r["k"], _micros(r["window_start"]), _micros(r["window_end"]), r["rows"]) for r in made.closed]
        assert sorted(shown) == sorted((s.key, s.start, s.end, len(s.rows)) for s in expected.closed)
        return len(shown)


class BatchRun(Run):
    """Windows of batch time, of twice their slide; the rows of a key as a group."""

    def __init__(self, size: int, root: str) -> None:
        self.root, self.size = root, size
        self.model: BatchWindowModel | None = None

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare the groups; the zero time is that of the first batch less the slide."""
        slide, window = self.size, BatchWindow(micros(2 * self.size), slide=micros(self.size))
        if self.model is None:
            zero = time - slide
            self.disk = BatchWindowDisk(window, Form.GROUP, self.root, value="v", partitions=2, zero=zero)
            self.model = BatchWindowModel(2 * slide, slide, Form.GROUP, zero=zero)
        assert isinstance(self.disk, BatchWindowDisk)
        made, wanted = self.disk.batch(time, [rows]), self.model.batch(time, rows)
        shown, expected = ([(r["k"], _micros(r["window_end"]), r["v"]) for r in of] for of in (made, wanted))
        assert sorted(shown) == sorted(expected)
        return len(shown)


class TupleRun(Run):
    """Windows of rows in event time."""

    def __init__(self, length: Any, slide: Any, root: str) -> None:
        window = TupleWindow(length, slide, time=Time.EVENT, unbounded=True)
        self.disk: TupleDisk = TupleDisk(window, root, partitions=2)
        self.model = TupleModel(window)

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare what the function gets."""
        made = self.disk.batch([rows], time=time, watermark=mark)
        fired, _ = self.model.batch(rows, time=time, watermark=mark)
        shown = [(row["k"], row["current"], row["new"], row["expired"]) for row in made.rows]
        assert sorted(shown) == sorted((f.key, f.current, f.new, f.expired) for f in fired)
        return len(shown)


class GlobalRun(Run):
    """Global windows that fire at multiples of the size in event time."""

    def __init__(self, size: int, root: str) -> None:
        trigger = Every(micros(size), clock=EVENT)
        window = GlobalWindow(unbounded=True).trigger(trigger)
        spec = GlobalWindows(window=window, function=WindowFunction(numbers_of, "not read without Spark"))
        self.disk: GlobalDisk = GlobalDisk(spec, root, partitions=2)
        self.model = GlobalModel(trigger)

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare the rows of what fires."""
        made = self.disk.batch(rows, time=time, watermark=mark)
        fired, _ = self.model.batch(rows, Clock(time, mark))
        assert {row["k"]: row["rows"] for row in made.output} == {k: [r["n"] for r in of] for k, of in fired.items()}
        return len(fired)


class JoinRun(Run):
    """A full join within the size on both sides."""

    def __init__(self, size: int, root: str) -> None:
        self.disk: JoinDisk = JoinDisk((-size, size), "full", root, partitions=2)
        self.model = JoinModel((-size, size), (True, True))

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare pairs and outer rows, with their event times."""
        fed = [[(row["k"], row["t"], row["n"]) for row in rows if row["n"] % 2 == side] for side in (0, 1)]
        made = self.disk.batch(fed, late=mark, close=mark)
        by_rows, by_time = self.model.batch(fed, late=mark, close=mark)
        shown = [(*row, at) for row, at in zip(made.output, made.times, strict=True)]
        assert sorted(shown, key=str) == sorted([*by_rows, *by_time], key=str)
        return len(shown)


class AsOfRun(Run):
    """A left as-of join within the size; keys are letters to it, too."""

    def __init__(self, size: int, root: str) -> None:
        self.disk: AsOfDisk = AsOfDisk(root, within=size, partitions=2)
        self.size, self.numbers = size, {}  # type: ignore[var-annotated]
        self.sides: tuple[list[Row], list[Row]] = ([], [])
        self.emitted: set[int] = set()

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare which right row each left row takes that the watermark has passed."""
        named = [{**row, "k": float(self.numbers.setdefault(row["k"], len(self.numbers)))} for row in rows]
        fed = [[row | {"xy"[side]: row["n"]} for row in named if row["n"] % 2 == side] for side in (0, 1)]
        for held, side in zip(self.sides, fed, strict=True):
            held += [row for row in side if mark is None or row["t"] >= mark]
        made = self.disk.batch(*fed, late=mark, close=mark)
        due = [row for row in self.sides[0] if mark is not None and row["t"] < mark and row["n"] not in self.emitted]
        self.emitted |= {row["n"] for row in due}
        assert sorted(made.pairs, key=str) == sorted(((r["t"], r["n"], self._taken(r)) for r in due), key=str)
        return len(due)

    def _taken(self, row: Row) -> int | None:
        fits = [r for r in self.sides[1] if r["k"] == row["k"] and row["t"] - self.size <= r["t"] <= row["t"]]
        return max(fits, key=lambda r: (r["t"], r["n"]))["n"] if fits else None


class DeduplicateRun(Run):
    """The first rows of keys within the size."""

    def __init__(self, size: int, root: str) -> None:
        self.disk: DeduplicateDisk = DeduplicateDisk(size, root, partitions=2)
        self.model = DeduplicateModel(size)

    def batch(self, rows: Sequence[Row], *, time: int, mark: int | None) -> int:
        """Compare the numbers of the rows."""
        made = self.disk.batch([rows], late=mark, close=mark)
        assert made == self.model.batch(rows, late=mark)
        return len(made)


RUNS: dict[str, Any] = {
    "tumbling": lambda size, root: TimeRun(Tumbling(micros(size)), root),
    "sliding": lambda size, root: TimeRun(Sliding(micros(2 * size), every=micros(size)), root),
    "sliding by a part": lambda size, root: TimeRun(Sliding(micros(2 * size + size // 3), every=micros(size)), root),
    "cumulative": lambda size, root: TimeRun(Cumulative(micros(3 * size), step=micros(size)), root),
    "session": SessionRun,
    "batch": BatchRun,
    "a count each duration": lambda size, root: TupleRun(count(3), micros(size), root),
    "durations": lambda size, root: TupleRun(micros(2 * size), micros(size), root),
    "counts": lambda size, root: TupleRun(count(3), count(2), root),
    "a duration each count": lambda size, root: TupleRun(micros(2 * size), count(2), root),
    "global": GlobalRun,
    "join": JoinRun,
    "as of": AsOfRun,
    "deduplicate": DeduplicateRun,
}
"""How each kind of steps is made, of a size and a folder."""

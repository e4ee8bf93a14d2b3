"""A model of windows of rows in plain Python, written from SEMANTICS 5 only; slow on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.graph.durations import Count, Duration
from penstock.graph.specs.tuple_windows import Time, TupleWindow

Row = dict[str, Any]


@dataclass
class Firing:
    """A window that was evaluated and has rows; rows are by their numbers."""

    key: Any
    end: int
    current: list[int]
    new: list[int]
    expired: list[int]


@dataclass
class KeyModel:
    """One key: every row that has not expired, in order of arrival, and the window evaluated just before."""

    window: TupleWindow
    key: Any
    zero: int
    rows: list[Row] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    fired: int = -(2**63)
    counted: int = 0
    evaluated: int | None = None
    made: list[Firing] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    seen: int = 0
    until: int | None = None
    shown: int | None = None
    had: set[int] = field(default_factory=set)
    """The rows that a window has had."""
    heard: set[int] = field(default_factory=set)
    """The rows that have been told, and that the next window has as expired."""

    @property
    def pushes(self) -> bool:
        """Return whether a row expires when as many later ones have come as a window has."""
        window = self.window
        timed = window.time is Time.PROCESSING and isinstance(window.slide, Duration)
        return timed and isinstance(window.length, Count)

    def push(self) -> None:
        """Tell of the rows that later ones have pushed out, and forget those that no window has had."""
        assert isinstance(self.window.length, Count)
        out = [row["n"] for row in self.rows[: -self.window.length.rows]]
        self.told += [n for n in out if n not in self.heard]
        self.heard |= set(out)
        self.rows = [row for row in self.rows if row["n"] in self.had or row["n"] not in out]

    def is_taken(self, row: Row) -> bool:
        """Return whether windows have taken a row, which waits for an end or the watermark before."""
        return self.until is not None and row["at"] <= self.until

    def evaluate(self, end: int, candidates: list[Row]) -> None:
        """Evaluate the window that ends at a time, of these rows."""
        length = self.window.length
        if isinstance(length, Count):
            inside = candidates[-length.rows :]
        else:
            inside = [row for row in candidates if row["at"] > end - length.micros]
        left = [row for row in candidates if row not in inside]
        self.rows = [row for row in self.rows if row not in left]
        current, expired = [row["n"] for row in inside], [row["n"] for row in left]
        if current:
            new = [n for n in current if n not in self.before]
            shown = [n for n in expired if n in self.had] if self.pushes else expired
            self.made.append(Firing(self.key, end, current, new, shown))
        self.had |= set(current)
        self.told += [n for n in expired if n not in self.heard]
        self.before = current

    def ends(self, until: int) -> list[int]:
        """Return the ends that are due, all of them."""
        assert isinstance(self.window.slide, Duration)
        slide, length = self.window.slide.micros, self.window.length
        times = [row["at"] for row in self.rows]
        if not times:
            return []
        first = -((self.zero - min(times)) // slide)
        if self.evaluated is not None:
            first = max((self.evaluated - self.zero) // slide + 1, first if not self.before else -(2**62))
        # At the end of time: until the last row is out, or with a count as length all rows of the step are in.
        if until == 2**63 - 1:
            reach = length.micros if isinstance(length, Duration) else 0
            shown = self.shown if isinstance(length, Count) and self.shown is not None else max(times)
            last = -((self.zero - max(*times, shown) - reach) // slide)
        else:
            last = (until - self.zero) // slide
        return [self.zero + number * slide for number in range(first, last + 1)]

    def by_time(self, until: int) -> None:
        """Evaluate all ends up to a time."""
        for end in self.ends(until):
            self.evaluate(end, [row for row in self.rows if row["at"] <= end])
        assert isinstance(self.window.slide, Duration)
        self.evaluated = until

    def batch(self, rows: Sequence[Row], time: int, watermark: int | None) -> None:
        """Take the rows of a batch."""
        by_count = isinstance(self.window.slide, Count)
        if self.window.time is Time.PROCESSING:
            if not by_count:
                self.by_time(time - 1)
            for row in rows:
                self.rows.append({**row, "at": time})
                self.counted += 1
                if isinstance(self.window.slide, Count) and self.counted % self.window.slide.rows == 0:
                    self.evaluate(time, self.rows)
            if not by_count:
                self.by_time(time)
            if self.pushes:
                self.push()
            return
        self.rows += [{**row, "at": row["t"]} for row in rows]
        if watermark is None:
            return
        if by_count:
            self._count(watermark)
        else:
            self.by_time(watermark if watermark == 2**63 - 1 else watermark - 1)

    def _count(self, watermark: int) -> None:
        assert isinstance(self.window.slide, Count)
        slide, since = self.window.slide.rows, self.fired
        counted = [row for row in self.rows if since < row["at"] <= watermark]
        end = since
        for number, row in enumerate(counted, 1):
            end = max(end, row["at"])
            if number % slide:
                continue
            if isinstance(self.window.length, Count):
                taken = counted[:number]
                candidates = [r for r in self.rows if r["at"] <= since or r in taken]
            else:
                candidates = [r for r in self.rows if r["at"] <= end]
            self.evaluate(end, candidates)
            self.fired = end


@dataclass
class TupleModel:
    """All keys of a step."""

    window: TupleWindow
    zero: int = 0
    keyed: bool = True
    keys: dict[Any, KeyModel] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    shown: int | None = None
    """The highest event time of the batches before."""

    def _until(self, time: int, mark: int | None) -> int | None:
        """Return the time up to which windows have taken rows."""
        clock = mark if self.window.time is Time.EVENT else time
        if clock is None or clock == 2**63 - 1 or isinstance(self.window.slide, Count):
            return clock
        zero = 0 if self.window.time is Time.EVENT else self.zero
        if self.window.time is Time.EVENT:  # a row at the watermark may still come
            clock -= 1
        return clock - (clock - zero) % self.window.slide.micros

    def batch(
        self, rows: Sequence[Row], *, time: int, watermark: int | None
    ) -> tuple[list[Firing], dict[Any, list[int]]]:
        """Take a batch in order of arrival; return firings, those of a key in order, and the rows that expired."""
        event = self.window.time is Time.EVENT
        mark = watermark
        if mark is not None and mark != 2**63 - 1:
            mark -= self.window.lag
        kept: dict[Any, list[Row]] = {}
        for row in rows:
            if event and mark is not None and row["t"] < mark:
                self.late.append(row["n"])
            else:
                kept.setdefault(row["k"] if self.keyed else (), []).append(row)
        zero = 0 if event else self.zero
        for key in kept:
            self.keys.setdefault(key, KeyModel(self.window, key, zero))
        made: list[Firing] = []
        told: dict[Any, list[int]] = {}
        for key, model in list(self.keys.items()):
            model.made, model.told = [], []
            waiting = [row["n"] for row in model.rows if not model.is_taken(row)]
            model.until = self._until(time, mark)
            model.shown = self.shown
            model.batch(kept.get(key, []), time, mark)
            made += model.made
            still = [row["n"] for row in model.rows if not model.is_taken(row)]
            if key in kept or still != waiting:
                model.seen = time
            idle = self.window.idle
            if idle is not None and model.seen < time - idle:
                taken = [row for row in model.rows if model.is_taken(row)]
                model.told += [row["n"] for row in taken if row["n"] not in model.heard]
                model.rows = [row for row in model.rows if row not in taken]
                model.before, model.fired, model.counted = [], -(2**63), 0
            if model.told:
                told[key] = model.told
        self.shown = max([row["t"] for row in rows] + ([] if self.shown is None else [self.shown]), default=None)
        return made, told

"""A plain model of windows of batch time, which keeps all rows and computes each window from them (SEMANTICS 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo

from penstock.graph.specs.batch_windows import Form

Row = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))


@dataclass
class BatchWindowModel:
    """Windows over all rows, by their definition; times are microseconds. `keyed` by the column `k` or not at all.

    `fn` reduces two values, aggregates the rows of a key, or is called with key, rows, and bounds.
    """

    length: int
    slide: int
    form: Form
    zero: int = 0
    keyed: bool = True
    fn: Any = None
    rows: list[tuple[int, Row]] = field(default_factory=list)
    before: int | None = None
    seen: bool = False

    def batch(self, time: int, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return what a batch emits, window by window."""
        last = self.zero if self.before is None else self.before
        self.rows += [(time, row) for row in rows]
        self.before = time
        ends = range(last + 1 + (self.zero - last - 1) % self.slide, time + 1, self.slide)
        return [made for end in ends for made in self._window(end)]

    def _window(self, end: int) -> list[dict[str, Any]]:
        start = end - self.length
        bounds = {name: _EPOCH + timedelta(microseconds=at) for name, at in zip(BOUNDS, (start, end), strict=True)}
        rows = [row for time, row in self.rows if start < time <= end]
        self.seen = self.seen or bool(rows)
        if self.form is Form.APPLY:
            return [
                made for key, of_key in self._of_keys(rows).items() for made in self.fn(key, of_key, *bounds.values())
            ]
        return [{**made, **bounds} for made in self._made(rows)]

    def _of_keys(self, rows: Sequence[Row]) -> dict[Any, list[Row]]:
        keys = dict.fromkeys(row["k"] if self.keyed else () for row in rows)
        return {key: [row for row in rows if not self.keyed or row["k"] == key] for key in keys}

    def _made(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        if self.form is Form.ROWS:
            return [dict(row) for row in rows]
        of = self._of_keys(rows)
        keys = list(of)
        named = {key: {"k": key} if self.keyed else {} for key in keys}
        match self.form:
            case Form.COUNT if not self.keyed:
                return [{"count": len(rows)}] if self.seen else []
            case Form.COUNT:
                return [{**named[key], "count": len(of[key])} for key in keys]
            case Form.COUNT_BY_VALUE:
                pairs = [(key, row["v"]) for key in keys for row in of[key]]
                return [{**named[key], "v": v, "count": pairs.count((key, v))} for key, v in dict.fromkeys(pairs)]
            case Form.AGGREGATE:
                return [{**named[key], **self.fn(of[key])} for key in keys]
            case Form.GROUP:
                return [{**named[key], "v": [row["v"] for row in of[key]]} for key in keys]
            case _:
                return [{**named[key], "s": reduce(self.fn, [row["s"] for row in of[key]])} for key in keys]


BOUNDS = ("window_start", "window_end")

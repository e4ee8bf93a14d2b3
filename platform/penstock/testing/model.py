"""A model of time windows in plain Python: an oracle to compare an engine with, written from SEMANTICS 2 and 3 only.

It keeps every row, computes every window from its rows alone, and is slow on purpose.
Times are integer microseconds since 1970; None is the watermark at the beginning of time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from penstock.graph.aggregates import Aggregate, AggregateKind
from penstock.graph.policies import Accumulation, LatenessRule, Pane
from penstock.graph.windows import Extent, TimeWindow

__all__ = ["Expected", "ModelBatch", "ModelWindow", "Row", "WindowModel", "windows_at"]

Row = Mapping[str, Any]
_MOST = 2**63 - 1
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Expected:
    """The value an aggregate must have, and how far from it a double may lie."""

    value: Any
    slack: float = 0.0
    squared: bool = False

    def matches(self, actual: Any) -> bool:
        """Return whether a value of the engine is right; NaN matches NaN, and a decimal is compared as rounded."""
        if self.value is None or actual is None:
            return actual is None and self.value is None
        if isinstance(self.value, Decimal) and isinstance(actual, Decimal):
            with localcontext(prec=100):
                return actual == self.value.quantize(actual, ROUND_HALF_UP)
        if isinstance(self.value, float) and isinstance(actual, float):
            if math.isnan(self.value) or math.isinf(self.value):
                return math.isnan(actual) if math.isnan(self.value) else actual == self.value
            if self.squared:
                return abs(actual**2 - self.value**2) <= self.slack
            return abs(actual - self.value) <= self.slack
        if isinstance(self.value, list) and isinstance(actual, list):
            return list(map(_comparable, actual)) == list(map(_comparable, self.value))
        return type(actual) is type(self.value) and bool(actual == self.value)


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """One key of one window that was emitted: its bounds, the key's values, the aggregates by name, and the pane.

    `revision` counts what was emitted of the key and window, from 0.
    """

    start: int
    end: int
    key: tuple[Any, ...]
    results: Mapping[str, Expected]
    pane: Pane = Pane.ON_TIME
    revision: int = 0


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """The result of a batch: windows, late rows, and the accounting.

    The windows are those that closed without the batch's rows, then revisions, then those that closed with its rows,
    then early panes; each in the order of their ends.
    """

    windows: Sequence[ModelWindow]
    late: Sequence[Row]
    counted: int
    partly_late: int
    in_no_window: int


@dataclass(slots=True)
class _New:
    """The rows of a key and window that no pane has had; the first came in the batch of the time `since`."""

    since: int
    rows: list[Row] = field(default_factory=list)


def windows_at(time: int, window: TimeWindow) -> list[tuple[int, int]]:
    """Return every window that holds a time, by the definition: s <= t < s + size, s = offset modulo every.

    Growing windows are those [s, s + k * every) of the one of `size` that holds the time, whose end is after it.
    """
    if window.extent is Extent.GROWING:
        start = time - (time - window.offset) % window.size
        return [
            (start, end) for end in range(start + window.every, start + window.size + 1, window.every) if end > time
        ]
    start = time - (time - window.offset) % window.every
    windows = []
    while start + window.size > time:
        windows.append((start, start + window.size))
        start -= window.every
    return windows[::-1]


@dataclass(slots=True)
class WindowModel:
    """Run a window step in memory, batch after batch.

    `time` gives a row's event time, `keys` are the columns of the key, and an aggregate reads the column its
    expression names.
    """

    window: TimeWindow
    keys: Sequence[str]
    aggregates: Mapping[str, Aggregate]
    time: Callable[[Row], int]
    _held: dict[tuple[int, int], list[Row]] = field(default_factory=dict)
    _closed: dict[tuple[int, int], list[Row]] = field(default_factory=dict)
    _closed_to: int | None = None
    _revisions: Counter[tuple[tuple[int, int], tuple[Any, ...]]] = field(default_factory=Counter)
    _new: dict[tuple[tuple[int, int], tuple[Any, ...]], _New] = field(default_factory=dict)

    def batch(
        self, rows: Sequence[Row], *, late: int | None, close: int | None, at: int = 0, zero: int = 0
    ) -> ModelBatch:
        """Take the rows of a batch in arrival order, close what is due, and emit early what is (3.2).

        `late` is the watermark that judges rows (2.3), `close` the one that closes windows (2.5); they differ only in
        chained steps (2.1). `at` is the batch time, and `zero` that from which multiples of `emit_every` count.
        """
        out = [] if late is None or close is None else self._close(min(late, close))
        touched: dict[tuple[int, int], list[Row]] = {}
        late_rows: list[Row] = []
        counted = partly = nowhere = 0
        for row in rows:
            time = self.time(row)
            windows = windows_at(time, self.window)
            held = [w for w in windows if late is None or w[1] + self.window.allowed_lateness > late]
            too_old = late is not None and time < late and self.window.rule is LatenessRule.WATERMARK
            if too_old or (windows and not held):
                late_rows.append(row)
            elif not windows:
                nowhere += 1
            else:
                counted += 1
                partly += len(held) < len(windows)
                for window in held:
                    over = self._closed_to is not None and window[1] <= self._closed_to
                    (touched if over else self._held).setdefault(window, []).append(row)
                    if not over:
                        self._new.setdefault((window, self._key(row)), _New(at)).rows.append(row)
        out += self._revise(touched)
        out += [] if close is None else self._close(close)
        out += self._early(at, zero)
        return ModelBatch(out, late_rows, counted, partly, nowhere)

    def _early(self, at: int, zero: int) -> list[ModelWindow]:
        """Emit the keys of open windows whose new rows are enough, or have waited for a multiple of `emit_every`."""
        out: list[ModelWindow] = []
        for (window, key), new in sorted(self._new.items(), key=lambda item: item[0][0][1]):
            every, least = self.window.early_every, self.window.early_rows
            due = every is not None and -((zero - new.since) // every) * every + zero <= at
            if due or (least is not None and len(new.rows) >= least):
                whole = [row for row in self._held[window] if self._key(row) == key]
                out += self._keyed(window, whole if self._accumulates else new.rows, Pane.EARLY)
                del self._new[window, key]
        return out

    @property
    def _accumulates(self) -> bool:
        return self.window.accumulation is Accumulation.ACCUMULATING

    def _close(self, to: int) -> list[ModelWindow]:
        """Emit the windows that are over, and forget those whose lateness is (2.5)."""
        self._closed_to = to if self._closed_to is None else max(self._closed_to, to)
        closed = sorted((w for w in self._held if w[1] <= to), key=lambda w: w[1])
        self._closed |= {w: self._held.pop(w) for w in closed}
        new = {w: [row for (of, _), new in self._new.items() if of == w for row in new.rows] for w in closed}
        self._new = {of: rows for of, rows in self._new.items() if of[0] not in new}
        final = {w: self._closed[w] if self._accumulates else new[w] for w in closed}
        out = [keyed for w in closed for keyed in self._keyed(w, final[w], Pane.ON_TIME)]
        for window in [w for w in self._closed if w[1] + self.window.allowed_lateness <= to]:
            del self._closed[window]
        return out

    def _revise(self, touched: Mapping[tuple[int, int], list[Row]]) -> list[ModelWindow]:
        """Emit again the keys of closed windows that rows touch (2.6)."""
        out: list[ModelWindow] = []
        for window in sorted(touched, key=lambda w: w[1]):
            rows = touched[window]
            whole = self._closed.setdefault(window, [])
            whole += rows
            keys = {self._key(row) for row in rows}
            shown = [row for row in whole if self._key(row) in keys]
            out += self._keyed(window, shown if self._accumulates else rows, Pane.LATE)
        return out

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(_comparable(row[name]) for name in self.keys)

    def _keyed(self, bounds: tuple[int, int], rows: Sequence[Row], pane: Pane) -> list[ModelWindow]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(self._key(row), []).append(row)
        windows = []
        for key, group in groups.items():
            results = {name: _aggregate(spec, group, self.time) for name, spec in self.aggregates.items()}
            values = tuple(group[0][name] for name in self.keys)
            windows.append(ModelWindow(*bounds, values, results, pane, self._revisions[bounds, key]))
            self._revisions[bounds, key] += 1
        return windows


def _comparable(value: Any) -> Any:
    """Return a key value as one where NaN equals NaN."""
    return (float, "NaN") if isinstance(value, float) and math.isnan(value) else value


def _aggregate(spec: Aggregate, rows: Sequence[Row], time: Callable[[Row], int]) -> Expected:
    if spec.expression is None:
        return Expected(len(rows))
    # Python's sort is stable, so ties stay in arrival order.
    everything = [row[spec.expression] for row in sorted(rows, key=time)]
    if spec.kind in (AggregateKind.FIRST, AggregateKind.LAST):
        return Expected(everything[0 if spec.kind is AggregateKind.FIRST else -1])
    if spec.size is not None:
        everything = [row[spec.expression] for row in rows]
        return Expected(_kept(everything, spec.size, top=spec.kind is AggregateKind.TOP_K))
    return _number(spec, everything)


def _number(spec: Aggregate, everything: Sequence[Any]) -> Expected:
    values = [value for value in everything if value is not None]
    match spec.kind:
        case AggregateKind.COUNT | AggregateKind.COUNT_DISTINCT | AggregateKind.APPROX_COUNT_DISTINCT:
            return Expected(len(values if spec.kind is AggregateKind.COUNT else set(map(_comparable, values))))
        case AggregateKind.SUM:
            return _sum(values)
        case AggregateKind.MEAN:
            return _mean(values)
        case AggregateKind.MIN:
            return Expected(min(values, key=_order, default=None))
        case AggregateKind.MAX:
            return Expected(max(values, key=_order, default=None))
    quantile = spec.kind is AggregateKind.APPROX_QUANTILE
    return _quantile(list(map(float, values)), spec.share or 0.0) if quantile else _spread(values, spec.kind)


def _kept(values: Sequence[Any], size: int, *, top: bool) -> list[Any]:
    """Return the values that a list has; those of `top` are dicts of `by` and `value`."""
    if top:
        counted = [value for value in values if value["by"] is not None]
        # A reversed sort of Python's is stable too.
        return [value["value"] for value in sorted(counted, key=lambda v: _order(v["by"]), reverse=True)[:size]]
    kept = [value for value in values if value is not None]
    if len(kept) > size:
        raise OverflowError(len(kept))
    return kept


def _order(value: Any) -> Any:
    """Return what values are ordered by: NaN is greater than every number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def _sum(values: Sequence[Any]) -> Expected:
    if not values:
        return Expected(None)
    if isinstance(values[0], float):
        return Expected(_float_sum(values), _SLACK * _float_sum([abs(v) for v in values if math.isfinite(v)]))
    if isinstance(values[0], Decimal):
        with localcontext(prec=100):
            return Expected(sum(values, Decimal(0)))
    total = sum(values)
    if not -_MOST - 1 <= total <= _MOST:
        raise OverflowError(total)
    return Expected(total)


def _quantile(values: Sequence[float], share: float) -> Expected:
    if not values:
        return Expected(None)
    value = sorted(values, key=_order)[max(math.ceil(share * len(values)), 1) - 1]
    return Expected(value, abs(value) * 0.0101 if math.isfinite(value) else 0.0)


def _mean(values: Sequence[Any]) -> Expected:
    if not values:
        return Expected(None)
    if isinstance(values[0], Decimal):
        with localcontext(prec=100):
            return Expected(sum(values, Decimal(0)) / len(values))
    total = _sum([float(v) for v in values])
    return Expected(total.value / len(values), total.slack / len(values))


def _spread(inputs: Sequence[Any], kind: AggregateKind) -> Expected:
    values = [float(v) for v in inputs]
    sample = kind in (AggregateKind.VAR_SAMP, AggregateKind.STDDEV_SAMP)
    root = kind in (AggregateKind.STDDEV_POP, AggregateKind.STDDEV_SAMP)
    if len(values) <= sample:
        return Expected(None)
    if not all(map(math.isfinite, values)):
        return Expected(math.nan)
    mean = math.fsum(values) / len(values)
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - sample)
    slack = _SLACK * math.fsum(v * v for v in values)
    return Expected(math.sqrt(variance) if root else variance, slack, squared=root)


def _float_sum(values: Sequence[float]) -> float:
    """Add up exactly, then round; infinities and NaN as IEEE 754 has it."""
    if all(map(math.isfinite, values)):
        return math.fsum(values)
    return sum(v for v in values if not math.isfinite(v))

"""The step of windows of batch time, and the methods that say what to make of their rows (SEMANTICS 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

from penstock.errors import BadExpression, DuplicateName, IntervalUnfit
from penstock.graph.aggregates import Aggregate
from penstock.graph.batch_window import BatchWindow
from penstock.graph.durations import Duration
from penstock.graph.policies import Accumulation
from penstock.graph.predicates import Predicate, parse_predicate
from penstock.graph.source_location import job_error
from penstock.graph.stateful import Stream
from penstock.graph.steps import EventTime, GraphView, Reads, StepNode, StepSpec, Unit, need_sink
from penstock.graph.window_functions import WindowFunction, window_function
from penstock.graph.windowed import Windowed

__all__ = ["BatchWindowedStream", "BatchWindows", "Form"]

_BOUNDS = ("window_start", "window_end")


class Form(Enum):
    """What a window is made into."""

    ROWS = "rows"
    COUNT = "count"
    COUNT_BY_VALUE = "count_by_value"
    GROUP = "group"
    REDUCE = "reduce_by_key"
    AGGREGATE = "aggregate"
    APPLY = "apply"


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchWindows(StepSpec):
    """Make something of the rows of each window of batch time.

    `value` is a Spark SQL expression that COUNT_BY_VALUE, GROUP and REDUCE read, and `column` the name that it has in
    the output. `fn`, `inverse` and `keep` are those of REDUCE, `aggregates` of AGGREGATE, and `function` of APPLY.
    """

    window: BatchWindow
    form: Form
    value: str | None = None
    column: str = ""
    fn: Callable[[Any, Any], Any] | None = None
    inverse: Callable[[Any, Any], Any] | None = None
    keep: Predicate | None = None
    keep_text: str = ""
    aggregates: Mapping[str, Aggregate] | None = None
    function: WindowFunction | None = None

    operator: ClassVar[str] = "penstock.operators.batch_windows.batch_window_step"
    kind: ClassVar[str] = "window"
    unit: ClassVar[Unit] = Unit.WINDOW
    needs_ticks: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("rows", "counted", "in_no_window")
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("counted", "in_no_window"),
        "counted": ("merged",),
    }

    @property
    def event_time_of_output(self) -> EventTime:
        """Return that no step of event time can read it: a row may be in many windows, long after its event time."""
        return EventTime.UNKNOWN

    @property
    def window_columns(self) -> frozenset[str]:
        """Return both bounds, of which either is that of one window only; none where a function makes the columns."""
        return frozenset(_BOUNDS if self.function is None else ())

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that revisions are rows; where they contain what they revise, all but rows would count it twice."""
        if panes is Accumulation.ACCUMULATING and self.form is not Form.ROWS:
            return None
        return "revisions are rows of their own"

    def reads(self, side: int) -> Reads:
        """Return the value, what aggregates read, or all columns where rows are emitted or given to a function."""
        read = [a.expression for a in (self.aggregates or {}).values() if a.expression is not None]
        read += [] if self.value is None else [self.value]
        return Reads(tuple(dict.fromkeys(read)), rows=self.form in (Form.ROWS, Form.APPLY))

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise MissingSink for windows that nobody writes, and IntervalUnfit where the job's interval does not fit."""
        need_sink(graph, node, f"window {node.name!r}")
        if graph.interval is not None:
            self.check_interval(node, graph.interval)

    def check_interval(self, node: StepNode, interval: int | None) -> None:
        """Raise IntervalUnfit without ticks, and where length or slide are no multiples of the ticks' interval."""
        where = str(node.site)
        if interval is None:
            raise IntervalUnfit(
                f"window {node.name!r} is {self.window}, and the job runs as fast as possible: it has no interval",
                where=where,
            )
        for word, micros in (("length", self.window.length), ("slide", self.window.slide or interval)):
            if micros % interval:
                raise IntervalUnfit(
                    f"the {word} of window {node.name!r} is {Duration(micros)}, which is no multiple of the job's "
                    f"interval, {Duration(interval)}",
                    where=where,
                )

    def words(self, node: StepNode, keys: str) -> str:
        """Return windows, keys, and what is made of them."""
        made = ", ".join(f"{name} = {aggregate}" for name, aggregate in (self.aggregates or {}).items())
        if made or self.function is not None:
            return f"window {node.name}: {self.window}, {keys}; {made or self.function}"
        of = "" if self.value is None else f" of {self.value}"
        more = ", what leaves by its inverse" if self.inverse is not None else ""
        more += f", keys kept where {self.keep_text}" if self.keep is not None else ""
        if self.inverse is not None and self.keep is None:
            more += ", keys kept for ever"
        return f"window {node.name}: {self.window}, {keys}; {self.form.value}{of}{more}"


class BatchWindowedStream(Windowed[Stream, BatchWindow]):
    """Windows of batch time: one method says what becomes of their rows (SEMANTICS 4.3, 4.4).

    Each but `apply` emits the key columns, what it makes, `window_start` and `window_end`. These are batch times, of
    which the first is not in the window and the last one is.
    """

    takes: ClassVar[type] = BatchWindow
    hint: ClassVar[str] = ".rows()"

    def checked(self) -> Self:
        """Return the same."""
        return self

    def rows(self) -> Stream:
        """Emit all rows of each window in order of arrival, with `window_start` and `window_end`."""
        return self._of(Form.ROWS)

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Compute one row for each key and window that has rows: the keys, window_start, window_end, and these columns.

        Where every aggregate has an exact inverse, a window costs what enters and leaves it. Otherwise it merges what
        the state has of its batches, one row for each key. `first` and `last` go by the order of arrival.
        """
        checked = self._checked_aggregates(aggregates, *_BOUNDS)
        return self._of(Form.AGGREGATE, aggregates=checked)

    def apply(self, fn: Callable[..., Any], *, output: str) -> Stream:
        """Call `fn(key, view) -> pa.Table | list[dict] | None` for each key and window that has rows.

        The function gets:

        - `key`: the value of the key column, a named tuple of several, () without `key_by`.
        - `view`: a `WindowView` with the bounds of the window, and all its rows as a table in the order of arrival.

        An object with `open(info)` and `close()` is opened once in each task.

        Args:
            fn: Returns the rows of the output, None for none.
            output: The columns of the output, as Spark DDL such as "user string, visits long". There are no others:
                return the key and the bounds where they are wanted.

        Raises:
            JobError: `fn` is no function.
            BadExpression: `output` is no text. Text that is no DDL is refused when the job starts.
        """
        self.mark_used()
        return self._of(Form.APPLY, function=window_function(fn, output, f"window {self._name!r}"))

    def count(self) -> Stream:
        """Emit the number of rows of each key and window as `count`.

        A stream without keys gets a row for every window that follows its first row, 0 where the window is empty.
        """
        return self._of(Form.COUNT, column="count")

    def count_by_value(self, value: str) -> Stream:
        """Emit each value with the number of rows of the window that have it, as `count`.

        Args:
            value: A column, or a Spark SQL expression, whose text then names the column of the output.
        """
        return self._of(Form.COUNT_BY_VALUE, value=value, more=("count",))

    def group(self, value: str) -> Stream:
        """Emit for each key the list of its values in order of arrival, nulls among them.

        Args:
            value: A column, or a Spark SQL expression, whose text then names the column of the output.
        """
        return self._of(Form.GROUP, value=value)

    def reduce_by_key(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        value: str = "v",
        inverse: Callable[[Any, Any], Any] | None = None,
        keep: str | None = None,
    ) -> Stream:
        """Emit for each key one value, to which `fn` reduces those of its rows in the window.

        Rows are reduced within their batch first, then batch by batch, each in order of arrival. So `fn` must be
        associative, and need not be commutative.

        With an inverse a window costs what enters and leaves it: the value of the window before, less what left, and
        then with what entered. A key whose rows have all left stays with the value that the inverse leaves, until
        `keep` is false for it. Without `keep` it stays for ever.

        Args:
            fn: `fn(a, b)` over plain Python values, of which `a` arrived first; null is None. It is not called for a
                key with one row. The result has the type of the value.
            value: A column, or a Spark SQL expression, whose text then names the column of the output.
            inverse: `inverse(window_value, left_value)`, which takes off what arrived first: `inverse(fn(a, b), a)` is
                `b`. `left_value` is what the batches that leave reduce to.
            keep: A predicate over the keys and the value, in a part of Spark SQL. Keys for which it is not true are
                not emitted.

        Raises:
            JobError: `fn` or `inverse` is no function.
            BadExpression: `keep` is no predicate, or beyond that part of SQL.
        """
        self.mark_used()
        for function in (fn, *(() if inverse is None else (inverse,))):
            if not callable(function):
                raise job_error(f"window {self._name!r} needs a function of two values, not {function!r}")
        parsed = None if keep is None else parse_predicate(keep, f"keep= of window {self._name!r}")
        text = (keep or "").strip()
        return self._of(Form.REDUCE, value=value, fn=fn, inverse=inverse, keep=parsed, keep_text=text)

    def _of(
        self,
        form: Form,
        *,
        value: str | None = None,
        column: str = "",
        more: tuple[str, ...] = (),
        **functions: Any,
    ) -> Stream:
        self.mark_used()  # also where it is refused: that is said at once, and the window may be written again
        if form in (Form.COUNT_BY_VALUE, Form.GROUP, Form.REDUCE) and (not isinstance(value, str) or not value.strip()):
            raise job_error(f"{form.value} of window {self._name!r} reads {value!r}, not a column", BadExpression)
        column = column if value is None else value.strip().strip("`")
        names = [*self._keys, *_BOUNDS, *more, *((column,) if column else ())]
        lower = [name.lower() for name in names]
        if twice := next((name for name in names if lower.count(name.lower()) > 1), None):
            raise job_error(f"window {self._name!r} has a column {twice!r} already", DuplicateName)
        return self._step(BatchWindows(window=self._spec, form=form, value=value, column=column, **functions))

"""The step of a user's function that keeps state for each key (SEMANTICS 7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import JobError, UnboundedState
from penstock.graph.declarations import checked_function, checked_text, function_name
from penstock.graph.durations import Duration
from penstock.graph.nodes import QuarantineNode, SideNode, SnapshotNode
from penstock.graph.policies import Accumulation, OnError
from penstock.graph.source_location import job_error
from penstock.graph.stateful import StepMethods, Stream
from penstock.graph.steps import (
    EventTime,
    GraphView,
    StepNode,
    StepSpec,
    need_event_time,
    need_quarantine,
    need_sink,
)
from penstock.graph.timeouts import NEVER, Timeout

__all__ = ["ASIDE_OUTLET", "SNAPSHOTS_OUTLET", "Form", "StateFunction", "StateFunctionMethods"]

ASIDE_OUTLET, SNAPSHOTS_OUTLET = "aside", "snapshots"
_ONE_SLASH = re.compile(r"(^|/)[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
"""A URL of Hadoop with one slash, or one that was made a `Path`: as a path it would be that of a local folder."""


class Form(Enum):
    """How a state function is called: for each row, for the rows of a partition, or for each key."""

    ROWS = "map_with_state"
    ARROW = "map_with_state_arrow"
    UPDATE = "update_state_by_key"


@dataclass(frozen=True, eq=False, kw_only=True)
class StateFunction(StepSpec):
    """Let a function of the user's keep state for each key (SEMANTICS 7.1, 7.5).

    `state` and `output` are Spark DDL; `output` is None if the step emits the keys and their state.
    `initial` is the name of a table, the path of a Delta table, in which there is a slash, or a function that returns
    a DataFrame, of keys and states.
    `on_error` is the policy for the rows that the function raises for.
    `event_time`, a Spark SQL expression over the output, and `same_rows` are for the form ARROW. They define the event
    time of the output. `value`, `touched_only` and `with_key_time` are for the form UPDATE.
    """

    form: Form
    fn: Callable[..., Any]
    state: str
    output: str | None = None
    timeout: Timeout = NEVER
    initial: str | Callable[[], Any] | None = None
    on_error: OnError = OnError.FAIL
    event_time: str | None = None
    same_rows: bool = False
    value: str | None = None
    touched_only: bool = False
    with_key_time: bool = False

    operator: ClassVar[str] = "penstock.operators.functions.function_step"
    kind: ClassVar[str] = "function"
    sums: ClassVar[Mapping[str, tuple[str, ...]]] = {"rows": ("merged", "quarantined")}

    @property
    def method(self) -> str:
        """Return the form's."""
        return self.form.value

    @property
    def every_batch(self) -> bool:
        """Return whether every batch calls for every key that has state."""
        return self.form is Form.UPDATE and not self.touched_only

    @property
    def event_time_of_output(self) -> EventTime:
        """Return where it comes from: of a vectorised function only what its arguments say is known."""
        if self.form is Form.UPDATE or self.event_time is not None:
            return EventTime.OWN
        return EventTime.ROWS if self.form is Form.ROWS or self.same_rows else EventTime.UNKNOWN

    @property
    def timed_by(self) -> str | None:
        """Return the argument `event_time`."""
        return self.event_time

    @property
    def passes_times(self) -> bool:
        """Return whether a row that the function makes of another has its event time."""
        return self.event_time_of_output is EventTime.ROWS

    def of_revisions(self, node: StepNode, panes: Accumulation) -> str | None:
        """Return that the function sees them; one of values alone sees no revision, so panes have to add up."""
        if self.form is Form.UPDATE and panes is Accumulation.ACCUMULATING:
            return None
        return "the function gets revisions as rows of their own"

    def side_streams(self, step: str) -> Mapping[str, tuple[type[SideNode], str]]:
        """Return the step's quarantine and the stream of its whole state."""
        return {ASIDE_OUTLET: (QuarantineNode, step), SNAPSHOTS_OUTLET: (SnapshotNode, step)}

    def check(self, node: StepNode, graph: GraphView) -> None:
        """Raise JobError without event time that is needed, and MissingSink for rows that nobody writes."""
        if self.timeout.event_time:
            need_event_time(graph, node, f"step {node.name!r}, which has the timeout event_time(),")
        need_sink(graph, node, f"step {node.name!r}", SNAPSHOTS_OUTLET)
        if self.on_error is OnError.QUARANTINE:
            need_quarantine(graph, node, node.name, graph.side_of(node, ASIDE_OUTLET), "step")

    def words(self, node: StepNode, keys: str) -> str:
        """Return the function, keys, state and what bounds it, and when it is called."""
        idle = self.timeout.idle
        bounds = [f"forgotten after {Duration(idle)} without a row"] if idle is not None else []
        bounds += ["forgotten at its deadline"] if self.timeout.event_time else []
        kept = f"state {self.state}, {' or '.join(bounds) or 'kept for ever'}"
        calls = "; calls for every key in every batch" if self.every_batch else ""
        calls += "; rows it raises for to quarantine" if self.on_error is OnError.QUARANTINE else ""
        return f"{self.form.value} {node.name}: {function_name(self.fn)}, {keys}, {kept}{calls}"


class StateFunctionMethods(StepMethods[Stream]):
    """Let functions of the user's keep state."""

    def map_with_state(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        state: str,
        output: str,
        timeout: Timeout | None = None,
        initial: str | Path | Callable[[], Any] | None = None,
        unbounded: bool = False,
        on_error: OnError = OnError.FAIL,
        partitions: int | None = None,
    ) -> Stream:
        """Call `fn(time, key, row, state) -> None | dict | list[dict]` for each row, as they arrived (SEMANTICS 7.1).

        The function gets:

        - `time`: the batch time, an aware datetime in UTC.
        - `key`: the value of the key column, a named tuple of several, () without `key_by`.
        - `row`: a dict of all columns, None when the key times out or a timer fires.
        - `state`: the `State` of this key.

        `state` and `output` are Spark DDL such as "n long, seen array<string>". Returned rows have the columns of
        `output`. State without a `timeout` (TTL) grows with the keys, which `unbounded=True` accepts (7.7).
        `initial` gives keys and states, which are loaded once, with the first batch (7.3). It is a table's name, or a
        function that returns a DataFrame. A `Path`, and a text with a slash, is the path of a Delta table.
        `on_error` is the policy for exceptions of the function. The batch fails, or the input of the call goes to
        `job.quarantine(name)`, and the key's state stays as it was before the call.
        """
        return self._function(
            name,
            fn,
            partitions,
            form=Form.ROWS,
            state=state,
            initial=initial,
            on_error=on_error,
            output=checked_text(output, "output", f"step {name!r}"),
            timeout=_checked_timeout(timeout, name, unbounded=unbounded),
        )

    def map_with_state_arrow(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        state: str,
        output: str,
        event_time: str | None = None,
        same_rows: bool = False,
        timeout: Timeout | None = None,
        initial: str | Path | Callable[[], Any] | None = None,
        unbounded: bool = False,
        on_error: OnError = OnError.FAIL,
        partitions: int | None = None,
    ) -> Stream:
        """Call `fn(rows, state, info) -> (out, state)` once a batch and partition, with Arrow tables (SEMANTICS 7.1).

        The function gets:

        - `rows`: all columns, in order of arrival.
        - `info.keys`: the distinct keys, as a table.
        - `state`: a row for each of these keys, in that order, all null for a key without state.

        A returned row of state that is all null removes the key. Keys that time out come in a second call, with
        `info.timing_out` and without rows; their state is removed then. `out` is None for no output.
        `on_error` is as for `map_with_state`, with all rows of a partition.

        A downstream window or other event-time step needs the event time of `out`. `event_time` is a column of it, or
        a Spark SQL expression over its columns that gives a timestamp. `same_rows=True` promises a row for each of
        `rows`, in their order, with their event times. For keys that time out it promises one row each, or none.
        """
        if event_time is not None and same_rows:
            raise job_error(
                f"step {name!r} has event_time= and same_rows=True, which are two answers to one question; keep one"
            )
        return self._function(
            name,
            fn,
            partitions,
            form=Form.ARROW,
            state=state,
            initial=initial,
            on_error=on_error,
            output=checked_text(output, "output", f"step {name!r}"),
            timeout=_checked_timeout(timeout, name, unbounded=unbounded),
            event_time=None if event_time is None else checked_text(event_time, "event_time", f"step {name!r}"),
            same_rows=same_rows,
        )

    def update_state_by_key(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        value: str = "v",
        state: str,
        initial: str | Path | Callable[[], Any] | None = None,
        touched_only: bool = False,
        with_key_time: bool = False,
        on_error: OnError = OnError.FAIL,
        partitions: int | None = None,
    ) -> Stream:
        """Call `fn(values, old) -> new` for each key with rows or state, in every batch (SEMANTICS 7.5).

        `values` are those of the column `value`, in order of arrival. `old` is None for a key without state, and
        returning None removes the key. State of one column is that value, of several a dict. With a fixed interval
        every tick is a batch.
        `touched_only` calls only for keys with rows; `with_key_time` calls `fn(time, key, values, old)`.
        The step emits the key and the new state of every call. `on_error` is as for `map_with_state`, with all rows
        of a key.
        """
        return self._function(
            name,
            fn,
            partitions,
            form=Form.UPDATE,
            state=state,
            initial=initial,
            on_error=on_error,
            value=checked_text(value, "value", f"step {name!r}"),
            touched_only=touched_only,
            with_key_time=with_key_time,
        )

    def _function(
        self, name: str, fn: object, partitions: int | None, *, state: str, initial: Any, on_error: OnError, **more: Any
    ) -> Stream:
        if isinstance(initial, str | Path) and _ONE_SLASH.search(str(initial)):
            raise _unfit(
                "initial", name, str(initial), "a URL is a text with two slashes, not one slash, after the colon"
            )
        if isinstance(initial, Path):
            initial = str(initial.absolute())
        if initial is not None and not isinstance(initial, str) and not callable(initial):
            hint = "give a table's name, the path of a Delta table, or a function that returns a DataFrame"
            raise _unfit("initial", name, initial, hint)
        if not isinstance(on_error, OnError):
            raise _unfit("on_error", name, on_error, "write OnError.FAIL or OnError.QUARANTINE")
        fn = checked_function(fn, f"step {name!r}")
        state = checked_text(state, "state", f"step {name!r}")
        spec = StateFunction(fn=fn, state=state, initial=initial, on_error=on_error, **more)
        return self._step(name, spec, partitions)


def _checked_timeout(timeout: object, name: str, *, unbounded: bool) -> Timeout:
    if timeout is None or timeout == NEVER:
        if not unbounded:
            raise job_error(f"nothing bounds the state of step {name!r}", UnboundedState)
        return NEVER
    if not isinstance(timeout, Timeout):
        raise _unfit("timeout", name, timeout, "write idle(minutes(5)), event_time(), or both with |")
    return timeout


def _unfit(what: str, name: str, value: object, hint: str) -> JobError:
    return job_error(f"{what}= of step {name!r} is {value!r}; {hint}")

"""Add the steps that keep state: windows, and functions of the user's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock.errors import BadExpression, DuplicateName, JobError, MissingLatePolicy, UnboundedState
from penstock.graph.aggregates import Aggregate
from penstock.graph.names import checked_name
from penstock.graph.nodes import Form, FunctionNode, Node, WindowNode
from penstock.graph.partitions import checked_partitions, default_partitions
from penstock.graph.policies import OnError
from penstock.graph.source_location import user_site
from penstock.graph.timeouts import NEVER, Timeout
from penstock.graph.windows import TimeWindow

__all__ = ["KeyedStream", "StatefulSteps", "WindowedStream"]


class _Registry(Protocol):
    """The job, as far as steps with state ask and tell it."""

    partitions: int | None
    _windowed: list[WindowedStream[Any]]


class _Rows(Protocol):
    """The stream that such a step stands behind; what it puts out is one of the same kind."""

    _node: Node

    @property
    def _job(self) -> _Registry:
        """The job of the stream."""

    def _then(self, node: Node, name: str | None = None) -> Self:
        """Return the stream of what a step behind this one puts out."""


Stream = TypeVar("Stream", bound=_Rows)


class StatefulSteps(ABC, Generic[Stream]):
    """Offer the steps that keep state: to keyed streams, and to whole streams as one group without a key."""

    _keys: tuple[str, ...] = ()

    @property
    @abstractmethod
    def _stream(self) -> Stream:
        """The stream whose rows the steps take."""

    def window(self, name: str, spec: TimeWindow, *, partitions: int | None = None) -> WindowedStream[Stream]:
        """Cut each key's rows into windows; the step's state lives under `name`.

        `partitions` of the state: of a keyed stream the job's, unless said otherwise, of a whole stream one.
        """
        if not isinstance(spec, TimeWindow):
            raise JobError(
                f"window {name!r} needs a window such as Tumbling(seconds(10)), not {spec!r}", where=str(user_site())
            )
        if spec.late is None:
            raise MissingLatePolicy(f"window {name!r} does not say what happens to late rows", where=str(user_site()))
        step = checked_name(name, "a window step")
        windowed = WindowedStream(self._stream, self._keys, step, spec, self._partitions(step, partitions))
        self._stream._job._windowed.append(windowed)
        return windowed

    def map_with_state(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        state: str,
        output: str,
        timeout: Timeout | None = None,
        initial: str | Callable[[], Any] | None = None,
        unbounded: bool = False,
        on_error: OnError = OnError.FAIL,
        partitions: int | None = None,
    ) -> Stream:
        """Call `fn(time, key, row, state) -> None | dict | list[dict]` for each row, as they arrived (SEMANTICS 7.1).

        `time` is the batch's, an aware datetime in UTC; `key` the value of the key column, a named tuple where there
        are several, () where there is none; `row` a dict of all columns, None when the key times out or a timer fires;
        `state` a `State`.
        `state` and `output` are Spark DDL such as "n long, seen array<string>"; what is returned has the columns of
        `output`. State without a `timeout` grows with the keys, which `unbounded=True` accepts (7.7).
        `initial` is the name of a table, or a function that returns a DataFrame, of keys and states: loaded once, with
        the first batch (7.3).
        `on_error` says what an exception of the function does: the batch fails, or what it was called with goes to
        `job.quarantine(name)` and the key's state stays as it was before the call.
        """
        return self._function(
            name,
            fn,
            partitions,
            form=Form.ROWS,
            state=_checked_ddl(state, "state", name),
            output=_checked_ddl(output, "output", name),
            timeout=_checked_timeout(timeout, name, unbounded=unbounded),
            initial=_checked_initial(initial, name),
            on_error=_checked_on_error(on_error, name),
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
        initial: str | Callable[[], Any] | None = None,
        unbounded: bool = False,
        on_error: OnError = OnError.FAIL,
        partitions: int | None = None,
    ) -> Stream:
        """Call `fn(rows, state, info) -> (out, state)` once a batch and partition, with Arrow tables (SEMANTICS 7.1).

        `rows` has all columns, in order of arrival; `info.keys` the distinct keys, as a table; `state` a row for each
        of them, in that order, all null where a key has none. A row of the state that is returned all null removes the
        key's. Keys that time out come in a second call, with `info.timing_out` and without rows; their state is
        removed then. `out` is None for nothing. `on_error` is as for `map_with_state`, with all rows of a partition.
        A window or another step of event time behind it needs to be told the event time of `out`: `event_time` is a
        column of it, or a Spark SQL expression over its columns, a timestamp; `same_rows=True` promises a row for each
        of `rows`, in their order, with their event times, and where keys time out one for each of them or none.
        """
        if event_time is not None and same_rows:
            raise JobError(
                f"step {name!r} has event_time= and same_rows=True, which are two answers to one question; keep one",
                where=str(user_site()),
            )
        return self._function(
            name,
            fn,
            partitions,
            form=Form.ARROW,
            state=_checked_ddl(state, "state", name),
            output=_checked_ddl(output, "output", name),
            timeout=_checked_timeout(timeout, name, unbounded=unbounded),
            initial=_checked_initial(initial, name),
            on_error=_checked_on_error(on_error, name),
            event_time=None if event_time is None else _checked_ddl(event_time, "event_time", name),
            same_rows=same_rows,
        )

    def update_state_by_key(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        value: str = "v",
        state: str,
        initial: str | Callable[[], Any] | None = None,
        touched_only: bool = False,
        with_key_time: bool = False,
        on_error: OnError = OnError.FAIL,
        partitions: int | None = None,
    ) -> Stream:
        """Call `fn(values, old) -> new` for each key with rows or state, in every batch (SEMANTICS 7.5).

        `values` are those of the column `value`, in order of arrival; `old` is None for a key without state, and None
        as `new` removes it. State of one column is that value, of several a dict. With a fixed interval every tick is
        a batch. `touched_only` calls only for keys with rows; `with_key_time` calls `fn(time, key, values, old)`.
        The rows put out are the keys and the new state of every key that was called for. `on_error` is as for
        `map_with_state`, with all rows of a key.
        """
        return self._function(
            name,
            fn,
            partitions,
            form=Form.UPDATE,
            state=_checked_ddl(state, "state", name),
            value=_checked_ddl(value, "value", name),
            initial=_checked_initial(initial, name),
            on_error=_checked_on_error(on_error, name),
            touched_only=touched_only,
            with_key_time=with_key_time,
        )

    def _function(self, name: str, fn: object, partitions: int | None, **said: Any) -> Stream:
        if not callable(fn):
            raise JobError(f"step {name!r} needs a function, not {fn!r}", where=str(user_site()))
        step = checked_name(name, "a step")
        count = self._partitions(step, partitions)
        node = FunctionNode(parent=self._stream._node, name=step, keys=self._keys, partitions=count, fn=fn, **said)
        return self._stream._then(node, step)

    def _partitions(self, step: str, partitions: int | None) -> int:
        if partitions is not None:
            return checked_partitions(partitions)
        if not self._keys:
            return 1
        chosen = self._stream._job.partitions
        return default_partitions(step) if chosen is None else chosen


class KeyedStream(StatefulSteps[Stream]):
    """Stand for a stream whose rows are grouped by key."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self._rows = stream
        self._keys = keys

    @property
    def _stream(self) -> Stream:
        return self._rows


class WindowedStream(Generic[Stream]):
    """Stand for windows that wait to be told what to compute."""

    def __init__(self, stream: Stream, keys: tuple[str, ...], name: str, spec: TimeWindow, partitions: int) -> None:
        self._stream = stream
        self._keys = keys
        self._name = name
        self._spec = spec
        self._partitions = partitions
        self._site = user_site()
        self._used = False

    def aggregate(self, **aggregates: Aggregate) -> Stream:
        """Compute one row for each key and window: the keys, window_start, window_end, and these columns."""
        self._used = True  # also where it is refused: that is said at once, and the window may be written again
        if not aggregates:
            raise JobError(
                f"window {self._name!r} computes nothing: name at least one aggregate", where=str(user_site())
            )
        taken = {*self._keys, "window_start", "window_end"}
        for name, aggregate in aggregates.items():
            if name in taken:
                raise DuplicateName(f"window {self._name!r} has a column {name!r} already", where=str(user_site()))
            if not isinstance(aggregate, Aggregate):
                raise JobError(
                    f"column {name!r} needs an aggregate such as agg.sum('v'), not {aggregate!r}",
                    where=str(user_site()),
                )
        node = WindowNode(
            parent=self._stream._node,
            name=self._name,
            keys=self._keys,
            spec=self._spec,
            aggregates=dict(aggregates),
            partitions=self._partitions,
        )
        return self._stream._then(node, node.name)

    def _refuse_unused(self) -> None:
        if not self._used:
            raise JobError(
                f"window {self._name!r} computes nothing: add .aggregate(n=agg.count()) or the like, or remove it",
                where=str(self._site),
            )


def _checked_ddl(text: object, what: str, name: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise BadExpression(f"{what}= of step {name!r} is {text!r}, not a text", where=str(user_site()))
    return text


def _checked_timeout(timeout: object, name: str, *, unbounded: bool) -> Timeout:
    if timeout is None or timeout == NEVER:
        if not unbounded:
            raise UnboundedState(f"nothing bounds the state of step {name!r}", where=str(user_site()))
        return NEVER
    if not isinstance(timeout, Timeout):
        raise _unfit("timeout", name, timeout, "write idle(minutes(5)), event_time(), or both with |")
    return timeout


def _checked_on_error(on_error: object, name: str) -> OnError:
    if not isinstance(on_error, OnError):
        raise _unfit("on_error", name, on_error, "write OnError.FAIL or OnError.QUARANTINE")
    return on_error


def _checked_initial(initial: object, name: str) -> Any:
    if initial is not None and not isinstance(initial, str) and not callable(initial):
        raise _unfit("initial", name, initial, "give a table's name, or a function that returns a DataFrame")
    return initial


def _unfit(what: str, name: str, value: object, hint: str) -> JobError:
    return JobError(f"{what}= of step {name!r} is {value!r}; {hint}", where=str(user_site()))

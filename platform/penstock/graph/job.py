"""Build jobs: a `Job` hands out streams, and each method of a stream adds one step."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from penstock.errors import BadExpression, DuplicateName
from penstock.graph.alignment import Align
from penstock.graph.cache import CacheMethods
from penstock.graph.durations import Duration, duration_micros, hours
from penstock.graph.endpoint_checks import checked_sink, checked_source, is_live
from penstock.graph.graph import JobGraph, checked_graph
from penstock.graph.join_static import JoinStaticMethods
from penstock.graph.keyed import KeyedStream, StatefulSteps
from penstock.graph.listeners import checked_listener
from penstock.graph.map_batches import MapBatchesMethods
from penstock.graph.names import checked_name, column_names
from penstock.graph.nodes import (
    CheckNode,
    FilterNode,
    LateNode,
    Node,
    QuarantineNode,
    SelectNode,
    SideNode,
    SinkNode,
    SnapshotNode,
    SourceNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from penstock.graph.partitions import checked_partitions
from penstock.graph.policies import MaxRate, OnFail
from penstock.graph.schedules import Auto, EveryBatches, Never, Schedule, checked_schedule
from penstock.graph.source_location import job_error, user_site
from penstock.graph.stateful import Unfinished
from penstock.graph.steps import StepNode
from penstock.graph.unknown_methods import METHODS_OF_STREAMS

__all__ = ["Job", "Stream"]

_FOREACH_BATCH = "penstock.sinks.foreach_batch"
"""The module of the sink that a method of streams makes, which is of a higher layer (decision 118)."""
_FUTURE_OF_LIVE = hours(1)


class Job:
    """Describe one streaming job: its sources, steps and sinks.

    `interval` is the fixed time between batches, or None for as fast as possible (or as the runner says).
    `partitions` is the number of state partitions of each keyed step, 1 to 4096. None takes what the checkpoint has;
    before there is one, as many as Spark has cores. Only a restore changes the number of a step that has state.
    """

    def __init__(self, name: str, *, interval: Duration | None = None, partitions: int | None = None) -> None:
        self.name = checked_name(name, "a job")
        self.interval = None if interval is None else duration_micros(interval, "the interval of a job", least=1_000)
        self.partitions = None if partitions is None else checked_partitions(partitions)
        self._nodes: list[Node] = []
        self._names: dict[str, Node] = {}
        self.unfinished: list[Unfinished] = []
        self._filters = 0
        self._checkpoints: Schedule | None = None
        self._rates: dict[str, MaxRate] = {}
        self._listeners: list[Any] = []
        self._estimator: Callable[[float], Any] | None = None

    def checkpoint(self, *, every: Duration | EveryBatches | Auto | Never) -> None:
        """Make a data checkpoint of all stateful steps at this interval (DESIGN 5), in place of the configuration's.

        A Duration goes by batch times. `AUTO` chooses from what one costs and how often drivers fail.
        """
        if self._checkpoints is not None:
            raise job_error("a job has one interval of data checkpoints")
        self._checkpoints = checked_schedule(every)

    def source(
        self,
        name: str,
        source: Any,
        *,
        event_time: str | None = None,
        max_out_of_order: Duration | None = None,
        idle_after: Duration | None = None,
        max_future: Duration | None = None,
        align: Align | None = None,
    ) -> Stream:
        """Read a source under a stable name.

        `event_time` is a Spark SQL expression that gives a timestamp. It needs `max_out_of_order`, the bound by which
        rows may be out of order (SEMANTICS 2.1).
        `idle_after` lets a partition with nothing new stop holding the watermark back (2.4).
        `max_future` puts rows too far ahead of the batch time in quarantine (2.7). Without it a live source has an
        hour, and a replayed file no bound: its batch times are not those of its rows.
        `align=align(max_drift=d)` keeps it from being read further than d ahead of the slowest source (2.8).
        """
        if (event_time is None) != (max_out_of_order is None):
            raise job_error(f"source {name!r} has only one of event_time and max_out_of_order; give both or neither")
        if event_time is None and not (idle_after is None and max_future is None and align is None):
            raise job_error(
                f"source {name!r} has no event_time, so nothing for idle_after, max_future or align to bound"
            )
        if not (align is None or isinstance(align, Align)):
            raise job_error(f"align= of source {name!r} is {align!r}; write align(max_drift=minutes(5)) of penstock")
        source = checked_source(name, source)
        if max_future is None and event_time is not None and is_live(source):
            max_future = _FUTURE_OF_LIVE
        node = SourceNode(
            name=checked_name(name, "a source"),
            source=source,
            order=sum(isinstance(n, SourceNode) for n in self._nodes),
            event_time=_checked_sql(event_time, "event_time") if event_time is not None else None,
            max_out_of_order=(0 if max_out_of_order is None else duration_micros(max_out_of_order, "max_out_of_order")),
            idle_after=None if idle_after is None else duration_micros(idle_after, "idle_after", least=1),
            max_future=None if max_future is None else duration_micros(max_future, "max_future"),
            align=None if align is None else align.max_drift,
        )
        return Stream(self, self._add(node, node.name))

    def listen(self, listener: Any) -> None:
        """Call a listener's methods as batches come and go.

        It has at least one of `on_batch_submitted`, `on_batch_started` and `on_batch_completed`, each of which gets a
        `penstock.BatchInfo`. Or it has `on_receiver_started`, `on_receiver_error` or `on_receiver_stopped`, each of
        which gets a `penstock.ReceiverInfo`. They are called on the driver, between the stages of a batch, so they
        should be quick. An error in one is logged, and the batch is not affected.
        """
        self._listeners.append(checked_listener(listener))

    def estimate_rate(self, make: Callable[[float], Any]) -> None:
        """Estimate the rate of live sources by an estimator of the job's own (SEMANTICS 8.0).

        It takes the place of the configuration's, which must then name none.

        Args:
            make: Returns a new `penstock.rates.RateEstimator` for a batch interval in milliseconds, such as its class.
                Each driver that starts calls it, and feeds what it returns the newest batches of the log.

        An estimate that raises, or is no number above 0, is logged as `rates.estimator_failed`, and the rate before
        stays in force.

        Raises:
            JobError: `make` cannot be called, or the job has an estimator already. At the start of a driver with live
                sources: what `make` returns has no `compute`.
        """
        if self._estimator is not None:
            raise job_error("a job has one rate estimator")
        if not callable(make):
            raise job_error(f"estimate_rate takes a function of the batch interval in milliseconds, not {make!r}")
        self._estimator = make

    def late(self, name: str) -> Stream:
        """Return the stream of rows that were late for the windows with `.late_to(name)`."""
        return self._side(LateNode(name=checked_name(name, "a late stream")))

    def quarantine(self, name: str) -> Stream:
        """Return the quarantine (dead letter) of the check, source or state function of this name."""
        return self._side(QuarantineNode(name=checked_name(name, "a quarantine stream")))

    def graph(self) -> JobGraph:
        """Return the finished graph, or say what is missing in it."""
        for windows in self.unfinished:
            windows.refuse_unused()
        nodes = tuple(self._nodes)
        return checked_graph(
            self.name,
            nodes,
            interval=self.interval,
            checkpoints=self._checkpoints,
            rates=dict(self._rates),
            listeners=tuple(self._listeners),
            estimator=self._estimator,
        )

    def _side(self, node: SideNode) -> Stream:
        for known in self._nodes:
            if isinstance(known, SideNode) and type(known) is type(node) and known.name == node.name:
                return Stream(self, known)
        self._nodes.append(node)
        return Stream(self, node)

    def _add(self, node: Node, name: str | None = None) -> Node:
        if name is not None:
            if name in self._names:
                raise DuplicateName(
                    f"{name!r} is already the name of a step at {self._names[name].site}", where=str(node.site)
                )
            self._names[name] = node
        self._nodes.append(node)
        return node


class Stream(MapBatchesMethods["Stream"], JoinStaticMethods["Stream"], CacheMethods["Stream"], StatefulSteps["Stream"]):
    """Rows in motion; each method returns a new stream and leaves this one as it is."""

    advice = METHODS_OF_STREAMS

    def __init__(self, job: Job, node: Node) -> None:
        self._job = job
        self._node = node

    @property
    def _stream(self) -> Stream:
        return self

    def _subject(self) -> str:
        return "a stream"

    def max_rate(self, rows_per_second: float | None = None, *, per_partition: float | None = None) -> Stream:
        """Limit the rows a second that are read of a source, whatever the rate estimator gives (SEMANTICS 8).

        It belongs right behind `job.source`. A limit of each source, of the configuration or `penstock limits`, can
        lower it. One of this source alone takes its place.

        Args:
            rows_per_second: The most of the source as a whole; None for no limit.
            per_partition: The most of each of its partitions; None for no limit.

        Raises:
            JobError: This is no source, it has a limit already, or a limit is not above 0.
        """
        node = self._node
        if not isinstance(node, SourceNode):
            raise job_error("max_rate limits a source: write it right behind job.source(…)")
        if node.name in self._job._rates:
            raise job_error(f"source {node.name!r} has a max_rate already")
        given = [rate for rate in (rows_per_second, per_partition) if rate is not None]
        if not given:
            raise job_error("max_rate needs rows_per_second, per_partition or both")
        for rate in given:
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < inf:
                raise job_error(f"max_rate is a number of rows a second above 0, not {rate!r}")
        self._job._rates[node.name] = MaxRate(rows=rows_per_second, per_partition=per_partition, where=str(user_site()))
        return self

    def filter(self, predicate: str) -> Stream:
        """Keep the rows where the Spark SQL predicate is true; the others are counted."""
        self._job._filters += 1
        return self._then(
            FilterNode(
                parent=self._node,
                predicate=_checked_sql(predicate, "a filter"),
                name=f"filter_{self._job._filters}",
            )
        )

    def select(self, *expressions: str) -> Stream:
        """Keep these Spark SQL expressions only, such as "user" and "v * 2 AS w"."""
        if not expressions:
            raise job_error("select needs at least one expression")
        return self._then(
            SelectNode(parent=self._node, expressions=tuple(_checked_sql(e, "a column") for e in expressions))
        )

    def with_columns(self, **columns: str) -> Stream:
        """Add or replace columns, each given as name="Spark SQL expression"."""
        if not columns:
            raise job_error("with_columns needs at least one column")
        checked = {name: _checked_sql(sql, f"column {name}") for name, sql in columns.items()}
        return self._then(WithColumnsNode(parent=self._node, columns=checked))

    def transform(self, name: str, fn: Callable[..., Any], *, per_batch: bool = False) -> Stream:
        """Apply fn(DataFrame) -> DataFrame, once, when the plan is made.

        Before a window the function must keep the columns whose names begin with `_penstock_`.
        With `per_batch` it is fn(DataFrame, info) -> DataFrame, called in every batch: `info` has `batch`, `time`,
        `watermark` and `epoch`. Spark then analyses and plans the whole job again for each batch. The columns must be
        the same in every batch, and the rows must depend on nothing but the DataFrame and `info`, because a batch may
        be run again. It is called at the start too, to learn the columns, with batch -1 and without rows to read.
        Either way the function describes rows: it cannot count, collect or write them.
        """
        if not callable(fn):
            raise job_error(f"transform {name!r} needs a function of a DataFrame")
        if not isinstance(per_batch, bool):
            raise job_error(f"per_batch= of transform {name!r} is {per_batch!r}, neither True nor False")
        node = TransformNode(parent=self._node, name=checked_name(name, "a transform"), fn=fn, per_batch=per_batch)
        return self._then(node, node.name)

    def union(self, other: Stream) -> Stream:
        """Put two streams with the same columns together."""
        if not isinstance(other, Stream) or other._job is not self._job:
            raise job_error("union needs another stream of the same job")
        return self._then(UnionNode(left=self._node, right=other._node))

    def key_by(self, *columns: str) -> KeyedStream[Stream]:
        """Group by these columns for the stateful step that follows."""
        if not columns:
            raise job_error("key_by needs at least one column")
        return KeyedStream(self, column_names(columns, "key_by"))

    def snapshots(self) -> Stream:
        """Return the whole state after each batch: keys and state columns, for every key (SEMANTICS 7.4).

        It is there for what map_with_state, map_with_state_arrow and update_state_by_key returned. Each batch then
        reads all of the step's state, whatever it touches.
        """
        node = self._node
        streams = node.spec.side_streams(node.name).values() if isinstance(node, StepNode) else ()
        for kind, name in streams:
            if kind is SnapshotNode:
                return self._job._side(SnapshotNode(name=name))
        raise job_error(
            "snapshots() is there for what map_with_state, map_with_state_arrow or update_state_by_key returned"
        )

    def check(
        self,
        name: str,
        *,
        suite: str | Mapping[str, Any] | None = None,
        on_fail: OnFail = OnFail.QUARANTINE,
        on_table_fail: OnFail | None = None,
    ) -> Stream:
        """Judge the rows by a Great Expectations suite before anything downstream sees them.

        `suite` is the stem of a file in conf/quality (default: the name of the check) or the suite itself.
        `on_fail` says what becomes of rows that fail a row rule (SEMANTICS 11.5); rows in quarantine are read from
        `job.quarantine(name)`, which needs a sink.
        `on_table_fail` says what a failed table rule does, which has no rows to choose from: WARN, HOLD or STOP (11.6).
        None means: as `on_fail` where that is WARN, HOLD or STOP, otherwise HOLD.
        """
        if not isinstance(on_fail, OnFail) or not isinstance(on_table_fail, OnFail | None):
            raise job_error(f"check {name!r} needs an OnFail value")
        if on_table_fail in (OnFail.DROP, OnFail.QUARANTINE):
            raise job_error(f"check {name!r}: a table rule has no rows to drop; use WARN, HOLD or STOP")
        node = CheckNode(
            parent=self._node,
            name=checked_name(name, "a check"),
            suite=name if suite is None else suite,
            on_fail=on_fail,
            on_table_fail=on_table_fail,
        )
        return self._then(node, node.name)

    def write(self, name: str, sink: Any) -> None:
        """Write the rows to a sink under a stable name."""
        node = SinkNode(parent=self._node, name=checked_name(name, "a sink"), sink=checked_sink(name, sink))
        self._job._add(node, node.name)

    def foreach_batch(self, name: str, fn: Callable[[Any, Any], object]) -> None:
        """Call a function on the driver with the rows of each batch, after the Commit, under a stable name.

        Args:
            name: The name of the sink.
            fn: Called as `fn(df, info)` once a batch with rows; `info` is a `penstock.sinks.PublishedBatch`. After a
                crash, or an error of its own, it is called again with the same batch: at least once.

        Raises:
            JobError: `fn` cannot be called with two arguments.
        """
        self.write(name, importlib.import_module(_FOREACH_BATCH).ForeachBatch(fn))

    def _then(self, node: Node, name: str | None = None) -> Stream:
        return Stream(self._job, self._job._add(node, name))


def _checked_sql(sql: object, what: str) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise job_error(f"{what} is {sql!r}, not a Spark SQL expression", BadExpression)
    return sql

"""The names that users and tests elsewhere rely on (API): each can be called as it is written there."""

from __future__ import annotations

import importlib
import inspect
import re
from operator import attrgetter
from typing import Any

import pytest

BINDING = """
penstock.Job(name, *, interval=None, partitions)
penstock.Job.source(name, source, *, event_time, max_out_of_order, idle_after=None, max_future=None, align=None)
penstock.Job.late(name)
penstock.Job.quarantine(name)
penstock.Job.listen(listener)
penstock.Stream.filter(predicate)
penstock.Stream.select(*expressions)
penstock.Stream.with_columns(**columns)
penstock.Stream.transform(name, fn, *, per_batch=False)
penstock.Stream.map_batches(name, fn, *, output)
penstock.Stream.union(other)
penstock.Stream.cache(*, level)
penstock.Stream.key_by(*columns)
penstock.Stream.write(name, sink)
penstock.Stream.foreach_batch(name, fn)
penstock.Stream.check(name, *, suite, on_fail, on_table_fail)
penstock.Stream.snapshots()
penstock.Stream.max_rate(rows_per_second, *, per_partition=None)
penstock.Stream.deduplicate(name, *, by, within, partitions)
penstock.Stream.join(name, other, *, on, within, how='inner', partitions)
penstock.Stream.join_as_of(name, other, *, on, within, partitions)
penstock.Stream.join_static(table, *, on, how, refresh)
penstock.{Stream,KeyedStream}.window(name, spec, *, partitions)
penstock.{Stream,KeyedStream}.map_with_state(name, fn, *, state, output, timeout=None, initial=None, unbounded=False, partitions)
penstock.{Stream,KeyedStream}.map_with_state_arrow(name, fn, *, state, output, event_time=None, same_rows=False, timeout=None, initial=None, unbounded=False, partitions)
penstock.{Stream,KeyedStream}.update_state_by_key(name, fn, *, value='v', state, initial=None, touched_only=False, with_key_time=False, partitions)
penstock.{WindowedStream,BatchWindowedStream}.aggregate(**aggregates)
penstock.{WindowedStream,BatchWindowedStream}.apply(fn, *, output)
penstock.BatchWindowedStream.rows()
penstock.BatchWindowedStream.reduce_by_key(fn, *, value='v', inverse=None, keep=None)
penstock.BatchWindowedStream.count()
penstock.BatchWindowedStream.{count_by_value,group}(value)
penstock.{micros,millis,seconds,minutes,hours,days,count}(n)
penstock.EveryBatches(batches)
penstock.OnNewVersion()
penstock.align(*, max_drift)
penstock.windows.Tumbling(size, *, offset=0)
penstock.windows.Sliding(size, *, every, offset=0)
penstock.windows.Cumulative(size, *, step)
penstock.windows.Session(gap)
penstock.windows.TimeWindow.{drop_late,accumulating,discarding}()
penstock.windows.TimeWindow.late_to(name)
penstock.windows.TimeWindow.update_late(*, within, then)
penstock.windows.TimeWindow.emit_every(d)
penstock.windows.TimeWindow.emit_on(rows)
penstock.windows.TimeWindow.lateness_rule(rule)
penstock.windows.LatenessRule.{WINDOW,WATERMARK}
penstock.windows.Time.{PROCESSING,EVENT}
penstock.windows.drop_late()
penstock.windows.late_to(name)
penstock.windows.BatchWindow(length, *, slide)
penstock.windows.TupleWindow(length, slide=None, *, time=<Time.PROCESSING>, lag, late_to=None)
penstock.windows.TupleWindow.tumbling(length)
penstock.windows.GlobalWindow()
penstock.windows.GlobalWindow.trigger(trigger)
penstock.windows.GlobalWindow.evict(evictor)
penstock.agg.count()
penstock.agg.{sum,mean,min,max,var_pop,var_samp,stddev_pop,stddev_samp,first,last,count_distinct,approx_count_distinct}(expression)
penstock.agg.approx_quantile(expression, q)
penstock.agg.top_k(expression, k, *, by)
penstock.agg.collect(expression, *, limit)
penstock.agg.custom(*, zero, add, merge, result, subtract=None, input, state, output)
penstock.state.idle(duration)
penstock.state.event_time()
penstock.state.State.{exists,get,remove,is_timing_out}()
penstock.state.State.get_or(default)
penstock.state.State.update(**columns)
penstock.state.State.set_timer(at, clock)
penstock.state.State.set_deadline(at)
penstock.state.State.fired_timers
penstock.quality.OnFail.{WARN,DROP,QUARANTINE,HOLD,STOP}
penstock.sources.MemorySource(schema)
penstock.sources.FileReplay(path, *, order_by, rows_per_batch=5000, speed=None, on_end=<OnEnd.CLOSE>)
penstock.sources.Kafka(topics, *, pattern, servers, format, start, with_columns, options)
penstock.sources.Start.{EARLIEST,LATEST,SNAPSHOT}
penstock.sources.{Json,Csv}(schema)
penstock.sources.Avro(schema)
penstock.sources.{Text,Raw,Parquet}()
penstock.sources.Files(path, *, format, at_most, afterwards=<Afterwards.LEAVE>)
penstock.sources.{files,bytes_}(count)
penstock.sources.Afterwards.{LEAVE,MOVE,DELETE}
penstock.sources.DeltaTable(path, *, start=<Start.SNAPSHOT>, changes=False)
penstock.sources.version(number)
penstock.sources.Rate(rows_per_second, *, ramp)
penstock.sources.Socket(host, port)
penstock.sources.Http(*, port, token, schema)
penstock.sinks.{MemorySink,Console}()
penstock.sinks.Delta(path, *, mode=<Mode.APPEND>, keys, partition_by)
penstock.sinks.{Parquet,JsonLines}(path)
penstock.sinks.Kafka(topic, *, servers, key, value, delivery=<Delivery.EXACTLY_ONCE>)
penstock.sinks.Postgres(dsn, table, *, mode=<Mode.APPEND>, keys)
penstock.sinks.{Json,Avro}()
penstock.sinks.Mode.{APPEND,UPSERT}
penstock.sinks.Delivery.{EXACTLY_ONCE,AT_LEAST_ONCE}
penstock.testing.Crashed
penstock.testing.Harness(job, root, *, interval, zero=0)
penstock.testing.Harness.batch(rows, *, at=None, watermark=None, follow=True)
penstock.testing.Harness.restart(job=None)
penstock.testing.Harness.restore(*, batch)
penstock.testing.Harness.state(step)
penstock.testing.Harness.{commit,output}()
penstock.testing.Harness.late(name)
penstock.testing.Harness.{crash_after,crash_before}(stage)
penstock.rates.RateEstimator.compute(time_ms, rows, processing_ms, scheduling_ms)
penstock.rates.{PIDRateEstimator,CostModel,Constant}.compute(time_ms, rows, processing_ms, scheduling_ms)
penstock.rates.PIDRateEstimator(batch_interval_ms, proportional=1.0, integral=0.2, derivative=0.0, min_rate=100.0)
penstock.rates.partition_limits(rate, lag, *, seconds, max_rate=None, min_rate=1)
"""
"""A name, and the arguments that it takes as API writes them; a default where that is binding."""


def _names() -> list[str]:
    """Return each line once for each name in braces."""
    lines = []
    for line in BINDING.split("\n"):
        choice = re.search(r"{(.*?)}", line)
        names = choice[1].split(",") if choice else [""]
        lines += [line.replace(choice[0], name) if choice else line for name in names if line]
    return lines


def _found(path: str) -> tuple[Any, bool]:
    """Return what a path names, and whether it is called on an object, so that its first argument is given."""
    parts = path.split(".")
    cut = next(i for i, part in enumerate(parts) if part[0].isupper() or i == len(parts) - 1)
    thing = attrgetter(".".join(parts[cut:]))(importlib.import_module(".".join(parts[:cut])))
    return thing, inspect.isfunction(thing) and len(parts) > cut + 1


@pytest.mark.parametrize("line", _names(), ids=lambda line: line.split("(")[0])
def test_a_binding_name_takes_what_it_is_given(line: str) -> None:
    """API: arguments by position and by name, their defaults, and no other argument that must be given."""
    path, call, written = line.rstrip(")").partition("(")
    thing, bound = _found(path)
    if not call:  # a value, or a class that nobody makes
        return
    parameters = list(inspect.signature(thing).parameters.values())[bound:]
    by_name = {parameter.name: parameter for parameter in parameters}
    arguments, keyword = [part for part in written.split(", ") if part], False
    for place, argument in enumerate(arguments):
        name, _, default = argument.partition("=")
        if name == "*":
            keyword = True
            continue
        parameter = by_name.get(name.lstrip("*"))
        assert parameter is not None, f"{path} takes no {name}"
        if name.startswith("*"):
            kind = parameter.VAR_KEYWORD if name.startswith("**") else parameter.VAR_POSITIONAL
            assert parameter.kind is kind, f"{path} takes no number of {name}"
        elif not keyword:
            assert parameters.index(parameter) == place, f"{path} does not take {name} at place {place}"
            assert parameter.kind is not parameter.KEYWORD_ONLY, f"{path} takes {name} by name only"
        if default:
            shown = re.sub(r": '.*?'>$", ">", repr(parameter.default))
            assert shown == default, f"{path} has the default {shown} for {name}"
    needed = {p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    assert needed <= {argument.partition("=")[0] for argument in arguments}, f"{path} needs {needed}"

"""Start a job of a project, from the question who may run it to its driver, and run it to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint.log.metadata import read_metadata, refuse_part
from penstock.checkpoint.log.queries import find_restore_by_command
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import refuse_moved, survey
from penstock.checkpoint.roots import control_store, job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.values import is_local, reference_of
from penstock.errors import (
    CannotRestore,
    ClusterUnavailable,
    ComputeFailed,
    EngineGone,
    EnvironmentUnfit,
    FormerCheckpoint,
    LogGap,
    PenstockError,
    RootMissing,
)
from penstock.graph.graph import JobGraph
from penstock.quality.held.decision_records import HeldRecords
from penstock.quality.suite import find_suites
from penstock.runtime.process.choices import choose_rates, choose_schedule, choose_trigger
from penstock.runtime.process.collector_pauses import ShortPauses
from penstock.runtime.process.control import Orders, OrderWatch
from penstock.runtime.process.heartbeat import DriverStatus, Heartbeat, StatusRecords, former_checkpoint
from penstock.runtime.process.minimum_rates import in_record, minimum_rates
from penstock.runtime.process.progress import ProgressView
from penstock.runtime.process.project import LoadedJob, code_version
from penstock.runtime.process.runner import Runner
from penstock.runtime.process.signals import Ending, StoppableClock, StopSwitch
from penstock.runtime.process.takeover_policy import HolderWatch, StoppedWaiting, holder_name
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.move import finish_move
from penstock.runtime.restore.sink_truncation import plan_truncation, was_truncated
from penstock.runtime.restore.target import LAST, RestoreTarget, find_superseded
from penstock.runtime.spark.errors import naming_the_dead
from penstock.runtime.spark.warm_up import warm
from penstock.sinks import Delta
from penstock.sinks.delta.log_entry import former_writer
from penstock.time.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.runtime.spark.engine import SparkEngine

__all__ = ["RunOrder", "analysed", "launch", "open_spark", "refuse_to_begin"]

_OF_SPARK = (ClusterUnavailable, ComputeFailed, EngineGone, EnvironmentUnfit)
"""What Spark fails with, also where somebody ends it."""

_OF_CLUSTER = ("spark.pyspark.", "spark.driver.host", "spark.driver.bindAddress", "spark.executorEnv.")
"""Settings that mean the machines of a cluster, and nothing on this one."""


@dataclass(frozen=True, kw_only=True)
class RunOrder:
    """Say what was asked of one run; `deadline` is seconds, None for the setting's.

    `generation` and `command` are a supervisor's or a scheduler's. A newer generation takes over at once, and a command
    restores once, however often it is given (DESIGN 11). `drop` names steps that the job no longer has and whose state
    is dropped. Without `goes_on` the run ends after the restore. `new_lineage` begins a checkpoint where there was one
    (F19). With `debug` steps check what users' functions promise.
    """

    start: RestoreTarget = LAST
    available_now: bool = False
    drain: bool = False
    take_over: bool = False
    gates: Mapping[int, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    deadline: float | None = None
    generation: int = 0
    command: str | None = None
    goes_on: bool = True
    new_lineage: bool = False
    debug: bool = False


def launch(loaded: LoadedJob, order: RunOrder, progress: ProgressView, orders: Orders) -> Ending:
    """Run a job until it is done or stopped, by a signal or by its orders; from the main thread, which hears signals.

    Raises PenstockError; HolderAlive before Spark is started where another driver lives, and Fenced where the
    generation was over before anything began.
    """
    settings = loaded.settings
    system = SystemClock()
    deadline = settings.run.deadline.seconds if order.deadline is None else order.deadline
    switch = StopSwitch(deadline, clock=system)
    switch.told = lambda: progress.stopping(deadline)
    with switch.armed():
        watch = OrderWatch(orders, switch, first=settings.limits.of_batches)
        try:
            watch.look()
            with watch.watching():
                # One that ends because a newer generation was claimed has ended, and has said so.
                return _launched(loaded, order, progress, switch, StoppableClock(system, switch.asked), watch)
        except (KeyboardInterrupt, StoppedWaiting):  # the first only while Spark starts, before it is listened to again
            watch.refuse_if_over()
            switch.wait_until_told()
            progress.ended(Ending.STOPPED, batches=0, rows=0, seconds=0.0)
            return Ending.STOPPED


def _launched(
    loaded: LoadedJob,
    order: RunOrder,
    progress: ProgressView,
    switch: StopSwitch,
    clock: StoppableClock,
    orders: OrderWatch,
) -> Ending:
    from penstock.runtime.driver.loop import DriverSettings, Identity
    from penstock.runtime.process.job_run import JobRun
    from penstock.runtime.snapshots.scheduler import DataCheckpointPolicy, HelperProcess

    settings, name, graph = loaded.settings, loaded.job.name, loaded.job.graph()
    trigger, rates = choose_trigger(loaded.job, settings), choose_rates(graph, settings)
    schedule = choose_schedule(graph, settings)
    control = control_store(settings.root)
    folder = settings.root / name
    records = StatusRecords(control, name)
    watch = HolderWatch(
        folder,
        patience=settings.run.takeover_after.seconds,
        clock=clock,
        generation=order.generation,
        told=order.take_over,
        stopped=switch.asked.is_set,
    )
    start = _look_first(folder, watch, order, progress, graph)
    if not (order.goes_on or start.restore):
        progress.ended(Ending.RESTORED, batches=0, rows=0, seconds=0.0)
        return Ending.RESTORED
    identity = Identity(
        holder=holder_name(),
        code_version=code_version(loaded.project, name),
        generation=order.generation,
        command=order.command,
    )
    facts = {
        "job": name,
        "holder": identity.holder,
        "writer": identity.writer,
        "code_version": identity.code_version,
        "generation": identity.generation,
        "ignores": orders.ignored(),
        "started": clock.wall(),
        "tables": {sink.name: str(sink.sink.path) for sink in graph.sinks if isinstance(sink.sink, Delta)},
        "sinks": {sink.name: sink.sink.describe() for sink in graph.sinks},
        "graph": graph.shape(),
        "minimum_rates": in_record(minimum_rates(graph, settings)),
        "event_time": {
            source.name: {"max_out_of_order": source.max_out_of_order, "idle_after": source.idle_after}
            for source in graph.sources
            if source.event_time is not None
        },
    }
    status = DriverStatus(facts, clock)
    clock.napping = status.on_nap
    runner = Runner(switch, clock, progress, status, Heartbeat(records, status))
    progress.starting({"checkpoint": str(folder), "spark": settings.spark.master, "code": identity.code_version})
    with ExitStack() as spark_lives:
        with _start_step(switch):
            spark = spark_lives.enter_context(_spark_of(loaded))
            warm(spark)
            switch.hear()
        with _start_step(switch):
            run = JobRun.open(
                loaded.job,
                spark,
                root=settings.root,
                clock=clock,
                trigger=trigger,
                suites=find_suites(graph, loaded.project.quality),
                settings=DriverSettings(
                    keep=settings.checkpoint.keep,
                    data=DataCheckpointPolicy(
                        schedule=schedule,
                        keep=settings.checkpoint.snapshots,
                        recover_within=settings.checkpoint.recover_within.seconds,
                        make=HelperProcess,
                    ),
                    clock_patience=settings.run.clock_patience.micros,
                    stop_at_end=order.available_now,
                    drain=order.drain,
                    gates=order.gates,
                    drop=order.drop,
                    limits=orders.limits,
                    rates=rates,
                    caps={step.name: settings.limits.state for step in graph.steps} if settings.limits.state else {},
                    row_cap=settings.limits.state_row,
                    debug=order.debug,
                    saves=orders.saves,
                    unsaves=orders.unsaves,
                ),
                identity=identity,
                may_take_over=watch.may_take_over,
                listeners=(runner, ShortPauses()),
                needed=orders.needed,
                shared=not is_local(settings.spark.master),
            )
        orders.on_drain(run.driver.drain)
        if not order.available_now:  # which reads what is there
            spark_lives.enter_context(run.receivers)
        back = restore(run.driver, start) if start.restore else None
        return runner.run(run.driver, back, goes_on=order.goes_on)


@contextmanager
def _start_step(switch: StopSwitch) -> Iterator[None]:
    """Leave after a slow step of the start, or out of it, once a stop is requested: nothing is owned yet.

    What Spark fails with then is no error: who signals a whole group of processes ends Java as well, as systemd does.
    """
    try:
        with naming_the_dead():
            yield
    except Exception as why:
        if switch.heard and (isinstance(why, _OF_SPARK) or not isinstance(why, PenstockError)):
            raise StoppedWaiting from why
        raise
    if switch.heard:
        raise StoppedWaiting


@contextmanager
def analysed(loaded: LoadedJob, folder: CheckpointFolder) -> Iterator[SparkEngine]:
    """Open Spark on this machine, and yield the engine of a job once its code is analysed; nothing is written.

    `folder` is the job's checkpoint.
    """
    from penstock.runtime.spark.engine import SparkEngine

    graph = loaded.job.graph()
    with _spark_of(loaded, here=True) as spark:
        yield SparkEngine(graph, spark, folder=folder, suites=find_suites(graph, loaded.project.quality))


@contextmanager
def _spark_of(loaded: LoadedJob, *, here: bool = False) -> Iterator[SparkSession]:
    """Open the job's Spark session, and stop it at the end; `here` as in `open_spark`."""
    spark = open_spark(loaded, here=here)
    try:
        yield spark
    finally:
        with suppress(Exception):  # of a JVM that died there is nothing to stop
            spark.stop()


def open_spark(loaded: LoadedJob, *, here: bool = False) -> SparkSession:
    """Return a Spark session with the settings of the job.

    `here` is for commands: on this machine, also where the driver runs on a cluster and may hold all of its cores.
    """
    from penstock.config.references import resolved
    from penstock.runtime.spark.session import open_session

    settings = loaded.settings
    master, conf = settings.spark.master, dict(settings.spark.conf)
    if here and not is_local(master):
        master = "local[*]"
        conf = {key: value for key, value in conf.items() if not key.startswith(_OF_CLUSTER)}
    return open_session(
        f"penstock {loaded.job.name}",
        master=master,
        jars=loaded.project.jars,
        settings={key: value for key, value in conf.items() if reference_of(value) is None},
        secrets=resolved({key: value for key, value in conf.items() if reference_of(value)}, loaded.project.root),
        modules=loaded.project.modules,
    )


def _look_first(
    folder: CheckpointFolder, watch: HolderWatch, order: RunOrder, progress: ProgressView, graph: JobGraph
) -> RestoreTarget:
    """Refuse, before Spark takes its seconds, what the log refuses already; say what a restore leaves behind.

    Returns where to start: what this command has restored before is not restored again. That is what a Restore in the
    log says, so a command that begins with nothing writes one also where there is no checkpoint yet.
    """
    finish_move(folder)
    start, log = order.start, job_log(folder)
    if log is None:
        refuse_to_begin(folder, graph, new_lineage=order.new_lineage or start.restore)
        if start.goes_back:
            raise CannotRestore(f"there is no checkpoint to restore {start.target} from", where=str(folder))
        if start.rewrites or not order.goes_on:
            raise CannotRestore("there is no checkpoint yet, so nothing can be restored in it", where=str(folder))
        return start if order.command is not None else LAST
    try:
        view = survey(log)
        refuse_moved(log, view)
        watch.may_take_over(view)
        if start.restore and order.command is not None and find_restore_by_command(log, order.command) is not None:
            progress.answered(order.command)
            return LAST
    except LogGap:
        if not start.restore:  # which closes it, and looks at the holder then
            raise
    if start.restore:
        point = start.resolve(recover(log, Damage.LIST), folder)
        held = [kept.batch for kept in point.recovered.kept if kept.held]
        released = HeldRecords(control_store(folder.parent), folder.name).released_of(held)

        def app(sink: str) -> str:
            return f"{read_metadata(log.store).uuid}/{sink}"

        done = partial(was_truncated, graph, app)
        # Asked again by the owner of the log; what is refused here has not ended anybody, nor written an entry.
        plan_truncation(graph, app, point)
        progress.superseded(find_superseded(point, released=released, was_truncated=done))
    return start


def refuse_to_begin(folder: CheckpointFolder, graph: JobGraph, *, new_lineage: bool) -> None:
    """Raise where a job that has no log must not begin with nothing; writes nothing.

    Raises CheckpointPartial where other parts of a checkpoint are there. Raises FormerCheckpoint where the root
    remembers a batch of the job or a table shows batches of its sink, unless `new_lineage` says that it is meant. With
    a new uuid all rows would come a second time.
    """
    with suppress(RootMissing):
        refuse_part(folder.store(make=False))
    if new_lineage:
        return
    if (gone := former_checkpoint(folder)) is not None:
        raise gone
    for node in graph.sinks:
        known = former_writer(Path(node.sink.path), node.name) if isinstance(node.sink, Delta) else None
        if known is not None:
            raise FormerCheckpoint(
                f"there is no checkpoint, and the table of sink {node.name!r} has batches of the checkpoint {known}",
                where=str(folder),
                uuid=known,
            )

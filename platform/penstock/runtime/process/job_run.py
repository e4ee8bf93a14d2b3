"""Put a run together: job, checkpoint, engine and driver loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.takeover import View
from penstock.checkpoint.requeue_requests import RequeueRequests
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import prove_exclusive
from penstock.graph.job import Job
from penstock.quality.held.decision_records import HeldRecords
from penstock.quality.held.overtaken import HeldKeys
from penstock.quality.held.release import HeldPins
from penstock.quality.held.requests import HeldAsks
from penstock.runtime.driver.loop import Driver, DriverSettings, Identity
from penstock.runtime.driver.ownership import anybody_may
from penstock.runtime.driver.requeues import RequeueService
from penstock.runtime.driver.retention import Retention
from penstock.runtime.driver.warnings import Cautions
from penstock.runtime.process.batch_events import BatchEvents
from penstock.runtime.process.held_service import HeldService, HeldWork
from penstock.runtime.process.receiving import Receivers, sweeping
from penstock.runtime.process.takeover_policy import holder_name
from penstock.runtime.snapshots.scheduler import DataCheckpoints
from penstock.runtime.spark.engine import SparkEngine
from penstock.runtime.spark.receiver_tasks import ReceiverTasks
from penstock.runtime.spark.storage_probe import prove_shared
from penstock.time.clock import Clock
from penstock.time.triggers import Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JobRun"]


@dataclass(kw_only=True)
class JobRun:
    """Hold one run of a job over its checkpoint. Receivers run while `receivers` is entered."""

    engine: SparkEngine
    driver: Driver
    receivers: Receivers

    @classmethod
    def open(
        cls,
        job: Job,
        spark: SparkSession,
        *,
        root: CheckpointFolder,
        clock: Clock,
        trigger: Trigger,
        suites: Mapping[str, Any],
        settings: DriverSettings,
        identity: Identity | None = None,
        may_take_over: Callable[[View], None] = anybody_may,
        listeners: tuple[Listener, ...] = (),
        needed: Callable[[], set[int]] = set,
        shared: bool = False,
    ) -> JobRun:
        """Analyse the job, then open its checkpoint; nothing is written before the job is sound.

        `root` is the folder of all jobs; decisions on held batches are kept there. `needed` names batches that
        must be kept, asked at each batch. `shared` says that executors run on other machines, which is then proved.
        Receivers run there as well then.
        """
        graph = job.graph()
        folder = root / graph.name
        engine = SparkEngine(graph, spark, folder=folder, suites=suites)
        control = root.store()
        records = HeldRecords(control, graph.name)
        held = HeldPins(records)
        overtaken = HeldKeys(graph, folder / "staged", records)
        store = folder.store()
        prove_exclusive(store)
        if shared:
            prove_shared(spark, engine.folders)
        metadata = open_or_create(store, now=clock.wall())
        policy = settings.data if graph.checkpoints is None else replace(settings.data, schedule=graph.checkpoints)
        data = DataCheckpoints(folder, metadata.uuid, engine.built.steps, policy)
        log = Log(store)
        service = HeldService(
            HeldAsks(control, graph.name),
            HeldWork(records, log, graph, uuid=metadata.uuid, staged=folder / "staged", spark=spark),
            clock,
        )
        tasks = ReceiverTasks(spark) if shared else None
        receivers = Receivers(graph, engine.readers, clock, listeners, tasks=tasks)

        def between(owned: OwnedLog) -> None:
            service.serve(owned)
            receivers.serve()

        requests = RequeueRequests(control, graph.name)
        engine.requeues = requeues = RequeueService(requests, graph, folder, clock, engine.readers)
        driver = Driver(
            engine,
            log,
            uuid=metadata.uuid,
            clock=clock,
            trigger=trigger,
            identity=replace(identity or Identity(holder=holder_name()), described=engine.described),
            janitor=Retention(
                folder,
                keep=settings.keep,
                pinned_batches=lambda: held() | needed() | data.pinned(),
                decided_on=held.decided_on,
                sweep_sources=sweeping(engine.readers),
            ),
            data=data,
            settings=settings,
            may_take_over=may_take_over,
            listeners=(
                held,
                overtaken,
                requeues,
                Cautions(),
                BatchEvents(graph.listeners, clock),
                receivers,
                *listeners,
            ),
            between=between,
        )
        receivers.draining = lambda: driver.draining
        receivers.in_force = lambda: driver.commit
        return cls(engine=engine, driver=driver, receivers=receivers)

"""Run the batches of a job: the driver loop, as a generator of the points where it can be stopped (DESIGN 4).

A start decides by the log alone, in this order (`own`, then `take_over`)::

    survey the log; another driver holds it and may be alive?   HolderAlive, after a wait
    the log has ended by a move?                                CheckpointMoved
    append Takeover; another driver was first?                  survey again, 100 times at most
    read the log from its newest Compaction
      the job does not fit the checkpoint?                      PartitionsChanged, StepsChanged
      the last entry is unreadable, and was no Commit?          abandon it by a Void; otherwise its error
      a sink is ahead of the log, or has lost batches?          SinkAhead, SinkBehind
      the newest Restore truncates sinks, and no Commit since?  restore their tables, once
      a sink is not known to show the last Commit?              publish it again, which is idempotent
      Offsets without a Commit?                                 re-run that batch, otherwise plan the next

The command runs the points in one go, and tests of crashes and fencing stop at each. There is no second runner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import structlog

from penstock.checkpoint.log.entries import Commit, Offsets, Release, Takeover, Void
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, Recovered, recover
from penstock.checkpoint.log.scan import Damaged
from penstock.checkpoint.log.takeover import View, refuse_moved
from penstock.errors import Fenced, SinkBehind
from penstock.quality.held.release import keep_held
from penstock.runtime.driver.commit import CommitDraft, decide
from penstock.runtime.driver.engine import Engine
from penstock.runtime.driver.next_batch import NextBatch, TickClock, available, facts_of, next_batch, rows_of, spans_of
from penstock.runtime.driver.ownership import FAILED, anybody_may, fencing, taking_over
from penstock.runtime.driver.publishing import origin_of, publish_patiently
from penstock.runtime.driver.rate_control import RateControl
from penstock.runtime.driver.receipts import check_accounting, collect
from penstock.runtime.driver.retention import Retention
from penstock.runtime.driver.savepoint import SavedNames
from penstock.runtime.driver.settings import DriverSettings, Identity
from penstock.runtime.driver.sink_recovery import Unpublished, find_behind, refuse_lost_commit, settle_sinks
from penstock.runtime.driver.stages import BATCH, Hook, Stage
from penstock.runtime.snapshots.scheduler import DataCheckpoints
from penstock.sources.backlog import Ends
from penstock.state.limits import check_sizes
from penstock.time.clock import Clock
from penstock.time.triggers import Trigger

__all__ = ["Driver", "DriverSettings", "Identity"]

log = structlog.get_logger()

_HEAR_EVERY = 1_000_000
"""Microseconds between two looks at what is asked of a driver that waits for a tick."""


@dataclass(eq=False, repr=False)
class Driver:
    """Own the log and run batch after batch until stopped, fenced or finished."""

    engine: Engine
    log: Log
    _: KW_ONLY
    uuid: str
    clock: Clock
    trigger: Trigger
    identity: Identity
    janitor: Retention
    data: DataCheckpoints
    settings: DriverSettings = field(default_factory=DriverSettings)
    may_take_over: Callable[[View], None] = anybody_may
    listeners: tuple[Listener, ...] = ()
    between: Callable[[OwnedLog], None] = lambda _: None

    def __post_init__(self) -> None:
        graph = self.engine.graph
        for step in graph.steps:
            step.spec.check_interval(step, self.trigger.interval)
        self.partitions = {step.name: step.partitions for step in graph.steps}
        self.sinks = tuple(s.name for s in graph.sinks)
        self.places = {name: place for name in self.sinks if (place := self.engine.sink(name).place) is not None}
        self.owned: OwnedLog | None = None
        self.stopping = False
        self.draining = self.settings.drain
        self.finished = False
        self.offsets: Offsets | None = None
        self.commit: Commit | None = None
        self.next_id = 0
        self.zero: int | None = None
        self.last_time: int | None = None
        self._since: int | None = None
        self.published: dict[str, int] = {}
        self._knows = False  # what sinks show, which a Release says
        self.unpublished: Unpublished | None = None
        self.behind: dict[str, SinkBehind] = {}
        self._decision: CommitDraft | None = None
        self._timings: dict[str, float] = {}
        self._target: Mapping[str, Ends] | None = None
        self._ticks = TickClock(self.settings.clock_patience)
        self._names = SavedNames(self.janitor)
        self.rates = RateControl(self.settings.rates, graph, self.trigger, self.clock)
        self.listeners = (self.rates, *self.listeners)

    def run(self) -> Iterator[Hook]:
        """Take over, then run batches; ends after `stop()`, at the end of bounded sources, or with an error."""
        yield from self.guarded(self._run())

    def guarded(self, points: Iterator[Hook]) -> Iterator[Hook]:
        """Follow the points; where they fail the log is released (decision 77).

        An error that follows the loss of the log is that loss (decision 20).
        """
        with fencing(self.log, lambda: self.owned, lambda: self.release(FAILED) if self._knows else ()):
            yield from points

    def _run(self) -> Iterator[Hook]:
        yield from self.take_over()
        yield Hook("TakeOver", "done")
        while not self.stopping:
            self._hear()
            self.data.look(self.commit, self._owned().epoch, self.next_id - 1)
            planned = self.plan_next()
            if planned is None:
                self.finished = True
                break
            self._since = planned.since
            if planned.offsets is None:
                self.tell(planned.tell_wait)
                yield Hook("Wait", "before")
                self.clock.sleep(planned.wait / 1_000_000)
            elif planned.wait and planned.offsets.time > self._now():
                # Rows that come meanwhile belong to this batch. Without ticks a clock set back is no reason to wait.
                self._wait_until(planned.offsets.time)
            else:
                yield from self.run_batch(planned.offsets)
        yield from self.release()

    def take_over(self) -> Iterator[Hook]:
        """Run stage c0, then finish a batch whose offsets are fixed and that has no Commit."""
        recovered = yield from self.own()
        if recovered.pending is None:
            if self.commit is not None and not (self.behind or self.unpublished):
                self._ack(self.commit)  # the driver that has committed it may have been killed before it did
            return
        self.offsets = recovered.pending
        self._note_time(self.offsets)
        for source, span in spans_of(self.offsets).items():
            if span is not None:
                self.engine.source(source).verify(span)
        yield from self._run_stages(BATCH[1:])

    def own(self, damage: Damage = Damage.FAIL) -> Generator[Hook, None, Recovered]:
        """Own the log by survey, claim and confirm, recover the job's state, and publish the last Commit again.

        With `Damage.LIST` damage that a Restore makes up for does not stop it.
        """

        def takeover(view: View) -> Takeover:
            self.may_take_over(view)
            refuse_moved(self.log, view)
            if view.damaged and damage is Damage.FAIL:
                recover(self.log)  # refuse damage that must not be given up before anything follows it
            return self.identity.takeover(view, self.partitions, self.places, checkpoint=self.uuid)

        yield Hook("TakeOver", "before")
        self.owned = yield from taking_over(self.log, takeover)
        yield Hook("TakeOver", "after")
        recovered = recover(self.log, damage)
        self.commit = recovered.commit  # a caller sees the state of the log after a refusal
        self.published, self._knows = dict(recovered.known), True
        if damage is Damage.FAIL:
            self.engine.accept(recovered, self.settings.drop)
        self.engine.prepare()
        recovered = self._adopt(recovered, damage)
        self.published = dict(recovered.known)
        publish = partial(self.run_stage, Stage.PUBLISH_SINKS)
        settled = yield from settle_sinks(self.engine, self.sinks, self.app, recovered, damage, publish)
        self.behind, self.unpublished = settled
        return recovered

    def save(self, name: str) -> None:
        """Give the newest checkpoint a name that keeps it (SEMANTICS 10.2); raises CannotSave."""
        self._names.save(self._owned(), name, self.commit)

    def run_batch(self, offsets: Offsets) -> Iterator[Hook]:
        """Run one planned batch through its stages."""
        self.offsets = offsets
        self.tell(lambda listener: listener.on_batch_submitted(offsets))
        yield from self._run_stages(BATCH)

    def release(self, reason: str = "stopped") -> Iterator[Hook]:
        """Leave the log on purpose, so that the next driver need not wait."""
        self.data.end()
        if self.owned is not None:
            yield Hook("Release", "before")
            owned, why = self.owned, "finished" if self.finished else reason
            self.janitor.leave(owned)
            owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason=why, published=dict(self.published)))
            self.owned = None
            yield Hook("Release", "after")

    def stop(self) -> None:
        """Ask the loop to end after the batch it is in."""
        self.stopping = True

    def drain(self) -> None:
        """Ask the loop to do what is there now, close all windows, and end (SEMANTICS 10.6)."""
        self.draining = True

    def plan_next(self) -> NextBatch | None:
        """Return what to do next: a batch, a wait, or None when everything is done."""
        owned, now = self._owned(), self._now()
        self.zero = self.trigger.zero(now) if self.zero is None else self.zero
        if (self.settings.stop_at_end or self.draining) and self._target is None:
            self._hear()  # what receives ends here, before the end of the run is fixed: what it has taken is read
            self._target = available(self.engine, self.commit)
        limits = self.settings.limits()
        return next_batch(
            self.engine,
            self.commit,
            batch=self.next_id,
            zero=self.zero,
            last_time=self.last_time,
            trigger=self.trigger,
            now=now,
            target=self._target,
            drain=self.draining,
            weigh=limits.weighs,
            admit=partial(self.rates.admit, limits=limits, draining=self.draining),
            epoch=owned.epoch,
            writer=owned.writer,
            since=self._since,
        )

    def _now(self) -> int:
        return self._ticks.now(self.clock, self.trigger, self.last_time)

    def _wait_until(self, tick: int) -> None:
        """Wait for a tick, and do meanwhile what is asked for between batches: the tick may be an hour away."""
        while (now := self._now()) < tick and not self.stopping:
            self.clock.sleep_until(min(tick, now + _HEAR_EVERY) - self._ticks.ahead)
            self._hear()

    def _hear(self) -> None:
        """Do what others ask of the driver between batches, because only one process may do it (SEMANTICS 9.4)."""
        self._names.hear(self.settings, self._owned(), self.commit)
        self.between(self._owned())

    def _run_stages(self, stages: tuple[Stage, ...]) -> Iterator[Hook]:
        for stage in stages:
            yield from self.run_stage(stage)
        checkpoint, commit = self.data.said(), self._committed()
        self.tell(lambda listener: listener.on_data_checkpoint(checkpoint))
        self.tell(lambda listener: listener.on_batch_completed(commit))

    def run_stage(self, stage: Stage, again: Commit | None = None, sinks: Sequence[str] = ()) -> Iterator[Hook]:
        """Run one stage of the batch in hand, or publish a Commit again to some sinks."""
        name, _ = stage.value
        batch = self._offsets().batch if again is None else again.batch
        yield Hook(name, "before", batch)
        started = self.clock.monotonic()
        match stage:
            case Stage.FIX_OFFSETS:
                self._fix_offsets()
            case Stage.COMPUTE:
                self._compute()
            case Stage.COMMIT_BATCH:
                self._commit()
            case Stage.PUBLISH_SINKS if again is not None:
                yield from self._publish(again, sinks)
            case Stage.PUBLISH_SINKS:
                yield from self._publish(self._committed(), self.sinks)
            case Stage.ACK_SOURCES:
                self._ack(self._committed())
            case Stage.PURGE:
                self.janitor.sweep(self._committed(), self.log)
                self.janitor.compact(self._owned())
                self.engine.forget_tables(self._committed())
        self._timings[name] = round((self.clock.monotonic() - started) * 1000, 3)
        yield Hook(name, "after", batch)

    def _ack(self, commit: Commit) -> None:
        for source in self.engine.graph.sources:
            if (progress := commit.sources.get(source.name)) is not None:
                self.engine.source(source.name).ack(progress.position)

    def _fix_offsets(self) -> None:
        owned, offsets = self._owned(), self._offsets()
        self._timings = {}
        owned.append(offsets)
        self._note_time(offsets)

    def _compute(self) -> None:
        offsets = self._offsets()
        self.tell(lambda listener: listener.on_batch_started(offsets))
        facts = facts_of(
            self.engine,
            offsets,
            self.commit,
            epoch=self._owned().epoch,
            state_folder=self.janitor.state_folder,
            data=self.data,
            settings=self.settings,
        )
        outcome = collect(self.engine.compute(facts), self.engine.graph.steps)
        self._decision = decide(self.engine, offsets, self.commit, outcome, gates=self.settings.gates)
        check_accounting(outcome, rows_of(self.engine, offsets), self.engine.graph.steps)
        check_sizes({step: outcome.written.get(f"state:{step}", 0) for step in self.settings.caps}, self.settings.caps)

    def _commit(self) -> None:
        owned, decision = self._owned(), self._decision
        assert decision is not None
        decision.stop_if_gate_says_so()
        for sink, files in decision.fields["staged"].items():
            self.engine.sink(sink).refuse_values(files)
        for sink, files in decision.fields["held"].items():
            keep_held(self.engine.sink(sink).staging, self.janitor.root / "staged" / sink, files)
        decision.fields["load"] |= self.rates.load_of(decision.fields["batch"])
        commit = Commit(
            epoch=owned.epoch,
            writer=owned.writer,
            published=dict(self.published),
            timings=dict(self._timings),
            # Asked at the last moment: a batch that somebody has named meanwhile must not be purged.
            floor=self.janitor.floor(decision.fields["batch"]),
            snapshots=self.data.refs,
            **decision.fields,
        )
        self.commit = owned.append(commit)
        self.data.committed(self.commit)
        self.next_id = commit.batch + 1

    def _publish(self, commit: Commit, sinks: Sequence[str]) -> Iterator[Hook]:
        self.tell(lambda listener: listener.on_publishing(commit, sinks))
        for sink in sinks:
            files, publish = commit.staged.get(sink, []), self.engine.sink(sink).publish
            again = partial(publish, self.app(sink), commit.batch, files, origin_of(self.engine.graph, sink, commit))
            try:
                yield from publish_patiently(again, sink, commit.batch, self.clock, self.settings.busy_patience)
            except SinkBehind as why:
                now = recover(self.log, Damage.LIST)
                behind = find_behind(self.engine.sink, [sink], self.app, now, because=f"{why.what}: ")
                raise behind.get(sink, why) from why
            self.published[sink] = commit.batch
            yield Hook("PublishSinks", f"published {sink}", commit.batch)

    def app(self, sink: str) -> str:
        """Return the app id under which a sink dedupes the batches of this checkpoint."""
        return f"{self.uuid}/{sink}"

    def _note_time(self, offsets: Offsets) -> None:
        self.zero = int(str(offsets.settings["zero"]))
        self.last_time = offsets.time

    def _adopt(self, recovered: Recovered, damage: Damage) -> Recovered:
        if recovered.damaged and damage is Damage.FAIL:  # a Restore makes up for them, whatever they were
            for damaged in recovered.damaged:
                self._give_up(damaged)
            recovered = recover(self.log)
        self.commit = recovered.commit
        self.next_id = recovered.next_batch
        newest = recovered.kept[-1] if recovered.kept else recovered.commit  # that of an import
        if newest is not None:
            self.zero = newest.zero
        self.last_time = recovered.time
        self.janitor.adopt(recovered)
        self.data.adopt(recovered)
        self._names.adopt(recovered)
        self.tell(lambda listener: listener.on_takeover(recovered))
        return recovered

    def _give_up(self, damaged: Damaged) -> None:
        """Give up an entry at the end that cannot be read, where no sink shows that it was a Commit (F13)."""
        owned, batch = self._owned(), damaged.batch
        refuse_lost_commit(self.engine, self.sinks, self.app, damaged)
        log.warning("log.entry_given_up", slot=damaged.slot, batch=batch, reason=damaged.why)
        owned.append(Void(epoch=owned.epoch, writer=owned.writer, slot=damaged.slot, reason=damaged.why, batch=batch))

    def _owned(self) -> OwnedLog:
        if self.owned is None:
            raise Fenced("this driver does not hold the log")
        return self.owned

    def _offsets(self) -> Offsets:
        assert self.offsets is not None
        return self.offsets

    def _committed(self) -> Commit:
        assert self.commit is not None
        return self.commit

    def tell(self, event: Callable[[Listener], None]) -> None:
        """Tell all listeners."""
        for listener in self.listeners:
            event(listener)

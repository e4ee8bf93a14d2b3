"""Make what runs what is wanted, for the streams of one control root (DESIGN 11).

The supervisor has no state of its own: it decides by the streams' records and by what it sees. So another one can
replace a killed supervisor, and finds the drivers alive.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.config.settings import Settings
from penstock.errors import PenstockError
from penstock.supervise.launcher import Launcher, LaunchOrder
from penstock.supervise.machine import Action, Exit, Life, not_launched, step
from penstock.supervise.records import LeaseWatch, StreamRecords, supervised_jobs
from penstock.supervise.stream import Stream
from penstock.supervise.versions import Versions
from penstock.supervise.watching import Watch, logs_of
from penstock.time.clock import Clock

__all__ = ["PATIENCE", "Supervisor"]

log = structlog.get_logger()

PATIENCE = 10.0
"""Seconds without a sign of life of the supervisor after which one that stands by takes its place."""


@dataclass(kw_only=True)
class Supervisor:
    """Supervise the streams of one control root; `tick` is called every second or so.

    `settings_of` gives a job's, by the folder of the code that runs, if any does, and may raise ConfigError: then the
    last ones that could be read hold.
    """

    root: CheckpointFolder
    project: Path
    launcher: Launcher
    settings_of: Callable[[str, Path | None], Settings]
    clock: Clock
    store: CheckpointStore = field(init=False)
    _lease: LeaseWatch = field(init=False)
    _versions: Versions = field(init=False)
    _watch: Watch = field(init=False)
    _leads: bool | None = None
    _settings: dict[str, Settings] = field(default_factory=dict)
    _troubled: dict[str, str] = field(default_factory=dict)
    _told: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _ignored: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the control root; it is made if it is not there."""
        self.store = control_store(self.root)
        self._versions = Versions(self.root.here / "_versions", self.project)
        self._watch = Watch(
            root=self.root, store=self.store, launcher=self.launcher, clock=self.clock, tell=self._tell_record
        )
        place = f"{socket.gethostname()}:{os.getpid()}"
        self._lease = LeaseWatch(self.store, writer=secrets.token_hex(16), place=place, patience=PATIENCE)

    @property
    def leads(self) -> bool:
        """Return whether this process supervises, as of the last tick."""
        return bool(self._leads)

    def tick(self) -> None:
        """Look at every stream once, and do what follows; as a standby, only watch the lease.

        Storage that does not answer is logged once and tried again at the next tick; drivers keep running meanwhile.
        The same holds for an unforeseen error of one stream's records: it never stops the work on others (F77).
        """
        with self._tending(""):
            leads = self._lease.hold(wall=self.clock.wall(), monotonic=self.clock.monotonic())
            if leads != self._leads:
                self._tell_lead(leads=leads)
            if leads:
                for job in supervised_jobs(self.store):
                    with self._tending(job):
                        self._step(job)

    def leave(self) -> None:
        """Give the lease back; the drivers keep running without a supervisor."""
        self._lease.leave(wall=self.clock.wall())

    def drivers(self) -> tuple[list[str], dict[str, str]]:
        """Return the jobs that have a driver, and those whose record cannot be read, with the reason."""
        going: list[str] = []
        unread: dict[str, str] = {}
        for job in supervised_jobs(self.store):
            try:
                if StreamRecords(self.store, job).newest().driver is not None:
                    going.append(job)
            except (PenstockError, OSError) as why:
                unread[job] = str(why)
        return sorted(going), unread

    # --- one stream --------------------------------------------------------------------------
    @contextmanager
    def _tending(self, job: str) -> Iterator[None]:
        try:
            yield
        except Exception as why:  # noqa: BLE001 - a record that makes no sense ends no supervisor, nor its work on others
            self._trouble(job, why)
        else:
            self._troubled.pop(job, None)

    def _step(self, job: str) -> None:
        records = StreamRecords(self.store, job)
        before = records.newest()
        self._tell(job, before)
        if before.driver is None and before.is_over:
            return
        seen = self._watch.seen(job, before)
        decided = step(before, seen, self._settings_of(job, before), self.clock.wall(), socket.gethostname())
        after = decided.stream
        gone = before.driver if seen.life is Life.GONE else None
        if gone is not None and gone.handle is not None and not gone.foreign:
            self.launcher.kill(gone.handle)  # which ends what it has left behind, before the next one starts
        if decided.action is Action.LAUNCH and after.driver is not None:
            version = self._version_of(job, after)
            slot = after.driver.model_copy(update={"version": version})
            # Without a copy of the code that was to run, there is none of one to roll back to.
            stable = after.stable if after.version in (None, version) else None
            after = after.having(version=version, stable=stable, driver=slot)
        if after != before and not records.replace(before, after):
            return  # a command was faster; the next tick looks again
        self._tell(job, after)
        if decided.action is Action.LAUNCH:
            self._launch(job, records, after)
        elif decided.action is Action.KILL and after.driver is not None and after.driver.handle is not None:
            reached = self.launcher.kill(after.driver.handle)
            if reached:
                log.warning("driver.killed", job=job, generation=after.driver.generation, reason=after.reason)

    def _version_of(self, job: str, stream: Stream) -> str:
        """Return the copy of the code that the next driver runs; what is in the project where this machine has none."""
        if stream.version is not None and self._versions.folder(stream.version).is_dir():
            return stream.version
        taken = self._versions.take()
        if stream.version is not None:
            log.warning("version.not_here", job=job, version=stream.version, instead=taken)
        return taken

    def _launch(self, job: str, records: StreamRecords, stream: Stream) -> None:
        """Start the driver whose generation was just claimed, and write down how to find it."""
        slot, version = stream.driver, stream.version
        assert slot is not None
        assert version is not None
        self._prune_versions()
        order = LaunchOrder(
            job=job,
            project=self.project,
            code=self._versions.folder(version),
            stream=stream,
            logs=logs_of(self.root, job),
        )
        try:
            handle = self.launcher.launch(order)
        except (PenstockError, OSError) as why:
            self._trouble(job, why)
            ended = Exit(
                code=why.exit_code if isinstance(why, PenstockError) else None, error=f"it could not be started: {why}"
            )
            settings, now = self._settings_of(job, stream), self.clock.wall()
            # Where a command was faster, the driver that is looked for and not found counts as a failure all the same.
            records.replace(stream, not_launched(stream, ended, settings, now))
            return
        log.info("driver.launched", job=job, generation=slot.generation, version=version, **handle)

        def noted(newest: Stream) -> tuple[Stream, None]:
            if newest.driver is None or newest.driver.generation != slot.generation:
                return newest, None
            return newest.having(driver=slot.model_copy(update={"handle": handle})), None

        records.update(noted)

    def _prune_versions(self) -> None:
        """Delete copies of code that no stream may run again; none while a stream cannot be asked which it runs."""
        try:
            streams = [StreamRecords(self.store, job).newest() for job in supervised_jobs(self.store)]
            running = {stream.driver.version for stream in streams if stream.driver is not None}
            again = {name for stream in streams for name in (stream.version, stream.stable)}
            self._versions.prune({name for name in running | again if name is not None})
        except (PenstockError, OSError) as why:
            log.warning("versions.not_pruned", reason=str(why))

    def _settings_of(self, job: str, stream: Stream) -> Settings:
        """Return the settings of the code that runs: what is edited meanwhile, typos as well, counts later."""
        code = self._versions.folder(stream.version) if stream.version is not None else None
        try:
            self._settings[job] = self.settings_of(job, code if code is not None and code.is_dir() else None)
        except PenstockError:
            if job not in self._settings:
                raise
        return self._settings[job]

    # --- logging -----------------------------------------------------------------------------
    def _tell(self, job: str, stream: Stream) -> None:
        news = (stream.phase, stream.reason, stream.generation)
        if self._told.get(job) == news:
            return
        self._told[job] = news
        event = f"stream.{stream.phase.value.lower()}"
        log.info(event, job=job, generation=stream.generation, reason=stream.reason)

    def _tell_lead(self, *, leads: bool) -> None:
        self._leads = leads
        if leads:
            log.info("supervisor.leads", root=str(self.root))
            return
        holder = self._lease.holder()
        log.info("supervisor.stands_by", root=str(self.root), holder=holder.place if holder is not None else None)

    def _tell_record(self, job: str, reason: str) -> None:
        if self._ignored.get(job) != reason:
            self._ignored[job] = reason
            log.warning("supervisor.record_ignored", job=job, reason=reason)

    def _trouble(self, job: str, why: Exception) -> None:
        known = isinstance(why, PenstockError | OSError)
        reason = str(why) if known else f"unexpected {type(why).__name__}: {why}"
        if self._troubled.get(job) != reason:
            self._troubled[job] = reason
            log.warning("supervisor.trouble", job=job or None, reason=reason)

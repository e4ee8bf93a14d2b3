"""Look at the drivers of a control root: their processes, their heartbeats, and who holds their logs.

Anyone with access to the control root may write a record that is well-formed and senseless. Such a record is logged and
ignored: the driver's own record before it stays in force, so that it ends nothing (F77).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.takeover_policy import HolderName
from penstock.supervise.launcher import Handle, Launcher
from penstock.supervise.machine import Beat, Life, Seen
from penstock.supervise.stream import DriverSlot, Stream
from penstock.time.clock import Clock

__all__ = ["Watch", "logs_of"]

_LOOKED_AT = 2.0
"""Seconds between two looks at a heartbeat that count at most."""
_BEATS = 6.0
"""Seconds within which the number of a holder's heartbeat, written every two, must have moved for it to live."""
_LAST = 2**60
"""Microseconds since 1970 that a moment may have; no clock shows more for 36,000 years."""

_EARLIER = 8
"""Records in which a supervisor that has just begun looks for the newest of a driver."""

Moment = Annotated[int, Field(ge=0, le=_LAST)]


class _Stage(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    since: Moment


class _Status(BaseModel):
    """A driver's status as a supervisor reads it; `waits_since` is when data or a due time began to wait."""

    model_config = ConfigDict(strict=True, extra="ignore")

    generation: Annotated[int, Field(ge=0)] | None = None
    holder: str | None = None
    at: Moment = 0
    stage: _Stage | None = None
    waits_since: Moment | None = None
    works: bool = True  # drivers of an earlier version say neither
    proved: bool = True


class _Pulse(NamedTuple):
    """The newest heartbeat: its number, for how long it was seen to stand, the last look, and whether it ever moved."""

    number: int
    silent: float
    looked: float
    moved: bool


@dataclass(kw_only=True)
class Watch:
    """See how the drivers of one control root are; `tell` is called with a job and what is wrong with a record."""

    root: CheckpointFolder
    store: CheckpointStore
    launcher: Launcher
    clock: Clock
    tell: Callable[[str, str], None]
    _pulses: dict[str, _Pulse] = field(default_factory=dict)
    _lasts: dict[str, _Status] = field(default_factory=dict)

    def seen(self, job: str, stream: Stream) -> Seen:
        """Return what one look at a stream shows."""
        driver, is_first = stream.driver, job not in self._pulses
        status = self._status(job)
        if driver is None:
            if not stream.wants_driver:
                return Seen()
            holder = self._holder(job)
            # A command's own first driver takes the log over; one that the supervisor starts again does not.
            return Seen(holder=holder, rival=self._rival(job, holder, status, None) if stream.launches else None)
        look = self.launcher.look(job, driver, logs_of(self.root, job))
        ours = self._last_of(job, driver, status, is_first=is_first)
        holder, rival = look.holder, None
        if look.life is Life.GONE or (status is not None and status is not ours):
            holder = self._holder(job)
            rival = self._rival(job, holder, status, driver)
        beat = self._beat(job, ours) if ours is not None and rival is None else None
        handle = _handle_of(ours.holder) if ours is not None else None
        return replace(look, handle=look.handle or handle, beat=beat, holder=holder, rival=rival)

    def _status(self, job: str) -> _Status | None:
        """Return the newest status, None where there is none that makes sense; note for how long it is the newest."""
        record = StatusRecords(self.store, job).newest()
        if record is None:
            return None
        now = self.clock.monotonic()
        pulse = self._pulses.get(job)
        if pulse is None or pulse.number != record.seq:
            pulse = _Pulse(record.seq, silent=0.0, looked=now, moved=pulse is not None)
        # Storage that hung silenced driver and supervisor alike: only time between two looks counts.
        silent = pulse.silent + min(now - pulse.looked, _LOOKED_AT)
        self._pulses[job] = pulse._replace(silent=silent, looked=now)
        try:
            return _Status.model_validate(record.body)
        except ValidationError as why:
            wrong = why.errors()[0]
            key = ".".join(map(str, wrong["loc"]))
            self.tell(job, f"status record {record.seq} is ignored: {key} makes no sense: {wrong['msg']}")
            return None

    def _last_of(self, job: str, driver: DriverSlot, status: _Status | None, *, is_first: bool) -> _Status | None:
        """Return the newest status of a driver; a record that another process writes after it does not end it (F77).

        At its first look at a job a supervisor has seen none, so it reads the records before the newest. A driver that
        a person started has no generation of its own: a later writer may well have taken its place.
        """
        known = [status, self._lasts.pop(job, None)]
        if driver.foreign and status is not None:
            known = [status]
        elif is_first:
            known += [_read(record.body) for record in reversed(StatusRecords(self.store, job).recent(_EARLIER))]
        status_of_driver = next(
            (candidate for candidate in known if candidate is not None and _is_of(candidate, driver)), None
        )
        if status_of_driver is not None:
            self._lasts[job] = status_of_driver
        return status_of_driver

    def _beat(self, job: str, status: _Status) -> Beat:
        """Return how long the driver's mark has not changed, by our own clock and by its."""
        stepped = status.stage.since if status.stage is not None else status.at
        waited = status.waits_since if status.waits_since is not None else status.at
        silent_for = int(self._pulses[job].silent * 1_000_000)
        return Beat(
            still_for=silent_for + max(0, status.at - stepped, status.at - waited),
            silent_for=silent_for,
            works=status.works,
            proved=status.proved,
        )

    def _holder(self, job: str) -> DriverSlot:
        log = job_log(self.root / job, identified=False)  # its driver says what is wrong
        if log is None:
            return Seen().holder
        view = survey(log)
        generation = view.takeover.generation if view.takeover is not None else 0
        return DriverSlot(generation=generation, at=0, handle=_handle_of(view.holder), foreign=True)

    def _rival(self, job: str, holder: DriverSlot, status: _Status | None, driver: DriverSlot | None) -> Handle | None:
        """Return the driver that holds the log in the place of ours and lives, such as one that a person started."""
        if holder.handle is None:
            return None
        if driver is not None and (driver.foreign or _same(driver.handle, holder.handle)):
            return None
        life = self.launcher.look(job, holder, logs_of(self.root, job)).life
        if life is Life.UNKNOWN:
            pulse = self._pulses.get(job)
            beats = status is not None and _same(_handle_of(status.holder), holder.handle)
            if not (beats and pulse is not None and pulse.moved and pulse.silent < _BEATS):
                return None
        return None if life is Life.GONE else holder.handle


def logs_of(root: CheckpointFolder, job: str) -> Path:
    """Return the folder in which the drivers of a job write what they say."""
    return root.here / "_logs" / job


def _read(body: dict[str, JsonValue]) -> _Status | None:
    with suppress(ValidationError):
        return _Status.model_validate(body)
    return None


def _is_of(status: _Status, driver: DriverSlot) -> bool:
    if driver.foreign:
        return driver.handle is not None and _same(_handle_of(status.holder), driver.handle)
    return status.generation == driver.generation


def _same(handle: Handle | None, other: Handle | None) -> bool:
    """Return whether two handles are of one process; a launcher's has more in it, and an older one no namespace."""
    if handle is None or other is None:
        return False
    spaces = handle.get("namespace"), other.get("namespace")
    return all(handle.get(key) == other.get(key) for key in ("host", "pid", "start")) and (
        spaces[0] == spaces[1] or not all(spaces)
    )


def _handle_of(holder: object) -> Handle | None:
    """Return where a driver runs, from the name that it holds its log by."""
    name = HolderName.parse(str(holder)) if holder is not None else None
    return None if name is None else asdict(name)

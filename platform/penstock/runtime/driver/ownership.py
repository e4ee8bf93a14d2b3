"""Own a log, by the one way from a survey to a confirmed Takeover, for drivers and commands; report its loss."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import cast

from penstock.checkpoint.log.compaction import compact
from penstock.checkpoint.log.entries import Entry, Release, Takeover
from penstock.checkpoint.log.fencing import OwnedLog, fenced
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import uuid_in
from penstock.checkpoint.log.recovery import Recovered, recover
from penstock.checkpoint.log.takeover import RELEASED, View, claim, confirm, survey
from penstock.errors import CheckpointCorrupt, CheckpointError, Fenced, NotFound, PenstockError
from penstock.runtime.driver.retention import purge_at_rest
from penstock.runtime.driver.settings import Identity
from penstock.runtime.driver.stages import Hook

__all__ = [
    "FAILED",
    "anybody_may",
    "driver_left",
    "fencing",
    "hold_idle_log",
    "hold_log",
    "idle_log",
    "is_of_last_driver",
    "release_at_rest",
    "taking_over",
]

FAILED = "failed"
"""The reason of the Release of a driver that ends with an error."""

_COMMAND = "penstock "
"""What the `code_version` begins with in the Takeover of a command, which runs no code of the job."""

_ATTEMPTS = 100
"""Claims that one start may lose. Each was lost to a start that was as quick, so a hundred in a row are no chance."""


def taking_over(log: Log, takeover: Callable[[View], Takeover]) -> Generator[Hook, None, OwnedLog]:
    """Own a log, and return it once the Takeover is confirmed; the hooks are where others may come in between.

    `takeover` makes the entry for what a survey showed, or raises where the log is not to be taken over. It is asked
    again whenever another entry was first. Raises Fenced, CheckpointMoved, MoveUnfinished, and what `survey` raises.
    """
    for _ in range(_ATTEMPTS):
        view = survey(log)
        yield Hook("TakeOver", "surveyed")
        slot = claim(log, view, takeover(view))
        yield Hook("TakeOver", "claimed")
        if slot is not None:
            return confirm(log, slot)
    raise Fenced("other drivers kept taking the log over")


def hold_log(log: Log, takeover: Callable[[View], Takeover]) -> OwnedLog:
    """Own a log at once; arguments and errors are those of `taking_over`."""
    points = taking_over(log, takeover)
    while True:
        try:
            next(points)
        except StopIteration as end:
            return cast("OwnedLog", end.value)


def hold_idle_log(
    log: Log, identity: Identity, may_take_over: Callable[[View], None], *, refusal: type[CheckpointError]
) -> tuple[OwnedLog, Recovered]:
    """Own the log of a job that nobody runs, and return it with the state of the job.

    `may_take_over` raises where somebody holds the log. Raises `refusal` for a log whose end cannot be read, with
    nothing written, and what `taking_over` and `recover` raise.
    """

    def takeover(view: View) -> Takeover:
        recovered = recover(log)  # after the survey, so an entry torn since has the slot to claim
        if recovered.damaged:  # only a driver gives that up, who knows the sinks; it would stay damage for ever here
            raise refusal(
                f"the log's last entry cannot be read: {recovered.damaged[0].reason}; start the job first, which gives "
                "it up where no sink shows that it was a batch",
                where=recovered.damaged[0].path,
            )
        may_take_over(view)
        # A command changes neither partitions nor where rows go.
        sinks = {} if recovered.committed_by is None else recovered.committed_by.sinks
        return identity.takeover(view, recovered.partitions or {}, sinks, checkpoint=uuid_in(log.store))

    return hold_log(log, takeover), recover(log)


@contextmanager
def idle_log(
    log: Log, identity: Identity, may_take_over: Callable[[View], None], *, refusal: type[CheckpointError], reason: str
) -> Iterator[tuple[OwnedLog, Recovered]]:
    """Own the log of a job that nobody runs for a block, and release it for `reason` at its end, also after an error.

    Nothing is published and no batch is finished: the next driver does that, as if nobody had been there.
    Raises what `hold_idle_log` raises.
    """
    owned, recovered = hold_idle_log(log, identity, may_take_over, refusal=refusal)
    try:
        yield owned, recovered
    finally:
        release_at_rest(owned, recovered, reason)


def release_at_rest(owned: OwnedLog, recovered: Recovered, reason: str) -> None:
    """Leave the log as the driver before has left it: what was known of the sinks is known still.

    `reason` is that of a log that nobody had released. A job that has finished stays so, and one that failed as well.
    """
    shown = dict(recovered.published)
    reason = _left_before(owned) or reason
    compact(owned.log, owned)
    purge_at_rest(owned)
    owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason=reason, published=shown))


def is_of_last_driver(log: Log, takeover: Takeover, writer: object) -> bool:
    """Return whether a writer is the last driver, whichever commands have put something down in the log since.

    Of an imported checkpoint nobody is. Where the Takeover of the driver is deleted, nothing says that it was another.
    """
    newest: Entry | None = takeover
    while isinstance(newest, Takeover) and _is_of_command(newest):
        before, newest = newest.placed.takeover, None
        if before is None:
            return False
        with suppress(CheckpointCorrupt, NotFound):
            newest = log.read(before)
    return not isinstance(newest, Takeover) or newest.writer == writer


def driver_left(log: Log, view: View) -> Release | None:
    """Return the Release of the last driver, also where commands own the log or were killed as they did.

    None where that driver has not left, or where entries at the end cannot be read: one may be its Takeover.
    """
    return None if view.last is None or view.damaged else _release_at(log, view.last)


def _release_at(log: Log, entry: Entry) -> Release | None:
    with suppress(CheckpointError):
        while not isinstance(entry, Release):
            takeover = entry if isinstance(entry, Takeover) else log.read(entry.placed.takeover or 0)
            if not isinstance(takeover, Takeover) or not _is_of_command(takeover):
                return None
            entry = log.read(takeover.placed.slot - 1)
        return entry
    return None


def _left_before(owned: OwnedLog) -> str | None:
    """Return why the driver before has left the log, None where it died, or its last entry cannot be read."""
    before = None
    with suppress(CheckpointError):
        before = _release_at(owned.log, owned.log.read(owned.takeover_slot - 1))
    return None if before is None else before.reason


def _is_of_command(takeover: Takeover) -> bool:
    return takeover.code_version.startswith(_COMMAND)


def anybody_may(_: View) -> None:
    """Let any driver take over; `process.takeover_policy` has the rules of DESIGN 4."""


@contextmanager
def fencing(log: Log, owner: Callable[[], OwnedLog | None], leave: Callable[[], Iterable[object]]) -> Iterator[None]:
    """Raise Fenced in place of any error that follows from the loss of the log; `leave` it after any other.

    A Takeover that no Release follows is never purged, so starts that fail in turn would let the log grow (F10).
    The new owner continues: tables get ahead, and it sweeps what only older batches need.
    To the sleeping driver this looks like an old copy of the checkpoint (F31), or like damage.
    """
    try:
        yield
    except Fenced:
        raise
    except Exception as error:
        owned, view = owner(), None
        with suppress(CheckpointError):
            view = survey(log)
        # Not the epoch of the view: that counts an entry torn at the end, which is damage and no takeover.
        if owned is None or view is None or view.takeover is None or view.takeover.epoch == owned.epoch:
            with suppress(PenstockError, OSError):  # as after a crash, then
                for _ in leave():
                    pass
            raise
        raise fenced(log.path(owned.next_slot), owned.epoch, view.epoch, view.holder or RELEASED) from error

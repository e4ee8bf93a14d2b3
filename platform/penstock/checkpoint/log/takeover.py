"""Take a log over, in three steps that a scheduler may put anything between: survey, claim, confirm.

Whether a driver *may* take over (DESIGN 4) is its caller's question; the `View` holds what is needed to answer it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Arrival, Entry, Moved, Place, Release, Takeover
from penstock.checkpoint.log.fencing import OwnedLog, fenced, place_after
from penstock.checkpoint.log.log import Log, gap, read_takeover
from penstock.errors import CheckpointCorrupt, CheckpointMoved, EntryRefused, MoveUnfinished, NotFound, SlotTaken

_LOOKS = 5
MOVE = "move to "
"""How the command of a Takeover begins with which a move owns the log that it is to end; the place follows."""
UNKNOWN_HOLDER = "unknown (its entry cannot be read)"
RELEASED = "nobody any more: it was released"


@dataclass(frozen=True, slots=True)
class View:
    """The result of one look at the log; it may be old when it is used.

    `epoch` is the highest that may be in use, 0 for an empty log. Unreadable entries at the end may each have been a
    Takeover, and count; `damaged` is their number. `released` says that nobody holds the log: the last entry is a
    Release, or ends it. `moved_to` is the job's new place if one of the unreadable entries was, or may have been, the
    end of the log. Then nobody may write after it, or two places would continue under one uuid.
    """

    tail: int
    epoch: int
    takeover: Takeover | None
    released: bool
    damaged: int
    last: Entry | None
    moved_to: str | None = None

    @property
    def next_place(self) -> Place:
        """Return the place of an entry that follows the tail."""
        known = Place(slot=0) if self.last is None else place_after(self.last)
        return known.model_copy(update={"slot": self.tail + 1})

    @property
    def next_epoch(self) -> int:
        """Return the epoch that a Takeover made from this view must carry."""
        return self.epoch + 1

    @property
    def holder(self) -> str | None:
        """Name who holds the log; None when it is empty or released."""
        if self.tail < 0 or self.released:
            return None
        return self.takeover.holder if self.takeover else UNKNOWN_HOLDER


def survey(log: Log) -> View:
    """Find the tail and who holds the log, writing nothing.

    Raises `FormatTooNew` when a later Penstock wrote the last entry (F21), and `LogGap`.
    """
    for _ in range(_LOOKS):
        tail = log.tail()
        kinds: list[str | None] = []
        for slot in range(tail, -1, -1):
            try:
                return _view(log, tail, kinds, log.read(slot))
            except CheckpointCorrupt:
                kinds.insert(0, log.kind_at(slot))
            except NotFound:
                break  # purged since the search, so the tail is elsewhere by now
        else:
            return View(tail=tail, epoch=len(kinds), takeover=None, released=False, damaged=len(kinds), last=None)
    raise gap([slot], log.path(slot))


def _view(log: Log, tail: int, lost: list[str | None], last: Entry) -> View:
    takeover = last if isinstance(last, Takeover) else None
    if takeover is None and last.placed.takeover is not None:
        with suppress(CheckpointCorrupt):  # recovery says whether that matters; a new Takeover makes up for it
            takeover = read_takeover(log, last.placed.takeover, last.epoch, last.writer)
    return View(
        tail=tail,
        epoch=last.epoch + len(lost),
        takeover=takeover,
        released=isinstance(last, Release | Moved) and not lost,
        damaged=len(lost),
        last=last,
        moved_to=_moved_to(last, lost),
    )


def _moved_to(last: Entry, lost: list[str | None]) -> str | None:
    """Return the target of a move, if the entries after the last readable one may have ended the log."""
    moves = isinstance(last, Takeover) and (last.command or "").startswith(MOVE)
    if not ({"moved", "arrival"} & {*lost} or (moves and lost and lost[0] is None)):
        return None
    return (last.command or "").removeprefix(MOVE) if moves else "a place that cannot be read any more"


def refuse_ended(log: Log, view: View) -> None:
    """Raise CheckpointMoved where the log has ended, or may have, because the job has moved."""
    if view.moved_to is not None:
        path = log.path(view.tail)
        raise CheckpointMoved(
            f"the last entry cannot be read, and the move of the job to {view.moved_to} may have ended the log "
            f"with it. Where nothing of the job is there, or this is that place and the old one has ended, "
            f"delete {path}",
            where=f"{log.store.root}/{path}",
            to=view.moved_to,
        )
    if isinstance(view.last, Moved):
        raise CheckpointMoved(f"the job has moved to {view.last.to}", where=log.store.root, to=view.last.to)


def refuse_moved(log: Log, view: View) -> None:
    """Raise as `refuse_ended` does, and MoveUnfinished where a log that was copied from another may not begin yet."""
    refuse_ended(log, view)
    if isinstance(view.last, Arrival):
        source = view.last.source
        raise MoveUnfinished(f"the move to here from {source} was not finished", where=log.store.root, source=source)


def claim(log: Log, view: View, takeover: Takeover) -> int | None:
    """Append a Takeover right after the view's tail; return its slot, or None when another entry was there first.

    A caller that gets None surveys again, and checks again whether it may take over. Raises CheckpointMoved and
    MoveUnfinished, because every writer of a log passes here.
    A claim made from an old view may land in the hole of a purged entry: nothing may be written before `confirm`.
    """
    refuse_moved(log, view)
    if takeover.epoch != view.next_epoch:
        raise EntryRefused(f"a Takeover after epoch {view.epoch} must carry {view.next_epoch}, not {takeover.epoch}")
    try:
        log.append_at(view.tail + 1, takeover.model_copy(update={"place": view.next_place}))
    except (SlotTaken, CheckpointCorrupt):
        return None
    return view.tail + 1


def confirm(log: Log, slot: int) -> OwnedLog:
    """Search again, and return the log as owned when the tail is the claimed slot; raise `Fenced` otherwise.

    Why that is enough: had the slot been purged before the claim, a later milestone would exist, and the search finds
    it. Otherwise the claim was at the end, only another's Takeover can follow it, and one that follows no Release is
    never purged.
    """
    seen = survey(log)
    if seen.tail == slot and isinstance(seen.last, Takeover):
        return OwnedLog(log, seen.last)
    mine = 0
    with suppress(NotFound):  # purged since, with the Release before it
        mine = log.read(slot).epoch
    raise fenced(log.path(slot), mine, seen.epoch, seen.holder or RELEASED)

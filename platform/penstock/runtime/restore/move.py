"""Move a checkpoint to another place, where the job resumes under the same uuid (SEMANTICS 10.2, decision 46)::

    source                          place
    Takeover by who moves
                                    a copy of all, beside its place
                                    Arrival, in the next slot
                                    the copy gets its name
    Moved, in the same slot
                                    what was decided on held batches
                                    Release

The Moved is the one moment at which the source ends and the place begins. Before it nobody may resume at the place,
after it nobody at the source. A move that was cut short is repeated, and finished by whichever start comes first.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from enum import Enum

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.entries import Arrival, Moved, Release, Takeover
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import MOVE, View, confirm, refuse_moved, survey
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.store import create_or_read
from penstock.errors import CannotCopy, CheckpointMoved, Fenced, LogGap, MoveUnfinished, NotFound
from penstock.runtime.driver.ownership import hold_idle_log, release_at_rest
from penstock.runtime.driver.settings import Identity
from penstock.runtime.restore.temporary_folders import (
    alone_in,
    clear_left,
    copy_plain,
    making,
    move_into_place,
    refuse_links,
)

__all__ = ["finish_move", "move_checkpoint"]

_TEMPORARY = ".tmp-"


def move_checkpoint(
    source: LocalFolder, folder: CheckpointFolder, *, identity: Identity, may_take_over: Callable[[View], None]
) -> Iterator[str]:
    """Move the checkpoint at `source` to `folder`, and yield the name of each point at which it may be cut short.

    Repeated, it finishes what was begun, and changes nothing where all was done; then it yields `already` alone.
    `may_take_over` raises where somebody holds the source's log. Raises CannotCopy where there is nothing to move, or
    where something else has the place, CheckpointMoved where the source has moved to elsewhere, and what
    `hold_idle_log` raises.
    """
    source = source.resolve()
    if not isinstance(folder, LocalFolder):
        refusal = "a move is between folders; export the checkpoint, and import that, where one of them is on HDFS"
        raise CannotCopy(refusal, where=str(folder))
    folder = folder.absolute()
    log = job_log(source)
    if log is None:
        raise CannotCopy("no checkpoint: a move takes the folder of one, not an export", where=str(source))
    finish_move(source)  # one that was moved there, and that no driver has gone on with
    view = survey(log)
    if _ends(view):
        if not _has_arrived(folder, view):
            refuse_moved(log, view)
        finish_move(folder)
        yield "already"
        return
    _refuse_place(source, folder)
    refuse_links(source)
    # The place is in the Takeover, before anything may end the log, for where the Moved cannot be read.
    mover = replace(identity, command=f"{MOVE}{folder}")
    owned, recovered = hold_idle_log(log, mover, may_take_over, refusal=CannotCopy)
    yield "source owned"
    importing = folder.parent / "_importing"
    try:
        clear_left(importing.glob(f"{folder.name}-*"))
        with making(importing, folder.name) as made_in:
            _copy(source, made_in)
            yield "copied"
            copy = confirm(Log(LocalStore(made_in)), owned.next_slot - 1)
            copy.append(Arrival(epoch=owned.epoch, writer=owned.writer, source=str(source)))
            _make_way(source, folder, made_in)
            move_into_place(made_in, folder)
        yield "in place"
        owned.append(Moved(epoch=owned.epoch, writer=owned.writer, to=str(folder)))
    except (Fenced, GeneratorExit):
        raise
    except Exception:
        # Where the Moved may have been written, its slot takes nothing else.
        release_at_rest(owned, recovered, "not moved")
        raise
    yield "source ended"
    finish_move(folder)
    yield "done"


def finish_move(folder: CheckpointFolder) -> None:
    """Let a job resume that was moved here, if nobody has; does nothing for any other checkpoint, or none.

    Called by every start, so that a move whose command died is finished by the driver. Raises MoveUnfinished where the
    source has not ended, or cannot be seen from here.
    """
    log = job_log(folder)
    view = None
    with suppress(LogGap):  # of which the start itself tells
        view = None if log is None else survey(log)
    if log is None or view is None:
        return
    _refuse_lost_end(view)
    if not isinstance(view.last, Arrival):
        return
    arrival, place = view.last, view.last.placed
    if _fate(arrival) is not _Fate.DONE:
        refuse_moved(log, view)
    _copy_decisions(LocalFolder(arrival.source), folder)
    release = Release(
        epoch=arrival.epoch,
        writer=arrival.writer,
        reason="moved here",
        published=dict(recover(log).published),
        place=place.model_copy(update={"slot": place.slot + 1}),
    )
    log.append_at(place.slot + 1, release)  # of all who finish it each writes the same bytes


def _refuse_lost_end(view: View) -> None:
    """Raise CheckpointMoved where a Moved was there and is gone: the log that it ended this one for was continued.

    Only that log tells. Where it cannot be seen, or nobody has continued it, the move has not happened.
    """
    last = view.last
    if not isinstance(last, Takeover) or not (last.command or "").startswith(MOVE):
        return
    after = last.placed.slot + 1
    to = LocalFolder((last.command or "").removeprefix(MOVE))
    there = job_log(to)
    arrival = None
    with suppress(NotFound):
        arrival = None if there is None else there.read(after)
    if not isinstance(arrival, Arrival) or (arrival.epoch, arrival.writer) != (last.epoch, last.writer):
        return
    if there is not None and there.slots.exists(after + 1):
        raise CheckpointMoved(f"the job has moved to {to}, and continues there", where=str(to), to=str(to))


class _Fate(Enum):
    """What became of the move that an Arrival belongs to, as its source's log says."""

    OPEN = "open"
    """Its source may still end for it."""
    DONE = "done"
    """Its source has ended for it: the job resumes in the log of the Arrival."""
    VOID = "void"
    """Its source was continued: nobody can ever resume in the log of the Arrival."""


def _fate(arrival: Arrival) -> _Fate:
    """Return what became of a move; raises MoveUnfinished where its source is out of sight."""
    source = LocalFolder(arrival.source)
    log = job_log(source, identified=False)
    if log is None:
        raise MoveUnfinished("the checkpoint that was moved here cannot be seen from this machine", where=str(source))
    view = survey(log)
    if _ends(view) and _same_move(view, arrival):
        return _Fate.DONE
    # A Moved is the last of its log, so what is in its slot, or after it, is of somebody who has continued it.
    return _Fate.OPEN if view.tail < arrival.placed.slot else _Fate.VOID


def _ends(view: View) -> bool:
    """Return whether a log ends for a move; one that may have ended has, because nobody writes after it."""
    return isinstance(view.last, Moved) or view.moved_to is not None


def _same_move(view: View, arrival: Arrival) -> bool:
    """Return whether the end of a log is that of the move by which another log arrived."""
    last = view.last  # where the Moved cannot be read, the last is the Takeover of who wrote it
    moved = (arrival.placed.slot, arrival.epoch, arrival.writer)
    return last is not None and (view.tail, last.epoch, last.writer) == moved


def _has_arrived(folder: LocalFolder, ended: View) -> bool:
    """Return whether the checkpoint at a place is the one that a log has ended for."""
    log = job_log(folder)
    if log is None:
        return False
    try:
        entry = log.read(ended.tail)
    except NotFound:
        return False
    return isinstance(entry, Arrival) and _same_move(ended, entry)


def _refuse_place(source: LocalFolder, folder: LocalFolder) -> None:
    """Raise CannotCopy where something is at the place that an earlier try of this move has not left."""
    if folder.exists() and not _is_left_over(source, folder, _Fate.OPEN, _Fate.VOID):
        raise CannotCopy("there is a checkpoint already", where=str(folder))
    # Up to there the assets of a job of this name are reported, and of its first batches they would not be.
    reported = Records(LocalStore(folder.parent), "assets", folder.name).newest() if folder.parent.is_dir() else None
    log = job_log(source)
    assert log is not None
    if reported is not None and int(reported.body["batch"]) >= recover(log, Damage.LIST).next_batch:
        raise CannotCopy(
            f"a former checkpoint of {folder.name} reached batch {reported.body['batch']}, and no batch up to that one "
            "would be reported; move it under another name",
            where=f"{folder.parent}/_control",
        )
    theirs = _decisions(source)
    if any(theirs.get(record) != decision for record, decision in _decisions(folder).items()):
        raise CannotCopy(
            f"somebody has decided on held batches of a former checkpoint of {folder.name}, and that would be taken "
            "for decisions on those that come now; move it under another name",
            where=f"{folder.parent}/_control",
        )


def _is_left_over(source: LocalFolder, folder: LocalFolder, *fates: _Fate) -> bool:
    """Return whether a checkpoint is the copy of a move from the source that had one of these fates."""
    log = job_log(folder)
    last = None if log is None else survey(log).last
    return isinstance(last, Arrival) and last.source == str(source) and _fate(last) in fates


def _make_way(source: LocalFolder, folder: LocalFolder, made_in: LocalFolder) -> None:
    """Remove what an earlier try has left at the place; raises CannotCopy where anything else is there.

    This command may have slept since it took the source over, and another may have moved the job meanwhile. So it looks
    while no other command of this machine can, and once more at what it has renamed, for those of others.
    """
    importing = made_in.parent
    with alone_in(importing):
        for left in importing.glob(f"_{folder.name}-*"):  # by who was killed below
            _remove_void(source, left)
        if not folder.exists():
            return
        aside = importing / f"_{made_in.name}"
        if _is_left_over(source, folder, _Fate.VOID):
            move_into_place(folder, aside)
            if _remove_void(source, aside):
                return
            move_into_place(aside, folder)
        raise CannotCopy("there is a checkpoint already", where=str(folder))


def _remove_void(source: LocalFolder, left: LocalFolder) -> bool:
    """Remove a copy that nobody can ever continue, and return whether it is one."""
    if not _is_left_over(source, left, _Fate.VOID):
        return False
    dead = left.with_name(f"{left.name.removeprefix('_')}-old")  # which `clear_left` removes, if this is killed
    move_into_place(left, dead)
    dead.remove_all()
    return True


def _copy(source: LocalFolder, target: LocalFolder) -> None:
    """Copy all files of a checkpoint durably, and compare each copy with what it is of."""
    for path in sorted(source.rglob("*")):
        if not (path.is_dir() or path.name.startswith(_TEMPORARY)):
            _copy_file(path, target / path.relative_to(source))
    for folder in {path.parent for path in target.rglob("*")}:
        folder.sync()


def _copy_file(path: LocalFolder, copy: LocalFolder) -> None:
    copy.parent.make()
    try:
        copy_plain(path, copy.parent)
        os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))  # Delta tells versions by time as well
        same = filecmp.cmp(path, copy, shallow=False)
    except FileNotFoundError as why:
        problem = "it was deleted while it was copied: a driver that has lost the log still sweeps, so try again"
        raise CannotCopy(problem, where=str(path)) from why
    if not same:
        raise CannotCopy("the copy is not what was copied", where=str(copy))


def _decisions(folder: LocalFolder) -> dict[str, bytes]:
    """Return the records of what was decided on a job's held batches, by their paths below the job's name."""
    if not folder.parent.is_dir():
        return {}
    base = f"_control/held/{folder.name}"
    store = LocalStore(folder.parent)
    return {path.removeprefix(f"{base}/"): store.read(path) for path in store.list(base)}


def _copy_decisions(source: LocalFolder, folder: CheckpointFolder) -> None:
    """Copy what was decided on held batches beside the source, where nobody decides any more."""
    store = folder.parent.store()
    for record, decision in sorted(_decisions(source).items()):
        create_or_read(store, f"_control/held/{folder.name}/{record}", decision)

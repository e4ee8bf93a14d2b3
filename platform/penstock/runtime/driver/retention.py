"""Sweep what no kept Commit needs: log entries, state files, staged files (DESIGN 4 c6, FAULTS F15, F30).

Everything is found again from the store, so a sweep that a crash cut short is done by the next one. What may go
follows from Commits, which do not change, and from the floor, which never falls. So a process that does not own the log
may sweep too, beside a driver and with what it read a while ago (decision 35).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import structlog

from penstock.checkpoint.log.compaction import compact
from penstock.checkpoint.log.entries import Commit
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.purge import BURST, Purge
from penstock.checkpoint.log.recovery import Recovered, recover
from penstock.checkpoint.log.saved import Saves
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CheckpointCorrupt, PenstockError, StateMissing

__all__ = ["Retention", "purge_at_rest", "sweep_left"]

events = structlog.get_logger()

EVERY = 8
"""Sweep each folder once in so many batches: a listing costs more than the files of a few batches."""

SAVES_AT_ONCE = 8
"""Named checkpoints that one sweep reads: there may be hundreds, and a start waits for none of them."""

_GRACE = 3_600.0
"""Seconds after which a temporary file is nobody's: no single write takes that long."""


class Retention:
    """Know which commits are kept, and delete what only the others named.

    `root` is the job's checkpoint folder; `keep` how many commits can be restored.
    `pinned_batches` names batches that stay however old they are; `decided_on` says of a held batch whether a decision
    on it was carried out. `sweep_sources` deletes what sources keep in the checkpoint and none of these Commits needs.
    """

    def __init__(
        self,
        root: CheckpointFolder,
        *,
        keep: int,
        pinned_batches: Callable[[], set[int]] = set,
        decided_on: Callable[[int], bool] = lambda _: False,
        sweep_sources: Callable[[Sequence[Commit]], int] = lambda _: 0,
    ) -> None:
        self.root = root
        self.state_folder = root / "state"
        self.keep = keep
        self._pinned_batches = pinned_batches
        self._decided_on = decided_on
        self._sweep_sources = sweep_sources
        self._kept: dict[int, Commit] = {}
        self._started: Commit | None = None
        self._saves: Saves | None = None
        self._saved: dict[str, Commit] = {}
        self._unread: list[str] = []
        self._lost: set[str] = set()
        self._held: set[int] = set()
        self._compaction: int | None = None
        self._floor = 0
        self._purge: Purge | None = None
        self._purge_from = 0  # the batch: after a failure not at once, which would be a warning a batch
        self._files: dict[CheckpointFolder, list[str]] = {}

    def adopt(self, recovered: Recovered) -> None:
        """Begin with the commits that the log keeps; named ones are read later, some with each sweep."""
        self._kept = {kept.batch: kept for kept in recovered.kept}
        self._started = recovered.commit
        self._saves, self._saved, self._lost = recovered.saves, {}, set()
        refs = recovered.saves.refs
        self._unread = sorted(refs, key=lambda name: refs[name].batch)
        self._held = set(recovered.held)
        self._compaction = recovered.compaction
        self._floor = recovered.floor

    def pin(self, name: str, commit: Commit) -> None:
        """Keep what a named checkpoint needs."""
        self._saved[name] = commit

    def let_go(self, name: str) -> None:
        """Keep no longer what a named checkpoint needs."""
        self._saved.pop(name, None)
        self._lost.discard(name)
        self._unread = [other for other in self._unread if other != name]

    def compact(self, owned: OwnedLog) -> None:
        """Compact the log of the driver that owns it, where that is due (decision 58); warn once of damage."""
        knew = owned.not_compacted >= 0
        made = compact(owned.log, owned, decided_on=self._decided_on)
        if owned.not_compacted >= 0 and not knew:
            events.warning("janitor.not_compacted", reason="the log has damage: penstock fsck tells it")
        if made is not None:
            self._compaction = owned.compaction
            self._held = {int(batch) for batch in made.held}

    def leave(self, owned: OwnedLog) -> None:
        """Compact the log for the last time, and purge it: a job that ends by itself may never come to a sweep."""
        self.compact(owned)
        purge_at_rest(owned)

    def floor(self, batch: int) -> int:
        """Return the oldest batch that can be restored once `batch` is committed."""
        known = list(dict.fromkeys([*self._kept, batch]))
        return max(self._floor, min(known[-self.keep :][0], *self._pinned_batches(), batch))

    def sweep(self, commit: Commit, log: Log) -> None:
        """Note a Commit, and every so often delete some of what lies below its floor.

        What cannot be deleted ends no driver: it is named in a warning, and tried again by the next sweep.
        """
        self._kept[commit.batch] = commit
        self._started = None  # this Commit names what it needs of the one before
        if commit.held:
            self._held.add(commit.batch)
        self._floor = commit.floor
        self._kept = {batch: kept for batch, kept in self._kept.items() if batch >= self._floor}
        if self._purge is None or self._purge.log is not log:
            self._purge = Purge(log)
        parts = self._parts(commit.batch)
        rounds, turn = divmod(commit.batch, EVERY)
        if not rounds % 8:
            # What killed writers left (F15). The batch's time is never later than now, so nothing goes too early.
            parts.append(lambda: log.store.janitor(_GRACE, commit.time / 1_000_000))
        # The folders each in a batch of its own: together they would delay one by 20 ms. The log in all batches: for
        # thousands of batches behind a milestone, one in eight would delete for 11 ms.
        if commit.batch >= self._purge_from and not _went(partial(self._purge.run, self._compaction)):
            self._purge_from = commit.batch + EVERY
        for part in parts[turn::EVERY]:
            _went(part)

    def sweep_all(self, log: Log, *, now: float) -> int:
        """Delete all that lies below the floor, as adopted, and return how many files went; `now` in seconds."""
        # What the newest Commit staged may have to be published once more.
        newest = max(self._kept, default=0)
        self._read_saves(sys.maxsize)
        purged = Purge(log).run(self._compaction, at_most=sys.maxsize)
        return purged + sum(part() for part in self._parts(newest)) + log.store.janitor(_GRACE, now)

    def _parts(self, newest: int) -> list[Callable[[], int]]:
        return [
            self._sweep_state,
            self._sweep_blocks,
            lambda: self._sweep_staged(newest),
        ]

    def _sweep_state(self) -> int:
        self._read_saves(SAVES_AT_ONCE)
        # One that is not read yet, or cannot be, may pin any file that is not newer.
        refs = {} if self._saves is None else self._saves.refs
        unread = max((refs[name].batch for name in (*self._unread, *self._lost)), default=-1)
        try:
            named = self._named_state()
        except (CheckpointCorrupt, StateMissing) as error:
            # Damage in an older batch says nothing of the state in force, which its readers check.
            events.warning("janitor.state_not_swept", reason=error.what, where=error.where)
            return 0
        left = [
            path
            for path, batch in _batch_files(self.state_folder)
            if unread < batch < self._floor and path.relative_to(self.state_folder).as_posix() not in named
        ]
        return _delete(self.state_folder, left)

    def _sweep_blocks(self) -> int:
        """Let sources delete what no Commit reads on from; nothing while a named one is not read."""
        self._read_saves(SAVES_AT_ONCE)  # a job that runs one batch at a time sweeps no state in this run
        if self._unread or self._lost:
            return 0
        return self._sweep_sources(self._needed())

    def _needed(self) -> tuple[Commit, ...]:
        """Return the Commits that can be restored, or that the job was restored from and no Commit has followed.

        A saved one may be kept as well, and is there once. A restored one may have the number of a kept one, and
        other state: then both are needed.
        """
        started = () if self._started is None else (self._started,)
        needed = list(self._kept.values())
        for commit in (*self._saved.values(), *started):
            if not any(commit.batch == other.batch and commit == other for other in needed):
                needed.append(commit)
        return tuple(needed)

    def _read_saves(self, at_most: int) -> None:
        """Read some named checkpoints, the newest first: those that stay unread pin what is older."""
        for name in self._unread[: -at_most - 1 : -1]:
            assert self._saves is not None
            try:
                self._saved[name] = self._saves[name]
            except CheckpointCorrupt as error:
                events.warning("janitor.state_not_swept", reason=error.what, where=error.where)
                self._lost.add(name)
        del self._unread[-at_most:]

    def _named_state(self) -> set[str]:
        """Return the files that a kept or pinned Commit needs, relative to the state folder."""
        from penstock.state.manifest import Manifest

        named: set[str] = set()
        known, self._files = self._files, {}  # a manifest never changes, and most are those of the sweep before
        for commit in self._needed():
            for step, refs in commit.state.items():
                for partition, ref in refs.items():
                    folder = f"{step}/{partition}"
                    named.add(f"{folder}/{ref.path}")
                    path = self.state_folder / folder / ref.path
                    files = known[path] if path in known else Manifest.read(path).files()
                    self._files[path] = files
                    named.update(f"{folder}/{name}" for name in files)
        return named

    def _sweep_staged(self, newest: int) -> int:
        """Delete staged files of older batches: published ones are the sink's, others are of no Commit."""
        folder = self.root / "staged"
        staged = _batch_files(folder)
        return _delete(folder, [path for path, batch in staged if batch < newest and batch not in self._held])


def purge_at_rest(owned: OwnedLog) -> None:
    """Delete some of what the log needs no more, before its owner leaves it; what cannot be deleted is a warning."""
    _went(partial(Purge(owned.log).run, owned.compaction, at_most=BURST))


def _went(part: Callable[[], int]) -> bool:
    """Do a part of a sweep, and return whether it could: what is left costs room, and the next sweep tries again."""
    try:
        part()
    except PenstockError as why:
        events.warning("janitor.not_swept", reason=why.what, where=why.where)
    except OSError as why:
        events.warning("janitor.not_swept", reason=str(why), where=why.filename)
    else:
        return True
    return False


def sweep_left(folder: CheckpointFolder, log: Log, *, keep: int, now: float) -> int:
    """Delete what drivers have left below the floor of a job's checkpoint, and return how many files went.

    A driver may run meanwhile. `now`: seconds since 1970. Raises what `recover` raises: damage is left as it is.
    """
    janitor = Retention(folder, keep=keep)
    janitor.adopt(recover(log))
    return janitor.sweep_all(log, now=now)


def _delete(folder: CheckpointFolder, paths: list[CheckpointFolder]) -> int:
    folder.remove_files(paths)
    return len(paths)


def _batch_files(folder: CheckpointFolder) -> Iterator[tuple[CheckpointFolder, int]]:
    """Yield files below a folder whose names begin with a batch id."""
    for path in folder.files():
        head = path.name.split("-", 1)[0]
        if head.isdecimal():
            yield path, int(head)

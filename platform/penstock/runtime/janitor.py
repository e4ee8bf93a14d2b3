"""Sweep what no kept Commit needs: log entries, state files, staged files (DESIGN 4 c6, FAULTS F15, F30).

Everything is found again from the store, so a sweep that a crash cut short is done by the next one. What may go
follows from Commits, which do not change, and from the floor, which never falls: who does not own the log may sweep
too, beside a driver and with what it read a while ago (decision 35).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.log import Log
from penstock.checkpoint.places import files_below, remove_files
from penstock.checkpoint.purge import AT_MOST, Purge
from penstock.checkpoint.recovery import Recovered, recover
from penstock.errors import CheckpointCorrupt, PenstockError, StateMissing

__all__ = ["Janitor", "sweep_left"]

events = structlog.get_logger()

EVERY = 8
"""Sweep once in so many batches: a listing costs more than the files of a few batches."""

_GRACE = 3_600.0
"""Seconds after which a temporary file is nobody's: no single write takes that long."""


class Janitor:
    """Know which commits are kept, and delete what only the others named.

    `root` is the job's checkpoint folder; `keep` how many commits can be restored.
    `pinned_batches` names batches that stay however old they are: held ones that nobody has decided on.
    """

    def __init__(self, root: Path, *, keep: int, pinned_batches: Callable[[], set[int]] = set) -> None:
        self.root = root
        self.keep = keep
        self._pinned_batches = pinned_batches
        self._kept: OrderedDict[int, Commit] = OrderedDict()
        self._pinned: list[Commit] = []
        self._floor = 0
        self._purge: Purge | None = None
        self._files_unknown = False
        self._files: dict[Path, list[str]] = {}

    @property
    def state_folder(self) -> Path:
        """Return the folder that holds each step's state."""
        return self.root / "state"

    def adopt(self, recovered: Recovered) -> None:
        """Begin with the commits that the log keeps."""
        self._kept = OrderedDict((k.batch, k.commit) for k in recovered.kept)
        self._pinned = list(recovered.saves.values())
        if recovered.commit is not None:
            self._pinned.append(recovered.commit)
        self._floor = recovered.floor
        self._files_unknown = bool(recovered.lost_saves)

    def pin(self, commit: Commit) -> None:
        """Keep what a named checkpoint needs."""
        self._pinned.append(commit)

    def floor(self, batch: int) -> int:
        """Return the oldest batch that can be restored once `batch` is committed."""
        known = [*self._kept, batch] if batch not in self._kept else list(self._kept)
        return max(self._floor, min(known[-self.keep :][0], *self._pinned_batches(), batch))

    def sweep(self, commit: Commit, log: Log) -> None:
        """Note a Commit, and every so often delete what lies below its floor.

        What cannot be deleted ends no driver: it is named in a warning, and tried again by the next sweep.
        """
        self._kept[commit.batch] = commit
        self._floor = commit.floor
        dropped = [b for b in self._kept if b < self._floor]
        for batch in dropped:
            del self._kept[batch]
        if (commit.batch + 1) % EVERY:
            return
        if self._purge is None or self._purge.log is not log:
            self._purge = Purge(log, self.keep)
        parts = self._parts(self._purge, commit.batch)
        if not (commit.batch + 1) % (8 * EVERY):
            # The batch's time is never later than now, so nothing goes too early.
            parts.append(lambda: _sweep_temporary(log, commit.time / 1_000_000))
        for part in parts:
            try:
                part()
            except (PenstockError, OSError) as why:  # what is left costs room, and the next sweep tries again
                reason, where = getattr(why, "what", why), getattr(why, "where", None)
                events.warning("janitor.not_swept", reason=str(reason), where=where or getattr(why, "filename", None))

    def sweep_all(self, log: Log, *, now: float) -> int:
        """Delete all that lies below the floor, as adopted, and return how many files went; `now` in seconds."""
        # What the newest Commit staged may have to be published once more.
        newest = max(self._kept, default=0)
        parts = self._parts(Purge(log, self.keep), newest, sys.maxsize)
        return sum(part() for part in parts) + _sweep_temporary(log, now)

    def _parts(self, purge: Purge, newest: int, at_most: int = AT_MOST) -> list[Callable[[], int]]:
        return [
            lambda: purge.run(self._floor, at_most=at_most),
            self._sweep_state,
            lambda: self._sweep_staged(newest),
        ]

    def _sweep_state(self) -> int:
        if self._files_unknown:
            # A named checkpoint that cannot be read may pin any file; nothing goes until that is settled.
            return 0
        try:
            named = self._named_state()
        except (CheckpointCorrupt, StateMissing) as error:
            # Damage in an older batch says nothing of the state in force, which its readers check.
            events.warning("janitor.state_not_swept", reason=error.what, where=error.where)
            return 0
        left = [
            path
            for path, batch in _batch_files(self.state_folder)
            if batch < self._floor and path.relative_to(self.state_folder).as_posix() not in named
        ]
        return _delete(left)

    def _named_state(self) -> set[str]:
        """Return the files that a kept or pinned Commit needs, relative to the state folder."""
        from penstock.state import Manifest

        named: set[str] = set()
        known, self._files = self._files, {}  # a manifest never changes, and most are those of the sweep before
        for commit in (*self._kept.values(), *self._pinned):
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
        held = {f.path for c in self._kept.values() for files in c.held.values() for f in files}
        staged = _batch_files(self.root / "staged")
        return _delete([path for path, batch in staged if batch < newest and path.name not in held])


def sweep_left(folder: Path, log: Log, *, keep: int, now: float) -> int:
    """Delete what drivers have left below the floor of a job's checkpoint, and return how many files went.

    A driver may run meanwhile. `now`: seconds since 1970. Raises what `recover` raises: damage is left as it is.
    """
    janitor = Janitor(folder, keep=keep)
    janitor.adopt(recover(log))
    return janitor.sweep_all(log, now=now)


def _delete(paths: list[Path]) -> int:
    remove_files(paths)
    return len(paths)


def _sweep_temporary(log: Log, now: float) -> int:
    """Remove what writers that were killed left half written, in stores that write so (F15)."""
    sweep = getattr(log.store, "janitor", None)
    return int(sweep(_GRACE, now)) if sweep is not None else 0


def _batch_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield files below a folder whose names begin with a batch id."""
    for path in files_below(folder):
        head = path.name.split("-", 1)[0]
        if head.isdecimal():
            yield path, int(head)

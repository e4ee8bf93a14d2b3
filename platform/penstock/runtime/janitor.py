"""Sweep what no kept Commit needs: log entries, state files, staged files (DESIGN 4 c6, FAULTS F15, F30).

Everything is found again from the store, so a sweep that a crash cut short is done by the next one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from penstock.checkpoint.entries import Commit
from penstock.checkpoint.log import Log
from penstock.checkpoint.purge import Purge
from penstock.checkpoint.recovery import Recovered
from penstock.errors import CheckpointCorrupt, StateMissing

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

__all__ = ["Janitor"]

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

    def floor(self, batch: int) -> int:
        """Return the oldest batch that can be restored once `batch` is committed."""
        known = [*self._kept, batch] if batch not in self._kept else list(self._kept)
        return max(self._floor, min(known[-self.keep :][0], *self._pinned_batches(), batch))

    def sweep(self, commit: Commit, log: Log, engine: Engine) -> None:
        """Note a Commit, and every so often delete what lies below its floor."""
        self._kept[commit.batch] = commit
        self._floor = commit.floor
        dropped = [b for b in self._kept if b < self._floor]
        for batch in dropped:
            del self._kept[batch]
        if (commit.batch + 1) % EVERY:
            return
        if self._purge is None or self._purge.log is not log:
            self._purge = Purge(log, self.keep)
        self._purge.run(self._floor)
        self._sweep_state()
        self._sweep_staged(commit, engine)
        if not (commit.batch + 1) % (8 * EVERY):
            _sweep_temporary(commit, log)

    def _sweep_state(self) -> None:
        if self._files_unknown:
            # A named checkpoint that cannot be read may pin any file; nothing goes until that is settled.
            return
        try:
            named = self._named_state()
        except (CheckpointCorrupt, StateMissing) as error:
            # Damage in an older batch says nothing of the state in force, which its readers check.
            events.warning("janitor.state_not_swept", reason=error.what, where=error.where)
            return
        for path, batch in _batch_files(self.state_folder, depth=2):
            if batch < self._floor and path.relative_to(self.state_folder).as_posix() not in named:
                path.unlink(missing_ok=True)

    def _named_state(self) -> set[str]:
        """Return the files that a kept or pinned Commit needs, relative to the state folder."""
        from penstock.state import Manifest

        named: set[str] = set()
        for commit in (*self._kept.values(), *self._pinned):
            for step, refs in commit.state.items():
                for partition, ref in refs.items():
                    folder = f"{step}/{partition}"
                    named.add(f"{folder}/{ref.path}")
                    manifest = Manifest.read(self.state_folder / folder / ref.path)
                    named.update(f"{folder}/{name}" for name in manifest.files())
        return named

    def _sweep_staged(self, commit: Commit, engine: Engine) -> None:
        """Delete staged files of older batches: published ones are the sink's, others are of no Commit."""
        held = {f.path for c in self._kept.values() for files in c.held.values() for f in files}
        for path, batch in _batch_files(self.root / "staged", depth=1):
            if batch < commit.batch and path.name not in held:
                path.unlink(missing_ok=True)


def _sweep_temporary(commit: Commit, log: Log) -> None:
    """Remove what writers that were killed left half written, in stores that write so (F15)."""
    sweep = getattr(log.store, "janitor", None)
    if sweep is not None:
        # The batch's time is never later than now, so nothing goes too early.
        sweep(_GRACE, commit.time / 1_000_000)


def _batch_files(folder: Path, *, depth: int) -> Iterator[tuple[Path, int]]:
    """Yield files whose names begin with a batch id, in folders `depth` below this one."""
    if not folder.is_dir():
        return
    for path in folder.glob("/".join(["*"] * (depth + 1))):
        head = path.name.split("-", 1)[0]
        if head.isdecimal():
            yield path, int(head)

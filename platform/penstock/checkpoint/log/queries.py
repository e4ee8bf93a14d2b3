"""List the newest batches and the saved checkpoints that a job can restore, with few reads: for forms."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Compaction, Save, Unsave
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.saved import UNKNOWN, read_save
from penstock.checkpoint.storage import format as fileformat
from penstock.errors import CheckpointError, NotFound

__all__ = ["Recent", "newest_commits", "newest_saves"]


@dataclass(frozen=True, slots=True)
class Recent:
    """A Commit, by its batch and its time in UTC microseconds since 1970."""

    batch: int
    time: int


def newest_commits(log: Log, most: int) -> list[Recent]:
    """Return at most so many Commits, the newest first, down to the floor.

    Unreadable entries are left out, and nothing is judged: `recover` does that for the one that a person picks.
    """
    commits: list[Recent] = []
    floor = 0
    slots = deque(range(log.find_tail(), -1, -1))
    while slots:
        slot = slots.popleft()
        path = log.path(slot)
        try:
            data = log.store.read(path)
            kind = fileformat.read_header(data, path)["kind"]
            if kind == "compaction":  # which names the restorable ones before it
                _, body = fileformat.decode(data, kind=kind, path=path)
                slots = deque(sorted(map(int, body["kept"]), reverse=True))
            if kind != "commit":
                continue
            _, body = fileformat.decode(data, kind="commit", path=path)
            floor = max(floor, int(body["floor"]))
            commits.append(Recent(int(body["batch"]), int(body["time"])))
        except NotFound:
            break  # purged: what is below it is as well
        except (CheckpointError, KeyError, TypeError, ValueError):
            continue
        if len(commits) >= most or commits[-1].batch <= floor:
            break
    return [commit for commit in commits if commit.batch >= floor]


def newest_saves(log: Log) -> dict[str, Recent]:
    """Return the saved checkpoints by name, the newest first; one that cannot be read is left out.

    Reads what the log got since its newest Compaction, which names those before it; without one, each Save.
    """
    saves: dict[str, Recent | None] = {}
    for slot in range(log.find_tail(), -1, -1):
        try:
            entry = log.read(slot)
        except NotFound:
            break
        except CheckpointError:
            continue
        match entry:
            case Save():
                saves.setdefault(entry.name, Recent(entry.commit.batch, entry.commit.time))
            case Unsave():
                saves.setdefault(entry.name, None)
            case Compaction():
                for name, ref in reversed(entry.saves.items()):
                    saves.setdefault(name, None if ref.batch == UNKNOWN else Recent(ref.batch, ref.time))
                break
        place = entry.placed
        # Before the first Compaction an entry names all that was saved before it; the first of all names nothing.
        if place.takeover is not None and place.compaction is None:
            for name, behind in reversed(place.saves.items()):
                if name not in saves:
                    saves[name] = _saved(log, behind, name)
            break
    return {name: commit for name, commit in saves.items() if commit is not None}


def _saved(log: Log, slot: int, name: str) -> Recent | None:
    try:
        commit = read_save(log, slot, name)
    except CheckpointError:
        return None
    return Recent(commit.batch, commit.time)

"""Name the newest batches that a job can go back to, at the price of reading those and no more: for forms."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.checkpoint import format as fileformat
from penstock.checkpoint.log import Log
from penstock.errors import CheckpointError, NotFound

__all__ = ["Recent", "newest_commits"]


@dataclass(frozen=True, slots=True)
class Recent:
    """A Commit, by its batch and its time in UTC microseconds since 1970."""

    batch: int
    time: int


def newest_commits(log: Log, most: int) -> list[Recent]:
    """Return at most so many Commits, the newest first, down to the floor.

    What cannot be read is left out, and nothing is judged: `recover` does that, when one of them is asked for.
    """
    found: list[Recent] = []
    floor = 0
    slots = deque(range(log.find_tail(), -1, -1))
    while slots:
        slot = slots.popleft()
        path = log.path(slot)
        try:
            data = log.store.read(path)
            kind = fileformat.read_header(data, path)["kind"]
            if kind == "compaction":  # which names those before it that can be gone back to
                _, body = fileformat.decode(data, kind=kind, path=path)
                slots = deque(sorted(map(int, body["kept"]), reverse=True))
            if kind != "commit":
                continue
            _, body = fileformat.decode(data, kind="commit", path=path)
            floor = max(floor, int(body["floor"]))
            found.append(Recent(int(body["batch"]), int(body["time"])))
        except NotFound:
            break  # purged: what is below it is as well
        except (CheckpointError, KeyError, TypeError, ValueError):
            continue
        if len(found) >= most or found[-1].batch <= floor:
            break
    return [one for one in found if one.batch >= floor]

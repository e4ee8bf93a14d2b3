"""Number files in a folder and find the last one by asking for names alone, though old ones are deleted.

Listing a folder is only a hint, and asking for every number would take longer with every batch.
So some files are kept for ever as milestones: those whose numbers are multiples of a stride.
Nothing after the newest milestone is ever deleted. So the files after it are a run without holes, and so are the
milestones; the end of a run is found by binary search.
With several strides, each a multiple of the one before, milestones are thinned out in the same way, all but the widest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.checkpoint.storage.store import CheckpointStore

_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Sequence:
    """The files `<folder>/<number of 12 digits>` of a store."""

    store: CheckpointStore
    folder: str
    strides: tuple[int, ...]

    def path(self, number: int) -> str:
        """Return the path of a number."""
        return f"{self.folder}/{number:0{_DIGITS}d}"

    def exists(self, number: int) -> bool:
        """Return whether the file of a number is there."""
        return self.store.exists(self.path(number))

    def find_tail(self, known: int = -1) -> int:
        """Return the last number in use, -1 when there is none; about `2 log2` of it in calls of `exists`.

        Args:
            known: A number that was in use at some time, or -1. The search begins at it, and takes `2 log2` of how far
                the end has moved since. Where it is not in use in this folder the search is as without it.

        The answer was true at some moment of the call, unless files were added and deleted while it ran. Then it may be
        a number that has become a hole or precedes one; `in_hole` detects that, after a create.
        """
        widest = self.strides[-1]
        last = _gallop(partial(self._is_step, 0, widest), max(known, 0) // widest)
        if last < 0:
            return -1
        base, coarser = last * widest, widest
        for finer in (*reversed(self.strides[:-1]), 1):
            # After the newest milestone nothing is deleted: what was in use there still is, and so is all before it.
            first = (known - base) // finer if base < known < base + coarser else 0
            base += finer * _last(partial(self._is_step, base, finer), first, coarser // finer)
            coarser = finer
        return base

    def _is_step(self, base: int, stride: int, index: int) -> bool:
        return self.exists(base + stride * index)

    def expendable(self, number: int, tail: int) -> bool:
        """Return whether a file may ever be deleted while `tail` is in use: no milestone, with one after it."""
        for stride in self.strides:
            if number % stride:
                return number < tail - tail % stride
        return False

    def in_hole(self, number: int) -> bool:
        """Return whether a file just created may be in the hole of a deleted one, instead of at the end.

        A deleted file had a milestone after it; that one stays, or had a wider one after it, and the widest all stay.
        So one question for each stride, asked after the create, is enough, however old the known end is.
        """
        return any(self.exists(number - number % stride + stride) for stride in self.strides)

    def listed(self) -> list[int]:
        """Return the numbers that a listing shows, ascending; a hint only."""
        start = len(self.folder) + 1
        names = (path[start:] for path in self.store.list(self.folder))
        return sorted({int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdigit()})

    def gaps(self, newest: int) -> list[int]:
        """Return the numbers before `newest`, a file known to exist, that are missing but were never to be deleted.

        Empty also when the sequence grows past the next milestone meanwhile, because then nothing is known.
        """
        widest, narrowest = self.strides[-1], self.strides[0]
        start = newest - newest % narrowest
        wanted = [*range(0, start + 1, widest), *range(start + 1, newest)]
        missing = [number for number in wanted if not self.exists(number)]
        return [] if self.exists(start + narrowest) else missing


def _gallop(holds: Callable[[int], bool], first: int = 0) -> int:
    """Return the largest index of a run that starts at 0, by doubling from `first` and then halving; -1 for no run."""
    if not holds(first):
        return _gallop(holds) if first else -1
    low, step = first, 1
    while holds(first + step):
        low, step = first + step, step * 2
    return _bisect(holds, low, first + step)


def _last(holds: Callable[[int], bool], first: int, end: int) -> int:
    """Return the last index that holds of a run that starts at 0 and ends before `end`; `first` may be in it."""
    if not first:
        return _bisect(holds, 0, end)
    if not holds(first):
        return _bisect(holds, 0, first)
    low, step = first, 1
    while first + step < end and holds(first + step):
        low, step = first + step, step * 2
    return _bisect(holds, low, min(first + step, end))


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last index that holds, where `low` does and `high` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low

"""Compute the line of a batch: the kept batches from which it continues, across restores (SEMANTICS 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit, Restore
from penstock.checkpoint.log.recovery import Recovered

__all__ = ["Lineage", "line_of", "lineage"]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The predecessor of each kept batch; a batch is there once, so a log of n entries costs n."""

    newest: int | None
    before: dict[int, int | None]

    def line(self, batch: int | None) -> frozenset[int]:
        """Return a batch and all kept batches before it in its line."""
        line = set()
        while batch is not None and batch in self.before:
            line.add(batch)
            batch = self.before[batch]
        return frozenset(line)


def lineage(
    recovered: Recovered,
    restores: Iterable[Restore] | None = None,
    target: Callable[[Restore], int | None] = lambda entry: entry.batch,
) -> Lineage:
    """Read the lines of what the log keeps; `restores` are those to follow, all where not given."""
    followed = recovered.restores if restores is None else restores
    events: list[Commit | Restore] = [*recovered.kept, *followed]
    newest: int | None = None
    before: dict[int, int | None] = {}
    for entry in sorted(events, key=lambda event: event.placed.slot):
        if isinstance(entry, Commit):
            before[entry.batch], newest = newest, entry.batch
        else:
            batch = target(entry)
            newest = batch if batch in before else None
    return Lineage(newest, before)


def line_of(recovered: Recovered) -> frozenset[int]:
    """Return the batch in force and the kept batches before it in its line, without those that a restore has undone."""
    history = lineage(recovered)
    return history.line(history.newest)

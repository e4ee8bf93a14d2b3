"""Tell which kept batches a batch goes on from: those before it in its line, across restores (SEMANTICS 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit, Restore
from penstock.checkpoint.log.recovery import Recovered

__all__ = ["Lineage", "line_of", "lineage"]


@dataclass(frozen=True, slots=True)
class Lineage:
    """Hold what each kept batch goes on from; a batch is there once, so a log of n entries costs n."""

    newest: int | None
    before: dict[int, int | None]

    def line(self, batch: int | None) -> frozenset[int]:
        """Return a batch and all that it goes on from, of those that are kept."""
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
    events: list[tuple[int, Commit | Restore]] = [(kept.slot, kept.commit) for kept in recovered.kept]
    events += [(entry.place.slot, entry) for entry in followed if entry.place is not None]
    newest: int | None = None
    before: dict[int, int | None] = {}
    for _, entry in sorted(events, key=lambda event: event[0]):
        if isinstance(entry, Commit):
            before[entry.batch], newest = newest, entry.batch
        else:
            batch = target(entry)
            newest = batch if batch in before else None
    return Lineage(newest, before)


def line_of(recovered: Recovered) -> frozenset[int]:
    """Return the kept batches that the batch in force goes on from, and itself: not those a restore has left behind."""
    found = lineage(recovered)
    return found.line(found.newest)

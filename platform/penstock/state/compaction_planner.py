"""Choose which runs of a chain are merged next, within the bytes that a batch may rewrite.

Runs are sorted into size classes, each four times the one before, and `FAN` neighbours of a class are merged into one
run. That is size-tiered compaction of log-structured merge trees (O'Neil et al. 1996; Apache Cassandra's SizeTiered).
A small run between large ones counts as large, since only neighbours can be merged.

A merge too large for one batch continues over several, one (group, hash) range at a time. Several merges may be under
way. The one with the fewest bytes left for each run it removes goes first, which keeps the chain shortest on average
(Smith 1956). So a long merge of old runs does not keep small new ones waiting.
Bytes left over shorten a chain above `COMFORTABLE` runs, by merges that end in the same batch.

docs/state-segments.md says what chain lengths follow, and where a budget of four times the bytes written cannot hold
twenty runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.state.manifest import Manifest, Run
from penstock.state.references import Piece
from penstock.state.row_layout import Bound, start_of_group

__all__ = ["AT_ONCE", "SLACK_BYTES", "CompactionPlan", "budget", "live_size", "plan_compaction"]

SLACK_BYTES = 2**20  # merges in batches that write little: with it, chains stay at about 20 runs up to 1 GiB of state
FAN = 4  # a row is rewritten once for each class of four times the size
SATURATED_FAN = 6  # instead of FAN from SATURATED runs on
SATURATED = 24
"""Chain length from which wider merges are made: the budget is what lacks, and they cost fewer bytes a run removed."""
COMFORTABLE = 10  # runs; the average of a chain within its budget
SMALLEST_CLASS = 4_096
LEAST_BUDGET = 4_096
LEAST_PIECE = 2**18
"""The fewest bytes worth a step of an unfinished merge, unless they are half of the batch's budget."""
AT_ONCE = 32 * 2**20
"""Bytes that one plan reads at most: merging holds them in memory a few times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The runs of a part to merge, oldest first, as far as `budget_bytes` of them goes.

    `oldest`: no older rows are in the chain, so tombstones have nothing left to hide.
    """

    part: str
    inputs: tuple[Run, ...]
    budget_bytes: int
    oldest: bool


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge that is under way or could begin: neighbouring runs from place `start` of the chain."""

    start: int
    inputs: tuple[Run, ...]
    size: int

    @property
    def cost(self) -> float:
        """Return the bytes to be merged for each run that goes."""
        return self.size / max(1, len(self.inputs) - 1)


def budget(written: int, slack: int = SLACK_BYTES) -> int:
    """Return the bytes that a batch may rewrite in a partition, given the bytes it writes itself."""
    return 4 * written + slack


def plan_compaction(
    manifest: Manifest,
    part: str,
    budget_bytes: int,
    *,
    before: int | None = None,
    whole_budget: int | None = None,
    behind: int | None = None,
) -> CompactionPlan | None:
    """Return what to merge next in a part, or None when nothing should be, or the budget is too small to do it.

    Called again with what is left of the budget after each plan was carried out; `whole_budget` is what it began with.
    `before`: runs that this batch or a later one wrote to are not merged, because they cannot be read yet.
    `behind`: runs up to this batch are not merged either, because a data checkpoint that is being made will put others
    in their place.
    """
    if budget_bytes < LEAST_BUDGET:
        return None
    chain = manifest.chain(part)
    floor = start_of_group(manifest.floors[part]) if part in manifest.floors else None
    sizes = [live_size(run, floor) for run in chain]
    idle = list(_idle(chain, before, behind))
    going = [m for m in _under_way(chain, sizes) if behind is None or m.inputs[0].batch > behind]
    best = min((*going, *_tiers(chain, sizes, idle)), key=lambda merge: merge.cost, default=None)
    if best is None and len(chain) > COMFORTABLE:
        best = min(_spare(chain, sizes, idle, budget_bytes), key=lambda merge: merge.cost, default=None)
    if best is None:
        return None
    if best.size > budget_bytes and budget_bytes < min(LEAST_PIECE, (whole_budget or budget_bytes) // 2):
        return None  # a run of thousands of small pieces makes long manifests
    older, into = chain[: best.start], best.inputs[0].into
    own_output = into is not None and len(older) == 1 and older[0].number == into
    return CompactionPlan(
        part=part, inputs=best.inputs, budget_bytes=min(budget_bytes, AT_ONCE), oldest=not older or own_output
    )


def live_size(run: Run, floor: Bound | None = None) -> int:
    """Return about how many bytes of a run are live: all but what lies below its own bound and the floor."""
    least = max((bound for bound in (run.low, floor) if bound is not None), default=None)
    if least is None:
        return run.size
    return sum(_live_part(piece, least) for piece in run.pieces)


def _live_part(piece: Piece, least: Bound) -> int:
    if piece.last < least:
        return 0
    if piece.first >= least:
        return piece.size
    axis = 1 if piece.first[0] == piece.last[0] else 0
    width = piece.last[axis] - piece.first[axis]
    return max(1, piece.size * (piece.last[axis] - least[axis]) // width) if width else piece.size


def _under_way(chain: Sequence[Run], sizes: Sequence[int]) -> Iterator[_Merge]:
    """Yield the merges that have begun."""
    start = 0
    while start < len(chain):
        into, end = chain[start].into, start + 1
        if into is not None:
            while end < len(chain) and chain[end].into == into:
                end += 1
            yield _Merge(start, tuple(chain[start:end]), sum(sizes[start:end]))
        start = end


def _idle(chain: Sequence[Run], before: int | None, behind: int | None) -> Iterator[tuple[int, int]]:
    """Yield the stretches of runs that no merge has to do with, and that may be merged: where they begin and end."""
    outputs = {run.into for run in chain}
    start = None
    for place, run in enumerate(chain):
        busy = run.into is not None or run.number in outputs
        busy = busy or (before is not None and run.batch >= before) or (behind is not None and run.batch <= behind)
        if busy and start is not None:
            yield start, place
        start = None if busy else place if start is None else start
    if start is not None:
        yield start, len(chain)


def _tiers(chain: Sequence[Run], sizes: Sequence[int], idle: Sequence[tuple[int, int]]) -> Iterator[_Merge]:
    """Yield neighbours of one size class, where there are enough of them."""
    fan = FAN if len(chain) <= SATURATED else SATURATED_FAN
    for first, last in idle:
        start, end, size_class = last, last, 0
        for place in range(last - 1, first - 1, -1):
            if _size_class(sizes[place]) > size_class:
                if end - start >= fan:
                    yield _Merge(start, tuple(chain[start:end]), sum(sizes[start:end]))
                size_class, end = _size_class(sizes[place]), place + 1
            start = place
        if end - start >= fan:
            yield _Merge(start, tuple(chain[start:end]), sum(sizes[start:end]))


def _spare(
    chain: Sequence[Run], sizes: Sequence[int], idle: Sequence[tuple[int, int]], budget_bytes: int
) -> Iterator[_Merge]:
    """Yield all neighbours that can be merged within the budget."""
    for first, last in idle:
        for start in range(first, last - 1):
            size = sizes[start]
            for end in range(start + 2, last + 1):
                size += sizes[end - 1]
                if size > min(budget_bytes, AT_ONCE):
                    break
                yield _Merge(start, tuple(chain[start:end]), size)


def _size_class(size: int) -> int:
    return max(0, math.ceil(math.log(size / SMALLEST_CLASS, FAN))) if size > SMALLEST_CLASS else 0

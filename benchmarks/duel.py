"""Let two sides take turns over the same input, and compare their medians."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from benchmarks.engine_side import BatchTime, EngineSide
from benchmarks.parts import batch_parts, spark_parts
from benchmarks.spark_side import SparkSide

__all__ = ["Duel", "Turns", "duel", "percentile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Say how many batches each side runs to warm up, and how many a turn after that.

    The first batch of a turn is not counted: caches are the other side's.
    """

    warm_engine: int
    warm_peer: int
    rounds: int
    engine: int
    peer: int

    @property
    def batches(self) -> int:
        """Return how many batches of input the turns take."""
        return max(self.warm_engine + self.rounds * self.engine, self.warm_peer + self.rounds * self.peer)


@dataclass(slots=True)
class Duel:
    """Hold the batch times of both sides, turn by turn, milliseconds.

    `batches` are the engine's in full, `parts` the rows of a table that takes its newest ones apart.
    """

    engine: list[list[float]] = field(default_factory=list)
    peer: list[list[float]] = field(default_factory=list)
    batches: list[BatchTime] = field(default_factory=list)
    parts: list[tuple[str, float]] = field(default_factory=list)

    @property
    def engine_ms(self) -> float:
        """Return the engine's median over all turns."""
        return statistics.median(list(chain.from_iterable(self.engine)))

    @property
    def peer_ms(self) -> float:
        """Return the peer's median over all turns."""
        return statistics.median(list(chain.from_iterable(self.peer)))

    @property
    def ratio(self) -> float:
        """Return how many times the engine's batch fits into the peer's, by medians."""
        return self.peer_ms / self.engine_ms

    @property
    def ratio_of_means(self) -> float:
        """Return the same by means, which a rare slow batch moves."""
        return statistics.fmean(list(chain.from_iterable(self.peer))) / statistics.fmean(
            list(chain.from_iterable(self.engine))
        )

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of medians of each round, engine's turn and the peer's beside it."""
        return [statistics.median(b) / statistics.median(a) for a, b in zip(self.engine, self.peer, strict=True)]


def duel(engine: EngineSide, peer: SparkSide, turns: Turns) -> Duel:
    """Warm both sides up, then let them run in turn."""
    engine.batches(turns.warm_engine)
    peer.batches(turns.warm_peer)
    sides = Duel()
    for _ in range(turns.rounds):
        batches = engine.batches(turns.engine)[1:]
        sides.parts = batch_parts(batches, spark_parts(engine.spark, engine.run.engine.graph.name, batches))
        sides.batches.extend(batches)
        sides.engine.append([batch.whole for batch in batches])
        sides.peer.append(peer.batches(turns.peer)[1:])
    return sides


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

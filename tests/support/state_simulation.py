"""Run the choice of compactions over thousands of batches on manifests alone, without rows and files.

Every run is spread evenly over the hashes, so a merge up to a share of the hashes reads that share of each input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from penstock.state.compaction_planner import CompactionPlan, budget, live_size, plan_compaction
from penstock.state.manifest import Manifest
from penstock.state.references import Piece, SegmentRef

END = 2**62
PART = "state"


@dataclass
class Simulation:
    """Write batches of given sizes in bytes; `keys` are the bytes of all keys there are, None where each is new."""

    keys: int | None = None
    slack: int = 2**20
    manifest: Manifest = field(default_factory=lambda: Manifest(step="s", partition=0, keys=("k",)))
    longest: int = 0
    lengths: list[int] = field(default_factory=list)
    written: int = 0
    rewritten: int = 0
    over_budget: int = 0
    most_pieces: int = 0

    def write(self, size: int) -> None:
        """Write a batch of `size` bytes and merge what its budget allows."""
        batch = self.manifest.batch + 1
        self.manifest = replace(self.manifest, batch=batch)
        left = allowed = budget(size, self.slack)
        while plan := plan_compaction(self.manifest, PART, left, before=batch, whole_budget=allowed):
            left -= self._merge(plan, batch)
        self.over_budget = max(self.over_budget, -left)
        self.rewritten += allowed - left
        self.written += size
        ref = SegmentRef(name="", batch=batch, files={}, parts={PART: (_piece(batch, size, 0, END),)})
        self.manifest = self.manifest.append(ref)
        chain = self.manifest.chain(PART)
        self.lengths.append(len(chain))
        self.longest = max(self.longest, len(chain))
        self.most_pieces = max(self.most_pieces, sum(len(run.pieces) for run in chain))

    def _merge(self, plan: CompactionPlan, batch: int) -> int:
        sizes = [live_size(run) for run in plan.inputs]
        low = (plan.inputs[0].low or (0, 0))[1]
        share = min(1.0, plan.budget_bytes / sum(sizes))
        bound = END if share == 1.0 else low + int((END - low) * share)
        whole = END / (END - low)
        merged = self._union([size * whole for size in sizes]) * (bound - low) / END
        rows = (_piece(batch, max(1, int(merged)), low, bound),)
        numbers = {run.number for run in plan.inputs}
        self.manifest = self.manifest.merged(PART, numbers, None if bound == END else (0, bound), rows, batch)
        return min(plan.budget_bytes, sum(sizes))

    def _union(self, sizes: list[float]) -> float:
        if self.keys is None:
            return sum(sizes)
        return self.keys * (1 - math.prod(1 - min(1.0, size / self.keys) for size in sizes))


def _piece(batch: int, size: int, low: int, high: int) -> Piece:
    file = f"{batch:012d}-simulated.arrow"
    return Piece(file, 0, size, 0, 0, 0, max(1, size // 40), (0, low), (0, high - 1), None)

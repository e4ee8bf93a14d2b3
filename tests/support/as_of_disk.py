"""Run an as-of join as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import Row, StepDisk, sooner

from penstock.graph.join_arguments import JoinKind
from penstock.graph.specs.join_as_of import AsOfJoin
from penstock.operators.join_as_of import bind, bind_side
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, StepContext, StepFacts, Tally

KEYS = pa.schema([("k", pa.float64())])
VISIBLE = (pa.schema([*KEYS, ("x", pa.int64())]), pa.schema([*KEYS, ("y", pa.int64())]))


@dataclass
class Made:
    """What a batch did: pairs with their event times in the order of arrival, counts, and when the step is due."""

    pairs: list[tuple[int, int, int | None]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None


def hash_of(key: float | None, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None or key != key else int(key * 7919) % hashes  # noqa: PLR0124 - NaN


class AsOfDisk(StepDisk):
    """The partitions of a step `s` that joins by the column `k`; rows have `x` on the left and `y` on the right."""

    def __init__(
        self, root: Path | str, *, within: int, how: JoinKind = JoinKind.LEFT, partitions: int = 1, hashes: int = 1000
    ) -> None:
        super().__init__("s", root, partitions=partitions, hashes=hashes)
        spec = AsOfJoin(within=within, how=how)
        self.sides = [
            bind_side(spec, BoundSide(name="s", side=side, keys=KEYS, columns=("k",), visible=VISIBLE[side], inputs={}))
            for side in (0, 1)
        ]
        self.step = bind(spec, self.sides, StepContext(name="s", event=True, timed=True))

    def batch(
        self,
        left: Sequence[Row],
        right: Sequence[Row],
        *,
        late: int | None,
        close: int | None,
        judged: int | None = None,
    ) -> Made:
        """Run a batch; rows of each input arrived in their order, the left ones first."""
        made = Made()
        facts = StepFacts(batch=self.batches, time=self.batches, watermark=close, late=late, judged_least=judged)
        branches = [task for side, rows in enumerate((left, right)) for task in self.tasks(rows, side=side)]
        emitted: list[tuple[bytes, tuple[int, int, int | None], int]] = []
        before: Counter[int | None] = Counter()
        for number, piece in self.pieces(branches, facts):
            match piece:
                case Emit():
                    assert piece.rows.drop_columns([TIME]).schema == self.step.outlets[""]
                    assert piece.stand is not None
                    places = piece.stand().arrivals(None, depth=1, place=2, before=before[number])
                    before[number] += piece.rows.num_rows
                    columns = (piece.rows[name].to_pylist() for name in ("x", "y", TIME))
                    emitted += [
                        (place, (at, x, y), at) for place, x, y, at in zip(places.to_pylist(), *columns, strict=True)
                    ]
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = sooner(made.due, piece.watermark)
        emitted.sort(key=lambda of: of[0])
        made.pairs = [pair for _, pair, _ in emitted]
        made.times = [time for *_, time in emitted]
        return made

    def held(self) -> list[dict[str, Any]]:
        """Return the rows that the main table shows."""
        return self.shown().to_pylist()

    def rows_in(self, part: str) -> int:
        """Return how many rows the files have of a part, dead ones and superseded ones included."""
        states = [self.opened(number) for number in range(self.partitions)]
        return sum(table.num_rows for state in states for table in state.scan(part))

    def hash_of(self, key: float | None) -> int:
        """Return the hash of a key."""
        return hash_of(key, self.hashes)

    def columns_of(self, side: int) -> pa.Schema:
        """Return the columns of the rows of an input."""
        return VISIBLE[side]

"""Run a step of sessions as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import Row, StepDisk, sooner

from penstock.graph.aggregates import Aggregate
from penstock.graph.specs.session_windows import SessionWindow, SessionWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.graph.windows import LateTo
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, StepContext, StepFacts, Tally
from penstock.operators.sessions.session_step import bind, bind_side

KEYS = pa.schema([("k", pa.string())])
VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("g", pa.int64())])

GAP = 10
"""The gap of sessions of `rows_at`, in microseconds."""
BatchOfTimes = tuple[int, Sequence[int], int | None]
"""The time of a batch, those of its rows, and its watermark."""
EmittedRow = tuple[int, int, int, str, int]


@dataclass
class Made:
    """What a batch did: sessions that closed, the numbers of late and quarantined rows, counts, and what is due."""

    closed: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: int | None = None
    due_time: int | None = None
    times: list[int] = field(default_factory=list)


class SessionDisk(StepDisk):
    """The partitions of a step `s` of sessions by the column `k`."""

    visible = VISIBLE

    def __init__(
        self,
        window: SessionWindow,
        aggregates: Mapping[str, Aggregate],
        root: Path | str,
        *,
        partitions: int = 1,
        hashes: int = 1000,
        keys: pa.Schema = KEYS,
        retracts: bool = False,
    ) -> None:
        super().__init__("s", root, partitions=partitions, hashes=hashes)
        self._keys, self._retracts = keys, retracts
        self._before: int | None = None
        self.become(window, aggregates)

    def become(self, window: SessionWindow, aggregates: Mapping[str, Aggregate]) -> None:
        """Run on with other windows or aggregates, as a restart of a changed job does."""
        keys, retracts = self._keys, self._retracts
        spec = SessionWindows(window=window, aggregates=aggregates)
        whole = isinstance(window.late, LateTo) or isinstance(window.gap, str)
        bound = BoundSide(
            name="s",
            side=0,
            keys=keys,
            columns=tuple(keys.names),
            visible=VISIBLE if whole else None,
            inputs={name: pa.int64() for name in ("n", "v", "g")},
        )
        self.sides = [bind_side(spec, bound)]
        self.step = bind(spec, self.sides, StepContext(name="s", event=True, timed=True, retracts=retracts))

    def retract(self, *, retracts: bool) -> None:
        """Run on with or without a sink that rows are taken back from."""
        self.step = replace(self.step, layout=replace(self.step.layout, retracts=retracts))

    def batch(
        self,
        tasks: Sequence[Sequence[Row]],
        *,
        late: int | None,
        close: int | None,
        judged: int | None = None,
        time: int | None = None,
    ) -> Made:
        """Run a batch whose rows came in these tasks; arrival is by task, then by place.

        The zero time is 0, and `time` the batch time, by default the number of the batch.
        """
        made = Made()
        time, before = self.batches if time is None else time, self._before
        facts = StepFacts(
            batch=self.batches,
            time=time,
            before=before,
            watermark=close,
            late=late,
            judged=judged,
            read=frozenset({"late", "quarantine"}),
        )
        for number, piece in self.pieces([self.branch(rows, task) for task, rows in enumerate(tasks)], facts):
            match piece:
                case Emit() if number is None:
                    made.aside += piece.rows["n"].to_pylist()
                case Emit() if piece.outlet == MAIN_OUTLET:
                    assert piece.rows.select(self.step.layout.output.names).schema == self.step.layout.output
                    made.closed += piece.rows.drop_columns([TIME]).to_pylist()
                    made.times += piece.rows[TIME].to_pylist()
                case Emit():
                    made.late += piece.rows["n"].to_pylist()
                    assert len(piece.arrivals()) == piece.rows.num_rows
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    made.due = sooner(made.due, piece.watermark)
                    made.due_time = sooner(made.due_time, piece.time)
        self._before = time
        return made

    def sessions(self) -> list[dict[str, Any]]:
        """Return the open sessions, as the main table shows them."""
        return self.shown().to_pylist()


def rows_at(*times: int) -> list[dict[str, Any]]:
    """Return rows of one key, numbered by their times."""
    return [{"k": "a", "t": t, "v": 1, "g": GAP, "n": t} for t in times]


def plain(row: dict[str, Any]) -> EmittedRow:
    """Return start, end, rows, pane and revision."""
    start, end = (round(row[name].timestamp() * 1e6) for name in ("window_start", "window_end"))
    return start, end, row["rows"], row["_pane"], row["_revision"]


def emitted(disk: SessionDisk, batches: Sequence[BatchOfTimes]) -> list[list[EmittedRow]]:
    """Return what each batch emits, of its time, its rows and its watermark."""
    return [
        [plain(row) for row in disk.batch([rows_at(*times)], late=mark, close=mark, time=time).closed]
        for time, times, mark in batches
    ]

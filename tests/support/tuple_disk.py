"""Run a step of windows of rows as the tasks of a batch do, on state on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from step_disk import Row, StepDisk, sooner

from penstock.graph.aggregates import Aggregate
from penstock.graph.specs.tuple_windows import TupleWindow, TupleWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.graph.window_functions import WindowFunction
from penstock.operators.protocol import TIME, BoundSide, Due, Emit, StepFacts, Tally
from penstock.operators.tuple_windows.tuple_step import bind_side, step_of
from penstock.time.clock import END_OF_TIME

KEYS = pa.schema([("k", pa.string())])
VISIBLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.int64())])
_UTC = pa.timestamp("us", tz="UTC")
OUTPUT = pa.schema(
    [
        ("k", pa.string()),
        ("start_at", _UTC),
        ("end_at", _UTC),
        *((name, pa.list_(pa.int64())) for name in ("current", "new", "expired")),
    ]
)


def rows(*times: int, first: int = 1) -> list[dict[str, Any]]:
    """Return rows of one key with these times, numbered on."""
    return [{"k": "a", "n": number, "v": 1, "t": time} for number, time in enumerate(times, first)]


class Recorder:
    """A function that returns its view, and hears of the rows that expire."""

    def __init__(self) -> None:
        self.expired: list[tuple[Any, list[int]]] = []
        self.opened = 0

    def open(self, info: Any) -> None:
        """Count the calls."""
        self.opened += 1

    def __call__(self, key: Any, view: Any) -> list[dict[str, Any]]:
        """Return the numbers of the rows."""
        parts = {name: getattr(view, name)["n"].to_pylist() for name in ("current", "new", "expired")}
        assert view.current.column_names == VISIBLE.names
        return [{"k": key if key != () else None, "start_at": view.start, "end_at": view.end, **parts}]

    def on_expired(self, key: Any, rows: pa.Table) -> None:
        """Keep their numbers."""
        self.expired.append((key, rows["n"].to_pylist()))


@dataclass
class Made:
    """What a batch did."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    due: Due = field(default_factory=lambda: Due(None))


class TupleDisk(StepDisk):
    """The partitions of a step `s`, with a Recorder or aggregates."""

    visible = VISIBLE

    def __init__(
        self,
        window: TupleWindow,
        root: Path | str,
        *,
        aggregates: Mapping[str, Aggregate] | None = None,
        partitions: int = 1,
        hashes: int = 1000,
        keys: pa.Schema = KEYS,
        zero: int = 0,
    ) -> None:
        self.recorder = Recorder()
        function = WindowFunction(self.recorder, "k string") if aggregates is None else None
        spec = TupleWindows(window=window, aggregates=aggregates, function=function)
        bound = BoundSide(
            name="s",
            side=0,
            keys=keys,
            columns=tuple(keys.names),
            visible=VISIBLE if spec.reads(0).rows else None,
            inputs={name: pa.int64() for name in ("n", "v")},
        )
        super().__init__("s", root, partitions=partitions, hashes=hashes)
        self.sides = [bind_side(spec, bound)]
        self.step = step_of(spec, self.side, "s", None if function is None else OUTPUT)
        self.zero = zero
        self.last: tuple[int, int | None] = (0, None)
        self.highest: int | None = None

    def attempted(
        self, number: int, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Iterator[Emit | Due | Tally]:
        """Run the step in a partition once; an attempt that crashes has told the function nothing."""
        told = len(self.recorder.expired)
        try:
            yield from super().attempted(number, inputs, facts)
        finally:
            if self.attempt is not None:
                del self.recorder.expired[told:]

    def batch(self, tasks: Sequence[Sequence[Row]], *, time: int, watermark: int | None = None) -> Made:
        """Run a batch whose rows came in these tasks; arrival is by task, then by place."""
        made = Made()
        facts = StepFacts(
            batch=self.batches,
            time=time,
            watermark=watermark,
            late=watermark,
            reached=self.highest if watermark == END_OF_TIME else watermark,
            zero=self.zero,
            read=frozenset({"late"}),
        )
        self.last = (time, watermark)
        times = [row["t"] for rows in tasks for row in rows]
        self.highest = max([*times, *(() if self.highest is None else (self.highest,))], default=None)
        for number, piece in self.pieces([self.branch(rows, task) for task, rows in enumerate(tasks)], facts):
            match piece:
                case Emit() if number is None:
                    made.late += piece.rows["n"].to_pylist()
                case Emit():
                    output = self.step.outlets[MAIN_OUTLET]
                    assert piece.rows.select(output.names).schema == output
                    made.rows += piece.rows.drop_columns([TIME]).to_pylist()
                    made.times += piece.rows[TIME].to_pylist()
                    assert piece.stand is not None
                    stand = piece.stand()
                    assert len(stand.rows) == piece.rows.num_rows
                    assert piece.arrivals is not None
                    assert int(stand.rows.max(initial=-1)) < len(piece.arrivals())
                case Tally():
                    made.counts.update(piece.counts)
                case Due():
                    due = made.due
                    made.due = Due(sooner(due.watermark, piece.watermark), sooner(due.time, piece.time))
        return made

    def rescale(self, partitions: int, shown: pa.Table | None = None) -> None:
        """Rebuild the state in another number of partitions from what the tables show, or from what is given."""
        time, watermark = self.last
        rows = self.shown() if shown is None else shown
        self.rebuild(rows, partitions, time=time, watermark=watermark, zero=self.zero)

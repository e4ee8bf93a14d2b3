"""Run a step of windows of rows as the tasks of a batch do, on state that each batch opens anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.graph.aggregates import Aggregate
from penstock.graph.specs.tuple_windows import TupleWindow, TupleWindows
from penstock.graph.steps import MAIN_OUTLET
from penstock.graph.window_functions import WindowFunction
from penstock.operators.protocol import (
    HASHED,
    MAIN,
    TIME,
    BoundSide,
    Due,
    Emit,
    RowsOfBranch,
    Send,
    StepFacts,
    Tally,
)
from penstock.operators.tuple_windows.tuple_step import bind_side, step_of
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.full_compaction import live_rows
from penstock.state.keys import partition_of
from penstock.state.writer import Change
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
Row = Mapping[str, Any]


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


def hash_of(key: str | None, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None else (sum(map(ord, key)) * 7919) % hashes


class TupleDisk:
    """The partitions of a step `s`, with a Recorder or aggregates."""

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
        self.side = bind_side(spec, bound)
        self.step: Any = step_of(spec, self.side, "s", None if function is None else OUTPUT)
        self.root, self.partitions, self.hashes, self.zero = Path(root), partitions, hashes, zero
        self.refs: list[dict[str, Any] | None] = [None] * partitions
        self.batches = 0
        self.last: tuple[int, int | None] = (0, None)
        self.highest: int | None = None

    def batch(self, tasks: Sequence[Sequence[Row]], *, time: int, watermark: int | None = None) -> Made:
        """Run a batch whose rows came in these tasks; arrival is by task, then by place."""
        made, inputs = Made(), [[] for _ in range(self.partitions)]
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
        for task, rows in enumerate(tasks):
            for piece in self.side.prepare(self._branch(rows, task), facts):
                match piece:
                    case Send():
                        owner = partition_of(piece.rows[HASHED].to_numpy(), self.partitions)
                        for number in range(self.partitions):
                            inputs[number].append(piece.rows.filter(pa.array(owner == number)))
                    case Emit():
                        made.late += piece.rows["n"].to_pylist()
                    case Tally():
                        made.counts.update(piece.counts)
        for number in range(self.partitions):
            self._state_work(number, inputs[number], facts, made)
        self.batches += 1
        return made

    def shown(self) -> pa.Table:
        """Return the main table."""
        return pa.concat_tables([self._shown(number) for number in range(self.partitions)])

    def rescale(self, partitions: int, shown: pa.Table | None = None) -> None:
        """Rebuild the state in another number of partitions from what the tables show, or from what is given."""
        rows = self.shown() if shown is None else shown
        keys = rows["k"].to_pylist() if "k" in rows.column_names else [None] * rows.num_rows
        rows = rows.append_column(HASHED, pa.array([hash_of(key, self.hashes) for key in keys], pa.int64()))
        rows = rows.sort_by(HASHED)
        owner = partition_of(rows[HASHED].to_numpy(), partitions)
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        time, watermark = self.last
        moment = StepFacts(batch=self.batches, time=time, watermark=watermark, zero=self.zero)
        for number in range(partitions):
            rebuilt = self.step.rebuilt({MAIN: rows.filter(pa.array(owner == number))}, moment)
            self._write(number, self._open(number), rebuilt.change)
        self.batches += 1

    def _state_work(self, number: int, tables: list[pa.Table], facts: StepFacts, made: Made) -> None:
        state = self._open(number)
        running = self.step.run(state, [tables], facts)
        answer = None
        while True:
            try:
                piece = running.send(answer)
            except StopIteration:
                return
            answer = None
            match piece:
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
                    pairs = ((made.due.watermark, piece.watermark), (made.due.time, piece.time))
                    made.due = Due(*(min((d for d in pair if d is not None), default=None) for pair in pairs))
                case Change():
                    answer = state.at(self._write(number, state, piece))

    def _open(self, number: int) -> PartitionState:
        return PartitionState.open(LocalFolder(self.root), "s", number, self.refs[number], work=self.step)

    def _write(self, number: int, state: PartitionState, change: Change) -> Any:
        written = state.write(change, TaskFiles(self._context(), self.batches, "0b0"), partitions=self.partitions)
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def _shown(self, number: int) -> pa.Table:
        state, empty = self._open(number), self.step.tables[MAIN].empty_table()
        parts = [part for part, kept in self.step.parts.items() if kept.table == MAIN]
        tables = [self.step.shown(part, rows) for part in parts for rows in live_rows(state, part, self.step.parts)]
        return pa.concat_tables([empty, *tables])

    def _branch(self, rows: Sequence[Row], task: int) -> RowsOfBranch:
        n = len(rows)
        keyed = len(self.step.keys) > 0
        hashes = [hash_of(row["k"], self.hashes) if keyed else 0 for row in rows]
        table = pa.table(
            {
                **{f.name: pa.array([row[f.name] for row in rows], f.type) for f in VISIBLE},
                TIME: pa.array([row["t"] for row in rows], pa.int64()),
                "h": pa.array(hashes, pa.int64()),
                PARTITION: pa.array(np.full(n, task), pa.int32()),
                POSITION: pa.array(range(n), pa.int64()),
            }
        )
        return RowsOfBranch(
            table=table,
            visible=VISIBLE.names,
            keys={name: name for name in self.step.keys.names},
            inputs={name: name for name in ("n", "v")},
            hash_column="h",
            place=0,
            way=0,
            ways=1,
        )

    def _context(self) -> BatchContext:
        return BatchContext(
            batch=self.batches,
            time=self.batches,
            epoch=1,
            run="0123456789ab",
            spans={},
            late={"s": None},
            close={"s": None},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )

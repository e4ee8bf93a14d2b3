"""Run a step as the tasks of a batch do, on state in segments and manifests that each batch opens anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.operators.protocol import HASHED, MAIN, TIME, Due, Emit, MapSide, RowsOfBranch, Send, StepFacts, Tally
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.runtime.tasks.partition_state import PartitionState, main_table
from penstock.runtime.tasks.staging import TaskFiles
from penstock.sources.base import PARTITION, POSITION
from penstock.state.keys import partition_of
from penstock.state.writer import Change, Written

__all__ = ["Row", "StepDisk", "cut", "hash_of", "sooner"]

Row = Mapping[str, Any]
_CRASHES = 0.3
"""How many of the tasks have a first attempt that crashes."""
_PIECES = 5
"""Where it crashes: behind so many pieces at most, which is the end for most tasks."""
_CUTS = 2
"""How often the rows of an input are cut into those of tasks, some of which have none."""
_FIRST_ATTEMPT = 1_000_000
"""A number that no other attempt has: files of both are there."""


def hash_of(key: object, hashes: int) -> int:
    """Return a hash of a key; few hashes make keys share one."""
    return 0 if key is None else (sum(map(ord, str(key))) * 7919) % hashes


def cut(rows: int, drawn: Random) -> list[tuple[int, int]]:
    """Cut so many rows into those of tasks; return the place of the first row of each, and that behind its last."""
    return list(pairwise([0, *sorted(drawn.randint(0, rows) for _ in range(_CUTS)), rows]))


def sooner(*moments: int | None) -> int | None:
    """Return the earliest moment at which anything is due; None is never."""
    return min((moment for moment in moments if moment is not None), default=None)


class StepDisk:
    """The partitions of a step in a folder. A subclass makes the sides and the step, and collects what they yield."""

    sides: Sequence[MapSide]
    step: Any
    visible: pa.Schema
    """The columns of rows, of the first input where there are two."""
    time = "t"
    """What rows have their event time as, in microseconds."""
    crashes: Random | None = None
    """Decides which attempts of tasks crash, and where, and the order in which tasks send; None for none and theirs."""
    attempt: int | None = None

    def __init__(self, name: str, root: Path | str, *, partitions: int = 1, hashes: int = 1000) -> None:
        self.name, self.root, self.partitions, self.hashes = name, LocalFolder(root), partitions, hashes
        self.refs: list[Mapping[str, Any] | None] = [None] * partitions
        self.batches = 0

    @property
    def side(self) -> Any:
        """Return the map side of the first input."""
        return self.sides[0]

    def pieces(
        self, branches: Iterable[RowsOfBranch], facts: StepFacts
    ) -> Iterator[tuple[int | None, Emit | Due | Tally]]:
        """Run a batch on the rows of tasks; yield what it makes with the partition that makes it, None before the shuffle.

        What is sent comes in the order of the tasks, with `crashes` in any; the batch is over when all was taken.
        """
        inputs: list[list[list[pa.Table]]] = [[[] for _ in self.sides] for _ in range(self.partitions)]
        for branch in branches:
            for piece in self.sides[branch.place].prepare(branch, facts):
                if isinstance(piece, Send):
                    for tables, rows in zip(inputs, _parted(piece.rows, self.partitions), strict=True):
                        tables[branch.place].append(rows)
                else:
                    yield None, piece
        for number, tables in enumerate(inputs):
            for sent in tables if self.crashes is not None else ():
                self.crashes.shuffle(sent)
            for made in self.worked(number, tables, facts):
                yield number, made
        self.batches += 1

    def worked(
        self, number: int, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Iterator[Emit | Due | Tally]:
        """Run the step in a partition, and write what it changes; yield the rest.

        With `crashes` a first attempt may end anywhere: its files stay, and no manifest that counts names them.
        """
        if self.crashes is not None and self.crashes.random() < _CRASHES:
            before, self.attempt = self.refs[number], _FIRST_ATTEMPT + self.batches
            first = self.attempted(number, inputs, facts)
            for _ in range(self.crashes.randint(1, _PIECES)):
                next(first, None)
            first.close()
            self.refs[number], self.attempt = before, None
        yield from self.attempted(number, inputs, facts)

    def attempted(
        self, number: int, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts
    ) -> Iterator[Emit | Due | Tally]:
        """Run the step in a partition once; with an `attempt`, nothing that it yields or tells functions counts."""
        state = self.opened(number)
        running = self.step.run(state, inputs, facts)
        answer = None
        while True:
            try:
                piece = running.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(piece, Change):
                answer = state.at(self.write(number, state, piece))
            else:
                yield piece

    def opened(self, number: int = 0) -> PartitionState:
        """Open what the last batch has left of a partition."""
        return PartitionState.open(self.root, self.name, number, self.refs[number], work=self.step)

    def write(self, number: int, state: PartitionState, change: Change) -> Written:
        """Write a change of a partition, as the batch that is next."""
        attempt = self.batches if self.attempt is None else self.attempt
        written = state.write(change, TaskFiles(self.facts(), attempt, "0b0"), partitions=self.partitions)
        if written.ref is not None:
            ref = written.ref
            self.refs[number] = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return written

    def shown(self) -> pa.Table:
        """Return the main table of all partitions."""
        tables = [main_table(self.step, self.opened(number)) for number in range(self.partitions)]
        return pa.concat_tables([self.step.tables[MAIN].empty_table(), *tables])

    def rescale(self, partitions: int, watermark: int | None = None, **facts: Any) -> Any:
        """Rebuild the state in another number of partitions from what the table shows; return when it is due."""
        return self.rebuild(self.shown(), partitions, watermark=watermark, **facts)

    def rebuild(self, rows: pa.Table, partitions: int, **facts: Any) -> Due:
        """Take rows of the main table for the state, in so many partitions; return when it is due."""
        rows = rows.append_column(HASHED, self.hashed(rows)).sort_by(HASHED)
        moment = StepFacts(**{"batch": self.batches, "time": self.batches, "watermark": None, **facts})
        made = [self.step.rebuilt({MAIN: own}, moment) for own in _parted(rows, partitions)]
        self.root, self.partitions = self.root / f"rescaled{self.batches}", partitions
        self.root.mkdir()
        self.refs = [None] * partitions
        for number, rebuilt in enumerate(made):
            self.write(number, self.opened(number), rebuilt.change)
        self.batches += 1
        return Due(sooner(*(rebuilt.due for rebuilt in made)), sooner(*(rebuilt.due_time for rebuilt in made)))

    def hashed(self, rows: pa.Table) -> pa.Array:
        """Return the hash of each row's key, which is column `k`; rows of a step without keys share one."""
        keys = rows["k"].to_pylist() if len(self.step.keys) else [None] * rows.num_rows
        return pa.array([self.hash_of(key) for key in keys], pa.int64())

    def hash_of(self, key: Any) -> int:
        """Return the hash of a key."""
        return hash_of(key, self.hashes)

    def branch(self, rows: Sequence[Row], task: int = 0, *, side: int = 0) -> RowsOfBranch:
        """Return the rows of a task, which arrived in this order, as they come to an input of the step."""
        visible = self.columns_of(side)
        table = pa.table({f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in visible})
        own = {
            TIME: pa.array([row.get(self.time) for row in rows], pa.int64()),
            "h": self.hashed(table),
            PARTITION: pa.array(np.full(len(rows), task), pa.int32()),
            POSITION: pa.array(range(len(rows)), pa.int64()),
        }
        for name, values in own.items():
            table = table.append_column(name, values)
        return RowsOfBranch(
            table=table,
            visible=visible.names,  # as where another step reads whole rows
            keys={name: name for name in self.step.keys.names},
            inputs={name: name for name in visible.names},
            hash_column="h",
            place=side,
            way=0,
            ways=1,
        )

    def tasks(self, rows: Sequence[Row], *, side: int = 0) -> list[RowsOfBranch]:
        """Return rows that arrived in this order at an input as those of its tasks: with `crashes` several, or else one."""
        places = [(0, len(rows))] if self.crashes is None else cut(len(rows), self.crashes)
        return [self.branch(rows[lo:hi], task, side=side) for task, (lo, hi) in enumerate(places)]

    def columns_of(self, side: int) -> pa.Schema:
        """Return the columns of the rows of an input."""
        assert side == 0
        return self.visible

    def facts(self, late: int | None = None, close: int | None = None, time: int | None = None) -> BatchContext:
        """Return what the tasks of the next batch are told; its time is its number, unless given."""
        return BatchContext(
            batch=self.batches,
            time=self.batches if time is None else time,
            epoch=1,
            run="0123456789ab",
            spans={},
            late={self.name: late},
            close={self.name: close},
            manifests={},
            state_folder=str(self.root),
            staging={},
        )


def _parted(rows: pa.Table, partitions: int) -> list[pa.Table]:
    owner = partition_of(rows[HASHED].to_numpy(), partitions)
    return [rows.filter(pa.array(owner == number)) for number in range(partitions)]

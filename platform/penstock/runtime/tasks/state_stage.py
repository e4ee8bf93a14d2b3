"""Run the state work of a batch in one partition: each step's, then write what changed and compact (DESIGN 6, 7)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.storage.hdfs_cache import fetched
from penstock.operators.windows.partials import integers
from penstock.runtime.tasks.partition_state import PartitionState
from penstock.runtime.tasks.routing import step_port
from penstock.runtime.tasks.specs import HASHED, TIME, Piece, StateSpec, StepDone, StepWork
from penstock.runtime.tasks.staging import Outlet, TaskFiles, emit_to
from penstock.runtime.tasks.transport import Carrier, Item, receipt
from penstock.time.arrival import ARRIVAL, BY_TIME, Stand

if TYPE_CHECKING:
    from penstock.checkpoint.log.entries import Commit

__all__ = ["run_state", "state_rows"]


def run_state(
    carriers: Sequence[Carrier], specs: tuple[StateSpec, ...], partition: int, files: TaskFiles
) -> tuple[Iterator[Item], list[Carrier]]:
    """Return what the steps of this partition yield, and the carriers that are for others.

    `carriers` stand in their order, which is the same in every run of the batch.
    """
    mine = {step_port(spec.step): spec for spec in specs}
    tables: dict[str, list[pa.Table]] = {port: [] for port in mine}
    others = []
    for carrier in carriers:
        if carrier.port in mine:
            tables[carrier.port].append(carrier.table())
        else:
            others.append(carrier)
    return _run_steps(mine, tables, partition, files), others


def _run_steps(
    mine: Mapping[str, StateSpec], tables: Mapping[str, list[pa.Table]], partition: int, files: TaskFiles
) -> Iterator[Item]:
    refs = files.facts.refs_of(partition)
    for port, spec in mine.items():
        if partition < spec.partitions:
            yield from _run_step(spec, tables[port], partition, files, refs.get(spec.step, (None, None)))


def _run_step(
    spec: StateSpec,
    tables: list[pa.Table],
    partition: int,
    files: TaskFiles,
    refs: Sequence[Mapping[str, Any] | None],
) -> Iterator[Item]:
    facts, before = files.facts, fetched()
    ref, base = refs
    state = PartitionState.open(
        Path(facts.state_folder),
        spec.step,
        partition,
        ref,
        work=spec.work,
        base=base,
    )
    state.refuse_strangers(tables, partition, spec.partitions, spec.step)
    done = yield from _pour_output(spec, spec.work.run(state, tables, facts), files)
    written = state.write(done.change, files, partitions=spec.partitions)
    new = written.ref
    yield receipt(
        "state",
        step=spec.step,
        counted_as=spec.work.counted_as,
        partition=partition,
        manifest=None if new is None else {"path": new.path, "size": new.size, "checksum": new.checksum},
        due=done.due,
        due_time=done.due_time,
        merged=done.rows,
        quarantined=done.aside_rows,
        size=written.manifest.size,
        written=written.written,
        rewritten=written.rewritten,
        fetched=fetched() - before,
    )
    if spec.aside is not None and done.aside is not None:
        yield from emit_to(_placed(done.aside, spec.aside, spec), spec.aside, files)
    if spec.snapshots is not None and spec.snapshots.used and done.now is not None:
        whole = spec.work.whole(state.at(written))
        times, hashes = done.now(integers(whole, HASHED)), integers(whole, HASHED)
        stand = Stand(rows=np.full(len(times), BY_TIME, dtype=np.int64), times=times, hashes=hashes)
        piece = Piece(rows=whole.append_column(TIME, pa.array(times)), stand=lambda: stand)
        yield from emit_to(_placed(piece, spec.snapshots, spec), spec.snapshots, files)


def _pour_output(
    spec: StateSpec, run: Generator[Piece, None, StepDone], files: TaskFiles
) -> Generator[Item, None, StepDone]:
    """Send each piece of the output on before the step makes the next, and return what the step has done."""
    before = 0
    while True:
        try:
            piece = next(run)
        except StopIteration as end:
            done: StepDone = end.value
            return done
        yield from emit_to(_placed(piece, spec.output, spec, before), spec.output, files)
        before += piece.rows.num_rows


def _placed(piece: Piece, outlet: Outlet, spec: StateSpec, before: int = 0) -> pa.Table:
    """Give output rows their place in the order of arrival, where anybody asks for it (SEMANTICS 1.6).

    `before` are the rows that came before them.
    """
    if not outlet.needs_arrival or not piece.rows.num_rows:
        return piece.rows
    keys = piece.stand().arrivals(piece.arrivals, depth=spec.depth, place=outlet.place, before=before)
    return piece.rows.append_column(ARRIVAL, keys)


def state_rows(work: StepWork, folder: Path, name: str, commit: Commit | None) -> list[dict[str, Any]]:
    """Return a step's state as of a Commit, as rows for people."""
    rows: list[dict[str, Any]] = []
    for partition, ref in sorted((commit.state.get(name, {}) if commit else {}).items(), key=lambda p: int(p[0])):
        rows.extend(work.rows(PartitionState.open(folder, name, int(partition), ref.model_dump(), work=work)))
    return rows

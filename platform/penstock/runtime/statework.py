"""Run the state work of a batch in one partition: each step's, then write what changed and compact (DESIGN 6, 7)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.checkpoint.mirror import fetched
from penstock.runtime.partition_state import PartitionState
from penstock.runtime.route import step_port
from penstock.runtime.rows import Carrier, Item, receipt
from penstock.runtime.specs import TIME, StateSpec, StepDone, StepWork
from penstock.runtime.staging import TaskFiles, pour
from penstock.sources.base import PARTITION, POSITION

if TYPE_CHECKING:
    from penstock.checkpoint.entries import Commit

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
    for port, spec in mine.items():
        if partition < spec.partitions:
            yield from _run_step(spec, tables[port], partition, files)


def _run_step(spec: StateSpec, tables: list[pa.Table], partition: int, files: TaskFiles) -> Iterator[Item]:
    facts, before = files.facts, fetched()
    state = PartitionState.open(
        Path(facts.state_folder),
        spec.step,
        partition,
        facts.manifests.get(spec.step, {}).get(str(partition)),
        work=spec.work,
        base=facts.bases.get(spec.step, {}).get(str(partition)),
    )
    state.refuse_strangers(tables, partition, spec.partitions, spec.step)
    done = yield from _pour_output(spec, spec.work.run(state, tables, facts), partition, files)
    written = state.write(done.change, files, partitions=spec.partitions)
    ref = written.ref
    yield receipt(
        "state",
        step=spec.step,
        counted_as=spec.work.counted_as,
        partition=partition,
        manifest=None if ref is None else {"path": ref.path, "size": ref.size, "checksum": ref.checksum},
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
        yield from pour(_with_place(done.aside, partition), spec.aside, files)
    if spec.snapshots is not None and spec.snapshots.used:
        whole = spec.work.whole(state.at(written))
        whole = whole.append_column(TIME, pa.repeat(pa.scalar(done.now, pa.int64()), whole.num_rows))
        yield from pour(_with_place(whole, partition), spec.snapshots, files)


def _pour_output(
    spec: StateSpec, run: Generator[pa.Table, None, StepDone], partition: int, files: TaskFiles
) -> Generator[Item, None, StepDone]:
    """Send each piece of the output on before the step makes the next, and return what the step has done."""
    before = 0
    while True:
        try:
            output = next(run)
        except StopIteration as end:
            done: StepDone = end.value
            return done
        yield from pour(_with_place(output, partition, before), spec.output, files)
        before += output.num_rows


def _with_place(output: pa.Table, partition: int, before: int = 0) -> pa.Table:
    """Give output rows a place, for steps behind; `before` are the rows that came before them."""
    n = output.num_rows
    table = output.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), n))
    return table.append_column(POSITION, pa.array(np.arange(before, before + n)))


def state_rows(work: StepWork, folder: Path, name: str, commit: Commit | None) -> list[dict[str, Any]]:
    """Return a step's state as of a Commit, as rows for people."""
    rows: list[dict[str, Any]] = []
    for partition, ref in sorted((commit.state.get(name, {}) if commit else {}).items(), key=lambda p: int(p[0])):
        rows.extend(work.rows(PartitionState.open(folder, name, int(partition), ref.model_dump(), work=work)))
    return rows

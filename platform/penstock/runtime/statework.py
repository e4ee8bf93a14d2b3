"""Run the state work of a batch in one partition: merge, close windows, write what changed, compact (DESIGN 6, 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.entries import Commit
from penstock.operators.partial_tables import GROUP, HASH
from penstock.operators.slices import BEGINNING_OF_TIME, END_OF_TIME
from penstock.operators.time_windows import StepResult, WindowStep, step
from penstock.operators.window_strategies import SLICES
from penstock.runtime.partition_state import PartitionState
from penstock.runtime.route import partials_port
from penstock.runtime.rows import Item, receipt
from penstock.runtime.specs import TIME, StateSpec
from penstock.runtime.staging import TaskFiles, pour
from penstock.sources.base import PARTITION, POSITION

__all__ = ["run_state", "state_rows"]


def run_state(
    carriers: pa.Table, specs: tuple[StateSpec, ...], partition: int, files: TaskFiles
) -> tuple[Iterator[Item], pa.Table]:
    """Return what the steps of this partition yield, and the carriers that are for others.

    `carriers` stand in their order, which is the same in every run of the batch.
    """
    mine = {partials_port(spec.step): spec for spec in specs}
    deltas: dict[str, list[pa.Table]] = {port: [] for port in mine}
    ports = carriers["_port"].to_pylist()
    for port, payload in zip(ports, carriers["_payload"], strict=True):
        if port in mine:
            deltas[port].append(pa.ipc.open_stream(payload.as_buffer()).read_all())
    others = carriers.filter(pa.array([port not in mine for port in ports], pa.bool_()))
    return _run_steps(mine, deltas, partition, files), others


def _run_steps(
    mine: Mapping[str, StateSpec], deltas: Mapping[str, list[pa.Table]], partition: int, files: TaskFiles
) -> Iterator[Item]:
    for port, spec in mine.items():
        if partition < spec.partitions:
            yield from _run_step(spec, deltas[port], partition, files)


def _run_step(spec: StateSpec, deltas: list[pa.Table], partition: int, files: TaskFiles) -> Iterator[Item]:
    facts = files.facts
    state = PartitionState.open(
        Path(facts.state_folder),
        spec.step,
        partition,
        facts.manifests.get(spec.step, {}).get(str(partition)),
        work=spec.work,
    )
    state.refuse_strangers(deltas, partition, spec.partitions, spec.step)
    result = step(
        state, deltas, spec.work, late_watermark=facts.late[spec.step], close_watermark=facts.close[spec.step]
    )
    written = state.write(result, files, partitions=spec.partitions)
    ref = written.ref
    yield receipt(
        "state",
        step=spec.step,
        partition=partition,
        manifest=None if ref is None else {"path": ref.path, "size": ref.size, "checksum": ref.checksum},
        due=result.next_due,
        merged=result.rows,
        size=written.manifest.size,
        written=written.written,
        rewritten=written.rewritten,
    )
    yield from pour(_with_position(result, partition), spec.output, files)


def _with_position(result: StepResult, partition: int) -> pa.Table:
    """Give output rows event time and place, for steps behind: a window [s, e) has event time e - 1 (SEMANTICS 2.1)."""
    output = result.output
    n = output.num_rows
    ends = output["window_end"].cast(pa.int64())
    table = output.append_column(TIME, pc.subtract(ends, 1))
    table = table.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), n))
    return table.append_column(POSITION, pa.array(np.arange(n)))


def state_rows(work: WindowStep, folder: Path, name: str, commit: Commit | None) -> list[dict[str, Any]]:
    """Return a window step's state as of a Commit: keys, `slice_start`, partials; one row a slice and key."""
    rows: list[dict[str, Any]] = []
    for partition, ref in sorted((commit.state.get(name, {}) if commit else {}).items(), key=lambda p: int(p[0])):
        state = PartitionState.open(folder, name, int(partition), ref.model_dump(), work=work)
        whole = work.layout.combine(state.scan(SLICES, BEGINNING_OF_TIME, END_OF_TIME))
        starts = whole[GROUP].cast(pa.timestamp("us", tz="UTC"))
        shown = whole.drop_columns([GROUP, HASH]).append_column("slice_start", starts)
        rows.extend(shown.to_pylist())
    return rows

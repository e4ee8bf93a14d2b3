"""Run the state work of a batch in one partition: each step's, then write what changed and compact (DESIGN 6, 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.locate import folder_at
from penstock.operators.debug_mode import debugging
from penstock.operators.protocol import Due, Emit, StateView, Step, StepFacts, Tally
from penstock.runtime.tasks.partition_state import PartitionState, main_table
from penstock.runtime.tasks.routing import step_port
from penstock.runtime.tasks.specs import StateSpec
from penstock.runtime.tasks.staging import Outlet, TaskFiles, emit_to, refuse_lacking
from penstock.runtime.tasks.transport import Carrier, Item, receipt
from penstock.state.writer import Change, Written
from penstock.time.arrival import ARRIVAL

if TYPE_CHECKING:
    from penstock.checkpoint.log.entries import Commit

__all__ = ["run_state", "state_rows"]


def run_state(
    carriers: Sequence[Carrier], specs: tuple[StateSpec, ...], partition: int, files: TaskFiles
) -> tuple[Iterator[Item], list[Carrier]]:
    """Return what the steps of this partition yield, and the carriers that are for others.

    `carriers` stand in their order, which is the same in every run of the batch.
    """
    tables: dict[str, list[pa.Table]] = {step_port(spec.step, side): [] for spec in specs for side in range(spec.sides)}
    others = []
    for carrier in carriers:
        if carrier.port in tables:
            tables[carrier.port].append(carrier.table())
        else:
            others.append(carrier)
    return _run_steps(specs, tables, partition, files), others


def _run_steps(
    specs: tuple[StateSpec, ...], tables: Mapping[str, list[pa.Table]], partition: int, files: TaskFiles
) -> Iterator[Item]:
    refs = files.facts.refs_of(partition)
    for spec in specs:
        inputs = [tables[step_port(spec.step, side)] for side in range(spec.sides)]
        if partition >= spec.partitions and any(inputs):
            raise RuntimeError(f"rows of step {spec.step!r} came to partition {partition} of {spec.partitions}")
        if partition < spec.partitions:
            yield from _run_step(spec, inputs, partition, files, refs.get(spec.step, (None, None)))


def _run_step(
    spec: StateSpec,
    inputs: Sequence[Sequence[pa.Table]],
    partition: int,
    files: TaskFiles,
    refs: Sequence[Mapping[str, Any] | None],
) -> Iterator[Item]:
    ref, base = refs
    folder = folder_at(files.facts.state_folder)
    before = folder.fetched
    state = PartitionState.open(folder, spec.step, partition, ref, work=spec.work, base=base)
    for tables in inputs:
        state.refuse_strangers(tables, spec.partitions)
    used = [outlet for outlet, goes in spec.outlets.items() if goes.used]
    facts = files.facts.of_step(spec.step, behind=spec.behind, read=used)
    batch = _PartitionBatch(spec, state, files)
    with debugging(on=facts.debug):
        yield from batch.run(inputs, facts)
    written = batch.written()
    yield receipt(
        "state",
        step=spec.step,
        counted_as=spec.counted_as,
        partition=partition,
        manifest=None if written.ref is None else asdict(written.ref),
        due=batch.due.watermark,
        due_time=batch.due.time,
        counts=dict(batch.counts),
        size=written.manifest.size,
        written=written.written,
        rewritten=written.rewritten,
        fetched=folder.fetched - before,
    )


class _PartitionBatch:
    """One batch of one step in one partition: what the step has yielded so far."""

    def __init__(self, spec: StateSpec, state: PartitionState, files: TaskFiles) -> None:
        self.spec = spec
        self.state = state
        self.files = files
        self.due = Due(None)
        self.counts: Counter[str] = Counter()
        self._emitted: Counter[str] = Counter()
        self._written: Written | None = None

    def run(self, inputs: Sequence[Sequence[pa.Table]], facts: StepFacts) -> Iterator[Item]:
        """Run the step, and send on each piece that it emits before it makes the next."""
        running = self.spec.work.run(self.state, inputs, facts)
        answer: StateView | None = None
        while True:
            try:
                made = running.send(answer)
            except StopIteration:
                return
            answer = None
            match made:
                case Emit():
                    outlet = self.spec.outlets[made.outlet]
                    refuse_lacking(made.rows, outlet, self.spec.step, made.outlet)
                    yield from emit_to(self._placed(made, outlet), outlet, self.files)
                    self._emitted[made.outlet] += made.rows.num_rows
                case Change():
                    answer = self.state.at(self._write(made))
                case Due():
                    self.due = Due(_earlier(self.due.watermark, made.watermark), _earlier(self.due.time, made.time))
                case Tally():
                    self.counts.update(made.counts)
                case _:
                    raise RuntimeError(f"step {self.spec.step!r} yielded {made!r} in a state partition")

    def written(self) -> Written:
        """Return what was written; a step that changes nothing is compacted all the same."""
        return self._written if self._written is not None else self._write(Change())

    def _write(self, change: Change) -> Written:
        if self._written is not None:
            raise RuntimeError(f"step {self.spec.step!r} yielded two changes of its state in one batch")
        self._written = self.state.write(change, self.files, partitions=self.spec.partitions)
        return self._written

    def _placed(self, emit: Emit, outlet: Outlet) -> pa.Table:
        """Give rows their place in the order of arrival, where anybody asks for it (SEMANTICS 1.6)."""
        if not outlet.needs_arrival or not emit.rows.num_rows:
            return emit.rows
        assert emit.stand is not None
        before = self._emitted[emit.outlet]
        keys = emit.stand().arrivals(emit.arrivals, depth=self.spec.depth, place=outlet.place, before=before)
        return emit.rows.append_column(ARRIVAL, keys)


def _earlier(first: int | None, other: int | None) -> int | None:
    """Return the earlier of two times, of which None is never."""
    return min((time for time in (first, other) if time is not None), default=None)


def state_rows(work: Step, folder: CheckpointFolder, name: str, commit: Commit | None) -> list[dict[str, Any]]:
    """Return a step's state as of a Commit, as rows for people."""
    rows: list[dict[str, Any]] = []
    for partition, ref in sorted((commit.state.get(name, {}) if commit else {}).items(), key=lambda p: int(p[0])):
        state = PartitionState.open(folder, name, int(partition), ref.model_dump(), work=work)
        rows.extend(main_table(work, state).to_pylist())
    return rows

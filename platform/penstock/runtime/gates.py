"""Run gates inside the tasks: measure rows for the verdict, and stage apart those that it may withhold.

The driver hears the verdict's parts from the receipts and decides which files the Commit names (SEMANTICS 11.3).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.quality.compile import CompiledGate, fails_mask
from penstock.runtime.rows import Item, receipt
from penstock.runtime.specs import TIME, SinkLeafSpec
from penstock.runtime.staging import TaskFiles

__all__ = ["RULES", "stage_checked"]

RULES = "_rules"


def stage_checked(alive: pa.Table, leaf: SinkLeafSpec, files: TaskFiles) -> Iterator[Item]:
    """Yield one receipt with the measures of each unit, and the staged files.

    The unit is one closed window where the rows come from a window step, else the batch (SEMANTICS 11.1).
    """
    gate: CompiledGate = leaf.gate
    for unit, rows in _units(alive, leaf):
        yield receipt("measured", check=leaf.check, unit=unit, rows=rows.num_rows, partial=gate.measure(rows))
    masks = fails_mask(alive, gate).to_numpy()
    if not leaf.separate or not masks.any():
        yield from files.stage(alive.select(leaf.visible), leaf.sinks, check=leaf.check)
        return
    clean = alive.filter(pa.array(masks == 0))
    yield from files.stage(clean.select(leaf.visible), leaf.sinks, check=leaf.check)
    dirty = alive.filter(pa.array(masks != 0)).append_column("_penstock_fails", pa.array(masks[masks != 0]))
    for unit, rows in _units(dirty, leaf):
        yield from _stage_failing(rows, unit, leaf, gate, files)


def _stage_failing(
    rows: pa.Table, unit: int | None, leaf: SinkLeafSpec, gate: CompiledGate, files: TaskFiles
) -> Iterator[Item]:
    masks = rows["_penstock_fails"].to_numpy()
    for mask in np.unique(masks):
        chosen = rows.filter(pa.array(masks == mask)).select(leaf.visible)
        fails = gate.rules_of(int(mask))
        yield from files.stage(chosen, leaf.sinks, fails=fails, unit=unit, check=leaf.check)
        if leaf.quarantine is not None:
            n = chosen.num_rows
            said = chosen.append_column(RULES, pa.array([list(fails)] * n, pa.list_(pa.string())))
            said = said.append_column("_batch", pa.repeat(pa.scalar(files.facts.batch, pa.int64()), n))
            yield from files.stage(said, leaf.quarantine.sinks, fails=fails, unit=unit, check=leaf.check)


def _units(rows: pa.Table, leaf: SinkLeafSpec) -> Iterator[tuple[int | None, pa.Table]]:
    if not leaf.by_window:
        yield None, rows
        return
    # The output of a window [s, e) has event time e - 1 (SEMANTICS 2.1).
    ends = rows[TIME].to_numpy() + 1
    for end in np.unique(ends):
        yield int(end), rows.filter(pa.array(ends == end))

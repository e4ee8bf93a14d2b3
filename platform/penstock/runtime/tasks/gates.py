"""Run gates inside the tasks: measure rows for the verdict, and stage apart those that it may withhold.

The driver hears the verdict's parts from the receipts and decides which files the Commit names (SEMANTICS 11.3).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.protocol import TIME
from penstock.quality.compile import CompiledGate, fails_mask
from penstock.runtime.tasks.specs import SinkLeafSpec
from penstock.runtime.tasks.staging import TaskFiles
from penstock.runtime.tasks.transport import Item, receipt
from penstock.sinks.keys import which_retracted, without_retracted
from penstock.state.keys import Ints

__all__ = ["RULES", "stage_checked"]


RULES = "_rules"
UNIT = "_penstock_unit"
"""int64, microseconds: the end of the window of a row, which is the unit of a check that judges windows."""


def stage_checked(alive: pa.Table, leaf: SinkLeafSpec, files: TaskFiles) -> Iterator[Item]:
    """Yield one receipt with the measures of each unit, and the staged files.

    The unit is one closed window where the rows come from a window step, else the batch (SEMANTICS 11.1).
    Rows that take another back pass without a judgement: the gate may have let the other pass, in a unit of more rows.
    Where sinks delete by them, they alone get them: another may never have got the row that is taken back.
    """
    gate: CompiledGate = leaf.gate
    names = {column: name for name, column in leaf.judged.items()}
    rows = alive.select([*leaf.staged, TIME, *names])
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    if leaf.by_window:
        # The output of a window [s, e) has event time e - 1 (SEMANTICS 2.1).
        rows = rows.append_column(UNIT, pa.array(alive[TIME].to_numpy() + 1))
    partial = gate.measure(without_retracted(rows), (UNIT,) if leaf.by_window else ())
    yield receipt("measured", check=leaf.check, rows=rows.num_rows, partial=partial.to_json())
    masks, retracted = fails_mask(rows, gate).to_numpy(), which_retracted(rows)
    if retracted is not None:
        masks = np.where(retracted.to_numpy(), 0, masks)
    # A unit that goes as a whole goes without them.
    if retracted is not None and (files.facts.apart or leaf.deleting):
        passes = rows.filter(retracted).select(leaf.staged)
        yield from files.stage(passes, leaf.deleting or leaf.sinks, ordered=leaf.ordered, check=leaf.check)
        judged = pc.invert(retracted)
        rows, masks = rows.filter(judged), masks[judged.to_numpy()]
    if files.facts.apart:
        yield from _stage_apart(rows, masks, leaf, files)
        return
    if not leaf.separate or not masks.any():
        yield from files.stage(rows.select(leaf.staged), leaf.sinks, ordered=leaf.ordered, check=leaf.check)
        return
    clean = rows.filter(pa.array(masks == 0))
    yield from files.stage(clean.select(leaf.staged), leaf.sinks, ordered=leaf.ordered, check=leaf.check)
    yield from _stage_apart(rows.filter(pa.array(masks != 0)), masks[masks != 0], leaf, files)


def _stage_apart(rows: pa.Table, masks: Ints, leaf: SinkLeafSpec, files: TaskFiles) -> Iterator[Item]:
    """Stage rows apart by the window and the rules they fail: the verdict takes or leaves whole files.

    Rows that no verdict can spare are of one file, whatever their windows; the first one's window stands for all.
    """
    units: Ints = rows[UNIT].to_numpy() if leaf.by_window else np.zeros(rows.num_rows, dtype=np.int64)
    certain = np.zeros(len(masks), dtype=np.bool_) if files.facts.apart else masks & leaf.gate.certain != 0
    apart = np.where(certain, 0, units)
    order = np.lexsort((masks, apart, certain))
    edges = [key[order][1:] != key[order][:-1] for key in (masks, apart, certain)]
    begins = np.flatnonzero(np.r_[True, np.logical_or.reduce(edges)][: len(order)])
    for group in np.split(order, begins[1:]) if len(order) else ():
        chosen = rows.take(pa.array(group)).select(leaf.staged)
        fails = leaf.gate.rules_of(int(masks[group[0]]))
        at = int(units[group[0]]) if leaf.by_window else None
        yield from files.stage(chosen, leaf.sinks, ordered=leaf.ordered, fails=fails, unit=at, check=leaf.check)
        if fails and leaf.quarantine is not None:
            n = chosen.num_rows
            quarantined = chosen.append_column(RULES, pa.array([list(fails)] * n, pa.list_(pa.string())))
            quarantined = quarantined.append_column("_batch", pa.repeat(pa.scalar(files.facts.batch, pa.int64()), n))
            sinks, ordered = leaf.quarantine.sinks, leaf.quarantine.ordered
            yield from files.stage(quarantined, sinks, ordered=ordered, fails=fails, unit=at, check=leaf.check)

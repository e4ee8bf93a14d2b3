"""Hold the state of a window step in memory as files would: tables go through bytes, facts through JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.columns import integers
from penstock.operators.protocol import Due, Tally
from penstock.operators.windows.partials import slices_in
from penstock.operators.windows.revisions import panes_schema
from penstock.operators.windows.slice_state import FRONT, LATE, LATE_NEXT, PANES, RUNNING, SLICES, TOTAL
from penstock.operators.windows.time_windows import Strategy, WindowStep, step
from penstock.operators.windows.two_stacks import front_schema
from penstock.state.compaction import latest
from penstock.state.row_layout import GROUP
from penstock.state.writer import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a step did, with all of its output; `floor` is that of parts that only serve windows to come."""

    append: Mapping[str, pa.Table]
    replace: Mapping[str, pa.Table]
    floor: int
    floors: Mapping[str, int]
    facts: Mapping[str, Any]
    next_due: int | None
    rows: int
    output: pa.Table
    pieces: tuple[int, ...]
    """How many rows came at once."""


def whole_step(source: SliceMemory, deltas: Iterable[pa.Table], spec: WindowStep, **watermarks: int | None) -> Done:
    """Run a step to its end."""
    *pieces, tally, due, change = step(source, deltas, spec, **watermarks)
    assert isinstance(tally, Tally)
    assert isinstance(due, Due)
    assert isinstance(change, Change)
    (floor,) = {least for part, least in change.floors.items() if part not in (SLICES, PANES)}
    return Done(
        append=change.append,
        replace=change.replace,
        floor=floor,
        floors=change.floors,
        facts=change.facts,
        next_due=due.watermark,
        rows=tally.counts["merged"],
        output=pa.concat_tables([spec.output.empty_table(), *pieces]),
        pieces=tuple(piece.num_rows for piece in pieces),
    )


def kept_parts(spec: WindowStep) -> dict[str, pa.Schema]:
    """Return the columns of each part that a step's strategy keeps."""
    names = {
        Strategy.MERGE: (SLICES,),
        Strategy.GROW: (SLICES, LATE, RUNNING),
        Strategy.SUBTRACT: (SLICES, LATE, RUNNING),
        Strategy.BLOCKS: (SLICES, LATE, RUNNING, FRONT, TOTAL, LATE_NEXT),
    }
    front = front_schema(spec.layout)
    panes = {PANES: panes_schema(spec.layout)} if spec.window.has_panes else {}
    return {name: front if name == FRONT else spec.layout.schema for name in names[spec.strategy]} | panes


class SliceMemory:
    """A StateView whose contents are replaced by `write`, as a commit would."""

    def __init__(self, spec: WindowStep) -> None:
        self.spec = spec
        self.runs: dict[str, list[pa.Table]] = {}
        self.text = "{}"
        self.floors: Mapping[str, int] = {}

    @property
    def facts(self) -> Mapping[str, Any]:
        return json.loads(self.text)

    def scan(self, part: str, lo: int, hi: int, _schema: pa.Schema | None = None) -> list[pa.Table]:
        tables = []
        for run in self.runs.get(part, []):
            first, last = np.searchsorted(integers(run, GROUP), [max(lo, self._floor(part)), hi])
            if first < last:
                tables.append(run.slice(first, last - first))
        return tables

    def groups(self, part: str) -> np.ndarray:
        runs = [slices_in(run) for run in self.runs.get(part, [])]
        groups = np.unique(np.concatenate(runs)) if runs else np.zeros(0, np.int64)
        return groups[groups >= self._floor(part)]

    def write(self, result: Done) -> None:
        assert not set(result.append) & set(result.replace)
        assert set(result.append) | set(result.replace) <= set(kept_parts(self.spec))
        for part, table in result.append.items():
            self.runs.setdefault(part, []).append(self._stored(part, table))
        for part, table in result.replace.items():
            self.runs[part] = [self._stored(part, table)] if table.num_rows else []
        self.text = json.dumps(result.facts)
        self.floors = result.floors

    def compact(self, *, sweep: bool) -> None:
        """Merge the runs of the parts that are appended to; with `sweep`, let go what no window needs."""
        for part in ("slices", "late", "late_next", "panes"):
            runs = self.runs.get(part, [])
            if runs:
                keys = self.spec.keys.names
                merged = latest(runs, keys, drop_deleted=True) if part == PANES else self.spec.layout.combine(runs)
                keep = integers(merged, GROUP) >= (self._floor(part) if sweep else -(2**63))
                self.runs[part] = [merged.filter(pa.array(keep))]
        if sweep:
            fronts = self.runs.get("front", [])
            self.runs["front"] = [run.filter(pa.array(integers(run, GROUP) >= self._floor("front"))) for run in fronts]

    def _floor(self, part: str) -> int:
        return self.floors.get(part, -(2**63))

    def _stored(self, part: str, table: pa.Table) -> pa.Table:
        assert table.schema.equals(kept_parts(self.spec)[part])
        if part == PANES:  # segments sort what is appended
            table = table.sort_by([(GROUP, "ascending"), ("_hash", "ascending")])
        groups = integers(table, GROUP)
        hashes = integers(table, "_hash")
        assert np.array_equal(np.lexsort((hashes, groups)), np.arange(len(groups))) or _sorted(groups, hashes)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return pa.ipc.open_file(sink.getvalue()).read_all()


def _sorted(groups: np.ndarray, hashes: np.ndarray) -> bool:
    pairs = list(zip(groups.tolist(), hashes.tolist(), strict=True))
    return pairs == sorted(pairs)

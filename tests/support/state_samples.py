"""Keys, tables and batches for the tests of keyed state."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.state.compaction import compact
from penstock.state.compaction_planner import CompactionPlan
from penstock.state.full_compaction import fold
from penstock.state.manifest import Manifest
from penstock.state.parts import Combine, Merge, Part
from penstock.state.reader import StateReader
from penstock.state.references import SegmentRef, segment_name
from penstock.state.row_layout import DELETED, GROUP, HASH, sort_rows
from penstock.state.segment_writer import SegmentWriter
from penstock.state.writer import Change, Written, write_changes

KEYS = ("user", "score")
KEY_FIELDS = [pa.field("user", pa.string()), pa.field("score", pa.float64())]
STATE_FIELDS = [
    pa.field("total", pa.int64()),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("place", pa.struct([pa.field("x", pa.float64()), pa.field("name", pa.string())])),
]
SCHEMA = pa.schema([(GROUP, pa.int64()), (HASH, pa.int64()), *KEY_FIELDS, *STATE_FIELDS, (DELETED, pa.bool_())])
Key = tuple[str | None, float | None]


def latest_part(name: str = "state", keys: Sequence[str] = KEYS) -> dict[str, Part]:
    """Return a part in which the newest row of a key hides the older, by its name."""
    return {name: Part(name=name, identity=tuple(keys), merge=Merge.LATEST)}


def latest_parts(names: Sequence[str], keys: Sequence[str]) -> dict[str, Part]:
    """Return several of them."""
    return {name: latest_part(name, keys)[name] for name in names}


def combined_part(name: str, combine: Combine, keys: Sequence[str] = ("user",)) -> dict[str, Part]:
    """Return a part whose rows a function merges, by its name."""
    return {name: Part(name=name, identity=tuple(keys), merge=Merge.COMBINE, combine=combine)}


_names = itertools.count()


def fresh_name(batch: int) -> str:
    """Return a segment name that no other call returns."""
    return segment_name(batch, epoch=1, attempt=next(_names), run="0123456789abcdef")


def empty_manifest(keys: Sequence[str] = KEYS) -> Manifest:
    """Return the manifest of a partition without state."""
    return Manifest(step="step", partition=3, keys=tuple(keys))


def key_table(keys: Sequence[Key]) -> pa.Table:
    """Return the key columns of these keys."""
    return pa.table([[key[0] for key in keys], [key[1] for key in keys]], schema=pa.schema(KEY_FIELDS))


def keyed_table(rows: Iterable[tuple[int, Key, Mapping[str, Any] | None]]) -> pa.Table:
    """Return rows of (hash, key, state); a state of None is a tombstone."""
    records = [
        {
            GROUP: 0,
            HASH: value,
            "user": key[0],
            "score": key[1],
            **(state or {"total": None, "tags": None, "place": None}),
            DELETED: state is None,
        }
        for value, key, state in rows
    ]
    return sort_rows(pa.Table.from_pylist(records, schema=SCHEMA))


def counts(pairs: Mapping[tuple[int, int], int] | Iterable[tuple[tuple[int, int], int]]) -> pa.Table:
    """Return rows of (group, hash) and a count, with the hash as the key too."""
    items = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
    columns = {
        GROUP: pa.array([group for (group, _), _ in items], pa.int64()),
        HASH: pa.array([value for (_, value), _ in items], pa.int64()),
        "user": pa.array([str(value) for (_, value), _ in items], pa.string()),
        "n": pa.array([n for _, n in items], pa.int64()),
    }
    return sort_rows(pa.table(columns))


def add_counts(tables: list[pa.Table]) -> pa.Table:
    """Merge tables of `counts`: the sum for each group and hash."""
    sums: dict[tuple[int, int], int] = {}
    for table in tables:
        for row in table.to_pylist():
            place = (row[GROUP], row[HASH])
            sums[place] = sums.get(place, 0) + row["n"]
    return counts(sums)


def write_segment(
    folder: Any, name: str, parts: Mapping[str, pa.Table], *, step: str, partition: int, batch: int
) -> SegmentRef:
    """Write a segment of these parts durably, as a task does that merges nothing."""
    with SegmentWriter(folder, name, step=step, partition=partition, batch=batch) as writer:
        for part, table in parts.items():
            writer.add(part, table)
        ref = writer.publish()
    if ref.files:
        folder.sync()
    return ref


def write(folder: Path, manifest: Manifest, change: Change, **other: Any) -> Written:
    """Write the batch after a manifest's, and read back what a Commit would name."""
    batch = manifest.batch + 1
    written = write_changes(
        StateReader(folder, manifest), fresh_name(batch), change, batch=batch, **{"parts": {}, **other}
    )
    if written.ref is not None:
        assert Manifest.read(folder / written.ref.path, written.ref) == written.manifest
    return written


def carry_out(folder: Path, manifest: Manifest, plan: CompactionPlan) -> Manifest:
    """Carry out a plan of keyed state in a segment of its own."""
    merged = compact(StateReader(folder, manifest), plan, latest_part(plan.part, manifest.keys)[plan.part])
    batch = max(manifest.batch, 0)
    with SegmentWriter(folder, fresh_name(batch), step="step", partition=3, batch=batch) as writer:
        part = writer.add(f"{plan.part}~0", merged.rows)
        ref = writer.publish()
    numbers = {run.number for run in plan.inputs}
    return manifest.merged(plan.part, numbers, merged.bound, part, batch).append(ref)


def folded(folder: Path, manifest: Manifest, *, batch: int = 99, **other: Any) -> tuple[list[dict[str, Any]], Manifest]:
    """Fold a partition; return the rows that were told on the way, each with its part, and the base."""
    rows: list[dict[str, Any]] = []
    folding = fold(StateReader(folder, manifest), fresh_name(batch), batch=batch, **other)
    while True:
        try:
            part, table = next(folding)
        except StopIteration as done:
            return rows, Manifest.read(folder / done.value.path, done.value)
        rows += [{"part": part, **row} for row in table.to_pylist()]

"""Fold the state of a partition into new files, one run a part: the base of a data checkpoint (DESIGN 5).

A fold reads a manifest that a Commit names, whose files do not change, so it may run for as long as it likes beside
the batches that follow. Their tasks leave the runs that are being folded alone (`plan_compaction(behind=…)`), and then
one of them puts the base in their place (`Manifest.rebased`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from penstock.state.compaction import compact
from penstock.state.compaction_planner import AT_ONCE, CompactionPlan, live_size
from penstock.state.manifest import FOLDED, ManifestRef, Run, stamp
from penstock.state.parts import Part
from penstock.state.reader import StateReader
from penstock.state.references import MERGED, Piece
from penstock.state.row_layout import start_of_group
from penstock.state.writer import segment_of, write_manifest

__all__ = ["fold", "live_rows"]


def fold(
    reader: StateReader,
    name: str,
    *,
    batch: int,
    parts: Mapping[str, Part],
    at_once: int = AT_ONCE,
) -> Generator[tuple[str, pa.Table], None, ManifestRef]:
    """Write the live rows of a partition under a new segment name, and yield them, part by part, on the way.

    `batch` is that of the Commit, `parts` as in `write_changes`; those that are not in it are copied.
    About `at_once` bytes are in memory at a time, a few times over.
    Returns what names the manifest of the base, which is durable then.
    Raises what reading and writing state raises; then nothing names what was written.
    """
    manifest = reader.manifest
    with segment_of(reader, name, batch) as writer:
        pieces: dict[str, tuple[Piece, ...]] = {}
        for part in manifest.chains:
            for number, rows in enumerate(live_rows(reader, part, parts, at_once=at_once)):
                written = writer.add_sections(f"{part}{MERGED}{number}", writer.encode(part, rows))
                pieces[part] = pieces.get(part, ()) + written
                yield part, rows
        files = writer.publish().files
    reader.folder.sync()
    chains = {
        part: (Run(manifest.chain(part)[0].number, manifest.batch, piece),) for part, piece in pieces.items() if piece
    }
    folded = {part: [stamp(run) for run in chain] for part, chain in manifest.chains.items()}
    base = replace(manifest, chains=chains, sizes=files, facts={FOLDED: folded})
    return write_manifest(reader.folder, name, base)


def live_rows(
    reader: StateReader, part: str, parts: Mapping[str, Part], *, at_once: int = AT_ONCE
) -> Iterator[pa.Table]:
    """Yield the rows of a part as one sorted run would have them, about `at_once` bytes at a time.

    There are no tombstones among them. A part that is not in `parts` is read as it is.
    """
    runs = reader.manifest.chain(part)
    if part not in parts:
        tables = (reader.rows(part, run, None, None) for run in runs)
        yield from (table for table in tables if table is not None)
        return
    floor = reader.manifest.floors.get(part)
    least = None if floor is None else start_of_group(floor)
    while runs:
        merged = compact(reader, CompactionPlan(part=part, inputs=runs, budget_bytes=at_once, oldest=True), parts[part])
        if merged.rows.num_rows:
            yield merged.rows
        if merged.bound is None:
            return
        bound = merged.bound
        runs = tuple(replace(run, low=bound if run.low is None else max(run.low, bound)) for run in runs)
        runs = tuple(run for run in runs if live_size(run, least))

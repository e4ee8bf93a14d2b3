"""Write what a batch changed in one partition: its rows, merges within the budget, and the new manifest.

This is the one place where a partition's state advances, so the bounds of compaction hold for every caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.state.compaction import compact
from penstock.state.compaction_planner import LEAST_BUDGET, SLACK_BYTES, CompactionPlan, budget, plan_compaction
from penstock.state.manifest import Manifest, ManifestRef
from penstock.state.parts import PARTS, Part
from penstock.state.reader import StateReader
from penstock.state.references import Piece, SegmentRef, bytes_of
from penstock.state.row_layout import Bound
from penstock.state.segment_writer import SegmentWriter

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Change", "Written", "manifest_name", "segment_of", "write_changes", "write_manifest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of a batch in a partition.

    A table need not be sorted; one without rows adds nothing, or empties the part it replaces.

    Attributes:
        append: By part, rows to add.
        replace: By part, all rows it has from now on.
        floors: By part, the group below which rows are dead from now on.
        facts: The operator's facts, in place of the former ones; None leaves them.
    """

    append: Mapping[str, pa.Table] = field(default_factory=dict)
    replace: Mapping[str, pa.Table] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a batch in a partition.

    `ref` names the new manifest, `segment` the segment, which may have no files; both are None where nothing changed.
    `written` are the bytes of the batch's own rows, `rewritten` those of merged ones.
    """

    manifest: Manifest
    ref: ManifestRef | None
    segment: SegmentRef | None
    written: int
    rewritten: int


def write_changes(
    reader: StateReader,
    name: str,
    change: Change,
    *,
    batch: int,
    parts: Mapping[str, Part],
    slack: int = SLACK_BYTES,
    behind: int | None = None,
) -> Written:
    """Write a batch's change durably; when it returns, a Commit may name `ref`.

    `reader` is the state before, `name` a `segment_name` that no other attempt uses.
    `parts` says how rows of parts merge, and the manifest says it too; rows of others are never merged.
    At most 4 times the bytes written and `slack` are rewritten: share it among the partitions of a step where the
    bound is to hold for all together. `behind` as in `plan_compaction`.
    A change that changes nothing writes nothing.
    Raises `StateMissing` and `CheckpointCorrupt` for what is read, and for what is written `StorageFull` and its kin;
    then no manifest names what was written.
    """
    before = reader.manifest
    after = before if change.facts is None else replace(before, facts=dict(change.facts))
    for part, floor in change.floors.items():
        after = after.with_floor(floor, part)
    emptied = [part for part in change.replace if before.chain(part)]
    rows = [(part, table) for tables in (change.append, change.replace) for part, table in tables.items()]
    if after == before and not emptied and not any(table.num_rows for _, table in rows):
        return Written(manifest=before, ref=None, segment=None, written=0, rewritten=0)
    if parts:
        described = {part: parts[part].described() for part in parts}
        after = replace(after, facts={**after.facts, PARTS: described})
    after = replace(after.drop(*emptied), batch=batch)
    with segment_of(reader, name, batch) as writer:
        written = sum(bytes_of(writer.add(part, table)) for part, table in rows)
        merged, rewritten = _merge(
            StateReader(reader.folder, after, reader.adapt), writer, parts, budget(written, slack), behind
        )
        segment = writer.publish()
    after = merged.append(segment)
    ref = write_manifest(reader.folder, name, after)
    return Written(manifest=after, ref=ref, segment=segment, written=written, rewritten=rewritten)


def segment_of(reader: StateReader, name: str, batch: int) -> SegmentWriter:
    """Return what writes a segment of the partition that a reader reads, as its code has the columns."""
    state, generation = reader.manifest, reader.adapt.generation
    return SegmentWriter(
        reader.folder, name, step=state.step, partition=state.partition, batch=batch, generation=generation
    )


def write_manifest(folder: CheckpointFolder, name: str, manifest: Manifest) -> ManifestRef:
    """Write a manifest under the name of its segment and make both durable; return what a Commit names it by."""
    data = manifest.to_bytes()
    folder.make()
    with folder.new_file(manifest_name(name)) as file:
        file.write(data)
        file.publish()
    folder.sync()
    return ManifestRef(manifest_name(name), len(data), manifest.checksum)


def manifest_name(name: str) -> str:
    """Return the file name of the manifest that goes with a segment."""
    return f"{name}.json"


def _merge(
    reader: StateReader,
    writer: SegmentWriter,
    parts: Mapping[str, Part],
    budget_bytes: int,
    behind: int | None,
) -> tuple[Manifest, int]:
    """Carry out plans as far as the budget goes, part by part; return the manifest and the bytes rewritten."""
    manifest, spent = reader.manifest, 0
    for name, part in parts.items():
        for number in count():
            left = budget_bytes - spent
            plan = plan_compaction(manifest, name, left, before=writer.batch, whole_budget=budget_bytes, behind=behind)
            done = None if plan is None else _carry_out(reader, writer, plan, part, f"{name}~{number}")
            if plan is None or done is None:
                break
            bound, pieces = done
            manifest = manifest.merged(name, {run.number for run in plan.inputs}, bound, pieces, writer.batch)
            spent += bytes_of(pieces)
    return manifest, spent


def _carry_out(
    reader: StateReader, writer: SegmentWriter, plan: CompactionPlan, part: Part, name: str
) -> tuple[Bound | None, tuple[Piece, ...]] | None:
    """Merge and write as much of a plan as takes at most its budget on disk; None where nothing does."""
    most = plan.budget_bytes
    while plan.budget_bytes >= LEAST_BUDGET:
        merged = compact(reader, plan, part)
        sections = list(writer.encode(name, merged.rows))
        size = sum(section.piece.size for section in sections)
        if size <= most or merged.indivisible:
            return merged.bound, writer.add_sections(name, sections)
        # What a merge adds (wider types, or a Combine whose rows grow) is known only afterwards.
        plan = replace(plan, budget_bytes=plan.budget_bytes * most // (size + size // 8))
    return None

"""Say where a run starts, and what sinks have published after that, before the job is restored (SEMANTICS 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.checkpoint.log.entries import Commit, Restore
from penstock.checkpoint.log.recovery import Recovered, find_restorable, lineage, partitions_of
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CannotRestore
from penstock.graph.names import is_name

if TYPE_CHECKING:
    from penstock.runtime.snapshots.catalog import Snapshot

__all__ = [
    "LAST",
    "RestorePoint",
    "RestoreTarget",
    "SinkRows",
    "Superseded",
    "find_superseded",
    "parse_start",
    "parse_state",
]


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """Say where a run starts: at the last commit, at a kept batch, a saved checkpoint or a snapshot, or at nothing.

    `snapshot` is a version of a step's snapshot table, `VERSION` or `STEP@VERSION`. `partitions` is the number that the
    steps' state is to have from then on, None where it stays. `state` maps steps to Delta tables with what they are to
    keep in the place of what they kept.
    """

    restore: bool = False
    batch: int | None = None
    saved: str | None = None
    snapshot: str | None = None
    partitions: int | None = None
    state: tuple[tuple[str, str], ...] = ()
    truncate: bool = False
    """Whether sinks take back what they have published after it."""

    @property
    def goes_back(self) -> bool:
        """Return whether it needs something that is kept."""
        return self.batch is not None or self.saved is not None or self.snapshot is not None

    @property
    def rewrites(self) -> bool:
        """Return whether state is rewritten."""
        return self.snapshot is not None or self.partitions is not None or bool(self.state)

    @property
    def source(self) -> Literal["snapshot", "saved", "batch"]:
        """Return what kind of Commit a Restore to it names."""
        if self.snapshot is not None:
            return "snapshot"
        return "batch" if self.saved is None else "saved"

    @property
    def target(self) -> str:
        """Return in words what it restores."""
        if self.snapshot is not None:
            return f"snapshot {self.snapshot}"
        return f"saved checkpoint {self.saved!r}" if self.saved is not None else f"batch {self.batch}"

    def having(self, *, partitions: int | None, state: Mapping[str, str], truncate: bool) -> RestoreTarget:
        """Return the same start with state that is rewritten, and with sinks that take back what came after it.

        State that is rewritten from the last commit is a restore to it. Raises ValueError for what does not go
        together.
        """
        if truncate and not self.restore:
            raise ValueError("--truncate-sinks: say with --from what sinks are to show again")
        if partitions is None and not state:
            return replace(self, truncate=truncate)
        if self.restore and not self.goes_back:
            raise ValueError("--from empty begins with no state, so none can be written anew")
        return replace(self, restore=True, partitions=partitions, state=tuple(state.items()), truncate=truncate)

    def resolve(self, recovered: Recovered, folder: CheckpointFolder) -> RestorePoint:
        """Find what a start restores, once for all who ask; `folder` is the job's checkpoint.

        Raises CannotRestore where it is not kept.
        """
        commit, snapshot = recovered.commit, None
        if self.snapshot is not None:
            # Imported here: files of DAGs read where to start, and must not load pyarrow.
            from penstock.runtime.snapshots.catalog import find_snapshot

            snapshot = find_snapshot(folder, self.snapshot)
            commit = snapshot.commit
        elif self.goes_back:
            commit = find_restorable(recovered, batch=self.batch, saved=self.saved)
        elif self.restore and not self.rewrites:
            commit = None
        elif self.restore and commit is None:
            raise CannotRestore("no batch was committed yet, so there is no state to rewrite")
        return RestorePoint(self, recovered, folder, commit, snapshot)


LAST = RestoreTarget()


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """Hold what a target means for a log: the `commit` that a start resumes from, None for nothing.

    `folder` is the job's checkpoint, and `snapshot` is the data checkpoint that the target names.
    """

    target: RestoreTarget
    recovered: Recovered
    folder: CheckpointFolder
    commit: Commit | None
    snapshot: Snapshot | None = None

    @property
    def partitions(self) -> Mapping[str, int]:
        """Return the partitions that the steps had in that state, as far as entries tell; may read the log."""
        known = self.recovered.partitions if self.commit is self.recovered.commit else None
        if known is None and self.commit is not None:
            known = partitions_of(self.recovered.log, self.commit)
        return known or {}


def parse_start(text: str) -> RestoreTarget:
    """Read `last`, `batch=N`, `saved=NAME`, `snapshot=[STEP@]VERSION` or `empty`; raises ValueError with those."""
    if text == "last":
        return LAST
    if text == "empty":
        return RestoreTarget(restore=True)
    word, _, given = text.partition("=")
    if word == "batch" and given.isdecimal():
        return RestoreTarget(restore=True, batch=int(given))
    if word == "saved" and is_name(given):
        return RestoreTarget(restore=True, saved=given)
    step, at, version = given.rpartition("@")
    if word == "snapshot" and version.isdecimal() and (is_name(step) if at else not step):
        return RestoreTarget(restore=True, snapshot=given)
    raise ValueError(f"{text!r} is none of last, batch=N, saved=NAME, snapshot=VERSION and empty")


def parse_state(arguments: Iterable[str]) -> dict[str, str]:
    """Read `STEP=TABLE`, each; a step may be named once. Raises ValueError."""
    tables: dict[str, str] = {}
    for text in arguments:
        step, equals, table = text.partition("=")
        if not (is_name(step) and equals and table):
            raise ValueError(f"{text!r} is not STEP=TABLE")
        if tables.setdefault(step, table) != table:
            raise ValueError(f"step {step!r} is named twice")
    return tables


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRows:
    """Hold what one sink shows of the batches after the restored one."""

    sink: str
    batches: tuple[int, ...]
    rows: int

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        span = f"batch {first}" if first == last else f"{len(self.batches)} batches from {first} to {last}"
        return f"{self.sink}: {self.rows:,} rows of {span}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Hold what stays published although the job resumes before it; `before` is set where older batches are unknown.

    The rows stay in the sinks. Those of the new batches come beside them, under new batch ids. With `truncate` they go
    away, and `again` are rows that an earlier restore had taken back and that come back with this one.
    """

    batch: int | None
    sinks: tuple[SinkRows, ...]
    before: int | None = None
    truncate: bool = False
    again: tuple[SinkRows, ...] = ()

    def lines(self) -> list[str]:
        """Return the report for people."""
        target = "nothing" if self.batch is None else f"batch {self.batch}"
        if not self.sinks and not self.again and self.before is None:
            return [f"back to {target}: no sink has published rows after it"]
        fate = "go away from their sinks" if self.truncate else "stay published"
        lines = [f"back to {target}: these rows {fate}, and will be published again under new batch ids"]
        lines += [f"  {sink}" for sink in self.sinks]
        if self.before is not None:
            first = 0 if self.batch is None else self.batch + 1
            lines.append(f"  and the rows of batches {first} to {self.before - 1}, which the log no longer counts")
        if self.again:
            lines.append("these rows, which an earlier restore has taken back, are in their sinks again")
            lines += [f"  {sink}" for sink in self.again]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "back_to": self.batch,
            "sinks": _json(self.sinks),
            "uncounted_before": self.before,
            "truncate": self.truncate,
            "again": _json(self.again),
        }


def find_superseded(
    point: RestorePoint, *, released: Collection[int] = (), was_truncated: Callable[[Restore], bool] = lambda _: True
) -> Superseded:
    """Return what sinks published after the batch that a start restores, or at all where that is none.

    `released` are the held batches that a person has released: their rows were published as well. `was_truncated` tells
    of a Restore with a truncation whether that was carried out.
    """
    recovered, truncate = point.recovered, point.target.truncate
    batch = None if point.commit is None else point.commit.batch
    # What sinks show now, and what they showed behind that batch, are not the same once they have taken rows back.
    lines = lineage(recovered, [entry for entry in recovered.restores if entry.truncate and was_truncated(entry)])
    shown, then = lines.line(lines.newest), lines.line(batch)
    after = {number for number in shown if batch is None or number > batch}
    return Superseded(
        batch=batch,
        sinks=_rows(recovered, shown - then if truncate else after, released),
        before=recovered.floor if recovered.floor > (-1 if batch is None else batch) + 1 else None,
        truncate=truncate,
        again=_rows(recovered, then - shown, released) if truncate else (),
    )


def _rows(recovered: Recovered, batches: Collection[int], released: Collection[int]) -> tuple[SinkRows, ...]:
    """Return what the sinks got of some batches."""
    rows: dict[str, dict[int, int]] = {}
    for commit in (kept for kept in recovered.kept if kept.batch in batches):
        for published in (commit.staged, commit.held if commit.batch in released else {}):
            for sink, files in published.items():
                if files:
                    known = rows.setdefault(sink, {})
                    known[commit.batch] = known.get(commit.batch, 0) + sum(file.rows for file in files)
    counted = sorted(rows.items())
    return tuple(SinkRows(sink=sink, batches=tuple(known), rows=sum(known.values())) for sink, known in counted)


def _json(sinks: tuple[SinkRows, ...]) -> dict[str, Any]:
    return {sink.sink: {"batches": list(sink.batches), "rows": sink.rows} for sink in sinks}

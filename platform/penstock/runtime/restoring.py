"""Say where a run starts, and what sinks have published after that, before the job goes back (SEMANTICS 10.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from penstock.checkpoint.entries import Commit, Restore
from penstock.checkpoint.log import OwnedLog
from penstock.checkpoint.recovery import Recovered, find_restorable
from penstock.errors import CannotRestore
from penstock.graph.names import is_name
from penstock.runtime.snapshot_tables import find_snapshot

__all__ = ["LAST", "StartFrom", "Superseded", "find_superseded", "parse_start"]


@dataclass(frozen=True, slots=True)
class StartFrom:
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

    @property
    def goes_back(self) -> bool:
        """Return whether it needs something that is kept."""
        return self.batch is not None or self.saved is not None or self.snapshot is not None

    @property
    def rewrites(self) -> bool:
        """Return whether state is written anew."""
        return self.snapshot is not None or self.partitions is not None or bool(self.state)

    @property
    def target(self) -> str:
        """Return in words what it goes back to."""
        if self.snapshot is not None:
            return f"snapshot {self.snapshot}"
        return f"saved checkpoint {self.saved!r}" if self.saved is not None else f"batch {self.batch}"

    def with_state(self, *, partitions: int | None, state: Mapping[str, str]) -> StartFrom:
        """Return the same start with state that is written anew; from the last commit that is a restore to it."""
        if partitions is None and not state:
            return self
        return replace(self, restore=True, partitions=partitions, state=tuple(state.items()))

    def commit(self, recovered: Recovered, folder: Path) -> Commit | None:
        """Return the Commit that a restore brings back, None for nothing; `folder` is the job's checkpoint.

        Raises CannotRestore where it is not kept.
        """
        if self.snapshot is not None:
            return find_snapshot(folder, self.snapshot).commit
        if self.goes_back:
            return find_restorable(recovered, batch=self.batch, saved=self.saved)
        if not self.rewrites:
            return None
        if recovered.commit is None:
            raise CannotRestore("no batch was committed yet, so there is no state to write anew")
        return recovered.commit

    def entry(
        self, owned: OwnedLog, commit: Commit | None, command: str | None, partitions: Mapping[str, int]
    ) -> Restore:
        """Return the entry that goes back to a Commit; `partitions` where nothing else that can be read fixes them.

        Where state was written anew, `commit` is the one that names it.
        """
        named: Literal["snapshot", "saved", "batch"] = "batch" if self.saved is None else "saved"
        return Restore(
            epoch=owned.epoch,
            writer=owned.writer,
            command=command,
            batch=None if commit is None else commit.batch,
            source="empty" if commit is None else "snapshot" if self.snapshot is not None else named,
            saved=self.saved,
            partitions=dict(partitions) or None,
            commit=commit if self.rewrites else None,
        )


LAST = StartFrom()


def parse_start(text: str) -> StartFrom:
    """Read `last`, `batch=N`, `saved=NAME`, `snapshot=[STEP@]VERSION` or `empty`; raises ValueError with those."""
    if text == "last":
        return LAST
    if text == "empty":
        return StartFrom(restore=True)
    word, _, given = text.partition("=")
    if word == "batch" and given.isdecimal():
        return StartFrom(restore=True, batch=int(given))
    if word == "saved" and is_name(given):
        return StartFrom(restore=True, saved=given)
    step, at, version = given.rpartition("@")
    if word == "snapshot" and version.isdecimal() and (is_name(step) if at else not step):
        return StartFrom(restore=True, snapshot=given)
    raise ValueError(f"{text!r} is none of last, batch=N, saved=NAME, snapshot=VERSION and empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRows:
    """Hold what one sink shows of the batches after the restored one."""

    sink: str
    batches: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Hold what stays published although the job goes back behind it; `before` is set where older batches are unknown.

    The rows stay in the sinks. Those of the new batches come beside them, under new batch ids.
    """

    batch: int | None
    sinks: tuple[SinkRows, ...]
    before: int | None = None

    def lines(self) -> list[str]:
        """Return the report for people."""
        target = "nothing" if self.batch is None else f"batch {self.batch}"
        if not self.sinks and self.before is None:
            return [f"back to {target}: no sink has published rows after it"]
        found = [f"back to {target}: these rows stay published, and will be published again under new batch ids"]
        for sink in self.sinks:
            first, last = sink.batches[0], sink.batches[-1]
            span = f"batch {first}" if first == last else f"{len(sink.batches)} batches from {first} to {last}"
            found.append(f"  {sink.sink}: {sink.rows:,} rows of {span}")
        if self.before is not None:
            first = 0 if self.batch is None else self.batch + 1
            found.append(f"  and the rows of batches {first} to {self.before - 1}, which the log no longer counts")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        sinks = {s.sink: {"batches": list(s.batches), "rows": s.rows} for s in self.sinks}
        return {"back_to": self.batch, "sinks": sinks, "uncounted_before": self.before}


def find_superseded(
    recovered: Recovered, start: StartFrom, folder: Path, *, released: Collection[int] = ()
) -> Superseded:
    """Return what sinks published after the batch that a start goes back to, or at all where that is none.

    `folder` is the job's checkpoint, `released` are the held batches that a person has released: their rows were
    published as well.
    Raises CannotRestore when the batch is not kept.
    """
    commit = start.commit(recovered, folder)
    batch = None if commit is None else commit.batch
    rows: dict[str, dict[int, int]] = {}
    for commit in (kept.commit for kept in recovered.kept if batch is None or kept.batch > batch):
        for published in (commit.staged, commit.held if commit.batch in released else {}):
            for sink, files in published.items():
                if files:
                    known = rows.setdefault(sink, {})
                    known[commit.batch] = known.get(commit.batch, 0) + sum(file.rows for file in files)
    return Superseded(
        batch=batch,
        sinks=tuple(
            SinkRows(sink=sink, batches=tuple(found), rows=sum(found.values())) for sink, found in sorted(rows.items())
        ),
        before=recovered.floor if recovered.floor > (-1 if batch is None else batch) + 1 else None,
    )

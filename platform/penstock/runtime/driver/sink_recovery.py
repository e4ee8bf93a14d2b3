"""Settle at a start what the sinks show: compare it with the log, then publish the last Commit again (DESIGN 4 c0).

The sinks are asked where the log alone cannot be trusted: old copies, an unreadable end, damage. Where the newest
Restore truncates sinks (SEMANTICS 10.1), that comes first, also when another process wrote the entry. So it is a redo,
as publishing is. A driver that dies before, or between two sinks, loses nothing, and each sink remembers for which
Restore it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import structlog

from penstock.checkpoint.log.entries import Commit, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.recovery import Damage, Recovered, line_of, takeover_of
from penstock.checkpoint.log.scan import Damaged
from penstock.errors import CannotRestore, CannotTruncate, CheckpointCopied, CheckpointCorrupt, SinkAhead, SinkBehind
from penstock.runtime.driver.engine import Engine, SinkPublisher
from penstock.runtime.driver.stages import Hook
from penstock.sinks.base import Target

__all__ = [
    "Unpublished",
    "find_behind",
    "missing_batches",
    "redo_truncation",
    "refuse_lost_commit",
    "refuse_missing",
    "refuse_unpublished",
    "settle_sinks",
]

log = structlog.get_logger()

AppOf = Callable[[str], str]
Unpublished = CheckpointCorrupt | CheckpointCopied
"""Why the last Commit cannot be published."""
SinkOf = Callable[[str], SinkPublisher]
"""Gives the publisher of a sink: of an `Engine`, or of a job that nobody runs (`restore.sink_repair`)."""


def settle_sinks(
    engine: Engine,
    sinks: Sequence[str],
    app: AppOf,
    recovered: Recovered,
    damage: Damage,
    publish: Callable[[Commit, Sequence[str]], Iterator[Hook]],
) -> Generator[Hook, None, tuple[dict[str, SinkBehind], Unpublished | None]]:
    """Redo what a driver before may have left undone; sinks that are known to show the last Commit are left alone.

    Raises SinkAhead, SinkBehind, CheckpointCorrupt and CheckpointCopied. With `Damage.LIST` the last three are returned
    for a restore, and a sink that is behind gets nothing: it would look as if it had everything before that.
    """
    _refuse_old_copy(engine, sinks, app, recovered)
    behind = find_behind(engine.sink, sinks, app, recovered)
    if behind and damage is Damage.FAIL:
        raise next(iter(behind.values()))
    yield from redo_truncation(engine, app, recovered, damage)
    last = recovered.last_published_commit
    todo = tuple(s for s in sinks if recovered.to_publish(s) is not None and s not in behind)
    damaged: Unpublished | None = _find_damaged(engine, todo, app, recovered)
    if damaged is not None and damage is Damage.FAIL:
        raise damaged
    if last is not None and todo and damaged is None:
        try:
            yield from publish(last, todo)
        except SinkAhead:
            # A later Commit, which cannot be read any more, was published, and this one before it.
            if not (recovered.problems or recovered.damaged):
                raise
        except CheckpointCopied as why:
            if damage is Damage.FAIL:
                raise
            damaged = why
    return behind, damaged


def redo_truncation(engine: Engine, app: AppOf, recovered: Recovered, damage: Damage) -> Iterator[Hook]:
    """Do what the newest Restore says of the sinks, if no Commit has followed it; what was done is left.

    That is settled before another Restore is written, so no driver that lost the log long ago has it to do. Where
    another program has written to a table since, nobody does it ever: a driver refuses to start, and a restore
    (`Damage.LIST`) continues without.
    """
    restore = recovered.truncation
    if restore is None:
        return
    yield Hook("Truncate", "before", restore.batch)
    for sink, version in restore.truncate.items():
        if not any(node.name == sink for node in engine.graph.sinks):
            if damage is Damage.FAIL:  # the next Commit would settle it, and the rows would stay beside those to come
                raise CannotTruncate(f"sink {sink!r} is to take rows back, and the job has it no longer", sink=sink)
            log.warning("sink.not_truncated", sink=sink, version=version, reason="the job has it no longer")
            continue
        # Of the target only the batch counts here: what the table is to show was settled when the entry was written.
        target = Target(app=app(sink), batch=restore.batch, slot=restore.placed.slot)
        try:
            done = engine.sink(sink).put_back(target, version, slot=restore.placed.slot, newest=recovered.used)
        except CannotTruncate:
            if damage is Damage.FAIL:
                raise
            continue
        if done:
            log.info("sink.truncated", sink=sink, version=version, batch=restore.batch)
        yield Hook("Truncate", f"truncated {sink}", restore.batch)
    yield Hook("Truncate", "after", restore.batch)


def _refuse_old_copy(engine: Engine, sinks: Sequence[str], app: AppOf, recovered: Recovered) -> None:
    """Raise SinkAhead where a sink shows a batch that the log does not know to be committed (F31).

    The driver checks this at the start, and does not leave it to publishing. The next batches may have no rows for that
    sink. Once the ids have caught up, the sink would take other rows under the same id for the ones it has.
    Where damage is listed for a Restore, a Commit that cannot be read may have been published; ids continue above it.
    """
    free = recovered.used + 1 if recovered.problems else recovered.next_batch
    for sink in sinks:
        seen = engine.sink(sink).version(app(sink))
        if seen is not None and seen >= free:
            raise SinkAhead(
                f"{sink} shows batch {seen} of this checkpoint, and its log ends before batch {free} is committed",
                seen=seen,
                batch=free,
            )


def refuse_lost_commit(engine: Engine, sinks: Sequence[str], app: AppOf, damaged: Damaged) -> None:
    """Raise CheckpointCorrupt where a sink shows that an entry that cannot be read was a Commit (F13)."""
    for sink in sinks:
        seen = engine.sink(sink).version(app(sink))
        if seen is not None and damaged.batch is not None and seen >= damaged.batch:
            raise CheckpointCorrupt(
                f"slot {damaged.slot} cannot be read, and {sink} shows batch {seen}, so it was more than offsets",
                where=damaged.path,
            )


def missing_batches(sink_of: SinkOf, sink: str, app: str, recovered: Recovered) -> list[Commit]:
    """Return the kept Commits with rows that a sink was known to show and does not show, oldest first.

    Of batches below the floor the log does not say any more which had rows. A sink that cannot tell misses nothing, and
    one that goes elsewhere since not what went to the place before. Nor does any miss what a restore has left behind:
    those rows are computed again.
    """
    known = recovered.known.get(sink)
    if known is None or not sink_of(sink).deduplicates:
        return []
    counted = line_of(recovered) - set(recovered.skipped.get(sink, ()))
    commits = (kept for kept in recovered.kept if kept.batch <= known and kept.batch in counted)
    had = [commit for commit in commits if commit.staged.get(sink)]
    seen = sink_of(sink).version(app) if had else None
    missing = [commit for commit in had if seen is None or commit.batch > seen]
    return _gone_to(sink_of(sink).place, sink, missing, recovered.log, unsaid=seen is not None) if missing else []


def _gone_to(place: str | None, sink: str, commits: Iterable[Commit], log: Log, *, unsaid: bool) -> list[Commit]:
    """Return the Commits whose rows went to a place, and with `unsaid` those of which the log does not say where.

    Each is judged by the Takeover that it was written under: a sink may have moved at any start.
    """
    places: dict[int | None, str | None] = {}
    sinks = []
    for commit in commits:
        slot = commit.placed.takeover
        if slot not in places:
            takeover = takeover_of(log, commit)
            places[slot] = None if takeover is None else takeover.sinks.get(sink)
        then = places[slot]
        if unsaid if then is None else then == place:
            sinks.append(commit)
    return sinks


def find_behind(
    sink_of: SinkOf, names: Iterable[str], app: AppOf, recovered: Recovered, *, because: str = ""
) -> dict[str, SinkBehind]:
    """Return what is wrong with sinks that show less than the log says was published (SEMANTICS 9.5).

    `because` begins what each says: what its publisher has found.
    """
    behind = {}
    for sink in names:
        missing = missing_batches(sink_of, sink, app(sink), recovered)
        if missing:
            listed = ", ".join(f"{c.batch} ({_whether_there(sink_of(sink), c.staged[sink])})" for c in missing)
            seen = sink_of(sink).version(app(sink))
            shows = "no batch" if seen is None else f"batch {seen}"
            oldest = recovered.kept[0].batch
            older = f", and of batches before {oldest} the log keeps nothing" if seen is None and oldest else ""
            behind[sink] = SinkBehind(
                f"{because}sink {sink!r} shows {shows} of this checkpoint as the newest, and has shown batch "
                f"{missing[-1].batch}; missing are {listed}{older}",
                where=sink_of(sink).place,
                sink=sink,
                shown=-1 if seen is None else seen,
                missing=[commit.batch for commit in missing],
            )
    return behind


def _whether_there(sink: SinkPublisher, files: Sequence[StagedFile]) -> str:
    rows = sum(file.rows for file in files)
    try:
        sink.verify(files)
    except CheckpointCorrupt:
        return f"{rows:,} rows, whose files are gone"
    return f"{rows:,} rows, whose files are there"


def _find_damaged(engine: Engine, sinks: Sequence[str], app: AppOf, recovered: Recovered) -> CheckpointCorrupt | None:
    """Return what is wrong with files of a Commit that a sink may not show yet: they are read before it takes them."""
    for sink in sinks:
        commit = recovered.to_publish(sink)
        files = None if commit is None else commit.staged.get(sink)
        if commit is None or not files:
            continue
        seen = engine.sink(sink).version(app(sink))
        if seen is None or seen < commit.batch:
            try:
                engine.sink(sink).verify(files)
            except CheckpointCorrupt as why:
                return why
    return None


def refuse_unpublished(why: Unpublished | None, commit: Commit | None, batch: int) -> None:
    """Raise CannotRestore for a batch whose rows, or those of one before it, could never be published."""
    if why is not None and commit is not None and batch >= commit.batch:
        raise CannotRestore(f"batch {commit.batch} cannot be published ({why}): restore one before it")


def refuse_missing(behind: Iterable[SinkBehind], batch: int) -> None:
    """Raise CannotRestore for a batch that a sink has lost: its rows, and those since, would be missing for good."""
    for why in behind:
        first = min(why.missing)
        if batch >= first:
            raise CannotRestore(f"{why.what}: restore a batch before {first}")

"""Decide on batches that a gate has held: publish them later, or drop them with a count (SEMANTICS 11.5).

A batch has one decision: of two people the first decides, by exclusive create. A repeated request finishes what a
crash may have interrupted. Only the process that owns the log carries it out (`held_service`).
`decision_records` stores the decisions.

The files of held batches lie below the checkpoint, where no VACUUM of a table looks (F71). Tasks write the files of a
Delta sink into the table's folder, and nobody knows before the verdict that they are held. There they are named by no
version of the table, and VACUUM removes what is older than the table's retention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.log.batch_report import Windows, closed_windows
from penstock.checkpoint.log.entries import Commit, StagedFile
from penstock.checkpoint.log.listener import Listener
from penstock.checkpoint.log.recovery import Recovered, lineage
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import (
    CheckpointCopied,
    CheckpointCorrupt,
    HeldCopied,
    HeldDecided,
    HeldNotFound,
    PenstockError,
    UnknownName,
)
from penstock.graph.graph import JobGraph
from penstock.quality.held.decision_records import Decision, HeldDecision, HeldRecords
from penstock.quality.held.overtaken import InForce, left_over, newest_rows, note_overtaken
from penstock.sinks.base import Origin, Sink
from penstock.sinks.staged_files import verify_staged
from penstock.sinks.staged_publisher import StagedPublisher, fingerprint_of

__all__ = ["HeldBatch", "HeldPins", "bring_back", "discard", "held_app", "keep_held", "release", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBatch:
    """A batch with rows that its Commit holds back: files by sink, and the checks that held them.

    `ruling` is a decision that was begun and not finished. `undone` says that a restore has rewound past the batch:
    later batches read its rows a second time. `windows` are those that the batch has closed; a list of held batches
    leaves them out.
    """

    batch: int
    time: int
    files: Mapping[str, tuple[StagedFile, ...]]
    checks: tuple[str, ...]
    ruling: HeldDecision | None = None
    undone: bool = False
    windows: Windows = field(default_factory=dict)

    @property
    def is_begun(self) -> bool:
        """Return whether a release was begun and not finished."""
        return self.ruling is not None and not self.ruling.done and self.ruling.decision is Decision.RELEASE

    @property
    def rows(self) -> dict[str, int]:
        """Return the rows of each sink."""
        return {sink: sum(f.rows for f in files) for sink, files in self.files.items()}


class HeldPins(Listener):
    """Name the held batches that only their place above the floor keeps in the log; listens to a driver.

    Once there is a Compaction, it names them, and they keep nothing else.
    """

    def __init__(self, records: HeldRecords) -> None:
        self._records = records
        self._held: set[int] = set()

    def on_takeover(self, recovered: Recovered) -> None:
        """Begin with the batches that the log keeps."""
        self._held = set() if recovered.compaction is not None else set(recovered.held)

    def on_batch_completed(self, commit: Commit) -> None:
        """Add a batch that was held."""
        if commit.place is not None and commit.place.compaction is not None:
            self._held.clear()
        elif commit.held:
            self._held.add(commit.batch)

    def __call__(self) -> set[int]:
        """Return the batches to keep; one whose decision cannot be read stays."""
        self._held = {batch for batch in self._held if not self.decided_on(batch)}
        return set(self._held)

    def decided_on(self, batch: int) -> bool:
        """Return whether a decision on a batch was carried out."""
        try:
            ruling = self._records.ruling(batch)
        except PenstockError:
            return False
        return ruling is not None and ruling.done


def undecided(records: HeldRecords, recovered: Recovered) -> list[HeldBatch]:
    """Return the held batches whose decision was not made, or not carried out, oldest first."""
    batches = []
    for batch, ruling in waiting(records, recovered).items():
        with suppress(CheckpointCorrupt):  # `fsck` reports it, and so does a request for this batch
            undone = batch in recovered.held.undone
            batches.append(_held_batch(recovered.held[batch], ruling, undone=undone))
    return batches


def waiting(records: HeldRecords, recovered: Recovered) -> dict[int, HeldDecision | None]:
    """Return the ids of the held batches whose decision was not made, or not carried out; reads no Commit."""
    rulings = ((batch, records.ruling(batch)) for batch in sorted(recovered.held))
    return {batch: ruling for batch, ruling in rulings if ruling is None or not ruling.done}


def undone_by_restore(recovered: Recovered) -> set[int]:
    """Return the held batches that a Restore has rewound past, and that no later Restore has brought back."""
    saved = recovered.saves.batches
    history = lineage(
        recovered, target=lambda entry: saved.get(entry.saved or "") if entry.source == "saved" else entry.batch
    )
    return history.before.keys() - history.line(history.newest)


def find_held(records: HeldRecords, recovered: Recovered, batch: int) -> HeldBatch:
    """Return a held batch of the log with what was decided on it; raises HeldNotFound."""
    if batch in recovered.held:
        commit = recovered.held[batch]
        held = _held_batch(commit, records.ruling(batch), undone=batch in recovered.held.undone)
        return replace(held, windows=closed_windows(commit, recovered.held.before(batch)))
    known = [held.batch for held in undecided(records, recovered)]
    raise HeldNotFound(f"batch {batch} is not held, undecided: {known or 'none'}", held=known)


def held_app(uuid: str, sink: str, batch: int) -> str:
    """Return the app id under which a sink dedupes the release of one batch.

    One for each batch, because batches may be released in any order and a sink takes versions of an app in theirs.
    """
    return f"{uuid}/{sink}/held/{batch}"


def release(
    records: HeldRecords,
    held: HeldBatch,
    graph: JobGraph,
    *,
    uuid: str,
    staged: CheckpointFolder,
    spark: Any,
    by: str,
    still_mine: Callable[[], None],
    older: Mapping[int, Mapping[str, Sequence[StagedFile]]],
    in_force: InForce,
) -> HeldDecision:
    """Publish a held batch and note it; what was published already stays as it is.

    A sink with keys gets the rows that no later batch has replaced there.

    Args:
        records: The decisions on held batches.
        held: The batch.
        graph: The job's graph, for its sinks.
        uuid: The id of the job's checkpoint.
        staged: The job's folder of staged files, for sinks without one of their own.
        spark: A session, or what opens one when used.
        by: The process or user that decides, for people.
        still_mine: Raises Fenced once another process owns the log; called before the decision and before each sink.
        older: The files of undecided batches before this one, by batch and sink.
        in_force: Which batches have replaced rows of held ones.

    Returns:
        The decision in force.

    Raises:
        HeldDecided: The batch was discarded, or a restore has undone it.
        CheckpointCorrupt: A file is not what its Commit names; nothing is published then.
        HeldCopied: A sink shows the release of a copy of the checkpoint. Nothing is decided, unless it was before.
    """
    if held.undone and (held.ruling is None or held.is_begun):
        raise HeldDecided(f"a restore has rewound past batch {held.batch}: later batches read its rows a second time")
    if held.ruling is not None and (held.ruling.done or held.ruling.decision is not Decision.RELEASE):
        return _decided(records, held, Decision.RELEASE, by=by)
    sinks = _publishers(held, graph, staged, spark)
    for name, files in held.files.items():
        verify_held(sinks[name].staging, staged / name, files)
    still_mine()
    for name, publisher in sinks.items():
        with _no_copy(name, held):
            _is_shown(publisher.open(), held, graph, uuid=uuid)
    ruling = _decided(records, held, Decision.RELEASE, by=by)
    if ruling.done:
        return ruling
    note_overtaken(staged, {node.name: node.sink for node in graph.sinks}, older, held.batch, held.files, in_force)
    newest = {}
    for name in held.files:
        left = left_over(staged / name, name, held.batch, held.files[name], in_force)
        bring_back(sinks[name].staging, staged / name, left)
        if keys := getattr(_sink(graph, name), "keys", ()):
            newest[name] = newest_rows(sinks[name].staging, left, keys)
        still_mine()  # the new owner of the log may have made a restore, after which later batches have these rows
        with _no_copy(name, held):
            _show(sinks[name], held, left, graph, uuid=uuid)
    ruling = replace(ruling, newest=newest)
    records.carried_out(held.batch, ruling, by=by)
    return ruling


def discard(
    records: HeldRecords,
    held: HeldBatch,
    graph: JobGraph,
    *,
    uuid: str,
    staged: CheckpointFolder,
    spark: Any,
    by: str,
    still_mine: Callable[[], None],
) -> HeldDecision:
    """Drop a held batch and note it. Its files below the checkpoint are deleted; others are their table's.

    A release that was begun ends so too, where it can never be finished: a restore has undone the batch since, or a
    copy of the checkpoint was first. What it has published stays.
    Raises HeldDecided when it was released, and what `still_mine` raises once the log is another's.
    """
    for sink in held.files:
        _sink(graph, sink)
    still_mine()
    if held.undone and held.is_begun:
        ruling = HeldDecision(decision=Decision.DISCARD, done=False, rows=held.rows)
    elif held.is_begun and (left := _left_by_copies(held, graph, uuid=uuid, staged=staged, spark=spark)):
        ruling = HeldDecision(decision=Decision.DISCARD, done=False, rows=left, windows=held.windows)
    else:
        ruling = _decided(records, held, Decision.DISCARD, by=by)
    if ruling.done:
        return ruling
    for name, files in held.files.items():
        for file in files:
            (staged / name / file.path).remove()
    records.carried_out(held.batch, ruling, by=by)
    return ruling


def _publishers(held: HeldBatch, graph: JobGraph, staged: CheckpointFolder, spark: Any) -> dict[str, StagedPublisher]:
    return {name: StagedPublisher(name, _sink(graph, name), staged / name, spark) for name in held.files}


def _show(
    publisher: StagedPublisher, held: HeldBatch, files: Sequence[StagedFile], graph: JobGraph, *, uuid: str
) -> None:
    """Make files of a held batch visible in a sink, unless they are; raises CheckpointCopied."""
    publisher.show(
        held_app(uuid, publisher.name, held.batch),
        held.batch,
        files,
        Origin(job=graph.name, time=held.time),
        # Of all files: `files` may have become less since an attempt before.
        fingerprint=fingerprint_of(held.files[publisher.name]),
    )


def _is_shown(publisher: StagedPublisher, held: HeldBatch, graph: JobGraph, *, uuid: str) -> bool:
    """Return whether a sink shows the release of a batch; raises CheckpointCopied where it shows that of a copy."""
    if publisher.version(held_app(uuid, publisher.name, held.batch)) != held.batch:
        return False
    _show(publisher, held, held.files[publisher.name], graph, uuid=uuid)  # it compares, and changes nothing
    return True


@contextmanager
def _no_copy(sink: str, held: HeldBatch) -> Iterator[None]:
    try:
        yield
    except CheckpointCopied as why:
        raise HeldCopied(f"sink {sink!r} shows batch {held.batch} with other rows", where=why.where) from why


def _left_by_copies(
    held: HeldBatch, graph: JobGraph, *, uuid: str, staged: CheckpointFolder, spark: Any
) -> dict[str, int]:
    """Return the rows, by sink, that a release has not published, where a copy of the checkpoint was first in a sink.

    Without such a sink there are none: the release can be finished.
    """
    left, copied = {}, False
    for name, publisher in _publishers(held, graph, staged, spark).items():
        try:
            is_there = _is_shown(publisher.open(), held, graph, uuid=uuid)
        except CheckpointCopied:
            is_there, copied = False, True
        if not is_there:
            left[name] = held.rows[name]
    return left if copied else {}


def keep_held(folder: CheckpointFolder, kept: CheckpointFolder, files: Sequence[StagedFile]) -> None:
    """Move files from the folder that tasks wrote them in to `kept`, below the checkpoint; durable on return.

    Called before a Commit names them; a driver that dies in between computes the batch again, under other names.
    """
    if folder == kept or not files:
        return
    for file in files:
        (kept / file.path).adopt((folder / file.path).fetch(), link=True)
    kept.sync()
    for file in files:
        (folder / file.path).remove()


def verify_held(folder: CheckpointFolder, kept: CheckpointFolder, files: Sequence[StagedFile]) -> None:
    """Raise CheckpointCorrupt where held files are not what their Commit says.

    Checkpoints that were written before files were moved have them in `folder`.
    """
    for file in files:
        verify_staged(kept if (kept / file.path).size() is not None else folder, [file])


def bring_back(folder: CheckpointFolder, kept: CheckpointFolder, files: Sequence[StagedFile]) -> None:
    """Copy held files to the folder that a release publishes them from; durable on return.

    A copy, because it is young: VACUUM leaves it alone until the table names it.
    """
    if folder == kept:
        return
    for file in files:
        if (kept / file.path).size() is not None:
            (folder / file.path).adopt((kept / file.path).fetch(), link=False)
    folder.sync()


class SessionOnDemand:
    """A Spark session that opens at its first use: most sinks never use it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._session: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._session is None:
            self._session = self._make()
        return getattr(self._session, name)

    def close(self) -> None:
        """Stop the session if there is one."""
        if self._session is not None:
            self._session.stop()


def _held_batch(commit: Commit, ruling: HeldDecision | None, *, undone: bool = False) -> HeldBatch:
    checks = dict.fromkeys(str(v["check"]) for v in commit.verdicts if v.get("action") == "hold")
    files = {sink: tuple(staged) for sink, staged in commit.held.items() if staged}
    return HeldBatch(
        batch=commit.batch, time=commit.time, files=files, checks=tuple(checks), ruling=ruling, undone=undone
    )


def _decided(records: HeldRecords, held: HeldBatch, wanted: Decision, *, by: str) -> HeldDecision:
    ruling = records.decide(held.batch, wanted, held.rows, by=by, windows=held.windows)
    if ruling.decision is not wanted:
        done = "was" if ruling.done else "is being"
        raise HeldDecided(f"batch {held.batch} {done} {_PAST[ruling.decision]}", batch=held.batch)
    return ruling


_PAST = {Decision.RELEASE: "released", Decision.DISCARD: "discarded"}


def _sink(graph: JobGraph, name: str) -> Sink:
    for node in graph.sinks:
        if node.name == name:
            sink: Sink = node.sink
            return sink
    raise UnknownName(f"rows of sink {name!r} are held, and the job has {[n.name for n in graph.sinks]} only")

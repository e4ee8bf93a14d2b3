"""Recover the state of a job from its log; nothing is written, and every reader gets the same answer.

Called by the owner after `confirm`, when nobody else can append, and by commands that only look.
The entries from the floor to the tail are read once backwards (`scan`) and applied forwards (`replay`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from penstock.checkpoint.log.entries import Commit, Entry, Offsets, Restore, SavedRef, Takeover, saved_ref
from penstock.checkpoint.log.fencing import place_after
from penstock.checkpoint.log.log import Log, gap, read_takeover
from penstock.checkpoint.log.replay import Standing, replay
from penstock.checkpoint.log.saved import UNKNOWN, HeldCommits, Saves, read_save
from penstock.checkpoint.log.scan import Damaged, Walk, walk
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import CannotRestore, CheckpointCorrupt, CheckpointError, LogGap, NotFound

_READINGS = 5
_FEWER_THAN_A_RESTORE = 2
"""Only a restore changes the partitions: its Restore, a Release, the next Takeover and Offsets stand in a row."""


class Damage(Enum):
    """What to do about damage that forbids a start."""

    FAIL = "fail"
    """Raise: for a driver."""
    LIST = "list"
    """Put it into `problems`: for commands that show the log, or append the Restore that makes up for it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a job, as its log has it.

    Attributes:
        log: The log.
        tail: The last slot of the log.
        last_takeover: The newest Takeover; None for none.
        commit: The Commit whose state and positions are in force, after a Restore the restored one; None for empty.
        committed_by: The Takeover under which that Commit was written, with its code version and partitions.
        pending: Offsets without a Commit, to re-run with exactly their ranges.
        next_batch: The id of the batch to run next, which is that of `pending` if there is one.
        last_published_commit: The newest Commit, which a start publishes a second time. None when a Restore follows it:
            a restore publishes first, and another publication would undo a truncated sink.
        published: The newest batch that each sink is known to show, where the last driver left on purpose.
        skipped: The batches that a person has given up, by sink.
        partitions: Those of the stateful steps, as a Restore fixed them or as the Commit was written; None when nothing
            did.
        restores: The Restores that were read.
        kept: The Commits that can be restored, oldest first.
        floor: The batch below which none can be restored.
        damaged: Unreadable entries at the end. Before anything else the owner appends a Void for each, once no sink has
            the version of its `batch`; `next_batch` counts them as given up already.
        saves: The named checkpoints; each is read from the log on demand.
        held: The Commits of held batches without a final decision, by their ids; each is read from the log on demand.
        commands: The slots of the Restores that commands have caused, by the ids of the commands.
        decided: The Commit or Restore from which `commit` follows.
        compaction: The slot of the Compaction where the walk began, None where there is none.
        problems: What `Damage.FAIL` would have raised.
        used: The highest batch id that was begun or may have been; a Restore continues above it. -1 for none.
        time: The latest batch time, also of a batch that was given up; None for none.
    """

    log: Log = field(compare=False, repr=False)
    tail: int
    last_takeover: Takeover | None
    commit: Commit | None
    committed_by: Takeover | None
    pending: Offsets | None
    next_batch: int
    last_published_commit: Commit | None
    partitions: Mapping[str, int] | None
    restores: tuple[Restore, ...]
    kept: tuple[Commit, ...]
    floor: int
    saves: Saves
    held: HeldCommits
    damaged: tuple[Damaged, ...] = ()
    problems: tuple[CheckpointError, ...] = ()
    used: int = -1
    time: int | None = None
    published: Mapping[str, int] = field(default_factory=dict)
    commands: Mapping[str, int] = field(default_factory=dict)
    compaction: int | None = None
    decided: Commit | Restore | None = None
    skipped: Mapping[str, Collection[int]] = field(default_factory=dict)

    @property
    def known(self) -> Mapping[str, int]:
        """Return the newest batch that each sink is known to show: by the last Release, or the newest Commit."""
        last = self.last_published_commit
        return self.published or ({} if last is None else last.published)

    def to_publish(self, sink: str) -> Commit | None:
        """Return the Commit whose rows a sink may not show yet; None where the sink shows or skips it."""
        last = self.last_published_commit
        if last is None or self.published.get(sink, -1) >= last.batch or last.batch in self.skipped.get(sink, ()):
            return None
        return last

    @property
    def truncation(self) -> Restore | None:
        """Return the Restore whose truncation of sinks may still have to be done: no Commit has followed it."""
        if not self.restores or self.last_published_commit is not None:
            return None
        return self.restores[-1] if self.restores[-1].truncate else None


def recover(log: Log, damage: Damage = Damage.FAIL, *, newest: int | None = None, tail: int | None = None) -> Recovered:
    """Read the state of the job.

    With `newest` only so many batches are read, for pages that show those: older ones and older Restores are
    left out, and `floor` is the oldest that was read. Who owns the log knows its last slot, and gives it as `tail`:
    all names of the log are listed to find it.

    Raises `LogGap` (F16), `CheckpointCorrupt` (F13, F20: whatever breaks the protocol after the newest Restore, and
    damage that is not at the end) and `FormatTooNew` (F21, with any `damage`).
    """
    for _ in range(_READINGS):
        recovered = _read_once(log, damage, newest, tail)
        # A purge may run while one reads who does not own the log, or no longer: then the log has grown as well.
        if not recovered.problems or log.find_tail() == recovered.tail:
            break
    if damage is Damage.FAIL and recovered.problems:
        raise recovered.problems[0]
    return recovered


def _read_once(log: Log, damage: Damage, newest: int | None, tail: int | None) -> Recovered:
    behind: LogGap | None = None
    try:
        tail = log.tail() if tail is None else tail
    except LogGap as why:
        if damage is Damage.FAIL:
            raise
        behind, tail = why, int(str(why.fields["newest"]))
    walked = walk(log, tail, newest)
    standing = replay(walked, log.path)
    problems: list[CheckpointError] = [error for slot, error in standing.problems if slot > standing.restored_at]
    if behind is not None:
        problems.insert(0, behind)
    elif walked.missing:
        problems.insert(0, gap(list(walked.missing), log.path(walked.missing[0])))
    last = next((entry for _, entry in reversed(walked.found) if not isinstance(entry, Damaged)), None)
    saves = Saves(log, {**_saves_before(log, walked), **standing.saves})
    commit = _resolve(log, standing, saves, problems)
    fixed = standing.decided.partitions if isinstance(standing.decided, Restore) else None
    # A Restore that fixes the partitions makes up for a Takeover that cannot be read any more.
    committed_by = takeover_of(log, commit, problems if fixed is None else [])
    used = -1 if standing.used is None else standing.used
    return Recovered(
        log=log,
        tail=walked.tail,
        last_takeover=takeover_of(log, last, problems),
        commit=commit,
        committed_by=committed_by,
        pending=standing.pending,
        next_batch=standing.pending.batch if standing.pending else used + 1,
        last_published_commit=standing.redo,
        partitions=fixed if fixed is not None else _partitions(log, commit, committed_by),
        restores=tuple(standing.restores),
        kept=tuple(kept for kept in standing.commits if kept.batch >= walked.floor),
        floor=walked.floor,
        saves=saves,
        damaged=tuple(standing.damaged),
        problems=tuple(problems),
        used=used,
        time=standing.time,
        published=standing.published,
        held=HeldCommits(log, standing),
        commands=standing.commands,
        decided=standing.decided,
        compaction=None if walked.base is None else walked.base.placed.slot,
        skipped=standing.skipped,
    )


def find_restorable(recovered: Recovered, *, batch: int | None = None, saved: str | None = None) -> Commit:
    """Return the Commit that a Restore to a batch or a named checkpoint would bring back.

    Raises `CannotRestore`, with what is `available`, for a batch below the floor or never committed.
    Ask after `confirm`: before it a running driver may still raise the floor.
    """
    if saved is not None:
        missing = f"checkpoint {saved!r} was never saved"
        if saved in recovered.saves:
            try:
                return recovered.saves[saved]
            except CheckpointCorrupt as error:
                missing = f"checkpoint {saved!r} cannot be read: {error.what} ({error.where})"
    else:
        for kept in recovered.kept:
            if kept.batch == batch:
                return kept
        if recovered.commit is not None and recovered.commit.batch == batch:
            return recovered.commit  # a restore has brought it back, and no kept slot has it
        missing = f"batch {batch} is not kept"
    batches = [kept.batch for kept in recovered.kept]
    span = f"batches {batches[0]} to {batches[-1]}" if batches else "no batch"
    problem = f"{missing}; available: {span}, saved {sorted(recovered.saves)}"
    raise CannotRestore(problem, batches=batches, saved=sorted(recovered.saves))


def _saves_before(log: Log, walked: Walk) -> dict[str, SavedRef]:
    """Return the names that stand before the first Compaction, which the walk may not have come by."""
    if walked.base is not None:
        return {}
    entries = (entry for _, entry in reversed(walked.found) if not isinstance(entry, Damaged))
    last = next((entry for entry in entries if entry.placed.compaction is None), None)
    saves: dict[str, SavedRef] = {}
    for name, slot in ({} if last is None else place_after(last).saves).items():
        saves[name] = SavedRef(slot=slot, batch=UNKNOWN, time=0)
        with suppress(CheckpointCorrupt):
            saves[name] = saved_ref(slot, read_save(log, slot, name))
    return saves


def _resolve(log: Log, standing: Standing, saves: Saves, problems: list[CheckpointError]) -> Commit | None:
    """Return the Commit that is in force, following a Restore to what it names."""
    decided = standing.decided
    if not isinstance(decided, Restore):
        return decided
    if decided.commit is not None:
        return decided.commit
    if decided.source == "batch":
        commits = [kept for kept in standing.commits if kept.batch == decided.batch]
        if commits:
            return commits[-1]
        path = log.path(standing.restored_at)
        problems.append(corrupt(path, f"a Restore to batch {decided.batch}, which is not there"))
    elif decided.source == "saved":
        try:
            name = decided.saved or ""
            slot = decided.placed.saves.get(name)
            if slot is None and standing.saved_then is not None:
                slot = standing.saved_then.slot
            return saves[name] if slot is None else read_save(log, slot, name)
        except KeyError:
            problems.append(corrupt(log.path(standing.restored_at), f"a Restore to {decided.saved!r}, never saved"))
        except CheckpointCorrupt as error:
            problems.append(error)
    return None


def partitions_of(log: Log, commit: Commit) -> Mapping[str, int] | None:
    """Return the partitions of the steps when a Commit was written, None where no entry that can be read tells them."""
    return _partitions(log, commit, takeover_of(log, commit))


def _partitions(log: Log, commit: Commit | None, takeover: Takeover | None) -> Mapping[str, int] | None:
    if takeover is not None or commit is None:
        return None if takeover is None else takeover.partitions
    lost, back_to = 0, None
    for slot in range(commit.placed.slot - 1, -1, -1):
        try:
            entry = log.read(slot)
        except (NotFound, CheckpointCorrupt):
            lost += back_to is None
            if lost > _FEWER_THAN_A_RESTORE:
                return None
            continue
        if back_to is not None:
            if isinstance(entry, Commit) and entry.batch == back_to:
                return partitions_of(log, entry)
        elif isinstance(entry, Offsets):  # which fix what a batch is run with
            partitions = entry.settings.get("partitions")
            return {step: int(str(n)) for step, n in partitions.items()} if isinstance(partitions, dict) else None
        elif isinstance(entry, Takeover):
            return entry.partitions
        elif isinstance(entry, Restore):
            if entry.partitions or entry.source != "batch":
                return entry.partitions
            back_to = entry.batch  # with the partitions that it had
    return None


def takeover_of(log: Log, entry: Entry | None, problems: list[CheckpointError] | None = None) -> Takeover | None:
    """Return the Takeover under which an entry was written, of a Takeover itself; None where it cannot be read.

    Why it cannot is added to the problems.
    """
    problems = [] if problems is None else problems
    if entry is None or isinstance(entry, Takeover):
        return entry
    place = entry.placed
    if place.takeover is None:
        problems.append(corrupt(log.path(max(place.slot, 0)), f"a {entry.kind} entry that names no Takeover"))
        return None
    try:
        return read_takeover(log, place.takeover, entry.epoch, entry.writer)
    except CheckpointCorrupt as error:
        problems.append(error)
        return None


@dataclass(frozen=True, slots=True)
class Lineage:
    """The predecessor of each kept batch; a batch is there once, so a log of n entries costs n."""

    newest: int | None
    before: dict[int, int | None]

    def line(self, batch: int | None) -> frozenset[int]:
        """Return a batch and all kept batches before it in its line."""
        line = set()
        while batch is not None and batch in self.before:
            line.add(batch)
            batch = self.before[batch]
        return frozenset(line)


def lineage(
    recovered: Recovered,
    restores: Iterable[Restore] | None = None,
    target: Callable[[Restore], int | None] = lambda entry: entry.batch,
) -> Lineage:
    """Read the lines of what the log keeps; `restores` are those to follow, all where not given."""
    followed = recovered.restores if restores is None else restores
    events: list[Commit | Restore] = [*recovered.kept, *followed]
    newest: int | None = None
    before: dict[int, int | None] = {}
    for entry in sorted(events, key=lambda event: event.placed.slot):
        if isinstance(entry, Commit):
            before[entry.batch], newest = newest, entry.batch
        else:
            batch = target(entry)
            newest = batch if batch in before else None
    return Lineage(newest, before)


def line_of(recovered: Recovered) -> frozenset[int]:
    """Return the batch in force and the kept batches before it in its line, without those that a restore has undone."""
    history = lineage(recovered)
    return history.line(history.newest)

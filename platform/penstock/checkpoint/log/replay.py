"""Replay the entries of a log to the state of its job: a state machine over values, without a store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from penstock.checkpoint.log.entries import (
    Commit,
    Compaction,
    Entry,
    HeldRef,
    Moved,
    Offsets,
    Release,
    Restore,
    Save,
    SavedRef,
    Skip,
    Takeover,
    Unsave,
    Void,
    saved_ref,
)
from penstock.checkpoint.log.scan import Damaged, Walk
from penstock.checkpoint.storage.store import corrupt
from penstock.errors import CheckpointCorrupt

_GIVEN_UP = {"offsets", "takeover", "release", "void", "save", "unsave", "skip"}
"""Kinds that decide nothing of the stream. A lost Save costs a name, which is reported, and no more; after a lost Skip
the next start asks a second time."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An entry that cannot be read, whether it may have begun a batch, and why it must not be given up."""

    entry: Damaged
    begins: bool
    decides: str | None


@dataclass(slots=True)
class Standing:
    """The state of a job after the entries applied so far.

    `decided` is the Commit or Restore that gives the state, None before the first. `saved_then` is what a name meant
    when a Restore to it was written. `redo` is the Commit to publish a second time, and `published` what the Release
    after it says of each sink. `skipped` are the batches that sinks leave out.
    `used` is the highest batch id that was or may have been used, `time` the latest batch time; None while no entry
    has one.
    `saves`, `held` and `commands` are as in a Compaction, of the entries since the walk began.
    `problems` are breaches of the protocol, with their slots.
    """

    path_of: Callable[[int], str]
    used: int | None = None
    time: int | None = None
    decided: Commit | Restore | None = None
    restored_at: int = -1
    saved_then: SavedRef | None = None
    pending: Offsets | None = None
    redo: Commit | None = None
    published: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, set[int]] = field(default_factory=dict)
    restores: list[Restore] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    saves: dict[str, SavedRef] = field(default_factory=dict)
    held: dict[int, HeldRef] = field(default_factory=dict)
    commands: dict[str, int] = field(default_factory=dict)
    damaged: list[Damaged] = field(default_factory=list)
    problems: list[tuple[int, CheckpointCorrupt]] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _owner: tuple[int, str] | None = None
    _epoch: int = 0
    _released: bool = False
    _fresh: bool = False
    """Whether the owner has written nothing but Voids: only then may a Restore follow."""

    def begin(self, base: Compaction, named: Mapping[int, Entry | Damaged | None]) -> None:
        """Begin with the state in a Compaction; `named` are the entries that it names."""
        entries: dict[int, Entry] = {}
        for slot, entry in named.items():
            if entry is None or isinstance(entry, Damaged):
                why = "it is missing" if entry is None else entry.reason
                self._problem(slot, f"{why}; the Compaction of epoch {base.epoch} names it")
            else:
                entries[slot] = entry
        self.used, self.time, self.published = base.used, base.time, dict(base.published)
        self.skipped = {sink: set(batches) for sink, batches in base.skipped.items()}
        self.saves, self.commands = dict(base.saves), dict(base.commands)
        self.held = {int(batch): ref for batch, ref in base.held.items()}
        decided = entries.get(-1 if base.decided is None else base.decided)
        pending = entries.get(-1 if base.pending is None else base.pending)
        redo = entries.get(-1 if base.redo is None else base.redo)
        self.decided = decided if isinstance(decided, Commit | Restore) else None
        self.restored_at = base.decided if isinstance(decided, Restore) and base.decided is not None else -1
        self.pending = pending if isinstance(pending, Offsets) else None
        self.redo = redo if isinstance(redo, Commit) else None
        commits = (entries.get(slot) for slot in base.kept)
        self.commits = [entry for entry in commits if isinstance(entry, Commit)]
        restores = (entries.get(slot) for slot in base.restores)
        self.restores = [entry for entry in restores if isinstance(entry, Restore)]

    def apply(self, slot: int, entry: Entry | Damaged) -> None:
        """Take the next entry in."""
        if isinstance(entry, Damaged):
            if entry.kind != "compaction":  # which decided nothing: the walk has continued to the one before
                self._lose(entry)
            return
        self._check_owner(slot, entry)
        if isinstance(entry, Offsets | Commit | Save | Unsave | Compaction | Skip):
            self._close("the log went on after it")
        self._fresh = isinstance(entry, Takeover) or (self._fresh and isinstance(entry, Void))
        match entry:
            case Offsets():
                self._offsets(slot, entry)
            case Commit():
                self._commit(slot, entry)
            case Restore():
                self._restore(slot, entry)
            case Void() if entry.batch is not None:
                self.used = max(self._last_used(), entry.batch)
            case Release():
                self.published = entry.published
            case Save():
                self.saves[entry.name] = saved_ref(slot, entry.commit)
            case Unsave():
                self.saves.pop(entry.name, None)
            case Skip():
                self.skipped.setdefault(entry.sink, set()).update(entry.batches)

    def finish(self) -> None:
        """Judge what is damaged at the end of the log (F13)."""
        for lost in self._open:
            entry = lost.entry
            self.used = self._last_used() + lost.begins
            if lost.decides is not None:
                self._problem(entry.slot, f"{entry.reason}; {lost.decides}")
            else:
                self.damaged.append(replace(entry, batch=self.used if lost.begins else None))
        self._open.clear()

    def _lose(self, entry: Damaged) -> None:
        """Take in an entry that cannot be read: what it may have been decides how careful a start is."""
        before = {lost.entry.kind for lost in self._open}
        # After Offsets comes their Commit or an entry that begins no batch, unless an unreadable entry came between.
        unknown = entry.kind is None and (self.pending is None or bool(self._open))
        self._open.append(_Open(entry, unknown or entry.kind == "offsets", self._decides(entry.kind, before)))
        if entry.kind in {"save", "unsave"}:
            return
        self._owner, self._released = None, False  # it may have been a Takeover
        self._fresh = entry.kind in {None, "takeover"} or (self._fresh and entry.kind == "void")

    def _decides(self, kind: str | None, before: set[str | None]) -> str | None:
        """Return what a lost entry decided, or may have decided, which forbids a start without it."""
        if kind is not None:
            return None if kind in _GIVEN_UP else f"it was a {kind} entry"
        if self.pending is not None:
            return f"it may be the Commit of batch {self.pending.batch}"
        if before & {None, "offsets"}:
            return "it may be the Commit of a batch whose Offsets cannot be read either"
        return "it may be a Restore" if self._fresh else None

    def _pass(self, time: int) -> None:
        self.time = time if self.time is None else max(self.time, time)

    def _last_used(self) -> int:
        return -1 if self.used is None else self.used

    def _problem(self, slot: int, reason: str) -> None:
        self.problems.append((slot, corrupt(self.path_of(slot), reason)))

    def _close(self, why: str) -> None:
        for lost in self._open:
            if lost.entry.kind not in {"save", "unsave"}:
                self._problem(lost.entry.slot, f"{lost.entry.reason}; {why}")
            self.used = self._last_used() + lost.begins  # no id is used twice
        self._open.clear()

    def _check_owner(self, slot: int, entry: Entry) -> None:
        who = (entry.epoch, entry.writer)
        if isinstance(entry, Takeover):
            if entry.epoch <= self._epoch:
                self._problem(slot, f"epoch {entry.epoch} takes over after epoch {self._epoch}")
            self._released = False
        elif self._released:
            self._problem(slot, f"a {entry.kind} entry after the log was released")
        elif self._owner is not None and who != self._owner:
            self._problem(slot, f"a {entry.kind} entry of epoch {who[0]} while epoch {self._owner[0]} held the log")
        self._owner, self._epoch = who, max(self._epoch, entry.epoch)
        self._released = isinstance(entry, Release | Moved)

    def _restore(self, slot: int, entry: Restore) -> None:
        self._close("a Restore made up for it")
        if entry.source == "import" and entry.commit is not None:
            # Ids and times continue from those of the original checkpoint.
            self.used = max(self._last_used(), entry.commit.batch)
            self._pass(entry.commit.time)
        for batch, ref in self.held.items():
            inside = entry.batch is not None and entry.batch >= batch and not bisect_right(ref.out, entry.batch) % 2
            if inside == bool(len(ref.out) % 2):
                self.held[batch] = HeldRef(slot=ref.slot, out=[*ref.out, self._last_used() + 1])
        if entry.command is not None:
            self.commands.pop(entry.command, None)
            self.commands[entry.command] = slot
        self.saved_then = self.saves.get(entry.saved or "")
        self.decided, self.restored_at = entry, slot
        self.pending = self.redo = None
        self.restores.append(entry)

    def _offsets(self, slot: int, entry: Offsets) -> None:
        fresh = self.used is not None and isinstance(self.decided, Restore) and entry.batch > self.used
        if self.pending is not None:
            self._problem(slot, f"Offsets of batch {entry.batch} while batch {self.pending.batch} has no Commit")
        elif self.used is not None and entry.batch != self.used + 1 and not fresh:
            self._problem(slot, f"Offsets of batch {entry.batch} after batch {self.used}")
        self.pending, self.used = entry, max(self._last_used(), entry.batch)
        self._pass(entry.time)

    def _commit(self, slot: int, entry: Commit) -> None:
        if self.pending is None or self.pending.batch != entry.batch:
            self._problem(slot, f"a Commit of batch {entry.batch} without its Offsets")
        self.pending, self.used = None, max(self._last_used(), entry.batch)
        self.decided = self.redo = entry
        self.published = {}
        self._pass(entry.time)
        self.commits.append(entry)
        if entry.held:
            self.held[entry.batch] = HeldRef(slot=slot)


def replay(walked: Walk, path_of: Callable[[int], str]) -> Standing:
    """Apply every entry of a walk, in the order of the log."""
    standing = Standing(path_of, used=-1 if walked.from_start else None)
    if walked.base is not None:
        standing.begin(walked.base, walked.named)
    for slot, entry in walked.found:
        standing.apply(slot, entry)
    standing.finish()
    return standing

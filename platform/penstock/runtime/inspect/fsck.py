"""Read all that a job can restore, and say what is not as it was written; nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.log.entries import Commit, Void
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import PATH as METADATA
from penstock.checkpoint.log.metadata import read_metadata, refuse_other
from penstock.checkpoint.log.recovery import Damage, Recovered, line_of, recover, takeover_of
from penstock.checkpoint.log.takeover import refuse_ended, survey
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMoved,
    LogGap,
    MetadataDamaged,
    MetadataMissing,
    NotFound,
    PenstockError,
    RootUnsafe,
    StateMissing,
    StorageDenied,
)
from penstock.runtime.inspect.fsck_blocks import LeftBlocks, verify_blocks
from penstock.runtime.inspect.fsck_output import verify_manifests, verify_output
from penstock.runtime.snapshots.catalog import snapshot_problems, snapshots_of, unreadable_tables
from penstock.state.manifest import Manifest, ManifestRef
from penstock.state.references import Piece
from penstock.state.section_reader import forget, open_section

__all__ = ["Finding", "Verified", "error_of", "verify"]

_NAMED = 5
"""The kept batches, and the snapshots, that a way back names."""
_NOT_READ = (RootUnsafe, StorageDenied)
"""What keeps a file from being read that may be whole."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold one thing that is not as it was written, and what that means for the job.

    `error` is what a command that finds it ends with, because its remedy works.
    """

    what: str
    means: str
    error: type[CheckpointError] = CheckpointCorrupt

    @classmethod
    def of(cls, error: PenstockError, means: str, ends: type[CheckpointError] = CheckpointCorrupt) -> Finding:
        """Return what an error tells, with its place; `ends` is the finding's own `error`."""
        return cls(_said(error), means, ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Say what was read, and what is wrong: batches that can be restored, files and bytes of their state.

    Attributes:
        blocks: Blocks of receivers that a batch may still read.
        unneeded: Blocks that none reads any more, until the next sweep.
        left: What receivers of sources have left that no kept batch has.
    """

    batches: int
    files: int
    size: int
    findings: tuple[Finding, ...]
    blocks: int = 0
    unneeded: int = 0
    left: tuple[LeftBlocks, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        findings = [{"what": finding.what, "means": finding.means} for finding in self.findings]
        return {
            "batches": self.batches,
            "files": self.files,
            "bytes": self.size,
            "blocks": self.blocks,
            "unneeded_blocks": self.unneeded,
            "left_blocks": [{"folder": left.folder, "blocks": left.blocks, "bytes": left.size} for left in self.left],
            "problems": findings,
        }


def error_of(damaged: Iterable[Verified], what: str, where: str) -> CheckpointError:
    """Return the error for checkpoints with findings: that of their first findings, if it is one for all.

    The finding of the identity comes first in each, because no restore goes past it.
    """
    kinds = {verified.findings[0].error for verified in damaged}
    kind = kinds.pop() if len(kinds) == 1 else CheckpointCorrupt
    return kind(what, where=where)


def verify(log: Log, folder: CheckpointFolder) -> Verified:
    """Read a job's metadata, every entry of its log, and every byte of state and blocks that its kept batches name.

    `folder` is the job's checkpoint. The job may run meanwhile: what it drops while it is read is not missed.
    Raises what recovery raises for a log that no driver can resume.
    """
    before = recover(log, Damage.LIST)
    commits = [*before.kept, *before.saves.readable().values()]
    if before.commit is not None and before.commit not in commits:
        commits.append(before.commit)  # a Restore may hold one of its own, of a batch that is kept as well
    read: dict[CheckpointFolder, int] = {}
    seen: set[tuple[CheckpointFolder, Piece]] = set()
    states: list[tuple[int, str]] = []
    for commit in sorted(commits, key=lambda commit: commit.batch):
        batch = commit.batch
        states += [(batch, f"batch {batch}: {problem}") for problem in _problems(folder, commit, read, seen)]
    states = list(dict.fromkeys(states))
    if states:
        after = recover(log, Damage.LIST)
        still = {kept.batch for kept in after.kept} | {*after.saves.batches.values()}
        states = [(batch, problem) for batch, problem in states if batch in still or batch >= after.floor]
    blocks = verify_blocks(log.store, before, again=lambda: recover(log, Damage.LIST))
    back = _way_back(before, folder, damaged={batch for batch, _ in states})
    return Verified(
        batches=len(before.kept),
        files=len(read),
        size=sum(read.values()) + blocks.size,
        blocks=blocks.blocks,
        unneeded=blocks.unneeded,
        left=blocks.left,
        findings=(
            *_metadata(log, before),
            *_of_log(before, back),
            *_of_state(before, states, back),
            *(Finding(what, means) for what, means in blocks.problems),
            *(Finding(what, means) for what, means in verify_output(folder, before)),
            *(Finding(what, means) for what, means in verify_manifests(before)),
            *_of_snapshots(folder),
        ),
    )


def _metadata(log: Log, recovered: Recovered) -> Iterator[Finding]:
    """Yield what is wrong with the checkpoint's identity."""
    means = "no driver starts: sinks know the checkpoint by its uuid; put the file back from a copy"
    try:
        uuid, takeover = read_metadata(log.store).uuid, takeover_of(log, recovered.commit)
        refuse_other(None if takeover is None else takeover.checkpoint, uuid)
    except NotFound:
        yield Finding(f"there is no {METADATA}", means, MetadataMissing)
    except MetadataDamaged as why:
        yield Finding.of(why, means, MetadataDamaged)


def _of_log(recovered: Recovered, back: str) -> Iterator[Finding]:
    """Yield what is wrong with the log: gaps, breaches of the protocol, entries that nobody has given up."""
    for problem in recovered.problems:
        yield Finding.of(problem, f"the job does not start; {back}")
    places = {problem.where for problem in recovered.problems}  # which says more than that it cannot be read
    at_end = {damaged.slot for damaged in recovered.damaged}
    lost = f"the next start abandons it, if no sink shows that it was a batch; else {back}"
    for slot, what in _entries(recovered.log):
        if slot in at_end:
            yield Finding(what, lost)
        elif recovered.log.path(slot) not in places:
            yield Finding(what, "nothing needs it, or a later restore supersedes it: it stops no job")
    for name, why in recovered.saves.lost().items():
        yield Finding(f"saved as {name}: {why}", "it cannot be restored, and no file of state is deleted any more")


def _of_state(recovered: Recovered, states: list[tuple[int, str]], back: str) -> Iterator[Finding]:
    """Yield what is wrong with the state of batches."""
    force = None if recovered.commit is None else recovered.commit.batch
    for batch, what in states:
        names = [name for name, saved in recovered.saves.batches.items() if saved == batch]
        if batch == force:
            means = f"the job stops when it reads it; {back}"
        else:
            also = f", saved as {', '.join(names)}" if names else ""
            means = f"batch {batch}{also} cannot be restored; the job continues"
        yield Finding(what, means)


def _of_snapshots(folder: CheckpointFolder) -> Iterator[Finding]:
    """Yield what is wrong with the data checkpoints that are kept."""
    try:
        damaged, unreadable = list(snapshot_problems(folder)), list(unreadable_tables(folder))
    except _NOT_READ as why:
        yield Finding.of(why, f"no data checkpoint can be restored or added. {why.remedy}")
        return
    for name, problem in damaged:
        means = f"snapshot={name} cannot be restored; the job needs it for nothing else"
        yield Finding(f"snapshot {name}: {problem}", means)
    for table, problem in unreadable:
        means = (
            "its snapshots can be restored all the same, but other programs get an error or wrong rows of that version "
            "and no data checkpoint may be added: "
            f"put the file back from a copy, or remove {table}, which the next one creates again"
        )
        yield Finding(problem, means)


def _said(error: PenstockError) -> str:
    return f"{error.what} ({error.where})" if error.where else error.what


def _entries(log: Log) -> Iterator[tuple[int, str]]:
    """Yield slots of entries that cannot be read and that nobody has given up, with what is wrong."""
    bad: dict[int, str] = {}
    given_up: set[int] = set()
    for slot in log.slots.listed():
        try:
            entry = log.read(slot)
        except NotFound:
            continue  # purged since it was listed
        except CheckpointCorrupt as why:
            bad[slot] = _said(why)
            continue
        if isinstance(entry, Void):
            given_up.add(entry.slot)
    yield from ((slot, what) for slot, what in bad.items() if slot not in given_up)


def _problems(
    folder: CheckpointFolder,
    commit: Commit,
    read: dict[CheckpointFolder, int],
    seen: set[tuple[CheckpointFolder, Piece]],
) -> Iterator[str]:
    for step, refs in commit.state.items():
        for partition, ref in refs.items():
            place = folder / "state" / step / partition
            try:
                manifest = Manifest.read(place / ref.path, ManifestRef(ref.path, ref.size, ref.checksum))
                read[place / ref.path] = ref.size
                _read_segments(place, manifest, seen)
                read |= {place / name: size for name, size in manifest.sizes.items()}
            except (CheckpointCorrupt, StateMissing, *_NOT_READ) as why:
                yield _said(why)
            finally:
                forget()


def _read_segments(place: CheckpointFolder, manifest: Manifest, seen: set[tuple[CheckpointFolder, Piece]]) -> None:
    for chain in manifest.chains.values():
        for piece in (piece for run in chain for piece in run.pieces):
            if (place, piece) in seen:
                continue
            section = open_section(place, piece, manifest.sizes[piece.file])
            for number in range(len(section.firsts)):
                section.block(number)
            seen.add((place, piece))


def _way_back(recovered: Recovered, folder: CheckpointFolder, *, damaged: Collection[int]) -> str:
    """Return in words what can be restored; `damaged` are batches whose state is not whole.

    Kept batches in the line that is in force, or else any that are kept; saved ones, and data checkpoints.
    """
    try:
        refuse_ended(recovered.log, survey(recovered.log))
    except CheckpointMoved as why:
        return why.what
    except LogGap:
        pass  # which a restore makes up for
    kept = [commit.batch for commit in recovered.kept if commit.batch not in damaged]
    line = line_of(recovered)
    batches = [str(batch) for batch in kept if batch in line] or [str(batch) for batch in kept]
    names = [name for name, commit in recovered.saves.readable().items() if commit.batch not in damaged]
    whole = []
    with suppress(*_NOT_READ):
        bad = {name for name, _ in snapshot_problems(folder)}
        whole = [min(snapshot.names) for snapshot in snapshots_of(folder) if bad.isdisjoint(snapshot.names)]
    ways = [f"--from batch=N to one of {', '.join(batches[-_NAMED:])}"] if batches else []
    ways += [f"--from saved=NAME to {', '.join(names)}"] if names else []
    ways += [f"--from snapshot=STEP@VERSION to {', '.join(whole[-_NAMED:])}"] if whole else []
    if not ways:
        return "nothing is whole: begin anew with --from empty, or put the files back from a copy"
    return f"restore with {', or '.join(ways)}"

"""Read all that a job can go back to, and say what is not as it was written; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.entries import Commit, Void
from penstock.checkpoint.log import Log
from penstock.checkpoint.recovery import Damage, recover
from penstock.errors import CheckpointCorrupt, NotFound, PenstockError, StateMissing
from penstock.state import Manifest
from penstock.state.manifest import ManifestRef
from penstock.state.refs import Piece
from penstock.state.sections import forget, open_section

__all__ = ["Verified", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Say what was read: batches that can be restored, files and bytes of their state; `problems` by where they are."""

    batches: int
    files: int
    size: int
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"batches": self.batches, "files": self.files, "bytes": self.size, "problems": list(self.problems)}


def verify(log: Log, folder: Path) -> Verified:
    """Read every entry of a job's log, and every byte of the state that its kept batches name.

    `folder` is the job's checkpoint. The job may run meanwhile: what it lets go while it is read is not missed.
    Raises what recovery raises for a log that holds no way to go on.
    """
    before = recover(log, Damage.LIST)
    commits = {kept.batch: kept.commit for kept in before.kept}
    commits |= {commit.batch: commit for commit in before.saves.values()}
    if before.commit is not None:
        commits[before.commit.batch] = before.commit
    said = list(_entries(log))
    said += [one for one in map(_said, before.problems) if one not in said]
    said += [f"saved as {name}: {why}" for name, why in before.lost_saves.items()]
    read: dict[Path, int] = {}
    seen: set[tuple[Path, Piece]] = set()
    found: list[tuple[int, str]] = []
    for batch, commit in sorted(commits.items()):
        found += [(batch, f"batch {batch}: {problem}") for problem in _problems(folder, commit, read, seen)]
    if found:
        after = recover(log, Damage.LIST)
        still = {kept.batch for kept in after.kept} | {commit.batch for commit in after.saves.values()}
        found = [(batch, problem) for batch, problem in found if batch in still or batch >= after.floor]
    return Verified(
        batches=len(before.kept),
        files=len(read),
        size=sum(read.values()),
        problems=(*said, *(problem for _, problem in found)),
    )


def _said(error: PenstockError) -> str:
    return f"{error.what} ({error.where})" if error.where else error.what


def _entries(log: Log) -> Iterator[str]:
    """Yield what is wrong with entries that nobody has given up."""
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
    yield from (what for slot, what in bad.items() if slot not in given_up)


def _problems(folder: Path, commit: Commit, read: dict[Path, int], seen: set[tuple[Path, Piece]]) -> Iterator[str]:
    for step, refs in commit.state.items():
        for partition, ref in refs.items():
            place = folder / "state" / step / partition
            try:
                manifest = Manifest.read(place / ref.path, ManifestRef(ref.path, ref.size, ref.checksum))
                read[place / ref.path] = ref.size
                _read_segments(place, manifest, seen)
                read |= {place / name: size for name, size in manifest.sizes.items()}
            except (CheckpointCorrupt, StateMissing) as why:
                yield _said(why)
            finally:
                forget()


def _read_segments(place: Path, manifest: Manifest, seen: set[tuple[Path, Piece]]) -> None:
    for chain in manifest.chains.values():
        for piece in (piece for run in chain for piece in run.pieces):
            if (place, piece) in seen:
                continue
            section = open_section(place, piece, manifest.sizes[piece.file])
            for number in range(len(section.firsts)):
                section.block(number)
            seen.add((place, piece))

"""Take back what an app has published into a folder since a batch (SEMANTICS 10.1, decision 141).

    <folder>/_penstock/batches/<key of the app>/truncated/<slot of the Restore>

The record comes first: from then on the manifest passes over its batches, also those that a fenced driver adds later.
Then their files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import CannotTruncate
from penstock.sinks.base import Target
from penstock.sinks.files.folders import OutputFolder
from penstock.sinks.files.manifest import Manifest, Truncation, apps_of

__all__ = ["find_version", "put_back", "truncated"]


def find_version(folder: OutputFolder, target: Target) -> int | None:
    """Return how far rows are taken back, None where nothing is to be taken back.

    It is the target's batch, 0 where that is None. Raises CannotTruncate where files that the folder had at the target
    were deleted by a later restore.
    """
    since = False
    for manifest in _releases(folder, target, kept=True):  # of batches that the target has
        _refuse_deleted(manifest, target, last=None)
    for manifest, whole in _affected(folder, target):
        last = -1 if whole or target.batch is None else target.batch
        truncations = manifest.truncations()
        for batch, files in manifest.entries().items():
            since |= batch > last and bool(files) and not any(known.has(batch) for known in truncations)
        _refuse_deleted(manifest, target, last=last)
    return (target.batch or 0) if since else None


def truncated(folder: OutputFolder, app: str) -> int | None:
    """Return the slot of the newest Restore for which rows of the app were taken back."""
    return max((known.slot for known in Manifest(folder, app).truncations()), default=None)


def put_back(folder: OutputFolder, target: Target, *, slot: int, newest: int) -> bool:
    """Take back what followed a target, once for the Restore in `slot`; False where that was done before.

    `newest` is the highest batch that the log knew when it was read: a later one in the folder is a newer driver's, and
    a CannotTruncate.
    """
    at = truncated(folder, target.app)
    is_new = at is None or at < slot
    affected = list(_affected(folder, target))
    if is_new:
        seen = max(Manifest(folder, target.app).recent(), default=-1)
        if seen > newest:
            raise CannotTruncate(f"the folder has batch {seen} already, of a driver that came later", where=folder.root)
        for manifest, whole in affected:  # the app itself is the last, and says that all is noted
            after = -1 if whole or target.batch is None else target.batch
            is_new = manifest.truncate(Truncation(slot=slot, after=after, until=newest))
    for manifest, _ in affected:  # also where somebody has died before the files were deleted
        _delete(folder, manifest)
    return is_new


def _delete(folder: OutputFolder, manifest: Manifest) -> None:
    truncations = manifest.truncations()
    for batch, files in manifest.entries().items():
        if any(known.has(batch) for known in truncations):
            for file in files:
                folder.delete(str(file["path"]))


def _refuse_deleted(manifest: Manifest, target: Target, *, last: int | None) -> None:
    """Raise CannotTruncate where a later restore has deleted files of batches up to `last`, None for all."""
    truncations = manifest.truncations()
    for batch, files in manifest.entries().items():
        of = next((known for known in truncations if known.has(batch)), None)
        if of is not None and files and of.slot > target.slot and (last is None or batch <= last):
            problem = f"a later restore has taken batch {batch} back, and deleted its files"
            raise CannotTruncate(problem, where=manifest.folder.root)


def _affected(folder: OutputFolder, target: Target) -> Iterator[tuple[Manifest, bool]]:
    """Yield the releases of held batches that the target did not have, whole, and then the app itself."""
    for manifest in _releases(folder, target, kept=False):
        yield manifest, True
    yield Manifest(folder, target.app), False


def _releases(folder: OutputFolder, target: Target, *, kept: bool) -> Iterator[Manifest]:
    """Yield the releases of held batches that the target has, or of those that it has not."""
    held = f"{target.app}/held/"
    for app in apps_of(folder):
        number = app.removeprefix(held)
        if app.startswith(held) and number.isdecimal() and target.has(int(number)) is kept:
            yield Manifest(folder, app)

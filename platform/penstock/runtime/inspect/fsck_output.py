"""Verify what a checkpoint knows of output: staged files that no sink shows yet, and the manifests of folders.

Staged files are those of held batches, and of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.log.metadata import read_metadata
from penstock.checkpoint.log.recovery import Recovered, takeover_of
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import CheckpointCorrupt, PenstockError
from penstock.quality.held.decision_records import HeldRecords
from penstock.quality.held.release import waiting
from penstock.sinks.files.folders import output_folder
from penstock.sinks.files.manifest import Manifest
from penstock.sinks.staged_files import verify_staged

__all__ = ["verify_manifests", "verify_output"]


def verify_output(folder: CheckpointFolder, recovered: Recovered) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with such files of a job's checkpoint, and what that means.

    Files of the last batch that are not below the checkpoint are passed over: they may be in the folder of their table.
    """
    for batch in _held(folder, recovered):
        with suppress(CheckpointCorrupt):  # of the entry, which is found with the log
            commit = recovered.held[batch]
            takeover = takeover_of(recovered.log, commit)
            places = {} if takeover is None else takeover.sinks
            for sink, files in commit.held.items():
                means = f"held batch {batch} cannot be released: put the file back from a copy, or discard the batch"
                kept = folder / "staged" / sink
                for what in (*_damaged(kept, files), *_gone(kept, files, places.get(sink))):
                    yield f"batch {batch}: {what}", means
    last = recovered.last_published_commit
    for sink, files in ({} if last is None else last.staged).items():
        if last is not None and recovered.to_publish(sink) is not None:
            means = f"the next start stops if sink {sink} does not show batch {last.batch}: restore the batch before it"
            yield from ((f"batch {last.batch}: {what}", means) for what in _damaged(folder / "staged" / sink, files))


def verify_manifests(recovered: Recovered) -> Iterator[tuple[str, str]]:
    """Yield the files of batches that are gone from the manifests of folders that sinks wrote to, and what that means.

    A folder that does not answer, or that nobody may read, is passed over: its files may be whole.
    """
    takeover = takeover_of(recovered.log, recovered.commit)
    for sink, place in ({} if takeover is None else takeover.sinks).items():
        with suppress(PenstockError):
            manifest = Manifest(output_folder(place), f"{read_metadata(recovered.log.store).uuid}/{sink}")
            recent = manifest.recent()
            for batch in manifest.lost(manifest.named_by(recent[-1]), recent) if recent else ():
                means = "readers of the manifest get an error; the next batch for the sink writes the file again"
                path = manifest.folder.full(manifest.path(batch))
                yield f"batch {batch}: sink {sink} lacks a file of its manifest ({path})", means


def _held(folder: CheckpointFolder, recovered: Recovered) -> list[int]:
    """Return the held batches that wait; all, where the decisions cannot be read, or are not beside a copy."""
    with suppress(PenstockError):
        records = HeldRecords(control_store(folder.parent, make=False), folder.name)
        return list(waiting(records, recovered))
    return sorted(recovered.held)


def _gone(folder: CheckpointFolder, files: list[StagedFile], place: str | None) -> Iterator[str]:
    """Yield the held files that are neither below the checkpoint nor in the folder of their table.

    A Commit of before decision 56 has left them there. Where that cannot be asked, nothing is said.
    """
    if place is None or place.startswith("webhdfs://"):
        return
    for file in files:
        with suppress(PenstockError):
            kept = folder / file.path
            if kept.size() is None and not (place.startswith("/") and (LocalFolder(place) / file.path).size()):
                yield f"the staged file is gone ({kept})"


def _damaged(folder: CheckpointFolder, files: list[StagedFile]) -> Iterator[str]:
    for file in files:
        try:
            if (folder / file.path).size() is not None:
                verify_staged(folder, [file])
        except PenstockError as why:
            yield f"{why.what} ({why.where})" if why.where else why.what

"""Verify output that was staged below a checkpoint and that no sink shows yet: of held batches, and of the last one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.log.recovery import Recovered
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.errors import CheckpointCorrupt, PenstockError
from penstock.quality.held.decision_records import HeldRecords
from penstock.quality.held.release import waiting
from penstock.sinks.staged_files import verify_staged

__all__ = ["verify_output"]


def verify_output(folder: CheckpointFolder, recovered: Recovered) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with such files of a job's checkpoint, and what that means.

    Files that are not below the checkpoint are passed over: they may be in the folder of their table.
    """
    for batch in _held(folder, recovered):
        with suppress(CheckpointCorrupt):  # of the entry, which is found with the log
            for sink, files in recovered.held[batch].held.items():
                means = f"held batch {batch} cannot be released: put the file back from a copy, or discard the batch"
                yield from ((f"batch {batch}: {what}", means) for what in _damaged(folder / "staged" / sink, files))
    last = recovered.last_published_commit
    for sink, files in ({} if last is None else last.staged).items():
        if last is not None and recovered.to_publish(sink) is not None:
            means = f"the next start stops if sink {sink} does not show batch {last.batch}: restore the batch before it"
            yield from ((f"batch {last.batch}: {what}", means) for what in _damaged(folder / "staged" / sink, files))


def _held(folder: CheckpointFolder, recovered: Recovered) -> list[int]:
    """Return the held batches that wait; all, where the decisions cannot be read, or are not beside a copy."""
    with suppress(PenstockError):
        records = HeldRecords(control_store(folder.parent, make=False), folder.name)
        return list(waiting(records, recovered))
    return sorted(recovered.held)


def _damaged(folder: CheckpointFolder, files: list[StagedFile]) -> Iterator[str]:
    for file in files:
        try:
            if (folder / file.path).size() is not None:
                verify_staged(folder, [file])
        except PenstockError as why:
            yield f"{why.what} ({why.where})" if why.where else why.what

"""Keep the files of held batches below the checkpoint, where no VACUUM of a table looks (SEMANTICS 11.5, F71).

Tasks write the files of a Delta sink into the table's folder, and nobody knows before the verdict that they are held.
There they are named by no version of the table, and VACUUM removes what is older than the table's retention.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.sinks.staged_files import verify_staged

__all__ = ["bring_back", "keep_held", "verify_held"]


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

"""Keep the files of held batches below the checkpoint, where no VACUUM of a table looks (SEMANTICS 11.5, F71).

Tasks write the files of a Delta sink into the table's folder, and nobody knows before the verdict that they are held.
There they are named by no version of the table, and VACUUM removes what is older than the table's retention.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.log.entries import StagedFile
from penstock.checkpoint.storage.durable_files import make_folder, state_errors, sync_folder
from penstock.checkpoint.storage.filesystem import carry, have_file, size_of
from penstock.checkpoint.storage.hdfs_cache import is_on_hdfs
from penstock.errors import AlreadyExists
from penstock.sinks.staged_files import verify_staged

__all__ = ["bring_back", "keep_held", "verify_held"]


def keep_held(folder: Path, kept: Path, files: Sequence[StagedFile]) -> None:
    """Move files from the folder that tasks wrote them in to `kept`, below the checkpoint; durable on return.

    Called before a Commit names them; a driver that dies in between computes the batch again, under other names.
    """
    if folder == kept or not files:
        return
    for file in files:
        _copy(folder / file.path, kept / file.path, link=True)
    if not is_on_hdfs(kept):
        sync_folder(kept)
    for file in files:
        (folder / file.path).unlink(missing_ok=True)


def verify_held(folder: Path, kept: Path, files: Sequence[StagedFile]) -> None:
    """Raise CheckpointCorrupt where held files are not what their Commit says.

    Checkpoints that were written before files were moved have them in `folder`.
    """
    for file in files:
        verify_staged(kept if size_of(kept / file.path) is not None else folder, [file])


def bring_back(folder: Path, kept: Path, files: Sequence[StagedFile]) -> None:
    """Copy held files to the folder that a release publishes them from; durable on return.

    A copy, because it is young: VACUUM leaves it alone until the table names it.
    """
    if folder == kept:
        return
    for file in files:
        if size_of(kept / file.path) is not None:
            _copy(have_file(kept / file.path), folder / file.path, link=False)
    sync_folder(folder)


def _copy(source: Path, path: Path, *, link: bool) -> None:
    """Give a file a second name, or copy it where that is wanted or where the folders are on two file systems."""
    if is_on_hdfs(path):
        with suppress(AlreadyExists):
            carry(source, path)
        return
    make_folder(path.parent)
    with state_errors(path), suppress(FileExistsError):
        if link:
            with suppress(OSError):
                os.link(source, path)
                return
        temporary = path.parent / f".tmp-{secrets.token_hex(16)}"
        try:
            shutil.copyfile(source, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

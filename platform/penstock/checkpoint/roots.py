"""Open the folder that holds all jobs, and the log of one of them; imports nothing that is slow to load."""

from __future__ import annotations

from pathlib import Path

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import metadata_of_log
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import RootMissing

__all__ = ["REPORTED", "control_store", "is_there", "job_log", "reports_folder"]

REPORTED = "newest.json"
"""The file beside a job's reports that notes what the newest ones found."""


def control_store(root: CheckpointFolder, *, make: bool = True) -> CheckpointStore:
    """Return the store of the folder that holds all jobs; `make` it, for its user alone, if it is not there.

    Raises RootMissing where it is not there and is not to be made: by who only looks, or writes what others read.
    """
    try:
        return root.store(make=make)
    except RootMissing as why:
        raise RootMissing("there is no control root", where=str(root)) from why


def is_there(root: CheckpointFolder) -> bool:
    """Return whether the folder that holds all jobs is there."""
    try:
        control_store(root, make=False)
    except RootMissing:
        return False
    return True


def job_log(folder: CheckpointFolder, *, identified: bool = True) -> Log | None:
    """Return the log of a job's checkpoint, None where there is no checkpoint; makes nothing.

    Raises `MetadataMissing` and `CheckpointCorrupt` for a log whose checkpoint has lost its uuid (F17): by the uuid
    others know what became of its batches. Who needs the log alone asks for it without `identified`.
    """
    if (folder / "log").is_missing():
        return None
    try:
        log = Log(folder.store(make=False))
    except RootMissing:
        return None
    # The first slot is never purged. Where it has been removed, the others still tell of a job.
    if not (log.slots.exists(0) or log.slots.listed()):
        return None
    if identified:
        metadata_of_log(log.store)
    return log


def reports_folder(root: CheckpointFolder, job: str) -> Path:
    """Return the folder of a job's quality reports, which may not be there; `root` holds all jobs."""
    return root.here / "_reports" / job

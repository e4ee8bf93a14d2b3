"""Open the folder that holds all jobs, and the log of one of them; imports nothing that is slow to load."""

from __future__ import annotations

from pathlib import Path

from penstock.checkpoint.local import LocalStore
from penstock.checkpoint.log import Log
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import RootMissing

__all__ = ["control_store", "job_log", "reports_folder"]


def control_store(root: Path, *, make: bool = True) -> CheckpointStore:
    """Return the store of the folder that holds all jobs; `make` it, for its user alone, if it is not there.

    Raises RootMissing where it is not there and is not to be made: by who only looks, or writes what others read.
    """
    if not make and not root.is_dir():
        raise RootMissing("there is no control root", where=str(root))
    return LocalStore(root)


def job_log(folder: Path) -> Log | None:
    """Return the log of a job's checkpoint, None where there is no checkpoint; makes nothing."""
    return Log(LocalStore(folder)) if (folder / "log").is_dir() else None


def reports_folder(root: Path, job: str) -> Path:
    """Return the folder of a job's quality reports, which may not be there; `root` holds all jobs."""
    return root / "_reports" / job

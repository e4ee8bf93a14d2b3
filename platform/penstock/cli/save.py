"""Run `penstock save JOB NAME`: name the newest checkpoint, or delete a name, by the driver or in its place."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

from penstock.checkpoint.log.batch_report import shown_moment
from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.hdfs_cache import shown
from penstock.cli.outcome import outcome
from penstock.errors import CannotSave
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project
from penstock.supervise.control import StreamControl
from penstock.supervise.saving import save, unsave
from penstock.time.clock import SystemClock

__all__ = ["save_command"]


def save_command(job: str, name: str, *, delete: bool, json: bool, project: Path | None, debug: bool) -> None:
    """Print which batch the name stands for, or that it is deleted, once the log says so."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        if job_log(settings.root / job) is None:
            raise CannotSave(f"{job} has no checkpoint yet", where=shown(settings.root))
        control = StreamControl(settings.root, job, SystemClock())
        if delete:
            unsave(control, name, patience=settings.run.takeover_after.seconds)
            print(
                jsonlib.dumps({"job": job, "deleted": name}) if json else f"{job}: saved checkpoint {name} is deleted"
            )
            return
        commit = save(control, None, name, patience=settings.run.takeover_after.seconds)
        if json:
            print(jsonlib.dumps({"job": job, "saved": name, "batch": commit.batch}))
        else:
            print(f"{job}: batch {commit.batch} of {shown_moment(commit.time)} is saved as {name}")

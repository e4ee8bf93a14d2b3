"""Run `penstock fsck ROOT`: read every checkpoint below a root, without a project, Spark or the jobs' code."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

import typer

from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.filesystem import folders_in
from penstock.checkpoint.storage.hdfs_cache import root_of, shown, without_cache
from penstock.checkpoint.storage.store import corrupt
from penstock.cli.outcome import outcome
from penstock.errors import CheckpointError, RootMissing
from penstock.runtime.inspect.fsck import Finding, Verified, verify
from penstock.runtime.process.logging import configure_events

__all__ = ["fsck_command"]

_MIB = 2**20


def fsck_command(root: str, *, json: bool, debug: bool) -> None:
    """Print what is wrong with each job's checkpoint, and what that means; raises CheckpointCorrupt if anything is."""
    configure_events(json=False)
    with outcome(debug=debug):
        # What stands on HDFS is asked for, and not what is left of it here.
        with without_cache(root_of(root)) as folder:
            found = {job.name: _looked_at(job) for job in _jobs(folder)}
        if json:
            print(jsonlib.dumps({"root": root, "jobs": {job: one.to_json() for job, one in found.items()}}))
        else:
            for job, one in found.items():
                _show(job, one)
        if damaged := [job for job, one in found.items() if one.findings]:
            raise corrupt(root, f"damaged: {', '.join(damaged)}")


def _jobs(root: Path) -> list[Path]:
    """Return the folders of checkpoints below a root; a job's own folder is one as well."""
    if job_log(root) is not None:
        return [root]
    try:
        names = folders_in(root)
    except RootMissing:
        raise typer.BadParameter(f"there is no such folder: {shown(root)}", param_hint="ROOT") from None
    found = [root / name for name in names if job_log(root / name) is not None]
    if not found:
        raise typer.BadParameter(f"there is no checkpoint below it: {shown(root)}", param_hint="ROOT")
    return found


def _looked_at(folder: Path) -> Verified:
    log = job_log(folder)
    assert log is not None
    try:
        return verify(log, folder)
    except CheckpointError as why:  # there is no way to go on in this log, so nothing of it is shown
        finding = Finding.of(why, f"nothing of this checkpoint can be used as it is. {why.remedy}")
        return Verified(batches=0, files=0, size=0, findings=(finding,))


def _show(job: str, found: Verified) -> None:
    state = f"{found.batches:,} batches, {found.files:,} files of state, {found.size / _MIB:,.1f} MiB"
    print(f"{job}: {state}; {'not all' if found.findings else 'all'} is as it was written")
    for finding in found.findings:
        print(f"  {finding.what}\n    means: {finding.means}")

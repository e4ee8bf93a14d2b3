"""Run `penstock upkeep JOB`: verify the checkpoints that the job can restore, and delete what none of them needs."""

from __future__ import annotations

import json as jsonlib
import time
from pathlib import Path

from penstock.checkpoint.roots import job_log
from penstock.checkpoint.storage.hdfs_cache import shown, without_cache
from penstock.cli.outcome import outcome
from penstock.errors import CheckpointCorrupt
from penstock.runtime.driver.retention import sweep_left
from penstock.runtime.inspect.fsck import verify
from penstock.runtime.inspect.quality_report import sweep_reports
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import find_project

__all__ = ["upkeep_command"]

_MIB = 2**20


def upkeep_command(job: str, *, json: bool, project: Path | None, debug: bool) -> None:
    """Print what was read and swept; raises CheckpointCorrupt, and so exits 78, where something is damaged."""
    configure_events(json=False)
    with outcome(debug=debug):
        settings = find_project(given=project).settings(job)
        root = settings.root
        log = job_log(root / job)
        found = None
        if log is not None:
            with without_cache(root / job) as folder:
                found = verify(log, folder)
        swept = sweep_reports(root, job)
        if log is not None and found is not None and not found.problems:
            swept += sweep_left(root / job, log, keep=settings.checkpoint.keep, now=time.time())
        if json:
            said = found.to_json() if found is not None else {"batches": 0, "files": 0, "bytes": 0, "problems": []}
            print(jsonlib.dumps({"job": job, **said, "swept": swept}))
        elif found is None:
            print(f"{job} has no checkpoint yet")
        else:
            state = f"{found.files:,} files of state, {found.size / _MIB:,.1f} MiB"
            print(f"{job}: {found.batches:,} batches that can be restored, {state}; all was read")
            print(f"{swept:,} files that nothing needs any more were deleted")
            for finding in found.findings:
                print(f"damaged: {finding.what}\n         {finding.means}")
        if found is not None and found.problems:
            more = f", and {len(found.problems) - 1} more" if len(found.problems) > 1 else ""
            raise CheckpointCorrupt(f"{found.problems[0]}{more}", where=shown(root / job))

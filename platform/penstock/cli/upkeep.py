"""`penstock upkeep JOB`: verify what the job can restore, delete what nothing needs, and maintain its tables."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.cli.options import Debug, JobName, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, write_json

if TYPE_CHECKING:
    from penstock.checkpoint.log.log import Log
    from penstock.runtime.process.project import LoadedJob

__all__ = ["commands"]

commands = typer.Typer(rich_markup_mode=None)
_MIB = 2**20


@commands.command()
def upkeep(job: JobName, *, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Verify the checkpoints of a job, delete expired files, and maintain the tables of its sinks.

    The command verifies every entry of the log and every byte of state that a kept batch names. Damage ends it with
    exit code 78. Otherwise it deletes what drivers have left below the oldest kept batch. In the Delta tables that the
    job writes, it joins small files and deletes files that nothing needs. Left-overs of reports are deleted in any
    case. The job may run at the same time.

    \b
    Examples:
      penstock upkeep flights
    """  # noqa: D301 - click knows the character, not the two
    from penstock.checkpoint.roots import job_log
    from penstock.runtime.driver.retention import sweep_left
    from penstock.runtime.inspect.fsck import error_of, verify
    from penstock.runtime.inspect.quality_report import sweep_reports

    with outcome(debug=debug):
        settings = project_at(project).settings(job)
        root = settings.root
        log = job_log(root / job, identified=False)  # which is verified
        verified, swept = None, sweep_reports(root, job)
        if log is not None:
            with (root / job).uncached() as folder:
                verified = verify(log, folder)
            if not verified.findings:
                swept += sweep_left(root / job, log, keep=settings.checkpoint.keep, now=time.time())
        if json:
            nothing = {"batches": 0, "files": 0, "bytes": 0, "problems": []}
            write_json({"job": job, **(nothing if verified is None else verified.to_json()), "swept": swept})
        elif verified is None:
            print(f"{job} has no checkpoint yet")
        else:
            state = f"{verified.files:,} files of state, {verified.size / _MIB:,.1f} MiB"
            print(f"{job}: {verified.batches:,} batches that can be restored, {state}; all was read")
            print(f"{swept:,} files that nothing needs any more were deleted")
            for finding in verified.findings:
                print(f"damaged: {finding.what}\n         {finding.means}")
        if verified is not None and verified.findings:
            more = f", and {len(verified.findings) - 1} more" if len(verified.findings) > 1 else ""
            raise error_of([verified], f"{verified.findings[0].what}{more}", str(root / job))
        if log is not None:
            _maintain(project_at(project).load(job), log, json=json)


def _maintain(loaded: LoadedJob, log: Log, *, json: bool) -> None:
    from penstock.checkpoint.log.metadata import read_metadata
    from penstock.checkpoint.log.recovery import recover
    from penstock.runtime.restore.sink_upkeep import maintain_sinks

    name = loaded.job.name
    uuid = read_metadata((loaded.settings.root / name).store()).uuid
    for sink, done in maintain_sinks(loaded.job.graph(), recover(log), uuid, now=time.time()):
        if json:
            write_json({"job": name, "sink": sink, **asdict(done)})
        elif done.left_alone:
            print(f"{sink}: left alone, {done.left_alone}")
        else:
            joined = f"{done.joined:,} small files became {done.made:,}"
            print(f"{sink}: {joined}, {done.deleted:,} files deleted, {done.size / _MIB:,.1f} MiB")

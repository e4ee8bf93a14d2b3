"""Run `penstock fsck ROOT`: read every checkpoint below a root, without a project, Spark or the jobs' code."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Any

import typer

from penstock.checkpoint.store import corrupt
from penstock.cli.outcome import outcome
from penstock.errors import CheckpointError
from penstock.runtime.events import configure_events
from penstock.runtime.roots import job_log
from penstock.runtime.verify import Finding, verify

__all__ = ["fsck_command"]

_MIB = 2**20


def fsck_command(root: Path, *, json: bool, debug: bool) -> None:
    """Print what is wrong with each job's checkpoint, and what that means; raises CheckpointCorrupt if anything is."""
    configure_events(json=False)
    with outcome(debug=debug):
        jobs = _jobs(root)
        found = {folder.name: _looked_at(folder) for folder in jobs}
        damaged = [job for job, said in found.items() if said["problems"]]
        if json:
            print(jsonlib.dumps({"root": str(root), "jobs": found}))
        else:
            for job, said in found.items():
                _show(job, said)
        if damaged:
            raise corrupt(str(root), f"damaged: {', '.join(damaged)}")


def _jobs(root: Path) -> list[Path]:
    """Return the folders of checkpoints below a root; a job's own folder is one as well."""
    if job_log(root) is not None:
        return [root]
    found = sorted(path for path in root.iterdir() if (path / "log").is_dir()) if root.is_dir() else []
    if not found:
        said = "there is no checkpoint below it" if root.is_dir() else "there is no such folder"
        raise typer.BadParameter(f"{said}: {root}", param_hint="ROOT")
    return found


def _looked_at(folder: Path) -> dict[str, Any]:
    log = job_log(folder)
    assert log is not None
    try:
        return verify(log, folder).to_json()
    except CheckpointError as why:  # there is no way to go on in this log, so nothing of it is shown
        means = f"nothing of this checkpoint can be used as it is. {why.remedy}"
        one = Finding(f"{why.what} ({why.where})" if why.where else why.what, means)
        return {"batches": 0, "files": 0, "bytes": 0, "problems": [one.to_json()]}


def _show(job: str, said: dict[str, Any]) -> None:
    problems = said["problems"]
    state = f"{said['batches']:,} batches, {said['files']:,} files of state, {said['bytes'] / _MIB:,.1f} MiB"
    print(f"{job}: {state}; {'all is as it was written' if not problems else f'{len(problems)} things are not'}")
    for problem in problems:
        print(f"  {problem['what']}\n    means: {problem['means']}")

"""Run `penstock config check`: read every file of the configuration, and build every job with it."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.outcome import outcome
from penstock.config.notifications import load_events
from penstock.config.settings import checkpoint_root
from penstock.config.toml_reader import shown_path
from penstock.errors import ConfigError, PenstockError
from penstock.quality import load_suite
from penstock.quality.reports.suites import read_suite
from penstock.quality.suite_files import find_suites
from penstock.runtime.inspect.quality_report import targets_of
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import Project, find_project

__all__ = ["check_command"]


def check_command(*, json: bool, project: Path | None, debug: bool) -> None:
    """Print what is wrong, of all files and jobs, and end with 78 where something is."""
    configure_events(json=False)
    with outcome(debug=debug):
        found = find_project(given=project)
        checkpoint_root(found.root)  # what is wrong for all jobs is told once
        load_events(found.root)
        told = {job: list(_problems(found, job)) for job in found.job_names()}
        told |= {name: [said] for name, said in _without_module(found)}
        if json:
            print(jsonlib.dumps(told))
        else:
            for name, problems in told.items():
                print(f"{name}: {'ok' if not problems else 'not ok'}")
                for problem in problems:
                    print(f"  {problem}")
        bad = [name for name, problems in told.items() if problems]
        if bad:
            raise ConfigError(f"{', '.join(bad)} cannot run", where=shown_path(found.root / "conf"))


def _problems(project: Project, job: str) -> Iterator[str]:
    try:
        loaded = project.load(job)
        suites = find_suites(loaded.job.graph(), project.quality)
    except PenstockError as why:
        yield _said(why)
        return
    for name, suite in suites.items():
        try:
            load_suite(suite, where=f"check {name!r} of jobs/{job}.py")
        except PenstockError as why:
            yield _said(why)
    try:
        for target in targets_of(loaded).values():
            if target.check in loaded.settings.reports.suites:
                read_suite(target.suite, where=target.where)
    except PenstockError as why:
        yield _said(why)
    for name in loaded.conf.unused():
        yield f"[{name}] is asked for by nothing in jobs/{job}.py"


def _said(why: PenstockError) -> str:
    return f"{why.code} {why.what}" + (f" ({why.where})" if why.where else "")


def _without_module(project: Project) -> Iterator[tuple[str, str]]:
    for path in sorted((project.root / "conf" / "jobs").glob("*.toml")):
        if path.stem not in project.job_names():
            yield path.stem, f"there is no jobs/{path.stem}.py for {shown_path(path)}"

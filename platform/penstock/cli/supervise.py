"""Run `penstock supervise`."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import structlog

from penstock.cli.outcome import outcome
from penstock.errors import ConfigError
from penstock.runtime.config import checkpoint_root
from penstock.runtime.events import configure_events
from penstock.runtime.project import Project, find_project
from penstock.supervise.local import LocalLauncher
from penstock.supervise.policy import policy_of
from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import SystemClock

__all__ = ["supervise_command"]

log = structlog.get_logger()

_EVERY = 1.0
"""Seconds between two looks at the streams."""


def supervise_command(*, json: bool, project: Path | None, debug: bool) -> None:
    """Supervise the project's streams until a signal comes."""
    machine = json or not sys.stdout.isatty()
    configure_events(json=machine, narrated=not machine)
    with outcome(debug=debug):
        supervisors = _supervisors(find_project(given=project))
        asked = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: asked.set())
        while not asked.is_set():
            for supervisor in supervisors:
                supervisor.tick()
            asked.wait(_EVERY)
        for supervisor in supervisors:
            going = sorted(job for job, s in supervisor.streams().items() if s.driver is not None)
            supervisor.leave()
            log.info("supervisor.left", root=str(supervisor.root), go_on=going)


def _supervisors(project: Project) -> list[Supervisor]:
    """Return one supervisor for each control root that the project's jobs have."""
    roots = [checkpoint_root(project.root)]
    for job in project.job_names():
        try:
            roots.append(project.settings(job).root)
        except ConfigError as why:
            log.warning("supervisor.job_skipped", job=job, reason=str(why))
    launcher, clock = LocalLauncher(), SystemClock()
    return [
        Supervisor(
            root=root,
            project=project.root,
            launcher=launcher,
            policy=lambda job: policy_of(project.settings(job)),
            clock=clock,
        )
        for root in dict.fromkeys(roots)
    ]

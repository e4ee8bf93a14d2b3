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
from penstock.runtime.config_events import EventsSettings, load_events
from penstock.runtime.events import configure_events
from penstock.runtime.project import Project, find_project
from penstock.supervise.alerts import AlertPoster, Webhook
from penstock.supervise.assets import AirflowAssets, AssetPoster
from penstock.supervise.launcher import Launcher
from penstock.supervise.local import LocalLauncher
from penstock.supervise.policy import policy_of
from penstock.supervise.posting import Poster
from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import SystemClock

__all__ = ["supervise_command"]

log = structlog.get_logger()

_EVERY = 1.0
"""Seconds between two looks at the streams."""
_POST_EVERY = 5.0
"""Seconds between two looks at what was published: batches of one look share an event."""


def supervise_command(*, json: bool, project: Path | None, debug: bool) -> None:
    """Supervise the project's streams until a signal comes."""
    machine = json or not sys.stdout.isatty()
    configure_events(json=machine, narrated=not machine)
    with outcome(debug=debug):
        found = find_project(given=project)
        settings = load_events(found.root)
        supervisors = _supervisors(found, LocalLauncher(hidden=settings.variables()))
        asked = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: asked.set())
        _post_events(settings, supervisors, asked)
        while not asked.is_set():
            for supervisor in supervisors:
                supervisor.tick()
            asked.wait(_EVERY)
        for supervisor in supervisors:
            going = sorted(job for job, s in supervisor.streams().items() if s.driver is not None)
            supervisor.leave()
            log.info("supervisor.left", root=str(supervisor.root), go_on=going)


def _post_events(settings: EventsSettings, supervisors: list[Supervisor], asked: threading.Event) -> None:
    """Post what happens, where the project says whereto, in threads of their own: no stream waits for who listens."""
    posters: list[tuple[Supervisor, Poster]] = []
    for one in supervisors:
        if settings.webhook is not None:
            posters.append((one, AlertPoster(store=one.store, post=Webhook(settings.webhook))))
        if settings.airflow is not None:
            assets = AirflowAssets(settings.airflow)
            posters.append((one, AssetPoster(root=one.root, store=one.store, assets=assets)))

    def post(supervisor: Supervisor, poster: Poster) -> None:
        while not asked.wait(_POST_EVERY):
            if supervisor.leads:
                poster.look()

    for pair in posters:  # a thread for each: an Airflow that hangs delays no alert
        threading.Thread(target=post, args=pair, name="penstock-events", daemon=True).start()


def _supervisors(project: Project, launcher: Launcher) -> list[Supervisor]:
    """Return one supervisor for each control root that the project's jobs have."""
    roots = [checkpoint_root(project.root)]
    for job in project.job_names():
        try:
            roots.append(project.settings(job).root)
        except ConfigError as why:
            log.warning("supervisor.job_skipped", job=job, reason=str(why))
    clock = SystemClock()
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

"""Run `penstock supervise`."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import structlog

from penstock.cli.outcome import outcome
from penstock.errors import ConfigError, RootMissing
from penstock.runtime.config import checkpoint_root
from penstock.runtime.config_events import EventsSettings, load_events
from penstock.runtime.events import configure_events
from penstock.runtime.project import Project, find_project
from penstock.supervise.alerts import AlertPoster, Webhook
from penstock.supervise.assets import AirflowAssets, AssetPoster
from penstock.supervise.launcher import Launcher
from penstock.supervise.local import LocalLauncher
from penstock.supervise.machine import Policy
from penstock.supervise.policy import policy_of
from penstock.supervise.posting import Poster
from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import SystemClock

__all__ = ["supervise_command"]

log = structlog.get_logger()

_EVERY = 1.0
"""Seconds between two looks at the streams."""
_LOOK_EVERY = 10.0
"""Seconds between two looks at the configuration for roots that are new."""
_POST_EVERY = 5.0
"""Seconds between two looks at what was published: batches of one look share an event."""


def supervise_command(*, json: bool, project: Path | None, debug: bool) -> None:
    """Supervise the project's streams until a signal comes."""
    machine = json or not sys.stdout.isatty()
    configure_events(json=machine, narrated=not machine)
    with outcome(debug=debug):
        found = find_project(given=project)
        settings = load_events(found.root)
        asked = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: asked.set())
        supervisors: dict[Path, Supervisor] = {}
        launcher, looked = LocalLauncher(hidden=settings.variables()), -_LOOK_EVERY
        clock = SystemClock()
        while not asked.is_set():
            if clock.monotonic() - looked >= _LOOK_EVERY:
                looked = clock.monotonic()
                for new in _new_supervisors(found, supervisors, launcher, clock):
                    _post_events(settings, new, asked)
            for supervisor in supervisors.values():
                supervisor.tick()
            asked.wait(_EVERY)
        for supervisor in supervisors.values():
            going = sorted(job for job, s in supervisor.streams().items() if s.driver is not None)
            supervisor.leave()
            log.info("supervisor.left", root=str(supervisor.root), go_on=going)


def _post_events(settings: EventsSettings, supervisor: Supervisor, asked: threading.Event) -> None:
    """Post what happens, where the project says whereto, in threads of their own: no stream waits for who listens."""
    posters: list[Poster] = []
    if settings.webhook is not None:
        posters.append(AlertPoster(store=supervisor.store, post=Webhook(settings.webhook)))
    if settings.airflow is not None:
        assets = AirflowAssets(settings.airflow)
        posters.append(AssetPoster(root=supervisor.root, store=supervisor.store, assets=assets))

    def post(poster: Poster) -> None:
        while not asked.wait(_POST_EVERY):
            if supervisor.leads:
                poster.look()

    for poster in posters:  # a thread for each: an Airflow that hangs delays no alert
        threading.Thread(target=post, args=(poster,), name="penstock-events", daemon=True).start()


def _new_supervisors(
    project: Project, known: dict[Path, Supervisor], launcher: Launcher, clock: SystemClock
) -> list[Supervisor]:
    """Add a supervisor for each control root that is new; roots and files that cannot be read are tried again.

    Raises ConfigError and RootMissing where there is nothing to supervise at all.
    """
    before = set(known)
    try:
        for root in sorted(_roots(project) - before):
            known[root] = _supervisor(project, root, launcher, clock)
    except (ConfigError, RootMissing) as why:
        if not known:
            raise
        log.warning("supervisor.trouble", job=None, reason=str(why))
    return [known[root] for root in known.keys() - before]


def _roots(project: Project) -> set[Path]:
    """Return the control roots that the project's jobs have; a file that cannot be read is told by its job's commands.

    Asked again and again: jobs are added, and files mended, while a supervisor runs.
    """
    roots = {checkpoint_root(project.root)}
    for job in project.job_names():
        with suppress(ConfigError):
            roots.add(project.settings(job).root)
    return roots


def _supervisor(project: Project, root: Path, launcher: Launcher, clock: SystemClock) -> Supervisor:
    def policy(job: str, code: Path | None) -> Policy:
        return policy_of(Project(project.root, code).settings(job))

    return Supervisor(root=root, project=project.root, launcher=launcher, policy=policy, clock=clock)

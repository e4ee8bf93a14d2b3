"""Supervise a project: a supervisor for each control root, and those to whom events are posted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.config.notifications import EventsSettings, load_events
from penstock.config.settings import Settings, checkpoint_root
from penstock.errors import PenstockError
from penstock.runtime.process.project import Project
from penstock.supervise.events.alerts import AlertPoster, Webhook
from penstock.supervise.events.assets import AirflowAssets, AssetPoster
from penstock.supervise.events.poster import Poster
from penstock.supervise.launchers.local import LocalLauncher
from penstock.supervise.supervisor import Supervisor
from penstock.time.clock import SystemClock

__all__ = ["leave_all", "look_for_roots", "serve"]

log = structlog.get_logger()

_EVERY = 1.0
"""Seconds between two looks at the streams."""
_LOOK_EVERY = 10.0
"""Seconds between two looks at the configuration for roots that are new."""
_POST_EVERY = 5.0
"""Seconds between two looks at what was published: batches of one look share an event."""


def serve(project: Project) -> None:
    """Supervise the project's streams until SIGINT or SIGTERM comes."""
    settings = load_events(project.root)
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    supervisors: dict[CheckpointFolder, Supervisor] = {}
    troubles: dict[str, str] = {}
    launcher, looked = LocalLauncher(hidden=settings.variables()), -_LOOK_EVERY
    clock = SystemClock()

    def settings_of(job: str, code: Path | None) -> Settings:
        return Project(project.root, code).settings(job)

    def make(root: CheckpointFolder) -> Supervisor:
        return Supervisor(root=root, project=project.root, launcher=launcher, settings_of=settings_of, clock=clock)

    while not asked.is_set():
        if clock.monotonic() - looked >= _LOOK_EVERY:
            looked = clock.monotonic()
            for new in look_for_roots(project, supervisors, troubles, make):
                _post_events(settings, new, asked)
        for supervisor in supervisors.values():
            supervisor.tick()
        asked.wait(_EVERY)
    leave_all(supervisors.values())


def leave_all(supervisors: Iterable[Supervisor]) -> None:
    """Release the leases of all roots, then print which drivers keep running, and what cannot be written or read.

    A lease that stays is taken after a while by who stands by.
    """
    roots = list(supervisors)
    for supervisor in roots:
        try:
            supervisor.leave()
        except (PenstockError, OSError) as why:
            log.warning("supervisor.trouble", job=None, reason=str(why))
    for supervisor in roots:
        try:
            going, unread = supervisor.drivers()
        except (PenstockError, OSError) as why:
            log.warning("supervisor.trouble", job=None, reason=str(why))
            continue
        for job, reason in unread.items():
            log.warning("supervisor.trouble", job=job, reason=reason)
        log.info("supervisor.left", root=str(supervisor.root), go_on=going)


def _post_events(settings: EventsSettings, supervisor: Supervisor, asked: threading.Event) -> None:
    """Post what happens, where the project says whereto, in threads of their own: no stream waits for who listens."""
    posters: list[Poster] = []
    if settings.webhook is not None:
        posters.append(AlertPoster(store=supervisor.store, post=Webhook(settings.webhook)))
    if settings.airflow is not None:
        post = AirflowAssets(settings.airflow).post
        posters.append(AssetPoster(root=supervisor.root, store=supervisor.store, post=post))

    def look(poster: Poster) -> None:
        while not asked.wait(_POST_EVERY):
            if supervisor.leads:
                poster.look()

    for poster in posters:  # a thread for each: an Airflow that hangs delays no alert
        threading.Thread(target=look, args=(poster,), name="penstock-events", daemon=True).start()


def look_for_roots(
    project: Project,
    known: dict[CheckpointFolder, Supervisor],
    troubles: dict[str, str],
    make: Callable[[CheckpointFolder], Supervisor],
) -> list[Supervisor]:
    """Add a supervisor for each control root that is new: jobs are added, and files mended, while one runs.

    An error of one job's file or root is logged once and retried, and does not affect other jobs; `troubles` has
    the known errors. Raises PenstockError where there is nothing to supervise at all.
    """
    fresh: list[Supervisor] = []
    wrong: dict[str, PenstockError | OSError] = {}
    for job in ("", *project.job_names()):
        try:
            root = project.settings(job).root if job else checkpoint_root(project.root)
            if root not in known:
                known[root] = make(root)
                fresh.append(known[root])
        except (PenstockError, OSError) as why:
            wrong[job] = why
    for job, trouble in wrong.items():
        if not known:
            raise trouble
        if troubles.get(job) != str(trouble):
            log.warning("supervisor.trouble", job=job or None, reason=str(trouble))
    troubles.clear()
    troubles.update({job: str(trouble) for job, trouble in wrong.items()})
    return fresh

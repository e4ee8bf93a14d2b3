"""Answer the pages on streams: the list of all, one job with its charts, its restart, and its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import Request
from fastapi.responses import Response

from penstock.runtime.process.project import Project
from penstock.supervise.commands import Request as StreamRequest
from penstock.time.clock import Clock
from penstock.ui.charts import charts_of
from penstock.ui.driver_log import read_driver_log
from penstock.ui.files import has_reports
from penstock.ui.model import JobView, Tone, Trouble
from penstock.ui.reading import NEWEST, Broken, Remembered, look, read_held, read_restart, read_streams, reports_of
from penstock.ui.rendering import Renderer
from penstock.ui.requests import ask_of, possible, why_not
from penstock.ui.restarting import Wanted, plan_of, starts_of

__all__ = ["REFRESH", "SHOWN", "Listing", "StreamPages", "listing_of"]

REFRESH = 5
"""Seconds after which a page that shows current state renews itself."""
_NEWEST = 20
"""Batches in the table of a job's page."""
SHOWN = {Tone.BAD: "failed", Tone.WAITS: "waiting", Tone.GOOD: "running", Tone.QUIET: "stopped"}
"""Words for the tones of a state, in the order in which jobs are listed."""
_ORDER = {tone: place for place, tone in enumerate(SHOWN)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The jobs that are shown, and totals of all: `counts` by word, `rate` rows a second, `left` rows, `held` batches.

    `wanted` is the requested word, None for all, and `text` a part of a job's name.
    """

    rows: tuple[JobView | Broken, ...]
    jobs: int
    counts: dict[str, int]
    rate: float
    left: int
    held: int
    wanted: str | None
    text: str


def listing_of(rows: Sequence[JobView | Broken], *, wanted: str, text: str) -> Listing:
    """Return the jobs whose name has a text in it and whose state is as wanted, those in trouble first."""
    views = [row for row in rows if isinstance(row, JobView)]
    tone = wanted if wanted in SHOWN.values() else None
    counts = Counter(SHOWN[row.tone] for row in rows)
    shown = [row for row in rows if text.lower() in row.job and tone in (None, SHOWN[row.tone])]
    return Listing(
        rows=tuple(sorted(shown, key=lambda row: (_ORDER[row.tone], row.job))),
        jobs=len(rows),
        counts={word: counts[word] for word in SHOWN.values() if counts[word]},
        rate=sum(view.rate or 0.0 for view in views),
        left=sum(view.rows_left or 0 for view in views),
        held=sum(len(view.reading.status.publishable) for view in views),
        wanted=tone,
        text=text,
    )


class StreamPages:
    """The pages on streams; each method is a route. FastAPI runs them in threads."""

    def __init__(self, find: Callable[[], Project], renderer: Renderer, clock: Clock) -> None:
        self._find = find
        self._renderer = renderer
        self._clock = clock
        self._remembered = Remembered()

    def streams(self, request: Request) -> Response:
        """Show all jobs of the project."""
        project = self._find()
        key = (project.root, None)
        rows = self._remembered.get(key, lambda: read_streams(project, self._clock))
        views = [row for row in rows if isinstance(row, JobView)]
        started = any(view.reading.asked or view.newest is not None for view in views)
        now = min((view.reading.now for view in views), default=self._clock.wall())
        query = request.query_params
        listing = listing_of(rows, wanted=query.get("show", ""), text=query.get("job", "").strip())
        return self._renderer.page(
            request,
            project,
            "streams.html",
            here="streams",
            title="Streams",
            refresh=REFRESH,
            now=now,
            listing=listing,
            parts=[self._renderer.part(request, "row.html", row, now=now) for row in listing.rows],
            unsupervised=any(v.stream.wants_driver and not v.reading.supervised for v in views),
            nothing_yet=views[0].job if views and not started else None,
        )

    def job(self, request: Request, job: str) -> Response:
        """Show one job."""
        project = self._find()
        root = project.settings(job).root  # what is no job is remembered by nobody
        view = self._view(project, job)
        if isinstance(view, Broken):
            return self._renderer.broken(request, project, view)
        read = self._remembered.of_job(project, job, "log", lambda: read_driver_log(root, job))
        drivers, unread = (None, read.trouble) if isinstance(read, Broken) else (read, None)
        return self._renderer.page(
            request,
            project,
            "job.html",
            here="job",
            title=job,
            refresh=REFRESH,
            now=view.reading.now,
            view=view,
            most=NEWEST,
            charts=charts_of(view, {} if drivers is None else drivers.batches),
            drivers=drivers,
            unread=unread,
            requests=[kind for kind in possible(view) if kind is not StreamRequest.LIMITS],
            newest_batches=view.batches[: -_NEWEST - 1 : -1],
            reports=has_reports(reports_of(project, job)),
        )

    def restart(self, request: Request, job: str) -> Response:
        """Show the form that triggers a restart, filled in from the address, and what that restart would do."""
        project = self._find()
        project.settings(job)
        facts = self._remembered.of_job(project, job, "restart", lambda: read_restart(project, job))
        if isinstance(facts, Broken):
            return self._renderer.broken(request, project, facts)
        wanted = Wanted.of(request.query_params)
        return self._renderer.page(
            request,
            project,
            "restart.html",
            here="restart",
            title=f"Restart {job}",
            facts=facts,
            starts=list(starts_of(facts)),
            plan=plan_of(facts, wanted),
        )

    def ask(self, request: Request, job: str, name: str, batch: str = "", source: str = "") -> Response:
        """Show what a request would do, and the button that triggers it; alone, the command that does the same."""
        project = self._find()
        project.settings(job)
        view = self._view(project, job)
        if isinstance(view, Broken):
            return self._renderer.broken(request, project, view)
        wanted = ask_of(view, name, batch, partial(read_held, project, job), source=source)
        if wanted is None:
            gone = Trouble(what=why_not(view, name, batch), remedy=f"Look at {job} again.")
            return self._renderer.broken(request, project, Broken(job, gone), status=404, of_job=True)
        subject = job if wanted.batch is None else f"batch {wanted.batch:,} of {job}"
        subject = subject if wanted.source is None else f"source {wanted.source} of {job}"
        subject = f"a sink of {job}" if wanted.field == "sink" else subject
        title = f"{wanted.word} {subject}"
        return self._renderer.page(request, project, "ask.html", here="ask", title=title, view=view, ask=wanted)

    def _view(self, project: Project, job: str) -> JobView | Broken:
        return self._remembered.of_job(project, job, "state", lambda: look(project, job, self._clock))

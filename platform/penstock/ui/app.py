"""Serve the pages: streams, a job, its restart, and the reports. Everything is read; no route takes anything but GET.

What a page asks for it asks of Airflow's own REST interface, with the rights of who looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.base import RequestResponseEndpoint

from penstock.errors import PenstockError
from penstock.runtime.process.project import Project
from penstock.supervise.requests import Request as StreamRequest
from penstock.time.clock import Clock, SystemClock
from penstock.ui.charts import charts_of
from penstock.ui.error_texts import Trouble
from penstock.ui.files import has_reports
from penstock.ui.listing import listing_of
from penstock.ui.model import JobView
from penstock.ui.reading import NEWEST, Broken, Remembered, look, read_drivers, read_restart, read_streams, reports_of
from penstock.ui.rendering import NOTHING, Renderer
from penstock.ui.report_pages import ReportPages
from penstock.ui.requests import ask_of, possible
from penstock.ui.restarting import Wanted, plan_of, starts_of

__all__ = ["REFRESH", "pages"]

log = structlog.get_logger()

REFRESH = 5
"""Seconds after which a page that shows current state renews itself."""
_NEWEST = 20
_UNKNOWN = 401
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def pages(
    find: Callable[[], Project],
    *,
    mounted: str | None = None,
    dependencies: Sequence[Any] = (),
    clock: Clock | None = None,
) -> FastAPI:
    """Return the application with all pages.

    Args:
        find: Returns the project; called for each page. Where it raises, the page says why.
        mounted: The path of the pages below Airflow's; None for pages without Airflow.
        dependencies: FastAPI's, which guard every route: who is not let in gets no page, no report and no file.
        clock: The clock of the pages; None for the system's.
    """
    app = FastAPI(dependencies=list(dependencies), docs_url=None, redoc_url=None, openapi_url=None)
    renderer = Renderer(mounted)
    streams, reports = _StreamPages(find, renderer, clock or SystemClock()), ReportPages(find, renderer)
    app.get("/")(streams.streams)
    app.get("/jobs/{job}")(streams.job)
    app.get("/jobs/{job}/restart")(streams.restart)
    app.get("/jobs/{job}/ask/{name}")(streams.ask)
    app.get("/static/{name}")(renderer.static)
    app.get("/reports")(reports.reports)
    app.get("/reports/{job}/{path:path}")(reports.report)
    frames = "'none'" if mounted is None else "'self'"

    @app.middleware("http")
    async def _guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Add the headers that every answer has; an unforeseen error is a page as well."""
        try:
            answer = await call_next(request)
        except Exception as why:  # noqa: BLE001 - an odd record of a job takes no page away
            log.warning("ui.page_not_shown", path=request.url.path, reason=f"{type(why).__name__}: {why}")
            answer = renderer.trouble(request, why)
        for name, value in _HEADERS.items():
            answer.headers.setdefault(name, value)
        policy = answer.headers.get("Content-Security-Policy", NOTHING)
        answer.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors {frames}"
        return answer

    @app.exception_handler(PenstockError)
    @app.exception_handler(OSError)
    def _told(request: Request, error: Exception) -> Response:
        """Show an error as a page."""
        return renderer.trouble(request, error)

    @app.exception_handler(HTTPException)
    async def _unknown(request: Request, error: HTTPException) -> Response:
        """Show people who are not logged in the way to the login; programs are answered as Airflow answers."""
        if error.status_code == _UNKNOWN and "text/html" in request.headers.get("accept", ""):
            return renderer.page(request, None, "login.html", status=_UNKNOWN, here="login", title="Not logged in")
        return await http_exception_handler(request, error)

    return app


class _StreamPages:
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
        read = self._remembered.get((project.root, job, "log"), lambda: read_drivers(root, job))
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
            requests=[request_kind for request_kind in possible(view) if request_kind is not StreamRequest.LIMITS],
            newest_batches=view.batches[: -_NEWEST - 1 : -1],
            reports=has_reports(reports_of(project, job)),
        )

    def restart(self, request: Request, job: str) -> Response:
        """Show the form that triggers a restart, filled in from the address, and what that restart would do."""
        project = self._find()
        project.settings(job)
        facts = self._remembered.get((project.root, job, "restart"), lambda: read_restart(project, job))
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

    def ask(self, request: Request, job: str, name: str, batch: str = "") -> Response:
        """Show what a request would do, and the button that triggers it; alone, the command that does the same."""
        project = self._find()
        project.settings(job)
        view = self._view(project, job)
        if isinstance(view, Broken):
            return self._renderer.broken(request, project, view)
        request_asked = ask_of(view, name, batch)
        if request_asked is None:
            gone = Trouble(what="This stream does not allow this request now.", remedy=f"Look at {job} again.")
            return self._renderer.broken(request, project, Broken(job, gone), status=404)
        title = (
            f"{request_asked.word} {job}"
            if request_asked.batch is None
            else f"{request_asked.word} batch {request_asked.batch:,} of {job}"
        )
        return self._renderer.page(request, project, "ask.html", here="ask", title=title, view=view, ask=request_asked)

    def _view(self, project: Project, job: str) -> JobView | Broken:
        return self._remembered.get((project.root, job), lambda: look(project, job, self._clock))

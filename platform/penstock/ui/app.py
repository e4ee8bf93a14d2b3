"""Serve the pages: streams, a job, its restart, and the reports. Everything is read; no route takes anything but GET.

The one thing a page asks for, a restart, it asks of Airflow's own REST interface with the rights of who looks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.middleware.base import RequestResponseEndpoint

from penstock.errors import JobNotFound, PenstockError
from penstock.runtime.batch_report import shown_moment
from penstock.runtime.project import Project
from penstock.time.clock import Clock, SystemClock
from penstock.ui.files import DOCS_INDEX, docs_pages, find_report, has_reports
from penstock.ui.model import JobView
from penstock.ui.reading import Broken, Remembered, look, read_streams, reports_of
from penstock.ui.timeline import timeline_of
from penstock.ui.trouble import Trouble
from penstock.ui.words import counted, number, quantity, size, span

__all__ = ["REFRESH", "pages"]

REFRESH = 5
"""Seconds after which a page that shows what goes on renews itself."""
_NEWEST = 20
_HERE = Path(__file__).parent
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"
_LOOKS = "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Airflow:
    """The Airflow that the pages are shown in, by its path; gives the addresses that lead there."""

    base: str

    def dag(self, name: str) -> str:
        """Return the page of a DAG."""
        return f"{self.base}/dags/{quote(name, safe='')}"

    def runs(self, dag: str) -> str:
        """Return where runs of a DAG are triggered: Airflow's own form asks there as well."""
        return f"{self.base}/api/v2/dags/{quote(dag, safe='')}/dagRuns"


def pages(
    find: Callable[[], Project],
    *,
    mounted: str | None = None,
    dependencies: Sequence[Any] = (),
    clock: Clock | None = None,
) -> FastAPI:
    """Return the application with all pages.

    `find` returns the project and is called for each page; where it raises, the page says why. `mounted` is the path
    below Airflow's that the pages are mounted at, None where they stand alone. `dependencies` are FastAPI's, and guard
    every route: who is not let in gets no page, no report and no file.
    """
    app = FastAPI(dependencies=list(dependencies), docs_url=None, redoc_url=None, openapi_url=None)
    site = _Site(find, mounted, clock or SystemClock())
    app.get("/")(site.streams)
    app.get("/jobs/{job}")(site.job)
    app.get("/jobs/{job}/restart")(site.restart)
    app.get("/reports")(site.reports)
    app.get("/reports/{job}/{path:path}")(site.report)
    frames = "'none'" if mounted is None else "'self'"

    @app.middleware("http")
    async def _guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Add what every answer says, whoever made it."""
        answer = await call_next(request)
        for name, value in _HEADERS.items():
            answer.headers[name] = value
        policy = answer.headers.get("Content-Security-Policy", _NOTHING)
        answer.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors {frames}"
        return answer

    @app.exception_handler(PenstockError)
    @app.exception_handler(OSError)
    def _told(request: Request, error: Exception) -> Response:
        """Show an error as a page."""
        return site.trouble(request, error)

    return app


class _Site:
    """The pages of one application; each method is a route."""

    def __init__(self, find: Callable[[], Project], mounted: str | None, clock: Clock) -> None:
        self._find = find
        self._mounted = mounted
        self._clock = clock
        self._remembered = Remembered()
        self._css = Markup((_HERE / "static" / "penstock.css").read_text())  # noqa: S704 - our own files
        self._js = Markup((_HERE / "static" / "penstock.js").read_text())  # noqa: S704
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters.update(
            counted=lambda counts: counted(dict(counts)),
            fine=lambda counts: set(counts) <= {"passed", "empty"},
            moment=shown_moment,
            number=number,
            quantity=quantity,
            size=size,
            span=span,
        )

    # --- routes: FastAPI runs them in threads --------------------------------------------------
    def streams(self, request: Request) -> Response:
        """Show all jobs of the project."""
        project = self._find()
        key = (project.root, None)
        rows = self._remembered.get(key, lambda: read_streams(project, self._clock))
        views = [row for row in rows if isinstance(row, JobView)]
        started = any(view.reading.asked or view.newest is not None for view in views)
        return self._page(
            request,
            project,
            "streams.html",
            here="streams",
            title="Streams",
            refresh=REFRESH,
            now=min((view.reading.now for view in views), default=self._clock.wall()),
            rows=rows,
            unsupervised=any(v.stream.wants_driver and not v.reading.supervised for v in views),
            nothing_yet=views[0].job if views and not started else None,
        )

    def job(self, request: Request, job: str) -> Response:
        """Show one job."""
        project = self._find()
        view = self._look(project, job)
        if isinstance(view, Broken):
            return self._broken(request, project, view)
        return self._page(
            request,
            project,
            "job.html",
            here="job",
            title=job,
            refresh=REFRESH,
            now=view.reading.now,
            view=view,
            chart=timeline_of(view.batches),
            newest_batches=view.batches[: -_NEWEST - 1 : -1],
            reports=has_reports(reports_of(project, job)),
        )

    def restart(self, request: Request, job: str, batch: int | None = None) -> Response:
        """Show the form that triggers a restart, filled in; alone, the command that does the same."""
        project = self._find()
        view = self._look(project, job)
        if isinstance(view, Broken):
            return self._broken(request, project, view)
        starts = dict(_starts(view))
        wanted = "last" if batch is None else f"batch={batch}"
        return self._page(
            request,
            project,
            "restart.html",
            here="restart",
            title=f"Restart {job}",
            view=view,
            starts=list(starts.items()),
            chosen=wanted if wanted in starts else "last",
            gone=batch if wanted not in starts else None,
        )

    def reports(self, request: Request) -> Response:
        """List the jobs that have reports."""
        project = self._find()
        return self._page(
            request, project, "reports.html", here="reports", title="Reports", jobs=list(_reported(project))
        )

    def report(self, request: Request, job: str, path: str) -> Response:
        """Serve a page of a job's reports, or a file that one is made of; no script runs in any."""
        project = self._find()
        folder = reports_of(project, job)
        found = find_report(folder, path)
        if found is None:
            return self._broken(request, project, Broken(job, Trouble(what="There is no such report.")), status=404)
        if path.endswith("/") or not path:  # so that what the page names is looked for beside it
            home = request.scope.get("root_path", "")
            return RedirectResponse(f"{home}/reports/{quote(job)}/{quote(path)}index.html")
        if path == DOCS_INDEX:
            title = f"Data Docs of {job}"
            return self._page(
                request, project, "docs.html", here="docs", title=title, job=job, listed=docs_pages(folder)
            )
        policy = {"Content-Security-Policy": f"{_NOTHING}; {_LOOKS}"}
        return FileResponse(found.path, media_type=found.type, headers=policy)

    def trouble(self, request: Request, error: Exception) -> Response:
        """Show what went wrong before there was anything to show."""
        status = 404 if isinstance(error, JobNotFound) else 503
        told = Trouble.of(error)
        title = "No such job" if status == 404 else "Nothing to show"  # noqa: PLR2004 - HTTP's number
        here = "trouble" if status == 404 else None  # noqa: PLR2004
        return self._page(request, None, "trouble.html", status=status, here=here, title=title, trouble=told)

    # --- inside --------------------------------------------------------------------------------
    def _look(self, project: Project, job: str) -> JobView | Broken:
        project.settings(job)  # what is no job is remembered by nobody
        return self._remembered.get((project.root, job), lambda: look(project, job, self._clock))

    def _broken(self, request: Request, project: Project, broken: Broken, status: int = 503) -> Response:
        return self._page(
            request,
            project,
            "trouble.html",
            status=status,
            here="trouble",
            title=broken.job,
            trouble=broken.trouble,
        )

    def _page(
        self,
        request: Request,
        project: Project | None,
        name: str,
        *,
        status: int = 200,
        refresh: int = 0,
        **facts: Any,
    ) -> Response:
        """Return a template's page; its style and its script are let run by a number that nobody can guess."""
        nonce = secrets.token_urlsafe(16)
        home = str(request.scope.get("root_path", "")).rstrip("/")
        text = self._templates.get_template(name).render(
            css=self._css,
            js=self._js,
            nonce=nonce,
            home=home,
            airflow=None if self._mounted is None else Airflow(home.removesuffix(self._mounted)),
            project=None if project is None else project.root.name,
            has_reports=project is not None and any(_reported(project)),
            refresh=refresh,
            **facts,
        )
        allowed = f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; img-src data:; connect-src 'self'"
        return HTMLResponse(text, status, headers={"Content-Security-Policy": f"{_NOTHING}; {allowed}"})


def _starts(view: JobView) -> Iterable[tuple[str, str]]:
    """Yield what a stream can begin from, and how a person reads it."""
    yield "last", "where it left off"
    for batch in reversed(view.batches):
        if batch.kept.restorable:
            yield f"batch={batch.report.batch}", f"batch {batch.report.batch}, {shown_moment(batch.report.time)}"
    for name, saved in view.reading.saves.items():
        yield f"saved={name}", f"{name}, saved at batch {saved}"
    yield "empty", "nothing: begin anew"


def _reported(project: Project) -> Iterable[str]:
    """Yield the jobs that have reports; one whose settings cannot be read has none."""
    for job in project.job_names():
        try:
            if has_reports(reports_of(project, job)):
                yield job
        except PenstockError:
            continue

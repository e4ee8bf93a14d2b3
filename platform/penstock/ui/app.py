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
from penstock.time.clock import Clock, SystemClock
from penstock.ui.rendering import NOTHING, Renderer
from penstock.ui.report_pages import ReportPages
from penstock.ui.stream_pages import StreamPages

__all__ = ["pages"]

log = structlog.get_logger()

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
    streams, reports = StreamPages(find, renderer, clock or SystemClock()), ReportPages(find, renderer)
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

"""Serve the quality reports: the list of jobs that have some, and the files of each."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from penstock.runtime.project import Project
from penstock.ui.files import DOCS_INDEX, docs_pages, find_report
from penstock.ui.reading import Broken, reports_of
from penstock.ui.rendering import NOTHING, Renderer, reported
from penstock.ui.trouble import Trouble

__all__ = ["ReportPages"]

_LOOKS = "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:"


class ReportPages:
    """The pages on reports; each method is a route. FastAPI runs them in threads."""

    def __init__(self, find: Callable[[], Project], renderer: Renderer) -> None:
        self._find = find
        self._renderer = renderer

    def reports(self, request: Request) -> Response:
        """List the jobs that have reports."""
        project = self._find()
        jobs = list(reported(project))
        return self._renderer.page(request, project, "reports.html", here="reports", title="Reports", jobs=jobs)

    def report(self, request: Request, job: str, path: str) -> Response:
        """Serve a page of a job's reports, or a file that one is made of; no script runs in any."""
        project = self._find()
        folder = reports_of(project, job)
        found = find_report(folder, path)
        if found is None:
            missing = Broken(job, Trouble(what="There is no such report."))
            return self._renderer.broken(request, project, missing, status=404)
        if path.endswith("/") or not path:  # so that what the page names is looked for beside it
            home = request.scope.get("root_path", "")
            return RedirectResponse(f"{home}/reports/{quote(job)}/{quote(path)}index.html")
        if path == DOCS_INDEX:
            title = f"Data Docs of {job}"
            return self._renderer.page(
                request, project, "docs.html", here="docs", title=title, job=job, listed=docs_pages(folder)
            )
        policy = {"Content-Security-Policy": f"{NOTHING}; {_LOOKS}"}
        return FileResponse(found.path, media_type=found.type, headers=policy)

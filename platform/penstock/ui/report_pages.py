"""Serve the quality reports: the list of jobs that have some, and the files of each.

Pages of Great Expectations load their style, a logo and scripts from the internet, which the policy of the pages
forbids. Without scripts their buttons do nothing, and folded sections could never be opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePath
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from penstock.checkpoint.roots import REPORTED
from penstock.runtime.process.project import Project
from penstock.ui.commits import Gate, read_reported
from penstock.ui.files import DOCS_INDEX, INDEX, TYPES, docs_pages, find_report
from penstock.ui.model import Trouble
from penstock.ui.reading import NEWEST, Broken, Remembered, read_gates, reports_of
from penstock.ui.rendering import NOTHING, Renderer, encoded, reported

__all__ = ["ReportPages", "tidied", "with_bar"]

_LOOKS = "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:"
_BRIEF = 8
"""Batches that are read of a job for the list: the newest has the sums of all."""
_BODY = re.compile(r"<body[^>]*>", re.IGNORECASE)
_START = re.compile(r"\s*(<!doctype[^>]*>)?", re.IGNORECASE)
_DEAD = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"<script\b.*?</script>",
        r"<link\b[^>]*\bhref=[\"\']https?:[^>]*>",
        r"<footer\b.*?</footer>",
        r"<img\b[^>]*\bsrc=\s*[\"\']https?:[^>]*>",
        r"<p[^>]*>\s*<a\b[^>]*data-toggle=[\"\']collapse[\"\'].*?</a>\s*</p>",
        r"<div class=\"card mb-3\">\s*<div class=[^>]*>\s*<strong>Actions.*?Failed Only\s*</label>(?:\s*</div>){5}",
        r"url\(\s*[\"\']?https?:[^)]*\)",
    )
]
_STYLE = f"<style>\n{(Path(__file__).parent / 'static' / 'data_docs.css').read_text(encoding='utf-8')}</style>"


def with_bar(text: str, bar: str) -> str:
    """Return a page with something at its top; `bar` is HTML that is safe."""
    body = _BODY.search(text) or _START.match(text)
    end = body.end() if body is not None else 0
    return f"{text[:end]}{bar}{text[end:]}"


def tidied(text: str) -> str:
    """Return a page of Great Expectations without what cannot work here, and with a style of its own."""
    for dead in _DEAD:
        text = dead.sub("", text)
    return text.replace("</head>", f"{_STYLE}</head>", 1)


class ReportPages:
    """The pages on reports; each method is a route. FastAPI runs them in threads."""

    def __init__(self, find: Callable[[], Project], renderer: Renderer) -> None:
        self._find = find
        self._renderer = renderer
        self._remembered = Remembered()

    def reports(self, request: Request) -> Response:
        """List the jobs that have reports: how the newest came out, their trend, and what the gates held back."""
        project = self._find()
        listed = []
        for job in reported(project):
            gates = self._gates(project, job, _BRIEF)
            listed.append((job, read_reported(reports_of(project, job) / REPORTED), gates))
        return self._renderer.page(request, project, "reports.html", here="reports", title="Reports", listed=listed)

    def report(self, request: Request, job: str, path: str) -> Response:
        """Serve a page of a job's reports, or a file that a page needs; no script runs in any."""
        project = self._find()
        folder = reports_of(project, job)
        file = find_report(folder, path)
        if file is None:
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
        if not path.endswith(".html"):
            return FileResponse(file, media_type=TYPES[PurePath(path).suffix], headers=policy)
        text = file.read_text(encoding="utf-8", errors="replace")
        index = path == INDEX
        gates = self._gates(project, job, NEWEST) if index else []
        bar = self._renderer.text(request, "report_bar.html", job=job, deep=not index, gates=gates)
        text = tidied(text) if path.startswith("docs/") else text
        return HTMLResponse(encoded(with_bar(text, bar)), headers=policy)

    def _gates(self, project: Project, job: str, newest: int) -> list[Gate]:
        """Return what the gates of a job decided; nothing where its log cannot be read, as the page of the job says."""
        gates = self._remembered.of_job(project, job, newest, lambda: read_gates(project, job, newest))
        return [] if isinstance(gates, Broken) else gates

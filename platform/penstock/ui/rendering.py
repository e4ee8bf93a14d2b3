"""Render the pages: templates, what every page is given, and the policy that lets only its own script run."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog
from fastapi import HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from penstock.checkpoint.log.batch_report import shown_moment
from penstock.errors import JobNotFound, PenstockError
from penstock.runtime.process.project import Project
from penstock.ui.files import has_reports
from penstock.ui.formatting import counted, number, quantity, size, span
from penstock.ui.model import JobView, Trouble
from penstock.ui.reading import Broken, reports_of

__all__ = ["NOTHING", "Airflow", "Renderer", "encoded", "reported"]

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"
_HERE = Path(__file__).parent
_NOT_FOUND = 404
_STATIC = _HERE / "static"
CHART_JS = _STATIC / "uplot" / "uPlot-1.6.32.min.js"
CHART_CSS = _STATIC / "uplot" / "uPlot-1.6.32.min.css"
_FOR_EVER = "private, max-age=31536000, immutable"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Airflow:
    """The Airflow around the pages, by its path; gives the addresses that lead there."""

    base: str

    def dag(self, name: str) -> str:
        """Return the page of a DAG."""
        return f"{self.base}/dags/{quote(name, safe='')}"

    def runs(self, dag: str) -> str:
        """Return where runs of a DAG are triggered: Airflow's own form asks there as well."""
        return f"{self.base}/api/v2/dags/{quote(dag, safe='')}/dagRuns"

    def login(self, back: str) -> str:
        """Return where Airflow lets people log in, whichever way it does, and leads them back to a page."""
        return f"{self.base}/api/v2/auth/login?next={quote(back, safe='')}"


class Renderer:
    """Make pages of templates; `mounted` is the path below Airflow's, None where the pages stand alone."""

    def __init__(self, mounted: str | None) -> None:
        self._mounted = mounted
        self._css = _ours(CHART_CSS, _STATIC / "penstock.css")
        self._js = _ours(_STATIC / "times.js", _STATIC / "charts.js", _STATIC / "penstock.js")
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters.update(
            counted=lambda counts: counted(dict(counts)),
            fine=lambda counts: set(counts) <= {"passed", "empty"},
            moment=_moment,
            number=number,
            quantity=quantity,
            size=size,
            span=span,
        )

    def static(self, name: str) -> Response:
        """Serve the library that draws charts, the one file that pages load; its version is in its name."""
        if name != CHART_JS.name:
            raise HTTPException(_NOT_FOUND)
        return FileResponse(CHART_JS, media_type="text/javascript", headers={"Cache-Control": _FOR_EVER})

    def page(
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
        home = _home(request)
        text = self._templates.get_template(name).render(
            css=self._css,
            js=self._js,
            nonce=nonce,
            home=home,
            airflow=None if self._mounted is None else Airflow(home.removesuffix(self._mounted)),
            project=None if project is None else project.root.name,
            has_reports=project is not None and any(reported(project)),
            refresh=refresh,
            path=request.url.path,
            chart_js=CHART_JS.name,
            **facts,
        )
        allowed = f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; img-src data:; connect-src 'self'"
        return HTMLResponse(encoded(text), status, headers={"Content-Security-Policy": f"{NOTHING}; {allowed}"})

    def text(self, request: Request, name: str, **facts: Any) -> str:
        """Return what a template makes, without a page around it."""
        return self._templates.get_template(name).render(home=_home(request), **facts)

    def part(self, request: Request, name: str, row: JobView | Broken, **facts: Any) -> tuple[JobView | Broken, Markup]:
        """Return a job and its part of a page; what cannot be shown of it says so, and breaks no other's part."""
        template = self._templates.get_template(name)
        facts["home"] = _home(request)
        try:
            return row, Markup(template.render(row=row, **facts))  # noqa: S704 - escaped by the template
        except Exception as why:  # noqa: BLE001 - a record that nobody foresaw is this job's trouble
            log.warning("ui.job_not_shown", job=row.job, reason=f"{type(why).__name__}: {why}")
            broken = Broken(row.job, Trouble.of(why))
            return broken, Markup(template.render(row=broken, **facts))  # noqa: S704

    def broken(
        self, request: Request, project: Project, broken: Broken, status: int = 503, *, of_job: bool = False
    ) -> Response:
        """Return the page of what cannot be shown; with `of_job` that of its job can, and is linked."""
        job, why = broken.job, broken.trouble
        shown = job if of_job else None
        return self.page(
            request, project, "trouble.html", status=status, here="trouble", title=job, trouble=why, job=shown
        )

    def trouble(self, request: Request, error: Exception) -> Response:
        """Return the page of what went wrong before there was anything to show."""
        status = _NOT_FOUND if isinstance(error, JobNotFound) else 503
        # Where there is no project, or its folder does not answer, no other page has more to show.
        here = None if status != _NOT_FOUND and isinstance(error, PenstockError | OSError) else "trouble"
        title = "No such job" if status == _NOT_FOUND else "Nothing to show"
        return self.page(
            request, None, "trouble.html", status=status, here=here, title=title, trouble=Trouble.of(error)
        )


def _moment(micros: int | None) -> Markup | str:
    """Return a time in UTC that the page's script shows in the zone of who reads; one of no calendar as it is."""
    text = shown_moment(micros)
    if not text.endswith("Z"):
        return text
    return Markup('<time datetime="{}">{}</time>').format(text.replace(" ", "T"), text)


def encoded(text: str) -> bytes:
    """Return a page as bytes; of half a character, which JSON can hold and no encoding has, a question mark is left."""
    return text.encode("utf-8", "replace")


def _ours(*paths: Path) -> Markup:
    return Markup("\n".join(path.read_text() for path in paths))  # noqa: S704 - files of the package


def _home(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def reported(project: Project) -> Iterable[str]:
    """Yield the jobs that have reports; one whose settings cannot be read has none."""
    for job in project.job_names():
        try:
            if has_reports(reports_of(project, job)):
                yield job
        except (PenstockError, OSError):
            continue

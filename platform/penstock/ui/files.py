"""Find the file of a report that a page asks for: below the job's own folder, of a known type, or none at all (F61).

Great Expectations' own first page is made by scripts from the internet, so the list of its pages is made here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS_INDEX", "INDEX", "TYPES", "DocsPage", "docs_pages", "find_report", "has_reports"]

INDEX = "index.html"
DOCS_INDEX = "docs/index.html"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=,+ -]{0,199}")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".gif": "image/gif",
    ".otf": "font/otf",
    ".woff2": "font/woff2",
}
"""The types that may be served, by the end of a name."""
_DOCS = "docs"


@dataclass(frozen=True, slots=True)
class DocsPage:
    """A page of Great Expectations: what it judged, in which run, by which suite, and its path below `docs/`."""

    name: str
    run: str
    suite: str
    path: str


def has_reports(folder: Path) -> bool:
    """Return whether a job's folder of reports holds its history page."""
    return find_report(folder, INDEX) is not None


def find_report(folder: Path, path: str) -> Path | None:
    """Return the file that a path names below a job's folder of reports, None where none may be served.

    Pages are .html; their style and pictures are served below `docs/` alone. Neither a hidden name nor a way out of the
    folder, by `..` or by a symbolic link, leads anywhere.
    """
    parts = path.split("/")
    if parts[-1] == "":
        parts[-1] = INDEX
    if not all(_NAME.fullmatch(part) for part in parts):
        return None
    if Path(parts[-1]).suffix not in (TYPES if parts[0] == _DOCS else (".html",)):
        return None
    try:
        file = folder.joinpath(*parts).resolve(strict=True)
        # The root may be reached by a link; nothing below it may be one.
        home = folder.parents[1].resolve(strict=True) / folder.parent.name / folder.name
        return file if file.is_relative_to(home) and file.is_file() else None
    except (OSError, RuntimeError):  # RuntimeError: links that lead round in a circle
        return None


def docs_pages(folder: Path) -> list[DocsPage]:
    """Return Great Expectations' pages in a job's folder of reports: the newest run first, then the last by name."""
    docs = folder / _DOCS
    pages = []
    for path in docs.glob("validations/*/*/*/*.html"):
        name = path.relative_to(docs).as_posix()
        if find_report(folder, f"{_DOCS}/{name}") is not None:
            _, suite, run, _, _ = name.split("/")
            pages.append(DocsPage(path.stem, run, suite, name))
    return sorted(pages, key=lambda page: (page.run, page.name), reverse=True)

"""Find the suite of each check: a dict in the job, or a file in conf/quality by its stem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import SuiteError
from penstock.graph.graph import JobGraph

__all__ = ["find_suites"]


def find_suites(graph: JobGraph, folder: Path | None) -> Mapping[str, Any]:
    """Return for each check its dict or the path of its file; `folder` is the project's conf/quality."""
    suites: dict[str, Any] = {}
    for check in graph.checks:
        if not isinstance(check.suite, str):
            suites[check.name] = check.suite
            continue
        path = None if folder is None else folder / f"{check.suite}.json"
        if path is None or not path.is_file():
            place = "no folder for suites was given" if path is None else f"there is no {path}"
            raise SuiteError(
                f"check {check.name!r} needs the suite {check.suite!r}, and {place}", where=str(check.site)
            )
        suites[check.name] = path
    return suites

"""Find the user's line, so that every error about a job points at it."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from penstock.errors import JobError

__all__ = ["SourceLocation", "file_of", "job_error", "line_of", "user_site"]

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Name the place in the user's code that made a step."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_site() -> SourceLocation:
    """Return the nearest calling line that lies outside the package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_inside(file):
            return SourceLocation(file, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return SourceLocation("<unknown>", 0)


def job_error(what: str, kind: type[JobError] = JobError) -> JobError:
    """Return the error of a job that is written wrongly, at the user's line."""
    return kind(what, where=str(user_site()))


def file_of(fn: Any) -> str | None:
    """Return the file of a function, of what a partial calls, or of an object's `__call__`; None of what has none."""
    return getattr(_code_of(fn), "co_filename", None)


def line_of(fn: Any) -> str | None:
    """Return the file and line where the same begins; None of what has none."""
    code = _code_of(fn)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _code_of(fn: Any) -> Any:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)


@lru_cache(maxsize=4096)
def _is_inside(file: str) -> bool:
    """Return whether code of this file is Penstock's own; each step asks, so a file is looked up once."""
    if file.startswith("<"):
        return file.startswith("<string>")  # what dataclasses generate
    # `replace` runs the checks of a value again, called by Penstock.
    return file == dataclasses.__file__ or Path(file).resolve().is_relative_to(_PACKAGE)

"""Configure structlog, in this one place: JSON lines for machines, or warnings in plain words for people."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from datetime import datetime
from typing import Any, TextIO

import structlog

__all__ = ["configure_events"]


def configure_events(*, json: bool, narrated: bool = False) -> None:
    """Send events as JSON lines to standard output, or only warnings, in words, to standard error.

    `narrated` events are for people who watch: all of them in words, with the time, to standard output.
    """
    stamped: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*stamped, structlog.processors.JSONRenderer()] if json else [_timed if narrated else _in_words],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if json or narrated else logging.WARNING),
        logger_factory=_Lines("stdout" if json or narrated else "stderr"),
        cache_logger_on_first_use=False,
    )


class _Lines:
    """Make loggers that write to the stream of that name as it is at the time: a progress bar puts its own there."""

    def __init__(self, stream: str) -> None:
        self._stream = stream

    def __call__(self, *args: Any) -> _Lines:
        return self

    def msg(self, line: str) -> None:
        stream: TextIO = getattr(sys, self._stream)
        stream.write(f"{line}\n")
        stream.flush()

    log = debug = info = warn = warning = error = critical = exception = fatal = msg


def _timed(logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
    fields = {name: value for name, value in event.items() if value is not None}
    return f"{datetime.now().astimezone():%H:%M:%S} {_in_words(logger, level, fields).removeprefix('info: ')}"


def _in_words(_: Any, level: str, event: MutableMapping[str, Any]) -> str:
    facts = " ".join(f"{name}={value}" for name, value in event.items() if name not in ("event", "exc_info"))
    return f"{level}: {event['event']} {facts}".rstrip()

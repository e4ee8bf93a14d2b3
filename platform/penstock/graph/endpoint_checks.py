"""Check sources and sinks when a job is written, by the names of their methods: the graph imports neither."""

from __future__ import annotations

import os
from typing import Any

from penstock.graph.source_location import job_error

__all__ = ["checked_sink", "checked_source", "is_live"]

_SOURCE = ("open", "live", "on_end")
_SINK = ("staging", "place", "open", "describe", "deduplicates", "in_order")


def checked_source(name: str, source: Any) -> Any:
    """Return the source, or refuse what lacks a member of `penstock.sources.base.Source`."""
    other = "; that is a sink" if _has(source, _SINK) else ""
    if other or not (_has(source, _SOURCE) or _is_blank(source)):
        raise job_error(
            f"source {name!r} needs a source such as FileReplay(path, order_by=...) of penstock.sources, "
            f"or a subclass of penstock.sources.base.Source, not {_shown(source)}{other}"
        )
    return source


def checked_sink(name: str, sink: Any) -> Any:
    """Return the sink, or refuse what lacks a member of `penstock.sinks.base.Sink`."""
    if not (_has(sink, _SINK) or _is_blank(sink)):
        raise job_error(
            f"sink {name!r} needs a sink such as Delta(path) of penstock.sinks, "
            f"or a subclass of penstock.sinks.base.Sink, not {_shown(sink)}"
        )
    return sink


def is_live(source: Any) -> bool:
    """Return whether a source's rows are of about now; a stand-in that is never read stands for one that is."""
    return bool(_is_blank(source) or source.live)


def _has(end: Any, members: tuple[str, ...]) -> bool:
    if isinstance(end, type | os.PathLike):  # a class has the methods of its objects, and a path can be opened too
        return False
    return all(hasattr(end, member) for member in members)


def _is_blank(end: Any) -> bool:
    """Return whether this is a stand-in with nothing to be seen, for graphs that are looked at and never run."""
    ours = type(end) is object or type(end).__module__ != "builtins"
    return ours and not callable(end) and all(name.startswith("_") for name in dir(end))


def _shown(end: Any) -> str:
    if isinstance(end, type):
        return f"the class {end.__name__} itself"
    if end is None or isinstance(end, str | bytes | int | float | os.PathLike):
        return f"{end!r:.80}"
    return f"an object of type {type(end).__name__}"

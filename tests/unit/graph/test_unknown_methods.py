"""A method that there is none of is refused with what to call instead (docs/migration.md, docs/other-systems.md)."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from penstock import Job, agg, count, minutes, seconds
from penstock.errors import UnknownMethod
from penstock.graph.unknown_methods import METHODS_OF_KEYED_STREAMS, METHODS_OF_STREAMS, METHODS_OF_WINDOWS
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.triggers import Every
from penstock.windows import BatchWindow, GlobalWindow, Session, Tumbling, TupleWindow


def subjects() -> dict[str, Any]:
    """Return what has methods in a job."""
    job = Job("j", partitions=1, interval=seconds(1))
    stream = job.source("s", MemorySource("k string, v long, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    keyed = stream.key_by("k")
    specs = {
        "tumbling": Tumbling(seconds(1)).drop_late(),
        "session": Session(minutes(1)).drop_late(),
        "batch": BatchWindow(seconds(2), slide=seconds(1)),
        "rows": TupleWindow(count(3), unbounded=True),
        "global": GlobalWindow(unbounded=True).trigger(Every(count(1))),
    }
    return {"stream": stream, "keyed": keyed} | {name: keyed.window(name, spec) for name, spec in specs.items()}


@pytest.mark.parametrize(
    ("subject", "method", "advice"),
    [
        ("tumbling", "count", r"window 'tumbling' has no method 'count'; use \.aggregate\(n=agg\.count\(\)\)"),
        ("session", "reduceByKey", r"agg\.custom"),
        ("tumbling", "process", r"\.apply\(fn"),
        ("tumbling", "allowedLateness", r"the same of the spec"),
        ("rows", "sum", r"agg\.sum\('v'\)"),
        ("global", "fold", r"It has aggregate, apply \("),
        (
            "batch",
            "nothing_like_it",
            r"no method 'nothing_like_it'. It has aggregate, apply, count, count_by_value, group,",
        ),
        ("stream", "flatMap", "map_batches"),
        ("stream", "reduceByKeyAndWindow", r"BatchWindow\(…\)"),
        ("stream", "withWatermark", "max_out_of_order"),
        ("keyed", "process", "a stream keyed by k has no method 'process'; use map_with_state"),
        ("keyed", "filter", "the same before key_by"),
        ("keyed", "write", "a step with state first"),
    ],
)
def test_a_method_of_another_system_is_refused_with_ours(subject: str, method: str, advice: str) -> None:
    """At the user's line, by name, with the methods that there are."""
    with pytest.raises(UnknownMethod, match=rf"PEN-JOB-041 .*{advice}.*") as met:
        getattr(subjects()[subject], method)
    assert "test_unknown_methods.py" in str(met.value.where)


@pytest.mark.remedy("PEN-JOB-041")
def test_a_window_that_was_asked_for_a_method_is_written_again_as_advised() -> None:
    """The first try leaves nothing unfinished in the job."""
    job = Job("j", partitions=1)
    rows = job.source("s", MemorySource("v long, t timestamp"), event_time="t", max_out_of_order=seconds(0))
    window = Tumbling(seconds(1)).drop_late()
    with pytest.raises(UnknownMethod):
        rows.window("w", window).count()  # type: ignore[attr-defined]
    rows.window("w", window).aggregate(n=agg.count()).write("out", MemorySink())
    assert [step.name for step in job.graph().steps] == ["w"]


def test_what_is_advised_is_there() -> None:
    """Each call in an advice is a method of what it is advised for, or of a stream, a job, a spec or `agg`."""
    there = {"fn", "window", *dir(Job), *dir(agg), *dir(Tumbling(seconds(1))), *dir(GlobalWindow())}
    there |= {name for made in subjects().values() for name in dir(made)}
    there |= {"BatchWindow", "GlobalWindow", "Tumbling", "seconds"}
    for advice in (*METHODS_OF_WINDOWS.values(), *METHODS_OF_KEYED_STREAMS.values()):
        assert set(re.findall(r"(\w+)\(", advice)) <= there, advice
    stream = subjects()["stream"]
    assert [name for name in METHODS_OF_STREAMS if hasattr(stream, name)] == []


def test_python_asks_for_names_of_its_own() -> None:
    """A copy and a check for a method raise nothing of a job."""
    for subject in subjects().values():
        assert copy.copy(subject) is not subject
        assert not hasattr(subject, "no_such_method")
        with pytest.raises(AttributeError, match="has no attribute '_private'"):
            subject._private  # noqa: B018 - the access is what is tested

"""Write docs/api.md, the reference of the public names, from their signatures and docstrings.

python -m tools.api_page            # print it
python -m tools.api_page --write    # put it in place
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.pages import without_references, write_or_print

# ruff: noqa: E501 - a sentence of the page is a line

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"

HEAD = """# API reference

Every public name of the Python package, with its signature and its docstring.
A schema is a Spark DDL string, a predicate or an expression is a Spark SQL string, a row is a dict of column to value.
[Concepts](concepts.md) defines the terms, and the pages of the [operators](operators/windows.md) have examples that run.

{index}

This page is written by `python -m tools.api_page --write`; a test compares it with the code.
"""

MODULES: dict[str, tuple[str, ...]] = {
    "penstock": (),
    "penstock.agg": (),
    "penstock.windows": (),
    "penstock.triggers": (),
    "penstock.evictors": (),
    "penstock.state": ("State", "FiredTimer", "OnError", "Timeout", "idle", "event_time", "EVENT", "BATCH", "read"),
    "penstock.quality": ("OnFail",),
    "penstock.receivers": ("Receiver",),
    "penstock.sources": (),
    "penstock.sinks": (),
    "penstock.rates": ("RateEstimator", "CostModel", "PIDRateEstimator", "Constant", "partition_limits"),
    "penstock.testing": (),
}
"""The modules that a job imports from, and which of their names; none stands for all of `__all__`."""

CONTENT = {
    "penstock": "The job: `Job`, its streams and steps, durations, and intervals of data checkpoints",
    "penstock.agg": 'The aggregates of windows: `agg.count()`, `agg.sum("v * 2")`',
    "penstock.receivers": "What takes rows from senders: [receivers](receivers.md)",
    "penstock.windows": "The windows: `Tumbling` and `Sliding`",
    "penstock.triggers": "When a [global window](operators/triggers.md) is emitted",
    "penstock.evictors": "Which rows leave a [global window](operators/triggers.md) before its function",
    "penstock.state": "State functions: the state of a key, TTL, timers, the error policy. `read` returns the state of any step as a table",
    "penstock.quality": "The policies of a quality gate",
    "penstock.sources": "Where rows come from: topics of Kafka, the files of a folder, a Delta table, a file that is replayed, or memory",
    "penstock.sinks": "Where rows go: tables, topics, files, a function, the console, or memory",
    "penstock.rates": "Rate estimators, and the division of a rate among partitions",
    "penstock.testing": "The Harness, which runs a job batch by batch in a test",
}
"""What the index at the top of the page says of each module."""

ENGINES = {
    "penstock.state": {"begin", "end"},
    "penstock.receivers": {"connect"},
    "penstock.sources": {"open", "opened", "columns", "decode", "names"},
    "penstock.sinks": {"staging", "check", "ready", "create", "open", "place", "describe", "connect", "opened"}
    | {"task_form", "find_version", "truncated", "put_back", "begin", "end"},
}
"""Methods that the engine calls, and not a job, by module: a method of that name elsewhere is one of users."""

_MODULE_OF_TYPE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")


def names_of(module: str) -> tuple[str, ...]:
    """Return the public names of a module; modules among them have a section of their own."""
    imported = importlib.import_module(module)
    names = MODULES[module] or tuple(sorted(imported.__all__, key=str.lower))
    return tuple(name for name in names if f"{module}.{name}" not in MODULES)


class _Plain(str):
    """A text that a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature_of(thing: Any, name: str) -> str:
    """Return how a function or class is called; types without the modules that they come from. Nobody calls a Protocol."""
    if getattr(thing, "_is_protocol", False):
        return name
    signature = inspect.signature(thing)
    shown = [
        parameter.replace(annotation=_annotation(parameter.annotation), default=_default(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    result = inspect.Signature.empty if inspect.isclass(thing) else _annotation(signature.return_annotation)
    return _MODULE_OF_TYPE.sub("", name + str(inspect.Signature(shown, return_annotation=result)))


def _annotation(written: Any) -> Any:
    return _Plain(written) if isinstance(written, str) else written


def _default(value: Any) -> Any:
    return _Plain(f"{type(value).__name__}.{value.name}") if isinstance(value, enum.Enum) else value


def methods_of(kind: type, hidden: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class in the order of its source, those of its bases behind them."""
    seen = set(hidden)
    for base in kind.__mro__:
        if not base.__module__.startswith("penstock."):
            continue
        for name, member in vars(base).items():
            plain = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
            if plain and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member


def render_one(module: str, name: str) -> Iterator[str]:
    """Yield the lines of one public name."""
    thing = getattr(importlib.import_module(module), name)
    yield f"### {name}"
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        yield from (_said(thing), "", ", ".join(f"`{name}.{member.name}`" for member in thing), "")
        return
    if inspect.isclass(thing):
        yield from (f"`{signature_of(thing, name)}`", "", _said(thing), "")
        for method, member in methods_of(thing, ENGINES.get(module, set())):
            called = member.fget if isinstance(member, property) else getattr(thing, method)
            shown = method if isinstance(member, property) else signature_of(called, method)
            yield from (f"#### {name}.{method}", f"`{shown}`", "", _said(called), "")
        return
    if inspect.isroutine(thing):
        yield from (f"`{signature_of(thing, name)}`", "", _said(thing), "")
        return
    yield from (f"A value of type `{type(thing).__name__}`.", "")


def _said(thing: Any) -> str:
    return without_references(inspect.getdoc(thing) or "")


def _lead(module: str) -> str:
    """Return what the page says of a module: its content, and its docstring without the first line."""
    return "\n\n".join([f"{CONTENT[module]}.", *_said(importlib.import_module(module)).split("\n\n")[1:]])


def render() -> str:
    """Return the page."""
    rows = [f"| [`{module}`](#{module.replace('.', '')}) | {CONTENT[module]} |" for module in MODULES]
    lines = [HEAD.format(index="\n".join(["| module | content |", "|---|---|", *rows]))]
    for module in MODULES:
        lines += [f"## {module}", _lead(module), ""]
        for name in names_of(module):
            lines += render_one(module, name)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(write_or_print(PAGE, render()))

"""List the requests to a stream beside a restart, with the effect and the command of each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.supervise.commands import DAGS, Request
from penstock.supervise.stream import Phase
from penstock.ui.model import JobView, Unit

__all__ = ["Ask", "HeldFacts", "ask_of", "possible", "why_not"]

_DECIDES = (Request.RELEASE, Request.DISCARD)
_SAYS = {
    Request.STOP: "The driver finishes its batch and ends. The stream stays stopped until a start.",
    Request.DRAIN: "The driver processes what is available now, closes all open windows, and ends for good. A start "
    "reads nothing more, unless from a checkpoint of before.",
    Request.SUSPEND: "The driver finishes its batch and ends. Resume restarts it, with the same code and limits.",
    Request.RESUME: "The stream resumes from its checkpoint, with the same code and limits.",
    Request.LIMITS: "Sets what batches read at most, or pauses them, from the next batch on.",
    Request.SAVE: "Gives the newest checkpoint a name (a savepoint), under which it is kept.",
    Request.RELEASE: "Publishes the rows that a gate has held back in this batch.",
    Request.DISCARD: "Drops the rows that a gate has held back in this batch. This cannot be undone.",
    Request.REQUEUE: "Sends the quarantined rows of a source through the job again, each once, in its next batches.",
    Request.REDO: "Publishes again what a sink has lost, if the files exist. Rows that are there are doubled.",
    Request.SKIP: "Continues without the batches that a sink does not show. Their rows are counted, and missing there.",
}
_SETTLED_BY = {
    "PEN-SNK-003": (Request.SKIP,),
    "PEN-SNK-006": (Request.REDO, Request.SKIP),
    "PEN-SNK-007": (Request.SKIP,),
}
"""What settles an error of a sink, as the remedy of the error says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFacts:
    """What a person decides on: when the batch was committed, its held rows by sink, and what the gates have judged.

    `undone` says that a restore has rewound past the batch: later batches read its rows, and it can only be discarded.
    """

    time: int
    rows: Mapping[str, int]
    units: tuple[Unit, ...]
    undone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: its DAG, what it does, its command, and the field that it has beside the job, None for none.

    `held` is what is known of the `batch` to decide. `sources` are those whose quarantine can be sent again, `sinks`
    those to settle. `source` is the one that limits are for, None for each.
    """

    request: Request
    dag: str
    says: str
    command: str
    field: str | None = None
    batch: int | None = None
    held: HeldFacts | None = None
    sources: Sequence[str] = ()
    sinks: Sequence[str] = ()
    source: str | None = None

    @property
    def word(self) -> str:
        """Return the request in a word, as buttons have it."""
        return "Limit" if self.request is Request.LIMITS else self.request.value.capitalize()

    @property
    def refused(self) -> bool:
        """Return whether the task would fail: what a restore has undone is not published."""
        return self.request is Request.RELEASE and self.held is not None and self.held.undone

    @property
    def ends(self) -> bool:
        """Return whether something ends, or is lost."""
        return self.request in (Request.STOP, Request.DRAIN, Request.SUSPEND, Request.DISCARD, Request.SKIP)


def possible(view: JobView) -> tuple[Request, ...]:
    """Return the requests that the stream's state allows, without the decisions on held batches."""
    requests: list[Request] = []
    if view.stream.wants_driver:
        requests += [Request.STOP, Request.DRAIN, Request.SUSPEND]
    elif view.runs:  # by hand: the supervisor knows nothing to drain, and would start a driver of its own for it
        requests.append(Request.STOP)
    if view.stream.phase is Phase.SUSPENDED:
        requests.append(Request.RESUME)
    if view.newest is not None:
        requests.append(Request.SAVE)
    if view.reading.status.totals is not None and view.reading.status.totals.quarantined:
        requests.append(Request.REQUEUE)
    if not view.runs and view.error is not None:
        requests += _SETTLED_BY.get(view.error.code or "", ())
    return (*requests, Request.LIMITS)


def ask_of(
    view: JobView, name: str, batch: str, held_facts: Callable[[int], HeldFacts | None], *, source: str = ""
) -> Ask | None:
    """Return a request by its name, None for what is none or cannot be asked now.

    `batch` is of those that decide; `held_facts` reads what is known of it. `source` is of limits, empty for each.
    """
    request = next((candidate for candidate in Request if candidate.value == name), None)
    if request is None or not (request in _DECIDES or request in possible(view)):
        return None
    if request not in _DECIDES:
        field, words = _FIELDS.get(request, (None, []))
        settles = request in (Request.REDO, Request.SKIP)
        verb = ["sinks", view.job, request.value] if settles else [request.value, view.job]
        line = shlex.join(["penstock", *verb]) + "".join(f" {word}" for word in words)
        if source and not (request is Request.LIMITS and source in view.limited_sources):
            return None
        sources = [end.name for end in view.sources] if request is Request.REQUEUE else []
        facts: dict[str, Any] = {"dag": DAGS[request], "says": _SAYS[request], "command": line, "field": field}
        facts |= {"sinks": [end.name for end in view.sinks]} if settles else {}
        if source:
            facts |= {"says": _OF_SOURCE, "command": line.replace(" --pause", f" --source {source}")}
        return Ask(request=request, sources=sources, source=source or None, **facts)
    held = [number for number in view.reading.status.held if str(number) == batch]
    if not held:
        return None
    line = shlex.join(["penstock", "held", view.job, request.value, batch])
    facts = {"dag": DAGS[request], "says": _SAYS[request], "command": line}
    return Ask(request=request, batch=held[0], held=held_facts(held[0]), **facts)


def why_not(view: JobView, name: str, batch: str) -> str:
    """Return why a request cannot be asked now, in words; `ask_of` has returned None for it."""
    request = next((candidate for candidate in Request if candidate.value == name), None)
    if request is None:
        return "There is no such request."
    if request is Request.LIMITS:
        return "The job has no such source."
    if request in _DECIDES:
        number = (
            f"Batch {int(batch):,}" if batch.isascii() and batch.isdecimal() and len(batch) < _LONG else "That batch"
        )
        return f"{number} is not held: somebody has decided on it, or no gate has held it."
    if view.runs and not view.stream.wants_driver and _LACKS[request] == _NOTHING_RUNS:
        wish = view.stream.wish.value.lower()
        by_hand = "The driver was started by hand, and can only be stopped."
        return by_hand if view.stream.is_over else f"The driver ends after its batch, because {wish} was asked for."
    return _LACKS[request].format(state=view.state)


_OF_SOURCE = "Sets what batches read at most of this source, in place of the limits of each, from the next batch on."
_LONG = 13
"""Digits that no number of a batch has."""
_NOTHING_RUNS = "The stream is {state}, so nothing runs that could end."
_LACKS = {
    Request.STOP: _NOTHING_RUNS,
    Request.DRAIN: _NOTHING_RUNS,
    Request.SUSPEND: _NOTHING_RUNS,
    Request.RESUME: "The stream is {state}, and only a suspended one resumes. Start it, or restart it.",
    Request.SAVE: "No batch is committed, so there is nothing to save.",
    Request.REQUEUE: "No source of the job has quarantined rows.",
    Request.REDO: "The newest driver has not ended by a sink that lost batches.",
    Request.SKIP: "The newest driver has not ended by a sink that lost batches, or rejected one.",
}
_FIELDS: dict[Request, tuple[str, list[str]]] = {
    Request.LIMITS: ("rows", ["--rows N --bytes SIZE --files N --max-rate N --max-rate-per-partition N --pause"]),
    Request.SAVE: ("name", ["NAME"]),
    Request.REQUEUE: ("source", ["--source NAME --from-batch N"]),
    Request.REDO: ("sink", ["SINK"]),
    Request.SKIP: ("sink", ["SINK"]),
}

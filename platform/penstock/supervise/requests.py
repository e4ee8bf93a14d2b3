"""Make the requests that a person makes of a stream, one function each: for commands, Airflow's tasks and programs.

Each takes the `StreamControl` of the stream and an id that stays the same over the tries of one request (`Command.id`).
It returns the outcome at once. The supervisor and the driver carry the request out, and `StreamControl.wait` waits for
that. `saving.save` names a checkpoint, and returns once that is done. `penstock held`, which loads the job, releases
and discards held batches (SEMANTICS 11.5).

`DAGS` names the DAG that makes the same request from Airflow's trigger form, and from the pages.
"""

from __future__ import annotations

from enum import Enum

from penstock.supervise.commands import Command, Verb
from penstock.supervise.control import Asked, StreamControl
from penstock.supervise.stream import Limits

__all__ = ["DAGS", "Request", "drain", "resume", "set_limits", "stop", "suspend"]


class Request(Enum):
    """A request that is neither a start nor a restart."""

    STOP = "stop"
    DRAIN = "drain"
    SUSPEND = "suspend"
    RESUME = "resume"
    LIMITS = "limits"
    SAVE = "save"
    RELEASE = "release"
    DISCARD = "discard"


DAGS = {
    Request.STOP: "stop_stream",
    Request.DRAIN: "drain_stream",
    Request.SUSPEND: "suspend_stream",
    Request.RESUME: "resume_stream",
    Request.LIMITS: "limit_stream",
    Request.SAVE: "save_checkpoint",
    Request.RELEASE: "release_held_batch",
    Request.DISCARD: "discard_held_batch",
}
"""The DAG of each request.

All take `job`, and `note` is of none. `limit_stream` takes `rows` (null for the configuration's), `save_checkpoint`
takes `name`, the last two take `batch`.
"""


def stop(control: StreamControl, by: str, *, generation: int | None = None) -> Asked:
    """Ask the driver to finish its batch and end; with `generation` only the stream that it began."""
    return control.ask(Command(verb=Verb.STOP, id=by, generation=generation))


def drain(control: StreamControl, by: str, *, generation: int | None = None) -> Asked:
    """Ask the driver to process what is available, close all windows and end (SEMANTICS 10.6)."""
    return control.ask(Command(verb=Verb.DRAIN, id=by, generation=generation))


def suspend(control: StreamControl, by: str, *, generation: int | None = None) -> Asked:
    """Ask the driver to finish its batch and end; `resume` starts it with the same code and limits.

    Raises CommandRefused where nothing runs.
    """
    return control.ask(Command(verb=Verb.SUSPEND, id=by, generation=generation))


def resume(control: StreamControl, by: str, *, generation: int | None = None) -> Asked:
    """Start a suspended stream again; raises CommandRefused where it is not suspended."""
    return control.ask(Command(verb=Verb.RESUME, id=by, generation=generation))


def set_limits(control: StreamControl, by: str, limits: Limits | None, *, generation: int | None = None) -> Asked:
    """Bound what a batch reads of each source, from the next batch on; None restores the configuration's limits."""
    return control.ask(Command(verb=Verb.LIMITS, id=by, generation=generation, limits=limits))

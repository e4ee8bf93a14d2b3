"""Give a stream's commands from a task: the id that stays over tries, and what an answer means for the task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from penstock.airflow.projects import refuse_root_of_bundle
from penstock.config.values import parse_size
from penstock.errors import EXIT_PERSON, PenstockError
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.process.project import find_project
from penstock.supervise.commands import is_id
from penstock.supervise.control import StreamControl
from penstock.supervise.stream import StartOptions
from penstock.time.clock import SystemClock

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["asking", "command_id", "control_of", "limits_of", "options_of", "run_started_at"]


def control_of(project: str, job: str) -> StreamControl:
    """Return the control of a job's stream; AirflowFailException for what is no job of the project."""
    with asking():
        root = find_project(given=Path(project)).settings(job).root
        refuse_root_of_bundle(root)
        return StreamControl(root, job, SystemClock())


def command_id(context: Context) -> str:
    """Return the id of what a task asks: the same for every try, and after a clear (DESIGN 11)."""
    ti = context["ti"]
    name = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}"
    if ti.map_index is not None and ti.map_index >= 0:
        name = f"{name}/{ti.map_index}"
    if is_id(name):
        return name
    # People may name the runs they trigger; the id still distinguishes tasks of one run from those of others.
    return "/".join(hashlib.sha256(part.encode()).hexdigest() for part in (ti.dag_id, ti.run_id, name))


def run_started_at(context: Context) -> int | None:
    """Return, for a try that is not the first, when its run began, or was cleared: what is newer, it does not mean.

    The first try comes at once, and two machines' clocks may differ; None for it.
    """
    if context["ti"].try_number <= 1:
        return None
    run = context["dag_run"]
    when = run.start_date or run.run_after
    return int(when.timestamp() * 1_000_000)


@contextmanager
def asking() -> Iterator[None]:
    """Turn what only a person can mend, by its exit code, into a failure that Airflow does not try again."""
    try:
        yield
    except (PenstockError, ValueError) as why:
        if isinstance(why, PenstockError) and why.exit_code != EXIT_PERSON:
            raise
        raise AirflowFailException(str(why)) from why


def limits_of(*, source: object = None, paused: object = None, **counts: object) -> Limits:
    """Read what a form says of limits, by their names: nothing sets none, and so does no pause.

    With `source` they are of this one alone. Raises AirflowFailException for what is no limit, and for a pause of it.
    """
    numbers = {name: number for name, text in counts.items() if (number := _limit(name, text)) is not None}
    pauses = str(paused).lower() == "true"
    if not (name := str(source or "").strip()):
        return Limits.model_validate({**numbers, **({"paused": True} if pauses else {})})
    if pauses:
        raise AirflowFailException(f"a pause is of the whole job: leave the source empty, which is {name!r}")
    return Limits(sources={name: SourceLimits.model_validate(numbers)}) if numbers else Limits()


def options_of(
    partitions: object, state: Mapping[str, str] | Sequence[str] | str | None, drop: Sequence[str] | str | None,
    *, truncate_sinks: bool,
) -> StartOptions | None:  # fmt: skip
    """Read what an operator was given, or a template made of a form; None where nothing was said.

    `state` maps steps to tables, or is `STEP=TABLE` once or several times; `drop` are names of steps. A text has them
    with blanks between. Raises AirflowFailException for what is none of it.
    """
    number = _count(partitions, "partitions")
    words = [f"{step}={table}" for step, table in state.items()] if isinstance(state, Mapping) else _words(state)
    with asking():
        return StartOptions.given(partitions=number, state=words, truncate_sinks=truncate_sinks, drop=_words(drop))


def _count(value: object, noun: str) -> int | None:
    text = str(value or "").strip()
    if text and (not text.isdecimal() or int(text) < 1):
        raise AirflowFailException(f"{text!r} is not a number of {noun}, 1 or more")
    return int(text) if text else None


def _limit(name: str, value: object) -> int | None:
    return _size(value) if name == "bytes" else _count(value, "files" if name == "files" else "rows")


def _size(value: object) -> int | None:
    """Read a number of bytes, or a size such as "64 MiB"."""
    text = str(value or "").strip()
    if not text or text.isdecimal():
        return _count(text, "bytes")
    try:
        return parse_size(text)
    except ValueError as why:
        raise AirflowFailException(f"{text!r} is not a size: {why}") from why


def _words(names: Sequence[str] | str | None) -> list[str]:
    return names.split() if isinstance(names, str) else list(names or ())

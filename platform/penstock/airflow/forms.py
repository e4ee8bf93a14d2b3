"""Make the fields of trigger forms, and the DAGs that have them.

A field that may stay empty takes null: Airflow's form sends nothing while a field that takes none is empty. A field
that somebody must choose has no default, so that no stream is commanded that nobody has picked.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param

__all__ = [
    "NAME", "batch_limits", "batch_param", "count_param", "exactly", "job_param", "new_dag", "note_param",
    "words_param",
]  # fmt: skip

NAME = "[a-z][a-z0-9_]{0,62}"
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_NOTE = 500
_MOST = 10**12
_MOST_WORDS = 50


def exactly(pattern: str) -> str:
    r"""Return a pattern that a whole text must match; Python's `$` also matches before a newline at the end."""
    return f"^({pattern})$(?!\\n)"


def new_dag(
    name: str, doc: str, params: dict[str, Param], *, defaults: dict[str, Any], schedule: Any = None, runs: int = 1_000
) -> DAG:
    """Return a DAG that can be triggered at once; without a schedule only people and other programs trigger it.

    `runs` are the runs at one time: a run that follows a stream must not keep a command to another stream waiting.
    """
    return DAG(
        name,
        schedule=schedule,
        max_active_runs=runs,
        max_active_tasks=1_000,
        start_date=_BEGIN,
        catchup=False,
        is_paused_upon_creation=False,
        default_args=defaults,
        tags=["penstock"],
        doc_md=doc,
        params=params,
    )


def job_param(jobs: list[str]) -> Param:
    """Return the field of a job that must be picked."""
    return Param(type="string", enum=jobs, title="Job", description="The job of the stream.")


def count_param(title: str, description: str, *, least: int = 1, most: int = _MOST) -> Param:
    """Return the field of a whole number from `least` to `most`, which may stay empty."""
    return Param(None, type=["null", "integer"], title=title, description=description, **_bounds(least, most))


def batch_param(description: str) -> Param:
    """Return the field of a batch that must be named."""
    return Param(type="integer", title="Batch", description=description, **_bounds(0, _MOST))


def batch_limits(empty: str) -> dict[str, Param]:
    """Return the fields of what a batch reads at most; `empty` says what an empty one does."""
    most = "The maximum of {} per batch for each source{}; empty {}."
    return {
        "rows": count_param("Rows a batch", most.format("rows", "", empty)),
        "bytes": _size_param("Bytes a batch", most.format("bytes", ", such as 64 MiB", empty)),
        "files": count_param("Files a batch", most.format("files", " that reads files", empty)),
    }


def _size_param(title: str, description: str) -> Param:
    """Return the field of a size in bytes, such as 64 MiB, which may stay empty."""
    # Airflow's messages take no number of more than 64 bits.
    pattern = exactly("([1-9][0-9]{0,12}|[1-9][0-9]{0,5} ?[KMGT]iB)?")
    return Param(None, type=["null", "string"], pattern=pattern, title=title, description=description)


def words_param(pattern: str, *, title: str, description: str) -> Param:
    """Return the field of words, one a line; empty lines mean nothing."""
    items = {"type": "string", "pattern": exactly(f"({pattern})?")}
    kinds = ["null", "array"]
    return Param(None, type=kinds, items=items, maxItems=_MOST_WORDS, title=title, description=description)


def note_param() -> Param:
    """Return the field of a note, which may stay empty."""
    return Param(
        None, type=["null", "string"], maxLength=_NOTE, title="Note", description="A reason, recorded with the stream."
    )


def _bounds(least: int, most: int) -> dict[str, Any]:
    """Return the bounds of a number. What is beyond `minimum` or `maximum` Airflow's form moves there, unasked."""
    return {"exclusiveMinimum": least - 1, "exclusiveMaximum": most + 1}

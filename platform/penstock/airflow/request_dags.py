"""Make a DAG for each request other than a start: stop, drain, suspend, resume, limits, save, held batches."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, BaseOperator, Param

from penstock.airflow.awaiting import AskingOperator
from penstock.airflow.factory import configured
from penstock.airflow.forms import MOST_ROWS, NAME, exactly, job_param, new_dag, rows_param
from penstock.airflow.projects import project_of
from penstock.airflow.request_operators import (
    DiscardHeld,
    DrainStream,
    LimitStream,
    ReleaseHeld,
    ResumeStream,
    SaveCheckpoint,
    StopStream,
    SuspendStream,
)
from penstock.airflow.task_settings import commands, placing_of, waits
from penstock.config.schema import AirflowDefaults
from penstock.supervise.commands import DAGS, Request

__all__ = ["request_dags"]

_ABOUT: dict[Request, tuple[type[BaseOperator], str]] = {
    Request.STOP: (StopStream, "Ends the driver of a stream after its batch. It stays stopped until a start."),
    Request.DRAIN: (DrainStream, "Processes what is available, closes all windows of a stream, and ends it."),
    Request.SUSPEND: (SuspendStream, "Ends the driver of a stream after its batch; `resume_stream` restarts it."),
    Request.RESUME: (ResumeStream, "Restarts a suspended stream, with the same code and limits."),
    Request.LIMITS: (LimitStream, "Sets the maximum of rows per batch for each source, from the next batch on."),
    Request.SAVE: (SaveCheckpoint, "Names the newest checkpoint of a stream (a savepoint), so that it is kept."),
    Request.RELEASE: (ReleaseHeld, "Publishes a batch that a gate holds back."),
    Request.DISCARD: (DiscardHeld, "Drops a batch that a gate holds back. This cannot be undone."),
}


def request_dags(file: str) -> dict[str, DAG]:
    """Return the DAG of each request for the project that a DAG file is in, by id, for its globals."""
    project = project_of(file)
    jobs = configured(project)
    placing = placing_of(project)
    return {DAGS[request]: _request_dag(request, str(project.root), jobs, placing) for request in Request}


def _request_dag(request: Request, project: str, jobs: list[str], placing: AirflowDefaults) -> DAG:
    operator, about = _ABOUT[request]
    fields = _fields(request)
    with new_dag(DAGS[request], about, {"job": job_param(jobs), **fields}, defaults=commands(placing)) as dag:
        arguments: dict[str, Any] = {name: f"{{{{ params.{name} or '' }}}}" for name in ("job", *fields)}
        if "batch" in fields:  # 0 is one
            arguments["batch"] = "{{ params.batch }}"
        arguments |= waits(placing) if issubclass(operator, AskingOperator) else {}
        operator(task_id=request.value, project=project, **arguments)
    return dag


def _fields(request: Request) -> dict[str, Param]:
    """Return what a form asks beside the job."""
    if request is Request.LIMITS:
        return {
            "rows": rows_param(
                "The maximum of rows per batch for each source; empty restores the configuration's limit."
            )
        }
    if request is Request.SAVE:
        about = "Lower-case letters, digits and _; a name that no savepoint of the job has."
        return {"name": Param(type="string", pattern=exactly(NAME), title="Name", description=about)}
    if request in (Request.RELEASE, Request.DISCARD):
        about = "The number of a held batch, as the page of the stream and `penstock held JOB list` show it."
        return {
            "batch": Param(type="integer", minimum=0, maximum=MOST_ROWS, title="Batch", description=about),
        }
    return {}

"""Make DAGs of a project: one for each job, one that takes a stream back to a checkpoint, reports, and upkeep.

Parsing reads names, settings and the newest commits of each log, and imports nothing of Spark.

What can be restored is offered by the form and not enforced by it: a worker parses the file anew for every try, and a
batch that was there when the run was triggered may be purged by then. What is enforced is the form of the words; the
task says which batches there are if the one that was picked is gone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetAny, Param, task

from penstock.airflow.operators import RestartStream, StartStream, WaitStream
from penstock.airflow.upkeep import CheckpointUpkeep, QualityReport
from penstock.checkpoint.mirror import hurried
from penstock.checkpoint.recent import Recent, newest_commits
from penstock.errors import PenstockError
from penstock.runtime.project import Project, find_project
from penstock.runtime.roots import control_store, job_log
from penstock.supervise.assets import asset_uri
from penstock.supervise.records import StreamRecords

__all__ = ["report_dag", "restart_dag", "stream_dags", "upkeep_dag", "windows_asset"]

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_NOTE = 500
_OFFERED = 20
_PARSING = 2.0
"""Seconds for which a DAG file waits for HDFS: Airflow gives up one that takes long, and kills what it runs."""
_RETRY = timedelta(seconds=5)
_TRIES = 3
_TRIES_OF_A_LIFE = 100
"""Of the task that follows a stream for months: workers are renewed and storage has bad hours in such a time."""
_STEP = "[a-z][a-z0-9_]{0,62}"
_MOST_STEPS = 50
_MOST_PARTITIONS = 100_000
_START = "(last|empty|batch=[0-9]{1,12}|saved=[a-z][a-z0-9_]{0,62})"


def stream_dags(file: str) -> dict[str, DAG]:
    """Return a DAG for each `conf/jobs/*.toml` of the project that a DAG file is in, by id, for its globals."""
    project = find_project(Path(file).parent)
    return {f"stream_{job}": _stream_dag(project, job) for job in _configured(project)}


def restart_dag(file: str) -> DAG:
    """Return the DAG `restart_from_checkpoint`: a job, and a batch that can be restored, are picked in its form."""
    project = find_project(Path(file).parent)
    jobs = _configured(project)
    starts = {job: _starts(_newest_batches(project, job)) for job in jobs}
    kept = {f"{job} {start}": f"{job}: {said}" for job in jobs for start, said in starts[job].items()}
    with _dag(
        "restart_from_checkpoint",
        "Ends the driver of a stream after its batch, and begins anew from what is picked.",
        {
            "checkpoint": Param(
                next(iter(kept), ""),
                type="string",
                pattern=f"^({'|'.join(jobs)}) {_START}$",
                examples=list(kept),
                values_display=kept,
                title="Job and checkpoint",
                description="What the stream goes back to. What its tables got after that comes again.",
            ),
            "truncate_sinks": Param(
                default=False,
                type="boolean",
                title="Sinks take back",
                description="Tables show again what they showed then; else what they got after it stays beside it.",
            ),
            "partitions": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                maximum=_MOST_PARTITIONS,
                title="Partitions",
                description="Write the state anew for so many, which the job's code says as well; empty leaves it.",
            ),
            "state": _words_param(
                f"{_STEP}={_STEP}",
                title="State from tables",
                description="STEP=TABLE, a line each: the step goes on with the state in a table that [tables] names.",
            ),
            "drop": _words_param(
                _STEP, title="Steps to drop", description="A line each: steps with state that the job has no more."
            ),
            "rows": _rows_param(),
            "note": _note_param(),
        },
    ) as dag:
        picked = "params.checkpoint.partition(' ')"
        RestartStream(
            task_id="restart",
            job="{{ " + picked + "[0] }}",
            start="{{ " + picked + "[2] }}",
            project=str(project.root),
            truncate_sinks="{{ params.truncate_sinks }}",
            partitions="{{ params.partitions or '' }}",
            state="{{ params.state | join(' ') }}",
            drop="{{ params.drop | join(' ') }}",
            rows="{{ params.rows or '' }}",
            note="{{ params.note or '' }}",
            retries=_TRIES,
            retry_delay=_RETRY,
        )
    return dag


def windows_asset(job: str) -> Asset:
    """Return the asset that stands for the windows which a job has published; the supervisor posts its events."""
    return Asset(name=f"{job}_windows", uri=asset_uri(job))


def report_dag(file: str) -> DAG:
    """Return the DAG `quality_reports`: a report on each job that has published windows, or on what is picked."""
    project = find_project(Path(file).parent)
    jobs = _configured(project)
    with _dag(
        "quality_reports",
        "Has Great Expectations judge the windows that were published since the last report, by the suites of the "
        "job's checks. Runs when a stream has published windows, and on demand.",
        {
            "job": _job_param(jobs),
            "newest": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                maximum=100_000,
                title="Newest windows",
                description="Judge so many of the newest windows again; empty means those that are new.",
            ),
        },
        schedule=AssetAny(*map(windows_asset, jobs)) if jobs else None,
    ) as dag:
        QualityReport.partial(
            task_id="report", project=str(project.root), newest="{{ params.newest or '' }}", retries=2,
            retry_delay=_RETRY, max_active_tis_per_dag=1,
        ).expand(job=_pick(jobs))  # fmt: skip
    return dag


def upkeep_dag(file: str) -> DAG:
    """Return the DAG `checkpoint_upkeep`: once a day all that jobs can go back to is read and checked."""
    project = find_project(Path(file).parent)
    jobs = _configured(project)
    with _dag(
        "checkpoint_upkeep",
        "Reads every entry and every byte of state that jobs can go back to, and fails where something is damaged.",
        {"job": _job_param(jobs)},
        schedule="@daily",
    ) as dag:
        CheckpointUpkeep.partial(
            task_id="verify", project=str(project.root), retries=2, retry_delay=_RETRY, max_active_tis_per_dag=1
        ).expand(job=_pick(jobs))
    return dag


def _pick(jobs: list[str]) -> Any:
    """Return a task that names the jobs of a run: the one of its form, those whose events began it, or all."""

    @task(task_id="pick")
    def pick(params: Any = None, triggering_asset_events: Any = None) -> list[str]:
        if params and params.get("job"):
            return [str(params["job"])]
        told = {asset.name.removesuffix("_windows") for asset in (triggering_asset_events or {})}
        return [job for job in jobs if job in told] or jobs

    return pick()


def _job_param(jobs: list[str]) -> Param:
    return Param(
        None, type=["null", "string"], enum=[None, *jobs], title="Job", description="One job; empty means all."
    )


def _stream_dag(project: Project, job: str) -> DAG:
    """Return deploy -> healthy -> supervise for one job; on a schedule each run ends when what was there is done."""
    # Not while it runs: with each batch the DAG would be another, and Airflow keeps every version of a DAG.
    starts = _starts([] if _runs(project, job) else _newest_batches(project, job))
    schedule = _schedule(project, job)
    doc = (
        f"Starts the stream `{job}`, waits until it runs, and follows it to its end. The stream lives on when a task, "
        "a worker or Airflow itself dies: the supervisor keeps it."
    )
    if schedule is not None:
        doc += " Each run does what is there, and ends; the next one goes on from its checkpoint."
    with _dag(
        f"stream_{job}",
        doc,
        {
            "restart": Param(
                default=False,
                type="boolean",
                title="Restart",
                description="End a driver that runs, after its batch, and begin anew. Else a stream that runs is left.",
            ),
            "start": Param(
                "last",
                type="string",
                pattern=f"^{_START}$",
                examples=list(starts),
                values_display=starts,
                title="Start from",
                description="Where a new driver begins. The batches of a stream that runs are offered by the DAG "
                "restart_from_checkpoint and the stream's page; batch=N and saved=NAME take any of them here too.",
            ),
            "rows": _rows_param(),
            "note": _note_param(),
        },
        schedule=schedule,
    ) as dag:
        # A command given again is carried out once, and a wait whose worker died attaches again; what failed for good
        # is not tried again.
        facts: dict[str, Any] = {"job": job, "project": str(project.root), "retries": _TRIES, "retry_delay": _RETRY}
        deploy = StartStream(
            task_id="deploy",
            start="{{ params.start }}",
            restart="{{ params.restart }}",
            available_now=schedule is not None,
            rows="{{ params.rows or '' }}",
            note="{{ params.note or '' }}",
            **facts,
        )
        healthy = WaitStream(task_id="healthy", until="healthy", **facts)
        deploy >> healthy >> WaitStream(task_id="supervise", until="end", **{**facts, "retries": _TRIES_OF_A_LIFE})
    return dag


def _dag(name: str, doc: str, params: dict[str, Param], *, schedule: Any = None) -> DAG:
    """Return a DAG that is at once ready to be triggered; without a schedule only people and other programs do."""
    return DAG(
        name,
        schedule=schedule,
        max_active_runs=1 if schedule is not None else 16,
        start_date=_BEGIN,
        catchup=False,
        is_paused_upon_creation=False,
        tags=["penstock"],
        doc_md=doc,
        params=params,
    )


def _configured(project: Project) -> list[str]:
    files = (project.root / "conf" / "jobs").glob("*.toml")
    return sorted(path.stem for path in files if path.stem in project.job_names())


def _schedule(project: Project, job: str) -> str | None:
    try:
        return project.settings(job).schedule
    except PenstockError:
        return None  # a run says what is wrong, and for which key


def _starts(batches: list[Recent]) -> dict[str, str]:
    """Return what a stream can begin from, newest first, and how a form says it."""
    found = {"last": "where it left off"}
    for one in batches:
        at = datetime.fromtimestamp(one.time / 1_000_000, UTC)
        found[f"batch={one.batch}"] = f"batch {one.batch}, {at:%Y-%m-%d %H:%M:%S} UTC"
    return {**found, "empty": "nothing: begin anew"}


def _newest_batches(project: Project, job: str) -> list[Recent]:
    """Return the newest batches that can be restored; a log in trouble offers less."""
    try:
        with hurried(_PARSING):
            log = job_log(project.settings(job).root / job)
            return newest_commits(log, _OFFERED) if log is not None else []
    except (PenstockError, OSError):
        return []


def _runs(project: Project, job: str) -> bool:
    """Return whether the stream has a driver, or is to have one."""
    try:
        with hurried(_PARSING):
            stream = StreamRecords(control_store(project.settings(job).root, make=False), job).newest()
    except (PenstockError, OSError):
        return False
    return stream.driver is not None or stream.wants_driver


def _rows_param() -> Param:
    return Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Rows a batch",
        description="The most that a batch reads of each source; empty leaves the limit as it is.",
    )


def _words_param(pattern: str, *, title: str, description: str) -> Param:
    items = {"type": "string", "pattern": f"^{pattern}$"}
    return Param([], type="array", items=items, maxItems=_MOST_STEPS, title=title, description=description)


def _note_param() -> Param:
    return Param("", type="string", maxLength=_NOTE, title="Note", description="Why; kept with the stream.")

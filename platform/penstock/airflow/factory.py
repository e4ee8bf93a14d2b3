"""Make the DAGs of a project: one for each job, one that restarts a stream from a checkpoint, reports, and upkeep.

Parsing reads the configuration, and what stores say within one budget (`form_values`); it imports nothing of Spark.

The form offers what can be restored and does not enforce it. A worker parses the file for every try, and a batch that
was kept when the run was triggered may be purged by then. The form enforces the syntax of the words. If the picked
batch is gone, the task says which batches there are.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetAny, BaseOperator, Param, task

from penstock.airflow.awaiting import AskingOperator
from penstock.airflow.form_values import offered
from penstock.airflow.forms import (
    NAME,
    batch_limits,
    batch_param,
    count_param,
    exactly,
    job_param,
    new_dag,
    note_param,
    words_param,
)
from penstock.airflow.operators import RestartStream, StartStream, WaitStream
from penstock.airflow.projects import project_of
from penstock.airflow.request_operators import (
    DiscardHeld,
    DrainStream,
    LimitStream,
    RedoSink,
    ReleaseHeld,
    RequeueRows,
    ResumeStream,
    SaveCheckpoint,
    SkipSink,
    StopStream,
    SuspendStream,
)
from penstock.airflow.task_settings import commands, default_args, follows, placing_of, waits
from penstock.airflow.upkeep import CheckpointUpkeep, QualityReport
from penstock.config.schema import AirflowDefaults, AirflowSection
from penstock.graph.partitions import MOST_PARTITIONS
from penstock.runtime.process.project import Project
from penstock.supervise.commands import DAGS, Request
from penstock.supervise.events.assets import asset_uri

__all__ = ["configured", "report_dag", "request_dags", "restart_dag", "stream_dags", "upkeep_dag", "windows_asset"]

_START = f"(last|empty|batch=[0-9]{{1,12}}|saved={NAME}|snapshot=({NAME}@)?[0-9]{{1,12}})"


def stream_dags(file: str) -> dict[str, DAG]:
    """Return a DAG for each `conf/jobs/*.toml` of the project that a DAG file is in, by id, for its globals."""
    project = project_of(file)
    jobs = configured(project)
    starts = offered(project, jobs)
    return {f"stream_{job}": _stream_dag(project, job, starts[job]) for job in jobs}


def restart_dag(file: str) -> DAG:
    """Return the DAG `restart_from_checkpoint`: a job and where it starts again are picked in its form."""
    project = project_of(file)
    jobs = configured(project)
    starts, placing = offered(project, jobs), placing_of(project)
    kept = {f"{job} {start}": f"{job}: {label}" for job in jobs for start, label in starts[job].items()}
    with new_dag(
        "restart_from_checkpoint",
        "Checks the restart, ends the driver of the stream after its batch, restarts the stream from the chosen "
        "checkpoint, and follows it to its end.",
        {
            "checkpoint": Param(
                type="string",
                pattern=exactly(f"({'|'.join(jobs)}) {_START}"),
                examples=list(kept),
                values_display=kept,
                title="Job and checkpoint",
                description="JOB last, JOB batch=N, JOB saved=NAME, JOB snapshot=VERSION or JOB empty. The form offers "
                "saved checkpoints, and batches of streams that do not run; the page of a stream lists its own. "
                "Rows that the tables received after that batch are published a second time.",
            ),
            "truncate_sinks": Param(
                default=False,
                type=["null", "boolean"],
                title="Truncate sinks",
                description="Restores each table to its version at that batch. Without it, later rows stay, and are "
                "published a second time.",
            ),
            "partitions": count_param(
                "Partitions",
                "Rescales the state. A number in the job's code must be the same; empty leaves it.",
                most=MOST_PARTITIONS,
            ),
            "state": words_param(
                f"{NAME}={NAME}",
                title="State from tables",
                description="STEP=TABLE, a line each: the step resumes with the state in a table that [tables] names.",
            ),
            "drop": words_param(
                NAME,
                title="Steps and sources to drop",
                description="A line each: steps with state, and sources, that the job's code no longer has.",
            ),
            **batch_limits("keeps the limit"),
            "note": note_param(),
        },
        defaults=commands(placing),
    ) as dag:
        picked = "(params.checkpoint or '').partition(' ')"
        facts: dict[str, Any] = {"job": "{{ " + picked + "[0] }}", "project": str(project.root)}
        restart = RestartStream(
            task_id="restart",
            start="{{ " + picked + "[2] }}",
            truncate_sinks="{{ params.truncate_sinks }}",
            partitions="{{ params.partitions or '' }}",
            state="{{ params.state | default([], true) | join(' ') }}",
            drop="{{ params.drop | default([], true) | join(' ') }}",
            rows="{{ params.rows or '' }}",
            bytes="{{ params.bytes or '' }}",
            files="{{ params.files or '' }}",
            note="{{ params.note or '' }}",
            **facts,
            **waits(placing),
        )
        restart >> WaitStream(task_id="supervise", until="end", **facts, **follows(placing))
    return dag


def windows_asset(job: str) -> Asset:
    """Return the asset that stands for the windows which a job has published; the supervisor posts its events."""
    return Asset(name=f"{job}_windows", uri=asset_uri(job))


def report_dag(file: str) -> DAG:
    """Return the DAG `quality_reports`: a report on each job that has published windows, or on what is picked."""
    project = project_of(file)
    jobs = configured(project)
    with new_dag(
        "quality_reports",
        "Has Great Expectations judge the windows published since the last report, by the suites of the "
        "job's checks. Runs when a stream has published windows, and on demand.",
        {
            "job": _job_param(jobs),
            "newest": count_param(
                "Newest windows",
                "Judge that many of the newest windows once more; empty means those since the last report.",
                most=100_000,
            ),
        },
        schedule=AssetAny(*map(windows_asset, jobs)) if jobs else None,
        defaults=default_args(placing_of(project)),
        runs=1,
    ) as dag:
        QualityReport.partial(
            task_id="report", project=str(project.root), newest="{{ params.newest or '' }}", max_active_tis_per_dag=1
        ).expand(job=_pick(jobs))  # fmt: skip
    return dag


def upkeep_dag(file: str) -> DAG:
    """Return the DAG `checkpoint_upkeep`: once a day it verifies what jobs can restore, and maintains tables."""
    project = project_of(file)
    jobs = configured(project)
    with new_dag(
        "checkpoint_upkeep",
        "Verifies every entry and every byte of state that jobs can restore, and maintains the tables that they write. "
        "Fails if anything is damaged.",
        {"job": _job_param(jobs)},
        schedule="@daily",
        defaults=default_args(placing_of(project)),
        runs=1,
    ) as dag:
        CheckpointUpkeep.partial(task_id="verify", project=str(project.root), max_active_tis_per_dag=1).expand(
            job=_pick(jobs)
        )
    return dag


def _pick(jobs: list[str]) -> Any:
    """Return a task that names the jobs of a run: the one of its form, those whose events began it, or all."""

    @task(task_id="pick")
    def pick(params: Any = None, triggering_asset_events: Any = None) -> list[str]:
        if params and params.get("job"):
            return [str(params["job"])]
        reported = {asset.name.removesuffix("_windows") for asset in (triggering_asset_events or {})}
        return [job for job in jobs if job in reported] or jobs

    return pick()


def _job_param(jobs: list[str]) -> Param:
    return Param(
        None,
        type=["null", "string"],
        enum=[None, *jobs],
        values_display={"null": "all jobs"},
        title="Job",
        description="One job; empty means all.",
    )


def _stream_dag(project: Project, job: str, starts: dict[str, str]) -> DAG:
    """Return deploy -> healthy -> supervise for one job; on a schedule each run ends when what was there is done."""
    placing = placing_of(project, job)
    schedule = placing.schedule if isinstance(placing, AirflowSection) else None
    doc = (
        f"Starts the stream `{job}`, waits until it runs, and follows it to its end. The stream keeps running when a "
        "task, a worker or Airflow itself dies, because the supervisor runs it."
    )
    if schedule is not None:
        doc += " Each run processes what is available and ends; the next one resumes from its checkpoint."
    with new_dag(
        f"stream_{job}",
        doc,
        {
            "restart": Param(
                default=False,
                type=["null", "boolean"],
                title="Restart",
                description="End a running driver after its batch, and restart. Without it a running stream stays.",
            ),
            "start": Param(
                "last",
                type="string",
                pattern=exactly(_START),
                examples=list(starts),
                values_display=starts,
                title="Start from",
                description="Where a new driver begins: last, empty, batch=N, saved=NAME or snapshot=VERSION. The form "
                "offers saved checkpoints, and the batches of a stream that does not run; its page lists them always.",
            ),
            **batch_limits("keeps the limit"),
            "note": note_param(),
        },
        schedule=schedule,
        defaults=commands(placing),
        runs=1 if schedule is not None else 1_000,
    ) as dag:
        # A command given again is carried out once, and a wait whose worker died attaches again; what failed for good
        # is not tried again.
        facts: dict[str, Any] = {"job": job, "project": str(project.root)}
        deploy = StartStream(
            task_id="deploy",
            start="{{ params.start }}",
            restart="{{ params.restart }}",
            available_now=schedule is not None,
            rows="{{ params.rows or '' }}",
            bytes="{{ params.bytes or '' }}",
            files="{{ params.files or '' }}",
            note="{{ params.note or '' }}",
            **facts,
        )
        # A driver may wait long for room in the cluster: no slot waits with it.
        healthy = WaitStream(task_id="healthy", until="healthy", **facts, **waits(placing))
        deploy >> healthy >> WaitStream(task_id="supervise", until="end", **facts, **follows(placing))
    return dag


def configured(project: Project) -> list[str]:
    """Return the jobs that have both a module and a configuration."""
    files = (project.root / "conf" / "jobs").glob("*.toml")
    return sorted(path.stem for path in files if path.stem in project.job_names())


_ABOUT: dict[Request, tuple[type[BaseOperator], str]] = {
    Request.STOP: (StopStream, "Ends the driver of a stream after its batch. It stays stopped until a start."),
    Request.DRAIN: (
        DrainStream,
        "Processes what is available, closes all windows, and ends the stream. A start then reads nothing more.",
    ),
    Request.SUSPEND: (SuspendStream, "Ends the driver of a stream after its batch; `resume_stream` restarts it."),
    Request.RESUME: (ResumeStream, "Restarts a suspended stream, with the same code and limits."),
    Request.LIMITS: (LimitStream, "Sets what batches read at most of each source, from the next batch on."),
    Request.SAVE: (SaveCheckpoint, "Names the newest checkpoint of a stream (a savepoint), so that it is kept."),
    Request.RELEASE: (ReleaseHeld, "Publishes a batch that a gate holds back."),
    Request.DISCARD: (DiscardHeld, "Drops a batch that a gate holds back. This cannot be undone."),
    Request.REQUEUE: (RequeueRows, "Sends the quarantined rows of a source through the job again, each once."),
    Request.REDO: (RedoSink, "Publishes the batches that a sink of a stopped stream has lost again."),
    Request.SKIP: (SkipSink, "Continues without the batches that a sink of a stopped stream does not show."),
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
        for number in {"batch", "from_batch"} & fields.keys():  # 0 is one
            arguments[number] = f"{{{{ '' if params.{number} is none else params.{number} }}}}"
        arguments |= waits(placing) if issubclass(operator, AskingOperator) else {}
        operator(task_id=request.value, project=project, **arguments)
    return dag


def _fields(request: Request) -> dict[str, Param]:
    """Return what a form asks beside the job."""
    if request is Request.LIMITS:
        return {
            "source": Param(
                None,
                type=["null", "string"],
                pattern=exactly(f"({NAME})?"),
                title="Source",
                description="The source that these limits are for; empty means each.",
            ),
            **batch_limits("restores the configuration's limit"),
            "max_rate": count_param(
                "Rows a second",
                "The maximum of rows a second for each source; empty restores the configuration's limit.",
            ),
            "max_rate_per_partition": count_param(
                "Rows a second and partition",
                "The maximum of rows a second for each partition; empty restores the configuration's limit.",
            ),
            "paused": Param(default=False, type="boolean", title="Pause", description="Batches read nothing."),
        }
    if request is Request.SAVE:
        about = "Lower-case letters, digits and _; a name that no savepoint of the job has."
        return {"name": Param(type="string", pattern=exactly(NAME), title="Name", description=about)}
    if request in (Request.RELEASE, Request.DISCARD):
        about = "The number of a held batch, as the page of the stream and `penstock held JOB list` show it."
        return {"batch": batch_param(about)}
    if request in (Request.REDO, Request.SKIP):
        about = "A sink of the job, as the error PEN-SNK-006 and the page of the stream name it."
        return {"sink": Param(type="string", pattern=exactly(NAME), title="Sink", description=about)}
    if request is Request.REQUEUE:
        about = "A source of the job whose quarantine is written to a Delta table as it is."
        return {
            "source": Param(type="string", pattern=exactly(NAME), title="Source", description=about),
            "from_batch": count_param(
                "From batch",
                "Send again what this batch and later ones quarantined; empty sends what was not sent yet.",
                least=0,
            ),
        }
    return {}

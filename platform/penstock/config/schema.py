"""Define the tables and keys of `conf/penstock.toml` and `conf/jobs/JOB.toml`.

docs/configuration.md describes every key; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.config.values import (
    CheckpointsText,
    DurationText,
    MasterText,
    Name,
    PatienceText,
    ScheduleText,
    SizeText,
    SparkConf,
    Text,
    TriggerText,
    UrlText,
)
from penstock.graph.policies import BadRecord, OnEnd

__all__ = [
    "AirflowDefaults", "AirflowSection", "EventsSection", "JobFile", "ProjectFile", "ReplaySource", "TaskDefaults",
]  # fmt: skip


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CheckpointSection(_Section):
    """`[checkpoint]`: where and how much is kept."""

    root: Text | None = None
    cache: Text | None = None
    keep: Annotated[int, Field(ge=1)] | None = None
    every: CheckpointsText | None = None
    recover_within: DurationText | None = None
    snapshots: Annotated[int, Field(ge=1)] | None = None
    shared: bool | None = None


class SparkSection(_Section):
    """`[spark]`: the session of the driver."""

    master: MasterText | None = None
    conf: SparkConf = {}


class RunSection(_Section):
    """`[run]`: how the driver behaves."""

    trigger: TriggerText | None = None
    deadline: DurationText | None = None
    clock_patience: DurationText | None = None
    takeover_after: PatienceText | None = None


class LimitsSection(_Section):
    """`[limits]`: where a job stops rather than grow."""

    state: SizeText | None = None
    state_row: SizeText | None = None
    rows: Annotated[int, Field(ge=1)] | None = None


class SuperviseSection(_Section):
    """`[supervise]`: how patient the supervisor is with drivers."""

    backoff: DurationText | None = None
    backoff_max: DurationText | None = None
    failures_per_hour: Annotated[int, Field(ge=0)] | None = None
    healthy_after: DurationText | None = None
    progress_within: DurationText | None = None
    start_within: DurationText | None = None
    autostart: bool | None = None


class ReportsSection(_Section):
    """`[reports]`: how reports judge windows that were published."""

    pandas_rows: Annotated[int, Field(ge=0)] | None = None
    windows: Annotated[int, Field(ge=1)] | None = None
    suites: dict[Name, Text] = {}


class TaskDefaults(_Section):
    """`[airflow.default_args]`: arguments of Airflow's operators, under their own names."""

    retries: Annotated[int, Field(ge=0)] | None = None
    retry_delay: DurationText | None = None
    retry_exponential_backoff: Annotated[float, Field(ge=0)] | None = None
    max_retry_delay: DurationText | None = None
    execution_timeout: DurationText | None = None
    email: Text | None = None
    email_on_failure: bool | None = None
    email_on_retry: bool | None = None
    depends_on_past: bool | None = None
    wait_for_downstream: bool | None = None
    max_active_tis_per_dag: Annotated[int, Field(ge=1)] | None = None
    max_active_tis_per_dagrun: Annotated[int, Field(ge=1)] | None = None
    pool_slots: Annotated[int, Field(ge=1)] | None = None
    executor: Text | None = None
    run_as_user: Text | None = None

    def under(self, own: TaskDefaults) -> TaskDefaults:
        """Return these with those of a job, which go before them key by key."""
        return self.model_copy(update=own.model_dump(exclude_none=True))


class AirflowDefaults(_Section):
    """`[airflow]`: where and how the tasks of DAGs run."""

    owner: Text | None = None
    queue: Text | None = None
    priority: Annotated[int, Field(ge=1, le=1_000)] | None = None
    pool: Text | None = None
    deferrable: bool | None = None
    default_args: TaskDefaults = TaskDefaults()


class AirflowSection(AirflowDefaults):
    """`[airflow]` of a job: that, and what its DAG does by itself."""

    schedule: ScheduleText | None = None


class ReplaySource(_Section):
    """`[sources.NAME]` of kind file_replay: a file as if its rows were arriving."""

    kind: Literal["file_replay"]
    path: Text
    order_by: Text
    rows_per_batch: Annotated[int, Field(ge=1)] = 5_000
    on_end: Literal["close", "keep_open"] = "close"
    ddl: Annotated[Text | None, Field(alias="schema")] = None
    nulls: list[str] = [""]
    on_bad_record: Literal["quarantine", "fail"] = "quarantine"

    def source(self, path: Path) -> Any:
        """Return the source that a job reads; `path` is this section's, found from the project root."""
        from penstock.sources import FileReplay

        return FileReplay(
            path,
            order_by=self.order_by,
            rows_per_batch=self.rows_per_batch,
            on_end=OnEnd(self.on_end),
            schema=self.ddl,
            nulls=tuple(self.nulls),
            on_bad_record=BadRecord(self.on_bad_record),
        )


class EventsSection(_Section):
    """`[events]`: where the supervisor posts what happens; secrets by reference only."""

    airflow: UrlText | None = None
    user: Text | None = None
    password_env: Text | None = None
    password_file: Text | None = None
    webhook_env: Text | None = None
    webhook_file: Text | None = None


class _Shared(_Section):
    """What both files may say."""

    checkpoint: CheckpointSection = CheckpointSection()
    spark: SparkSection = SparkSection()
    run: RunSection = RunSection()
    limits: LimitsSection = LimitsSection()
    supervise: SuperviseSection = SuperviseSection()
    reports: ReportsSection = ReportsSection()


class ProjectFile(_Shared):
    """`conf/penstock.toml`: what holds for every job that does not say otherwise."""

    airflow: AirflowDefaults = AirflowDefaults()
    events: EventsSection = EventsSection()


class JobFile(_Shared):
    """`conf/jobs/JOB.toml`: the same sections, and the sources and tables of one job."""

    sources: dict[Name, ReplaySource] = {}
    tables: dict[Name, Text] = {}
    airflow: AirflowSection = AirflowSection()

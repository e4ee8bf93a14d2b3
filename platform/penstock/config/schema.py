"""The tables and keys of `conf/penstock.toml` and `conf/jobs/JOB.toml`: the one place of types and defaults.

docs/configuration.md describes every key; a test compares the two, defaults included. A key that a file does not set is
not in `model_fields_set`, and `over` then takes the value of the next file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from penstock.config.sources import SourceTables
from penstock.config.values import (
    CheckpointEvery,
    CronText,
    DurationValue,
    MasterText,
    Name,
    Size,
    SparkConf,
    TakeoverAfter,
    Text,
    TriggerValue,
    UrlText,
)
from penstock.graph.durations import minutes, seconds
from penstock.rates.limits import Limits, Rate, SourceLimits

__all__ = [
    "AirflowDefaults",
    "AirflowSection",
    "EventsSection",
    "JobFile",
    "JobSections",
    "ProjectFile",
    "ReportsSection",
    "SharedSections",
    "SuperviseSection",
    "TaskDefaults",
    "over",
]

Model = TypeVar("Model", bound=BaseModel)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CheckpointSection(_Section):
    """`[checkpoint]`: where and how much is kept."""

    root: Text = "checkpoints"
    cache: Text | None = None
    keep: Annotated[int, Field(ge=1)] = 20
    every: CheckpointEvery | None = None
    recover_within: DurationValue = minutes(1)
    snapshots: Annotated[int, Field(ge=1)] = 10
    shared: bool = False


class SparkSection(_Section):
    """`[spark]`: the session of the driver."""

    master: MasterText = "local[*]"
    conf: SparkConf = {}


class RunSection(_Section):
    """`[run]`: how the driver behaves."""

    trigger: TriggerValue | None = None
    deadline: DurationValue = seconds(30)
    clock_patience: DurationValue = minutes(5)
    takeover_after: TakeoverAfter = seconds(10)


class SourceLimitsSection(_Section):
    """`[limits.sources.NAME]`: what a batch reads at most of one source, in place of what it reads of each."""

    rows: Annotated[int, Field(ge=1)] | None = None
    bytes: Size | None = None
    files: Annotated[int, Field(ge=1)] | None = None
    max_rate: Rate | None = None
    max_rate_per_partition: Rate | None = None

    def chosen(self) -> dict[str, Any]:
        """Return the limits that are set, by name."""
        return {name: value for name in SourceLimits.model_fields if (value := getattr(self, name)) is not None}


class LimitsSection(SourceLimitsSection):
    """`[limits]`: where a job stops rather than grow, and what its batches read at most of each source."""

    state: Size | None = None
    state_row: Size = 16 << 20
    sources: dict[Name, SourceLimitsSection] = {}

    @property
    def of_batches(self) -> Limits:
        """Return the limits of what batches read."""
        own = {name: SourceLimits(**chosen) for name, of in self.sources.items() if (chosen := of.chosen())}
        values = self.chosen()
        if own:
            values["sources"] = own
        return Limits(**values)


class RatesSection(_Section):
    """`[rates]`: how the rate of live sources follows what batches cost."""

    estimator: Literal["cost_model", "pid", "constant", "off"] = "cost_model"
    rate: Rate | None = None
    initial_rate: Rate | None = None
    first_batch: Rate | Literal["unbounded"] = 10_000
    min_rate: Rate = 100
    min_rate_per_partition: Rate = 1
    target: DurationValue = seconds(10)
    headroom: Annotated[float, Field(gt=0, le=1)] = 0.85
    longest_interval: DurationValue | None = None
    proportional: Annotated[float | int, Field(ge=0)] = 1.0
    integral: Annotated[float | int, Field(ge=0)] = 0.2
    derivative: Annotated[float | int, Field(ge=0)] = 0.0


class SuperviseSection(_Section):
    """`[supervise]`: how patient the supervisor is with drivers."""

    backoff: DurationValue = seconds(2)
    backoff_max: DurationValue = minutes(5)
    failures_per_hour: Annotated[int, Field(ge=0)] = 5
    healthy_after: DurationValue = minutes(2)
    progress_within: DurationValue = minutes(10)
    start_within: DurationValue = minutes(3)
    autostart: bool = False


class ReportsSection(_Section):
    """`[reports]`: how reports judge windows that were published."""

    pandas_rows: Annotated[int, Field(ge=0)] = 100_000
    windows: Annotated[int, Field(ge=1)] = 2_000
    suites: dict[Name, Text] = {}


class TaskDefaults(_Section):
    """`[airflow.default_args]`: arguments of Airflow's operators, under their own names."""

    retries: Annotated[int, Field(ge=0)] | None = None
    retry_delay: DurationValue | None = None
    retry_exponential_backoff: Annotated[float, Field(ge=0)] | None = None
    max_retry_delay: DurationValue | None = None
    execution_timeout: DurationValue | None = None
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

    schedule: CronText | None = None


class EventsSection(_Section):
    """`[events]`: where the supervisor posts events. Secrets are references only."""

    airflow: UrlText | None = None
    user: Text | None = None
    password_env: Text | None = None
    password_file: Text | None = None
    webhook_env: Text | None = None
    webhook_file: Text | None = None


class SharedSections(_Section):
    """The sections that both files may have."""

    checkpoint: CheckpointSection = CheckpointSection()
    spark: SparkSection = SparkSection()
    run: RunSection = RunSection()
    limits: LimitsSection = LimitsSection()
    rates: RatesSection = RatesSection()
    supervise: SuperviseSection = SuperviseSection()
    reports: ReportsSection = ReportsSection()


def _no_sources(sources: dict[str, SourceLimitsSection]) -> dict[str, SourceLimitsSection]:
    if sources:
        raise ValueError("sources have names in a job: limit one in conf/jobs/JOB.toml")
    return sources


class ProjectLimits(LimitsSection):
    """`[limits]` of the project, which knows the sources of no job."""

    sources: Annotated[dict[Name, SourceLimitsSection], AfterValidator(_no_sources)] = {}


class ProjectFile(SharedSections):
    """`conf/penstock.toml`: what holds for every job that does not say otherwise."""

    limits: ProjectLimits = ProjectLimits()
    airflow: AirflowDefaults = AirflowDefaults()
    events: EventsSection = EventsSection()


class JobSections(SharedSections):
    """The same of one job, with its tables; its sources are not looked at.

    Who needs no source need not load what reads them: a DAG file is parsed every few seconds.
    """

    sources: dict[str, Any] = {}
    tables: dict[Name, Text] = {}
    airflow: AirflowSection = AirflowSection()


class JobFile(JobSections):
    """`conf/jobs/JOB.toml`: the same sections, and the sources and tables of one job."""

    sources: SourceTables = {}


def over(first: Model, then: BaseModel) -> Model:
    """Return `first`, and what only `then` sets: key by key, within tables as well. The models share those keys."""
    filled: dict[str, Any] = {}
    for key in then.model_fields_set & type(first).model_fields.keys():
        mine, theirs = getattr(first, key), getattr(then, key)
        if isinstance(mine, BaseModel):
            filled[key] = over(mine, theirs)
        elif isinstance(mine, dict):
            filled[key] = {**theirs, **mine}
        elif key not in first.model_fields_set:
            filled[key] = theirs
    return first.model_copy(update=filled)
